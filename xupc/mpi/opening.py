"""The exchanges in which all threads of a communicator agree on a team of xupc, or on an error.

They happen inside the program's own collective call. Before xupc runs, a limit of waits holds for
them as for `xupc.init`. While it runs, the failure detector watches them like calls that MPI
carries. They are nonblocking calls of MPI: where the environment of the threads differs, such a
call never takes a message of the program's blocking call in its place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ..backends.running_time import RunningTime
from ..errors import said, thread_name, warn_alone
from ..health.failure_detector import WARN_AFTER
from ..health.init_watchdog import Deadline
from ..health.note_comparison import OPENING
from ..runtime import current
from .failures import met
from .mismatch import error_for
from .record import Record, world_rank
from .repeated import form_of

__all__ = ["WRONG", "Meeting"]

WRONG = 100
"""The number of a thread with an error that all threads have to raise; the highest one."""
_ROOM = 2048  # bytes of an error's text
_STAGE = (
    "the start of xupc (all threads of the communicator make this call, with the same XUPC_COMM "
    "and XUPC_TIMEOUT)"
)


class Meeting:
    """The exchanges of one attempt to open a team.

    Parameters
    ----------
    plain : MPI.Intracomm
        The communicator, in mpi4py's own class.
    record : Record
        What xupc keeps for it.
    name : str
        The program's call.
    limit : float or None
        Seconds of a wait before xupc runs; None: no limit.
    """

    def __init__(
        self, plain: MPI.Intracomm, record: Record, name: str, limit: float | None
    ) -> None:
        self._plain, self._record = plain, record
        self._name, self._limit = name, limit

    def gathered(self, number: int) -> list[int]:
        """Return the numbers of all threads, by rank."""
        found = np.empty(self._plain.Get_size(), np.int32)
        self._complete(self._plain.Iallgather(np.array([number], np.int32), found))
        return [int(each) for each in found]

    def raise_wrong(self, numbers: Sequence[int], error: Exception | None) -> None:
        """Raise an error on all threads if one of them has the number `WRONG`.

        A thread with an error of its own raises that one.
        """
        if WRONG not in numbers:
            return
        text = self._text_of(numbers.index(WRONG), error)
        if error is None:
            raise ValueError(text)
        raise error_for(error) or error

    def _text_of(self, root: int, error: Exception | None) -> str:
        """Return on all threads the text of the error on one of them."""
        data = np.zeros(_ROOM, np.uint8)
        if error is not None:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            words = f"{kind}{said(error)}"[: _ROOM // 2] + f" (thread {world_rank()})"
            text = words.encode(errors="backslashreplace")[:_ROOM]
            data[: len(text)] = np.frombuffer(text, np.uint8)
        self._complete(self._plain.Ibcast(data, root))
        return data.tobytes().rstrip(b"\0").decode(errors="ignore")

    def _complete(self, request: MPI.Request) -> None:
        """Wait for a request; the communicator's journal has a call of its own for it."""
        wait = self._poll if current.team is None else _wait
        self._record.by_mpi(form_of(OPENING) or OPENING, wait, met, (request,), {})

    def _poll(self, request: MPI.Request) -> None:
        """Wait before xupc runs; without a limit, warn after a long time."""
        who = thread_name(world_rank(), os.uname().nodename, os.getpid())
        running, warned = RunningTime(), False
        with Deadline(self._limit, self._name, who) as deadline:
            deadline.stage(_STAGE)
            while not request.Test():
                waited = running.look()
                if waited > WARN_AFTER and not warned:
                    warned = True
                    warn_alone(f"{self._name}: {who} has waited {waited:.0f} s in {_STAGE}")
                time.sleep(min(1e-3, waited / 10))


def _wait(request: Any) -> None:
    request.Wait()
