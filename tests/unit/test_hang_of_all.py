"""When the threads of a machine are stuck, and when all threads have been for long enough."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from support.notes import note

from xupc.health import hang_of_all
from xupc.health.hang_of_all import HangOfAll, stuck_here


class Machine:
    """The control segment of a machine, as far as it is read."""

    index = 0

    def __init__(self, threads: range) -> None:
        self.all = threads
        self.notes: dict[int, Any] = {}  # by index
        self.age = 0
        self.posted: tuple[int, str] | None = None

    def trouble(self) -> tuple[int, str] | None:
        return self.posted

    def who(self, index: int) -> tuple[int, int, str]:
        return 1, self.all[index], "h"

    def noted_since(self, when: int) -> list[int]:
        return sorted(self.notes) if time.monotonic_ns() - self.age > when else []

    def note_of(self, index: int) -> tuple[int, bytes]:
        return time.monotonic_ns() - self.age, json.dumps(self.notes[index]).encode()

    def stick(self, *indices: int) -> None:
        for i in indices:
            self.notes[i] = note(self.all[i], {}, ("-", "Recv", None), stuck=True)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(hang_of_all, "CONFIRMED", 0.0)
    return Machine(range(4))


def test_a_machine_names_its_stuck_threads(machine: Any) -> None:
    machine.stick(0, 1, 3)
    assert stuck_here(machine) == [[0, 1], [3, 3]]
    machine.age = 2 * hang_of_all.FRESH_NS
    assert stuck_here(machine) == []


def test_all_threads_must_be_stuck(machine: Any) -> None:
    hang = HangOfAll(machine, 4)
    machine.stick(0, 1, 2)
    assert not any(hang.turn(stuck_here(machine)) for _ in range(3))
    machine.stick(3)
    assert hang.turn(stuck_here(machine))


def test_the_time_begins_anew_when_a_thread_has_moved(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = HangOfAll(machine, 4)
    machine.stick(0, 1, 2, 3)
    monkeypatch.setattr(hang_of_all, "CONFIRMED", 3600.0)
    assert not hang.turn(stuck_here(machine))
    del machine.notes[2]
    monkeypatch.setattr(hang_of_all, "CONFIRMED", 0.0)
    assert not hang.turn(stuck_here(machine))
    machine.stick(2)
    monkeypatch.setattr(hang_of_all, "CONFIRMED", 3600.0)
    assert not hang.turn(stuck_here(machine))


def test_another_thread_than_the_lowest_decides_nothing() -> None:
    machine: Any = Machine(range(4, 8))
    machine.stick(0, 1, 2, 3)
    assert not HangOfAll(machine, 4).turn(stuck_here(machine))


def test_threads_of_other_machines_count(machine: Any) -> None:
    assert not HangOfAll(machine, 9).turn([[0, 7]])
    assert HangOfAll(machine, 9).turn([[0, 8]])


def test_it_is_reported_once(machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    machine.stick(0, 1, 2, 3)
    hang = HangOfAll(machine, 4)
    assert hang.turn(stuck_here(machine))
    hang.warn(60.0, "where the threads are:")
    assert "all threads of the job wait in calls of MPI" in capsys.readouterr().err
    assert not hang.turn(stuck_here(machine))
    machine.posted = 3, "another thread hangs"
    assert not HangOfAll(machine, 4).turn(stuck_here(machine))
