"""The comparison of calls between machines: how many messages it sends, and where it finds what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from support.notes import note, on
from support.thread_comm import Comm, in_threads

from xupc.health.calls_elsewhere import LONG, CallsElsewhere
from xupc.health.failure_tree import FailureTree, Line, Peer
from xupc.health.note_comparison import Note

MACHINES = 12  # 0 has the children 1-8, 1 has 9-11


class OneThread:
    """The control segment of a machine with one thread, as far as the comparison reads it."""

    threads = 1

    def __init__(self) -> None:
        self.note: Note | None = None
        self.posted: tuple[int, str] | None = None

    def trouble(self) -> tuple[int, str] | None:
        return self.posted

    def noted_since(self, when: int) -> list[int]:
        return [0] if self.note is not None and time.monotonic_ns() > when else []

    def note_of(self, index: int) -> tuple[int, bytes]:
        return time.monotonic_ns(), json.dumps(self.note).encode()


class Machine:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.control = OneThread()
        self.found = ""

    def join(self, comm: Comm) -> None:
        self.tree = FailureTree(comm, {"thread": self.rank, "host": "h", "pid": 1})
        self.calls = CallsElsewhere(self.control, self.tree)  # type: ignore[arg-type]

    def turn(self) -> None:
        self.tree.turn(0)
        self.found = self.calls.turn() or self.found

    def stuck(self) -> None:
        inside = ("-", "Recv", None)
        self.control.note = note(self.rank, {}, inside, since=1, text="Recv()", stuck=True)

    def waits(self, name: str = "Barrier", calls: int = 5, since: int = 0) -> None:
        comms = {"w": on(calls, name, rank=self.rank)}
        self.control.note = note(self.rank, comms, ("w", name, None), since=since, text=name)


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    found = [Machine(rank) for rank in range(MACHINES)]
    in_threads(MACHINES, lambda comm: found[comm.rank].join(comm))
    yield found
    for machine in found:
        machine.tree.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the kinds of all lines that are sent from now on."""
    kinds: list[str] = []
    send = Peer.send

    def noting(self: Peer, line: Line) -> None:
        kinds.extend(line)
        send(self, line)

    monkeypatch.setattr(Peer, "send", noting)
    return kinds


def turn(machines: list[Machine], rounds: int = 12) -> None:
    for _ in range(rounds):
        for machine in machines:
            machine.turn()
        time.sleep(0.003)


def test_while_no_thread_waits_long_no_machine_sends(
    machines: list[Machine], sent: list[str]
) -> None:
    turn(machines, 3)
    sent.clear()
    for machine in machines:
        machine.waits(since=time.monotonic_ns() + 3600 * LONG)
    turn(machines)
    assert sent == []


def test_while_threads_wait_no_message_follows(machines: list[Machine], sent: list[str]) -> None:
    for machine in machines[:-1]:  # the last one is late
        machine.waits()
    turn(machines)
    assert "summary" in sent
    assert sent.count("summary") == sent.count("read") <= 5 * MACHINES
    sent.clear()
    turn(machines)
    assert sent == []
    assert not any(machine.found for machine in machines)


@pytest.mark.parametrize("odd", [0, 1, 4, 11])
def test_a_difference_is_found_where_the_calls_come_together(
    machines: list[Machine], odd: int
) -> None:
    for machine in machines:
        machine.waits("Bcast" if machine.rank == odd else "Barrier")
    turn(machines)
    assert any(f"thread {odd}: Bcast at p.py:1, which MPI" in m.found for m in machines)


def test_threads_of_two_branches_meet_at_the_root(machines: list[Machine]) -> None:
    machines[4].waits("Bcast")
    machines[11].waits("Barrier")
    turn(machines)
    assert [machine.rank for machine in machines if machine.found] == [0]


def test_what_has_ended_is_withdrawn(machines: list[Machine]) -> None:
    machines[4].waits("Bcast")
    turn(machines)
    machines[4].control.note = None
    turn(machines)
    machines[11].waits("Barrier")
    turn(machines)
    assert not any(machine.found for machine in machines)


def test_a_parent_that_does_not_read_gets_one_summary(
    machines: list[Machine], sent: list[str]
) -> None:
    """It may be stopped: what is sent to it must not fill the connection, which would break it."""
    turn(machines, 3)
    sent.clear()
    for calls in range(5, 25):
        machines[9].waits(calls=calls)
        machines[9].turn()
    assert sent.count("summary") == 1
    machines[10].waits(calls=24)
    turn(machines)
    (past,) = machines[0].calls._whole["pasts"]
    assert (past["calls"], past["runs"]) == (24, [[9, 10, 9]])


def test_after_a_trouble_nothing_is_compared(machines: list[Machine], sent: list[str]) -> None:
    for machine in machines:
        machine.waits("Bcast" if machine.rank == 5 else "Barrier")
        machine.control.posted = 2, "thread 3 died"
    turn(machines)
    assert "summary" not in sent
    assert not any(machine.found for machine in machines)


def test_the_first_machine_knows_when_all_threads_are_stuck(
    machines: list[Machine], sent: list[str]
) -> None:
    first = machines[0].calls
    for machine in machines[:-1]:
        machine.stuck()
    turn(machines)
    assert first.stuck == [[0, MACHINES - 2]]
    machines[-1].stuck()
    turn(machines)
    assert first.stuck == [[0, MACHINES - 1]]
    sent.clear()
    turn(machines)
    assert sent == []
    machines[4].control.note = None  # it has got its message
    turn(machines)
    assert first.stuck == [[0, 3], [5, MACHINES - 1]]
    assert not any(machine.found for machine in machines)
