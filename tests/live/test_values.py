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
    ("threads", "nodes"), [pytest.param(1, None, marks=ONCE), (2, None), (3, "2,1")]
)
def test_arguments_of_other_libraries(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    result = live(threads, f"{PROGRAMS}/foreign_arguments.py", nodes=nodes)
    assert "done" in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [pytest.param(1, None, marks=ONCE), (2, None), (3, "2,1")],
)
def test_scalars_and_errors(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/values_errors.py", nodes=nodes, timeout=120)
    assert "done" in result.stdout


@pytest.mark.once
@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (3, None), (3, "2,1")])
def test_a_call_like_an_earlier_one_takes_the_short_way(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    """With None in the place of an array, too, and with names of arguments."""
    program = f"{PROGRAMS}/repeated_calls.py"  # it replaces methods of the library
    result = live(threads, program, nodes=nodes, own_job=True)
    assert result.stdout.split() == ["done"] * threads
