"""JSON that people may have changed, or that a disk has damaged."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["DAMAGED", "parsed"]

DAMAGED = ArithmeticError, AttributeError, LookupError, TypeError, ValueError
"""The errors of impossible values in a file that can be read."""


def parsed(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        It is no JSON, is nested too deeply to be read, or a string in it has half of a surrogate
        pair, which cannot be printed.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not data.isascii() or b"\\ud" in data.lower():
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return value
