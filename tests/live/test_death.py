"""A thread dies, in every way and at every moment: the others report it, and nothing is left.

Under `xupc run`, which has the launcher leave the survivors alone, every one of them must name the
dead thread, its host, its pid and its last call. Under a plain launcher, which may kill them
first, the job must at least be gone in time.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from support.failing_jobs import ALL_GONE, bring_about, by_thread, started
from support.launch import launch

from xupc.backends.native.native_core import core

ONCE = pytest.mark.once
START_AND_END = "tests/live/programs/deaths_at_start_and_end.py"
IN_CALL = "DeadThreadError: VICTIM died in all_broadcast(nbytes=256, flags=0)"
OUTSIDE = "DeadThreadError: VICTIM died outside xupc; its last call was all_broadcast(nbytes=256"


def short(value: object) -> str:
    """Leave the expected words out of a test's name."""
    return "words" if isinstance(value, str) and "VICTIM" in value else str(value)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("scenario", "victim", "nodes", "words"),
    [
        # All but one are in a wait, the victim too: first (node root), middle, last.
        ("waits", 0, None, IN_CALL),
        pytest.param("waits", 1, None, IN_CALL, marks=ONCE),
        pytest.param("waits", 3, None, IN_CALL, marks=ONCE),
        # The victim computes, the others wait.
        pytest.param("computes sleep", 0, None, OUTSIDE, marks=ONCE),
        pytest.param("computes numpy", 1, None, OUTSIDE, marks=ONCE),
        ("computes python", 3, None, OUTSIDE),
        # No thread waits: one sleeps, one is in numpy, one in a Python loop.
        ("unnoticed", 0, None, OUTSIDE),
        pytest.param("unnoticed", 3, "2x2", OUTSIDE, marks=ONCE),
        # Between nodes: a node root, another thread, the one thread of a node.
        pytest.param("waits", 0, "2x2", IN_CALL, marks=ONCE),
        ("waits", 3, "2x2", IN_CALL),
        pytest.param("computes sleep", 2, "2x2", OUTSIDE, marks=ONCE),
        pytest.param("computes sleep", 1, "1,1,1,1", OUTSIDE, marks=ONCE),
        # In the making of shared memory, wherever that is just then.
        pytest.param("allocates", 0, None, "DeadThreadError: VICTIM died ", marks=ONCE),
        ("allocates", 2, "2x2", "DeadThreadError: VICTIM died "),
        # In a posted call; on teams.
        pytest.param("posts", 1, None, "DeadThreadError: VICTIM died ", marks=ONCE),
        ("posts", 2, "2x2", "DeadThreadError: VICTIM died "),
        pytest.param("on a team", 0, None, "DeadThreadError: VICTIM died ", marks=ONCE),
        ("on a team", 3, "2x2", "DeadThreadError: VICTIM died "),
        # Other ends than SIGKILL.
        pytest.param("segfault", 1, None, OUTSIDE, marks=ONCE),
        pytest.param("exits", 2, None, OUTSIDE, marks=ONCE),
    ],
    ids=short,
)
def test_every_survivor_names_the_dead(
    scenario: str, victim: int, nodes: str | None, words: str
) -> None:
    end = bring_about(*_with_options(scenario, victim), nodes=nodes)
    assert end.result.returncode != 0
    assert end.said(words) == 3, end.result.report()


def _with_options(scenario: str, victim: int) -> tuple[str, int, str]:
    name, _, option = (scenario, "", "") if "team" in scenario else scenario.partition(" ")
    return name, victim, option


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("scenario", "victim", "nodes"),
    [
        ("waits", 0, None),
        pytest.param("computes numpy", 3, None, marks=ONCE),
        ("unnoticed", 1, None),
        ("computes sleep", 2, "2x2"),
        pytest.param("allocates", 1, None, marks=ONCE),
        pytest.param("exits", 2, None, marks=ONCE),
    ],
)
def test_nothing_is_left_under_a_plain_launcher(
    scenario: str, victim: int, nodes: str | None
) -> None:
    end = bring_about(*_with_options(scenario, victim), nodes=nodes, via="mpiexec")
    assert end.result.returncode != 0


def test_after_a_death_no_call_works() -> None:
    end = bring_about("catches", 1)
    again = f"again: XupcError: the job is broken: {end.victim} died"
    assert end.result.stdout.count(again) == 3, end.result.report()


@pytest.mark.rotates
@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
@pytest.mark.parametrize("nodes", [None, pytest.param("2x2", marks=ONCE)])
def test_an_uncaught_exception_ends_the_job(via: str, nodes: str | None) -> None:
    end = bring_about("raises", 2, via=via, nodes=nodes)
    assert end.result.returncode != 0
    assert end.said("RuntimeError: the program's own mistake") >= 1
    assert "xupc: thread 2 of 4:" in end.result.stderr


@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
def test_sys_exit_on_one_thread_is_a_mismatch(via: str) -> None:
    end = bring_about("leaves", 1, via=via)
    assert end.result.returncode == (1 if core is None else 4), end.result.report()
    said = end.said("CollectiveMismatchError: the threads are in different calls: thread 1: the")
    assert said == 4 if via == "xupc run" else said, end.result.report()


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("phase", "how", "nodes"),
    [
        ("control segment", "exit 5", None),
        pytest.param("control segment", "SIGKILL", "2x2", marks=ONCE),
        pytest.param("first heap", "exit 0", None, marks=ONCE),
        ("last memory", "exit 0", "2x2"),
        pytest.param("last memory", "SIGKILL", None, marks=ONCE),
    ],
)
def test_a_death_while_all_start_or_end_together(phase: str, how: str, nodes: str | None) -> None:
    death = {"victim": 2, "phase": phase, "how": how, "hits": 1, "after": False}
    result = launch(
        4, "tests/live/programs/dying.py", args=[json.dumps(death)], nodes=nodes, via="xupc run"
    )
    assert result.clean, result.report()
    assert result.returncode != 0 or how == "exit 0"
    found = re.search(r"^victim 2 (\d+) (\S+)", result.stdout, re.MULTILINE)
    assert found is not None, result.report()
    words = f"DeadThreadError: thread 2 (host {found[2]}, pid {found[1]}) died "
    assert by_thread(result.stderr).count(words) >= 3, result.report()


def test_an_error_out_of_init_on_all_is_no_death() -> None:
    # Thread 0 is slow to raise it: its deadline looks at the others' locks meanwhile. Open MPI's
    # launcher must let it live, although more than half of the threads have failed.
    result = launch(3, START_AND_END, args=["error_out_of_init"], via="xupc run")
    assert result.stdout.count("raised") == 3, result.report()
    assert "Dead" not in result.stderr, result.report()


@ONCE
def test_a_thread_that_has_finalized_is_not_dead(tmp_path: Path) -> None:
    # Thread 1 is gone, as its lock shows, when thread 0 is still on its way out.
    result = launch(3, START_AND_END, args=["slow_finalize", str(tmp_path)])
    assert result.returncode == 0, result.report()
    assert result.clean, result.report()
    assert result.stderr == "", result.report()


@pytest.mark.parametrize("nodes", ["2x2", pytest.param("1,1,2", marks=ONCE)])
def test_an_error_of_mpi_is_ours(nodes: str) -> None:
    end = bring_about("mpi fails", 0, nodes=nodes)
    assert end.result.returncode != 0
    # On the thread itself, and on the two others that wait.
    assert end.said("XupcError: VICTIM: MPI failed in barrier(") == 3, end.result.report()


def test_nothing_is_left_of_a_job_whose_launcher_is_killed() -> None:
    with started("idles", 0, up=4) as job:
        job.launcher.send_signal(signal.SIGKILL)
        assert job.left_after(ALL_GONE) == [], job.report()
