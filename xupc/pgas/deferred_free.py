"""Allocating and freeing by one thread alone.

It may wait for other nodes, and while it does, or any other call, code of the user's may come in
between: a function that a collective calls, a finalizer, a signal's handler. Such code may free.
What it frees is given back by the next call that allocates or frees.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import XupcError

if TYPE_CHECKING:
    from ..runtime.job import Job

__all__ = ["Allocating"]


class Allocating:
    """Who does it in this process: one at a time, and nobody within another call."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._put_off: deque[Callable[[], object]] = deque()

    @contextlib.contextmanager
    def alone(self, call: str) -> Iterator[None]:
        """While a call allocates; XupcError within another call."""
        self._job.check_outside(call)
        if self._job.engine.at_work:
            raise XupcError(f"{call}: not allowed while this thread is in another call")
        with self._turn():
            yield

    def free(self, give_back: Callable[[], bool]) -> bool:
        """Give something back; False if that was done before, as far as is known now."""
        ours = threading.current_thread().name.startswith("xupc-")  # a finalizer, on one of these
        if ours or self._job.engine.at_work:
            self._put_off.append(give_back)
            return True
        with self._turn():
            return give_back()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Nobody else's; what was put off is done before, and what is in it, after."""
        with self._job.engine.lock:
            self._catch_up()
            yield
            self._catch_up()

    def _catch_up(self) -> None:
        while self._put_off:
            self._put_off.popleft()()
