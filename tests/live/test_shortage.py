"""Descriptors or address space run short on one thread: an error on all, and on it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to set limits")
ONCE = pytest.mark.once
SHORT = """
    import os, resource, xupc
    import numpy as np

    team = xupc.init(heap_size="1MiB", timeout=20)
    me = xupc.MYTHREAD
    large = 60 << 20
    calls = {
        "growth": lambda: xupc.all_alloc(large, "u1", "*"),
        "split": lambda: team.split(0),
        "array": lambda: xupc.node_array(large, "u1"),
        "broadcast": lambda: xupc.node_broadcast(np.ones(large, "u1") if me == 0 else None),
    }

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def limit(what, more):
        "Allow so much more on this thread."
        if what == "descriptors":
            used = os.open("/dev/null", os.O_RDONLY)
            os.close(used)
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, most[0][1]))
        else:
            pages = int(open("/proc/self/statm").read().split()[0])
            size = pages * resource.getpagesize() + more
            resource.setrlimit(resource.RLIMIT_AS, (size, most[1][1]))

    def unlimit():
        resource.setrlimit(resource.RLIMIT_NOFILE, most[0])
        resource.setrlimit(resource.RLIMIT_AS, most[1])

    most = [resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)]

    def refused(call, victim, what, more):
        xupc.barrier()
        before = descriptors()
        if me == victim:
            limit(what, more)
        try:
            calls[call]()
        except xupc.HeapError as e:
            print("refused: " + str(e), flush=True)
        finally:
            unlimit()
        xupc.barrier()
        assert descriptors() <= before, (descriptors(), before)
"""


@pytest.mark.parametrize(
    ("call", "victim", "what", "more", "nodes"),
    [
        ("growth", 1, "space", 20 << 20, None),
        ("array", 0, "descriptors", 0, None),
        ("broadcast", 1, "descriptors", 0, None),
        pytest.param("growth", 0, "space", 20 << 20, None, marks=ONCE),
        pytest.param("growth", 0, "descriptors", 0, None, marks=ONCE),
        pytest.param("growth", 2, "descriptors", 0, "2,1", marks=ONCE),
        pytest.param("array", 0, "space", 20 << 20, None, marks=ONCE),
        pytest.param("array", 1, "space", 20 << 20, "2,1", marks=ONCE),
        pytest.param("array", 2, "descriptors", 0, "2,1", marks=ONCE),
        pytest.param("broadcast", 2, "space", 90 << 20, None, marks=ONCE),
        pytest.param("broadcast", 1, "descriptors", 0, "2,1", marks=ONCE),
    ],
)
def test_a_thread_runs_short(
    live: Callable[..., Any],
    tmp_path: Path,
    call: str,
    victim: int,
    what: str,
    more: int,
    nodes: str | None,
) -> None:
    program = f"""{SHORT}
    refused({call!r}, {victim}, {what!r}, {more})
    calls[{call!r}]()
    xupc.barrier()
    print("done: again", flush=True)
    """
    for named in ("0", "1"):
        env = {"XUPC_SHM_DIR": str(tmp_path), "XUPC_NAMED_SEGMENTS": named}
        result = live(3, program, nodes=nodes, env=env)
        assert result.stdout.count("refused: ") == 3, result.report()
        assert result.stdout.count("done: again") == 3, result.report()
        assert list(tmp_path.iterdir()) == []


def test_teams_until_descriptors_run_out(live: Callable[..., Any]) -> None:
    """Each thread's limit ends another thread's turn: all see the same error."""
    program = """
        import resource, xupc

        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, most[1]))
        team = xupc.init(heap_size="256KiB", timeout=30)
        teams = []
        try:
            while len(teams) < 200:
                teams.append(team.split(0))
        except xupc.HeapError as e:
            print("refused: " + str(e), flush=True)
        xupc.barrier()
        teams.pop().free()
        A = xupc.all_alloc(3, "u1", 1, team=team.split(0))
        xupc.barrier()
        print("done: again", flush=True)
    """
    result = live(3, program, own_job=True)  # the limits stay
    assert result.stdout.count("refused: ") == 3, result.report()
    assert result.stdout.count("team.free()") == result.stdout.count("ulimit -n") == 3
    assert result.stdout.count("done: again") == 3, result.report()
