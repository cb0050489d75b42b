"""The algorithms, one file per collective, PULL, PUSH and MULTICORE side by side.

Importing this package registers them all; a new one needs only its decorator.
"""

from . import (
    broadcast,
    broadcast_in_place,
    exchange,
    gather,
    gather_all,
    permute,
    prefix_reduce,
    reduce,
    scatter,
    values,
    values_reduce,
)
from .registry import Entry, algorithm, find, registered

__all__ = [
    "Entry",
    "algorithm",
    "broadcast",
    "broadcast_in_place",
    "exchange",
    "find",
    "gather",
    "gather_all",
    "permute",
    "prefix_reduce",
    "reduce",
    "registered",
    "scatter",
    "values",
    "values_reduce",
]
