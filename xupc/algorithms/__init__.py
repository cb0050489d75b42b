"""The algorithms, one file per collective, PULL, PUSH and MULTICORE side by side.

Importing this package registers them all; a new one needs only its decorator.
"""

from . import broadcast, exchange, gather, gather_all, scatter
from .registry import Entry, algorithm, find, registered

__all__ = [
    "Entry",
    "algorithm",
    "broadcast",
    "exchange",
    "find",
    "gather",
    "gather_all",
    "registered",
    "scatter",
]
