"""No thread reads a shared list too early or late in permute, as `collectives.Permute` calls it.

Every thread reads the whole list itself, so its owners, or under ALLSYNC any thread, must not
write it before all have come or after the first has gone on.
"""

from __future__ import annotations

import pytest
from simulated.matrix import SYNCS, TUNINGS, Planner, Sync, permutation

from xupc.algorithms.registry import Entry, registered
from xupc.api.list_calls import after_reading
from xupc.backends.simulator.errors import RaceError
from xupc.backends.simulator.script import Action, Call, UserBarrier, UserRead, UserWrite
from xupc.backends.simulator.simulator import Simulation
from xupc.topology.tree import Tree

ENTRIES = pytest.mark.parametrize("entry", registered("permute"), ids=lambda e: e.name)
PLACEMENTS = ([0, 0, 1, 1, 2], [0, 1, 0, 2], [0, 0, 0])


def _run(entry: Entry, labels: list[int], sync: Sync, left: Sync, n: int = 13) -> None:
    """Two calls of modes `sync`, whose plans have the modes `left`."""
    threads, planner = len(labels), Planner(Tree(labels))
    programs = planner.programs(entry, left, TUNINGS["large"][0], 2, n)
    perm = [bytes([to]) for to in permutation(threads, 2)]
    scripts: list[list[Action]] = [[] for _ in labels]

    def write(mode: str, data: list[bytes]) -> None:
        for x in range(threads):
            writer = (x + 1) % threads if mode == "all" else x
            scripts[writer].append(UserWrite("perm", x, 0, data[x]))

    for _ in range(2):
        write(sync[0], perm)
        for script in scripts:
            script.append(UserBarrier())  # the call's own, or one that the user needs
            script += [UserRead("perm", x, 0, perm[x]) for x in range(threads)]
            script.append(Call(programs, (("dst", 0), ("src", 0))))
        if sync[1] != "no":
            write(sync[1], [b"?"] * threads)
        for script in scripts:
            script.append(UserBarrier())
    sizes = {"dst": n, "src": n, "perm": 1}
    memory = {name: [bytearray(size) for _ in labels] for name, size in sizes.items()}
    Simulation(planner.tree, memory, scripts).run()


@ENTRIES
@pytest.mark.parametrize("labels", PLACEMENTS, ids=str)
def test_a_shared_list_is_data(entry: Entry, labels: list[int]) -> None:
    """A shared list is synchronised as data is, in all sync modes."""
    for sync in SYNCS:
        _run(entry, labels, sync, after_reading(sync))


@ENTRIES
def test_without_its_barrier_a_list_changes_too_early(entry: Entry) -> None:
    """Under OUT_MYSYNC the plan without an IN barrier is not enough."""
    with pytest.raises(RaceError, match="user reads perm"):
        _run(entry, PLACEMENTS[0], ("all", "my"), ("no", "my"))
