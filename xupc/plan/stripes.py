"""Stripes: one call recorded several times, each time for a part of its bytes and with other roots.

A call with k roots per node is k calls of its variant. Call j, a *stripe*, moves part j of every
block, and its node roots are other threads than those of stripe i. A `StripeRecorder` records one
of them. `woven` merges the steps of all of them into the two lanes of one plan::

    thread 0   net lane    messages of stripe 0             k = 2, two threads on each node
    thread 1   net lane    messages of stripe 1
    both       node lane   copies of stripe 0 and of stripe 1, turn by turn

Each stripe alone cannot deadlock. In the merged lanes, steps are in the order of (turn, stripe).
A step waits for steps of its own stripe, and of no later turn (`LaneRecorder.turn`). So a step with
the lowest (turn, stripe) of all that wait can always go on. An algorithm without turns has one:
then stripes follow each other in each lane, which is always right, and enough where only messages
take time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import merge
from typing import Any

from ..records import record, replace
from .recorder import NODE, Recorder, Who
from .steps import (
    OP_SCRATCH,
    STAGING,
    BlockRef,
    Blocks,
    FoldOperand,
    Recv,
    Send,
    Step,
)

__all__ = ["LINE", "MOST_ROOTS", "Part", "Stripe", "share_of", "woven"]

MOST_ROOTS = 4
"""The most roots per node: each stripe of a relay needs three of the channels of an operation."""
LINE = 64


@record
class Part:
    """Describe where a stripe's bytes of an operand are.

    The algorithm sees blocks of `inner` bytes, one behind the other. In fact block i is `outer`
    bytes behind block i - 1, and the stripe's bytes begin `begin` bytes behind its start.

    Attributes
    ----------
    begin
        Bytes.
    inner, outer
        Bytes; 0 if the operand is one block on each thread.
    """

    begin: int
    inner: int = 0
    outer: int = 0

    def offset(self, offset: int) -> int:
        """Return the place of a byte of the stripe."""
        if not self.inner:
            return self.begin + offset
        block, rest = divmod(offset, self.inner)
        return block * self.outer + self.begin + rest

    def step(self, step: int) -> int:
        """Return how far two blocks of a row are apart."""
        if not self.inner or step % self.inner:
            return step
        return step // self.inner * self.outer


@record
class Stripe:
    """Describe a stripe.

    Attributes
    ----------
    arguments
        Those of the algorithm for the stripe's bytes alone.
    parts
        By operand: where these bytes are.
    """

    arguments: tuple[object, ...]
    parts: Mapping[int, Part]


def share_of(tuning: Mapping[str, int], many: int) -> dict[str, int]:
    """Return the sizes for one of so many stripes: each has a part of the scratch."""
    shared = ("staging_bytes", "eager_max")
    parts = {name: tuning[name] // many // LINE * LINE for name in shared if name in tuning}
    return {**tuning, **parts}


class StripeRecorder(Recorder):
    """Record a stripe: as if it were a whole call, but for the steps that all stripes share.

    Tickets and channels are those of the whole plan. Its scratch is a part of each thread's. Where
    the algorithm would wait before and after the call for other threads of the node, the whole
    call does so once for all stripes.
    """

    def __init__(self, whole: Recorder, number: int, many: int, stripe: Stripe) -> None:
        tree = whole.tree.with_other_roots(number, many)
        tuning = share_of(whole.tuning, many)
        super().__init__(whole.me, tree, whole.sync, tuning, whole.kernel)
        self.whole = whole
        self.number = number
        self.steps: tuple[list[tuple[int, Step]], list[tuple[int, Step]]] = ([], [])
        self._outstanding = whole._outstanding
        self._turns = [0, 0]
        self._parts = {
            **stripe.parts,
            STAGING: Part(number * tuning["staging_bytes"]),
            OP_SCRATCH: Part(number * tuning.get("eager_max", 0)),
        }

    def turn(self, number: int) -> None:
        """Begin a turn of the lane."""
        assert number >= self._turns[self._lane], "turns ascend"
        self._turns[self._lane] = number

    def _add(self, step: Step) -> None:
        self.steps[self._lane].append((self._turns[self._lane], _placed(step, self._place)))

    def _place(self, operand: int) -> Part:
        return self._parts[operand]

    def _ticket(self) -> int:
        whole = self.whole
        whole._lane = self._lane
        try:
            return whole._ticket()
        finally:
            whole._lane = 0

    def channel(self) -> int:
        """Return a new channel of the whole call."""
        return self.whole.channel()

    @contextmanager
    def net(self) -> Iterator[None]:
        """Record on the net lane, which starts where the stripes do."""
        self._lane = 1
        try:
            yield
        finally:
            self._lane = 0

    def once(self, value: Any) -> Any:
        """Return the same object for equal values of all stripes."""
        return self.whole.once(value)

    def ready(self, owners: Who, users: Who, *, node_only: bool = False) -> None:
        """Let threads of my node touch data: before the first stripe, for all of them."""
        assert node_only, "stripes are for algorithms whose nodes exchange messages alone"
        if self.number == 0:
            self.whole.ready(owners, users, node_only=True)

    def done(self, users: Who, owners: Who, *, node_only: bool = False) -> None:
        """Do nothing: `woven` lets the threads of a node wait for each other at the end."""
        assert node_only, "stripes are for algorithms whose nodes exchange messages alone"

    def join(self) -> None:
        """Refuse: one stripe cannot wait for the whole call."""
        raise AssertionError("an algorithm with stripes does not join its lanes itself")

    def barrier(self) -> None:
        """Refuse: a barrier would join all stripes."""
        raise AssertionError("an algorithm with stripes has no barrier of its own")

    def root_exchange(self, nbytes: int, *, one_block: bool = False, meets: bool = False) -> bool:
        """Return False: what travels with a barrier has one root per node."""
        return False

    def expose(self) -> None:
        """Refuse: stripes are for messages between node roots."""
        raise AssertionError("an algorithm with stripes reads nothing one-sided")


def woven(t: Recorder, algorithm: Callable[..., None], stripes: Sequence[Stripe]) -> None:
    """Record a call whose stripes have node roots of their own.

    Parameters
    ----------
    algorithm
        A variant whose threads meet other nodes by messages of node roots alone.
    stripes
        At least one; their bytes are disjoint.
    """
    recorders = []
    for number, stripe in enumerate(stripes):
        recorder = StripeRecorder(t, number, len(stripes), stripe)
        algorithm(recorder, *stripe.arguments)
        recorders.append(recorder)
        t._scratch |= recorder._scratch
    if any(recorder.steps[1] for recorder in recorders):
        with t.net():  # the net lane starts here
            pass
    for lane in (0, 1):
        keyed = ([(turn, r.number, step) for turn, step in r.steps[lane]] for r in recorders)
        for _, _, step in merge(*keyed, key=lambda entry: entry[:2]):
            t._lanes[lane].append(step)
    t.done(NODE, NODE, node_only=True)


# --- the places of a step's bytes -----------------------------------------------------------------
Places = Callable[[int], Part]


def _placed(step: Step, place: Places) -> Step:
    """Return a step of a stripe with the places that its bytes really have."""
    kind: Any = type(step)
    changes: dict[str, Any] = {}
    for name in getattr(kind, "__match_args__", ()):
        value = getattr(step, name)
        new = _placed_value(value, place)
        if new is not value:
            changes[name] = new
    match step:
        case Send(src=part) | Recv(dst=part):
            where = place(part.operand)
            assert not where.inner or part.offset % where.inner + step.nbytes <= where.inner
            changes["peer_step"] = where.step(step.peer_step)
            changes["row_step"] = (step.row_step[0], where.step(step.row_step[1]))
    return replace(step, **changes) if changes else step


def _placed_value(value: Any, place: Places) -> Any:
    """Return the value of a field with the places that its bytes really have."""
    match value:
        case BlockRef(operand=operand, offset=offset, offset_step=step):
            where = place(operand)
            return value._replace(offset=where.offset(offset), offset_step=where.step(step))
        case FoldOperand(part=part):
            return value._replace(part=_placed_value(part, place))
        case Blocks(part=part, row_step=(threads, nbytes)):
            where = place(part.operand)
            assert not where.inner or part.offset % where.inner + value.nbytes <= where.inner
            row_step = threads, where.step(nbytes)
            return value._replace(part=_placed_value(part, place), row_step=row_step)
        case tuple():
            new = tuple(_placed_value(inner, place) for inner in value)
            return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
    return value
