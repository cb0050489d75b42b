"""The scope in which a collective calls a function of the user's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ..backends.native.native_core import core

_Result = TypeVar("_Result")

__all__ = [
    "UserCallbackScope",
]


class UserCallbackScope:
    """Marks the Python thread that runs a user's function.

    Such a function may read and write shared memory, and makes no other call. Only one Python
    thread runs such functions at a time, since it holds the engine. While a function waits for
    memory, that thread may run another one.

    Attributes
    ----------
    by : int or None
        Identifier of the Python thread that runs a function, if any.
    """

    def __init__(self) -> None:
        self.by: int | None = None

    def run(self, act: Callable[[], _Result]) -> _Result:
        """Return ``act()``, which calls a user's function."""
        before, me = self.by, threading.get_ident()
        try:
            self.by = me
            if core is not None:
                core.calls_out(True)
            return act()
        finally:  # an assignment and a call of C: no signal handler runs before them
            self.by = before
            if core is not None:
                core.calls_out(before is not None)
