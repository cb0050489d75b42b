"""mpi4py's own test suite on `xupc.Comm`: no test fails there that passes on plain mpi4py.

The suite is in mpi4py's source distribution, not here. ``XUPC_MPI4PY_TESTS`` names its folder
``test``, and ``XUPC_MPI4PY_MODULES`` a part of its modules, separated by spaces.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from support.launch import launch

PROGRAM = "tests/live/programs/mpi4py_suite.py"
FOLDER = os.environ.get("XUPC_MPI4PY_TESTS", "")
# They start processes of their own, or run in a process without MPI.
APART = {"test_spawn", "test_dynproc", "test_doc", "test_package", "test_rc", "test_toplevel"}
# A C function makes an object for a handle: it is of mpi4py's class.
DIFFERENT = {"test_objmodel.TestObjModel.testCAPI"}
MODULES = os.environ.get("XUPC_MPI4PY_MODULES", "").split() or sorted(
    {path.stem for path in Path(FOLDER or "/nowhere").glob("test_*.py")} - APART
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="XUPC_MPI4PY_TESTS does not name mpi4py's tests"),
]


def outcomes(n: int, module: str, out: Path, *, drop_in: bool) -> list[dict[str, str]]:
    """Return the outcome of each test on each thread."""
    launch(
        n, PROGRAM, args=[FOLDER, str(out), module], timeout=300, via="xupc run",
        launcher_args=["--mpi"] if drop_in else [], env={"XUPC_COMM": os.environ.get("XUPC_COMM")},
    )  # fmt: skip
    found = [Path(f"{out}.{rank}") for rank in range(n)]
    return [
        dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}
        for file in found
    ]


@pytest.mark.parametrize("module", MODULES or ["none"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_module(module: str, n: int, tmp_path: Path) -> None:
    """The same outcomes as on plain mpi4py, test by test and thread by thread."""
    plain = outcomes(n, module, tmp_path / "plain", drop_in=False)
    ours = outcomes(n, module, tmp_path / "ours", drop_in=True)
    for name, found in (("mpi4py", plain), ("xupc.Comm", ours)):
        ends = Counter(end if end in ("ok", "skipped") else "failed" for end in found[0].values())
        print(f"{module} n={n} {name}: {dict(ends)}")
    worse = [
        f"thread {rank}: {test}: {ours[rank].get(test, 'not begun')}"
        for rank in range(n)
        for test, end in plain[rank].items()
        if end == "ok" and ours[rank].get(test) != "ok" and test not in DIFFERENT
    ]
    assert not worse, "\n".join(worse)
