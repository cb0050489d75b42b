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
from .private_staging import LINE, cut
from .reduce_spec import tree_of
from .registry import algorithm
from .values_reduce_scatter import ByNodes, ReduceScatter, read_group
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


@algorithm("reduce_scatter", MULTICORE)
def multicore(t: Recorder, r: ReduceScatter) -> None:
    """Reduce the blocks of each node on its node root; node roots exchange the partial results.

    If the order of operands must stay and differs from the order of the nodes, the work goes as in
    PUSH. In a job of one node it goes as in PULL, or the last thread to arrive does all of a small
    reduction.
    """
    if not t.one_node:
        if ByNodes.applies(t, r):
            _SharedByNodes(t, r).record_all()
        else:
            push_blocks(t, r)
    elif r.nbytes * t.size * t.size <= t.tuning["fused_max"]:
        with t.single_mover(0, anyone=True):
            for i in range(t.size):
                for group in r.groups(t):
                    parts = [SRC.on(k, i * r.nbytes) for k in group]
                    r.join(t, DST.on(i), group, parts, r.nbytes)
    else:
        pull(t, r)


class _SharedByNodes(ByNodes):
    """Nothing is staged: the node root reads its threads' src.

    A short call is led: the node root does all of it between the call's own barriers.
    """

    leads = False

    def record_all(self) -> None:
        """Record all units, led or not."""
        t, nbytes = self.t, self.r.nbytes
        single = len(self.units) == 1
        if not (single and t.root_exchange(self._landing_blocks(t) * nbytes)):
            self.record()
        elif t.me == t.node_root:
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
