"""The notices between threads about calls that may differ: which show a mismatch, and the answers.

A fake team stands at operation 7; fingerprints after operations 5, 6 and 7 are known to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from xupc.backends.wait import WaitState
from xupc.health.mismatch_recovery import (
    ANSWER,
    FOUND,
    QUESTION,
    WORD,
    MismatchDetector,
    RecoveringTeam,
)

SINCE, OP, VERIFIED = 2, 7, 5
FP = {5: 0x55, 6: 0x66, 7: 0x77}
OTHER = 0x99  # of another call


@dataclass
class FakeCore:
    """Hold the counters that a detector reads."""

    op: int = OP
    since: int = SINCE
    verified: int = VERIFIED
    known: dict[int, int] = field(default_factory=lambda: dict(FP))

    def fp_after(self, op: int) -> int:
        """Return the fingerprint after an operation; 0 if it is not known."""
        return self.known.get(op, 0)


@dataclass
class FakeLink:
    """Hand out the notices that a test has put there, and keep those that are sent."""

    coming: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    unread_by: set[int] = field(default_factory=set)

    def unread(self) -> set[int]:
        """Return the threads that have read less than was sent."""
        return set(self.unread_by)

    def take_any(self, _kind: int) -> tuple[int, bytes] | None:
        """Return the next notice, or None."""
        return self.coming.pop(0) if self.coming else None

    def send_notices(self, ranks: Iterable[int], _kind: int, data: bytes) -> None:
        """Keep what is sent."""
        for rank in ranks:
            self.sent.append((rank, WORD.unpack(data)))
            self.unread_by.add(rank)

    def taken(self) -> list[tuple[int, int]]:
        """Return what was sent since the last time, as (rank, operation)."""
        sent, self.sent = self.sent, []
        return [(rank, op) for rank, (_, _, op, _) in sent]


class FakeTeam:
    """Stand for thread 0 of three."""

    def __init__(self) -> None:
        self.core, self.link = FakeCore(), FakeLink()
        self.rank, self.exchange_group = 0, (0, 1, 2)
        self.exchanges = False

    def receive(self, *notices: tuple[int, int, int]) -> None:
        """Queue notices (kind, operation, fingerprint) of thread 2."""
        self.link.coming += [(2, WORD.pack(kind, SINCE, op, fp)) for kind, op, fp in notices]


class FakeCall:
    """Stand for a call without a barrier that waits for messages."""

    at_barrier = False
    net = None
    plan = SimpleNamespace(sync=("no", "no"))

    def __init__(self, team: FakeTeam, op: int) -> None:
        self.owner, self.op, self.fp = team, op, FP.get(op, 0)

    def suspect(self) -> bool:
        """Return that no thread of the node is suspected."""
        return False


@pytest.fixture
def team() -> FakeTeam:
    return FakeTeam()


def detector(team: FakeTeam) -> MismatchDetector:
    """Return the detector of a fake team."""
    return MismatchDetector(cast(RecoveringTeam, cast(Any, team)))


@pytest.mark.parametrize(
    ("kind", "op", "fp", "differ"),
    [
        pytest.param(ANSWER, 6, FP[6], False, id="an equal answer"),
        pytest.param(ANSWER, 6, OTHER, True, id="an answer of another call"),
        pytest.param(ANSWER, 7, OTHER, True, id="an answer about the call that waits"),
        pytest.param(ANSWER, 4, OTHER, False, id="an answer about a call long ago"),
        pytest.param(ANSWER, 8, OTHER, False, id="an answer about a call to come"),
        pytest.param(ANSWER, 6, 0, False, id="an answer of a thread that knows nothing"),
        pytest.param(QUESTION, 7, FP[7], False, id="a question about an equal call"),
        pytest.param(QUESTION, 6, OTHER, True, id="a question about another call"),
        pytest.param(QUESTION, 4, OTHER, False, id="a question about a call long ago"),
        pytest.param(FOUND, 6, 0, True, id="a mismatch found behind a verified call"),
        pytest.param(FOUND, 7, 0, False, id="a mismatch found behind the call that waits"),
    ],
)
def test_what_shows_a_mismatch(team: FakeTeam, kind: int, op: int, fp: int, differ: bool) -> None:
    team.receive((kind, op, fp))
    assert detector(team).read_notices() is differ
    assert team.link.sent == []


def test_an_equal_notice_does_not_hide_another(team: FakeTeam) -> None:
    team.receive((ANSWER, 6, OTHER), (ANSWER, 7, FP[7]), (QUESTION, 7, FP[7]))
    assert detector(team).read_notices()


def test_notices_from_before_a_resync_are_dropped(team: FakeTeam) -> None:
    for kind in (QUESTION, ANSWER, FOUND):
        team.link.coming.append((2, WORD.pack(kind, SINCE - 1, 6, OTHER)))
    assert not detector(team).read_notices()
    assert team.link.sent == []


def test_a_question_about_a_later_call_is_answered_and_kept(team: FakeTeam) -> None:
    here = detector(team)
    team.receive((QUESTION, 9, OTHER))
    assert not here.read_notices()
    assert team.link.sent == [(2, (ANSWER, SINCE, OP, FP[OP]))]
    team.core.op, team.core.known[8] = 8, 0x88
    assert not here.read_notices()
    team.core.op, team.core.known[9] = 9, 0x90
    assert here.read_notices()
    assert not here.read_notices(), "it is compared once"


def test_a_mismatch_found_ahead_counts_when_this_thread_gets_there(team: FakeTeam) -> None:
    here = detector(team)
    team.receive((FOUND, 8, 0))
    assert not here.read_notices()
    team.core.op = 9
    assert here.read_notices()
    team.core.since = 9
    assert not here.read_notices(), "a resync ends it"


def test_the_others_are_notified_once_each(team: FakeTeam) -> None:
    detector(team).notify_others()
    assert team.link.sent == [(rank, (FOUND, SINCE, VERIFIED, 0)) for rank in (1, 2)]


def test_a_thread_that_reads_no_notice_gets_one(team: FakeTeam) -> None:
    """The one that is always last never waits: notices would pile up there, one in each call."""
    here: Any = detector(team)
    for op in (5, 6, 7):
        call, waiting = FakeCall(team, op), WaitState(None)
        here.seen(call, waiting)
        assert team.link.taken() == [], "it has not waited for long"
        waiting.moved_at = 0
        for _ in range(3):
            here.seen(call, waiting)
        assert team.link.taken() == [(1, op), (2, 5)][: 1 + (op == 5)]
        team.link.unread_by.discard(1)
    team.link.unread_by.clear()
    here.seen(call, waiting)
    assert team.link.taken() == [(2, 7)], "the question of the wait that goes on"
    here.seen(call, waiting)
    assert team.link.taken() == []


def test_only_threads_that_read_answers_get_them(team: FakeTeam) -> None:
    team.exchange_group = (0, 1)
    team.receive((QUESTION, 9, OTHER))
    assert not detector(team).read_notices()
    assert team.link.sent == []
