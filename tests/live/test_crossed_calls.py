"""Calls of `xupc.Comm` that differ where MPI carries some of them: an error in place of a hang."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from support.as_machines import MACHINES
from support.failing_jobs import by_thread
from support.launch import BUSY, PROJECT, launch
from support.soak import seed, share
from support.tables import SOME_BY_MPI

CROSSED = "tests/live/programs/drop_in_crossed.py"
LEGAL = "tests/live/programs/drop_in_late.py"
ONCE = pytest.mark.once
Live = Callable[..., Any]

# The words in the error of each thread; ODD stands for the thread that differs.
WORDS = {
    "boundary": [
        "the arguments differ, so that xupc carries the call on some threads alone: ",
        "thread ODD: Allreduce(64000 bytes) at drop_in_crossed.py:", "8 x float64",
    ],
    "method": [
        "the threads are in different calls: thread ODD: Barrier() at drop_in_crossed.py:",
        "which MPI carries", "Allreduce(elements=", "which xupc carries",
    ],
    "both_by_mpi": [
        "the threads are in different calls: thread ODD: Barrier() at drop_in_crossed.py:",
        "Allreduce(64000 bytes) at",
    ],
    "one_more": [
        "thread ODD: Allreduce(64000 bytes) at drop_in_crossed.py:",
        "Bcast, which xupc carries, and is now in Barrier(",
    ],
    "order": [
        "the threads wait for each other: ", " in Allreduce(elements=",
        "of COMM_WORLD, which xupc carries; ",
        "thread ODD is in Allreduce(64 bytes) at drop_in_crossed.py:",
        "of communicator 1 from COMM_WORLD, which MPI carries",
    ],
    "order_by_mpi": [
        "the threads wait for each other: ", " in allgather() at drop_in_crossed.py:",
        "of communicator 2 from COMM_WORLD, which MPI carries; thread ODD is in allgather() at",
        "of communicator 1 from COMM_WORLD, which MPI carries",
    ],
    "order_by_xupc": [
        "HangError: ", "thread ODD (", " of communicator 2 from COMM_WORLD",
        " of communicator 1 from COMM_WORLD",
    ],
    "first_order": [
        "the threads wait for each other: ", " in the start of a team at drop_in_crossed.py",
        "of communicator 2 from COMM_WORLD; thread ODD is in the start of a team at",
        "of communicator 1 from COMM_WORLD",
    ],
    "split": [
        "the threads are in different calls: thread ODD: Split() at drop_in_crossed.py:",
        "which MPI carries", "Allreduce(elements=", "which xupc carries",
    ],
    "of_group": [
        "the threads are in different calls: thread ODD: Barrier() at drop_in_crossed.py:",
        "Allreduce(64000 bytes) at",
    ],
    "of_copy": [
        "the threads are in different calls: thread ODD: Barrier() at drop_in_crossed.py:",
        "Allreduce(64000 bytes) at",
    ],
    "root": ["Gather: root differs: ", "thread ODD: 0"],
    "left_root": ["Bcast: root differs: thread ODD: ODD"],
    "left_size": ["Reduce: bytes differs: thread ODD: 32"],
    "refused": [
        "the threads are in different calls: ", "thread ODD: barrier() at drop_in_crossed.py:",
        "after ValueError in allgather: not this one", "allgather() at",
    ],
    "caught": ["thread ODD: Barrier() at drop_in_crossed.py:"],
}  # fmt: skip


ON_MACHINES = {
    "order_by_xupc": [
        "the threads wait for each other: ",
        "of communicator 2 from COMM_WORLD, which xupc carries; ",
        "thread ODD is in ", "of communicator 1 from COMM_WORLD, which xupc carries",
    ],
}  # fmt: skip
"""One machine has a HangError for it."""


def shapes() -> list[Any]:
    """Return the cases with threads, nodes, machines and launcher."""
    found = [pytest.param(case, 2, None, None, "mpiexec") for case in WORDS]
    found += [pytest.param(case, 3, "2,1", None, "mpiexec", marks=ONCE) for case in WORDS]
    for case in WORDS:
        found.append(pytest.param(case, 2, None, "1,1", "mpiexec"))
        found.append(pytest.param(case, 3, None, "2,1", "mpiexec", marks=ONCE))
    found.append(pytest.param("method", 3, None, "2,1", "xupc run", marks=ONCE))
    return [*found, pytest.param("method", 3, None, None, "xupc run", marks=ONCE)]


@pytest.mark.rotates
@pytest.mark.parametrize(("case", "n", "nodes", "machines", "via"), shapes())
def test_every_thread_names_the_calls(
    case: str, n: int, nodes: str | None, machines: str | None, via: str
) -> None:
    result = launch(
        n, CROSSED, args=[case], nodes=nodes, via=via, env={**SOME_BY_MPI, MACHINES: machines},
        timeout=BUSY * 20,
    )  # fmt: skip
    assert result.clean, result.report()
    assert result.returncode != 0, result.report()
    assert case == "caught" or "no error" not in result.stdout, result.report()
    printed = by_thread(result.stderr)
    threads = range(n) if case != "caught" else [n - 1]
    for thread in threads:
        heading = f"thread {thread} of "
        errors = [part for part in printed.split("xupc: ") if part.startswith(heading)]
        assert errors, (thread, result.report())
        for words in (WORDS if machines is None else WORDS | ON_MACHINES)[case]:
            assert any(words.replace("ODD", str(n - 1)) in part for part in errors), (
                thread, words, result.report(),
            )  # fmt: skip
    if case == "caught":
        assert result.stdout.count("caught") == n - 1, result.report()
        assert "went on" not in result.stdout, result.report()


@pytest.mark.rotates
@pytest.mark.parametrize("via", ["xupc run", pytest.param("mpiexec", marks=ONCE)])
@pytest.mark.parametrize(("case", "line"), [("late", "time.sleep(600)"), ("message", "comm.Recv")])
def test_a_limit_of_waits_holds_inside_mpi(case: str, line: str, via: str) -> None:
    """The threads inside MPI report where all threads are, and the job ends."""
    limit = {"XUPC_TIMEOUT": "1"}
    result = launch(3, CROSSED, args=[case], via=via, env=SOME_BY_MPI | limit, timeout=BUSY * 20)
    assert result.clean, result.report()
    assert result.returncode != 0, result.report()
    rows = (PROJECT / CROSSED).read_text().splitlines()
    number = next(i for i, row in enumerate(rows, 1) if line in row)
    printed = by_thread(result.stderr)
    for thread in range(2):
        words = rf"HangError: thread {thread} .* has waited .* s in Allreduce\(64000 bytes\) of MPI"
        assert re.search(words, printed), (thread, result.report())
    assert re.search(r"0-1: Allreduce\(64000 bytes\) of MPI, drop_in_crossed.py:", printed), (
        result.report()
    )
    # a receive is known as such after some tenths of a second
    place = rf"2: (not in xupc|Recv\(\) of MPI), drop_in_crossed.py:{number}, for"
    assert re.search(place, printed), result.report()


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("n", "nodes", "machines"),
    [(2, None, None), (3, None, "2,1"), pytest.param(3, "2,1", None, marks=ONCE)],
)
def test_late_threads_are_no_difference(
    live: Live, n: int, nodes: str | None, machines: str | None
) -> None:
    """Correct calls, compared a hundred times a second while threads are late: no error."""
    words = [str(seed()), str(share(200))]
    env = {**SOME_BY_MPI, MACHINES: machines}
    result = live(n, LEGAL, args=words, nodes=nodes, env=env, own_job=True)
    assert result.stdout.count("done") == n, result.report()
