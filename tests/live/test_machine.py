"""What the machine can do is measured in a job: positive, plausible, and the keys that apply."""

from __future__ import annotations

import json
import os

import pytest
from launch import launch

PROGRAM = """
import json, os
from mpi4py import MPI
import xupc
from xupc.bench.machine import measure

with xupc.init() as team:
    before = os.sched_getaffinity(0)
    found = measure(team, MPI.COMM_WORLD)
    assert os.sched_getaffinity(0) == before
    same = set(MPI.COMM_WORLD.allgather(json.dumps(found)))
    if team.rank == 0:
        print(json.dumps([found, len(same), team.job.native]))
"""
# a disk's rate to a cache's; a line is slower than a cycle, a busy machine is very slow
PLAUSIBLE = {
    "copy rate": (1e7, 1e12),
    "node copy rate": (1e7, 1e13),
    "line latency ns": (1, 1e7),
    "wire rate": (1e5, 1e12),
    "wire latency ns": (50, 1e8),
}


@pytest.mark.parametrize(
    ("nodes", "keys"),
    [
        (None, {"copy rate", "node copy rate", "line latency ns"}),
        ("1,1", {"copy rate", "wire rate", "wire latency ns"}),
    ],
)
def test_the_bounds_that_apply_are_measured(nodes: str | None, keys: set[str]) -> None:
    done = launch(2, PROGRAM, nodes=nodes)
    assert done.returncode == 0, done.report()
    assert done.clean, done.report()
    found, different, native = json.loads(done.stdout)
    if not native or len(os.sched_getaffinity(0)) == 1:
        keys = keys - {"line latency ns"}
    assert found.keys() == keys
    assert different == 1  # every thread has the same
    for key, value in found.items():
        low, high = PLAUSIBLE[key]
        assert low < value < high, (key, value)
