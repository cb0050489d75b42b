"""Plans for sizes that the threads of a `_v` call on private arrays know from an earlier call.

A call that has new sizes compares them, and moves its blocks by calls that move blocks of one size.
A call that repeats an earlier one on all threads runs a plan for just these sizes:

* If every thread gives the sizes of all blocks (`allav_gather_all_v`), they are in the signature of
  the plan. The plan begins with a barrier that compares the signatures, so it needs no other
  operation before it.
* Otherwise a thread cannot know whether the other threads repeat the call. Each gives the number of
  its earlier call to a short reduction, a *vote*. If all numbers are equal, the threads run the
  plan (`Vote`).

The plan is made when a call repeats its sizes for the first time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..algorithms.transfer_lists import Transfers
from ..backends.operand_binding import PrivateOperand
from ..flags import PUSH
from ..health.call_record import CallRecord
from ..plan.plan import Plan
from ..records import mutable_record
from ..runtime.team_state import TeamState

__all__ = [
    "AgreedSizes", "KnownCall", "KnownSizes", "Vote", "between_all", "instance_of", "known_sizes",
    "needs_places_of_all",
]  # fmt: skip

_MOST_BLOCKS = 1 << 14  # of all threads; each takes 40 bytes while a plan is made
_KEPT = 32  # calls whose sizes are kept
# the collective whose algorithms make these plans
_ALGORITHMS = "allav_neighbour_exchange"


class AgreedSizes:
    """The sizes of an earlier call that all threads made.

    Attributes
    ----------
    number
        The number of the call: the same on all threads, different for each call. 0: no call, so a
        vote with it fails.
    moves
        The blocks of all threads; None before a call repeats the sizes.
    kept
        False after `KnownSizes` has dropped them: a cached call must not use them then.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.moves: Transfers | None = None
        self.kept = True
        self._words = np.array([number, -number], np.int64)
        self.address = int(self._words.ctypes.data)


_NONE = AgreedSizes(0)


class KnownSizes:
    """The sizes of a team's earlier calls.

    Attributes
    ----------
    most
        Blocks of all threads that a plan may have.
    """

    most = _MOST_BLOCKS

    def __init__(self) -> None:
        self._equal: OrderedDict[Hashable, AgreedSizes] = OrderedDict()
        self._agreed: OrderedDict[Hashable, AgreedSizes] = OrderedDict()

    def equal(self, signature: int) -> AgreedSizes | None:
        """Return the sizes of a call whose signature contains them; None if it was not made.

        All threads of the team get the same answer.
        """
        return self._equal.get(signature)

    def agreed(self, key: Hashable) -> AgreedSizes:
        """Return the sizes of the last call that this thread made with these arguments.

        They have the number 0 if it made none.
        """
        return self._agreed.get(key, _NONE)

    def keep_equal(self, signature: int) -> None:
        """Keep the sizes of a call in which all threads have just met."""
        _keep(self._equal, signature, AgreedSizes(0))

    def keep_agreed(self, key: Hashable, number: int) -> None:
        """Keep the sizes that all threads have just compared."""
        self._agreed.pop(key, None)
        _keep(self._agreed, key, AgreedSizes(number))


def _keep(kept: OrderedDict[Hashable, AgreedSizes], key: Hashable, sizes: AgreedSizes) -> None:
    """Keep the sizes of one more call, and drop the oldest: use can differ among threads."""
    kept[key] = sizes
    if len(kept) > _KEPT:
        kept.popitem(last=False)[1].kept = False


def known_sizes(team: TeamState) -> KnownSizes:
    """Return the sizes of a team's earlier calls."""
    found = team.known_sizes
    if not isinstance(found, KnownSizes):
        team.known_sizes = found = KnownSizes()
    return found


class Vote:
    """A reduction by which all threads learn whether all repeat the same earlier call.

    Each thread gives its number and the negative of it. The minimum of both over all threads is the
    least number and the negative of the greatest one.
    """

    def __init__(self, instance: Any) -> None:
        self._instance = instance  # reduce_all of two int64 by MIN
        self._least = np.zeros(2, np.int64)
        self._address = int(self._least.ctypes.data)

    def agrees(self, sizes: AgreedSizes) -> bool:
        """Return True if all threads give the sizes of the same call; collective."""
        self._instance.rebind(self._address, sizes.address)
        self._instance.execute()
        least, most = self._least.tolist()
        return bool(0 < least == -most)


@mutable_record
class KnownCall:
    """A call that repeats an earlier one, and what it runs.

    Attributes
    ----------
    vote
        What finds out first whether all threads repeat it; None: the plan's barrier does so.
    """

    instance: Any
    sizes: AgreedSizes
    vote: Vote | None
    in_place: bool


# --- plans ----------------------------------------------------------------------------------------


def needs_places_of_all(team: TeamState, flags: int, nbytes: Sequence[int]) -> bool:
    """Return True if a plan may write to other threads' arrays: it needs their displacements.

    `nbytes`: the bytes of all blocks, equal on all threads.
    """
    largest = [Transfers.of(*(np.array([x], np.int64) for x in (0, 0, 0, 0, max(nbytes))))]
    way, _ = team.way(_ALGORITHMS, flags, max(nbytes), ("all", "no"), largest)
    return way == PUSH and not team.spans_nodes


def between_all(me: int, nbytes: Sequence[int], at: Sequence[int], own: int | None) -> Transfers:
    """Return the moves of a gather_all in which each thread has its own displacements only.

    Those of other threads are 0 in the result: the plan of this thread does not depend on them.

    Parameters
    ----------
    nbytes
        Bytes of each thread's block.
    at
        Where each thread's block begins in dst of this thread, in bytes.
    own
        In place: where this thread's own block begins in dst, in bytes. None: it is src.
    """
    threads = len(nbytes)
    to, of = np.divmod(np.arange(threads * threads), threads)
    there = to == me
    dst_at, src_at = np.zeros((2, to.size), np.int64)
    dst_at[there] = at
    src_at[of == me] = own or 0
    size = np.array(nbytes, np.int64)[of]
    if own is not None:
        size[there & (of == me)] = 0
    return Transfers.of(to, dst_at, of, src_at, size)


def instance_of(
    team: TeamState, moves: Transfers, flags: int, key: Hashable, *, meet: bool, signature: int,
    record: CallRecord,
) -> Any:  # fmt: skip
    """Return a new instance that moves blocks between private arrays.

    Parameters
    ----------
    key
        The key of the plan in the team's cache: equal for equal `moves`.
    meet
        True if the threads meet in a barrier before they move blocks.
    """
    most = int(moves.nbytes.max(initial=0))

    def planned(first: str) -> Plan:
        return team.planned(_ALGORITHMS, flags, most, (first, "no"), key, [moves], private=True)

    bounds: list[Any] = [PrivateOperand(), PrivateOperand()]
    try:
        # a led plan (its node roots move all data) has a barrier of its own
        if meet and not (team.spans_nodes and planned("no").led):
            plan = planned("all")
        else:
            plan = planned("no")
        return team.make(plan, bounds, signature, record)
    except Exception as e:
        team.fail(e, record.with_more([]))  # a copy: later calls must not have the error
