"""What the native core and the interpreter have in common: the types of their objects.

A lowered or expanded plan that is bound to addresses is an `Instance`. The `TeamCore` counts the
calls of a team on this thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..plan.plan import Plan
from ..plan.steps import Step
from ..records import record
from ..topology.tree import Tree

__all__ = [
    "Instance",
    "Message",
    "MessageEngine",
    "Messages",
    "Owner",
    "Piece",
    "Program",
    "Record",
    "StepMessages",
    "TeamCore",
]

Message = tuple[int, int, int, int, int]
"""The peer, the operand (-1: no data), bytes from its address, and how many of which MPI type."""
Piece = tuple[int, int, int, int]
"""A piece of a message: the peer, the operand, bytes from its address, and how many."""


@record
class StepMessages:
    """The messages of a step, as the core posts them.

    Attributes
    ----------
    tag
        The kind in their tags.
    types
        ``core.types()``, if MPI may free a type of theirs later; else 0.
    """

    tag: int
    types: int
    each: list[Message]


class Program(Protocol):
    """A plan as a backend keeps it."""

    @property
    def plan(self) -> Plan:
        """The plan."""


class Record(Protocol):
    """The texts of a call."""

    name: str
    title: str

    @property
    def call(self) -> str:
        """The whole call as text."""


class TeamCore(Protocol):
    """The counters and the fingerprint of a team on this thread.

    Attributes
    ----------
    blocked
        True while no cached call of the team may run.
    """

    blocked: bool

    @property
    def op(self) -> int:
        """Number of the last operation."""

    @property
    def fp(self) -> int:
        """Running fingerprint."""

    @property
    def epoch(self) -> int:
        """Number of the last barrier."""

    @property
    def since(self) -> int:
        """Operation after which all threads continued from a mismatch."""

    @property
    def unsynced(self) -> int:
        """Number of calls since the last barrier."""

    @property
    def verified(self) -> int:
        """Last operation known to be the same call on all threads."""

    @property
    def debt(self) -> int:
        """Epoch of a led call that others may not have left yet; 0 if none."""

    @property
    def unread(self) -> int | None:
        """Node index of a thread whose array was not accessible."""

    @property
    def in_flight(self) -> bool:
        """Return whether calls in the background (`mpi_requests.h`) have not ended."""

    def settle(self) -> None:
        """Wait until the calls in the background have ended."""

    def wrote(self) -> None:
        """Note a write to another node's memory."""

    def spoil(self, poison: int) -> None:
        """Make this thread's fingerprint differ from all others, from the next barrier on."""

    def set_value(self, value: int) -> None:
        """Set the value that the next barrier carries; 0 matches any."""

    def mix(self, signature: int) -> None:
        """Mix something into the running fingerprint without a call."""

    def fp_after(self, op: int) -> int:
        """Return the running fingerprint after one of the last operations; 0 if not known."""

    def record_of(self, op: int) -> Any:
        """Return the record of one of the last operations; None if not known."""

    def give_up(self) -> None:
        """Note a mismatch: until `restart` only a barrier ends a wait."""

    def release_early(self) -> None:
        """Publish a mismatch for the current barrier before all threads have arrived."""

    def restart(self, op: int, epoch: int) -> None:
        """Continue after a mismatch from an operation number that all threads agree on."""

    def forget(self) -> None:
        """Keep no record of any call."""


class Owner(Protocol):
    """The team of an instance, as waits and reports see it."""

    @property
    def number(self) -> int:
        """Number of the team."""

    def titled(self, call: str) -> str:
        """Return the text of a call with the name of the team."""

    @property
    def size(self) -> int:
        """Number of its threads."""

    @property
    def rank(self) -> int:
        """Rank of this thread."""

    @property
    def threads(self) -> Sequence[int]:
        """Thread ids by rank."""

    @property
    def rank_tree(self) -> Tree:
        """Nodes of the ranks."""

    @property
    def node_number(self) -> int:
        """Node of this thread in `rank_tree`."""


class MessageEngine(Protocol):
    """The core's part of the messages of a team that spans nodes."""

    @property
    def exchanging(self) -> bool:
        """True while the exchange of this node root is in progress."""

    @property
    def missing(self) -> list[int]:
        """Ranks whose message of the exchange has not arrived."""

    def look_out(self) -> None:
        """Note that a message has been received early."""

    def take(self, team: TeamCore, early: dict[tuple[int, int], bytes]) -> None:
        """Take messages of the exchange that were received early."""


class Messages(Protocol):
    """The messages of an instance."""

    open: int

    @property
    def exchanging(self) -> bool:
        """True while the exchange between node roots is in progress."""

    def start(self, operation: int) -> None:
        """Begin a new run of the instance."""

    def go_on(self, instance: Instance) -> bool:
        """Run the steps at which lanes wait for Python; return True if a lane has advanced."""

    def awaited(self, instance: Instance) -> set[int]:
        """Return the threads of other nodes whose message or reply has not arrived."""


class Instance(Protocol):
    """A plan that is bound to operands.

    Attributes
    ----------
    active
        True from the begin of a call to its end, once Python has a part in it.
    """

    active: bool

    @property
    def team(self) -> TeamCore:
        """Counters of its team."""

    @property
    def owner(self) -> Owner:
        """Its team."""

    @property
    def net(self) -> Messages | None:
        """Its messages, and what the core does not do."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def record(self) -> Record:
        """The call as text."""

    @property
    def call(self) -> int:
        """Number of the text of such calls in the control segment."""

    @property
    def op(self) -> int:
        """Number of its current operation."""

    @property
    def fp(self) -> int:
        """Running fingerprint after its current operation."""

    @property
    def open(self) -> int:
        """Number of messages of the core in flight."""

    @property
    def moved(self) -> bool:
        """True if the core has posted or completed a message since the last look."""

    @property
    def at_barrier(self) -> bool:
        """True if this thread has arrived at the team's current barrier in this call."""

    @property
    def released(self) -> bool:
        """True if the result of the current barrier has arrived from the other nodes."""

    @property
    def peers(self) -> set[int]:
        """Ranks with a message of the core in flight."""

    def begin(self) -> None:
        """Begin a call."""

    def run(self, sleep_ns: int) -> int:
        """Run as far as possible, and sleep for about that long; return the result."""

    def poll(self) -> int:
        """Run as far as possible without waiting; return the result."""

    def end(self) -> None:
        """End the call."""

    def post(self) -> None:
        """Note for a trace that the program goes on while the call runs."""

    def claim(self) -> None:
        """Note for a trace that the program waits for the posted call."""

    def fail(self) -> None:
        """Note for a trace that the call ends by an exception."""

    def note_wait(self, *, waits: bool) -> None:
        """Note for a trace that the call waits, or that it goes on."""

    def withdraw(self) -> None:
        """Give the call up: from now on no other thread may access this thread's arrays."""

    def execute(self) -> None:
        """Run the whole call."""

    def rebind(self, dst: int, src: int) -> None:
        """Set the addresses of private operands for the next call."""

    def suspect(self) -> bool:
        """Return True if the shared memory of this node shows a mismatch."""

    def awaited(self) -> list[int]:
        """Return the members of this node that the call waits for, by local index."""

    def python_step(self, lane: int) -> Step | None:
        """Return the step at which a lane waits for Python, or None."""

    def computed(self, lane: int) -> bool:
        """Return True if the core has run the step of a lane and only a report is left."""

    def report(self) -> None:
        """Raise or warn for floating-point errors in a function that the core has run."""

    def advance(self, lane: int) -> None:
        """Move a lane past the step at which it waits for Python."""

    def set_ticket(self, ticket: int) -> None:
        """Note that the messages of a step are complete."""

    def outdated(self, lane: int) -> bool:
        """Return True if MPI may have freed a type of the messages that a lane is at."""

    def renew(self, lane: int, found: StepMessages) -> None:
        """Set the messages that a lane is at again."""

    def call_off(self) -> None:
        """Give its messages in the core up."""

    def look(self) -> None:
        """Test its messages in the core."""
