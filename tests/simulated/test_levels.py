"""The variants by levels below a node, on machines of up to 8 threads and on some large ones."""

from __future__ import annotations

import random

import pytest
from simulated.level_trees import made, nested, on_nodes, shuffled, tree_of
from simulated.matrix import (
    GUARD,
    MEANING,
    SYNCS,
    TUNINGS,
    Planner,
    Story,
    placements,
    roots_of,
)
from support.soak import amount, seed, share, share_of

from xupc.algorithms.registry import registered
from xupc.backends.simulator.errors import ProtocolError, RaceError
from xupc.backends.simulator.script import Call
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.plan.plan import Plan
from xupc.plan.steps import Barrier, BlockRef, Copy, Ranks, Step, Wait
from xupc.topology.levels import NodeLevels, node_levels
from xupc.topology.machine import describe
from xupc.topology.tree import Tree

VARIANTS = {
    (v.collective, v.name): v
    for e in registered()
    for v in e.variants
    if v.label == "levels" and v.collective in MEANING
}
LARGE = ["2x8x12", "socket:2,numa:2,l3:2,core:3,thread:2", "8,8/8,6", "3,1/2,2"]


def check(levels: NodeLevels, rng: random.Random) -> int:
    """Check the variants on one node with these levels; return how many sequences of calls."""
    return check_calls(Planner(tree_of(levels)), rng)


def check_calls(planner: Planner, rng: random.Random) -> int:
    """Simulate each variant in some calls in a row; return how many sequences."""
    size = planner.tree.size
    for variant in VARIANTS.values():
        tuning, sizes = TUNINGS[rng.choice(list(TUNINGS))]
        n = rng.choice(sizes)
        story = Story(planner, size * n + GUARD, rng.randrange(1 << 30))
        for _ in range(3):
            root = rng.choice(roots_of(variant, size))
            story.call(variant, root, n, rng.choice(SYNCS), tuning, tight=rng.random() < 0.6)
        story.run()
    return len(VARIANTS)


def check_nested(threads: int, part: int, parts: int) -> int:
    """Check every tree of so many threads, half of them with the threads in another order."""
    done = 0
    for i, levels in enumerate(nested(threads)):
        if i % parts == part:
            rng = random.Random(f"{seed()} {threads} {i}")
            done += check(shuffled(levels, rng) if i % 2 else levels, rng)
    return done


@pytest.mark.soak
@pytest.mark.parametrize("threads", range(1, 9))
def test_every_tree_of_levels(threads: int) -> None:
    """No race, no deadlock, every byte right."""
    every = sum(1 for _ in nested(threads))
    parts = max(1, every // amount(share(60), 2))
    assert check_nested(threads, seed() % parts, parts) >= len(VARIANTS)


@pytest.mark.soak
@pytest.mark.parametrize("threads", [2, 3, 5, 7, 8])
def test_levels_inside_several_nodes(threads: int) -> None:
    """One copy per node, then by levels: nodes of any sizes, with levels of their own."""
    rng = random.Random(f"{seed()} {threads}")
    for labels in share_of([*placements(threads).values()]):
        for _ in range(amount(2, 40)):
            check_calls(Planner(on_nodes(labels, rng)), rng)


@pytest.mark.rotates
@pytest.mark.parametrize("machine", LARGE)
def test_large_machines(machine: str) -> None:
    found = describe(machine)
    rng = random.Random(machine)
    assert check(node_levels(found, found.masks(len(found.cpus))), rng)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Wait(0, Ranks(0, 2, 2)), "do not follow each other on the node"),
        (Copy(BlockRef(0, 0, 0, 1), BlockRef(1, 0), 8, 3), "not equally far apart"),
    ],
)
def test_a_step_that_the_core_cannot_run_is_refused(step: Step, words: str) -> None:
    """The team lacks thread 2 of its node, so its memory has a gap."""
    tree = Tree([0] * 4).sub([0, 1, 3])
    plan = Plan("test", "test", 0, 3, ((step,), ()), 0, ("no", "no"))
    with pytest.raises(ProtocolError, match=words):
        Program(plan, tree)


def test_a_team_whose_memory_is_not_in_the_order_of_its_ranks() -> None:
    """Rows of blocks end where the memory of the next thread is not as far away."""
    levels = made(8, [(8,), (6, 2)])
    tree = tree_of(levels).sub([1, 3, 5, 4, 0, 6, 7])
    check_calls(Planner(tree), random.Random(1))


# --- barriers -------------------------------------------------------------------------------------
def meet(levels: NodeLevels, number: int) -> None:
    """Simulate threads that write, meet at a barrier, and read what all others wrote."""
    size, tree = levels.size, tree_of(levels)
    plans = []
    for me in range(size):
        reads = [Copy(BlockRef(0, me, 8 * j), BlockRef(1, j), 8) for j in range(size)]
        steps = (Copy(BlockRef(1, me), BlockRef(2, me), 8), Barrier(), *reads)
        plans.append(Plan("test", "test", me, size, (steps, ()), 0, ("no", "no")))
    rows = {name: [bytearray(8 * size) for _ in range(size)] for name in ("dst", "own", "src")}
    call = Call([Program(plan, tree) for plan in plans], tuple((name, 0) for name in rows))
    Simulation(tree, rows, [[call]] * size, number).run()


@pytest.mark.parametrize("threads", [2, 4, 6, 8])
def test_a_barrier_passes_on_what_each_thread_knows(threads: int) -> None:
    """By each tree of levels, so that no read races with a write."""
    for number, levels in enumerate(nested(threads)):
        if number % 7 == threads % 7 or threads < 6:
            meet(shuffled(levels, random.Random(number)), number)


@pytest.mark.parametrize("lost", range(1, 8))
def test_a_thread_that_is_missing_in_the_tree_is_noticed(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = [(8,), (4, 4), (2, 2, 2, 2)]
    right = made(8, shape).parents
    wrong = tuple(-1 if thread == lost else parent for thread, parent in enumerate(right))
    monkeypatch.setattr(NodeLevels, "parents", wrong)
    with pytest.raises(RaceError):
        meet(made(8, shape), 1)
