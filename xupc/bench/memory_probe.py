"""What a call, a step, a thread switch and the caches cost, for `xupc calibrate`.

The values are those that `xupc.bench.calibration` names. Each is a median, measured while all
threads without a part in it sleep.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

import xupc
from xupc.backends.native.lowering import lower
from xupc.backends.native.native_core import core
from xupc.backends.wait import PENDING
from xupc.plan.recorder import Operand, Recorder, trace
from xupc.topology import host
from xupc.topology.tree import Tree

from . import network_probe, pair_probe

__all__ = ["measure"]

ROUNDS = 21
CALLS = 200  # in a round
BLOCK = 128 << 10
YIELDS = 1000  # of a thread that waits for another one on its core
LINE = 64


def measure(team: xupc.Team, comm: MPI.Intracomm) -> dict[str, float]:
    """Measure on the largest node; collective, takes about half a second.

    Returns
    -------
    dict
        On every thread.
    """
    node = max(team.tree.nodes, key=len)
    found: dict[str, float | None] = {}
    alone = team.split(team.rank)
    assert alone is not None
    if team.rank == node[0]:
        found = {**_rates(), "call ns": _call(alone), "cache size": _cache_size()}
        if team.native:
            found["step ns"] = _step()
    alone.free()
    network_probe.wait_quietly(comm)
    found = comm.bcast(found, root=node[0])
    if len(node) > 1:
        rate = pair_probe.copy_rate(team, comm, node[0], node[1], pair_probe.CACHED)
        found |= {"crossing rate": rate, "switch ns": _switch(team, comm, node)}
    return {key: float(value) for key, value in found.items() if value}


def _timed(run: Callable[[], object]) -> float:
    """Return the median ns of a function."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times)


def _rates() -> dict[str, float]:
    """Return the rates of one core, in bytes per second, of data in its cache."""
    src, dst = np.ones(BLOCK, np.uint8), np.zeros(BLOCK, np.uint8)
    half = BLOCK // 16  # values of an operand of 64 KiB
    a, b, c = np.ones(half), np.ones(half), np.zeros(half)
    return {
        "cache copy rate": BLOCK / _timed(lambda: np.copyto(dst, src)) * 1e9,
        "fold rate": BLOCK / _timed(lambda: np.add(a, b, out=c)) * 1e9,
    }


def _call(alone: xupc.Team) -> float:
    """Return the ns of a call of one thread that copies 8 bytes."""
    values = np.zeros(1)

    def calls() -> None:
        for _ in range(CALLS):
            xupc.allav_broadcast(values, 0, 0, alone)

    calls()  # the first call makes the plan
    return _timed(calls) / CALLS


def _cache_size() -> float | None:
    """Return the bytes of the first core's own cache of level 2; its part of the last one else."""
    own = host.own_cache(min(host.affinity()))
    shared = [size / max(1, len(cores)) for cores, size in host.caches().items() if cores]
    return own or max(shared, default=None)


# --- plans on a core ------------------------------------------------------------------------------


def _copies(t: Recorder, count: int) -> None:
    """Copy 8 bytes from one place to others, again and again."""
    memory = Operand(0)
    for k in range(count):
        t.copy(memory.on(t.me, 8 + 8 * (k % 2)), memory.on(t.me), 8)


def _step() -> float:
    """Return the ns of one step of a plan."""
    few, many = (_plan_of(count) for count in (1, 1 + CALLS))
    return max(0.0, many - few) / CALLS


def _plan_of(count: int) -> float:
    """Return the median ns of a plan of so many copies."""
    tree = Tree(np.zeros(1, np.int32))
    plan = trace(_copies, "pull", "steps", 0, tree, ("no", "no"), {}, (count,))
    area, memory = np.zeros(core.sync_bytes(1) + LINE, np.uint8), np.zeros(LINE, np.uint8)
    address = area.ctypes.data
    report = address + core.sync_bytes(1)  # instead of the job's own status line
    group = core.Team(address, 1, 0, report, False, False, False, 0, 0, 0, 0, 0, area)
    bases = ((memory.ctypes.data, 0),)
    instance = core.Instance(group, core.Program(lower(plan, tree)), (memory,), bases, 0, 0, None)

    def whole() -> None:
        instance.begin()
        while instance.run(0) == PENDING:
            pass

    return _timed(whole)


# --- two threads ----------------------------------------------------------------------------------


def _switch(team: xupc.Team, comm: MPI.Intracomm, node: tuple[int, ...]) -> float | None:
    """Return half a round trip of signals of two threads on one core, in ns; collective.

    The result is that of the node's first thread; None if the two may share no core.
    """
    if not team.native or not hasattr(os, "sched_setaffinity"):
        return None
    area = xupc.node_array(core.sync_bytes(2) + 2 * LINE, np.uint8)
    found = None
    pair = comm.Split(0 if team.rank in node[:2] else MPI.UNDEFINED, team.rank)
    if pair:
        before = host.affinity()
        shared = frozenset.intersection(*map(frozenset, pair.allgather(before)))
        if shared:
            os.sched_setaffinity(0, {min(shared)})
            found = pair_probe.bounce(area, pair.rank, spins=1, yields=YIELDS)
            os.sched_setaffinity(0, before)
        pair.Free()
    network_probe.wait_quietly(comm)
    switch: float | None = comm.bcast(found, root=node[0])
    return switch
