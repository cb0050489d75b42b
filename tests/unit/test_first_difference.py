"""Which of the last calls differs first, and the text of the error."""

from __future__ import annotations

import pytest

from xupc.errors import CollectiveMismatchError
from xupc.health.call_record import CallRecord, MismatchReport, compare, first_apart

SAME = [(4, 40), (5, 50)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([SAME, SAME], (4, None)),
        ([SAME, [(4, 40)]], (4, None)),  # one has not come so far
        ([SAME, [(4, 40), (5, 51)]], (4, 1)),
        ([SAME, [(4, 41), (5, 51)], SAME], (4, 0)),
        ([[(3, 30), *SAME], SAME], (4, None)),  # the first is not in all records
        ([SAME, [(4, 40), (4, 44), (5, 54)]], (4, 1)),  # one that moved nothing on one thread
    ],
)
def test_first_apart(
    calls: list[list[tuple[int, int]]], expected: tuple[int, int | None]
) -> None:
    assert first_apart(calls) == expected


def text(records: list[CallRecord], earlier: list[CallRecord | None] | None) -> str:
    verdict = MismatchReport(compare(records, range(len(records)), earlier))
    error = verdict.error_for(records[0])
    assert isinstance(error, CollectiveMismatchError)
    return str(error)


def test_an_earlier_call_is_named_with_where_it_was_found() -> None:
    barrier = [CallRecord("barrier") for _ in range(3)]
    calls = [CallRecord("all_gather", [("nbytes", n)]) for n in ("8", "8", "16")]
    found = "thread 2: 16; the other threads (0-1): 8; found in barrier"
    assert text(barrier, [*calls]) == f"all_gather: nbytes differs: {found}"


def test_who_has_not_come_so_far_is_not_judged() -> None:
    now = [CallRecord("barrier"), CallRecord("barrier"), CallRecord("all_gather")]
    calls = [CallRecord("all_gather", [("nbytes", "8")]), CallRecord("all_scatter"), None]
    said = text(now, calls)
    assert "different calls" in said
    assert "thread 2" not in said


def test_an_earlier_error_of_an_argument_is_told() -> None:
    bad = CallRecord("all_gather")
    bad.error = ValueError("all_gather: nbytes: expected at least 1, got 0")
    said = text([CallRecord("barrier"), CallRecord("barrier")], [CallRecord("all_gather"), bad])
    assert said == (
        "barrier: an earlier call failed: thread 1: all_gather: nbytes: expected at least 1, got 0"
    )


@pytest.mark.parametrize(
    ("roots", "words"),
    [
        ([8, 16], "thread 1: 16; thread 0: 8"),
        ([8, 16, 16, 8], "threads 1-2: 16; threads 0, 3: 8"),
        ([8, 16, 8], "thread 1: 16; the other threads (0, 2): 8"),
        ([8, 16, 8, 4], "thread 3: 4; thread 1: 16; the other threads (0, 2): 8"),
    ],
)
def test_equally_large_groups_are_both_named(roots: list[int], words: str) -> None:
    records = [CallRecord("all_broadcast", [("root", str(root))]) for root in roots]
    found = compare(records, range(len(roots)))
    assert found is not None
    assert f"root differs: {words}" in found["text"]
