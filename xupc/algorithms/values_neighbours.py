"""allav_neighbour_exchange: blocks between neighbours, from private memory to private memory.

All ways take a call's `Transfers`. What a thread has for others is a *stream*: its distinct blocks
side by side, so that a block for several neighbours is staged, and crosses to a node, once. A unit
is the same part of the streams of all threads::

    thread 0   A A A B B C     for 1, 1 and 2, 3       units of 4 bytes:   A A A B | B C
    thread 1   D                                                           D       |

No thread's plan has more steps than the thread has neighbours, for each unit. A node root has those
of the blocks that cross, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks
from ..plan.recorder import DST, SRC, Recorder
from ..plan.steps import Blocks, Ranks
from .block_crossing import distinct_blocks
from .block_transfers import distinct, send_and_receive
from .conditions import CallFacts, on_one_node, on_several_nodes
from .node_relay import Relay
from .private_staging import LINE, deposits, places_of, reaches
from .registry import algorithm
from .transfer_lists import Ints, Transfers

__all__: list[str] = []

NAME = "allav_neighbour_exchange"


class Piece(NamedTuple):
    """The part of a block in a unit: `nbytes` from `offset` of the block on.

    It is at `place` in the unit of the stream; `of` and `to` are ranks, `src_at` and `dst_at` where
    the part is in their memory, and `block` is the number of the block in the call.
    """

    of: int
    to: int
    src_at: int
    dst_at: int
    place: int
    nbytes: int
    block: int


class Streams:
    """The streams of all threads that give (or, `taken`, of those that take).

    Attributes
    ----------
    longest
        Bytes of the longest one.
    """

    def __init__(self, moves: Transfers, *, taken: bool = False) -> None:
        if taken:  # each place of a receiver is written once
            blocks, number, rank = moves, np.arange(moves.src.size), moves.dst
        else:
            blocks, number = distinct_blocks(moves)
            rank = blocks.src
        self.moves, self.number = moves, number
        ends, first = np.cumsum(blocks.nbytes), np.ones(rank.size, bool)
        first[1:] = rank[1:] != rank[:-1]
        begins = ends - blocks.nbytes
        within = begins - begins[first][np.cumsum(first) - 1] if rank.size else begins
        self.at: Ints = within[number]
        self.longest = int((within + blocks.nbytes).max(initial=0))

    def pieces(self, which: Ints, begin: int, size: int) -> Iterator[Piece]:
        """Yield the parts of some transfers in a unit, ``begin .. begin + size`` of each stream."""
        moves, at = self.moves, self.at
        hit = which[(at[which] < begin + size) & (at[which] + moves.nbytes[which] > begin)]
        for k in hit.tolist():
            start, nbytes = int(at[k]), int(moves.nbytes[k])
            skip = max(0, begin - start)
            n = min(start + nbytes, begin + size) - start - skip
            yield Piece(
                int(moves.src[k]), int(moves.dst[k]), int(moves.src_at[k]) + skip,
                int(moves.dst_at[k]) + skip, start + skip - begin, n, int(self.number[k]),
            )  # fmt: skip


def _own(t: Recorder, moves: Transfers) -> Transfers:
    """Copy my blocks for myself; return the transfers between different threads."""
    own = moves.dst == moves.src
    for _, to, _, at, n in moves.take(own & (moves.src == t.me)).each():
        t.copy(DST.on(t.me, to), SRC.on(t.me, at), n)
    return moves.take(~own)


def _staged_once(pieces: Iterator[Piece]) -> list[Piece]:
    """Return one piece of each block."""
    return list({piece.block: piece for piece in pieces}.values())


# --- PULL -----------------------------------------------------------------------------------------


def pull_direct(t: Recorder, moves: Transfers) -> None:
    """Receivers read their blocks from the exposed memory of the senders."""
    moves = _own(t, moves)
    senders, receivers = _peers(t, moves)
    begin = {rank: _span(moves.take(moves.src == rank), "src")[0] for rank in senders}
    if receivers:
        low, nbytes = _span(moves.take(moves.src == t.me), "src")
        t.offer(SRC.on(t.me, low), nbytes)
    t.after_each(senders, receivers)
    for _, to, of, at, n in moves.take(moves.dst == t.me).each():
        t.reach(DST.on(t.me, to), Ranks(of), at - begin[of], n)
    t.after_each(receivers, senders)


def pull_staged(t: Recorder, moves: Transfers) -> None:
    """Senders stage units of their streams; receivers copy from there, or read one-sided."""
    moves = _own(t, moves)
    senders, receivers = _peers(t, moves)
    streams = Streams(moves)
    mine, coming = np.flatnonzero(moves.src == t.me), np.flatnonzero(moves.dst == t.me)
    places = places_of(t, streams.longest)
    t.expose()
    for u, (begin, size) in enumerate(chunks(streams.longest, places.width or 1)):
        for p in _staged_once(streams.pieces(mine, begin, size)):
            t.copy(places.on(t.me, u, p.place), SRC.on(t.me, p.src_at), p.nbytes)
        if places.short:
            t.after_each(senders, receivers)
        else:
            t.barrier()
        tickets = []
        for p in streams.pieces(coming, begin, size):
            tickets += t.fetch(DST.on(t.me, p.dst_at), places.on(p.of, u, p.place), p.nbytes)
        t.need(*tickets)
    if not places.short:
        t.barrier()


# --- PUSH -----------------------------------------------------------------------------------------


def push_direct(t: Recorder, moves: Transfers) -> None:
    """Senders write their blocks to the exposed memory of the receivers."""
    moves = _own(t, moves)
    senders, receivers = _peers(t, moves)
    begin = {rank: _span(moves.take(moves.dst == rank), "dst")[0] for rank in receivers}
    coming = moves.take(moves.dst == t.me)
    if senders:
        low, nbytes = _span(coming, "dst")
        t.offer(DST.on(t.me, low), nbytes)
    t.after_each(receivers, senders)
    for rank, to, _, at, n in moves.take(moves.src == t.me).each():
        t.deposit(SRC.on(t.me, at), Ranks(rank), to - begin[rank], n)
    t.after_each(senders, receivers)
    for _, to, _, _, n in coming.each():
        t.reclaim(DST.on(t.me, to), n)


def push_staged(t: Recorder, moves: Transfers) -> None:
    """Senders write into the scratch of receivers on their node; others get messages."""
    moves = _own(t, moves)
    node_of = t.tree.node_index
    same = node_of[moves.src] == node_of[moves.dst]
    far = moves.take(~same & ((moves.src == t.me) | (moves.dst == t.me)))
    if far.total:
        with t.net():
            send_and_receive(t, DST, SRC, far)
    near = moves.take(same)
    senders, receivers = _peers(t, near)
    streams = Streams(near, taken=True)
    mine, coming = np.flatnonzero(near.src == t.me), np.flatnonzero(near.dst == t.me)
    places = places_of(t, streams.longest)
    if not places.short:
        t.node_barrier()  # scratch is written only when its thread has left earlier calls
    for u, (begin, size) in enumerate(chunks(streams.longest, places.width or 1)):
        for p in streams.pieces(mine, begin, size):
            t.copy(places.on(p.to, u, p.place), SRC.on(t.me, p.src_at), p.nbytes)
        if places.short:
            t.after_each(senders, receivers)
        else:
            t.node_barrier()
        for p in streams.pieces(coming, begin, size):
            t.copy(DST.on(t.me, p.dst_at), places.on(t.me, u, p.place), p.nbytes)


# --- MULTICORE ------------------------------------------------------------------------------------


def rounds(t: Recorder, moves: Transfers) -> None:
    """Send one message per pair of nodes and unit, from scratch to the scratch of a node root.

    Receivers copy the blocks of their own node from the scratch of the senders, and those of other
    nodes from that of their node root.
    """
    others = moves.take(moves.dst != moves.src)
    if others.total:
        _Rounds(t, others).record()
    _own(t, moves)  # last: a led call compares the calls of all threads before that


class _Rounds:
    """Record the units of `rounds`."""

    def __init__(self, t: Recorder, moves: Transfers) -> None:
        self.t, self.moves, self.streams = t, moves, Streams(moves)
        node_of = t.tree.node_index
        self.to, self.of = node_of[moves.dst], node_of[moves.src]
        far = np.flatnonzero(self.to != self.of)
        self.mine = np.flatnonzero(moves.src == t.me)
        self.coming = np.flatnonzero(moves.dst == t.me)
        self.arriving = far[self.to[far] == t.my_node]
        self.leaving = far[self.of[far] == t.my_node]
        landing, senders = self._most(far)
        longest = self.streams.longest
        self.relay = Relay(t, longest, landing, landing)
        width = longest
        if not self.relay.out.short:
            width = self.relay.out.width
            if senders:
                width = min(width, max(1, self.relay.landing.width // senders))
            width = width // LINE * LINE or width
        self.units = chunks(longest, width or 1)

    def _most(self, far: Ints) -> tuple[int, int]:
        """Return the most bytes that come to a node, and the most senders of those."""
        nodes = self.t.tree.node_count
        cross = np.unique(np.stack([self.streams.number[far], self.to[far]]), axis=1)
        _, first = np.unique(self.streams.number, return_index=True)
        bytes_of, sender_of = self.moves.nbytes[first], self.moves.src[first]
        landing = np.bincount(cross[1], weights=bytes_of[cross[0]], minlength=nodes)
        pairs = np.unique(np.stack([sender_of[cross[0]], cross[1]]), axis=1)
        senders = np.bincount(pairs[1], minlength=nodes)
        return int(landing.max(initial=0)), int(senders.max(initial=0))

    def record(self) -> None:
        """Record all units."""
        self.relay.run(len(self.units), self._stage, self._post, self._take)

    def _stage(self, u: int) -> None:
        t, out = self.t, self.relay.out
        for p in _staged_once(self.streams.pieces(self.mine, *self.units[u])):
            t.copy(out.on(t.me, u, p.place), SRC.on(t.me, p.src_at), p.nbytes)

    def _messages(self, which: Ints, nodes: NDArray[Any], u: int) -> dict[int, list[Piece]]:
        """Return the distinct pieces of a unit for each node of `nodes`, in the same order."""
        found: dict[int, list[Piece]] = {}
        for node in np.unique(nodes[which]).tolist():
            some = which[nodes[which] == node]
            pieces = _staged_once(self.streams.pieces(some, *self.units[u]))
            if pieces:
                found[node] = sorted(pieces, key=lambda p: p.block)
        return found

    def _post(self, u: int) -> list[int]:
        t, tickets, at = self.t, list[int](), 0
        for node, pieces in self._messages(self.arriving, self.of, u).items():
            nbytes = sum(p.nbytes for p in pieces)
            place = self.relay.landing.on(t.me, u, at)
            tickets.append(t.recv(t.tree.node_root(node), place, nbytes, bounded=False))
            at += nbytes
        for node, pieces in self._messages(self.leaving, self.to, u).items():
            blocks = [Blocks(self.relay.out.on(p.of, u, p.place), p.nbytes) for p in pieces]
            tickets.append(t.send_blocks(t.tree.node_root(node), blocks))
        return tickets

    def _take(self, u: int) -> None:
        t, at, landed = self.t, 0, dict[int, int]()
        for pieces in self._messages(self.arriving, self.of, u).values():
            for p in pieces:
                landed[p.block] = at
                at += p.nbytes
        for p in self.streams.pieces(self.coming, *self.units[u]):
            place = self.relay.out.on(p.of, u, p.place)
            if not t.on_my_node(p.of):
                place = self.relay.landing.on(t.node_root, u, landed[p.block])
            t.copy(DST.on(t.me, p.dst_at), place, p.nbytes)


# --- parts of all ---------------------------------------------------------------------------------


def _peers(t: Recorder, moves: Transfers) -> tuple[list[int], list[int]]:
    """Return the threads whose blocks I take, and those that take mine."""
    return distinct(moves.src[moves.dst == t.me]), distinct(moves.dst[moves.src == t.me])


def _span(moves: Transfers, side: str) -> tuple[int, int]:
    """Return where the blocks of one thread begin in its src or dst, and how far they reach."""
    at = moves.src_at if side == "src" else moves.dst_at
    low = int(at.min())
    return low, int((at + moves.nbytes).max()) - low


# --- registration ---------------------------------------------------------------------------------


def _can_be_direct(call: CallFacts) -> bool:
    """One node whose threads can access each other's private memory."""
    return call.one_node and call.tuning["direct_min"] > 0


def _reads(call: CallFacts) -> bool:
    """The longest block has at least `direct_min` bytes."""
    return reaches(call.tree, call.tuning, call.nbytes)


def _writes(call: CallFacts) -> bool:
    """The longest block has at least `direct_put_min` bytes."""
    return deposits(call.tree, call.tuning, call.nbytes)


_DIRECT = "Receivers read blocks from the senders' private memory: one copy."
_STAGED = "Senders copy blocks into their scratch, receivers copy them from there."


def _pull(flag: int, applies: Callable[[CallFacts], bool] | None) -> None:
    """Register the two ways of PULL, which MULTICORE has on one node as well."""
    add = algorithm(NAME, flag, "direct", _DIRECT, applies=_can_be_direct, preferred=_reads)
    add(pull_direct)
    algorithm(NAME, flag, "staged", _STAGED, applies=applies)(pull_staged)


_pull(PULL, None)
algorithm(
    NAME, PUSH, "direct", "Senders write blocks to the receivers' private memory: one copy.",
    applies=_can_be_direct, preferred=_writes,
)(push_direct)  # fmt: skip
algorithm(
    NAME, PUSH, "staged",
    "Senders copy blocks into the receivers' scratch; messages go to private memory.",
)(push_staged)  # fmt: skip
_pull(MULTICORE, on_one_node)
algorithm(
    NAME, MULTICORE, "rounds",
    "One message per pair of nodes and unit, from the scratch of threads to that of a node root.",
    applies=on_several_nodes,
)(rounds)  # fmt: skip
