"""Which blocks of a call's transfers cross between nodes, and in which messages and order.

It is a plan of messages only: `block_transfers` records it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plan.patterns import Shape, chain, rotate, tree_for
from ..plan.placement import MOST_BYTES, Facts, Placement
from ..records import record
from .transfer_lists import Ints, Transfers

__all__ = ["Crossing", "Event", "Piece", "Totals", "crossing_of", "schedule", "totals_of"]


class Piece(NamedTuple):
    """Name the bytes ``offset .. offset + nbytes`` of a crossing block."""

    block: int
    offset: int
    nbytes: int


@record
class Crossing:
    """Hold the blocks that my node sends to other nodes or receives from them.

    Block b is ``nbytes[b]`` bytes at ``src_at[b]`` of rank ``src[b]``. It goes from node
    ``home[b]`` to ``nodes[b]``. ``landing[b]`` is its first place on my node (rank, offset), and
    ``follows[b]`` are the places to which it is copied from there. They are None and empty if it
    does not come to my node.
    """

    src: list[int]
    src_at: list[int]
    nbytes: list[int]
    home: list[int]
    nodes: list[tuple[int, ...]]
    landing: list[tuple[int, int] | None]
    follows: list[list[tuple[int, int]]]
    fanned: int = 0
    """As in `Totals`."""

    @classmethod
    def none(cls) -> Crossing:
        return cls([], [], [], [], [], [], [])


class Totals(NamedTuple):
    """The bytes of a call that cross between nodes, the same on all threads.

    Attributes
    ----------
    busiest
        The most bytes that leave a node, or that go to places on it.
    fanned
        The bytes of all blocks that go to several nodes, if one node has these; else 0.
    """

    busiest: int
    fanned: int


class _Far(NamedTuple):
    """The transfers that cross, and their distinct source blocks.

    Attributes
    ----------
    moves, to
        The transfers, and the node of each target.
    blocks, number
        One transfer of each distinct block, and the block's number for each transfer.
    pairs
        (block, node) of each block and each node that it goes to.
    """

    moves: Transfers
    to: NDArray[Any]
    blocks: Transfers
    number: Ints
    pairs: Ints


def _far(t: Facts, moves: Transfers) -> _Far:
    node_of = t.tree.node_index
    to, of = node_of[moves.dst], node_of[moves.src]
    away = np.flatnonzero(to != of)
    far, to = moves.take(away), to[away]
    blocks, number = _blocks(far)
    pairs = np.unique(np.stack([number, to]), axis=1)  # a block crosses to a node once
    return _Far(far, to, blocks, number, pairs)


def totals_of(t: Facts, moves: Transfers) -> Totals:
    """Return the bytes that cross between nodes."""
    far, node_of = _far(t, moves), t.tree.node_index
    home, block = node_of[far.blocks.src], far.pairs[0]
    leaves = np.bincount(home[block], weights=far.blocks.nbytes[block], minlength=1)
    lands = np.bincount(node_of[moves.dst], weights=moves.nbytes, minlength=1)
    return Totals(int(max(leaves.max(), lands.max())), _fanned(far, home))


def _fanned(far: _Far, home: NDArray[Any]) -> int:
    several = np.bincount(far.pairs[0], minlength=home.size) > 1
    one = np.unique(home[several]).size == 1
    return int(far.blocks.nbytes[several].sum()) if one else 0


def crossing_of(t: Placement, moves: Transfers) -> tuple[Crossing, Transfers]:
    """Return the blocks that cross to or from my node, and the transfers that stay on it."""
    node_of = t.tree.node_index
    to, of = node_of[moves.dst], node_of[moves.src]
    near = moves.take((to == t.my_node) & (of == t.my_node))
    every = _far(t, moves)
    far, goes, blocks, number, pairs = every
    wanted: list[list[int]] = [[] for _ in range(len(blocks.src))]
    for block, node in pairs.T.tolist():
        wanted[block].append(node)
    home = node_of[blocks.src]
    comes = np.array([t.my_node in nodes for nodes in wanted], bool)
    mine = np.flatnonzero((home == t.my_node) | comes)
    place = {block: i for i, block in enumerate(mine.tolist())}
    landing: list[tuple[int, int] | None] = [None] * len(place)
    follows: list[list[tuple[int, int]]] = [[] for _ in place]
    here = goes == t.my_node
    for block, rank, at in zip(
        number[here].tolist(), far.dst[here].tolist(), far.dst_at[here].tolist(), strict=True
    ):
        i = place[block]
        if landing[i] is None:
            landing[i] = rank, at
        else:
            follows[i].append((rank, at))
    chosen = blocks.take(mine)
    crossing = Crossing(
        chosen.src.tolist(), chosen.src_at.tolist(), chosen.nbytes.tolist(), home[mine].tolist(),
        [tuple(wanted[block]) for block in place], landing, follows, _fanned(every, home),
    )  # fmt: skip
    return crossing, near


def _blocks(moves: Transfers) -> tuple[Transfers, Ints]:
    """Return one transfer of each distinct source block, and that block's number for each."""
    if not moves.src.size:
        return moves, np.empty(0, np.int64)
    order = np.lexsort((moves.nbytes, moves.src_at, moves.src))
    keys = np.stack([moves.src, moves.src_at, moves.nbytes])[:, order]
    first = np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    number = np.empty(order.size, np.int64)
    number[order] = np.cumsum(first) - 1
    return moves.take(order[first]), number


@record
class Event:
    """Describe a message of my node, to or from `peer`; `at` is its place in all nodes' order."""

    at: tuple[Any, ...]
    takes: bool
    peer: int
    pieces: tuple[Piece, ...]
    awaited: tuple[Any, ...] | None
    """The place of the message whose blocks it passes on; None if they are my node's own."""


def schedule(t: Placement, crossing: Crossing) -> list[Event]:
    """Return all messages of my node, in order.

    Message c of a route passes a tree's edge of depth d in round c + d. In each round a node sends
    to the next node first, then to the one after that. The blocks that a message passes on arrived
    in an earlier round, so a message depends on earlier ones only.
    """
    routes: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for block, route in enumerate(zip(crossing.home, crossing.nodes, strict=True)):
        routes.setdefault(route, []).append(block)
    events: list[Event] = []
    for (home, nodes), blocks in routes.items():
        events += _along(t, crossing, home, nodes, blocks)
    return sorted(events, key=lambda event: event.at)


def _along(
    t: Placement, crossing: Crossing, home: int, nodes: tuple[int, ...], blocks: list[int]
) -> Iterator[Event]:
    """Yield my node's messages of one route: of the blocks that go from `home` to `nodes`."""
    count = t.tree.node_count
    total = sum(crossing.nbytes[block] for block in blocks)
    shape, most = _shape(t, len(nodes), total, bool(crossing.fanned))
    stops = [home, *sorted(nodes, key=lambda node: rotate(node, home, count))]
    here = stops.index(t.my_node)
    parent, children = shape(here, len(stops))
    depth = _depth(shape, here, len(stops))

    def place(step: int, a: int, b: int, c: int) -> tuple[Any, ...]:
        return step, rotate(stops[b], stops[a], count), home, nodes, c

    for c, pieces in enumerate(_packed([(b, crossing.nbytes[b]) for b in blocks], most)):
        came = None
        if parent is not None:
            came = place(c + depth - 1, parent, here, c)
            yield Event(came, True, stops[parent], pieces, None)
        for child in children:
            yield Event(place(c + depth, here, child, c), False, stops[child], pieces, came)


def _shape(t: Placement, stops: int, total: int, one_to_many: bool) -> tuple[Shape, int]:
    """Return the tree of a route's messages, and their largest size."""
    tuning = t.tuning
    short = stops == 1 or total < tuning["pipeline_min"]
    most = tuning["max_message" if short else "chunk"]
    if short or one_to_many:
        shape = tree_for(stops + 1, total, most, tuning)
    else:  # at least two messages in a round, so that every link is busy all the time
        shape = chain
        most = min(tuning["alltoall_chunk"], max(most, total // 2))
    needed = -(-total * stops // tuning["max_messages"])
    return shape, min(max(most, needed), MOST_BYTES)


def _depth(shape: Shape, v: int, n: int) -> int:
    if shape is chain:
        return v
    depth = 0
    while (parent := shape(v, n)[0]) is not None:
        v, depth = parent, depth + 1
    return depth


def _packed(blocks: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[Piece, ...]]:
    """Cut a row of (block, bytes) into messages of `most` bytes, the last one shorter."""
    message: list[Piece] = []
    room = most
    for block, nbytes in blocks:
        offset = 0
        while offset < nbytes:
            n = min(room, nbytes - offset)
            message.append(Piece(block, offset, n))
            offset += n
            room -= n
            if not room:
                yield tuple(message)
                message, room = [], most
    if message:
        yield tuple(message)
