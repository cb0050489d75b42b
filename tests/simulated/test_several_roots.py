"""Several roots per node: every variant on every placement, what each root sends, broken plans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from simulated import reductions, values
from simulated.matrix import (
    MEANING,
    SYNCS,
    TUNINGS,
    Planner,
    Story,
    WrongMemoryError,
    arguments,
    partitions,
    placements,
    roots_of,
)
from simulated.mutations import mutations
from support.soak import amount, seed, share

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Variant, registered, with_roots
from xupc.algorithms.several_roots import can_have_stripes
from xupc.backends.simulator.errors import SimulationError
from xupc.flags import MULTICORE
from xupc.plan.plan import Plan
from xupc.plan.recorder import DST, SRC, trace
from xupc.plan.steps import Send
from xupc.topology.tree import Tree

VARIANTS = [v for e in registered() for v in e.variants if can_have_stripes(e.collective, v.label)]
BLOCKS = [v for v in VARIANTS if v.collective in MEANING]
REDUCTIONS = [v for v in VARIANTS if v.collective in reductions.ALL_FORMS]
PRIVATE = [v for v in VARIANTS if v.collective.startswith("allav_")]
ROOTS = (1, 2, 3, 4)
LINES = 64 // reductions.ITEM
"""Elements of a cache line."""
LONGEST = 5 * LINES
"""Elements of a block. A thread has two, and those before the first thread begin a block later."""


def ids(variants: Sequence[Variant]) -> list[str]:
    return [f"{v.collective}-{v.label}" for v in variants]


def test_which_variants_there_are() -> None:
    assert len(BLOCKS) + len(REDUCTIONS) + len(PRIVATE) == len(VARIANTS)
    assert {v.collective for v in BLOCKS} == {
        "broadcast", "broadcast_in_place", "gather_all", "gather_all_in_place", "exchange",
    }  # fmt: skip
    assert {v.collective for v in REDUCTIONS} == {"reduce_mpi_all"}
    assert {v.collective for v in PRIVATE} == {
        "allav_broadcast", "allav_gather_all", "allav_exchange", "allav_reduce_all",
    }  # fmt: skip
    assert {v.flag for v in VARIANTS} == {MULTICORE}


def every_placement() -> list[list[int]]:
    """Return all placements of up to four threads on several nodes, and some of up to eight."""
    found = [p for threads in (2, 3, 4) for p in partitions(threads)]
    found += [p for threads in (5, 7, 8) for p in placements(threads).values()]
    return [p for p in found if max(p)]


def sampled(variant: Variant, per: int) -> list[tuple[list[int], int, random.Random]]:
    """Return placements and numbers of roots for a variant, all of them in a soak."""
    rng = random.Random(f"{seed()} roots {variant.collective} {variant.label}")
    every = list(product(every_placement(), ROOTS))
    some = rng.sample(every, amount(per, len(every)))
    return [(labels, roots, random.Random(rng.random())) for labels, roots in some]


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("variant", BLOCKS, ids=ids(BLOCKS))
def test_blocks(variant: Variant) -> None:
    """No race, no deadlock, every byte right: any root, sync modes, lengths that k does not divide.

    Each story has three calls in a row, so one may run into the next.
    """
    for labels, roots, rng in sampled(variant, 14):
        way, tree = with_roots(variant, roots), Tree(labels)
        tuning, sizes = TUNINGS[rng.choice(list(TUNINGS))]
        n = rng.choice(sizes) * rng.choice((1, 7, 16))
        story, calls = Story(Planner(tree), tree.size * n, rng.randrange(1 << 30)), 0
        for _ in range(3):
            root, sync = rng.choice(roots_of(way, tree.size)), rng.choice(SYNCS)
            given = arguments(way.collective, tree.size, root, n)
            if way.can_run(CallFacts(tree, tuning, sync, given)):
                story.call(way, root, n, sync, tuning, tight=rng.random() < 0.6)
                calls += 1
        if calls:
            _run(story, rng, f"{way.name} {labels} {n}")


def _run(story: Any, rng: random.Random, name: str) -> None:
    """Run a story, sometimes under a random schedule; a failure names the case."""
    try:
        story.run(rng.randrange(1 << 30) if rng.random() < 0.4 else None)
    except Exception as problem:
        problem.add_note(name)
        raise


def job_of(form: str, threads: int, rng: random.Random) -> reductions.Job:
    """Return a reduction of one or two blocks on each thread, the last one not always whole."""
    block = rng.choice([1, LINES, 2 * LINES + 3, 40, LONGEST])
    nelems = block * threads * rng.choice([1, 1, 2]) - rng.choice([0, 0, block // 2, block - 1])
    in_place = rng.random() < 0.4
    first = 0 if in_place else rng.randrange(threads)
    return reductions.Job(form, threads, first, 0, block, nelems, 0, False, (0, 0, 0), in_place)


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("variant", REDUCTIONS, ids=ids(REDUCTIONS))
def test_reductions(variant: Variant) -> None:
    """The same for reductions of shared blocks, on symbols: each operand is in each result once."""
    ran = 0
    for labels, roots, rng in sampled(variant, 24):
        way, tree, kernel = with_roots(variant, roots), Tree(labels), reductions.Symbols(False)
        tuning = reductions.tuning_of(rng.choice(list(TUNINGS)))
        space = 3 * LONGEST * reductions.ITEM + reductions.Calls.shift
        story, calls = reductions.Calls(Planner(tree), space, kernel, rng.randrange(1 << 30)), 0
        for _ in range(3):
            job, sync = job_of(way.collective, tree.size, rng), rng.choice(SYNCS)
            if way.can_run(CallFacts(tree, tuning, sync, job.arguments(), kernel)):
                story.reduce(job, way, sync, tuning, tight=rng.random() < 0.6)
                calls += 1
        if calls:
            _run(story, rng, f"{way.name} {labels}")
            ran += 1
    assert ran > 12


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("variant", PRIVATE, ids=ids(PRIVATE))
def test_private_arrays(variant: Variant) -> None:
    """The same for private arrays: four calls in a row that use the same scratch."""
    form, ran = variant.collective.removeprefix("allav_"), 0
    for labels, roots, rng in sampled(variant, 24):
        name = rng.choice(list(values.VALUES))
        nbytes = rng.choice(values.SIZES[name]) * rng.choice((1, 4))
        in_place = form == "broadcast" or (form in values.IN_PLACE and rng.random() < 0.5)
        label = with_roots(variant, roots).label
        root = rng.randrange(len(labels))
        one = values.One(form, variant.flag, root, nbytes, in_place, False, label)
        tree, kernel = Tree(labels), reductions.Symbols(False)
        tuning = values.tuning_of(name)
        made = values.snapshot(one, tree, tuning)
        if with_roots(variant, roots).can_run(values.facts(made, tree, tuning, kernel)):
            draw = rng.randrange(1 << 30)
            case = values.Case(form, variant.flag, tuple(labels), name, False, draw)
            try:
                case.run(draw if rng.random() < 0.3 else None, first=one)
            except Exception as problem:
                problem.add_note(f"{one}")
                raise
            ran += 1
    assert ran > 2  # of 24; 13 in the mean for the one that can run in the fewest


# --- what each root sends -------------------------------------------------------------------------
def sends(plans: list[Plan], tree: Tree) -> dict[int, tuple[int, int]]:
    """Return the bytes that each thread sends to other nodes, and its messages; only of senders."""
    found = {}
    for plan in plans:
        messages = sum(step.to.count for step in plan.steps if isinstance(step, Send))
        if messages:
            found[plan.rank] = plan.bytes_between_nodes(tree.node_of), messages
    return found


def plans_of(variant: Variant, tree: Tree, given: Sequence[object]) -> list[Plan]:
    tuning = TUNINGS["large"][0]
    return [
        trace(variant.function, variant.name, variant.collective, me, tree, SYNC, tuning, given)
        for me in range(tree.size)
    ]


SYNC = "all", "all"


@pytest.mark.parametrize("roots", [2, 3, 4])
@pytest.mark.parametrize("root", [0, 5])
def test_bytes_and_messages_of_each_root(roots: int, root: int) -> None:
    """Each root of a node sends its part of each block, and all roots as many bytes as one does."""
    tree, n = Tree([i // 4 for i in range(16)]), 64 * 12
    for collective, label, given in (
        ("broadcast", "chain", (DST, SRC, root, n)),
        ("broadcast", "circulant", (DST, SRC, root, n)),
        ("gather_all", "rounds", (DST, SRC, n)),
        ("gather_all", "ring", (DST, SRC, n)),
        ("exchange", "rounds", (DST, SRC, n)),
    ):
        (variant,) = (v for v in BLOCKS if (v.collective, v.label) == (collective, label))
        one = sends(plans_of(variant, tree, given), tree)
        several = sends(plans_of(with_roots(variant, roots), tree, given), tree)
        assert len(several) == roots * len(one), (collective, label)
        for node in range(4):
            before = [one[x][0] for x in one if tree.node_of(x) == node]
            after = [several[x][0] for x in several if tree.node_of(x) == node]
            if label != "circulant":  # there a node's part depends on the number of chunks
                assert sum(after) == sum(before)
            assert len(set(after)) <= 1, "equal parts, as roots divides the lines of a block"
        total, shared = (sum(n for n, _ in x.values()) for x in (one, several))
        assert total == shared
        whole, parts = (sum(m for _, m in x.values()) for x in (one, several))
        assert whole <= parts <= whole + 16 * roots, "the messages are as long as with one root"


def test_a_node_of_fewer_threads_than_roots() -> None:
    """Its threads are roots of several stripes each; larger nodes have a root for each stripe."""
    tree = Tree([0, 0, 0, 0, 1, 2, 2])
    (ring,) = (v for v in BLOCKS if (v.collective, v.label) == ("gather_all", "ring"))
    found = sends(plans_of(with_roots(ring, 4), tree, (DST, SRC, 64 * 8)), tree)
    assert sorted(found) == [0, 1, 2, 3, 4, 5, 6]


def test_short_blocks_have_fewer_stripes() -> None:
    """No message is empty: a block of two lines has two stripes, whatever the roots."""
    tree = Tree([0, 0, 0, 1, 1, 1])
    (chain,) = (v for v in BLOCKS if (v.collective, v.label) == ("broadcast", "chain"))
    for n, threads in ((1, 1), (64, 1), (65, 2), (129, 3), (1000, 3)):
        found = sends(plans_of(with_roots(chain, 3), tree, (DST, SRC, 0, n)), tree)
        assert len(found) == threads, n


# --- broken plans ---------------------------------------------------------------------------------
@pytest.mark.soak
@pytest.mark.parametrize("collective", ["broadcast", "gather_all"])
def test_broken_plans_are_noticed(collective: str) -> None:
    """A message that is missing, goes elsewhere or carries another part ends no call right."""
    label = {"broadcast": "chain", "gather_all": "ring"}[collective]
    (variant,) = (v for v in BLOCKS if (v.collective, v.label) == (collective, label))
    way, tree, n = with_roots(variant, 2), Tree([0, 1, 1, 0, 0, 2, 2]), 130
    whole, sync, tuning = Planner(tree), ("my", "my"), TUNINGS["large"][0]
    plans = [p.plan for p in whole.programs(way, sync, tuning, 0, n)]
    kinds = ("Send", "Recv", "drop Wait:", "wrong")
    broken = [m for m in mutations(plans) if any(kind in m.name for kind in kinds)]
    assert len(broken) > 60
    for mutation in random.Random(seed()).sample(broken, amount(share(25), len(broken))):
        story = Story(whole.with_plans(plans, mutation.plans), tree.size * n, 1)
        for tight in (True, False):
            story.call(way, 0, n, sync, tuning, tight=tight)
        try:
            story.run(at_once=True)
        except (SimulationError, WrongMemoryError):
            continue
        pytest.fail(f"{mutation}")
