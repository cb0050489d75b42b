"""The recorder: algorithms run once against it and leave a plan.

An algorithm is a function ``f(t, ...)`` of what is to be done, in direct style, run on
every thread with the same arguments; `t` is a :class:`Recorder`.  It moves data
with `copy`, `fetch`, `send`, `recv`; it says whose data may be touched with
`ready` and `done`, which become signals only under MYSYNC: under ALLSYNC the
recorder puts barriers around the call, under NOSYNC nothing.  What an algorithm
must order for its own sake it orders with `signal`, `wait` and tickets, always.

All threads must make the same sequence of calls that take a channel (`channel` itself, `ready`,
`done`, `after`, `meet`, `alone` and their like): so they agree on channels without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from .plan import Plan
from .steps import (
    FOLD_DEPTH,
    STAGING,
    Barrier,
    BlockRef,
    Blocks,
    Copy,
    CopyBack,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
    FoldOperand,
    FusedBarrier,
    Get,
    NetSignal,
    NetWait,
    Ranks,
    Recv,
    Scan,
    Send,
    SetTicket,
    Signal,
    Step,
    Swap,
    Wait,
    WaitTicket,
)

if TYPE_CHECKING:
    from ..topology.tree import Run, Tree

__all__ = ["ALL", "CHANNELS", "DST", "NODE", "SRC", "Operand", "Recorder", "Who", "trace"]

ALL: Final = "all"
"""All threads of the team."""
NODE: Final = "node"
"""The threads of my node."""
MOST_BYTES: Final = 1 << 30
"""No message is longer: MPI counts in 32 bits."""
CHANNELS: Final = 5
"""Signal channels of one operation (a cache line's worth)."""

Who = int | str


@dataclass(frozen=True, slots=True)
class Operand:
    """A piece of memory of each thread that a call names, shared or private."""

    index: int

    def on(self, thread: int, offset: int = 0) -> BlockRef:
        """The operand's memory on one thread."""
        return BlockRef(self.index, thread, offset)

    def across(self, ranks: Ranks, offset: int = 0, step: int = 0) -> BlockRef:
        """A row: a block on each of `ranks`, `step` bytes further on each time."""
        return BlockRef(self.index, ranks.first, offset, ranks.step, step)

    def row(self, thread: int, offset: int, step: int) -> BlockRef:
        """A row of blocks `step` bytes apart on one thread."""
        return BlockRef(self.index, thread, offset, 0, step)


DST: Final = Operand(0)
SRC: Final = Operand(1)
"""A call's own operands, where there are just these two."""


class Recorder:
    """What an algorithm sees while it is traced for thread `me`.

    Attributes
    ----------
    me, size
        My rank in the team and the number of its threads.
    tree
        The team's node tree over ranks.
    tuning
        Sizes from the tuning table: ``chunk``, ``window``, ...
    """

    def __init__(
        self, me: int, tree: Tree, sync: tuple[str, str], tuning: Mapping[str, int],
        kernel: Any = None,
    ) -> None:
        self.me = me
        self.kernel = kernel
        # what the user's function raises must reach all before they leave the call
        self._may_raise = kernel is not None and kernel.func is not None
        self.size = tree.size
        self.tree = tree
        self.tuning = tuning
        self.sync = sync
        self.my_node = tree.node_of(me)
        self.node_root = tree.node_root(self.my_node)
        self._node_ranks = _ranks(tree.runs(self.my_node))
        self._lanes: tuple[list[Step], list[Step]] = ([], [])
        self._lane = 0
        self._tickets = 0
        # dicts as sets that keep their order
        self._outstanding: tuple[dict[int, None], dict[int, None]] = ({}, {})
        self._windows: dict[tuple[int, str], list[int]] = {}
        self._channels = 0
        self._forked = False
        self._joined = True
        self._one_sided = False
        self._led = False
        self._scratch = kernel is not None
        self._offered = 0  # where my offer begins
        self._fused = False
        self._meeting: int | None = None
        self._met = 0
        self._known: dict[Any, Any] = {}

    # -- topology in an algorithm's words ------------------------------------------
    @property
    def one_node(self) -> bool:
        """Whether the whole team shares memory."""
        return self.tree.node_count == 1

    def on_my_node(self, rank: int) -> bool:
        """Whether load and store reach `rank`."""
        return self.tree.node_of(rank) == self.my_node

    def node_ranks(self, node: int | None = None) -> tuple[Ranks, ...]:
        """The ranks of a node (default mine) as a few arithmetic runs."""
        if node is None or node == self.my_node:
            return self._node_ranks
        return _ranks(self.tree.runs(node))

    def node_ranks_but(self, rank: int | None) -> list[Ranks]:
        """My node's threads without one of them; all of them if that is None."""
        return [part for run in self.node_ranks() for part in run.without(rank)]

    def acting_root(self, node: int, root: int) -> int:
        """Who speaks for `node` when `root` is the call's root: the root itself at home."""
        return root if self.tree.node_of(root) == node else self.tree.node_root(node)

    @property
    def largest_node(self) -> int:
        """How many threads the largest node has."""
        return self.tree.largest_node

    def message(self, nbytes: int, size: str = "max_message") -> int:
        """The largest message when each thread of every node has a block of `nbytes`.

        The tuned size, or more where one plan would have too many messages: it has to
        stay small at 10,000 nodes. `size`: its name in the table.
        """
        nodes = self.tree.node_count
        per_node = max(1, self.tuning["max_messages"] // nodes)
        needed = -(-self.largest_node * nbytes // per_node)
        return min(max(self.tuning[size], needed), MOST_BYTES)

    @property
    def line(self) -> int:
        """Bytes of the shortest place for values: cache lines that hold a long record, or one."""
        itemsize = 1 if self.kernel is None else int(self.kernel.dtype.itemsize)
        return -(-itemsize // 64) * 64

    def unit(self, nbytes: int, most: int) -> int:
        """In what units a reduction of so many bytes travels, of at most `most`.

        The tuned size; down to half of it where that would be only a few units, so that
        one can be joined while the next one comes, and more where one plan would have too many
        of them. All of about the same size: a short last one would take a message like any
        other.
        """
        line, fold = (
            self.line,
            max(self.tuning["reduce_chunk"], -(-nbytes // self.tuning["max_messages"])),
        )
        limit = max(line, min(fold, most) // line * line)
        units = max(1, -(-nbytes // limit), nbytes // min(limit, max(fold // 2, nbytes // 8)))
        return -(-nbytes // (line * units)) * line or line

    def chunk(self, nbytes: int) -> int:
        """In what chunks a block of so many bytes goes down a chain of nodes.

        The tuned size, or more where one plan would have too many of them.
        """
        chunk, needed = self.tuning["chunk"], -(-nbytes // self.tuning["max_messages"])
        return chunk if needed <= chunk else min(-(-needed // 64) * 64, MOST_BYTES)

    def notify_interval(self, chunk: int) -> int:
        """After how many bytes of arriving chunks a node's threads are told of them.

        A multiple of `chunk`. To wake threads for every one of them costs more than it
        gains where they share cores with the node root.
        """
        return max(1, self.tuning["notify_bytes"] // chunk) * chunk

    # -- steps ---------------------------------------------------------------------
    def _add(self, step: Step) -> None:
        self._lanes[self._lane].append(step)

    def _ticket(self) -> int:
        """A ticket that the step recorded next will set."""
        ticket = self._tickets
        self._tickets += 1
        self._outstanding[self._lane][ticket] = None
        self._joined = False
        return ticket

    def _bounded(self, kind: str) -> int:
        """A ticket like the above, with at most `window` of its kind open at a time."""
        open_here = self._windows.setdefault((self._lane, kind), [])
        while len(open_here) >= self.tuning["window"]:
            oldest = open_here.pop(0)
            if oldest in self._outstanding[self._lane]:
                self.need(oldest)
        ticket = self._ticket()
        open_here.append(ticket)
        return ticket

    def copy(self, dst: BlockRef, src: BlockRef, nbytes: int, count: int = 1) -> None:
        """Load/store copy of a row of blocks."""
        if nbytes and count:
            self._add(Copy(dst, src, nbytes, count))

    def swap(self, a: BlockRef, b: BlockRef, nbytes: int, count: int = 1) -> None:
        """Two rows of blocks of my node's threads change places."""
        if nbytes and count:
            self._add(Swap(a, b, nbytes, count))

    def offer(self, part: BlockRef, nbytes: int) -> None:
        """Others may `reach` for so many bytes of my private memory, or `deposit` there.

        Once they have heard from me; a plan has one offer.
        """
        self._scratch = True
        self._offered = part.offset
        self._add(Expose(part._replace(thread_step=0, offset_step=0), nbytes))

    def reach(self, dst: BlockRef, of: Ranks, offset: int, nbytes: int) -> None:
        """Copy from the private memory of each of `of`, who have made their `offer`."""
        if nbytes and of.count:
            self._add(DirectGet(dst, of, offset, nbytes))

    def deposit(self, src: BlockRef, to: Ranks, offset: int, nbytes: int) -> None:
        """Copy to the private memory of each of `to`, who have made their `offer`."""
        if nbytes and to.count:
            self._add(DirectPut(src, to, offset, nbytes))

    def reclaim(self, part: BlockRef, nbytes: int, count: int = 1) -> None:
        """Have what others deposited in a row of blocks, when I have heard from them."""
        if nbytes and count:
            self._add(CopyBack(part, part.offset - self._offered, nbytes, count))

    def buffer(self, thread: int, offset: int = 0, step: int = 0) -> BlockRef:
        """A place in a thread's staging buffer, or a row of them so many bytes apart."""
        self._scratch = True
        part: BlockRef = self.once(BlockRef(STAGING, thread, offset, 0, step))
        return part

    def fold(
        self, dst: BlockRef, leaves: Sequence[FoldOperand], nelems: int = 1, copies: int = 1, *,
        rows: int = 1, dst_step: int = 0,
    ) -> None:
        """Values of my node's threads folded into one place (or a row of `copies`)."""
        left = accumulate(1 - leaf.joins for leaf in leaves)
        assert max(n + leaf.joins for n, leaf in zip(left, leaves, strict=True)) <= FOLD_DEPTH
        self._add(Fold(dst, tuple(leaves), nelems, copies, rows, dst_step))

    def scan(
        self,
        dst: BlockRef,
        src: BlockRef,
        nelems: int,
        carry: BlockRef | None = None,
        *,
        rows: int = 1,
        dst_step: int = 0,
        src_step: int = 0,
        carry_step: int = 0,
        reverse: bool = False,
    ) -> None:
        """Running results along a block."""
        self._add(
            Scan(dst, src, nelems, carry, rows, dst_step, src_step, carry_step, reverse)
        )

    def send(
        self, to: Ranks | int, src: BlockRef, nbytes: int, count: int = 1, peer_step: int = 0
    ) -> int:
        """One message to each of `to` off my node; completed before the call ends.

        The ticket says when `src` may be changed.
        """
        ranks = Ranks(to) if isinstance(to, int) else to
        ticket = self._bounded("send")
        self._add(Send(ranks, src, nbytes, ticket, count, peer_step))
        return ticket

    def recv(
        self,
        of: Ranks | int,
        dst: BlockRef,
        nbytes: int,
        count: int = 1,
        peer_step: int = 0,
        *,
        bounded: bool = True,
    ) -> int:
        """Take one message from each of `of` off my node; returns the ticket.

        Not `bounded`: the algorithm itself keeps the number of open ones small.
        """
        ranks = Ranks(of) if isinstance(of, int) else of
        ticket = self._bounded("recv") if bounded else self._ticket()
        self._add(Recv(ranks, dst, nbytes, ticket, count, peer_step))
        return ticket

    def send_blocks(self, to: int, blocks: Sequence[Blocks]) -> int:
        """One message of all the blocks to a thread off my node; the ticket as of `send`."""
        (src, nbytes, columns, rows, step), *more = blocks
        peer, step, ticket = self.once(Ranks(to)), self.once(step), self._bounded("send")
        self._add(Send(peer, src, nbytes, ticket, columns, 0, rows, step, tuple(more)))
        return ticket

    def recv_blocks(self, of: int, blocks: Sequence[Blocks], *, bounded: bool = True) -> int:
        """Take one message from a thread off my node into all the blocks; the ticket."""
        (dst, nbytes, columns, rows, step), *more = blocks
        peer, step = self.once(Ranks(of)), self.once(step)
        ticket = self._bounded("recv") if bounded else self._ticket()
        self._add(Recv(peer, dst, nbytes, ticket, columns, 0, rows, step, tuple(more)))
        return ticket

    def once(self, value: Any) -> Any:
        """The same object for equal values: a plan for 10,000 nodes is full of them."""
        return self._known.setdefault(value, value)

    def get(self, dst: BlockRef, src: BlockRef, nbytes: int, count: int = 1) -> list[int]:
        """One-sided read of blocks off my node, in pieces that the network likes.

        Returns the pieces' tickets.
        """
        piece = self.tuning["rma_get_max"]
        tickets = []
        for offset in range(0, nbytes, piece):
            n = min(piece, nbytes - offset)
            tickets.append(self._bounded("get"))
            self._add(Get(dst + offset, src + offset, n, tickets[-1], count))
        return tickets

    def fetch(self, dst: BlockRef, src: BlockRef, nbytes: int) -> list[int]:
        """One block from wherever it is into my node's memory; the tickets if it was far."""
        if self.on_my_node(src.thread):
            self.copy(dst, src, nbytes)
            return []
        return self.get(dst, src, nbytes)

    def need(self, *tickets: int) -> None:
        """Go on only when the tickets are set."""
        for ticket in tickets:
            self._add(WaitTicket(ticket))
            for open_here in self._outstanding:
                open_here.pop(ticket, None)

    def post(self) -> int:
        """A ticket that is set when this lane has come here: for the other lane."""
        ticket = self._ticket()
        self._add(SetTicket(ticket))
        return ticket

    def channel(self) -> int:
        """A new signal channel of this call."""
        self._channels += 1
        if self._channels > CHANNELS:
            raise AssertionError("an algorithm may use five channels")
        return self._channels - 1

    def signal(self, channel: int, to: Sequence[Ranks], value: int = 1) -> None:
        """My channel now stands at `value`, for those in `to`."""
        for ranks in to:
            self._add(Signal(channel, ranks, value))

    def expose(self) -> None:
        """In this call threads of other nodes read memory one-sided: all must poll."""
        self._one_sided |= not self.one_node

    def tell(self, channel: int, rank: int, value: int = 1) -> None:
        """Signal one thread wherever it is; off my node it takes a `hear` for each `tell`."""
        if self.on_my_node(rank):
            self.signal(channel, (Ranks(rank),), value)
        else:
            self._add(NetSignal(channel, Ranks(rank), self._ticket()))

    def hear(self, channel: int, rank: int, value: int = 1) -> None:
        """Wait for what a thread tells."""
        if self.on_my_node(rank):
            self.wait(channel, rank, value)
        else:
            ticket = self._ticket()
            self._add(NetWait(channel, Ranks(rank), ticket))
            self.need(ticket)

    def wait(self, channel: int, of: Sequence[Ranks] | int, value: int = 1) -> None:
        """Until each of `of` on my node has signalled `value`."""
        for ranks in (Ranks(of),) if isinstance(of, int) else of:
            self._add(Wait(channel, ranks, value))

    @contextmanager
    def net(self) -> Iterator[None]:
        """Record on the net lane, which starts where the node lane now stands."""
        if not self._forked:
            self._forked = True
            fork = self._tickets
            self._tickets += 1
            self._add(SetTicket(fork))
            self._lanes[1].append(WaitTicket(fork))
        self._joined = False
        self._lane = 1
        try:
            yield
        finally:
            self._lane = 0

    def join(self) -> None:
        """The node lane goes on only when everything posted on both lanes is done."""
        if self._joined:
            return
        for lane in (1, 0):
            self._lane = lane
            for ticket in list(self._outstanding[lane]):
                self.need(ticket)
        if self._forked:
            end = self._tickets
            self._tickets += 1
            self._lanes[1].append(SetTicket(end))
            self._lanes[0].append(WaitTicket(end))
        self._joined = True

    def root_exchange(self, nbytes: int, *, one_block: bool = False, meets: bool = False) -> bool:
        """Whether the node roots are to move everything, the others only arrive and leave.

        Across a few nodes, under ALLSYNC both ways, for at most ``root_exchange_max`` bytes per
        node, or ``root_exchange_max_one_block`` if what crosses is not more than `one_block`.
        `meets`: under any mode, since the algorithm has all threads meet before and after what the
        node roots do. Waking a thread costs more than to copy a small block for it, and between
        node roots the data travels with the barrier: so no message may depend on another one.
        """
        self._led = (
            1 < self.tree.node_count <= self.tuning["few_nodes_max"]
            and (meets or self.sync == ("all", "all"))
            and nbytes
            <= self.tuning["root_exchange_max_one_block" if one_block else "root_exchange_max"]
            and not self._may_raise
        )
        return self._led

    # -- synchronisation of an algorithm's own scratch --------------------------------
    def barrier(self) -> None:
        """All threads of the team have come here."""
        if self.size > 1:
            self._add(Barrier())

    def node_barrier(self) -> None:
        """All threads of my node have come here."""
        if self.one_node:
            self.barrier()
            return
        if self._meeting is None:
            self._meeting = self.channel()
        self._met += 1
        self.signal(self._meeting, self.node_ranks(), self._met)
        self.wait(self._meeting, self.node_ranks(), self._met)

    def after(self, owners: Who, users: Who, *, node_only: bool = False) -> None:
        """`users` go on when `owners` have come here."""
        self._handshake(owners, users, node_only)

    def after_each(self, owners: Iterable[int], users: Iterable[int]) -> None:
        """`after` where each thread has its own: I go on after `owners`, `users` after me."""
        self._pass_word(users, owners)

    # -- synchronisation of the caller's data ---------------------------------------
    def ready(self, owners: Who, users: Who, *, node_only: bool = False) -> None:
        """Before `users` touch data of `owners`: under MYSYNC wait until those entered."""
        if not node_only:
            self.expose()
        if self.sync[0] == "my":
            self._handshake(owners, users, node_only)

    def node_entered(self) -> None:
        """`entered` of all threads of my node to all of them."""
        if self.sync[0] != "all":
            self._handshake(NODE, NODE, node_only=True)

    def peer_entered(self, owners: Iterable[int], users: Iterable[int]) -> None:
        """Before I write to scratch of `owners`, `users` to mine: those of my node are there.

        Unlike data, scratch may be in use until its thread enters, whatever the modes.
        """
        if self.sync[0] != "all":
            near = (sorted({r for r in who if self.on_my_node(r)}) for who in (users, owners))
            self._pass_word(*near)

    def done(self, users: Who, owners: Who, *, node_only: bool = False) -> None:
        """After `users` touched data of `owners`: under MYSYNC tell those."""
        if self.sync[1] == "my":
            self.join()
            self._handshake(users, owners, node_only)

    def ready_each(
        self, owners: Iterable[int], users: Iterable[int], *, node_only: bool = False
    ) -> None:
        """`ready` where each thread has its own: I touch data of `owners`, `users` mine."""
        if not node_only:
            self.expose()
        if self.sync[0] == "my":
            self._pass_word(users, owners)

    def done_each(self, owners: Iterable[int], users: Iterable[int]) -> None:
        """`done` where each thread has its own: I touched data of `owners`, `users` mine."""
        if self.sync[1] == "my":
            self.join()
            self._pass_word(owners, users)

    def _pass_word(self, to: Iterable[int], of: Iterable[int]) -> None:
        """Tell some threads where I am, and wait for the word of some."""
        channel = self.channel()
        for rank in sorted({*to} - {self.me}):
            self.tell(channel, rank)
        for rank in sorted({*of} - {self.me}):
            self.hear(channel, rank)

    def _is(self, who: Who) -> bool:
        return who in (ALL, NODE) or who == self.me

    def _node_ranks_in(self, who: Who) -> tuple[Ranks, ...]:
        if self.tree.node_size(self.my_node) == 1:
            return ()
        if isinstance(who, int):  # myself too: I may be about to wait for all, me included
            return (Ranks(who),) if self.on_my_node(who) else ()
        return self.node_ranks()

    def _handshake(self, givers: Who, takers: Who, node_only: bool) -> None:
        if givers == ALL and takers == ALL and not node_only:
            self._add(Barrier())  # everybody waits for everybody: that is one
            return
        channel = self.channel()
        across = not node_only and not self.one_node and NODE not in (givers, takers)
        if self._is(givers):
            self.signal(channel, self._node_ranks_in(takers))
            if across and (takers == ALL or not self._is_near(takers)):
                self._add(NetSignal(channel, self._ranks(takers), self._ticket()))
        if self._is(takers) and givers != self.me:
            self.wait(channel, self._node_ranks_in(givers))
            if across and (givers == ALL or not self._is_near(givers)):
                ticket = self._ticket()
                self._add(NetWait(channel, self._ranks(givers), ticket))
                self.need(ticket)

    def _is_near(self, who: Who) -> bool:
        return isinstance(who, int) and self.on_my_node(who)

    def _ranks(self, who: Who) -> Ranks:
        return Ranks(who) if isinstance(who, int) else Ranks(0, self.size)

    @contextmanager
    def single_mover(self, by: int, *, anyone: bool = False) -> Iterator[None]:
        """One thread of the node moves all data; the whole of a one-node algorithm.

        Under ALLSYNC both ways this is one fan-in and one fan-out with the data
        moved in between; `anyone` then lets the last to arrive do it.
        """
        assert self.one_node
        fused = self.sync == ("all", "all") and self.size > 1 and not self._may_raise
        self.ready(ALL, by)
        mark = len(self._lanes[0])
        yield
        body = self._lanes[0][mark:]
        del self._lanes[0][mark:]
        mine = body if self.me == by or (anyone and fused) else []
        if fused:
            assert all(isinstance(s, Copy | Swap | Fold | Scan) for s in body)
            self._add(FusedBarrier(None if anyone else by, tuple(mine)))  # type: ignore[arg-type]
            self._fused = True
        else:
            self._lanes[0].extend(mine)
        self.done(by, ALL)

    # -- the end ---------------------------------------------------------------------
    def plan(self, collective: str, algorithm: str, *, private: bool = False) -> Plan:
        """What was recorded, with the barriers of ALLSYNC around it."""
        node, net = self._lanes
        if self.sync[1] == "all":
            self.join()
        if self._fused:
            assert len(node) == 1
        elif self.size > 1:
            if self.sync[0] == "all":
                node.insert(0, Barrier())
            if self.sync[1] == "all":
                node.append(Barrier())
        return Plan(
            collective,
            algorithm,
            self.me,
            self.size,
            (tuple(node), tuple(net)),
            self._tickets,
            self.sync,
            self._one_sided,
            self._led,
            self.kernel,
            self._scratch,
            private,
        )


Algorithm = Callable[..., None]


def _ranks(runs: Iterable[Run]) -> tuple[Ranks, ...]:
    """Runs of threads, as steps have them."""
    return tuple(Ranks(run.first, run.count, run.step) for run in runs)


def trace(
    algorithm: Algorithm,
    name: str,
    collective: str,
    me: int,
    tree: Tree,
    sync: tuple[str, str],
    tuning: Mapping[str, int],
    arguments: Sequence[object],
    kernel: Any = None,
    *,
    private: bool = False,
) -> Plan:
    """Run `algorithm` for thread `me` and return the plan that it leaves.

    `private`: operands 0 and 1 are each thread's own.
    """
    recorder = Recorder(me, tree, sync, tuning, kernel)
    algorithm(recorder, *arguments)
    return recorder.plan(collective, name, private=private)
