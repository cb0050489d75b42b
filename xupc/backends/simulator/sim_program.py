"""Plans made ready for the simulator: rows unrolled, same-node peers left out, checked.

A :class:`Program` holds for each lane a list of ``(kind, argument)``. This module finds
the errors of single steps, such as a copy from a thread that is not on the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...plan.draw import step_text
from ...plan.plan import Plan
from ...plan.steps import (
    LANES,
    OP_SCRATCH,
    Barrier,
    BlockRef,
    Copy,
    CopyBack,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
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
    by_kind,
)
from ...reduction.reduce_steps import reads, writes
from ...topology.tree import Tree
from .errors import ProtocolError

__all__ = [
    "ACROSS",
    "BARRIER",
    "COPY",
    "DATA",
    "FUSED",
    "GET",
    "NEED",
    "POST",
    "RECV",
    "SEND",
    "SIGNAL",
    "WAIT",
    "WORK",
    "Message",
    "Moves",
    "Program",
    "Span",
    "Swaps",
    "Work",
]

COPY, SIGNAL, WAIT, SEND, RECV, GET, NEED, POST, BARRIER, FUSED, WORK, ACROSS = range(12)

ADDRESS: Final = 8
"""Bytes of an Expose's address in the operation scratch."""

DATA: Final = -1
"""The message channel of Send and Recv; those of NetSignal and NetWait are 0 and up."""

Span = tuple[int, int, int, int]
"""(operand, thread, lo, hi): bytes ``lo:hi``, counted from the operand's address on the thread."""


class Moves(NamedTuple):
    """Blocks to copy, and the bytes that this reads and writes, adjacent blocks merged."""

    blocks: tuple[tuple[Span, Span], ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Swaps(NamedTuple):
    """Pairs of blocks to swap; all of them are read and written."""

    pairs: tuple[tuple[Span, Span], ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Work(NamedTuple):
    """A Fold or Scan."""

    step: Fold | Scan
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Offering(NamedTuple):
    """A block that others may read or write; the operation scratch holds its address."""

    span: Span
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Message(NamedTuple):
    """One peer's message, and its blocks in the order of the message."""

    peer: int
    blocks: tuple[Span, ...]
    nbytes: int


class Exchange(NamedTuple):
    """All messages of a Send, Recv, NetSignal or NetWait."""

    channel: int
    ticket: int
    messages: tuple[Message, ...]
    spans: tuple[Span, ...]


def _merge(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Merge spans that continue each other."""
    if len(spans) < 2:
        return tuple(spans)
    out: list[Span] = []
    operand = thread = lo = hi = -1
    for span in spans:
        if span[2] == hi and span[1] == thread and span[0] == operand:
            hi = span[3]
            out[-1] = operand, thread, lo, hi
        else:
            operand, thread, lo, hi = span
            out.append(span)
    return tuple(out)


def _row(part: BlockRef, nbytes: int, count: int) -> list[Span]:
    """Return the blocks of a row, one by one."""
    operand, thread, lo, threads, step = part
    if count == 1:
        return [(operand, thread, lo, lo + nbytes)]
    return [
        (operand, thread + i * threads, lo + i * step, lo + i * step + nbytes)
        for i in range(count)
    ]


class Program:
    """A plan made ready to be simulated on a tree; immutable, so reusable for many calls."""

    __slots__ = ("_near", "_private", "lanes", "name", "plan", "tree")

    def __init__(self, plan: Plan, tree: Tree) -> None:
        self.plan = plan
        self.tree = tree
        self.name = f"{plan.collective} by {plan.algorithm}"
        self._private = plan.private
        self._near = frozenset(tree.members(tree.node_of(plan.rank)).tolist())
        self.lanes = tuple(map(self._compile, range(len(plan.lanes))))

    def _compile(self, lane: int) -> list[tuple[int, Any]]:
        done: list[tuple[int, Any]] = []
        steps = self.plan.lanes[lane]
        try:
            for step in steps:
                done.append(_COMPILE[type(step)](self, step, lane))
        except _Wrong as wrong:
            raise ProtocolError(
                f"thread {self.plan.rank}, {self.name}, {LANES[lane]} lane, "
                f"step {len(done)}: {step_text(steps[len(done)])}: {wrong}"
            ) from None
        return done

    # -- each kind of step, on a lane -----------------------------------------------------
    def _copy(self, step: Copy, lane: int) -> tuple[int, Moves]:
        dst = self._near_row(step.dst, step.nbytes, step.count)
        src = self._near_row(step.src, step.nbytes, step.count)
        return COPY, Moves(tuple(zip(dst, src, strict=True)), _merge(src), _merge(dst))

    def _swap(self, step: Swap, lane: int) -> tuple[int, Swaps]:
        a = self._near_row(step.a, step.nbytes, step.count)
        b = self._near_row(step.b, step.nbytes, step.count)
        spans = _merge(a + b)
        return COPY, Swaps(tuple(zip(a, b, strict=True)), spans, spans)

    def _offer(self, step: Expose, lane: int) -> tuple[int, Offering]:
        (span,) = _row(step.part, step.nbytes, 1)
        self._may_touch((span,))
        return COPY, Offering(span, (), (self._address(self.plan.rank),))

    def _reach(self, step: DirectGet, lane: int) -> tuple[int, DirectGet]:
        self._near_row(step.dst, step.nbytes, step.of.count)
        self._all_near(step.of)
        return ACROSS, step

    def _deposit(self, step: DirectPut, lane: int) -> tuple[int, DirectPut]:
        self._near_row(step.src, step.nbytes, step.to.count)
        self._all_near(step.to)
        return ACROSS, step

    def _reclaim(self, step: CopyBack, lane: int) -> tuple[int, Moves]:
        spans = tuple(self._near_row(step.part, step.nbytes, step.count))
        return COPY, Moves((), (self._address(self.plan.rank), *spans), ())

    def _address(self, thread: int) -> Span:
        return OP_SCRATCH, thread, 0, ADDRESS

    @property
    def offering(self) -> Offering:
        """Return the block that the plan exposes."""
        for lane in self.lanes:
            for _, what in lane:
                if isinstance(what, Offering):
                    return what
        raise ProtocolError(f"thread {self.plan.rank}, {self.name}: offers nothing")

    def across(self, step: DirectGet | DirectPut, others: Sequence[Program]) -> Moves:
        """Return what a step copies from or to blocks that others expose.

        `others`: the programs of all threads.
        """
        if isinstance(step, DirectGet):
            ranks, part = step.of, step.dst
        else:
            ranks, part = step.to, step.src
        mine = tuple(_row(part, step.nbytes, ranks.count))
        theirs: list[Span] = []
        for rank in ranks:
            operand, thread, lo, hi = others[rank].offering.span
            begin = lo + step.offset
            if step.offset < 0 or begin + step.nbytes > hi:
                raise ProtocolError(
                    f"thread {self.plan.rank}, {self.name}: {step_text(step)}: not in the offer"
                )
            theirs.append((operand, thread, begin, begin + step.nbytes))
        words = tuple(self._address(rank) for rank in ranks)
        sources, targets = tuple(theirs), mine
        if isinstance(step, DirectPut):
            sources, targets = targets, sources
        return Moves(tuple(zip(targets, sources, strict=True)), words + sources, targets)

    def _get(self, step: Get, lane: int) -> tuple[int, tuple[int, Moves]]:
        dst = _row(step.dst, step.nbytes, step.count)
        src = _row(step.src, step.nbytes, step.count)
        self._may_touch(dst + src, near=False)
        blocks = [pair for pair in zip(dst, src, strict=True) if not self._is_near(pair[1][1])]
        writes, reads = [to for to, _ in blocks], [of for _, of in blocks]
        self._may_touch(writes)
        return GET, (step.ticket, Moves(tuple(blocks), _merge(reads), _merge(writes)))

    def _signal(self, step: Signal, lane: int) -> tuple[int, tuple[int, int, tuple[int, ...]]]:
        to = tuple(step.to)
        self._all_near(to)
        return SIGNAL, (step.channel, step.value, to)

    def _wait(self, step: Wait, lane: int) -> tuple[int, tuple[int, int, tuple[int, ...]]]:
        of = tuple(step.of)
        self._all_near(of)
        first, last = self.tree.local_index(of[0]), self.tree.local_index(of[-1])
        if last - first != len(of) - 1:
            raise _Wrong("waits for threads that do not follow each other on the node")
        return WAIT, (step.channel, step.value, of)

    def _net_signal(self, step: NetSignal, lane: int) -> tuple[int, Exchange]:
        return SEND, self._empty(step.channel, step.ticket, step.to)

    def _net_wait(self, step: NetWait, lane: int) -> tuple[int, Exchange]:
        return RECV, self._empty(step.channel, step.ticket, step.of)

    def _send(self, step: Send, lane: int) -> tuple[int, Exchange]:
        return SEND, self._messages(step, step.to)

    def _recv(self, step: Recv, lane: int) -> tuple[int, Exchange]:
        return RECV, self._messages(step, step.of)

    def _need(self, step: WaitTicket, lane: int) -> tuple[int, int]:
        return NEED, self._ticket(step.ticket)

    def _post(self, step: SetTicket, lane: int) -> tuple[int, int]:
        return POST, self._ticket(step.ticket)

    def _barrier(self, step: Barrier, lane: int) -> tuple[int, None]:
        if lane:
            raise _Wrong("barriers belong on the node lane")
        return BARRIER, None

    def _fused(self, step: FusedBarrier, lane: int) -> tuple[int, Any]:
        if lane or self.tree.node_count > 1:
            raise _Wrong("belongs on the node lane of a team inside one node")
        body = tuple(_COMPILE[type(part)](self, part, lane) for part in step.body)
        return FUSED, (step.by, body, step.body)

    def _work(self, step: Fold | Scan, lane: int) -> tuple[int, Work]:
        size = self.plan.kernel.dtype.itemsize

        def spans(parts: Iterable[tuple[BlockRef, int]]) -> tuple[Span, ...]:
            out = [(p.operand, p.thread, p.offset, p.offset + n * size) for p, n in parts]
            self._may_touch(out)
            return _merge(out)

        return WORK, Work(step, spans(reads(step, size)), spans(writes(step)))

    # -- checks and parts of steps -------------------------------------------------------------
    def _ticket(self, ticket: int) -> int:
        if not 0 <= ticket < self.plan.tickets:
            raise _Wrong(f"the plan has {self.plan.tickets} tickets")
        return ticket

    def _is_near(self, rank: int) -> bool:
        if not 0 <= rank < self.plan.size:
            raise _Wrong(f"thread {rank} does not exist")
        return rank in self._near

    def _all_near(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            if not self._is_near(rank):
                raise _Wrong(f"thread {rank} is not on the node of thread {self.plan.rank}")

    def _may_touch(self, spans: Iterable[Span], *, near: bool = True) -> None:
        """Check that blocks can be accessed by load and store, or (not `near`) by messages."""
        for operand, thread, _, _ in spans:
            if self._private and operand < OP_SCRATCH and thread != self.plan.rank:
                raise _Wrong(f"operand {operand} of thread {thread} is private")
            if near and thread not in self._near:
                self._all_near((thread,))

    def _near_row(self, part: BlockRef, nbytes: int, count: int) -> list[Span]:
        spans = _row(part, nbytes, count)
        self._may_touch(spans)
        if count > 2 and part.thread_step:
            self._is_progression(part.thread, count, part.thread_step)
        return spans

    def _is_progression(self, first: int, count: int, step: int) -> None:
        """Check that the parts of the node's memory that a row lies in are equally far apart."""
        place, second, last = (self.tree.place(first + i * step) for i in (0, 1, count - 1))
        if last != place + (count - 1) * (second - place):
            raise _Wrong("a row over threads whose memory is not equally far apart")

    def _peers(self, ranks: Ranks) -> list[tuple[int, int]]:
        """Return the ranks on other nodes, with their positions among `ranks`."""
        return [(i, rank) for i, rank in enumerate(ranks) if not self._is_near(rank)]

    def _messages(self, step: Send | Recv, ranks: Ranks) -> Exchange:
        messages: list[Message] = []
        spans: list[Span] = []
        peers = self._peers(ranks)
        for piece in step.blocks if peers else ():
            operand, thread, lo, columns, width = piece.part
            threads, further = piece.row_step
            for k in range(piece.rows):
                row = BlockRef(operand, thread + k * threads, lo + k * further, columns, width)
                spans += _row(row, piece.nbytes, piece.columns)
        self._may_touch(spans)
        nbytes = sum(hi - lo for _, _, lo, hi in spans)
        every: list[Span] = []
        for i, peer in peers:
            shift = i * step.peer_step
            blocks = [(op, rank, lo + shift, hi + shift) for op, rank, lo, hi in spans]
            messages.append(Message(peer, tuple(blocks), nbytes))
            # a source for several peers is read once; blocks that come from them must not overlap
            if shift or not every or isinstance(step, Recv):
                every += blocks
        return Exchange(DATA, self._ticket(step.ticket), tuple(messages), _merge(every))

    def _empty(self, channel: int, ticket: int, ranks: Ranks) -> Exchange:
        messages = tuple(Message(peer, (), 0) for _, peer in self._peers(ranks))
        return Exchange(channel, self._ticket(ticket), messages, ())


_COMPILE: Final[Mapping[type[Step], Callable[[Program, Any, int], tuple[int, Any]]]] = by_kind(
    "simulator",
    {
        Copy: Program._copy,
        Swap: Program._swap,
        Signal: Program._signal,
        Wait: Program._wait,
        NetSignal: Program._net_signal,
        NetWait: Program._net_wait,
        Send: Program._send,
        Recv: Program._recv,
        Expose: Program._offer,
        DirectGet: Program._reach,
        DirectPut: Program._deposit,
        CopyBack: Program._reclaim,
        Get: Program._get,
        WaitTicket: Program._need,
        SetTicket: Program._post,
        Barrier: Program._barrier,
        FusedBarrier: Program._fused,
        Fold: Program._work,
        Scan: Program._work,
    },
)


class _Wrong(Exception):
    """Report an error of a step; `_compile` adds which step it is."""
