"""The variants on a circulant graph of nodes: uneven nodes, many nodes, broken plans, their price.

`test_variants` simulates them on the placements of all variants.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from simulated import reductions, transfers, values
from simulated.matrix import (
    MEANING,
    SYNCS,
    TUNINGS,
    Case,
    Planner,
    Story,
    WrongMemoryError,
    roots_of,
)
from simulated.mutations import mutations
from support.soak import amount, seed, share, share_of

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.reduce_multiplying import groups
from xupc.algorithms.registry import Variant, registered
from xupc.backends.simulator.errors import SimulationError
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import run
from xupc.plan.recorder import DST, SRC, trace
from xupc.plan.steps import Recv, Send
from xupc.topology.tree import Tree

VARIANTS = {v.collective: v for e in registered() for v in e.variants if v.label == "circulant"}
COLLECTIVES = sorted(VARIANTS.keys() & MEANING.keys())
PRIVATE = sorted(name.removeprefix("allav_") for name in VARIANTS if name.startswith("allav_"))
LISTS = {name: v for name, v in VARIANTS.items() if name.endswith("_x")}
REDUCTIONS = sorted(VARIANTS.keys() & {*reductions.ALL_FORMS})
(MULTIPLYING,) = (
    v for e in registered("reduce_mpi_all") for v in e.variants if v.label == "multiplying"
)
LARGE, SIZES = TUNINGS["large"]


def test_which_collectives_have_them() -> None:
    blocks = {"broadcast", "broadcast_in_place", "gather_all", "gather_all_in_place"}
    lists = {"broadcast_v", "broadcast_x", "gather_all_v", "gather_all_x"}
    reduced = {"reduce_mpi", "reduce_mpi_all", "reduce_scatter"}
    private = {"allav_broadcast", "allav_gather_all", "allav_reduce_scatter"}
    assert set(VARIANTS) == blocks | lists | reduced | private


def uneven(nodes: int, rng: random.Random) -> list[int]:
    """Return the node of each thread, some of whose nodes have two threads, in any order."""
    labels = [*range(nodes), *rng.choices(range(nodes), k=min(4, nodes))]
    rng.shuffle(labels)
    return labels


@pytest.mark.soak
@pytest.mark.rotates("nodes")
@pytest.mark.parametrize("nodes", range(2, 18))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_numbers_of_nodes(collective: str, nodes: int) -> None:
    """No race, no deadlock, every byte right: any root, sync mode and number of chunks."""
    variant = VARIANTS[collective]
    rng = random.Random(f"{seed()} {collective} {nodes}")
    for _ in range(amount(2, 60)):
        tuning, sizes = TUNINGS[rng.choice(list(TUNINGS))]
        labels, n = uneven(nodes, rng), rng.choice(sizes)
        story = Story(Planner(Tree(labels)), len(labels) * n, rng.randrange(1 << 30))
        for _ in range(3):
            root = rng.choice(roots_of(variant, len(labels)))
            story.call(variant, root, n, rng.choice(SYNCS), tuning, tight=rng.random() < 0.6)
        story.run()


@pytest.mark.soak
@pytest.mark.rotates("nodes")
@pytest.mark.parametrize("nodes", range(2, 18))
@pytest.mark.parametrize("form", PRIVATE)
def test_private_arrays(form: str, nodes: int) -> None:
    """The same for private arrays, with other calls after it that use the same scratch."""
    variant = VARIANTS[f"allav_{form}"]
    rng = random.Random(f"{seed()} private {form} {nodes}")
    for _ in range(amount(2, 60)):
        labels, name = tuple(uneven(nodes, rng)), rng.choice(list(values.VALUES))
        one = values.One(
            form, variant.flag, rng.randrange(len(labels)), rng.choice(values.SIZES[name]),
            form == "broadcast", False, variant.label,
        )  # fmt: skip
        made, tree = values.snapshot(one, Tree(labels), values.tuning_of(name)), Tree(labels)
        kernel = reductions.Symbols(False)
        if variant.can_run(values.facts(made, tree, values.tuning_of(name), kernel)):
            case = values.Case(form, variant.flag, labels, name, False, rng.randrange(1 << 30))
            case.run(first=one)


@pytest.mark.soak
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_two_threads_on_each_node(collective: str) -> None:
    for sync in share_of(SYNCS):
        way = VARIANTS[collective]
        for name, (_, sizes) in TUNINGS.items():
            labels = (0, 1, 2, 2, 0, 1)
            Case((collective, way.flag), labels, sync, name, max(sizes), way.label).run()


@pytest.mark.soak
@pytest.mark.rotates("nodes")
@pytest.mark.parametrize("nodes", range(2, 18))
@pytest.mark.parametrize("collective", LISTS)
def test_blocks_of_any_size(collective: str, nodes: int) -> None:
    """The same for lists of blocks: equal, uneven, empty, nearly all on one thread."""
    rng = random.Random(f"{seed()} {collective} {nodes}")
    for _ in range(amount(3, 60)):
        tuning = TUNINGS[rng.choice(list(TUNINGS))][0]
        labels, n = uneven(nodes, rng), rng.choice((1, 5, 13, 17, 40))
        planner, draw = transfers.ListPlanner(Tree(labels)), rng.randrange(6)
        story = transfers.ListStory(planner, len(labels) * (n + 2), rng.randrange(1 << 30))
        for lists in (draw, draw + 1, draw):
            sync, tight = rng.choice(SYNCS), rng.random() < 0.6
            story.call(LISTS[collective], lists, n, sync, tuning, tight=tight)
        story.run()


def job_of(form: str, threads: int, rng: random.Random) -> reductions.Job:
    """Return a reduction of one or two blocks on each thread, the last one not always whole.

    That of a reduce_scatter has one block for each thread on each thread.
    """
    if form == "reduce_scatter":
        block = threads * rng.choice([1, 2, 5, 9])
        return reductions.Job(form, threads, 0, 0, block, threads * block, 0, False)
    block = rng.choice([1, 3, 8, 17, 40, 130])
    nelems = block * threads * rng.choice([1, 1, 2]) - rng.choice([0, 0, block // 2])
    in_place = form.endswith("all") and rng.random() < 0.4
    first, to = 0 if in_place else rng.randrange(threads), rng.randrange(threads)
    return reductions.Job(
        form, threads, first, 0, block, nelems, to, False, (0, 0, 0), in_place
    )  # fmt: skip


def reduced(variant: Variant, labels: list[int], rng: random.Random) -> int:
    """Simulate up to three calls in a row; return how many could run."""
    form = variant.collective
    tree, kernel, draw = Tree(labels), reductions.Symbols(False), rng.randrange(1 << 30)
    tuning, ran = reductions.tuning_of(rng.choice(list(TUNINGS))), 0
    space = 400 * reductions.ITEM + reductions.Calls.shift
    story = reductions.Calls(Planner(tree), space, kernel, draw)
    for _ in range(3):
        job, sync = job_of(form, len(labels), rng), rng.choice(SYNCS)
        facts = CallFacts(tree, tuning, sync, job.arguments(), kernel)
        if variant.can_run(facts):
            story.reduce(job, variant, sync, tuning, tight=rng.random() < 0.6)
            ran += 1
    if ran:
        story.run(draw if rng.random() < 0.3 else None)
    return ran


@pytest.mark.soak
@pytest.mark.rotates("nodes")
@pytest.mark.parametrize("nodes", range(2, 18))
@pytest.mark.parametrize("form", REDUCTIONS)
def test_reductions(form: str, nodes: int) -> None:
    """The same for reductions: each operand is in each result once."""
    rng = random.Random(f"{seed()} {form} {nodes}")
    many = amount(3, 60)
    assert sum(reduced(VARIANTS[form], uneven(nodes, rng), rng) for _ in range(many)) > 0


@pytest.mark.soak
@pytest.mark.rotates("nodes")
@pytest.mark.parametrize("nodes", range(2, 18))
def test_recursive_multiplying(nodes: int) -> None:
    """The same for the exchange of whole values in groups of nodes."""
    rng, many = random.Random(f"{seed()} multiplying {nodes}"), amount(2, 60)
    assert sum(reduced(MULTIPLYING, uneven(nodes, rng), rng) for _ in range(many)) > 0


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32, 64])
def test_groups_of_recursive_multiplying(n: int) -> None:
    """Each node of a group has the same group, and each value comes to each node once."""
    has = [{v} for v in range(n)]
    for row in zip(*(groups(v, n) for v in range(n)), strict=True):
        assert all(row[other] == group for group in row for other in group)
        before = [set(there) for there in has]
        for v, group in enumerate(row):
            assert sum(len(before[other]) for other in group) == len(
                set().union(*(before[other] for other in group))
            )
            has[v] = set().union(*(before[other] for other in group))
    assert all(there == set(range(n)) for there in has)


@pytest.mark.parametrize("form", ["reduce_mpi", "reduce_mpi_all"])
def test_where_reductions_cannot_run(form: str) -> None:
    """In a written order, and where a node has no operand."""
    tree, tuning = Tree([0, 1, 1, 2]), reductions.tuning_of("large")
    whole = reductions.Job(form, 4, 0, 0, 8, 32, 0, False)
    for job, right in (
        (whole, True),
        (replace(whole, ordered=True), False),
        (replace(whole, nelems=24), False),
        (replace(whole, nelems=29), False),
        (replace(whole, first=2, nelems=29), True),
    ):
        facts = CallFacts(tree, tuning, ("all", "all"), job.arguments(), reductions.Symbols(False))
        assert VARIANTS[form].can_run(facts) == right, job


@pytest.mark.soak
@pytest.mark.parametrize("form", REDUCTIONS)
def test_broken_reductions_are_noticed(form: str) -> None:
    """A message or a fold that is missing, or with other operands, ends no call right."""
    tree, tuning = Tree([0, 1, 1, 2, 3, 4]), reductions.tuning_of("large")
    block = 132 if form == "reduce_scatter" else 130
    job = reductions.Job(form, tree.size, 0, 0, block, block * tree.size, 1, False)
    kernel = reductions.Symbols(False)
    whole, sync = Planner(tree), ("my", "my")
    made = reductions.programs_of(whole, job, VARIANTS[form], sync, tuning, kernel)
    plans = [program.plan for program in made]
    kinds = ("Send", "Recv", "Fold", "wrong")
    broken = [m for m in mutations(plans) if any(kind in m.name for kind in kinds)]
    assert len(broken) > 60
    missed = [
        m.name
        for m in random.Random(seed()).sample(broken, amount(share(40), len(broken)))
        if not _reduction_fails(job, whole.with_plans(plans, m.plans), tuning)
    ]
    assert missed == []


def _reduction_fails(job: reductions.Job, planner: Planner, tuning: dict[str, int]) -> bool:
    """Run a call of a planner twice; return whether it is noticed that its plans are broken."""
    kernel = reductions.Symbols(False)
    space = 400 * reductions.ITEM + reductions.Calls.shift
    story = reductions.Calls(planner, space, kernel, 1)
    for tight in (True, False):
        story.reduce(job, VARIANTS[job.form], ("my", "my"), tuning, tight=tight)
    return _is_noticed(story)


@pytest.mark.soak
def test_broken_plans_are_noticed() -> None:
    """A message that is missing, goes elsewhere or carries another chunk ends no call right."""
    variant = VARIANTS["broadcast"]
    tree, n = Tree([0, 1, 1, 2, 3, 4]), 33
    whole = Planner(tree)
    plans = [p.plan for p in whole.programs(variant, ("my", "my"), LARGE, 0, n)]
    kinds = ("Send", "Recv", "wrong")
    broken = [m for m in mutations(plans) if any(kind in m.name for kind in kinds)]
    assert len(broken) > 40
    for mutation in random.Random(seed()).sample(broken, amount(share(30), len(broken))):
        story = Story(whole.with_plans(plans, mutation.plans), tree.size * n, 1)
        for tight in (True, False):
            story.call(variant, 0, n, ("my", "my"), LARGE, tight=tight)
        assert _is_noticed(story), mutation


def _is_noticed(story: Story) -> bool:
    try:
        story.run(at_once=True)
    except (SimulationError, WrongMemoryError):
        return True
    return False


def test_steps_of_a_node_among_ten_thousand() -> None:
    """One message per chunk and direction: the same number of steps on any number of nodes."""
    tree = Tree(range(10_000))
    tuning = {**LARGE, "chunk": 1 << 16, "notify_bytes": 1 << 16, "max_messages": 256}
    variant = VARIANTS["broadcast"]
    given = (DST, SRC, 0, 64 << 16)
    for me in (0, 1, 4999, 9999):
        plan = trace(variant.function, "", "broadcast", me, tree, ("all", "all"), tuning, given)
        assert sum(isinstance(s, Recv) for s in plan.steps) == (64 if me else 0)
        assert sum(isinstance(s, Send) for s in plan.steps) <= 64 - 1 + 14


# --- price ----------------------------------------------------------------------------------------
RATES = Rates(copy=8.0, line=100.0, wire=1.25, latency=2000.0, assumed=())
CHUNK = 1 << 16


def _price(label: str, nodes: int, count: int) -> float:
    """Return the time of a broadcast of `count` chunks on a clock, in ns.

    Nodes that send ahead of their rounds would take 3.6 times as long.
    """
    tuning = {**LARGE, "chunk": CHUNK, "notify_bytes": CHUNK, "max_messages": 256, "window": 8}
    tree, given = Tree(range(nodes)), (DST, SRC, 0, count * CHUNK)
    (entry,) = (e for e in registered("broadcast") if e.name == "multicore")
    variant = entry.choose(label, CallFacts(tree, tuning, ("no", "no"), given))
    plans = [
        trace(variant.function, label, "broadcast", me, tree, ("no", "no"), tuning, given)
        for me in range(nodes)
    ]
    return run([Program(plan, tree) for plan in plans], RATES).end


def test_price_of_many_nodes() -> None:
    """On 64 nodes 32 chunks take at most 0.6 of the time in today's chain and trees."""
    before = min(_price(label, 64, 32) for label in ("chain", "binomial", "binary"))
    assert _price("circulant", 64, 32) <= 0.6 * before
