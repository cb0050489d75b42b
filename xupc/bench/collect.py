"""Making one result of what jobs found.

A job's thread 0 writes what it finds line by line (`xupc.bench.worker`); `Collector` takes those
lines, of any number of launches, whole or cut short.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median as middle
from typing import Any

from .results import FLOOR, Candidate, Cell, Job, Launch, Result

__all__ = ["Collector", "lines_of", "wrong_results"]


SAME = (
    "xupc", "mpi", "mpi4py", "numpy", "python", "transport", "thread level", "native core",
    "tuning", "processor", "cores",
)  # fmt: skip
"""What launches of one result must agree in, of `Job.about`."""


class Collector:
    """Make a job of a result from the lines of its launches.

    Parameters
    ----------
    job : Job, optional
        A job to which further launches are added.
    """

    def __init__(self, job: Job | None = None) -> None:
        self.job = job
        self.error = ""  # that ended the last launch
        self.visited = 0  # cells of it
        self._head: dict[str, Any] = {}
        known = {} if job is None else job.bounds
        self._bounds: dict[str, list[float]] = {name: [value] for name, value in known.items()}
        self._skews: list[float] = []
        self._uncertainty = 0.0

    def take(self, line: dict[str, Any]) -> None:
        """Take the next line of a launch."""
        if "about" in line:
            self._head = line
            self.error = ""
        elif "error" in line:
            self.error = line["error"]
        elif "bounds" in line:
            self._head["bounds"] = line["bounds"]
        elif "cells" in line:
            self._begin(line)
        elif "cell" in line:
            self._visit(line)
        elif self.job is not None:
            launch = self.job.launches[-1]
            launch.seconds, launch.load = float(line["seconds"]), line["load"]
            launch.others = line.get("others")

    def _begin(self, line: dict[str, Any]) -> None:
        """Begin a launch: every candidate gets a list for its repetitions."""
        if self.job is None:
            self.job = Job(
                line["threads"], line["nodes"], self._head["hosts"], self._head["about"],
                {"kind": line["clock"]},
            )  # fmt: skip
            self.job.cells += [_cell(cell) for cell in line["cells"]]
        else:
            self._check(line["cells"])
        for name, value in self._head.get("bounds", {}).items():
            self._bounds.setdefault(name, []).append(value)
        self.job.bounds = {name: middle(found) for name, found in self._bounds.items()}
        number = len(self.job.launches) + 1
        self.job.launches.append(Launch(number, line["began"], 0.0, [], line["seed"]))
        for cell in self.job.cells:
            for candidate in cell.candidates:
                candidate.ns.append([])
                candidate.wrong.append([])
                candidate.visits.append([])

    def _check(self, cells: list[dict[str, Any]]) -> None:
        """Raise ValueError unless a launch measures the same as earlier ones, by the same means."""
        assert self.job is not None
        for name in SAME:
            was, now = self.job.about.get(name), self._head["about"].get(name)
            if was != now:
                raise ValueError(f"earlier launches had another {name}: {was}, not {now}")
        if [_what(cell) for cell in self.job.cells] != [_what(_cell(line)) for line in cells]:
            raise ValueError("earlier launches had other calls, arguments or candidates")

    def _visit(self, line: dict[str, Any]) -> None:
        assert self.job is not None
        cell = self.job.cells[line["cell"]]
        self.visited = max(self.visited, line["cell"] + 1)
        for candidate, times in zip(cell.candidates, line["ns"], strict=True):
            candidate.ns[-1] += times
            if any(line["ns"]):
                candidate.visits[-1].append(len(times))
        for candidate, threads in zip(cell.candidates, line.get("wrong", ()), strict=False):
            candidate.wrong[-1] = sorted({*candidate.wrong[-1], *threads})
        if "skew ns" in line:
            self._skews.append(line["skew ns"])
            self.job.clock["entry skew ns"] = middle(self._skews)
        if line.get("uncertainty ns"):
            self._uncertainty = max(self._uncertainty, line["uncertainty ns"])
            self.job.clock["uncertainty ns"] = self._uncertainty

    @property
    def measured(self) -> bool:
        """Return whether a cell has a repetition."""
        return self.job is not None and any(cell.measured for cell in self.job.cells)

    def widths(self) -> tuple[float, ...]:
        """Return how uncertain every cell is: its widest interval as a share of the median."""
        if self.job is None or len(self.job.launches) < 2:
            return ()
        return tuple(_width(cell) for cell in self.job.cells)


def _cell(line: dict[str, Any]) -> Cell:
    """Return the cell that a launch describes."""
    candidates = [Candidate(**candidate) for candidate in line["candidates"]]
    return Cell(**{**line, "candidates": candidates})


def _what(cell: Cell) -> tuple[Any, ...]:
    """Return all that is measured in a cell."""
    return cell.key, cell.moved, [(c.name, c.kind, c.call) for c in cell.candidates]


def _width(cell: Cell) -> float:
    """Return the widest span of a candidate's launch medians, as a share of their median."""
    widths = [0.0]
    for candidate in cell.candidates:
        medians = [ns for (ns,) in filter(None, candidate.medians)]
        if candidate.kind != FLOOR and medians:
            widths.append((max(medians) - min(medians)) / max(1.0, middle(medians)))
    return max(widths)


def lines_of(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (line, where the next one begins) of a file that may still be written to."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        for text in file:
            if not text.endswith(b"\n"):
                return
            start += len(text)
            yield json.loads(text), start


def wrong_results(result: Result, kinds: Sequence[str]) -> Iterator[str]:
    """Yield calls of some kinds that gave wrong results, in words."""
    for job in result.jobs:
        for cell in job.cells:
            for candidate in cell.candidates:
                threads = sorted({t for some in candidate.wrong for t in some})
                if threads and candidate.kind in kinds:
                    yield (
                        f"{job.shape}: {cell.title}, {cell.nbytes} bytes: wrong result of "
                        f"{candidate.call} on thread{'s'[: len(threads) != 1]} "
                        f"{', '.join(map(str, threads))}"
                    )
