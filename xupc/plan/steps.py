"""The vocabulary of plans: what one thread does in one call, as data.

A plan has two lanes, ``node`` and ``net``, each a straight list of steps that is
done in order; the lanes are tied by tickets.  Steps name operands and offsets,
never addresses: those are bound at the call.  Threads are ranks in the team.

Meaning, for every interpreter (native, Python, simulated, drawn):

============  ==================================================================
Copy          load/store copy between two threads of my node
Swap          two threads' blocks on my node change places
Expose        my node's threads may reach into my private memory from this place on
DirectGet     copy a block of what each of `of` on my node has offered, straight from there
DirectPut     copy a block to where each of `to` on my node has offered room, straight there
CopyBack      what others have deposited is where I want it, if they had other room than that
Signal        count up my channel; those in `to` on my node may be waiting for it
Wait          until each of `of` on my node has counted its channel up to `value`
NetSignal     an empty message to each of `to` that is not on my node
NetWait       an empty message from each of `of` that is not on my node
Send, Recv    one message per peer off my node; does not block, sets `ticket` when
              its memory is free (Send) or filled (Recv)
Get           one-sided read from a thread off my node; sets `ticket` when filled
WaitTicket    until `ticket` is set
SetTicket     set `ticket` (from one lane to the other)
Barrier       until all threads of the team are in the same barrier
FusedBarrier  barrier whose middle one thread carries out: all arrive, the
              executor does `body`, all are released
Fold          values of threads of my node to fewer, by the plan's kernel
Scan          running results along a block, by the plan's kernel
============  ==================================================================

A Get, Send or Recv over several peers sets its ticket when all of them are done.
A message is any number of blocks, in the order in which the step lists them; only the
bytes count, so the two ends may cut them differently.

Operands 0 and 1 are the call's own: shared, or each thread's private memory, which others
cannot touch (`Plan.private`) but by a DirectGet or DirectPut. `OP_SCRATCH` is a little scratch on
each thread that only this operation uses; `STAGING` is a larger piece of scratch that calls use one
after the other: an algorithm must itself see to it that nobody still reads or writes a
thread's staging buffer for an earlier call.

An operation is over when both lanes are at their end and every ticket is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
    "Plan",
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
    "barrier_plan",
    "parts_of",
]

LANES = ("node", "net")
OP_SCRATCH, STAGING = 2, 3
"""Operands that are scratch."""
OP_SCRATCH_BYTES, STAGING_BYTES = 1024, 1 << 20
"""Of one operation's op_scratch, and of the staging buffer, on each thread."""
SLOTS = 64
"""Operations that have a op_scratch of their own."""
FOLD_DEPTH = 34
"""Most values of a Fold that are not yet combined: enough for 2^32 leaves of `tree_joins`."""


@record
class Ranks:
    """``first, first + step, ...``: `count` ranks of the team."""

    first: int
    count: int = 1
    step: int = 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.count * self.step, self.step))

    def __contains__(self, rank: object) -> bool:
        return rank in range(self.first, self.first + self.count * self.step, self.step)

    def cut(self, at: int, count: int) -> Ranks:
        """`count` of them from the one at `at` on."""
        return Ranks(self.first + at * self.step, count, self.step)

    def then(self, more: Ranks) -> Ranks | None:
        """These and others as one run, if that goes on evenly."""
        step = self.step
        if self.count == 1:
            step = more.first - self.first if more.count == 1 else more.step
        end = self.first + self.count * step
        if step < 1 or more.first != end or (more.count > 1 and more.step != step):
            return None
        return Ranks(self.first, self.count + more.count, step)

    def without(self, rank: int | None) -> tuple[Ranks, ...]:
        """What is left when one of them is taken out: up to two runs."""
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
    """A block of an operand's memory on one thread, or a row of such blocks.

    Block i of a row is on thread ``thread + i * thread_step``, at
    ``offset + i * offset_step`` bytes from the operand's address there.
    """

    operand: int
    thread: int
    offset: int = 0
    thread_step: int = 0
    offset_step: int = 0

    def block(self, i: int) -> BlockRef:
        """The i-th block of the row alone."""
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
    """A row of `columns` blocks of `nbytes`, `rows` times over: as a piece of a message.

    Each row is ``row_step[0]`` threads and ``row_step[1]`` bytes further on.
    """

    part: BlockRef
    nbytes: int
    columns: int = 1
    rows: int = 1
    row_step: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self.nbytes * self.columns * self.rows

    def each(self) -> Iterator[BlockRef]:
        """The blocks one by one, row after row."""
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
    """Base of all steps."""

    __slots__ = ()


@record
class Copy(Step):
    """`count` blocks of `nbytes`, row to row."""

    dst: BlockRef
    src: BlockRef
    nbytes: int
    count: int = 1


@record
class Swap(Step):
    """`count` blocks of `nbytes` change places with as many others, row with row."""

    a: BlockRef
    b: BlockRef
    nbytes: int
    count: int = 1


@record
class Expose(Step):
    """Where `nbytes` begin that others may read or write; the address heads my op_scratch."""

    part: BlockRef
    nbytes: int


@record
class DirectGet(Step):
    """To a row of blocks, of each of `of` in turn what lies `offset` bytes into its Offer."""

    dst: BlockRef
    of: Ranks
    offset: int
    nbytes: int


@record
class DirectPut(Step):
    """A row of blocks, to each of `to` in turn, `offset` bytes into its Offer."""

    src: BlockRef
    to: Ranks
    offset: int
    nbytes: int


@record
class CopyBack(Step):
    """A row of blocks in which others made deposits; it begins `offset` bytes into my Offer."""

    part: BlockRef
    offset: int
    nbytes: int
    count: int = 1


@record
class Signal(Step):
    """My channel now stands at `value`."""

    channel: int
    to: Ranks
    value: int = 1


@record
class Wait(Step):
    """Until the channel of each of `of` on my node stands at `value` or above."""

    channel: int
    of: Ranks
    value: int = 1


@record
class NetSignal(Step):
    """An empty message to each of `to` that is off my node."""

    channel: int
    to: Ranks
    ticket: int


@record
class NetWait(Step):
    """Take an empty message from each of `of` that is off my node."""

    channel: int
    of: Ranks
    ticket: int


@record
class Send(Step):
    """To each of `to` off my node one message: `rows` rows of `count` blocks, then `more`.

    The i-th peer's message starts `i * peer_step` bytes further on.
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
    """From each of `of` off my node one message, to be laid out as in Send."""

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
    """One-sided: `count` blocks into my node's memory; blocks on my node are skipped."""

    dst: BlockRef
    src: BlockRef
    nbytes: int
    ticket: int
    count: int = 1


@record
class WaitTicket(Step):
    """Until the ticket is set."""

    ticket: int


@record
class SetTicket(Step):
    """Set the ticket."""

    ticket: int


@record
class Barrier(Step):
    """Until all threads of the team have arrived, with equal fingerprints."""


class FoldOperand(NamedTuple):
    """An operand of a Fold: `times` blocks, ``part.offset_step`` bytes apart on one thread.

    They are folded in order; then the value is combined `joins` times with the last one
    that is not yet combined: reverse Polish notation, which can say any tree. In the next
    row of the Fold everything is `step` bytes further on.
    """

    part: BlockRef
    times: int = 1
    joins: int = 0
    step: int = 0


@record
class Fold(Step):
    """`nelems` results, each folded over the same element of all leaves' blocks.

    They go to `copies` places (a row from `dst` on). With one element a leaf whose blocks
    lie side by side is folded in the kernel's order of runs, else block after block.
    All this `rows` times, dst `dst_step` bytes further on each time.
    """

    dst: BlockRef
    leaves: tuple[FoldOperand, ...]
    nelems: int
    copies: int = 1
    rows: int = 1
    dst_step: int = 0


@record
class Scan(Step):
    """``dst[i] = carry op src[0] op ... op src[i]`` along a block, `rows` times.

    `reverse`: ``dst[i] = src[i] op ... op src[nelems - 1] op carry``. The blocks, and the
    carries, are `step` and `carry_step` bytes apart; without a carry the first is src's own.
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
    """All arrive; one thread does `body`; all are released.

    `by` None: any thread may do it (all have the body).  Only on teams that are
    inside one node.
    """

    by: int | None
    body: tuple[Copy | Swap | Fold | Scan, ...]


def barrier_plan(rank: int, size: int) -> Plan:
    """A plan that is one barrier."""
    steps: tuple[Step, ...] = (Barrier(),) if size > 1 else ()
    return Plan("barrier", "barrier", rank, size, (steps, ()), 0, ("all", "all"))


def parts_of(step: Step) -> Iterator[BlockRef]:
    """Where a step reads and writes; of rows where they begin."""
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


@record
class Plan:
    """One thread's steps for one call.

    Attributes
    ----------
    collective, algorithm
        What it does and how; `algorithm` begins pull, push or multicore.
    rank, size
        Whose plan it is, in a team of how many.
    lanes
        The node lane and the net lane.
    tickets
        Number of tickets in use.
    sync
        ``(in, out)``: each of ``"no"``, ``"my"``, ``"all"``.
    one_sided
        Whether threads read other nodes' memory in this call, so that all must poll.
    led
        Whether node roots alone have anything to do between the first and the last
        barrier, and no message of theirs depends on another one: then an engine may wake
        the others only once and send the data with the first barrier.
    kernel
        What Fold and Scan do to values: an object with `dtype`, `combine`, `fold` and
        `scan` (`xupc.reduction.kernels`).
    scratch
        Whether steps name op_scratch or staging buffer.
    private
        Whether operands 0 and 1 are each thread's own memory, out of the others' reach.
    """

    collective: str
    algorithm: str
    rank: int
    size: int
    lanes: tuple[tuple[Step, ...], tuple[Step, ...]]
    tickets: int
    sync: tuple[str, str]
    one_sided: bool = False
    led: bool = False
    kernel: Any = None
    scratch: bool = False
    private: bool = False

    def bytes_between_nodes(self, node_of: Callable[[int], int]) -> int:
        """What the thread sends to other nodes or reads there in one call; none twice."""
        mine, found = node_of(self.rank), 0
        for step in self.steps:
            match step:
                case Send():
                    peers = sum(node_of(rank) != mine for rank in step.to)
                    found += peers * sum(b.size for b in step.blocks)
                case Get():
                    of = (step.src.block(i).thread for i in range(step.count))
                    found += step.nbytes * sum(node_of(rank) != mine for rank in of)
        return found

    @property
    def steps(self) -> Iterator[Step]:
        """All steps of both lanes."""
        for lane in self.lanes:
            yield from lane

    @property
    def uses_buffer(self) -> bool:
        """Whether any step reads or writes a staging buffer."""
        return any(part.operand == STAGING for step in self.steps for part in parts_of(step))

    @property
    def barriers(self) -> int:
        """How many full barriers (fused ones included) the call makes."""
        return sum(isinstance(s, Barrier | FusedBarrier) for s in self.steps)

    def __str__(self) -> str:
        from .draw import draw

        return draw(self)
