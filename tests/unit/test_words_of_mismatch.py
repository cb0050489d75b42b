"""What a thread makes of other threads' words about calls that differ."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from xupc.team import _ANSWER, _FOUND, _QUESTION, _STALL, Team


class Ears:
    """A network that brings the given words and notes the answers."""

    def __init__(self, words: list[tuple[int, tuple[int, int, int, int]]]) -> None:
        self.words = [(thread, _STALL.pack(*word)) for thread, word in words]
        self.answers: list[tuple[int, tuple[Any, ...]]] = []

    def take_any(self, tag: int) -> tuple[int, bytes] | None:
        return self.words.pop(0) if self.words else None

    def send_bytes(self, to: int, tag: int, data: bytes) -> Any:
        self.answers.append((to, struct.unpack("<QQQQ", data)))
        return SimpleNamespace(Test=lambda: True)


def team(op: int, words: list[tuple[int, tuple[int, int, int, int]]], since: int = 0) -> Any:
    """A team of which only the listening part is there; operation i leaves fingerprint 100 + i."""
    t = Team.__new__(Team)
    t.core = SimpleNamespace(
        op=op, since=since, fp_after=lambda i: 100 + i if since < i <= t.core.op else 0
    )
    t.link = Ears(words)  # type: ignore[assignment]
    t._asked, t._found, t._told = {}, [], []
    return t


@pytest.mark.parametrize(("verified", "differs"), [(4, True), (5, False), (9, False)])
def test_a_call_known_to_be_the_same_comes_to_its_end(verified: int, differs: bool) -> None:
    t = team(5, [(1, (_FOUND, 0, verified, 0))])
    assert t._heard_of_difference() is differs
    t.core.op = verified + 1
    assert t._heard_of_difference()


def test_words_from_before_the_last_resync_are_void() -> None:
    t = team(9, [(1, (_FOUND, 3, 4, 0)), (2, (_ANSWER, 3, 9, 1))], since=8)
    assert not t._heard_of_difference()
    assert not t._found


def test_a_question_about_a_later_call_is_answered_now_and_judged_then() -> None:
    t = team(5, [(2, (_QUESTION, 0, 7, 1))])
    assert not t._heard_of_difference()
    assert t.link.answers == [(2, (_ANSWER, 0, 5, 105))]
    t.core.op = 7
    assert t._heard_of_difference()


def test_equal_calls_do_not_differ() -> None:
    t = team(5, [(2, (_QUESTION, 0, 5, 105)), (1, (_ANSWER, 0, 4, 104))])
    assert not t._heard_of_difference()
