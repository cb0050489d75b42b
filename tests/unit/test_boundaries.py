"""Sizes and offsets around 2**31, 2**32 and 2**63: nothing wraps, what is too much is refused.

The numbers are compared with Python's own, which have no width.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from unit.test_shared import FakeMemory

from xupc.api.block_addresses import Displaced, Numbers
from xupc.pgas.allocation import Allocation
from xupc.pgas.allocator import Allocator
from xupc.pgas.layout import Layout
from xupc.pgas.pointer import advance, distance, local_count, locate
from xupc.pgas.shared_pointer import SharedPointer

EDGES = [
    (1 << power) + step for power in (31, 32, 33, 40) for step in (-65, -64, -1, 0, 1, 63, 64)
]
LAYOUTS = [(threads, block) for threads in (1, 2, 3) for block in (1, 7, 1 << 20, 1 << 31, 0)]


@pytest.mark.parametrize(("threads", "block"), LAYOUTS)
def test_pointers(threads: int, block: int) -> None:
    for n in EDGES:
        for item in (1, 8, 16):
            thread, phase, addr = advance(0, 0, 64, n, block, item, threads)
            b = block or n + 1
            assert (thread, phase) == (n // b % threads, n % b if block else 0)
            assert addr == 64 + (n // b // threads * b + n % b) * item
            assert distance((thread, phase, addr), (0, 0, 64), block, item, threads) == n
            assert locate(n, block, threads)[2] * item == addr - 64
        counts = [local_count(t, n, block, threads) for t in range(threads)]
        assert sum(counts) == n


@pytest.mark.parametrize(("threads", "block"), LAYOUTS)
def test_allocations(threads: int, block: int) -> None:
    """The contents of an allocation end at its last byte."""
    memory = FakeMemory(threads)
    for n in EDGES:
        a = Allocation(memory, 1, 1 << 32, n, np.dtype("f8"), block)
        parts = [a.part(t) for t in range(threads)]
        assert sum(size for _, size in parts) == 8 * n
        for thread, (offset, size) in enumerate(parts):
            assert a.holds(thread, offset, size)
            assert not a.holds(thread, offset, size + 1)
            assert not a.holds(thread, offset - 1, 1)
            assert not a.holds(thread, offset + size, 1)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_layouts_of_reductions(threads: int) -> None:
    for n in EDGES:
        for block in (0, 1, 1000, 1 << 31, (1 << 32) + 1):
            layout = Layout(threads, 0, 0, block, n)
            runs = [layout.run(position).nelems for position in range(layout.positions)]
            assert sum(runs) == n, (n, block)
            last = layout.block_at(layout.blocks - 1)
            assert last.nelems == n - (layout.blocks - 1) * layout.block


def test_allocator() -> None:
    allocator = Allocator(1 << 36, 64)
    taken: dict[int, int] = {}
    for n in EDGES[:14]:
        offset = allocator.alloc(n)
        assert offset is not None
        assert all(offset + n <= at or at + size <= offset for at, size in taken.items())
        taken[offset] = n
    for offset in taken:
        allocator.free(offset)
    assert allocator.alloc(1 << 36) == 0


def _displaced(memory: Any, n: int, displacements: list[int], block: int, size: int) -> Any:
    a = Allocation(memory, 1, 0, n, np.dtype("u1"), 0)
    p = SharedPointer(a, 0, 0, 0, 0, a.dtype)
    side = Displaced("dst", p, Numbers("ddisp", displacements), block, size)
    team: Any = SimpleNamespace(threads=range(memory.threads))
    side.prepare("call", team, len(displacements))
    return side.places("call", np.arange(len(displacements)))


@pytest.mark.parametrize("threads", [1, 3])
def test_displacements(threads: int) -> None:
    memory = FakeMemory(threads)
    for block in (0, 1, 1000, 1 << 31, 1 << 33):
        for size in (1, 8, 4096):
            found = _displaced(memory, 1 << 50, EDGES, block, size)
            for d, thread, addr in zip(EDGES, found.thread, found.addr, strict=True):
                want, _, at = advance(0, 0, 0, d, block, size, threads)
                assert (int(thread), int(addr)) == (want, at)


@pytest.mark.parametrize("size", [1 << 19, 1 << 20, 1 << 31, 1 << 32, (1 << 44) - 1])
def test_displacements_beyond_64_bits(size: int) -> None:
    """They are refused; wrapped round they would be inside the allocation."""
    memory = FakeMemory(2)
    for d in ((1 << 44) - 1, -(1 << 44) + 1):
        with pytest.raises(ValueError, match="beyond any memory"):
            _displaced(memory, 1 << 50, [0, d], 1, size)
