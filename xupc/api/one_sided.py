"""One-sided collectives: one thread moves the data of all threads, the others do nothing.

Section 5 of the MTU thesis proposes them. The blocks are those of the collectives of the same
names. On the caller's node they move by load and store. Across nodes they move by one-sided gets
and puts, with a window of pieces in progress together. On return, src may be overwritten and the
caller sees the result. Another thread sees it after the first synchronisation in which it and the
caller take part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends.wait import WaitState
from ..pgas.allocation import Bytes
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer
from ..plan.patterns import chunks
from ..runtime.team_state import TeamState
from .collectives import Collective, all_broadcast, all_exchange, all_gather, all_scatter
from .operand_checks import Target, check_blocks
from .team import Team, resolve

__all__ = ["broadcast", "exchange", "gather", "scatter"]

Shared = SharedArray | SharedPointer
Place = tuple[int, int]
"""A thread and an offset in its part of the heap."""


def broadcast(dst: Shared, src: Shared, nbytes: int, *, team: Team | None = None) -> None:
    """Copy src's block to dst on every thread; called by one thread alone (MTU thesis, 5.1).

    Parameters
    ----------
    dst : SharedArray or SharedPointer
        With affinity to the first thread; the block goes to this address on each thread.
    src : SharedArray or SharedPointer
        On any one thread.
    nbytes : int
        Bytes of the block, at least 1.
    team : Team, optional
        Whose threads are meant; default all.

    Raises
    ------
    TypeError, ValueError, AffinityError, OverlapError
        On the caller, before anything moves.
    """
    call = _Call("broadcast", all_broadcast, dst, src, nbytes, team)
    call.copy(call.src.place, [(thread, call.dst.offset) for thread in call.threads])
    call.finish()


def scatter(dst: Shared, src: Shared, nbytes: int, *, team: Team | None = None) -> None:
    """Copy the i-th block at src to dst on thread i; called by one thread alone (MTU thesis, 5.1).

    Parameters and errors as in `broadcast`; src's thread has as many blocks as there are threads.
    """
    call = _Call("scatter", all_scatter, dst, src, nbytes, team)
    of, offset = call.src.place
    for i, thread in enumerate(call.threads):
        call.copy((of, offset + i * call.nbytes), [(thread, call.dst.offset)])
    call.finish()


def gather(dst: Shared, src: Shared, nbytes: int, *, team: Team | None = None) -> None:
    """Copy src's block of thread i to the i-th block at dst; by one thread alone (MTU thesis, 5.1).

    Parameters and errors as in `broadcast`, but that dst is on any one thread and src on the first.
    """
    call = _Call("gather", all_gather, dst, src, nbytes, team)
    to, offset = call.dst.place
    for i, thread in enumerate(call.threads):
        call.copy((thread, call.src.offset), [(to, offset + i * call.nbytes)])
    call.finish()


def exchange(dst: Shared, src: Shared, nbytes: int, *, team: Team | None = None) -> None:
    """Copy the j-th block at src of thread i to the i-th at dst of thread j (MTU thesis, 5.1).

    Called by one thread alone. Parameters and errors as in `broadcast`, but that dst and src both
    are on the first thread.

    Across nodes small blocks go through the caller's memory in rows, 2 T accesses instead of T * T.
    """
    call = _Call("exchange", all_exchange, dst, src, nbytes, team)
    n, threads = call.nbytes, call.threads
    row = n * len(threads)
    if call.near or row > call.scratch:
        for i, of in enumerate(threads):
            for j, to in enumerate(threads):
                source = of, call.src.offset + j * n
                call.copy(source, [(to, call.dst.offset + i * n)])
        call.finish()
        return
    for first, count in chunks(len(threads), call.scratch // row):
        blocks = np.empty((len(threads), count, n), np.uint8)
        for i, of in enumerate(threads):
            call.read((of, call.src.offset + first * n), blocks[i].reshape(-1))
        call.finish()
        columns = blocks.swapaxes(0, 1).copy()
        for j, to in enumerate(threads[first : first + count]):
            call.write((to, call.dst.offset), columns[j].reshape(-1))
    call.finish()


# --- what they are made of ------------------------------------------------------------------------
class _Operand:
    """The place of an operand."""

    def __init__(self, target: Target, team: TeamState) -> None:
        self.offset = target.offset
        self.place = team.threads[target.rank], target.offset


class _Call:
    """A call with valid arguments, and its accesses in progress.

    The rules for its operands are those of the collective `like`.

    Attributes
    ----------
    threads
        The threads of the team, by rank.
    near
        True if load and store reach all of them.
    scratch
        The most bytes that may pass through private memory at a time.
    """

    def __init__(
        self, name: str, like: Collective, dst: Any, src: Any, nbytes: Any, team: Team | None
    ) -> None:
        self.name = name
        group, wrong = resolve(team, self.name)
        if wrong is not None:
            raise wrong
        operands = ("dst", dst, like.spec.dst), ("src", src, like.spec.src)
        (target, source), self.nbytes, *_ = check_blocks(name, operands, nbytes, group)
        self.dst, self.src = _Operand(target, group), _Operand(source, group)
        self.threads: Sequence[int] = group.threads
        self.near = not group.spans_nodes
        self.job = group.job
        self.info = group.job.info
        if not self.near:
            self.job.control.ask_to_serve()
        tuning = group.tuning
        self.piece, self.window = tuning["rma_get_max"], tuning["window"]
        self.scratch = tuning["staging_bytes"]
        self._open = 0

    # -- moves -----------------------------------------------------------------------------
    def copy(self, of: Place, to: Sequence[Place]) -> None:
        """Copy a block from one place to others."""
        n = self.nbytes
        source = self._view(of, n)
        if source is not None:
            for place in to:
                self.write(place, source)
            return
        target = self._view(to[0], n) if len(to) == 1 else None
        if target is not None:
            self.read(of, target)
            return
        for thread, _ in to:
            self._settle(thread)
        for offset, size in chunks(n, self.piece):
            data = np.empty(size, np.uint8)
            hand_on = partial(self._hand_on, data, [(t, at + offset) for t, at in to])
            self._get((of[0], of[1] + offset), data, hand_on)

    def _view(self, place: Place, nbytes: int) -> Bytes | None:
        """Return bytes that load and store reach, else None."""
        return self.job.heap_at(place[1]).view(*place, nbytes)

    def _hand_on(self, data: Bytes, to: Sequence[Place]) -> None:
        """Copy a piece that has come from another node to its places, without a wait."""
        for place in to:
            view = self._view(place, data.size)
            if view is not None:
                view[...] = data
            else:
                self._put(place, data)

    def read(self, of: Place, out: Bytes) -> None:
        """Read bytes into memory that this thread can access; complete after `finish`."""
        view = self._view(of, out.size)
        if view is not None:
            out[...] = view
            return
        for offset, size in chunks(out.size, self.piece):
            self._get((of[0], of[1] + offset), out[offset : offset + size])

    def write(self, to: Place, data: Bytes) -> None:
        """Write bytes that this thread can access to any place; complete after `finish`."""
        view = self._view(to, data.size)
        if view is not None:
            view[...] = data
            return
        self._settle(to[0])
        for offset, size in chunks(data.size, self.piece):
            self._wait(to[0], self.window)
            self._put((to[0], to[1] + offset), data[offset : offset + size])

    def finish(self) -> None:
        """Wait until no access is in progress."""
        self._wait(None, 1)

    # -- accesses to other nodes' memory -----------------------------------------------------
    def _settle(self, thread: int) -> None:
        """Wait until a thread's memory is as the calls before this one left it."""
        if self.info.tree.node_of(thread) != self.info.node:
            self.job.completions.wait(thread)

    def _get(self, of: Place, out: Bytes, then: Callable[[], None] | None = None) -> None:
        thread = of[0]
        self._settle(thread)
        self._wait(thread, self.window)
        remote, displacement = self.job.heap_at(of[1]).displacement(*of)
        with self.job.engine.lock:
            with self._guarded(thread):
                request = remote.start(thread, displacement, _address(out), out.size)
            self._track(remote, request, out, then)

    def _put(self, to: Place, data: Bytes) -> None:
        remote, displacement = self.job.heap_at(to[1]).displacement(*to)
        with self.job.engine.lock:
            with self._guarded(to[0]):
                request, old = remote.start_put(to[0], displacement, _address(data), data.size)
            self._track(remote, request, (data, old))

    def _track(
        self, remote: Any, request: Any, keep: Any, then: Callable[[], None] | None = None
    ) -> None:
        self._open += 1

        def finished(_keep: Any = keep) -> None:
            if then is not None:  # which may open others
                then()
            self._open -= 1

        remote.window.track(request, finished)

    def _wait(self, thread: int | None, fewer: int) -> None:
        """Wait until fewer accesses than that are in progress."""
        if self._open >= fewer:
            threads = () if thread is None else (thread,)
            self.job.engine.wait_for(
                lambda: self._open < fewer, f"{self.name}, accesses to other nodes", threads=threads
            )

    def _guarded(self, thread: int) -> Any:
        wait = WaitState(None, f"{self.name}, an access to thread {thread}", (thread,))
        return self.job.engine.guarded(wait)


def _address(data: Bytes) -> int:
    address: int = data.__array_interface__["data"][0]
    return address
