"""A thread that waits in xupc makes MPI's progress: programs that are legal MPI do not hang."""

from __future__ import annotations

import pytest

PROGRAM = "tests/live/programs/mpi_progress.py"
WORK = ["many_sends", "strided_send", "synchronous_send", "late_allreduce", "accumulates"]
WAITS = [
    "barrier", "split_phase", "posted", "posted_and_blocking", "team", "broadcast", "value",
    "growing", "free", "splitting", "finalize", "init",
]  # fmt: skip
SHAPES = {"2": (2, None), "4": (4, None), "1,1": (2, "1,1"), "2,1": (3, "2,1")}


def check(live, shape: str, work: str, wait: str) -> None:
    """The job ends by itself, in any case before its waits give up."""
    n, nodes = SHAPES[shape]
    result = live(n, PROGRAM, nodes=nodes, args=[work, wait], env={"XUPC_TIMEOUT": "30"})
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("work", WORK)
def test_whatever_the_program_has_under_way(live, work: str, shape: str) -> None:
    """In a barrier, on one node and on several, with more threads than cores too."""
    check(live, shape, work, "barrier")


@pytest.mark.parametrize("wait", WAITS)
def test_whatever_the_thread_waits_in(live, wait: str) -> None:
    """Every kind of call that waits."""
    check(live, "2", "many_sends", wait)


@pytest.mark.parametrize("wait", ["posted_and_blocking", "finalize", "init"])
def test_between_nodes(live, wait: str) -> None:
    """Waits that go through Python rather than the core."""
    check(live, "2,1", "strided_send", wait)
