"""A thread that has notified keeps nobody waiting, whatever it does until it waits itself."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.launch import Result, launch

# One thread meets the others of a second team before its wait, they do so after theirs.
ANOTHER_TEAM = """
    import sys
    import xupc

    first = int(sys.argv[1])
    team = xupc.init(timeout=20)
    other = team.split(0)
    for value in range(20):
        team.notify(value)
        if team.rank == first:
            other.barrier()
            team.wait(value)
        else:
            team.wait(value)
            other.barrier()
    xupc.finalize()
    print("done")
"""

# `away` sleeps between its notify and its wait, `late` comes when it does so already.
AWAY = """
    import json, sys, time
    import xupc

    away, late = int(sys.argv[1]), int(sys.argv[2])
    team = xupc.init()
    team.notify()
    team.wait()
    if team.rank == late:
        time.sleep(0.5)
    team.notify()
    if team.rank == away:
        time.sleep(2)
        print(json.dumps(["awake", time.monotonic()]))
    team.wait()
    if team.rank != away:
        print(json.dumps(["over", time.monotonic()]))
    xupc.finalize()
"""


# One thread waits for a notify of the other, which waits for it in another team.
CROSSWISE = """
    import xupc

    team = xupc.init(timeout=30)
    other = team.split(0)
    if team.rank == 0:
        team.notify()
        team.wait()
    else:
        other.barrier()
"""


@pytest.mark.parametrize("nodes", [None, "2x1"])
def test_threads_that_wait_for_each_other_are_told_at_once(nodes: str | None) -> None:
    result = launch(2, CROSSWISE, nodes=nodes)
    assert result.returncode != 0, result.report()
    assert "threads wait for each other" in result.stderr, result.report()
    assert result.seconds < 20, result.report()


@pytest.mark.parametrize("nodes", [None, "3x1", "2,1", "1,2"])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_another_team_meets_between_notify_and_wait(
    live: Callable[..., Result], nodes: str | None, first: int
) -> None:
    result = live(3, ANOTHER_TEAM, nodes=nodes, args=[str(first)])
    assert result.stdout.split() == 3 * ["done"], result.report()


@pytest.mark.parametrize(
    ("threads", "nodes"), [(3, None), (4, "2x2"), (11, "11x1")], ids=["one node", "2x2", "11x1"]
)
def test_a_thread_is_away_between_notify_and_wait(
    live: Callable[..., Result], threads: int, nodes: str | None
) -> None:
    """11 nodes tell each other in several rounds."""
    result = live(threads, AWAY, nodes=nodes, args=["0", "1"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    (awake,) = [when for what, when in lines if what == "awake"]
    over = [when for what, when in lines if what == "over"]
    assert len(over) == threads - 1, result.report()
    assert max(over) < awake, result.report()
