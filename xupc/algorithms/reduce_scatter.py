"""all_reduce_scatter: element by element over the threads, block i of the result to thread i.

T blocks of n elements at src of each thread, an operation written +::

    src@0: a0 a1   src@1: b0 b1      dst@0: a0+b0   dst@1: a1+b1

As `values_reduce_scatter`, which holds the written order of operands, but that threads of a node
read each other's src by load.
"""

from __future__ import annotations

from ..flags import MULTICORE, PULL, PUSH
from ..plan.recorder import ALL, DST, SRC, Recorder
from ..plan.steps import STAGING, BlockRef
from .conditions import CallFacts, fused, on_one_node
from .private_staging import LINE, cut
from .reduce_spec import tree_of
from .registry import algorithm
from .values_reduce_scatter import ByNodes, ReduceScatter, by_nodes, read_group
from .values_reduce_scatter import push as push_blocks


@algorithm("reduce_scatter", PULL)
def pull(t: Recorder, r: ReduceScatter) -> None:
    """Each thread reads its block at src of every thread, and reduces what it has read.

    From other nodes it reads one-sided, into its scratch.
    """
    t.ready(ALL, ALL)
    mine = t.me * r.nbytes
    width = t.tuning["staging_bytes"] // r.most(t) // LINE * LINE
    for offset, size in [(0, r.nbytes)] if t.one_node else cut(r.nbytes, width, r.itemsize):
        for group in r.groups(t):
            row = SRC.across(group, mine + offset)
            parts = read_group(t, group, row, BlockRef(STAGING, t.me), size)
            r.join(t, DST.on(t.me, offset), group, parts, size)
    t.done(ALL, ALL)


@algorithm("reduce_scatter", PUSH)
def push(t: Recorder, r: ReduceScatter) -> None:
    """Each thread writes its blocks to the others' scratch, which reduce what arrives.

    To other nodes it sends them.
    """
    push_blocks(t, r)


def _all_pairs(call: CallFacts) -> int:
    return call.nbytes * call.size * call.size


@algorithm(
    "reduce_scatter", MULTICORE, "fused", "The last thread to arrive reduces everything.",
    **fused(_all_pairs),
)  # fmt: skip
def fused_fold(t: Recorder, r: ReduceScatter) -> None:
    """Reduce all blocks on one thread."""
    with t.single_mover(0, anyone=True):
        for i in range(t.size):
            for group in r.groups(t):
                parts = [SRC.on(k, i * r.nbytes) for k in group]
                r.join(t, DST.on(i), group, parts, r.nbytes)


algorithm(
    "reduce_scatter", MULTICORE, "pull", "Each thread reads its block of every thread, as in PULL.",
    applies=on_one_node,
)(pull)  # fmt: skip


def _can_be_led(call: CallFacts) -> bool:
    """As `nodes`, with ALLSYNC both ways, and one unit whose values fit a barrier."""
    if not (call.synchronised and by_nodes(call)):
        return False
    r: ReduceScatter = call.arguments[0]
    single = len(ByNodes.units_of(call, r)) == 1
    return single and call.roots_can_move(ByNodes.landing_bytes(call, r))


def _is_led(call: CallFacts) -> bool:
    """At most `root_exchange_max` bytes of places for what arrives at a node root."""
    return call.roots_should_move(ByNodes.landing_bytes(call, call.arguments[0]))


@algorithm(
    "reduce_scatter", MULTICORE, "led",
    "Node roots reduce the blocks of their nodes; the partial results travel with the barrier.",
    applies=_can_be_led, preferred=_is_led,
)  # fmt: skip
def led(t: Recorder, r: ReduceScatter) -> None:
    """Let node roots do everything between the two barriers of the call."""
    t.lead(ByNodes.landing_bytes(t, r))
    if t.me == t.node_root:
        SharedByNodes(t, r).lead()


@algorithm(
    "reduce_scatter", MULTICORE, "nodes",
    "Node roots reduce the blocks of their nodes, and exchange the partial results.",
    applies=by_nodes,
)  # fmt: skip
def nodes(t: Recorder, r: ReduceScatter) -> None:
    """Reduce the blocks of each node on its node root."""
    SharedByNodes(t, r).record()


algorithm(
    "reduce_scatter", MULTICORE, "push",
    "Threads send blocks to each other, as in PUSH: for every order and size.",
)(push_blocks)  # fmt: skip


class SharedByNodes(ByNodes):
    """Nothing is staged: the node root reads its threads' src."""

    leads = False

    def lead(self) -> None:
        """Record the only unit on the node root, which writes all results of its node."""
        t, nbytes = self.t, self.r.nbytes
        t.need(*self._post(0))
        t.need(*self._finish(0))
        at = self._sums(0, t.my_node)
        for run in t.node_ranks():
            t.copy(DST.across(run), at._replace(offset_step=nbytes), nbytes, run.count)
            at += run.count * nbytes

    def _stage(self, u: int) -> None:
        pass

    def _reduce(self, u: int, mates: list[int]) -> None:
        t, r = self.t, self.r
        offset, size = self.units[u]
        at = self._sums(u, 0)
        for node in range(t.tree.node_count):
            for run in t.node_ranks(node):
                step = run.step * r.nbytes
                rows = [SRC.on(i, run.first * r.nbytes + offset) for i in mates]
                leaves = [leaf._replace(step=step) for leaf in tree_of(rows)]
                t.fold(at, leaves, size // r.itemsize, rows=run.count, dst_step=size)
                at += run.count * size
