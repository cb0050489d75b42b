"""Several calls under way: two on all threads, one on a team, waited for in any order.

Disjoint teams make their calls at the same time. Each thread writes its own sources just before it
posts, and reads its own results just after it waited; meanwhile nothing orders its program and
the calls.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from simulated.matrix import ENTRIES, MEANING, STAGING, TUNINGS, Planner, Sync, placements

from xupc.algorithms.registry import Entry, find
from xupc.backends.simulator.errors import DeadlockError, RaceError
from xupc.backends.simulator.script import Action, Await, Call, Post, UserRead, UserWrite
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import PULL
from xupc.topology.tree import Tree

Team = tuple[int, ...]
ROOM = 96
NAMES = ("first", "second", "other")  # of what is under way: two on all threads, one on a team


class Streams:
    """Scripts of rounds of posted calls, and what memory must hold."""

    def __init__(self, labels: list[int], seed: int) -> None:
        self.tree = Tree(labels)
        self.threads = self.tree.size
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        color = [0, 1, *(self.random.randrange(2) for _ in range(self.threads - 2))]
        every = tuple(range(self.threads))
        self.parts = [
            tuple(self.random.sample(same, len(same)))
            for same in ([t for t in every if color[t] == c] for c in (0, 1))
        ]
        self.teams = {"first": [every], "second": [every], "other": self.parts}
        self.planners = {
            team: Planner(self.tree.sub(team) if team != every else self.tree)
            for team in [every, *self.parts]
        }
        self.expected = {
            f"{side} {name}": self.numbers.integers(0, 256, (self.threads, ROOM), dtype=np.uint8)
            for name in NAMES
            for side in ("dst", "src")
        }
        self.memory = {
            array: [bytearray(row.tobytes()) for row in rows]
            for array, rows in self.expected.items()
        }
        for team in ("all", "part"):  # scratch, which calls on one team share
            self.memory[team] = [bytearray(STAGING) for _ in every]
        self.scripts: list[list[Action]] = [[] for _ in range(self.threads)]

    def round(self, entries: list[Entry], sync: Sync, tuning: Any) -> None:
        """One call of each name, posted and waited for in an order of each thread's own."""
        for thread in range(self.threads):
            for name in NAMES:
                for side in ("dst", "src"):
                    self._write(thread, f"{side} {name}")
        posts: list[dict[str, Post]] = [{} for _ in range(self.threads)]
        for name, entry in zip(NAMES, entries, strict=True):
            for team in self.teams[name]:
                call = self._call(name, team, entry, sync, tuning)
                for thread in team:
                    posts[thread][name] = Post(call, name)
        for thread, script in enumerate(self.scripts):
            order = list(NAMES)
            self.random.shuffle(order)
            if order.index("second") < order.index("first"):  # one team's calls keep their order
                order.remove("second")
                order.append("second")
            script += [posts[thread][name] for name in order]
        for thread, script in enumerate(self.scripts):
            for name in self.random.sample(NAMES, len(NAMES)):
                script.append(Await(name))
                for side in ("dst", "src"):
                    row = self.expected[f"{side} {name}"][thread]
                    script.append(UserRead(f"{side} {name}", thread, 0, row.tobytes()))

    def _write(self, thread: int, array: str) -> None:
        data = self.numbers.integers(0, 256, ROOM, dtype=np.uint8)
        self.expected[array][thread] = data
        self.scripts[thread].append(UserWrite(array, thread, 0, data.tobytes()))

    def _call(self, name: str, team: Team, entry: Entry, sync: Sync, tuning: Any) -> Call:
        size = len(team)
        n = self.random.choice([1, 5, ROOM // size])
        root = self.random.randrange(size)
        programs = self.planners[team].programs(entry, sync, tuning, root, n)
        dst, src = (self.expected[f"{side} {name}"] for side in ("dst", "src"))
        rows = list(team)
        results, sources = dst[rows], src[rows]
        MEANING[entry.collective].oracle(results, sources, root, n)
        dst[rows] = results
        scratch = "part" if name == "other" else "all", 0
        operands = (f"dst {name}", 0), (f"src {name}", 0), scratch, scratch
        return Call(programs, operands, None, team)

    def run(self, seed: int | None) -> None:
        Simulation(self.tree, self.memory, self.scripts, seed).run()


@pytest.mark.rotates
@pytest.mark.parametrize("tuning", ["large", "mixed"])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.collective}-{e.name}")
def test_calls_under_way_do_not_touch_each_other(entry: Entry, tuning: str) -> None:
    for threads in (2, 3, 5):
        for seed, labels in enumerate(placements(threads).values()):
            streams = Streams(labels, seed)
            for sync in (("all", "all"), ("my", "my"), ("my", "all")):
                others = streams.random.choices(ENTRIES, k=2)
                streams.round([entry, *others], sync, TUNINGS[tuning][0])
            streams.run(seed if threads == 5 else None)


def _one_call(sync: Sync) -> tuple[Streams, Post]:
    streams = Streams([0, 0, 1], 1)
    entry, every = find("scatter", PULL), tuple(range(3))
    call = streams._call("first", every, entry, sync, TUNINGS["large"][0])
    return streams, Post(call, "first")


@pytest.mark.parametrize("side", ["dst", "src"])
def test_to_touch_a_call_under_way_is_a_race(side: str) -> None:
    """A thread writes its source, or its result, between posting and waiting."""
    streams, post = _one_call(("all", "all"))
    for script in streams.scripts:
        script += [post, UserWrite(f"{side} first", 1, 0, b"x"), Await("first")]
    streams.scripts[0].remove(streams.scripts[0][1])
    streams.scripts[2].remove(streams.scripts[2][1])
    with pytest.raises(RaceError, match="user writes"):
        streams.run(None)


def test_without_synchronisation_a_result_is_known_only_to_who_waited() -> None:
    streams, post = _one_call(("my", "my"))
    for thread, script in enumerate(streams.scripts):
        other = (thread + 1) % 3
        data = streams.expected["dst first"][other].tobytes()
        script += [post, Await("first"), UserRead("dst first", other, 0, data)]
    with pytest.raises(RaceError, match="user reads"):
        streams.run(None)


def test_to_wait_for_what_a_thread_has_not_posted_is_a_deadlock() -> None:
    streams, post = _one_call(("all", "all"))
    for script in streams.scripts:
        script += [post, Await("first")]
    streams.scripts[2].pop(0)
    with pytest.raises(DeadlockError, match="thread 2: waits for 'first', not posted"):
        streams.run(None)
