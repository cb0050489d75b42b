"""Plans made ready for the simulator: rows unrolled, same-node peers left out, checked.

A :class:`Program` holds for each lane a list of ``(kind, argument)``.  Whatever is
wrong with a step on its own, such as a copy from a thread that is not on the node,
is found here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ..plan.draw import step_text
from ..plan.steps import (
    LANES,
    SLOT,
    Barrier,
    Copy,
    Fold,
    Fused,
    Get,
    Need,
    NetSignal,
    NetWait,
    Part,
    Plan,
    Post,
    Ranks,
    Recv,
    Scan,
    Send,
    Signal,
    Step,
    Swap,
    Wait,
)
from ..topology import Tree
from .folding import reads, writes

__all__ = [
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
    "ProtocolError",
    "SimulationError",
    "Span",
    "Swaps",
    "Work",
]

COPY, SIGNAL, WAIT, SEND, RECV, GET, NEED, POST, BARRIER, FUSED, WORK = range(11)

DATA: Final = -1
"""The message channel of Send and Recv; those of NetSignal and NetWait are 0 and up."""

_SHOWN: Final = 12


class SimulationError(Exception):
    """The plans are wrong; `findings` says what was seen."""

    def __init__(self, *findings: object) -> None:
        self.findings = findings
        shown = [str(finding) for finding in findings[:_SHOWN]]
        if len(findings) > _SHOWN:
            shown.append(f"... and {len(findings) - _SHOWN} more")
        super().__init__("\n".join(shown))


class ProtocolError(SimulationError):
    """A step that no engine could carry out, or two that do not fit together."""


class Span(NamedTuple):
    """Bytes ``lo:hi``, counted from the operand's address on `thread`."""

    operand: int
    thread: int
    lo: int
    hi: int


class Moves(NamedTuple):
    """Blocks to copy, and what that reads and writes, adjacent blocks in one."""

    blocks: tuple[tuple[Span, Span], ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Swaps(NamedTuple):
    """Pairs of blocks that change places; all of them are read and written."""

    pairs: tuple[tuple[Span, Span], ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Work(NamedTuple):
    """A Fold or Scan."""

    step: Fold | Scan
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


class Message(NamedTuple):
    """One peer's message: its blocks are in memory order of the message."""

    peer: int
    blocks: tuple[Span, ...]
    nbytes: int


class Exchange(NamedTuple):
    """A Send, Recv, NetSignal or NetWait: all its messages."""

    channel: int
    ticket: int
    messages: tuple[Message, ...]
    spans: tuple[Span, ...]


def _merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    out: list[Span] = []
    for s in spans:
        if out and out[-1].hi == s.lo and out[-1][:2] == s[:2]:
            out[-1] = Span(s.operand, s.thread, out[-1].lo, s.hi)
        else:
            out.append(s)
    return tuple(out)


class Program:
    """A plan made ready to be simulated on a tree; immutable, so reusable for many calls."""

    __slots__ = ("_near", "lanes", "name", "plan", "tree")

    def __init__(self, plan: Plan, tree: Tree) -> None:
        self.plan = plan
        self.tree = tree
        self.name = f"{plan.collective} by {plan.algorithm}"
        index = tree.node_index
        self._near: list[bool] = (index == index[plan.rank]).tolist()
        self.lanes: tuple[list[tuple[int, Any]], ...] = tuple(
            [self._compiled(lane, i, step) for i, step in enumerate(steps)]
            for lane, steps in enumerate(plan.lanes)
        )

    def _compiled(self, lane: int, index: int, step: Step) -> tuple[int, Any]:
        try:
            return self._compile(step, lane)
        except _Wrong as wrong:
            raise ProtocolError(
                f"thread {self.plan.rank}, {self.name}, {LANES[lane]} lane, "
                f"step {index}: {step_text(step)}: {wrong}"
            ) from None

    def _compile(self, step: Step, lane: int) -> tuple[int, Any]:
        match step:
            case Copy():
                return COPY, self._moves((step,), skip_near=False)
            case Swap():
                return COPY, self._swaps(step)
            case Signal():
                self._all_near(step.to)
                return SIGNAL, (step.channel, step.value, step.to)
            case Wait():
                self._all_near(step.of)
                return WAIT, (step.channel, step.value, tuple(step.of))
            case NetSignal():
                return SEND, self._empty(step.channel, step.ticket, step.to)
            case NetWait():
                return RECV, self._empty(step.channel, step.ticket, step.of)
            case Send():
                return SEND, self._messages(step, step.to)
            case Recv():
                return RECV, self._messages(step, step.of)
            case Get():
                return GET, (step.ticket, self._moves((step,), skip_near=True))
            case Need():
                return NEED, self._ticket(step.ticket)
            case Post():
                return POST, self._ticket(step.ticket)
            case Barrier():
                if lane:
                    raise _Wrong("barriers belong on the node lane")
                return BARRIER, None
            case Fused():
                if lane or self.tree.node_count > 1:
                    raise _Wrong("belongs on the node lane of a team inside one node")
                body = tuple(self._compile(part, lane) for part in step.body)
                return FUSED, (step.by, body, step.body)
            case Fold() | Scan():
                return WORK, self._work(step)
        raise _Wrong("unknown kind of step")

    def _ticket(self, ticket: int) -> int:
        if not 0 <= ticket < self.plan.tickets:
            raise _Wrong(f"the plan has {self.plan.tickets} tickets")
        return ticket

    def _all_near(self, ranks: Ranks) -> None:
        for rank in ranks:
            self._is_near(rank)

    def _is_near(self, rank: int) -> None:
        if not 0 <= rank < self.plan.size:
            raise _Wrong(f"thread {rank} does not exist")
        if not self._near[rank]:
            raise _Wrong(f"thread {rank} is not on the node of thread {self.plan.rank}")

    def _span(self, part: Part, i: int, nbytes: int, shift: int = 0) -> Span:
        self._may_touch(part.block(i))
        lo = part.offset + i * part.offset_step + shift
        return Span(part.operand, part.thread + i * part.thread_step, lo, lo + nbytes)

    def _moves(self, steps: Iterable[Copy | Get], *, skip_near: bool) -> Moves:
        blocks = []
        for step in steps:
            for i in range(step.count):
                dst = self._span(step.dst, i, step.nbytes)
                src = self._span(step.src, i, step.nbytes)
                if skip_near:
                    if not 0 <= src.thread < self.plan.size:
                        raise _Wrong(f"thread {src.thread} does not exist")
                    if self._near[src.thread]:
                        continue
                else:
                    self._is_near(src.thread)
                self._is_near(dst.thread)
                blocks.append((dst, src))
        return Moves(tuple(blocks), _merge(b[1] for b in blocks), _merge(b[0] for b in blocks))

    def _swaps(self, step: Swap) -> Swaps:
        pairs = []
        for i in range(step.count):
            pair = self._span(step.a, i, step.nbytes), self._span(step.b, i, step.nbytes)
            for span in pair:
                self._is_near(span.thread)
            pairs.append(pair)
        spans = _merge(span for side in (0, 1) for span in (pair[side] for pair in pairs))
        return Swaps(tuple(pairs), spans, spans)

    def _may_touch(self, part: Part) -> None:
        if self.plan.private and part.operand < SLOT and part.thread != self.plan.rank:
            raise _Wrong(f"operand {part.operand} of thread {part.thread} is private")

    def _work(self, step: Fold | Scan) -> Work:
        size = self.plan.kernel.dtype.itemsize

        def spans(parts: Iterable[tuple[Part, int]]) -> tuple[Span, ...]:
            out = [Span(p.operand, p.thread, p.offset, p.offset + n * size) for p, n in parts]
            for span in out:
                self._is_near(span.thread)
                self._may_touch(Part(span.operand, span.thread))
            return _merge(out)

        return Work(step, spans(reads(step, size)), spans(writes(step)))

    def _peers(self, ranks: Ranks) -> list[tuple[int, int]]:
        """Those off my node, with their places among `ranks`."""
        out = []
        for i, rank in enumerate(ranks):
            if not 0 <= rank < self.plan.size:
                raise _Wrong(f"thread {rank} does not exist")
            if not self._near[rank]:
                out.append((i, rank))
        return out

    def _messages(self, step: Send | Recv, ranks: Ranks) -> Exchange:
        messages = []
        each = [(part, piece.nbytes) for piece in step.blocks for part in piece.each()]
        for i, peer in self._peers(ranks):
            shift = i * step.peer_step
            blocks = tuple(self._span(part, 0, nbytes, shift) for part, nbytes in each)
            messages.append(Message(peer, blocks, sum(nbytes for _, nbytes in each)))
        for message in messages[:1]:
            for block in message.blocks:
                self._is_near(block.thread)
        spans = _merge(b for m in messages for b in m.blocks)
        return Exchange(DATA, self._ticket(step.ticket), tuple(messages), spans)

    def _empty(self, channel: int, ticket: int, ranks: Ranks) -> Exchange:
        messages = tuple(Message(peer, (), 0) for _, peer in self._peers(ranks))
        return Exchange(channel, self._ticket(ticket), messages, ())


class _Wrong(Exception):
    """What is wrong with a step; which one is added further up."""
