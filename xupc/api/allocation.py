"""Allocating and freeing shared memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from ..backends.native.native_core import invalidate
from ..errors import HeapError, XupcError, show, show_dtype
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..pgas.allocation import Allocation, check_dtype
from ..pgas.integer_arguments import as_integer
from ..pgas.pointer import local_count, resolve_blocksize
from ..pgas.pointer_record import is_pointer_dtype
from ..pgas.shape import DEALT, Shape, as_shape, block_of_rows
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer, pointer_to
from ..pgas.shared_reference import as_address
from ..runtime import current
from ..runtime.dropped_teams import Returns
from ..runtime.team_state import TeamState
from .argument_checks import describe
from .team import Team, resolve, state_of

__all__ = ["all_alloc", "all_free", "alloc", "free", "global_alloc"]


def _nelems(value: Any, call: str) -> int:
    if isinstance(value, tuple | list):
        raise TypeError(
            f"{call}: nelems: expected an integer, got {show(value)}: a pointer has no shape, give "
            "the product"
        )
    n = as_integer(value, call, "nelems")
    if n < 0 or n >= 1 << 60:
        raise ValueError(f"{call}: nelems: expected 0 <= nelems < 2**60, got {show(n)}")
    return n


def _layout(
    nelems: Any, dtype: DTypeLike, blocksize: Any, threads: int, call: str
) -> tuple[int, np.dtype[Any], int, int]:
    """Return (nelems, dtype, blocksize, bytes of the largest part)."""
    n = _nelems(nelems, call)
    kind = check_dtype(dtype, call)
    block = resolve_blocksize(blocksize, n, threads, call)
    return _sized(n, kind, block, threads)


def _shaped(
    nelems: Any, dtype: DTypeLike, blocksize: Any, threads: int, call: str
) -> tuple[Shape | None, tuple[int, np.dtype[Any], int, int]]:
    """Return the shape of an array with several axes, or None, and its layout (`_layout`)."""
    shape = as_shape(nelems, call)
    if shape is not None and len(shape) == 1:
        nelems, shape = shape[0], None
    if shape is None:
        return None, _layout(nelems, dtype, blocksize, threads, call)
    n, kind = _nelems(prod(shape), call), check_dtype(dtype, call)
    if is_pointer_dtype(kind):
        raise TypeError(f"{call}: nelems: expected an integer for pointers, got {shape}")
    return shape, _sized(n, kind, block_of_rows(shape, blocksize, threads, call), threads)


def _sized(
    n: int, kind: np.dtype[Any], block: int, threads: int
) -> tuple[int, np.dtype[Any], int, int]:
    return n, kind, block, local_count(0, n, block, threads) * kind.itemsize


def all_alloc(
    nelems: SupportsIndex | Sequence[SupportsIndex],
    dtype: DTypeLike = np.uint8,
    blocksize: int | str | None = DEALT,
    *,
    team: Team | None = None,
) -> SharedArray:
    """Allocate a shared array on all threads together (UPC language, 7.2.2: ``upc_all_alloc``).

    Parameters
    ----------
    nelems : int or tuple of ints
        Elements of the whole array, 0 and more; or its shape.
    dtype : dtype
        Of an element: any that numpy knows and that holds no Python objects.
    blocksize : int, "*" or None
        Elements per block, dealt round robin from thread 0; 0 or None: all on thread
        0; ``"*"``: one block per thread. An array with several axes has None, or at most one block
        of whole rows for each thread: ``"*"``, its default, deals the rows evenly.
    team : Team, optional
        Over whose threads it is dealt; default all.

    Returns
    -------
    SharedArray
        Zero-filled. Acts as a barrier. The memory stays until `all_free`, also if nothing refers to
        the array any more, since pointers to it may lie in shared memory. That of a team ends with
        the team, which an array or pointer in it keeps as a reference to the team does.

    Raises
    ------
    TypeError, ValueError
        On every thread, if a thread's nelems, dtype or blocksize is none.
    CollectiveMismatchError
        On every thread, if they differ.
    HeapError
        On every thread, naming size and free space.
    """
    on, wrong = resolve(team, "all_alloc")
    on.enter("all_alloc")
    record = CallRecord(
        "all_alloc",
        [("nelems", show(nelems)), ("dtype", show_dtype(dtype)), ("blocksize", show(blocksize))],
    )
    try:
        if wrong is not None:
            raise wrong
        shape, (n, kind, block, nbytes) = _shaped(nelems, dtype, blocksize, on.size, "all_alloc")
    except Exception as e:
        on.fail(e, record)
    with on.job.whole("all_alloc"):
        on.meet(fingerprint("all_alloc", n, repr(kind), block, *(shape or ())), record)
        offset = _collective_room(on, nbytes, n, kind, block)
        if on.parent is None:
            return SharedArray(on.heap.adopt(offset, n, kind, block), shape)
        members = on.public(), on.threads
        return SharedArray(on.heap.adopt(offset, n, kind, block, *members), shape)


def _collective_room(team: TeamState, nbytes: int, n: int, dtype: np.dtype[Any], block: int) -> int:
    """Return an offset whose pages every thread has taken; HeapError on all of them."""
    job = team.job
    heap = team.heap
    _reap(team)
    # All threads of this machine take from the same space, also where it is split into nodes.
    parts = {
        rank: local_count(rank, n, block, team.size) * dtype.itemsize
        for thread in job.info.machine
        if (rank := team.rank_of(thread)) is not None
    }
    _agree_room(team, lambda: heap.room_for(parts.values(), "all_alloc") or "")
    offset = heap.find_room(nbytes)
    if offset is None:
        offset = heap.grow(nbytes)
    mine = parts[team.rank]
    why = ""
    try:
        heap.take(offset, mine, "all_alloc")
    except HeapError as e:
        why = str(e)
    try:
        team.agreement.agree_room(why)
    except HeapError:
        if not why:
            heap.drop(offset, mine)
        heap.unfind(offset)
        raise
    return offset


def _agree_room(team: TeamState, lacks: Callable[[], str]) -> None:
    """Raise HeapError on every thread if one lacks room even without the dropped teams."""
    returns, agreement = Returns(team), team.agreement
    try:
        returns.carry_out(agreement.agree_room(lacks(), returns.count))
    except HeapError:
        team.job.dropped.relieve(now=True)
        returns = Returns(team)
        most = agreement.agree([returns.count])[0]
        if not most:
            raise
        returns.carry_out(most)
        agreement.agree_room(lacks())


def _reap(team: TeamState) -> None:
    """Release quarantined memory that no thread views any more."""
    heap = team.heap
    if not heap.quarantined:
        return
    viewed = [int(heap.viewed_anywhere(*entry)) for entry in heap.quarantined]
    for index, still in reversed(list(enumerate(team.agreement.agree(viewed)))):
        if not still:
            heap.release(index)


def _allocation(x: Any, call: str) -> tuple[Allocation, int, int]:
    try:
        address = as_address(x)
    except TypeError as e:
        raise TypeError(f"{call}: {e}") from None
    address[0].check_live(call, "x")
    if address[2] != address[0].offset or address[1] != address[0].first:
        raise ValueError(
            f"{call}: x: expected a pointer to the start of an allocation, got {show(x)}"
        )
    return address


def _unused(allocation: Allocation, call: str) -> None:
    if using := current.world().job.uses(allocation):
        raise ValueError(f"{call}: x: in use by {using}, which is under way: wait for its handle")


def all_free(x: SharedArray | SharedPointer) -> None:
    """Free what `all_alloc` made; collective, acts as a barrier (UPC language, 7.2.2).

    Views stay readable: memory of `all_alloc` is not used again while there is a view of it.

    Parameters
    ----------
    x : SharedArray or SharedPointer
        A pointer to the first element.

    Raises
    ------
    TypeError, ValueError
        On every thread, if a thread's x is not what `all_alloc` made, or was freed before.
    CollectiveMismatchError
        On every thread, if they free different arrays.
    """
    world = current.world()
    on = world  # of what was allocated on a team, that team
    with contextlib.suppress(TypeError):
        on = state_of(as_address(x)[0].team) or world
    on.enter("all_free")
    record = CallRecord("all_free", [("x", describe(x))])
    try:
        allocation, _, offset = _allocation(x, "all_free")
        if allocation.kind == "alloc":
            raise ValueError("all_free: x: made by alloc: free it with xupc.free")
        _unused(allocation, "all_free")
    except Exception as e:
        on.fail(e, record)
    with on.job.whole("all_free"):
        on.meet(fingerprint("all_free", allocation.serial, offset), record)
        allocation.retire()
        invalidate()
        if allocation.kind == "global":
            give_back = partial(world.job.global_zone.free, offset)
            freed = world.rank != 0 or world.job.allocating.free(give_back)
            if world.agreement.agree([int(not freed)])[0]:
                raise on.job.agree(allocation.freed("all_free", "x"))
            return
        heap = on.heap
        returns = Returns(on)
        mine = int(heap.viewed_anywhere(offset, heap.size_of(offset)))
        viewed, most = on.agreement.agree([mine, returns.count])
        heap.retire(allocation, bool(viewed))
        _reap(on)
        returns.carry_out(most)
        return


def alloc(nelems: SupportsIndex, dtype: DTypeLike = np.uint8) -> SharedPointer:
    """Allocate memory with affinity to the calling thread; not collective (UPC language, 7.2.2).

    Parameters
    ----------
    nelems : int
        Elements, 0 and more.
    dtype : dtype
        As in `all_alloc`; TypeError and ValueError too.

    Returns
    -------
    SharedPointer
        To the first of them, zero-filled.

    Raises
    ------
    HeapError
        The individual zone (``heap_size`` per thread) is full.
    """
    world = current.world()
    n, kind, _, _ = _layout(nelems, dtype, 0, world.size, "alloc")
    with world.job.allocating.alone("alloc"):
        return pointer_to(world.job.heap.alloc(n, kind))


def global_alloc(
    nelems: SupportsIndex, dtype: DTypeLike = np.uint8, blocksize: int | str | None = 1
) -> SharedPointer:
    """Allocate memory spread over all threads; called by one thread alone (UPC language, 7.2.2).

    Parameters
    ----------
    nelems, dtype, blocksize
        As in `all_alloc`; TypeError and ValueError too.

    Returns
    -------
    SharedPointer
        To the first element, zero-filled.

    Raises
    ------
    HeapError
        The global zone (a quarter of ``heap_size`` per thread) is full.
    """
    world = current.world()
    n, kind, block, nbytes = _layout(nelems, dtype, blocksize, world.size, "global_alloc")
    zone = world.job.global_zone
    with world.job.allocating.alone("global_alloc"):
        offset = zone.alloc(nbytes)
    allocation = Allocation(world.job.heap, -2 - offset, offset, n, kind, block, kind="global")
    for thread in range(world.size if block else 1):
        start, size = allocation.part(thread)
        zone.clear(thread, start, size)
    return pointer_to(allocation)


def free(x: SharedArray | SharedPointer) -> None:
    """Free what `alloc` or `global_alloc` made; called by one thread alone (UPC language, 7.2.2).

    Memory of `alloc` is not used again while this thread has a view of it. Other threads' views of
    it, and all views of memory of `global_alloc`, see what is put there next. Where it is called
    within another call, as by a function of a reduction or by a finalizer, the memory is given back
    when this thread allocates or frees the next time.

    Parameters
    ----------
    x : SharedPointer
        To the first element.

    Raises
    ------
    TypeError, ValueError
        If x is not what those made, or was freed before.
    XupcError
        If `alloc` made it on another thread, which alone can free it.
    """
    world = current.world()
    allocation, thread, offset = _allocation(x, "free")
    if allocation.kind == "all":
        raise ValueError("free: x: made by all_alloc: free it with xupc.all_free")
    _unused(allocation, "free")
    job = world.job
    if allocation.kind == "global":
        give_back = partial(job.global_zone.free, offset)
    elif thread == world.rank:
        give_back = partial(job.heap.free_own, allocation)
    else:
        raise XupcError(
            f"free: x: has affinity to thread {thread}, which alone can free it "
            f"(this is thread {world.rank})"
        )
    allocation.retire()
    invalidate()
    if not job.allocating.free(give_back):
        raise allocation.freed("free", "x")
