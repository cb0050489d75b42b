"""`xupc bench` with a result of ours that is wrong on thread 1; arguments of the command line."""

from __future__ import annotations

import sys
from typing import Any

from xupc.bench import calls, candidates
from xupc.cli import main

RIGHT: Any = calls.our_call


def wrong(collective: Any, work: Any, memory: Any, flags: int = 0) -> Any:
    call = RIGHT(collective, work, memory, flags)

    def spoil() -> None:
        call()
        if work.me == 1:
            call.result.fill(3)

    return calls.Call(spoil, (), work, call.source, call.result) if flags else call


setattr(candidates, "our_call", wrong)  # noqa: B010 - type checkers do not know the name there
main(sys.argv[1:])
