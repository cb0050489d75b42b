"""Find the hang in which all threads of the job wait in calls of MPI.

A thread that waits for a message may do so for long with good reason: a worker waits for its next
task. But if all threads of the job wait so at the same time, none of them can send what another one
waits for. With a limit of waits (``XUPC_TIMEOUT``) that is a hang as soon as each of them has
waited for so long. The note of each thread has this (`message_waits`), and across machines the
summaries of the notes (`calls_elsewhere`).
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from ..backends.running_time import RunningTime
from .crossed_calls import read_note
from .thread_ranges import joined

if TYPE_CHECKING:
    from .control_segment import Control
    from .thread_ranges import Ranges

__all__ = ["HANG_OF_ALL", "HangOfAll", "stuck_here"]

HANG_OF_ALL = "all threads of the job wait in calls of MPI, so no message can follow"
FRESH_NS = 1_000_000_000  # after which a note of a stuck thread counts no more
CONFIRMED = 1.0  # seconds for which all threads are stuck, before that is a hang


class HangOfAll:
    """The detector of the hang in which all threads wait, for the lowest thread of all.

    Parameters
    ----------
    control : Control
        The control segment of the machine.
    threads : int
        How many threads the job has.
    """

    def __init__(self, control: Control, threads: int) -> None:
        self._control = control
        self._all: Ranges = [[0, threads - 1]]
        self._time: RunningTime | None = None
        self._warned = False

    def turn(self, stuck: Ranges) -> bool:
        """Return whether all threads have been stuck for a while, and nothing has reported that.

        `stuck`: the threads that are, as far as known here.
        """
        control = self._control
        if control.who(control.index)[1] != 0 or self._warned or control.trouble() is not None:
            return False
        if stuck != self._all:
            self._time = None
            return False
        self._time = self._time or RunningTime()
        return self._time.look() > CONFIRMED

    def warn(self, seconds: float, report: str) -> None:
        """Print that all threads have been stuck for so long, and where they are; once in a job."""
        self._warned = True
        text = f"xupc: warning: {HANG_OF_ALL}, for {seconds:g} s or longer"
        sys.stderr.write(f"{text} (XUPC_TIMEOUT ends such a job)\n{report}\n")
        sys.stderr.flush()


def stuck_here(control: Control) -> list[list[int]]:
    """Return the threads of this machine that are stuck."""
    now = time.monotonic_ns()
    fresh = control.noted_since(now - FRESH_NS)
    notes = (read_note(control, i) for i in fresh)
    stuck = (note["threads"] for note in notes if note is not None and note["stuck"])
    return joined(run for threads in stuck for run in threads)
