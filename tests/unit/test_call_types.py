"""Type checkers know the arguments of all public calls, and `dir` shows public names alone."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import xupc
from xupc.api import call_types

PROJECT = Path(xupc.__file__).parent.parent
PROGRAM = Path(__file__).parent / "programs" / "typed_calls.py"
CALLS = [name for name in call_types.__all__ if name != "Call"]


def plain(call: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(call).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_those_of_the_call(name: str) -> None:
    """Names, kinds and defaults, for the type checker and at run time."""
    assert plain(getattr(call_types, name)) == plain(getattr(xupc, name))


def test_no_call_is_missing() -> None:
    """Each public object that is a call has types; functions have their own."""
    public = ((name, getattr(xupc, name)) for name in xupc.__all__)
    calls = {name for name, x in public if hasattr(x, "plan") and not inspect.isclass(x)}
    assert calls == {*CALLS}


def lines_of(function: str) -> range:
    """Return the numbers of the lines with calls in a function of the program."""
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"def {function}("))
    body = [i + 1 for i, line in enumerate(lines) if i > first and line.startswith("    ")]
    end = next((i for i, line in enumerate(lines) if i > first and line.startswith("def ")), 1000)
    found = [i for i in body if i <= end and "xupc." in lines[i - 1]]
    return range(found[0], found[-1] + 1)


def test_mypy_accepts_right_calls_and_refuses_wrong_ones() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run(
        [*command, str(PROGRAM)], cwd=PROJECT, capture_output=True, text=True, timeout=250
    )
    found = {int(n) for n in re.findall(r"typed_calls\.py:(\d+): error", done.stdout)}
    right, wrong = lines_of("right"), lines_of("wrong")
    assert len(right) >= 40, "a line was lost"
    assert len(wrong) == 40
    assert found == {*wrong}, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    ("x", "names"),
    [
        (xupc.all_gather, {"plan"}), (xupc.allav_gather, {"plan"}), (xupc.barrier, set()),
        (xupc.allav_gather_v, {"plan"}), (xupc.all_gather_v, {"plan"}),
        (xupc.all_reduce, {"plan"}), (xupc.allav_permute, {"plan"}),
        (xupc, {*xupc.__all__}),
        (
            object.__new__(xupc.Team),
            {"barrier", "cartesian", "free", "level", "level_roots", "levels", "neighbours",
             "node", "notify", "parent", "rank", "roots", "size", "split", "threads", "tree",
             "wait"},
        ),
        (object.__new__(xupc.Handle), {"done", "test", "wait"}),
        (
            object.__new__(xupc.SharedPointer),
            {"addr", "blocksize", "cast", "dtype", "local", "phase", "resetphase", "team",
             "thread"},
        ),
        (
            object.__new__(xupc.SharedArray),
            {"blocksize", "cast", "dtype", "itemsize", "local", "local_view", "nbytes", "nelems",
             "phaseof", "ptr", "shape", "threadof"},
        ),
    ],
)  # fmt: skip
def test_dir_shows_public_names_alone(x: Any, names: set[str]) -> None:
    """And Python's own, with two underscores; `xupc.Comm` once a program has used it."""
    shown = {name for name in dir(x) if not name.startswith("__")}
    assert shown == names | ({"Comm"} & vars(xupc).keys() if x is xupc else set())
