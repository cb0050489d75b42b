"""Handles of calls that were posted with ASYNC, or by a plan's `start`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, NoReturn

from ..errors import show, warn
from ..records import public_names
from ..runtime.async_queue import AsyncCall
from .list_arguments import items_of

__all__ = ["COMPLETE", "Handle", "awaited", "post", "wait_all"]

MOST_HANDLES = 1 << 24  # that wait_all takes
_AT_ONCE, _PAUSE = 100, 1e-3  # tests of an awaited handle without a pause; seconds of a later one


def _slept(seconds: float) -> Generator[Any, Any, None]:
    """Wait in a coroutine; a program that awaits has loaded asyncio."""
    from asyncio import sleep

    yield from sleep(seconds).__await__()


def awaited(test: Callable[[], bool]) -> Generator[Any, Any, None]:
    """Wait in a coroutine of asyncio until a test returns True; other tasks run meanwhile."""
    tests = 0
    while not test():
        tests += 1
        if tests <= _AT_ONCE:
            yield
        else:
            yield from _slept(_PAUSE)


class Handle:
    """A call under way; several may be, and be waited for in any order (MTU thesis, 4.4).

    What the call's IN flags say of its data counts from posting, what the OUT flags say
    holds when `wait` or a true `test` returns. An error of the call is raised by those.
    A handle keeps the memory that its call uses, and so the team of that. A call whose handle is
    dropped goes on to its end, with a warning; then all that it used can be given back.
    """

    __slots__ = ("__weakref__", "_completed", "_pending")

    def __init__(self, pending: AsyncCall) -> None:
        self._pending = pending
        self._completed = False

    @property
    def done(self) -> bool:
        """Whether the call is over on this thread; moves nothing on (MTU thesis, 4.4)."""
        return self._pending.done

    def wait(self) -> None:
        """Wait until the call is over.

        Raises
        ------
        CollectiveMismatchError, HangError, DeadThreadError
            As a blocking call would have.
        """
        pending = self._pending
        if not pending.done:
            pending.team.job.check_outside("wait")
            pending.team.drain(pending)
        self._complete()

    def test(self) -> bool:
        """Move on what can be; True if the call is over, which completes it as `wait` does.

        (MTU thesis, 4.4.)
        """
        pending = self._pending
        if not pending.done:
            pending.team.job.check()
            pending.team.job.check_outside("test")
            pending.team.job.progress(wait=True)
        if pending.done:
            self._complete()
        return pending.done

    def __dir__(self) -> list[str]:
        return public_names(self)

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait in a coroutine of asyncio, whose other tasks run meanwhile."""
        return awaited(self.test)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Handle):
            return self is other
        return other is COMPLETE and self._completed

    def __hash__(self) -> int:
        return id(self)

    def _complete(self) -> None:
        self._completed = True
        self.__class__ = Handle
        self._pending.team.job.unfinished.discard(self._pending)
        if self._pending.error is not None:
            raise self._pending.error

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Handle cannot be pickled or copied: it is a call of this thread's")

    def __repr__(self) -> str:
        state = "done" if self.done else "under way"
        return f"<xupc handle of {self._pending.call}: {state}>"


class _UnderWay(Handle):
    """A handle that the program has not waited for yet; a separate class for its finalizer.

    Python loses a Ctrl-C that arrives while it runs a finalizer.
    """

    __slots__ = ()

    def __del__(self) -> None:
        job, named = self._pending.team.job, self._pending.abandoned  # by the end of the program
        self._pending.abandon()
        if not named and job.broken is None:
            call = self._pending.call
            text = f"the handle of {call} was abandoned: the program did not wait for it"
            warn(text)


class _Complete:
    """What all completed handles are equal to, itself one."""

    done = True

    def test(self) -> bool:
        """Return True: the call is complete."""
        return True

    def wait(self) -> None:
        """Return at once: the call is complete."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()

    def __repr__(self) -> str:
        return "UPC_HANDLE_COMPLETE"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Handle) and other == self)

    def __hash__(self) -> int:
        return 0


COMPLETE = _Complete()


def post(pending: AsyncCall) -> Handle:
    """Put a call into its team's queue."""
    pending.team.job.callers.check(pending.record.name, pending.team)
    pending.team.job.unfinished.add(pending)  # first: its function may be called at once
    pending.team.post(pending)
    return _UnderWay(pending)


def wait_all(handles: Iterable[Handle]) -> None:
    """Wait for all of the handles, in any order.

    Parameters
    ----------
    handles : iterable of Handle

    Raises
    ------
    TypeError
        If something else is among them, before any waiting.
    Exception
        The first error of their calls, when all are over.
    """
    error: BaseException | None = None
    given = items_of(handles, MOST_HANDLES, "wait_all: expected several handles")
    for handle in given:
        if not issubclass(type(handle), Handle):
            raise TypeError(f"wait_all: expected handles, got {show(handle)}")
    for handle in given:
        try:
            handle.wait()
        except Exception as e:
            error = error or e
    if error is not None:
        raise error


