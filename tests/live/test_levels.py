"""Levels below the node in a job: teams of levels, bad descriptions, threads that are bound."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.machine_files import machine_facts, write_sysfs

PROGRAM = "tests/live/programs/levels.py"
PLACES = [
    (8, None, "2x2x2", "native"),
    (8, "2x4", "2x1x2", "native"),
    pytest.param(4, None, "2,2", "python", marks=pytest.mark.once),
    pytest.param(8, "cyclic:2", "socket:2,core:1,thread:2", "python", marks=pytest.mark.once),
    pytest.param(3, None, "1x1", "native", marks=pytest.mark.once),
    pytest.param(12, "3,9", "3,1/2,2", "native", marks=pytest.mark.once),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("threads", "nodes", "machine", "engine"), PLACES)
def test_teams_of_levels(
    live: Callable[..., Any], threads: int, nodes: str | None, machine: str, engine: str
) -> None:
    env = {"XUPC_TOPOLOGY": machine, "XUPC_ENGINE": engine}
    done = live(threads, PROGRAM, args=["good"], nodes=nodes, env=env)
    assert done.stdout.splitlines() == ["good"] * threads


@pytest.mark.once
def test_a_recorded_machine(live: Callable[..., Any], tmp_path: Path) -> None:
    write_sysfs(machine_facts("hybrid-laptop"), tmp_path)
    done = live(8, PROGRAM, args=["good"], env={"XUPC_TOPOLOGY": str(tmp_path)})
    assert done.stdout.splitlines() == ["good"] * 8


@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (3, "2,1")])
def test_a_bad_description_raises_on_every_thread(
    live: Callable[..., Any], tmp_path: Path, threads: int, nodes: str | None
) -> None:
    for machine, words in (("2x0", "at least 1"), (str(tmp_path), "expected a directory")):
        done = live(threads, PROGRAM, args=["bad"], nodes=nodes, env={"XUPC_TOPOLOGY": machine})
        lines = done.stdout.splitlines()
        assert len(lines) == threads
        assert all(f"init: XUPC_TOPOLOGY is '{machine}'" in line for line in lines)
        assert all(words in line for line in lines)


@pytest.mark.once
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_threads_that_are_bound(live: Callable[..., Any]) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    masks = [f"{first}", f"{first}", f"{second}", f"{first},{second}"]
    done = live(4, PROGRAM, args=["bound", *masks], own_job=True)
    teams = {line.split()[0]: line.split()[2:] for line in done.stdout.splitlines()}
    assert teams["0"][-2:] == teams["1"][-2:] == ["0", "1"]
    assert teams["2"][-1] == "2"
    assert teams["3"][-1] == "3"
