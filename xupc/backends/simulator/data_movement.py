"""How simulated steps move bytes, with every access noted in the race detector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...plan.steps import BlockRef, DirectGet, DirectPut
from ...reduction.reduce_steps import carry_out
from .race_detector import Place, Shadow, Where
from .sim_program import Moves, Offering, Span, Swaps, Work
from .state import Bound, Lane, Stream, UserThread, World
from .symbols import Store

__all__ = [
    "LocalStep",
    "access",
    "direct_step",
    "load",
    "local_step",
    "move",
    "run_local",
    "store",
    "touch",
]

LocalStep = Moves | Swaps | Work | Offering
"""A step by loads and stores."""


def access(
    world: World, thread: UserThread, shadow: Shadow, span: tuple[int, int], writes: bool,
    place: Place,
) -> None:  # fmt: skip
    """Note an access of the user's program to bytes of an array."""
    lo, hi = span
    if lo < 0 or hi > shadow.size:
        _beyond(world, shadow, lo, hi, place)
        return
    bit = world.new_bit()
    shadow.touch(lo, hi, writes, thread.known, bit, place)
    thread.known |= bit


def touch(
    world: World, bound: Bound, spans: Sequence[Span], writes: bool, known: int, bit: int,
    place: Place,
) -> None:  # fmt: skip
    """Note the accesses of a step to blocks of its operands."""
    for operand, rank, lo, hi in spans:
        base, shadows = bound[operand]
        shadow = shadows[rank]
        lo += base
        hi += base
        if lo < 0 or hi > shadow.size:
            _beyond(world, shadow, lo, hi, place)
        else:
            shadow.touch(lo, hi, writes, known, bit, place)


def _beyond(world: World, shadow: Shadow, lo: int, hi: int, place: Place) -> None:
    world.protocol.append(
        f"{Where.of(place)}: {shadow.name}[{lo}:{hi}] is beyond its {shadow.size} bytes"
    )


def load(bound: Bound, blocks: Sequence[Span]) -> Store:
    """Return the bytes of blocks, one after the other."""
    data = []
    for operand, rank, lo, hi in blocks:
        base, shadows = bound[operand]
        data.append(shadows[rank].memory[lo + base : hi + base])
    return data[0][:0].join(data) if data else b""


def store(bound: Bound, blocks: Sequence[Span], data: Store) -> None:
    """Write bytes to blocks, one after the other."""
    at = 0
    for operand, rank, lo, hi in blocks:
        base, shadows = bound[operand]
        shadows[rank].memory[lo + base : hi + base] = data[at : at + hi - lo]
        at += hi - lo


def local_step(world: World, lane: Lane, what: LocalStep) -> bool:
    """Run a step by loads and stores on a lane."""
    epoch = lane.epoch
    if not epoch:
        epoch = lane.epoch = world.new_bit()
        lane.known |= epoch
    run_local(world, lane.owner, what, lane.known, epoch, (lane.head, lane.at))
    return True


def direct_step(world: World, lane: Lane, step: DirectGet | DirectPut) -> bool:
    """Copy from or to private memory of other threads, after a read of its address."""
    stream = lane.owner
    assert stream.call is not None
    programs = stream.call.programs
    return local_step(world, lane, programs[stream.rank].across(step, programs))


def run_local(
    world: World, thread: Stream, what: LocalStep, known: int, bit: int, place: Place
) -> None:
    """Run a step by loads and stores as an actor that knows `known`."""
    touch(world, thread.bound, what.reads, False, known, bit, place)
    touch(world, thread.bound, what.writes, True, known, bit, place)
    _LOCAL[type(what)](thread, what)


def _expose(thread: Stream, offering: Offering) -> None:
    """Move nothing: an Expose publishes an address only."""


def move(thread: Stream, moves: Moves) -> None:
    """Copy blocks."""
    bound = thread.bound
    for (operand, rank, lo, hi), (from_operand, from_rank, from_lo, from_hi) in moves.blocks:
        base, shadows = bound[operand]
        from_base, from_shadows = bound[from_operand]
        source = from_shadows[from_rank].memory
        shadows[rank].memory[lo + base : hi + base] = source[
            from_lo + from_base : from_hi + from_base
        ]


def _swap(thread: Stream, what: Swaps) -> None:
    for a, b in what.pairs:
        kept = load(thread.bound, (a,)), load(thread.bound, (b,))
        store(thread.bound, (a,), kept[1])
        store(thread.bound, (b,), kept[0])


def _reduce(thread: Stream, what: Work) -> None:
    assert thread.call is not None
    kernel = thread.call.kernel
    bound = thread.bound

    def view(part: BlockRef, nelems: int) -> Any:
        base, shadows = bound[part.operand]
        memory = shadows[part.thread].memory
        return np.frombuffer(memory, kernel.dtype, nelems, part.offset + base)

    carry_out(what.step, kernel, view)


_LOCAL: Final[dict[type[Any], Callable[[Stream, Any], None]]] = {
    Moves: move,
    Swaps: _swap,
    Work: _reduce,
    Offering: _expose,
}
