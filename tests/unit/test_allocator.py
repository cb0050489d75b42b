"""The allocator against a map with one entry per unit of memory."""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from xupc.pgas.allocator import Allocator

ALIGN = 16
UNITS = 24


class AgainstByteMap(RuleBasedStateMachine):
    """`owner` names each unit's allocation (0: free), `segment` the piece it may not leave."""

    live = Bundle("live")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.allocator = Allocator(UNITS * ALIGN, ALIGN)
        self.owner = [0] * UNITS
        self.segment = [0] * UNITS
        self.serial = 0
        self.holding: set[int] = set()
        self.living: set[int] = set()

    def extents(self) -> list[tuple[int, int]]:
        """(units, first unit) of each stretch of free units within a segment."""
        found = []
        keys = [
            (segment, owner == 0) for segment, owner in zip(self.segment, self.owner, strict=True)
        ]
        for (_, is_free), units in groupby(range(len(keys)), keys.__getitem__):
            if is_free:
                stretch = list(units)
                found.append((len(stretch), stretch[0]))
        return found

    def wipe(self, offset: int) -> int:
        """Free the units of the allocation at `offset`, and return their bytes."""
        serial = self.owner[offset // ALIGN]
        count = self.owner.count(serial)
        self.owner = [0 if owner == serial else owner for owner in self.owner]
        return count * ALIGN

    @rule(target=live, nbytes=st.integers(0, 10 * ALIGN))
    def alloc(self, nbytes: int) -> int:
        units = max(1, -(-nbytes // ALIGN))
        fitting = [extent for extent in self.extents() if extent[0] >= units]
        offset = self.allocator.alloc(nbytes)
        if not fitting:
            assert offset is None
            return -1
        first = min(fitting)[1]
        assert offset == first * ALIGN
        self.serial += 1
        self.owner[first : first + units] = [self.serial] * units
        self.living.add(offset)
        assert self.allocator.size_of(offset) == units * ALIGN
        return offset

    @rule(offset=consumes(live))
    def free(self, offset: int) -> None:
        if offset < 0:
            return
        assert self.allocator.free(offset) == self.wipe(offset)
        self.living.discard(offset)

    @rule(target=held, offset=consumes(live))
    def quarantine(self, offset: int) -> int:
        if offset < 0:
            return -1
        size = self.owner.count(self.owner[offset // ALIGN]) * ALIGN
        assert self.allocator.quarantine(offset) == size
        self.living.discard(offset)
        self.holding.add(offset)
        return offset

    @rule(offset=consumes(held))
    def release(self, offset: int) -> None:
        if offset < 0:
            return
        assert self.allocator.release(offset) == self.wipe(offset)
        self.holding.discard(offset)

    @rule(units=st.integers(1, 8), boundary=st.booleans())
    def extend(self, units: int, *, boundary: bool) -> None:
        if len(self.owner) > 4 * UNITS:
            return
        assert self.allocator.extend(units * ALIGN, boundary=boundary) == len(self.owner) * ALIGN
        self.owner += [0] * units
        self.segment += [self.segment[-1] + boundary] * units

    @rule(offset=st.integers(-ALIGN, UNITS * ALIGN))
    def refuse_unknown(self, offset: int) -> None:
        if offset not in self.living:
            for method in (self.allocator.free, self.allocator.quarantine, self.allocator.size_of):
                with pytest.raises(ValueError, match=f"offset {offset} "):
                    method(offset)
        if offset not in self.holding:
            with pytest.raises(ValueError, match=f"offset {offset} "):
                self.allocator.release(offset)

    @invariant()
    def figures(self) -> None:
        extents = self.extents()
        free = self.owner.count(0) * ALIGN
        assert self.allocator.size == len(self.owner) * ALIGN
        assert self.allocator.free_bytes == free
        assert self.allocator.used == self.allocator.size - free
        assert self.allocator.largest == max((units for units, _ in extents), default=0) * ALIGN
        held = {self.owner[offset // ALIGN] for offset in self.holding}
        assert self.allocator.quarantined == ALIGN * sum(o in held for o in self.owner)


TestAgainstByteMap = AgainstByteMap.TestCase
TestAgainstByteMap.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_same_calls_give_the_same_offsets() -> None:
    def story() -> list[int | None]:
        source = random.Random(7)
        allocator = Allocator(1 << 16)
        offsets: list[int | None] = []
        live: list[int] = []
        for _ in range(2000):
            if live and source.random() < 0.45:
                offsets.append(allocator.free(live.pop(source.randrange(len(live)))))
                continue
            offset = allocator.alloc(source.randrange(1, 4000))
            offsets.append(offset)
            if offset is not None:
                live.append(offset)
        return offsets

    assert story() == story()


def test_freed_neighbours_join() -> None:
    allocator = Allocator(256)
    offsets = [allocator.alloc(64) for _ in range(4)]
    assert offsets == [0, 64, 128, 192]
    assert allocator.alloc(1) is None
    for offset in (64, 192, 128):
        assert allocator.free(offset) == 64
    assert allocator.largest == 192
    assert allocator.alloc(192) == 64


def test_nothing_straddles_a_boundary() -> None:
    allocator = Allocator(128)
    assert allocator.extend(128) == 128
    assert (allocator.free_bytes, allocator.largest) == (256, 128)
    assert allocator.alloc(192) is None
    first, second = allocator.alloc(128), allocator.alloc(128)
    assert (first, second) == (0, 128)
    allocator.free(128)
    allocator.free(0)
    assert allocator.largest == 128


def test_extension_without_boundary_joins() -> None:
    allocator = Allocator(128)
    allocator.extend(128, boundary=False)
    assert allocator.alloc(256) == 0


def test_the_best_fit_is_taken() -> None:
    allocator = Allocator(640)
    offsets = [allocator.alloc(size) for size in (192, 64, 128, 64)]
    assert offsets == [0, 192, 256, 384]
    allocator.free(0)
    allocator.free(256)
    assert allocator.alloc(100) == 256


def test_quarantine_is_not_reused() -> None:
    allocator = Allocator(128)
    assert allocator.alloc(128) == 0
    assert allocator.quarantine(0) == 128
    assert allocator.alloc(1) is None
    assert (allocator.used, allocator.quarantined) == (128, 128)
    with pytest.raises(ValueError, match="in quarantine"):
        allocator.free(0)
    assert allocator.release(0) == 128
    with pytest.raises(ValueError, match="in quarantine"):
        allocator.release(0)
    assert allocator.alloc(128) == 0


def test_an_empty_start_can_grow() -> None:
    allocator = Allocator(0)
    assert (allocator.size, allocator.largest, allocator.alloc(0)) == (0, 0, None)
    assert allocator.extend(4096) == 0
    assert allocator.alloc(4096) == 0


def test_zero_bytes_have_offsets_of_their_own() -> None:
    allocator = Allocator(128)
    assert [allocator.alloc(0) for _ in range(3)] == [0, 64, None]


@pytest.mark.parametrize(("size", "align"), [(-64, 64), (100, 64), (64, 0), (96, 48), (64, -64)])
def test_bad_sizes(size: int, align: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        Allocator(size, align)


@pytest.mark.parametrize("nbytes", [0, -64, 65])
def test_bad_extensions(nbytes: int) -> None:
    allocator = Allocator(64)
    with pytest.raises(ValueError, match="expected"):
        allocator.extend(nbytes)
    assert allocator.size == 64


def test_negative_request() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        Allocator(64).alloc(-1)
