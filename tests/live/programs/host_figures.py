"""The probe of a host: what two of three threads move, and what it returns."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import xupc
from xupc.bench import host_probe
from xupc.bench.host_decision import LONG, PAST, SIZES
from xupc.bench.network_probe import wait_quietly

host_probe.ROUNDS, host_probe.LEAST = 2, 1
team = xupc.init()


def idle() -> None:
    """Wait for all threads."""
    wait_quietly(MPI.COMM_WORLD)


found = host_probe.measure(team, 2, idle)
if team.rank:
    assert found is None
else:
    assert found is not None
    assert np.shape(found.moves) == (2, 2, len(SIZES))
    assert np.shape(found.reductions) == np.shape(LONG)
    assert np.shape(found.past) == np.shape(PAST)
    assert all(np.min(each) > 0 for each in (found.moves, found.reductions, found.past))
assert host_probe.measure(team, 1, idle) is None  # one core
host_probe.LEAST, host_probe.SECONDS = 2, -1.0
assert host_probe.measure(team, 2, idle) is None  # the time is up after a round

pair = team.split(0 if team.rank != 1 else None)
if pair is not None:
    me = pair.rank
    calls = host_probe._Calls(pair, host_probe.memory_of(4 * SIZES[-1], huge=True))
    for name in (host_probe.DIRECT, host_probe.STAGED):
        for n in SIZES:
            for way in ("scatter", "exchange"):
                calls.values[2 * n][:n], calls.values[2 * n][n:] = 10 * me + 1, 10 * me + 2
                calls.results[2 * n][:] = 0
                calls._move(way, n, name)
                expected = [[1], [2]][me] if way == "scatter" else [me + 1, 10 + me + 1]
                moved = calls.results[2 * n].reshape(2, n)[: len(expected)]
                assert (moved == np.array(expected)[:, None]).all(), (name, n, way)
    for name in (host_probe.DIRECT, host_probe.STAGED, host_probe.SLICES):
        for n in LONG:
            calls.summands[n][:], calls.sums[n][:] = me + 1, 0
            calls._reduce(n, name)
            assert (calls.sums[n] == (0 if me else 3)).all(), (name, n)
team.barrier()
xupc.finalize()
