"""Invalid arguments raise only documented errors, on all threads, and the job continues."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import amount, figure, seed, share

PROGRAMS = Path("tests/live/programs")
ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "sample", "whole"),
    [
        pytest.param(1, None, 800, 40_000, marks=ONCE),
        (2, None, 500, 20_000),
        pytest.param(3, None, 250, 10_000, marks=ONCE),
        pytest.param(3, "2,1", 120, 6_000, marks=ONCE),
    ],
)
def test_only_documented_errors(
    live: Callable[..., Any],
    tmp_path: Path,
    threads: int,
    nodes: str | None,
    sample: int,
    whole: int,
) -> None:
    calls = amount(share(sample), whole) // (4 if SLOW_ENGINE else 1)
    args = [str(seed() + threads), str(calls), str(tmp_path)]
    try:
        limit = 60 + calls * threads / 40
        result = live(
            threads, PROGRAMS / "fuzz.py", nodes=nodes, args=args, timeout=limit, own_job=True
        )
    except BaseException:
        for note in sorted(tmp_path.glob("thread-*")):  # of a crash nothing else is left
            print(note.name, note.read_text(errors="replace").strip())
        raise
    assert f"done: {calls}" in result.stdout
    found = re.search("^kinds: (.*)$", result.stdout, re.MULTILINE)
    assert found
    place = f"{threads} threads" + (f" as {nodes}" if nodes else "")
    figure("wrong arguments", f"{calls} calls on {place}: {found[1]} on thread 0, no other error")


@pytest.mark.once
def test_nothing_public_is_forgotten() -> None:
    """Every function, method and name of the documents has a good call to depart from."""
    sys.path.insert(0, str(PROGRAMS))
    try:
        import public_api
    finally:
        sys.path.pop(0)
    assert public_api.forgotten() == set()
    names = {p.name for p in public_api.publics()}
    assert len(names) > 300
    for kind, internal in public_api.INTERNAL.items():
        assert internal <= set(public_api.attributes(public_api.CLASSES[kind])), kind


@pytest.mark.soak
@pytest.mark.once
@pytest.mark.parametrize("threads", [1, 2])
def test_bad_beginnings(live: Callable[..., Any], threads: int) -> None:
    result = live(threads, PROGRAMS / "bad_init.py", timeout=90, own_job=True)
    found = re.search(r"done: (\d+)", result.stdout)
    assert found
    figure("bad variables and arguments of init", f"{found[1]} on {threads} threads, then a job")
