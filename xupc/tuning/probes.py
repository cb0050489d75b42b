"""What this machine can do, found by trying when a job starts.

Three things that no description of a machine tells: whether its threads may read and write each
other's private memory, which settings of the kernel or of a container may forbid; from how many
bytes on that is worth it; and whether copies of long blocks are faster past the cache.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..backends.native.native_core import core
from ..errors import HeapError
from ..pgas.segment import Segment, attach, create, free_space

__all__ = ["Reaching", "bypass_from", "pids_in_reach", "reaching"]

NONCE = 16
LONG = (10 << 20, 16 << 20)
"""Bytes of copies that, with what they are of, fill the last cache of some machines."""
TRIES = 3
GAIN = 0.9
"""Of the plain copy's time the other one may take to be chosen."""
SIZES = [1 << k for k in range(13, 22, 2)]
UNIT = 1 << 19
"""Bytes that are staged at a time."""
HUGE_PAGE = 1 << 21
HUGE = 1 << 22
"""Bytes from which on numpy asks for huge pages for an array."""
REPEATED = 2
TRIAL_SECONDS = 0.1
"""For the trial between two threads: some 20 ms where nothing else runs. On a busy machine a trial
would take seconds, and find out what the other programs do."""
ASLEEP = 5e-4
APART = 1.5
"""So many times as long staging takes where what one thread writes is slowly read by another."""
NO_LIMIT = 1 << 62
HALVED = 1 << 16
"""From so many bytes on both sides copy a half, as arrays of values do."""


def pids_in_reach(comm: Any) -> list[int] | None:
    """Process numbers of the machine's threads; None here if one is out of my reach.

    Collective on the machine's communicator. Each thread reads a secret in the memory of every
    other one: a number alone could belong to another process, in another container. Then it
    writes the same bytes there, since that may be forbidden alone.
    """
    nonce = np.frombuffer(os.urandom(NONCE), np.uint8).copy()
    rows = comm.allgather((os.getpid(), nonce.ctypes.data, nonce.tobytes()))
    room = np.empty(NONCE, np.uint8)
    here = room.ctypes.data
    good = core is not None and all(
        core.across(pid, here, address, NONCE, False) == 0
        and room.tobytes() == secret
        and core.across(pid, here, address, NONCE, True) == 0
        for pid, address, secret in rows
    )
    comm.Barrier()  # the nonce is needed until here
    return [pid for pid, _, _ in rows] if good else None


class Reaching(NamedTuple):
    """From how many bytes on blocks are better taken from where they lie than staged.

    Attributes
    ----------
    least
        If one thread has something for another one.
    pair
        If each of two has something for the other.
    fold
        Up to so many bytes also of values to be folded, where one thread might bring the next ones
        while another folds: 0, as tuned, or no limit.
    """

    least: int = 0
    pair: int = 0
    fold: int = 0

    def within(self, tuning: Mapping[str, int], threads: int) -> dict[str, int]:
        """Tuned sizes for so many threads, no less than found here.

        But not of blocks in long arrays, which a second copy would take through memory again, and
        of which the kernel has fewer pages to look up if they are huge ones.
        """
        part = HUGE // max(1, threads)
        least = {
            "direct_min": min(self.least, part if threads > 2 else HUGE),
            "direct_min_pair": min(self.pair, part),
            "direct_min_alltoall": min(self.pair, part),
            "direct_min_shared_source": self.least,
            "direct_reduce_max": self.fold,
        }
        return {**tuning, **{name: max(size, tuning[name]) for name, size in least.items()}}


def reaching(comm: Any, pids: Sequence[int] | None, cores: int) -> Reaching:
    """Find that out: two of the machine's threads move blocks in both ways, for some ms.

    If that takes longer than `TRIAL_SECONDS`, since the machine is busy, all is as tuned.

    Collective on the machine's communicator. The others sleep meanwhile, since there may be more
    threads than cores. How long a block takes depends on where in the machine the two are, hence
    on more than copies inside one process would tell. And on its pages: the kernel takes blocks
    quickly out of huge ones, which only long arrays and parts of such are in. So it
    is tried with both.
    """
    me, size = comm.Get_rank(), comm.Get_size()
    pair = (0, size // 2)
    cannot = np.empty(1, np.int32)
    comm.Allreduce(np.array([pids is None], np.int32), cannot)  # as in `Placement._of_all`
    if cannot[0] or size < 2 or cores < 2:
        return Reaching()
    found = np.array(Reaching(), np.int64)
    if me in pair:
        assert pids is not None
        peer = pair[1 - pair.index(me)]
        with _shared_by_two(comm, peer) as room:
            if room is not None:
                with contextlib.suppress(_OutOfTime):
                    found[:] = _tried(comm, peer, pids[peer], room)
    over = comm.Ibcast(found)
    while not over.Test():
        time.sleep(ASLEEP)
    return Reaching(*found.tolist())


def _tried(comm: Any, peer: int, pid: int, room: Segment) -> Reaching:
    """What a trial of this thread with another one finds; _OutOfTime on both if it takes long."""
    until = time.monotonic() + TRIAL_SECONDS
    trials = [
        _Pair(comm, peer, pid, room, memory_of(2 * SIZES[-1], huge), until)
        for huge in (True, False)
    ]
    one_way, both_ways = ([trial.compare(both) for trial in trials] for both in (False, True))
    return Reaching(best_start(*one_way), best_start(*both_ways), most_folded(*both_ways))


class _OutOfTime(Exception):
    """The trial has taken too long, as one of the two threads has seen and both know."""


def best_start(huge: Sequence[float], small: Sequence[float]) -> int:
    """The size from which on gains add up to most.

    Parameters
    ----------
    huge, small
        What is gained for each size in pages of that kind. The longer a block, the more likely it
        is in huge ones.
    """
    likely = np.linspace(0, 1, len(SIZES))
    gains = likely * huge + (1 - likely) * small
    rest = [float(gains[i:].sum()) for i in range(len(SIZES) + 1)]
    return [*SIZES, 2 * SIZES[-1]][rest.index(max(rest))]


def most_folded(huge: Sequence[float], small: Sequence[float]) -> int:
    """`Reaching.fold`, by what is gained where each of two has something for the other."""
    long = [gain for gains in (huge, small) for gain in gains[len(SIZES) // 2 :]]
    return NO_LIMIT if sum(long) > len(long) * math.log(APART) else 0


class _Pair:
    """One of two threads that move blocks to each other.

    `room` is memory that both have mapped: a half for each, of two places. `memory` is each one's
    own: a half to give from, a half to take into. `until`: the trial's last moment, by
    time.monotonic.
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
        """For each size, how many times as long staging takes, as a logarithm."""
        gains = [
            math.log(self._time(self._stage, n, both) / self._time(self._reach, n, both))
            for n in reversed(SIZES)  # what is slow at first does not count for long ones
        ]
        return gains[::-1]

    def _time(self, move: Callable[[int, bool, bool], None], nbytes: int, both: bool) -> int:
        """The shortest in ns; what is given has just been written, and what is taken is used."""
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
    """Memory that this thread and another one have mapped; None on both if it cannot be."""
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
    """Private memory as long arrays have it, in huge pages if there are such, or as others do."""
    room = mmap.mmap(-1, nbytes + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            room.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(room, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    memory = memory[start : start + nbytes]
    memory[:: mmap.PAGESIZE] = 1
    return memory


def bypass_from() -> int:
    """From how many bytes on one thread's copies are faster when they bypass the cache; 0: none.

    Each way is tried alone, the first time for nothing: after the other one it would find in the
    cache what that leaves there.
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

    pays = (n for n in LONG if least(n, True) < GAIN * least(n, False))
    return next(pays, 0)
