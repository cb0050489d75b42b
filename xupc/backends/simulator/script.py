"""What a simulated thread does: collective calls, posted calls, and accesses of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .sim_program import Program
from .symbols import Store, Symbols

__all__ = [
    "Action",
    "Await",
    "Call",
    "Memory",
    "Post",
    "UserBarrier",
    "UserRead",
    "UserWrite",
]


@dataclass(frozen=True, slots=True)
class Call:
    """Make a collective call.

    Attributes
    ----------
    programs
        The program of each thread of the team, by rank.
    operands
        The place of operand i: (array, offset in it).
    kernel
        The kernel of its reductions.
    threads
        The threads of the team, by rank. Default: all threads.
    """

    programs: Sequence[Program]
    operands: tuple[tuple[str, int], ...]
    kernel: Any = None
    threads: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Post:
    """Start a call under a name of the thread's own, and continue without waiting for it."""

    call: Call
    name: str


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until a posted call is complete."""

    name: str


class UserWrite(NamedTuple):
    """Store bytes into an array on any thread, between the calls."""

    array: str
    thread: int
    lo: int
    data: bytes | Symbols

    def __str__(self) -> str:
        hi = self.lo + len(self.data)
        return f"user writes {self.array}@{self.thread}[{self.lo}:{hi}]"


class UserRead(NamedTuple):
    """Read bytes of an array on any thread, between the calls, and compare them."""

    array: str
    thread: int
    lo: int
    expected: bytes | Symbols

    def __str__(self) -> str:
        hi = self.lo + len(self.expected)
        return f"user reads {self.array}@{self.thread}[{self.lo}:{hi}]"


@dataclass(frozen=True, slots=True)
class UserBarrier:
    """Wait in a barrier of the user's program."""

    def __str__(self) -> str:
        return "user barrier"


Action = Call | Post | Await | UserWrite | UserRead | UserBarrier
Memory = Mapping[str, Sequence[Store]]
"""The bytes of an array on a thread: ``memory[array][thread]``, a bytearray or `Symbols`."""
