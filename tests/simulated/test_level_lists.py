"""The `_v` and `_x` forms by levels: on every tree of levels of a few threads, any lists."""

from __future__ import annotations

import random

import pytest
from simulated.level_trees import nested, on_nodes, shuffled, tree_of
from simulated.matrix import SYNCS, TUNINGS, placements
from simulated.transfers import ListPlanner, ListStory
from support.soak import amount, seed, share, share_of

from xupc.algorithms.registry import Variant, find
from xupc.backends.simulator.errors import RaceError
from xupc.flags import MULTICORE
from xupc.topology.levels import node_levels
from xupc.topology.machine import describe
from xupc.topology.tree import Tree

LENGTHS = (1, 17, 40)


def by_levels(collective: str) -> Variant:
    return next(v for v in find(collective, MULTICORE).variants if v.label == "levels")


VARIANTS = [by_levels("broadcast_x"), by_levels("gather_all_x")]


def check(tree: Tree, rng: random.Random, *, schedule: int | None = None) -> None:
    """Simulate some calls in a row of each variant."""
    planner = ListPlanner(tree)
    for variant in VARIANTS:
        n = rng.choice(LENGTHS)
        story = ListStory(planner, tree.size * (n + 2), rng.randrange(1 << 30))
        tuning = TUNINGS[rng.choice(list(TUNINGS))][0]
        for _ in range(3):
            lists, sync = rng.randrange(6), rng.choice(SYNCS)
            story.call(variant, lists, n, sync, tuning, tight=rng.random() < 0.6)
        story.run(schedule)


@pytest.mark.soak
@pytest.mark.parametrize("threads", range(1, 9))
def test_every_tree_of_levels(threads: int) -> None:
    """No race, no deadlock, every byte right; half of the trees have their threads in any order."""
    every = list(nested(threads))
    parts = max(1, len(every) // amount(share(15), 2))
    for i, levels in enumerate(every):
        if i % parts == seed() % parts:
            rng = random.Random(f"{seed()} {threads} {i}")
            check(tree_of(shuffled(levels, rng) if i % 2 else levels), rng, schedule=i)


@pytest.mark.soak
@pytest.mark.parametrize("threads", [2, 3, 5, 8])
def test_several_nodes(threads: int) -> None:
    """Nodes of any sizes, each with levels of its own, threads in any order."""
    for labels in share_of([*placements(threads).values()]):
        for i in range(amount(2, 60)):
            rng = random.Random(f"{seed()} {labels} {i}")
            check(on_nodes(labels, rng), rng, schedule=i)


@pytest.mark.parametrize("machine", ["2x4x4", "3,1/2,2"])
def test_larger_machines(machine: str) -> None:
    found = describe(machine)
    rng = random.Random(machine)
    check(tree_of(node_levels(found, found.masks(len(found.cpus)))), rng)


def test_a_reader_that_does_not_wait_for_an_entry_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xupc.algorithms.level_flow.Flow.begin", lambda *_: None)
    found = describe("2x2x2")
    with pytest.raises(RaceError):
        check(tree_of(node_levels(found, found.masks(8))), random.Random(1))
