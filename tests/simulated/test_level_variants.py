"""The variants by levels of private arrays and of reductions, on machines of up to 8 threads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from simulated import reductions, values
from simulated.level_trees import nested, on_nodes, shuffled, tree_of
from simulated.matrix import SYNCS, Planner, placements
from simulated.reductions import ITEM, Calls, Trees
from simulated.test_reductions import brackets
from simulated.test_values import expressions
from simulated.values import JOINS, MOVES, SIZES, VALUES, One, facts, tuning_of
from support.soak import amount, seed

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Variant, find
from xupc.flags import MULTICORE, PUSH
from xupc.topology.levels import NodeLevels, node_levels
from xupc.topology.machine import describe
from xupc.topology.tree import Tree

LARGE = ["2x4x6", "socket:2,numa:2,l3:2,core:2,thread:2", "8,8/8,6"]


def by_levels(collective: str) -> Variant | None:
    return next((v for v in find(collective, MULTICORE).variants if v.label == "levels"), None)


PRIVATE = [form for form in MOVES + JOINS if by_levels(f"allav_{form}")]
REDUCTIONS = [form for form in reductions.ALL_FORMS if by_levels(form)]


def trees(threads: int, most: int) -> Iterator[tuple[random.Random, Tree]]:
    """Yield trees of so many threads, half of them with the threads in another order."""
    every = list(nested(threads))
    step = max(1, len(every) // most)
    for i in range(seed() % step, len(every), step):
        rng = random.Random(f"{seed()} {threads} {i}")
        yield rng, tree_of(shuffled(every[i], rng) if i % 2 else every[i])


def check_private(form: str, tree: Tree, rng: random.Random, tuning: str = "") -> bool:
    """Simulate some calls in a row; return False if the variant cannot run."""
    tuning = tuning or rng.choice(list(VALUES))
    n = rng.choice([n for n in SIZES[tuning] if n * tree.size < 6000])
    in_place = form == "broadcast" or (form in values.IN_PLACE and rng.random() < 0.4)
    one = One(form, MULTICORE, rng.randrange(tree.size), n, in_place, rng.random() < 0.5, "levels")
    labels = tuple(tree.node_index.tolist())
    case = values.Case(form, MULTICORE, labels, tuning, rng.random() < 0.5, 1)
    variant, kernel = by_levels(f"allav_{form}"), reductions.Symbols(case.ordered)
    assert variant is not None
    if not variant.can_run(facts(one, tree, tuning_of(tuning), kernel)):
        return False
    case.run(rng.choice([None, rng.randrange(1 << 30)]), first=one, tree=tree)
    return True


def check_shared(form: str, tree: Tree, rng: random.Random) -> None:
    """Simulate some calls in a row, in any modes."""
    tuning = rng.choice(["large", "small", "mixed", "whole"])
    in_place = form == "reduce_mpi_all" and rng.random() < 0.5
    case = reductions.Case(
        form, MULTICORE, (0,) * tree.size, rng.choice(SYNCS), tuning, rng.random() < 0.5,
        rng.randrange(1 << 30), in_place,
    )  # fmt: skip
    case.run(seed=rng.choice([None, 1]), tree=tree, variant=by_levels(form))


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("form", PRIVATE)
def test_private_arrays(form: str) -> None:
    """No race, no deadlock, every byte right."""
    ran: Counter[bool] = Counter()
    for threads in range(1, 9):
        for rng, tree in trees(threads, amount(6, 300)):
            ran[check_private(form, tree, rng)] += 1
    assert ran[True] > 2 * ran[False]  # some have no room for their blocks: 5% in the mean


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("form", REDUCTIONS)
def test_shared_arrays(form: str) -> None:
    for threads in range(1, 9):
        for rng, tree in trees(threads, amount(6, 300)):
            check_shared(form, tree, rng)


SEVERAL_NODES = (
    "broadcast", "gather_all", "reduce", "reduce_all", "reduce_scatter", "prefix_reduce",
    "exclusive_suffix_reduce",
)  # fmt: skip
ROOM = {
    "eager_max": 0, "staging_chunk": 512, "staging_bytes": 8192, "parallel_fold_threads": 99,
    "direct_min": 0, "few_nodes_max": 8,
}  # fmt: skip
"""Many units, and room for the partial results of several nodes."""


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("form", SEVERAL_NODES)
def test_private_arrays_on_several_nodes(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of any sizes, each with levels of its own; the unit is the same on all of them."""
    monkeypatch.setitem(values.VALUES, "large", ROOM)
    monkeypatch.setitem(values.VALUES, "mixed", {**ROOM, "pipeline_min": 128})
    monkeypatch.setitem(values.SIZES, "large", (400, 1400, 2808))
    ran: Counter[bool] = Counter()
    for threads in (2, 3, 5, 8):
        for labels in placements(threads).values():
            rng = random.Random(f"{seed()} {form} {labels}")
            for _ in range(amount(2, 40)):
                tuning = rng.choice(["large", "mixed", "small"])
                ran[check_private(form, on_nodes(labels, rng), rng, tuning)] += 1
    assert 3 * ran[True] > ran[False]  # 9 of 34 cannot run in the mean


SHARED_ON_NODES = ["reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all", "reduce_scatter"]


def job_on_nodes(form: str, threads: int, rng: random.Random) -> tuple[reductions.Job, bool]:
    """Return a call with as much on each thread, and whether the order of operands matters."""
    block, rows = rng.choice([1, 5, 40]), rng.choice([1, 2])
    ordered, to = rng.random() < 0.4, rng.randrange(threads)
    in_place = form == "reduce_mpi_all" and rng.random() < 0.4
    first, nelems = 0 if in_place else rng.randrange(threads), block * rows * threads
    if form == "reduce_scatter":
        first, block, nelems = 0, threads * block, threads * block * threads
    elif "mpi" not in form:
        block = rng.choice([1, 5])
        first, nelems = 0, block * rows * threads - block // 2
    job = reductions.Job(
        form, threads, first, 0, block, nelems, to, ordered, (0, 0, 0), in_place
    )  # fmt: skip
    return job, ordered


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("form", SHARED_ON_NODES)
def test_shared_arrays_on_several_nodes(form: str) -> None:
    """As much on each thread, in all modes, in place too."""
    variant, tuning = by_levels(form), {**reductions.tuning_of("mixed"), **ROOM}
    assert variant is not None
    ran = 0
    for threads in (2, 3, 5, 8):
        for labels in placements(threads).values():
            rng = random.Random(f"{seed()} {form} {labels}")
            for _ in range(amount(2, 60)):
                tree, sync = on_nodes(labels, rng), rng.choice(SYNCS)
                job, ordered = job_on_nodes(form, threads, rng)
                kernel = reductions.Symbols(ordered)
                if not variant.can_run(CallFacts(tree, tuning, sync, job.arguments(), kernel)):
                    continue
                longest = 3 * 40 if form != "reduce_scatter" else 48 * threads
                space = longest * ITEM + Calls.shift
                story = Calls(Planner(tree), space, kernel, rng.randrange(1 << 30))
                for tight in (True, False, True):
                    story.reduce(job, variant, sync, tuning, tight=tight)
                story.run(rng.choice([None, 1]))
                ran += 1
    assert ran > 4  # 17 of 34 in the mean


@pytest.mark.rotates
@pytest.mark.parametrize("form", SHARED_ON_NODES)
def test_exact_shared_ones_keep_the_order_on_several_nodes(form: str) -> None:
    both, tuning = ("all", "all"), {**reductions.tuning_of("mixed"), **ROOM}
    variant, rng, ran = by_levels(form), random.Random(form), 0
    assert variant is not None
    for labels in ([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2]):
        threads = len(labels)
        block, nelems = (3, 3 * threads) if form != "reduce_scatter" else (
            2 * threads, 2 * threads * threads
        )  # fmt: skip
        job = reductions.Job(form, threads, 0, 0, block, nelems, 1, True)
        expected = brackets(job, PUSH, [0] * threads, both, tuning)
        for _ in range(amount(4, 40)):
            tree = on_nodes(labels, rng)
            if variant.can_run(CallFacts(tree, tuning, both, job.arguments(), Trees())):
                assert brackets(job, variant, labels, both, tuning, tree) == expected, tree
                ran += 1
    assert ran


@pytest.mark.parametrize(
    "form", ["reduce", "reduce_all", "reduce_scatter", "suffix_reduce", "exclusive_prefix_reduce"]
)
def test_exact_ones_keep_the_order_on_several_nodes(form: str) -> None:
    rng, sizes, ran = random.Random(form), {**tuning_of("small"), **ROOM}, 0
    variant = by_levels(f"allav_{form}")
    assert variant is not None
    for labels in ([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2]):
        push = One(form, PUSH, 1, 48, False, exact=True)
        expected = repr(expressions(push, labels, sizes))
        one = replace(push, flag=MULTICORE, label="levels")
        for _ in range(amount(5, 40)):
            tree = on_nodes(labels, rng)
            if variant.can_run(facts(one, tree, sizes, Trees())):
                assert repr(expressions(one, labels, sizes, tree)) == expected, tree
                ran += 1
    assert ran


def machine(text: str) -> NodeLevels:
    found = describe(text)
    return node_levels(found, found.masks(len(found.cpus)))


@pytest.mark.rotates
@pytest.mark.parametrize("text", LARGE)
def test_large_machines(text: str) -> None:
    rng, tree = random.Random(text), tree_of(machine(text))
    for form in PRIVATE:
        check_private(form, tree, rng)
    for form in REDUCTIONS:
        check_shared(form, tree, rng)


# --- the order of operations ----------------------------------------------------------------------
@pytest.mark.rotates
@pytest.mark.parametrize("form", [form for form in JOINS if form in PRIVATE])
def test_exact_private_ones_keep_the_order(form: str) -> None:
    """The bits of PUSH on every tree, also where no domain has neighbouring threads."""
    sizes = tuning_of("mixed")
    for threads in (2, 5, 7, 8):
        push = One(form, PUSH, 1, 48, False, exact=True)
        expected = repr(expressions(push, [0] * threads, sizes))
        one = replace(push, flag=MULTICORE, label="levels")
        variant = by_levels(f"allav_{form}")
        assert variant is not None
        ran = 0
        for _, tree in trees(threads, amount(15, 100)):
            if variant.can_run(facts(one, tree, sizes, Trees())):
                assert repr(expressions(one, [0] * threads, sizes, tree)) == expected, tree
                ran += 1
        assert ran


SHAPES = ((5, 1, 3, 15), (7, 0, 2, 13), (8, 3, 4, 32), (8, 0, 1, 5))


@pytest.mark.rotates
@pytest.mark.parametrize("form", REDUCTIONS)
def test_exact_shared_ones_keep_the_order(form: str) -> None:
    both, tuning = ("all", "all"), reductions.tuning_of("mixed")
    variant = by_levels(form)
    assert variant is not None
    for threads, first, block, nelems in SHAPES:
        if form == "reduce_scatter":
            first, block, nelems = 0, 2 * threads, 2 * threads * threads
        job = reductions.Job(form, threads, first, 0, block, nelems, 2, True, (first, 0, block))
        flat = Tree([0] * threads)
        if not variant.can_run(CallFacts(flat, tuning, both, job.arguments(), Trees())):
            continue
        expected = brackets(job, PUSH, [0] * threads, both, tuning)
        for _, tree in trees(threads, amount(15, 100)):
            assert brackets(job, variant, [0] * threads, both, tuning, tree) == expected, tree
