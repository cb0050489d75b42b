"""Calls that name a variant, in jobs: the library's own, and those of a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = "tests/live/programs/variants.py"
BY_LEVELS = "tests/live/programs/level_variants.py"
EXAMPLE = "examples/own_gather_all.py"
PLACES = pytest.mark.parametrize(
    ("threads", "nodes", "engine"),
    [
        pytest.param(1, None, "native", marks=pytest.mark.once),
        (3, None, "native"),
        pytest.param(3, None, "python", marks=pytest.mark.once),
        (4, "2,1,1", "native"),
        pytest.param(4, "cyclic:2", "python", marks=pytest.mark.once),
    ],
)
Live = Callable[..., Any]


@pytest.mark.rotates
@PLACES
def test_shared_memory(live: Live, threads: int, nodes: str | None, engine: str) -> None:
    done = live(threads, PROGRAM, args=["shared"], nodes=nodes, env={"XUPC_ENGINE": engine})
    ran = set(done.stdout.splitlines())
    if nodes:
        ways = {"star", "chain", "binomial", "binary", "circulant", "led"}
        assert {f"broadcast multicore:{way}" for way in ways} <= ran
        ways = {"linear", "doubling", "rounds", "ring", "circulant", "led"}
        assert {f"gather_all multicore:{way}" for way in ways} <= ran
    else:
        assert {"gather_all multicore:fused", "permute multicore:pull", "gather push"} <= ran


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("threads", "machine", "domains", "engine"),
    [
        (4, "2x2", "2", "native"),
        (8, "2x2x2", "2 4", "native"),
        pytest.param(8, "3,1/2,2", "2 4", "native", marks=pytest.mark.once),
        pytest.param(4, "2x1x2", "2", "python", marks=pytest.mark.once),
    ],
)
def test_levels_below_the_node(
    live: Live, threads: int, machine: str, domains: str, engine: str
) -> None:
    env = {"XUPC_ENGINE": engine, "XUPC_TOPOLOGY": machine}
    ran = set(live(threads, PROGRAM, args=["shared"], env=env).stdout.splitlines())
    assert {"broadcast multicore:levels", "gather_all multicore:levels"} <= ran
    assert live(threads, BY_LEVELS, env=env).stdout.split() == domains.split()


@pytest.mark.rotates
@pytest.mark.parametrize(
    "engine", ["native", pytest.param("python", marks=[pytest.mark.once, pytest.mark.slow])]
)
def test_levels_on_several_nodes(live: Live, engine: str) -> None:
    env = {"XUPC_ENGINE": engine, "XUPC_TOPOLOGY": "2x1x2"}
    assert live(8, BY_LEVELS, nodes="2x4", env=env).stdout.split() == ["2"]


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("threads", "machine", "engine"),
    [
        (8, "2x2x2", "native"),
        pytest.param(5, "2,2/1", "native", marks=pytest.mark.once),
        pytest.param(4, "2x1x2", "python", marks=pytest.mark.once),
    ],
)
def test_private_arrays_by_levels(live: Live, threads: int, machine: str, engine: str) -> None:
    env = {"XUPC_ENGINE": engine, "XUPC_TOPOLOGY": machine}
    for case, forms in (
        ("private", {"broadcast", "gather_all"}),
        ("computed", {"reduce", "reduce_all", "prefix_reduce", "exclusive_suffix_reduce"}),
        ("single", {"reduce_scatter"}),
    ):
        ran = set(live(threads, PROGRAM, args=[case], env=env).stdout.splitlines())
        assert {f"{form} multicore:levels" for form in forms} <= ran


@pytest.mark.rotates
@PLACES
def test_private_arrays(live: Live, threads: int, nodes: str | None, engine: str) -> None:
    done = live(threads, PROGRAM, args=["private"], nodes=nodes, env={"XUPC_ENGINE": engine})
    ran = set(done.stdout.splitlines())
    ways = {"star", "chain", "binomial", "binary"} if nodes else {"staged"}
    assert {f"broadcast multicore:{way}" for way in ways} <= ran
    assert {"gather_all pull:staged", "gather_all push:staged"} <= ran


@pytest.mark.rotates
@PLACES
def test_single_values(live: Live, threads: int, nodes: str | None, engine: str) -> None:
    done = live(threads, PROGRAM, args=["single"], nodes=nodes, env={"XUPC_ENGINE": engine})
    ran = set(done.stdout.splitlines())
    ways = {"star", "chain", "binomial", "binary"} if nodes else {"staged"}
    assert {f"broadcast multicore:{way}" for way in ways} <= ran
    assert {"exchange push:staged", "reduce_scatter pull:staged", "scatter pull:staged"} <= ran


@pytest.mark.rotates
@PLACES
def test_reductions_of_private_arrays(
    live: Live, threads: int, nodes: str | None, engine: str
) -> None:
    done = live(threads, PROGRAM, args=["computed"], nodes=nodes, env={"XUPC_ENGINE": engine})
    ran = set(done.stdout.splitlines())
    reductions = {"nodes", "parts", "table"} if nodes else {"slices", "staged"}
    scans = {"table"} if nodes else {"staged"}
    if nodes and "cyclic" not in nodes:
        scans |= {"chain", "doubling"}
    for way in {"push"} | reductions:
        assert f"reduce_all multicore:{way}" in ran
    for way in {"push"} | scans:
        assert f"exclusive_suffix_reduce multicore:{way}" in ran
    assert (("reduce multicore:chain") in ran) == bool(nodes)


@pytest.mark.once
def test_two_threads_of_a_node_read_each_other(live: Live) -> None:
    """Some variants of scans are for two threads alone, and only the native core reads directly."""
    done = live(2, PROGRAM, args=["computed"], env={"XUPC_ENGINE": "native"})
    ran = set(done.stdout.splitlines())
    assert {"prefix_reduce multicore:halves", "exclusive_prefix_reduce multicore:direct"} <= ran


@pytest.mark.rotates
@PLACES
def test_scans_of_shared_arrays(live: Live, threads: int, nodes: str | None, engine: str) -> None:
    done = live(threads, PROGRAM, args=["scans"], nodes=nodes, env={"XUPC_ENGINE": engine})
    ran = set(done.stdout.splitlines())
    for way in {"push"} | ({"led", "table"} if nodes else {"fused", "values"}):
        assert {f"{form} multicore:{way}" for form in ("prefix_reduce", "suffix_reduce")} <= ran


@pytest.mark.rotates
@PLACES
def test_lists(live: Live, threads: int, nodes: str | None, engine: str) -> None:
    done = live(threads, PROGRAM, args=["lists"], nodes=nodes, env={"XUPC_ENGINE": engine})
    ways = {"routes", "led"} if nodes else {"fused", "shared"}
    assert {f"gather_all_v multicore:{way}" for way in ways} <= set(done.stdout.splitlines())


@pytest.mark.rotates
@PLACES
def test_what_is_wrong_is_raised_on_all_threads(
    live: Live, threads: int, nodes: str | None, engine: str
) -> None:
    live(threads, PROGRAM, args=["refused"], nodes=nodes, env={"XUPC_ENGINE": engine})


@pytest.mark.rotates
@PLACES
def test_variants_of_a_program(live: Live, threads: int, nodes: str | None, engine: str) -> None:
    live(threads, PROGRAM, args=["own"], nodes=nodes, env={"XUPC_ENGINE": engine})


TABLE = """
version = 1
[[choose]]
collective = "all_gather_all"
algorithm = "pull:plain"
[[choose]]
collective = "all_exchange"
algorithm = "multicore:rounds"
[[choose]]
collective = "all_scatter"
algorithm = "multicore:nowhere"
if_possible = true
[[choose]]
collective = "all_broadcast"
algorithm = "multicore:led"
if_possible = true
[[choose]]
collective = "all_broadcast"
algorithm = "push"
[[choose]]
collective = "allav_exchange"
algorithm = "pull:direct"
max_bytes = 100
if_possible = true
[[choose]]
collective = "allav_exchange"
algorithm = "push:staged"
"""


@pytest.mark.parametrize(("threads", "nodes"), [(2, None), (3, "2,1")])
def test_a_table(live: Live, tmp_path: Path, threads: int, nodes: str | None) -> None:
    table = tmp_path / "t.toml"
    table.write_text(TABLE)
    env = {"XUPC_TUNING": str(table)}
    live(threads, PROGRAM, args=["table"], nodes=nodes, env=env)


@pytest.mark.parametrize(("threads", "nodes"), [(3, None), (4, "2x2"), (5, "cyclic:2")])
def test_the_example(live: Live, threads: int, nodes: str | None) -> None:
    done = live(threads, EXAMPLE, nodes=nodes)
    assert "multicore:thread_ring on" in done.stdout
    assert " 0 wrong values" in done.stdout
