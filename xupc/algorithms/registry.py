"""Where algorithms are registered: collective and flag -> function."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..flags import ALGORITHM_NAMES
from ..records import record

__all__ = ["HOMES", "Entry", "algorithm", "collectives", "find", "registered"]

HOMES = {
    "broadcast": "broadcast",
    "broadcast_in_place": "broadcast_in_place",
    "exchange": "exchange",
    "exchange_in_place": "exchange_in_place",
    "gather": "gather gather_in_place",
    "gather_all": "gather_all gather_all_in_place",
    "permute": "permute",
    "permute_in_place": "permute_in_place",
    "prefix_reduce": "prefix_reduce suffix_reduce exclusive_prefix_reduce exclusive_suffix_reduce",
    "reduce": "reduce reduce_all reduce_mpi reduce_mpi_all",
    "scatter": "scatter scatter_in_place",
    "block_transfers": "broadcast_v broadcast_x exchange_v exchange_x gather_v gather_x "
                       "gather_all_v gather_all_x permute_v permute_x scatter_v scatter_x",
    "values": "allav_broadcast allav_exchange allav_gather allav_gather_all allav_permute "
              "allav_scatter",
    "reduce_scatter": "reduce_scatter",
    "values_reduce_scatter": "allav_reduce_scatter",
    "values_reduce": "allav_reduce allav_reduce_all allav_prefix_reduce allav_suffix_reduce "
                     "allav_exclusive_prefix_reduce allav_exclusive_suffix_reduce",
}  # fmt: skip
"""Which file registers the algorithms of which collectives."""

_HOME = {collective: module for module, names in HOMES.items() for collective in names.split()}
_REGISTRY: dict[tuple[str, int], Entry] = {}


@record
class Entry:
    """A registered algorithm."""

    collective: str
    flag: int
    function: Callable[..., None]

    @property
    def name(self) -> str:
        """``pull``, ``push`` or ``multicore``."""
        return ALGORITHM_NAMES[self.flag]


def algorithm(
    collective: str, flag: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated function as the algorithm of `collective` under `flag`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        key = (collective, flag)
        if key in _REGISTRY:
            raise ValueError(f"{collective} has a {ALGORITHM_NAMES[flag]} algorithm already")
        _REGISTRY[key] = Entry(collective, flag, function)
        return function

    return register


def collectives() -> list[str]:
    """Return the names of all collectives, without importing their algorithms."""
    return sorted({*_HOME, *(collective for collective, _ in _REGISTRY)})


def find(collective: str, flag: int) -> Entry:
    """Return the algorithm of `collective` under an algorithm flag."""
    if (collective, flag) not in _REGISTRY:
        _load(collective)
    return _REGISTRY[collective, flag]


def registered(collective: str | None = None) -> list[Entry]:
    """Return all entries, or those of one collective, in the order PULL, PUSH, MULTICORE."""
    for name in collectives() if collective is None else [collective]:
        _load(name)
    entries = [e for e in _REGISTRY.values() if collective in (None, e.collective)]
    return sorted(entries, key=lambda e: (e.collective, e.flag))


def _load(collective: str) -> None:
    """Import the file of a collective."""
    if collective in _HOME:
        import_module(f".{_HOME[collective]}", __package__)
