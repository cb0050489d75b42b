"""Check what keeps a team that is not freed, what does not, and what works when it is given back.

Arguments: names of kinds, else all; or "differ" for calls that differ on a dropped team, which
`finalize` has to report.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import os
import pickle
import resource
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from support.checked_calls import raises

import xupc

world = xupc.init(timeout=30)
T, me = int(xupc.THREADS), int(xupc.MYTHREAD)


def opened() -> int:
    """How many teams are open when all have met, besides `world.node` and `world.roots`."""
    team = world.split(0)
    assert team is not None
    team.free()
    return len(world.job.teams)


def array(team: Any, n: int = 16) -> Any:
    A = xupc.all_alloc(n * team.size, "i8", n, team=team)
    A.local[:] = me
    team.barrier()
    return A


def by_arrays() -> None:
    """An array and a pointer keep their team, on the thread that has them."""
    team = world.split(0)
    A = array(team)
    p = A + 16 * (T - 1) if me == 0 else None
    team.barrier()
    del team
    assert opened() == 1
    assert A[16 * (T - 1)] == T - 1
    total = xupc.all_alloc(T, "i8", team=(A + 0).team)
    xupc.all_reduce_all(total, A, xupc.ADD, 16 * T, team=(A + 0).team)
    assert total.local[0] == 16 * sum(range(T))
    world.barrier()
    del A, total
    assert opened() == 1, "thread 0 has a pointer"
    assert p is None or p[0] == T - 1
    del p
    assert opened() == 0


def by_views() -> None:
    """A view stays readable and keeps no team."""
    team = world.split(0)
    view = array(team).local
    del team
    assert opened() == 0
    for _ in range(3):
        array(world.split(0), 64)
    assert (view == me).all()


def by_plans() -> None:
    """A plan keeps its team; a call that was only made does not."""
    team = world.split(0)
    A, B = array(team), array(team)
    for _ in range(3):
        xupc.all_gather_all(A, B, 8, team=team)
        to, of = [16 * i + j for i in range(T) for j in range(T)], [16 * j for j in range(T)]
        xupc.all_gather_all_v(A, B, to, of, [1] * T, team=team)
        xupc.allv_reduce_all(1, xupc.ADD, team=team)
        xupc.allav_gather_all(np.zeros(T), np.ones(1), team=team)
    plan = xupc.allav_reduce_all.plan(out := np.zeros(1), np.ones(1), xupc.ADD, team=team)
    del team, A, B
    world.job.dropped.relieve(now=True)  # the last calls with lists are remembered
    assert opened() == 1
    plan()
    assert out[0] == T
    del plan
    assert opened() == 0


def by_parts() -> None:
    """`node` and `roots` keep the team that they are a part of."""
    team = world.split(0)
    node, roots = team.node, team.roots
    node.barrier()
    if roots is not None:
        roots.barrier()
    del team, roots
    before = opened()
    assert before == (3 if me in world.tree.roots else 2), before
    assert xupc.allv_reduce_all(1, xupc.ADD, team=node) == node.size
    del node
    assert opened() == 0


def by_handles() -> None:
    """A call under way on a dropped team comes to its end; the team is given back then."""
    team = world.split(0)
    dst, src = np.zeros(1), np.ones(1)
    handle = xupc.allav_reduce_all(dst, src, xupc.ADD, flags=xupc.ASYNC, team=team)
    del team
    handle.wait()
    assert dst[0] == T
    assert opened() == 0
    team = world.split(0)
    A, B = array(team), array(team)
    handle = xupc.all_gather_all(A, B, 8, xupc.ASYNC, team=team)
    del team, A, B
    opened()
    if me % 2:
        handle.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del handle
    world.barrier()
    assert opened() == 0


def by_cycles() -> None:
    """A reference cycle keeps a team until it is collected; on some threads here."""
    team = world.split(0)
    if me == T - 1:
        cycle: list[Any] = [team]
        cycle.append(cycle)
        del cycle
    del team
    gc.collect()
    assert opened() == 0
    gc.disable()
    for _ in range(100):
        cycle = [world.split(0)]
        cycle.append(cycle)
    del cycle
    assert len(world.job.teams) < 80, len(world.job.teams)
    gc.enable()
    gc.collect()
    assert opened() == 0


def by_one_thread() -> None:
    """A team is there as long as one thread has it; teams of teams, in different orders."""
    teams = [world.split(0)]
    for _ in range(3):
        teams.append(teams[-1].split(0, -me))
    row = world.split(me % 2)
    assert opened() == 5
    order = np.random.default_rng(me).permutation(4).tolist()
    for k in order:
        if me:
            teams[k] = None
        opened()
    assert len(world.job.teams) == 5
    if me == 0:
        assert teams[3].size == T
        teams.clear()
    assert opened() == 1
    inner = row.split(0)
    del row
    assert inner is not None
    assert opened() == 1
    inner.barrier()
    inner.free()
    assert opened() == 0


def by_travelling() -> None:
    """A pointer that travels is good while its team is there."""
    team = world.split(0)
    A = array(team)
    data = pickle.dumps(A + 16 * (T - 1))
    kept = xupc.all_alloc(T, xupc.pointer_dtype, team=team)
    kept[me] = A + 16 * me
    serial = A.allocation.serial if hasattr(A, "allocation") else None
    del A
    gc.collect()
    assert pickle.loads(data)[0] == T - 1
    assert kept[me].cast("i8")[0] == me
    assert pickle.loads(data).team is team
    A = pickle.loads(data)
    assert serial is None or A.allocation.serial == serial
    team.barrier()
    xupc.all_free(A - 16 * (T - 1))
    raises(ValueError, ("freed",), partial(operator.getitem, A, 0))
    del A, kept, team
    gc.collect()  # an error that was caught refers to what its call was given
    assert opened() == 0
    raises(ValueError, (), lambda: pickle.loads(data)[0])


def with_frees() -> None:
    """Frees of some and drops of others, and a free of a team whose teams were dropped."""
    team = world.split(0)
    for k in range(6):
        inner = team.split(k % 2)
        array(inner)
        if k % 3 == 0:
            inner.free()
    del inner
    team.free()
    raises(ValueError, ("freed",), team.barrier)
    del team
    gc.collect()
    assert len(world.job.teams) == 0
    team = world.split(0)
    array(team)
    del team
    A = xupc.all_alloc(T, "i8")
    assert len(world.job.teams) == 0, "all_alloc gives back"
    array(world.split(0))
    xupc.all_free(A)
    assert len(world.job.teams) == 0, "all_free gives back"


def after_errors() -> None:
    """Differing calls are found as before, on teams that are there and on new ones."""
    for _ in range(3):
        team = world.split(0)
        if T > 1:
            raises(xupc.CollectiveMismatchError, ("value",), lambda t=team: t.barrier(me))
            odd = partial(world.split, 0) if me else world.barrier
            raises(xupc.CollectiveMismatchError, (), odd)
        wrong = array(team)
        raises(ValueError, ("nelems",), lambda w=wrong, t=team: xupc.all_reduce_all(
            w, w, xupc.ADD, -1, team=t))  # fmt: skip
        del team, wrong
        gc.collect()
        assert opened() == 0


def under_limits() -> None:
    """More teams than there are descriptors, one after the other; and all at a time."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, most[1]))
        for _ in range(80):
            team = world.split(0)
        team.barrier()
        assert len(os.listdir("/proc/self/fd")) <= used + 2
        teams, refused, words = [], "", {"team.free()"}
        while not refused:
            try:
                teams.append(world.split(0))
            except xupc.XupcError as e:  # Open MPI may run out of them first, for its windows
                refused = str(e)
                words |= {"ulimit -n"} if isinstance(e, xupc.HeapError) else set()
        assert all(text in refused for text in words), refused
        assert len(teams) >= 24, "a team costs more than a descriptor"
    del team
    teams.clear()
    gc.collect()
    assert opened() == 0


def differ() -> None:
    """Calls that do not meet, and differ: `finalize` raises, also for a team that was dropped."""
    team = world.split(0)
    xupc.allav_broadcast(np.empty(0, "f8" if me == T - 1 else "i8"), 0, team=team)  # moves nothing
    del team
    assert opened() == 1
    raises(xupc.CollectiveMismatchError, (), xupc.finalize)


KINDS: list[Callable[[], None]] = [
    by_arrays, by_views, by_plans, by_parts, by_handles, by_cycles, by_one_thread, by_travelling,
    with_frees, after_errors, under_limits,
]  # fmt: skip


def main() -> None:
    if sys.argv[1:] == ["differ"]:
        differ()
        print("done: differ", flush=True)
        return
    kinds = {kind.__name__: kind for kind in KINDS}
    names = sys.argv[1:] or list(kinds)
    for name in names:
        kinds[name]()
        gc.collect()
        world.barrier()
    team = world.split(0)
    A = array(team)
    if me == 0:
        del team, A  # not given back: finalize does it
    print(f"done: {len(names)}", flush=True)
    xupc.finalize()


main()
