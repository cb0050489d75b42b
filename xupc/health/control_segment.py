"""The machine's control segment: liveness, what each thread does, and sync areas.

One per machine (threads that proved to share memory), even when ``XUPC_NODES`` splits it into
several nodes. `control_layout` describes its parts.

Byte i of the file carries the lock of thread i: a free lock means that the thread is dead. Each
process has exactly one descriptor of the file, because closing another one would drop the lock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..backends.wait import WaitState
from ..errors import death_text, thread_name
from ..pgas.segment import Segment, hold_lock, lock_holder
from .call_log import CallLog
from .control_layout import (
    AWAITED,
    DATA_HEAD,
    EDGE_HEAD,
    EDGES,
    FINISHED,
    HEAD,
    ID,
    INTERRUPTED,
    LINE,
    MAGIC,
    MOST_EDGES,
    NOTE,
    NOTE_BYTES,
    PAGE,
    PLACES_BYTES,
    RECORD,
    RUNNING,
    TROUBLE,
    TROUBLE_BYTES,
    WHERE,
    WHERE_BYTES,
    control_bytes,
)

__all__ = ["Control"]


class Control(CallLog):
    """Read and write the control segment of a machine, as one of its threads (`ControlView`)."""

    @classmethod
    def of_other(cls, segment: Segment) -> Control:
        """Return a view for a process outside of the job; ValueError if it is no such segment."""
        head = segment.array[: HEAD.itemsize].view(HEAD)[0]
        threads, machines = int(head["threads"]), int(head["machines"])
        if int(head["magic"]) != MAGIC or segment.nbytes < control_bytes(threads, machines, 0):
            raise ValueError("not the control segment of a job of this version")
        return cls(segment, -1, threads, machines)

    def describe(self, job: int, machine: int, total: int) -> None:
        """Write the head: the job, the machine, and the total number of threads."""
        head = self.head[0]
        head["job"], head["machine"], head["total"] = job, machine, total
        head["threads"], head["machines"] = self.threads, self.machines
        head["magic"] = MAGIC

    @property
    def machine(self) -> int:
        """Return the number of this machine in the job."""
        return int(self.head["machine"][0])

    # -- identities --------------------------------------------------------------------
    def introduce(self, thread: int, host: str) -> None:
        """Write the identity of this thread and take its lock."""
        self._write_id(self._record(self.index), os.getpid(), thread, host)
        hold_lock(self.segment.fd, self.index)

    def who(self, index: int) -> tuple[int, int, str]:
        """Return (pid, thread, host) of a thread of the machine."""
        return self._read_id(self._record(index))

    def note_hosts(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Write (pid, thread, host) of the lowest thread of each machine of the job."""
        for k, row in enumerate(rows):
            self._write_id(self._hosts + k * ID.size, *row)

    def host(self, machine: int) -> tuple[int, int, str]:
        """Return (pid, thread, host) of the lowest thread of a machine."""
        return self._read_id(self._hosts + machine * ID.size)

    def _write_id(self, at: int, pid: int, thread: int, host: str) -> None:
        self.segment.map[at : at + ID.size] = ID.pack(pid, thread, host.encode()[:48])

    def _read_id(self, at: int) -> tuple[int, int, str]:
        pid, thread, host = ID.unpack(self.segment.map[at : at + ID.size])
        return pid, thread, host.rstrip(b"\0").decode(errors="replace")

    # -- activities -------------------------------------------------------------------
    @property
    def status_address(self) -> int:
        """Return the address of this thread's status line."""
        return self.segment.address + PAGE + self.index * LINE

    def wait_begins(self, text: str, since: int = 0, op: int = 0, team: int = 0) -> None:
        """Publish that this thread waits: for what, since when, in which operation and team."""
        ring = self.rings[self.index]
        ring["waits_since"], ring["waits_op"], ring["waits_team"] = since, op, team
        self._write(self._record(self.index) + AWAITED, text, TROUBLE_BYTES)
        self.status[self.index]["waits"] = 1

    def publish_wait(self, wait: WaitState, text: str) -> None:
        """Publish as text what this thread waits for, to the threads of the machine."""
        wait.published = True
        op, team = (i.op, i.owner.number) if (i := wait.instance) is not None else (0, 0)
        self.wait_begins(text, wait.time.since, op, team)

    def wait_ends(self) -> None:
        """Publish that this thread no longer waits."""
        self.status[self.index]["waits"] = 0

    def waits_for(self, index: int) -> str:
        """Return what a thread has been waiting for, "" if it does not wait."""
        if not self.status[index]["waits"]:
            return ""
        return self._read(self._record(index) + AWAITED, TROUBLE_BYTES)

    def publish_awaited(self, team: int, op: int, threads: Sequence[int]) -> None:
        """Publish the threads that this one waits for in an operation, and count the look."""
        at = self._record(self.index) + EDGES
        looks = self.awaited_by(self.index)[0]
        some = np.array(threads[:MOST_EDGES], np.int32).tobytes()
        head = EDGE_HEAD.pack(looks + 1, team, op, len(some) // 4)
        self.segment.map[at : at + len(head) + len(some)] = head + some

    def awaited_by(self, index: int) -> tuple[int, int, int, list[int]]:
        """Return a thread's number of looks, its team and operation, and what threads it awaits."""
        at = self._record(index) + EDGES
        looks, team, op, n = EDGE_HEAD.unpack_from(self.segment.map, at)
        threads = np.frombuffer(self.segment.map, np.int32, n, at + EDGE_HEAD.size)
        return looks, team, op, threads.tolist()

    def waits_in(self, index: int, team: int, op: int) -> bool:
        """Return whether a thread waits in an operation of a team."""
        status = self.status[index]
        here = int(status["team"]) == team and int(status["op"]) == op
        return here and int(status["done"]) != op and bool(status["waits"])

    def doing(self, index: int) -> str:
        """Describe what a thread is doing, or did last."""
        status = self.status[index]
        op, call, done = int(status["op"]), int(status["call"]), int(status["done"])
        if done == op and (text := self.waits_for(index)):
            return f"in {text}"
        if not call:
            return "outside xupc, before its first call"
        text = self.last_call(index)
        return f"outside xupc; its last call was {text}" if done == op else f"in {text}"

    def wait_of(self, index: int) -> tuple[int, int, int]:
        """Return since when a waiting thread waits, its operation and team; 0 if it is in none."""
        ring = self.rings[index]
        return int(ring["waits_since"]), int(ring["waits_op"]), int(ring["waits_team"])

    # -- positions ------------------------------------------------------------------------
    @property
    def wanted_address(self) -> int:
        """Return the address of the word that a signal handler writes the time to: see `want`."""
        return self.ring_address + 8  # after the count

    def want(self) -> None:
        """Request that this thread prints the positions of all threads."""
        self.rings[self.index]["wanted"] = time.monotonic_ns()

    def wanted(self) -> NDArray[np.uint64]:
        """Return when each thread was last requested to print the positions."""
        return self.rings["wanted"].copy()

    @property
    def printed(self) -> int:
        """Return when a thread of this machine last printed the positions."""
        return int(self.head["printed"][0])

    def print_done(self, now: int) -> None:
        """Note that this thread has printed the positions."""
        self.head["printed"] = now

    @property
    def asked(self) -> int:
        """Return when the positions of this machine's threads were last requested."""
        return int(self.head["asked"][0])

    def ask(self) -> int:
        """Request the positions of this machine's threads; return the time of the request."""
        now = time.monotonic_ns()
        self.head["asked"] = now
        return now

    def answer(self, line: str, inside: bool) -> None:
        """Publish the Python line of this thread, and whether it is inside xupc."""
        self._write(self._record(self.index) + WHERE, line, WHERE_BYTES)
        self.rings[self.index]["inside"] = inside
        self.rings[self.index]["answered"] = time.monotonic_ns()

    def answered(self, asked: int) -> NDArray[np.bool_]:
        """Return which threads have answered a request."""
        answers: NDArray[np.bool_] = self.rings["answered"] >= asked
        return answers

    def line_of(self, index: int) -> tuple[str, bool]:
        """Return the last answer of a thread: its Python line, whether it is inside xupc."""
        line = self._read(self._record(index) + WHERE, WHERE_BYTES)
        return line, bool(self.rings[index]["inside"])

    def write_places(self, machine: int, groups: object) -> None:
        """Publish the positions of a machine's threads, with the time."""
        if not self._write_data(self._places + machine * PLACES_BYTES, groups, PLACES_BYTES):
            raise ValueError("too many places")

    def places_of(self, machine: int) -> tuple[int, object]:
        """Return the time and the positions last published for a machine; (0, None) if none."""
        return self._read_data(self._places + machine * PLACES_BYTES)

    def write_note(self, note: object) -> bool:
        """Publish this thread's calls on `xupc.Comm`; return False if there is no room for them."""
        return self._write_data(self._record(self.index) + NOTE, note, NOTE_BYTES)

    def note_of(self, index: int) -> tuple[int, bytes]:
        """Return the time and the JSON of what a thread has published by `write_note`."""
        return self._read_bytes(self._record(index) + NOTE)

    def noted_since(self, when: int) -> list[int]:
        """Return the threads that have called `write_note` since a time."""
        times: NDArray[np.uint64] = np.ndarray(
            self.threads, np.uint64, self.segment.array, self._record(0) + NOTE, (RECORD,)
        )  # fmt: skip
        found: list[int] = np.flatnonzero(times > when).tolist()
        return found

    def _write_data(self, at: int, found: object, room: int) -> bool:
        """Write data as JSON, with the time; return False if there is no room for it."""
        data = json.dumps(found).encode()
        if DATA_HEAD.size + len(data) > room:
            return False
        self.segment.map[at : at + DATA_HEAD.size] = DATA_HEAD.pack(0, 0)
        self.segment.map[at + DATA_HEAD.size : at + DATA_HEAD.size + len(data)] = data
        DATA_HEAD.pack_into(self.segment.map, at, time.monotonic_ns(), len(data))
        return True

    def _read_data(self, at: int) -> tuple[int, object]:
        """Return the time and the data that `_write_data` wrote; (0, None) if there are none."""
        when, data = self._read_bytes(at)
        try:
            return when, json.loads(data)
        except ValueError:  # nothing yet, or a write is in progress
            return 0, None

    def _read_bytes(self, at: int) -> tuple[int, bytes]:
        """Return the time and the JSON of data; (0, b"") while a write is in progress."""
        found, size = DATA_HEAD.unpack_from(self.segment.map, at)
        start = at + DATA_HEAD.size
        data = bytes(self.segment.map[start : start + size])
        same = DATA_HEAD.unpack_from(self.segment.map, at)[0] == found
        return (found, data) if same else (0, b"")

    def process_of(self, index: int) -> int | None:
        """Return the pid of a thread; 0 in another pid namespace, None if it has ended."""
        return os.getpid() if index == self.index else lock_holder(self.segment.fd, index)

    def operation_of(self, index: int) -> int:
        """Return the number of calls that a thread has begun."""
        return int(self.status[index]["op"])

    def team_of(self, index: int) -> int:
        """Return the number of the team that a thread's last call was on."""
        return int(self.status[index]["team"])

    def agreements_of(self, index: int) -> int:
        """Return the number of agreements that a thread has entered."""
        return int(self.status[index]["agreed"])

    def agrees(self) -> int:
        """Enter an agreement; return its number."""
        self.status[self.index]["agreed"] += 1
        return self.agreements_of(self.index)

    # -- one-sided accesses --------------------------------------------------------------
    def ask_to_serve(self) -> None:
        """Request that other nodes serve this thread's one-sided accesses for a while."""
        self.status[self.index]["asked"] = int(time.monotonic())

    def note_request(self) -> None:
        """Note the same request of another machine's thread."""
        self.status[self.index]["elsewhere"] = int(time.monotonic())

    @property
    def asked_to_serve(self) -> tuple[int, int]:
        """Return the times of the last request here and of the last one from another machine."""
        return int(self.status["asked"].max()), int(self.status["elsewhere"].max())

    # -- troubles ----------------------------------------------------------------------
    def post(self, trouble: int, text: str = "") -> None:
        """Publish a trouble to the machine's threads, unless this thread has published one."""
        if self.status[self.index]["trouble"] == RUNNING:
            self._write(self._record(self.index) + TROUBLE, text, TROUBLE_BYTES)
            self.status[self.index]["trouble"] = trouble

    def explain_end(self, text: str) -> None:
        """Publish why this thread ends the job: other threads show this text for its death."""
        if self.status[self.index]["trouble"] == RUNNING:
            self._write(self._record(self.index) + TROUBLE, text, TROUBLE_BYTES)

    def trouble(self) -> tuple[int, str] | None:
        """Return the first trouble that a thread of the machine has published, or None."""
        for index in np.flatnonzero(self.status["trouble"] > FINISHED):
            text = self._read(self._record(int(index)) + TROUBLE, TROUBLE_BYTES)
            return int(self.status[index]["trouble"]), text
        return None

    def say(self, status: int) -> None:
        """Publish that this thread has printed its error and ends with this status."""
        self.status[self.index]["said"] = (status & 0xFF) + 1

    def leave_with(self, status: int) -> None:
        """Publish that the program of this thread has ended with this exit status."""
        self.rings[self.index]["leaves"] = status

    def leaving(self) -> int:
        """Return the highest exit status of a program on this machine that has ended."""
        return int(self.rings["leaves"].max())

    def interrupt_ends(self) -> tuple[bool, int | None]:
        """Return whether another thread of the machine was interrupted, and its exit status."""
        others = np.flatnonzero(self.status["trouble"] == INTERRUPTED)
        if not len(others) or self.index in others:
            return False, None
        said = int(self.status[int(others[0])]["said"])
        return True, said - 1 if said else None

    def end_all(self, status: int) -> None:
        """Publish that the job ends with this status: every thread of the machine must end."""
        self.status[self.index]["ended"] = (status & 0xFF) + 1

    @property
    def ended(self) -> int | None:
        """Return the status with which a thread of the machine ends the job, else None."""
        highest = int(self.status["ended"].max())
        return highest - 1 if highest else None

    def silent(self) -> dict[int, int]:
        """Return the machine's other threads that live and have not called `say`, with their pids.

        The pid is 0 if the thread is in another pid namespace.
        """
        found = {}
        for i in np.flatnonzero((self.status["said"] == 0) & (self.status["trouble"] != FINISHED)):
            index = int(i)
            holder = lock_holder(self.segment.fd, index) if index != self.index else None
            if holder is not None:
                found[index] = holder
        return found

    def waits(self, index: int) -> bool:
        """Return whether a thread has been in a wait for a while."""
        return bool(self.status[index]["waits"])

    def dead(self) -> list[int]:
        """Return the indices of threads whose lock is free and that published no trouble."""
        fd, trouble = self.segment.fd, self.status["trouble"]
        return [
            i
            for i in range(self.threads)
            if i != self.index and trouble[i] == RUNNING and lock_holder(fd, i) is None
        ]

    def gone(self) -> list[int]:
        """Return the indices of all threads whose lock is free."""
        others = (i for i in range(self.threads) if i != self.index)
        return [i for i in others if lock_holder(self.segment.fd, i) is None]

    def epitaph(self, index: int) -> str:
        """Describe a dead thread for the errors of others."""
        pid, thread, host = self.who(index)
        why = self._read(self._record(index) + TROUBLE, TROUBLE_BYTES)
        return death_text(thread_name(thread, host, pid), self.doing(index), why)
