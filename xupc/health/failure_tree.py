"""Between machines: deaths and other troubles, told without MPI.

A thread's death is seen by the others of its machine, by its lock. From another
machine a lock cannot be seen, and MPI says nothing or ends the process. So the lowest
threads of the machines hold TCP connections to each other, in a tree:

                 machine 0
               /     |     \\          each machine has one parent and up to RADIX
           1         2        3       children; data never goes this way
         / | \\     / | \\    / | \\

The kernel closes a connection when its process ends, however that happens; a stopped
or busy process keeps it. Whoever is told of trouble, or sees it, tells its other
neighbours. When a machine's lowest thread dies, all its neighbours see it, so that
every part of the tree hears of it. Lines of JSON, in both directions:

``{"thread", "host", "pid", "token"}``  first line of a child
``{"doing"}``                           what I am doing, whenever that changes
``{"trouble", "text"}``                 as in the control segment
``{"ending"}``                          why I am about to end the job
``{"end"}``                             all have to end, with this exit status
``{"serve"}``                           one-sided accesses are coming: attend to MPI for a while
``{"where"}``                           where are your threads?
``{"places", "machine"}``               where the threads of a machine are
``{"bye"}``                             finalized: my end is no death

A connection that cannot be made (a firewall between the machines) is done without;
then only the launcher, or a timeout, ends a job whose one thread on a machine died.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .control_layout import DEAD

__all__ = ["FailureTree"]

RADIX = 8
CONNECT = 1.0  # seconds for an address of the parent
ACCEPT = 3.0  # for all children together
SEND = 1.0
LONGEST = 1 << 16


class Peer:
    """A neighbour in the tree."""

    def __init__(self, connection: socket.socket, who: dict[str, Any]) -> None:
        self.socket = connection
        self.who = who
        self.doing = "in init"
        self.ending = ""
        self.left = False
        self.rest = b""
        connection.settimeout(SEND)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, line: dict[str, Any]) -> None:
        """What cannot be sent is lost: reading will show why."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(line).encode() + b"\n")

    def lines(self) -> tuple[list[dict[str, Any]], bool]:
        """What has come, and whether the connection is still there."""
        try:
            data = self.socket.recv(LONGEST)
        except TimeoutError:
            return [], True
        except OSError:
            data = b""
        *whole, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LONGEST:
            return [], False
        return [json.loads(line) for line in whole], bool(data)

    def first_line(self) -> dict[str, Any]:
        """Wait for the first line, byte by byte: more may follow."""
        line = b""
        while not line.endswith(b"\n") and len(line) < LONGEST:
            byte = self.socket.recv(1)
            if not byte:
                raise ConnectionError("closed before its first line")
            line += byte
        first: dict[str, Any] = json.loads(line)
        return first

    def epitaph(self) -> str:
        """It is dead: who it was and what it did last."""
        name = f"thread {self.who['thread']} (host {self.who['host']}, pid {self.who['pid']})"
        why = self.ending
        return f"{name} ended the job: {why}" if why else f"{name} died {self.doing}"


class FailureTree:
    """This machine's place in the tree; made by its lowest thread, used by its guard.

    Parameters
    ----------
    comm
        The machines' lowest threads; used here only.
    me : dict
        ``thread``, ``host`` and ``pid`` of this one.

    Attributes
    ----------
    doing : callable
        What this thread is doing, in words.
    heard : callable
        Told (trouble, text) when something is wrong elsewhere; at first `news` takes it.
    end : callable
        Told the exit status when all have to end.
    serve : callable
        Told that a thread elsewhere accesses memory one-sided.
    asked : callable
        Told that a thread elsewhere wants to know where all are.
    places : callable
        Told (machine, where its threads are).
    rows : list of dict
        ``thread``, ``host`` and ``pid`` of all machines' lowest threads.
    """

    def __init__(self, comm: Any, me: dict[str, Any]) -> None:
        self.news: list[tuple[int, str]] = []
        self.doing: Callable[[], str] = lambda: "in init"
        self.heard: Callable[[int, str], None] = lambda *news: self.news.append(news)
        self.end: Callable[[int], None] = lambda status: None
        self.serve: Callable[[], None] = lambda: None
        self.asked: Callable[[], None] = lambda: None
        self.places: Callable[[int, Any], None] = lambda machine, places: None
        self.told = False
        self.ended = False
        self.lost = ""  # the last neighbour that has gone without a farewell, in words
        self._said = ""
        self._lock = threading.Lock()
        self._peers: list[Peer] = []
        rank, size = comm.Get_rank(), comm.Get_size()
        self._token = comm.bcast(os.urandom(16).hex() if rank == 0 else None)
        with contextlib.ExitStack() as stack:
            listener = _listener() if RADIX * rank + 1 < size else None
            if listener is not None:
                stack.enter_context(listener)
            rows = comm.allgather({**me, "places": _places(listener)})
            self.rows = rows
            if rank:
                self._connect(rows[(rank - 1) // RADIX], {**me, "token": self._token})
            there = comm.allgather(bool(self._peers))
            if listener is not None:
                first = RADIX * rank + 1
                self._accept(listener, sum(there[first : first + RADIX]))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._drop)

    # -- making the tree -----------------------------------------------------------------
    def _connect(self, parent: dict[str, Any], hello: dict[str, Any]) -> None:
        for place in parent["places"]:
            with contextlib.suppress(OSError):
                peer = Peer(socket.create_connection(tuple(place), CONNECT), parent)
                peer.send(hello)
                self._peers.append(peer)
                return

    def _accept(self, listener: socket.socket, children: int) -> None:
        """Take the connections of as many children as say that they have made one."""
        from hmac import compare_digest  # one machine does without

        deadline = time.monotonic() + ACCEPT
        while children and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                connection, _ = listener.accept()
                peer = Peer(connection, {})
                hello = peer.first_line()
                if compare_digest(hello.pop("token"), self._token):
                    peer.who = hello
                    self._peers.append(peer)
                    children -= 1
                else:
                    connection.close()

    # -- in the guard's daemon thread ----------------------------------------------------
    def turn(self, seconds: float) -> None:
        """Say what I do if that has changed, and listen for so long."""
        doing = self.doing()
        if doing != self._said:
            self._said = doing
            self._send({"doing": doing})
        poll = select.poll()
        peers = {peer.socket.fileno(): peer for peer in self._peers}
        for number in peers:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(seconds * 1e3):
            self._read(peers[number])

    def _read(self, peer: Peer) -> None:
        try:
            lines, there = peer.lines()
            for line in lines:
                self._take(peer, line)
        except (ValueError, KeyError, TypeError):  # not what we say to each other
            there = False
        if there:
            return
        with self._lock:
            self._peers.remove(peer)
        peer.socket.close()
        if not peer.left:
            self.lost = peer.epitaph()
            self.heard(DEAD, self.lost)

    def _take(self, peer: Peer, line: dict[str, Any]) -> None:
        if "trouble" in line:
            self.heard(int(line["trouble"]), str(line["text"]))
        elif "doing" in line:
            peer.doing = line["doing"]
        elif "end" in line:
            self.end_all(int(line["end"]))
            self.end(int(line["end"]))
        elif "ending" in line:
            peer.ending = line["ending"]
        elif "serve" in line:
            self.serve()
            self._send(line, but=peer)
        elif "where" in line:
            self.asked()
            self._send(line, but=peer)
        elif "places" in line:
            self.places(int(line["machine"]), line["places"])
            self._send(line, but=peer)
        elif "bye" in line:
            peer.left = True

    def _send(self, line: dict[str, Any], but: Peer | None = None) -> None:
        with self._lock:
            for peer in self._peers:
                if peer is not but:
                    peer.send(line)

    def ask_to_serve(self) -> None:
        """Threads of this machine access others' memory one-sided."""
        self._send({"serve": True})

    def ask_places(self) -> None:
        """A thread of this machine wants to know where all are."""
        self._send({"where": True})

    def tell_places(self, machine: int, places: Any) -> None:
        """Where the threads of this machine are."""
        self._send({"places": places, "machine": machine})

    def tell(self, trouble: int, text: str) -> None:
        """Tell the neighbours of trouble; the first is enough."""
        if not self.told:
            self.told = True
            self._send({"trouble": trouble, "text": text})

    # -- the end -------------------------------------------------------------------------
    def explain_end(self, why: str) -> None:
        """Why this thread is about to end the job."""
        self._send({"ending": why})

    def end_all(self, status: int) -> None:
        """Everybody has to end; passed on once."""
        if not self.ended:
            self.ended = True
            self._send({"end": status})

    def farewell(self) -> None:
        """The job is over: the end of this process is no death."""
        self._send({"bye": True})

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        for peer in self._peers:
            peer.socket.close()
        self._peers.clear()


def _listener() -> socket.socket | None:
    """A socket that listens on all addresses, if that is possible."""
    with contextlib.suppress(OSError):
        if socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            return socket.create_server(("", 0), family=family, dualstack_ipv6=True, backlog=RADIX)
        return socket.create_server(("", 0), backlog=RADIX)
    return None


def _places(listener: socket.socket | None) -> list[tuple[str, int]]:
    """Where children may find me."""
    if listener is None:
        return []
    port = listener.getsockname()[1]
    return [(address, port) for address in _addresses()]


def _addresses() -> list[str]:
    """This machine's addresses, those that its name stands for first."""
    import psutil

    found: list[str] = []
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            usable = row.family in (socket.AF_INET, socket.AF_INET6)
            if usable and not row.address.startswith(("127.", "::1", "fe80:")):
                found.append(row.address)
    with contextlib.suppress(OSError):
        named = {row[4][0] for row in socket.getaddrinfo(socket.gethostname(), None)}
        found.sort(key=lambda address: address not in named)
    return found
