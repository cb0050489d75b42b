"""Send deaths and other troubles between machines, without MPI.

The threads of a machine detect a death by the dead thread's lock. Other machines cannot see
the lock, and MPI reports nothing or ends the process. So the lowest threads of the machines
hold TCP connections to each other, in a tree:

                 machine 0
               /     |     \\          each machine has one parent and up to RADIX
           1         2        3       children; no data of calls
         / | \\     / | \\    / | \\

The kernel closes a connection when its process ends in any way; a stopped or busy process
keeps it. A thread that detects or receives a trouble sends it to its other neighbours. When
the lowest thread of a machine dies, all its neighbours detect it, so every part of the tree
receives the trouble. Messages are lines of JSON, in both directions:

``{"thread", "host", "pid", "token"}``  first line of a child.
``{"doing"}``                           what the sender is doing, at each change.
``{"trouble", "text"}``                 as in the control segment.
``{"ending"}``                          why the sender is about to end the job.
``{"end"}``                             all threads must end, with this exit status.
``{"serve"}``                           one-sided accesses follow: make MPI's progress for a while.
``{"where"}``                           a request for the positions of all threads.
``{"places", "machine"}``               the positions of a machine's threads.
``{"summary"}``                         of a child: the calls in which threads below it wait.
``{"read"}``                            the answer: the parent can take the next summary.
``{"bye"}``                             finalized: the end of the sender is no death.

If a connection cannot be made (a firewall between the machines), the job runs without it.
Then only the launcher or a timeout ends a job after the death of a machine's only thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict
from weakref import WeakSet

from ..errors import death_text, thread_name
from .control_layout import DEAD

if TYPE_CHECKING:
    from ..comm.mpi_types import Intracomm
    from .note_summary import Summary

__all__ = ["FailureTree", "Identity"]

RADIX = 8
CONNECT = 1.0  # seconds for an address of the parent
ACCEPT = 3.0  # for all children together
SEND = 1.0
LONGEST = 1 << 16


class Identity(TypedDict):
    """The number, host and process id of a thread."""

    thread: int
    host: str
    pid: int


class MachineRow(Identity):
    """The lowest thread of a machine, and the (address, port) pairs at which it listens."""

    places: list[tuple[str, int]]


class Line(TypedDict, total=False):
    """One line between neighbours: some of these."""

    token: str
    thread: int
    host: str
    pid: int
    trouble: int
    text: str
    doing: str
    end: int
    ending: str
    serve: bool
    where: bool
    places: object
    machine: int
    summary: Summary
    read: bool
    bye: bool


NOT_KNOWN: Identity = {"thread": -1, "host": "", "pid": 0}


class Peer:
    """A neighbour in the tree.

    Several Python threads send: the failure detector's, and the program's at the end. A finalizer
    or signal handler may interrupt each of them and send, too. So none waits for a lock: the send
    that is under way also sends lines that come meanwhile.
    """

    def __init__(self, connection: socket.socket, who: Identity) -> None:
        self.socket = connection
        self.who = who
        self.doing = "in init"
        self.ending = ""
        self.left = False
        self.rest = b""
        self._out: deque[bytes] = deque()  # lines to send
        self._turn = threading.Lock()  # of the thread that sends or closes; no thread waits for it
        self._closed = False
        connection.settimeout(SEND)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, line: Line) -> None:
        """Send a line; drop it if that fails, since the next read detects the failure."""
        self._out.append(json.dumps(line).encode() + b"\n")
        self._work()

    def close(self) -> None:
        """Close the connection when all lines are sent."""
        self._closed = True
        self._work()

    @property
    def busy(self) -> bool:
        """True until all lines are sent."""
        return bool(self._out) or self._turn.locked()

    def _work(self) -> None:
        """Send the lines that are due and close, unless a call of this runs already."""
        while self._is_due() and self._turn.acquire(blocking=False):
            try:
                while self._out:
                    with contextlib.suppress(OSError):
                        self.socket.sendall(self._out.popleft())
                if self._closed:
                    self.socket.close()
            finally:
                self._turn.release()

    def _is_due(self) -> bool:
        return bool(self._out) or (self._closed and self.socket.fileno() >= 0)

    def lines(self) -> tuple[list[Line], bool]:
        """Return the lines received, and whether the connection is still open."""
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

    def first_line(self) -> Line:
        """Wait for the first line, byte by byte: more may follow."""
        line = b""
        while not line.endswith(b"\n") and len(line) < LONGEST:
            byte = self.socket.recv(1)
            if not byte:
                raise ConnectionError("closed before its first line")
            line += byte
        first: Line = json.loads(line)
        return first

    def epitaph(self) -> str:
        """Describe a dead neighbour: its name and what it did last."""
        name = thread_name(self.who["thread"], self.who["host"], self.who["pid"])
        return death_text(name, self.doing, self.ending)


class FailureTree:
    """The connections of this machine in the tree.

    The lowest thread of the machine makes it; its failure detector uses it.

    Parameters
    ----------
    comm
        The communicator of the machines' lowest threads; used only in the constructor.
    me : dict
        ``thread``, ``host`` and ``pid`` of this thread.

    Attributes
    ----------
    doing : callable
        Return what this thread is doing, as text.
    received : callable
        Called with (trouble, text) for a trouble elsewhere; until it is set, `news` keeps them.
    end : callable
        Called with the exit status when all threads must end.
    serve : callable
        Called when a thread elsewhere accesses memory one-sided.
    asked : callable
        Called when a thread elsewhere requests the positions of all threads.
    places : callable
        Called with (machine, positions of its threads).
    summary : callable
        Called with (lowest thread of a child, its summary): see `calls_elsewhere`.
    rows : list of dict
        ``thread``, ``host`` and ``pid`` of all machines' lowest threads.
    """

    def __init__(self, comm: Intracomm, me: Identity) -> None:
        self.news: list[tuple[int, str]] = []
        self.doing: Callable[[], str] = lambda: "in init"
        self.received: Callable[[int, str], None] = lambda *news: self.news.append(news)
        self.end: Callable[[int], None] = lambda status: None
        self.serve: Callable[[], None] = lambda: None
        self.asked: Callable[[], None] = lambda: None
        self.places: Callable[[int, object], None] = lambda machine, places: None
        self.summary: Callable[[int, Summary], None] = lambda thread, summary: None
        self._parent: Peer | None = None
        self._unread = False  # the parent has not read the last summary
        self.reported = False
        self.ended = False
        self.lost = ""  # the last neighbour that ended without `farewell`, as text
        self._said = ""
        self._peers: tuple[Peer, ...] = ()  # replaced as a whole: several Python threads read it
        rank, size = comm.Get_rank(), comm.Get_size()
        self._token = comm.bcast(os.urandom(16).hex() if rank == 0 else None)
        with contextlib.ExitStack() as stack:
            listener = _listener() if RADIX * rank + 1 < size else None
            if listener is not None:
                stack.enter_context(listener)
            rows: list[MachineRow] = comm.allgather({**me, "places": _places(listener)})
            self.rows = rows
            if rank:
                self._connect(rows[(rank - 1) // RADIX], _hello(me, self._token))
            there = comm.allgather(bool(self._peers))
            if listener is not None:
                first = RADIX * rank + 1
                self._accept(listener, sum(there[first : first + RADIX]))
        _trees.add(self)

    # -- making the tree -----------------------------------------------------------------
    def _connect(self, parent: MachineRow, hello: Line) -> None:
        for host, port in parent["places"]:
            with contextlib.suppress(OSError):
                peer = Peer(socket.create_connection((host, port), CONNECT), parent)
                peer.send(hello)
                self._peers += (peer,)
                self._parent = peer
                return

    def _accept(self, listener: socket.socket, children: int) -> None:
        """Accept the connections of so many children."""
        from hmac import compare_digest  # a job on one machine never needs it

        deadline = time.monotonic() + ACCEPT
        while children and (left := deadline - time.monotonic()) > 0:
            listener.settimeout(left)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                connection, _ = listener.accept()
                peer = Peer(connection, NOT_KNOWN)
                hello = peer.first_line()
                if compare_digest(hello.pop("token"), self._token):
                    peer.who = Identity(
                        thread=hello["thread"], host=hello["host"], pid=hello["pid"]
                    )
                    self._peers += (peer,)
                    children -= 1
                else:
                    connection.close()

    # -- in the detector's daemon thread-------------------------------------------------
    def turn(self, seconds: float) -> None:
        """Send what this thread does if that has changed; receive lines for so many seconds."""
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
        except (ValueError, KeyError, TypeError):  # not a line of this protocol
            there = False
        if there:
            return
        self._peers = tuple(each for each in self._peers if each is not peer)
        peer.close()
        if not peer.left:
            self.lost = peer.epitaph()
            self.received(DEAD, self.lost)

    def _take(self, peer: Peer, line: Line) -> None:
        if "trouble" in line:
            self.received(int(line["trouble"]), str(line["text"]))
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
        elif "summary" in line:
            peer.send({"read": True})
            self.summary(peer.who["thread"], line["summary"])
        elif "read" in line:
            self._unread = False
        elif "bye" in line:
            peer.left = True

    def _send(self, line: Line, but: Peer | None = None) -> None:
        for peer in self._peers:
            if peer is not but:
                peer.send(line)

    def _send_now(self, line: Line) -> None:
        """Send a line before this process may end: wait a moment for a thread that is sending."""
        self._send(line)
        deadline = time.monotonic() + SEND
        while any(peer.busy for peer in self._peers) and time.monotonic() < deadline:
            time.sleep(0.001)

    def ask_to_serve(self) -> None:
        """Request that other machines serve the one-sided accesses of this machine's threads."""
        self._send({"serve": True})

    def ask_places(self) -> None:
        """Request the positions of all threads."""
        self._send({"where": True})

    def send_places(self, machine: int, places: object) -> None:
        """Send the positions of this machine's threads."""
        self._send({"places": places, "machine": machine})

    def send_summary(self, summary: Summary) -> bool:
        """Send a summary to the parent, if there is one; return False if it cannot take one yet.

        It may be busy or stopped: lines of this size must not fill the connection.
        """
        if self._unread:
            return False
        parent = self._parent
        if parent is not None and parent in self._peers:
            self._unread = True
            parent.send({"summary": summary})
        return True

    def report(self, trouble: int, text: str) -> None:
        """Send a trouble to the neighbours; only the first one is sent."""
        if not self.reported:
            self.reported = True
            self._send({"trouble": trouble, "text": text})

    # -- the end -------------------------------------------------------------------------
    def explain_end(self, why: str) -> None:
        """Send why this thread is about to end the job."""
        self._send_now({"ending": why})

    def end_all(self, status: int) -> None:
        """Send that all threads must end; only once."""
        if not self.ended:
            self.ended = True
            self._send_now({"end": status})

    def farewell(self) -> None:
        """Send that the job is over: the end of this process is no death."""
        self._send_now({"bye": True})

    def close(self) -> None:
        """Close the connections."""
        peers, self._peers = self._peers, ()
        for peer in peers:
            peer.close()

    def drop(self) -> None:
        """Close the connections in a forked child, where no other Python thread is."""
        for peer in self._peers:
            peer.socket.close()
        self._peers = ()


_trees: WeakSet[FailureTree] = WeakSet()
"""Those whose connections a forked child must not keep; Python keeps what it calls after a fork."""


def _drop_all() -> None:
    for tree in _trees:
        tree.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_all)


def _hello(me: Identity, token: str) -> Line:
    """Return the first line to a neighbour."""
    return {"thread": me["thread"], "host": me["host"], "pid": me["pid"], "token": token}


def _listener() -> socket.socket | None:
    """Return a socket that listens on all addresses, None if that fails."""
    with contextlib.suppress(OSError):
        if socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            return socket.create_server(("", 0), family=family, dualstack_ipv6=True, backlog=RADIX)
        return socket.create_server(("", 0), backlog=RADIX)
    return None


def _places(listener: socket.socket | None) -> list[tuple[str, int]]:
    """Return the (address, port) pairs at which children can connect."""
    if listener is None:
        return []
    port = listener.getsockname()[1]
    return [(address, port) for address in _addresses()]


def _addresses() -> list[str]:
    """Return the addresses of this machine, those of its host name first."""
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
