"""Plans for sizes that the threads of a `_v` call on private arrays know from an earlier call.

A call that has new sizes compares them and moves its blocks in places of one size. A call that
repeats an earlier one on all threads runs a plan for just these sizes:

* If the sizes are equal on all threads (`allav_gather_all_v`), the signature of the plan has them.
  A barrier at the beginning of the plan compares it, so one operation is enough.
* Else a thread does not know if the other threads repeat the call. Each gives the number of the
  earlier call to a short reduction. If the numbers are equal, all threads run the plan (`Vote`).

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

_MOST_BLOCKS = 1 << 14  # of all threads: a plan keeps 40 bytes of each while it is made
_KEPT = 32  # calls whose sizes are kept
_ALGORITHMS = "allav_neighbour_exchange"


class AgreedSizes:
    """The sizes of an earlier call that all threads made.

    Attributes
    ----------
    number
        The same on all threads, and different from those of all other calls; 0: of no call.
    moves
        The blocks of all threads; None before a call repeats the sizes.
    kept
        False when a new call cannot find them any more.
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
        """Return the sizes of a call whose signature has them; found on all threads or on none."""
        return self._equal.get(signature)

    def agreed(self, key: Hashable) -> AgreedSizes:
        """Return the sizes of the last call that this thread made with these arguments."""
        return self._agreed.get(key, _NONE)

    def keep_equal(self, signature: int) -> None:
        """Keep the sizes of a call in which all threads have just met."""
        _keep(self._equal, signature, AgreedSizes(0))

    def keep_agreed(self, key: Hashable, number: int) -> None:
        """Keep the sizes that all threads have just compared."""
        self._agreed.pop(key, None)
        _keep(self._agreed, key, AgreedSizes(number))


def _keep(kept: OrderedDict[Hashable, AgreedSizes], key: Hashable, sizes: AgreedSizes) -> None:
    """Keep one more, and drop the oldest: not by use, which can differ among threads."""
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
    """A reduction that finds out, on all threads, if all repeat the same earlier call."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance  # the least of two numbers, over all threads
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
    """What a call runs that repeats an earlier one; `vote` is None if no thread can differ."""

    instance: Any
    sizes: AgreedSizes
    vote: Vote | None
    in_place: bool


# --- plans ----------------------------------------------------------------------------------------


def needs_places_of_all(team: TeamState, flags: int, nbytes: Sequence[int]) -> bool:
    """Return True if threads may write to other threads' arrays, whose places they must know.

    `nbytes`: the sizes of all blocks, equal on all threads.
    """
    largest = [Transfers.of(*(np.array([x], np.int64) for x in (0, 0, 0, 0, max(nbytes))))]
    way, _ = team.way(_ALGORITHMS, flags, max(nbytes), ("all", "no"), largest)
    return way == PUSH and not team.spans_nodes


def between_all(me: int, nbytes: Sequence[int], at: Sequence[int], own: int | None) -> Transfers:
    """Return a block of each thread for all threads, as far as this thread's plan depends on it.

    Parameters
    ----------
    nbytes
        Bytes of each thread's block.
    at
        Where the blocks go in dst of this thread, in bytes.
    own
        Where this thread's block is, in bytes of dst; None: it is src.
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
        Equal for equal `moves`.
    meet
        True if the threads meet in a barrier before they move blocks.
    """
    most = int(moves.nbytes.max(initial=0))

    def planned(first: str) -> Plan:
        return team.planned(_ALGORITHMS, flags, most, (first, "no"), key, [moves], private=True)

    bounds: list[Any] = [PrivateOperand(), PrivateOperand()]
    try:
        # a plan of node roots alone has a barrier of its own
        if meet and not (team.spans_nodes and planned("no").led):
            plan = planned("all")
        else:
            plan = planned("no")
        return team.make(plan, bounds, signature, record)
    except Exception as e:
        team.fail(e, record.with_more([]))  # it must not appear in later calls
