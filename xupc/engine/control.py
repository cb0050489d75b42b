"""The machine's control segment: liveness, what each thread does, and sync areas.

One per machine (threads that proved to share memory), even when ``XUPC_NODES``
splits it into several nodes. Layout, for m threads::

    page 0        nothing but the locks on its bytes
    line i        status of thread i: operation, call, done, team   (native core),
                  agreements, whether it waits, what is wrong, when it
                  last wanted others to serve one-sided accesses
    record i      pid, THREADS id, host name; what is wrong and what it waits for
                  in words; the texts of its last calls
    hosts         of every machine, its lowest thread: pid, id, host name
    sync areas    one per node of this machine                      (native core)

Byte i of the file carries thread i's lock: free means dead. Exactly one descriptor
on the file per process: closing another would drop the lock.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..memory.segment import Segment, hold_lock, lock_holder

__all__ = [
    "BROKEN",
    "DEAD",
    "FINISHED",
    "HUNG",
    "INTERRUPTED",
    "RUNNING",
    "Control",
    "control_bytes",
]

# What is wrong with a thread, or what it knows to be wrong with the job.
RUNNING, FINISHED, DEAD, HUNG, INTERRUPTED, BROKEN = range(6)

PAGE = 4096
LINE = 64
TEXTS = 64
TEXT_BYTES = 224
_ID = struct.Struct("<qq48s")  # pid, thread, host
TROUBLE_BYTES = 1024
_TROUBLE = 128
_WAIT = _TROUBLE + TROUBLE_BYTES
_EDGES = _WAIT + TROUBLE_BYTES
_MOST_EDGES = 58
_EDGE_HEAD = struct.Struct("<QQQQ")  # looks, team, operation, how many
_CALLS = _EDGES + _EDGE_HEAD.size + 4 * _MOST_EDGES + 8
_RECORD = _CALLS + TEXTS * TEXT_BYTES
_STATUS = np.dtype(
    [(name, "u8") for name in ("op", "call", "done", "team", "agreed", "ended")]
    + [(name, "u4") for name in ("waits", "asked", "heard")]
    + [("trouble", "u2"), ("said", "u2")]
)


def control_bytes(threads: int, machines: int, sync_bytes: int) -> int:
    """Size of the control segment for `threads` on this machine, one of several."""
    return PAGE + threads * (LINE + _RECORD) + machines * _ID.size + sync_bytes + PAGE


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
        start = PAGE
        self.status: NDArray[np.void] = segment.array[start : start + threads * LINE].view(_STATUS)
        self._records = start + threads * LINE
        self._hosts = self._records + threads * _RECORD
        end = self._hosts + machines * _ID.size
        self.sync_start = (end + LINE - 1) // LINE * LINE
        self._next_text = 0
        self._texts = [""] * TEXTS

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
        """Publish the text of a call of mine; its number + 1, for the status line."""
        slot = self._next_text % TEXTS
        self._next_text += 1
        self._write_call(slot, text)
        return slot + 1

    def ensure(self, call: int, text: str) -> None:
        """The number of a call may have gone to another since: write its text again."""
        if self._texts[call - 1] != text:
            self._write_call(call - 1, text)

    def _write_call(self, slot: int, text: str) -> None:
        self._texts[slot] = text
        at = self._record(self.index) + _CALLS + slot * TEXT_BYTES
        self._write(at, text, TEXT_BYTES)

    def _write(self, at: int, text: str, room: int) -> None:
        data = text.encode(errors="replace")[: room - 1]
        self.segment.map[at : at + room] = data.ljust(room, b"\0")

    def _read(self, at: int, room: int) -> str:
        data = bytes(self.segment.map[at : at + room])
        return data.split(b"\0", 1)[0].decode(errors="replace")

    def wait_begins(self, text: str) -> None:
        """I have been waiting for a while; for what."""
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
        at = self._record(index) + _CALLS + (call - 1) % TEXTS * TEXT_BYTES
        return self._read(at, TEXT_BYTES) if call else ""

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

    def say(self) -> None:
        """I have printed what I had to say and am about to end."""
        self.status[self.index]["said"] = 1

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
