"""Exchanges between neighbours in random graphs, simulated, with an oracle by direct indexing.

Private arrays, as in `values`: each thread writes its src and dst before a call and reads them
after it, with nothing between one call and the next. The form on shared arrays has the algorithms
of the `_x` forms, so that `transfers` is about it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from simulated.matrix import THREADS, copied, placements
from simulated.pool import failures_of, naming
from simulated.reductions import SLOTS
from simulated.values import GUARD, OP_SCRATCH_BYTES, SIZES, VALUES, tuning_of

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import find
from xupc.algorithms.transfer_lists import Transfers
from xupc.backends.simulator.script import Action, Call, UserRead, UserWrite
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import MULTICORE, PULL, PUSH
from xupc.plan.plan import Plan
from xupc.plan.recorder import trace
from xupc.topology.tree import Tree

NAME = "allav_neighbour_exchange"
ROOM = 6000


@lru_cache(4096)
def graph(threads: int, sizes: tuple[int, ...], seed: int) -> Transfers:
    """Some edges, perhaps none, several between two threads, from a thread to itself, to all.

    A block may go to several neighbours, and overlap another one; places do not overlap.
    """
    rng = random.Random(f"{threads} {sizes} {seed}")
    kind = rng.choice(("few", "many", "ring", "star", "same block"))
    every = range(threads)
    if kind == "ring":
        edges = [(i, (i + step) % threads) for i in every for step in (1, -1)]
    elif kind == "star":
        edges = [(0, i) for i in every] + [(i, 0) for i in every]
    else:
        count = rng.randrange(threads + 1) if kind == "few" else 3 * threads
        edges = [(rng.randrange(threads), rng.randrange(threads)) for _ in range(count)]
    used, rows = [0] * threads, []
    size = rng.choice(sizes)
    for of, to in rng.sample(edges, len(edges)):
        n = size if rng.random() < 0.6 else rng.choice((*sizes, 0, 5))
        n = min(n, (ROOM - 2 * GUARD) // (3 * threads + 2))
        at = used[to] + rng.randrange(3)
        start = 3 if kind == "same block" else rng.randrange(ROOM - 2 * GUARD - n)
        rows.append((to, at, of, start, n))
        used[to] = at + n
    return Transfers.of(*np.array(rows, np.int64).reshape(-1, 5).T)


def plan_of(flag: int, label: str, me: int, tree: Tree, tuning: dict[str, int], moves: Any) -> Plan:
    """A thread's plan."""
    call = CallFacts(tree, tuning, ("no", "no"), [moves])
    variant = find(NAME, flag).choose(label, call)
    return trace(
        variant.function, variant.name, NAME, me, tree, call.sync, tuning, [moves], private=True
    )


@dataclass(frozen=True)
class Case:
    """A sequence of calls with three graphs on one placement; the first one several times."""

    flag: int
    labels: tuple[int, ...]
    tuning: str
    seed: int
    label: str = ""

    def moves(self) -> list[Transfers]:
        """The graphs of the calls."""
        sizes = SIZES[self.tuning]
        first, second, third = (
            graph(len(self.labels), sizes, 3 * self.seed + i) for i in range(3)
        )
        return [first, first, second, first, third, second]

    def run(self, seed: int | None = None, mutate: Any = None, also: int | None = None) -> None:
        """Simulate it; every byte, guards included, must be right.

        `mutate` changes plans; `also` is the seed of a second schedule of the same calls.
        """
        tree, tuning = Tree(self.labels), tuning_of(self.tuning)
        threads, rng = tree.size, np.random.default_rng(self.seed)
        shape = threads, ROOM
        expected = {name: np.zeros(shape, np.uint8) for name in ("dst", "src")}
        memory = {name: [bytearray(ROOM) for _ in range(threads)] for name in expected}
        for name, size in (("slot", SLOTS * OP_SCRATCH_BYTES), ("buffer", tuning["staging_bytes"])):
            memory[name] = [bytearray(size) for _ in range(threads)]
        scripts: list[list[Action]] = [[] for _ in range(threads)]
        others = random.Random(self.seed)
        programs: dict[tuple[int, str, int], list[Program]] = {}
        for number, moves in enumerate(self.moves()):
            flag, label = self.flag, self.label
            if number == 4 and not mutate:
                flag, label = others.choice((PULL, PUSH, MULTICORE)), ""
            for name, i in [(name, i) for name in expected for i in range(threads)]:
                expected[name][i] = rng.integers(0, 256, ROOM, np.uint8)
                scripts[i].append(UserWrite(name, i, 0, expected[name][i].tobytes()))
            key = flag, label, id(moves)
            if key not in programs:
                plans = [plan_of(flag, label, i, tree, tuning, moves) for i in range(threads)]
                if mutate is not None:
                    plans = [mutate(plan) for plan in plans]
                programs[key] = [Program(plan, tree) for plan in plans]
            where = (
                ("dst", GUARD), ("src", GUARD), ("slot", number * OP_SCRATCH_BYTES), ("buffer", 0),
            )  # fmt: skip
            call = Call(programs[key], where, None)
            for to, there, of, here, n in moves.each():
                there, here = GUARD + there, GUARD + here
                expected["dst"][to, there : there + n] = expected["src"][of, here : here + n]
            for i in range(threads):
                scripts[i].append(call)
                scripts[i].append(UserWrite("buffer", i, 0, bytes(tuning["staging_bytes"])))
                scripts[i].append(UserRead("dst", i, 0, expected["dst"][i].tobytes()))
                scripts[i].append(UserRead("src", i, 0, expected["src"][i].tobytes()))
        with naming(self):
            for schedule in (seed,) if also is None else (seed, also):
                simulation = Simulation(tree, copied(memory), scripts, schedule)
                simulation.run(at_once=mutate is not None)


def cases(per: int, seed: int) -> list[Case]:
    """So many of every algorithm, placement and tuning."""
    rng = random.Random(seed)
    return [
        Case(flag, tuple(labels), tuning, rng.randrange(1 << 20))
        for flag in (PULL, PUSH, MULTICORE)
        for threads in THREADS
        for labels in placements(threads).values()
        for tuning in VALUES
        for _ in range(per)
    ]


def run_cases(chosen: list[Case]) -> list[str]:
    """Run them, every third under a random schedule too; failures as text."""
    return failures_of(chosen, 3)
