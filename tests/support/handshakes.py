"""Wait for what other threads of a job do, in place of sleeping until they have surely done it.

A thread's status in the machine's control segment shows whether it waits, is between two calls,
has been interrupted or has ended. Each function raises `TimeoutError` after a time limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from threading import Thread

from support.polling import until

from xupc.health.control_layout import INTERRUPTED
from xupc.health.control_segment import Control
from xupc.runtime import current

__all__ = [
    "await_call", "await_death", "await_end_of_calls", "await_interrupt",
    "await_others", "await_wait", "control", "index_of", "kill_when", "mates", "meet",
]  # fmt: skip

def control() -> Control:
    """Return the control segment of this thread's machine."""
    return current.world().job.control


def mates(*without: int) -> list[int]:
    """Return this machine's threads but for this one and those given, by number in the segment."""
    own = control()
    rows = [i for i in range(own.threads) if i != own.index]
    return [i for i in rows if own.who(i)[1] not in without]


def index_of(thread: int) -> int:
    """Return the number of a thread of this machine in the control segment."""
    own = control()
    return next(i for i in range(own.threads) if own.who(i)[1] == thread)


def await_wait(threads: Iterable[int] | None = None) -> None:
    """Wait until these threads (numbers in the segment; default: peers) have waited a while."""
    own, some = control(), list(mates() if threads is None else threads)
    until(lambda: all(own.waits(i) for i in some), f"{some} wait")


def await_others(*without: int) -> None:
    """Wait until all threads of the machine but this one and those given wait in xupc."""
    await_wait(mates(*without))


def await_call(name: str, threads: Iterable[int] | None = None) -> None:
    """Wait until these threads are in a call of this name: its text begins with it."""
    own, some = control(), list(mates() if threads is None else threads)

    def inside(index: int) -> bool:
        calls = own.calls_of(index)
        return bool(calls) and calls[-1].text.startswith(name) and not calls[-1].ended

    until(lambda: all(inside(i) for i in some), f"{some} are in {name}")


def await_end_of_calls() -> None:
    """Wait until all threads of the machine have ended the call that this one ended last."""
    own = control()
    last = own.operation_of(own.index)

    def over(index: int) -> bool:
        calls = own.calls_of(index)
        return bool(calls) and calls[-1].op >= last and calls[-1].ended > 0

    until(lambda: all(over(i) for i in mates()), f"operation {last} has ended")


def await_interrupt(thread: int) -> None:
    """Wait until a thread of this machine has published that it was interrupted."""
    own, index = control(), index_of(thread)
    until(lambda: own.status[index]["trouble"] == INTERRUPTED, f"{thread} was interrupted")


def await_death(thread: int) -> None:
    """Wait until a thread of this machine has ended: its lock is free."""
    own, index = control(), index_of(thread)
    until(lambda: own.process_of(index) is None, f"{thread} has ended")


def meet() -> None:
    """Wait for all threads of the job in a barrier of MPI's, of which xupc knows nothing."""
    from mpi4py import MPI  # not before init, which starts MPI in its own way

    MPI.COMM_WORLD.Barrier()


def kill_when(ready: Callable[[], None], number: int, say: Callable[[], None]) -> None:
    """Send this process a signal, from a thread of its own, when `ready` returns; `say` before."""

    def run() -> None:
        ready()
        say()
        os.kill(os.getpid(), number)

    Thread(target=run, daemon=True).start()
