"""Launching jobs that measure, and making one result of what they found.

While a job runs the result is saved every few seconds, so that even a killed measurement leaves
something.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xupc.cli.launcher import Outcome, job_command, job_environment, run_job, thread_command
from xupc.cli.mpi import Mpi, find_mpi

from .collect import Collector, lines_of
from .results import Result
from .settings import Settings, Shape

__all__ = ["SAVE", "Plan", "measure"]

START = 3.5  # seconds that a launch takes besides the measuring
SAVE = 5.0  # seconds between two savings of what there is
PATIENCE = 5.0  # a launch may take so many times its share, and
SLACK = 120.0  # so many seconds more
HANG = 60.0  # seconds after which xupc itself reports a hang


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
