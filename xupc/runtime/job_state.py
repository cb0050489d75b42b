"""The state of the job that every call checks: over, broken, or in a user's function."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from ..backends.own_threads import own_thread
from ..errors import (
    NotInitializedError,
    XupcError,
)
from ..health.control_segment import Control
from .callback_scope import UserCallbackScope
from .placement import Placement

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = [
    "JobState",
]


class JobState(Placement):
    """A job that may be over or broken.

    Attributes
    ----------
    control
        Control segment of the machine.
    broken
        The error after which nothing works.
    who
        Description of this thread.
    ended
        True after ``finalize()``.
    given_back
        True after a start that failed on all threads and has released what it had taken.
    agreed
        Errors that all threads raise, in the current `Job.whole`; None outside of one.
    recorder
        What records calls; None without ``XUPC_TRACE``.
    calling_out
        Scope of the user's functions that collectives call.
    """

    control: Control
    who: str

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.broken: BaseException | None = None
        self.ended = self.given_back = False
        self.calling_out = UserCallbackScope()
        self.pid = os.getpid()
        self.agreed: list[BaseException] | None = None

    def check(self) -> None:
        """Raise if the job is over or broken."""
        self.check_there()
        if self.broken is not None:
            raise XupcError(f"the job is broken: {self.broken}") from self.broken

    def check_there(self) -> None:
        """Raise if the job is over; a broken one still has its thread numbers."""
        if os.getpid() != self.pid:
            raise NotInitializedError("a forked child cannot use its parent's xupc")
        if self.ended:
            raise NotInitializedError(
                "xupc has been finalized since this was made: make it again after xupc.init()"
            )

    def check_outside(self, call: str) -> None:
        """Raise if a function that a collective calls makes this call, or a thread of xupc's."""
        if self.in_function:
            raise XupcError(f"{call}: not allowed in a function that a collective calls")
        self.check_thread(call)

    def check_thread(self, call: str, but: str = "") -> None:
        """Raise if this call, which may wait, comes in a thread of xupc's, except for one."""
        name = self.own_thread
        if name and name != but:
            raise XupcError(
                f"{call}: not allowed in a finalizer that Python runs in the thread {name!r} of "
                "xupc: make the call in the main program"
            )

    @property
    def own_thread(self) -> str:
        """Name of the calling Python thread if it is xupc's, where a finalizer runs; else ""."""
        return own_thread()

    @property
    def in_function(self) -> bool:
        """True in a user's function that a collective calls."""
        return self.calling_out.by == threading.get_ident()

    def agree(self, error: BaseException) -> BaseException:
        """Note an error that all threads raise, so that it counts as no interrupt."""
        if self.agreed is not None:
            self.agreed.append(error)
        return error
