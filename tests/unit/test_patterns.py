"""Trees of nodes, and rows of blocks cut into messages: every byte once, no message half empty."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xupc.algorithms.exchange import messages
from xupc.plan import patterns
from xupc.plan.patterns import Shape, binary, binomial, chain, filled, pipeline
from xupc.plan.steps import Ranks


@given(st.lists(st.integers(1, 5), max_size=5), st.integers(1, 40), st.integers(1, 60))
def test_full_messages(counts: list[int], nbytes: int, most: int) -> None:
    found = list(filled(list(enumerate(counts)), nbytes, most))
    bytes_of = [
        [
            (row, block + i, offset + b)
            for row, block, blocks, offset, size in message
            for i in range(blocks)
            for b in range(size)
        ]
        for message in found
    ]
    every = [
        (r, k, b) for r, count in enumerate(counts) for k in range(count) for b in range(nbytes)
    ]
    assert [b for message in bytes_of for b in message] == every
    assert all(len(message) == most for message in bytes_of[:-1])
    assert not found or 0 < len(bytes_of[-1]) <= most


def test_blocks_just_beyond_a_message_do_not_take_two_each() -> None:
    node, others = [Ranks(0, 4)], [Ranks(4, 4)]
    sizes = [
        sum(of.count * to.count * size for of, to, _, size in message)
        for message in messages(node, others, 65536, 65280)
    ]
    assert sizes == [65280] * 16 + [16 * 65536 - 16 * 65280]


def links(shape: Shape, n: int, parts: int) -> int:
    """When the last message is there, by a clock that ticks once for a message on a link."""
    there = {0: [0] * parts}
    for v in there_in_turn(shape, n):
        free = 0
        for c in range(parts):
            for child in shape(v, n)[1]:
                free = max(free, there[v][c]) + 1
                there.setdefault(child, []).append(free)
                assert shape(child, n)[0] == v
    assert sorted(there) == list(range(n))
    return max(max(times) for times in there.values())


def there_in_turn(shape: Shape, n: int) -> list[int]:
    """Each after its parent."""
    order = [0]
    for v in order:
        order += shape(v, n)[1]
    return order


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8, 32, 100])
def test_a_pipeline_is_as_good_as_the_best_of_its_trees(parts: int) -> None:
    worst = 1.0
    for n in [*range(2, 40), 63, 64, 100, 257]:
        best = min(links(shape, n, parts) for shape in (chain, binomial, binary))
        worst = max(worst, links(pipeline(n, parts), n, parts) / best)
    assert worst < 1.2


def test_the_examples_are_true() -> None:
    assert doctest.testmod(patterns).failed == 0
