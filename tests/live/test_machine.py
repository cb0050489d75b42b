"""The machine is measured in a job, and `xupc info` knows the job that it runs in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from support.launch import Result, launch

PROGRAM = "tests/live/programs/machine_figures.py"
CALIBRATION = "tests/live/programs/calibration_figures.py"
COMMAND_LINE = "tests/live/programs/command_line_in_a_job.py"

# a disk's rate to a cache's; a line is slower than a cycle, a busy machine is very slow
PLAUSIBLE = {
    "copy rate": (1e7, 1e12),
    "node copy rate": (1e7, 1e13),
    "cached copy rate": (1e7, 1e12),
    "line latency ns": (1, 1e7),
    "wire rate": (1e5, 1e12),
    "wire latency ns": (50, 1e8),
}
LEVELS = ["node", "socket"]  # of 4 threads on 2 sockets with 2 cores each


def test_each_level_is_measured() -> None:
    done = launch(4, PROGRAM, env={"XUPC_TOPOLOGY": "2x2x1"})
    assert done.returncode == 0, done.report()
    found, different, native = json.loads(done.stdout)
    rates = {f"{key}, {level}" for key in ("copy rate", "cached copy rate") for level in LEVELS}
    lines = {f"line latency ns, {level}" for level in LEVELS} if native else set()
    if len(os.sched_getaffinity(0)) > 1:
        assert found.keys() >= rates | lines
    assert different == 1
    for key, value in found.items():
        low, high = PLAUSIBLE[key.partition(",")[0]]
        assert low < value < high, (key, value)


OF_ONE_CORE = {
    "cores": (0, 1e6),
    "call ns": (20, 1e7),
    "cache copy rate": (1e8, 1e13),
    "fold rate": (1e7, 1e13),
}
OF_THE_CORE_AND_TWO = {
    "step ns": (0, 1e6),
    "switch ns": (10, 1e8),
    "crossing rate": (1e7, 1e13),
}


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        (None, {"copy rate", "node copy rate", "line latency ns"}),
        ("1,1", {"copy rate", "wire rate", "wire latency ns"}),
    ],
)
def test_the_bounds_that_apply_are_measured(
    live: Callable[..., Result], nodes: str | None, keys: set[str]
) -> None:
    done = live(2, PROGRAM, nodes=nodes)
    found, different, native = json.loads(done.stdout)
    if not native or len(os.sched_getaffinity(0)) == 1:
        keys = keys - {"line latency ns"}
    assert found.keys() == keys
    assert different == 1  # every thread has the same
    for key, value in found.items():
        low, high = PLAUSIBLE[key]
        assert low < value < high, (key, value)


@pytest.mark.once
@pytest.mark.parametrize("nodes", [None, "1,1", "2,2"])
def test_what_steps_cost_is_measured(live: Callable[..., Result], nodes: str | None) -> None:
    done = live(4 if nodes == "2,2" else 2, CALIBRATION, nodes=nodes)
    found, different, native = json.loads(done.stdout)
    assert different == 1
    expected = dict(OF_ONE_CORE)
    if nodes is not None:
        expected |= {"send ns": (1, 1e8), "receive ns": (1, 1e8)}
        expected |= {"read ns": (-1, 1e8), "serve ns": (-1, 1e8)}
    if native:
        expected["step ns"] = OF_THE_CORE_AND_TWO["step ns"]
    if native and nodes != "1,1" and len(os.sched_getaffinity(0)) > 1:
        expected |= OF_THE_CORE_AND_TWO
    for key, (low, high) in expected.items():
        assert low < found[key] < high, (key, found.get(key))


def test_one_thread_of_a_job_prints_what_info_knows_of_all() -> None:
    done = launch(3, COMMAND_LINE, args=["info"])
    assert done.returncode == 0, done.report()
    assert done.clean, done.report()
    assert done.stdout.count("\nthreads        3 on this machine") == 1
    assert done.stdout.count("\nmeasured       nothing") == 1


@pytest.mark.once
def test_info_measures_in_the_job_that_it_runs_in() -> None:
    done = launch(2, COMMAND_LINE, args=["info", "--measure"])
    assert done.returncode == 0, done.report()
    assert done.clean, done.report()
    assert done.stdout.count("\ncopy rate ") == 1
