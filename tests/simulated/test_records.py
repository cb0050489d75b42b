"""Reductions of records, simulated: elements of 24, 40, 72 and 256 bytes are never torn.

Lengths and offsets in units of cache lines, and scratch for two values in half a op_scratch, are
whole elements of 8 bytes whatever happens. A symbol here fills a record; one that consists of parts
of several symbols is noticed.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from simulated.matrix import TUNINGS, placements
from simulated.pool import workers
from simulated.reductions import FORMS, IN_PLACE, Job, Symbols
from simulated.values import IN_PLACE as VALUES_IN_PLACE
from simulated.values import JOINS, VALUES, One, tuning_of
from support.soak import seed, share, share_of

from xupc.algorithms.reduce_spec import Reduction
from xupc.algorithms.registry import find
from xupc.algorithms.values import transforms
from xupc.algorithms.values_reduce_scatter import ReduceScatter
from xupc.algorithms.values_reduce_spec import ReduceSpec
from xupc.backends.simulator.script import Call
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.simulator import Simulation
from xupc.flags import ALGORITHM_NAMES, MULTICORE, PULL, PUSH
from xupc.plan.plan import Plan
from xupc.plan.recorder import Recorder, trace
from xupc.plan.steps import OP_SCRATCH_BYTES
from xupc.reduction.structured_dtypes import longest
from xupc.topology.tree import Tree

SIZES = (24, 40, 72, 200, longest)
LEAST = {"reduce_chunk": 4096, "staging_bytes": 1 << 16, "staging_chunk": 4096}
"""What a table may have at the least."""
SHIFT = 512


class Records(Symbols):
    """A kernel on symbols that fill records."""

    def __init__(self, ordered: bool, size: int) -> None:
        super().__init__(ordered)
        self.size = size
        self.dtype: Any = np.dtype([("n", np.uint64, (size // 8,))])

    def narrow(self, x: Any) -> Any:
        """The numbers of records, none of which may be torn."""
        words = x["n"].reshape(-1, self.size // 8)
        assert (words == words[:, :1]).all(), f"torn: {words.tolist()}"
        return words[:, 0].copy()

    def wide(self, numbers: Any) -> Any:
        """Records of numbers."""
        out = np.zeros(len(numbers), self.dtype)
        out["n"] = np.asarray(numbers, np.uint64)[:, None]
        return out

    def combine(self, out: Any, a: Any, b: Any) -> None:
        result = np.zeros(len(out), np.uint64)
        super().combine(result, self.narrow(a), self.narrow(b))
        out[...] = self.wide(result)

    def fill(self, out: Any) -> None:
        out[...] = self.wide([self.number(())])

    def fold_to(self, out: Any, x: Any) -> None:
        out[:1] = self.wide([self.fold(self.narrow(x))])

    def scan(self, dst: Any, src: Any, carry: Any, reverse: bool) -> None:
        result = self.narrow(src)
        last = None if carry is None else self.narrow(np.array([carry], self.dtype))[0]
        super().scan(result, result, last, reverse)
        dst[...] = self.wide(result)


def simulate(
    plans: list[Plan], tree: Tree, memory: dict[str, Any], shift: int, kernel: Records,
    tuning: dict[str, int], read: str = "src",
) -> None:  # fmt: skip
    """Run a call of these plans that reads that memory."""
    for name, size in (("slot", OP_SCRATCH_BYTES), ("buffer", tuning["staging_bytes"])):
        memory[name] = [bytearray(size) for _ in range(tree.size)]
    programs = [Program(plan, tree) for plan in plans]
    where = (("dst", shift), (read, shift), ("slot", 0), ("buffer", 0))
    Simulation(tree, memory, [[Call(programs, where, kernel)] for _ in range(tree.size)]).run()


def shared(job: Job, flag: int, labels: tuple[int, ...], tuning: dict[str, int], size: int) -> None:
    """A reduction of shared data, and what must become of it."""
    kernel, tree = Records(job.ordered, size), Tree(labels)
    space = 2 * SHIFT + (job.nelems + 40) * size
    memory = {name: [bytearray(space) for _ in labels] for name in ("dst", "src")}
    read = "dst" if job.in_place else "src"
    base = 40 * size  # threads before the first have elements at lower places
    src = {}
    for i in range(job.nelems):
        thread, place = job.where(i)
        src[thread, place] = kernel.number((i,))
        at = base + place * size
        memory[read][thread][at : at + size] = kernel.wide([src[thread, place]]).tobytes()
    what: Any
    if job.running:
        what = job.scan(size)
    else:
        to = None if job.everywhere else job.to
        exact = job.ordered or not job.element_wise
        what = Reduction(job.layout, job.each, size, to, job.ordered, exact, job.element_wise)
    entry = find(job.form, flag)
    plans = [
        trace(
            entry.function, entry.name, job.form, me, tree, ("all", "all"), tuning, [what], kernel
        )
        for me in range(tree.size)
    ]  # fmt: skip
    simulate(plans, tree, memory, base, kernel, tuning, read)
    for (thread, place), value in job.results(kernel, src).items():
        at = base + place * size
        found = kernel.narrow(np.frombuffer(memory["dst"][thread], kernel.dtype, 1, at))
        assert kernel.value(int(found[0])) == kernel.value(value), (thread, place)


def private(one: One, labels: tuple[int, ...], tuning: dict[str, int], size: int, n: int) -> None:
    """A reduction of arrays of values."""
    kernel, tree = Records(True, size), Tree(labels)
    in_place = one.in_place and transforms(one.form, one.flag, tree, tuning, n * size)
    scattered = one.form == "reduce_scatter"
    given = n * tree.size if scattered else n
    numbers = [[kernel.number(((i, k),)) for k in range(given)] for i in range(tree.size)]
    memory = {name: [bytearray(given * size) for _ in labels] for name in ("dst", "src")}
    for i, row in enumerate(numbers):
        memory["dst" if in_place else "src"][i][:] = kernel.wide(row).tobytes()
    to = one.root if one.form == "reduce" else None
    what: Any = ReduceSpec(n, size, to, True, True, in_place, one.form.startswith("exclusive"))
    if scattered:
        what = ReduceScatter(n, size, True)
    entry = find(f"allav_{one.form}", one.flag)
    plans = [
        trace(
            entry.function, entry.name, entry.collective, me, tree, ("no", "no"), tuning, [what],
            kernel, private=True,
        )
        for me in range(tree.size)
    ]  # fmt: skip
    simulate(plans, tree, memory, 0, kernel, tuning)
    for me in range(tree.size):
        if to not in (None, me):
            continue
        low, high = {
            "prefix_reduce": (0, me + 1), "suffix_reduce": (me, tree.size),
            "exclusive_prefix_reduce": (0, me), "exclusive_suffix_reduce": (me + 1, tree.size),
        }.get(one.form, (0, tree.size))  # fmt: skip
        found = kernel.narrow(np.frombuffer(memory["dst"][me], kernel.dtype, n))
        first = me * n if scattered else 0
        for k, number in enumerate(found, first):
            assert kernel.value(int(number)) == tuple((i, k) for i in range(low, high)), (me, k)


def _shared_case(seed: int) -> str:
    rng = random.Random(seed)
    in_place = rng.random() < 0.2
    form = rng.choice(IN_PLACE if in_place else FORMS)
    threads = rng.choice((1, 2, 3, 4, 5, 8))
    labels = tuple(rng.choice(list(placements(threads).values())))
    block = rng.choice([0, 1, 2, 3, 7, 30])
    phase = rng.randrange(min(block, 8)) if block and "mpi" not in form else 0
    first = rng.randrange(threads)
    dealt = first, phase, block
    if in_place and "mpi" in form:
        first, dealt = 0, (0, 0, 0)
    nelems = rng.choice([1, 2, 5, 13, 40, 90])
    job = Job(form, threads, first, phase, block, nelems, rng.randrange(threads),
              rng.random() < 0.5, dealt, in_place)  # fmt: skip
    tuning = {**TUNINGS[rng.choice(list(TUNINGS))][0], **LEAST}
    flag, size = rng.choice((PULL, PUSH, MULTICORE)), rng.choice(SIZES)
    try:
        shared(job, flag, labels, tuning, size)
    except Exception as problem:
        return f"{job} {ALGORITHM_NAMES[flag]} {labels} {size}: {type(problem).__name__}: {problem}"
    return ""


def _private_case(seed: int) -> str:
    rng = random.Random(seed)
    form, flag, size = rng.choice(JOINS), rng.choice((PULL, PUSH, MULTICORE)), rng.choice(SIZES)
    threads = rng.choice((1, 2, 2, 3, 4, 5, 8))
    labels = tuple(rng.choice(list(placements(threads).values())))
    tuning = {
        **tuning_of(rng.choice(list(VALUES))),
        **LEAST,
        "eager_max": rng.choice((0, OP_SCRATCH_BYTES)),
    }
    if rng.random() < 0.3:
        tuning |= {"direct_min": 1, "direct_min_pair": 1, "direct_min_alltoall": 1,
                   "direct_min_shared_source": 1,
                   "direct_reduce_max": rng.choice((0, 1 << 20))}  # fmt: skip
    in_place = form in VALUES_IN_PLACE and rng.random() < 0.3
    one = One(form, flag, rng.randrange(threads), 0, in_place, exact=True)
    n = rng.choice([1, 2, 5, 13, 40, 90])
    try:
        private(one, labels, tuning, size, n)
    except Exception as problem:
        return f"{one} {labels} {size} x {n}: {type(problem).__name__}: {str(problem)[:500]}"
    return ""


@pytest.mark.parametrize("case", [_shared_case, _private_case])
def test_records_of_any_size(case: Any) -> None:
    """Forms, algorithms, placements and tables at random."""
    numbers = range(seed(), seed() + share(300))
    with workers() as pool:
        failures = [text for text in pool.map(case, numbers, chunksize=25) if text]
    assert not failures, f"{len(failures)} fail:\n" + "\n".join(failures[:5])


def test_many_threads_of_long_records() -> None:
    """Where scratch is divided among many, a place holds a record all the same."""
    every = [tuple(labels) for labels in ([0] * 70, [i // 2 for i in range(70)], range(70))]
    for labels, flag in share_of([*itertools.product(every, (PULL, PUSH, MULTICORE))]):
        tuning = {**TUNINGS["whole"][0], **LEAST, "few_nodes_max": 64}
        for form in FORMS:
            job = Job(form, 70, 3, 0, 1, 150, 7, False, (3, 0, 1))
            shared(job, flag, labels, tuning, longest)
        for form in JOINS:
            one = One(form, flag, 1, 0, False, exact=True)
            values = {
                **tuning_of("mixed"),
                **LEAST,
                "parallel_fold_threads": 1000,
                "few_nodes_max": 64,
                "rma_get_max": 100,  # three reads for a record; 5 bytes would be 52
            }
            private(one, labels, values, longest, 3)


@pytest.mark.parametrize("size", [8, 24, 72, 200, longest])
def test_a_unit_holds_an_element(size: int) -> None:
    """However few of them are cut into units; what no record needs stays what it was."""
    for fold, n in itertools.product((4096, 1 << 16), range(1, 60)):
        tuning = {**TUNINGS["large"][0], "reduce_chunk": fold, "max_messages": 1 << 20}
        t = Recorder(0, Tree([0, 0]), ("no", "no"), tuning, Records(False, size))
        unit = t.unit(n * size, n * size)
        assert unit >= size
        assert unit % 64 == 0
