"""The machine's control segment: liveness, what each thread does, and sync areas.

One per machine (threads that proved to share memory), even when ``XUPC_NODES``
splits it into several nodes. Layout, for m threads::

    page 0        the locks on its bytes; what the segment is, and when somebody
                  last asked where the threads are
    line i        status of thread i: operation, call, done, team   (native core),
                  agreements, whether it waits, what is wrong, when it
                  last wanted others to serve one-sided accesses
    ring i        the last calls of thread i                        (native core),
                  whether it asks or has answered where the threads are
    record i      pid, THREADS id, host name; what is wrong and what it waits for
                  in words; the Python line where it is; the texts of its last calls
    hosts         of every machine, its lowest thread: pid, id, host name
    places        of every machine, where its threads are, as JSON
    sync areas    one per node of this machine                      (native core)
    node tree     the tables of `tree.Tree`

Byte i of the file carries thread i's lock: free means dead. Exactly one descriptor
on the file per process: closing another would drop the lock.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..pgas.segment import Segment, hold_lock, lock_holder

__all__ = [
    "BROKEN",
    "DEAD",
    "FINISHED",
    "HUNG",
    "INTERRUPTED",
    "LAST",
    "MAGIC",
    "RUNNING",
    "Call",
    "Control",
    "control_bytes",
]

# What is wrong with a thread, or what it knows to be wrong with the job.
RUNNING, FINISHED, DEAD, HUNG, INTERRUPTED, BROKEN = range(6)

PAGE = 4096
LINE = 64
TEXTS = 128
TEXT_BYTES = 224
LAST = 64  # calls of a thread that reports know of
RING = 2 * LAST  # and how many are kept, since the oldest may just be overwritten
POSTED = 1  # instead of the end of a call that was posted and is under way
MAGIC = 0x31306372_63707578
PLACES_BYTES = 8192
WHERE_BYTES = 256
_ID = struct.Struct("<qq48s")  # pid, thread, host
_NUMBER = struct.Struct("<Q")
_PLACES = struct.Struct("<QQ")  # when they were found, bytes
TROUBLE_BYTES = 1024
_TROUBLE = 128
_WAIT = _TROUBLE + TROUBLE_BYTES
_EDGES = _WAIT + TROUBLE_BYTES
_MOST_EDGES = 58
_EDGE_HEAD = struct.Struct("<QQQQ")  # looks, team, operation, how many
_WHERE = _EDGES + _EDGE_HEAD.size + 4 * _MOST_EDGES + 8
_CALLS = _WHERE + WHERE_BYTES
_RECORD = _CALLS + TEXTS * (_NUMBER.size + TEXT_BYTES)
_HEAD = np.dtype(
    [("magic", "u8"), ("job", "u8"), ("asked", "u8"), ("printed", "u8")]
    + [(name, "u4") for name in ("threads", "machines", "machine", "total")]
)
_STATUS = np.dtype(
    [(name, "u8") for name in ("op", "call", "done", "team", "agreed", "ended")]
    + [(name, "u4") for name in ("waits", "asked", "heard")]
    + [("trouble", "u2"), ("said", "u2")]
)
_CALL = np.dtype([(name, "u8") for name in ("op", "what", "began", "ended")])
_RING = np.dtype(
    [(name, "u8") for name in ("count", "wanted", "answered", "inside")]
    + [(name, "u8") for name in ("waits_since", "waits_op", "waits_team", "leaves")]
    + [("call", _CALL, RING)]
)


def control_bytes(threads: int, machines: int, rest: int) -> int:
    """Size of the control segment for `threads` on this machine, one of several.

    `rest`: bytes of what comes last, the sync areas and the tree.
    """
    each = LINE + _RING.itemsize + _RECORD
    places = LINE + machines * (_ID.size + PLACES_BYTES)
    return PAGE + threads * each + places + rest + PAGE


@dataclass(frozen=True)
class Call:
    """One of a thread's last calls; times in ns of the monotonic clock, `ended` 0 before that."""

    op: int
    team: int
    text: str
    began: int
    ended: int
    posted: bool

    @property
    def name(self) -> str:
        """The call and its number, which is the same on all threads of its team."""
        return f"{self.text} #{self.op}" + (f" of team {self.team}" if self.team else "")


class Control:
    """My view of the control segment.

    Parameters
    ----------
    segment : Segment
        Mapped by every thread of the machine.
    index, threads : int
        My number among the machine's threads, and theirs.
    machines : int
        How many there are in the job.
    """

    def __init__(self, segment: Segment, index: int, threads: int, machines: int) -> None:
        self.segment = segment
        self.index = index
        self.threads = threads
        self.machines = machines
        self.head: NDArray[np.void] = segment.array[: _HEAD.itemsize].view(_HEAD)
        start, end = PAGE, PAGE + threads * LINE
        self.status: NDArray[np.void] = segment.array[start:end].view(_STATUS)
        start, end = end, end + threads * _RING.itemsize
        self.rings: NDArray[np.void] = segment.array[start:end].view(_RING)
        self._ring = start
        self._records = end
        self._hosts = self._records + threads * _RECORD
        self._places = self._hosts + machines * _ID.size
        end = self._places + machines * PLACES_BYTES
        self.sync_start = (end + LINE - 1) // LINE * LINE
        self._next_text = 0
        self._texts: list[tuple[int, str]] = [(0, "")] * TEXTS

    @classmethod
    def of_other(cls, segment: Segment) -> Control:
        """Somebody else's, to be read from outside of the job; ValueError if it is none."""
        head = segment.array[: _HEAD.itemsize].view(_HEAD)[0]
        threads, machines = int(head["threads"]), int(head["machines"])
        if int(head["magic"]) != MAGIC or segment.nbytes < control_bytes(threads, machines, 0):
            raise ValueError("not the control segment of a job of this version")
        return cls(segment, -1, threads, machines)

    def describe(self, job: int, machine: int, total: int) -> None:
        """Say what this segment is: of which job, of how many threads, on which of its machines."""
        head = self.head[0]
        head["job"], head["machine"], head["total"] = job, machine, total
        head["threads"], head["machines"] = self.threads, self.machines
        head["magic"] = MAGIC

    @property
    def machine(self) -> int:
        """The number of this machine in the job."""
        return int(self.head["machine"][0])

    # -- who is who --------------------------------------------------------------------
    def introduce(self, thread: int, host: str) -> None:
        """Write who I am and take my lock."""
        self._write_id(self._record(self.index), os.getpid(), thread, host)
        hold_lock(self.segment.fd, self.index)

    def who(self, index: int) -> tuple[int, int, str]:
        """(pid, thread, host) of a machine's thread."""
        return self._read_id(self._record(index))

    def note_hosts(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """(pid, thread, host) of the lowest thread of each machine of the job."""
        for k, row in enumerate(rows):
            self._write_id(self._hosts + k * _ID.size, *row)

    def host(self, machine: int) -> tuple[int, int, str]:
        """(pid, thread, host) of the lowest thread of a machine."""
        return self._read_id(self._hosts + machine * _ID.size)

    def _record(self, index: int) -> int:
        return self._records + index * _RECORD

    def _write_id(self, at: int, pid: int, thread: int, host: str) -> None:
        self.segment.map[at : at + _ID.size] = _ID.pack(pid, thread, host.encode()[:48])

    def _read_id(self, at: int) -> tuple[int, int, str]:
        pid, thread, host = _ID.unpack(self.segment.map[at : at + _ID.size])
        return pid, thread, host.rstrip(b"\0").decode(errors="replace")

    # -- what they do ------------------------------------------------------------------
    @property
    def status_address(self) -> int:
        """Where my status line is."""
        return self.segment.address + PAGE + self.index * LINE

    def note(self, text: str) -> int:
        """Publish the text of a kind of call of mine; its number, for the status line."""
        self._next_text += 1
        self._write_call(self._next_text, text)
        return self._next_text

    def ensure(self, call: int, text: str) -> None:
        """The place of a call's text may have gone to another since: write it again."""
        if self._texts[call % TEXTS] != (call, text):
            self._write_call(call, text)

    def _write_call(self, call: int, text: str) -> None:
        self._texts[call % TEXTS] = call, text
        at = self._text_at(self.index, call)
        self._put_number(at, 0)
        self._write(at + _NUMBER.size, text, TEXT_BYTES)
        self._put_number(at, call)

    def _text_at(self, index: int, call: int) -> int:
        return self._record(index) + _CALLS + call % TEXTS * (_NUMBER.size + TEXT_BYTES)

    def _text(self, index: int, call: int) -> str:
        """The text of a call, "" if another one has taken its place."""
        at = self._text_at(index, call)
        (number,) = _NUMBER.unpack_from(self.segment.map, at)
        return self._read(at + _NUMBER.size, TEXT_BYTES) if number == call else ""

    def _put_number(self, at: int, number: int) -> None:
        _NUMBER.pack_into(self.segment.map, at, number)

    def _write(self, at: int, text: str, room: int) -> None:
        data = text.encode(errors="replace")[: room - 1]
        self.segment.map[at : at + room] = data.ljust(room, b"\0")

    def _read(self, at: int, room: int) -> str:
        data = bytes(self.segment.map[at : at + room])
        return data.split(b"\0", 1)[0].decode(errors="replace")

    def wait_begins(self, text: str, since: int = 0, op: int = 0, team: int = 0) -> None:
        """I have been waiting for a while; for what, and in which operation of which team."""
        ring = self.rings[self.index]
        ring["waits_since"], ring["waits_op"], ring["waits_team"] = since, op, team
        self._write(self._record(self.index) + _WAIT, text, TROUBLE_BYTES)
        self.status[self.index]["waits"] = 1

    def wait_ends(self) -> None:
        """I wait no more."""
        self.status[self.index]["waits"] = 0

    def waits_for(self, index: int) -> str:
        """What a thread has been waiting for for a while, "" if it does not wait."""
        if not self.status[index]["waits"]:
            return ""
        return self._read(self._record(index) + _WAIT, TROUBLE_BYTES)

    def publish_awaited(self, team: int, op: int, threads: Sequence[int]) -> None:
        """In an operation of a team I wait for these threads: looked at just now."""
        at = self._record(self.index) + _EDGES
        looks = self.awaited_by(self.index)[0]
        some = np.array(threads[:_MOST_EDGES], np.int32).tobytes()
        head = _EDGE_HEAD.pack(looks + 1, team, op, len(some) // 4)
        self.segment.map[at : at + len(head) + len(some)] = head + some

    def awaited_by(self, index: int) -> tuple[int, int, int, list[int]]:
        """How often a thread has looked, the team and operation it was in, for whom it waited."""
        at = self._record(index) + _EDGES
        looks, team, op, n = _EDGE_HEAD.unpack_from(self.segment.map, at)
        threads = np.frombuffer(self.segment.map, np.int32, n, at + _EDGE_HEAD.size)
        return looks, team, op, threads.tolist()

    def waits_in(self, index: int, team: int, op: int) -> bool:
        """Whether a thread waits in an operation of a team."""
        status = self.status[index]
        here = int(status["team"]) == team and int(status["op"]) == op
        return here and int(status["done"]) != op and bool(status["waits"])

    def doing(self, index: int) -> str:
        """What a thread is doing, or did last, in words."""
        status = self.status[index]
        op, call, done = int(status["op"]), int(status["call"]), int(status["done"])
        if done == op and (text := self.waits_for(index)):
            return f"in {text}"
        if not call:
            return "outside xupc, before its first call"
        text = self.last_call(index)
        return f"outside xupc; its last call was {text}" if done == op else f"in {text}"

    def last_call(self, index: int) -> str:
        """The text of the call that a thread is in, or was in last."""
        call = int(self.status[index]["call"])
        return (self._text(index, call) or "a call") if call else ""

    # -- the ring of the last calls ------------------------------------------------------
    @property
    def ring_address(self) -> int:
        """Where my ring is."""
        return self.segment.address + self._ring + self.index * _RING.itemsize

    def begin_call(self, op: int, call: int, team: int) -> int:
        """What the native core writes when a call begins; the number of calls before it."""
        ring = self.rings[self.index]
        count = int(ring["count"])
        ring["call"][count % RING] = op, call | team << 32, time.monotonic_ns(), 0
        ring["count"] = count + 1
        return count

    def end_call(self, noted: int) -> None:
        """What it writes when the call ends."""
        ring = self.rings[self.index]
        if int(ring["count"]) - noted <= RING:
            ring["call"][noted % RING]["ended"] = time.monotonic_ns()

    def posted(self) -> None:
        """My last call goes on while I do something else."""
        ring = self.rings[self.index]
        last = ring["call"][(int(ring["count"]) - 1) % RING]
        if not last["ended"]:
            last["ended"] = POSTED

    def all_over(self) -> None:
        """None of my calls is under way any more, however they ended; posted ones may be."""
        status, calls = self.status[self.index], self.rings[self.index]["call"]
        status["done"] = status["op"]
        calls["ended"][(calls["ended"] == 0) & (calls["op"] > 0)] = time.monotonic_ns()

    def calls_of(self, index: int) -> list[Call]:
        """The last `LAST` calls of a thread, the latest one last."""
        ring = self.rings[index]
        for _ in range(10):
            count = int(ring["count"])
            rows = ring["call"].copy()
            # the oldest may be half another one: a call that begins is counted when it is written
            first = max(0, count - LAST, int(ring["count"]) + 1 - RING)
            if first < count or not count:  # else all of them are: look again
                break
        return [self._call(index, rows[i % RING]) for i in range(first, count)]

    def _call(self, index: int, row: NDArray[np.void]) -> Call:
        what, ended = int(row["what"]), int(row["ended"])
        text = self._text(index, what & 0xFFFFFFFF) or "a call"
        posted = ended == POSTED
        began, ended = int(row["began"]), 0 if posted else ended
        return Call(int(row["op"]), what >> 32, text, began, ended, posted)

    def wait_of(self, index: int) -> tuple[int, int, int]:
        """Of a thread that waits: since when, operation, team; 0 if it is in none."""
        ring = self.rings[index]
        return int(ring["waits_since"]), int(ring["waits_op"]), int(ring["waits_team"])

    # -- who is where ----------------------------------------------------------------------
    @property
    def wanted_address(self) -> int:
        """Of the word in which a signal to me writes when it came: see `want`."""
        return self.ring_address + 8  # after the count

    def want(self) -> None:
        """I am to print where the threads are."""
        self.rings[self.index]["wanted"] = time.monotonic_ns()

    def wanted(self) -> NDArray[np.uint64]:
        """When each thread was last told to print where the threads are."""
        return self.rings["wanted"].copy()

    @property
    def printed(self) -> int:
        """When somebody on this machine last printed it."""
        return int(self.head["printed"][0])

    def print_done(self, now: int) -> None:
        """I have."""
        self.head["printed"] = now

    @property
    def asked(self) -> int:
        """When somebody last asked the threads of this machine where they are."""
        return int(self.head["asked"][0])

    def ask(self) -> int:
        """Ask them; when."""
        now = time.monotonic_ns()
        self.head["asked"] = now
        return now

    def answer(self, line: str, inside: bool) -> None:
        """I am at this Python line, and in xupc or not."""
        self._write(self._record(self.index) + _WHERE, line, WHERE_BYTES)
        self.rings[self.index]["inside"] = inside
        self.rings[self.index]["answered"] = time.monotonic_ns()

    def answered(self, asked: int) -> NDArray[np.bool_]:
        """Which threads have answered since then."""
        answers: NDArray[np.bool_] = self.rings["answered"] >= asked
        return answers

    def line_of(self, index: int) -> tuple[str, bool]:
        """What a thread last answered."""
        line = self._read(self._record(index) + _WHERE, WHERE_BYTES)
        return line, bool(self.rings[index]["inside"])

    def write_places(self, machine: int, groups: Any) -> None:
        """Where the threads of a machine are, found just now."""
        at = self._places + machine * PLACES_BYTES
        data = json.dumps(groups).encode()
        if _PLACES.size + len(data) > PLACES_BYTES:
            raise ValueError("too many places")
        self.segment.map[at : at + _PLACES.size] = _PLACES.pack(0, 0)
        self.segment.map[at + _PLACES.size : at + _PLACES.size + len(data)] = data
        _PLACES.pack_into(self.segment.map, at, time.monotonic_ns(), len(data))

    def places_of(self, machine: int) -> tuple[int, Any]:
        """When it was last found out where the threads of a machine are, and where; or 0, None."""
        at = self._places + machine * PLACES_BYTES
        found, size = _PLACES.unpack_from(self.segment.map, at)
        start = at + _PLACES.size
        data = bytes(self.segment.map[start : start + size])
        try:
            groups = json.loads(data)
        except ValueError:  # none yet, or being written
            return 0, None
        same = _PLACES.unpack_from(self.segment.map, at)[0] == found
        return (found, groups) if same else (0, None)

    def process_of(self, index: int) -> int | None:
        """The process that a thread is, 0 if it is out of sight, None if it has ended."""
        return os.getpid() if index == self.index else lock_holder(self.segment.fd, index)

    def operation_of(self, index: int) -> int:
        """How many calls a thread has begun."""
        return int(self.status[index]["op"])

    def team_of(self, index: int) -> int:
        """The number of the team that a thread's last call was on."""
        return int(self.status[index]["team"])

    def agreements_of(self, index: int) -> int:
        """How many agreements a thread has come to."""
        return int(self.status[index]["agreed"])

    def agrees(self) -> int:
        """I come to an agreement; its number."""
        self.status[self.index]["agreed"] += 1
        return self.agreements_of(self.index)

    # -- who wants what ------------------------------------------------------------------
    def ask_to_serve(self) -> None:
        """I access memory of other nodes: for a while they should look for that."""
        self.status[self.index]["asked"] = int(time.monotonic())

    def hear_to_serve(self) -> None:
        """A thread of another machine does."""
        self.status[self.index]["heard"] = int(time.monotonic())

    @property
    def asked_to_serve(self) -> tuple[int, int]:
        """When a thread of this machine last asked for it, and when I heard of another one's."""
        return int(self.status["asked"].max()), int(self.status["heard"].max())

    # -- what is wrong -----------------------------------------------------------------
    def post(self, trouble: int, text: str = "") -> None:
        """Tell the machine's threads what is wrong, unless I have told them something before."""
        if self.status[self.index]["trouble"] == RUNNING:
            self._write(self._record(self.index) + _TROUBLE, text, TROUBLE_BYTES)
            self.status[self.index]["trouble"] = trouble

    def explain_end(self, text: str) -> None:
        """Why I am about to end the job: what others will say of my death."""
        if self.status[self.index]["trouble"] == RUNNING:
            self._write(self._record(self.index) + _TROUBLE, text, TROUBLE_BYTES)

    def trouble(self) -> tuple[int, str] | None:
        """What a thread of the machine, me included, says is wrong with the job, if anything."""
        for index in np.flatnonzero(self.status["trouble"] > FINISHED):
            text = self._read(self._record(int(index)) + _TROUBLE, TROUBLE_BYTES)
            return int(self.status[index]["trouble"]), text
        return None

    def say(self, status: int) -> None:
        """I have printed what I had to say and am about to end, with this status."""
        self.status[self.index]["said"] = (status & 0xFF) + 1

    def leave_with(self, status: int) -> None:
        """My program has come to its end, with this exit status."""
        self.rings[self.index]["leaves"] = status

    def leaving(self) -> int:
        """The exit status of a thread of the machine whose program has ended so; 0 if none has."""
        return int(self.rings["leaves"].max())

    def interrupt_ends(self) -> tuple[bool, int | None]:
        """Whether another thread of the machine was interrupted; with what status it ends."""
        others = np.flatnonzero(self.status["trouble"] == INTERRUPTED)
        if not len(others) or self.index in others:
            return False, None
        said = int(self.status[int(others[0])]["said"])
        return True, said - 1 if said else None

    def end_all(self, status: int) -> None:
        """The job ends with this status: every thread of the machine has to go."""
        self.status[self.index]["ended"] = (status & 0xFF) + 1

    @property
    def ended(self) -> int | None:
        """The status with which a thread of the machine ends the job, None if none does."""
        highest = int(self.status["ended"].max())
        return highest - 1 if highest else None

    def silent(self) -> dict[int, int]:
        """The machine's other threads that live and have not said it yet, with their pids.

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
        """Whether a thread has been in a wait for a while."""
        return bool(self.status[index]["waits"])

    def dead(self) -> list[int]:
        """Machine indices of threads whose lock is free without a word from them."""
        fd, trouble = self.segment.fd, self.status["trouble"]
        return [
            i
            for i in range(self.threads)
            if i != self.index and trouble[i] == RUNNING and lock_holder(fd, i) is None
        ]

    def gone(self) -> list[int]:
        """Machine indices of threads whose lock is free, whatever they said before."""
        others = (i for i in range(self.threads) if i != self.index)
        return [i for i in others if lock_holder(self.segment.fd, i) is None]

    def epitaph(self, index: int) -> str:
        """A dead thread: who it was, where, and what it was doing."""
        pid, thread, host = self.who(index)
        name = f"thread {thread} (host {host}, pid {pid})"
        why = self._read(self._record(index) + _TROUBLE, TROUBLE_BYTES)
        return f"{name} ended the job: {why}" if why else f"{name} died {self.doing(index)}"
