"""Detection of calls in several Python threads of a process at once.

Any Python thread may make calls. Several may be inside calls at once under four conditions: each
has a team of its own, the job has one node, it has the native core, and MPI allows calls from
several threads (`MPI_THREAD_MULTIPLE`). All other such calls raise an XupcError. They would share
the team's counters and memory, or the lock of the executor, which a wait holds, so each could wait
for the other forever.

A call is noted in one of two ways. The core notes the instance that it *executes*. `Callers` notes
the other waits of calls, such as that of a handle: the Python thread is *engaged*.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from ..backends.native.native_core import core
from ..backends.protocol import Instance, Record
from ..errors import XupcError
from ..health.control_layout import BROKEN
from ..health.control_segment import Control
from ..topology.job_info import JobInfo

__all__ = ["Callers"]


class _Noted:
    """A context that ends a note.

    It is no generator with `contextmanager`, which would turn a StopIteration into a RuntimeError.
    """

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over

    def __enter__(self) -> None:
        """Do nothing: the note exists."""

    def __exit__(self, *_: object) -> None:
        self._over()


class CallerJob(Protocol):
    """The part of the job that `Callers` uses."""

    info: JobInfo

    @property
    def control(self) -> Control:
        """Control segment of the machine."""

    @property
    def who(self) -> str:
        """Description of this thread."""

    def break_with(self, error: BaseException) -> None:
        """Mark the job as broken."""


class Callers:
    """The Python threads of this process that are inside calls, and the check of a new call."""

    def __init__(self, job: CallerJob) -> None:
        self.job = job
        # by Python thread (its `get_ident`): its engaged calls, outermost first, with their teams
        self._engaged: dict[int, list[tuple[str, object]]] = {}
        # without the core: the Python thread that executes, the record of the call, its team
        self._executed: tuple[int, Record, object] | None = None
        self._apart = False

    def let_threads(self, apart: bool) -> None:
        """Set whether several Python threads may be in calls at once, each on its own team."""
        self._apart = apart
        if core is not None:
            core.let_threads(apart)

    @property
    def several(self) -> bool:
        """True if another Python thread than the calling one is inside a call."""
        me = threading.get_ident()
        return any(ident != me for ident, _, _ in self.inside())

    def within(self, call: str, team: object = None) -> _Noted:
        """Return a context in which a call waits other than in `execute`.

        `team`: None if the call concerns all teams. XupcError if it may not run now (`check`).
        """
        self.check(call, team)
        me = threading.get_ident()
        self._engaged.setdefault(me, []).append((call, team))
        self._note_engaged()
        return _Noted(lambda: self._ends(me))

    def _ends(self, ident: int) -> None:
        self._engaged[ident].pop()
        if not self._engaged[ident]:
            del self._engaged[ident]
        self._note_engaged()

    def _note_engaged(self) -> None:
        if core is not None:
            core.engage(bool(self._engaged))

    def executing(self, instance: Instance) -> _Noted:
        """Return a context in which the Python engine executes an instance; checks it first."""
        self.check(instance.record.name, instance.owner)
        self._executed = threading.get_ident(), instance.record, instance.owner
        return _Noted(self._ended)

    def _ended(self) -> None:
        self._executed = None

    def check(self, call: str, team: object) -> None:
        """Raise XupcError if a call on a team may not run beside those that run.

        On the same Python thread no call may run inside `execute`. On another one a call may run
        only on another team, if `let_threads` allows it.
        """
        executed = self._executions()
        if not executed and not self._engaged:
            return
        me = threading.get_ident()
        for ident, record, _ in executed:
            if ident == me:
                raise XupcError(
                    f"{call}: not allowed while {record.call} is running: a signal handler or a "
                    "finalizer may not make calls in which threads wait"
                )
        for ident, inside, on in self.inside(executed):
            if ident != me and not (self._apart and None not in (team, on) and team is not on):
                self._refuse(call, team, ident, inside, on)

    def inside(
        self, executed: list[tuple[int, Record, object]] | None = None
    ) -> list[tuple[int, str, object]]:
        """Return the calls that run: the Python thread of each, its text and its team.

        `executed` is what `_executions` has returned just before, if that is known.
        """
        executed = self._executions() if executed is None else executed
        found = [(ident, record.call, on) for ident, record, on in executed]
        engaged = [(ident, *calls[-1]) for ident, calls in list(self._engaged.items()) if calls]
        return found + engaged

    def _executions(self) -> list[tuple[int, Record, object]]:
        """Return the Python threads that execute instances, the records and the teams of these."""
        if not self.job.info.native:
            return [] if self._executed is None else [self._executed]
        return [(by, instance.record, instance.owner) for instance, by in core.running()]

    def _refuse(self, call: str, team: object, ident: int, inside: str, on: object) -> None:
        """Raise XupcError; break the job if the teams differ, since no other thread detects it."""
        names = [thread.name for thread in threading.enumerate() if thread.ident == ident]
        text = (
            f"{call}: the Python thread {', '.join(names)!r} of {self.job.who} is inside "
            f"{inside}; only one Python thread of a process may be inside a call of a team: join "
            "it first, or let both take a lock for their calls"
        )
        error = XupcError(text)
        if on is not None and on is not team:
            self.job.control.post(BROKEN, text)
            self.job.break_with(error)
        raise error
