"""Every named variant where it can run, not only where it is the default, at small and large sizes.

The sequences of calls are those of `matrix`. `test_own_variants` is about those of programs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest
from simulated import reductions, values
from simulated.matrix import (
    ENTRIES,
    SYNCS,
    THREADS,
    TUNINGS,
    VARIANTS,
    Case,
    Planner,
    arguments,
    can_run,
    placements,
    run_cases,
)
from simulated.pool import workers
from support.soak import amount, seed, share

from xupc.algorithms.conditions import CallFacts, by_name, text_of
from xupc.algorithms.registry import Entry, Variant, find, registered
from xupc.flags import MULTICORE
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place
from xupc.tuning.selection_file import built_in

SIZES = sorted({n for _, sizes in TUNINGS.values() for n in sizes})

CASES = amount(share(8), 400)
"""Of each variant."""
MODES = [*SYNCS, *[("all", "all")] * len(SYNCS)]
TRIES = 640
"""Cases at random per case that is wanted: some variants can run in few of them."""


def _cases(variant: Variant) -> Iterator[Case]:
    """Yield cases in which the variant can run, and its smallest and largest blocks."""
    rng = random.Random(f"{seed()} {variant.collective} {variant.name}")
    found: list[Case] = []
    for size, tries in [(min(SIZES), TRIES // 8), (max(SIZES), TRIES // 8), *[(0, TRIES)] * CASES]:
        for _ in range(tries):
            case = _case(variant, rng, size or rng.choice(SIZES))
            if can_run(variant, case):
                found.append(case)
                break
    yield from found


def _case(variant: Variant, rng: random.Random, n: int) -> Case:
    labels = rng.choice(list(placements(rng.choice(THREADS)).values()))
    tuning = rng.choice([name for name, (_, sizes) in TUNINGS.items() if n in sizes])
    key = variant.collective, variant.flag
    return Case(key, tuple(labels), rng.choice(MODES), tuning, n, variant.label)


@pytest.mark.soak
def test_variants_where_they_can_run() -> None:
    """No race, no deadlock, every byte right."""
    with workers() as pool:
        shards = {v: pool.submit(run_cases, list(_cases(v))) for v in VARIANTS}
        failures = [text for shard in shards.values() for text in shard.result().failures]
        counts = {v: shard.result().stories for v, shard in shards.items()}
    assert not failures, f"{len(failures)} stories fail:\n" + "\n".join(failures[:5])
    assert min(counts.values()) >= max(1, CASES // 2), counts


REDUCTIONS = [
    variant
    for form in reductions.ALL_FORMS
    for entry in registered(form)
    for variant in entry.variants
    if variant.label
]


Runs = tuple[str, Callable[[], None]]
"""What a case is, and the run of it."""


def _failure(
    variant: Variant, number: int, drawn: Callable[[Variant, random.Random], Runs | None]
) -> str:
    """Run a variant in one case in which it can run; return what went wrong.

    `drawn` returns a case at random; None if the variant cannot run in it.
    """
    name = f"{variant.collective} {variant.name}"
    rng = random.Random(f"{seed()} {name} {number}")
    case = next(filter(None, (drawn(variant, rng) for _ in range(TRIES))), None)
    if case is None:
        return f"{name} can run nowhere"
    words, run = case
    try:
        run()
    except Exception as problem:
        return f"{name} {words}: {problem}"
    return ""


def _reduced(variant: Variant, rng: random.Random) -> Runs | None:
    """Return a case of a reduction: three calls in a row."""
    labels = rng.choice(list(placements(rng.choice(THREADS)).values()))
    tuning, sync = reductions.tuning_of(rng.choice(list(TUNINGS))), rng.choice(MODES)
    ordered, tree = rng.random() < 0.4, Tree(labels)
    form, draw = variant.collective, rng.randrange(1 << 30)
    case = reductions.Case(form, variant.flag, tuple(labels), sync, "large", ordered, draw)
    kernel, job = reductions.Symbols(ordered), case.jobs()[0]
    if not variant.can_run(CallFacts(tree, tuning, sync, job.arguments(), kernel)):
        return None
    space = 64 * reductions.ITEM + reductions.Calls.shift
    story = reductions.Calls(Planner(tree), space, kernel, draw)
    for tight in (False, True, True):
        story.reduce(job, variant, sync, tuning, tight=tight)
    return f"{case} {job}", story.run


@pytest.mark.soak
def test_reductions_where_they_can_run() -> None:
    """The same for reductions, on symbols, so that the order of operands is checked."""
    problems = [_failure(v, i, _reduced) for v in REDUCTIONS for i in range(amount(share(6), 200))]
    assert [text for text in problems if text] == []


VALUES = [
    variant
    for form in values.MOVES + values.JOINS
    for entry in registered(f"allav_{form}")
    for variant in entry.variants
    if variant.label
]


def _valued(variant: Variant, rng: random.Random) -> Runs | None:
    """Return a case of arrays of values: four calls in a row."""
    form = variant.collective.removeprefix("allav_")
    threads = 2 if rng.random() < 0.3 else rng.choice(THREADS)  # some need two on one node
    labels = tuple(rng.choice(list(placements(threads).values())))
    name, ordered = rng.choice(list(values.VALUES)), rng.random() < 0.4
    in_place = form == "broadcast" or (form in values.IN_PLACE and rng.random() < 0.4)
    one = values.One(
        form, variant.flag, rng.randrange(threads), rng.choice(values.SIZES[name]), in_place,
        rng.random() < 0.3, variant.label,
    )  # fmt: skip
    tree, tuning = Tree(labels), values.tuning_of(name)
    made, kernel = values.snapshot(one, tree, tuning), reductions.Symbols(ordered)
    if not variant.can_run(values.facts(made, tree, tuning, kernel)):
        return None
    case = values.Case(form, variant.flag, labels, name, ordered, rng.randrange(1 << 30))
    return f"{case} {one}", partial(case.run, first=one)


@pytest.mark.soak
def test_arrays_of_values_where_they_can_run() -> None:
    """The same for arrays of values, reductions among them, at all sizes and in place."""
    problems = [_failure(v, i, _valued) for v in VALUES for i in range(amount(share(6), 200))]
    assert [text for text in problems if text] == []


def test_each_variant_is_the_default_somewhere() -> None:
    """So none is there that only a program can choose, but those that say so; each call has one."""
    chosen = set()
    for entry in ENTRIES:
        shapes = [Tree(labels) for n in (2, 3, 8) for labels in placements(n).values()]
        for tree, (tuning, sizes) in product(shapes, TUNINGS.values()):
            chosen |= {_default(entry, tree, n, tuning) for n in sizes}
        for nodes, n in product((9, 100, 1000), (8, 1 << 12, 1 << 20)):  # more than these have
            tuning = {**TUNINGS["whole"][0], "few_nodes_max": 8, "pipeline_min": 1 << 11}
            tuning.update(chunk=1 << 12, root_exchange_max=64, root_exchange_max_one_block=64)
            chosen.add(_default(entry, Tree(range(nodes)), n, tuning))
    named = {(v.collective, v.name) for v in VARIANTS if v.preferred is not by_name}
    assert named == {found for found in chosen if ":" in found[1]}


def _default(entry: Entry, tree: Tree, n: int, tuning: dict[str, int]) -> tuple[str, str]:
    given = arguments(entry.collective, tree.size, 0, n)
    found = entry.default(CallFacts(tree, tuning, ("all", "all"), given))
    return found.collective, found.name


DRAWS = 3000
"""Calls at random for each flag of a reduction, none of which is simulated."""


def test_each_variant_of_a_reduction_is_the_default_somewhere() -> None:
    """By the built-in table or one of the tests; and each call has a default."""
    rng, chosen = random.Random(1), set()
    forms = [*reductions.ALL_FORMS, *(f"allav_{form}" for form in values.JOINS)]
    entries = [entry for form in forms for entry in registered(form) if len(entry.variants) > 1]
    for entry, _ in product(entries, range(DRAWS)):
        found = entry.default(_drawn(entry.collective, rng))
        chosen.add((entry.collective, found.name))
    every = {
        (v.collective, v.name) for e in entries for v in e.variants if v.preferred is not by_name
    }
    assert every == chosen


def _drawn(form: str, rng: random.Random) -> CallFacts:
    """Return the facts of any call."""
    threads = rng.choice([1, 2, 2, 3, 4, 8, 16, 40, 100])
    nodes = rng.choice([1, 2, 3, 7, 40, 100])
    tree = Tree([i * nodes // threads if rng.random() < 0.9 else 0 for i in range(threads)])
    ordered, name, item = rng.random() < 0.3, rng.choice(list(values.VALUES)), reductions.ITEM
    kernel, size = reductions.Symbols(ordered), item << rng.randrange(20)
    tuning = values.tuning_of(name)
    if rng.random() < 0.8:
        tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
    if form.startswith("allav_"):
        one = values.One(form.removeprefix("allav_"), MULTICORE, 0, size, False, rng.random() < 0.5)
        return values.facts(one, tree, tuning, kernel)
    block = size // item * (threads if form == "reduce_scatter" else 1)
    nelems = block * threads if rng.random() < 0.8 else 3 * block
    place = (0, 0, block) if rng.random() < 0.8 else (0, 0, 0)
    job = reductions.Job(form, threads, *place, nelems, 0, ordered, (0, 0, block))
    return CallFacts(tree, tuning, rng.choice(MODES), job.arguments(), kernel)


def test_each_variant_says_what_it_does_and_where() -> None:
    for entry in registered():
        for variant in entry.variants:
            where = f"{variant.collective} {variant.name}"
            assert 10 < len(variant.summary) < 130, where
            assert variant.summary.endswith("."), where
            for condition in (variant.applies, variant.preferred):
                assert condition is None or condition.__doc__, where
                assert len(text_of(condition)) < 110, where


@pytest.mark.parametrize(
    ("nodes", "nbytes", "name"),
    [
        ([0] * 4, 8, "fused"),
        ([0] * 4, 1 << 20, "pull"),
        ([0, 0, 1, 1], 8, "led"),
        ([0, 0, 1, 1], 1 << 13, "linear"),
        ([0, 0, 1, 1], 1 << 20, "rounds"),
        (list(range(9)), 1 << 10, "doubling"),
        (list(range(9)), 1 << 20, "ring"),
    ],
)
def test_gather_all_by_the_built_in_table(nodes: list[int], nbytes: int, name: str) -> None:
    """Each choice by the sizes of the built-in table is the same as before variants had names."""
    tree = Tree(nodes)
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
    given = arguments("gather_all", tree.size, 0, nbytes)
    call = CallFacts(tree, tuning, ("all", "all"), given)
    assert find("gather_all", MULTICORE).default(call).name == f"multicore:{name}"
