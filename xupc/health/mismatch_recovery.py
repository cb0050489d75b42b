"""Detect calls that differ between threads, and recover from them.

A thread that detects a mismatch may be inside a call, and so may the others. The detector
(`MismatchDetector`) notifies peers that would not notice the mismatch themselves. Then all threads
meet, exchange records, learn which threads differ, and continue (`Resync`). No function here
blocks: a posted call cannot, since it progresses inside other waits.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..backends.protocol import Instance, Owner, TeamCore
from ..backends.wait import Waitable, WaitState
from ..comm.mpi import MpiContext
from ..comm.net_barrier import differs
from ..comm.setup_collectives import Agreement
from ..comm.tags import BARRIER, CONTROL, RESYNC, STALL, tag_of
from ..comm.team_comm import TeamComm
from ..fingerprint import fingerprint
from .call_record import CallRecord, MismatchReport, compare, first_apart

if TYPE_CHECKING:
    from ..comm.mpi_types import Request

__all__ = ["ANSWER", "FOUND", "QUESTION", "WORD", "MismatchDetector", "Resync"]

WORD = struct.Struct("<QQQQ")  # kind, number of the last resync, operation, fingerprint after it
QUESTION, ANSWER, FOUND = range(3)
_POISON = fingerprint("poison")


class RecoveryExecutor(Protocol):
    """The part of the executor that a recovery uses."""

    def met(self, condition: Waitable) -> bool:
        """Return True if a condition is met, without a wait."""

    def wait_until(self, condition: Waitable) -> None:
        """Wait until a condition is met."""

    def ended(self, instance: Instance, status: int) -> bool:
        """Return True after a mismatch, or if the instance is done and has no open message."""


class CallNotes(Protocol):
    """The part of the control segment that a recovery writes."""

    def all_over(self) -> None:
        """Note the end of all calls of this thread, except posted ones."""


class ErrorScope(Protocol):
    """The scope of the user's functions, for the methods of a user's error."""

    def run(self, act: Callable[[], BaseException]) -> BaseException:
        """Run an action that may call a user's function."""


class RecoveryServices(Protocol):
    """The part of the job that a recovery uses."""

    @property
    def network(self) -> MpiContext:
        """MPI of this process."""

    @property
    def engine(self) -> RecoveryExecutor:
        """Executor of the job."""

    @property
    def control(self) -> CallNotes:
        """Control segment of the machine."""

    @property
    def calling_out(self) -> ErrorScope:
        """Scope of the user's functions that collectives call."""

    def agree(self, error: BaseException) -> BaseException:
        """Note an error that all threads raise."""


class RecoveringTeam(Owner, Protocol):
    """The part of a team that detects mismatches and recovers from them."""

    native: bool
    spans_nodes: bool
    exchanges: bool
    exchange_group: Sequence[int]
    differences: MismatchDetector

    @property
    def known_as(self) -> str:
        """The name of the team in messages; "" for that of all threads."""

    @property
    def job(self) -> RecoveryServices:
        """Job of the team."""

    @property
    def core(self) -> TeamCore:
        """Counters of its calls."""

    @property
    def link(self) -> TeamComm:
        """Its communicator."""

    @property
    def agreement(self) -> Agreement:
        """Agreements among its threads."""

    def account(self, record: CallRecord, op: int) -> CallRecord:
        """Return the record of this thread's call for a comparison among all threads."""

    def last_calls(self, last: int) -> list[tuple[int, int, CallRecord]]:
        """Return (operation, fingerprint after it, record) of the last calls up to `last`."""

    def meeting(self, signature: int, record: CallRecord) -> RecordedCall:
        """Return the instance of a barrier in which all threads must have one signature."""


class RecordedCall(Instance, Protocol):
    """An instance whose team can recover from a mismatch."""

    @property
    def owner(self) -> RecoveringTeam:
        """Its team."""

    @property
    def record(self) -> CallRecord:
        """Its record."""


class MismatchDetector:
    """The notices between the threads of a team about calls that may differ."""

    def __init__(self, team: RecoveringTeam) -> None:
        self.team = team
        self._found: list[tuple[int, int]] = []
        self._asked: dict[int, tuple[int, int, int]] = {}

    def seen(self, instance: RecordedCall, waiting: WaitState) -> bool:
        """Return whether a waiting thread can detect a mismatch of its call.

        Waits call this now and then. Early messages for the next barrier carry fingerprints. They
        may contradict each other, or this thread's fingerprint if that barrier belongs to its
        call. A thread that waits long inside a call requests the fingerprints of the others.
        """
        team = self.team
        if instance.suspect():
            return True
        at_barrier = instance.at_barrier
        if waiting.stalled and not at_barrier:
            self._ask(instance, waiting.asked)
        if not team.exchanges:
            return False
        if self.read_notices():
            return True
        if instance.net is not None and instance.net.exchanging:
            return False
        mine = instance.fp if at_barrier or instance.plan.sync[1] == "all" else None
        tag = tag_of(team.core.epoch + (not at_barrier), BARRIER)
        early = (team.link.peek(rank, tag) for rank in self._others)
        return any(data is not None and differs(data, mine) for data in early)

    def _ask(self, instance: RecordedCall, asked: set[int]) -> None:
        """Send the question about a call to the others that have read all notices so far.

        A thread that is always the last one never waits, and reads none: it must not get one more
        in each call.
        """
        if len(asked) < len(self._others):
            unread = self.team.link.unread()
            ready = [r for r in self._others if r not in asked and r not in unread]
            asked.update(ready)
            self._notify(ready, QUESTION, instance.op, instance.fp)

    def notify_others(self) -> None:
        """Notify the others of a mismatch; calls known to be equal still complete."""
        self._notify(self._others, FOUND, self.team.core.verified, 0)

    @cached_property
    def _others(self) -> list[int]:
        return [rank for rank in self.team.exchange_group if rank != self.team.rank]

    def _notify(self, ranks: Iterable[int], kind: int, op: int, fp: int) -> None:
        """Send a notice to ranks; not tracked, since a mismatch would cancel it."""
        self.team.link.send_notices(ranks, STALL, WORD.pack(kind, self.team.core.since, op, fp))

    def read_notices(self) -> bool:
        """Read and answer the notices of other threads; return whether they show a mismatch.

        A question is about one of this thread's last calls or about a later one. For a later one
        the reply names the last call, and the question is checked again when this thread gets
        there. The sender of FOUND may be ahead: a call verified there still completes.
        Notices from before the last resync are dropped.
        """
        core, differ = self.team.core, False
        while (notice := self.team.link.take_any(STALL)) is not None:
            rank, (kind, since, op, fp) = notice[0], WORD.unpack(notice[1])
            if since != core.since:
                continue
            if kind == QUESTION:
                self._asked[rank] = since, op, fp
                if op > core.op and rank in self.team.exchange_group:  # others read no answer
                    self._notify([rank], ANSWER, core.op, core.fp_after(core.op))
            elif kind == FOUND:
                self._found.append((since, op))
            elif fp and core.fp_after(op) not in (0, fp):
                differ = True
        self._found = [(since, op) for since, op in self._found if since == core.since]
        differ |= any(core.op > op for _, op in self._found)
        for rank, (since, op, fp) in list(self._asked.items()):
            if since != core.since or op <= core.op:
                del self._asked[rank]
                differ |= since == core.since and core.fp_after(op) not in (0, fp)
        return differ


class Resync:
    """The recovery from a detected mismatch; it ends with an error on each thread.

    All threads of the team run it together: they exchange records, find the differing threads, and
    continue. When it raises, no operation is in flight, so the program may reuse its memory.
    """

    def __init__(self, instance: RecordedCall) -> None:
        self._engine = instance.owner.job.engine
        self._conditions = _conditions(instance)
        self._next: Waitable | None = None

    def poll(self) -> None:
        """Run as far as possible without waiting; raise at the end.

        It raises CollectiveMismatchError, or the own error of a differing thread.
        """
        while self._next is None or self._engine.met(self._next):
            self._next = next(self._conditions)

    def finish(self) -> NoReturn:
        """Wait until the recovery is complete, and raise."""
        while True:
            if self._next is not None:
                self._engine.wait_until(self._next)
            self._next = next(self._conditions)


def _conditions(instance: RecordedCall) -> Iterator[Waitable]:
    """Yield the conditions of the recovery, one after the other; raise at the end."""
    team = instance.owner
    team.job.network.forget(team.link, instance)
    mine = instance.op
    yield from _giving_up(team, instance)
    record = team.account(instance.record, mine)
    verdict = yield from _resync(team, instance, mine, record)
    instance.end()
    team.job.control.all_over()  # the barrier that detected the mismatch never ends
    error_of = partial(verdict.error_for, record, team.known_as)
    raise team.job.agree(team.job.calling_out.run(error_of))


def _giving_up(team: RecoveringTeam, instance: RecordedCall) -> Iterator[Waitable]:
    """Bring a thread that detected a mismatch to the barrier where all threads meet.

    A thread that detects it inside a call arrives at the next barrier with a fingerprint that
    equals no other. A node root also notifies its node and the other node roots at once, since
    their threads may be inside a call, too. It carries the failed result to the other nodes.
    """
    native, several = team.native, team.spans_nodes
    team.core.give_up()
    if team.exchanges and not (instance.at_barrier and instance.released):
        team.differences.notify_others()
    if not instance.at_barrier:
        poison = team.meeting(_POISON, instance.record)
        poison.begin()
        if poison.net is not None:
            poison.net.start(poison.op)
        ended = team.job.engine.ended(poison, poison.poll())
        if native and several and team.exchanges:
            team.core.release_early()
        if not ended:
            yield Waitable(instance=poison)
    elif team.exchanges and (several or not native) and not instance.released:
        if native:
            team.core.release_early()
        yield Waitable(instance=instance)


def _resync(
    team: RecoveringTeam, instance: RecordedCall, last: int, record: CallRecord
) -> Generator[Waitable, None, MismatchReport]:
    """Find the first call that differs, then the threads that differ in it.

    `last`: the number of this thread's last call. Calls that do not synchronise may lie between
    the first difference and its detection.
    """
    core = instance.team
    talk = _Talk(team, tag_of(core.epoch, CONTROL) + RESYNC, record)
    calls = team.last_calls(last)
    prints = [(op, fp) for op, fp, _ in calls]
    apart = yield from talk.round({"op": core.op, "calls": prints}, _apart)
    earlier = None
    if apart["place"] is not None:
        since = [call for call in calls if call[0] >= apart["start"]][apart["place"] :]
        earlier = since[0][2] if since else None
    words = [None if r is None else r.as_data() for r in (record, earlier)]

    def judge(rows: list[Any]) -> Any:
        now = [CallRecord.from_data(now) for now, _ in rows]
        then = [None if then is None else CallRecord.from_data(then) for _, then in rows]
        found = compare(now, team.threads, then if apart["earlier"] else None)
        found["status"] = next((record.status for record in now if record.status), 0)
        return found

    verdict = MismatchReport((yield from talk.round(words, judge, last=True)))
    core.restart(apart["op"], core.epoch)
    team.link.discard()
    yield team.agreement.all_here()  # no thread begins another call before all have discarded
    return verdict


def _apart(rows: list[Any]) -> dict[str, Any]:
    """Find where the calls first differ, and whether a thread has made a later call."""
    start, place = first_apart([row["calls"] for row in rows])
    since = [[call for call in row["calls"] if call[0] >= start] for row in rows]
    return {
        "op": max(row["op"] for row in rows),
        "start": start,
        "place": place,
        "earlier": place is not None and any(len(calls) > place + 1 for calls in since),
    }


class _Talk:
    """Messages of all threads to the team's first thread, and its reply to all."""

    def __init__(self, team: RecoveringTeam, tag: int, record: CallRecord) -> None:
        self.team = team
        self.place = team.number, team.core.op
        self.tag = tag
        self.record = record

    def round(
        self, mine: Any, judge: Callable[[list[Any]], Any], *, last: bool = False
    ) -> Generator[Waitable, None, Any]:
        """Send a message; return the reply that `judge` makes of all messages on the first thread.

        In the `last` round a thread sends only when its earlier operations are complete.
        """
        team, tag, link = self.team, self.tag, self.team.link
        if team.rank == 0:
            rows = {0: json.dumps(mine).encode()}
            yield self._collecting(rows, last)
            words = [json.loads(rows[rank]) for rank in range(team.size)]
            answer = json.dumps(judge(words)).encode()
            answers = [link.send_bytes(r, tag, answer) for r in range(1, team.size)]
            yield Waitable(lambda: all(bool(a.Test()) for a in answers), "the team's resync")
            return json.loads(answer)
        sends: list[Request] = []
        got: list[bytes] = []

        def arrived() -> bool:
            link.discard()
            if not sends and self._ready(last):
                sends.append(link.send_bytes(0, tag, json.dumps(mine).encode()))
            data = None if got else link.take(0, tag)
            if data is not None:
                got.append(data)
            return bool(sends) and bool(sends[0].Test()) and bool(got)

        what = f"the verdict of thread {team.threads[0]} on {self.record.call}"
        yield Waitable(arrived, what, team.threads[:1], self.place)
        return json.loads(got[0])

    def _ready(self, last: bool) -> bool:
        return not last or self.team.job.network.quiet(self.team.link)

    def _collecting(self, rows: dict[int, bytes], last: bool) -> Waitable:
        """Return the condition that the messages of all other threads have arrived."""
        team = self.team
        missing = list(team.threads[1:])

        def arrived() -> bool:
            team.link.discard()
            for rank in range(1, team.size):
                if rank not in rows:
                    data = team.link.take(rank, self.tag)
                    if data is not None:
                        rows[rank] = data
                        missing.remove(team.threads[rank])
            return not missing and self._ready(last)

        what = "the other threads' accounts of a mismatch"
        return Waitable(arrived, what, missing, self.place)
