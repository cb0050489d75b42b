"""The places of messages in memory, computed from a plan before its operands are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..backends.native.native_core import core
from ..backends.protocol import Piece, StepMessages
from ..plan.steps import BlockRef, Blocks, NetSignal, NetWait, Ranks, Recv, Send
from ..topology.tree import Tree
from .datatypes import Grid
from .mpi import MpiContext
from .tags import DATA, SIGNAL

__all__ = ["MessageLayout", "PlacedOperand", "PlacedTeam", "UnboundOperand", "other_ends"]

MOST_COUNT = 0x7FFFFFFF  # elements of a message that the core posts: a C int

Place = Callable[[int, int], int]
"""``(rank, offset) -> address`` on this node."""


class PlacedOperand(Protocol):
    """The part of an operand that places blocks: see `xupc.backends.operand_binding`."""

    @property
    def address(self) -> int:
        """Address on the first thread of my node."""

    @property
    def stride(self) -> int:
        """Bytes from thread to thread."""

    @property
    def place(self) -> Place | None:
        """Address of each byte, if the operand is the whole heap."""


class PlacedTeam(Protocol):
    """The part of a team that places blocks."""

    @property
    def rank_tree(self) -> Tree:
        """Nodes of the ranks."""

    @property
    def node_number(self) -> int:
        """Node of this thread."""

    @property
    def places(self) -> dict[int, int]:
        """Index of each rank of my node in the node's memory."""


class UnboundOperand:
    """An operand at address 0: places in it count from where it will be bound."""

    __slots__ = ("address", "place", "stride")

    def __init__(self, bound: PlacedOperand) -> None:
        self.address = 0
        self.stride = bound.stride
        self.place = bound.place


class MessageLayout:
    """The blocks of messages of one plan in the memory of this node."""

    def __init__(
        self, network: MpiContext, team: PlacedTeam, operands: Sequence[PlacedOperand]
    ) -> None:
        self.network = network
        self.tree = team.rank_tree
        self.node = team.node_number
        self.places = team.places
        self.operands = operands

    # -- addresses -------------------------------------------------------------------
    def address(self, part: BlockRef) -> int:
        """Return the address of a block on this node."""
        operand = self.operands[part.operand]
        if operand.place is not None:
            return operand.place(part.thread, part.offset)
        return operand.address + operand.stride * self.places[part.thread] + part.offset

    def row(self, part: BlockRef, count: int) -> tuple[int, int]:
        """Return the address of a row on this node, and the bytes from block to block."""
        stride = part.offset_step
        if part.thread_step and count > 1:
            stride += self._apart(part, part.thread_step)
        return self.address(part), stride

    def _apart(self, part: BlockRef, threads: int) -> int:
        """Return the bytes from a thread's memory to that of the thread `threads` ranks higher."""
        places, stride = self.places, self.operands[part.operand].stride
        return stride * (places[part.thread + threads] - places[part.thread])

    def grids(self, blocks: Iterable[Blocks]) -> list[Grid]:
        """Return the grids of a message's blocks on this node."""
        out = []
        for part, nbytes, columns, rows, (threads, row_stride) in blocks:
            address, stride = self.row(part, columns)
            if threads and rows > 1:
                row_stride += self._apart(part, threads)
            out.append(Grid.of(address, nbytes, columns, stride, rows, row_stride))
        return out

    # -- messages --------------------------------------------------------------------
    def far(self, ranks: Ranks) -> list[tuple[int, int]]:
        """Return the (position, rank) of each rank on another node."""
        if ranks.count == 1:
            return [] if self.tree.node_of(ranks.first) == self.node else [(0, ranks.first)]
        index = self.tree.node_index
        return [(i, r) for i, r in enumerate(ranks) if index[r] != self.node]

    def describe(self, step: Send | Recv | NetSignal | NetWait) -> StepMessages | None:
        """Return the messages of a step as the core posts them; None if Python must post them."""
        ends = self.far(other_ends(step))
        if isinstance(step, NetSignal | NetWait):
            return self._empty(SIGNAL + step.channel, ends, int(isinstance(step, NetWait)))
        if not ends:
            return StepMessages(DATA, 0, [])
        operands = {blocks.part.operand for blocks in step.blocks}
        if len(operands) > 1:  # another call may bind them to other addresses
            return None
        address, _, n, datatype = self.network.shape(self.grids(step.blocks))
        if n > MOST_COUNT:
            return None
        operand = operands.pop()
        at, handle = address - self.operands[operand].address, self.network.handle_of(datatype)
        each = [(rank, operand, at + i * step.peer_step, n, handle) for i, rank in ends]
        types = 0 if datatype is self.network.mpi.BYTE else core.types()
        return StepMessages(DATA, types, each)

    def _empty(self, tag: int, ends: Iterable[tuple[int, int]], room: int) -> StepMessages:
        """Return messages without data, of which a receiver has `room` for a byte."""
        byte = self.network.handle_of(self.network.mpi.BYTE)
        return StepMessages(tag, 0, [(rank, -1, 0, room, byte) for _, rank in ends])

    def pieces(self, steps: Iterable[Send | Recv]) -> list[Piece]:
        """Return the pieces of memory that the messages of a root exchange carry, in order."""
        found: list[Piece] = []
        for step in steps:
            peers = self.far(other_ends(step))
            for blocks in step.blocks:
                operand = blocks.part.operand
                base = self.operands[operand].address
                places = [p for grid in self.grids([blocks]) for p in grid.each()]
                for i, rank in peers:
                    shift = i * step.peer_step - base
                    found += [(rank, operand, at + shift, n) for at, n in places]
        return found


def other_ends(step: Send | NetSignal | Recv | NetWait) -> Ranks:
    """Return the ranks that a step sends to, or receives from."""
    return step.to if isinstance(step, Send | NetSignal) else step.of
