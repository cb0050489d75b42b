"""The blocking method that a thread is in, found from another Python thread: one thread of MPI.

Each function of `FORMS` waits in another way for a message that this process sends itself as soon
as its other thread has found the method.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py.MPI import Request
from support.polling import until

import xupc
from xupc.health.program_call import blocking_method

TAG = 7
comm = MPI.COMM_SELF.Dup()
mine = xupc.Comm(MPI.COMM_SELF.Dup())
value = np.zeros(4)
sockets = socket.socketpair()


class Solver:
    """A program's class, with requests in attributes."""

    kind = Request

    def __init__(self) -> None:
        self.requests = [comm.Irecv(value, 0, TAG)]
        self.named = {"left": self.requests[0]}

    def in_a_list(self, i: int) -> None:
        self.requests[i].Wait()

    def in_a_dict(self) -> None:
        self.named["left"].wait()

    def all(self) -> None:
        self.kind.Waitall(self.requests)


class Slots:
    """A class without a dictionary."""

    __slots__ = ("comm",)

    def __init__(self) -> None:
        self.comm = comm

    def receive(self) -> None:
        self.comm.Recv(value, 0, TAG)


class Mine(MPI.Intracomm):
    """A communicator of the program's own class."""


def plain() -> None:
    comm.Recv(value, 0, TAG)


def of_xupc() -> None:
    mine.Recv(value, 0, TAG)


def over_lines() -> None:
    comm.Recv(
        value,
        source=0,  # ü and the columns behind it
        tag=TAG,
    )


def as_an_argument() -> None:
    print(comm.recv(source=0, tag=TAG), file=sys.stderr)


def own_class() -> None:
    Mine(comm).Recv(value, 0, TAG)


def own_object() -> None:
    world = Mine(comm)
    world.Recv(value, 0, TAG)


def bound() -> None:
    receive = comm.Recv
    receive(value, 0, TAG)


def static() -> None:
    wait = MPI.Request.Waitall
    wait([comm.Irecv(value, 0, TAG)])


def at_once() -> None:
    comm.Irecv(value, 0, TAG).Wait()


def in_a_comprehension() -> None:
    requests = [comm.Irecv(value, 0, TAG)]
    [request.Wait() for request in requests]


def waitany() -> None:
    Request.Waitany([comm.Irecv(value, 0, TAG)])


def probe() -> None:
    comm.Probe(0, TAG)
    comm.Recv(value, 0, TAG)


def starred() -> None:
    arguments = (value, 0)
    comm.Recv(*arguments, tag=TAG)


def in_a_list() -> None:
    Solver().in_a_list(0)


def in_a_dict() -> None:
    Solver().in_a_dict()


def by_a_class() -> None:
    Solver().all()


def in_slots() -> None:
    Slots().receive()


def of_a_socket() -> None:
    sockets[0].recv(1)


def of_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    sockets[0].recv(1)


FORMS: dict[Callable[[], None], str] = {
    plain: "Recv", of_xupc: "Recv", over_lines: "Recv", as_an_argument: "recv",
    own_object: "Recv", bound: "Recv", static: "Waitall", at_once: "Wait",
    in_a_comprehension: "Wait", waitany: "Waitany", probe: "Probe", starred: "Recv",
    in_a_list: "Wait", in_a_dict: "wait", by_a_class: "Waitall", in_slots: "Recv",
    own_class: "", of_a_socket: "", of_a_lock: "",
}  # fmt: skip


def watch(form: Callable[[], None], name: str, main: int, found: list[str]) -> None:
    """Find the method that the main thread is in, and end its wait."""

    def seen() -> str:
        frame: Any = sys._current_frames()[main]
        return blocking_method(frame)

    try:
        if name:
            until(seen, f"a method in {form.__name__}")
            found.append(seen())
        else:
            until(lambda: sys._current_frames()[main].f_code is form.__code__, form.__name__)
            found += {seen() for _ in range(100)}
    finally:
        to = mine if form is of_xupc else comm
        if form in (of_a_socket, of_a_lock):
            sockets[1].send(b"x")
        elif form is as_an_argument:
            to.send(1, 0, TAG)
        else:
            to.Send(np.ones(4), 0, TAG)


for form, name in FORMS.items():
    found: list[str] = []
    other = threading.Thread(
        target=watch, args=(form, name, threading.get_ident(), found), daemon=True
    )
    other.start()
    form()
    other.join()
    assert found == [name], (form.__name__, found)
print("all forms")
