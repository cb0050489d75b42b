"""Exchanges between neighbours on private arrays: data, races, guards, steps, messages."""

from __future__ import annotations

import random
from itertools import groupby
from operator import attrgetter

import numpy as np
import pytest
from simulated.mutations import mutations
from simulated.neighbours import NAME, Case, cases, graph, plan_of, run_cases
from simulated.pool import workers
from simulated.values import SIZES, tuning_of
from support.soak import WHOLE, amount, seed, share

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import registered
from xupc.algorithms.transfer_lists import Transfers
from xupc.backends.simulator.errors import SimulationError
from xupc.flags import ALGORITHM_NAMES, MULTICORE
from xupc.plan.plan import Plan
from xupc.plan.steps import Send
from xupc.topology.tree import Tree

SHARD = 20
OF_EACH_ALGORITHM = amount(share(60), 1000)
VARIANTS = [variant for entry in registered(NAME) for variant in entry.variants]


@pytest.mark.soak
def test_sample() -> None:
    """No race, no deadlock, every byte right, under any schedule."""
    chosen = cases(3 if WHOLE else 1, seed())
    rng = random.Random(seed())
    kinds = [list(same) for _, same in groupby(chosen, attrgetter("flag"))]
    chosen = [c for same in kinds for c in rng.sample(same, min(len(same), OF_EACH_ALGORITHM))]
    shards = [chosen[i : i + SHARD] for i in range(0, len(chosen), SHARD)]
    with workers() as pool:
        failures = [text for some in pool.map(run_cases, shards) for text in some]
    assert not failures, f"{len(failures)} of {len(chosen)} fail:\n" + "\n".join(failures[:5])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_each_variant_where_it_can_run(variant: object) -> None:
    """Not only where it is the default."""
    ran = 0
    for labels in ((0,) * 4, (0, 0, 1), (0, 1, 0, 1, 2), (0, 0, 0, 1, 1, 2)):
        for tuning in ("small", "mixed"):
            moves = graph(len(labels), SIZES[tuning], 3)
            call = CallFacts(Tree(labels), tuning_of(tuning), ("no", "no"), [moves])
            if variant.can_run(call):  # type: ignore[attr-defined]
                flag, label = variant.flag, variant.label  # type: ignore[attr-defined]
                for number in range(amount(share(4), 40)):
                    Case(flag, labels, tuning, number, label).run(number or None)
                ran += 1
    assert ran


@pytest.mark.parametrize("flag", ALGORITHM_NAMES, ids=list(ALGORITHM_NAMES.values()))
def test_broken_plans_are_noticed(flag: int) -> None:
    """Steps dropped from one thread's plan: nearly every kind of step matters somewhere."""
    rng = random.Random(flag)
    noticed: set[str] = set()
    tried: set[str] = set()
    for labels, tuning in (((0, 0, 0), "large"), ((0, 1, 0, 1), "large"), ((0, 0, 1), "mixed")):
        case = Case(flag, labels, tuning, 7)
        tree, sizes = Tree(labels), tuning_of(tuning)
        moves = max(case.moves(), key=lambda moves: moves.total)
        plans = [plan_of(flag, "", me, tree, sizes, moves) for me in range(tree.size)]
        found = [m for m in mutations(plans) if m.name.startswith("drop")]
        for mutation in rng.sample(found, min(len(found), 16)):
            tried.add(mutation.name)
            broken = dict(zip(plans, mutation.plans, strict=True))
            try:
                case.run(mutate=lambda plan, broken=broken: _instead(plan, broken))
            except SimulationError:
                noticed.add(mutation.name)
    assert "drop Copy" in noticed
    assert len(noticed) * 3 >= len(tried) * 2, f"not noticed: {sorted(tried - noticed)}"


def _instead(plan: Plan, broken: dict[Plan, Plan]) -> Plan:
    for whole, lacking in broken.items():
        if (plan.rank, plan.lanes) == (whole.rank, whole.lanes):
            return lacking
    return plan


def _grid(rows: int, columns: int, nbytes: int, *, same: bool = False) -> Transfers:
    """Neighbours in a torus, in both directions of both dimensions."""
    found = []
    for thread in range(rows * columns):
        row, column = divmod(thread, columns)
        for k, (a, b) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1))):
            to = (row + a) % rows * columns + (column + b) % columns
            found.append((to, (k ^ 1) * nbytes, thread, 0 if same else k * nbytes, nbytes))
    return Transfers.of(*np.array(found, np.int64).T)


def test_one_message_per_pair_of_nodes() -> None:
    """MULTICORE sends what several threads of a node have for another node together."""
    tree = Tree([i // 4 for i in range(16)])  # a row of the torus on each node
    for same in (False, True):
        moves = _grid(4, 4, 8, same=same)
        plans = [plan_of(MULTICORE, "", me, tree, tuning_of("small"), moves) for me in range(16)]
        sends = [[s for s in plan.steps if isinstance(s, Send)] for plan in plans]
        assert [len(some) for some in sends] == [2, 0, 0, 0] * 4
        assert {sum(b.size for b in s.blocks) for some in sends for s in some} == {4 * 8}


def test_a_block_for_several_threads_crosses_once() -> None:
    """One block of thread 0 goes to all four threads of the other node."""
    rows = [(to, 0, 0, 0, 40) for to in range(4, 8)]
    moves = Transfers.of(*np.array(rows, np.int64).T)
    tree = Tree([0] * 4 + [1] * 4)
    plan = plan_of(MULTICORE, "", 0, tree, tuning_of("small"), moves)
    assert plan.bytes_between_nodes(tree.node_of) == 40


@pytest.mark.parametrize("flag", ALGORITHM_NAMES, ids=list(ALGORITHM_NAMES.values()))
def test_steps_do_not_grow_with_the_job(flag: int) -> None:
    """Those of a thread depend on its neighbours, those of a node root on the blocks that cross."""
    most = []
    for columns in (32, 64):
        tree = Tree([i // 8 for i in range(8 * columns)])
        moves = _grid(8, columns, 8)
        plans = [plan_of(flag, "", me, tree, tuning_of("small"), moves) for me in (0, 9, 10)]
        most.append([len(list(plan.steps)) for plan in plans])
    assert most[0] == most[1]
