"""More memory is asked for than there is. Arguments: a case, bytes of space, a cgroup's folder."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from support.checked_calls import Usable, done, raises

import xupc
from xupc import HeapError

FREE = re.compile(r"(\d+) bytes are free")


def refused(call: object, words: tuple[str, ...], most: int, what: object) -> None:
    """HeapError that names size and free space."""
    error = raises(HeapError, words, call, what)  # type: ignore[arg-type]
    found = FREE.search(str(error))
    assert found, error
    assert 0 <= int(found[1]) <= most, error


def at_init(space: int) -> None:
    """A heap that does not fit; then one that does."""
    for size in (space, 100 * space, 1 << 45):
        call = lambda size=size: xupc.init(heap_size=size, timeout=30)  # noqa: E731
        refused(call, ("init", str(size)), space, size)
    xupc.init(heap_size="64KiB", timeout=30)
    Usable()("a heap that fits")


def in_growth(space: int) -> None:
    """The heap cannot grow: all_alloc raises on every thread, and works again when it can."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    usable = Usable()
    for n in (space, 50 * space, 1 << 40):
        for block in (n, 0):  # of every thread, of thread 0 alone
            call = lambda n=n, b=block: xupc.all_alloc(n * T, "u1", b)  # noqa: E731
            refused(call, ("all_alloc", str(n * T)), space, (n, block))
            usable((n, block))
    alone = space * 3 // 4  # would fit now
    xupc.all_free(xupc.all_alloc(space // 4, "u1", 0))
    usable("thread 0's array")
    for _ in range(2):
        piece = space // 32 // T
        arrays: list[xupc.SharedArray] = []
        text = ""
        try:
            while len(arrays) < 64:
                arrays.append(xupc.all_alloc(piece * T, "u1", piece))
                assert not arrays[-1].local.any()
                arrays[-1].local[:] = 200 + len(arrays) % 50
        except HeapError as error:
            text = str(error)
        assert FREE.search(text), text
        assert 8 < len(arrays) < 40, len(arrays)
        usable("a full heap")
        for k, A in enumerate(arrays):
            assert (A.local == 200 + (k + 1) % 50).all()
        refused(lambda: xupc.all_alloc(alone, "u1", 0), ("all_alloc",), space, "thread 0 alone")
        while arrays:
            xupc.all_free(arrays.pop())
        usable("an empty heap")
    if me == 0:
        raises(HeapError, ("alloc",), lambda: xupc.alloc(1 << 30))
    usable("alloc")


def main() -> None:
    case, space = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) > 3:
        (Path(sys.argv[3]) / "cgroup.procs").write_text(str(os.getpid()))
    if case == "init":
        at_init(space)
    elif case == "default":
        raises(HeapError, ("init", "bytes are free"), lambda: xupc.init(timeout=30))
        xupc.init(heap_size="64KiB", timeout=30)
    else:
        xupc.init(heap_size="64KiB", timeout=30)
        in_growth(space)
    done(space)


main()
