"""Arrays of values simulated: data, races between calls that follow each other, guards.

By default a seeded sample of all cases; ``XUPC_TEST_FULL_MATRIX=1`` runs several of
every form, algorithm, placement and tuning.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import numpy as np
import pytest
from simulated.matrix import placements
from simulated.mutations import mutations
from simulated.pool import workers
from simulated.reductions import ITEM, Symbols, Trees, unnamed
from simulated.values import (
    JOINS,
    MOVES,
    OP_SCRATCH_BYTES,
    VALUES,
    Case,
    One,
    cases,
    facts,
    plan_of,
    run_cases,
    snapshot,
    tuning_of,
)
from support.soak import FULL_MATRIX, amount, seed, share, share_of

from xupc.algorithms.registry import find
from xupc.backends.simulator.errors import ProtocolError, SimulationError
from xupc.backends.simulator.script import Call
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import ALGORITHM_NAMES, MULTICORE, PULL, PUSH
from xupc.plan.recorder import Operand, trace
from xupc.plan.steps import Copy
from xupc.topology.tree import Tree

SHARD = 20
OF_EACH_ALGORITHM = amount(share(4), 15)  # of each form and flag
OF_EACH_KIND = amount(2, 5)  # of each form, flag and tuning, on two threads of a node


@pytest.mark.soak
def test_sample() -> None:
    """No race, no deadlock, every byte right, under any schedule."""
    chosen = cases(3 if FULL_MATRIX else 1, seed())
    if not FULL_MATRIX:
        rng, of_each = random.Random(seed()), attrgetter("form", "flag")
        kinds = [list(same) for _, same in groupby(chosen, of_each)]
        chosen = [case for same in kinds for case in rng.sample(same, OF_EACH_ALGORITHM)]
    shards = [chosen[i : i + SHARD] for i in range(0, len(chosen), SHARD)]
    with workers() as pool:
        failures = [text for some in pool.map(run_cases, shards) for text in some]
    assert not failures, f"{len(failures)} of {len(chosen)} fail:\n" + "\n".join(failures[:5])


@pytest.mark.soak
def test_two_threads_of_one_node() -> None:
    """Two threads of a node access each other's memory directly and share the work differently.

    A sample of all placements hardly contains them.
    """
    rng = random.Random(seed())
    every = [
        Case(form, flag, (0, 0), tuning, rng.random() < 0.5, rng.randrange(1 << 30))
        for form in MOVES + JOINS
        for flag in ALGORITHM_NAMES
        for tuning in VALUES
        for _ in range(OF_EACH_KIND)
    ]
    chosen = share_of(every)
    failures = run_cases(chosen)
    assert not failures, f"{len(failures)} of {len(chosen)} fail:\n" + "\n".join(failures[:5])


def expressions(
    one: One, labels: list[int], tuning: dict[str, int], tree: Tree | None = None,
    known: dict[object, list[object]] | None = None,
) -> list[object]:  # fmt: skip
    """The bracketed expression of every thread's result.

    `known`: those of plans that were simulated with this call already; equal plans give equal ones.
    """
    kernel, tree = Trees(), tree or Tree(labels)
    plans = [plan_of(one, me, tree, tuning, kernel) for me in range(tree.size)]
    key = tuple(labels), tuning["staging_bytes"], unnamed(plans)
    if known is not None and key in known:
        return known[key]
    nbytes = one.nbytes * (len(labels) if one.form == "reduce_scatter" else 1)
    memory = {
        "dst": [bytearray(one.nbytes) for _ in labels],
        "src": [
            bytearray(np.array([kernel.number((i,))] * (nbytes // ITEM), np.uint64).tobytes())
            for i in range(len(labels))
        ],
        "slot": [bytearray(OP_SCRATCH_BYTES) for _ in labels],
        "buffer": [bytearray(tuning["staging_bytes"]) for _ in labels],
    }
    call = Call(
        [Program(plan, tree) for plan in plans],
        (("dst", 0), ("src", 0), ("slot", 0), ("buffer", 0)), kernel,
    )  # fmt: skip
    Simulation(tree, memory, [[call] for _ in labels]).run()
    rows = [np.frombuffer(row, np.uint64) for row in memory["dst"]]
    assert all(len(set(row.tolist())) == 1 for row in rows)
    found = [kernel.value(int(row[0])) for row in rows]
    if known is not None:
        known[key] = found
    return found


@pytest.mark.rotates("threads")
@pytest.mark.parametrize("form", JOINS)
@pytest.mark.parametrize("threads", [2, 5, 8])
def test_exact_ones_have_one_order_of_operations(form: str, threads: int) -> None:
    """Whatever the placement, the algorithm and the tuning."""
    found = set()
    known: dict[object, list[object]] = {}
    for flag in ALGORITHM_NAMES:
        for labels in placements(threads).values():
            for name in VALUES:
                one = One(form, flag, 1, 48, False, exact=True)
                found.add(repr(expressions(one, labels, tuning_of(name), known=known)))
    assert len(found) == 1


@pytest.mark.parametrize("form", JOINS)
def test_each_variant_keeps_the_order_of_operations(form: str) -> None:
    """Those that run under REPRODUCIBLE give the bits of PUSH, the default or not."""
    sizes, ran = {**tuning_of("small"), "few_nodes_max": 8}, set()
    for labels in placements(5).values():
        push = One(form, PUSH, 1, 48, False, exact=True)
        expected = repr(expressions(push, labels, sizes))
        for variant in find(f"allav_{form}", MULTICORE).variants:
            one = replace(push, flag=MULTICORE, label=variant.label)
            if variant.can_run(facts(one, Tree(labels), sizes, Trees())):
                assert repr(expressions(one, labels, sizes)) == expected, (labels, variant.name)
                ran.add(variant.label)
    assert {"push", "table"} <= ran or form == "reduce_scatter"


def test_long_suffixes_take_what_a_fold_can_keep() -> None:
    """More threads than a fold has places for."""
    one = One("suffix_reduce", MULTICORE, 0, 8, False, exact=True)
    tuning = {**tuning_of("small"), "staging_bytes": 1 << 20}
    values = expressions(one, [0] * 70, tuning)
    chained = expressions(replace(one, flag=PUSH), [0] * 70, tuning)
    assert repr(values) == repr(chained)


@pytest.mark.rotates
@pytest.mark.parametrize("flag", ALGORITHM_NAMES, ids=list(ALGORITHM_NAMES.values()))
@pytest.mark.parametrize("form", MOVES + JOINS)
def test_broken_plans_are_noticed(form: str, flag: int) -> None:
    """Steps dropped from one thread's plan: nearly every kind of step matters somewhere."""
    rng = random.Random(f"{form} {flag}")
    noticed: set[str] = set()
    tried: set[str] = set()
    for labels, tuning in (((0, 0, 0), "large"), ((0, 1, 0, 1), "large"), ((0, 0, 1), "whole")):
        case = Case(form, flag, labels, tuning, True, 5)
        tree, sizes, kernel = Tree(labels), tuning_of(tuning), Symbols(ordered=True)
        one = replace(case.calls()[0], in_place=form == "broadcast")
        one = snapshot(one, tree, sizes)
        plans = [plan_of(one, me, tree, sizes, kernel) for me in range(tree.size)]
        right = [Program(plan, tree) for plan in plans]
        found = [m for m in mutations(plans) if m.name.startswith("drop")]
        for mutation in rng.sample(found, min(len(found), 12)):
            tried.add(mutation.name)
            changed = zip(right, mutation.plans, strict=True)
            try:
                broken = [x if x.plan is plan else Program(plan, tree) for x, plan in changed]
                case.run(first=one, programs={one: broken})
            except SimulationError:
                noticed.add(mutation.name)
    assert "drop Copy" in noticed or form in JOINS
    assert len(noticed) * 3 >= len(tried) * 2, f"not noticed: {sorted(tried - noticed)}"


def test_others_private_memory_is_out_of_reach() -> None:
    """A plan that names it is refused before it runs."""

    def reach(t: object, dst: Operand, src: Operand) -> None:
        t.copy(dst.on(0), src.on(1), 8)  # type: ignore[attr-defined]

    tree = Tree([0, 0])
    plan = trace(
        reach, "pull", "reach", 0, tree, ("no", "no"), {}, [Operand(0), Operand(1)], private=True
    )
    with pytest.raises(ProtocolError, match="operand 1 of thread 1 is private"):
        Program(plan, tree)
    assert find("allav_gather", PULL).name == "pull"
    assert isinstance(plan.lanes[0][0], Copy)
