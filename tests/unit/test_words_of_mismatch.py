"""A thread's handling of other threads' messages about differing calls."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from xupc.health.mismatch_recovery import ANSWER, FOUND, QUESTION, WORD, MismatchDetector


class Ears:
    """A network that brings the given words and notes the answers."""

    def __init__(self, words: list[tuple[int, tuple[int, int, int, int]]]) -> None:
        self.words = [(thread, WORD.pack(*word)) for thread, word in words]
        self.answers: list[tuple[int, tuple[Any, ...]]] = []

    def take_any(self, tag: int) -> tuple[int, bytes] | None:
        return self.words.pop(0) if self.words else None

    def send_notices(self, ranks: Iterable[int], tag: int, data: bytes) -> None:
        self.answers += [(to, struct.unpack("<QQQQ", data)) for to in ranks]


def differences(
    op: int, words: list[tuple[int, tuple[int, int, int, int]]], since: int = 0
) -> tuple[MismatchDetector, Any]:
    """Those of a team of which only the listening part is there, and that team.

    Operation i leaves fingerprint 100 + i.
    """
    core = SimpleNamespace(
        op=op, since=since, fp_after=lambda i: 100 + i if since < i <= core.op else 0
    )
    team: Any = SimpleNamespace(core=core, link=Ears(words), exchange_group=range(3))
    return MismatchDetector(team), team


@pytest.mark.parametrize(("verified", "differs"), [(4, True), (5, False), (9, False)])
def test_a_call_known_to_be_the_same_comes_to_its_end(verified: int, differs: bool) -> None:
    d, team = differences(5, [(1, (FOUND, 0, verified, 0))])
    assert d.read_notices() is differs
    team.core.op = verified + 1
    assert d.read_notices()


def test_words_from_before_the_last_resync_are_void() -> None:
    d, _ = differences(9, [(1, (FOUND, 3, 4, 0)), (2, (ANSWER, 3, 9, 1))], since=8)
    assert not d.read_notices()
    assert not d._found


def test_a_question_about_a_later_call_is_answered_now_and_judged_then() -> None:
    d, team = differences(5, [(2, (QUESTION, 0, 7, 1))])
    assert not d.read_notices()
    assert team.link.answers == [(2, (ANSWER, 0, 5, 105))]
    team.core.op = 7
    assert d.read_notices()


def test_equal_calls_do_not_differ() -> None:
    d, _ = differences(5, [(2, (QUESTION, 0, 5, 105)), (1, (ANSWER, 0, 4, 104))])
    assert not d.read_notices()
