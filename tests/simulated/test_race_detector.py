"""The race detector alone, against all pairs of accesses of random actors."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from support.soak import amount

from xupc.backends.simulator.race_detector import Head, Race, Shadow, Where

SIZE, ACCESSES = 24, 200
HEAD: Head = (0, 0, 0, range(ACCESSES), "test")  # its steps are the numbers of the accesses


class Access(NamedTuple):
    """An access by an actor that knows `known` then."""

    lo: int
    hi: int
    writes: bool
    known: int


def accesses(rng: random.Random, writes: float, signals: float) -> list[Access]:
    """Draw accesses of some actors, which learn from each other between them."""
    known = [0] * rng.randrange(2, 7)
    found = []
    for number in range(ACCESSES):
        while rng.random() < signals:
            sender, receiver = rng.sample(range(len(known)), 2)
            known[receiver] |= known[sender]
        actor = rng.randrange(len(known))
        lo = rng.randrange(SIZE)
        hi = min(SIZE, lo + rng.choice((1, 2, 5, SIZE)))
        found.append(Access(lo, hi, rng.random() < writes, known[actor]))
        known[actor] |= 1 << number
    return found


def conflict(first: Access, second: Access) -> bool:
    """Return whether two accesses have a byte in common and one writes."""
    common = first.lo < second.hi and second.lo < first.hi
    return common and (first.writes or second.writes)


@pytest.mark.soak
@pytest.mark.parametrize("writes", [0.02, 0.3])
@pytest.mark.parametrize("signals", [0.3, 0.8])
def test_an_access_races_if_any_earlier_one_does_not_come_before_it(
    writes: float, signals: float
) -> None:
    """What the detector no longer keeps would have been found by what it keeps."""
    rng = random.Random(f"{writes} {signals}")
    racing = 0
    for _ in range(amount(10, 200)):
        races: dict[tuple[Where, Where], Race] = {}
        shadow = Shadow("dst", 0, bytearray(SIZE), races)
        every = accesses(rng, writes, signals)
        for number, (lo, hi, is_write, known) in enumerate(every):
            shadow.touch(lo, hi, is_write, known, 1 << number, (HEAD, number))
        pairs = {(first.step, second.step) for first, second in races}
        for first, second in pairs:
            assert conflict(every[first], every[second])
            assert not every[second].known >> first & 1
        expected = {
            second for second, access in enumerate(every)
            if any(
                conflict(before, access) and not access.known >> first & 1
                for first, before in enumerate(every[:second])
            )
        }  # fmt: skip
        assert {second for _, second in pairs} == expected
        racing += len(expected)
    assert racing > 0


def test_a_read_is_kept_until_a_newer_one_knows_of_it() -> None:
    """Many reads of another thread do not hide it from a write that comes after these alone."""
    races: dict[tuple[Where, Where], Race] = {}
    shadow = Shadow("dst", 0, bytearray(SIZE), races)
    shadow.touch(0, 8, False, 0, 1, (HEAD, 0))
    known = 0
    for number in range(1, ACCESSES - 1):
        shadow.touch(0, 8, False, known, 1 << number, (HEAD, number))
        known |= 1 << number
    shadow.touch(4, 5, True, known, 1 << ACCESSES - 1, (HEAD, ACCESSES - 1))
    assert [(first.step, second.step) for first, second in races] == [(0, ACCESSES - 1)]
