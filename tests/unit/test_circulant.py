"""Schedules on a circulant graph: fewest rounds, each chunk once, no chunk before it is there."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from functools import partial
from itertools import product
from math import ceil, log2

import pytest
from support.soak import amount, share_of

from xupc.algorithms.reduce_circulant import LANDINGS, first_uses, places_needed
from xupc.plan import circulant
from xupc.plan.circulant import (
    Hop,
    Round,
    arrivals,
    entry,
    every_row,
    message,
    own_block,
    round_count,
    rounds,
    row,
    skip_of,
    skips,
)
from xupc.records import replace

Schedule = list[list[Round]]
"""The rounds of each position."""

FEW = (1, 2, 3, 7)
MANY = (64, 1000)
SAMPLES = (257, 500, 511, 512, 513, 777, 1000, 1023, 1025, 2047, 2048, 2049, 3000, 4095, 4096)


def schedule(p: int, n: int) -> Schedule:
    """Return the rounds of all positions."""
    return [list(rounds(v, p, n)) for v in range(p)]


def problem(found: Schedule, n: int) -> str:
    """Run a schedule; return what is wrong, or nothing. It does not look at the graph."""
    p = len(found)
    needed = n - 1 + ceil(log2(p)) if p > 1 else 0
    if any(len(mine) != needed for mine in found):
        return f"expected {needed} rounds"
    has: list[set[int]] = [set() for _ in found]
    has[0] = set(range(n))
    for i in range(needed):
        now = [(v, mine[i]) for v, mine in enumerate(found)]
        sent = {(v, step.send.peer, step.send.chunk) for v, step in now if step.send}
        came = {(step.recv.peer, v, step.recv.chunk) for v, step in now if step.recv}
        if sent != came:
            return f"round {i}: sends and receives differ by {sorted(sent ^ came)}"
        for v, to, chunk in sent:
            if v == to or chunk not in has[v]:
                return f"round {i}: {v} cannot send {chunk} to {to}"
        for _, v, chunk in came:
            if chunk in has[v]:
                return f"round {i}: {v} has {chunk} already"
        for _, v, chunk in came:
            has[v].add(chunk)
    missing = [v for v in range(p) if has[v] != set(range(n))]
    return f"{missing} miss chunks" if missing else ""


def test_examples_in_the_module() -> None:
    assert doctest.testmod(circulant).failed == 0


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("n", FEW)
def test_up_to_256_positions(n: int) -> None:
    """Each position receives each chunk once, and sends what it has, in the fewest rounds."""
    wrong = {p: problem(schedule(p, n), n) for p in range(1, 257, amount(1 if n == 7 else 5, 1))}
    assert {p: text for p, text in wrong.items() if text} == {}


@pytest.mark.soak
@pytest.mark.rotates
@pytest.mark.parametrize("n", MANY)
def test_many_chunks(n: int) -> None:
    """The same for many chunks; on all numbers of positions in a long run."""
    some = {*range(2, 257)} if amount(0, 1) else {2, 3, 5, 11, 16, 17, 33, 63, 64}
    wrong = {p: problem(schedule(p, n), n) for p in sorted(some)}
    assert {p: text for p, text in wrong.items() if text} == {}


def test_number_of_rounds() -> None:
    for p, n in product(range(2, 4097), (*FEW, *MANY)):
        assert round_count(p, n) == n - 1 + ceil(log2(p))


def wrong_row(v: int, p: int) -> str:
    """Return what is wrong with the row of a position, which all phases repeat."""
    skip = skips(p)
    q, own, mine = len(skip) - 1, own_block(v, p), circulant.row(v, p)
    if sorted(mine) != sorted({own, *range(-q, 0)} - {own - q}):
        return f"{v}: {mine} has not each block once"
    if mine[entry(v, p)] != own:
        return f"{v}: {mine} has the new block in another round"
    for k, block in enumerate(mine):
        of = (v - skip[k]) % p
        if of == 0:
            there: tuple[int, ...] = (k,)
        else:
            there = (own_block(of, p) - q, *circulant.row(of, p)[:k])
        if block not in there:
            return f"{v}: {of} has no block {block} in round {k}"
    return ""


@pytest.mark.soak
def test_rows_of_many_positions() -> None:
    """A phase repeats, so what holds for all rows holds for any number of chunks.

    Of the larger numbers of positions some rows, those at the ends of the windows among them.
    """
    for p in share_of(range(2, 257)):
        assert [text for v in range(1, p) if (text := wrong_row(v, p))] == []
    for p in share_of((*SAMPLES, 10_000, 100_003)):
        some = {v for s in skips(p) for v in range(max(1, s - 3), min(p, s + 4))}
        some |= {*range(1, p, amount(97 if p < 5000 else 997, 1))}
        assert [text for v in sorted(some) if (text := wrong_row(v, p))] == []


# --- all positions at once ------------------------------------------------------------------------
@pytest.mark.soak
def test_the_table_has_the_rows_of_all_positions() -> None:
    every = {*range(2, 40), *range(40, 257, amount(31, 1)), *SAMPLES[:: amount(5, 1)]}
    for p in share_of(sorted(every)):
        table = every_row(p)
        some = {1, p // 2, p - 1, *range(1, p, amount(1 + p // 16, 1 + p // 64))}
        assert [v for v in some if tuple(table[:, v]) != row(v, p)] == [], p


def test_arrivals_are_those_of_the_rounds() -> None:
    for p, n in product((2, 3, 5, 8, 11, 33), FEW):
        whole = arrivals(p, n)
        for v, mine in enumerate(schedule(p, n)):
            assert whole[:, v].tolist() == [step.recv.chunk if step.recv else -1 for step in mine]
            senders = {(i, step.recv.peer) for i, step in enumerate(mine) if step.recv}
            assert senders <= {(i, (v - skip_of(i, p, n)) % p) for i in range(len(mine))}


def all_to_all_problem(p: int, n: int, lost: tuple[int, int] | None = None) -> str:
    """Let all positions broadcast at once; return what is wrong, or nothing.

    `lost`: a round and a position which then does not receive its first chunk.
    """
    has = [{(v, chunk) for chunk in range(n)} for v in range(p)]
    for i in range(round_count(p, n)):
        coming = [list(map(tuple, message(i, v, p, n))) for v in range(p)]
        if lost and lost[0] == i:
            coming[lost[1]] = coming[lost[1]][1:]
        for v, chunks in enumerate(coming):
            if not set(chunks) <= has[(v - skip_of(i, p, n)) % p] or set(chunks) & has[v]:
                return f"round {i}: {v} cannot receive {chunks}"
        for v, chunks in enumerate(coming):
            has[v] |= set(chunks)
    return "" if all(len(there) == p * n for there in has) else "chunks are missing"


def test_all_positions_broadcast_at_once() -> None:
    for p, n in product((2, 3, 5, 8, 11, 17), (1, 2, 7)):
        assert all_to_all_problem(p, n) == ""


@pytest.mark.parametrize(("p", "n"), [(2, 3), (5, 3), (8, 1)])
def test_a_lost_chunk_is_noticed(p: int, n: int) -> None:
    for lost in product(range(round_count(p, n)), range(p)):
        if list(message(*lost, p, n)):
            assert all_to_all_problem(p, n, lost)


def most_open(v: int, p: int, n: int) -> int:
    """Return how many values position `v` needs places for in a reduction to position 0.

    Values are combined in the rounds of their arrival. A place is free when the next send begins.
    """
    steps = list(rounds(v, p, n))[::-1]
    number = {chunk: i for i, chunk in enumerate(first_uses(steps))}
    last = {step.send.chunk: i for i, step in enumerate(steps) if step.send} if v == 0 else {}
    free: set[int] = set()
    sent, first, most = -1, 0, 0
    for i, step in enumerate(steps):
        if step.recv is not None:
            free |= {sent}
            sent = number[step.recv.chunk]
        for hop in (step.recv, step.send):
            while first in free:
                first += 1
            most = max(most, number[hop.chunk] - first if hop else 0)
        if step.send is not None and last.get(step.send.chunk) == i:
            free |= {number[step.send.chunk]}
    return most


@pytest.mark.soak
def test_places_of_a_reduction() -> None:
    """The reserve of `places_needed` is no less than the values that a node may combine later."""
    for p in (*range(2, 35, amount(3, 1)), 63, 64, 65, *([100, 127, 128, 129] * amount(0, 1))):
        found = max(most_open(v, p, n) for v in range(p) for n in (1, 8, 40))
        assert found <= 1 + (p - 1).bit_length()
        assert found + LANDINGS - 1 <= places_needed(p)


# --- broken schedules -----------------------------------------------------------------------------
def changed(hop: Hop | None, other: Hop | None, part: str) -> Hop | None:
    """Return a message with the peer or the chunk of another one."""
    if hop is None or other is None:
        return other
    return hop._replace(**{part: getattr(other, part)})


BROKEN: dict[str, Callable[[Round, Round], Round]] = {
    "another chunk": lambda a, b: replace(a, recv=changed(a.recv, b.recv, "chunk")),
    "another sender": lambda a, b: replace(a, recv=changed(a.recv, b.recv, "peer")),
    "no receive": lambda a, _: replace(a, recv=None),
    "another chunk sent": lambda a, b: replace(a, send=changed(a.send, b.send, "chunk")),
    "another receiver": lambda a, b: replace(a, send=changed(a.send, b.send, "peer")),
    "no send": lambda a, _: replace(a, send=None),
    "the next round": lambda _, b: b,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rounds_are_noticed(name: str) -> None:
    """The checks of this file fail for a schedule that is wrong in a single round."""
    tried = 0
    for p, n in ((5, 3), (8, 7), (13, 7)):
        for v, i in product(range(p), range(round_count(p, n) - 1)):
            found = schedule(p, n)
            this, after = found[v][i : i + 2]
            found[v][i] = BROKEN[name](this, after)
            if found[v][i] != this:
                tried += 1
                assert problem(found, n), (p, n, v, i)
    assert tried > 20


@pytest.mark.parametrize("p", [5, 8, 13, 33])
def test_broken_rows_are_noticed(p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block twice is an error; two exchanged blocks are one if a sender does not have them."""
    errors = 0
    for v, k in product(range(1, p), range(len(skips(p)) - 2)):
        good = row(v, p)
        twice = (*good[:k], good[k + 1], *good[k + 1 :])
        exchanged = (*good[:k], good[k + 1], good[k], *good[k + 2 :])
        for bad in (twice, exchanged):
            with monkeypatch.context() as patch:
                patch.setattr(circulant, "row", partial(_row, v, bad))
                wrong = any(wrong_row(w, p) for w in range(1, p))
                assert bool(problem(schedule(p, 7), 7)) == wrong, (v, bad)
                assert wrong or bad is exchanged
                errors += wrong and bad is exchanged
    assert errors > (p - 1) // 2


def _row(changed: int, bad: tuple[int, ...], v: int, p: int) -> tuple[int, ...]:
    return bad if v == changed else row(v, p)


def test_a_missing_round_is_noticed() -> None:
    for p, n in ((2, 1), (5, 3), (16, 7)):
        assert problem([mine[:-1] for mine in schedule(p, n)], n)
        assert problem([[*mine, Round()] for mine in schedule(p, n)], n)


def test_a_position_outside_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected a position from 0 to 4, got 9"):
        own_block(9, 5)
