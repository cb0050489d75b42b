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
from xupc.pgas.segment import create
from xupc.tuning import probes

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
    monkeypatch.setattr(probes, "TRIAL_SECONDS", seconds)
    comm, room = Partner(*late), create(4 * probes.UNIT)
    room.settle()
    with pytest.raises(probes._OutOfTime):
        probes._tried(comm, 1, os.getpid(), room)
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

    def Allreduce(self, mine: Any, found: Any) -> None:
        me = self.Get_rank()
        found[:] = mine + self.sendrecv(mine.copy(), 1 - me, 1 - me)

    def Ibcast(self, values: Any) -> Any:
        if self.Get_rank():
            values[:] = self.recv(0)
        else:
            self.send(values.copy(), 1)
        return type("Request", (), {"Test": staticmethod(lambda: True)})

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
        with probes._shared_by_two(comm, 1 - me) as room:
            assert room is not None
            memory = probes.memory_of(2 * probes.SIZES[-1], huge=bool(me))
            pair = probes._Pair(comm, 1 - me, os.getpid(), room, memory, math.inf)
            for turn, (nbytes, both, move) in enumerate(
                itertools.product(probes.SIZES, (False, True), (pair._stage, pair._reach))
            ):
                pair.values[:] = 2 * turn + me
                pair.results[:] = 255
                comm.sendrecv(None, 1 - me, 1 - me)
                move(nbytes, both or me == 0, both or me == 1)
                taken = nbytes if both or me == 1 else 0
                assert np.all(pair.results[:taken] == 2 * turn + 1 - me)
                assert np.all(pair.results[taken:] == 255)

    comm.both(moves)


def test_both_hear_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose copies of each kind take how long is made up."""
    monkeypatch.setattr(probes, "REPEATED", 1)
    for slow, expected in (
        ("reach", probes.Reaching(2 * probes.SIZES[-1], 2 * probes.SIZES[-1], 0)),
        ("stage", probes.Reaching(probes.SIZES[0], probes.SIZES[0], probes.NO_LIMIT)),
    ):
        comm = Two()

        def time_of(pair: Any, move: Any, nbytes: int, both: bool, slow: str = slow) -> int:
            return 2000 if move.__name__ == f"_{slow}" else 1000

        monkeypatch.setattr(probes._Pair, "_time", time_of)
        found = comm.both(lambda comm=comm: probes.reaching(comm, [os.getpid()] * 2, 2))
        assert found == [expected] * 2


def test_no_trial_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or where one of the two cannot read the other's memory, or there is one core."""
    pids = [os.getpid()] * 2
    comm = Two()
    assert comm.both(lambda: probes.reaching(comm, pids, 1)) == [probes.Reaching()] * 2
    closed = comm.both(lambda: probes.reaching(comm, pids if comm.Get_rank() else None, 2))
    assert closed == [probes.Reaching()] * 2
    monkeypatch.setattr(probes, "free_space", lambda: 4 * probes.UNIT - 1)
    monkeypatch.setattr(probes._Pair, "compare", None)
    assert comm.both(lambda: probes.reaching(comm, pids, 2)) == [probes.Reaching()] * 2


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
    expected = [*probes.SIZES, 2 * probes.SIZES[-1]][first]
    assert probes.best_start(gains, gains) == expected


def test_long_blocks_are_likelier_in_huge_pages() -> None:
    assert probes.best_start([1.1] * 5, [-1] * 5) == probes.SIZES[2]  # the middle
    assert probes.best_start([0.5] * 5, [-1] * 5) == probes.SIZES[3]
    assert probes.best_start([-1.1] * 5, [1] * 5) == 2 * probes.SIZES[-1]


def test_values_of_any_length_are_taken_where_the_other_core_is_far() -> None:
    """Gains as they were measured, near and far: logarithms, sizes in order."""
    near = [0.9, 1.3, 1.5, 1.2, 2.0], [0.8, 1.1] + 3 * [0.7]
    far = [1.2, 2.2, 3.7, 5.5, 7.0], [1.2, 1.8] + 3 * [2.8]
    assert probes.most_folded(*np.log(near)) == 0
    assert probes.most_folded(*np.log(far)) == probes.NO_LIMIT


def test_tuned_sizes_are_least_ones() -> None:
    tuning = {
        "direct_min": 8, "direct_min_pair": 9000, "direct_min_alltoall": 10,
        "direct_min_shared_source": 100, "direct_reduce_max": 7, "x": 5,
    }  # fmt: skip
    assert probes.Reaching(32, 64, 0).within(tuning, 4) == {
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
    never = probes.Reaching(2 * probes.HUGE, 2 * probes.HUGE)
    two, eight = never.within(tuning, 2), never.within(tuning, 8)
    assert (two["direct_min"], two["direct_min_pair"]) == (probes.HUGE, probes.HUGE // 2)
    assert eight["direct_min"] == eight["direct_min_alltoall"] == probes.HUGE // 8
    assert two["direct_min_shared_source"] == eight["direct_min_shared_source"] == 2 * probes.HUGE


def test_one_of_two_ways_to_copy_is_the_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is made up: which of them is quick shows in what is chosen."""
    middle = probes.LONG[1]
    for quick, slow, pays in ((1, 2, probes.LONG[0]), (2, 1, 0), (1, 1, 0), (1, None, middle)):
        now = [0]

        class Core:
            @staticmethod
            def copy_bytes(
                dst: int, src: int, nbytes: int, past: bool,
                now: list[int] = now, quick: int = quick, slow: int | None = slow,
            ) -> None:  # fmt: skip
                other = slow if slow is not None else 1 + (nbytes >= probes.LONG[1])
                now[0] += quick if past else other

        monkeypatch.setattr(probes, "core", Core)
        monkeypatch.setattr(probes.time, "perf_counter_ns", lambda now=now: now[0])
        assert probes.bypass_from() == pays
