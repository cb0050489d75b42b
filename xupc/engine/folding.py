"""Fold and Scan steps by numpy and a kernel's methods: what all engines but the core do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..plan.steps import Fold, Leaf, Part, Scan

__all__ = ["Span", "View", "carry_out", "reads", "writes"]

View = Callable[[Part, int], Any]
"""``(part, elements)`` -> the array there."""
Span = tuple[Part, int]
"""A part and how many elements of it."""


def _in_line(leaf: Leaf, nelems: int, itemsize: int) -> bool:
    """Whether a leaf is one run that is folded to one value."""
    return nelems == 1 and leaf.times > 1 and leaf.part.offset_step == itemsize


def _blocks(leaf: Leaf, row: int) -> Iterator[Part]:
    for i in range(leaf.times):
        yield leaf.part.block(i) + row * leaf.step


def carry_out(step: Fold | Scan, kernel: Any, view: View) -> None:
    """Do it."""
    if isinstance(step, Scan):
        for row in range(step.rows):
            carry = None
            if step.carry is not None:
                carry = view(step.carry + row * step.carry_step, 1)[0]
            dst = view(step.dst + row * step.dst_step, step.nelems)
            src = view(step.src + row * step.src_step, step.nelems)
            kernel.scan(dst, src, carry, step.reverse)
        return
    for row in range(step.rows):
        value = _row(step, kernel, view, row)
        for i in range(step.copies):
            view(step.dst.block(i) + row * step.dst_step, step.nelems)[...] = value


def _row(step: Fold, kernel: Any, view: View, row: int) -> Any:
    stack: list[Any] = []
    for leaf in step.leaves:
        stack.append(_leaf(leaf, step.nelems, kernel, view, row))
        for _ in range(leaf.joins):
            right = stack.pop()
            stack[-1] = _combine(kernel, stack[-1], right)
    (value,) = stack
    return value


def _leaf(leaf: Leaf, nelems: int, kernel: Any, view: View, row: int) -> Any:
    if _in_line(leaf, nelems, kernel.dtype.itemsize):
        value = np.empty(1, kernel.dtype)
        kernel.fold_to(value, view(leaf.part + row * leaf.step, leaf.times))
        return value
    first, *rest = _blocks(leaf, row)
    value = view(first, nelems)
    for part in rest:
        value = _combine(kernel, value, view(part, nelems))
    return value


def _combine(kernel: Any, a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    kernel.combine(out, a, b)
    return out


def reads(step: Fold | Scan, itemsize: int) -> Iterator[Span]:
    """What it reads."""
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
    """What it writes."""
    for row in range(step.rows):
        copies = step.copies if isinstance(step, Fold) else 1
        for i in range(copies):
            yield step.dst.block(i) + row * step.dst_step, step.nelems
