"""The steps of plans: what one thread does in one call, as data.

A plan has two lanes, ``node`` and ``net``, each a straight list of steps that a backend carries
out in order. Tickets order steps of different lanes. Steps name operands and offsets, never
addresses: those are bound at the call. Threads are ranks in the team.

Each step means the same to every backend (native, Python, simulated) and in a drawing:

============  ==================================================================
Copy          Copy a block between two threads of my node by load and store.
Swap          Exchange the contents of two threads' blocks on my node.
Expose        Let my node's threads access my private memory from this place on.
DirectGet     Copy a block from the exposed memory of each of `of` on my node.
DirectPut     Copy a block to the exposed memory of each of `to` on my node.
CopyBack      Copy data that others put into my exposed memory to its place, if that is elsewhere.
Signal        Increase the count of my channel; threads in `to` on my node may wait for it.
Wait          Wait until each of `of` on my node has increased its channel's count to `value`.
NetSignal     Send an empty message to each of `to` that is not on my node.
NetWait       Wait for an empty message from each of `of` that is not on my node.
Send, Recv    Post one message per peer off my node; do not block. Set `ticket` when its memory
              is free (Send) or filled (Recv).
Get           Read from a thread off my node one-sided; set `ticket` when the data is here.
WaitTicket    Wait until `ticket` is set.
SetTicket     Set `ticket` (from one lane to the other).
Barrier       Wait until all threads of the team are in the same barrier.
FusedBarrier  Run steps inside a barrier: all arrive, one thread runs `body`, all are released.
Fold          Combine values of threads of my node to fewer values, with the plan's kernel.
Scan          Compute running results along a block, with the plan's kernel.
============  ==================================================================

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

from collections.abc import Iterator
from typing import NamedTuple

from ..records import record

__all__ = [
    "STAGING",
    "STAGING_BYTES",
    "FOLD_DEPTH",
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
    """Copy `count` blocks of `nbytes` from row to row."""

    dst: BlockRef
    src: BlockRef
    nbytes: int
    count: int = 1


@record
class Swap(Step):
    """Swap `count` blocks of `nbytes` of one row with those of the other."""

    a: BlockRef
    b: BlockRef
    nbytes: int
    count: int = 1


@record
class Expose(Step):
    """Let others read or write `nbytes` at `part`; the address is at the start of my op_scratch."""

    part: BlockRef
    nbytes: int


@record
class DirectGet(Step):
    """Fill a row of blocks, one from each of `of`, from `offset` bytes behind its Expose."""

    dst: BlockRef
    of: Ranks
    offset: int
    nbytes: int


@record
class DirectPut(Step):
    """Put a row of blocks, one to each of `to`, at `offset` bytes behind its Expose."""

    src: BlockRef
    to: Ranks
    offset: int
    nbytes: int


@record
class CopyBack(Step):
    """Take over a row of blocks that others put; it begins `offset` bytes behind my Expose."""

    part: BlockRef
    offset: int
    nbytes: int
    count: int = 1


@record
class Signal(Step):
    """Raise my channel to `value`."""

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
    """Send an empty message to each of `to` that is off my node."""

    channel: int
    to: Ranks
    ticket: int


@record
class NetWait(Step):
    """Receive an empty message from each of `of` that is off my node."""

    channel: int
    of: Ranks
    ticket: int


@record
class Send(Step):
    """Send one message to each of `to` off my node: `rows` rows of `count` blocks, then `more`.

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
    """Receive one message from each of `of` off my node, laid out as in Send."""

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
    """Read `count` blocks one-sided into my node's memory; skip blocks on my node."""

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
    """Set the ticket."""

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
    """Fold `nelems` results, each over the same element of all leaves' blocks.

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
    """Wait for all threads, let one of them do `body`, release all.

    `by` None: any thread may do it (all have the body). It is for teams inside one node only.
    """

    by: int | None
    body: tuple[Copy | Swap | Fold | Scan, ...]


def parts_of(step: Step) -> Iterator[BlockRef]:
    """Yield the places that a step reads and writes; of rows, where they begin."""
    match step:
        case Fold():
            yield step.dst
            yield from (leaf.part for leaf in step.leaves)
        case Scan():
            yield step.dst
            yield step.src
            if step.carry is not None:
                yield step.carry
        case Copy() | Get():
            yield step.dst
            yield step.src
        case Expose() | CopyBack():
            yield step.part
        case DirectPut():
            yield step.src
        case DirectGet():
            yield step.dst
        case Send() | Recv():
            yield from (blocks.part for blocks in step.blocks)
        case FusedBarrier():
            for part in step.body:
                yield from parts_of(part)
