"""Split ascending threads into arithmetic progressions, and print them in short form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records import record

__all__ = [
    "Run",
    "ascending_pieces",
    "name_threads",
    "part_of_run",
    "plural",
    "split_into_runs",
]


_MAX_RUNS_DRAWN = 8


@record
class Run:
    """Ranks ``first, first + step, ...``, `count` of them, adjacent in their node.

    `local` is the local index of the first; the others have the indices after it.
    """

    first: int
    step: int
    count: int
    local: int


def split_into_runs(ascending: NDArray[Any]) -> Iterator[Run]:
    """Yield the greedy arithmetic progressions of an ascending array, lazily."""
    gaps = ascending[1:] - ascending[:-1]
    if gaps.size and (gaps == gaps[0]).all():  # most nodes
        yield Run(int(ascending[0]), int(gaps[0]), ascending.size, 0)
        return
    # A run ends where two adjacent gaps differ.
    bends = np.append(np.flatnonzero(gaps[1:] != gaps[:-1]) + 1, gaps.size)
    at, size = 0, ascending.size
    while at < size:
        last = at if at == size - 1 else int(bends[np.searchsorted(bends, at, side="right")])
        step = int(gaps[at]) if last > at else 1
        yield Run(int(ascending[at]), step, last - at + 1, at)
        at = last + 1


def ascending_pieces(values: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Cut values into ascending arithmetic progressions: (first index, count)."""
    for run in split_into_runs(values):
        if run.count == 1 or run.step > 0:
            yield run.local, run.count
        else:
            yield from ((run.local + i, 1) for i in range(run.count))


def part_of_run(run: Run, at: int, count: int) -> Run:
    """Return `count` threads of a run, from index `at` on."""
    step = run.step if count > 1 else 1
    return Run(run.first + at * run.step, step, count, run.local + at)


def plural(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def name_threads(ascending: Sequence[int] | NDArray[Any]) -> str:
    """Return ascending threads as text: "thread 3", "threads 0-7", "threads 0,3,6,…,21"."""
    array = np.asarray(ascending)
    runs = list(islice(split_into_runs(array), _MAX_RUNS_DRAWN))
    text = ",".join(map(_name_run, runs))
    if hidden := array.size - sum(run.count for run in runs):
        text += f",… ({hidden} more)"
    return f"thread {text}" if array.size == 1 else f"threads {text}"


def _name_run(run: Run) -> str:
    last = run.first + (run.count - 1) * run.step
    if run.step == 1 and run.count > 1:
        return f"{run.first}-{last}"
    ranks = [str(run.first + k * run.step) for k in range(min(run.count, 3))]
    if run.count > 4:
        ranks.append("…")
    if run.count > 3:
        ranks.append(str(last))
    return ",".join(ranks)
