"""Code of the user's that comes within a call: functions, finalizers, handlers of signals.

The arguments say what is tried and name an empty folder.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support import polling
from support.checked_calls import Within, raises
from support.handshakes import await_wait, control, index_of, kill_when, meet
from support.polling import await_file

import xupc
from xupc import XupcError
from xupc.api.handles import Handle
from xupc.health import failure_detector
from xupc.runtime.async_queue import AsyncCall


class Owner:
    """Frees with the collector, whenever that runs."""

    def __init__(self, alloc: Callable[..., xupc.SharedPointer]) -> None:
        self.memory = alloc(64)
        self.cycle = self

    def __del__(self) -> None:
        xupc.free(self.memory)


def flag(name: str) -> None:
    """Notify other threads by a file of this name."""
    (FOLDER / name).touch()


def until(name: str) -> None:
    """Wait until the file of this name exists."""
    await_file(FOLDER / name)


def finalizers(world: xupc.Team) -> None:
    """The collector frees global memory within allocations of it: nothing is lost or held."""
    gc.set_threshold(5)
    for alloc in (xupc.global_alloc, xupc.alloc):
        kept: list[Any] = []
        for k in range(150):
            Owner(alloc)
            kept.append(alloc(64))
            if len(kept) > 20:
                xupc.free(kept.pop(0))
            if k % 10 == 0:
                world.barrier()
        gc.collect()
        everywhere = np.zeros(world.size * 20, np.uint64)
        mine = np.array([p.thread << 60 | p.addr for p in kept], np.uint64)
        xupc.allav_gather_all(everywhere, mine)
        assert len(set(everywhere.tolist())) == world.size * 20
        for p in kept:
            xupc.free(p)
    world.barrier()
    if world.rank == 0:  # all of it has come back
        whole = world.job.global_zone
        xupc.free(xupc.global_alloc(whole.end - whole.start - (16 << 10), blocksize=0))


def in_a_thread_of_xupc(world: xupc.Team) -> None:
    """The collector runs in the failure detector's thread: finalizers there wait for no call."""
    flags = xupc.ASYNC
    data = [xupc.all_alloc(world.size * 8, np.uint8, 8) for _ in range(2)]
    team = world.split(0)
    errors: list[str] = []

    class Finalized:
        def __init__(self) -> None:
            self.memory = xupc.alloc(64)
            self.itself = self

        def __del__(self) -> None:
            if threading.current_thread() is threading.main_thread():
                return
            for call in (handle.wait, handle.test, team.barrier, lambda: xupc.alloc(8)):
                try:
                    call()
                except XupcError as error:
                    errors.append(str(error))
            xupc.free(self.memory)
            flag(f"finalized {world.rank}")

    look = world.job.guard.inquiry.turn

    def collect() -> None:
        if garbage:
            garbage.clear()
            gc.collect()
        look()

    gc.disable()
    garbage: list[Finalized] = []
    world.job.guard.inquiry.turn = collect
    handle = xupc.all_broadcast(*data, 8, flags, team=team)
    garbage.append(Finalized())
    until(f"finalized {world.rank}")  # this thread computes
    before, following = len(errors), [Finalized()]
    own = control().index

    def finalized_again() -> None:
        if world.rank == 0:
            await_wait([own])
        garbage.append(following.pop())
        polling.until(lambda: len(errors) > before, "a finalizer has run")

    def finalized_elsewhere() -> None:
        finalized_again()
        flag("go on")

    if world.rank:
        finalized_again()
        await_file(FOLDER / "go on")
    else:
        threading.Thread(target=finalized_elsewhere).start()
    world.barrier()
    handle.wait()
    world.barrier()
    assert all("in the thread 'xupc-guard' of xupc" in error for error in errors), errors


def freed_in_a_function(world: xupc.Team) -> None:
    """Memory that a call uses is not given back before it is over."""
    n = 1 << 17
    said: list[str] = []
    for flags in (0, xupc.ASYNC):
        given = xupc.alloc(n, np.float64) if world.rank == 0 else None
        if given is not None:
            given[0:n] = np.ones(n)
        src = xupc.allv_broadcast(given, 0)
        dst = xupc.all_alloc(world.size, np.float64, 1)
        left = [src] if world.rank == 0 else []

        @xupc.vectorized
        def add(a: Any, b: Any, left: list[Any] = left) -> Any:
            if left:
                try:
                    xupc.free(left.pop())
                except ValueError as e:
                    said.append(str(e))
            return a + b

        handle = xupc.all_reduce(dst, src, xupc.FUNC, n, 0, func=add, flags=flags)
        if handle is not None:
            handle.wait()
        world.barrier()
        if world.rank == 0:
            assert dst[0] == n, dst[0]
    assert len(said) == (world.rank == 0), said
    assert all("under way" in text for text in said)


def allocated_in_a_function(world: xupc.Team) -> None:
    """A user function must not allocate: every thread gets the error."""
    dst, src = (xupc.all_alloc(world.size, np.int64, 1) for _ in range(2))
    for alloc in (xupc.alloc, xupc.global_alloc):

        def add(a: int, b: int, alloc: Callable[[int], Any] = alloc) -> int:
            alloc(8)
            return a + b

        reduce = functools.partial(xupc.all_reduce_all, dst, src, xupc.FUNC, func=add)
        raises(XupcError, (alloc.__name__, "not allowed in a function"), reduce)


def each_others_memory(world: xupc.Team) -> None:
    """Two posted functions wait for each other's thread to leave a call of another team."""
    led, other, first, second = (world.split(0) for _ in range(4))
    x = xupc.all_alloc(2, np.int64, 1)
    data = {t: [xupc.all_alloc(16, np.int64, 8, team=t) for _ in range(2)] for t in
            (led, other, first, second)}  # fmt: skip
    me = world.rank
    been: list[int] = []

    def function(number: int) -> Callable[[int, int], int]:
        def add(a: int, b: int) -> int:
            if me == number and not been:
                been.append(me)
                flag(f"in {me}")
                until(f"in {1 - me}")
                int(x[1 - me])
            return a + b

        return add

    def reduce(team: xupc.Team, number: int) -> Handle:
        return xupc.all_reduce(
            *data[team], xupc.FUNC, 16, func=function(number), flags=xupc.ASYNC, team=team
        )

    def broadcast(team: xupc.Team) -> Handle:
        return xupc.all_broadcast(*data[team], 8, xupc.ASYNC, team=team)

    world.barrier()
    if me == 0:
        mine = reduce(first, 0)
        late = broadcast(other)
        flag("a")
        until("b")
        early = broadcast(led)
        while not early.test():
            pass
        flag("c")
        until("d")
        theirs = reduce(second, 1)
        flag("e")
        until("f")
    else:
        mine = reduce(second, 1)
        late = broadcast(led)
        flag("b")
        until("c")
        early = broadcast(other)
        while not early.done:
            other.progress()
        flag("d")
        until("e")
        theirs = reduce(first, 0)
        flag("f")
    while not mine.test():
        pass
    xupc.wait_all([theirs, early, late])
    assert been == [me]
    world.barrier()


def odd_errors(world: xupc.Team) -> None:
    """Errors that take no note, and such as call something when they are pickled."""

    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        x: int

    class Calling(Exception):
        def __reduce__(self) -> Any:
            world.barrier()

    dst, src = (xupc.all_alloc(world.size, np.int64, 1) for _ in range(2))
    for error in (Frozen(1), Calling("x")):

        def wrong(a: int, b: int, error: Exception = error) -> int:
            if world.rank == 0:
                raise error
            return a + b

        expected = XupcError if world.rank else type(error)
        raises(expected, (), functools.partial(
            xupc.all_reduce_all, dst, src, xupc.FUNC, func=wrong
        ))  # fmt: skip
        world.barrier()


def where_it_was_posted(world: xupc.Team) -> None:
    """A posted function runs with the numpy.errstate of its posting, whichever call runs it."""
    team = world.split(0)
    within = Within()
    dst, src = (xupc.all_alloc(world.size, np.float64, 1, team=team) for _ in range(2))
    called: list[int] = []
    warnings.simplefilter("error")

    def divide(a: float, b: float) -> Any:
        called.append(1)
        return np.float64(1) / np.float64(0)

    def outer(a: int, b: int) -> int:
        with np.errstate(all="raise"):
            within.hold(called)
        return a + b

    def post() -> Handle:
        with np.errstate(all="ignore"):
            return xupc.all_reduce(
                dst, src, xupc.FUNC, world.size, func=divide, flags=xupc.ASYNC, team=team
            )

    for k in range(3):  # by the thread that comes first
        handle = post()
        time.sleep(0.02 * k)  # longer than it takes others, at last, to come to the call
        handle.wait()
    world.barrier()
    called.clear()
    within.run(outer, post)
    assert world.rank or called == [1]
    world.barrier()
    assert world.rank or np.isinf(dst[0])


def waited_again(world: xupc.Team) -> None:
    """What an interrupt has ended is not gone on with, nor called good."""
    dst, src = (xupc.all_alloc(4 * world.size, np.int64, 4) for _ in range(2))
    called: list[int] = []

    def once(a: int, b: int) -> int:
        called.append(1)
        if world.rank == 0:
            raise KeyboardInterrupt
        return a + b

    world.barrier()
    if world.rank:
        await_wait([index_of(0)])  # its function is called in its wait
    flags = xupc.ASYNC
    handle = xupc.all_reduce_all(dst, src, xupc.FUNC, 4 * world.size, func=once, flags=flags)
    raises(XupcError if world.rank else KeyboardInterrupt, (), handle.wait)
    before = len(called)
    for _ in range(3):
        raises(XupcError, ("interrupted",), handle.wait)
    assert len(called) == before
    print("done", flush=True)
    meet()  # the thread that ends first ends all
    os._exit(0)


def between_the_lines(world: xupc.Team) -> None:
    """A handler that reads memory sees a call end: the next one's end is still waited for."""
    x = xupc.all_alloc(world.size, np.int64, 1)
    data = [xupc.all_alloc(8 * world.size, np.uint8, 8) for _ in range(4)]
    armed = [world.rank == 0]
    finish = AsyncCall.finish

    def then_the_signal(pending: AsyncCall) -> None:
        finish(pending)
        if armed[0]:
            armed[0] = False
            signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, lambda *_: int(x[world.size - 1]))
    AsyncCall.finish = then_the_signal  # type: ignore[method-assign]
    world.barrier()
    for _ in range(3):
        armed[0] = world.rank == 0
        handles = [
            xupc.all_broadcast(data[0], data[1], 8, xupc.ASYNC),
            xupc.all_broadcast(data[2], data[3], 8, xupc.ASYNC),
        ]
        for handle in handles:
            handle.wait()
        world.barrier()
    AsyncCall.finish = finish  # type: ignore[method-assign]


def no_finalizer(world: xupc.Team) -> None:
    """No Python runs when a handle that was waited for goes: an interrupt would be lost there."""
    data = [xupc.all_alloc(8 * world.size, np.uint8, 8) for _ in range(2)]
    handle = xupc.all_broadcast(*data, 8, xupc.ASYNC)
    assert hasattr(type(handle), "__del__")
    handle.wait()
    assert type(handle) is Handle
    assert not hasattr(Handle, "__del__")


def late_with_warnings_as_errors(world: xupc.Team) -> None:
    """A warning about a long wait never becomes an error, whatever the warning filters are."""
    warnings.simplefilter("error")
    failure_detector.WARN_AFTER = 0.2
    world.job.timeout = None
    if world.rank == 1:
        time.sleep(1)  # a wait of the others that is longer than WARN_AFTER
    world.barrier()
    world.barrier()


def interrupted_first(world: xupc.Team) -> None:
    """The status is that of the interrupted thread, even if other threads raise first."""
    own = control()
    if world.rank == 0:
        time.sleep(30)  # it never comes
    if world.rank == 1:
        kill_when(lambda: await_wait([own.index]), signal.SIGINT, lambda: None)
    try:
        world.barrier()
    except KeyboardInterrupt:
        world.job.control.wait_ends()  # as for a wait that no thread has inspected
        time.sleep(0.1)  # the others have raised by then, or they have not: both must be right
        raise


TRIALS: dict[str, Callable[[xupc.Team], None]] = {
    f.__name__: f
    for f in (
        finalizers, in_a_thread_of_xupc, freed_in_a_function, allocated_in_a_function,
        each_others_memory, odd_errors,
        where_it_was_posted, waited_again, between_the_lines, no_finalizer,
        late_with_warnings_as_errors, interrupted_first,
    )
}  # fmt: skip
FOLDER = Path(sys.argv[2])
if sys.argv[1] == "each_others_memory":  # without the thread that moves calls on
    import mpi4py

    mpi4py.rc.thread_level = "serialized"
TRIALS[sys.argv[1]](xupc.init(timeout=10))
print("done", flush=True)
