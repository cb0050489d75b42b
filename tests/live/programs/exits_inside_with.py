"""All leave a with block by sys.exit, thread 0 when the others wait for it: ``... [STATUS]``."""

from __future__ import annotations

import sys

from support.handshakes import await_others

import xupc


def main(*status: str) -> None:
    with xupc.init() as team:
        if team.rank == 0:
            await_others()
            print("late but not lost", flush=True)
        sys.exit(*map(int, status))


main(*sys.argv[1:])
