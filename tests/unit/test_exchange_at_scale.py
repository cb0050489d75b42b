"""Where node roots exchange all nodes' values: a plan has at most `max_messages` messages."""

from __future__ import annotations

import pytest

from xupc.algorithms import registry
from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Variant
from xupc.backends.simulator.sim_program import SEND, Program
from xupc.bench.results import Cell
from xupc.report.plans import call_of, maker
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place, registered_name
from xupc.tuning.selection_file import built_in


def exchange(nodes: int, nbytes: int) -> tuple[Variant, CallFacts]:
    """Return an allav_reduce_all of one thread per node by `multicore:nodes`."""
    tree = Tree(range(nodes))
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "tcp", oversubscribed=False))
    call = call_of(Cell("allav_reduce_all", nbytes, nbytes), tree, tuning)
    entries = registry.registered(registered_name("allav_reduce_all"))
    each = (variant for entry in entries for variant in entry.variants)
    return next(variant for variant in each if variant.name == "multicore:nodes"), call


@pytest.mark.parametrize(
    ("nodes", "nbytes", "possible"),
    [(2, 4 << 20, True), (8, 1 << 20, True), (64, 1 << 16, True),
     (256, 8, True), (256, 1 << 16, False)],
)  # fmt: skip
def test_the_messages_of_a_node_root(nodes: int, nbytes: int, possible: bool) -> None:
    variant, call = exchange(nodes, nbytes)
    steps = [step for lane in Program(maker(variant, call)(0), call.tree).lanes for step in lane]
    sent = sum(len(what.messages) for kind, what in steps if kind == SEND)
    assert variant.can_run(call) == possible == (sent <= call.tuning["max_messages"])
