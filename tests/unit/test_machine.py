"""What a machine can do, found by trying."""

from __future__ import annotations

import itertools
import math
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from xupc.backends.native.native_core import core
from xupc.bench import host_probe
from xupc.pgas.segment import create
from xupc.tuning import probes
from xupc.tuning.host_figures import HUGE, NO_LIMIT, HostFigures

pytestmark = pytest.mark.skipif(core is None, reason="the native core tries")


class Comm:
    """A communicator of this process and perhaps others, which are made up."""

    def __init__(self, *others: tuple[int, int, bytes]) -> None:
        self.others = others

    def allgather(self, row: Any) -> list[Any]:
        return [row, *self.others]

    def Barrier(self) -> None:
        """Return at once: this is the only process."""


class Partner:
    """A communicator with one other thread, which sends each time whether its time is up."""

    def __init__(self, *late: bool) -> None:
        self.late = iter(late)
        self.said: list[bool] = []

    def Get_rank(self) -> int:
        return 0

    def sendrecv(self, mine: tuple[int, int], _to: int, source: int) -> tuple[int, int]:
        return mine

    def Sendrecv(self, mine: Any, _to: int, recvbuf: Any, source: int) -> None:
        self.said.append(bool(mine[0]))
        recvbuf[0] = next(self.late)


@pytest.mark.parametrize(
    ("seconds", "late", "said"), [(60, [0, 0, 1], [0, 0, 0]), (-1, [0], [1]), (-1, [1], [1])]
)
def test_a_trial_that_takes_long_ends_for_both(
    monkeypatch: pytest.MonkeyPatch, seconds: float, late: list[bool], said: list[bool]
) -> None:
    monkeypatch.setattr(host_probe, "SECONDS", seconds)
    comm, room = Partner(*late), create(4 * host_probe.UNIT)
    room.settle()
    with pytest.raises(host_probe._OutOfTime):
        host_probe._rounds(comm, 1, os.getpid(), room)
    room.close_fd()
    assert comm.said == said


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_a_thread_reaches_itself() -> None:
    assert probes.pids_in_reach(Comm()) == [os.getpid()]


def test_a_process_of_the_same_number_is_not_taken_for_a_thread() -> None:
    room = (b"x" * probes.NONCE, b"y" * probes.NONCE)
    address = id(room[0]) + bytes.__basicsize__ - 1
    assert probes.pids_in_reach(Comm((os.getpid(), address, room[1]))) is None


def test_memory_that_may_be_read_only_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def across(pid: int, here: int, there: int, nbytes: int, out: bool) -> int:
        return 1 if out else core.across(pid, here, there, nbytes, out)

    monkeypatch.setattr(probes, "core", type("Core", (), {"across": staticmethod(across)}))
    assert probes.pids_in_reach(Comm()) is None


def test_who_is_gone_is_out_of_reach() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert probes.pids_in_reach(Comm((pid, 4096, b"z" * probes.NONCE))) is None


class Two:
    """A communicator of two threads of this process."""

    def __init__(self) -> None:
        self.mail: dict[int, queue.Queue[Any]] = {0: queue.Queue(), 1: queue.Queue()}
        self.rank = threading.local()

    def Get_rank(self) -> int:
        return int(self.rank.here)

    def Get_size(self) -> int:
        return 2

    def send(self, what: Any, to: int) -> None:
        self.mail[to].put(what)

    def recv(self, source: int) -> Any:
        return self.mail[1 - source].get(timeout=60)

    def sendrecv(self, what: Any, to: int, source: int) -> Any:
        self.send(what, to)
        return self.recv(source)

    def Sendrecv(self, word: Any, to: int, recvbuf: Any, source: int) -> None:
        recvbuf[:] = self.sendrecv(word.copy(), to, source)

    def allgather(self, mine: Any) -> list[Any]:
        me = self.Get_rank()
        theirs = self.sendrecv(mine, 1 - me, 1 - me)
        return [theirs, mine] if me else [mine, theirs]

    def bcast(self, value: Any) -> Any:
        return self.allgather(value)[0]

    def both(self, function: Callable[[], Any]) -> list[Any]:
        def run(rank: int) -> Any:
            self.rank.here = rank
            return function()

        with ThreadPoolExecutor(2) as pool:
            return [done.result(120) for done in [pool.submit(run, rank) for rank in range(2)]]


def test_a_trial_moves_what_it_says() -> None:
    """The thread that reads has the other's bytes after each way to move them, for every size."""
    comm = Two()

    def moves() -> None:
        me = comm.Get_rank()
        with host_probe._shared_by_two(comm, 1 - me) as room:
            assert room is not None
            memory = host_probe.memory_of(2 * host_probe.SIZES[-1], huge=bool(me))
            pair = host_probe._Pair(comm, 1 - me, os.getpid(), room, memory, math.inf)
            for turn, (nbytes, both, move) in enumerate(
                itertools.product(host_probe.SIZES, (False, True), (pair._stage, pair._reach))
            ):
                pair.values[:] = 2 * turn + me
                pair.results[:] = 255
                comm.sendrecv(None, 1 - me, 1 - me)
                move(nbytes, both or me == 0, both or me == 1)
                taken = nbytes if both or me == 1 else 0
                assert np.all(pair.results[:taken] == 2 * turn + 1 - me)
                assert np.all(pair.results[taken:] == 255)

    comm.both(moves)


def test_both_get_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of copies of each kind are made up, and so are those past the cache."""
    monkeypatch.setattr(host_probe, "past_the_cache", lambda: 77)
    never, least = 2 * host_probe.SIZES[-1], host_probe.SIZES[0]
    for slow, expected in (
        ("reach", HostFigures(never, never, 0, 77)),
        ("stage", HostFigures(least, least, 1, 77)),
    ):
        comm = Two()

        def time_of(pair: Any, move: Any, nbytes: int, both: bool, slow: str = slow) -> int:
            return 2000 if move.__name__ == f"_{slow}" else 1000

        monkeypatch.setattr(host_probe._Pair, "_time", time_of)
        found = comm.both(lambda comm=comm: measured(comm))
        assert [HostFigures(**each) for each in found] == [expected] * 2


def measured(comm: Two, pids: list[int] | None = None, cores: int = 2) -> Any:
    own = [os.getpid()] * 2 if pids is None else pids
    return host_probe.measure(comm, own or None, cores, lambda comm: comm.allgather(None))


def test_a_round_that_is_disturbed_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a minority of the rounds staging is slow for a while: the medians do not show it."""
    monkeypatch.setattr(host_probe, "past_the_cache", lambda: 0)
    comm = Two()
    rounds = {0: 0, 1: 0}

    def compare(pair: Any, both: bool) -> list[float]:
        me = comm.Get_rank()
        rounds[me] += 1
        disturbed = rounds[me] <= 4 * (host_probe.ROUNDS // 2)  # four comparisons a round
        return [1.0 if disturbed else -1.0] * len(host_probe.SIZES)

    monkeypatch.setattr(host_probe._Pair, "compare", compare)
    never = 2 * host_probe.SIZES[-1]
    assert HostFigures(**comm.both(lambda: measured(comm))[0]) == HostFigures(never, never, 0, 0)


def test_nothing_is_measured_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where one of the two cannot read the other's memory, or there is one core."""
    comm = Two()
    assert comm.both(lambda: measured(comm, cores=1)) == [None] * 2
    assert comm.both(lambda: measured(comm, [] if comm.Get_rank() else None)) == [None] * 2
    monkeypatch.setattr(host_probe, "free_space", lambda: 4 * host_probe.UNIT - 1)
    monkeypatch.setattr(host_probe._Pair, "compare", None)
    assert comm.both(lambda: measured(comm)) == [None] * 2


@pytest.mark.parametrize(
    ("gains", "first"),
    [
        ([-1] * 5, 5),
        ([1] * 5, 0),
        ([-1] * 2 + [1] * 3, 2),
        ([-1, 0.5, -0.4, 1, -1], 1),
        ([-1] * 4 + [0.1], 4),
    ],
)
def test_the_size_from_which_it_pays(gains: list[float], first: int) -> None:
    expected = [*host_probe.SIZES, 2 * host_probe.SIZES[-1]][first]
    assert host_probe.best_start(gains, gains) == expected


def test_long_blocks_are_likelier_in_huge_pages() -> None:
    assert host_probe.best_start([1.1] * 5, [-1] * 5) == host_probe.SIZES[2]  # the middle
    assert host_probe.best_start([0.5] * 5, [-1] * 5) == host_probe.SIZES[3]
    assert host_probe.best_start([-1.1] * 5, [1] * 5) == 2 * host_probe.SIZES[-1]


def test_values_of_any_length_are_taken_where_the_other_core_is_far() -> None:
    """Gains as they were measured, near and far: logarithms, sizes in order."""
    near = [0.9, 1.3, 1.5, 1.2, 2.0], [0.8, 1.1] + 3 * [0.7]
    far = [1.2, 2.2, 3.7, 5.5, 7.0], [1.2, 1.8] + 3 * [2.8]
    assert not host_probe.cores_are_apart(*np.log(near))
    assert host_probe.cores_are_apart(*np.log(far))


def test_tuned_sizes_are_least_ones() -> None:
    tuning = {
        "direct_min": 8, "direct_min_pair": 9000, "direct_min_alltoall": 10,
        "direct_min_shared_source": 100, "direct_reduce_max": 7, "x": 5,
    }  # fmt: skip
    assert HostFigures(32, 64, 0, 0).within(tuning, 4) == {
        "direct_min": 32, "direct_min_pair": 9000, "direct_min_alltoall": 64,
        "direct_min_shared_source": 100, "direct_reduce_max": 7, "x": 5,
    }  # fmt: skip


def test_blocks_of_long_arrays_are_taken_anyway() -> None:
    sizes = (
        "direct_min",
        "direct_min_pair",
        "direct_min_alltoall",
        "direct_min_shared_source",
        "direct_reduce_max",
    )
    tuning = dict.fromkeys(sizes, 1)
    never = HostFigures(2 * HUGE, 2 * HUGE, 1, 0)
    two, eight = never.within(tuning, 2), never.within(tuning, 8)
    assert (two["direct_min"], two["direct_min_pair"]) == (HUGE, HUGE // 2)
    assert eight["direct_min"] == eight["direct_min_alltoall"] == HUGE // 8
    assert two["direct_min_shared_source"] == eight["direct_min_shared_source"] == 2 * HUGE
    assert two["direct_reduce_max"] == eight["direct_reduce_max"] == NO_LIMIT


def test_one_of_two_ways_to_copy_is_the_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is made up: which of them is quick shows in what is chosen."""
    middle = host_probe.LONG[1]
    for quick, slow, pays in ((1, 2, host_probe.LONG[0]), (2, 1, 0), (1, 1, 0), (1, None, middle)):
        now = [0]

        class Core:
            @staticmethod
            def copy_bytes(
                dst: int, src: int, nbytes: int, past: bool,
                now: list[int] = now, quick: int = quick, slow: int | None = slow,
            ) -> None:  # fmt: skip
                other = slow if slow is not None else 1 + (nbytes >= host_probe.LONG[1])
                now[0] += quick if past else other

        monkeypatch.setattr(host_probe, "core", Core)
        monkeypatch.setattr(host_probe.time, "perf_counter_ns", lambda now=now: now[0])
        assert host_probe.past_the_cache() == pays
