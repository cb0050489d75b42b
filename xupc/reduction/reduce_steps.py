"""Run Fold and Scan steps with numpy and a kernel, in all backends but the native core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..plan.steps import BlockRef, Fold, FoldOperand, Scan
from .structured_dtypes import raw

__all__ = ["Action", "Span", "View", "actions", "carry_out", "reads", "room", "writes"]

View = Callable[[BlockRef, int], Any]
"""``(part, elements)`` -> a view of the array there."""
Action = Callable[[], object]
Span = tuple[BlockRef, int]
"""A part and its number of elements."""

_ACTION = 256
"""Bytes of one action object, an estimate."""

_PIECE = 1 << 19
"""Bytes of each operand that one call joins, so that they stay in cache."""


def _in_line(leaf: FoldOperand, nelems: int, itemsize: int) -> bool:
    """Return whether a leaf is one run that is folded to one value."""
    return nelems == 1 and leaf.times > 1 and leaf.part.offset_step == itemsize


def _blocks(leaf: FoldOperand, row: int) -> Iterator[BlockRef]:
    for i in range(leaf.times):
        yield (leaf.part.block(i) if i else leaf.part) + row * leaf.step


def carry_out(step: Fold | Scan, kernel: Any, view: View) -> None:
    """Run a step once."""
    for act in actions(step, kernel, view):
        act()


def actions(step: Fold | Scan, kernel: Any, view: View) -> Iterator[Action]:
    """Yield the calls that a step consists of, in order; each can run many times."""
    for row in range(step.rows):
        if isinstance(step, Scan):
            yield _scanning(step, kernel, view, row)
        else:
            yield from _row(step, kernel, view, row)


def room(step: Fold | Scan, itemsize: int) -> int:
    """Return the most bytes that the actions of a step keep."""
    values = 0 if isinstance(step, Scan) else sum(leaf.times for leaf in step.leaves) * step.nelems
    return step.rows * (values * itemsize + _ACTION)


def _scanning(step: Scan, kernel: Any, view: View, row: int) -> Action:
    dst = view(step.dst + row * step.dst_step, step.nelems)
    src = view(step.src + row * step.src_step, step.nelems)
    carry = None if step.carry is None else view(step.carry + row * step.carry_step, 1)
    beside = step.dst != step.src and np.may_share_memory(dst, src)

    def scan() -> None:
        if beside:
            raw(dst)[...] = raw(src)
        before = None if carry is None else carry[0]  # read when the action runs
        kernel.scan(dst, dst if beside else src, before, step.reverse)

    return scan


def _row(step: Fold, kernel: Any, view: View, row: int) -> Iterator[Action]:
    """Yield the actions of a row of a Fold, piece by piece, so that operands stay in cache."""
    leaves: list[list[Any]] = []
    for leaf in step.leaves:
        if _in_line(leaf, step.nelems, kernel.dtype.itemsize):
            value = np.empty(1, kernel.dtype)
            yield partial(kernel.fold_to, value, view(leaf.part + row * leaf.step, leaf.times))
            leaves.append([value])
        else:
            leaves.append([view(part, step.nelems) for part in _blocks(leaf, row)])
    to = [
        view((step.dst.block(i) if i else step.dst) + row * step.dst_step, step.nelems)
        for i in range(step.copies)
    ]
    if not leaves:
        yield from (partial(kernel.fill, x) for x in to)
        return
    most = max(1, _PIECE // kernel.dtype.itemsize)
    if step.nelems <= most:
        yield from _piece(step, kernel, leaves, to)
        return
    for begin in range(0, step.nelems, most):
        piece = slice(begin, begin + most)
        blocks = [[x[piece] for x in leaf] for leaf in leaves]
        yield from _piece(step, kernel, blocks, [x[piece] for x in to])


def _piece(step: Fold, kernel: Any, leaves: list[list[Any]], to: list[Any]) -> Iterator[Action]:
    stack: list[Any] = []
    left = sum(len(blocks) for blocks in leaves) - 1

    def join(right: Any) -> Action:
        nonlocal left
        left -= 1
        out = np.empty_like(right) if left else to[0]
        act: Action = kernel.joining(out, stack[-1], right)
        stack[-1] = out
        return act

    for leaf, blocks in zip(step.leaves, leaves, strict=True):
        stack.append(blocks[0])
        for block in blocks[1:]:
            yield join(block)
        for _ in range(leaf.joins):
            yield join(stack.pop())
    (value,) = stack
    for x in to:
        if x is not value:
            yield partial(np.copyto, raw(x), raw(value))


def reads(step: Fold | Scan, itemsize: int) -> Iterator[Span]:
    """Yield the parts that a step reads."""
    for row in range(step.rows):
        if isinstance(step, Scan):
            yield step.src + row * step.src_step, step.nelems
            if step.carry is not None:
                yield step.carry + row * step.carry_step, 1
            continue
        for leaf in step.leaves:
            if _in_line(leaf, step.nelems, itemsize):
                yield leaf.part + row * leaf.step, leaf.times
            else:
                for part in _blocks(leaf, row):
                    yield part, step.nelems


def writes(step: Fold | Scan) -> Iterator[Span]:
    """Yield the parts that a step writes."""
    for row in range(step.rows):
        copies = step.copies if isinstance(step, Fold) else 1
        for i in range(copies):
            yield step.dst.block(i) + row * step.dst_step, step.nelems
