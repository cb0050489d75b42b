"""`xupc.Comm`, ``python -m xupc.mpi`` and ``xupc run --mpi``: mpi4py's programs without changes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cases import checks
from support.launch import PROJECT, SLOW_ENGINE, job_environment_of_a_test, mpi_family
from support.soak import WHOLE, amount, figure, seed, share

from xupc.backends.native.native_core import core
from xupc.cli.launcher import job_command
from xupc.cli.mpi import find_mpi

CHECKS = "tests/live/programs/drop_in.py"
CALLS = "tests/live/programs/drop_in_calls.py"
REPEATED = "tests/live/programs/drop_in_repeated.py"
KEPT = "tests/live/programs/drop_in_kept.py"
DIFFERING = "tests/live/programs/drop_in_differing.py"
VECTORS = "tests/live/programs/drop_in_vectors.py"
OBJECTS = "tests/live/programs/drop_in_objects.py"
NEIGHBOURS = "tests/live/programs/drop_in_neighbours.py"
AUTO = "tests/live/programs/drop_in_auto.py"
RANDOM = "tests/live/programs/drop_in_random.py"
REQUESTS = "tests/live/programs/drop_in_requests.py"
ARGUMENTS = "tests/live/programs/drop_in_arguments.py"
FAULTS = "tests/live/programs/drop_in_faults.py"
RANDOM_OBJECTS = "tests/live/programs/drop_in_random_objects.py"
LARGE = "tests/live/programs/drop_in_large.py"
MANY = "tests/live/programs/drop_in_many.py"
PROGRAM = "tests/live/programs/mpi_program.py"
SPAWNS = "tests/live/programs/mpi_spawn.py"
REPLACED = "xupc.mpi.communicators.Comm"

LAUNCHER = pytest.mark.launcher  # tests of `xupc run --mpi`
Live = Callable[..., Any]


@pytest.mark.rotates
@pytest.mark.parametrize("check", checks(CHECKS))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_in_place_of_mpi4py(live: Live, check: str, n: int) -> None:
    """Classes, copies, handles, ends: one check of the program."""
    explain = check == "explained"  # a module's import reads that
    counting = {"XUPC_COMM": "explain"} if explain else {}
    result = live(n, CHECKS, args=[check], env=counting, own_job=explain)
    assert result.stdout.count("done") == n, result.report()


def shapes() -> list[tuple[int, str | None, str]]:
    """Return threads, nodes and check for each test of calls that xupc carries."""
    found = [(2, None, check) for check in checks(CALLS)]
    found += [(3, "2,1", check) for check in checks(CALLS) if check != "other_job"]
    alone = {"other_job", "differing", "crowded"}  # need a second thread
    return [*found, *((1, None, check) for check in checks(CALLS) if check not in alone)]


@pytest.mark.rotates
@pytest.mark.parametrize(("n", "nodes", "check"), shapes())
def test_calls_that_xupc_carries(live: Live, n: int, nodes: str | None, check: str) -> None:
    """``XUPC_COMM=force``: one check of the program; one uses up MPI's communicators."""
    alone = check == "crowded"
    result = live(
        n, CALLS, args=[check], nodes=nodes, env={"XUPC_COMM": "force"}, own_job=alone
    )  # fmt: skip
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.parametrize(
    ("n", "nodes"), [(2, None), pytest.param(3, "2,1", marks=pytest.mark.once)]
)
def test_a_mismatch_names_what_the_program_called(live: Live, n: int, nodes: str | None) -> None:
    """Each method against another one: the text has their names, and none of xupc's calls."""
    result = live(n, DIFFERING, nodes=nodes, env={"XUPC_COMM": "force"}, own_job=True)
    assert result.stdout.count("done") == n, result.report()


TABLE = """version = 1
[[drop_in]]
method = "Bcast"
max_bytes = 64
carrier = "mpi"
[[drop_in]]
method = "exscan"
carrier = "mpi"
[[drop_in]]
method = "*"
min_bytes = 5000
carrier = "mpi"
[[drop_in]]
method = "*"
carrier = "xupc"
"""


@pytest.mark.rotates
@pytest.mark.parametrize("check", checks(AUTO))
@pytest.mark.parametrize(("n", "nodes"), [(2, None), (3, "2,1")])
def test_which_library_carries_a_call(
    live: Live, check: str, n: int, nodes: str | None, tmp_path: Path
) -> None:
    """Without ``XUPC_COMM``: one check of the program; one looks at what a process has imported."""
    table = tmp_path / "table.toml"
    table.write_text(TABLE)
    tuned = {"XUPC_TUNING": str(table)}
    result = live(n, AUTO, args=[check], nodes=nodes, env=tuned, own_job=check == "begin")
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.parametrize("switch", ["auto", "force"])
@pytest.mark.parametrize(("n", "nodes"), [(2, None), (3, "2,1")])
def test_random_calls(live: Live, n: int, nodes: str | None, switch: str) -> None:
    """The results of random calls equal those of mpi4py."""
    words = [str(seed()), str(share(800))]
    result = live(n, RANDOM, args=words, nodes=nodes, env={"XUPC_COMM": switch})
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("switch", ["auto", "force"])
@pytest.mark.parametrize(
    ("n", "nodes"),
    [
        (2, None), (3, "2,1"), pytest.param(5, None, marks=pytest.mark.once),
        *([(4, "2x2"), (6, "3,1,2"), (7, None)] if WHOLE else []),
    ],
)  # fmt: skip
def test_random_objects(live: Live, n: int, nodes: str | None, switch: str) -> None:
    """The results of random calls on objects of all kinds equal those of mpi4py."""
    words = [str(seed()), str(amount(60, 2_000)), str(amount(500_000, 4_000_000))]
    env = {"XUPC_COMM": switch}
    result = live(n, RANDOM_OBJECTS, args=words, nodes=nodes, env=env, timeout=amount(90, 900))
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.rotates
@pytest.mark.parametrize("switch", ["auto", "force"])
@pytest.mark.parametrize("check", checks(FAULTS))
@pytest.mark.parametrize(("n", "nodes"), [(2, None), (3, "2,1")])
def test_errors_of_the_program(
    live: Live, n: int, nodes: str | None, check: str, switch: str
) -> None:
    """An error on one thread leaves no other thread waiting, and the next calls work."""
    if check == "deep" and SLOW_ENGINE:
        pytest.skip("only the core can go beyond Python's limit")
    result = live(n, FAULTS, args=[check], nodes=nodes, env={"XUPC_COMM": switch})
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.rotates
@pytest.mark.parametrize("check", checks(ARGUMENTS))
@pytest.mark.parametrize(("n", "nodes"), [(2, None), (3, "2,1")])
def test_odd_arguments(live: Live, n: int, nodes: str | None, check: str) -> None:
    """``XUPC_COMM=force``: one thread has arguments that mpi4py takes or refuses, and no other."""
    words = [check, "--by-mpi"] if nodes or SLOW_ENGINE else [check]
    result = live(n, ARGUMENTS, args=words, nodes=nodes, env={"XUPC_COMM": "force"})
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes 8 GiB of memory")
@pytest.mark.parametrize("kind", ["array", "bytes"])
@pytest.mark.parametrize("method", ["bcast", "gather", "allgather"])
@pytest.mark.parametrize("nodes", [None, "1,1"])
def test_an_object_beyond_2_gib(live: Live, nodes: str | None, method: str, kind: str) -> None:
    """It arrives, and no thread holds more copies of it than it needs."""
    words = [method, kind, str(2200 << 20)]
    env = {"XUPC_COMM": "force"}
    result = live(2, LARGE, args=words, nodes=nodes, env=env, own_job=True, timeout=600)
    assert result.stdout.count("done") == 2, result.report()
    found = next(line for line in result.stdout.splitlines() if line.startswith("peaks"))
    figure(f"{method} of {kind} beyond 2 GiB, nodes {nodes or 1}", found)


@pytest.mark.parametrize("program", [REPEATED, KEPT])
@pytest.mark.parametrize(("n", "nodes"), [(2, None), (3, "2,1")])
def test_repeated_calls(live: Live, program: str, n: int, nodes: str | None) -> None:
    """Calls that look like an earlier one, with other memory, types or roots."""
    result = live(n, program, nodes=nodes, env={"XUPC_COMM": "force"})
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.rotates
@pytest.mark.parametrize("program", [VECTORS, OBJECTS])
@pytest.mark.parametrize(("n", "nodes"), [(1, None), (2, None), (3, "2,1"), (4, "2x2")])
def test_vectors_and_objects(live: Live, program: str, n: int, nodes: str | None) -> None:
    """``XUPC_COMM=force``: all checks of the program."""
    result = live(n, program, nodes=nodes, env={"XUPC_COMM": "force"})
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.parametrize(
    ("n", "nodes"),
    [
        (1, None), (2, None), (4, "2,1,1"), pytest.param(4, "1,1,1,1", marks=pytest.mark.once),
        *([(6, None), (6, "3,1,2")] if WHOLE else []),
    ],
)  # fmt: skip
def test_neighbourhoods(live: Live, n: int, nodes: str | None) -> None:
    """``XUPC_COMM=force``: all checks of the program, against mpi4py on the same communicators.

    It makes some 60 plans, for each of which all threads meet several times. With Open MPI and 6
    threads on 2 cores that takes 20 s, so only scripts/soak has 6 threads.
    """
    env = {"XUPC_COMM": "force"}
    result = live(n, NEIGHBOURS, nodes=nodes, env=env, timeout=180)
    assert result.stdout.count("done") == n, result.report()


def request_shapes() -> list[Any]:
    """Return threads, nodes and check for each test of nonblocking calls."""
    found: list[Any] = [(2, None, check) for check in checks(REQUESTS)]
    once = [(3, None, c) for c in checks(REQUESTS)] + [(3, "2,1", c) for c in ("methods", "mixed")]
    return found + [pytest.param(*shape, marks=pytest.mark.once) for shape in once]


@pytest.mark.rotates
@pytest.mark.skipif(core is None, reason="MPI carries nonblocking calls without the core")
@pytest.mark.parametrize(("n", "nodes", "check"), request_shapes())
def test_requests(live: Live, n: int, nodes: str | None, check: str) -> None:
    """``XUPC_COMM=force``: nonblocking calls, waited for by themselves and among MPI's own."""
    if SLOW_ENGINE and check in ("progress", "ends", "differ"):
        pytest.skip("MPI carries nonblocking calls of the Python engine")
    words = [check, "--by-mpi"] if nodes or SLOW_ENGINE else [check]
    env = {"XUPC_COMM": "force"}
    result = live(n, REQUESTS, args=words, nodes=nodes, env=env)
    assert result.stdout.count("done") == n, result.report()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("n", "nodes"), [(2, None), pytest.param(3, "2,1", marks=pytest.mark.slow)]
)
def test_many_communicators(live: Live, n: int, nodes: str | None) -> None:
    """They are made, used and freed in an order of each thread: nothing grows."""
    count, alive = amount(200, 10_000), amount(10, 1_200)
    result = live(
        n, MANY, args=[str(count), str(alive)], nodes=nodes, env={"XUPC_COMM": "force"},
        own_job=True, timeout=60 + count // 4,
    )  # fmt: skip
    assert result.stdout.count("done") == n, result.report()
    counts = next(line for line in result.stdout.splitlines() if "spare communicators" in line)
    figure(f"{count} communicators on {n} threads", counts)


@LAUNCHER
@pytest.mark.parametrize("what", ["plain", "late", "found"])
def test_a_program_that_does_not_know_of_xupc(live: Live, what: str) -> None:
    """Its world is of xupc, also if it starts MPI after the import, or looks for the module."""
    words = [what, "an", "argument"]
    result = live(2, PROGRAM, args=words, via="xupc run", launcher_args=["--mpi"])
    assert result.stdout.count(f"{REPLACED} 2 an argument") == 2, result.report()


@LAUNCHER
def test_a_module(live: Live) -> None:
    """``xupc run --mpi -m MODULE``."""
    words = ["--mpi", "-m", "live.programs.mpi_program", "plain"]
    result = live(2, PROGRAM, via="xupc run", launcher_args=words)
    assert result.stdout.count(f"{REPLACED} 2") == 2, result.report()


@LAUNCHER
def test_switched_off(live: Live) -> None:
    """``XUPC_COMM=off``: the program's world is mpi4py's."""
    result = live(
        2, PROGRAM, args=["plain"], via="xupc run", launcher_args=["--mpi"],
        env={"XUPC_COMM": "off"},
    )  # fmt: skip
    assert result.stdout.count("mpi4py.MPI.Intracomm 2") == 2, result.report()


@LAUNCHER
def test_a_wrong_switch(live: Live) -> None:
    """Another value is one sentence on each thread."""
    result = live(
        1, PROGRAM, args=["plain"], via="xupc run", launcher_args=["--mpi"], expect=1,
        env={"XUPC_COMM": "on"},
    )  # fmt: skip
    words = "python -m xupc.mpi: XUPC_COMM: expected auto, off, force or explain, got 'on'"
    assert words in result.stderr, result.report()


@LAUNCHER
@pytest.mark.parametrize(("what", "status"), [("error", 1), ("exit", 7)])
def test_an_error_ends_the_job(live: Live, what: str, status: int) -> None:
    """As under ``python -m mpi4py``: threads that wait for the failed one do not go on."""
    result = live(2, PROGRAM, args=[what], via="xupc run", launcher_args=["--mpi"], expect=status)
    assert what == "exit" or "an error of the program" in result.stderr, result.report()


@LAUNCHER
@pytest.mark.parametrize(("what", "status"), [("error", 1), ("exit", 7)])
def test_an_end_where_xupc_runs(live: Live, what: str, status: int, tmp_path: Path) -> None:
    """The same, and the thread's own handlers have run and its open files are written."""
    words = [what, str(tmp_path / "log")]
    result = live(2, PROGRAM, args=words, via="xupc run", launcher_args=["--mpi"], expect=status)
    assert (tmp_path / "log1.handler").read_text(encoding="utf-8") == "done", result.report()
    assert (tmp_path / "log1").read_text(encoding="utf-8") == "last words", result.report()


@LAUNCHER
@pytest.mark.skipif(SLOW_ENGINE, reason="MPI carries nonblocking calls of the Python engine")
@pytest.mark.parametrize(("n", "what"), [(3, "requests left"), (2, "requests")])
def test_requests_without_a_wait_are_named_at_the_end(live: Live, n: int, what: str) -> None:
    """Not those of which the program has waited for a copy. The end completes their calls."""
    result = live(
        n, PROGRAM, args=[what], via="xupc run", launcher_args=["--mpi"],
        env={"XUPC_COMM": "force"},
    )  # fmt: skip
    words = "requests without a wait: 5 Iallreduce, 1 Ibarrier: call Wait() of each"
    assert result.stderr.count(words) == 3 * (what == "requests left"), result.report()


@LAUNCHER
@pytest.mark.parametrize("words", [[], ["--mpi"]])
def test_a_program_that_spawns_processes(live: Live, words: list[str]) -> None:
    """The launcher takes no process that has ended well for a dead one."""
    result = live(1, SPAWNS, via="xupc run", launcher_args=words)
    assert result.stdout.count("spawned") == 1, result.report()


@pytest.mark.skipif(mpi_family() != "openmpi", reason="only Open MPI prints")
@pytest.mark.parametrize("nodes", ["1x2", "2x1"])
def test_windows_print_nothing_under_a_plain_launcher(nodes: str) -> None:
    """Open MPI leaves out windows that only print an error: the program's own, and ours."""
    environment = job_environment_of_a_test(uuid.uuid4().hex)
    environment.pop("OMPI_MCA_osc", None)
    environment |= {"XUPC_COMM": "force", "XUPC_NODES": nodes}
    words = [sys.executable, "-m", "xupc.mpi", str(PROJECT / PROGRAM), "window"]
    command = job_command(find_mpi(), 2, words, environment=environment, recover=False)
    done = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    assert sorted(done.stdout.split("\n")) == ["", *["xupc.mpi.communicators 2"] * 2], done
    assert "UCX" not in done.stderr, done


@LAUNCHER
@pytest.mark.parametrize("what", ["counts", "finalized"])
def test_counts_at_the_end(live: Live, what: str) -> None:
    """``XUPC_COMM=explain``: one thread prints a table, with communicators that were freed."""
    result = live(
        3, PROGRAM, args=[what], via="xupc run", launcher_args=["--mpi"],
        env={"XUPC_COMM": "explain"},
    )  # fmt: skip
    assert result.stderr.count("all communicators of thread 0") == 1, result.report()
    words = [line.split() for line in result.stderr.splitlines() if " MPI" in line]
    rows = {first: rest[:3] for first, *rest in words}
    assert rows["Barrier"] == ["1", "0", "MPI"], result.report()
    assert ("bcast" in rows) == (what == "counts"), result.report()
