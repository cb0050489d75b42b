"""The pool of ranks: a program there is as alone as in a job of its own, and ends like one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.pool import Pool

pytestmark = pytest.mark.once

PROGRAM = "tests/live/programs/pool_programs.py"


@pytest.fixture
def jobs() -> Iterator[Pool]:
    """A pool of its own."""
    pool = Pool()
    yield pool
    pool.close()


def test_each_program_begins_anew_in_the_same_processes(jobs: Pool) -> None:
    for word in ("one", "two"):
        result = jobs.launch(2, PROGRAM, args=["plain", word], env={"XUPC_TEST_WORD": word})
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
    result = jobs.launch(1, PROGRAM, args=["leaves_a_descriptor"])
    assert not result.clean
    assert "/dev/shm/#" in result.report()
    assert "thread 0" in result.report()
    assert jobs.launch(1, PROGRAM, args=["plain"]).clean
    assert jobs.started == 2


def test_what_a_program_patches_is_not_seen_by_the_next_one(jobs: Pool) -> None:
    args = ["patches_the_library"]
    first, second = (jobs.launch(1, PROGRAM, args=args) for _ in range(2))
    assert first.stdout == second.stdout == "256\n", second.report()
    assert jobs.started == 2
    assert jobs.damages == 2 * ["pool_programs.py: xupc.comm.datatypes.TYPES is another object"]


def test_what_a_program_logs_is_not_printed_by_the_next_one(jobs: Pool) -> None:
    first, plain, last = (
        jobs.launch(1, PROGRAM, args=[case])
        for case in ("logs_everything", "plain", "logs_everything")
    )
    assert first.stdout == last.stdout
    assert first.stdout.startswith("handlers 0\nxupc\n"), first.report()
    assert "xupc\n" not in plain.stdout
    assert jobs.started == 1


def test_a_program_that_fails_ends_its_job(jobs: Pool) -> None:
    result = jobs.launch(3, PROGRAM, args=["fails"])
    assert result.returncode != 0
    assert "xupc: thread 1 of 3:" in result.stderr, result.report()
    assert "RuntimeError: the program's own mistake" in result.stderr, result.report()
    assert "rank.py" not in result.stderr, result.report()
    assert jobs.launch(3, PROGRAM, args=["plain"]).clean
    assert jobs.started == 2


@pytest.mark.waits
def test_a_program_whose_time_is_up_shows_its_stacks(jobs: Pool) -> None:
    result = jobs.launch(2, PROGRAM, args=["waits"], timeout=6)
    assert result.timed_out
    assert result.stdout.count("waits") == 2, result.report()
    assert result.stacks.count("in waits_here") == 2, result.report()
    assert jobs.launch(2, PROGRAM, args=["plain"]).clean


@pytest.mark.parametrize("when", ["freed", "finalized"])
def test_bytes_behind_an_allocation_are_looked_at(jobs: Pool, when: str) -> None:
    """A job that ends names those of a collective allocation and of one by a single thread."""
    result = jobs.launch(2, PROGRAM, args=["writes_behind", when])
    assert result.returncode == 0, result.report()
    found = [text for text in result.leftovers if "were written to" in text]
    assert [sum(f"the {nbytes} at" in text for text in found) for nbytes in (5, 70)] == [2, 2]
    assert len(found) == 4, result.report()
