"""Moves of blocks of different sizes, simulated: threads advance together, on numpy alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from xupc.api import uneven_blocks
from xupc.api.uneven_arguments import UnevenArguments, VectorSide, sizes_of
from xupc.api.uneven_blocks import Moves, rounds, size_class, wasteful

SIZES = ((0,), (0, 1, 63), (64, 65, 500), (0, 70_000), (1 << 17, 3), (10, 300_000))


def carry_out(threads: Sequence[Moves]) -> int:
    """Run the moves of all threads, which must be the same calls; return how many there were."""
    count = 0
    while True:
        calls = [next(moves, None) for moves in threads]
        if calls[0] is None:
            assert calls == [None] * len(calls)
            return count
        count += 1
        found = [call for call in calls if call is not None]
        assert len(found) == len(calls)
        names = {name for name, _ in found}
        assert len(names) == 1
        MOVES[names.pop()]([arguments for _, arguments in found])


def _same(values: Any) -> Any:
    (one,) = {*values}
    return one


def _broadcast(calls: list[Any]) -> None:
    root = _same(root for _, root in calls)
    _same(block.size for block, _ in calls)
    for block, _ in calls:
        block[:] = calls[root][0].copy()


def _gather(calls: list[Any]) -> None:
    root = _same(root for *_, root in calls)
    _same(src.size for _, src, _ in calls)
    calls[root][0][:] = np.concatenate([src for _, src, _ in calls])


def _scatter(calls: list[Any]) -> None:
    root = _same(root for *_, root in calls)
    size = _same(dst.size for dst, *_ in calls)
    for i, (dst, *_) in enumerate(calls):
        dst[:] = calls[root][1].reshape(len(calls), size)[i]


def _gather_all(calls: list[Any]) -> None:
    whole = np.concatenate([src for _, src in calls])
    _same(src.size for _, src in calls)
    for dst, _ in calls:
        dst[:] = whole


def _exchange(calls: list[Any]) -> None:
    _same(src.size for _, src in calls)
    rows = [src.reshape(len(calls), -1).copy() for _, src in calls]
    for i, (dst, _) in enumerate(calls):
        dst[:] = np.concatenate([row[i] for row in rows])


def _permute(calls: list[Any]) -> None:
    _same(src.size for _, src, _ in calls)
    assert sorted(to for *_, to in calls) == [*range(len(calls))]
    for _, src, to in calls:
        calls[to][0][:] = src


MOVES: dict[str, Callable[[list[Any]], None]] = {
    "broadcast": _broadcast, "gather": _gather, "scatter": _scatter, "gather_all": _gather_all,
    "exchange": _exchange, "permute": _permute,
}  # fmt: skip


def cases() -> Iterator[tuple[int, tuple[int, ...], int]]:
    for threads in (1, 2, 3, 5):
        for sizes in SIZES:
            yield threads, sizes, threads + sum(sizes)


class Drawn:
    """Blocks of all threads: `sizes[i][j]` bytes from thread i to thread j."""

    def __init__(self, threads: int, lengths: tuple[int, ...], seed: int) -> None:
        rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.threads = range(threads)
        self.sizes = [[rng.choice(lengths) for _ in self.threads] for _ in self.threads]
        self.root = rng.randrange(threads)
        self.most = max(max(row) for row in self.sizes)

    def data(self, n: int) -> Any:
        return self.numbers.integers(0, 256, n).astype(np.uint8)


def room(sizes: Sequence[int]) -> list[Any]:
    return [np.zeros(n, np.uint8) for n in sizes]


@pytest.mark.parametrize(("threads", "lengths", "seed"), [*cases()])
def test_gather_and_scatter(threads: int, lengths: tuple[int, ...], seed: int) -> None:
    """The root has the block of each thread, and each thread the block that the root has for it."""
    of = Drawn(threads, lengths, seed)
    sizes, root = of.sizes[0], of.root
    blocks, into = [of.data(n) for n in sizes], room(sizes)
    carry_out(
        [
            uneven_blocks.gather(threads, blocks[i], into if i == root else None, root, of.most)
            for i in of.threads
        ]
    )
    assert all(map(np.array_equal, blocks, into))
    into = room(sizes)
    carry_out(
        [
            uneven_blocks.scatter(threads, blocks if i == root else None, into[i], root, of.most)
            for i in of.threads
        ]
    )
    assert all(map(np.array_equal, blocks, into))


@pytest.mark.parametrize(("threads", "lengths", "seed"), [*cases()])
def test_spread(threads: int, lengths: tuple[int, ...], seed: int) -> None:
    """Each thread has the blocks of all; its own one may be at another place."""
    of = Drawn(threads, lengths, seed)
    blocks = [of.data(n) for n in of.sizes[0]]
    have = [
        [blocks[j] if j == i else np.zeros_like(blocks[j]) for j in of.threads] for i in of.threads
    ]
    count = carry_out([uneven_blocks.spread(i, have[i]) for i in of.threads])
    assert all(np.array_equal(have[i][j], blocks[j]) for i in of.threads for j in of.threads)
    assert (count == 0) == (sum(of.sizes[0]) == 0)


@pytest.mark.parametrize("way", ["places", "shifts"])
@pytest.mark.parametrize(("threads", "lengths", "seed"), [*cases()])
def test_exchange(threads: int, lengths: tuple[int, ...], seed: int, way: str) -> None:
    """Thread j gets block j of each thread, both by places for all and by distances."""
    of = Drawn(threads, lengths, seed)
    blocks = [[of.data(n) for n in row] for row in of.sizes]
    into = [room([of.sizes[j][i] for j in of.threads]) for i in of.threads]
    longest = [max(of.sizes[i][(i + d) % threads] for i in of.threads) for d in of.threads]
    if way == "places":
        moves = [uneven_blocks.exchange(threads, blocks[i], into[i], of.most) for i in of.threads]
    else:
        moves = [uneven_blocks.shifts(i, blocks[i], into[i], longest) for i in of.threads]
    carry_out(moves)
    assert all(np.array_equal(into[j][i], blocks[i][j]) for i in of.threads for j in of.threads)


def test_places_are_little_larger_than_blocks() -> None:
    """A place has at most a quarter or 64 bytes more than its block; few sizes exist."""
    for n in range(1, 5000):
        assert n <= size_class(n) <= n + max(64, n // 4)
    assert len({size_class(n) for n in range(1, 1 << 16)}) < 80


@pytest.mark.parametrize("threads", [1, 3, 64])
def test_rounds_cover_each_byte_once(threads: int) -> None:
    """Parts follow each other, and the places of one round have bounded memory."""
    for most in (0, 1, 1000, 1 << 16, 100_000_000):
        end = 0
        for begin, size in rounds(most, threads):
            assert begin == end
            assert size * threads <= max(1 << 24, threads << 16)
            end = begin + size
        assert end >= most


def test_one_long_block_is_wasteful() -> None:
    """Short blocks are not: a call costs more than the copies."""
    assert wasteful(1 << 20, 1 << 20, 8)
    assert not wasteful(1 << 20, 5 << 20, 8)
    assert not wasteful(1000, 1000, 64)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("at", TypeError, "'at'"), ([1.0], TypeError, ""), (3, TypeError, "3"),
        ([1, 2, 3], ValueError, "3"), (range(9), ValueError, "9"), ([], ValueError, "0"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_one_at_any_length(
    given: object, kind: type[Exception], words: str
) -> None:
    side = VectorSide("dst", "counts", "displs", receives=True)
    with pytest.raises(kind, match=f"expected 4 integers, one for each thread, got {words}"):
        sizes_of(side, np.zeros(16), UnevenArguments({"counts": given}), 4, "call")
