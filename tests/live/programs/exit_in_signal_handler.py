"""Thread 1 leaves a barrier by sys.exit in a handler; thread 0 comes to the barrier after that."""

from __future__ import annotations

import signal
import sys

from support.handshakes import await_interrupt, await_wait, control, kill_when

import xupc


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    team = xupc.init()
    own = control()
    if team.rank == 1:
        kill_when(lambda: await_wait([own.index]), signal.SIGTERM, lambda: None)
    if team.rank == 0:
        await_interrupt(1)
    xupc.barrier()


main()
