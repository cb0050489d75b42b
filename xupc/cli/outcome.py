"""The end of a job, and what to say of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from .local_threads import Failure, describe_status

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job.

    Attributes
    ----------
    status : int
        The job's exit status: that of the first thread to fail; 3 if it reached its time limit;
        128 + signal if a signal to this process ended it; 1 if all ended well but left processes
        behind.
    launcher_status : int
        The exit status of the launcher itself.
    failures : tuple of Failure
        The threads that failed, in order of time; known on this machine only.
    survivors : int
        Processes that did not end by themselves and were killed, those of the launcher included.
    killed : int
        How many of these were threads, on this machine.
    timed_out : bool
        True if the time limit ended it.
    interrupted : int
        The signal that ended it, or 0.
    first_error : int or None
        The first thread to report an error, on this machine; None if none did.
    shortage : str
        A text about shared memory, if a lack of it may have killed a thread.
    seconds : float
        The job's run time.
    """

    status: int
    launcher_status: int = 0
    failures: tuple[Failure, ...] = ()
    survivors: int = 0
    killed: int = 0
    timed_out: bool = False
    interrupted: int = 0
    first_error: int | None = None
    shortage: str = ""
    seconds: float = 0.0

    def explain(self, time_limit: float | None = None) -> str:
        """Return one line about what went wrong, or "" if nothing did."""
        parts = []
        if self.timed_out:
            parts.append(f"not finished after {time_limit:g} s" if time_limit else "time is up")
        elif self.interrupted:
            parts.append(f"ended by {signal.Signals(self.interrupted).name}")
        if self.failures:
            first = self.failures[0]
            more = len(self.failures) - 1
            others = f"; {more} other thread{'s'[: more != 1]} failed after it" if more else ""
            parts.append(f"{first}{others}")
        elif self.status and not parts and not self.survivors:
            parts.append(f"the job {describe_status(self.status)}")
            if self.first_error is not None:
                parts.append(f"the first error was that of thread {self.first_error}")
        if self.survivors:
            count, noun = self.killed or self.survivors, "thread" if self.killed else "process"
            plural = "" if count == 1 else "s" if self.killed else "es"
            parts.append(f"{count} {noun}{plural} still running had to be killed")
        if self.shortage:
            parts.append(self.shortage)
        return "; ".join(parts)
