"""What is observed of calls of the Python engine: by reports, traces and the program's hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ...call_trace.layout import CLAIMED, FAILED, POSTED
from ...comm.plan_messages import NetContext

if TYPE_CHECKING:
    from .. import protocol

__all__ = ["CallRecorder", "ControlLines", "ObservedCall", "set_hooks"]

Before = Callable[["protocol.Instance"], object]
After = Callable[[object, "BaseException | None"], None]

_hooks: tuple[Before, After] | None = None
_hooked = False  # a call between hooks runs: calls inside it have none


def set_hooks(hooks: tuple[Before, After] | None) -> None:
    """Set what is called before and after each call."""
    global _hooks
    _hooks = hooks


class ControlLines(Protocol):
    """The lines of the control segment in which this engine notes its calls."""

    index: int
    status: NDArray[np.void]

    def begin_call(self, op: int, call: int, team: int) -> int:
        """Note the begin of a call; return the calls before it."""

    def end_call(self, noted: int) -> None:
        """Note the end of a call."""


class CallRecorder(Protocol):
    """A recorder of calls, for a trace."""

    def begin(self, instance: protocol.Instance) -> NDArray[np.void]:
        """Return the row of a call that begins."""

    def waited(self, row: NDArray[np.void], since: int, threads: Sequence[int]) -> None:
        """Note a wait of a call that ends now, for some threads."""

    def end(self, row: NDArray[np.void]) -> None:
        """Keep the row of a call that has ended."""

    def see(self) -> int:
        """Note that this thread waits; return the time."""


class ObservedCall:
    """The part of an instance that is observed."""

    net: NetContext
    recorder: CallRecorder | None = None

    def execute(self) -> None:
        """Run the whole call."""
        raise NotImplementedError

    def hooked(self) -> bool:
        """Run the whole call between hooks, if there are any and this is not done already."""
        global _hooked
        if _hooks is None or _hooked:
            return False
        before, after = _hooks
        _hooked = True
        try:
            state = before(cast("protocol.Instance", self))
            try:
                self.execute()
            except BaseException as e:
                after(state, e)
                raise
            after(state, None)
        finally:
            _hooked = False
        return True

    def begin_row(self, recorder: CallRecorder | None) -> None:
        """Record the begin of the call."""
        self.recorder = recorder
        if recorder is not None:
            self.row = recorder.begin(cast("protocol.Instance", self))
            self.wait_from = 0

    def end_row(self) -> None:
        """Record the end of the call."""
        if self.recorder is not None and self.row["op"]:
            self.recorder.end(self.row)
            self.row["op"] = 0

    def fail(self) -> None:
        """Note that the call ends by an exception."""
        if self.recorder is not None:
            self.note_wait(waits=False)
            self.row["state"] |= FAILED
            self.end_row()

    def post(self) -> None:
        """Note that the program goes on: its waits are none of the program's."""
        if self.recorder is not None:
            self.row["state"] = POSTED

    def claim(self) -> None:
        """Note that the program waits for a posted call."""
        if self.recorder is not None and self.row["state"] == POSTED:
            self.row["state"] = CLAIMED

    def note_wait(self, *, waits: bool) -> None:
        """Note that the call waits, or that it goes on."""
        recorder = self.recorder
        if recorder is None or self.row["state"] == POSTED:
            return
        if waits:
            now = recorder.see()
            self.wait_from = self.wait_from or now
            instance = cast("protocol.Instance", self)
            self.wait_for = sorted(self.net.awaited(instance))
        elif not waits and self.wait_from:
            recorder.waited(self.row, self.wait_from, self.wait_for)
            self.wait_from = 0
