"""The algorithms, one file per collective, PULL, PUSH and MULTICORE side by side.

Importing this package registers them all; a new one needs only its decorator.
"""

from . import (
    broadcast,
    broadcast_in_place,
    exchange,
    exchange_in_place,
    gather,
    gather_all,
    permute,
    permute_in_place,
    prefix_reduce,
    reduce,
    scatter,
    transfers,
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
    "exchange_in_place",
    "find",
    "gather",
    "gather_all",
    "permute",
    "permute_in_place",
    "prefix_reduce",
    "reduce",
    "registered",
    "scatter",
    "transfers",
    "values",
    "values_reduce",
]
