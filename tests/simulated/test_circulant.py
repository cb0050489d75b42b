"""The variants on a circulant graph of nodes: uneven nodes, many nodes, broken plans, their price.

`test_variants` simulates them on the placements of all variants.
"""

from __future__ import annotations

import random

import pytest
from simulated import values
from simulated.matrix import SYNCS, TUNINGS, Case, Planner, Story, WrongMemoryError, roots_of
from simulated.mutations import mutations
from support.soak import amount, seed

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import registered
from xupc.backends.simulator.errors import SimulationError
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import Rates, run
from xupc.plan.recorder import DST, SRC, trace
from xupc.plan.steps import Recv, Send
from xupc.topology.tree import Tree

VARIANTS = {v.collective: v for e in registered() for v in e.variants if v.label == "circulant"}
COLLECTIVES = sorted(name for name in VARIANTS if not name.startswith("allav_"))
LARGE, SIZES = TUNINGS["large"]


def test_which_collectives_have_them() -> None:
    blocks = {"broadcast", "broadcast_in_place", "gather_all", "gather_all_in_place"}
    assert set(VARIANTS) == {"allav_broadcast", *blocks}


def uneven(nodes: int, rng: random.Random) -> list[int]:
    """Return the node of each thread, some of whose nodes have two threads, in any order."""
    labels = [*range(nodes), *rng.choices(range(nodes), k=min(4, nodes))]
    rng.shuffle(labels)
    return labels


@pytest.mark.soak
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
@pytest.mark.parametrize("nodes", range(2, 18))
def test_private_arrays(nodes: int) -> None:
    """The same for private arrays, with other calls after it that use the same scratch."""
    variant = VARIANTS["allav_broadcast"]
    rng = random.Random(f"{seed()} private {nodes}")
    for _ in range(amount(2, 60)):
        labels, name = tuple(uneven(nodes, rng)), rng.choice(list(values.VALUES))
        one = values.One(
            "broadcast", variant.flag, rng.randrange(len(labels)), rng.choice(values.SIZES[name]),
            True, False, variant.label,
        )  # fmt: skip
        case = values.Case("broadcast", variant.flag, labels, name, False, rng.randrange(1 << 30))
        case.run(first=one)


@pytest.mark.soak
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_two_threads_on_each_node(collective: str) -> None:
    for sync in SYNCS:
        way = VARIANTS[collective]
        for name, (_, sizes) in TUNINGS.items():
            labels = (0, 1, 2, 2, 0, 1)
            Case((collective, way.flag), labels, sync, name, max(sizes), way.label).run()


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
    for mutation in random.Random(seed()).sample(broken, amount(30, len(broken))):
        story = Story(whole.with_plans(plans, mutation.plans), tree.size * n, 1)
        for tight in (True, False):
            story.call(variant, 0, n, ("my", "my"), LARGE, tight=tight)
        assert _is_noticed(story), mutation


def _is_noticed(story: Story) -> bool:
    try:
        story.run()
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
