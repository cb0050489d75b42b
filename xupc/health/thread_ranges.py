"""Numbers of threads as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["MOST_RANGES", "range_text", "ranges"]

MOST_RANGES = 12


def ranges(threads: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of consecutive threads: (first, last) in order."""
    runs: list[tuple[int, int]] = []
    for thread in sorted(set(threads)):
        if runs and runs[-1][1] == thread - 1:
            runs[-1] = (runs[-1][0], thread)
        else:
            runs.append((thread, thread))
    return tuple(runs)


def range_text(runs: Sequence[tuple[int, int]], most: int = MOST_RANGES) -> str:
    """Return ranges as text, such as ``0-6, 9``; after `most` ranges only a count."""
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    more = sum(b - a + 1 for a, b in runs[most:])
    return ", ".join(words) + (f" and {more} more" if more else "")
