"""Prefix and suffix reductions by levels: many batches of rows, on one node and on several."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from simulated import reductions
from simulated.level_trees import nested, on_nodes, shuffled, tree_of
from simulated.matrix import SYNCS, Planner, placements
from simulated.reductions import ITEM, Calls, Job, Symbols, Trees
from simulated.test_reductions import brackets
from support.soak import amount, seed

from xupc.algorithms import prefix_reduce_levels
from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Variant, find
from xupc.algorithms.scan_nodes import run_lengths
from xupc.backends.simulator.errors import RaceError
from xupc.flags import MULTICORE, PUSH
from xupc.plan.placement import Facts
from xupc.plan.plan import Plan
from xupc.plan.steps import Send
from xupc.topology.tree import Tree

FORMS = [form for form in reductions.FORMS if form.endswith("fix_reduce")]
EVERY_FORM = pytest.mark.parametrize("form", FORMS)
TUNING = {**reductions.tuning_of("mixed"), "few_nodes_max": 8, "staging_bytes": 8192}
"""A batch of rows on one node has some 20 of 60."""
NODES = {**TUNING, "staging_bytes": 16384}
"""On several nodes it has 7 or 15."""
SPACE = 96 * ITEM + Calls.shift


def by_levels(form: str) -> Variant:
    return next(v for v in find(form, MULTICORE).variants if v.label == "levels")


def some_job(form: str, threads: int, rng: random.Random) -> Job:
    """Return a scan of one row of blocks up to 60, the last one not full, some in place."""
    block, rows = rng.choice([(1, 1), (5, 1), (2, 2), (1, 3), (5, 9), (2, 30), (1, 60)])
    nelems = threads * block * rows - rng.randrange(threads * block)
    src = rng.randrange(threads), rng.randrange(block), block
    in_place, moved = rng.random() < 0.3, rng.random() < 0.3
    dst = src if in_place or not moved else (rng.randrange(threads), rng.randrange(block), block)
    ordered = rng.random() < 0.5
    return Job(form, threads, *src, nelems, 0, ordered, dst, in_place)


def check(form: str, tree: Tree, rng: random.Random, tuning: dict[str, int] = TUNING) -> bool:
    """Simulate a call three times; return False if the variant cannot run."""
    job, sync, variant = some_job(form, tree.size, rng), rng.choice(SYNCS), by_levels(form)
    kernel, tuning = Symbols(job.ordered), {**tuning, "eager_max": rng.choice([32, 1024])}
    if not variant.can_run(CallFacts(tree, tuning, sync, job.arguments(), kernel)):
        return False
    story = Calls(Planner(tree), SPACE, kernel, rng.randrange(1 << 30), tuning["staging_bytes"])
    for tight in (True, False, True):
        story.reduce(job, variant, sync, tuning, tight=tight)
    story.run(rng.choice([None, 1]))
    return True


@pytest.mark.soak
@pytest.mark.rotates
@EVERY_FORM
def test_one_node(form: str) -> None:
    """Threads in any order: a root may need values that others of its domain have."""
    for threads in (2, 4, 7, 8):
        every = list(nested(threads))
        for i in range(amount(4, 100)):
            rng = random.Random(f"{seed()} {form} {threads} {i}")
            assert check(form, tree_of(shuffled(rng.choice(every), rng)), rng)


@pytest.mark.soak
@pytest.mark.rotates
@EVERY_FORM
def test_several_nodes(form: str) -> None:
    """Nodes of any sizes in groups of some, each with levels of its own, threads in any order."""
    ran: Counter[bool] = Counter()
    for threads in (2, 3, 5, 8):
        for labels in placements(threads).values():
            for i in range(amount(3, 60)):
                rng = random.Random(f"{seed()} {form} {labels} {i}")
                tuning = {**NODES, "few_nodes_max": rng.choice([0, 2, 8])}
                ran[check(form, on_nodes(labels, rng), rng, tuning)] += 1
    assert ran[True] > 2 * ran[False]  # cyclic placements have more values than places


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("nodes", [8, 9, 16, 32])
@EVERY_FORM
def test_many_nodes(form: str, nodes: int) -> None:
    """Uneven nodes, in two and more levels of groups: none of them leaves the variant out."""
    for i in range(amount(2, 40)):
        rng = random.Random(f"{seed()} {form} {nodes} {i}")
        sizes = [rng.choice([1, 1, 2, 3]) for _ in range(nodes)]
        labels = [node for node, size in enumerate(sizes) for _ in range(size)]
        tuning = {**NODES, "few_nodes_max": rng.choice([2, 4, 5]), "staging_bytes": 1 << 16}
        assert check(form, on_nodes(labels, rng), rng, tuning)


@EVERY_FORM
def test_they_keep_the_order_on_several_nodes(form: str) -> None:
    """The bits of PUSH on one node, for one row and for batches of rows."""
    both, rng, variant = ("all", "all"), random.Random(form), by_levels(form)
    tuning = {**NODES, "few_nodes_max": 2, "staging_bytes": 1 << 16}  # more are in groups
    for labels in (
        [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1], [1, 0, 1, 2, 2], [0, 1, 2],
        [0, 1, 1, 2, 3, 3, 4, 5], [0, 0, 1, 1, 2, 2, 3, 3, 0],
    ):  # fmt: skip
        threads = len(labels)
        for first, phase, block, nelems in ((0, 0, 3, 3 * threads), (1, 1, 2, 40 * threads - 7)):
            place = first, phase, block
            job = Job(form, threads, *place, nelems, 0, True, place)
            expected = brackets(job, PUSH, [0] * threads, both, tuning)
            for _ in range(amount(2, 20)):
                tree = on_nodes(labels, rng)
                assert variant.can_run(CallFacts(tree, tuning, both, job.arguments(), Trees()))
                assert brackets(job, variant, labels, both, tuning, tree) == expected, tree


@pytest.mark.parametrize(
    ("counts", "fits"),
    [
        pytest.param([4] * 3000, True, id="even"),
        pytest.param([*[4] * 2999, 1], True, id="the last node has fewer"),
        pytest.param([1, 4] * 1000, True, id="2000 uneven nodes"),
        pytest.param([1, 4] * 1500, False, id="3000 uneven nodes"),
        pytest.param([4] * 17_000, False, id="17000 even nodes"),
    ],
)
def test_nodes_with_many_unlike_runs_keep_the_tree(counts: list[int], fits: bool) -> None:
    """To look at such nodes would take each thread seconds, at each new kind of call."""
    labels = np.repeat(np.arange(len(counts)), counts)
    tree, block = Tree(labels), (0, 0, 1)
    assert run_lengths(tree).tolist() == counts
    job = Job("prefix_reduce", tree.size, *block, tree.size, 0, True, block)
    tuning = {**TUNING, "staging_bytes": 1 << 20}
    call = CallFacts(tree, tuning, ("my", "my"), job.arguments(), Symbols(True))
    assert bool(by_levels("prefix_reduce").can_run(call)) is fits


def test_all_nodes_have_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the levels of others are; one without room leaves out its narrowest level."""
    flat = Tree([0] * 8 + [1] * 8)
    deep = next(x for x in nested(8) if x.shape == "2,4")
    trees = flat, flat.with_levels({0: deep}), flat.with_levels({0: deep, 1: deep})
    job = Job("prefix_reduce", 16, 0, 0, 1, 16 * 100, 0, False, (0, 0, 1))
    for times, depth in ((8, 4), (4, 3)):
        monkeypatch.setattr(prefix_reduce_levels, "_TIMES", times)
        facts = Facts(trees[-1], NODES)
        found, _ = prefix_reduce_levels._trees(facts, job.scan(ITEM), 1)
        assert found[0].depth == depth  # the team, the node, ...
        for node in (0, 1):
            sent = {messages(plan_of(job, tree, 8 * node)) for tree in trees}
            assert len(sent) == 1
            assert len(sent.pop()) > 3


def plan_of(job: Job, tree: Tree, me: int) -> Plan:
    both, kernel, variant = ("all", "all"), Symbols(False), by_levels(job.form)
    assert variant.can_run(CallFacts(tree, NODES, both, job.arguments(), kernel))
    return reductions.plans_of(job, variant, tree, both, NODES, kernel)[me]


def messages(plan: Plan) -> tuple[int, ...]:
    """The bytes of the messages that a thread sends, in order."""
    return tuple(step.nbytes for step in plan.steps if isinstance(step, Send))


def broken(tuning: dict[str, int], labels: Sequence[int] = (0, 0, 0, 0, 1, 1, 1, 1)) -> None:
    """Simulate calls with a broken part, one of which must fail."""
    for i in range(30):
        rng = random.Random(i)
        check("prefix_reduce", on_nodes([*labels], rng), rng, tuning)


def test_a_reader_that_does_not_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xupc.algorithms.level_flow.Flow.begin", lambda *_: None)
    with pytest.raises(RaceError):
        broken(NODES)


@pytest.mark.parametrize("part", ["_exchange", "_hand_down"])
def test_a_place_that_is_written_before_its_message_has_left_is_noticed(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    scan = prefix_reduce_levels._LevelScan
    sends = getattr(scan, part)

    def forgets(self: prefix_reduce_levels._LevelScan, u: int, *rest: object) -> None:
        before = [*self.sent.get(u, ())]
        sends(self, u, *rest)
        self.sent[u] = before

    monkeypatch.setattr(scan, part, forgets)
    with pytest.raises(RaceError):
        broken({**NODES, "window": 16, "few_nodes_max": 2}, [0, 0, 1, 1, 2, 3, 3, 3])
