"""The computational collectives simulated on symbols: data, races, the order of operations.

By default a seeded sample of all cases; ``XUPC_TEST_FULL_MATRIX=1`` runs several of
every form, algorithm, placement and pair of sync modes.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from simulated.matrix import Planner, Sync, WrongMemoryError, partitions
from simulated.mutations import Mutation, mutations
from simulated.pool import workers
from simulated.reductions import (
    ALL_FORMS,
    IN_PLACE,
    ITEM,
    Calls,
    Job,
    Symbols,
    Trees,
    Tuning,
    cases,
    plans_of,
    programs_of,
    run_cases,
    tuning_of,
    unnamed,
)
from support.soak import FULL_MATRIX, amount, seed, share

from xupc.algorithms.registry import Variant
from xupc.backends.simulator.errors import SimulationError
from xupc.backends.simulator.script import Call
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import ALGORITHM_NAMES, MULTICORE, PULL, PUSH
from xupc.plan.plan import Plan
from xupc.plan.steps import OP_SCRATCH_BYTES, Signal, Wait
from xupc.topology.tree import Tree

SHARD = 200
SAMPLE, SAMPLE_IN_PLACE = amount(share(1000), 2000), amount(share(250), 500)
ALGORITHMS = pytest.mark.parametrize("flag", ALGORITHM_NAMES, ids=list(ALGORITHM_NAMES.values()))
EVERY_FORM = pytest.mark.parametrize("form", ALL_FORMS)
BOTH = ("all", "all")


@pytest.mark.parametrize("ordered", [False, True])
def test_values_are_equal_if_the_same_operands_went_in(ordered: bool) -> None:
    """Compare with lists of operands; a value that joins itself 200 times takes no more room."""
    rng, kernel = random.Random(seed()), Symbols(ordered)
    lists = {int(x): [int(x)] for x in kernel.fresh(3)}
    for _ in range(500):
        a, b = rng.choice(list(lists)), rng.choice(list(lists))
        found, whole = kernel.join(a, b), lists[a] + lists[b]
        if len(whole) < 12:
            lists[found] = whole if ordered else sorted(whole)
    assert len(lists) > 50
    assert len(set(map(tuple, lists.values()))) == len(lists)
    for number, operands in lists.items():
        assert kernel.value(number) == tuple(operands)
        assert len(operands) == 1 or kernel.number(tuple(operands)) == number
    value = 1
    for _ in range(200):
        value = kernel.join(value, value)
    assert kernel.join(value, 2) != value
    assert (kernel.join(value, 2) == kernel.join(2, value)) != ordered


@pytest.mark.soak
@pytest.mark.parametrize("in_place", [False, True], ids=["two arrays", "in place"])
def test_sample(in_place: bool) -> None:
    """No race, no deadlock, every operand once and in its place, under any schedule."""
    forms = IN_PLACE if in_place else ALL_FORMS
    chosen = cases(4 if FULL_MATRIX else 1, seed(), forms, in_place=in_place)
    if not FULL_MATRIX:
        chosen = random.Random(seed()).sample(chosen, SAMPLE_IN_PLACE if in_place else SAMPLE)
    shards = [chosen[i : i + SHARD] for i in range(0, len(chosen), SHARD)]
    with workers() as pool:
        failures = [text for some in pool.map(run_cases, shards) for text in some]
    assert not failures, f"{len(failures)} of {len(chosen)} fail:\n" + "\n".join(failures[:5])


# --- the order of operations -----------------------------------------------------------------
Expressions = dict[tuple[int, int], object]


def brackets(
    job: Job, flag: int | Variant, labels: list[int], sync: Sync, tuning: Tuning,
    tree: Tree | None = None, known: dict[object, Expressions] | None = None,
) -> Expressions:  # fmt: skip
    """(thread, place) of each result -> its expression.

    `known`: those of plans that were simulated with this job already; equal plans give equal ones.
    """
    kernel, tree, space = Trees(), tree or Tree(labels), 256 * ITEM
    plans = plans_of(job, flag, tree, sync, tuning, kernel)
    key = tuple(labels), tuning["staging_bytes"], unnamed(plans)
    if known is not None and key in known:
        return known[key]
    shift = Calls.shift
    memory = {
        name: [bytearray(size) for _ in labels]
        for name, size in (
            ("dst", space), ("src", space), ("slot", OP_SCRATCH_BYTES),
            ("buffer", tuning["staging_bytes"]),
        )
    }  # fmt: skip
    for i in range(job.nelems):
        thread, place = job.where(i)
        at = shift + place * ITEM
        memory["src"][thread][at : at + ITEM] = np.uint64(kernel.number((i,))).tobytes()
    programs = [Program(plan, tree) for plan in plans]
    call = Call(programs, (("dst", shift), ("src", shift), ("slot", 0), ("buffer", 0)), kernel)
    Simulation(tree, memory, [[call] for _ in labels]).run()
    out: Expressions = {}
    for thread, row in enumerate(memory["dst"]):
        for i, value in enumerate(np.frombuffer(row, np.uint64)):
            if value:
                out[thread, i - shift // ITEM] = kernel.value(int(value))
    if known is not None:
        known[key] = out
    return out


ORDERS: list[Job] = [
    Job(form, 5, first, phase, block, nelems, 2, ordered, (first, phase, block))
    for form in ("reduce", "reduce_all", "prefix_reduce", "suffix_reduce")
    for first, phase, block, nelems in [
        (0, 0, 0, 40),
        (1, 0, 8, 40),
        (4, 2, 3, 13),
        (3, 0, 1, 27),
        (2, 1, 4, 67),
        (0, 0, 40, 183),
        (1, 0, 1, 2),
    ]
    for ordered in (False, True)
]
UNFUSED, FUSED, MIXED = (tuning_of(name) for name in ("large", "small", "mixed"))
SMALL = {**UNFUSED, "reduce_chunk": 64, "staging_bytes": 2048}
NARROW = {**UNFUSED, "reduce_chunk": 64, "staging_bytes": 4096}
DIVIDED = {
    **NARROW,
    "few_nodes_max": 8,
    "pipeline_min": 128,
    "staging_bytes": 8192,
}  # a part of the result at each node
TURNS = {
    **DIVIDED,
    "staging_bytes": 2560,
    "window": 16,
}  # each place is used for several of its pieces


@pytest.mark.rotates
@pytest.mark.parametrize("job", ORDERS, ids=lambda j: f"{j.form}-{j.block}-{j.nelems}-{j.ordered}")
def test_brackets_depend_on_the_distribution_alone(job: Job) -> None:
    """Of the forms that UPC has: not on the placement, the algorithm or the sizes of tables."""
    ways = [
        (flag, labels, tuning)
        for labels in ([0] * 5, [0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [0, 1, 2, 3, 4])
        for flag in ALGORITHM_NAMES
        for tuning in (UNFUSED, FUSED, MIXED, SMALL)
    ]
    known: dict[object, Expressions] = {}
    first = brackets(job, PULL, [0] * 5, BOTH, UNFUSED)
    assert first
    for flag, labels, tuning in ways:
        found = brackets(job, flag, labels, BOTH, tuning, known=known)
        where = ALGORITHM_NAMES[flag], labels, tuning["fused_max"], tuning["reduce_chunk"]
        assert found.keys() == first.keys(), where
        for place, value in first.items():
            assert found[place] == value, (*where, place)


def test_brackets_show_another_order() -> None:
    """They differ if the data is dealt in another way."""
    one = brackets(Job("reduce", 4, 0, 0, 2, 8, 0, True), PULL, [0] * 4, BOTH, UNFUSED)
    other = brackets(Job("reduce", 4, 0, 0, 3, 8, 0, True), PULL, [0] * 4, BOTH, UNFUSED)
    assert one != other


# --- the algorithms broken on purpose ----------------------------------------------------------
PLACEMENTS = ([0, 0, 1, 1, 2], [0, 1, 0, 2], [0, 0, 0])


def _job(form: str, threads: int, ordered: bool) -> Job:
    """Several tasks on each edge of a tree."""
    if form == "reduce_scatter":
        n = 96 // threads
        return Job(form, threads, 0, 0, threads * n, threads * threads * n, 0, ordered)
    block, nelems = (38, 38 * threads * 2 - 9) if "mpi" in form else (1, 42 * threads + 2)
    if not ordered and "mpi" not in form:
        block, nelems = 3, 3 * threads - 1
    dealt = 1, 0, block
    return Job(form, threads, *dealt, nelems, threads - 1, ordered, dealt)


def _run(
    planner: Planner, job: Job, flag: int, sync: Sync, tuning: Tuning, *, at_once: bool = False
) -> None:
    story = Calls(planner, 200 * ITEM + Calls.shift, Symbols(job.ordered), 1)
    for tight in (True, True, False, True):
        story.reduce(job, flag, sync, tuning, tight=tight)
    other = Job("reduce_mpi_all", job.threads, 0, 0, 2, 9, 0, job.ordered)
    if job.form == other.form:
        other = Job("reduce", job.threads, 0, 0, 2, 9, 0, job.ordered)
    story.reduce(other, PUSH, sync, tuning, tight=True)
    story.reduce(job, flag, sync, tuning, tight=True)
    story.run(at_once=at_once)


@pytest.mark.rotates
@pytest.mark.parametrize("to", [0, 3])
def test_a_part_of_the_result_at_each_node(to: int) -> None:
    """Every placement of five threads: a node may have nothing of the last row of blocks."""
    for labels in partitions(5):
        for sync in (("no", "no"), ("my", "my"), BOTH):
            for nelems in (38 * 2, 38 * 6 + 9):
                job = Job("reduce_mpi", 5, 1, 0, 38, nelems, to, False, (1, 0, 38))
                _run(Planner(Tree(labels)), job, MULTICORE, sync, DIVIDED)


NODES_IN_ORDER = ([0, 0, 1, 1, 2], [0, 1, 2, 3, 4], [0, 0, 0, 0, 1], [1, 1, 0, 0])


def _in_order(threads: int, to: int) -> Job:
    return Job("reduce_mpi", threads, 0, 0, 150, 150 * threads - 45, to, True)


@pytest.mark.rotates
@pytest.mark.parametrize("wake", [1, 700, 2000], ids=["all", "some", "one"])
@pytest.mark.parametrize("to", [0, 3])
def test_results_in_order_go_to_one_in_parts(to: int, wake: int) -> None:
    """In many rounds, whatever the tree of threads would do."""
    for labels in NODES_IN_ORDER:
        job, tuning = _in_order(len(labels), to), {**TURNS, "fold_wakeup_min": wake}
        for sync in (("no", "no"), ("my", "my"), BOTH):
            plans = plans_of(job, MULTICORE, Tree(labels), sync, tuning, Symbols(True))
            most = max(len(plan.lanes[1]) for plan in plans)
            assert most >= 5 * 4, labels  # messages and joins of five rounds
            _run(Planner(Tree(labels)), job, MULTICORE, sync, tuning)
        found = brackets(job, MULTICORE, labels, BOTH, tuning)
        assert found == brackets(job, PUSH, [0] * len(labels), BOTH, tuning), labels


@pytest.mark.rotates
@pytest.mark.parametrize("form", ["reduce_mpi", "reduce_mpi_all"])
@pytest.mark.parametrize("wake", [1, 250, 1000], ids=["all", "some", "one"])
def test_pieces_made_by(form: str, wake: int) -> None:
    """All of a node's threads, or as many as it is worth to wake."""
    for labels in ([0, 0, 0, 1, 1], [0, 1, 1, 2, 2], [0, 1, 2, 1, 1]):
        for tuning in (NARROW, DIVIDED):
            for sync in (("no", "no"), BOTH):
                job = _job(form, 5, False)
                _run(
                    Planner(Tree(labels)), job, MULTICORE, sync, {**tuning, "fold_wakeup_min": wake}
                )


@pytest.mark.parametrize("form", ["reduce_mpi", "reduce_mpi_all"])
def test_nobody_is_woken_for_nothing(form: str) -> None:
    """A thread gets only signals that it waits for, because every signal may wake it."""
    job = Job(form, 9, 0, 0, 120, 120 * 9, 0, False, (0, 0, 120))
    for tuning in (NARROW, DIVIDED):
        tree = Tree([0, 0, 0, 1, 1, 1, 2, 2, 2])
        plans = plans_of(
            job, MULTICORE, tree, BOTH, {**tuning, "notify_bytes": 512}, Symbols(False)
        )
        awaited = {
            (rank, step.channel, plan.rank, step.value)
            for plan in plans
            for step in plan.steps
            if isinstance(step, Wait)
            for rank in step.of
        }
        told = [
            (plan.rank, step.channel, rank, step.value)
            for plan in plans
            for step in plan.steps
            if isinstance(step, Signal)
            for rank in step.to
            if rank != plan.rank
        ]
        assert told
        assert len(set(told)) == len(told)
        assert set(told) <= awaited


def _kind(mutation: Mutation, plans: list[Plan]) -> tuple[object, ...]:
    """Return what is mutated in which role: the same of another thread or task is no other test.

    A wait for room on an edge is implied in two cases: values come back the other way, as in
    sweeps up and down; or the edge leads to an owner that contributes a value itself.
    """
    if mutation.at is None:
        return mutation.name, mutation.what
    me, lane, i = mutation.at
    step = plans[me].lanes[lane][i]
    channel = getattr(step, "channel", None) if mutation.name == "drop Signal" else None
    return mutation.name, lane, type(step).__name__, channel


HARMLESS = {
    "a byte short": "no symbol's number needs its last byte",
    "no handshake": "all steps of a channel: one alone is dropped, too",
}
KNOWN = {
    ("reduce_mpi", MULTICORE, "lanes not tied"): (
        "the net lane waits for the pieces that its node makes, and these for their use"
    ),
    ("reduce_mpi_all", MULTICORE, "lanes not tied"): "the same",
    ("reduce_mpi_all", MULTICORE, "Signal too early"): (
        "word of a part that the node itself has joined comes some messages after that"
    ),
    ("reduce_scatter", MULTICORE, "lanes not tied"): (
        "the node lane waits for each unit that the net lane has received"
    ),
}
"""(form, algorithm, mutation) -> why nobody may notice."""


@pytest.mark.rotates
@ALGORITHMS
@EVERY_FORM
def test_broken_algorithms_are_noticed(form: str, flag: int) -> None:
    """Each signal, wait, need, barrier and operand matters somewhere."""
    rng = random.Random(f"{form} {flag}")
    noticed: dict[tuple[object, ...], str] = {}
    missed: dict[tuple[object, ...], str] = {}
    divided = [(False, DIVIDED)] if (form, flag) == ("reduce_mpi", MULTICORE) else []
    for labels in PLACEMENTS:
        whole = Planner(Tree(labels))
        for sync in (("no", "no"), ("my", "my"), BOTH):
            for ordered, tuning in (
                (False, NARROW), (True, FUSED if sync == BOTH else NARROW), *divided,
            ):  # fmt: skip
                job = _job(form, len(labels), ordered)
                _run(whole, job, flag, sync, tuning)
                made = programs_of(whole, job, flag, sync, tuning, Symbols(ordered))
                plans = [program.plan for program in made]
                found = list(mutations(plans))
                rng.shuffle(found)
                tried: Counter[object] = Counter()
                for mutation in found:
                    kind = _kind(mutation, plans)
                    tried[kind] += 1
                    known = mutation.name in HARMLESS or (form, flag, mutation.name) in KNOWN
                    if kind in noticed or tried[kind] > 2 or known:
                        continue
                    try:
                        broken = whole.with_plans(plans, mutation.plans)
                        _run(broken, job, flag, sync, tuning, at_once=True)
                    except (SimulationError, WrongMemoryError) as problem:
                        noticed[kind] = type(problem).__name__
                    else:
                        missed[kind] = f"{labels}, {sync}, ordered {ordered}, {mutation}"
    unseen = [missed[kind] for kind in missed.keys() - noticed.keys()]
    assert not unseen, f"{len(unseen)} broken plans pass:\n" + "\n".join(unseen[:20])
    assert {"RaceError", "DeadlockError"} <= set(noticed.values())
