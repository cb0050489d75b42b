"""Sequences of calls on arrays of values, simulated, with oracles.

Each thread's dst and src are its own: before a call it writes them, after it it reads them. Between
one call and the next it only writes to its staging buffer, as a later call of any kind may. Races
are therefore those of op_scratch and staging buffers. Reductions run on symbols, as in
`reductions`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
from simulated.matrix import THREADS, TUNINGS, copied, permutation, placements
from simulated.pool import failures_of, naming
from simulated.reductions import ITEM, SLOTS, Symbols

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import find
from xupc.algorithms.values import transforms
from xupc.algorithms.values_reduce_scatter import ReduceScatter
from xupc.algorithms.values_reduce_spec import ReduceSpec
from xupc.backends.simulator.script import Action, Call, UserRead, UserWrite
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import MULTICORE, PULL, PUSH
from xupc.plan.plan import Plan
from xupc.plan.recorder import trace
from xupc.topology.tree import Tree

MOVES = ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
SCANS = (
    "prefix_reduce", "suffix_reduce", "exclusive_prefix_reduce", "exclusive_suffix_reduce",
)  # fmt: skip
JOINS = ("reduce", "reduce_all", *SCANS, "reduce_scatter")
IN_PLACE = ("gather_all", "exchange", "permute", "reduce_all", *SCANS)
GUARD = 16
OP_SCRATCH_BYTES = 256
VALUES = {
    # nothing fits a op_scratch; units of a line, places that are soon taken again; folds are never,
    # or always, shared
    "large": {
        "eager_max": 0, "staging_chunk": 64, "staging_bytes": 2048, "parallel_fold_threads": 99,
        "direct_min": 0,
    },
    "small": {
        "eager_max": OP_SCRATCH_BYTES, "staging_chunk": 4096, "parallel_fold_threads": 3,
        "direct_min": 1, "direct_reduce_max": 64,
    },
    "mixed": {
        "eager_max": 96, "staging_chunk": 192, "staging_bytes": 2048, "parallel_fold_threads": 2,
        "pipeline_min": 128, "direct_min": 100,
    },
    # led by node roots: all in the op_scratch, what is staged only, or nothing
    "whole": {
        "eager_max": 160, "staging_chunk": 4096, "staging_bytes": 4096,
        "parallel_fold_threads": 99, "direct_min": 0,
    },
}  # fmt: skip
"""What the tunings of `matrix` have besides."""
SIZES = {
    "large": (8, 40, 64, 72, 136, 400, 1400), "small": (8, 24, 32, 48, 80, 104),
    "mixed": (8, 16, 40, 96, 104, 256, 320, 1400), "whole": (8, 24, 48, 64, 104, 320, 1400),
}  # fmt: skip


def tuning_of(name: str) -> dict[str, int]:
    """A tuning of `matrix`, with what arrays of values need."""
    own = {
        "direct_min_alltoall": 40,
        "direct_min_shared_source": 200,
        "direct_min_pair": 8,
        "direct_put_min": 48,
        "direct_reduce_max": 256,
    }
    return {**own, **TUNINGS[name][0], **VALUES[name]}


@dataclass(frozen=True)
class One:
    """One call."""

    form: str
    flag: int
    root: int
    nbytes: int
    in_place: bool
    exact: bool = False
    label: str = ""
    """The variant; "": the default one."""


def _lengths(one: One, threads: int) -> tuple[int, int]:
    """Bytes of dst and src, where a thread has them."""
    n = one.nbytes
    many = threads * n
    return {
        "broadcast": (n, 0), "scatter": (n, many), "gather": (many, n),
        "reduce_scatter": (n, many),
        "gather_all": (many, 0 if one.in_place else n),
        "exchange": (many, 0 if one.in_place else many),
    }.get(one.form, (n, 0 if one.in_place else n))  # fmt: skip


def oracle(one: One, dst: Any, src: Any, kernel: Symbols) -> None:
    """What becomes of all threads' dst, (threads, bytes)."""
    t, n, root = len(dst), one.nbytes, one.root
    if one.in_place:
        src = dst.copy()
    match one.form:
        case "broadcast":
            dst[:] = dst[root]
        case "scatter":
            dst[:, :n] = src[root].reshape(t, n)
        case "gather":
            dst[root] = src.reshape(-1)
        case "gather_all":
            blocks = [src[i, i * n : (i + 1) * n] if one.in_place else src[i] for i in range(t)]
            dst[:] = np.concatenate(blocks)
        case "exchange":
            dst[:] = src.reshape(t, t, n).swapaxes(0, 1).reshape(t, -1)
        case "permute":
            dst[permutation(t, root)] = src
        case "reduce_scatter":
            items = src.view(np.uint64).reshape(t, t, -1)
            for i, k in np.ndindex(t, items.shape[2]):
                dst.view(np.uint64)[i, k] = reduce(kernel.join, items[:, i, k].tolist())
        case _:
            _joined(one, dst.view(np.uint64), src.view(np.uint64), kernel)


def _joined(one: One, dst: Any, src: Any, kernel: Symbols) -> None:
    for k, column in enumerate(src.T.tolist()):
        match one.form:
            case "prefix_reduce":
                dst[:, k] = list(accumulate(column, kernel.join))
            case "suffix_reduce":
                dst[::-1, k] = list(accumulate(column[::-1], lambda x, y: kernel.join(y, x)))
            case "exclusive_prefix_reduce":
                dst[1:, k] = list(accumulate(column[:-1], kernel.join))
            case "exclusive_suffix_reduce":
                dst[-2::-1, k] = list(accumulate(column[:0:-1], lambda x, y: kernel.join(y, x)))
            case "reduce":
                dst[one.root, k] = reduce(kernel.join, column)
            case _:
                dst[:, k] = reduce(kernel.join, column)
    if one.form.startswith("exclusive") and not kernel.ordered:  # ordered: functions, as it was
        dst[-1 if one.form.endswith("suffix_reduce") else 0] = kernel.number(())


def given(one: One, threads: int, ordered: bool) -> list[object]:
    """Return the arguments of the algorithms."""
    if one.form == "reduce_scatter":
        return [ReduceScatter(one.nbytes // ITEM, ITEM, one.exact or ordered)]
    if one.form in JOINS:
        to = one.root if one.form == "reduce" else None
        exact, exclusive = one.exact or ordered, one.form.startswith("exclusive")
        return [
            ReduceSpec(
                one.nbytes // ITEM, ITEM, to, ordered, exact, one.in_place, exclusive, not ordered
            )
        ]
    if one.form == "permute":
        return [permutation(threads, one.root), one.nbytes, one.in_place]
    return [one.root, one.nbytes, one.in_place]


def snapshot(one: One, tree: Tree, tuning: dict[str, int]) -> One:
    """The call that is made of one in place, where the algorithm has to have a src."""
    label = one.label
    if one.in_place and not transforms(one.form, one.flag, tree, tuning, one.nbytes, label):
        return replace(one, in_place=False)
    return one


def plan_of(one: One, me: int, tree: Tree, tuning: dict[str, int], kernel: Symbols) -> Plan:
    """A thread's plan."""
    call = facts(one, tree, tuning, kernel)
    variant = find(f"allav_{one.form}", one.flag).choose(one.label, call)
    return trace(
        variant.function, variant.name, variant.collective, me, tree, call.sync, tuning,
        call.arguments, call.kernel, private=True,
    )  # fmt: skip


def facts(one: One, tree: Tree, tuning: dict[str, int], kernel: Symbols) -> CallFacts:
    """Return what the choice among variants depends on."""
    arguments = given(one, tree.size, kernel.ordered)
    return CallFacts(tree, tuning, ("no", "no"), arguments, kernel if one.form in JOINS else None)


@dataclass(frozen=True)
class Case:
    """A sequence of calls of one algorithm, and others, on one placement."""

    form: str
    flag: int
    labels: tuple[int, ...]
    tuning: str
    ordered: bool
    seed: int

    def calls(self) -> list[One]:
        """The first one twice, with all kinds of others after it."""
        rng = random.Random(f"{self.seed} {self.form} {self.labels}")

        def one(form: str, flag: int) -> One:
            n = rng.choice(SIZES[self.tuning])
            if form in ("exchange", "gather_all", "reduce_scatter") and len(self.labels) > 5:
                n = min(n, 136)
            in_place = form == "broadcast" or (form in IN_PLACE and rng.random() < 0.4)
            which = rng.randrange(max(len(self.labels), 4 if form == "permute" else 1))
            return One(form, flag, which, n, in_place, rng.random() < 0.3)

        def other() -> One:
            return one(rng.choice(MOVES + JOINS), rng.choice((PULL, PUSH, MULTICORE)))

        first, second = one(self.form, self.flag), one(self.form, self.flag)
        return [first, first, second, other(), other(), first, other(), second]

    def run(
        self, seed: int | None = None, first: One | None = None, tree: Tree | None = None,
        also: int | None = None, programs: dict[One, list[Program]] | None = None,
    ) -> None:  # fmt: skip
        """Simulate it; every byte, guards included, must be right.

        `first` is called several times, instead of the case's calls; `tree` has levels below its
        nodes; `also` is the seed of a second schedule of the same calls; `programs` run in place of
        those of these calls.
        """
        tree, tuning = tree or Tree(self.labels), tuning_of(self.tuning)
        threads, kernel = tree.size, Symbols(self.ordered)
        calls = self.calls() if first is None else [first] * 4
        room = max(max(_lengths(one, threads)) for one in calls) + 2 * GUARD
        expected = {name: np.zeros((threads, room), np.uint8) for name in ("dst", "src")}
        memory = {name: [bytearray(room) for _ in range(threads)] for name in expected}
        for name, size in (("slot", SLOTS * OP_SCRATCH_BYTES), ("buffer", tuning["staging_bytes"])):
            memory[name] = [bytearray(size) for _ in range(threads)]
        scripts: list[list[Action]] = [[] for _ in range(threads)]
        at_once = programs is not None  # broken ones, of which the first finding is enough
        programs = dict(programs or {})

        def fresh(nbytes: int) -> Any:
            return kernel.fresh(nbytes // ITEM).view("u1")

        for number, asked in enumerate(calls):
            one = snapshot(asked, tree, tuning)
            for name, nbytes in zip(expected, _lengths(one, threads), strict=True):
                for i in range(threads):
                    values = fresh(nbytes)
                    if asked != one and name == "src":
                        values = expected["dst"][i, GUARD : GUARD + nbytes].copy()
                    expected[name][i, GUARD : GUARD + nbytes] = values
                    scripts[i].append(UserWrite(name, i, GUARD, values.tobytes()))
            if one not in programs:
                plans = [plan_of(one, me, tree, tuning, kernel) for me in range(threads)]
                programs[one] = [Program(plan, tree) for plan in plans]
            where = (
                ("dst", GUARD),
                ("src", GUARD),
                ("slot", number * OP_SCRATCH_BYTES),
                ("buffer", 0),
            )
            call = Call(programs[one], where, kernel)
            dst, src = (
                expected[name][:, GUARD : GUARD + nbytes]
                for name, nbytes in zip(expected, _lengths(one, threads), strict=True)
            )
            result = np.ascontiguousarray(dst)
            oracle(one, result, np.ascontiguousarray(src), kernel)
            dst[:] = result
            for i in range(threads):
                scripts[i].append(call)
                scripts[i].append(UserWrite("buffer", i, 0, bytes(tuning["staging_bytes"])))
                scripts[i].append(UserRead("dst", i, 0, expected["dst"][i].tobytes()))
                scripts[i].append(UserRead("src", i, 0, expected["src"][i].tobytes()))
        with naming(f"{self}, {self.calls()}"):
            for schedule in (seed,) if also is None else (seed, also):
                Simulation(tree, copied(memory), scripts, schedule).run(at_once=at_once)


def cases(per: int, seed: int) -> list[Case]:
    """So many of every form, algorithm, placement and tuning."""
    rng = random.Random(seed)
    return [
        Case(form, flag, tuple(labels), tuning, rng.random() < 0.5, rng.randrange(1 << 30))
        for form in MOVES + JOINS
        for flag in (PULL, PUSH, MULTICORE)
        for threads in THREADS
        for labels in placements(threads).values()
        for tuning in VALUES
        for _ in range(per)
    ]


def run_cases(chosen: list[Case]) -> list[str]:
    """Run them, every fifth under a random schedule too; failures as text."""
    return failures_of(chosen, 5)
