"""Find the waits of this thread in calls of MPI that are no collectives of `xupc.Comm`.

xupc knows the calls that it carries, and the collectives of `xupc.Comm`. A thread also waits in
`Recv`, `Waitall` or a window's `Fence`, of mpi4py alone. The daemon thread of the failure detector
finds this out four times a second:

* the program is in the same instruction as at the last turn, a call of a method that blocks
  (`program_call`);
* it has not left that call since: a pending call of the interpreter has not run, which the program
  would run with the next line of Python.

Such a wait may be long for good reason, but not if all threads of the job wait so (`hang_of_all`).
"""

from __future__ import annotations

import math
import sys
import threading

from ..backends.native.native_core import core
from ..backends.own_threads import main_alone
from ..comm.place import place_in_mpi
from .program_call import blocking_method, holds_intercommunicator

__all__ = ["MessageWaits", "whole_world"]

LEAST = 2.0  # seconds of a limit, at least: other machines take a while to learn that one has moved


class MessageWaits:
    """The waits of the program's thread.

    Parameters
    ----------
    limit : float
        Seconds after which a thread is stuck.
    whole : bool
        Whether the threads of xupc are all that may send messages: those of MPI's world, and no
        job has started this one.
    """

    def __init__(self, limit: float, *, whole: bool) -> None:
        self._limit = max(limit, LEAST) if whole else math.inf
        self._program = threading.get_ident()
        self._usable = core is not None and threading.current_thread() is threading.main_thread()
        self._at: tuple[int, int] | None = None
        self._answers: int | None = None  # of the interpreter, when it was asked in this wait
        self._number = 0
        self._name: str | None = None  # "": it is in no method that blocks
        self._alone: bool | None = None

    def turn(self) -> tuple[int, str] | None:
        """Return the number of the wait and the name of its method; None if there is none."""
        frame = sys._current_frames().get(self._program) if self._usable else None
        at = None if frame is None else (id(frame), frame.f_lasti)
        if frame is None or at != self._at or core.answers() != self._answers:
            # a thread that has moved in the meantime may be in the same place again
            answers = core.answers() if self._usable else 0
            asked = frame is not None and at == self._at and core.ask_python()
            self._answers = answers if asked else None
            self._at, self._name, self._alone = at, None, None
            self._number += 1
            return None
        if self._name is None:
            self._name = blocking_method(frame)
        if not self._name or core.answers() != self._answers:
            return None
        return self._number, self._name

    def stuck(self, seconds: float) -> bool:
        """Return whether this thread has waited so long that only other threads' state counts.

        It is not if another Python thread, or another job, may send a message.
        """
        if seconds < self._limit:
            return False
        if self._alone is None:  # once in a wait, for the price
            self._alone = main_alone() and not holds_intercommunicator()
        return self._alone


def whole_world(threads: int) -> bool:
    """Return whether so many threads are all of MPI's world, which no other job has started."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or place_in_mpi()[1] != threads:
        return False
    return bool(mpi.Comm.Get_parent() == mpi.COMM_NULL)
