"""The MPI requests in flight: what to call when each is complete, and how to give them up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from ..backends.protocol import Instance

if TYPE_CHECKING:
    from .mpi_types import Request

__all__ = ["Requests"]


class Requests:
    """All MPI requests of this thread in flight, each with its owner.

    Parameters
    ----------
    mpi
        The module ``mpi4py.MPI``.
    """

    def __init__(self, mpi: ModuleType) -> None:
        self.mpi = mpi
        self._requests: list[Request] = []
        # one per request; None: it is complete, and keeps its index for a while
        self._owners: list[tuple[object, Callable[[], None], bool] | None] = []
        self._open = 0
        self._testing = False  # requests are being tested
        # calls given up that have messages in C
        self._abandoned: list[tuple[object, Instance]] = []

    def __bool__(self) -> bool:
        return bool(self._requests)

    def track(
        self,
        owner: object,
        request: Request,
        finished: Callable[[], None],
        receives: bool = False,
    ) -> None:
        """Call `finished` when a request of the owner's is complete.

        `receives`: it receives a message. The caller holds the engine's lock, because the progress
        thread tests requests, too.
        """
        requests, owners = [request], [(owner, finished, receives)]
        self._requests += requests  # no finalizer and no handler can come between these lines
        self._owners += owners
        self._open += 1

    def poll_abandoned(self) -> None:
        """Test the messages of calls that were given up."""
        for _, instance in self._abandoned:
            instance.look()

    def test(self) -> list[Callable[[], None]]:
        """Test all requests; return the functions to call for those that are complete."""
        within, self._testing = self._testing, True
        try:
            return self._finished(within)
        finally:
            self._testing = within

    def _finished(self, within: bool) -> list[Callable[[], None]]:
        """Return the functions to call.

        `within`: a finalizer or a signal handler runs this inside another test.
        """
        owners, finished = self._owners, []
        for i in self.mpi.Request.Testsome(self._requests) or ():
            if (entry := owners[i]) is not None:
                finished.append(entry[1])
                owners[i] = None
        self._open -= len(finished)
        # rarely, so that each request moves once or twice, and not while another test uses indices
        if finished and not within and 2 * self._open <= len(owners):
            open_ones = [i for i, entry in enumerate(owners) if entry is not None]
            self._requests = [self._requests[i] for i in open_ones]
            self._owners = [owners[i] for i in open_ones]
        return finished

    def forget(self, owner: object, instance: Instance) -> None:
        """Give up a call and all requests of its communicator in flight (after a mismatch).

        `instance`: the call; the core may have messages of it.

        Requests still read and write memory until `quiet` returns True, since MPI can cancel only
        a receive that no message has matched. The receivers drop unmatched messages by `discard`.
        """
        if instance.open:
            instance.call_off()
            self._abandoned.append((owner, instance))
        for i, entry in enumerate(self._owners):
            if entry is not None and entry[0] is owner:
                receives = entry[2]
                self._owners[i] = owner, partial(_nothing, entry[1]), receives
                if receives:
                    self._requests[i].Cancel()

    def quiet(self, owner: object) -> bool:
        """Return whether the owner has nothing in flight."""
        self._abandoned = [(of, instance) for of, instance in self._abandoned if instance.open]
        here = [of for of, _ in self._abandoned] + [entry[0] for entry in self._owners if entry]
        return all(of is not owner for of in here)


def _nothing(_keeps: object) -> None:
    """Complete a request of a call that was given up: only release its memory."""
