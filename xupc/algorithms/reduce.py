"""all_reduce, all_reduce_all, all_reduce_mpi, all_reduce_mpi_all (UPC 1.3, 7.4.3.1; XUPC).

T threads, an operation written +::

    all_reduce        src: a b | c d        dst@one: a+b+c+d
    all_reduce_all    the same              dst@0: a+b+c+d   dst@1: a+b+c+d
    all_reduce_mpi    src: a b | c d        dst@one: a+c b+d           (blocks of two)
    all_reduce_mpi_all                      dst@0: a+c b+d   dst@1: a+c b+d

The four differ in how long the result is and where it goes; each algorithm below does
them all. A thread first folds what it has, in the order of its memory, then the threads'
values are joined in the order of `patterns.tree_joins`. Where operands must keep their
places (NONCOMM_FUNC) and a thread has blocks of several rows, it goes row by row.
"""

from __future__ import annotations

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, tree_joins
from ..plan.recorder import ALL, DST, Operand, Recorder
from ..plan.steps import OP_SCRATCH, BlockRef, FoldOperand, Ranks
from . import reduce_across_nodes as nodes
from .private_staging import LINE
from .reduce_parts import parts_pay
from .reduce_positions import in_order
from .reduce_spec import Reduction, Task, joined
from .registry import algorithm
from .tree_pipeline import FanIn, FanOut

FORMS = ("reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all")


# --- PULL and PUSH -------------------------------------------------------------------------
def _tree(t: Recorder, r: Reduction, *, push: bool) -> None:
    """Up a tree of threads, from its top to dst's thread or down to all."""
    width = FanIn.width(t, r.layout.positions, min(t.unit(r.most, r.most), r.most))
    plan = r.tasks(width)
    top = r.layout.first
    up = FanIn(t, top, [task.positions for task in plan], r.to, width, push=push)
    down = FanOut(t, top, r.layout.positions, push=push) if r.to is None else None
    pieces = 0
    for j, task in enumerate(plan):
        nelems = task.nelems * task.rows
        own = r.own(t, task, up.me, up.spare) if up.me < task.positions else []
        leaves = up.values(j, own, nelems, nelems * r.itemsize)
        if t.me == up.owner:
            _finish(t, r, task, leaves, up.spare)
            up.taken(j)
        if down is not None and not r.by_row:
            down.piece(DST.on(top, task.begin * r.itemsize), task.nelems * r.itemsize)
            pieces += 1
    up.end()
    if down is not None:
        if not pieces:  # only now are they final
            for offset, size in chunks(r.nbytes, t.tuning["reduce_chunk"]):
                down.piece(DST.on(top, offset), size)
        down.end()


def _finish(
    t: Recorder, r: Reduction, task: Task, leaves: list[FoldOperand], spare: BlockRef
) -> None:
    """Fold a task's values into my dst."""
    place = DST.on(t.me, task.begin * r.itemsize)
    if task.row in (None, 0):
        t.fold(place, leaves, task.nelems)
    elif r.element_wise or task.rows == 1:
        t.fold(place, [FoldOperand(place), *joined(leaves)], task.nelems)
    else:
        t.fold(spare, leaves, task.rows)
        row = FoldOperand(spare, joins=1, step=r.itemsize)
        t.fold(place, [FoldOperand(place), row], rows=task.rows)


def pull(t: Recorder, r: Reduction) -> None:
    """Each thread of a binomial tree reads its children's values, the last one the top's.

    Each link carries the result once per edge that crosses it, some edges at a time.
    """
    _tree(t, r, push=False)


def push(t: Recorder, r: Reduction) -> None:
    """Each thread of a binomial tree writes its value to its parent."""
    _tree(t, r, push=True)


# --- MULTICORE -----------------------------------------------------------------------------
def multicore(t: Recorder, r: Reduction) -> None:
    """Share the work inside a node by load and store; between nodes their roots communicate.

    On one node, the last thread to arrive reduces small data. Of one value each thread folds its
    own run, and dst's thread (or each) combines them. Of long results each thread folds a slice of
    all threads' blocks and writes it to all its places.

    On few nodes, node roots exchange their threads' values at once (`nodes.table`), or one value
    per node where that fits one message (`nodes.lead`). Of longer results each node finishes a part
    for dst's node (`nodes.to_one`; the longest pass a chain of nodes) or for all (`nodes.to_all`),
    chunk by chunk. Three cases use a tree of threads, as PUSH does: an order that is not the
    nodes', results for all on so many nodes that parts are short, and records of more than a cache
    line.
    """
    if t.one_node:
        _one_node(t, r)
        return
    few = t.tree.node_count <= t.tuning["few_nodes_max"]
    into_a_node = r.nbytes * (t.tree.node_count - 1)
    fits = r.layout.positions * r.itemsize <= t.tuning["staging_bytes"]
    if r.by_row or (not r.element_wise and not (few and fits)):
        push(t, r)
    elif not r.element_wise:
        nodes.table(t, r)
    elif r.itemsize > LINE or (r.exact and not (few and in_order(t, r))):
        push(t, r)
    elif (
        few
        and nodes.fits(t, r)
        and into_a_node <= t.tuning["root_exchange_max"]
        and t.root_exchange(r.nbytes * t.largest_node, one_block=True)
    ):
        if t.me == t.node_root:
            nodes.lead(t, r)
    elif r.to is None and (few or parts_pay(t, r.nbytes)):
        nodes.to_all(t, r)
    elif r.to is not None and (few or not r.exact):
        nodes.to_one(t, r)
    else:
        push(t, r)


def _one_node(t: Recorder, r: Reduction) -> None:
    by = r.layout.first if r.to is None else r.to
    if r.layout.nelems * r.itemsize <= t.tuning["fused_max"]:
        with t.single_mover(by, anyone=True):
            _all_of(t, r, 0, r.each)
    elif r.element_wise:
        t.ready(ALL, ALL)
        grain = max(1, 64 // r.itemsize)
        grains = -(-r.each // grain)
        begin, end = (min(r.each, grains * (t.me + k) // t.size * grain) for k in (0, 1))
        if begin < end:
            _all_of(t, r, begin, end)
        t.done(ALL, ALL)
    elif r.by_row:
        push(t, r)
    else:
        _one_value(t, r)


def _all_of(t: Recorder, r: Reduction, begin: int, end: int) -> None:
    """Some of the results from all threads' blocks, to all places where they belong."""
    first, *rest = t.node_ranks() if r.to is None else (Ranks(r.to),)
    for b, e, blocks in r.ranges(begin, end):
        offset, nelems = b * r.itemsize, e - b
        total = DST.on(first.first, offset)
        if not r.by_row:
            t.fold(DST.across(first, offset), r.tree(b, blocks), nelems, first.count)
            others = rest
        else:
            _fold_rows(t, r, b, nelems, total)
            others = [*first.without(first.first), *rest]
        for run in others:
            t.copy(DST.across(run, offset), total, nelems * r.itemsize, run.count)


def _fold_rows(t: Recorder, r: Reduction, begin: int, nelems: int, total: BlockRef) -> None:
    """Rows of blocks one after the other, into the first place."""
    last = r.layout.rows - 1
    t.fold(total, r.row_tree(0, begin), nelems)
    for row, rows in ((1, last - 1), (last, 1)):
        if rows and (leaves := r.row_tree(row, begin)):
            t.fold(total, [FoldOperand(total), *joined(leaves)], nelems, rows=rows)


def _one_value(t: Recorder, r: Reduction) -> None:
    """Fold each thread's run into its op_scratch; each receiver of the value combines them all."""
    layout = r.layout
    position = layout.position(t.me)
    there = t.channel()
    wanted = t.node_ranks() if r.to is None else (Ranks(r.to),)
    if position is not None:
        t.fold(Operand(OP_SCRATCH).on(t.me), [r.leaf(position, 0, layout.blocks)])
        t.signal(there, wanted)
    if r.to in (None, t.me):
        joins = tree_joins(layout.positions)
        leaves = []
        for p in range(layout.positions):
            t.wait(there, layout.thread(p))
            leaves.append(FoldOperand(Operand(OP_SCRATCH).on(layout.thread(p)), 1, joins[p]))
        t.fold(DST.on(t.me), leaves)


for _form in FORMS:
    algorithm(_form, PULL)(pull)
    algorithm(_form, PUSH)(push)
    algorithm(_form, MULTICORE)(multicore)
