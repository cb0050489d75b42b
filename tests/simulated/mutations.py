"""Ways to break a plan on purpose, one at a time, to see whether the simulator notices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import UnionType

from xupc.plan.draw import step_text
from xupc.plan.plan import Plan
from xupc.plan.steps import (
    LANES,
    Barrier,
    BlockRef,
    Copy,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
    FusedBarrier,
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
from xupc.records import replace

__all__ = ["Mutation", "mutations"]

Release = Signal | SetTicket
Data = Copy | Swap | DirectGet | DirectPut | Expose | Send | Recv | Get | Fold | Scan
Channelled = Signal | Wait | NetSignal | NetWait


@dataclass(frozen=True)
class Mutation:
    """Broken plans of all threads, and what was done to them."""

    name: str
    what: str
    plans: tuple[Plan, ...]
    at: tuple[int, int, int] | None = None  # thread, lane, index

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def _with_lane(plan: Plan, lane: int, steps: Sequence[Step]) -> Plan:
    node, net = plan.lanes
    return replace(plan, lanes=(tuple(steps), net) if lane == 0 else (node, tuple(steps)))


def _places(plans: Sequence[Plan]) -> Iterator[tuple[int, int, int, Step]]:
    for me, plan in enumerate(plans):
        for lane, steps in enumerate(plan.lanes):
            for i, step in enumerate(steps):
                yield me, lane, i, step


def mutations(plans: Sequence[Plan]) -> Iterator[Mutation]:
    """Every mutation of a call."""
    for me, lane, i, step in _places(plans):
        plan = plans[me]
        steps = plan.lanes[lane]
        where = f"thread {me}, {LANES[lane]} lane, step {i}: {step_text(step)}"

        def broken(
            name: str,
            new: Sequence[Step],
            me: int = me,
            lane: int = lane,
            plan: Plan = plan,
            where: str = where,
            i: int = i,
        ) -> Mutation:
            changed = list(plans)
            changed[me] = _with_lane(plan, lane, new)
            return Mutation(name, where, tuple(changed), (me, lane, i))

        yield broken(f"drop {type(step).__name__}", steps[:i] + steps[i + 1 :])
        for name, other in _wrong(step, plan.size):
            yield broken(name, (*steps[:i], other, *steps[i + 1 :]))
        if isinstance(step, Wait | Barrier):
            end = _while(steps, i + 1, 1, Data | WaitTicket)
            if end > i + 1:
                late = (*steps[:i], *steps[i + 1 : end], step, *steps[end:])
                yield broken(f"{type(step).__name__} too late", late)
        if isinstance(step, Release | Barrier):
            start = _while(steps, i - 1, -1, Data) + 1
            if start < i:
                early = (*steps[:start], step, *steps[start:i], *steps[i + 1 :])
                yield broken(f"{type(step).__name__} too early", early)
    yield from _everywhere(plans)


def _while(steps: Sequence[Step], at: int, way: int, kinds: UnionType) -> int:
    """Return the first position, from `at` on in direction `way`, without a step of these kinds."""
    while 0 <= at < len(steps) and isinstance(steps[at], kinds):
        at += way
    return at


def _shifted(part: BlockRef) -> BlockRef:
    return part._replace(offset=part.offset + 1)


def _wrong(step: Step, size: int) -> Iterator[tuple[str, Step]]:
    """The step with one thing wrong in it."""
    match step:
        case Copy():
            yield "wrong target", replace(step, dst=_shifted(step.dst))
            yield "wrong source", replace(step, src=_shifted(step.src))
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
            if step.count > 1:
                yield "a block short", replace(step, count=step.count - 1)
        case Swap():
            yield "wrong place", replace(step, a=_shifted(step.a))
            yield "wrong other place", replace(step, b=_shifted(step.b))
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
            if step.count > 1:
                yield "a block short", replace(step, count=step.count - 1)
        case Expose():
            yield "wrong offer", replace(step, part=_shifted(step.part))
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
        case DirectGet():
            yield "wrong target", replace(step, dst=_shifted(step.dst))
            yield "wrong source", replace(step, offset=step.offset + 1)
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
            if step.of.count > 1:
                yield "a block short", replace(step, of=step.of.cut(0, step.of.count - 1))
        case DirectPut():
            yield "wrong source", replace(step, src=_shifted(step.src))
            yield "wrong target", replace(step, offset=step.offset + 1)
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
            if step.to.count > 1:
                yield "a block short", replace(step, to=step.to.cut(0, step.to.count - 1))
        case Get():
            yield "wrong target", replace(step, dst=_shifted(step.dst))
            yield "wrong source", replace(step, src=_shifted(step.src))
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
        case Send():
            yield "wrong source", replace(step, src=_shifted(step.src))
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
            if step.to.count == 1:
                peer = Ranks((step.to.first + 1) % size)
                yield "wrong peer", replace(step, to=peer)
            yield from _wrong_message(step)
        case Recv():
            yield "wrong target", replace(step, dst=_shifted(step.dst))
            yield "a byte short", replace(step, nbytes=step.nbytes - 1)
            if step.of.count == 1:
                peer = Ranks((step.of.first + 1) % size)
                yield "wrong peer", replace(step, of=peer)
            yield from _wrong_message(step)
        case Fold():
            yield "wrong target", replace(step, dst=step.dst + 8)
            if step.leaves:  # else the identity
                last = step.leaves[-1]
                leaves = (*step.leaves[:-1], last._replace(part=last.part + 8))
                yield "wrong operand", replace(step, leaves=leaves)
            if step.rows > 1:
                yield "a row short", replace(step, rows=step.rows - 1)
        case Scan():
            yield "wrong target", replace(step, dst=step.dst + 8)
            yield "wrong operand", replace(step, src=step.src + 8)
            yield "other way", replace(step, reverse=not step.reverse)
            if step.carry is not None:
                yield "no carry", replace(step, carry=None)
        case Wait():
            yield "Wait for less", replace(step, value=step.value - 1)
        case FusedBarrier():
            if step.body:
                for name, last in _wrong(step.body[-1], size):
                    yield name, replace(step, body=(*step.body[:-1], last))
                yield "drop fused Copy", replace(step, body=step.body[:-1])


def _wrong_message(step: Send | Recv) -> Iterator[tuple[str, Step]]:
    """Yield each error that a message of several rows or pieces can have."""
    if step.rows > 1:
        threads, nbytes = step.row_step
        yield "a row short", replace(step, rows=step.rows - 1)
        yield "wrong row", replace(step, row_step=(threads, nbytes + 1))
    if step.more:
        *more, last = step.more
        yield "a piece short", replace(step, more=tuple(more))
        yield "wrong piece", replace(step, more=(*more, last._replace(part=_shifted(last.part))))


def _without_channel(plan: Plan, channel: int) -> Plan:
    """Without its signals and waits; the tickets of those, which count at the end, are set."""
    gone = {
        s.ticket for s in plan.steps if isinstance(s, NetSignal | NetWait) and s.channel == channel
    }

    def keep(step: Step) -> bool:
        if isinstance(step, Channelled):
            return step.channel != channel
        return not (isinstance(step, WaitTicket) and step.ticket in gone)

    node, net = ([step for step in lane if keep(step)] for lane in plan.lanes)
    return replace(plan, lanes=((*map(SetTicket, sorted(gone)), *node), tuple(net)))


def _everywhere(plans: Sequence[Plan]) -> Iterator[Mutation]:
    """Yield mutations that omit a barrier, a handshake, or the waits for a ticket."""
    for which, name in ((0, "first"), (-1, "last")):
        changed = []
        for plan in plans:
            node = list(plan.lanes[0])
            barriers = [i for i, step in enumerate(node) if isinstance(step, Barrier)]
            if barriers:
                del node[barriers[which]]
            changed.append(_with_lane(plan, 0, node))
        if changed != list(plans):
            yield Mutation("no Barrier", f"the {name}, on all threads", tuple(changed))
    all_steps = [step for plan in plans for step in plan.steps]
    for channel in sorted({s.channel for s in all_steps if isinstance(s, Channelled)}):
        changed = [_without_channel(plan, channel) for plan in plans]
        yield Mutation("no handshake", f"channel {channel}", tuple(changed))
    for plan in plans:
        posts = [
            (lane, i, step.ticket)
            for lane, steps in enumerate(plan.lanes)
            for i, step in enumerate(steps)
            if isinstance(step, SetTicket)
        ]
        for lane, i, ticket in posts:
            changed = list(plans)
            untied = [tuple(s for s in steps if s != WaitTicket(ticket)) for steps in plan.lanes]
            changed[plan.rank] = replace(plan, lanes=(untied[0], untied[1]))
            what = f"thread {plan.rank}: t{ticket} is posted, but not needed"
            yield Mutation("lanes not tied", what, tuple(changed), (plan.rank, lane, i))
