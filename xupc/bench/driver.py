"""Launching jobs that measure, and making one result of what they found.

A job's thread 0 writes what it finds line by line (`xupc.bench.worker`); `Collector` reads those
lines, of any number of launches, whole or cut short. While a job runs the result is saved every
few seconds, so that even a killed measurement leaves something.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median as middle
from typing import Any

from xupc.cli.launcher import Outcome, job_command, job_environment, run_job, thread_command
from xupc.cli.mpi import Mpi, find_mpi

from . import stats
from .results import FLOOR, Candidate, Cell, Job, Launch, Result
from .settings import Settings

__all__ = ["Collector", "Plan", "Shape", "measure", "wrong_results"]

START = 2.0  # seconds that a launch takes besides the measuring
SAVE = 5.0  # seconds between two savings of what there is
PATIENCE = 5.0  # a launch may take so many times its share, and
SLACK = 120.0  # so many seconds more
HANG = 60.0  # seconds after which xupc itself reports a hang


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a job: how many threads, and how this machine is split into nodes, if it is."""

    threads: int
    nodes: str | None = None

    def __str__(self) -> str:
        text = f"{self.threads} thread{'s'[: self.threads != 1]}"
        return f"{text} as {self.nodes}" if self.nodes else text


@dataclass(frozen=True)
class Plan:
    """What to launch.

    Attributes
    ----------
    shapes
        One job each, in turn.
    launches
        Of each.
    seconds
        For all launches together.
    mpiexec_args, environment
        What is added to every launch.
    time_limit
        Seconds after which a launch is killed; None: some times its share.
    """

    shapes: tuple[Shape, ...]
    settings: Settings
    launches: int = 1
    seconds: float = 60.0
    mpiexec_args: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    time_limit: float | None = None

    @property
    def share(self) -> float:
        """Seconds of measuring in a launch."""
        return max(0.5, self.seconds / (self.launches * len(self.shapes)) - START)


class Collector:
    """Makes a job of a result out of the lines of its launches."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self._head: dict[str, Any] = {}
        self._bounds: dict[str, list[float]] = {}
        self._skews: list[float] = []
        self._uncertainty = 0.0

    def take(self, line: dict[str, Any]) -> None:
        """The next line of a launch."""
        if "about" in line:
            self._head = line
        elif "bounds" in line:
            self._head["bounds"] = line["bounds"]
        elif "cells" in line:
            self._begin(line)
        elif "cell" in line:
            self._visit(line)
        elif self.job is not None:
            launch = self.job.launches[-1]
            launch.seconds, launch.load = float(line["seconds"]), line["load"]

    def _begin(self, line: dict[str, Any]) -> None:
        """A launch begins: every candidate gets a list for its repetitions."""
        if self.job is None:
            self.job = Job(
                line["threads"], line["nodes"], self._head["hosts"], self._head["about"],
                {"kind": line["clock"]},
            )  # fmt: skip
            for cell in line["cells"]:
                candidates = [Candidate(**c) for c in cell.pop("candidates")]
                self.job.cells.append(Cell(**cell, candidates=candidates))
        for name, value in self._head.get("bounds", {}).items():
            self._bounds.setdefault(name, []).append(value)
        self.job.bounds = {name: middle(found) for name, found in self._bounds.items()}
        number = len(self.job.launches) + 1
        self.job.launches.append(Launch(number, line["began"], 0.0, [], line["seed"]))
        for cell in self.job.cells:
            for candidate in cell.candidates:
                candidate.ns.append([])
                candidate.wrong.append([])

    def _visit(self, line: dict[str, Any]) -> None:
        assert self.job is not None
        cell = self.job.cells[line["cell"]]
        for candidate, times in zip(cell.candidates, line["ns"], strict=True):
            candidate.ns[-1] += times
        for candidate, threads in zip(cell.candidates, line.get("wrong", ()), strict=False):
            candidate.wrong[-1] = sorted({*candidate.wrong[-1], *threads})
        if "skew ns" in line:
            self._skews.append(line["skew ns"])
            self.job.clock["entry skew ns"] = middle(self._skews)
        if line.get("uncertainty ns"):
            self._uncertainty = max(self._uncertainty, line["uncertainty ns"])
            self.job.clock["uncertainty ns"] = self._uncertainty

    def widths(self) -> tuple[float, ...]:
        """How uncertain every cell is: its widest interval as a share of the median."""
        if self.job is None or len(self.job.launches) < 2:
            return ()
        return tuple(_width(cell) for cell in self.job.cells)


def _width(cell: Cell) -> float:
    widths = [0.0]
    for candidate in cell.candidates:
        launches = [times for times in candidate.ns if times]
        if candidate.kind != FLOOR and launches:
            found = stats.median(launches)
            widths.append((found.high - found.low) / found.value)
    return max(widths)


def lines_of(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """(line, where the next one begins) of a file that may still be written to."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(start)
        for text in file:
            if not text.endswith(b"\n"):
                return
            start += len(text)
            yield json.loads(text), start


def measure(
    plan: Plan,
    command: Sequence[str],
    *,
    save: Path | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> tuple[Result, int]:
    """Launch all jobs.

    Parameters
    ----------
    plan, command
        What to launch, and the words of the command that asked for it.
    save
        Where the result is kept up to date.
    progress
        Called a few times a second with the share that is done and what is being done.

    Returns
    -------
    result : Result
    status : int
        0; or that of a job that failed, was interrupted (128 + signal) or took too long (3).

    Raises
    ------
    LaunchError
        There is no launcher, or it does not start.
    """
    mpi = find_mpi()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    result = Result(list(command), created, complete=False)
    collectors = [Collector() for _ in plan.shapes]
    status = 0
    with tempfile.TemporaryDirectory(prefix="xupc-bench-") as folder:
        for number in range(plan.launches):
            for k, (shape, collector) in enumerate(zip(plan.shapes, collectors, strict=True)):
                watch = _Watch(
                    Path(folder) / f"{number}.{k}", result, collectors, save, progress,
                    done=(number * len(plan.shapes) + k) / (plan.launches * len(plan.shapes)),
                    part=1 / (plan.launches * len(plan.shapes)),
                    seconds=plan.share + START,
                    what=f"launch {number + 1} of {plan.launches}, {shape}",
                    collector=collector,
                )  # fmt: skip
                outcome, limit = _launch(plan, mpi, shape, collector, number, watch)
                if outcome.status:
                    status = status or outcome.status
                    failed = f"launch {number + 1} of {shape}: {outcome.explain(limit)}"
                    result.notes.append(failed)
                if outcome.interrupted:
                    _finish(result, collectors, save, complete=False)
                    return result, status
    _finish(result, collectors, save, complete=not status)
    return result, status


def _launch(
    plan: Plan, mpi: Mpi, shape: Shape, collector: Collector, number: int, watch: _Watch
) -> tuple[Outcome, float]:
    """One job; what it wrote is in the collector afterwards."""
    settings = plan.settings.but(
        seconds=plan.share, seed=plan.settings.seed + number, widths=collector.widths()
    )
    words = [sys.executable, "-m", "xupc.bench.worker", str(watch.path), settings.to_json()]
    environment = job_environment(
        {**os.environ, **plan.environment}, mpi.family, tag=uuid.uuid4().hex, nodes=shape.nodes,
        timeout=HANG,
    )  # fmt: skip
    command = job_command(
        mpi, shape.threads, thread_command(words), extra=plan.mpiexec_args,
        environment=environment,
    )  # fmt: skip
    limit = plan.time_limit or PATIENCE * plan.share + SLACK
    with watch:
        outcome = run_job(command, environment, time_limit=limit, forward=True)
    return outcome, limit


class _Watch:
    """Reads what a job writes while it runs: saves it, and tells how far it is."""

    def __init__(
        self,
        path: Path,
        result: Result,
        collectors: Sequence[Collector],
        save: Path | None,
        progress: Callable[[float, str], None] | None,
        *,
        collector: Collector,
        done: float,
        part: float,
        seconds: float,
        what: str,
    ) -> None:
        self.path = path
        self.result = result
        self.collectors = collectors
        self.save = save
        self.progress = progress
        self.collector = collector
        self.done, self.part, self.seconds, self.what = done, part, seconds, what
        self._place = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xupc-bench-watch", daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def _read(self) -> None:
        for line, place in lines_of(self.path, self._place):
            self.collector.take(line)
            self._place = place

    def _run(self) -> None:
        began = saved = time.monotonic()
        while not self._stop.wait(0.25):
            self._read()
            now = time.monotonic()
            if self.progress is not None:
                share = min(0.99, (now - began) / self.seconds)
                self.progress(self.done + self.part * share, self.what)
            if self.save is not None and now - saved > SAVE:
                _finish(self.result, self.collectors, self.save, complete=False)
                saved = now


def _finish(
    result: Result, collectors: Sequence[Collector], save: Path | None, *, complete: bool
) -> None:
    result.jobs = [c.job for c in collectors if c.job is not None]
    result.complete = complete
    if save is not None:
        result.save(save)


def wrong_results(result: Result, kinds: Sequence[str]) -> Iterator[str]:
    """Calls of some kinds that gave wrong results, in words."""
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


def in_words(command: Sequence[str]) -> str:
    """A command as one would type it."""
    return shlex.join(command)
