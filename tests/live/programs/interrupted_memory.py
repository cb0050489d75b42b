"""Memory of a thread that gave a call up is its own again: ``... FORM FLAG [posted]``."""

from __future__ import annotations

import signal
import sys
from typing import Any

import numpy as np
from support.handshakes import await_interrupt, await_wait, control, kill_when
from support.polling import await_file, job_folder

import xupc

N = 50_000


def main(form: str, flag: str, posted: str = "") -> None:
    """Interrupt thread 0 in its wait; the others make the call then, and find it given up."""
    team = xupc.init()
    over = job_folder() / "over"
    me, own = team.rank, control()
    dst, src = np.zeros(team.size * N if form == "gather" else N), np.ones(N)

    def call(flags: int = 0) -> Any:
        if form == "gather":
            into = dst if me == 0 else None
            return xupc.allav_gather(into, src, 0, xupc.Flags[flag] | flags)
        if me:
            dst[:] = 1
        return xupc.allav_broadcast(dst, 1, xupc.Flags[flag] | flags)

    def whole() -> None:
        if posted:
            call(xupc.ASYNC).wait()
        else:
            call()

    xupc.barrier()
    if me == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C
        kill_when(lambda: await_wait([own.index]), signal.SIGALRM, lambda: None)
        try:
            whole()
        except KeyboardInterrupt:
            dst[:] = 7  # the program's again
        await_file(over)  # the other's call, whatever it would have written
        assert np.all(dst == 7), "somebody wrote to it"
        sys.stdout.write("untouched\n")
    else:
        await_interrupt(0)
        try:
            whole()
            xupc.barrier()
        except xupc.XupcError as e:
            assert "was interrupted" in str(e), e
            sys.stdout.write("told\n")
        over.touch()


main(*sys.argv[1:])
