"""Allocation and freeing by one thread, without the others.

During its waits, and during those of other calls, code of the user's may run: a function that a
collective calls, a finalizer, a signal handler. Such code may free memory. The next call that
allocates or frees returns that memory to the heap.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..errors import XupcError

__all__ = ["Allocating"]


class Progressing(Protocol):
    """The part of the executor that allocations use."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """Held while calls make progress."""

    @property
    def at_work(self) -> bool:
        """True while this thread is in a call."""


class AllocatingJob(Protocol):
    """The part of the job that allocations use."""

    @property
    def engine(self) -> Progressing:
        """Executor of the job."""

    @property
    def own_thread(self) -> str:
        """Name of the calling Python thread if it is xupc's, where a finalizer runs; else ""."""

    def check_outside(self, call: str) -> None:
        """Raise if a user's function that a collective calls makes this call."""


class Allocating:
    """Serialises allocations and frees of a process; none runs inside another call."""

    def __init__(self, job: AllocatingJob) -> None:
        self._job = job
        self._put_off: deque[Callable[[], object]] = deque()

    @contextlib.contextmanager
    def alone(self, call: str) -> Iterator[None]:
        """Hold the right to allocate for a call; XupcError inside another call."""
        self._job.check_outside(call)
        if self._job.engine.at_work:
            raise XupcError(f"{call}: not allowed while this thread is in another call")
        with self._turn():
            yield

    def free(self, give_back: Callable[[], bool]) -> bool:
        """Return memory, now or later; False if it is known to have been returned before."""
        if self._job.own_thread or self._job.engine.at_work:
            self._put_off.append(give_back)
            return True
        with self._turn():
            return give_back()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the engine's lock; run deferred frees before and after."""
        with self._job.engine.lock:
            self._catch_up()
            yield
            self._catch_up()

    def _catch_up(self) -> None:
        while self._put_off:
            self._put_off.popleft()()
