"""The pool of ranks: a program there is as alone as in a job of its own, and ends like one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.pool import Pool

pytestmark = pytest.mark.once

PLAIN = """
    import atexit, os, sys
    import xupc

    atexit.register(lambda: print("exit", os.environ.get("XUPC_TEST_WORD")))
    atexit.register(lambda: print("initialized", hasattr(xupc, "THREADS")))
    seen = globals().setdefault("seen", []) + [1]
    xupc.init()
    print("program", __name__, sys.argv[1:], len(seen), xupc.THREADS)
    os.environ["XUPC_TEST_WORD"] = "changed"
    sys.path.append("/nowhere")
"""
LEAVES = "import os\nkept = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)"
PATCHES = "import xupc\nxupc.init()\nfrom xupc.engine import mpi\nprint(mpi.TYPES)\nmpi.TYPES = 5"
FAILS = """
    import xupc

    with xupc.init() as team:
        if team.rank == 1:
            raise RuntimeError("the program's own mistake")
        xupc.barrier()
"""
WAITS = """
    import time, xupc

    def waits_here():
        time.sleep(60)

    xupc.init()
    print("waits")
    waits_here()
"""


@pytest.fixture
def jobs() -> Iterator[Pool]:
    """A pool of its own."""
    pool = Pool()
    yield pool
    pool.close()


def test_each_program_begins_anew_in_the_same_processes(jobs: Pool) -> None:
    for word in ("one", "two"):
        result = jobs.launch(2, PLAIN, args=[word], env={"XUPC_TEST_WORD": word})
        assert result.returncode == 0, result.report()
        assert result.clean, result.report()
        lines = sorted(result.stdout.splitlines())
        assert lines == [
            *2 * ["exit changed"],
            *2 * ["initialized False"],
            *2 * [f"program __main__ ['{word}'] 1 2"],
        ]
    assert (jobs.programs, jobs.started) == (2, 1)


def test_what_a_program_leaves_is_its_failure(jobs: Pool) -> None:
    result = jobs.launch(1, LEAVES)
    assert not result.clean
    assert "/dev/shm/#" in result.report()
    assert "thread 0" in result.report()
    assert jobs.launch(1, PLAIN).clean
    assert jobs.started == 2


def test_what_a_program_patches_is_not_seen_by_the_next_one(jobs: Pool) -> None:
    first, second = (jobs.launch(1, PATCHES) for _ in range(2))
    assert first.stdout == second.stdout == "256\n", second.report()
    assert jobs.started == 2
    assert jobs.damages == 2 * ["program.py: xupc.engine.mpi.TYPES is another object"]


def test_a_program_that_fails_ends_its_job(jobs: Pool) -> None:
    result = jobs.launch(3, FAILS)
    assert result.returncode != 0
    assert "xupc: thread 1 of 3:" in result.stderr, result.report()
    assert "RuntimeError: the program's own mistake" in result.stderr, result.report()
    assert "rank.py" not in result.stderr, result.report()
    assert jobs.launch(3, PLAIN).clean
    assert jobs.started == 2


def test_a_program_whose_time_is_up_shows_its_stacks(jobs: Pool) -> None:
    result = jobs.launch(2, WAITS, timeout=6)
    assert result.timed_out
    assert result.stdout.count("waits") == 2, result.report()
    assert result.stacks.count("in waits_here") == 2, result.report()
    assert jobs.launch(2, PLAIN).clean


WRITES_BEHIND = """
    import sys
    import numpy as np, xupc
    from xupc.runtime import init

    team = init()
    heap = team.job.heap
    A = xupc.all_alloc(5 * team.size, np.uint8, 5)
    p = xupc.alloc(70)
    offset, nbytes = {"A": (A.allocation.offset, 5), "p": (p.allocation.offset, 70)}[sys.argv[1]]
    s = heap.segment_of(offset)
    s.segment.array[heap.local * s.size + offset - s.start + nbytes + 9] = 1
    if sys.argv[2] == "freed":
        xupc.all_free(A)
        xupc.free(p)
"""


@pytest.mark.parametrize("what", ["A", "p"])
@pytest.mark.parametrize("when", ["freed", "finalized"])
def test_bytes_behind_an_allocation_are_looked_at(jobs: Pool, what: str, when: str) -> None:
    result = jobs.launch(2, WRITES_BEHIND, args=[what, when])
    assert result.returncode == 0, result.report()
    said = [text for text in result.leftovers if "were written to" in text]
    assert len(said) == 2, result.report()
