"""Sequences of computational collectives on symbolic operands, with an oracle.

A value is a number that stands for a tuple of symbols: the operands that went into it, in
their order (kept for NONCOMM_FUNC, sorted for commutative operations). Two values are
equal if and only if the same operands went in, each as often; one run so proves order and
exactly-once for every type and operation. `Trees` instead keeps the brackets.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from simulated.matrix import SYNCS, THREADS, TUNINGS, Areas, Bytes, Planner, Story, Sync, placements
from simulated.pool import failures_of, naming

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.reduce_spec import Reduction
from xupc.algorithms.registry import Variant, find
from xupc.algorithms.scan_spec import ScanSpec
from xupc.algorithms.values_reduce_scatter import ReduceScatter
from xupc.backends.simulator.script import Call
from xupc.backends.simulator.sim_program import Program
from xupc.flags import MULTICORE, PULL, PUSH
from xupc.pgas.layout import Layout
from xupc.plan.plan import Plan
from xupc.plan.recorder import trace
from xupc.plan.steps import OP_SCRATCH_BYTES
from xupc.records import replace
from xupc.topology.tree import Tree

ITEM = 8
SLOTS = 8
COMPOSED = 1 << 32
"""Values that are no single symbols are numbered from here on."""
UNKNOWN = -1
"""The symbol of a number that stands for no value."""
PRIME, BASE = (1 << 127) - 1, 0x5A17C3E9B2D4F60871359BDF02468ACE
Value = tuple[Any, ...]
Mark = tuple[int, int]
"""A power of `BASE` for the number of symbols, and the symbols; modulo `PRIME`."""
NONE: Mark = (1, 0)
Places = dict[tuple[int, int], int]
"""(thread, place) -> value"""
Tuning = dict[str, int]


class Pair(NamedTuple):
    """Two values, one after the other, by their numbers."""

    one: int
    other: int


class Symbols:
    """A kernel on symbolic values.

    A value's mark is a number modulo a large prime, and that of two values together is made of
    their marks, so it takes no more room however many operands went in: a sum if they are sorted,
    a polynomial in `BASE` if they keep their order. Values with equal marks count as equal; others
    have the same mark by chance once in about 1e37 pairs.
    """

    dtype = np.dtype(np.uint64)
    code = func = None

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.parts: list[Value | Pair] = []
        self.numbers: dict[object, int] = {}
        self.marks: dict[int, Mark] = {}
        self.joined: dict[tuple[int, int], int] = {}
        self.made = 0

    def number(self, value: Value) -> int:
        """The number of a value."""
        return self._of(reduce(self._together, map(self._symbol, value), NONE), value)

    def _of(self, mark: Mark, parts: Value | Pair) -> int:
        """Return the number of a mark; a new one consists of these parts."""
        number = self.numbers.setdefault(mark, COMPOSED + len(self.parts))
        if number - COMPOSED == len(self.parts):
            self.parts.append(parts)
            self.marks[number] = mark
        return number

    def _symbol(self, symbol: object) -> Mark:
        digest = hashlib.blake2b(repr(symbol).encode(), digest_size=16).digest()
        return BASE, int.from_bytes(digest) % PRIME

    def _together(self, one: Mark, other: Mark) -> Mark:
        """Return the mark of two values, one after the other."""
        shift = other[0] if self.ordered else 1
        return one[0] * other[0] % PRIME, (one[1] * shift + other[1]) % PRIME

    def fresh(self, count: int) -> Any:
        """So many new symbols' numbers, from 1 on."""
        self.made += count
        return np.arange(self.made - count + 1, self.made + 1, dtype=np.uint64)

    def _mark(self, number: int) -> Mark:
        mark = self.marks.get(number)
        if mark is None:
            mark = self._symbol(number if number <= self.made else UNKNOWN)
        return mark

    def value(self, number: int) -> Value:
        """What a number stands for; broken plans find others in memory, too."""
        found: list[Any] = []
        left = [number]
        while left:
            number = left.pop()
            parts: Any = (number if number <= self.made else UNKNOWN,)
            if number in self.marks:
                parts = self.parts[number - COMPOSED]
            if isinstance(parts, Pair):
                left += [parts.other, parts.one]
            else:
                found += parts
        return tuple(found if self.ordered else sorted(found))

    def join(self, a: int, b: int) -> int:
        """The number of both; the same two meet again and again."""
        number = self.joined.get((a, b))
        if number is None:
            mark = self._together(self._mark(a), self._mark(b))
            number = self.joined[a, b] = self._of(mark, Pair(a, b))
        return number

    def joining(self, out: Any, a: Any, b: Any) -> Callable[[], object]:
        return partial(self.combine, out, a, b)

    def combine(self, out: Any, a: Any, b: Any) -> None:
        out[...] = [self.join(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]

    def fold(self, x: Any) -> int:
        value, *others = x.tolist()
        for y in others:
            value = self.join(value, y)
        return int(value)

    def fold_to(self, out: Any, x: Any) -> None:
        out[0] = self.fold(x)

    def fill(self, out: Any) -> None:
        out[...] = self.number(())

    def scan(self, dst: Any, src: Any, carry: Any, reverse: bool) -> None:
        values = (src[::-1] if reverse else src).tolist()
        carry = None if carry is None else int(carry)
        for i, x in enumerate(values):
            if carry is not None:
                x = self.join(x, carry) if reverse else self.join(carry, x)
            values[i] = carry = x
        dst[...] = values[::-1] if reverse else values


class Trees(Symbols):
    """Keeps the order of operations, too; long runs have the kernels' own."""

    def __init__(self) -> None:
        super().__init__(ordered=True)

    def number(self, value: Value) -> int:
        """Return the number of a value, by all of it."""
        number = self.numbers.setdefault(value, COMPOSED + len(self.parts))
        if number - COMPOSED == len(self.parts):
            self.parts.append(value)
        return number

    def value(self, number: int) -> Value:
        """Return what a number stands for."""
        at = number - COMPOSED
        return self.parts[at] if 0 <= at < len(self.parts) else (UNKNOWN,)

    def fold(self, x: Any) -> int:
        if len(x) < 32:
            return super().fold(x)
        return self.number((("run", *(self.value(y) for y in x.tolist())),))

    def join(self, a: int, b: int) -> int:
        return self.number(((self.value(a), self.value(b)),))


def place(threads: int, first: int, phase: int, block: int, i: int) -> tuple[int, int]:
    """(thread, place) of an array's element i: UPC 6.4.2."""
    if block == 0:
        return first, i
    q = phase + i
    u = first + q // block
    return u % threads, u // threads * block + q % block - phase


# --- what the collectives mean, from the documents, element by element --------------------------
@dataclass(frozen=True)
class Job:
    """A call's arguments."""

    form: str
    threads: int
    first: int
    phase: int
    block: int
    nelems: int
    to: int
    ordered: bool
    dst: tuple[int, int, int] = (0, 0, 0)
    """first, phase, block of a running reduction's dst"""
    in_place: bool = False

    @property
    def running(self) -> bool:
        return self.form.endswith(("prefix_reduce", "suffix_reduce"))

    @property
    def backward(self) -> bool:
        return self.form.endswith("suffix_reduce")

    @property
    def exclusive(self) -> bool:
        """An ordered one has a function, without identity: the first place stays as it was."""
        return self.form.startswith("exclusive")

    @property
    def target(self) -> Layout:
        return Layout(self.threads, *self.dst, self.nelems)

    @property
    def layout(self) -> Layout:
        return Layout(self.threads, self.first, self.phase, self.block, self.nelems)

    @property
    def element_wise(self) -> bool:
        return "mpi" in self.form

    @property
    def scattered(self) -> bool:
        """Each thread gets a block of the result: src has a block for each on every thread."""
        return self.form == "reduce_scatter"

    @property
    def everywhere(self) -> bool:
        return self.form.endswith("all") or self.scattered

    @property
    def each(self) -> int:
        """Elements of the result."""
        if self.scattered:
            return self.block // self.threads
        if not self.element_wise:
            return 1
        return min(self.block, self.nelems) if self.block else self.nelems

    def where(self, i: int) -> tuple[int, int]:
        """(thread, place) of src's element i."""
        return place(self.threads, self.first, self.phase, self.block, i)

    def results(self, kernel: Symbols, src: Places) -> Places:
        """(thread, place) of dst -> value."""
        if self.scattered:
            n, threads = self.each, range(self.threads)
            return {
                (x, k): reduce(kernel.join, [src[i, x * n + k] for i in threads])
                for x in threads
                for k in range(n)
            }
        if not self.running:
            where = range(self.threads) if self.everywhere else [self.to]
            result = self.result(kernel, src)
            return {(x, k): v for x in where for k, v in enumerate(result)}
        order = list(range(self.nelems))
        out: Places = {}
        last: int | None = None
        for i in order[::-1] if self.backward else order:
            x = src[self.where(i)]
            before = last
            if last is not None:
                x = kernel.join(x, last) if self.backward else kernel.join(last, x)
            last = x
            found = before if self.exclusive else x
            if found is None and not self.ordered:
                found = kernel.number(())
            if found is not None:
                out[place(self.threads, *self.dst, i)] = found
        return out

    def result(self, kernel: Symbols, src: Places) -> list[int]:
        """The result's values, by a loop over src's elements."""
        out: list[int | None] = [None] * self.each
        for i in range(self.nelems):
            k = (i % self.block if self.block else i) if self.element_wise else 0
            x = src[self.where(i)]
            before = out[k]
            out[k] = x if before is None else kernel.join(before, x)
        return [x for x in out if x is not None]

    def scan(self, size: int) -> ScanSpec:
        """Return what the algorithms of prefix and suffix take; elements have `size` bytes."""
        return ScanSpec(
            self.layout, self.target, size, self.backward, self.in_place, self.exclusive,
            not self.ordered,
        )  # fmt: skip

    def arguments(self) -> list[object]:
        """Return the arguments of the algorithms."""
        if self.running:
            return [self.scan(ITEM)]
        if self.scattered:
            return [ReduceScatter(self.each, ITEM, self.ordered)]
        return [
            Reduction(
                self.layout, self.each, ITEM, None if self.everywhere else self.to,
                self.ordered, self.ordered or not self.element_wise, self.element_wise,
            )
        ]  # fmt: skip


def spans(x: Layout) -> Areas:
    """A layout's threads and their first and last places."""
    runs = [(x.thread(p), x.run(p)) for p in range(x.positions)]
    return [(thread, run.place, run.place + run.nelems) for thread, run in runs]


def plans_of(
    job: Job, flag: int | Variant, tree: Tree, sync: Sync, tuning: Tuning, kernel: Symbols
) -> list[Plan]:
    """Return the plans of all threads."""
    entry = flag if isinstance(flag, Variant) else find(job.form, flag)
    return [
        trace(
            entry.function, entry.name, job.form, me, tree, sync, tuning, job.arguments(), kernel
        )
        for me in range(tree.size)
    ]  # fmt: skip


def programs_of(
    planner: Planner, job: Job, flag: int | Variant, sync: Sync, tuning: Tuning, kernel: Symbols
) -> list[Program]:
    """Return the programs of all threads, made once by a planner, whatever the kernel."""
    key = (job, flag, sync, tuple(tuning.values()))
    return planner.kept(key, lambda: plans_of(job, flag, planner.tree, sync, tuning, kernel))


def unnamed(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return plans without algorithm and kernel: those that are equal then do the same."""
    return tuple(replace(plan, algorithm="", kernel=None) for plan in plans)


def _united(one: Areas, other: Areas) -> Areas:
    """What either has, a range on each thread: all of them begin together or follow each other."""
    ends: dict[int, tuple[int, int]] = {}
    for x, lo, hi in (*one, *other):
        a, b = ends.get(x, (lo, hi))
        ends[x] = min(a, lo), max(b, hi)
    return [(x, lo, hi) for x, (lo, hi) in ends.items()]


class Calls(Story):
    """A sequence of such calls on some memory."""

    def __init__(
        self, planner: Planner, space: int, kernel: Symbols, seed: int,
        staging: int = 2 * TUNINGS["large"][0]["staging_bytes"],
    ) -> None:  # fmt: skip
        self.kernel = kernel
        super().__init__(planner, space, seed)
        shape = {"slot": SLOTS * OP_SCRATCH_BYTES, "buffer": staging}
        for name, size in shape.items():
            self.memory[name] = [bytearray(size) for _ in range(self.threads)]

    def _values(self, nbytes: int) -> Bytes:
        return self.kernel.fresh(nbytes // ITEM).view(np.uint8)

    def reduce(
        self, job: Job, flag: int | Variant, sync: Sync, tuning: Tuning, *, tight: bool
    ) -> None:
        """A call, and what must become of it."""
        layout = job.layout
        sources: Areas = [
            (x, self.shift + lo * ITEM, self.shift + hi * ITEM) for x, lo, hi in spans(layout)
        ]
        results: Areas
        if job.running:
            results = [
                (x, self.shift + lo * ITEM, self.shift + hi * ITEM)
                for x, lo, hi in spans(job.target)
            ]
        else:
            where = range(self.threads) if job.everywhere else [job.to]
            results = [(x, self.shift, self.shift + job.each * ITEM) for x in where]
        read = "dst" if job.in_place else "src"
        if job.in_place:
            sources, results = [], _united(results, sources)
        base = self._prepare(sync, sources, results, tight=tight)
        self._make(
            Call(
                programs_of(self.planner, job, flag, sync, tuning, self.kernel),
                (("dst", base + self.shift), (read, base + self.shift),
                 ("slot", self.calls % SLOTS * OP_SCRATCH_BYTES), ("buffer", 0)),
                self.kernel,
            )
        )  # fmt: skip
        values = {}
        for x, lo, hi in sources or results:
            run_ = self.expected[read][x, base + lo : base + hi].view(np.uint64).tolist()
            for k, value in enumerate(run_, (lo - self.shift) // ITEM):
                values[x, k] = value
        expected = self.expected["dst"].view(np.uint64)
        for (x, k), value in job.results(self.kernel, values).items():
            expected[x, (base + self.shift) // ITEM + k] = value

    shift = 16 * ITEM
    """Where src's pointer stands: threads before its own have elements at lower places."""


@dataclass(frozen=True)
class Case:
    """A story of one algorithm on one placement."""

    form: str
    flag: int
    labels: tuple[int, ...]
    sync: Sync
    tuning: str
    ordered: bool
    seed: int
    in_place: bool = False

    def jobs(self) -> list[Job]:
        """Some calls, the first one twice in a row."""
        rng = random.Random(f"{self.seed} {self.form} {self.labels}")
        threads = len(self.labels)

        def one() -> Job:
            if self.form == "reduce_scatter":
                block = threads * rng.randint(1, max(1, 48 // threads))
                return Job(self.form, threads, 0, 0, block, threads * block, 0, self.ordered)
            block = rng.choice([0, 1, 1, 2, 3, 4, 7])
            phase = rng.randrange(block) if block and "mpi" not in self.form else 0
            first = rng.randrange(threads)
            nelems = rng.choice([1, 2, 3, 5, 8, 13, 24, 40])
            to = rng.randrange(threads)
            dst = (first, phase, block)
            if rng.random() < 0.5:
                other = rng.choice([block, block, rng.choice([0, 1, 2, 3, 5])])
                dst = rng.randrange(threads), rng.randrange(other) if other else 0, other
            if self.in_place:
                dst = first, phase, block
                if "mpi" in self.form:  # src begins where dst does
                    dst, first = (0, 0, 0), 0
            return Job(
                self.form, threads, first, phase, block, nelems, to, self.ordered, dst,
                self.in_place,
            )  # fmt: skip

        first, second, third = one(), one(), one()
        return [first, first, second, third, first]

    def run(
        self, kernel: Symbols | None = None, seed: int | None = None, tree: Tree | None = None,
        variant: Variant | None = None, also: int | None = None,
    ) -> Calls:  # fmt: skip
        """Simulate it; `variant`: of the calls that it can carry out, on `tree`.

        `also`: the seed of a second schedule of the same calls.
        """
        kernel, tree = kernel or Symbols(self.ordered), tree or Tree(self.labels)
        story = Calls(Planner(tree), 64 * ITEM + Calls.shift, kernel, self.seed)
        tuning = tuning_of(self.tuning)
        for i, job in enumerate(self.jobs()):
            tight = bool((i + self.seed) % 3)
            call = CallFacts(tree, tuning, self.sync, job.arguments(), kernel)
            way = variant if variant and variant.can_run(call) else self.flag
            story.reduce(job, way, self.sync, tuning, tight=tight)
        with naming(f"{self}, {self.jobs()}"):
            story.run(seed)
            if also is not None:
                story.run(also)
        return story


FORMS = (
    "reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all", "prefix_reduce", "suffix_reduce",
    "exclusive_prefix_reduce", "exclusive_suffix_reduce",
)  # fmt: skip
ALL_FORMS = (*FORMS, "reduce_scatter")
"""With the one whose src has a block for each thread on every thread."""


IN_PLACE = ("reduce_mpi_all", *(form for form in FORMS if form.endswith("fix_reduce")))


SCRATCH = {
    "large": (0, 64),
    "small": (OP_SCRATCH_BYTES, 4096),
    "mixed": (32, 192),
    "whole": (64, 4096),
}
"""slot and stage of the tunings of `matrix`, which reduce_scatter uses too."""


def tuning_of(name: str) -> Tuning:
    """Return a tuning of `matrix`, with what reduce_scatter needs."""
    slot, stage = SCRATCH[name]
    return {**TUNINGS[name][0], "eager_max": slot, "staging_chunk": stage}


def run_cases(cases: list[Case]) -> list[str]:
    """Run them, every fifth under a random schedule too; failures as text."""
    return failures_of(cases, 5)


def cases(
    per: int, seed: int, forms: tuple[str, ...] = ALL_FORMS, *, in_place: bool = False
) -> list[Case]:
    """So many of every form, algorithm, placement and pair of sync modes, in any order or not."""
    rng = random.Random(seed)
    return [
        Case(
            form, flag, tuple(labels), sync, rng.choice(list(TUNINGS)), ordered,
            rng.randrange(1 << 30), in_place,
        )
        for form in forms
        for flag in (PULL, PUSH, MULTICORE)
        for threads in THREADS
        for labels in placements(threads).values()
        for sync in SYNCS
        for ordered in (False, True)
        for _ in range(per)
    ]  # fmt: skip
