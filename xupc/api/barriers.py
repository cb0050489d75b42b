"""barrier, notify, wait and fence."""

from __future__ import annotations

from typing import Any

from ..backends.native.native_core import core
from ..runtime import current
from .argument_checks import signature_of
from .call_cache import SharedCall

__all__ = ["barrier", "fence", "notify", "wait"]


class Barrier(SharedCall):
    """``barrier(value=None)``: wait until all threads are there (UPC language, 6.6.1).

    Parameters
    ----------
    value : int or str, optional
        Must be equal on all threads that give one.

    Raises
    ------
    TypeError
        On a thread whose value is neither.
    CollectiveMismatchError
        On every thread else, if values differ or a thread is in another call.
    """

    __name__ = "barrier"

    def __init__(self) -> None:
        self.__signature__ = signature_of(self._value)

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run a barrier that is not in the cache: the first, or one with a value."""
        value = self._checked_names(self._value, args, kwargs)
        world = current.world()
        world.barrier(value)
        if not args and not kwargs and world.native:
            self.remember((), world.plain_barrier)

    def _value(self, value: object = None) -> object:
        return value


barrier = Barrier()


def notify(value: object = None) -> None:
    """Arrive at a split-phase barrier, and go on: its first half (UPC language, 6.6.1).

    Parameters
    ----------
    value : int or str, optional
        As in `barrier`. The errors are those of `barrier`, and an XupcError if this thread has
        already notified. `wait` reports errors in other threads' calls.
    """
    current.world().notify(value)


def wait(value: object = None) -> None:
    """Wait until all have notified: the second half of a split-phase barrier (UPC language, 6.6.1).

    Parameters
    ----------
    value : int or str, optional
        Must equal the one of this thread's `notify`.

    Raises
    ------
    XupcError
        If this thread has not notified.
    CollectiveMismatchError
        As in `barrier`.
    """
    current.world().wait(value)


def fence() -> None:
    """Order my shared accesses: what I wrote is visible to others then (UPC language, 6.6.1)."""
    world = current.world()
    world.job.sync_windows()
    if core is not None:
        core.fence()
