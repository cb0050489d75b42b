"""init, finalize, and what can be used when; barriers, notify and wait."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.checked_calls import Usable, raises

import xupc
from xupc import NotInitializedError, XupcError

assert "mpi4py" not in sys.modules, "import xupc needs no MPI"


def unusable(when: str) -> None:
    """Everything that needs init raises NotInitializedError, or is missing."""
    assert not hasattr(xupc, "THREADS")
    assert not hasattr(xupc, "MYTHREAD")
    calls = (
        lambda: xupc.THREADS,
        lambda: xupc.MYTHREAD,
        xupc.barrier,
        xupc.notify,
        xupc.wait,
        xupc.fence,
        xupc.finalize,
        lambda: xupc.all_alloc(5),
        lambda: xupc.alloc(5),
        lambda: xupc.global_alloc(5),
        lambda: xupc.all_free(None),
        lambda: xupc.free(None),
        lambda: xupc.all_broadcast(None, None, 8),
        lambda: xupc.all_gather_all.plan(None, None, 8),
        lambda: xupc.forall(5, blocksize=1),
    )
    for k, call in enumerate(calls):
        raises(NotInitializedError, (), call, (when, k))
    assert xupc.PULL | xupc.IN_NOSYNC == 65
    assert xupc.Op.ADD is xupc.ADD


def wrong_arguments() -> None:
    """Raised by every thread, differences too; init can be called again, correctly."""
    for heap_size in ("abc", "-5", -1, 0, 1 << 60, "5 parsecs"):
        raises(ValueError, ("heap_size",), lambda h=heap_size: xupc.init(heap_size=h), heap_size)
    for heap_size in (True, 1.5, [1]):
        raises(TypeError, ("heap_size",), lambda h=heap_size: xupc.init(heap_size=h), heap_size)
    for timeout in (0, -1, "soon", float("nan"), [1]):
        raises(
            (ValueError, TypeError), ("timeout",), lambda t=timeout: xupc.init(timeout=t), timeout
        )
    raises(TypeError, ("comm",), lambda: xupc.init(comm=3))
    for nodes in ("99x99", "x", "cyclic:0", "1,-1"):
        raises(ValueError, ("nodes",), lambda n=nodes: xupc.init(nodes=n), nodes)
    from mpi4py import MPI

    first, several = MPI.COMM_WORLD.rank == 0, MPI.COMM_WORLD.size > 1
    if several:
        words = "init", "heap_size differs", "thread 0: 1048576", "2097152"
        call = lambda: xupc.init(heap_size="1MiB" if first else "2MiB")  # noqa: E731
        raises(xupc.CollectiveMismatchError, words, call)
        words = "init", "nodes differs", "thread 0: 'cyclic:1'"
        call = lambda: xupc.init(nodes="cyclic:1" if first else None)  # noqa: E731
        raises(xupc.CollectiveMismatchError, words, call)


def split_phase(usable: Usable) -> None:
    """The order of notify and wait, and what may stand between."""
    A = xupc.all_alloc(xupc.THREADS, "i8", 1)
    raises(XupcError, ("notify",), xupc.wait, "wait without notify")
    usable("a wait without notify")
    for round_ in range(20):
        A.local[0] = round_
        xupc.notify()
        p = xupc.alloc(3)
        p[1] = 4
        xupc.free(p)
        for call in (
            xupc.notify,
            xupc.barrier,
            lambda: xupc.all_alloc(3),
            lambda: xupc.all_free(A),
            lambda: xupc.all_broadcast(A, A, 8),
            lambda: xupc.all_broadcast.plan(A, A, 8),
            xupc.finalize,
        ):
            raises(XupcError, ("notify",), call, "between notify and wait")
        xupc.wait()
        assert A[(xupc.MYTHREAD + 1) % xupc.THREADS] == round_
        xupc.barrier()
    # One thread alone makes a wrong call; it does not affect the others.
    xupc.notify("x")
    if xupc.MYTHREAD == 0:
        raises(XupcError, ("notify",), xupc.barrier)
    xupc.wait("x")
    plan = xupc.all_gather_all.plan(*usable.buffers.operands("gather_all", 0), 8)
    xupc.notify()
    raises(XupcError, ("notify",), plan)
    raises(XupcError, ("notify",), plan)
    xupc.wait()
    usable("split phases")
    xupc.all_free(A)


def forked() -> None:
    """A forked child may read its views and ask nothing of xupc."""
    A = xupc.all_alloc(xupc.THREADS, "i8", 1)
    A.local[0] = 11
    xupc.barrier()
    view = A.local
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert view[0] == 11
            for call in (
                xupc.barrier,
                lambda: xupc.THREADS,
                lambda: A[0],
                lambda: xupc.alloc(1),
                lambda: xupc.all_alloc(1),
                lambda: xupc.all_broadcast(A, A, 8),
                xupc.finalize,
                xupc.init,
            ):
                raises(NotInitializedError, (), call, "in a forked child")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    xupc.barrier()


def outliving(team: xupc.Team, usable: Usable) -> list[Callable[[], object]]:
    """Calls of what will outlive its init: teams, plans on shared memory and on private arrays."""
    half, array = team.split(0), np.zeros(4)
    teams = [team, half, team.node]
    shared = xupc.all_gather_all.plan(*usable.buffers.operands("gather_all", 0), 8)
    private = xupc.allav_reduce_all.plan(np.zeros(4), array, xupc.ADD)
    strided = xupc.allav_broadcast.plan(np.zeros(8)[::2], 0)
    plans = [shared, private, strided]
    calls = [call for x in teams for call in (x.barrier, x.notify, x.wait, lambda x=x: x.split(0))]
    calls += [call for x in plans for call in (x, x.start)]
    for x in (half.barrier, team.node.barrier, *plans):
        x()
    return calls


def mapped() -> int:
    """Bytes of shared memory that xupc has mapped here."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ours = [line for line in lines if "/dev/shm/#" in line or "/dev/shm/xupc-" in line]
    ends = [line.split()[0].split("-") for line in ours]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ends)


def main() -> None:
    unusable("before init")
    wrong_arguments()
    unusable("after a wrong init")
    team = xupc.init(timeout=30, heap_size="2MiB")
    usable = Usable()
    usable("init")
    assert team.size == xupc.THREADS
    assert team.rank == xupc.MYTHREAD
    assert list(team.threads) == list(range(xupc.THREADS))
    assert xupc.init() is team
    assert xupc.init(timeout=30, heap_size=2 << 20) is team
    raises(ValueError, ("init",), lambda: xupc.init(heap_size="3MiB"))
    raises(ValueError, ("init",), lambda: xupc.init(timeout=31, heap_size="2MiB"))
    nodes = f"{xupc.THREADS}"
    if xupc.init().tree.nodes == ((*range(xupc.THREADS),),):
        nodes = f"cyclic:{xupc.THREADS}"
    raises(ValueError, ("init",), lambda: xupc.init(timeout=30, heap_size="2MiB", nodes=nodes))
    assert sorted(np.concatenate(team.tree.nodes)) == list(range(xupc.THREADS))
    assert [team.tree.root_of(t) for t in team.tree.roots] == list(team.tree.roots)
    split_phase(usable)
    plan = xupc.allav_broadcast.plan(np.zeros(3), 0)
    for x in (team, plan, xupc.allav_broadcast(np.zeros(3), 0, xupc.ASYNC)):
        raises(TypeError, ("cannot be pickled",), lambda x=x: pickle.dumps(x), x)
        if isinstance(x, xupc.Handle):
            x.wait()
    forked()
    usable("a fork")
    with team as again:
        assert again is team
        usable("with")
        calls = outliving(team, usable)
        assert mapped() > 4 << 20, mapped()
    unusable("after finalize")
    assert mapped() < 1 << 20, mapped()  # what outlives the heap does not keep it
    for when in ("after finalize", "of an earlier init"):
        for k, call in enumerate(calls):
            raises(NotInitializedError, ("finalized",), call, (when, k))
        again = xupc.init()
        stale = lambda: xupc.allv_reduce_all(1, xupc.ADD, team=team)  # noqa: E731
        raises(ValueError, ("team", "earlier init"), stale)
        Usable()(when)
    xupc.finalize()
    unusable("at the end")
    print(f"ended: {team.rank}")


main()
