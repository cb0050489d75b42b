"""The measurements of the documents that xupc follows, as far as they can be repeated.

``mtu``: the testbed of Michigan Tech's report (CS-TR-05-08, section 6 and appendix C): the six
relocalization collectives on unsigned ints, standard against extended form, push against pull,
2 to 15 threads, 256 and 65,536 elements. After each run every thread computes for a while; the
first run is dropped, the cost of the timer subtracted, and minimum and mean of the 500 runs'
maxima over the threads are what is shown.

``xupc``: figures 10 to 12 of the paper: bandwidth of gather, gather_all and broadcast in place
against the size of a block, with 16 threads on one node and 64 on four. The paper does not say
what it divides by what; here it is the bytes that a call delivers to all threads together (T
blocks for gather, T x T for gather_all, T - 1 for broadcast in place) by its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .columns import aligned
from .results import FLOOR, Candidate, Cell, Job, Result
from .settings import Settings, Shape, sizes_between

__all__ = ["SUITES", "Suite"]

_MOVES = "broadcast", "scatter", "gather", "gather_all", "exchange", "permute"
_ELEMENT = 4  # bytes of an unsigned int
_RUNS = 500
_BUSY = 2000  # rounds of a loop in Python, some 0.1 ms


@dataclass(frozen=True)
class Suite:
    """Hold what is measured, and on which jobs.

    Attributes
    ----------
    launches
        Launches of each job, where the command gives no number.
    peer
        True if mpi4py is measured beside it: the library that the paper compares with is not
        available.
    """

    settings: Settings
    shapes: tuple[Shape, ...]
    seconds: float
    launches: int = 5
    peer: bool = False


SUITES = {
    "mtu": Suite(
        Settings(
            collectives=tuple(f"all_{w}{x}" for w in _MOVES for x in ("", "_x")),
            sizes=(256 * _ELEMENT, 65536 * _ELEMENT),
            algorithms=("PUSH", "PULL"),
            again=False,
            busy=_BUSY,
            iterations=_RUNS + 1,
            warmup=1,
        ),
        tuple(Shape(threads) for threads in range(2, 16)),
        seconds=1800.0,
        launches=1,  # as the testbed was: 500 runs of each in one job
    ),
    "xupc": Suite(
        Settings(
            collectives=("all_gather", "all_gather_all", "all_broadcast_in_place"),
            sizes=sizes_between(1 << 10, 1 << 17),
            algorithms=("PULL", "PUSH", "MULTICORE"),
        ),
        (Shape(16), Shape(64, "4x16")),
        seconds=1200.0,
        peer=True,
    ),
}


def mtu_table(result: Result) -> str:
    """Return minimum and mean of the runs' maxima, as the testbed printed them, in µs."""
    names = [f"{name} {form}" for form in ("standard", "extended") for name in ("PUSH", "PULL")]
    rows = [["# collective", "elements", "threads", *names]]
    for (work, elements), found in _mtu_rows(result).items():
        for threads, figures in found:
            shown = ["-" if f is None else f"{f[0]:.2f} {f[1]:.2f}" for f in figures]
            rows.append([work, str(elements), str(threads), *shown])
    lines = [
        "# us: minimum and mean over the runs of the maximum over the threads; first run dropped,",
        "# timer subtracted",
        *aligned(rows, right=1),
    ]
    return "\n".join(lines) + "\n"


_Figures = list[tuple[float, float] | None]


def _mtu_rows(result: Result) -> dict[tuple[str, int], list[tuple[int, _Figures]]]:
    rows: dict[tuple[str, int], list[tuple[int, _Figures]]] = {}
    for job in result.jobs:
        for cell in job.cells:
            if cell.collective.endswith("_x"):
                continue
            figures = [
                None if each is None else _figures(each.candidate(name), job)
                for each in (cell, _extended(job, cell))
                for name in ("PUSH", "PULL")
            ]
            key = cell.collective.removeprefix("all_"), cell.nbytes // _ELEMENT
            rows.setdefault(key, []).append((job.threads, figures))
    return rows


def _extended(job: Job, cell: Cell) -> Cell | None:
    key = (f"{cell.collective}_x", *cell.key[1:])
    return next((other for other in job.cells if other.key == key), None)


def _figures(candidate: Candidate | None, job: Job) -> tuple[float, float] | None:
    """Return (minimum, mean); None where nothing was measured."""
    if candidate is None or not candidate.measured:
        return None
    every, timer = candidate.summaries(), float(job.about.get("timer ns", 0.0))
    mean = sum(s.total for s in every) / sum(s.others for s in every)
    least = min(s.least for s in every)
    return max(0.0, least - timer) / 1e3, max(0.0, mean - timer) / 1e3


def bandwidth_table(result: Result) -> str:
    """Return bandwidth against size, a block of lines for each figure and placement."""
    lines = ["# MB/s: bytes that a call delivers to all threads together / its median time"]
    for job in result.jobs:
        for name in dict.fromkeys(cell.collective for cell in job.cells):
            cells = [cell for cell in job.cells if cell.collective == name]
            shown = list(_shown(cells))
            lines += ["", f"# {name}, {job.shape}"]
            rows = [["# Size", *shown]]
            for cell in cells:
                rates = [_rate(cell, n) for n in shown]
                rows.append([str(cell.nbytes), *("-" if r is None else f"{r:.2f}" for r in rates)])
            lines += aligned(rows, right=1, least=12)
    return "\n".join(lines) + "\n"


def _shown(cells: list[Cell]) -> Iterator[str]:
    names = dict.fromkeys(
        c.name
        for cell in cells
        for c in cell.candidates
        if c.kind not in ("again", FLOOR) and c.measured
    )
    yield from names


def _rate(cell: Cell, name: str) -> float | None:
    candidate = cell.candidate(name)
    if candidate is None or not candidate.measured:
        return None
    return cell.moved / float(np.median([ns for (ns,) in filter(None, candidate.medians)])) * 1e3


TABLES = {"mtu": mtu_table, "xupc": bandwidth_table}
"""What a suite prints, as its document has it."""
