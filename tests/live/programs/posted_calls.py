"""Posted calls whose teams progress inside each other's waits. The argument selects the trial."""

from __future__ import annotations

import contextvars
import functools
import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from support.checked_calls import Within, raises
from support.handshakes import await_others, meet
from support.polling import until

import xupc
from xupc import CollectiveMismatchError, XupcError

warnings.simplefilter("ignore", RuntimeWarning)  # of abandoned handles
BLOCK = 64


def arrays(team: xupc.Team) -> tuple[xupc.SharedArray, xupc.SharedArray]:
    """dst and src with a block on each thread of a team."""
    return tuple(xupc.all_alloc(BLOCK * team.size, np.uint8, BLOCK, team=team) for _ in range(2))


def mixed(world: xupc.Team) -> None:
    """Calls that node roots lead, and calls that read on other nodes, on three teams at once."""
    teams = [world, world.split(0), world.split(0, -world.rank)]
    mine, alike = random.Random(world.rank), random.Random(3)
    for _ in range(150):
        left = {
            k: [(alike.choice([0, xupc.PULL]), alike.choice([1, 8, 100])) for _ in range(2)]
            for k in range(3)
        }
        handles = []
        while left:  # each team's calls in one order, the teams' in any
            k = mine.choice(sorted(left))
            flag, n = left[k].pop()
            if not left[k]:
                del left[k]
            sums = np.zeros(n)
            handle = xupc.allav_reduce_all(
                sums, np.full(n, 1.0 + world.rank), xupc.ADD, flags=flag | xupc.ASYNC, team=teams[k]
            )
            handles.append((handle, sums))
        mine.shuffle(handles)
        for handle, sums in handles:
            handle.wait()
            assert (sums == world.size * (world.size + 1) / 2).all()


def crosswise(world: xupc.Team) -> None:
    """Calls that differ on two teams, waited for in another order by each thread."""
    teams = [world.split(0), world.split(0)]
    data = [arrays(team) for team in teams]
    for _ in range(20):
        order = (0, 1) if world.rank % 2 else (1, 0)
        handles = [
            xupc.all_broadcast(*data[k], 8 + (world.rank == 1), xupc.ASYNC, team=teams[k])
            for k in order
        ]
        for handle in handles:
            raises(CollectiveMismatchError, ("nbytes",), handle.wait)
        world.barrier()


def behind_a_split(world: xupc.Team) -> None:
    """Calls that differ on one team while all are in calls of MPI's on another one."""
    team = world.split(0)
    dst, src = arrays(team)
    mine = random.Random(world.rank)
    for k in range(40):
        odd = world.rank == k % world.size
        handles = [
            xupc.all_broadcast(dst, src, 8 + (i == 2 and odd), xupc.ASYNC, team=team)
            for i in range(3)
        ]
        if mine.random() < 0.5:
            time.sleep(mine.random() * 5e-4)  # another order of calls and messages each time
        if k % 2:
            world.split(0).free()
        else:
            xupc.all_free(xupc.all_alloc(100))
        for handle in handles[:2]:
            handle.wait()
        raises(CollectiveMismatchError, ("nbytes",), handles[2].wait)


def never_blocks(world: xupc.Team) -> None:
    """A call that differs is posted while another thread, which has posted its own, is away."""
    team = world.split(0)
    dst, src = arrays(team)
    back = xupc.all_alloc(world.size, "i4", 1)
    if world.rank:
        handle = xupc.all_broadcast(dst, src, 8, xupc.ASYNC, team=team)
        back.local[0] = 1
        until(lambda: back.local[0] == 2, "the other thread has posted while this one is away")
    else:
        until(lambda: back[1], "the other thread has posted")
        handle = xupc.all_broadcast(dst, src, 16, xupc.ASYNC, team=team)
        back[1] = 2
    raises(CollectiveMismatchError, ("nbytes",), handle.wait)


def free_with_parts(world: xupc.Team) -> None:
    """What was posted on a team's node comes to its end before the team is freed."""
    for k in range(4):
        team = world.split(0)
        for part in (team.node, team.roots):
            if part is not None:
                part.barrier()
        sums = np.zeros(8)
        world.barrier()
        if world.rank == k % world.size:
            await_others()  # they cannot free the team before this thread comes
        handles = [
            xupc.allav_reduce_all(sums, np.ones(8), xupc.ADD, flags=xupc.ASYNC, team=team.node)
            for _ in range(2)
        ]
        size = team.node.size
        team.free()
        for handle in handles:
            handle.wait()
        assert (sums == size).all()


def dropped(world: xupc.Team) -> None:
    """A handle that is dropped leaves its call under way, and its memory in use."""
    p = xupc.alloc(BLOCK * world.size) if world.rank == 0 else None
    if p is not None:
        p[0 : BLOCK * world.size] = np.full(BLOCK * world.size, 7, np.uint8)
    q = xupc.allv_broadcast(p, 0)
    dst, _ = arrays(world)
    world.barrier()
    if world.rank:
        meet()  # thread 0 has dropped its handle
    handle = xupc.all_scatter(dst, q, BLOCK, xupc.ASYNC | xupc.PULL)
    if world.rank == 0:
        del handle
        gc.collect()
        raises(ValueError, ("all_scatter",), lambda: xupc.free(p))
        meet()
    else:
        handle.wait()
    world.barrier()
    assert (dst.local == 7).all()
    if world.rank == 0:
        xupc.free(p)
    plan = xupc.all_scatter.plan(dst, xupc.all_alloc(BLOCK * world.size, np.uint8, 0), BLOCK)
    world.barrier()
    plan.start()  # its handle is gone at once
    plan()
    plan.start().wait()


def dropped_elsewhere(world: xupc.Team) -> None:
    """Another Python thread drops handles while memory is freed."""
    handles = [
        xupc.allav_reduce_all(np.zeros(1), np.ones(1), xupc.ADD, flags=xupc.ASYNC)
        for _ in range(2000)
    ]
    world.barrier()
    thread = threading.Thread(target=handles.clear)
    thread.start()
    while thread.is_alive():
        xupc.free(xupc.alloc(8))
    thread.join()
    world.barrier()


def at_the_end(world: xupc.Team) -> None:
    """Differing calls of a team raise an error when the team, or the job, ends."""
    flags = xupc.IN_NOSYNC | xupc.OUT_NOSYNC
    for where in (lambda team: team, lambda team: team.node):
        team = world.split(0)
        on = where(team)
        data = arrays(world)
        odd = on.size > 1 and world.rank == on.threads[-1]

        def differ(on: xupc.Team = on, n: int = 8 + odd, data: Any = data) -> None:
            xupc.all_broadcast(*data, n, flags, team=on)
            (on.parent if on.parent is not world else on).free()

        words = ("nbytes",) if on.size > 1 else ()  # or one of those of another node's threads
        raises(CollectiveMismatchError, words, differ)
        team.free()
    team = world.split(0)
    team.notify()
    raises(XupcError, ("notify",), xupc.finalize)
    team.wait()
    if world.rank == 0:
        xupc.all_broadcast(*arrays_of_world, 8, flags, team=team)
    raises(CollectiveMismatchError, ("all_broadcast",), xupc.finalize)


def against_others(world: xupc.Team) -> None:
    """Ending a team or the job raises if other threads do not, or cannot yet; all go on."""
    me = world.rank
    team = world.split(0)
    team.node.barrier()
    handle = xupc.all_broadcast(*arrays_of_world, 8, xupc.ASYNC)
    kinds = XupcError, CollectiveMismatchError
    if me:
        handle.wait()
    raises(kinds, (), xupc.finalize)
    handle.wait()
    raises(CollectiveMismatchError, ("finalize",), world.barrier if me == 0 else xupc.finalize)
    raises(CollectiveMismatchError, ("free",), team.barrier if me == 0 else team.free)

    def bad(a: float, b: float) -> float:
        raise ZeroDivisionError("mine")

    flags = xupc.IN_NOSYNC | xupc.OUT_NOSYNC
    for end in (team.free, xupc.finalize):
        on = team.node if end == team.free else world.split(0).node
        dst, src = (xupc.all_alloc(on.size, np.int64, 1, team=on) for _ in range(2))

        def both(on: Any = on, dst: Any = dst, src: Any = src, end: Any = end) -> None:
            xupc.all_reduce(dst, src, xupc.FUNC, on.size, func=bad, flags=flags, team=on)
            end()

        raises((ZeroDivisionError, *kinds) if on.size > 1 else kinds, (), both)
    team.free()


def dropped_on_a_part(world: xupc.Team) -> None:
    """A call whose handle is gone comes to its end before its team is freed."""
    for k in range(6):
        team = world.split(0)
        dst, src = (xupc.all_alloc(8 * team.node.size, "u1", 8, team=team.node) for _ in range(2))
        if k % world.size == world.rank:
            await_others()
        handle = xupc.all_broadcast(dst, src, 8, xupc.ASYNC, team=team.node)
        del handle
        team.free()
    plan = xupc.all_broadcast.plan(*arrays_of_world, 8, xupc.ASYNC)
    for k in range(20):
        if k % world.size == world.rank:
            time.sleep(0.002)  # so late that others begin without it
        plan()


def functions_inside(world: xupc.Team) -> None:
    """A function that waits for memory, while another one is called, may still call nothing."""
    team = world.split(0)
    within = Within()
    running: list[str] = []
    inside: list[str] = []  # in what the inner function was called
    refused: list[str] = []

    def inner(a: int, b: int) -> int:
        inside.extend(running)
        return a + b

    def outer(a: int, b: int) -> int:
        running.append("outer")
        within.hold(inside)
        running.clear()
        raises(XupcError, ("not allowed in a function",), world.barrier)
        refused.append("barrier")
        return a + b

    one = [xupc.all_alloc(world.size, np.int64, 1, team=team) for _ in range(2)]
    post = functools.partial(
        xupc.all_reduce, *one, xupc.FUNC, world.size, func=inner, flags=xupc.ASYNC, team=team
    )
    for _ in range(5):
        inside.clear()
        refused.clear()
        within.run(outer, post)
        if world.rank == 0:
            assert (inside, refused) == (["outer"], ["barrier"])


def context(world: xupc.Team) -> None:
    """A posted call's function sees the context variables of the post, as after `errstate`."""
    team = world.split(0)
    place = contextvars.ContextVar("place", default="none")
    one = [xupc.all_alloc(world.size, np.int64, 1, team=team) for _ in range(2)]
    seen: list[tuple[str, str]] = []

    def function(a: int, b: int) -> int:
        seen.append((place.get(), np.geterr()["over"]))
        return a + b

    for _ in range(5):
        seen.clear()
        place.set("post")
        with np.errstate(over="call"):
            handle = xupc.all_reduce(
                *one, xupc.FUNC, world.size, func=function, flags=xupc.ASYNC, team=team
            )
        place.set("wait")
        handle.wait()
        world.barrier()
        if world.rank == 0:
            assert set(seen) == {("post", "call")}, seen


def difference_and_split(world: xupc.Team) -> None:
    """Messages that create a communicator are not mistaken for reports of differing calls."""
    mine = random.Random(world.rank)
    dst, src = arrays_of_world
    team = world.split(0)
    for _ in range(60):
        handle = xupc.all_broadcast(dst, src, 4 if world.rank else 8, xupc.ASYNC)
        time.sleep(mine.random() * 2e-3)  # another order of messages each time
        other = team.split(0)
        raises(CollectiveMismatchError, ("nbytes",), handle.wait)
        other.free()


def numbers(world: xupc.Team) -> None:
    """There are numbers for teams as long as not all of them are in use."""
    world.job.next_team = (1 << 17) - 2
    kept, held = [], []
    for k in range(8):
        team = world.split(0)
        array = xupc.all_alloc(BLOCK * team.size, np.uint8, BLOCK, team=team)
        pointers = xupc.all_alloc(1, xupc.pointer_dtype)
        if world.rank == 0:
            pointers[0] = array.ptr(3)
        world.barrier()
        assert pointers[0] == array.ptr(3)
        team.barrier()
        kept.append(team.number)
        if k % 3:
            team.free()
        else:
            held.append(team)  # a dropped one would be given back, and its number with it
    assert kept[:3] == [(1 << 17) - 2, (1 << 17) - 1, 1]
    world.job.next_team = 1 << 17
    team.node.barrier()  # which has a lower number
    assert len({kept[0], kept[3], kept[6]}) == 3, kept

    # Offsets come again with a number: plans of other teams, which know addresses, go.
    src = xupc.all_alloc(BLOCK * world.size, np.uint8, BLOCK)
    src.local[:] = world.rank + 1
    blocks, perm = tuple(src.ptr(BLOCK * r) for r in range(world.size)), tuple(range(world.size))
    views = []
    for _ in range(3):
        world.job.next_team = 1 << 17
        team = world.split(0)
        array = xupc.all_alloc(BLOCK * team.size, np.uint8, BLOCK, team=team)
        views.append(array.local)  # keeps the mapping, so that another one lies elsewhere
        places = tuple(array.ptr(BLOCK * r) for r in range(world.size))
        xupc.all_permute_x(places, blocks, perm, (8,) * world.size)
        assert views[-1][:8].tolist() == [world.rank + 1] * 8, (team.number, views[-1][:8])
        world.barrier()
        team.free()


def interrupted(world: xupc.Team) -> None:
    """An interrupt between the steps of a call that all make leaves no thread waiting."""
    from xupc.comm.setup_collectives import Agreement

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if world.rank == 0:
        Agreement.gather_all = interrupt
        raises(KeyboardInterrupt, (), lambda: world.split(0))
        raises(XupcError, ("interrupted inside split",), world.barrier)
    else:
        raises(XupcError, ("thread 0", "interrupted inside split"), lambda: world.split(0))
    print("done", flush=True)
    meet()  # the thread that ends first ends all
    os._exit(0)


def stopped(world: xupc.Team) -> None:
    """A thread stops where MPI waits for it: the others' time runs out there, too."""
    from xupc.comm.team_comm import TeamComm

    among = TeamComm.among

    def stop(*args: object) -> object:
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return among(*args)

    TeamComm.among = stop
    world.split(0)


TRIALS: dict[str, Callable[[xupc.Team], None]] = {
    f.__name__: f
    for f in (
        mixed, crosswise, behind_a_split, never_blocks, free_with_parts, dropped,
        dropped_elsewhere, dropped_on_a_part, at_the_end, against_others, functions_inside,
        context, difference_and_split, numbers, interrupted, stopped,
    )
}  # fmt: skip
world_ = xupc.init(timeout=float(sys.argv[2]))
arrays_of_world = arrays(world_)
TRIALS[sys.argv[1]](world_)
print("done", flush=True)
