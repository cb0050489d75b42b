"""mpi4py's own test suite on `xupc.Comm`: no test fails there that passes on plain mpi4py.

The suite is in mpi4py's source distribution, not here. ``XUPC_MPI4PY_TESTS`` names its folder
``test``, and ``XUPC_MPI4PY_MODULES`` a part of its modules, separated by spaces; modules joined by
``+`` run in one job, which saves starts. ``XUPC_MPI4PY_COUNTS`` names a file to which each test
adds its counts, a line of JSON for each module; ``python tests/support/mpi4py_counts.py FILE``
makes the table of `benchmarks/results/mpi4py-suite.md` from it. ``XUPC_MPI4PY_TIMEOUT`` is the time
of one job in seconds. ``XUPC_MPI4PY_ALONE=1`` leaves plain mpi4py out: no test may fail then.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from support.launch import SITE, import_path, launch, mpi_family

PROGRAM = "tests/live/programs/mpi4py_suite.py"
FOLDER = os.environ.get("XUPC_MPI4PY_TESTS", "")
# They start processes of their own, or run in a process without MPI.
APART = {"test_spawn", "test_dynproc", "test_doc", "test_package", "test_rc", "test_toplevel"}
# A C function makes an object for a handle: it is of mpi4py's class.
DIFFERENT = {"test_objmodel.TestObjModel.testCAPI"}
ALONE = bool(os.environ.get("XUPC_MPI4PY_ALONE"))
GROUPS = os.environ.get("XUPC_MPI4PY_MODULES", "").split() or sorted(
    {path.stem for path in Path(FOLDER or "/nowhere").glob("test_*.py")} - APART
)
SHAPES = [*((n, None) for n in range(1, 6)), (3, "2,1"), (4, "2x2")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="XUPC_MPI4PY_TESTS does not name mpi4py's tests"),
]

Outcomes = list[dict[str, str]]  # on each thread, the outcome of each test


def outcomes(n: int, nodes: str | None, modules: list[str], *, drop_in: bool) -> Outcomes:
    """Run modules in one job and return the outcomes."""
    seconds = float(os.environ.get("XUPC_MPI4PY_TIMEOUT", "300"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "outcomes"
        launch(
            n, PROGRAM, args=[FOLDER, str(out), *modules], timeout=seconds, via="xupc run",
            launcher_args=["--mpi"] if drop_in else [], nodes=nodes,
            env={
                "XUPC_COMM": os.environ.get("XUPC_COMM"),
                "PYTHONPATH": import_path(SITE, Path(FOLDER)),  # also of processes that tests start
            },
        )  # fmt: skip
        found = [Path(f"{out}.{rank}") for rank in range(n)]
        return [
            dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}
            for file in found
        ]


def as_if_good(ours: Outcomes) -> Outcomes:
    """Return outcomes to compare with in place of plain mpi4py's: all tests that ran are ok."""
    every = {test for mine in ours for test in mine}
    return [{test: "ok" for test in every if mine.get(test) != "skipped"} for mine in ours]


@cache
def outcomes_of_mpi4py(n: int, group: str) -> Outcomes:
    """Return the outcomes on plain mpi4py, which knows nothing of nodes."""
    return outcomes(n, None, group.split("+"), drop_in=False)


def counts(found: Outcomes, module: str) -> dict[str, int]:
    """Return how many tests of a module were ok, skipped and failed, on the first thread."""
    mine = [end for test, end in found[0].items() if test.startswith(module + ".")]
    return dict(Counter(end if end in ("ok", "skipped") else "failed" for end in mine))


def write_down(line: dict[str, object]) -> None:
    """Print the counts of a module, and add them to the file of counts."""
    print(json.dumps(line))
    if file := os.environ.get("XUPC_MPI4PY_COUNTS"):
        with Path(file).open("a") as counts_file:
            counts_file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("group", GROUPS or ["none"])
@pytest.mark.parametrize(("n", "nodes"), SHAPES)
def test_modules(group: str, n: int, nodes: str | None) -> None:
    """The same outcomes as on plain mpi4py, test by test and thread by thread."""
    ours = outcomes(n, nodes, group.split("+"), drop_in=True)
    plain = as_if_good(ours) if ALONE else outcomes_of_mpi4py(n, group)
    worse = [
        f"thread {rank}: {test}: {ours[rank].get(test, 'not begun')}"
        for rank in range(n)
        for test, end in plain[rank].items()
        if end == "ok" and ours[rank].get(test) != "ok" and test not in DIFFERENT
    ]
    for module in group.split("+"):
        write_down({
            "module": module, "mpi": mpi_family(), "n": n, "nodes": nodes,
            "mpi4py": {} if ALONE else counts(plain, module), "xupc": counts(ours, module),
            "worse": sorted({w.split(": ")[1] for w in worse if f" {module}." in w}),
        })  # fmt: skip
    assert all(ours), "a thread began no test"
    assert not worse, "\n".join(worse)
