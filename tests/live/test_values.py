"""Arrays of values on real threads: data, guards, differing calls, wrong arguments, scalars.

And that calls like an earlier one, of these and of collectives on shared data, take the short way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import sampled

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "cases"),
    [
        pytest.param(1, None, 60, marks=ONCE),
        (2, None, 120),
        pytest.param(5, None, 80, marks=ONCE),
        pytest.param(4, "2x2", 80, marks=ONCE),
        (4, "cyclic:3", 80),
        pytest.param(3, "1,1,1", 60, marks=ONCE),
    ],
)
def test_every_form(live: Callable[..., Any], threads: int, nodes: str | None, cases: int) -> None:
    count = cases // 8 if SLOW_ENGINE else sampled(cases, 2)
    args = [str(count), str(10 * threads + len(nodes or ""))]
    result = live(threads, f"{PROGRAMS}/values.py", nodes=nodes, args=args, timeout=120)
    assert f"done: {count}" in result.stdout


@pytest.mark.parametrize("nodes", [None, "2,1"])
def test_rare_kinds(live: Callable[..., Any], nodes: str | None) -> None:
    result = live(3, f"{PROGRAMS}/unusual_dtypes.py", nodes=nodes)
    assert result.stdout.count("done") == 3


@pytest.mark.parametrize(("threads", "nodes"), [(3, None), pytest.param(3, "1,2", marks=ONCE)])
def test_what_is_ignored_may_be_any_array(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    result = live(threads, f"{PROGRAMS}/array_calls.py", nodes=nodes)
    assert result.stdout.count("done") == threads


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [pytest.param(1, None, marks=ONCE), (2, None), (3, "2,1")],
)
def test_scalars_and_errors(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/values_errors.py", nodes=nodes, timeout=120)
    assert "done" in result.stdout


SHORT = """
    import sys
    import numpy as np, xupc
    from xupc.collectives import Collective
    from xupc.values import ArrayCall

    team = xupc.init()
    me, t = team.rank, team.size
    long = []  # calls that took the long way
    for kind in (Collective, ArrayCall):
        def slow(self, args, kwargs, kept=kind.slow):
            long.append(self.__name__)
            return kept(self, args, kwargs)
        kind.slow = slow

    a, b, all_, many = np.ones(4), np.ones(4), np.ones(4 * t), np.ones(4 * t)
    root, zero = 0, np.int64(0)
    mine = me == root
    d, s = (xupc.all_alloc(4 * t * t, np.float64, 4 * t) for _ in range(2))
    calls = [
        lambda: xupc.allav_broadcast(a, root),
        lambda: xupc.allav_broadcast(a, zero, xupc.PULL),
        lambda: xupc.allav_scatter(a, many if mine else None, root),
        lambda: xupc.allav_gather(all_ if mine else None, a, root),
        lambda: xupc.allav_gather_all(all_, a),
        lambda: xupc.allav_gather_all(all_, None),
        lambda: xupc.allav_exchange(all_, many),
        lambda: xupc.allav_reduce(b if mine else None, a, xupc.ADD, root),
        lambda: xupc.allav_reduce_all(b, a, xupc.ADD),
        lambda: xupc.allav_reduce_all(b, None, xupc.MAX, flags=xupc.MULTICORE),
        lambda: xupc.allav_prefix_reduce(b, a, xupc.ADD, team=team),
        lambda: xupc.allav_suffix_reduce(b, a, xupc.ADD),
        lambda: xupc.all_broadcast(d, s, 8),
        lambda: xupc.all_broadcast(d, s, 8, flags=xupc.PUSH),
        lambda: xupc.all_scatter(d, s, 8),
        lambda: xupc.all_gather(d, s, 8),
        lambda: xupc.all_gather_all(d, s, 8),
        lambda: xupc.all_exchange(d, s, 8),
        lambda: xupc.all_reduce_mpi_all(d, s, xupc.ADD),
        lambda: xupc.barrier(),
    ]
    for k, call in enumerate(calls):
        call()
        long.clear()
        for _ in range(3):
            call()
        assert not long, (k, long)
    xupc.finalize()
    sys.stdout.write("done\\n")
"""


@pytest.mark.once
@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (3, None), (3, "2,1")])
def test_a_call_like_an_earlier_one_takes_the_short_way(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    """With None in the place of an array, too, and with names of arguments."""
    result = live(threads, SHORT, nodes=nodes, own_job=True)  # it replaces methods of the library
    assert result.stdout.split() == ["done"] * threads
