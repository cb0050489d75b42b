"""Cutting rows of blocks into messages: every byte once, in order, and no message half empty."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xupc.algorithms.exchange import messages
from xupc.patterns import filled
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
