"""The plan of a measurement: which jobs are launched, how often, in what time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from . import budget
from .results import Result
from .settings import Settings, Shape

__all__ = ["Ended", "Launch", "Plan"]


class Ended(Protocol):
    """The end of a job."""

    @property
    def status(self) -> int:
        """Exit status."""

    @property
    def timed_out(self) -> bool:
        """True if the time limit ended it."""

    @property
    def interrupted(self) -> int:
        """Signal that ended it, or 0."""

    @property
    def seconds(self) -> float:
        """Run time."""

    def explain(self, time_limit: float | None = None) -> str:
        """Return one line about what went wrong, or "" if nothing did."""


class Launch(Protocol):
    """Start one job of a shape and wait for its end.

    `program` is what each thread runs, `extra` are more arguments of the launcher. `timeout` is
    that of xupc; `time_limit` is when to kill the job. Both are in seconds.
    """

    def __call__(
        self,
        program: Sequence[str],
        shape: Shape,
        extra: Sequence[str],
        timeout: float,
        time_limit: float | None,
    ) -> Ended: ...


@dataclass(frozen=True)
class Plan:
    """The jobs to launch.

    Attributes
    ----------
    shapes
        The shape of each job; jobs run one after the other.
    launches
        Number of launches of each job; with a budget the most.
    seconds
        Time for all launches together.
    least
        Launches of each job that the least sensible measurement has: `seconds` is a budget then,
        start-up included. A launch that would not end in time is not begun, one that runs over is
        cut. None: `seconds` is no budget.
    prepare
        With a budget: what is done before the first launch, once it is known that the budget is
        enough.
    enough
        With a budget: so many launches come before longer ones.
    thin
        With a budget: sizes may be left out.
    began
        The time of `time.monotonic` from which `seconds` counts; None: from now on.
    after
        A result of the same command, to which the launches are added.
    mpiexec_args
        Extra arguments of the launcher for every launch.
    time_limit
        Seconds after which the driver kills a launch. None: a multiple of its share of the time, or
        never if the number of repetitions is given.
    """

    shapes: tuple[Shape, ...]
    settings: Settings
    launches: int = 1
    seconds: float = 60.0
    least: int | None = None
    prepare: budget.Preparation | None = None
    enough: int = budget.ENOUGH
    thin: bool = False
    began: float | None = None
    after: Result | None = None
    mpiexec_args: tuple[str, ...] = ()
    time_limit: float | None = None

    @property
    def reserved(self) -> float:
        """The seconds of the budget that the preparation may take."""
        return self.prepare.limit(self.seconds) if self.prepare is not None else 0.0

    @property
    def size_choices(self) -> list[tuple[int, ...]]:
        """The sizes to measure, then fewer and fewer of them if some may be left out."""
        return budget.thinned(self.settings.sizes) if self.thin else [self.settings.sizes]
