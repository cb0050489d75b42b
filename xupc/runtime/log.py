"""What the library decides, for Python's `logging`: the logger "xupc".

A program that has not imported `logging` has set no handler, so nothing is imported for it.
"""

from __future__ import annotations

import sys

__all__ = ["DEBUG", "INFO", "note"]

DEBUG, INFO = 10, 20  # of logging


def note(level: int, text: str, *arguments: object) -> None:
    """Log a text with arguments for ``%``; never called on the path of a repeated call."""
    logging = sys.modules.get("logging")
    if logging is not None and hasattr(logging, "getLogger"):  # else it is being imported
        logging.getLogger("xupc").log(level, text, *arguments)
