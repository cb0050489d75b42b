"""Numbers of threads as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["MOST_RANGES", "Ranges", "count", "joined", "range_text", "ranges"]

MOST_RANGES = 12
Ranges = Sequence[Sequence[int]]
"""The (first, last) of each range."""


def ranges(threads: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of consecutive threads: (first, last) in order."""
    runs: list[tuple[int, int]] = []
    for thread in sorted(set(threads)):
        if runs and runs[-1][1] == thread - 1:
            runs[-1] = (runs[-1][0], thread)
        else:
            runs.append((thread, thread))
    return tuple(runs)


def joined(runs: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return ranges in order, with those that touch or overlap as one."""
    found: list[list[int]] = []
    for first, last in sorted((run[0], run[1]) for run in runs):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found


def count(runs: Ranges) -> int:
    """Return how many threads are in ranges."""
    return sum(last - first + 1 for first, last in runs)


def range_text(runs: Ranges, most: int = MOST_RANGES) -> str:
    """Return ranges as text, such as ``0-6, 9``; after `most` ranges only a count."""
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    more = sum(b - a + 1 for a, b in runs[most:])
    return ", ".join(words) + (f" and {more} more" if more else "")
