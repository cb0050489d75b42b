"""Launching jobs that measure, and making one result of what they found.

While a job runs the result is saved every few seconds, so that even a killed measurement leaves
something.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median as middle
from types import FrameType

from . import budget
from .budget import LEAST, Cost, TooShort
from .collect import Collector, lines_of
from .launch_plan import Launch, Plan
from .results import Job, Result
from .settings import Shape

__all__ = ["SAVE", "measure"]

START = 3.5  # seconds that a launch takes besides the measuring, until that is known
SAVE = 5.0  # seconds between two savings of what there is
PATIENCE = 5.0  # a launch may take so many times its share, and
SLACK = 120.0  # so many seconds more
END = 0.4  # seconds from the last cell of a launch to its end
CUT = 0.02  # of a budget: a launch that runs over it by so much is killed
HANG = 60.0  # seconds after which xupc itself reports a hang
TIMED_OUT, FAILED = 3, 4  # exit statuses, as those of `xupc run`


def measure(
    plan: Plan,
    command: Sequence[str],
    find_launcher: Callable[[], Launch],
    *,
    save: Path | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> tuple[Result, int]:
    """Launch all jobs.

    Parameters
    ----------
    plan, command
        The jobs to launch, and the arguments of the command line.
    find_launcher
        Return the function that starts a job; called once.
    save
        The file in which the driver keeps the result up to date.
    progress
        Called a few times per second with the completed share and a text about the current work.

    Returns
    -------
    result : Result
    status : int
        0; 128 + the signal that interrupted it; 3 if a launch took too long or hung; 4 if one
        failed otherwise.

    Raises
    ------
    LaunchError
        There is no launcher, or it does not start.
    OSError
        The result cannot be saved; raised before the first launch.
    TooShort
        The budget is shorter than the least sensible measurement.
    ValueError
        The launches cannot be added to the given result, which measured something else.
    """
    before = save.read_bytes() if save is not None and save.exists() else None
    try:
        return _Run(plan, command, find_launcher(), save, progress).all_launches()
    except ValueError as error:
        refused = isinstance(error, TooShort) or plan.after is not None  # nothing was measured
        if save is not None and refused:
            _put_back(save, before)
        raise


def _put_back(path: Path, before: bytes | None) -> None:
    """Have a file as it was before a measurement that was refused; None: there was none."""
    if before is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(before)


def _alike(result: Result, shape: Shape) -> Job | None:
    """Return the job of a result with this shape, if it has one."""
    of = [list(threads) for threads in shape.placed]
    return next((job for job in result.jobs if job.nodes == of), None)


class _Run:
    """Hold all launches of a plan, and their outcome so far."""

    def __init__(
        self,
        plan: Plan,
        command: Sequence[str],
        start: Launch,
        save: Path | None,
        progress: Callable[[float, str], None] | None,
    ) -> None:
        self.plan = plan
        self.settings = plan.settings
        self.launches = plan.launches
        self.costs: dict[Shape, Cost] = {}  # where there is a budget
        self.start = start
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.result = Result(list(command), created, complete=False)
        after = plan.after or Result([], created)
        if plan.after is not None:
            self.result.created, self.result.notes = after.created, list(after.notes)
        self.collectors = [Collector(_alike(after, shape)) for shape in plan.shapes]
        mine = [id(collector.job) for collector in self.collectors]
        self.others = [job for job in after.jobs if id(job) not in mine]
        self.path = save
        self.progress = progress
        self.status = 0
        self.began = time.monotonic() if plan.began is None else plan.began
        self.done = 0  # launches
        self.failed: dict[Shape, str] = {}  # what the last launch ended with, if that was a failure
        self.given_up: set[Shape] = set()  # those of which two launches in a row failed alike
        self.overhead: list[float] = []  # seconds of launches that were not measuring
        self.ended = 0  # by this signal
        self.saved = time.monotonic()
        self.save_cost = 0.0
        self.save()

    def all_launches(self) -> tuple[Result, int]:
        """Launch until the last one or a signal; return the result and the exit status."""
        beside = self.path.parent if self.path is not None else None
        with self._heeding(), tempfile.TemporaryDirectory(prefix=".xupc-bench-", dir=beside) as at:
            if self.plan.least is not None:
                self.fit(self.plan.least, Path(at) / "trial")
            self.in_turn(Path(at) / "lines")
            self._note_fewer()
            measured = any(collector.measured for collector in self.collectors)
            if self.costs and not measured and not self.ended:
                self.status = self.status or TIMED_OUT
                self._note("nothing was measured: the budget is too short")
            if self.ended:
                self.status = 128 + self.ended
                self._note(f"ended by {signal.Signals(self.ended).name}")
        before = self.plan.after is None or self.plan.after.complete
        self.result.complete = before and not self.status
        try:
            self.save()
        except OSError as e:  # what was measured can be shown all the same
            self._note(f"{self.path}: not saved: {e.strerror}")
            self.status = self.status or FAILED
        return self.result, self.status

    def fit(self, least: int, lines: Path) -> None:
        """Measure what launches cost, choose how many fit into the budget, and prepare them.

        A single launch needs no trial: it ends at a time.

        Raises
        ------
        TooShort
            Fewer than `least` of each job.
        """
        plan = self.plan
        if self.is_single:
            self.costs[plan.shapes[0]] = Cost(END)
        else:
            for shape in plan.shapes:
                self.costs[shape] = self.trial(shape, lines, least)
                if self.ended:  # a trial that was cut says nothing about costs
                    return
            if not self._choose(least, self.left - plan.reserved):
                costs, fewest = list(self.costs.values()), plan.size_choices[-1]
                raise budget.too_short(
                    costs, plan.settings.but(sizes=fewest), plan.seconds,
                    plan.seconds - self.left, least, plan.prepare,
                )  # fmt: skip
        if plan.prepare is not None:
            plan.prepare.run(plan.reserved)
            if not self.is_single:  # it may have taken less than was reserved for it
                self._choose(least, self.left)
        self._note_left_out()

    def _choose(self, least: int, seconds: float) -> bool:
        """Choose the sizes and how many launches of each job; False if no choice fits."""
        plan, costs = self.plan, list(self.costs.values())
        for sizes in plan.size_choices:
            settings = plan.settings.but(sizes=sizes)
            launches = budget.fitting(
                costs, settings, seconds, most=plan.launches, least=least, enough=plan.enough
            )
            if launches:
                self.settings, self.launches = settings, launches
                return True
        return False

    @property
    def is_single(self) -> bool:
        """Return whether there is one launch in all."""
        return self.plan.launches * len(self.plan.shapes) == 1

    def trial(self, shape: Shape, lines: Path, least: int) -> Cost:
        """Launch a few cells of a job, and return what its launches cost; a guess if it fails.

        Raises
        ------
        TooShort
            It does not end in the time for `least` launches of each job.
        """
        plan = self.plan
        lines.unlink(missing_ok=True)
        words = [sys.executable, "-m", "xupc.bench.worker", str(lines)]
        words.append(budget.trial(self.settings).to_json())
        spent, limit = plan.seconds - self.left, max(LEAST, self.left * (1 - 2 * CUT))
        outcome = self.start(words, shape, plan.mpiexec_args, HANG, limit)
        self.ended = self.ended or outcome.interrupted
        if outcome.timed_out:
            to_come = (least + 1) * len(plan.shapes) - 1
            raise budget.no_trial(
                str(shape), plan.seconds, spent, limit, to_come, START, plan.prepare
            )
        if outcome.status and not outcome.interrupted:
            self._note(f"trial launch, {shape}: {outcome.explain()}")
        found = budget.cost_of((line for line, _ in lines_of(lines)), outcome.seconds)
        return Cost(START) if found is None else found

    def _note_left_out(self) -> None:
        """Note what the budget has no time for."""
        plan, sizes = self.plan, self.settings.sizes
        if len(sizes) < len(plan.settings.sizes):
            self._note(f"the budget is enough for {len(sizes)} of {len(plan.settings.sizes)} sizes")
        if self.launches < min(plan.enough, plan.launches):
            wanted = min(plan.enough, plan.launches)
            self._note(f"the budget is enough for {self.launches} of {wanted} launches")

    def in_turn(self, lines: Path) -> None:
        """Launch the jobs in turn, until the last launch, the end of the time or a signal."""
        for number in range(self.launches):
            for shape, collector in zip(self.plan.shapes, self.collectors, strict=True):
                if self.ended or shape in self.given_up:
                    continue
                if self._is_late(number, shape):
                    self._note(f"the time was up after {number} of {self.launches} launches")
                    return
                self.launch(number, shape, collector, lines)

    def _is_late(self, number: int, shape: Shape) -> bool:
        """Return whether a launch would not end in time; without a budget, whether time is up."""
        if self.costs:
            cells = max(LEAST, self.costs[shape].of_cells(self.settings))
            return self.left < self.around_of(shape) + cells
        return bool(number) and shape is self.plan.shapes[0] and self.late

    @contextlib.contextmanager
    def _heeding(self) -> Iterator[None]:
        """Have SIGINT and SIGTERM end the measurement, not this process, between launches too."""

        def end(number: int, _frame: FrameType | None) -> None:
            self.ended = self.ended or number

        before = {n: signal.signal(n, end) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def weights(self) -> list[int]:
        """The weights of all launches in turn: thread counts where the repetitions are given."""
        fixed = self.plan.settings.iterations is not None
        return [s.threads if fixed else 1 for s in self.plan.shapes] * self.launches

    def far(self, share: float) -> float:
        """Return the share of everything that is done, with so much of the launch under way."""
        weights = self.weights
        done = sum(weights[: self.done]) + share * weights[min(self.done, len(weights) - 1)]
        return done / sum(weights)

    @property
    def late(self) -> bool:
        """True if all the time is spent; False where only the number of repetitions counts."""
        settings = self.plan.settings
        counts = settings.iterations is None or settings.limited
        return counts and self.left < 0

    @property
    def left(self) -> float:
        """The seconds left of the time; negative after its end."""
        return self.plan.seconds - (time.monotonic() - self.began)

    @property
    def share(self) -> float:
        """The seconds of measuring in the next launch: its part of what is left."""
        weights = self.weights[self.done :]
        left = self.left - self.around * len(weights)
        return max(LEAST, left * weights[0] / sum(weights))

    @property
    def around(self) -> float:
        """The seconds that a launch takes besides its share."""
        if self.overhead:
            return middle(self.overhead)
        return middle(cost.start for cost in self.costs.values()) if self.costs else START

    def around_of(self, shape: Shape) -> float:
        """Return the same for a shape with a budget: not less than in its trial."""
        return max(self.costs[shape].start, self.around)

    @property
    def limit(self) -> float:
        """The seconds after which a launch visits no further cell: later launches need time."""
        shapes = (self.plan.shapes * self.launches)[self.done :]
        around = sum(map(self.around_of, shapes))
        later = sum(max(LEAST, self.costs[s].of_cells(self.settings)) for s in shapes[1:])
        return max(LEAST, self.left - around - later)

    def time_limit(self, share: float) -> float | None:
        """Return after how many seconds a launch is killed."""
        plan = self.plan
        if plan.time_limit is not None:
            return plan.time_limit
        if self.costs:
            return max(LEAST, self.left + CUT * plan.seconds)
        if plan.settings.iterations is None or plan.settings.limited:
            return PATIENCE * share + SLACK
        return None

    def launch(self, number: int, shape: Shape, collector: Collector, lines: Path) -> None:
        """Run one job; its output is in the collector afterwards."""
        plan, share = self.plan, self.share
        before = 0 if collector.job is None else len(collector.job.launches)
        settings = self.settings.but(
            seconds=share, seed=plan.settings.seed + before, widths=collector.widths(),
            limit=self.limit if self.costs else None,
            until=time.time() + self.left - END if self.costs and self.is_single else None,
        )  # fmt: skip
        lines.unlink(missing_ok=True)
        words = [sys.executable, "-m", "xupc.bench.worker", str(lines), settings.to_json()]
        limit = self.time_limit(share)
        what = f"launch {number + 1} of {self.launches}, {shape}"
        with _Watch(self, lines, collector, share + START, what):
            outcome = self.start(words, shape, plan.mpiexec_args, HANG, limit)
        self.done += 1
        self.overhead.append(max(0.0, outcome.seconds - share))
        self.ended = self.ended or outcome.interrupted
        cells = len(collector.job.cells) if collector.job is not None else 0
        if self.costs and not outcome.status and collector.visited < cells:
            self._note(
                f"{what}: cut after {collector.visited} of {cells} cells: the budget is spent"
            )
        failed = self.failed.pop(shape, None)
        if outcome.status and not outcome.interrupted:
            hung = outcome.timed_out or collector.error.startswith("HangError")
            self.status = self.status or (TIMED_OUT if hung else FAILED)
            why = collector.error or outcome.explain(limit)
            if outcome.timed_out and self.costs and plan.time_limit is None:
                why = f"cut, since the budget is spent: {why}"
            self._note(f"{what}: {why}")
            self.failed[shape] = why
            if why == failed and number + 1 < self.launches:
                self.given_up.add(shape)
                self._note(f"no more launches of {shape}: two in a row failed alike")

    def _note_fewer(self) -> None:
        """Note how many cells have fewer repetitions than asked for, where the time was limited."""
        asked = self.plan.settings.iterations
        if asked is None or not self.plan.settings.limited or self.ended:
            return
        cells = [cell for c in self.collectors if c.job is not None for cell in c.job.cells]
        fewer = sum(1 for cell in cells if cell.repetitions < asked)
        if fewer:
            self._note(
                f"the time was too short for {asked} repetitions of {fewer} of {len(cells)} cells"
            )

    def _note(self, text: str) -> None:
        self.result.notes.append(text)

    def save(self) -> None:
        """Write the result to its file; a file that exists stays while nothing was measured."""
        jobs = [c.job for c in self.collectors if c.job is not None]
        self.result.jobs = [*self.others, *jobs]
        if self.path is not None and (self.result.jobs or not self.path.exists()):
            began = time.monotonic()
            self.result.save(self.path)
            self.saved = time.monotonic()
            self.save_cost = self.saved - began

    @property
    def save_is_due(self) -> bool:
        """True if the file is to be saved now: rarely enough not to disturb the measurement."""
        wait = max(SAVE, 50 * self.save_cost)
        return self.path is not None and time.monotonic() - self.saved > wait


class _Watch:
    """Read what a running job writes, save it, and show how far it is, in a thread of its own."""

    def __init__(
        self,
        run: _Run,
        path: Path,
        collector: Collector,
        seconds: float,
        what: str,
    ) -> None:
        self.run = run
        self.path = path
        self.collector = collector
        self.seconds = seconds
        self.what = what
        self._place = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xupc-bench-watch", daemon=True)

    def __enter__(self) -> _Watch:
        self.collector.visited = 0
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
        began = time.monotonic()
        while not self._stop.wait(0.25):
            try:
                self._read()
            except ValueError:  # these launches cannot be one result: said when this one has ended
                return
            if self.run.progress is not None:
                share = min(0.99, self._share(time.monotonic() - began))
                self.run.progress(self.run.far(share), self.what)
            if self.run.save_is_due:
                try:
                    self.run.save()
                except OSError as error:  # said once more, and loudly, at the end
                    self.what += f" (not saved: {error.strerror})"

    def _share(self, seconds: float) -> float:
        """Return the completed share of this launch: by time, or by cells if each has one visit."""
        settings, job = self.run.plan.settings, self.collector.job
        if settings.iterations is None or settings.limited:
            return seconds / self.seconds
        return self.collector.visited / max(1, len(job.cells)) if job is not None else 0.0
