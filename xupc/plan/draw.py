"""Steps as text: one line per step, the node lane before the net lane."""

from __future__ import annotations

from collections.abc import Sequence

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
    times = f"{count} x " if count > 1 else ""
    return f"{times}{nbytes} B  {_part(a, count, nbytes)} <- {_part(b, count, nbytes)}"


def _message(blocks: tuple[Blocks, ...]) -> str:
    """Return the size of each piece of a message, and where they are."""
    times, parts = [], []
    for part, nbytes, columns, rows, (threads, step) in blocks:
        times.append(f"{rows} x " * (rows > 1) + f"{columns} x " * (columns > 1) + f"{nbytes} B")
        down = f" rows {step} B" * (rows > 1 and step > 0)
        down += f" rows {threads} thread(s)" * (rows > 1 and threads > 0)
        parts.append(_part(part, columns, nbytes) + down)
    return f"{' + '.join(times)}  {' + '.join(parts)}"


def step_text(step: Step) -> str:
    """Return one line that describes what the step does."""
    match step:
        case Copy():
            return "copy     " + _row(step.dst, step.src, step.nbytes, step.count)
        case Swap():
            text = _row(step.a, step.b, step.nbytes, step.count)
            return "swap     " + text.replace("<-", "<->")
        case Expose():
            return f"offer    {step.nbytes} B from {_at(step.part)} on to my node"
        case DirectGet():
            into = _part(step.dst, step.of.count, step.nbytes)
            count = f"{step.of.count} x " if step.of.count > 1 else ""
            return f"reach    {count}{step.nbytes} B {into} <- offer of {step.of}[{step.offset}]"
        case DirectPut():
            of = _part(step.src, step.to.count, step.nbytes)
            count = f"{step.to.count} x " if step.to.count > 1 else ""
            return f"deposit  {count}{step.nbytes} B {of} -> offer of {step.to}[{step.offset}]"
        case CopyBack():
            into = _part(step.part, step.count, step.nbytes)
            count = f"{step.count} x " if step.count > 1 else ""
            return f"reclaim  {count}{step.nbytes} B {into} <- my offer[{step.offset}]"
        case Get():
            text = _row(step.dst, step.src, step.nbytes, step.count)
            return f"get      {text}  => t{step.ticket}"
        case Send():
            return f"send     {_message(step.blocks)} -> thread {step.to}  => t{step.ticket}"
        case Recv():
            return f"recv     {_message(step.blocks)} <- thread {step.of}  => t{step.ticket}"
        case Signal():
            return f"signal   channel {step.channel} = {step.value} for {step.to}"
        case Wait():
            return f"wait     channel {step.channel} >= {step.value} of {step.of}"
        case NetSignal():
            return f"notify   {step.to} off my node (channel {step.channel})  => t{step.ticket}"
        case NetWait():
            return f"await    {step.of} off my node (channel {step.channel})  => t{step.ticket}"
        case WaitTicket():
            return f"need     t{step.ticket}"
        case SetTicket():
            return f"post     t{step.ticket}"
        case Fold():
            return _fold(step)
        case Scan():
            times = f"{step.rows} x " if step.rows > 1 else ""
            way = "back" if step.reverse else "on"
            carry = "" if step.carry is None else f" after {_at(step.carry)}"
            into, out_of = _at(step.dst), _at(step.src)
            return f"scan     {times}{step.nelems} el {into} <- {out_of} {way}{carry}"
        case Barrier():
            return "barrier  all threads of the team, same call"
        case FusedBarrier():
            by = "the last to arrive" if step.by is None else f"thread {step.by}"
            inside = "; ".join(step_text(s) for s in step.body)
            return f"fused    all arrive, {by} does [{inside}], all are released"
    return repr(step)


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
    times = f"{step.rows} x " if step.rows > 1 else ""
    places = f" and {step.copies - 1} more" if step.copies > 1 else ""
    value = " ".join(stack) or "identity"
    return f"fold     {times}{step.nelems} el {_at(step.dst)}{places} <- {value}"


def drawn(lanes: Sequence[Sequence[Step]]) -> list[str]:
    """Return a heading for each lane that has steps, and a line for each of its steps."""
    lines = []
    for name, lane in zip(LANES, lanes, strict=True):
        if lane:
            lines.append(f"  {name} lane")
            lines += [f"    {i:3d}  {step_text(step)}" for i, step in enumerate(lane)]
    return lines
