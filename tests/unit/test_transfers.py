"""From the lists of a `_v` or `_x` call to transfers, and how a node's threads divide them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.test_shared import FakeMemory

from xupc.algorithms.block_crossing import _packed
from xupc.algorithms.block_transfers import _divided
from xupc.algorithms.private_staging import units_of
from xupc.algorithms.transfer_lists import Transfers, entries
from xupc.api.block_addresses import Displaced, Numbers
from xupc.pgas.shared_array import SharedArray
from xupc.plan.recorder import Recorder
from xupc.topology.tree import Tree


@pytest.mark.parametrize(
    ("name", "perm", "expected"),
    [
        # (entry of dst, entry of src, entry of the sizes, to, from)
        ("broadcast", None, {(0, 0, 0, 0, None), (1, 0, 0, 1, None)}),
        ("scatter", None, {(0, 0, 0, 0, None), (1, 1, 1, 1, None)}),
        ("gather", None, {(0, 0, 0, None, 0), (1, 1, 1, None, 1)}),
        ("gather_all", None, {(0, 0, 0, 0, 0), (1, 1, 1, 0, 1), (2, 0, 0, 1, 0), (3, 1, 1, 1, 1)}),
        ("exchange", None, {(0, 0, 0, 0, 0), (1, 2, 2, 0, 1), (2, 1, 1, 1, 0), (3, 3, 3, 1, 1)}),
        ("permute", [1, 0], {(1, 0, 0, 1, 0), (0, 1, 1, 0, 1)}),
    ],
)
def test_entries_that_belong_together(name: str, perm: Any, expected: set[Any]) -> None:
    """The table of API for two threads."""
    found = entries(name, 2, None if perm is None else np.array(perm))
    columns = [[None] * found.dst.size if c is None else c.tolist() for c in found]
    assert set(zip(*columns, strict=True)) == expected


@given(
    threads=st.integers(1, 5),
    own=st.integers(0, 6),
    block=st.none() | st.integers(0, 6),
    start=st.integers(0, 40),
    displacements=st.lists(st.integers(-60, 90), min_size=1, max_size=6),
)
def test_displacements_are_pointer_arithmetic(
    threads: int, own: int, block: int | None, start: int, displacements: list[int]
) -> None:
    """Entry k is where ``p.cast(blocksize=dst_blk) + displacement[k]`` points."""
    array = SharedArray(FakeMemory(threads).allocate(60, np.int16, own))
    p = array + start
    side = Displaced("dst", p, Numbers("ddisp", displacements), block, None)
    team: Any = SimpleNamespace(threads=range(threads))
    side.prepare("call", team, len(displacements))
    places = side.places("call", np.arange(len(displacements)))
    for d, thread, addr, low, high in zip(
        displacements, *(column.tolist() for column in places), strict=True
    ):
        q = p.cast(blocksize=block) + d
        assert (q.thread, q.addr) == (thread, addr)
        offset, nbytes = p.allocation.part(thread)
        assert (low, high) == (offset, offset + nbytes)


def _recorder(threads: int, share: int) -> Recorder:
    return Recorder(0, Tree([0] * threads), ("all", "all"), {"rebalance_min": share})


def _moves(rows: list[tuple[int, int, int, int, int]]) -> Transfers:
    return Transfers.of(*np.array(rows, np.int64).reshape(-1, 5).T)


@pytest.mark.parametrize("threads", [2, 3, 4, 7])
def test_a_heavy_thread_is_helped(threads: int) -> None:
    """All threads copy the same number of bytes, but for a cache line, and each byte once."""
    rows = [(1, 0, 0, 0, 900_001), (0, 5, 1, 7, 33), (1, 1_000_000, 1, 50, 64)]
    pieces, movers = _divided(_recorder(threads, 1000), _moves(rows))
    shares = np.bincount(movers, weights=pieces.nbytes, minlength=threads)
    assert shares.max() - shares.min() <= 128
    bytes_of = {
        (dst, to + k): (src, at + k)
        for dst, to, src, at, n in rows for k in (0, n // 2, n - 1)
    }  # fmt: skip
    covered = 0
    for dst, to, src, at, n in pieces.each():
        covered += n
        for (rank, byte), source in bytes_of.items():
            if rank == dst and to <= byte < to + n:
                assert source == (src, at + byte - to)
    assert covered == sum(n for *_, n in rows)


def test_who_has_or_gets_copies_where_that_is_fair() -> None:
    """From one thread to all: each its own; from all to one: each what it has."""
    out = _moves([(i, 0, 2, 64 * i, 500) for i in range(4)])
    assert _divided(_recorder(4, 10), out)[1].tolist() == [0, 1, 2, 3]
    back = _moves([(2, 600 * i, i, 0, 500) for i in range(4)])
    assert _divided(_recorder(4, 10), back)[1].tolist() == [0, 1, 2, 3]


def test_messages_are_full() -> None:
    """Blocks are cut where a message is full."""
    messages = [[tuple(piece) for piece in m] for m in _packed([(0, 5), (1, 12), (2, 3)], 8)]
    assert messages == [[(0, 0, 5), (1, 0, 3)], [(1, 3, 8)], [(1, 11, 1), (2, 0, 3)]]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 16, 17])
@pytest.mark.parametrize("width", [64, 1024, 4096])
def test_what_fits_a_place_is_one_unit(count: int, width: int) -> None:
    """A place in a op_scratch is never waited for, so a second unit would overwrite the first."""
    for nbytes in range(1, width // count + 1):
        assert units_of(count, nbytes, width) == [(0, count, 0, nbytes)]
    for nbytes in range(width // count + 1, 2 * width, 61):
        units = units_of(count, nbytes, width)
        assert len(units) > 1
        assert all(blocks * size <= width for _, blocks, _, size in units)
        assert sum(blocks * size for _, blocks, _, size in units) == count * nbytes
