"""Jobs that come to a bad end: how long it takes, who says what, what is left."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from launch import Result, launch

__all__ = ["End", "bring_about"]

PROGRAM = "tests/live/programs/trouble.py"
ALL_GONE = 5.0  # seconds after the blow
TRACEBACK = re.compile(r"^xupc: thread (\d+) of \d+:$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class End:
    """What became of a job.

    Attributes
    ----------
    victim : str
        ``thread 1 (host h, pid 123)``, as in our messages.
    seconds : float
        From the blow (or, where there is none, from the start) until the last process was gone.
    """

    result: Result
    victim: str
    seconds: float

    def said(self, text: str) -> int:
        """How often a text, with ``VICTIM`` standing for the victim, was printed."""
        return self.result.stderr.count(text.replace("VICTIM", self.victim))

    def number(self, word: str) -> float:
        """The number that the program printed after a word."""
        found = re.search(rf"^{word} (\S+)", self.result.stdout, re.MULTILINE)
        assert found, self.result.report()
        return float(found[1])

    @property
    def tracebacks(self) -> int:
        """How many threads ended by an exception of which they said that it was theirs."""
        return len(TRACEBACK.findall(self.result.stderr))


def bring_about(
    scenario: str,
    victim: int,
    *options: str,
    n: int = 4,
    via: str = "xupc run",
    nodes: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout: float = 40.0,
) -> End:
    """Run a scenario of programs/trouble.py; it must end by itself, with nothing left in time."""
    result = launch(
        n, PROGRAM, nodes=nodes, env=env, timeout=timeout, args=[scenario, str(victim), *options],
        via=via, grace=1.0,
    )  # fmt: skip
    now = time.monotonic()
    assert result.clean, result.report()
    who = re.search(r"^victim (\d+) (\d+) (\S+)", result.stdout, re.MULTILINE)
    name = f"thread {who[1]} (host {who[3]}, pid {who[2]})" if who else ""
    blow = re.search(r"^struck (\S+)", result.stdout, re.MULTILINE)
    seconds = now - float(blow[1]) if blow else result.seconds
    if blow:
        assert seconds < ALL_GONE, f"{seconds:.1f} s after the blow\n{result.report()}"
    return End(result, name, seconds)
