"""The links of nodes on the clock: bytes that pass at once, several links, whole calls by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xupc.algorithms import registry
from xupc.backends.simulator.network import Network
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.timeline import run
from xupc.bench.results import Cell
from xupc.plan.stripes import MOST_ROOTS
from xupc.predict.price import programs_of
from xupc.records import replace
from xupc.report.plans import call_of
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place, registered_name
from xupc.tuning.selection_file import built_in

RATES = Rates(copy=math.inf, line=0.0, wire=4.0, latency=0.0)


def network(threads: int = 1, **costs: float) -> Network:
    """Return two nodes with links of 4 bytes per ns."""
    return Network(Tree([0] * threads + [1] * threads), replace(RATES, **costs))


def ended(name: str, shape: tuple[int, int], nbytes: int, rates: Rates) -> float:
    """Return the time of an all_gather_all by a variant of MULTICORE."""
    tree = Tree(np.repeat(np.arange(shape[0]), shape[1]).tolist())
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "tcp", oversubscribed=False))
    call = call_of(Cell("all_gather_all", nbytes, nbytes, sync="allsync"), tree, tuning)
    entries = registry.registered(registered_name("all_gather_all"))
    flag, label = registry.parse_name(name)
    variant = next(entry.choose(label, call) for entry in entries if entry.flag == flag)
    return run(programs_of(variant, call), rates).end


def test_an_idle_link_carries_a_burst_at_once() -> None:
    link = network(burst=1000)
    assert link.leave(0, 0.0, 1000) == (0.0, 0.0)
    assert link.leave(0, 0.0, 400) == (0.0, 100.0)
    # idle for 50 ns, which makes room for 200 bytes; the others take 150 ns
    assert link.leave(0, 150.0, 800) == (150.0, 300.0)
    assert link.leave(0, 200.0, 4) == (300.0, 301.0)
    # the other direction, and the other node, have links of their own
    assert link.reach((1, 0), 0.0, 0.0, 1400) == 100.0
    assert link.leave(1, 0.0, 1400) == (0.0, 100.0)
    # the link fills no further than to the burst
    assert link.leave(0, 1e6, 1400) == (1e6, 1e6 + 100)


def test_no_message_passes_its_receiver_before_its_sender() -> None:
    link = network(burst=1000)
    assert link.reach((0, 1), 0.0, 70.0, 400) == 70.0
    assert link.reach((0, 1), 80.0, 90.0, 0) == 90.0


def test_threads_share_the_links() -> None:
    link = network(3, links=2)
    assert [link.leave(thread, 0.0, 400)[1] for thread in (0, 1, 2)] == [100.0, 200.0, 100.0]
    assert [link.leave(thread, 0.0, 400)[1] for thread in (3, 4, 5)] == [100.0, 200.0, 100.0]


def test_long_messages_go_over_all_links() -> None:
    link = network(2, links=2, split=400)
    assert link.leave(0, 0.0, 400)[1] == 50.0
    assert link.leave(1, 0.0, 396)[1] == 149.0  # on the first link
    assert link.leave(1, 0.0, 400)[1] == 199.0  # as late as the later half
    assert link.leave(0, 0.0, 4) == (199.0, 200.0)


@pytest.mark.parametrize("name", ["multicore:ring", "multicore:rounds"])
def test_two_links(name: str) -> None:
    """Two roots on two links, or messages over both, halve a call; one root alone does not."""
    shape, nbytes = (4, MOST_ROOTS), 1 << 16
    one = ended(name, shape, nbytes, RATES)
    assert one == pytest.approx(3 * MOST_ROOTS * nbytes / RATES.wire, rel=0.1)
    own = replace(RATES, links=2)
    assert ended(name, shape, nbytes, own) == pytest.approx(one, rel=0.01)
    assert ended(f"{name}/2", shape, nbytes, own) == pytest.approx(one / 2, rel=0.1)
    assert ended(f"{name}/2", shape, nbytes, RATES) == pytest.approx(one, rel=0.1)
    split = replace(own, split=1024)
    assert ended(name, shape, nbytes, split) == pytest.approx(one / 2, rel=0.1)
