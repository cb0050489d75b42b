"""The barriers of simulated teams and of the user's program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...topology.tree import Tree
from .data_movement import run_local
from .sim_program import FUSED
from .state import Lane, Stream, UserThread, World

__all__ = ["enter_barrier", "enter_user_barrier"]


def enter_user_barrier(world: World, thread: UserThread) -> None:
    """Arrive at a barrier of the user's program; the last thread to arrive releases all."""
    here = world.at_barrier
    here.append(thread)
    if len(here) < len(world.threads):
        _compare(world)
        return
    known = 0
    for t in here:
        known |= t.known
    world.at_barrier = []
    for t in here:
        t.known |= known
        world.push(t)


def _compare(world: World) -> None:
    """Report that all threads are at a barrier, but not at the same one."""
    calls = world.arrived.get(world.all_threads, [])
    users = world.at_barrier
    if calls and users and len(calls) + len(users) == len(world.threads):
        seen = [f"thread {t.thread.number} in {what}" for t, what in calls]
        seen += [f"thread {t.number} in user barrier before call {t.calls}" for t in users]
        world.protocol.append(f"different calls at a barrier: {', '.join(seen)}")


def enter_barrier(world: World, lane: Lane, arg: Any) -> bool:
    """Arrive at a barrier of the team; the last thread to arrive releases all."""
    stream = lane.owner
    arrived = world.arrived.setdefault(stream.team, [])
    arrived.append((stream, f"call {stream.calls}"))
    if len(arrived) < len(stream.team):
        _compare(world)
    else:
        _release(world, arrived)
    return False


def _release(world: World, arrived: list[tuple[Stream, str]]) -> None:
    first, expected = arrived[0]
    if any(what != expected for _, what in arrived):
        seen = ", ".join(f"thread {t.thread.number} in {what}" for t, what in arrived)
        world.protocol.append(f"different calls at a barrier: {seen}")
        return  # no thread continues
    assert first.call is not None
    tree = first.call.programs[first.rank].tree
    knowledge = [0] * tree.size
    for t, _ in arrived:
        knowledge[t.rank] = t.lanes[0].known
    known = _pass_on(knowledge, tree)
    kinds = {t.lanes[0].steps[t.lanes[0].at][0] for t, _ in arrived}
    if len(kinds) > 1:
        world.protocol.append(f"a barrier meets a fused one: {first.lanes[0].where}")
        return
    if kinds == {FUSED}:
        bit = _fused(world, arrived, known)
        knowledge = [each | bit for each in knowledge]
    del world.arrived[first.team]
    for t, _ in arrived:
        lane = t.lanes[0]
        lane.known = knowledge[t.rank]
        lane.epoch = 0
        lane.at += 1
        world.push(lane)


def _pass_on(knowledge: list[int], tree: Tree) -> int:
    """Pass the knowledge of threads up to the tops of their nodes, between those, and down again.

    Parameters
    ----------
    knowledge : list of int
        The bits that each thread has; changed.

    Returns
    -------
    int
        The bits that the tops have. Parents are lower than their children.
    """
    known = 0
    edges: list[tuple[int, int]] = []  # child and parent; parents before their own parents
    tops = []
    for node in range(tree.node_count):
        members, levels = tree.members(node).tolist(), tree.levels(node)
        for child, parent in reversed(list(enumerate(levels.parents))):
            if parent >= 0:
                edges.append((members[child], members[parent]))
        tops.append(members[0])
    for child, parent in edges:
        knowledge[parent] |= knowledge[child]
    for top in tops:
        known |= knowledge[top]
    for top in tops:
        knowledge[top] = known
    for child, parent in reversed(edges):
        knowledge[child] |= knowledge[parent]
    return known


def _fused(world: World, arrived: Sequence[tuple[Stream, str]], known: int) -> int:
    """Run the body of a fused barrier on one thread, which knows what all threads knew."""
    last = arrived[-1][0]
    by, _, body = last.lanes[0].steps[last.lanes[0].at][1]
    for t, _ in arrived:
        other, _, others = t.lanes[0].steps[t.lanes[0].at][1]
        if other != by or (by is None and others != body):
            world.protocol.append(f"fused differently: {t.lanes[0].where}")
    executor = last if by is None else next(t for t, _ in arrived if t.rank == by)
    lane = executor.lanes[0]
    bit = world.new_bit()
    for _kind, what in lane.steps[lane.at][1][1]:
        run_local(world, executor, what, known | bit, bit, (lane.head, lane.at))
    return bit
