"""Where algorithms are registered: collective and flag -> function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..flags import ALGORITHM_NAMES

__all__ = ["Entry", "algorithm", "find", "registered"]

_REGISTRY: dict[tuple[str, int], Entry] = {}


@dataclass(frozen=True, slots=True)
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


def find(collective: str, flag: int) -> Entry:
    """The algorithm of `collective` under an algorithm flag."""
    return _REGISTRY[collective, flag]


def registered(collective: str | None = None) -> list[Entry]:
    """All entries, or those of one collective, in the order PULL, PUSH, MULTICORE."""
    entries = [e for e in _REGISTRY.values() if collective in (None, e.collective)]
    return sorted(entries, key=lambda e: (e.collective, e.flag))
