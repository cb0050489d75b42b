"""The `_v` and `_x` forms: any blocks from any threads to any threads.

A call's lists become `Transfers`: so many bytes from a place of one thread to a place of
another. Whether they broadcast or exchange no longer matters; one way of moving serves all::

    exchange_v   0 -> 0: 8 B   0 -> 1: 0 B   1 -> 0: 24 B   1 -> 1: 5 B
    broadcast_x  2 -> 0: 64 B  2 -> 1: 64 B  2 -> 2: 64 B         the same source block

The offsets are those of the shared heap, so blocks may lie in any allocations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import Shape, chain, chunks, grouped, rotate, tree_for
from ..plan.placement import MOST_BYTES
from ..plan.recorder import Operand, Recorder
from ..plan.steps import Blocks, Ranks
from .registry import algorithm

__all__ = ["COLLECTIVES", "Entries", "Transfers", "entries"]

Ints = NDArray[np.int64]


class Entries(NamedTuple):
    """Which entries of a call's lists belong together: one element for each possible transfer.

    `dst`, `src` and `nbytes` are indices into the lists of that name; `to` and `of` the ranks on
    which the two entries have to be, None: all on one thread, which is the root.
    """

    dst: Ints
    src: Ints
    nbytes: Ints
    to: Ints | None
    of: Ints | None


def entries(collective: str, threads: int, perm: Ints | None = None) -> Entries:
    """The entries of a call of so many threads; permute goes by `perm`."""
    each, none = np.arange(threads), np.zeros(threads, np.int64)
    to, of = np.repeat(each, threads), np.tile(each, threads)
    match collective:
        case "broadcast":
            return Entries(each, none, none, each, None)
        case "scatter":
            return Entries(each, each, each, each, None)
        case "gather":
            return Entries(each, each, each, None, each)
        case "gather_all":
            return Entries(to * threads + of, of, of, to, of)
        case "exchange":
            return Entries(to * threads + of, of * threads + to, of * threads + to, to, of)
        case "permute":
            assert perm is not None
            return Entries(perm, each, each, perm, each)
    raise KeyError(collective)


COLLECTIVES = ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
"""Those that have the two forms."""


class Transfers(NamedTuple):
    """Block k: ``nbytes[k]`` bytes, at ``src_at[k]`` of rank ``src[k]``, to ``dst``, ``dst_at``.

    None is empty, and no two of them overlap where they go. They ascend by dst, then src.
    """

    dst: Ints
    dst_at: Ints
    src: Ints
    src_at: Ints
    nbytes: Ints

    @classmethod
    def of(cls, dst: Ints, dst_at: Ints, src: Ints, src_at: Ints, nbytes: Ints) -> Transfers:
        """Those that are not empty, in order."""
        every = cls(dst, dst_at, src, src_at, nbytes)
        order = np.lexsort((dst_at, src_at, src, dst))
        return every.take(order[nbytes[order] > 0])

    def take(self, which: NDArray[Any]) -> Transfers:
        """Some of them: by a mask or by numbers."""
        return Transfers(*(column[which] for column in self))

    def each(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(dst, dst_at, src, src_at, nbytes) of each."""
        return zip(*(column.tolist() for column in self), strict=True)

    @property
    def total(self) -> int:
        """Bytes of all."""
        return int(self.nbytes.sum())


def pull(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Each thread copies what comes to it, by load/store or by one-sided reads.

    A block that several threads want is read by each of them.
    """
    if _done_by_one(t, dst, src, moves, moves.dst):
        return
    mine = moves.take(moves.dst == t.me)
    owners, users = _distinct(mine.src), _distinct(moves.dst[moves.src == t.me])
    t.ready_each(owners, users)
    near = _near(t, mine.src)
    if not near.all():
        with t.net():
            for _, to, of, at, n in mine.take(~near).each():
                t.get(dst.on(t.me, to), src.on(of, at), n)
    _copy(t, dst, src, mine.take(near))
    t.done_each(owners, users)


def push(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """Each thread copies what it has to its node's threads and sends the rest.

    Whatever is sent is sent in one order for all threads, nearest ranks first, so bounded
    windows cannot lock.
    """
    if _done_by_one(t, dst, src, moves, moves.src):
        return
    near = _near(t, moves.src) & _near(t, moves.dst)
    mine = moves.take(near & (moves.src == t.me))
    owners, users = _distinct(mine.dst), _distinct(moves.src[near & (moves.dst == t.me)])
    t.ready_each(owners, users, node_only=True)
    node_of = t.tree.node_index
    involved = (moves.src == t.me) | (moves.dst == t.me)
    far = moves.take(involved & (node_of[moves.src] != node_of[moves.dst]))
    if far.total:
        with t.net():
            _send_and_take(t, dst, src, far)
    _copy(t, dst, src, mine)
    t.done_each(owners, users)


def multicore(t: Recorder, dst: Operand, src: Operand, moves: Transfers) -> None:
    """A block crosses to each node that wants it once, straight from heap to heap.

    All that one node has for the same other nodes goes together, in chunks: to one node in
    large messages; to several down a chain of them, starting behind its own, a chunk on every
    link at the same time; small ones straight to a few nodes, down a binomial tree to many::

        wanted by all   node 0  A -> B -> C       gather_all: every link carries N - 1 of N
                        node 1  B -> C -> A       blocks, as in a ring

    A block lands with the first thread of a node that wants it; the node's others copy it there
    as it arrives. Meanwhile each thread does a part of what stays on the node: what comes to it
    or what it has, or, where one thread has most, an even share of all bytes. Small totals are
    moved by node roots alone, inside one node by whoever arrives last.
    """
    if t.one_node:
        if moves.total <= t.tuning["fused_max"]:
            with t.single_mover(0, anyone=True):
                _copy(t, dst, src, moves)
        else:
            _share(t, dst, src, Work.of(t, moves, _Crossing.none()))
        return
    crossing, near = _cross(t, moves)
    if crossing.fanned <= t.tuning["pipeline_min"] and t.root_exchange(crossing.busiest):
        if t.me == t.node_root:
            _lead(t, dst, src, crossing, near)
        return
    _share(t, dst, src, Work.of(t, near, crossing))


for _name in COLLECTIVES:
    for _letter in "vx":
        for _flag, _function in ((PULL, pull), (PUSH, push), (MULTICORE, multicore)):
            algorithm(f"{_name}_{_letter}", _flag)(_function)


# --- what all have in common --------------------------------------------------------------


def _distinct(ranks: Ints) -> list[int]:
    return sorted(set(ranks.tolist()))


def _near(t: Recorder, ranks: Ints) -> NDArray[np.bool_]:
    """Which of them are on my node."""
    near: NDArray[np.bool_] = t.tree.node_index[ranks] == t.my_node
    return near


def _copy(
    t: Recorder, dst: Operand, src: Operand, moves: Transfers, most: int = MOST_BYTES
) -> None:
    """By load and store, at most so many bytes at a time."""
    for rank, to, of, at, nbytes in moves.each():
        for offset, n in chunks(nbytes, most):
            t.copy(dst.on(rank, to + offset), src.on(of, at + offset), n)


def _done_by_one(
    t: Recorder, dst: Operand, src: Operand, moves: Transfers, movers: Ints
) -> bool:
    """Inside one node, under ALLSYNC: fused, if all is moved by the same thread."""
    if not (t.one_node and t.sync == ("all", "all") and movers.size):
        return False
    by = int(movers[0])
    if (movers != by).any():
        return False
    with t.single_mover(by):
        _copy(t, dst, src, moves)
    return True


def _send_and_take(t: Recorder, dst: Operand, src: Operand, far: Transfers) -> None:
    """My messages to and from threads of other nodes."""
    order = np.lexsort((far.dst_at, far.src, (far.dst - far.src) % t.size))
    for rank, to, of, at, nbytes in far.take(order).each():
        for offset, n in chunks(nbytes, t.tuning["max_message"]):
            if of == t.me:
                t.send(rank, src.on(of, at + offset), n)
            else:
                t.recv(of, dst.on(rank, to + offset), n)


# --- between nodes ------------------------------------------------------------------------


class Piece(NamedTuple):
    """Bytes ``offset .. offset + nbytes`` of a crossing block."""

    block: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Crossing:
    """The blocks that my node has for others or gets from them.

    ``src[b]``, ``src_at[b]``, ``nbytes[b]`` say what block b is, ``nodes[b]`` to which nodes it
    goes, from ``home[b]``. ``landing[b]`` is where it lands on my node (rank, offset), and
    ``follows[b]`` are those who copy it there, None and nothing if it does not come here.
    """

    src: list[int]
    src_at: list[int]
    nbytes: list[int]
    home: list[int]
    nodes: list[tuple[int, ...]]
    landing: list[tuple[int, int] | None]
    follows: list[list[tuple[int, int]]]
    busiest: int = 0
    """The most bytes that leave a node or go to places on it."""
    fanned: int = 0
    """Bytes of the blocks that several other nodes want, if one node has all of these, else 0."""

    @classmethod
    def none(cls) -> _Crossing:
        return cls([], [], [], [], [], [], [])


def _cross(t: Recorder, moves: Transfers) -> tuple[_Crossing, Transfers]:
    """What crosses to or from my node, and what stays on it."""
    node_of = t.tree.node_index
    to, of = node_of[moves.dst], node_of[moves.src]
    near = moves.take((to == t.my_node) & (of == t.my_node))
    away = np.flatnonzero(to != of)
    far, to = moves.take(away), to[away]
    blocks, number = _blocks(far)
    count = len(blocks.src)
    pairs = np.unique(np.stack([number, to]), axis=1)  # a block crosses to a node once
    wanted: list[list[int]] = [[] for _ in range(count)]
    for block, node in pairs.T.tolist():
        wanted[block].append(node)
    home = node_of[blocks.src]
    several = np.bincount(pairs[0], minlength=count) > 1
    fanned = int(blocks.nbytes[several].sum()) if np.unique(home[several]).size == 1 else 0
    leaves = np.bincount(home[pairs[0]], weights=blocks.nbytes[pairs[0]], minlength=1)
    lands = np.bincount(node_of[moves.dst], weights=moves.nbytes, minlength=1)
    comes = np.array([t.my_node in nodes for nodes in wanted], bool)
    mine = np.flatnonzero((home == t.my_node) | comes)
    place = {block: i for i, block in enumerate(mine.tolist())}
    landing: list[tuple[int, int] | None] = [None] * len(place)
    follows: list[list[tuple[int, int]]] = [[] for _ in place]
    here = to == t.my_node
    for block, rank, at in zip(
        number[here].tolist(), far.dst[here].tolist(), far.dst_at[here].tolist(), strict=True
    ):
        i = place[block]
        if landing[i] is None:
            landing[i] = rank, at
        else:
            follows[i].append((rank, at))
    chosen = blocks.take(mine)
    crossing = _Crossing(
        chosen.src.tolist(), chosen.src_at.tolist(), chosen.nbytes.tolist(), home[mine].tolist(),
        [tuple(wanted[block]) for block in place], landing, follows,
        int(max(leaves.max(), lands.max())), fanned,
    )  # fmt: skip
    return crossing, near


def _blocks(moves: Transfers) -> tuple[Transfers, Ints]:
    """The distinct source blocks (one transfer of each), and which of them each transfer moves."""
    if not moves.src.size:
        return moves, np.empty(0, np.int64)
    order = np.lexsort((moves.nbytes, moves.src_at, moves.src))
    keys = np.stack([moves.src, moves.src_at, moves.nbytes])[:, order]
    first = np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    number = np.empty(order.size, np.int64)
    number[order] = np.cumsum(first) - 1
    return moves.take(order[first]), number


@dataclass(frozen=True, slots=True)
class Event:
    """A message of my node, to or from `peer`; `at` is its place in all nodes' order."""

    at: tuple[Any, ...]
    takes: bool
    peer: int
    pieces: tuple[Piece, ...]
    awaited: tuple[Any, ...] | None
    """The place of the message that it passes on."""


def _schedule(t: Recorder, crossing: _Crossing) -> list[Event]:
    """All messages of my node, in order.

    Message c of a route passes a tree's edge of depth d in step c + d; in a step everybody
    sends to the node behind him first, then to the one after that. What a message passes on
    has come in an earlier step, so nobody waits for anything but earlier messages.
    """
    routes: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for block, route in enumerate(zip(crossing.home, crossing.nodes, strict=True)):
        routes.setdefault(route, []).append(block)
    events: list[Event] = []
    for (home, nodes), blocks in routes.items():
        events += _along(t, crossing, home, nodes, blocks)
    return sorted(events, key=lambda event: event.at)


def _along(
    t: Recorder, crossing: _Crossing, home: int, nodes: tuple[int, ...], blocks: list[int]
) -> Iterator[Event]:
    """My node's messages of one route: the blocks of `home` that the same `nodes` want."""
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


def _shape(t: Recorder, stops: int, total: int, one_to_many: bool) -> tuple[Shape, int]:
    """The tree that a route's messages go along, and how large they are at most."""
    tuning = t.tuning
    short = stops == 1 or total < tuning["pipeline_min"]
    most = tuning["max_message" if short else "chunk"]
    if short or one_to_many:
        shape = tree_for(stops + 1, total, most, tuning)
    else:  # every link is busy all the time: two messages in a round at least
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


def _lead(
    t: Recorder, dst: Operand, src: Operand, crossing: _Crossing, near: Transfers
) -> None:
    """A node root's work when it does everything for its node: one message to each node."""
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


def _sources(src: Operand, crossing: _Crossing, pieces: Sequence[Piece]) -> list[Blocks]:
    """Where pieces of my node's blocks are."""
    return [
        Blocks(src.on(crossing.src[p.block], crossing.src_at[p.block] + p.offset), p.nbytes)
        for p in pieces
    ]


def _landings(dst: Operand, crossing: _Crossing, pieces: Sequence[Piece]) -> list[Blocks]:
    """Where pieces of other nodes' blocks land on my node."""
    out = []
    for piece in pieces:
        place = crossing.landing[piece.block]
        assert place is not None
        out.append(Blocks(dst.on(place[0], place[1] + piece.offset), piece.nbytes))
    return out


def _follow(
    t: Recorder, dst: Operand, crossing: _Crossing, pieces: Sequence[Piece], rank: int
) -> None:
    """Copy what has landed on my node to another thread that wants it."""
    for piece in pieces:
        place = crossing.landing[piece.block]
        for who, at in crossing.follows[piece.block]:
            if who == rank and place is not None:
                landed = dst.on(place[0], place[1] + piece.offset)
                t.copy(dst.on(rank, at + piece.offset), landed, piece.nbytes)


# --- inside a node ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What my node's threads have to do, in a call that nobody leads.

    Attributes
    ----------
    local, movers
        What stays on the node, and which thread copies each.
    crossing, events
        What crosses, and its messages in order.
    words
        What arrives for several threads, in the pieces after which these are told: for each
        word the events that it covers.
    followers
        Who copies what has landed elsewhere.
    touches
        (thread, owner): whose data each thread reads or writes.
    """

    local: Transfers
    movers: Ints
    crossing: _Crossing
    events: list[Event]
    words: list[list[Event]]
    followers: list[int]
    touches: set[tuple[int, int]]

    @classmethod
    def of(cls, t: Recorder, local: Transfers, crossing: _Crossing) -> Work:
        local, movers = _divided(t, local)
        events = _schedule(t, crossing)
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
        words = _words(t, crossing, events)
        return cls(local, movers, crossing, events, words, followers, touches)


def _words(t: Recorder, crossing: _Crossing, events: list[Event]) -> list[list[Event]]:
    """What arrives for several threads, in groups of so many bytes."""
    shared = [
        event for event in events
        if event.takes and any(crossing.follows[p.block] for p in event.pieces)
    ]  # fmt: skip
    return grouped(
        shared, lambda event: sum(p.nbytes for p in event.pieces), t.tuning["notify_bytes"]
    )


def _divided(t: Recorder, local: Transfers) -> tuple[Transfers, Ints]:
    """Who of my node's threads copies what, so that nobody has much more than the others.

    Each thread what comes to it, or each what it has; if that leaves one thread with
    ``rebalance_min`` bytes more than its part, the bytes of all blocks in a row are cut evenly.
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
    """Equal shares of the bytes of all blocks in a row, cut at multiples of a cache line."""
    ends = np.cumsum(local.nbytes)
    cuts = local.total * np.arange(1, members.size) // members.size // 64 * 64
    edges = np.unique(np.concatenate([ends - local.nbytes, ends, cuts]))
    starts, sizes = edges[:-1], np.diff(edges)
    number = np.searchsorted(ends, starts, side="right")
    within = starts - (ends - local.nbytes)[number]
    cut = Transfers(
        local.dst[number], local.dst_at[number] + within,
        local.src[number], local.src_at[number] + within, sizes,
    )
    return cut, members[np.searchsorted(cuts, starts, side="right")]


def _share(t: Recorder, dst: Operand, src: Operand, work: Work) -> None:
    """My part: what I copy, as node root the messages, then what has landed elsewhere for me."""
    owners = [owner for who, owner in work.touches if who == t.me]
    users = [who for who, owner in work.touches if owner == t.me]
    arrived = t.channel() if not t.one_node else -1
    t.ready_each(owners, users, node_only=True)
    speaks = t.me == t.node_root and bool(work.events)
    if speaks:
        with t.net():
            _speak(t, dst, src, work, arrived)
    # in pieces, so that a node root looks at the network in between
    most = t.tuning["max_message"] if speaks else MOST_BYTES
    _copy(t, dst, src, work.local.take(work.movers == t.me), most)
    if t.me != t.node_root and t.me in work.followers:
        for number, word in enumerate(work.words, 1):
            t.wait(arrived, t.node_root, number)
            for event in word:
                _follow(t, dst, work.crossing, event.pieces, t.me)
    t.done_each(owners, users)


def _speak(t: Recorder, dst: Operand, src: Operand, work: Work, arrived: int) -> None:
    """A node root's messages, and word to its threads of what they wait for.

    Receives are posted ahead of their places. What is waited for is at an earlier place than
    what is still to be sent, so this cannot lock.
    """
    crossing, window = work.crossing, t.tuning["window"]
    coming = [event for event in work.events if event.takes]
    to_tell = {word[-1].at: number for number, word in enumerate(work.words, 1)}
    listeners = [Ranks(rank) for rank in work.followers if rank != t.me]
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

    followed = {event.at for word in work.words for event in word}
    taken = 0
    for event in work.events:
        post(taken + window)
        if not event.takes:
            if event.awaited is None:
                blocks = _sources(src, crossing, event.pieces)
            else:
                need(event.awaited)
                blocks = _landings(dst, crossing, event.pieces)
            t.send_blocks(t.tree.node_root(event.peer), blocks)
            continue
        taken += 1
        if event.at in followed:
            need(event.at)
            if t.me in work.followers:
                _follow(t, dst, crossing, event.pieces, t.me)
        if event.at in to_tell:
            t.signal(arrived, listeners, to_tell[event.at])
