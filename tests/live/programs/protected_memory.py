"""Private memory that closes, moves, or is planned to be read by others: ``... CASE``."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from support.cases import case, run_case

import xupc

PROTECT = ctypes.CDLL(None).mprotect
OPEN = mmap.PROT_READ | mmap.PROT_WRITE


def page_at(address: int) -> ctypes.c_void_p:
    """Return the beginning of the page of an address."""
    return ctypes.c_void_p(address - address % mmap.PAGESIZE)


@case
def closed_meanwhile() -> None:
    """In the middle of an array, or after a call that could read it: all get an error."""
    team = xupc.init()
    me, t, n = team.rank, team.size, 20_000
    memory = mmap.mmap(-1, 8 * n * t)
    many = np.frombuffer(memory, np.float64)
    a, into = many[:n], np.empty(n)
    page = page_at(a.ctypes.data + 4 * n)  # in the first block
    calls: dict[str, Callable[[], object]] = {
        "broadcast": lambda: xupc.allav_broadcast(a, 1),
        "permute": lambda: xupc.allav_permute(into, a, (me + 1) % t),
        "scatter": lambda: xupc.allav_scatter(into, many if me == 1 else None, 1),
    }
    for name, call in calls.items():
        for turn in range(4):
            closed = me == 1 and turn in (0, 2)
            many[:] = me
            if closed:
                assert PROTECT(page, mmap.PAGESIZE, 0) == 0
            error = ""
            try:
                call()
                xupc.barrier()  # a call of signals reports it when threads next meet
            except xupc.XupcError as e:
                error = str(e)
            if closed:
                PROTECT(page, mmap.PAGESIZE, OPEN)
            said = "no longer copy" in error and "thread 1" in error
            assert said == (turn in (0, 2)), (name, turn, error)
            if not said:
                got = a if name == "broadcast" else into
                assert np.all(got == ((me - 1) % t if name == "permute" else 1))
    xupc.finalize()
    sys.stdout.write("done\n")


@case
def closed_in_a_part() -> None:
    """The errors name threads by their numbers in the job, not in the team."""
    team = xupc.init()
    for members in ((2, 3), (0, 2), (1, 2, 3)):
        sub = team.split(0 if team.rank in members else None)
        a = np.frombuffer(mmap.mmap(-1, 160_000), np.float64)
        page = page_at(a.ctypes.data + 80_000)
        if sub is not None:
            if sub.rank == 0:
                PROTECT(page, mmap.PAGESIZE, 0)
            try:
                xupc.allav_broadcast(a, 0, xupc.PULL, sub)
                sub.barrier()
            except xupc.XupcError as e:
                assert f"that of thread {members[0]}:" in str(e), e
                assert any(f"thread {m} can no longer" in str(e) for m in members[1:]), e
            else:
                raise AssertionError("no error")
            if sub.rank == 0:
                PROTECT(page, mmap.PAGESIZE, OPEN)
            sub.free()
        team.barrier()
    xupc.finalize()
    sys.stdout.write("done\n")


@case
def steps_of_a_plan() -> None:
    """Print whether the plan of a broadcast offers memory, and whether it reads another's."""
    team = xupc.init()
    a = np.zeros(1 << 20)  # so long that no trial at start says otherwise
    text = str(xupc.allav_broadcast.plan(a, 0, xupc.PULL))
    sys.stdout.write(f"{team.rank} {'offer  ' in text} {'reach  ' in text}\n")


@case
def same_objects() -> None:
    """Arguments that are the same objects are not the same numbers."""
    team = xupc.init()
    me, t = team.rank, team.size

    class Moving:
        at = 0

        def __index__(self) -> int:
            return self.at

    with tempfile.TemporaryDirectory() as folder:
        mapped = np.memmap(os.path.join(folder, "x"), np.float64, "w+", shape=(1000,))
        for turn in range(3):
            mapped[:] = me + turn
            xupc.allav_broadcast(mapped, 1)
            assert np.all(mapped == 1 + turn)
    a, moving = np.empty(10), Moving()
    d, s = (xupc.all_alloc(4 * t, np.float64, 4) for _ in range(2))
    for root in (0, 1, 0, 1):
        moving.at = root
        given: Any
        for given in (np.array(root), moving):
            a[:] = me
            xupc.allav_broadcast(a, given)
            assert np.all(a == root)
    number: Any = np.array(8)
    for n in (8, 16, 8):
        number[...] = n
        d.local[:], s.local[:] = -1, me
        xupc.barrier()
        xupc.all_broadcast(d, s, number)
        assert list(d.local) == [0] * (n // 8) + [-1] * (4 - n // 8)
    xupc.finalize()
    sys.stdout.write("done\n")


run_case()
