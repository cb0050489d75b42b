"""The lifeline between machines: a tree of real sockets, with threads for machines."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from support.launch import BUSY
from support.thread_comm import Comm, in_threads

from xupc.health.control_layout import DEAD, HUNG
from xupc.health.failure_tree import FailureTree, Peer

MACHINES = 12  # 0 has the children 1-8, 1 has 9-11


class Machine:
    """One end of the lifeline, and the messages that it has received."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.received: list[tuple[int, str]] = []
        self.ended: list[int] = []
        self.served = 0
        self.asked = 0
        self.places: list[tuple[int, Any]] = []
        self.line: FailureTree | None = None

    def join(self, comm: Comm) -> None:
        me = {"thread": 10 * self.rank, "host": f"h{self.rank}", "pid": 1000 + self.rank}
        self.line = FailureTree(comm, me)
        self.line.doing = lambda: f"in call {self.rank}"
        self.line.received, self.line.end = self.receive, self.ended.append
        self.line.serve = self.serve
        self.line.asked = self.ask
        self.line.places = lambda machine, places: self.places.append((machine, places))

    def ask(self) -> None:
        self.asked += 1

    def serve(self) -> None:
        self.served += 1

    def receive(self, trouble: int, text: str) -> None:
        self.received.append((trouble, text))
        assert self.line is not None
        self.line.report(trouble, text)


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    found = [Machine(rank) for rank in range(MACHINES)]
    in_threads(MACHINES, lambda comm: found[comm.rank].join(comm))
    assert all(machine.line is not None for machine in found)
    yield found
    for machine in found:
        machine.line.close()


def turn(machines: list[Machine], rounds: int = 8) -> None:
    """Let all machines send and receive all pending messages."""
    for _ in range(rounds):
        for machine in machines:
            machine.line.turn(0)
        time.sleep(0.005)


def test_everybody_knows_who_is_where(machines: list[Machine]) -> None:
    for machine in machines:
        assert [row["thread"] for row in machine.line.rows] == [10 * k for k in range(MACHINES)]


@pytest.mark.parametrize("origin", [0, 1, 5, 11])
def test_trouble_reaches_all(machines: list[Machine], origin: int) -> None:
    machines[origin].line.report(HUNG, "thread 3 hangs")
    turn(machines)
    for machine in machines:
        if machine.rank != origin:
            assert (HUNG, "thread 3 hangs") in machine.received


@pytest.mark.parametrize("origin", [0, 1, 5, 11])
def test_who_accesses_memory_is_heard_once_by_all_others(
    machines: list[Machine], origin: int
) -> None:
    machines[origin].line.ask_to_serve()
    turn(machines)
    assert [machine.served for machine in machines] == [m.rank != origin for m in machines]


@pytest.mark.parametrize("origin", [0, 1, 5, 11])
def test_who_is_where_is_asked_of_all_others_and_told_to_all_others(
    machines: list[Machine], origin: int
) -> None:
    machines[origin].line.ask_places()
    turn(machines)
    assert [machine.asked for machine in machines] == [int(m.rank != origin) for m in machines]
    machines[origin].line.send_places(origin, [["here", "", [[0, 1]], None, 1.5]])
    turn(machines)
    for machine in machines:
        told = [(origin, [["here", "", [[0, 1]], None, 1.5]])]
        assert machine.places == (told if machine.rank != origin else [])


@pytest.mark.parametrize("dead", [0, 1, 4, 10])
def test_a_closed_connection_is_a_death_and_reaches_all(machines: list[Machine], dead: int) -> None:
    turn(machines)
    machines[dead].line.close()
    others = [machine for machine in machines if machine.rank != dead]
    turn(others)
    text = f"thread {10 * dead} (host h{dead}, pid {1000 + dead}) died in call {dead}"
    for machine in others:
        assert (DEAD, text) in machine.received, machine.rank


def test_the_reason_is_told_with_the_death(machines: list[Machine]) -> None:
    machines[9].line.explain_end("ValueError: no")
    machines[9].line.close()
    turn(machines[:9])
    text = "thread 90 (host h9, pid 1009) ended the job: ValueError: no"
    assert (DEAD, text) in machines[0].received


def test_after_a_farewell_a_closed_connection_is_no_death(machines: list[Machine]) -> None:
    for machine in machines[:6]:
        machine.line.farewell()
        machine.line.close()
    turn(machines[6:])
    assert all(not machine.received for machine in machines)


def test_the_end_reaches_all(machines: list[Machine]) -> None:
    machines[3].line.end_all(7)
    turn(machines)
    for machine in machines:
        if machine.rank != 3:
            assert machine.ended[:1] == [7]


def test_what_cannot_be_understood_ends_a_connection(machines: list[Machine]) -> None:
    turn(machines)
    peer = next(p for p in machines[0].line._peers if p.who["thread"] == 40)
    mine = machines[4].line._peers[0]
    mine.socket.sendall(b"GET / HTTP/1.1\n")
    turn(machines[:4])
    assert peer not in machines[0].line._peers


def test_lines_that_come_in_parts_are_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    with far, near:
        peer = Peer(near, {})
        far.sendall(b'{"doing": "a')
        assert peer.lines() == ([], True)
        far.sendall(b'"}\n{"bye": true}\n')
        assert peer.lines() == ([{"doing": "a"}, {"bye": True}], True)


def test_any_line_of_a_send_can_be_interrupted_by_another(machines: list[Machine]) -> None:
    """Finalizers and signal handlers run between two lines: nothing waits, all lines are whole."""
    line, sent = machines[0].line, []

    def at_each_line(*_: object) -> Any:
        sent.append(len(sent))
        line.send_places(0, [len(sent)])
        return at_each_line

    def send() -> None:
        sys.settrace(at_each_line)
        line.explain_end("ValueError: no")
        line.farewell()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(BUSY * 10)
    assert not sender.is_alive()
    turn(machines)
    for machine in machines[1:]:
        assert sorted(rows[0] for _, rows in machine.places) == [n + 1 for n in sent]
        assert machine.rank > 8 or machine.line._peers[0].ending == "ValueError: no"


def test_lines_of_several_threads_are_whole(machines: list[Machine]) -> None:
    line, each = machines[0].line, 200

    def send(k: int) -> None:
        for j in range(each):
            line.send_places(k, [j, "x" * 100])

    senders = [threading.Thread(target=send, args=[k]) for k in range(4)]
    for sender in senders:
        sender.start()
    for _ in range(100):
        turn(machines[1:], 1)
    for sender in senders:
        sender.join()
    turn(machines[1:])
    for machine in machines[1:]:
        for k in range(4):
            found = [rows for from_, rows in machine.places if from_ == k]
            assert found == [[j, "x" * 100] for j in range(each)]


def test_a_connection_closes_when_its_last_line_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    peer = Peer(near, {})
    send = near.sendall

    class Closing:
        """A socket that another Python thread closes during a send."""

        fileno, close = near.fileno, near.close

        @staticmethod
        def sendall(data: bytes) -> None:
            if not peer._closed:
                peer.close()
                peer.send({"bye": True})
            send(data)

    peer.socket = Closing()
    peer.send({"doing": "a"})
    with far, far.makefile() as received:
        assert received.readlines() == ['{"doing": "a"}\n', '{"bye": true}\n']
    assert near.fileno() == -1


def test_a_closed_one_is_given_back_with_what_its_functions_hold() -> None:
    machine = Machine(0)
    in_threads(1, machine.join)
    assert machine.line is not None
    kept = weakref.ref(machine.line), weakref.ref(machine)
    machine.line.close()
    del machine
    gc.collect()
    assert [x() for x in kept] == [None, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_no_connections(machines: list[Machine]) -> None:
    child = os.fork()
    if child == 0:
        os._exit(sum(len(machine.line._peers) for machine in machines))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(machine.line._peers for machine in machines)
