"""SIGUSR2 and questions from outside, while threads make calls: ``... CASE [ARGUMENT]``."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
from support.cases import case, run_case

import xupc


@case
def own_signal_handler(whose: str) -> None:
    """The program's own handler of SIGUSR2, set before init, later, or not at all."""
    got: list[int] = []

    def mine(*_: object) -> None:
        got.append(1)

    if whose == "own":
        signal.signal(signal.SIGUSR2, mine)
    if whose == "thread":
        thread = threading.Thread(target=xupc.init)
        thread.start()
        thread.join()
    xupc.init()
    if whose == "own":
        os.kill(os.getpid(), signal.SIGUSR2)
        assert got == [1]
    if whose == "later":
        signal.signal(signal.SIGUSR2, mine)
    xupc.barrier()
    xupc.finalize()
    if whose in ("own", "later"):
        assert signal.getsignal(signal.SIGUSR2) is mine
        os.kill(os.getpid(), signal.SIGUSR2)
        assert got[-1:] == [1]
    else:
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        with open("/proc/self/status") as file:
            status = dict(row.split(":", 1) for row in file)
        assert not int(status["SigCgt"], 16) >> (signal.SIGUSR2 - 1) & 1
    print("good")


@case
def many_calls(stop: str, *_: str) -> None:
    """Call and check until a file exists."""
    xupc.init()
    n, me, calls = xupc.THREADS, xupc.MYTHREAD, 0
    os.write(1, f"pid {me} {os.getpid()}\nup\n".encode())
    while True:
        calls += 1
        got = xupc.allv_gather_all(calls * n + me)
        assert list(got) == [calls * n + i for i in range(n)], got
        if calls % 64 == 0 and xupc.allv_broadcast(os.path.exists(stop), root=0):
            break
    xupc.barrier()
    os.write(1, f"calls {calls}\n".encode())


@case
def calls_after_a_mismatch() -> None:
    """No call is recorded as under way after an error in it."""
    team = xupc.init()
    a = xupc.all_alloc(8 * xupc.THREADS, np.uint8, 8)
    b = xupc.all_alloc(8 * xupc.THREADS, np.uint8, 8)
    my, no = xupc.IN_MYSYNC | xupc.OUT_MYSYNC, xupc.IN_NOSYNC | xupc.OUT_MYSYNC
    for flags in (0, my, no):
        try:
            xupc.all_broadcast(a, b, 8 if xupc.MYTHREAD else 4, flags)
            xupc.barrier()
        except xupc.CollectiveMismatchError:
            pass
        control = team.job.control
        calls = control.calls_of(control.index)
        assert calls
        assert all(call.ended for call in calls), calls
        assert control.doing(control.index).startswith("outside xupc"), control.doing(0)
        team.barrier()
    print("good")


run_case()
