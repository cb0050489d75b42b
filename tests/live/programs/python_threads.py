"""Two Python threads of thread 1 make calls at once: ``python_threads.py KIND``."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from support.checked_calls import raises
from support.handshakes import await_wait, control, kill_when
from support.polling import until

import xupc
from xupc import CollectiveMismatchError, XupcError

kind = sys.argv[1]
team = xupc.init()
callers = team.job.callers
half = team.split(0)
assert half is not None
N = xupc.THREADS
flag = xupc.all_alloc(N, np.int64, 1)
x = xupc.all_alloc(N, np.int64, 1)
plan = xupc.all_broadcast.plan(x, x, 8, xupc.IN_PLACE)
turns = 0


def alone() -> bool:
    """Return whether no Python thread of this process is inside a call."""
    return not callers.inside()


def second(inside: Callable[[], object], *others: Callable[[], object]) -> None:
    """All make a call; meanwhile another Python thread of thread 1 tries others, all refused."""
    global turns
    turns += 1
    if xupc.MYTHREAD == 1:
        thread = threading.Thread(target=inside)
        thread.start()
        until(lambda: not alone(), "the other thread is in its call")
        for other in others:
            raises(XupcError, ("only one Python thread",), other, inside)
        flag.local[0] = turns
        thread.join()
    else:
        until(lambda: flag[1] >= turns, "thread 1 has tried")
        inside()
    xupc.barrier()


def post() -> object:
    return xupc.all_broadcast(x, x, 8, xupc.ASYNC | xupc.IN_PLACE)


def waits() -> None:
    handle = post()
    assert isinstance(handle, xupc.Handle)
    handle.wait()


def refused() -> None:
    calls = (
        xupc.barrier, lambda: xupc.allv_reduce_all(1, xupc.ADD), plan, plan.start, post,
        lambda: xupc.all_alloc(5), lambda: team.split(0), xupc.finalize, xupc.notify,
    )  # fmt: skip
    insides = (
        xupc.barrier, lambda: xupc.allv_reduce_all(1, xupc.ADD), plan, waits,
        lambda: xupc.all_free(xupc.all_alloc(5)),
    )  # fmt: skip
    for inside in insides * 2:
        second(inside, *calls)


def await_own_wait() -> None:
    await_wait([control().index])


def nested() -> None:
    """A handler within a call makes another one: refused, and the call goes on."""
    found = []

    def handler(*_: object) -> None:
        words = ("not allowed while barrier",)
        found.append(raises(XupcError, words, lambda: xupc.allv_reduce_all(1, xupc.ADD)))
        flag.local[0] = 1

    if xupc.MYTHREAD == 1:
        signal.signal(signal.SIGALRM, handler)
        kill_when(await_own_wait, signal.SIGALRM, lambda: None)
    else:
        until(lambda: flag[1] >= 1, "thread 1 has tried")
    xupc.barrier()
    assert len(found) == (xupc.MYTHREAD == 1)
    xupc.barrier()


def differ() -> None:
    """Thread 1 alone has a second Python thread, in a barrier; all make another call."""
    errors: list[BaseException] = []

    def barrier() -> None:
        errors.append(raises(CollectiveMismatchError, ("thread 1: barrier",), xupc.barrier))

    if xupc.MYTHREAD == 1:
        thread = threading.Thread(target=barrier)
        thread.start()
        until(lambda: not alone() or errors, "the other thread is in its call")
        raises(XupcError, ("'Thread-1 (barrier)'", "is inside barrier("),
               lambda: xupc.allv_reduce_all(1, xupc.ADD))  # fmt: skip
        flag.local[0] = 1
        thread.join()
        assert len(errors) == 1
    else:
        until(lambda: flag[1] >= 1, "thread 1 has tried")
        words = ("thread 1: barrier", "allv_reduce_all")
        call = lambda: xupc.allv_reduce_all(1, xupc.ADD)  # noqa: E731
        raises(CollectiveMismatchError, words, call)
    xupc.barrier()


def beside() -> None:
    """On different teams, on one node: each Python thread makes calls on a team of its own.

    The threads of the job arrive in other orders, and wait for longer than the core alone waits.
    """
    teams = [team.split(0) for _ in range(3)]
    wrong = []

    def work(number: int) -> None:
        mine = teams[number]
        assert mine is not None
        try:
            for k in range(300):
                if k % 100 == (xupc.MYTHREAD + number) % N * 30:
                    time.sleep(0.2)
                assert xupc.allv_reduce_all(k + number, xupc.ADD, team=mine) == N * (k + number)
                mine.barrier()
                a, b = np.full(40_000, k), np.empty(40_000, int)
                xupc.allav_reduce_all(b, a, xupc.MAX, team=mine)
                assert (b == k).all()
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work, args=[k]) for k in (1, 2)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    assert not wrong
    xupc.barrier()


def teams() -> None:
    """On different teams, across nodes: an error on all threads, since none could find it out."""
    def inside() -> None:
        raises(XupcError, ("only one Python thread",), xupc.barrier)

    if xupc.MYTHREAD == 1:
        thread = threading.Thread(target=inside)
        thread.start()
        until(lambda: not alone(), "the other thread is in its call")
        raises(XupcError, ("only one Python thread",), half.barrier)
        thread.join()
    else:
        raises(XupcError, ("only one Python thread",), half.barrier)
    print("refused", flush=True)


def locked() -> None:
    """One lock for all calls, or one thread after the other: nothing is refused."""
    lock = threading.Lock()

    def work() -> None:
        for _ in range(50):
            with lock:
                assert xupc.allv_reduce_all(1, xupc.ADD) == N

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    xupc.barrier()


globals()[kind]()
print("over", flush=True)
