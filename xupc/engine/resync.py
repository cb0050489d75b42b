"""After a mismatch: all threads of the team say what they did, hear who is odd, and go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .mpi import CONTROL, RESYNC, tag_of
from .reports import Record, Verdict, compare

if TYPE_CHECKING:
    from ..team import Team

__all__ = ["raise_difference"]


def raise_difference(instance: Any) -> None:
    """All threads come here together: exchange records, name the odd ones, go on.

    Raises CollectiveMismatchError, or what the odd thread itself did wrong.
    """
    team: Team = instance.owner
    team.job.network.forget(team.link)
    team.give_up(instance)
    record = team.account(instance.record)
    verdict = _resync(team, instance, record)
    instance.end()
    team.job.control.all_over()  # the barrier that brought me here ends nowhere
    raise verdict.error_for(record)


def _resync(team: Team, instance: Any, record: Record) -> Verdict:
    """Everybody's record to the team's first thread, the verdict back to all."""
    core, link, engine = instance.team, team.link, team.job.engine
    mine = json.dumps({"record": record.as_data(), "op": core.op}).encode()
    tag = tag_of(core.epoch, CONTROL) + RESYNC
    if team.rank == 0:
        rows = {0: mine}
        _collect(team, tag, rows)
        data = [json.loads(rows[r]) for r in range(team.size)]
        records = [Record.from_data(d["record"]) for d in data]
        answer = json.dumps(
            {"verdict": compare(records, team.threads), "op": max(d["op"] for d in data)}
        ).encode()
        sends = [link.send_bytes(r, tag, answer) for r in range(1, team.size)]
        engine.wait_for(lambda: all(bool(s.Test()) for s in sends), "the team's resync")
    else:
        send = link.send_bytes(0, tag, mine)
        got: list[bytes] = []

        def arrived() -> bool:
            link.discard()
            data = None if got else link.take(0, tag)
            if data is not None:
                got.append(data)
            sent: bool = send.Test()
            return sent and bool(got)

        engine.wait_for(arrived, f"the verdict of thread {team.threads[0]} on {record.call}")
        answer = got[0]
    result = json.loads(answer)
    core.restart(result["op"], core.epoch)
    link.discard()
    team.agreement.agree([0])  # nobody begins another call before all have discarded
    return Verdict(result["verdict"])


def _collect(team: Team, tag: int, rows: dict[int, bytes]) -> None:
    """All others' accounts, by rank."""

    def arrived() -> bool:
        team.link.discard()
        for rank in range(1, team.size):
            if rank not in rows:
                data = team.link.take(rank, tag)
                if data is not None:
                    rows[rank] = data
        return len(rows) == team.size

    team.job.engine.wait_for(arrived, "the other threads' accounts of a mismatch")
