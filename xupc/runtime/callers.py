"""Detection of calls in several Python threads of a process at once, which are refused.

Two such calls would share the team's counters, its memory, and the lock of the engine, which a
wait holds. Each could wait for the other forever. Any Python thread may make calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from ..backends.native.native_core import core
from ..errors import XupcError
from ..health.control_segment import BROKEN, Control

__all__ = ["Callers"]


class _Noted:
    """A context that ends a note; a generator would change a StopIteration that passes it."""

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over

    def __enter__(self) -> None:
        """Do nothing: the note exists."""

    def __exit__(self, *_: object) -> None:
        self._over()


class CallerJob(Protocol):
    """The part of the job that `Callers` uses."""

    native: bool

    @property
    def control(self) -> Control:
        """Control segment of the machine."""

    @property
    def who(self) -> str:
        """Description of this thread."""

    def break_with(self, error: BaseException) -> None:
        """Mark the job as broken."""


class Callers:
    """Notes the Python thread of this process that is inside a call.

    The core notes the instance that it executes; this object notes all other calls.
    """

    def __init__(self, job: CallerJob) -> None:
        self.job = job
        self._engaged: tuple[int, Any, Any] | None = None
        self._executed: tuple[int, Any, Any] | None = None

    def within(self, call: str, team: Any = None) -> _Noted:
        """Note a call during its waits other than `execute`; XupcError if another call runs."""
        self.check(call, team)
        before = self._engaged
        self._engage((threading.get_ident(), call, team))
        return _Noted(lambda: self._engage(before))

    def _engage(self, engaged: tuple[int, Any, Any] | None) -> None:
        self._engaged = engaged
        if core is not None:
            core.engage(engaged is not None)

    def executing(self, instance: Any) -> _Noted:
        """Note an instance that the Python engine executes."""
        self.check(instance.record.name, instance.owner)
        self._executed = threading.get_ident(), instance.record, instance.owner
        return _Noted(self._ended)

    def _ended(self) -> None:
        self._executed = None

    def check(self, call: str, team: Any) -> None:
        """Raise XupcError if a call, on a team, would be made inside another one."""
        executed = self._execution()
        if executed is not None:
            ident, record, on = executed
            if ident == threading.get_ident():
                raise XupcError(
                    f"{call}: not allowed while {record.call} is running: a signal handler or a "
                    "finalizer may not make calls in which threads wait"
                )
            self._refuse(call, team, ident, record.call, on)
        elif self._engaged is not None and self._engaged[0] != threading.get_ident():
            ident, inside, on = self._engaged
            self._refuse(call, team, ident, inside, on)

    def _execution(self) -> tuple[int, Any, Any] | None:
        """Return the Python thread that executes an instance, its record and its team."""
        if not self.job.native:
            return self._executed
        found = core.running()
        return None if found is None else (found[1], found[0].record, found[0].owner)

    def _refuse(self, call: str, team: Any, ident: int, inside: str, on: Any) -> None:
        """Raise XupcError; break the job if the teams differ, since no call would detect that."""
        names = [thread.name for thread in threading.enumerate() if thread.ident == ident]
        text = (
            f"{call}: the Python thread {', '.join(names)!r} of {self.job.who} is inside "
            f"{inside}; only one Python thread of a process may be inside a call: join it first, "
            "or let both take a lock for their calls"
        )
        error = XupcError(text)
        if on is not None and on is not team:
            self.job.control.post(BROKEN, text)
            self.job.break_with(error)
        raise error
