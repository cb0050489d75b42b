"""Ends a program in many ways, on thread 1 alone or on all: ``ways_to_end.py HOW [VALUE]``.

Every thread prints ``over`` where it comes to the last line.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from typing import Any

import mpi4py
import numpy as np

how, *rest = sys.argv[1:]
mpi4py.rc.initialize = not how.startswith("late MPI")

from support.handshakes import await_interrupt, await_wait, control, kill_when  # noqa: E402
from support.polling import until  # noqa: E402

import xupc  # noqa: E402

VALUES: dict[str, Any] = {"3": 3, "300": 300, "256": 256, "-1": -1, "text": "a text", "None": None}


def calls() -> None:
    assert xupc.allv_reduce_all(1, xupc.ADD) == xupc.THREADS
    xupc.barrier()


def on_one() -> bool:
    return bool(xupc.MYTHREAD == 1)


def in_atexit(team: xupc.Team) -> None:
    """Make calls that may want a thread of their own."""
    half = team.split(0)
    x = xupc.all_alloc(xupc.THREADS, np.int64, 1)
    handle = xupc.all_broadcast(x, x, 8, xupc.ASYNC | xupc.IN_PLACE)
    assert half is not None
    assert handle is not None
    handle.wait()
    half.barrier()
    print("called", flush=True)


class Keeper:
    """Holds what outlives the interpreter's last line, and uses it then."""

    def __init__(self, team: xupc.Team) -> None:
        x = xupc.all_alloc(xupc.THREADS, np.int64, 1)
        self.view, self.array = x.local, xupc.node_array(5, float)
        self.plan = xupc.all_broadcast.plan(x, x, 8, xupc.IN_PLACE)
        self.handle = xupc.all_broadcast(x, x, 8, xupc.ASYNC | xupc.IN_PLACE)
        self.team = team.split(0)
        self.handle.wait()

    def __del__(self) -> None:
        self.view[0] = self.array[0] = 1
        for call in (self.plan, self.team.barrier):
            try:
                call()
            except xupc.NotInitializedError:
                print("refused", flush=True)


if how == "MPI is over":
    from mpi4py import MPI

    MPI.Finalize()
    xupc.init()
if how == "late MPI by the program":
    from mpi4py import MPI

    MPI.Init()
team = xupc.init()
calls()
match how:
    case "nothing" | "late MPI":
        pass
    case "late MPI by the program":
        MPI.Finalize()
    case "late MPI twice":
        xupc.finalize()
        xupc.init()
        calls()
    case "atexit":
        atexit.register(in_atexit, team)
    case "objects":
        sys.modules["keeper"] = Keeper(team)  # type: ignore[assignment]
    case "sys.exit":
        if on_one():
            sys.exit(VALUES[rest[0]])
        calls()
    case "raise":
        if on_one():
            raise SystemExit(3)
        calls()
    case "team":
        half = team.split(0)
        if on_one():
            sys.exit(3)
        half.barrier()
    case "all":
        calls()
        sys.exit(3)
    case "end of with":
        with team:
            if on_one():
                sys.exit(0)
            calls()
    case "with":
        with team:
            if on_one():
                sys.exit(VALUES[rest[0]])
            calls()
    case "handler":
        if on_one():
            signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))
            own = control()
            kill_when(lambda: await_wait([own.index]), signal.SIGALRM, lambda: None)
        else:
            await_interrupt(1)
        xupc.barrier()
    case "caught":
        try:
            sys.exit(3)
        except SystemExit:
            calls()
    case "Python thread":
        thread = threading.Thread(target=lambda: sys.exit(3))
        thread.start()
        thread.join()
        calls()
    case "daemon":
        if on_one():
            threading.Thread(target=xupc.barrier, daemon=True).start()
            until(team.job.callers.inside, "the thread is in the barrier")
    case "MPI.Finalize" | "MPI.Finalize on one" | "MPI.Finalize in with":
        from mpi4py import MPI

        if how.endswith("with"):
            with team:
                MPI.Finalize()
        elif on_one() or not how.endswith("one"):
            MPI.Finalize()
        else:
            calls()
        assert not hasattr(xupc, "THREADS")
    case _:
        raise ValueError(how)
print("over", flush=True)
