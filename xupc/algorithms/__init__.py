"""The algorithms, one file per collective, PULL, PUSH and MULTICORE side by side.

Importing this package registers them all; a new one needs only its decorator.
"""

from . import broadcast, gather, gather_all, prefix_reduce, reduce, scatter
from .registry import Entry, algorithm, find, registered

__all__ = [
    "Entry",
    "algorithm",
    "broadcast",
    "find",
    "gather",
    "gather_all",
    "prefix_reduce",
    "reduce",
    "registered",
    "scatter",
]
