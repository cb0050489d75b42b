"""What a machine can do, found by trying."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from xupc.engine import machine
from xupc.engine.native_core import core

pytestmark = pytest.mark.skipif(core is None, reason="the native core tries")


class Comm:
    """A communicator of this process and perhaps others, which are made up."""

    def __init__(self, *others: tuple[int, int, bytes]) -> None:
        self.others = others

    def allgather(self, row: Any) -> list[Any]:
        return [row, *self.others]

    def Barrier(self) -> None:
        """Nobody else is there."""


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_a_thread_reaches_itself() -> None:
    assert machine.pids_in_reach(Comm()) == [os.getpid()]


def test_a_process_of_the_same_number_is_not_taken_for_a_thread() -> None:
    room = (b"x" * machine.NONCE, b"y" * machine.NONCE)
    address = id(room[0]) + bytes.__basicsize__ - 1
    assert machine.pids_in_reach(Comm((os.getpid(), address, room[1]))) is None


def test_memory_that_may_be_read_only_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def across(pid: int, here: int, there: int, nbytes: int, out: bool) -> int:
        return 1 if out else core.across(pid, here, there, nbytes, out)

    monkeypatch.setattr(machine, "core", type("Core", (), {"across": staticmethod(across)}))
    assert machine.pids_in_reach(Comm()) is None


def test_who_is_gone_is_out_of_reach() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    assert machine.pids_in_reach(Comm((pid, 4096, b"z" * machine.NONCE))) is None


def test_what_the_kernel_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is made up: a call takes so long, and so do two ways to copy so many bytes."""
    for call, kernel, thread, least, slow in (
        (500, 6000, 6000, 4096, False),  # of two machines that were measured
        (1550, 4500, 2600, 26046, True),
        (50_000, 6000, 6000, machine.MOST, False),
        (0, 100, 0, machine.LEAST, True),
    ):
        now = [0]

        class Core:
            @staticmethod
            def across(
                pid: int, here: int, there: int, nbytes: int, out: bool,
                now: list[int] = now, call: int = call, kernel: int = kernel,
            ) -> int:  # fmt: skip
                now[0] += 100 + (call + kernel * nbytes // machine.MEDIUM if nbytes else 0)
                return 0

            @staticmethod
            def copy_bytes(
                dst: int, src: int, nbytes: int, limit: int,
                now: list[int] = now, thread: int = thread,
            ) -> None:  # fmt: skip
                now[0] += 100 + thread

        monkeypatch.setattr(machine, "core", Core)
        monkeypatch.setattr(machine.time, "perf_counter_ns", lambda now=now: now[0])
        assert machine.reaching() == (least, slow)


def test_one_of_two_ways_to_copy_is_the_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is made up: which of them is quick shows in what is chosen."""
    for quick, slow, pays in ((1, 2, True), (2, 1, False), (1, 1, False)):
        now = [0]

        class Core:
            @staticmethod
            def copy_bytes(
                dst: int, src: int, nbytes: int, limit: int,
                now: list[int] = now, quick: int = quick, slow: int = slow,
            ) -> None:  # fmt: skip
                now[0] += quick if limit else slow

        monkeypatch.setattr(machine, "core", Core)
        monkeypatch.setattr(machine.time, "perf_counter_ns", lambda now=now: now[0])
        assert machine.bypass_pays() is pays
