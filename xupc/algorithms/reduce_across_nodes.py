"""MULTICORE reductions across nodes: whole algorithms, for short results and for long ones.

Each function is recorded on every thread, except `lead`, which is for node roots alone.
`reduce.multicore` chooses.
"""

from __future__ import annotations

from ..plan.recorder import DST, Operand, Recorder
from ..plan.steps import OP_SCRATCH, OP_SCRATCH_BYTES, STAGING, BlockRef, FoldOperand, Ranks
from .pipelined_reduce import PipelinedReduce
from .reduce_parts import ReduceScatterAllgather, ReduceScatterGather
from .reduce_positions import leaves_of, order_of, targets
from .reduce_spec import Reduction, tree_of
from .tree_pipeline import trade_values, traded_values

__all__ = ["fits", "lead", "table", "to_all", "to_one"]


# --- short results --------------------------------------------------------------------------
def fits(t: Recorder, r: Reduction) -> bool:
    """Return whether a result of each node fits a staging buffer."""
    return t.tree.node_count * r.nbytes <= t.tuning["staging_bytes"]


def table(t: Recorder, r: Reduction) -> None:
    """Exchange every thread's single value among node roots, which combine them all.

    They combine all values in one order on every placement of the threads. It takes the latency of
    one message.
    """
    layout, size = r.layout, r.itemsize
    blocks = layout.blocks
    nodes = targets(t, r)
    threads = [layout.thread(p) for p in range(layout.positions)]
    near = [(p, thread) for p, thread in enumerate(threads) if t.on_my_node(thread)]

    def trade() -> list[FoldOperand]:
        t.need(*trade_values(t, threads, size, nodes))
        return tree_of(traded_values(t, threads, size))

    nbytes = max(layout.nelems * size // t.tree.node_count, layout.positions * size)
    if t.root_exchange(nbytes, one_block=True):
        if t.me == t.node_root:
            for p, thread in near:
                t.fold(Operand(OP_SCRATCH).on(thread), [r.leaf(p, 0, blocks)])
            leaves = trade()
            if t.my_node in nodes:
                _fold_to_node(t, r, 0, leaves, 1)
        return
    arrived, there = t.channel(), t.channel()
    total = Operand(OP_SCRATCH).on(t.node_root, OP_SCRATCH_BYTES // 2)
    position = layout.position(t.me)
    if position is not None:
        t.fold(Operand(OP_SCRATCH).on(t.me), [r.leaf(position, 0, blocks)])
        t.signal(arrived, (Ranks(t.node_root),))
    if t.me == t.node_root:
        t.wait(arrived, [Ranks(thread) for _, thread in near])
        leaves = trade()
        if t.my_node in nodes:
            t.fold(total, leaves)
            t.signal(there, t.node_ranks() if r.to is None else (Ranks(r.to),))
    if r.to in (None, t.me):
        t.wait(there, t.node_root)
        t.copy(DST.on(t.me), total, size)


def lead(t: Recorder, r: Reduction) -> None:
    """Record a node root that does everything for its node: it exchanges one value per node."""
    nodes = targets(t, r)
    ranges = [(piece, order_of(t, r, piece[2])) for piece in r.ranges(0, r.each)]

    def place(node: int, begin: int = 0) -> BlockRef:
        return Operand(STAGING).on(t.me, (node * r.each + begin) * r.itemsize)

    def length(node: int) -> int:
        """Return the bytes of a node's value: fewer if it has no part of the last block row."""
        return max((end for (_, end, _), order in ranges if node in order), default=0) * r.itemsize

    for (begin, end, blocks), order in ranges:
        if t.my_node in order:
            t.fold(place(t.my_node, begin), leaves_of(t, r, begin, blocks), end - begin)
    tickets = []
    if t.my_node in nodes:
        for node in range(t.tree.node_count):
            if node != t.my_node and length(node):
                root = t.tree.node_root(node)
                tickets.append(t.recv(root, place(node), length(node), bounded=False))
    if length(t.my_node):
        for node in nodes:
            if node != t.my_node:
                t.send(t.tree.node_root(node), place(t.my_node), length(t.my_node))
    t.need(*tickets)
    if t.my_node in nodes:
        for (begin, end, _), order in ranges:
            leaves = tree_of([place(node, begin) for node in order])
            _fold_to_node(t, r, begin, leaves, end - begin)


def _fold_to_node(
    t: Recorder, r: Reduction, begin: int, leaves: list[FoldOperand], nelems: int
) -> None:
    """Fold results to their places on my node, as its node root."""
    offset = begin * r.itemsize
    if r.to is not None:
        t.fold(DST.on(r.to, offset), leaves, nelems)
        return
    first, *rest = t.node_ranks()
    t.fold(DST.across(first, offset), leaves, nelems, first.count)
    for run in rest:
        source = DST.on(first.first, offset)
        t.copy(DST.across(run, offset), source, nelems * r.itemsize, run.count)


# --- long results ---------------------------------------------------------------------------
def to_all(t: Recorder, r: Reduction) -> None:
    """Let each node finish a part of the result for all."""
    ReduceScatterAllgather(t, r).record()


def to_one(t: Recorder, r: Reduction) -> None:
    """Send the result to dst's node: in parts if it is short or has an order, else by a pipeline.

    In a pipeline each node combines the arriving values with its own, with n bytes on each link.
    """
    if r.exact or ReduceScatterGather.pays(t, r):
        ReduceScatterGather(t, r).record()
    else:
        PipelinedReduce(t, r).record()
