"""Calls that differ: how a thread hears of it, and how all go on.

Whoever sees a difference may be in mid-call, and so may the others. Words among the threads of the
team (`MismatchDetector`) tell those who would not see it; then all meet, say what they did, hear
who is odd, and go on (`Resync`). Nothing here waits by itself: a posted call must not, since it is
moved on inside other waits.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from ..comm.mpi import BARRIER, CONTROL, RESYNC, STALL, tag_of
from ..fingerprint import fingerprint
from ..records import record
from .call_record import CallRecord, MismatchReport, compare, first_apart
from .stack_report import way_here

if TYPE_CHECKING:
    from ..runtime.executor import WaitState
    from ..runtime.team_state import TeamState

__all__ = [
    "ANSWER", "CONFLICT", "EXCHANGE", "FOUND", "QUESTION", "WORD", "Behind", "Waitable",
    "MismatchDetector", "Resync", "differs",
]  # fmt: skip

EXCHANGE = struct.Struct("<QQQQ")  # of barriers: fingerprints, least and most; a value; flags
CONFLICT = 1  # of values
WORD = struct.Struct("<QQQQ")  # kind, after which resync, operation, fingerprint after it
QUESTION, ANSWER, FOUND = range(3)
_POISON = fingerprint("poison")


@record
class Waitable:
    """Something that is to come about, to be asked for or waited for.

    Attributes
    ----------
    done
        Whether it has.
    what, threads, place, agreement
        For reports, as in `Engine.wait_for`.
    instance
        Instead of `done`: one that is to be brought to its end.
    """

    done: Callable[[], bool] = bool
    what: str = ""
    threads: Sequence[int] = ()
    place: tuple[int, int] | None = None
    agreement: int = 0
    instance: Any = None


def differs(data: bytes, mine: int | None) -> bool:
    """Whether a barrier message shows that calls differ: among the senders, or from mine."""
    low, high, _, flags = EXCHANGE.unpack_from(data)
    return bool(low != high or flags & CONFLICT or mine not in (None, low))


class MismatchDetector:
    """What a team's threads tell each other about calls that differ."""

    def __init__(self, team: TeamState) -> None:
        self.team = team
        self._found: list[tuple[int, int]] = []
        self._asked: dict[int, tuple[int, int, int]] = {}
        self._told: list[Any] = []

    def seen(self, instance: Any, waiting: WaitState) -> bool:
        """Whether it can be seen or was heard that a call is not everybody's.

        Asked now and then by a thread that waits. Early messages for the next barrier
        carry fingerprints, which may contradict each other, or mine if that barrier is
        this call's. A thread that waits long in mid-call asks the others for theirs.
        """
        team = self.team
        if instance.suspect():
            return True
        at_barrier = instance.at_barrier
        if waiting.stalled and not waiting.told and not at_barrier:
            waiting.told = True
            self._tell_all(QUESTION, instance.op, instance.fp)
        if not team.exchanges:
            return False
        if self.heard():
            return True
        if instance.net is not None and instance.net.exchanging:
            return False
        mine = instance.fp if at_barrier or instance.plan.sync[1] == "all" else None
        tag = tag_of(team.core.epoch + (not at_barrier), BARRIER)
        early = (team.link.peek(r, tag) for r in team.exchange_group if r != team.rank)
        return any(data is not None and differs(data, mine) for data in early)

    def tell(self) -> None:
        """Tell the others that I found one; what they know to be the same comes to its end."""
        self._tell_all(FOUND, self.team.core.verified, 0)

    def _tell_all(self, kind: int, op: int, fp: int) -> None:
        for rank in self.team.exchange_group:
            if rank != self.team.rank:
                self._tell(rank, kind, op, fp)

    def _tell(self, rank: int, kind: int, op: int, fp: int) -> None:
        """Send a word about differing calls; not tracked, since a mismatch would cancel it."""
        self._told = [request for request in self._told if not request.Test()]
        data = WORD.pack(kind, self.team.core.since, op, fp)
        self._told.append(self.team.link.send_bytes(rank, STALL, data))

    def heard(self) -> bool:
        """Read and answer what other threads tell that wait long.

        A question is about one of my last calls, or about one that I shall make; then my
        last one is the answer, and it is looked at again when I am there. Whoever found
        a difference may be ahead of me: what I am doing comes to its end if it is among
        the calls that he knows to be the same. Words from before the last resync are void.
        """
        core, differ = self.team.core, False
        while (notice := self.team.link.take_any(STALL)) is not None:
            rank, (kind, since, op, fp) = notice[0], WORD.unpack(notice[1])
            if since != core.since:
                continue
            if kind == QUESTION:
                self._asked[rank] = since, op, fp
                if op > core.op:
                    self._tell(rank, ANSWER, core.op, core.fp_after(core.op))
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


class Behind:
    """A thread that raised one call before the others did, which had not waited for it there.

    If it makes that call, too, where the others did, since the program catches errors call by call,
    it raises the same there, and meets nobody, since they have raised. If not, since the program
    catches errors of some calls together, it has left out what they were in.
    """

    def __init__(self, team: TeamState) -> None:
        self._team = team
        self._owed: tuple[str, int, BaseException] | None = None

    def by(self, call: str, place: int, error: BaseException) -> None:
        """By this call, in which the others raised, at a place of the program."""
        self._owed = call, place, error
        self._team.core.owed = True

    def catch_up(self, record: CallRecord) -> None:
        """Before the first call since then."""
        owed, self._owed = self._owed, None
        self._team.core.owed = False
        if owed is not None and record.call == owed[0] and way_here() == owed[1]:
            raise owed[2]


class Resync:
    """From a difference that a thread has seen to the error that it raises, and all go on.

    All threads of the team come here together: exchange records, name the odd ones, go on. When
    it raises nothing is under way any more, so the caller may do as he likes with his memory.
    """

    def __init__(self, instance: Any) -> None:
        self._engine = instance.owner.job.engine
        self._conditions = _conditions(instance)
        self._next: Waitable | None = None

    def poll(self) -> None:
        """As far as it goes without waiting; at its end it raises.

        CollectiveMismatchError, or what the odd thread itself did wrong.
        """
        while self._next is None or self._engine.met(self._next):
            self._next = next(self._conditions)

    def finish(self) -> NoReturn:
        """To its end, which raises."""
        while True:
            if self._next is not None:
                self._engine.wait_until(self._next)
            self._next = next(self._conditions)


def _conditions(instance: Any) -> Iterator[Waitable]:
    """What has to come about, one after the other; raises at the end."""
    team: TeamState = instance.owner
    team.job.network.forget(team.link, instance)
    mine = instance.op
    yield from _giving_up(team, instance)
    record = team.account(instance.record)
    verdict = yield from _resync(team, instance, mine, record)
    instance.end()
    team.job.control.all_over()  # the barrier that brought me here ends nowhere
    most, call, place = verdict.data["ahead"]
    if most == mine - record.late + 1 and call != record.call:
        team.behind.by(call, place, verdict.error_for(CallRecord(call.partition("(")[0])))
    raise team.job.agree(team.job.calling_out.run(partial(verdict.error_for, record)))


def _giving_up(team: TeamState, instance: Any) -> Iterator[Waitable]:
    """Bring a thread that saw a mismatch to the barrier where all meet.

    Whoever sees it in mid-call arrives at the next barrier with a fingerprint that
    fits nobody's. A node root besides tells its node and the other node roots at
    once, since their threads may be in mid-call too, and carries the bad verdict to
    the other nodes.
    """
    native, several = team.job.native, team.spans_nodes
    team.core.give_up()
    if team.exchanges and not (instance.at_barrier and instance.released):
        team.differences.tell()
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
    team: TeamState, instance: Any, last: int, record: CallRecord
) -> Generator[Waitable, None, MismatchReport]:
    """Find the first call that differs, then who is odd in it; `last` is my last call's number.

    Calls that do not synchronise may lie between it and where the difference was seen.
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
    place = last - record.late, way_here()
    told = [place, *(None if r is None else r.as_data() for r in (record, earlier))]

    def judge(rows: list[Any]) -> Any:
        now = [CallRecord.from_data(now) for _, now, _ in rows]
        then = [None if then is None else CallRecord.from_data(then) for _, _, then in rows]
        found = compare(now, team.threads, then if apart["earlier"] else None)
        first = max(range(len(rows)), key=lambda rank: rows[rank][0][0])
        (most, way), *_ = rows[first]
        found["ahead"] = most, now[first].call, way
        found["status"] = next((record.status for record in now if record.status), 0)
        return found

    verdict = MismatchReport((yield from talk.round(told, judge, last=True)))
    core.restart(apart["op"], core.epoch)
    team.link.discard()
    yield team.agreement.all_here()  # nobody begins another call before all have discarded
    return verdict


def _apart(rows: list[Any]) -> dict[str, Any]:
    """Where the threads' calls first differ, and whether any has made a call after that one."""
    start, place = first_apart([row["calls"] for row in rows])
    since = [[call for call in row["calls"] if call[0] >= start] for row in rows]
    return {
        "op": max(row["op"] for row in rows),
        "start": start,
        "place": place,
        "earlier": place is not None and any(len(calls) > place + 1 for calls in since),
    }


class _Talk:
    """Everybody's word to the team's first thread, its answer to all."""

    def __init__(self, team: TeamState, tag: int, record: CallRecord) -> None:
        self.team = team
        self.place = team.number, team.core.op
        self.tag = tag
        self.record = record

    def round(
        self, mine: Any, judge: Callable[[list[Any]], Any], *, last: bool = False
    ) -> Generator[Waitable, None, Any]:
        """`judge` makes the answer of all words, by rank; on the first thread alone.

        In the `last` one nobody gives his word, or the answer, before what he sent has arrived.
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
        sends: list[Any] = []
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
        """All others' words, by rank."""
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
