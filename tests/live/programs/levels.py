"""Teams of levels on a described machine: their threads, a collective on each, their end."""

from __future__ import annotations

import os
import sys

import xupc
from xupc.api.lifecycle import described_machine
from xupc.topology.levels import NodeLevels, node_levels


def expected(team: xupc.Team) -> NodeLevels:
    """Return the levels of my node's threads of all, from the description alone."""
    machine = described_machine()
    assert machine is not None
    return node_levels(machine, machine.masks(team.node.size))


def check(team: xupc.Team, levels: NodeLevels) -> None:
    """Compare the teams of all levels with the expected ones, and let each compute."""
    assert team.levels == levels.names, (team.levels, levels.names)
    node = [int(thread) for thread in team.node.threads]
    me = node.index(xupc.MYTHREAD)
    for level in levels.levels:
        for name in level.names:
            mine = [node[i] for i in level.domain(me)]
            assert list(team.level(name).threads) == mine
            assert xupc.allv_gather_all(xupc.MYTHREAD, team=team.level(name)) == mine
            roots = [node[i] for i in level.roots]
            part = team.level_roots(name)
            assert (part is not None) == (me in level.roots)
            if part is not None:
                assert xupc.allv_gather_all(xupc.MYTHREAD, team=part) == roots
    assert team.level(levels.names[-1]) is team.level(levels.levels[-1].names[-1])


def drawn(team: xupc.Team) -> None:
    """Print whether the tree draws the levels, once."""
    text = str(team.tree)
    assert all(f"{name}: thread" in text for name in team.levels[1:]), text


def good() -> None:
    with xupc.init() as team:
        levels = expected(team)
        check(team, levels)
        drawn(team)
        half = team.split(xupc.MYTHREAD % 2)
        node = [int(thread) for thread in team.node.threads]
        assert half is not None
        check(half, levels.sub([node.index(thread) for thread in half.node.threads]))
        half.free()
        team.barrier()
        print("good")


def bad() -> None:
    """Print the error of init; then init can be called again."""
    try:
        xupc.init()
    except ValueError as e:
        print(e)
    del os.environ["XUPC_TOPOLOGY"]
    with xupc.init() as team:
        assert team.levels == ("node",)


def bound() -> None:
    """Bind all threads before init, each to the processors that an argument lists."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2 + rank].split(",")})
    with xupc.init() as team:
        print(xupc.MYTHREAD, *team.levels, *team.level("core").threads)


{"good": good, "bad": bad, "bound": bound}[sys.argv[1]]()
