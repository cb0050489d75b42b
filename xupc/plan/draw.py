"""Steps as text: one line per step, the node lane before the net lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .steps import (
    LANES,
    Barrier,
    BlockRef,
    Blocks,
    Copy,
    CopyBack,
    DirectGet,
    DirectPut,
    Expose,
    Fold,
    FusedBarrier,
    Get,
    NetSignal,
    NetWait,
    Recv,
    Scan,
    Send,
    SetTicket,
    Signal,
    Step,
    Swap,
    Wait,
    WaitTicket,
    by_kind,
)

__all__ = ["drawn", "step_text"]

OPERANDS = ("dst", "src", "slot", "buffer")


def _part(p: BlockRef, count: int, nbytes: int) -> str:
    name = OPERANDS[p.operand] if p.operand < len(OPERANDS) else f"operand{p.operand}"
    thread = str(p.thread)
    if count > 1 and p.thread_step:
        last = p.thread + (count - 1) * p.thread_step
        thread += f"..{last}" + (f":{p.thread_step}" if p.thread_step != 1 else "")
    where = f"{p.offset}:{p.offset + nbytes}"
    if count > 1 and p.offset_step:
        where += f" step {p.offset_step}"
    return f"{name}@{thread}[{where}]"


def _row(a: BlockRef, b: BlockRef, nbytes: int, count: int) -> str:
    return f"{_times(count)}{nbytes} B  {_part(a, count, nbytes)} <- {_part(b, count, nbytes)}"


def _message(blocks: tuple[Blocks, ...]) -> str:
    """Return the size of each piece of a message, and where they are."""
    times, parts = [], []
    for part, nbytes, columns, rows, (threads, step) in blocks:
        times.append(f"{rows} x " * (rows > 1) + f"{columns} x " * (columns > 1) + f"{nbytes} B")
        down = f" rows {step} B" * (rows > 1 and step > 0)
        down += f" rows {threads} thread{'s'[: threads != 1]}" * (rows > 1 and threads > 0)
        parts.append(_part(part, columns, nbytes) + down)
    return f"{' + '.join(times)}  {' + '.join(parts)}"


def step_text(step: Step) -> str:
    """Return one line that describes what the step does."""
    return _TEXTS[type(step)](step)


def _at(p: BlockRef) -> str:
    return f"{OPERANDS[p.operand]}@{p.thread}[{p.offset}]"


def _fold(step: Fold) -> str:
    """Return a Fold with its tree in brackets."""
    stack: list[str] = []
    for leaf in step.leaves:
        stack.append(_at(leaf.part) + (f"x{leaf.times}" if leaf.times > 1 else ""))
        for _ in range(leaf.joins):
            right = stack.pop()
            stack[-1] = f"({stack[-1]} {right})"
    places = f" and {step.copies - 1} more" if step.copies > 1 else ""
    times, into = _times(step.rows), _at(step.dst)
    value = " ".join(stack) or "identity"
    return f"fold     {times}{step.nelems} el {into}{places} <- {value}"


def _copy(step: Copy) -> str:
    return "copy     " + _row(step.dst, step.src, step.nbytes, step.count)


def _swap(step: Swap) -> str:
    return "swap     " + _row(step.a, step.b, step.nbytes, step.count).replace("<-", "<->")


def _times(count: int) -> str:
    return f"{count} x " if count > 1 else ""


def _expose(step: Expose) -> str:
    return f"offer    {step.nbytes} B from {_at(step.part)} on to my node"


def _direct_get(step: DirectGet) -> str:
    into, times = _part(step.dst, step.of.count, step.nbytes), _times(step.of.count)
    return f"reach    {times}{step.nbytes} B {into} <- offer of {step.of}[{step.offset}]"


def _direct_put(step: DirectPut) -> str:
    of, times = _part(step.src, step.to.count, step.nbytes), _times(step.to.count)
    return f"deposit  {times}{step.nbytes} B {of} -> offer of {step.to}[{step.offset}]"


def _copy_back(step: CopyBack) -> str:
    into, times = _part(step.part, step.count, step.nbytes), _times(step.count)
    return f"reclaim  {times}{step.nbytes} B {into} <- my offer[{step.offset}]"


def _get(step: Get) -> str:
    return f"get      {_row(step.dst, step.src, step.nbytes, step.count)}  => t{step.ticket}"


def _send(step: Send) -> str:
    return f"send     {_message(step.blocks)} -> thread {step.to}  => t{step.ticket}"


def _recv(step: Recv) -> str:
    return f"recv     {_message(step.blocks)} <- thread {step.of}  => t{step.ticket}"


def _signal(step: Signal) -> str:
    return f"signal   channel {step.channel} = {step.value} for {step.to}"


def _wait(step: Wait) -> str:
    return f"wait     channel {step.channel} >= {step.value} of {step.of}"


def _net_signal(step: NetSignal) -> str:
    return f"notify   {step.to} off my node (channel {step.channel})  => t{step.ticket}"


def _net_wait(step: NetWait) -> str:
    return f"await    {step.of} off my node (channel {step.channel})  => t{step.ticket}"


def _wait_ticket(step: WaitTicket) -> str:
    return f"need     t{step.ticket}"


def _set_ticket(step: SetTicket) -> str:
    return f"post     t{step.ticket}"


def _scan(step: Scan) -> str:
    way = "back" if step.reverse else "on"
    carry = "" if step.carry is None else f" after {_at(step.carry)}"
    into, out_of = _at(step.dst), _at(step.src)
    return f"scan     {_times(step.rows)}{step.nelems} el {into} <- {out_of} {way}{carry}"


def _barrier(step: Barrier) -> str:
    return "barrier  all threads of the team, same call"


def _fused(step: FusedBarrier) -> str:
    by = "the last to arrive" if step.by is None else f"thread {step.by}"
    inside = "; ".join(step_text(s) for s in step.body)
    return f"fused    all arrive, {by} does [{inside}], all are released"


_TEXTS: Final[Mapping[type[Step], Callable[[Any], str]]] = by_kind(
    "drawing",
    {
        Copy: _copy,
        Swap: _swap,
        Expose: _expose,
        DirectGet: _direct_get,
        DirectPut: _direct_put,
        CopyBack: _copy_back,
        Signal: _signal,
        Wait: _wait,
        NetSignal: _net_signal,
        NetWait: _net_wait,
        Send: _send,
        Recv: _recv,
        Get: _get,
        WaitTicket: _wait_ticket,
        SetTicket: _set_ticket,
        Barrier: _barrier,
        FusedBarrier: _fused,
        Fold: _fold,
        Scan: _scan,
    },
)


def drawn(lanes: Sequence[Sequence[Step]]) -> list[str]:
    """Return a heading for each lane that has steps, and a line for each of its steps."""
    lines = []
    for name, lane in zip(LANES, lanes, strict=True):
        if lane:
            lines.append(f"  {name} lane")
            lines += [f"    {i:3d}  {step_text(step)}" for i, step in enumerate(lane)]
    return lines
