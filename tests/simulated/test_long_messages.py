"""MPI counts the bytes of a message in 32 bits: no plan has longer ones, or longer blocks.

And the core counts threads, blocks and rows in 32 bits, but no elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from simulated.matrix import ENTRIES, arguments
from simulated.reductions import FORMS, Job, Symbols
from simulated.test_scale import TUNING
from simulated.values import JOINS, MOVES, One, given

from xupc.algorithms.registry import Entry, find
from xupc.backends.native.lowering import lower
from xupc.backends.native.rows import shown
from xupc.flags import ALGORITHM_NAMES, MULTICORE
from xupc.ops import Op
from xupc.plan.placement import MOST_BYTES
from xupc.plan.plan import Plan
from xupc.plan.recorder import Recorder
from xupc.plan.steps import Get, Recv, Send
from xupc.reduction import kernels
from xupc.topology.tree import Tree

TREE = Tree([0, 0, 1, 1, 2])
LONG = (1 << 32) + 8  # cut to 32 bits it would be 8
# units as large as a table may have them, for there to be few
SIZES = (
    "chunk",
    "alltoall_chunk",
    "notify_bytes",
    "max_message",
    "rma_get_max",
    "reduce_chunk",
    "staging_bytes",
    "staging_chunk",
)
GREATEST = dict.fromkeys(SIZES, MOST_BYTES)
FLAGS = list(ALGORITHM_NAMES)


def _check(entry: Entry, given_: Sequence[object]) -> None:
    for me in range(TREE.size):
        private = entry.collective.startswith("allav_")
        recorder = Recorder(me, TREE, ("all", "all"), {**TUNING, **GREATEST}, Symbols(ordered=True))
        entry.function(recorder, *given_)
        _look(recorder.plan(entry.collective, entry.name, private=private))


def _look(plan: Plan) -> None:
    for step in plan.steps:
        if isinstance(step, Get):
            assert step.nbytes <= MOST_BYTES, step
        if isinstance(step, Send | Recv):
            for blocks in step.blocks:
                assert blocks.nbytes <= MOST_BYTES, step


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.collective}-{e.name}")
def test_moves(entry: Entry) -> None:
    _check(entry, arguments(entry.collective, TREE.size, 1, LONG))


@pytest.mark.parametrize("flag", FLAGS, ids=ALGORITHM_NAMES.values())
@pytest.mark.parametrize("form", FORMS)
def test_reductions(form: str, flag: int) -> None:
    """Of all on one thread, where the results of running ones are on another; and of two blocks."""
    for block, to in ((0, (3, 0, 0)), (LONG // 8, (1, 0, LONG // 8))):
        job = Job(form, TREE.size, 0, 0, block, LONG // 4, 3, True, to)
        _check(find(form, flag), job.arguments())


@pytest.mark.parametrize("flag", FLAGS, ids=ALGORITHM_NAMES.values())
@pytest.mark.parametrize("form", MOVES + JOINS)
def test_arrays_of_values(form: str, flag: int) -> None:
    _check(find(f"allav_{form}", flag), given(One(form, flag, 1, LONG, False), TREE.size, True))


@pytest.mark.parametrize("form", ["reduce", "reduce_all"])
def test_more_elements_than_an_int_counts(form: str) -> None:
    """All on one thread, folded there."""
    job = Job(form, TREE.size, 0, 0, 0, (1 << 31) + 5, 3, False, (3, 0, 0))
    entry = find(form, MULTICORE)
    found = []
    for me in range(TREE.size):
        recorder = Recorder(me, TREE, ("all", "all"), TUNING, kernels.find("u1", Op.ADD))
        entry.function(recorder, *job.arguments())
        for lane in lower(recorder.plan(entry.collective, entry.name), TREE).lanes:
            found += [shown(row) for row in lane]
    long = {"nelems", "times"}
    assert any(n >= 1 << 31 for _, row in found for name, n in row.items() if name in long), found
