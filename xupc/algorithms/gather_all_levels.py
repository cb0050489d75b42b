"""all_gather_all by the levels below a node: each block enters each domain once.

The blocks that enter a domain are divided among its threads. In phase k each thread copies its
share into its domain of level k, from threads of the domain around that have copied it before::

    2 L3 domains of 2 threads      phase 1: 0 <- C   1 <- D   2 <- A   3 <- B
                                   phase 2: 0 <- B D   1 <- A C   2 <- D B   3 <- C A
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

import numpy as np

from ..flags import MULTICORE
from ..plan.lanes import CHANNELS
from ..plan.patterns import chunks
from ..plan.recorder import ALL, Operand, Recorder
from ..plan.steps import BlockRef, Ranks
from ..records import record
from .conditions import CallFacts, by_name
from .domains import Threads, block_entries, ranks_of
from .gather_all import InPlace, in_place
from .registry import algorithm

_SUMMARY = "Each block enters each socket and cache domain once; its threads share the blocks."


def _few_levels(call: CallFacts) -> bool:
    """One node, at most 13 levels below it."""
    return call.one_node and len(call.tree.levels(0).levels) <= CHANNELS + 1


@record
class _Phase:
    """What a thread does to take its share into its domain of one level.

    Attributes
    ----------
    rows
        The first block of a row, how many, and where each of them is copied from.
    sources
        The threads that must have copied some of them before.
    readers
        The threads that copy in this phase what this thread has copied before.
    """

    rows: tuple[tuple[int, int, int], ...]
    sources: tuple[Ranks, ...]
    readers: tuple[Ranks, ...]


@algorithm("gather_all", MULTICORE, "levels", _SUMMARY, applies=_few_levels, preferred=by_name)
def by_levels(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each thread copies its share of each phase, chunk by chunk."""
    entries = block_entries(t.tree.levels(t.my_node))
    runs = _run_numbers(t)
    phases = [_phase(*pair, t.me, runs) for pair in pairwise(entries)]
    t.ready(ALL, ALL)
    channels = [t.channel() for _ in phases[1:]]
    if not isinstance(src, InPlace):
        t.copy(dst.on(t.me, t.me * nbytes), src.on(t.me), nbytes)
    for number, (offset, size) in enumerate(chunks(nbytes, t.chunk(nbytes)), 1):
        for k, phase in enumerate(phases):
            if k:
                t.signal(channels[k - 1], phase.readers, number)
                t.wait(channels[k - 1], phase.sources, number)
            for first, count, thread in phase.rows:
                source = _source(dst, src, first, count, thread, nbytes)
                into = dst.row(t.me, first * nbytes + offset, nbytes)
                t.copy(into, source + offset, size, count)
    t.done(ALL, ALL)


algorithm(
    "gather_all_in_place", MULTICORE, "levels", _SUMMARY, applies=_few_levels, preferred=by_name
)(in_place(by_levels))


def _source(
    dst: Operand, src: Operand, first: int, count: int, thread: int, nbytes: int
) -> BlockRef:
    """Return where a row of blocks is: in src of their own threads, or in dst of another one."""
    if thread < 0:
        return src.across(Ranks(first, count))
    return dst.row(thread, first * nbytes, nbytes)


def _run_numbers(t: Recorder) -> list[int]:
    """Return for each thread the number of its run: a row of blocks lies in one run."""
    numbers = [0] * t.size
    for number, run in enumerate(t.node_ranks()):
        for thread in run:
            numbers[thread] = number
    return numbers


def _phase(outer: Threads, inner: Threads, me: int, runs: list[int]) -> _Phase:
    """Return what thread `me` does between two arrays of `block_entries`."""
    blocks = np.arange(len(outer))
    takes = (inner == blocks[:, None]) & (outer != inner)  # by thread and block
    copied = takes & (outer != blocks)  # of these, not from the blocks' own threads
    mine = np.flatnonzero(takes[me])
    where = np.where(copied[me], outer[me], -1)[mine]
    readers = np.flatnonzero((copied & (outer == me)).any(axis=1))
    return _Phase(
        tuple(_rows(mine.tolist(), where.tolist(), runs)),
        ranks_of(np.unique(outer[me][copied[me]]).tolist()),
        ranks_of(readers.tolist()),
    )


def _rows(blocks: list[int], where: list[int], runs: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of successive blocks that are copied from the same place."""
    numbered = enumerate(zip(blocks, where, strict=True))
    for (_, thread, _), run in groupby(
        numbered, lambda x: (x[1][0] - x[0], x[1][1], runs[x[1][0]])
    ):
        first, *more = run
        yield first[1][0], 1 + len(more), thread
