"""Exchanges of messages whose lengths only their senders know.

A message travels in a slot: a head, and as much of the message as there is room for. From the heads
all threads have the length of the longest message. If that did not fit, another exchange follows.

Slots have room for the longest message of the last two calls. All threads have that length, so they
use the same size, and one exchange is enough for a call like those before it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from struct import Struct
from typing import Any

from ..api.array_arguments import Arrays, RawArguments
from ..api.uneven_blocks import Array, empty
from ..backends.native.native_core import core
from ..health.call_record import CallRecord
from ..tuning.selection import Carriers
from .method_calls import MethodCall

__all__ = [
    "LEAST", "LONGEST", "ROOM", "Message", "Received", "Slots", "slot_bytes", "slot_limit",
    "slots_of",
]  # fmt: skip

HEAD = Struct("3q")  # bytes of the longest message, of all and beside them; this one's number
LEAST = 512  # bytes of a slot
LONGEST = 1 << 16
ROOM = LONGEST - HEAD.size
"""The longest message, in bytes, that a slot can have room for."""
_ALL = 1 << 18  # bytes of the slots that a thread receives

Message = tuple[Any, int]
"""Its bytes, of which the first `ROOM` are enough, and its number: two times its length, or one
more: a mark for the receiver."""
Received = tuple[bool, int, int, list[int], list[bytes | None]]
"""What an exchange brings: whether all messages are here, the length of the longest, of all of
them together and beside them, their numbers, and the messages; None in place of one that did not
fit."""


def slot_bytes(longest: int, limit: int) -> int:
    """Return the size of slots for messages of up to `longest` bytes: at most half more.

    If they do not fit into `limit` bytes, it is the least size, which has room for the head.
    """
    wanted, size = longest + HEAD.size, LEAST
    if not LEAST < wanted <= limit:
        return LEAST
    while size < wanted:
        if wanted <= size + size // 2:
            return size + size // 2
        size *= 2
    return size


def slot_limit(threads: int, first_by_mpi: int | None) -> int:
    """Return the most bytes of a slot: one of the sizes that `slot_bytes` returns.

    MPI carries messages of `first_by_mpi` bytes (None: of no length), so slots have no room for
    them; the least slot may have.
    """
    most = min(LONGEST, _ALL // threads)
    if first_by_mpi is not None:
        most = min(most, HEAD.size + first_by_mpi - 1)
    size = LEAST
    while 2 * size <= most:
        size *= 2
    return size + size // 2 if size + size // 2 <= most else size


class _SlotCall(MethodCall):
    """The collective that moves the slots of a method; their size is none of the program's."""

    def __init__(self, method: str, flow: str, root: int | None) -> None:
        super().__init__(method, flow, f"root {root}")
        self._arguments = [] if root is None else [("root", str(root))]

    def _record(self, given: RawArguments, found: Arrays | None) -> CallRecord:
        return CallRecord(self.__name__, self._arguments)


class _NewSlots:
    """The same interface as the core's `Slots`, without the core: new memory at each call."""

    def attach(self, team: Any, limit: int) -> None:
        """Set the team of the engine, and the most bytes of a slot."""
        self._engine, self._limit = team, limit
        self._since, self._last, self._before = team.since, 0, 0

    def for_objects(self, *about: object) -> None:
        """Do nothing: no call of this engine is kept."""

    def exchange(self, messages: Sequence[Message], beside: int = 0) -> Received:
        """Send messages, and return those for this thread; `beside`: bytes that belong to them."""
        if self._engine.since != self._since:
            self.attach(self._engine, self._limit)
        nbytes = slot_bytes(max(self._last, self._before), self._limit)
        out, into, arguments = self.memory(nbytes)
        if out is not None:
            _fill(out.data, nbytes, messages, beside)
        self.move(arguments)
        received = _received(into.data, nbytes)
        self._before, self._last = self._last, received[1]
        return received

    def memory(self, nbytes: int) -> Memory:
        """Return memory for slots of a size; the subclass has it."""
        raise NotImplementedError

    def move(self, arguments: tuple[Any, ...]) -> None:
        """Move the slots in this memory; the subclass does it."""
        raise NotImplementedError


def _fill(out: memoryview, nbytes: int, messages: Sequence[Message], beside: int = 0) -> None:
    lengths = [number >> 1 for _, number in messages]
    most, total, room = max(lengths), sum(lengths) + beside, nbytes - HEAD.size
    for k, (data, number) in enumerate(messages):
        HEAD.pack_into(out, k * nbytes, most, total, number)
        begin, n = k * nbytes + HEAD.size, min(number >> 1, room)
        out[begin : begin + n] = memoryview(data)[:n]


def _received(into: memoryview, nbytes: int) -> Received:
    heads = [HEAD.unpack_from(into, at) for at in range(0, len(into), nbytes)]
    most, total = max(head[0] for head in heads), sum(head[1] for head in heads)
    numbers, room = [head[2] for head in heads], nbytes - HEAD.size
    begins = range(HEAD.size, len(into), nbytes)
    bodies = [
        bytes(into[at : at + (n >> 1)]) if n >> 1 <= room else None
        for at, n in zip(begins, numbers, strict=True)
    ]
    return most <= room, most, total, numbers, bodies


_Base: Any = object
Memory = tuple[Array | None, Array, tuple[Any, ...]]
"""Slots to send, if this thread does, slots to receive, and both as arguments of the call."""


class Slots(_Base):  # type: ignore[misc]
    """The slots of a method on a communicator; one with a root has others for each root.

    `slots_of` makes them: their second class is the core's `Slots` or `_NewSlots`.

    `exchange(messages, beside)` sends those of this thread, `(data, number)` each, and returns
    those for it (`Received`). Where one thread sends, the others give none. `beside`: so many bytes
    belong to the messages, but are in none of them.

    Parameters
    ----------
    team
        That of the communicator.
    method
        Its name in mpi4py.
    flow
        The collective that moves the slots: "broadcast", "gather_all", "scatter" or "exchange".
    root
        That of the call, if the method has one.
    carriers
        The rules of the selection table; None: xupc carries all calls.
    """

    def __init__(
        self, team: Any, method: str, flow: str, root: int | None, carriers: Carriers | None
    ) -> None:
        self.team, self.method, self.flow = team, method, flow
        self.root: Any = root  # None, or a rank where the flow needs one
        self._call = _SlotCall(method, flow, root)
        self.carriers = carriers
        self.messages = {"broadcast": 1, "exchange": team.size**2}.get(flow, team.size)
        first = None if carriers is None else carriers.first_by_mpi(method)
        self.attach(team.state.core, slot_limit(team.size, first))

    def by_mpi(self, total: int) -> bool:
        """Return whether MPI moves what the slots of a call had no room for.

        `total`: bytes of all messages, as `Received` has them.
        """
        rules = self.carriers
        return rules is not None and rules.by_mpi(self.method, total // self.messages)

    def memory(self, nbytes: int) -> Memory:
        """Return memory for slots of a size."""
        team, root = self.team, self.root
        if self.flow == "broadcast":
            slot = empty(nbytes)
            return slot if team.rank == root else None, slot, (slot, root)
        if self.flow == "scatter":
            slot = empty(nbytes)
            out = empty(nbytes * team.size) if team.rank == root else None
            return out, slot, (slot, out, root)
        every = empty(nbytes * team.size)
        out = empty(nbytes if self.flow == "gather_all" else nbytes * team.size)
        return out, every, (every, out)

    def move(self, arguments: tuple[Any, ...]) -> None:
        """Move the slots in this memory."""
        self._call(*arguments, 0, self.team)

    def laid(self, nbytes: int) -> tuple[Any, Array | None, Array]:
        """Return a plan for slots of a size, the slots to send and those to receive."""
        out, into, arguments = self.memory(nbytes)
        plan = self._call.plan_alone(*arguments, 0, self.team)
        return plan, out, into


@functools.cache
def _class_of(kind: Any, native: bool) -> Any:
    return type(kind.__name__, (kind, core.Slots if native else _NewSlots), {})


def slots_of(comm: Any, team: Any, kind: Any, method: str, flow: str, root: int | None) -> Any:
    """Return the slots of a method on a communicator: new ones, of the kind `kind`, at first."""
    record = comm._counts()
    found = record.slots.get((method, root))
    if found is None:
        made = _class_of(kind, team.state.native)(team, method, flow, root, record.carriers)
        found = record.slots[method, root] = made
    return found
