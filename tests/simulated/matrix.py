"""Sequences of calls for the simulator; its users do all that the sync modes allow.

A `Story` is one such sequence.  It computes what memory must hold after each call (the
oracles: a line of numpy each) and, from the sync modes alone, which threads may touch
which bytes between two calls:

* under ALLSYNC a neighbour stores every source byte and poisons every result byte just
  before the call; just after it the neighbour reads the results and overwrites both;
  under MYSYNC a thread does so with its own; under NOSYNC none does without a barrier;
* *tight* boundaries have no barrier: only accesses that both calls allow. Where not
  even the second call itself would be legal on the same memory, it uses other memory
  and runs into the first;
* *split* boundaries have a barrier in the middle: all that the first call allows,
  the barrier, all that the second allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from simulated.pool import naming

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Entry, Variant, find, registered
from xupc.backends.simulator.script import Action, Call, UserBarrier, UserRead, UserWrite
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.plan.plan import Plan
from xupc.plan.recorder import Operand, trace
from xupc.topology.tree import Tree

Sync = tuple[str, str]
Tuning = dict[str, int]
Bytes = Any  # an ndarray of uint8, (threads, bytes)
Areas = list[tuple[int, int, int]]  # thread, lo, hi
Memory = dict[str, list[bytearray]]

SYNCS: list[Sync] = list(product(("no", "my", "all"), repeat=2))  # type: ignore[arg-type]
THREADS = (1, 2, 3, 4, 5, 7, 8, 11)


# --- what the collectives mean ----------------------------------------------------------
def _broadcast(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    dst[:, :n] = src[root, :n]


def _scatter(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    dst[:, :n] = src[root, : len(dst) * n].reshape(-1, n)


def _gather(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    dst[root, : len(dst) * n] = src[:, :n].reshape(-1)


def _gather_all(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    dst[:, : len(dst) * n] = src[:, :n].reshape(-1)


def _exchange(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    t = len(dst)
    dst[:, : t * n] = src[:, : t * n].reshape(t, t, n).swapaxes(0, 1).reshape(t, -1)


def _broadcast_in_place(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    block = (src if apart(n) else dst)[root, :n].copy()
    dst[_others(len(dst), root), :n] = block


def apart(n: int) -> bool:
    """Whether the root's block is tried outside of dst; else it is dst's own."""
    return n % 2 == 1


def _others(threads: int, root: int) -> list[int]:
    return [x for x in range(threads) if x != root]


def _scatter_in_place(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    for x in _others(len(dst), root):
        dst[x, :n] = src[root, x * n : (x + 1) * n]


def _gather_in_place(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    for x in _others(len(dst), root):
        dst[root, x * n : (x + 1) * n] = src[x, :n]


def _gather_all_in_place(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    dst[:, : len(dst) * n] = np.concatenate([row[i * n : (i + 1) * n] for i, row in enumerate(dst)])


def _exchange_in_place(dst: Bytes, src: Bytes, root: int, n: int) -> None:
    _exchange(dst, dst.copy(), root, n)


def _permute_in_place(dst: Bytes, src: Bytes, which: int, n: int) -> None:
    _permute(dst, dst.copy(), which, n)


def permutation(threads: int, which: int) -> Any:
    """0 the identity, 1 the reversal, 2 a rotation, beyond random ones."""
    every = np.arange(threads)
    if which == 1:
        return every[::-1]
    if which == 2:
        return np.roll(every, -1 - threads // 3)
    return every if which == 0 else np.random.default_rng(which).permutation(threads)


def _permute(dst: Bytes, src: Bytes, which: int, n: int) -> None:
    for i, to in enumerate(permutation(len(dst), which)):
        dst[to, :n] = src[i, :n]


@dataclass(frozen=True)
class Meaning:
    """A collective's oracle and the bytes that it reads and writes, of `t` threads.

    `sources` are those in src; what is transformed in place is among the `results`.
    """

    oracle: Callable[[Bytes, Bytes, int, int], None]
    rooted: bool
    sources: Callable[[int, int, int], Areas]
    results: Callable[[int, int, int], Areas]


def _nothing(t: int, root: int, n: int) -> Areas:
    return []


def _a_block_each(t: int, root: int, n: int) -> Areas:
    return [(x, 0, n) for x in range(t)]


def _all_blocks_each(t: int, root: int, n: int) -> Areas:
    return [(x, 0, t * n) for x in range(t)]


def _a_block_at_root(t: int, root: int, n: int) -> Areas:
    return [(root, 0, n)]


def _all_blocks_at_root(t: int, root: int, n: int) -> Areas:
    return [(root, 0, t * n)]


def _root_apart(t: int, root: int, n: int) -> Areas:
    return _a_block_at_root(t, root, n) if apart(n) else []


def _a_block_each_apart(t: int, root: int, n: int) -> Areas:
    return _a_block_of_others(t, root, n) if apart(n) else _a_block_each(t, root, n)


def _a_block_of_others(t: int, root: int, n: int) -> Areas:
    return [(x, 0, n) for x in _others(t, root)]


def _others_blocks_at_root(t: int, root: int, n: int) -> Areas:
    return [(root, x * n, (x + 1) * n) for x in _others(t, root)]


MEANING = {
    "broadcast": Meaning(_broadcast, True, _a_block_at_root, _a_block_each),
    "broadcast_in_place": Meaning(_broadcast_in_place, True, _root_apart, _a_block_each_apart),
    "scatter_in_place": Meaning(
        _scatter_in_place, True, _others_blocks_at_root, _a_block_of_others
    ),
    "gather_in_place": Meaning(_gather_in_place, True, _a_block_of_others, _others_blocks_at_root),
    "gather_all_in_place": Meaning(_gather_all_in_place, False, _nothing, _all_blocks_each),
    "permute_in_place": Meaning(_permute_in_place, False, _nothing, _a_block_each),
    "exchange_in_place": Meaning(_exchange_in_place, False, _nothing, _all_blocks_each),
    "scatter": Meaning(_scatter, True, _all_blocks_at_root, _a_block_each),
    "gather": Meaning(_gather, True, _a_block_each, _all_blocks_at_root),
    "gather_all": Meaning(_gather_all, False, _a_block_each, _all_blocks_each),
    "permute": Meaning(_permute, False, _a_block_each, _a_block_each),
    "exchange": Meaning(_exchange, False, _all_blocks_each, _all_blocks_each),
}


ENTRIES = [entry for entry in registered() if entry.collective in MEANING]
"""The algorithms that this is about; the computational ones are in `reductions`."""
VARIANTS = [variant for entry in ENTRIES for variant in entry.variants if variant.label]
"""The variants of those that have several; entries are simulated by their default ones."""
Way = Entry | Variant


def arguments(collective: str, threads: int, root: int, n: int) -> tuple[object, ...]:
    """Return the arguments of the collective's algorithms."""
    if collective == "broadcast_in_place":
        return Operand(0), Operand(int(apart(n))), root, n
    if collective == "permute":
        return Operand(0), Operand(1), permutation(threads, root), n
    if collective == "permute_in_place":
        return Operand(0), permutation(threads, root), n
    if collective in ("gather_all_in_place", "exchange_in_place"):
        return Operand(0), n
    return (Operand(0), Operand(1), *([root] if MEANING[collective].rooted else []), n)


def roots_of(entry: Way, threads: int, seed: int = 0) -> Sequence[int]:
    """All roots that the collective can have, 0 where it has none; of permute: which one."""
    if entry.collective.startswith("permute"):
        return (0, 1, 2, 3 + seed)[:threads]
    return range(threads) if MEANING[entry.collective].rooted else range(1)


# --- placements and sizes ---------------------------------------------------------------
def placements(threads: int) -> dict[str, list[int]]:
    """Name -> node label of each thread; equal ones once."""
    per = {1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 7: 3, 8: 2, 11: 4}.get(threads, 3)
    sizes = [3, 1, threads - 4] if threads > 4 else [threads - 1, 1] if threads > 1 else [1]
    dealt = random.Random(threads)
    every = {
        "one node": [0] * threads,
        "blocks": [i // per for i in range(threads)],
        "uneven": [node for node, size in enumerate(sizes) for _ in range(size)],
        "cyclic": [i % (2 if threads <= 5 else 3) for i in range(threads)],
        "one per node": list(range(threads)),
        "interleaved": [dealt.randrange((threads + 2) // 3 + 1) for _ in range(threads)],
    }
    distinct: dict[str, list[int]] = {}
    seen: list[Tree] = []
    for name, labels in every.items():
        if Tree(labels) not in seen:
            seen.append(Tree(labels))
            distinct[name] = labels
    return distinct


def partitions(threads: int) -> Iterator[list[int]]:
    """Every placement up to renaming nodes: restricted growth strings."""

    def grow(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == threads:
            yield labels
            return
        for node in range(max(labels, default=-1) + 2):
            yield from grow([*labels, node])

    return grow([])


def _tuning(
    chunk: int,
    message: int,
    get_piece: int,
    window: int,
    fuse: int,
    chain: int,
    flat: int,
    lead: int,
    ring: int,
    tell: int,
    scratch: int,
) -> Tuning:
    return {
        "chunk": chunk,
        "alltoall_chunk": ring,
        "notify_bytes": tell,
        "max_message": message,
        "rma_get_max": get_piece,
        "window": window,
        "max_messages": 10000,
        "fused_max": fuse,
        "rebalance_min": chunk,
        "fold_wakeup_min": chunk,
        "pipeline_min": chain,
        "few_nodes_max": flat,
        "root_exchange_max": lead,
        "root_exchange_max_one_block": lead,
        "reduce_chunk": 128,
        "staging_bytes": 8192,
        "scratch": scratch,
    }


TUNINGS: dict[str, tuple[Tuning, tuple[int, ...]]] = {
    # no fusing, always a chain and a ring, two messages at a time
    "large": (_tuning(16, 16, 8, 2, 0, 1, 1, 0, 16, 16, 32), (1, 7, 8, 9, 15, 16, 17, 33, 48)),
    # fused where possible, binomial, all to all
    "small": (_tuning(16, 16, 8, 2, 1 << 20, 1 << 20, 1 << 20, 0, 16, 1, 8192), (1, 8, 16, 17, 40)),
    # thresholds in the middle of the sizes, odd pieces, one message at a time, some led
    "mixed": (_tuning(12, 20, 5, 1, 64, 10, 3, 40, 10, 24, 48), (4, 5, 6, 10, 12, 13, 21, 40)),
    # everything in one message and one piece, led by node roots
    "whole": (
        _tuning(1 << 20, 1 << 20, 1 << 20, 16, 0, 1 << 20, 8, 1 << 20, 1 << 20, 1 << 20, 2048),
        (3, 24),
    ),
}


# --- plans ---------------------------------------------------------------------------------
Mutate = Callable[[Plan], Plan]


class Planner:
    """Traces plans on one tree and keeps them.

    `mutate` changes some; with `right`, the planner of the others, these are not made again.
    """

    def __init__(
        self, tree: Tree, mutate: Mutate | None = None, right: Planner | None = None
    ) -> None:
        self.tree = tree
        self.mutate = mutate
        self.right = right
        self._kept: dict[tuple[object, ...], list[Program]] = {}

    def with_plans(self, plans: Sequence[Plan], others: Sequence[Plan]) -> Planner:
        """One that has `others` in the places of some plans of its programs."""
        changed = {id(plan): other for plan, other in zip(plans, others, strict=True)}
        return Planner(self.tree, lambda plan: changed.get(id(plan), plan), self)

    def plan(self, entry: Way, me: int, sync: Sync, tuning: Tuning, root: int, n: int) -> Plan:
        """Thread `me`'s plan."""
        name, what = entry.name, entry.collective
        given = arguments(what, self.tree.size, root, n)
        if what.endswith("in_place"):  # many turns
            tuning = {**tuning, "staging_bytes": tuning["scratch"]}
        return trace(entry.function, name, what, me, self.tree, sync, tuning, given)

    def programs(
        self, entry: Way, sync: Sync, tuning: Tuning, root: int, n: int
    ) -> list[Program]:
        """Return the programs of all threads."""
        key = (entry.collective, entry.name, sync, tuple(tuning.values()), root, n)
        every = range(self.tree.size)
        return self.kept(
            key, lambda: [self.plan(entry, me, sync, tuning, root, n) for me in every]
        )

    def kept(self, key: tuple[object, ...], make: Callable[[], list[Plan]]) -> list[Program]:
        """Return the programs of the plans that `make` makes, once for each key."""
        if key not in self._kept:
            if self.right is not None:
                programs = self.right.kept(key, make)
            else:
                programs = [Program(plan, self.tree) for plan in make()]
            self._kept[key] = [self._changed(program) for program in programs]
        return self._kept[key]

    def _changed(self, program: Program) -> Program:
        plan = program.plan if self.mutate is None else self.mutate(program.plan)
        return program if plan is program.plan else Program(plan, self.tree)


# --- stories ------------------------------------------------------------------------------
def copied(memory: Memory) -> Memory:
    """Return memory that a simulation may change."""
    return {name: [bytearray(row) for row in rows] for name, rows in memory.items()}


GUARD = 8
SETS = 3
STAGING = 8192
FREE = 99  # no thread has used the memory since the last barrier


@dataclass
class Story:
    """A sequence of calls on some memory, and what must become of it.

    Parameters
    ----------
    planner
        Makes the plans.
    space
        Bytes of an operand's area on each thread.
    seed
        For the values.
    """

    planner: Planner
    space: int
    seed: int = 0
    scripts: list[list[Action]] = field(init=False)

    def __post_init__(self) -> None:
        self.threads = self.planner.tree.size
        self._rng = random.Random(self.seed)
        self._stride = self.space + GUARD
        shape = (self.threads, GUARD + SETS * self._stride)
        self.expected = {
            name: self._values(shape[0] * shape[1]).reshape(shape).copy() for name in ("dst", "src")
        }
        self.memory = {
            name: [bytearray(row.tobytes()) for row in rows] for name, rows in self.expected.items()
        }
        self.memory["buffer"] = [bytearray(STAGING) for _ in range(self.threads)]
        self.scripts = [[] for _ in range(self.threads)]
        self._used = [False] * SETS
        self._set = 0
        self._out = "all"  # of the call before
        self._results: Areas = []  # of the call before, while untouched
        self._sources: Areas = []
        self.calls = 0

    # what users do ------------------------------------------------------------------
    def _user(self, right: str, x: int) -> int:
        """Return the thread that touches thread x's data: a neighbour if any may, else x itself."""
        return (x + 1) % self.threads if right == "all" else x

    def barrier(self) -> None:
        """A barrier of the users' own."""
        for script in self.scripts:
            script.append(UserBarrier())
        self._used = [False] * SETS

    def _write(self, right: str, array: str, areas: Areas) -> None:
        base = self._base()
        for x, lo, hi in areas:
            data = self._values(hi - lo)
            self.expected[array][x, base + lo : base + hi] = data
            write = UserWrite(array, x, base + lo, data.tobytes())
            self.scripts[self._user(right, x)].append(write)

    def _values(self, nbytes: int) -> Bytes:
        return np.frombuffer(self._rng.randbytes(nbytes), np.uint8)

    def _after(self, right: str) -> None:
        """What users do after the last call, once."""
        if right == "no":
            return
        base = self._base()
        for x, lo, hi in self._results:
            want = self.expected["dst"][x, base + lo : base + hi].tobytes()
            self.scripts[self._user(right, x)].append(UserRead("dst", x, base + lo, want))
        self._write(right, "dst", self._results)
        self._write(right, "src", self._sources)
        self._results = self._sources = []

    def _before(self, right: str, sources: Areas, results: Areas) -> None:
        """Add the users' writes before the next call."""
        if right != "no":
            self._write(right, "src", sources)
            self._write(right, "dst", results)

    def _base(self) -> int:
        return GUARD + self._set * self._stride

    # boundaries ----------------------------------------------------------------------
    def _tight(self, into: str, sources: Areas, results: Areas) -> bool:
        """No barrier; False if that is not possible."""
        out = self._out
        if not self._used[self._set]:  # the first call of all
            self._before(into, sources, results)
        elif out == "all" or into == "all" or out == into == "my":
            right = "no" if "no" in (out, into) else "my" if "my" in (out, into) else "all"
            self._after(right)
            self._before(right, sources, results)
        elif all(self._used):
            return False
        else:
            self._after(out)
            self._set = self._used.index(False)
            self._before(into, sources, results)
        return True

    def _split(self, into: str, sources: Areas, results: Areas) -> None:
        self._after(self._out)
        self.barrier()
        right = "all" if into == "no" else into
        self._after(right)
        self._before(right, sources, results)
        if into == "no":
            self.barrier()

    def call(
        self, entry: Way, root: int, n: int, sync: Sync, tuning: Tuning, *, tight: bool
    ) -> None:
        """What users do before the call, and the call."""
        meaning = MEANING[entry.collective]
        sources = meaning.sources(self.threads, root, n)
        results = meaning.results(self.threads, root, n)
        base = self._prepare(sync, sources, results, tight=tight)
        programs = self.planner.programs(entry, sync, tuning, root, n)
        operands = ("dst", base), ("src", base), ("buffer", 0), ("buffer", 0)
        self._make(Call(programs, operands))
        here = slice(base, base + self.space)
        meaning.oracle(self.expected["dst"][:, here], self.expected["src"][:, here], root, n)

    def _prepare(self, sync: Sync, sources: Areas, results: Areas, *, tight: bool) -> int:
        """Add the users' accesses before a call; return the offset of its operands."""
        inside = all(lo >= 0 and hi <= self.space for _, lo, hi in [*sources, *results])
        assert inside, "a call needs more space than the story has: it would meet its neighbour"
        if not (tight and self._tight(sync[0], sources, results)):
            self._split(sync[0], sources, results)
        self._results, self._sources = results, sources
        self._used[self._set] = True
        self._out = sync[1]
        return self._base()

    def _make(self, call: Call) -> None:
        """Let all threads call it, then write to their staging buffers, as a later call may."""
        for x, script in enumerate(self.scripts):
            script.append(call)
            script.append(UserWrite("buffer", x, 0, bytes(len(self.memory["buffer"][x]))))
        self.calls += 1

    # the run ----------------------------------------------------------------------------
    def run(self, seed: int | None = None, *, at_once: bool = False) -> dict[str, list[bytes]]:
        """Simulate; every byte of every thread, guards and sources included, must be right.

        `at_once`: end at the first finding, where plans are broken.
        """
        self._after(self._out)
        memory = copied(self.memory)
        Simulation(self.planner.tree, memory, self.scripts, seed).run(at_once=at_once)
        for name in self.expected:
            for x, row in enumerate(memory[name]):
                if row != self.expected[name][x].tobytes():
                    wrong = np.flatnonzero(np.frombuffer(row, np.uint8) != self.expected[name][x])
                    raise WrongMemoryError(f"{name}@{x}: wrong bytes at {wrong.tolist()}")
        return {name: [bytes(row) for row in rows] for name, rows in memory.items()}


class WrongMemoryError(AssertionError):
    """Memory holds something else than it should."""


def another(entry: Way, i: int) -> Entry:
    """An algorithm of a different collective."""
    others = [e for e in ENTRIES if e.collective != entry.collective]
    return others[i % len(others)]


def story(
    planner: Planner, entry: Way, n: int, sync: Sync, tuning: Tuning, seed: int = 0
) -> Story:
    """Every root twice in a row with other values, then a different collective, then back."""
    threads = planner.tree.size
    m = max(1, n // 2)
    told = Story(planner, threads * n, seed)
    roots = roots_of(entry, threads, seed)
    for i in range(len(roots)):
        root = roots[(i + seed) % len(roots)]
        told.call(entry, root, n, sync, tuning, tight=bool((i + seed) % 3))
        told.call(entry, root, n, sync, tuning, tight=bool((i + seed) % 4))
    other = another(entry, seed)
    told.call(other, roots_of(other, threads)[-1], m, sync, tuning, tight=True)
    told.call(entry, roots[-1], n, sync, tuning, tight=True)
    return told


@dataclass(frozen=True)
class Case:
    """One story, by its coordinates; `roots` cases of the matrix in one."""

    entry: tuple[str, int]
    labels: tuple[int, ...]
    sync: Sync
    tuning: str
    n: int
    label: str = ""

    @property
    def roots(self) -> int:
        """The number of roots that the story visits."""
        return len(roots_of(self._entry(), len(self.labels)))

    def _entry(self) -> Way:
        entry = find(*self.entry)
        return next((v for v in entry.variants if self.label == v.label != ""), entry)

    def __str__(self) -> str:
        entry = self._entry()
        return (
            f"{entry.collective} by {entry.name} on {list(self.labels)}, IN_{self.sync[0]} "
            f"OUT_{self.sync[1]}, {self.n} B, tuning {self.tuning!r}"
        )

    def run(self, seed: int | None = None) -> None:
        """Simulate it; what is wrong is raised with the case's name."""
        # not hash(): it differs from run to run
        flavour = sum(self.labels) + self.n + len(self.sync[0]) + 2 * len(self.sync[1])
        planner = Planner(Tree(self.labels))
        tuning = TUNINGS[self.tuning][0]
        with naming(self):
            story(planner, self._entry(), self.n, self.sync, tuning, flavour).run(seed)


def can_run(variant: Variant, case: Case) -> bool:
    """Return whether a variant can carry out all calls of a case."""
    tree = Tree(case.labels)
    return all(
        variant.can_run(
            CallFacts(
                tree, TUNINGS[case.tuning][0], case.sync,
                arguments(variant.collective, tree.size, root, case.n),
            )
        )
        for root in roots_of(variant, tree.size)
    )  # fmt: skip


def matrix(entry: Way) -> list[Case]:
    """Every case of an algorithm: threads x placements x sync modes x tunings and sizes."""
    key, label = (entry.collective, entry.flag), entry.label if isinstance(entry, Variant) else ""
    return [
        Case(key, tuple(labels), sync, name, n, label)
        for threads in THREADS
        for labels in placements(threads).values()
        for sync in SYNCS
        for name, (_, sizes) in TUNINGS.items()
        for n in sizes
    ]


def sample(entry: Entry, per_stratum: int, seed: int) -> list[Case]:
    """Cases of the matrix: so many of each placement and pair of sync modes."""
    rng = random.Random(f"{seed} {entry.collective} {entry.name}")
    strata: dict[tuple[object, ...], list[Case]] = {}
    for case in matrix(entry):
        strata.setdefault((case.labels, case.sync), []).append(case)
    return [case for stratum in strata.values() for case in rng.sample(stratum, per_stratum)]


def every_placement(entry: Entry, most: int = 5) -> list[Case]:
    """Every partition of up to `most` threads into nodes, one size."""
    key = (entry.collective, entry.flag)
    return [
        Case(key, tuple(labels), sync, "mixed" if i % 2 else "large", 13)
        for threads in range(1, most + 1)
        for i, labels in enumerate(partitions(threads))
        for sync in SYNCS
    ]


@dataclass
class Tally:
    """How many stories and cases (one per root) were simulated, and what went wrong."""

    stories: int = 0
    cases: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another's."""
        self.stories += other.stories
        self.cases += other.cases
        self.failures += other.failures


def run_cases(cases: list[Case]) -> Tally:
    """Run them all; failures as text."""
    tally = Tally()
    for case in cases:
        tally.stories += 1
        tally.cases += case.roots
        try:
            case.run()
        except Exception as problem:
            tally.failures.append(f"{case}\n  {type(problem).__name__}: {problem}")
    return tally
