"""A thread that never comes: every thread that waits for it reports it, and the job ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.failing_jobs import bring_about, by_thread
from support.launch import BUSY, SOON, launch
from support.speed import SLOW
from support.tables import SOME_BY_MPI

from xupc.backends.native.native_core import core

ONCE = pytest.mark.once
PROGRAM = "tests/live/programs/hangs.py"
TIMEOUT = {"XUPC_TIMEOUT": f"{SLOW:g}"}  # in which the others have to come
LATE = "not there: VICTIM is outside xupc; its last call was all_broadcast(nbytes=256, flags=0)"


@pytest.mark.parametrize(
    ("call", "victim", "nodes", "words"),
    [
        ("barrier", 0, None, "s in barrier("),
        pytest.param("broadcast", 2, None, "s in all_broadcast(", marks=ONCE),
        pytest.param("wait", 1, None, "s in barrier(", marks=ONCE),
        pytest.param("all_alloc", 3, None, "s in all_alloc(nelems=8", marks=ONCE),
        pytest.param("all_free", 3, None, "s in all_free(", marks=ONCE),
        pytest.param("finalize", 1, None, "s in finalize()", marks=ONCE),
        ("barrier", 3, "2x2", "s in barrier("),
        pytest.param("broadcast", 2, "1,1,1,1", "s in all_broadcast(", marks=ONCE),
        pytest.param("finalize", 0, "2x2", "s in finalize()", marks=ONCE),
        pytest.param("posted", 2, None, "s in all_broadcast(", marks=ONCE),
        ("posted", 1, "2x2", "s in all_broadcast("),
    ],
)
def test_every_waiting_thread_names_who_is_missing(
    call: str, victim: int, nodes: str | None, words: str
) -> None:
    end = bring_about("is late", victim, call, nodes=nodes, env=TIMEOUT)
    assert end.result.returncode != 0
    assert end.said("HangError: thread ") == 3, end.result.report()
    assert end.said(words) >= 3, end.result.report()
    assert end.said(LATE) == 3, end.result.report()


@ONCE
def test_threads_know_who_they_are_when_the_job_is_broken(tmp_path: Path) -> None:
    args = ["numbers_in_a_broken_job", str(tmp_path)]
    result = launch(2, PROGRAM, args=args, env=TIMEOUT)
    assert "I am 1 of 2" in result.stdout, result.report()


@ONCE
@pytest.mark.skipif(core is None, reason="nobody else can look at the clock meanwhile")
@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
def test_mpi_s_start_has_a_limit(via: str) -> None:
    args = ["stops_before_init"]
    result = launch(3, PROGRAM, args=args, env=TIMEOUT, via=via, timeout=BUSY * 40, grace=5)
    assert result.clean, result.report()
    assert result.returncode != 0
    words = "s for other threads in MPI's start"
    said = by_thread(result.stderr).count(words)
    assert said == 2 if via == "xupc run" else said, result.report()


@ONCE
@pytest.mark.parametrize("case", ["before_init", "in_init", "in_a_call", "in_a_call_of_mpi"])
def test_the_time_of_a_suspended_job_does_not_count(case: str) -> None:
    limit = 2.0 * SLOW
    env = {"XUPC_TIMEOUT": f"{limit:g}", **SOME_BY_MPI}
    args = [case, f"{limit + 2:g}"]
    result = launch(3, "tests/live/programs/suspended.py", args=args, env=env, timeout=BUSY * 20)
    assert (result.returncode, result.stdout.count("done")) == (0, 3), result.report()
    assert "HangError" not in result.stderr, result.report()


@ONCE
@pytest.mark.parametrize("stage", ["agree_settings", "prove_memory"])
def test_stages_of_init_in_which_nobody_looks_have_a_limit_of_their_own(stage: str) -> None:
    result = launch(3, PROGRAM, args=["stops_in_init", stage], via="xupc run")
    assert result.clean, result.report()
    assert result.returncode != 0
    assert by_thread(result.stderr).count("HangError: init: thread ") == 2, result.report()


@ONCE
@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
def test_the_memory_of_a_thread_that_does_not_answer(via: str) -> None:
    # Threads 0 and 1 are on the other node; thread 3 needs no answer from its neighbour.
    end = bring_about("is late", 2, "memget", nodes="2x2", env=TIMEOUT, via=via)
    assert end.result.returncode != 0
    said = end.said(f"s in an access to thread 2's memory; {LATE}")
    assert said == 2 if via == "xupc run" else said, end.result.report()


@pytest.mark.parametrize("nodes", [None, "2x2"])
def test_who_is_missing_on_a_team(nodes: str | None) -> None:
    end = bring_about("is late", 1, "team", nodes=nodes, env=TIMEOUT)
    assert end.result.returncode != 0
    assert end.said("HangError: thread ") == 3, end.result.report()
    assert end.said("not there: VICTIM is outside xupc; its last call was split") == 3


@pytest.mark.parametrize("nodes", [None, "2x2"])
def test_threads_that_wait_for_each_other(nodes: str | None) -> None:
    end = bring_about("crosswise", 0, nodes=nodes)
    assert end.result.returncode != 0
    assert end.result.seconds < SOON
    error = end.result.stderr
    assert "HangError: threads wait for each other: " in error, end.result.report()
    assert "in barrier(" in error
    assert "in all_broadcast(nbytes=256" in error


def test_a_stopped_thread_hangs_and_is_not_dead() -> None:
    end = bring_about("stops", 2, env=TIMEOUT)
    assert end.result.returncode != 0
    assert end.said("HangError: thread ") == 3, end.result.report()
    assert end.said(LATE) == 3, end.result.report()
    assert "Dead" not in end.result.stderr


def test_who_comes_in_time_is_not_missed() -> None:
    end = bring_about("is late", 1, "finalize", "1.0", env={"XUPC_TIMEOUT": "20"})
    assert end.result.returncode == 0, end.result.report()
    assert end.result.stderr == ""


@pytest.mark.parametrize("nodes", [None, "2x2"])
def test_without_a_timeout_there_is_a_warning(nodes: str | None) -> None:
    end = bring_about("warns", 1, nodes=nodes)
    assert end.result.returncode == 0, end.result.report()
    assert end.said("RuntimeWarning: thread ") == 3, end.result.report()
    assert end.said(LATE) == 3, end.result.report()


@ONCE
def test_a_thread_that_never_calls_init() -> None:
    end = bring_about("never calls init", 1, env=TIMEOUT)
    assert end.result.returncode != 0
    assert "HangError: init: " in end.result.stderr, end.result.report()
    assert end.result.seconds < SOON
