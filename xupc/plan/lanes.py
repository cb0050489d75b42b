"""The two lanes of a plan while they are recorded: a method for each step, tickets and channels.

Tickets are numbered in the order in which they are made. Every thread makes the same sequence of
calls that take a channel, so that all agree on the channels' numbers without communication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from ..errors import warn
from .placement import Placement
from .steps import (
    FOLD_DEPTH,
    STAGING,
    BlockRef,
    Blocks,
    Copy,
    CopyBack,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
    FoldOperand,
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
    from ..topology.tree import Tree

__all__ = ["CHANNELS", "LaneRecorder"]

CHANNELS: Final = 13
"""The number of signal channels of one operation: they fill two cache lines, the first five one."""


class LaneRecorder(Placement):
    """Record steps of thread `me` on the node lane and, inside `net`, on the net lane."""

    def __init__(self, me: int, tree: Tree, tuning: Mapping[str, int], kernel: Any = None) -> None:
        super().__init__(me, tree, tuning, kernel)
        self._lanes: tuple[list[Step], list[Step]] = ([], [])
        self._lane = 0
        self._tickets = 0
        # dicts as sets that keep their order
        self._outstanding: tuple[dict[int, None], dict[int, None]] = ({}, {})
        self._windows: dict[tuple[int, str], list[int]] = {}
        self._channels = 0
        self._forked = False
        self._joined = True
        self._scratch = kernel is not None
        self._exposed_from = 0  # the offset at which my exposed memory begins
        self._known: dict[Any, Any] = {}

    def _add(self, step: Step) -> None:
        self._lanes[self._lane].append(step)

    def _ticket(self) -> int:
        """Return a ticket that the step recorded next will set."""
        ticket = self._tickets
        self._tickets += 1
        self._outstanding[self._lane][ticket] = None
        self._joined = False
        return ticket

    def _bounded(self, kind: str) -> int:
        """Return such a ticket, after a wait that leaves less than `window` of its kind open."""
        open_here = self._windows.setdefault((self._lane, kind), [])
        while len(open_here) >= self.tuning["window"]:
            oldest = open_here.pop(0)
            if oldest in self._outstanding[self._lane]:
                self.need(oldest)
        ticket = self._ticket()
        open_here.append(ticket)
        return ticket

    def copy(self, dst: BlockRef, src: BlockRef, nbytes: int, count: int = 1) -> None:
        """Copy a row of blocks by load and store."""
        if nbytes and count:
            self._add(Copy(dst, src, nbytes, count))

    def swap(self, a: BlockRef, b: BlockRef, nbytes: int, count: int = 1) -> None:
        """Swap two rows of blocks of my node's threads."""
        if nbytes and count:
            self._add(Swap(a, b, nbytes, count))

    def offer(self, part: BlockRef, nbytes: int) -> None:
        """Let others `reach` so many bytes of my private memory, or `deposit` there.

        They may do so after my next signal to them. A plan has at most one offer.
        """
        self._scratch = True
        self._exposed_from = part.offset
        self._add(Expose(part._replace(thread_step=0, offset_step=0), nbytes))

    def reach(self, dst: BlockRef, of: Ranks, offset: int, nbytes: int) -> None:
        """Copy from the private memory of each of `of`, after their `offer`."""
        if nbytes and of.count:
            self._add(DirectGet(dst, of, offset, nbytes))

    def deposit(self, src: BlockRef, to: Ranks, offset: int, nbytes: int) -> None:
        """Copy to the private memory of each of `to`, after their `offer`."""
        if nbytes and to.count:
            self._add(DirectPut(src, to, offset, nbytes))

    def reclaim(self, part: BlockRef, nbytes: int, count: int = 1) -> None:
        """Take over what others deposited in a row of blocks, after their signals."""
        if nbytes and count:
            self._add(CopyBack(part, part.offset - self._exposed_from, nbytes, count))

    def buffer(self, thread: int, offset: int = 0, step: int = 0) -> BlockRef:
        """Return a place in a thread's staging buffer, or a row of them `step` bytes apart."""
        self._scratch = True
        part: BlockRef = self.once(BlockRef(STAGING, thread, offset, 0, step))
        return part

    def fold(
        self, dst: BlockRef, leaves: Sequence[FoldOperand], nelems: int = 1, copies: int = 1, *,
        rows: int = 1, dst_step: int = 0,
    ) -> None:
        """Fold values of my node's threads into one place (or a row of `copies`)."""
        left = accumulate(1 - leaf.joins for leaf in leaves)
        depths = [n + leaf.joins for n, leaf in zip(left, leaves, strict=True)]
        assert max(depths, default=0) <= FOLD_DEPTH
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
        """Compute running results along a block."""
        self._add(
            Scan(dst, src, nelems, carry, rows, dst_step, src_step, carry_step, reverse)
        )

    def send(
        self, to: Ranks | int, src: BlockRef, nbytes: int, count: int = 1, peer_step: int = 0
    ) -> int:
        """Send one message to each of `to` off my node; it completes before the call ends.

        Returns the ticket. `src` may be changed when that is set.
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
        """Receive one message from each of `of` off my node; return the ticket.

        Not `bounded`: the algorithm itself limits the number of open receives.
        """
        ranks = Ranks(of) if isinstance(of, int) else of
        ticket = self._bounded("recv") if bounded else self._ticket()
        self._add(Recv(ranks, dst, nbytes, ticket, count, peer_step))
        return ticket

    def send_blocks(self, to: int, blocks: Sequence[Blocks]) -> int:
        """Send all the blocks in one message to a thread off my node; return `send`'s ticket."""
        (src, nbytes, columns, rows, step), *more = blocks
        peer, step, ticket = self.once(Ranks(to)), self.once(step), self._bounded("send")
        self._add(Send(peer, src, nbytes, ticket, columns, 0, rows, step, tuple(more)))
        return ticket

    def recv_blocks(self, of: int, blocks: Sequence[Blocks], *, bounded: bool = True) -> int:
        """Receive one message from a thread off my node into all the blocks; return the ticket."""
        (dst, nbytes, columns, rows, step), *more = blocks
        peer, step = self.once(Ranks(of)), self.once(step)
        ticket = self._bounded("recv") if bounded else self._ticket()
        self._add(Recv(peer, dst, nbytes, ticket, columns, 0, rows, step, tuple(more)))
        return ticket

    def once(self, value: Any) -> Any:
        """Return the same object for equal values: a plan for 10,000 nodes has many of them."""
        return self._known.setdefault(value, value)

    def get(self, dst: BlockRef, src: BlockRef, nbytes: int, count: int = 1) -> list[int]:
        """Read blocks off my node one-sided, in pieces of at most `rma_get_max` bytes.

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
        """Copy or get one block into my node's memory; return the tickets if it is off my node."""
        if self.on_my_node(src.thread):
            self.copy(dst, src, nbytes)
            return []
        return self.get(dst, src, nbytes)

    def need(self, *tickets: int) -> None:
        """Wait until the tickets are set."""
        for ticket in tickets:
            self._add(WaitTicket(ticket))
            for open_here in self._outstanding:
                open_here.pop(ticket, None)

    def post(self) -> int:
        """Return a ticket that is set when this lane has come here: for the other lane."""
        ticket = self._ticket()
        self._add(SetTicket(ticket))
        return ticket

    def channel(self) -> int:
        """Return a new signal channel of this call."""
        self._channels += 1
        if self._channels > CHANNELS:
            raise AssertionError(f"an algorithm may use {CHANNELS} channels")
        return self._channels - 1

    def turn(self, number: int) -> None:
        """Begin a turn of this lane: the steps of stripes take turns in this order.

        Only calls with several roots per node have stripes (`plan.stripes`). Numbers ascend in each
        lane. A step may only wait for steps of the same turn or of earlier ones, on any thread,
        and both ends of a message are in the same turn.
        """

    def signal(self, channel: int, to: Sequence[Ranks], value: int = 1) -> None:
        """Raise my channel to `value`, for those in `to`."""
        for ranks in to:
            self._add(Signal(channel, ranks, value))

    def signal_thread(self, channel: int, rank: int, value: int = 1) -> None:
        """Signal one thread on any node; each signal off my node needs one `wait_for_thread`."""
        if self.on_my_node(rank):
            self.signal(channel, (Ranks(rank),), value)
        else:
            self._add(NetSignal(channel, Ranks(rank), self._ticket()))

    def wait_for_thread(self, channel: int, rank: int, value: int = 1) -> None:
        """Wait for the `signal_thread` of a thread on any node."""
        if self.on_my_node(rank):
            self.wait(channel, rank, value)
        else:
            ticket = self._ticket()
            self._add(NetWait(channel, Ranks(rank), ticket))
            self.need(ticket)

    def tell(self, channel: int, rank: int, value: int = 1) -> None:
        """Do as `signal_thread`, whose old name this is."""
        _renamed("tell", "signal_thread")
        self.signal_thread(channel, rank, value)

    def hear(self, channel: int, rank: int, value: int = 1) -> None:
        """Do as `wait_for_thread`, whose old name this is."""
        _renamed("hear", "wait_for_thread")
        self.wait_for_thread(channel, rank, value)

    def wait(self, channel: int, of: Sequence[Ranks] | int, value: int = 1) -> None:
        """Wait until each of `of` on my node has signalled `value`."""
        for ranks in (Ranks(of),) if isinstance(of, int) else of:
            self._add(Wait(channel, ranks, value))

    @contextmanager
    def net(self) -> Iterator[None]:
        """Record on the net lane, which starts where the node lane is at its first use."""
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
        """Let the node lane wait until everything posted on both lanes is done."""
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


def _renamed(old: str, new: str) -> None:
    """Warn the author of a variant."""
    warn(f"the recorder's {old} is now called {new}: rename it", DeprecationWarning)
