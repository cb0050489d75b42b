"""After a mismatch: all threads of the team say what they did, hear who is odd, and go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .mpi import CONTROL, RESYNC, tag_of
from .reports import Record, Verdict, compare, first_apart

if TYPE_CHECKING:
    from ..team import Team

__all__ = ["raise_difference"]


def raise_difference(instance: Any) -> None:
    """All threads come here together: exchange records, name the odd ones, go on.

    When it raises nothing is under way any more, so the caller may do as he likes with his memory.

    Raises CollectiveMismatchError, or what the odd thread itself did wrong.
    """
    team: Team = instance.owner
    team.job.network.forget(team.link, instance)
    mine = instance.op
    team.give_up(instance)
    record = team.account(instance.record)
    verdict = _resync(team, instance, mine, record)
    instance.end()
    team.job.control.all_over()  # the barrier that brought me here ends nowhere
    raise verdict.error_for(record)


def _resync(team: Team, instance: Any, last: int, record: Record) -> Verdict:
    """Find the first call that differs, then who is odd in it; `last` is my last call's number.

    Calls that do not synchronise may lie between it and where the difference was seen.
    """
    core = instance.team
    talk = _Talk(team, tag_of(core.epoch, CONTROL) + RESYNC, record)
    calls = team.last_calls(last)
    prints = [(op, fp) for op, fp, _ in calls]
    apart = talk.round({"op": core.op, "calls": prints}, _apart)
    earlier = None
    if apart["place"] is not None:
        since = [call for call in calls if call[0] >= apart["start"]][apart["place"] :]
        earlier = since[0][2] if since else None
    told = [None if r is None else r.as_data() for r in (record, earlier)]

    def judge(rows: list[Any]) -> Any:
        now = [Record.from_data(now) for now, _ in rows]
        then = [None if then is None else Record.from_data(then) for _, then in rows]
        return compare(now, team.threads, then if apart["earlier"] else None)

    verdict = Verdict(talk.round(told, judge, last=True))
    core.restart(apart["op"], core.epoch)
    team.link.discard()
    team.agreement.agree([0])  # nobody begins another call before all have discarded
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

    def __init__(self, team: Team, tag: int, record: Record) -> None:
        self.team = team
        self.place = team.number, team.core.op
        self.tag = tag
        self.record = record

    def round(self, mine: Any, judge: Callable[[list[Any]], Any], *, last: bool = False) -> Any:
        """`judge` makes the answer of all words, by rank; on the first thread alone.

        In the `last` one nobody gives his word, or the answer, before what he sent has arrived.
        """
        team, tag = self.team, self.tag
        link, engine = team.link, team.job.engine
        if team.rank == 0:
            rows = {0: json.dumps(mine).encode()}
            self._collect(rows, last)
            words = [json.loads(rows[rank]) for rank in range(team.size)]
            answer = json.dumps(judge(words)).encode()
            answers = [link.send_bytes(r, tag, answer) for r in range(1, team.size)]
            engine.wait_for(lambda: all(bool(a.Test()) for a in answers), "the team's resync")
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
        engine.wait_for(arrived, what, threads=team.threads[:1], place=self.place)
        return json.loads(got[0])

    def _ready(self, last: bool) -> bool:
        return not last or self.team.job.network.quiet(self.team.link)

    def _collect(self, rows: dict[int, bytes], last: bool) -> None:
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
        team.job.engine.wait_for(arrived, what, threads=missing, place=self.place)
