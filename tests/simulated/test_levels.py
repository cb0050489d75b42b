"""The variants by levels below a node, on machines of up to 8 threads and on some large ones."""

from __future__ import annotations

import random

import pytest
from simulated.level_trees import made, nested, shuffled, tree_of
from simulated.matrix import (
    GUARD,
    MEANING,
    SYNCS,
    TUNINGS,
    Planner,
    Story,
    roots_of,
)
from support.soak import amount, seed

from xupc.algorithms.registry import registered
from xupc.backends.simulator.errors import ProtocolError
from xupc.backends.simulator.sim_program import Program
from xupc.plan.plan import Plan
from xupc.plan.steps import BlockRef, Copy, Ranks, Step, Wait
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
    parts = max(1, every // amount(60, 2))
    assert check_nested(threads, seed() % parts, parts) >= len(VARIANTS)


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
