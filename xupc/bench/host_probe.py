"""Measure a host: when direct access to private memory pays, and copies past the cache.

``python -m xupc.bench.host_probe`` is a job that does only this. Its first thread prints the
figures as JSON, with the keys of `HostFigures`; `xupc tune` writes them to the user's table. Two
threads of a machine move blocks to each other in both ways, several times. The result depends on
more than copies inside one process: on the places of the two threads in the machine, and on the
pages of the blocks. The kernel reads blocks in huge pages faster, and only long arrays have them.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc
from xupc.backends.native.native_core import core
from xupc.errors import HeapError
from xupc.pgas.segment import Segment, attach, create, free_space
from xupc.tuning.host_figures import HostFigures

__all__ = ["measure"]

ROUNDS = 7
"""A figure is a median over so many rounds: within one, another program may have taken a core."""
SECONDS = 20.0
"""For the rounds of two threads, which take 20 ms each on an idle machine."""
LONG = (10 << 20, 16 << 20)
"""Bytes of copies that, with what they are of, fill the last cache of some machines."""
TRIES = 3
GAIN = 0.9
"""Of the plain copy's time the other one may take to be chosen."""
SIZES = [1 << k for k in range(13, 22, 2)]
UNIT = 1 << 19
"""Bytes that are staged at a time."""
HUGE_PAGE = 1 << 21
REPEATED = 2
APART = 1.5
"""So many times as long staging takes where what one thread writes is slowly read by another."""
HALVED = 1 << 16
"""From so many bytes on both sides copy a half, as arrays of values do."""

Gains = NDArray[np.float64]
"""By how much staging is slower: of one block and of two, in huge and in small pages, by size."""


def measure(
    comm: Any, pids: Sequence[int] | None, cores: int, idle: Callable[[Any], None]
) -> dict[str, int] | None:
    """Return the figures of this machine, on every thread; None if they cannot be measured.

    Parameters
    ----------
    comm
        The threads of this machine.
    pids
        Their process ids; None if a thread cannot access the private memory of another one.
    cores
        The number of cores that they have.
    idle
        A barrier in which waiting threads sleep.
    """
    bypass = past_the_cache() if comm.Get_rank() == 0 else 0
    idle(comm)
    gains = direct_gains(comm, pids, cores)
    idle(comm)
    found: dict[str, int] | None = comm.bcast(None if gains is None else figures(gains, bypass))
    return found


def figures(gains: Gains, bypass: int) -> dict[str, int]:
    """Return what follows from measured gains, with the keys of `HostFigures`."""
    one_way, both_ways = gains
    made = HostFigures(
        best_start(*one_way), best_start(*both_ways), int(cores_are_apart(*both_ways)), bypass
    )
    return {name: getattr(made, name) for name in HostFigures.__match_args__}


def direct_gains(comm: Any, pids: Sequence[int] | None, cores: int) -> Gains | None:
    """Measure the gains of direct access on the first thread; None on the others.

    The first thread and one in the middle move blocks to each other. None also if there is no other
    thread, one core for all, no room, or not enough time.
    """
    me, size = comm.Get_rank(), comm.Get_size()
    pair = (0, size // 2)
    gains = None
    possible = all(comm.allgather(pids is not None)) and size > 1 and cores > 1
    if possible and me in pair:
        assert pids is not None
        peer = pair[1 - pair.index(me)]
        with _shared_by_two(comm, peer) as room:
            if room is not None:
                with contextlib.suppress(_OutOfTime):
                    gains = _rounds(comm, peer, pids[peer], room)
    return gains if me == 0 else None


def _rounds(comm: Any, peer: int, pid: int, room: Segment) -> Gains:
    """Return the medians of all rounds; _OutOfTime on both threads if they take too long."""
    until = time.monotonic() + SECONDS
    pairs = [
        _Pair(comm, peer, pid, room, memory_of(2 * SIZES[-1], huge), until)
        for huge in (True, False)
    ]
    found = [
        [[pair.compare(both) for pair in pairs] for both in (False, True)] for _ in range(ROUNDS)
    ]
    medians: Gains = np.median(np.array(found), axis=0)
    return medians


class _OutOfTime(Exception):
    """The rounds take too long; both threads raise this in the same step."""


def best_start(huge: Sequence[float], small: Sequence[float]) -> int:
    """Return the size from which the gains add up to most.

    Parameters
    ----------
    huge, small
        The gains for each size in pages of that kind. The longer a block, the more likely it is in
        huge ones.
    """
    likely = np.linspace(0, 1, len(SIZES))
    gains = likely * huge + (1 - likely) * small
    rest = [float(gains[i:].sum()) for i in range(len(SIZES) + 1)]
    return [*SIZES, 2 * SIZES[-1]][rest.index(max(rest))]


def cores_are_apart(huge: Sequence[float], small: Sequence[float]) -> bool:
    """Return whether the cores share no cache, by the gains of long blocks of both threads."""
    long = [gain for gains in (huge, small) for gain in gains[len(SIZES) // 2 :]]
    return sum(long) > len(long) * math.log(APART)


class _Pair:
    """One of two threads that move blocks to each other.

    `room` is memory that both have mapped: a half for each, of two places. `memory` is private: a
    half to give from, a half to take into. `until` is the end of the time, by time.monotonic.
    """

    def __init__(
        self,
        comm: Any,
        peer: int,
        pid: int,
        room: Segment,
        memory: NDArray[np.uint8],
        until: float,
    ) -> None:
        self.comm = comm
        self.peer = peer
        self.pid = pid
        self.first = comm.Get_rank() < peer
        self.mine, self.theirs = room.address, room.address + 2 * UNIT
        if not self.first:
            self.mine, self.theirs = self.theirs, self.mine
        self.values, self.results = memory.reshape(2, -1)
        self.source, self.target = self.values.ctypes.data, self.results.ctypes.data
        self.their_source, self.their_target = comm.sendrecv(
            (self.source, self.target), peer, source=peer
        )
        self.until = until
        self.late = np.zeros(2, np.uint8)  # whether my time is up, and whether the other one's is

    def compare(self, both: bool) -> list[float]:
        """Return for each size how many times as long staging takes, as a logarithm."""
        gains = [
            math.log(self._time(self._stage, n, both) / self._time(self._reach, n, both))
            for n in reversed(SIZES)  # what is slow at first does not count for long ones
        ]
        return gains[::-1]

    def _time(self, move: Callable[[int, bool, bool], None], nbytes: int, both: bool) -> int:
        """Return the shortest time in ns; blocks are written before and read after a move."""
        gives, takes = self.first or both, not self.first or both
        found = []
        for turn in range(REPEATED):
            if gives:
                self.values[:nbytes] = turn
            self._meet()
            begin = time.perf_counter_ns()
            move(nbytes, gives, takes)
            found.append(time.perf_counter_ns() - begin)
            if takes:
                self.results[:nbytes].max()
        return max(1, min(found))

    def _meet(self) -> None:
        self.late[0] = time.monotonic() > self.until
        self.comm.Sendrecv(self.late[:1], self.peer, recvbuf=self.late[1:], source=self.peer)
        if self.late.any():
            raise _OutOfTime

    def _stage(self, nbytes: int, gives: bool, takes: bool) -> None:
        for at in range(0, nbytes, UNIT):
            n, place = min(UNIT, nbytes - at), at // UNIT % 2 * UNIT
            if gives:
                core.copy_bytes(self.mine + place, self.source + at, n, False)
            self._meet()
            if takes:
                core.copy_bytes(self.target + at, self.theirs + place, n, False)
        self._meet()

    def _reach(self, nbytes: int, gives: bool, takes: bool) -> None:
        given = nbytes // 2 if gives != takes and nbytes >= HALVED else 0
        n = nbytes - given
        self._meet()
        if takes:
            core.across(self.pid, self.target, self.their_source, n, False)
        elif given:
            core.across(self.pid, self.source + n, self.their_target + n, given, True)
        self._meet()


@contextlib.contextmanager
def _shared_by_two(comm: Any, peer: int) -> Iterator[Segment | None]:
    """Map memory of this thread and another one; None on both if that is not possible."""
    segment: Segment | None = None
    nbytes = 4 * UNIT
    with contextlib.ExitStack() as kept, contextlib.suppress(HeapError, OSError):
        if comm.Get_rank() < peer:
            path = ""
            kept.callback(lambda: comm.send(path, peer))
            if free_space() >= nbytes:
                segment = create(nbytes)
                segment.reserve(0, nbytes)
                path = segment.path
        else:
            path = comm.recv(source=peer)
            segment = attach(path, nbytes) if path else None
    good = comm.sendrecv(bool(path) and segment is not None, peer, source=peer)
    try:
        yield segment if good and path else None
    finally:
        if segment is not None:
            segment.settle()
            segment.close_fd()


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


def past_the_cache() -> int:
    """Return the bytes from which one thread's copies are faster past the cache; 0: none.

    Each way runs alone, and its first copy does not count: after the other way it would find in
    the cache what that leaves there.
    """
    memory = memory_of(2 * LONG[-1], huge=True)
    source, target = memory.ctypes.data, memory.ctypes.data + LONG[-1]

    def least(nbytes: int, past: bool) -> int:
        times = []
        for _ in range(TRIES):
            begin = time.perf_counter_ns()
            core.copy_bytes(target, source, nbytes, past)
            times.append(time.perf_counter_ns() - begin)
        return min(times[1:])

    def ratio(nbytes: int) -> float:
        rounds = [least(nbytes, True) / max(1, least(nbytes, False)) for _ in range(ROUNDS)]
        return statistics.median(rounds)

    return next((n for n in LONG if ratio(n) < GAIN), 0)


def main() -> None:
    """Measure the figures of the host, and let thread 0 print the result as JSON."""
    from mpi4py import MPI

    from .network_probe import wait_quietly

    with xupc.init() as team:
        info = team.job.info
        machine = MPI.COMM_WORLD.Split(info.machine[0], team.rank)
        whole = info.pids is not None and len(info.pids) == len(info.machine)
        pids = info.pids.tolist() if whole else None
        found = measure(machine, pids, info.cores, wait_quietly)
        if team.rank == 0:
            print(json.dumps({"host": info.machine_host, "figures": found}), flush=True)


if __name__ == "__main__":
    main()
