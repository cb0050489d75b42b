"""The processor time of threads that wait for a late one, where other work may disturb it."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.launch import RUNS, Result

PROGRAM = "tests/live/programs/processor_time_of_waits.py"


def check_waits(run: Callable[[], Result], waiting: int, limit: Callable[[str], float]) -> None:
    """Assert that each of `waiting` threads spends less of a core than the limit of its call.

    `run` runs `PROGRAM`; `limit` gives a share of a core for the name of a call. A loaded machine
    raises a share in a single wait (0.03 became 0.11), a wait that spins has its high share in
    each: so the least share of at most `RUNS` runs counts.
    """
    least: dict[tuple[str, int], float] = {}
    reports = []
    for _ in range(RUNS):
        done = run()
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(lines) == 9 * waiting, done.report()
        reports.append(done.report())
        for name, thread, share, _ in lines:
            least[name, thread] = min(share, least.get((name, thread), share))
        if all(share < limit(name) for (name, _), share in least.items()):
            return
    raise AssertionError("\n".join(reports))
