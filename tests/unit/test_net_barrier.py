"""The rounds of barriers by messages along a tree: what each thread learns, whatever the order."""

from __future__ import annotations

from random import Random

import pytest

from xupc.comm.net_barrier import CONFLICT, EXCHANGE, Rounds, differs, rounds_along, rounds_among
from xupc.topology.levels import node_levels
from xupc.topology.machine import describe


def learn(rounds: list[Rounds], rng: Random) -> list[set[int]]:
    """Run the rounds of all threads in some order; return the calls that each has learnt of."""
    known = [{thread} for thread in range(len(rounds))]
    sent: dict[tuple[int, int], set[int]] = {}
    at, posted = [0] * len(rounds), [-1] * len(rounds)
    while open_ := [t for t in range(len(rounds)) if at[t] < len(rounds[t])]:
        moved = False
        for thread in rng.sample(open_, len(open_)):
            to, of = rounds[thread][at[thread]]
            if posted[thread] < at[thread]:
                sent |= {(thread, other): set(known[thread]) for other in to}
                posted[thread] = at[thread]
                moved = True
            if all((other, thread) in sent for other in of):
                for other in of:
                    known[thread] |= sent.pop((other, thread))
                at[thread] += 1
                moved = True
        assert moved, "stuck"
    assert not sent
    return known


@pytest.mark.parametrize("few", [16, 2])
@pytest.mark.parametrize("machines", [["2x2", "1x3"], ["2x2x2", "3,1/2,2", "1x1", "2x2"]])
def test_all_learn_of_all_nodes(machines: list[str], few: int) -> None:
    """Trees in some nodes, stars in others, between tops one round or several."""
    found = [describe(machine) for machine in machines]
    nodes = [node_levels(m, m.masks(len(m.cpus))) for m in found]
    first = [sum(levels.size for levels in nodes[:k]) for k in range(len(nodes))]
    tuning = {"few_nodes_max": few, "root_exchange_max": 0, "root_exchange_max_one_block": 0}
    rounds = []
    for node, levels in enumerate(nodes):
        top, _ = rounds_among(first, node, tuning)
        for thread in range(levels.size):
            parent, *children = levels.relatives(thread)
            below = [first[node] + (j if j >= 0 else ~j) for j in children]
            above = first[node] + parent if parent >= 0 else -1
            rounds.append(rounds_along(above, below, top))
    size = len(rounds)
    for number in range(10):
        assert learn(rounds, Random(number)) == [set(range(size))] * size


@pytest.mark.parametrize("machine", ["2x2", "2x2x2", "3,1/2,2", "8,8/8,6"])
def test_all_learn_of_all(machine: str) -> None:
    found = describe(machine)
    levels = node_levels(found, found.masks(len(found.cpus)))
    rounds = []
    for thread in range(levels.size):
        parent, *children = levels.relatives(thread)
        rounds.append(rounds_along(parent, [j if j >= 0 else ~j for j in children], []))
    assert sum(len(to) for each in rounds for to, _ in each) == 2 * (levels.size - 1)
    for number in range(10):
        assert learn(rounds, Random(number)) == [set(range(levels.size))] * levels.size


@pytest.mark.parametrize(
    ("low", "high", "flags", "mine", "expected"),
    [
        (7, 7, 0, 7, False),
        (7, 7, 0, None, False),
        (7, 9, 0, 7, True),
        (7, 9, 0, None, True),
        (7, 7, CONFLICT, 7, True),
        (7, 7, CONFLICT, None, True),
        (7, 7, CONFLICT << 1, 7, False),
        (9, 9, 0, 7, True),
        (5, 5, 0, 7, True),
        (0, 0, 0, 7, True),
    ],
)
def test_what_a_message_shows(
    low: int, high: int, flags: int, mine: int | None, expected: bool
) -> None:
    """Fingerprints of the senders that differ, a conflict, or another call than that of `mine`."""
    message = EXCHANGE.pack(low, high, 1, flags) + b"data"
    assert differs(message, mine) is expected
