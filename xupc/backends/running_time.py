"""The time of a wait in which this process ran.

A job can be suspended in the middle of a call: by Ctrl-Z, by SIGSTOP or by the batch system, which
does so to run a more urgent job (``scontrol suspend`` of Slurm). No thread is late for that reason,
so the limits of waits do not count this time.
"""

from __future__ import annotations

import time

__all__ = ["GAP_NS", "RunningTime"]

GAP_NS = 1_000_000_000  # between two looks: more is no time in which this process ran


class RunningTime:
    """The seconds of a wait, without those in which this process was stopped.

    A waiting thread looks several times a second. If it has not for longer than `GAP_NS`, it was
    stopped or had no processor, and only `GAP_NS` of that time count.

    Attributes
    ----------
    since : int
        When the wait began, in ns of the monotonic clock, moved by what does not count.
    """

    __slots__ = ("_seen", "since")

    def __init__(self) -> None:
        self.since = self._seen = time.monotonic_ns()

    def look(self) -> float:
        """Return the seconds so far. Call it at every look at the wait."""
        now = time.monotonic_ns()
        self.since += max(0, now - self._seen - GAP_NS)
        self._seen = now
        return (now - self.since) * 1e-9
