"""The table of methods of the drop-in communicator, its page, its switch: without MPI."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.launch import PROJECT

import xupc
from xupc.mpi import explanation, methods, switch

# Methods that some versions of mpi4py from 4.1 on do not have.
NOT_IN_ALL = {"fromint", "toint", "py2f", "f2py", "Isendrecv", "Isendrecv_replace", "tohandle"}
CLASSES = ("Comm", "Intracomm", "Topocomm", "Cartcomm", "Graphcomm", "Distgraphcomm")


def in_new_interpreter(code: str) -> str:
    """Return what the code prints, in a process where mpi4py does not start MPI."""
    start = "import mpi4py; mpi4py.rc(initialize=False, finalize=False)\nfrom mpi4py import MPI\n"
    command = [sys.executable, "-c", start + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_every_method_of_mpi4py_is_in_the_table_once() -> None:
    listed = [name for group in methods.GROUPS for name in group.methods.split()]
    assert len(listed) == len(set(listed))
    code = f"print(*{{x for c in {CLASSES!r} for x in dir(getattr(MPI, c)) if x[0] != '_'}})"
    there = set(in_new_interpreter(code).split())
    ours = {name for group in methods.GROUPS for name in group.methods.split()
            if group.way == methods.DIFFERS}  # fmt: skip
    assert there - set(listed) == set()
    assert set(listed) - there - ours - NOT_IN_ALL == set()
    assert "explain" in ours


def test_the_page_is_made_from_the_table() -> None:
    script = PROJECT / "scripts" / "from_mpi4py.py"
    made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    page = PROJECT / "docs" / "from-mpi4py.md"
    assert made.stdout == page.read_text(encoding="utf-8"), f"run {script} > {page}"


def test_ways() -> None:
    assert "Dup" in methods.names(methods.KEPT)
    assert "Sub" in methods.names(methods.WRAPPED)
    assert {"Barrier", "bcast", "Isend"} <= set(methods.counted())
    assert "Get_rank" not in methods.counted()
    assert methods.group_of("Ibcast").way == methods.TAKEN
    assert methods.group_of("Ialltoallw").way == methods.MPI
    assert methods.group_of("Bcast_init").way == methods.MPI
    assert {"Ibcast", "Ialltoallw", "Bcast_init"} <= set(methods.requesting())


@pytest.mark.parametrize("value", ["", "auto", "off", "force", "explain"])
def test_the_switch(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XUPC_COMM", value)
    assert switch.mode() == (value or "auto")


@pytest.mark.parametrize("value", ["on", "OFF", "off,explain"])
def test_other_values_of_the_switch(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XUPC_COMM", value)
    with pytest.raises(ValueError, match="XUPC_COMM: expected auto, off, force or explain, got"):
        switch.mode()


def test_the_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {
        ("Bcast", "MPI", "no data"): [2, 160, 0],
        ("Isend", "MPI", ""): [5, 8, 0],
        ("Bcast", "xupc", ""): [1, 40, 0],
        ("bcast", "xupc", ""): [4, 16, 1],
    }
    monkeypatch.setenv("XUPC_COMM", "explain")
    data = explanation.as_data(counts)
    assert list(data) == ["Isend", "bcast", "Bcast"]
    assert data["bcast"]["bytes"] is None
    assert data["Bcast"] == {
        "calls": 3, "bytes": 200, "carried_by": {"MPI": 2, "xupc": 1}, "why": {"no data": 2},
    }  # fmt: skip
    assert data["Isend"]["why"] == {"not a collective": 5}
    lines = explanation.as_text(counts, "title").splitlines()
    assert lines[0] == "title"
    assert lines[1].split() == ["method", "calls", "bytes", "by", "why"]
    assert lines[3].split() == ["bcast", "4", "-", "xupc"]
    assert lines[4].split() == ["Bcast", "2", "160", "MPI", "no", "data"]
    assert lines[5].split() == ["Bcast", "1", "40", "xupc"]
    assert lines[6] == "  (-: this thread does not know the bytes of all these calls)"
    assert len(lines) == 7
    monkeypatch.setenv("XUPC_COMM", "off")
    assert "only under XUPC_COMM=explain" in explanation.as_text({}, "title")


def test_the_name_starts_mpi_only_when_it_is_used() -> None:
    assert "Comm" not in xupc.__all__  # `from xupc import *` starts nothing
    assert "Comm" not in dir(xupc) or "Comm" in vars(xupc)
    code = "import sys, xupc; xupc.init; print('mpi4py' in sys.modules, hasattr(xupc, 'mpi'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_usage() -> None:
    """Without a program the status is 2, and nothing is started."""
    command = [sys.executable, "-m", "xupc.mpi"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m xupc.mpi PROGRAM")
    done = subprocess.run([*command, "-h"], capture_output=True, text=True, check=True, timeout=60)
    assert "-m MODULE" in done.stdout
