"""How programs end: without finalize, by sys.exit, with MPI before xupc; and two Python threads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.launch import SLOW_ENGINE, Result
from support.soak import WHOLE

from xupc.backends.native.native_core import core

ENDS = "tests/live/programs/ways_to_end.py"
THREADS = "tests/live/programs/python_threads.py"
ONCE = pytest.mark.once
NODES = pytest.mark.parametrize("nodes", [None, pytest.param("2,1", marks=ONCE)])
Live = Callable[..., Result]


def threads_on(nodes: str | None) -> int:
    """Return how many threads a job needs: on one node two meet as more do, and start sooner."""
    return 2 if nodes is None else 3


def said(result: Result) -> list[str]:
    """The words on stdout: threads may write into one line."""
    return result.stdout.split()


GOOD_ENDS = (
    "nothing", "MPI.Finalize", "MPI.Finalize in with", "late MPI", "late MPI by the program",
    "late MPI twice", "caught", "Python thread",
)  # fmt: skip
ACROSS_NODES = GOOD_ENDS if WHOLE else GOOD_ENDS[:3]  # the others differ before nodes meet


@pytest.mark.parametrize(
    ("how", "nodes"),
    [
        *((how, None) for how in GOOD_ENDS),
        *(pytest.param(how, "2,1", marks=ONCE) for how in ACROSS_NODES),
    ],
)
def test_a_good_end(live: Live, how: str, nodes: str | None) -> None:
    threads = threads_on(nodes)
    result = live(threads, ENDS, args=[how], nodes=nodes, own_job=True)
    assert said(result) == ["over"] * threads, result.report()
    assert result.stderr == "", result.report()


@NODES
def test_calls_and_objects_at_the_end(live: Live, nodes: str | None) -> None:
    threads, env = threads_on(nodes), {"XUPC_TIMEOUT": "30"}
    result = live(threads, ENDS, args=["atexit"], nodes=nodes, env=env, own_job=True)
    assert said(result).count("called") == threads, result.report()
    result = live(threads, ENDS, args=["objects"], nodes=nodes, own_job=True)
    assert said(result).count("refused") == 2 * threads, result.report()


def exits(live: Live, how: str, value: str, status: int, via: str, nodes: str | None) -> None:
    """Check what a job says of which thread 1 ends so, while the others wait."""
    words, threads = [how, value], threads_on(nodes)
    result = live(threads, ENDS, args=words, nodes=nodes, via=via, expect=status, own_job=True)
    text = "'a text'" if value == "text" else value
    said_of_it = f"thread 1: the end of the program, by SystemExit({text})"
    assert said_of_it in result.stderr, result.report()
    assert "finalize()" not in result.stderr, result.report()
    assert "job_end.py" not in result.stderr, "lines of xupc, none of the program"


@pytest.mark.skipif(core is None, reason="without the core an exit status is not known at the end")
@pytest.mark.parametrize("via", ["xupc run", "mpiexec"])
@NODES
def test_sys_exit_on_one_thread(live: Live, via: str, nodes: str | None) -> None:
    exits(live, "sys.exit", "3", 3, via, nodes)


@ONCE
@pytest.mark.skipif(core is None, reason="without the core an exit status is not known at the end")
@pytest.mark.parametrize(
    ("how", "value", "status"),
    [
        ("raise", "3", 3), ("sys.exit", "300", 44), ("sys.exit", "256", 1),
        ("sys.exit", "-1", 255), ("sys.exit", "text", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("via", ["xupc run", "mpiexec"])
def test_what_the_status_is(live: Live, how: str, value: str, status: int, via: str) -> None:
    exits(live, how, value, status, via, None)


@ONCE
def test_an_exit_without_a_status_is_a_mismatch(live: Live) -> None:
    result = live(2, ENDS, args=["sys.exit", "None"], via="xupc run", expect=1)
    assert "thread 1: the end of the program; thread 0: allv_reduce_all(" in result.stderr


@ONCE
def test_the_end_of_a_with_block_is_named(live: Live) -> None:
    """The program has not written ``finalize()``."""
    result = live(2, ENDS, args=["end of with"], via="xupc run", expect=1)
    words = "thread 1: the end of `with`, by SystemExit(0); thread 0: allv_reduce_all("
    assert words in result.stderr, result.report()
    assert "finalize" not in result.stderr, result.report()


@pytest.mark.skipif(core is None, reason="without the core an exit status is not known at the end")
@pytest.mark.parametrize("how", ["team", "all"])
def test_sys_exit_elsewhere(live: Live, how: str) -> None:
    result = live(2, ENDS, args=[how], via="xupc run", expect=3)
    if how == "team":
        assert "thread 1 (" in result.stderr, result.report()
        assert "is in the end of the program, by SystemExit(3)" in result.stderr, result.report()
    else:
        assert "Error" not in result.stderr, result.report()


@pytest.mark.parametrize(
    ("how", "value", "words"),
    [("with", "3", "SystemExit: 3"), ("with", "text", "a text"), ("handler", "", "SystemExit: 3")],
)
@pytest.mark.parametrize("via", ["xupc run", "mpiexec"])
def test_sys_exit_that_ends_the_job_names_its_thread(
    live: Live, how: str, value: str, words: str, via: str
) -> None:
    if how == "handler" and core is None:
        pytest.skip("without the core an exit status is not known at the end")
    result = live(2, ENDS, args=[how, value], via=via, expect=1 if value == "text" else 3)
    assert f"xupc: thread 1 of 2:\n{words}\n" in result.stderr, result.report()


@NODES
def test_mpi_finalize_on_one_thread_is_a_mismatch(live: Live, nodes: str | None) -> None:
    result = live(3, ENDS, args=["MPI.Finalize on one"], nodes=nodes, via="xupc run", expect=1)
    assert "thread 1: MPI.Finalize(); the other threads (0, 2): all" in result.stderr


@ONCE
def test_init_after_the_end_of_mpi(live: Live) -> None:
    result = live(2, ENDS, args=["MPI is over"], expect=1)
    assert "XupcError: init: MPI has been finalized in this process" in result.stderr


@NODES
def test_a_daemon_thread_inside_a_call_at_the_end(live: Live, nodes: str | None) -> None:
    result = live(3, ENDS, args=["daemon"], nodes=nodes, via="xupc run", expect=1)
    assert re.search(r"thread 1: barrier\(|is inside barrier\(", result.stderr), result.report()


@pytest.mark.parametrize("kind", ["refused", "nested", "differ", "locked"])
@NODES
def test_two_python_threads(live: Live, kind: str, nodes: str | None) -> None:
    # the names of Python threads, which "differ" looks at, count from 1 in a new process only
    result = live(3, THREADS, args=[kind], nodes=nodes, own_job=kind == "differ")
    assert said(result) == ["over"] * 3, result.report()


@pytest.mark.skipif(SLOW_ENGINE, reason="the Python engine refuses it")
def test_two_python_threads_on_different_teams(live: Live) -> None:
    """On one node each Python thread can have a team of its own."""
    result = live(3, THREADS, args=["beside"], own_job=True)
    assert said(result) == ["over"] * 3, result.report()


@ONCE
def test_two_python_threads_on_different_teams_of_several_nodes(live: Live) -> None:
    result = live(3, THREADS, args=["teams"], nodes="2,1", via="xupc run", expect=1)
    assert said(result).count("refused") == 3, result.report()
