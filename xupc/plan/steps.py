"""The steps of plans: what one thread does in one call, as data.

A plan has two lanes, ``node`` and ``net``, each a straight list of steps that a backend carries
out in order. Tickets order steps of different lanes. Steps name operands and offsets, never
addresses: those are bound at the call. Threads are ranks in the team.

Each kind of step is a record below; `KINDS` lists them. A kind means the same to every backend
(native, interpreter, simulator) and in a drawing. Each of these has a table with an entry for each
kind, made by `by_kind`, which refuses a table that lacks one.

A Get, Send or Recv over several peers sets its ticket when all of them are done. A message is any
number of blocks, in the order in which the step lists them. Only the bytes count, so sender and
receiver may cut them differently.

Operands 0 and 1 are the call's own: shared, or each thread's private memory (`Plan.private`).
Other threads access private memory only by a DirectGet or DirectPut. `OP_SCRATCH` is a small
scratch on each thread that only this operation uses. `STAGING` is a larger scratch that calls use
one after the other: an algorithm must ensure that no peer still reads or writes a thread's staging
buffer for an earlier call.

An operation is over when both lanes are at their end and every ticket is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from ..records import record

__all__ = [
    "STAGING",
    "STAGING_BYTES",
    "FOLD_DEPTH",
    "KINDS",
    "LANES",
    "OP_SCRATCH",
    "SLOTS",
    "OP_SCRATCH_BYTES",
    "Barrier",
    "Blocks",
    "Copy",
    "DirectPut",
    "Fold",
    "FusedBarrier",
    "Get",
    "FoldOperand",
    "WaitTicket",
    "NetSignal",
    "NetWait",
    "Expose",
    "BlockRef",
    "SetTicket",
    "Ranks",
    "DirectGet",
    "CopyBack",
    "Recv",
    "Scan",
    "Send",
    "Signal",
    "Step",
    "Swap",
    "Wait",
    "by_kind",
    "parts_of",
]

LANES = ("node", "net")
OP_SCRATCH, STAGING = 2, 3
"""Operands that are scratch."""
OP_SCRATCH_BYTES, STAGING_BYTES = 1024, 1 << 20
"""Bytes of an operation's op_scratch and of the staging buffer, on each thread."""
SLOTS = 64
"""The number of operations that have an op_scratch of their own."""
FOLD_DEPTH = 34
"""The most uncombined values of a Fold: enough for 2^32 leaves of `tree_joins`."""


@record
class Ranks:
    """Name `count` ranks of the team: ``first, first + step, ...``."""

    first: int
    count: int = 1
    step: int = 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.count * self.step, self.step))

    def __contains__(self, rank: object) -> bool:
        return rank in range(self.first, self.first + self.count * self.step, self.step)

    def cut(self, at: int, count: int) -> Ranks:
        """Return `count` of them from the one at `at` on."""
        return Ranks(self.first + at * self.step, count, self.step)

    def then(self, more: Ranks) -> Ranks | None:
        """Return these and `more` as one run; None if the step would change."""
        step = self.step
        if self.count == 1:
            step = more.first - self.first if more.count == 1 else more.step
        end = self.first + self.count * step
        if step < 1 or more.first != end or (more.count > 1 and more.step != step):
            return None
        return Ranks(self.first, self.count + more.count, step)

    def without(self, rank: int | None) -> tuple[Ranks, ...]:
        """Return what is left when one of them is taken out: up to two runs."""
        if rank is None or rank not in self:
            return (self,)
        at = (rank - self.first) // self.step
        halves = self.cut(0, at), self.cut(at + 1, self.count - at - 1)
        return tuple(half for half in halves if half.count)

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        last = self.first + (self.count - 1) * self.step
        return f"{self.first}-{last}" + (f":{self.step}" if self.step != 1 else "")


class BlockRef(NamedTuple):
    """Name a block of an operand's memory on one thread, or a row of such blocks.

    Block i of a row is on thread ``thread + i * thread_step``, at
    ``offset + i * offset_step`` bytes from the operand's address there.
    """

    operand: int
    thread: int
    offset: int = 0
    thread_step: int = 0
    offset_step: int = 0

    def block(self, i: int) -> BlockRef:
        """Return the i-th block of the row alone."""
        return BlockRef(
            self.operand,
            self.thread + i * self.thread_step,
            self.offset + i * self.offset_step,
        )

    def __add__(self, nbytes: object) -> BlockRef:
        assert isinstance(nbytes, int)
        if not nbytes:
            return self
        operand, thread, offset, thread_step, offset_step = self
        return BlockRef(operand, thread, offset + nbytes, thread_step, offset_step)


class Blocks(NamedTuple):
    """Describe a piece of a message: a row of `columns` blocks of `nbytes`, `rows` times.

    Each row is ``row_step[0]`` threads and ``row_step[1]`` bytes after the one before.
    """

    part: BlockRef
    nbytes: int
    columns: int = 1
    rows: int = 1
    row_step: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Return the bytes of all blocks."""
        return self.nbytes * self.columns * self.rows

    def each(self) -> Iterator[BlockRef]:
        """Yield the blocks one by one, row after row."""
        operand, thread, offset, thread_step, offset_step = self.part
        threads, nbytes = self.row_step
        for k in range(self.rows):
            for i in range(self.columns):
                yield BlockRef(
                    operand,
                    thread + k * threads + i * thread_step,
                    offset + k * nbytes + i * offset_step,
                )


class Step:
    """Serve as the base of all steps."""

    __slots__ = ()


@record
class Copy(Step):
    """Copy `count` blocks of `nbytes` between threads of my node by load and store."""

    dst: BlockRef
    src: BlockRef
    nbytes: int
    count: int = 1


@record
class Swap(Step):
    """Swap `count` blocks of `nbytes` of one row with those of another one on my node."""

    a: BlockRef
    b: BlockRef
    nbytes: int
    count: int = 1


@record
class Expose(Step):
    """Let my node's threads read or write `nbytes` of my private memory from `part` on.

    The address is at the start of my op_scratch.
    """

    part: BlockRef
    nbytes: int


@record
class DirectGet(Step):
    """Fill a row of blocks, one from the exposed memory of each of `of` on my node.

    A block begins `offset` bytes behind its Expose.
    """

    dst: BlockRef
    of: Ranks
    offset: int
    nbytes: int


@record
class DirectPut(Step):
    """Copy a row of blocks, one to the exposed memory of each of `to` on my node.

    A block begins `offset` bytes behind its Expose.
    """

    src: BlockRef
    to: Ranks
    offset: int
    nbytes: int


@record
class CopyBack(Step):
    """Copy a row of blocks that others put into my exposed memory to its place, if it is elsewhere.

    The row begins `offset` bytes behind my Expose.
    """

    part: BlockRef
    offset: int
    nbytes: int
    count: int = 1


@record
class Signal(Step):
    """Raise my channel to `value`; the threads in `to` on my node may wait for it."""

    channel: int
    to: Ranks
    value: int = 1


@record
class Wait(Step):
    """Wait until the channel of each of `of` on my node is at `value` or above."""

    channel: int
    of: Ranks
    value: int = 1


@record
class NetSignal(Step):
    """Send an empty message to each of `to` that is not on my node."""

    channel: int
    to: Ranks
    ticket: int


@record
class NetWait(Step):
    """Receive an empty message from each of `of` that is not on my node."""

    channel: int
    of: Ranks
    ticket: int


@record
class Send(Step):
    """Post one message to each of `to` off my node: `rows` rows of `count` blocks, then `more`.

    The ticket is set when the memory of the messages is free.
    The i-th peer's message starts `i * peer_step` bytes behind the first one's.
    """

    to: Ranks
    src: BlockRef
    nbytes: int
    ticket: int
    count: int = 1
    peer_step: int = 0
    rows: int = 1
    row_step: tuple[int, int] = (0, 0)
    more: tuple[Blocks, ...] = ()

    @property
    def blocks(self) -> tuple[Blocks, ...]:
        """All of the message."""
        return Blocks(self.src, self.nbytes, self.count, self.rows, self.row_step), *self.more


@record
class Recv(Step):
    """Post the receive of one message from each of `of` off my node, laid out as in Send.

    The ticket is set when the memory of the messages is filled.
    """

    of: Ranks
    dst: BlockRef
    nbytes: int
    ticket: int
    count: int = 1
    peer_step: int = 0
    rows: int = 1
    row_step: tuple[int, int] = (0, 0)
    more: tuple[Blocks, ...] = ()

    @property
    def blocks(self) -> tuple[Blocks, ...]:
        """All of the message."""
        return Blocks(self.dst, self.nbytes, self.count, self.rows, self.row_step), *self.more


@record
class Get(Step):
    """Read `count` blocks one-sided into my node's memory; skip blocks on my node.

    The ticket is set when the data has arrived.
    """

    dst: BlockRef
    src: BlockRef
    nbytes: int
    ticket: int
    count: int = 1


@record
class WaitTicket(Step):
    """Wait until the ticket is set."""

    ticket: int


@record
class SetTicket(Step):
    """Set the ticket, for the other lane."""

    ticket: int


@record
class Barrier(Step):
    """Wait until all threads of the team have arrived, with equal fingerprints."""


class FoldOperand(NamedTuple):
    """Name an operand of a Fold: `times` blocks on one thread, ``part.offset_step`` bytes apart.

    They are folded in order. Then the value is combined `joins` times with the last one that is
    not yet combined: reverse Polish notation, which can express any tree. In the next row of the
    Fold all offsets are `step` bytes higher.
    """

    part: BlockRef
    times: int = 1
    joins: int = 0
    step: int = 0


@record
class Fold(Step):
    """Fold `nelems` results with the plan's kernel, each over one element of all leaves' blocks.

    They go to `copies` places (a row from `dst` on). With one element, a leaf whose blocks are
    adjacent is folded in the kernel's order of runs, else block after block. All this happens
    `rows` times, with dst `dst_step` bytes higher each time. Without leaves each result is the
    operation's identity.
    """

    dst: BlockRef
    leaves: tuple[FoldOperand, ...]
    nelems: int
    copies: int = 1
    rows: int = 1
    dst_step: int = 0


@record
class Scan(Step):
    """Compute ``dst[i] = carry op src[0] op ... op src[i]`` along a block, `rows` times.

    `reverse`: ``dst[i] = src[i] op ... op src[nelems - 1] op carry``. The blocks of a row and of
    the next one are `dst_step`, `src_step` and `carry_step` bytes apart. Without a carry the first
    result is src's own. dst may be src, or lie one element beside it.
    """

    dst: BlockRef
    src: BlockRef
    nelems: int
    carry: BlockRef | None = None
    rows: int = 1
    dst_step: int = 0
    src_step: int = 0
    carry_step: int = 0
    reverse: bool = False


@record
class FusedBarrier(Step):
    """Wait until all threads have arrived, let one of them run `body`, release all.

    `by` None: any thread may do it (all have the body). It is for teams inside one node only.
    """

    by: int | None
    body: tuple[Copy | Swap | Fold | Scan, ...]


KINDS: Final[tuple[type[Step], ...]] = (
    Copy,
    Swap,
    Expose,
    DirectGet,
    DirectPut,
    CopyBack,
    Signal,
    Wait,
    NetSignal,
    NetWait,
    Send,
    Recv,
    Get,
    WaitTicket,
    SetTicket,
    Barrier,
    FusedBarrier,
    Fold,
    Scan,
)
"""All kinds of steps."""

T = TypeVar("T")


def by_kind(user: str, entries: dict[type[Step], T]) -> Mapping[type[Step], T]:
    """Return a table with an entry for each kind of step; TypeError if one is missing."""
    missing = [kind.__name__ for kind in KINDS if kind not in entries]
    unknown = [kind.__name__ for kind in entries if kind not in KINDS]
    if missing or unknown:
        raise TypeError(
            f"{user}: expected an entry for each kind of step in plan.steps.KINDS; "
            f"missing: {', '.join(missing) or 'none'}; not in KINDS: {', '.join(unknown) or 'none'}"
        )
    return entries


def parts_of(step: Step) -> Iterator[BlockRef]:
    """Yield the places that a step reads and writes; of rows, where they begin."""
    kind: type = type(step)
    for name in getattr(kind, "__match_args__", ()):
        yield from _parts(getattr(step, name))


def _parts(value: object) -> Iterator[BlockRef]:
    """Yield the places in the value of a field."""
    if isinstance(value, BlockRef):
        yield value
    elif isinstance(value, FoldOperand | Blocks):
        yield value.part
    elif isinstance(value, Step):
        yield from parts_of(value)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _parts(inner)
