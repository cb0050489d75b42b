"""What the text of random programs calls, besides xupc."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from support.random_programs.oracle import given
from support.random_programs.program import Team, Values
from support.random_programs.values import clean, crc, func, name_of, some

import xupc

__all__ = [
    "F", "at", "check", "complete", "fetched", "fill", "func", "handles", "node_array", "private",
    "put", "same", "scalars", "some",
]  # fmt: skip

handles: dict[str, Any] = {}


class Wrong(AssertionError):
    """Something else was found than should have been."""


@cache
def F(names: str) -> int:
    """Flags by name; equal ones are one object."""
    bits = 0
    for name in names.split("|"):
        bits |= int(xupc.Flags[name])
    return bits


@cache
def at(array: Any, index: int) -> Any:
    """A pointer to an element; the same object for the same place."""
    return array + index


def forget() -> None:
    """Pointers and handles of a program that is over."""
    at.cache_clear()
    handles.clear()


def _part(array: Any, by: int) -> tuple[int, Any]:
    """The thread whose part is mine to look at, and a pointer to its first element."""
    threads = array.allocation.members
    thread = threads[(list(threads).index(int(xupc.MYTHREAD)) - by) % len(threads)]
    return thread, threads


def _count(array: Any, thread: int, threads: Any) -> int:
    block, rank = array.blocksize, list(threads).index(thread)
    nelems = array.allocation.nelems
    if not block:
        return nelems if rank == 0 else 0
    rows, rest = divmod(nelems, block * len(threads))
    return int(rows * block + min(max(rest - rank * block, 0), block))


def _start(array: Any, thread: int, threads: Any) -> Any:
    """A pointer to all that a thread has, as bytes one after the other."""
    first = array.blocksize * list(threads).index(thread)
    return (array + first).cast("u1", 0)


def fill(array: Any, seed: int, kind: str = "bytes", by: int = 0) -> None:
    """Values into a part: mine, or that of the thread `by` ranks before me."""
    thread, threads = _part(array, by)
    n = _count(array, thread, threads)
    if not n:
        return
    data = some(kind, name_of(array.dtype), n, seed, thread).view(np.uint8)
    if by % len(threads) == 0 and seed % 2 and isinstance(array, xupc.SharedArray):
        array.local.view(np.uint8)[:] = data
    else:
        xupc.memput(_start(array, thread, threads), data, data.size)


def put(array: Any, values: Sequence[Any]) -> None:
    """A list into a shared array; I write what is mine."""
    for i, value in enumerate(values):
        if array.threadof(i) == xupc.MYTHREAD:
            array[i] = value


def check(array: Any, wanted: Sequence[int], by: int = 0) -> None:
    """Compare a part: mine, or that of the thread `by` ranks before me."""
    thread, threads = _part(array, by)
    n = _count(array, thread, threads) * array.dtype.itemsize
    found = np.zeros(n, np.uint8)
    if n and by % len(threads) == 0 and isinstance(array, xupc.SharedArray):
        found = array.local.view(np.uint8)
    elif n:
        xupc.memget(found, _start(array, thread, threads), n)
    if crc(found) != wanted[thread]:
        raise Wrong(f"thread {thread}'s part is wrong: {found[:80].tobytes().hex()}...")


def same(found: Any, wanted: int, dtype: str = "") -> None:
    """Compare what a call gave me; 0: nothing to look at."""
    if wanted:
        x = np.atleast_1d(np.asarray(found, dtype or None))
        if crc(x) != wanted:
            raise Wrong(f"wrong: {x.reshape(-1)[:20]}...")


def complete(under_way: dict[str, Any], order: str) -> None:
    """Wait for calls in this order; of "name!" by testing."""
    for name in order.split():
        handle = under_way.pop(name.rstrip("!"))
        if not name.endswith("!"):
            handle.wait()
        while not handle.test():
            pass


def private(
    name: str, dtype: str, n: int, seed: int, threads: int, rank: int, *, root: int,
    in_place: bool, step: int, kind: str,
) -> tuple[Any, Any]:  # fmt: skip
    """dst and src of a rank, as the oracle has them; every `step`-th element of larger ones."""
    team = Team("", tuple(range(threads)))
    op = Values(name, team, 0, dtype, n, seed, root, in_place=in_place, kind=kind)
    return tuple(_spread(x, step) for x in given(op, rank))


def _spread(x: Any, step: int) -> Any:
    if x is None or step == 1:
        return x
    out = np.zeros(x.size * step, x.dtype)[::step]
    out[:] = x
    return clean(out) if step == 1 else out


def scalars(kind: str, dtype: str, threads: int, seed: int, rank: int) -> Any:
    """The values that I give: one for each thread."""
    return some(kind, dtype, threads, seed, rank)


def fetched(p: Any, nbytes: int) -> Any:
    """Bytes read from anywhere."""
    out = np.empty(nbytes, np.uint8)
    xupc.memget(out, p, nbytes)
    return out


def node_array(team: Any, n: int, seed: int, wanted: Sequence[int]) -> None:
    """One array per node, written by its first thread."""
    mine = team.tree.nodes[[xupc.MYTHREAD in node for node in team.tree.nodes].index(True)]
    array = xupc.node_array(n, "u1", team=team)
    first = min(mine, key=list(team.threads).index)
    if first == xupc.MYTHREAD:
        array[:] = some("bytes", "u1", n, seed, first)
    team.barrier()
    same(array, wanted[xupc.MYTHREAD])
    team.barrier()
