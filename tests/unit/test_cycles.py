"""Threads that wait for each other: in one call that is slow, in calls of two teams no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xupc import HangError
from xupc.health.failure_detector import FailureDetector


class Control:
    """Two threads of a machine: 0, which checks, and 1; each waits for the other."""

    index, threads = 0, 2

    def __init__(self, teams: tuple[int, int]) -> None:
        self.teams = teams
        self.looks = [0, 0]
        self.posted: list[str] = []

    def publish_awaited(self, team: int, op: int, threads: list[int]) -> None:
        self.looks = [n + 1 for n in self.looks]  # as if the other one looked, too

    def awaited_by(self, index: int) -> tuple[int, int, int, list[int]]:
        return self.looks[index], self.teams[index], 7, [1 - index]

    def waits_in(self, index: int, team: int, op: int) -> bool:
        return True

    def who(self, index: int) -> tuple[int, int, str]:
        return 100 + index, index, "here"

    def doing(self, index: int) -> str:
        return "all_gather"

    def post(self, kind: int, text: str) -> None:
        self.posted.append(text)


def look(control: Control, times: int) -> None:
    """Have thread 0 look so often."""
    guard: Any = FailureDetector.__new__(FailureDetector)
    guard.control, guard._suspected = control, None
    guard.inquiry = SimpleNamespace(report=lambda: "")
    guard._raise_troubles = lambda waiting: None
    info = SimpleNamespace(machine=(0, 1))
    guard.job = SimpleNamespace(
        pending=(), info=info, break_with=lambda error: None,
        callers=SimpleNamespace(several=False),
    )  # fmt: skip
    tree = SimpleNamespace(members=lambda node: [0, 1])
    team = SimpleNamespace(number=control.teams[0], rank_tree=tree, node_number=0, threads=(0, 1))
    instance = SimpleNamespace(owner=team, op=7, net=None, awaited=lambda: [1])
    for _ in range(times):
        guard._look_for_cycle(SimpleNamespace(instance=instance, place=(team.number, 7)))


def test_in_one_call_they_will_go_on() -> None:
    control = Control((3, 3))
    look(control, 10)
    assert not control.posted


def test_in_two_teams_they_will_not() -> None:
    control = Control((3, 4))
    with pytest.raises(HangError, match="threads wait for each other"):
        look(control, 10)
    assert control.posted


def test_it_takes_more_than_one_look() -> None:
    control = Control((3, 4))
    look(control, 2)
    assert not control.posted
