"""Measure a host: when direct access to private memory pays, and copies past the cache.

``python -m xupc.bench.host_probe`` is a job that does only this. Its first thread prints what it
has measured as JSON, with the fields of `Launch`; `xupc tune` starts several such jobs and decides
(`host_decision`). Two threads of a machine make collective calls in both ways in turn.

The result depends on the places of the two threads in the machine, and on the pages of the blocks:
the kernel reads blocks in huge pages faster, and only long arrays have them.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc
from xupc.backends.native.native_core import core

from .host_decision import LONG, PAST, SIZES, Launch

__all__ = ["measure"]

ROUNDS, LEAST = 7, 3
"""Of all calls, after the first one; and how many must end in time."""
SECONDS = 20.0
"""For the rounds of two threads, which take 60 ms each on an idle machine."""
REPEATED = 2
"""The shorter one of so many times counts."""
TRIES = 3
HUGE_PAGE = 1 << 21
DIRECT, STAGED, SLICES = "multicore:direct", "multicore:staged", "multicore:slices"

Memory = NDArray[np.uint8]


def measure(team: xupc.Team, cores: int, idle: Callable[[], None]) -> Launch | None:
    """Measure thread 0's machine; return the result on thread 0, None on others. Collective.

    None also if there is no other thread on the machine, they have one core, threads cannot access
    each other's memory, or the time is too short.

    Parameters
    ----------
    team
        All threads.
    cores
        The number of cores that the threads of this machine have.
    idle
        A barrier in which waiting threads sleep.
    """
    past = past_the_cache() if team.rank == 0 else []
    idle()
    machine, pids = team.job.info.machine, team.job.info.pids
    able = pids is not None and len(pids) == len(machine) > 1 and cores > 1
    pair = machine[0] == 0 and team.rank in (machine[0], machine[len(machine) // 2])
    two = team.split(0 if able and pair else None)
    found = None if two is None else _medians(two)
    idle()
    return None if found is None or team.rank else Launch(*found, past)


# --- calls of two threads -------------------------------------------------------------------------


def _medians(two: xupc.Team) -> tuple[list[Any], list[float]] | None:
    """Return `moves` and `reductions` of `Launch`, on both threads; None without enough time."""
    pages = [_Calls(two, memory_of(4 * SIZES[-1], huge)) for huge in (True, False)]
    until = time.monotonic() + SECONDS
    moves, reductions = [], []
    for number in range(1 + ROUNDS):
        moved = [[each.moves(way) for each in pages] for way in ("scatter", "exchange")]
        reduced = pages[0].reductions()
        if number:  # the first one made the plans
            moves.append(moved)
            reductions.append(reduced)
        if _late(two, until):
            break
    if len(moves) < LEAST:
        return None
    return np.median(moves, axis=0).tolist(), np.median(reductions, axis=0).tolist()


def _late(two: xupc.Team, until: float) -> bool:
    """Return on both threads whether the time of one of them is up."""
    mine, late = np.array([int(time.monotonic() > until)]), np.zeros(1, np.int64)
    xupc.allav_reduce_all(late, mine, xupc.MAX, team=two)
    return bool(late[0])


class _Calls:
    """Calls of two threads with memory of each: a half to give from, a half to take into.

    A call has the same arrays each time, so that xupc finds its plan at once.
    """

    def __init__(self, two: xupc.Team, memory: Memory) -> None:
        self.two = two
        values, results = memory.reshape(2, -1)
        sizes = {*SIZES, *(2 * n for n in SIZES), *LONG}
        self.values = {n: values[:n] for n in sizes}
        self.results = {n: results[:n] for n in sizes}
        self.summands = {n: values[:n].view(np.float64) for n in LONG}
        self.sums = {n: results[:n].view(np.float64) for n in LONG}

    def moves(self, way: str) -> list[float]:
        """Return for each size how many times as long staging takes as direct access.

        `way`: "scatter", a block for one thread, or "exchange", one for each.
        """
        found = []
        for n in reversed(SIZES):  # what is slow at first does not count for long ones
            staged, direct = (
                self._time(2 * n, lambda name=name, n=n: self._move(way, n, name))  # type: ignore[misc]
                for name in (STAGED, DIRECT)
            )
            found.append(staged / direct)
        return found[::-1]

    def _move(self, way: str, n: int, name: Any) -> None:
        if way == "scatter":
            root = self.values[2 * n] if self.two.rank == 0 else None
            xupc.allav_scatter(self.results[n], root, 0, team=self.two, algorithm=name)
        else:
            into, out = self.results[2 * n], self.values[2 * n]
            xupc.allav_exchange(into, out, team=self.two, algorithm=name)

    def reductions(self) -> list[float]:
        """Return for each of `LONG` how many times as long direct access takes."""
        found = []
        for n in LONG:
            direct, *others = (
                self._time(n, lambda name=name, n=n: self._reduce(n, name))  # type: ignore[misc]
                for name in (DIRECT, STAGED, SLICES)
            )
            found.append(direct / min(others))
        return found

    def _reduce(self, n: int, name: Any) -> None:
        sums = self.sums[n] if self.two.rank == 0 else None
        xupc.allav_reduce(sums, self.summands[n], xupc.ADD, 0, team=self.two, algorithm=name)

    def _time(self, nbytes: int, call: Callable[[], None]) -> int:
        """Return the shortest time in ns; blocks are written before and read after a call."""
        found = []
        for turn in range(REPEATED):
            self.values[nbytes][:] = turn
            self.two.barrier()
            begin = time.perf_counter_ns()
            call()
            found.append(time.perf_counter_ns() - begin)
            self.results[nbytes].max()
        return max(1, min(found))


def memory_of(nbytes: int, huge: bool) -> NDArray[np.uint8]:
    """Return private memory in huge pages, as long arrays have, or in small ones."""
    room = mmap.mmap(-1, nbytes + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            room.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(room, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    memory = memory[start : start + nbytes]
    memory[:: mmap.PAGESIZE] = 1
    return memory


def past_the_cache() -> list[float]:
    """Return how many times as long copies past the cache take, for each of `PAST`.

    Each way runs alone, and its first copy does not count: after the other way it would find in
    the cache what that leaves there.
    """
    memory = memory_of(2 * PAST[-1], huge=True)
    source, target = memory.ctypes.data, memory.ctypes.data + PAST[-1]

    def least(nbytes: int, past: bool) -> int:
        times = []
        for _ in range(TRIES):
            begin = time.perf_counter_ns()
            core.copy_bytes(target, source, nbytes, past)
            times.append(time.perf_counter_ns() - begin)
        return max(1, min(times[1:]))

    rounds = [[least(n, True) / least(n, False) for n in PAST] for _ in range(ROUNDS)]
    medians: list[float] = np.median(rounds, axis=0).tolist()
    return medians


def main() -> None:
    """Measure the figures of the host, and let thread 0 print the result as JSON."""
    from mpi4py import MPI

    from .network_probe import wait_quietly

    with xupc.init() as team:
        info = team.job.info
        found = measure(team, info.cores, lambda: wait_quietly(MPI.COMM_WORLD))
        if team.rank == 0:
            said = {"host": info.machine_host, "launch": None if found is None else asdict(found)}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
