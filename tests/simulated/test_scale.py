"""Planning at 10,000 nodes x 128 threads: no plan is O(threads), none takes long.

An ordinary run has a fifth of the nodes, and may use a fifth of the steps and seconds and 3 MB.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from simulated.matrix import ENTRIES, MEANING, arguments
from simulated.reductions import FORMS, Job, Symbols
from simulated.values import JOINS, MOVES, One, given
from support.soak import amount

from xupc.algorithms.registry import Entry, Variant, find
from xupc.flags import ALGORITHM_NAMES, MULTICORE, PULL
from xupc.plan.draw import step_text
from xupc.plan.plan import Plan
from xupc.plan.recorder import Recorder
from xupc.plan.steps import Ranks, Step
from xupc.records import replace
from xupc.topology.tree import Tree

LESS = amount(5, 1)
"""An ordinary run has so many times fewer nodes, and lets plans have so much less."""
NODES, PER_NODE = 10_000 // LESS, 128
TUNING = {
    "chunk": 131072,
    "alltoall_chunk": 131072,
    "notify_bytes": 131072,
    "max_message": 131072,
    "rma_get_max": 65536,
    "window": 16,
    "root_exchange_max": 1024,
    "fold_wakeup_min": 65536,
    "root_exchange_max_one_block": 1024,
    "max_messages": 10000 // LESS,
    "fused_max": 4096,
    "pipeline_min": 65536,
    "few_nodes_max": 8,
    "reduce_chunk": 32768,
    "staging_bytes": 524288,
    "eager_max": 1024,
    "staging_chunk": 131072,
    "parallel_fold_threads": 4,
    "direct_min": 4096,
    "direct_min_alltoall": 16384,
    "direct_min_shared_source": 262144,
    "direct_min_pair": 4096,
    "tried": 1,
    "direct_reduce_max": 262144,
    "direct_put_min": 65536,
    "yields_before_sleep": 0,
}
ROOT, A_NODE = 5 * PER_NODE + 3, 7 * (NODES // 10) * PER_NODE
THREADS = {
    "the root": ROOT,
    "its node root": 5 * PER_NODE,
    "a node root": A_NODE,
    "a plain thread": A_NODE + 77,
    "the last thread": NODES * PER_NODE - 1,
}
SIZES = {"8 B": 8, "1 MiB": 1 << 20}
MOST_BYTES = amount(3, 10) * 10**6  # a part of them does not depend on the nodes
MOST_STEPS = 100_000 // LESS
HANGS = 5.0 / LESS
MOST_SECONDS = 1.0 / LESS

pytestmark = pytest.mark.soak

PLACEMENTS: dict[str, Callable[[], NDArray[np.int32]]] = {
    "blocks": lambda: np.repeat(np.arange(NODES, dtype=np.int32), PER_NODE),
    "cyclic": lambda: np.tile(np.arange(NODES, dtype=np.int32), PER_NODE),
}


@pytest.fixture(scope="module", params=list(PLACEMENTS))
def tree(request: pytest.FixtureRequest) -> Tree:
    """Many nodes, their threads in a row or dealt round."""
    return Tree(PLACEMENTS[request.param]())


class Bounded(Recorder):
    """A recorder that gives up before memory does."""

    def _add(self, step: Step) -> None:
        super()._add(step)
        if sum(map(len, self._lanes)) > MOST_STEPS:
            raise TooManyStepsError(f"more than {MOST_STEPS} steps, the next {step_text(step)}")


class TooManyStepsError(Exception):
    """A plan grows with the number of threads, or of bytes."""


def _plan(entry: Entry, me: int, tree: Tree, given: Sequence[object]) -> Plan:
    private = entry.collective.startswith("allav_")
    sync = ("no", "no") if private else ("my", "my")  # the most steps
    recorder = Bounded(me, tree, sync, TUNING, Symbols(ordered=True))
    entry.function(recorder, *given)
    return recorder.plan(entry.collective, entry.name, private=private)


CASES = [
    pytest.param(e, size, id=f"{e.collective}-{e.name}-{size}")
    for e in ENTRIES
    for size in SIZES
    if size == "8 B" or MEANING[e.collective].rooted
]


@pytest.mark.rotates
@pytest.mark.parametrize(("entry", "size"), CASES)
def test_plans_stay_small(
    entry: Entry, size: str, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under 10 MB for each kind of thread; the time is printed."""
    given = arguments(entry.collective, tree.size, ROOT, SIZES[size])
    _measure(entry, f"{entry.collective} {entry.name} {size}", tree, lambda: given, capsys)


@pytest.mark.parametrize("nbytes", [1 << 30, 1 << 40])
@pytest.mark.parametrize("me", range(8))
def test_plans_of_long_broadcasts_stay_small(me: int, nbytes: int) -> None:
    """Their chunks become longer where there would be too many of them."""
    tree = Tree(np.arange(8) // 2)
    for name in ("broadcast", "broadcast_in_place"):
        plan = _plan(find(name, MULTICORE), me, tree, arguments(name, tree.size, 3, nbytes))
        assert sum(map(len, plan.lanes)) <= 6 * TUNING["max_messages"]


@pytest.mark.parametrize(
    ("collective", "size"), [("broadcast", "8 B"), ("broadcast", "1 MiB"), ("gather_all", "8 B")]
)
def test_plans_on_a_circulant_graph_stay_small(
    collective: str, size: str, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of all nodes' receives has one number for each round of a phase."""
    (found,) = (v for v in find(collective, MULTICORE).variants if v.label == "circulant")
    entry = Entry(collective, MULTICORE, (replace(found, preferred=None),))
    given = arguments(collective, tree.size, ROOT, SIZES[size])
    _measure(entry, f"{collective} {found.name} {size}", tree, lambda: given, capsys)


@pytest.mark.rotates
@pytest.mark.parametrize("form", ["reduce_mpi", "reduce_mpi_all"])
@pytest.mark.parametrize("block", [1, 1 << 14])
def test_plans_of_circulant_reductions_stay_small(
    form: str, block: int, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same for reductions."""
    (found,) = (v for v in find(form, MULTICORE).variants if v.label == "circulant")
    entry = Entry(form, MULTICORE, (replace(found, preferred=None),))
    job = Job(form, tree.size, 0, 0, block, block * tree.size, ROOT, False)
    what = f"{form} {found.name} {block}"
    _measure(entry, what, tree, job.arguments, capsys)


LAYOUTS = {
    "a block each": (0, 16, 16 * NODES * PER_NODE),
    "a large block each": (0, 1 << 14, (NODES * PER_NODE) << 14),
    "rows": (0, 1, 3 * NODES * PER_NODE + 5),
    "rows of blocks": (3, 5, 17 * NODES * PER_NODE + 5),
}
"""Phase, block and elements of src."""


@pytest.mark.rotates
@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flag", ALGORITHM_NAMES, ids=list(ALGORITHM_NAMES.values()))
@pytest.mark.parametrize("form", FORMS)
def test_plans_of_reductions_stay_small(
    form: str,
    flag: int,
    layout: str,
    ordered: bool,
    tree: Tree,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Under 10 MB and a second, of one block per thread and of a few rows."""
    phase, block, nelems = LAYOUTS[layout]
    if "mpi" in form:
        phase = 0
    dealt = ROOT, phase, block
    job = Job(form, tree.size, *dealt, nelems, A_NODE, ordered, dealt)
    entry = find(form, flag)
    what = f"{form} {entry.name}, {layout}{', ordered' * ordered}"
    _measure(entry, what, tree, job.arguments, capsys, MOST_SECONDS)


@pytest.mark.rotates
@pytest.mark.parametrize("flag", ALGORITHM_NAMES, ids=list(ALGORITHM_NAMES.values()))
@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
@pytest.mark.parametrize("form", MOVES + JOINS)
def test_plans_of_arrays_of_values_stay_small(
    form: str, ordered: bool, flag: int, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    """As above, of 8 B and of what is staged in units: as much as a thread may well have."""
    if form in MOVES and ordered:
        pytest.skip("nothing is joined")
    if form in ("exchange", "permute", "reduce_scatter"):
        pytest.skip("a node trades 1.3 GB even of 8 B blocks; it has a list of all threads")
    entry = find(f"allav_{form}", flag)
    to_each = form in ("scatter", "gather", "gather_all")  # so many blocks does one thread have
    for nbytes in (8, 64 if to_each else 1 << 20):
        one = One(form, flag, ROOT, nbytes, in_place=False)
        what = f"allav_{form} {entry.name}, {nbytes} B{', ordered' * ordered}"
        # the pieces of a pipeline are as many on fewer nodes
        most = MOST_BYTES if form in MOVES else 10**7
        _measure(
            entry, what, tree, lambda one=one: given(one, tree.size, ordered), capsys,
            most_bytes=most,
        )  # fmt: skip


def _measure(
    entry: Entry,
    what: str,
    tree: Tree,
    given: Callable[[], Sequence[object]],
    capsys: pytest.CaptureFixture[str],
    most_seconds: float = HANGS,
    most_bytes: int = MOST_BYTES,
) -> None:
    figures = []
    for who, me in THREADS.items():
        tracemalloc.start()
        began = time.process_time()
        plan = _plan(entry, me, tree, given())
        seconds = time.process_time() - began
        nbytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if seconds > most_seconds / 4:  # it takes less without the tracing
            began = time.process_time()
            _plan(entry, me, tree, given())
            seconds = time.process_time() - began
        figures.append((who, sum(map(len, plan.lanes)), nbytes, seconds))
    with capsys.disabled():
        _, steps, nbytes, seconds = max(figures, key=lambda f: f[2])
        slowest = max(f[3] for f in figures)
        print(
            f"\n{what}: at most {steps} steps, {nbytes / 1e6:.3f} MB, {slowest * 1e3:.1f} ms",
            end="",
        )
    for who, _, nbytes, seconds in figures:
        assert nbytes < most_bytes, f"{who}: {nbytes / 1e6:.1f} MB"
        assert seconds < most_seconds, f"{who}: {seconds:.1f} s"


def test_the_measure_sees_a_large_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Too many steps, and few that hold too much."""

    tree = Tree(PLACEMENTS["blocks"]())

    def waits(t: Recorder, count: int) -> None:
        t.wait(0, [Ranks(i) for i in range(count)])

    def measure(count: int) -> None:
        entry = Entry("all_test", PULL, (Variant("all_test", PULL, "", "Wait.", waits),))
        _measure(entry, f"{count} waits", tree, lambda: [count], capsys)

    measure(100)
    with pytest.raises(AssertionError, match="MB"):
        measure(MOST_STEPS)
    with pytest.raises(TooManyStepsError):
        measure(MOST_STEPS + 1)
