"""all_gather_all: every thread's block to every thread, in order (UPC 1.3, 7.4.2.4).

::

    before   src@0: A   src@1: B   src@2: C      after   dst@0: A B C   dst@1: A B C   ...

In place thread i's block is the i-th one at dst already, and stays there::

    before   dst@0: A - -   dst@1: - B -   dst@2: - - C
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import accumulate, zip_longest

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, grouped, pieces
from ..plan.placement import MOST_BYTES
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import BlockRef, Blocks, Ranks
from ..records import record
from .conditions import CallFacts, fused, led, on_one_node, on_several_nodes
from .registry import algorithm, derive
from .scatter import blocks_for


@algorithm("gather_all", PULL)
def pull(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each thread copies T blocks, its node's by load/store, the others one-sided."""
    t.ready(ALL, ALL)
    if not t.one_node:
        everyone = Ranks(0, t.size)
        with t.net():
            t.get(blocks_for(dst, t.me, everyone, nbytes), src.across(everyone), nbytes, t.size)
    _copy_mates(t, dst, src, nbytes)
    t.done(ALL, ALL)


def _copy_mates(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Copy the blocks of my node to my dst."""
    for run in t.node_ranks_but(_but(src, t.me)):
        t.copy(blocks_for(dst, t.me, run, nbytes), src.across(run), nbytes, run.count)


def _but(src: Operand, thread: int) -> int | None:
    """Return the thread itself if its block is in place."""
    return thread if isinstance(src, InPlace) else None


@algorithm("gather_all", PUSH)
def push(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each thread copies its block to its node's threads and sends it to each other."""
    t.ready(NODE, NODE, node_only=True)
    if not t.one_node:
        with t.net():
            for offset, size in chunks(nbytes, t.tuning["max_message"]):
                t.recv(Ranks(0, t.size), dst.on(t.me, offset), size, peer_step=nbytes)
                t.send(Ranks(0, t.size), src.on(t.me, offset), size)
    for run in t.node_ranks_but(_but(src, t.me)):
        mine = src.across(Ranks(t.me, run.count, 0))
        t.copy(dst.across(run, t.me * nbytes), mine, nbytes, run.count)
    t.done(NODE, NODE, node_only=True)


# --- MULTICORE ----------------------------------------------------------------------------------
def _total(call: CallFacts) -> int:
    """Return the bytes that all threads of a node write in all."""
    return call.nbytes * call.size * call.largest_node


def _small(call: CallFacts) -> bool:
    return call.nbytes * call.largest_node <= call.tuning["pipeline_min"]


@algorithm(
    "gather_all", MULTICORE, "fused", "The last thread to arrive copies all blocks.",
    **fused(_total),
)  # fmt: skip
def fused_copy(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """One thread copies each block to each thread."""
    with t.single_mover(0, anyone=True):
        for i in range(t.size):
            for run in t.node_ranks_but(_but(src, i)):
                to = dst.across(run, i * nbytes)
                t.copy(to, src.across(Ranks(i, run.count, 0)), nbytes, run.count)


algorithm(
    "gather_all", MULTICORE, "pull", "Each thread copies all blocks, as in PULL.",
    applies=on_one_node,
)(pull)  # fmt: skip


@algorithm(
    "gather_all", MULTICORE, "led",
    "Node roots copy and exchange all blocks, and the data travels with the barrier.",
    **led(_total),
)  # fmt: skip
def led_exchange(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.size * t.largest_node)
    if t.me == t.node_root:
        _lead(t, dst, src, nbytes)


def _is_linear(call: CallFacts) -> bool:
    """At most `few_nodes_max` nodes and `pipeline_min` bytes per node."""
    return call.few_nodes and _small(call)


@algorithm(
    "gather_all", MULTICORE, "linear",
    "Every node root sends its node's blocks to all others at once: the latency of one message.",
    applies=on_several_nodes, preferred=_is_linear,
)  # fmt: skip
def linear(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """The threads of a node read each message as it arrives."""
    _across(t, dst, src, nbytes, _flat, least=1)


def _fits_a_message(call: CallFacts) -> bool:
    """Several nodes, at most 1 GiB of all threads' blocks."""
    return not call.one_node and call.nbytes * call.size <= MOST_BYTES


def _is_doubling(call: CallFacts) -> bool:
    """At most `pipeline_min` bytes per node."""
    return _small(call)


@algorithm(
    "gather_all", MULTICORE, "doubling",
    "A node root sends all blocks that it has 1, 2, 4, ... nodes on: log2 N messages in sequence.",
    applies=_fits_a_message, preferred=_is_doubling,
)  # fmt: skip
def doubling(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Small blocks on many nodes."""
    _across(t, dst, src, nbytes, _doubling)


def _is_rounds(call: CallFacts) -> bool:
    """At most `few_nodes_max` nodes."""
    return call.few_nodes


@algorithm(
    "gather_all", MULTICORE, "rounds",
    "In round k each node root sends its own node's blocks to the node root k places after it.",
    applies=on_several_nodes, preferred=_is_rounds,
)  # fmt: skip
def rounds(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Large blocks on few nodes, directly between the heaps."""
    _across(t, dst, src, nbytes, _rounds)


@algorithm(
    "gather_all", MULTICORE, "ring",
    "Blocks go around a ring: in round k a node root forwards those of the node k places before.",
    applies=on_several_nodes,
)  # fmt: skip
def ring(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Large blocks on many nodes: each node root has one sender and one receiver.

    ::

        round      0        1        2
        node 0   [0]->    [3]->    [2]->        N = 4; [x]: blocks of node x
        node 1   [1]->    [0]->    [3]->
    """
    _across(t, dst, src, nbytes, _ring)


Notify = Callable[[int], None]
"""Signal that so many groups of messages have arrived."""
Way = Callable[[Recorder, Operand, Operand, int, Notify, "Words"], None]
"""Record a node root's messages: (t, dst, src, nbytes, notify, groups of messages)."""


def _across(
    t: Recorder, dst: Operand, src: Operand, nbytes: int, way: Way, least: int | None = None
) -> None:
    """Send each block to each node once; the threads pull it from their node root.

    `least`: the bytes that must arrive before a node root signals them.
    """
    arrived = t.channel()
    t.ready(NODE, NODE, node_only=True)
    words = arrivals(t, dst, nbytes, least)
    if t.me == t.node_root:
        with t.net():
            way(t, dst, src, nbytes, partial(t.signal, arrived, t.node_ranks()), words)
    _copy_mates(t, dst, src, nbytes)
    if t.me != t.node_root:
        _pull_arrivals(t, words, arrived)
    t.done(NODE, NODE, node_only=True)


def way_between(t: Recorder, nbytes: int) -> tuple[Way, int | None]:
    """Return how node roots exchange blocks by default, and `least` of `_across`."""
    small = nbytes * t.largest_node <= t.tuning["pipeline_min"]
    if t.few_nodes:
        return (_flat, 1) if small else (_rounds, None)
    return (_doubling if small and nbytes * t.size <= MOST_BYTES else _ring), None


Message = tuple[BlockRef, int, int]
"""A row of blocks, the bytes of one, how many."""
Words = list[list[Message]]
"""Messages in the groups that a node root notifies its threads of."""


def arrivals(t: Recorder, dst: Operand, nbytes: int, least: int | None) -> Words:
    """Return the messages from other nodes, grouped as the node root signals their arrival."""
    least = t.tuning["notify_bytes"] if least is None else least
    coming = [m for n in _arrival_order(t) for m in _messages(t, dst, n, nbytes, home=False)]
    return grouped(coming, lambda message: message[1] * message[2], least)


def _messages(t: Recorder, area: Operand, node: int, nbytes: int, home: bool) -> list[Message]:
    """Return the places in `area` of a node's blocks, cut into messages.

    If `home`, each block is on its own thread. Else all are in the node root's dst.
    """
    out = []
    # two messages in a round at least, so that one can go on while the other one comes
    unit = min(t.tuning["alltoall_chunk"], max(t.tuning["chunk"], t.largest_node * nbytes // 2))
    for run in t.node_ranks(node):
        for block, count, offset, size in pieces(run.count, nbytes, unit):
            rank = run.first + block * run.step
            if home:
                row = area.across(Ranks(rank, count, run.step), offset)
            else:
                row = BlockRef(area.index, t.me, rank * nbytes + offset, 0, run.step * nbytes)
            out.append((row, size, count))
    return out


def _lead(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Record the work of a node root that does everything for its node."""
    tickets = _all_to_all(t, dst, src, nbytes)
    _copy_mates(t, dst, src, nbytes)
    for ticket in tickets:
        t.need(ticket)
    if isinstance(src, InPlace):  # their own blocks, too, are written over, with what they are
        t.join()
    for run in t.node_ranks_but(t.me):
        t.copy(dst.across(run), dst.on(t.me), nbytes * t.size, run.count)


def _flat(
    t: Recorder, dst: Operand, src: Operand, nbytes: int, notify: Notify, words: Words
) -> None:
    """Exchange blocks with all node roots, and signal each message that arrives to my node."""
    for i, ticket in enumerate(_all_to_all(t, dst, src, nbytes)):
        t.need(ticket)
        notify(i + 1)


def _all_to_all(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> list[int]:
    """Send own blocks to all node roots, receive theirs, and return the receive tickets."""
    nodes = t.tree.node_count
    others = [(t.my_node + k) % nodes for k in range(1, nodes)]
    tickets = []
    for node in _arrival_order(t):
        of = t.tree.node_root(node)
        for row, size, count in _messages(t, dst, node, nbytes, home=False):
            tickets.append(t.recv(of, row, size, count, bounded=False))
    for node in others:
        for row, size, count in _messages(t, src, t.my_node, nbytes, home=True):
            t.send(t.tree.node_root(node), row, size, count)
    return tickets


def _doubling(
    t: Recorder, dst: Operand, src: Operand, nbytes: int, notify: Notify, words: Words
) -> None:
    """Send the blocks of 1, 2, 4, ... nodes up to mine to the node root as many places after it.

    Blocks arrive in the order of a ring, the nearest node before mine first. The node root signals
    them in the same order.
    """
    nodes = t.tree.node_count
    order = [t.my_node, *_arrival_order(t)]
    ends = list(accumulate(map(len, words)))

    def blocks(near: int, far: int) -> list[Blocks]:
        """Return the blocks of the nodes `near` to `far` places before mine, farthest first."""
        rows = [
            _messages(t, dst if k else src, order[k], nbytes, home=not k)
            for k in range(near, far)[::-1]
        ]
        return [Blocks(*message) for row in rows for message in row]

    came = notified = 0
    step = 1
    while step < nodes:
        many = min(step, nodes - step)
        incoming = blocks(step, step + many)
        ticket = t.recv_blocks(t.tree.node_root(order[step]), incoming)
        to = t.tree.node_root((t.my_node + step) % nodes)
        t.send_blocks(to, blocks(0, many))
        t.need(ticket)
        came += len(incoming)
        now = bisect_right(ends, came)
        for word in range(notified + 1, now + 1):  # a wait for the n-th word is for n signals
            notify(word)
        notified = now
        step *= 2


def _rounds(
    t: Recorder, dst: Operand, src: Operand, nbytes: int, notify: Notify, words: Words
) -> None:
    """Send the node's own blocks to all other node roots, in round k to the one k places on.

    Each message has the same place (round, number) at both ends, and waits only for such as have
    earlier ones: so windows cannot lock.
    """
    nodes, window = t.tree.node_count, t.tuning["window"]
    complete = {end: word for word, end in enumerate(accumulate(map(len, words)), 1)}
    own = _messages(t, src, t.my_node, nbytes, home=True)
    tickets: list[int] = []

    def take(i: int) -> None:
        t.need(tickets[i])
        if i + 1 in complete:
            notify(complete[i + 1])

    for k, node in enumerate(_arrival_order(t), 1):
        of, to = t.tree.node_root(node), t.tree.node_root((t.my_node + k) % nodes)
        for theirs, mine in zip_longest(_messages(t, dst, node, nbytes, home=False), own):
            if theirs:
                if len(tickets) >= window:
                    take(len(tickets) - window)
                row, size, count = theirs
                tickets.append(t.recv(of, row, size, count, bounded=False))
            if mine:
                row, size, count = mine
                t.send(to, row, size, count)
    for i in range(max(0, len(tickets) - window), len(tickets)):
        take(i)


def _ring(
    t: Recorder, dst: Operand, src: Operand, nbytes: int, notify: Notify, words: Words
) -> None:
    """Forward in each round, message by message, the blocks that came in the last one."""
    nodes = t.tree.node_count
    to = t.tree.node_root((t.my_node + 1) % nodes)
    of = t.tree.node_root((t.my_node - 1) % nodes)
    incoming = [message for word in words for message in word]
    window = t.tuning["window"]
    tickets: list[int] = []

    def post(most: int) -> None:
        while len(tickets) < min(most, len(incoming)):
            row, size, count = incoming[len(tickets)]
            tickets.append(t.recv(of, row, size, count, bounded=False))

    # Always as many receives open as messages sent: a ring whose nodes all waited for
    # the next one to take a message would stand still.
    own = _messages(t, src, t.my_node, nbytes, home=True)
    for i, (row, size, count) in enumerate(own):
        post(i + window)
        t.send(to, row, size, count)
    passed_on = len(incoming) - len(_messages(t, dst, _arrival_order(t)[-1], nbytes, home=False))
    complete = {end: word for word, end in enumerate(accumulate(map(len, words)), 1)}
    for i, (row, size, count) in enumerate(incoming):
        post(len(own) + i + window)
        t.need(tickets[i])
        if i + 1 in complete:
            notify(complete[i + 1])
        if i < passed_on:
            t.send(to, row, size, count)


def _arrival_order(t: Recorder) -> list[int]:
    """Return the other nodes, nearest behind first: the order of a ring's rounds."""
    nodes = t.tree.node_count
    return [(t.my_node - k) % nodes for k in range(1, nodes)]


def _pull_arrivals(t: Recorder, words: Words, arrived: int) -> None:
    """Copy what the node root has received, word by word."""
    for number, word in enumerate(words, 1):
        t.turn(number)
        t.wait(arrived, t.node_root, number)
        for row, size, count in word:
            t.copy(row, row._replace(thread=t.node_root), size, count)


# --- in place -----------------------------------------------------------------------------------
@record
class InPlace(Operand):
    """The source that lies in dst: thread i's block is at ``i * nbytes`` there."""

    nbytes: int = 0

    def on(self, thread: int, offset: int = 0) -> BlockRef:
        """Return a thread's block."""
        return BlockRef(self.index, thread, thread * self.nbytes + offset)

    def across(self, ranks: Ranks, offset: int = 0, step: int = 0) -> BlockRef:
        """Return the blocks of some threads."""
        first = ranks.first * self.nbytes + offset
        return BlockRef(self.index, ranks.first, first, ranks.step, ranks.step * self.nbytes + step)


def in_place(function: Callable[..., None]) -> Callable[..., None]:
    """Return an algorithm whose source lies in dst: no block is copied onto itself."""

    def record(t: Recorder, dst: Operand, nbytes: int) -> None:
        function(t, dst, InPlace(dst.index, nbytes), nbytes)

    return record


derive("gather_all_in_place", "gather_all", in_place)
