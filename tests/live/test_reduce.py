"""The computational collectives on real threads: data, bits, differing calls, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.launch import SLOW_ENGINE
from support.soak import amount, figure, sampled, seed, share, share_of

PROGRAMS = "tests/live/programs"
AT_RANDOM = f"{PROGRAMS}/reductions_at_random.py"
CAPTURED = f"{PROGRAMS}/captured_functions.py"
ONCE = pytest.mark.once


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "cases"),
    [
        pytest.param(1, None, 300, marks=ONCE),
        pytest.param(2, None, 250, marks=ONCE),
        pytest.param(3, None, 250, marks=ONCE),
        (4, None, 500),
        pytest.param(7, None, 150, marks=ONCE),
        (3, "2,1", 150),
        pytest.param(4, "2x2", 100, marks=ONCE),
        (4, "cyclic:2", 100),
        pytest.param(3, "1,1,1", 80, marks=ONCE),
    ],
)
def test_every_kind(live: Callable[..., Any], threads: int, nodes: str | None, cases: int) -> None:
    count = cases // 8 if SLOW_ENGINE else sampled(cases, 4)
    args = [str(count), str(10 * threads + len(nodes or ""))]
    result = live(threads, AT_RANDOM, nodes=nodes, args=args, timeout=300)
    assert f"done: {count}" in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [(1, None), pytest.param(2, None, marks=ONCE), pytest.param(3, "2,1", marks=ONCE)],
)
def test_blocks_beyond_all_elements(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    """A row of the core has no room for such a size."""
    assert "done" in live(threads, f"{PROGRAMS}/long_blocks.py", nodes=nodes).stdout


@pytest.mark.soak
@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "nodes", "sample", "whole"), [(4, None, 1200, 6000), (5, "2,2,1", 150, 2000)]
)
def test_many_of_every_kind(
    live: Callable[..., Any], threads: int, nodes: str | None, sample: int, whole: int
) -> None:
    """1200 are every form with every type and operation, once; a share has others for each seed."""
    count = amount(share(sample), whole)
    args = [str(count), str(seed())]
    result = live(threads, AT_RANDOM, nodes=nodes, args=args, timeout=300)
    assert f"done: {count}" in result.stdout
    place = f"{threads} threads on {nodes or 'one node'}"
    figure(f"random reductions, {place}", f"{count} of {count} right")


@pytest.mark.soak
@pytest.mark.once
def test_the_same_bits_everywhere(live: Callable[..., Any]) -> None:
    """Whatever the nodes, the engine and the algorithm; of the element-wise forms if asked."""
    found = {}
    layouts = share_of(range(amount(12, 54)))
    for engine, nodes in (
        ("native", None), ("native", "2x2"), ("native", "3,1"),
        ("python", "cyclic:2"),
    ):  # fmt: skip
        result = live(
            4, f"{PROGRAMS}/same_bits.py", nodes=nodes, args=[json.dumps(layouts)], timeout=90,
            env={"XUPC_ENGINE": engine},
        )  # fmt: skip
        lines = [line for line in result.stdout.splitlines() if line.startswith("bits ")]
        assert len(lines) == 6 * len(layouts)
        for line in lines:
            assert line.split()[6] == "1", f"the algorithms differ: {engine}, {nodes}: {line}"
        found[engine, nodes] = lines
    first = found["native", None]
    for where, lines in found.items():
        for one, other in zip(first, lines, strict=True):
            assert one == other, f"{where} differs from one node"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "every"),
    [
        pytest.param(2, None, 1, marks=ONCE),
        (4, None, 1),
        (3, "2,1", 2),
        pytest.param(4, "cyclic:2", 3, marks=ONCE),
    ],
)
def test_errors(live: Callable[..., Any], threads: int, nodes: str | None, every: int) -> None:
    rest = ["mismatch,bad,func", str(3 if SLOW_ENGINE else every * amount(3, 1))]
    result = live(threads, f"{PROGRAMS}/reduce_errors.py", nodes=nodes, args=rest, timeout=200)
    assert "done: " in result.stdout


def test_functions_of_one_thread(live: Callable[..., Any]) -> None:
    result = live(1, f"{PROGRAMS}/reduce_errors.py", args=["func", "1"], timeout=60)
    assert "done: " in result.stdout


@pytest.mark.parametrize(("threads", "nodes"), [(1, None), (3, None), (4, "3,1")])
def test_functions_that_the_core_runs(
    live: Callable[..., Any], threads: int, nodes: str | None
) -> None:
    engine = "python" if SLOW_ENGINE else "native"
    result = live(threads, CAPTURED, nodes=nodes, args=[engine], timeout=100)
    assert "done: traced" in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"), [(3, "2,1"), pytest.param(5, "1,3,1", marks=ONCE)]
)
def test_pieces_are_as_long_on_all_nodes(
    live: Callable[..., Any], threads: int, nodes: str
) -> None:
    """Between nodes of two threads and of one, messages of 80,000 bytes met some of 40,000."""
    result = live(threads, f"{PROGRAMS}/uneven_nodes.py", nodes=nodes, timeout=100)
    assert "done: uneven nodes" in result.stdout


@pytest.mark.parametrize(
    ("threads", "nodes"),
    [pytest.param(1, None, marks=ONCE), (3, None), pytest.param(4, "2x2", marks=ONCE), (3, "1,2")],
)
def test_records(live: Callable[..., Any], threads: int, nodes: str | None) -> None:
    result = live(threads, f"{PROGRAMS}/record_dtypes.py", nodes=nodes, timeout=100)
    assert "done: " in result.stdout
