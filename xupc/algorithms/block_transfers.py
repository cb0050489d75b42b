"""The `_v` and `_x` forms: any blocks from any threads to any threads.

All of them take a call's `Transfers`, so that one way of moving serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, grouped
from ..plan.placement import MOST_BYTES
from ..plan.recorder import Operand, Recorder
from ..plan.steps import Blocks, Ranks
from ..records import record
from .block_crossing import (
    Crossing,
    Event,
    Piece,
    Schedule,
    crossing_of,
    rounds,
    schedule,
    totals_of,
)
from .conditions import CallFacts, by_name, fused, on_one_node, on_several_nodes
from .registry import algorithm
from .transfer_lists import COLLECTIVES, Ints, Transfers

__all__ = ["Work", "distinct", "exchange_blocks", "pull", "push", "send_and_receive"]


def pull(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Let each thread copy its own blocks, by load and store or by one-sided reads.

    Each receiver of a block reads it.
    """
    if _done_by_one(t, dst, src, moves, moves.dst):
        return
    mine = moves.take(moves.dst == t.me)
    owners, users = distinct(mine.src), distinct(moves.dst[moves.src == t.me])
    t.ready_each(owners, users)
    near = _near(t, mine.src)
    if not near.all():
        with t.net():
            for _, to, of, at, n in mine.take(~near).each():
                t.get(dst.on(t.me, to), src.on(of, at), n)
    _copy(t, dst, src, mine.take(near))
    t.done_each(owners, users)


def push(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Let each thread copy its blocks to its node's threads and send the rest.

    All threads send in one order, nearest ranks first, so that bounded windows cannot deadlock.
    """
    if _done_by_one(t, dst, src, moves, moves.src):
        return
    near = _near(t, moves.src) & _near(t, moves.dst)
    mine = moves.take(near & (moves.src == t.me))
    owners, users = distinct(mine.dst), distinct(moves.src[near & (moves.dst == t.me)])
    t.ready_each(owners, users, node_only=True)
    node_of = t.tree.node_index
    involved = (moves.src == t.me) | (moves.dst == t.me)
    far = moves.take(involved & (node_of[moves.src] != node_of[moves.dst]))
    if far.total:
        with t.net():
            send_and_receive(t, dst, src, far)
    _copy(t, dst, src, mine)
    t.done_each(owners, users)


# --- MULTICORE ----------------------------------------------------------------------------


def fused_copy(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Let one thread copy all blocks."""
    with t.single_mover(0, anyone=True):
        _copy(t, dst, src, moves)


def shared(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Let each thread copy the blocks that it receives, or those that it has.

    If one thread would have much more than its part, each copies an even share of all bytes.
    """
    _share(t, dst, src, Work.of(t, moves, Crossing.none()))


def led_messages(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Let each node root do everything for its node."""
    t.lead(totals_of(t, moves).busiest)
    if t.me == t.node_root:
        _lead(t, dst, src, *crossing_of(t, moves))


def routes(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Send a block once to each node with a receiver, straight from heap to heap.

    The blocks that one node has for the same other nodes go together, in chunks: to one node in
    large messages; to several through a chain of them that starts behind their own, with a chunk
    on every link at the same time. Small ones go straight to a few nodes, and through a binomial
    tree to many::

        blocks for all  node 0  A -> B -> C       gather_all: every link carries N - 1 of N
                        node 1  B -> C -> A       blocks, as in a ring

    A block arrives at the first receiver of a node; the node's other receivers copy it from there
    piece by piece. Meanwhile each thread moves a part of the blocks that stay on the node.
    """
    crossing, near = crossing_of(t, moves)
    _share(t, dst, src, Work.of(t, near, crossing))


def circulant(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Let all nodes broadcast their blocks at once, in chunks on a circulant graph.

    Where one node has much more than the others, no link carries it more than once, and n chunks
    take n - 1 + log2 N rounds.
    """
    crossing, near = crossing_of(t, moves)
    _share(t, dst, src, Work.of(t, near, crossing, rounds))


def _total(call: CallFacts) -> int:
    return int(call.arguments[-1].total)


def _can_be_led(call: CallFacts) -> bool:
    """Few nodes, ALLSYNC both ways, at most so many bytes per node as a barrier can carry."""
    if not (call.synchronised and call.roots_can_move(0)):
        return False
    return call.roots_can_move(totals_of(call, call.arguments[-1]).busiest)


def _is_led(call: CallFacts) -> bool:
    """At most `root_exchange_max` bytes per node, `pipeline_min` of them to several nodes."""
    busiest, fanned = totals_of(call, call.arguments[-1])
    return fanned <= call.tuning["pipeline_min"] and call.roots_should_move(busiest)


def _register(name: str) -> None:
    """Register all variants for a collective."""
    algorithm(name, PULL)(pull)
    algorithm(name, PUSH)(push)
    add = partial(algorithm, name, MULTICORE)
    add("fused", "The last thread to arrive copies all blocks.", **fused(_total))(fused_copy)
    add(
        "shared", "Threads copy what they receive, what they have, or an even share of all bytes.",
        applies=on_one_node,
    )(shared)  # fmt: skip
    add(
        "led", "Node roots copy and exchange all blocks, and the data travels with the barrier.",
        applies=_can_be_led, preferred=_is_led,
    )(led_messages)  # fmt: skip
    add(
        "routes",
        "Blocks for the same nodes go along a tree of these nodes together, once to each.",
        applies=on_several_nodes,
    )(routes)  # fmt: skip
    if name.startswith(("broadcast", "gather_all")):
        add(
            "circulant",
            "Each node broadcasts its blocks in n chunks, all in the same n - 1 + log2 N rounds.",
            applies=on_several_nodes, preferred=by_name,
        )(circulant)  # fmt: skip


for _name in COLLECTIVES:
    for _letter in "vx":
        _register(f"{_name}_{_letter}")
_register("neighbour_exchange")


# --- for all three ------------------------------------------------------------------------


def distinct(ranks: Ints) -> list[int]:
    """Return the ranks in order, each once."""
    return sorted(set(ranks.tolist()))


def _near(t: Recorder, ranks: Ints) -> NDArray[np.bool_]:
    """Return a mask of the ranks that are on my node."""
    near: NDArray[np.bool_] = t.tree.node_index[ranks] == t.my_node
    return near


def _copy(
    t: Recorder, dst: Operand, src: Operand, moves: Transfers, most: int = MOST_BYTES
) -> None:
    """Copy by load and store, at most so many bytes at a time."""
    for rank, to, of, at, nbytes in moves.each():
        for offset, n in chunks(nbytes, most):
            t.copy(dst.on(rank, to + offset), src.on(of, at + offset), n)


def _done_by_one(t: Recorder, dst: Operand, src: Operand, moves: Transfers, movers: Ints) -> bool:
    """Fuse the call with its barrier if one thread moves everything; return whether so.

    Only inside one node, under ALLSYNC.
    """
    if not (t.one_node and t.sync == ("all", "all") and movers.size):
        return False
    by = int(movers[0])
    if (movers != by).any():
        return False
    with t.single_mover(by):
        _copy(t, dst, src, moves)
    return True


def send_and_receive(t: Recorder, dst: Operand, src: Operand, far: Transfers) -> None:
    """Record my messages to and from threads of other nodes."""
    order = np.lexsort((far.dst_at, far.src, (far.dst - far.src) % t.size))
    for rank, to, of, at, nbytes in far.take(order).each():
        for offset, n in chunks(nbytes, t.tuning["max_message"]):
            if of == t.me:
                t.send(rank, src.on(of, at + offset), n)
            else:
                t.recv(of, dst.on(rank, to + offset), n)


# --- between nodes, by node roots alone ------------------------------------------------------


def _lead(t: Recorder, dst: Operand, src: Operand, crossing: Crossing, near: Transfers) -> None:
    """Record a node root that does everything for its node: one message to each node."""
    count = t.tree.node_count
    tickets = []
    for k in range(1, count):
        to, of = (t.my_node + k) % count, (t.my_node - k) % count
        taken = [b for b, home in enumerate(crossing.home) if home == of]
        given = [
            b for b, nodes in enumerate(crossing.nodes)
            if crossing.home[b] == t.my_node and to in nodes
        ]  # fmt: skip
        if taken:
            whole = [Piece(b, 0, crossing.nbytes[b]) for b in taken]
            tickets.append(t.recv_blocks(t.tree.node_root(of), _landings(dst, crossing, whole)))
        if given:
            whole = [Piece(b, 0, crossing.nbytes[b]) for b in given]
            t.send_blocks(t.tree.node_root(to), _sources(src, crossing, whole))
    _copy(t, dst, src, near)
    for ticket in tickets:
        t.need(ticket)
    for block, followers in enumerate(crossing.follows):
        for rank, _ in followers:
            _follow(t, dst, crossing, (Piece(block, 0, crossing.nbytes[block]),), rank)


def _sources(src: Operand, crossing: Crossing, pieces: Sequence[Piece]) -> list[Blocks]:
    """Return the places of pieces of my node's blocks."""
    return [
        Blocks(src.on(crossing.src[p.block], crossing.src_at[p.block] + p.offset), p.nbytes)
        for p in pieces
    ]


def _landings(dst: Operand, crossing: Crossing, pieces: Sequence[Piece]) -> list[Blocks]:
    """Return the places on my node at which pieces of other nodes' blocks arrive."""
    out = []
    for piece in pieces:
        place = crossing.landing[piece.block]
        assert place is not None
        out.append(Blocks(dst.on(place[0], place[1] + piece.offset), piece.nbytes))
    return out


def _held(dst: Operand, src: Operand, crossing: Crossing, pieces: Sequence[Piece]) -> list[Blocks]:
    """Return where my node has pieces: its own in src, those of others where they arrived."""
    rows = []
    for piece in pieces:
        ours = crossing.landing[piece.block] is None
        rows += _sources(src, crossing, [piece]) if ours else _landings(dst, crossing, [piece])
    return rows


def _follow(
    t: Recorder, dst: Operand, crossing: Crossing, pieces: Sequence[Piece], rank: int
) -> None:
    """Copy pieces that have arrived on my node to another receiver there."""
    for piece in pieces:
        place = crossing.landing[piece.block]
        for who, at in crossing.follows[piece.block]:
            if who == rank and place is not None:
                landed = dst.on(place[0], place[1] + piece.offset)
                t.copy(dst.on(rank, at + piece.offset), landed, piece.nbytes)


# --- inside a node ------------------------------------------------------------------------


@record
class Work:
    """Describe the work of my node's threads, in a call in which all of them take part.

    Attributes
    ----------
    local, movers
        The transfers that stay on the node, and the thread that copies each.
    crossing, events
        The blocks that cross, and their messages in order.
    notices
        The events that bring blocks for several threads, in the groups after each of which the
        node root notifies the followers.
    followers
        The threads that copy blocks which have arrived at another thread.
    touches
        (thread, owner): the owners whose data each thread reads or writes.
    """

    local: Transfers
    movers: Ints
    crossing: Crossing
    events: list[Event]
    notices: list[list[Event]]
    followers: list[int]
    touches: set[tuple[int, int]]

    @classmethod
    def of(
        cls, t: Recorder, local: Transfers, crossing: Crossing, way: Schedule = schedule
    ) -> Work:
        """Divide the work of my node's threads; `way` returns the messages of a node root."""
        local, movers = _divided(t, local)
        events = way(t, crossing)
        followers = sorted({rank for some in crossing.follows for rank, _ in some})
        touches = {*zip(movers.tolist(), local.src.tolist(), strict=True)}
        touches |= {*zip(movers.tolist(), local.dst.tolist(), strict=True)}
        for home, rank, place, follows in zip(
            crossing.home, crossing.src, crossing.landing, crossing.follows, strict=True
        ):
            if home == t.my_node:
                touches.add((t.node_root, rank))
            if place is not None:
                touches.add((t.node_root, place[0]))
                touches |= {(who, place[0]) for who, _ in follows}
        notices = _notices(t, crossing, events)
        return cls(local, movers, crossing, events, notices, followers, touches)


def _notices(t: Recorder, crossing: Crossing, events: list[Event]) -> list[list[Event]]:
    """Return the events that bring blocks for several threads, in groups of `notify_bytes`."""
    shared = [
        event for event in events
        if event.takes and any(crossing.follows[p.block] for p in event.pieces)
    ]  # fmt: skip
    return grouped(
        shared, lambda event: sum(p.nbytes for p in event.pieces), t.tuning["notify_bytes"]
    )


def _divided(t: Recorder, local: Transfers) -> tuple[Transfers, Ints]:
    """Return my node's transfers and the thread that copies each, with much the same load for all.

    Each thread copies the blocks that it receives, or each those that it has. If one thread then
    has ``rebalance_min`` bytes more than its part, the bytes of all blocks in a row are cut evenly.
    """
    members = t.tree.members(t.my_node).astype(np.int64)
    fair = local.total / members.size
    heaviest = [
        np.bincount(who, weights=local.nbytes, minlength=1).max(initial=0)
        for who in (local.dst, local.src)
    ]
    if min(heaviest) - fair <= t.tuning["rebalance_min"]:
        return local, local.dst if heaviest[0] <= heaviest[1] else local.src
    return _cut_evenly(local, members)


def _cut_evenly(local: Transfers, members: Ints) -> tuple[Transfers, Ints]:
    """Return equal shares of all blocks in a row, cut at multiples of a cache line."""
    ends = np.cumsum(local.nbytes)
    cuts = local.total * np.arange(1, members.size) // members.size // 64 * 64
    edges = np.unique(np.concatenate([ends - local.nbytes, ends, cuts]))
    starts, sizes = edges[:-1], np.diff(edges)
    number = np.searchsorted(ends, starts, side="right")
    within = starts - (ends - local.nbytes)[number]
    cut = Transfers(
        local.dst[number],
        local.dst_at[number] + within,
        local.src[number],
        local.src_at[number] + within,
        sizes,
    )
    return cut, members[np.searchsorted(cuts, starts, side="right")]


def _share(t: Recorder, dst: Operand, src: Operand, work: Work) -> None:
    """Record my part: my copies, a node root's messages, then blocks that arrived elsewhere."""
    owners = [owner for who, owner in work.touches if who == t.me]
    users = [who for who, owner in work.touches if owner == t.me]
    arrived = t.channel() if not t.one_node else -1
    t.ready_each(owners, users, node_only=True)
    speaks = t.me == t.node_root and bool(work.events)
    if speaks:
        with t.net():
            listeners = [Ranks(rank) for rank in work.followers if rank != t.me]
            exchange_blocks(t, dst, src, work, arrived, listeners)
    # in pieces, so that a node root can make progress with its messages in between
    most = t.tuning["max_message"] if speaks else MOST_BYTES
    _copy(t, dst, src, work.local.take(work.movers == t.me), most)
    if t.me != t.node_root and t.me in work.followers:
        for number, notice in enumerate(work.notices, 1):
            t.wait(arrived, t.node_root, number)
            for event in notice:
                _follow(t, dst, work.crossing, event.pieces, t.me)
    t.done_each(owners, users)


def exchange_blocks(
    t: Recorder, dst: Operand, src: Operand, work: Work, arrived: int, listeners: Sequence[Ranks]
) -> None:
    """Record the messages of a node root, and its notices to `listeners` of what has arrived.

    Receives are posted ahead of their places. A receive that is waited for is at an earlier place
    than all messages that are still to be sent, so this cannot deadlock.
    """
    crossing, window = work.crossing, t.tuning["window"]
    coming = [event for event in work.events if event.takes]
    to_notify = {notice[-1].at: number for number, notice in enumerate(work.notices, 1)}
    tickets: dict[tuple[Any, ...], int] = {}
    have: set[tuple[Any, ...]] = set()

    def need(at: tuple[Any, ...]) -> None:
        if at not in have:
            have.add(at)
            t.need(tickets[at])

    def post(upto: int) -> None:
        for i in range(len(tickets), min(upto, len(coming))):
            if i >= window:
                need(coming[i - window].at)
            event = coming[i]
            of, into = t.tree.node_root(event.peer), _landings(dst, crossing, event.pieces)
            tickets[event.at] = t.recv_blocks(of, into, bounded=False)

    followed = {event.at for notice in work.notices for event in notice}
    taken = 0
    for event in work.events:
        post(taken + window)
        if not event.takes:
            for at in event.awaited:
                need(at)
            t.send_blocks(t.tree.node_root(event.peer), _held(dst, src, crossing, event.pieces))
            continue
        taken += 1
        if event.at in followed:
            need(event.at)
            if t.me in work.followers:
                _follow(t, dst, crossing, event.pieces, t.me)
        if event.at in to_notify:
            t.signal(arrived, listeners, to_notify[event.at])
