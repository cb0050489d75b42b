"""Calls between notify and wait, and threads that are away there: ``notify_and_wait.py CASE ..``"""

from __future__ import annotations

from pathlib import Path

from support.cases import case, run_case
from support.polling import await_file

import xupc


@case
def another_team(first: str) -> None:
    """Thread `first` meets the others of a second team before its wait, they after theirs."""
    team = xupc.init(timeout=20)
    other = team.split(0)
    assert other is not None
    for value in range(20):
        team.notify(value)
        if team.rank == int(first):
            other.barrier()
            team.wait(value)
        else:
            team.wait(value)
            other.barrier()
    xupc.finalize()
    print("done")


@case
def away(away: str, late: str, folder: str) -> None:
    """Thread `away` makes no call between its notify and its wait until all others have waited.

    Thread `late` notifies when the other one is away already.
    """
    team = xupc.init()
    team.notify()
    team.wait()
    notified, waited = Path(folder, "notified"), Path(folder, "waited")
    if team.rank == int(late):
        await_file(notified)
    team.notify()
    if team.rank == int(away):
        notified.touch()
        for rank in range(team.size):
            if rank != team.rank:
                await_file(f"{waited}-{rank}")
        print("back")
    team.wait()
    if team.rank != int(away):
        Path(f"{waited}-{team.rank}").touch()
        print("over")
    xupc.finalize()


@case
def crosswise() -> None:
    """One thread waits for a notify of the other, which waits for it in another team."""
    team = xupc.init(timeout=30)
    other = team.split(0)
    assert other is not None
    if team.rank == 0:
        team.notify()
        team.wait()
    else:
        other.barrier()


run_case()
