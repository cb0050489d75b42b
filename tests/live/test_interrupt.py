"""Ctrl-C: in any wait, at once; nothing goes on half-way, and no other thread is left waiting."""

from __future__ import annotations

import signal

import pytest
from support.failing_jobs import ALL_GONE, bring_about, started

from xupc.cli.launcher import FAILED_GRACE

ONCE = pytest.mark.once
PROMPTLY = 1.0  # seconds


@pytest.mark.parametrize(
    ("call", "n", "nodes", "inside"),
    [
        ("barrier", 4, None, "barrier("),
        pytest.param("broadcast", 8, None, "all_broadcast(dst=", marks=ONCE),  # oversubscribed
        pytest.param("wait", 4, None, "barrier(", marks=ONCE),
        pytest.param("all_alloc", 4, None, "all_alloc(nelems=8", marks=ONCE),
        pytest.param("agreement", 4, None, "the agreement of all threads", marks=ONCE),
        ("broadcast", 4, "2x2", "all_broadcast(dst="),
        pytest.param("memget", 4, "2x2", "an access to thread 3's memory", marks=ONCE),
    ],
)
def test_a_wait_is_interrupted_at_once(call: str, n: int, nodes: str | None, inside: str) -> None:
    # In memget a thread computes in C, which only the launcher ends, after its grace.
    gone = ALL_GONE + FAILED_GRACE if call == "memget" else ALL_GONE
    end = bring_about("is interrupted", 1, call, n=n, nodes=nodes, promptly=PROMPTLY, gone=gone)
    text = f"{end.victim} was interrupted inside "
    # Every later call of that thread reports it ...
    again = [line for line in end.result.stdout.splitlines() if line.startswith("again: ")]
    assert len(again) == 3, end.result.report()
    for line in again:
        assert line.startswith(f"again: XupcError: the job is broken: {text}")
        assert inside in line
    # ... and so do all others that wait; memget has only thread 0 wait besides.
    waiting = 2 if call == "memget" else n - 2
    assert end.said(f"XupcError: {text}") >= min(waiting, n - 2), end.result.report()
    assert end.result.returncode != 0


@pytest.mark.parametrize("nodes", [None, pytest.param("2x1", marks=ONCE)])
@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
def test_an_uncaught_interrupt_ends_the_job(via: str, nodes: str | None) -> None:
    end = bring_about(
        "is interrupted", 0, "broadcast", "uncaught", n=2, nodes=nodes, via=via, promptly=PROMPTLY
    )
    assert end.said("KeyboardInterrupt") >= 1
    assert end.result.returncode != 0


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=ONCE)])
@pytest.mark.parametrize("via", ["mpiexec", "xupc run"])
def test_a_signal_to_the_launcher_ends_the_job(via: str, number: int) -> None:
    # Two threads wait, the others compute.
    with started("idles", 0, up=4, via=via) as job:
        job.launcher.send_signal(number)
        assert job.left_after(ALL_GONE) == [], job.report()
        assert job.launcher.wait() != 0


@pytest.mark.parametrize(
    ("call", "nodes"),
    [
        ("push", None),
        ("push", "1,1"),
        ("exchange", "1,1"),
        pytest.param("exchange", None, marks=ONCE),
        ("posted", None),
        pytest.param("posted", "1,1", marks=ONCE),
        ("alloc", None),
        pytest.param("split", "1,1", marks=ONCE),
        pytest.param("node_array", None, marks=ONCE),
    ],
)
def test_what_another_signals_handler_raises_is_an_interrupt(call: str, nodes: str | None) -> None:
    """It leaves a call half done: all threads raise, and none touches this thread's memory then."""
    end = bring_about("a handler raises", 0, call, n=2, nodes=nodes)
    said = end.result.stdout.splitlines()
    assert "TimeoutError" in said, end.result.report()
    assert "untouched True" in said, end.result.report()
    words = f"{end.victim} was interrupted by TimeoutError inside "
    then = [line for line in said if line.startswith("then: ")]
    assert len(then) == 2, end.result.report()
    assert all(words in line for line in then), end.result.report()
