"""The watchdog of init detects deaths; a process stands in for the other thread."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from xupc.health.init_watchdog import Deadline, InitDeathWatch
from xupc.pgas.segment import create

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks cannot be asked for")

PROGRAM = Path(__file__).parent / "programs" / "lookout_of_a_thread.py"
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def lookout() -> Iterator[InitDeathWatch]:
    found = InitDeathWatch(create(InitDeathWatch.bytes_for(3)), 0)
    found.names = ["thread 0", "", "thread 5"]
    yield found
    found.close()


@pytest.fixture
def other(lookout: InitDeathWatch) -> Iterator[subprocess.Popen[str]]:
    """Thread 5, with index 2."""
    segment = lookout.segment
    command = [sys.executable, str(PROGRAM), segment.path, str(segment.nbytes)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        process.kill()


def test_who_dies_is_named(lookout: InitDeathWatch, other: subprocess.Popen[str]) -> None:
    assert lookout.deaths() == []
    other.kill()
    other.wait()
    assert lookout.deaths() == ["thread 5 died in init"]


def test_who_says_that_it_leaves_has_not_died(
    lookout: InitDeathWatch, other: subprocess.Popen[str]
) -> None:
    print("leave", file=other.stdin, flush=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "left\n"
    assert lookout.deaths() == []
    other.kill()
    other.wait()
    assert lookout.deaths() == []


def test_there_is_room_for_every_thread_of_a_machine() -> None:
    assert InitDeathWatch.bytes_for(1) == 4096
    for threads in (4032, 4033, 100_000):
        assert InitDeathWatch.bytes_for(threads) >= 64 + threads


def test_a_deadline_that_is_over_keeps_no_memory() -> None:
    """The watcher keeps the deadline until it wakes up; what it watched is freed at once."""

    class Lookout:
        closed = 0

        def deaths(self) -> list[str]:
            return []

        def close(self) -> None:
            Lookout.closed += 1

    lookout = Lookout()
    seen = weakref.ref(lookout)
    with Deadline(None, "init", "thread 0") as deadline:
        deadline.look_out(cast("Any", lookout))
        del lookout
        assert seen() is not None
    assert (Lookout.closed, seen()) == (1, None)
    assert deadline is not None
