"""The barrier between node roots: its message, its rounds, and its exchange in Python.

With the native core, mpi_messages.h exchanges these messages, by the rounds of this module.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..plan.patterns import dissemination
from .team_comm import TeamComm

if TYPE_CHECKING:
    from .mpi_types import Request

__all__ = [
    "CONFLICT", "EXCHANGE", "NetBarrier", "Rounds", "differs", "rounds_along", "rounds_among",
]  # fmt: skip

EXCHANGE = struct.Struct("<QQQQ")  # least and greatest fingerprint; value (0: none); flags
CONFLICT = 1  # flag: the values differ
BURST = 50  # tests of the messages in one `NetBarrier.poll`

Rounds = list[tuple[list[int], list[int]]]
"""The rounds of an exchange: the ranks to send to, and those to receive from."""


def differs(data: bytes, mine: int | None) -> bool:
    """Return whether a barrier message shows that calls differ.

    `mine`: the fingerprint of this thread's call, to be compared with those of the senders; None:
    compare those of the senders alone.
    """
    low, high, _, flags = EXCHANGE.unpack_from(data)
    return bool(low != high or flags & CONFLICT or mine not in (None, low))


def rounds_among(
    group: Sequence[int], me: int, tuning: Mapping[str, int]
) -> tuple[Rounds, int]:
    """Return the rounds of an exchange among ranks, and the bytes of its longest message.

    Up to ``tuning["few_nodes_max"]`` ranks exchange all to all in one round, more by dissemination.
    `me`: the position of this thread in `group`.
    """
    n = len(group)
    if n > tuning["few_nodes_max"]:
        return [([group[to]], [group[of]]) for to, of in dissemination(me, n)], EXCHANGE.size
    others = [group[(me + k) % n] for k in range(1, n)]
    # room for the longest message of any call, so that a mismatch can be detected
    room = EXCHANGE.size + max(tuning["root_exchange_max"], tuning["root_exchange_max_one_block"])
    return [(others, others)] if others else [], room


def rounds_along(parent: int, children: Sequence[int], top: Rounds) -> Rounds:
    """Return the rounds of a thread whose barriers go up a tree and down again.

    A message on the way up combines the values of the threads at and below its sender. A message on
    the way down combines those of all threads.

    Parameters
    ----------
    parent : int
        The rank above this thread; -1 at the top.
    children : sequence of int
        The ranks below this thread.
    top : rounds
        The rounds of the top between the two ways: its exchange with the tops of other trees.
    """
    below = list(children)
    between: Rounds = [([parent], [parent])] if parent >= 0 else top
    rounds: Rounds = [([], below), *between, (below, [])]
    return [(to, of) for to, of in rounds if to or of]


class NetBarrier:
    """The exchange of a barrier between nodes, in Python.

    Its messages (`EXCHANGE`) have 32 bytes: the minimum and maximum of the fingerprints, a hash of
    the program's value (of `barrier` or `notify`), and flags.

    Parameters
    ----------
    room
        Bytes of the longest message that can arrive.
    result
        Minimum, maximum, value and flags of this thread's node; the exchange updates them.
    """

    def __init__(
        self,
        link: TeamComm,
        rounds: Rounds,
        room: int,
        tag: int,
        result: tuple[int, int, int, int],
    ) -> None:
        self.link = link
        self.rounds = rounds
        self.room = room
        self.tag = tag
        self.low, self.high, self.value, self.flags = result
        self.round = -1
        self.waiting: dict[int, tuple[Request, bytearray]] = {}
        self.requests: list[Request] = []
        self._next_round()

    @property
    def differs(self) -> bool:
        """True if the calls of the threads differ, as far as messages have arrived."""
        return self.low != self.high or bool(self.flags & CONFLICT)

    @property
    def missing(self) -> list[int]:
        """The ranks whose message of this round has not arrived."""
        return sorted(r for r, (request, _) in self.waiting.items() if not request.Test())

    def _next_round(self) -> None:
        self.round += 1
        if self.round >= len(self.rounds):
            return
        to, of = self.rounds[self.round]
        for rank in of:
            early = self.link.early.pop((rank, self.tag), None)
            if early is not None:
                self._take(early)
                continue
            buffer = self.link.room(rank, self.room)
            self.waiting[rank] = self.link.recv_into(rank, self.tag, buffer), buffer
            self.requests.append(self.waiting[rank][0])
        head = EXCHANGE.pack(self.low, self.high, self.value, self.flags)
        self.requests += [self.link.send_bytes(rank, self.tag, head) for rank in to]

    def poll(self) -> bool:
        """Test for a while; return True when all rounds are complete.

        The thread has nothing else to do meanwhile, so a burst of tests with only `sched_yield`
        between them is fastest.
        """
        for _ in range(BURST):
            if self.link.network.all_done(self.requests):
                self.requests.clear()
                for _request, buffer in self.waiting.values():
                    self._take(buffer)
                self.waiting.clear()
                self._next_round()
                if self.round >= len(self.rounds):
                    return True
            else:
                os.sched_yield()
        return False

    def _take(self, data: bytes | bytearray) -> None:
        low, high, value, flags = EXCHANGE.unpack_from(data)
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.flags |= flags
        if value and self.value and value != self.value:
            self.flags |= CONFLICT
        self.value = self.value or value
