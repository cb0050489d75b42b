"""MULTICORE reductions to one node through a tree of nodes, mostly a chain, piece by piece."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..plan.patterns import Shape, chain, tree_for
from ..plan.placement import Facts
from ..plan.recorder import DST, NODE, Operand, Recorder
from ..plan.steps import STAGING, BlockRef
from ..plan.trees import bine
from .reduce_pipeline import ReducePipeline
from .reduce_spec import Reduction, tree_of

__all__ = ["PipelinedReduce", "pipeline_shape"]


DEPTH = 2
"""Pieces that may be in transit on a link."""


def _unit(t: Facts, r: Reduction, children: int) -> int:
    """Return the size of pieces if a node source has so many children."""
    # at least two pieces: a single one would use one link after the other
    half = max(r.nbytes // 2, t.tuning["pipeline_min"])
    return t.unit(r.nbytes, min(half, t.tuning["staging_bytes"] // (DEPTH * (2 + children))))


def pipeline_shape(t: Facts, r: Reduction) -> Shape:
    """Return the tree of nodes in which a result is complete first."""
    return tree_for(t.tree.node_count, r.nbytes, _unit(t, r, 1), t.tuning)


class PipelinedReduce:
    """Record a reduction to one node through a tree of nodes, with the target's node at its top.

    It is a chain where the nodes are few for the number of pieces, and a star where the result is
    short. A node's threads fold its pieces into their staging buffers, two of them ahead.
    """

    def __init__(self, t: Recorder, r: Reduction, shape: Shape) -> None:
        assert r.to is not None
        self.t, self.r, self.to = t, r, r.to
        n = self.n = t.tree.node_count
        self.home = t.tree.node_of(r.to)
        self.shape = shape
        self.parent, self.children = self.shape((t.my_node - self.home) % n, n)
        children = len(shape(0, n)[1]) + (shape is bine)  # 0 has the most; in Bine order one less
        width = self.width = _unit(t, r, children)
        self.pieces = r.pieces(0, r.each, width)
        self.node_source = t.acting_root(t.my_node, r.to)
        self.making = ReducePipeline(t, r, self.pieces, self.node_source)
        self.used = t.channel()
        # A notice wakes my node's makers. They get one after each turn whose places are used again,
        # and one at the end.
        turns = self.making.turn(self.making.there - 1) + 1
        self.notices = max(0, turns - DEPTH) + 1

    @cached_property
    def _brings(self) -> dict[int, np.ndarray]:
        """Return, for each number of blocks, which places in the tree send anything."""
        out = {}
        for blocks in {blocks for _, _, blocks in self.pieces}:
            threads = self.r.layout.first + np.arange(self.r.positions(blocks))
            nodes = self.t.tree.node_index[threads % self.t.size]
            have = np.zeros(self.n, bool)
            have[(nodes - self.home) % self.n] = True
            if self.shape is chain:
                have = np.logical_or.accumulate(have[::-1])[::-1]
            elif not have.all():
                for v in self._leaves_first():
                    have[self.shape(v, self.n)[0]] |= have[v]
            out[blocks] = have
        return out

    def _leaves_first(self) -> list[int]:
        """Return all places in the tree but its top, each before its parent."""
        places = [0]
        for v in places:  # it grows
            places += self.shape(v, self.n)[1]
        return places[:0:-1]

    def record(self) -> None:
        """Record the steps of every thread."""
        t, making = self.t, self.making
        t.ready(NODE, NODE, node_only=True)
        if t.me == self.node_source:
            with t.net():
                self._link()
        mine = list(making.mine())
        for i, piece in mine:
            if (before := making.turn(i) - DEPTH) >= 0:  # its place must be free
                t.wait(self.used, self.node_source, before + 1)
            making.make(i, piece, self._made(i))
        if mine:  # until no thread reads my staging buffer and all notices have arrived
            t.wait(self.used, self.node_source, self.notices)
        t.done(NODE, NODE, node_only=True)

    def _tell(self, i: int) -> None:
        """Notify my node's threads that the i-th piece of the node's own has been used."""
        making, turn = self.making, self.making.turn(i)
        if i + 1 == making.there:
            self.t.signal(self.used, making.makers, self.notices)
        elif making.turn(i + 1) > turn and turn + 1 < self.notices:
            self.t.signal(self.used, making.makers, turn + 1)

    def _made(self, i: int) -> BlockRef:
        """Return the place of the i-th piece of my node's own."""
        at = self.making.turn(i) % DEPTH * self.width
        return Operand(STAGING).on(self.making.maker(i), at)

    def _slot(self, k: int, q: int) -> BlockRef:
        """Return a place of the k-th pair of my staging buffer, behind that of my own pieces."""
        return Operand(STAGING).on(self.t.me, (DEPTH * (1 + k) + q % DEPTH) * self.width)

    def _root(self, v: int) -> int:
        """Return the thread that sends and receives for the node at a place in the tree."""
        return self.t.acting_root((self.home + v) % self.n, self.to)

    def _link(self) -> None:
        """Record a node source's messages and folds."""
        t, size = self.t, self.r.itemsize
        coming: dict[tuple[int, int], int] = {}
        sends: list[int] = []

        def post(q: int) -> None:
            begin, end, blocks = self.pieces[q]
            for k, child in enumerate(self.children):
                if self._brings[blocks][child]:
                    landing, nbytes = self._slot(1 + k, q), (end - begin) * size
                    coming[k, q] = t.recv(self._root(child), landing, nbytes, bounded=False)

        post(0)
        for q, (begin, end, _) in enumerate(self.pieces):
            if q + 1 < len(self.pieces):
                post(q + 1)
            parts = []
            i = self.making.number[q]
            if i is not None:
                self.making.wait(i)
                parts.append(self._made(i))
            for k in range(len(self.children)):
                if (k, q) in coming:
                    t.need(coming[k, q])
                    parts.append(self._slot(1 + k, q))
            if parts and self.parent is None:
                t.fold(DST.on(t.me, begin * size), tree_of(parts), end - begin)
            elif parts:
                if len(sends) >= DEPTH:
                    t.need(sends[-DEPTH])
                out = self._slot(0, len(sends))
                t.fold(out, tree_of(parts), end - begin)
                assert self.parent is not None
                sends.append(t.send(self._root(self.parent), out, (end - begin) * size))
            if i is not None:
                self._tell(i)
