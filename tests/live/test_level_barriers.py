"""Barriers by levels in jobs, on described machines: all that flat barriers promise."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import waiting
from support.failing_jobs import bring_about
from support.random_programs.shapes import launch_many
from support.soak import WHOLE, amount, seed, share
from support.speed import SLOW

ONCE = pytest.mark.once
PROGRAMS = "tests/live/programs"
TABLE = """version = 1
[tuning.default]
level_barrier_min = 1
level_barrier_crowded = 1
"""
CHOICE = """chunk = 4096
notify_bytes = 600
staging_bytes = 65536
eager_max = 64
fused_max = 512
[[choose]]
collective = "*"
algorithm = "multicore:levels"
if_possible = true
"""
"""Calls that name no variant go by levels where they can, in small chunks."""
PLACES = pytest.mark.parametrize(
    ("threads", "nodes", "machine", "engine"),
    [
        (4, None, "2x2", "native"),
        (8, None, "2x2x2", "native"),
        pytest.param(8, None, "3,1/2,2", "native", marks=ONCE),
        (4, None, "2x2", "python"),
        pytest.param(8, None, "2x2x2", "python", marks=ONCE),
        (8, "2x4", "2x2", "native"),
        pytest.param(8, "cyclic:2", "2x2", "native", marks=ONCE),
        (8, "2x4", "2x2", "python"),
    ],
)
Live = Callable[..., Any]


@pytest.fixture
def by_levels(tmp_path: Path) -> Callable[..., dict[str, str | None]]:
    """Return the environment of a job whose barriers go by the levels of a machine."""
    table = tmp_path / "levels.toml"

    def environment(machine: str, engine: str = "native", more: str = "") -> dict[str, str | None]:
        table.write_text(TABLE + more)
        return {"XUPC_TOPOLOGY": machine, "XUPC_ENGINE": engine, "XUPC_TUNING": str(table)}

    return environment


@pytest.mark.rotates
@PLACES
def test_they_meet(
    live: Live, by_levels: Any, threads: int, nodes: str | None, machine: str, engine: str
) -> None:
    """Data behind barriers, fused calls, late threads, notify and wait, a mismatch of a leaf."""
    calls = "50" if engine == "python" else "200"
    env = by_levels(machine, engine)
    program = f"{PROGRAMS}/level_barriers.py"
    done = live(threads, program, args=[calls], nodes=nodes, env=env, timeout=90)
    assert done.stdout.split() == threads * ["done"], done.report()


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("threads", "nodes", "machine", "engine"),
    [
        (4, None, "2x2", "native"),
        pytest.param(8, None, "2x2x2", "native", marks=ONCE),
        pytest.param(4, None, "2x2", "python", marks=ONCE),
        pytest.param(5, "4,1", "2x2", "native", marks=ONCE),
        pytest.param(5, "4,1", "2x2", "python", marks=ONCE),
    ],
)
def test_every_difference(
    live: Live, by_levels: Any, threads: int, nodes: str | None, machine: str, engine: str
) -> None:
    """Of all collectives in the core on 4 and 5 threads, elsewhere of two: all meet in one way."""
    env = by_levels(machine, engine)
    program = f"{PROGRAMS}/mismatch.py"
    some = ["permute", "gather_all"] if engine == "python" or threads > 5 else []
    done = live(threads, program, args=["1", *some], nodes=nodes, env=env, timeout=120)
    assert "done: " in done.stdout


@pytest.mark.rotates
@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "nodes", "machine", "engine"),
    [
        (16, None, "2x2x4", "native"),
        (16, None, "2x2x4", "python"),
        (16, "2x8", "3,2/2,1", "native"),
        *(
            (32, nodes, machine, engine)
            for nodes, machine in ((None, "2x4x4"), ("2x16", "8,4/2,2"))
            for engine in ("native", "python")
            if WHOLE
        ),
        *([(192, None, "2x8x12", "native")] if WHOLE else []),
    ],
)
def test_many_threads_meet(
    live: Live, by_levels: Any, threads: int, nodes: str | None, machine: str, engine: str
) -> None:
    program, env = f"{PROGRAMS}/level_barriers.py", by_levels(machine, engine)
    done = live(threads, program, args=["3"], nodes=nodes, env=env, timeout=280)
    assert done.stdout.split() == threads * ["done"], done.report()


def some_machine(cores: int, rng: random.Random) -> str:
    """Return a description of so many cores in L3 domains of any sizes, in one or more sockets."""
    text, left = "", cores
    while left:
        size = rng.randint(1, left)
        left -= size
        text += f"{size}{rng.choice(',,/') if left else ''}"
    return text if "," in text or "/" in text else f"1x{cores}"


@ONCE
@pytest.mark.soak
@pytest.mark.parametrize("labels", ["0000011", *(["00000000", "01010101"] if WHOLE else [])])
def test_random_programs_on_random_machines(
    live: Live, by_levels: Any, tmp_path: Path, labels: str
) -> None:
    """All calls that can go by levels do."""
    rng = random.Random(f"{seed()} {labels}")
    for i in range(amount(1, 10)):
        env = by_levels(some_machine(max(map(labels.count, labels)), rng), more=CHOICE)
        first = (seed() + i) * 1_000_000
        seeds = range(first, first + amount(share(6), 30))
        launch_many(live, tmp_path, labels, seeds, timeout=250, env=env)


@pytest.mark.rotates
@pytest.mark.slow
@pytest.mark.parametrize(("threads", "nodes"), [(6, None), (7, "5,2")])
def test_differences_on_random_machines(
    live: Live, by_levels: Any, threads: int, nodes: str | None
) -> None:
    machine = some_machine(5 if nodes else threads, random.Random(f"{seed()} {threads}"))
    program = f"{PROGRAMS}/mismatch.py"
    env = by_levels(machine)
    done = live(threads, program, args=["1"], nodes=nodes, env=env, timeout=250)
    assert "done: " in done.stdout, machine


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("away", "nodes"), [(0, None), (2, None), (3, None), (2, "4,1"), (0, "4,1")]
)
def test_a_thread_is_away(
    live: Live, by_levels: Any, tmp_path: Path, away: int, nodes: str | None
) -> None:
    """The top of the tree, the root of a domain, a leaf: no other waits for it after its notify."""
    args, threads = ["away", str(away), "1", str(tmp_path)], 5 if nodes else 4
    program = f"{PROGRAMS}/notify_and_wait.py"
    done = live(threads, program, args=args, nodes=nodes, env=by_levels("2x2"))
    assert sorted(done.stdout.split()) == ["back", *((threads - 1) * ["over"])], done.report()


@pytest.mark.parametrize("victim", [0, 2, pytest.param(3, marks=ONCE)])
@pytest.mark.parametrize("scenario", ["waits", pytest.param("computes sleep", marks=ONCE)])
def test_the_root_of_a_domain_dies(by_levels: Any, scenario: str, victim: int) -> None:
    name, _, option = scenario.partition(" ")
    end = bring_about(name, victim, option, env=by_levels("2x2"))
    assert end.result.returncode != 0
    assert end.said("DeadThreadError: VICTIM died ") == 3, end.result.report()


@ONCE
def test_the_root_of_a_domain_dies_on_one_of_two_nodes(by_levels: Any) -> None:
    end = bring_about("waits", 2, "", n=5, nodes="4,1", env=by_levels("2x2"))
    assert end.result.returncode != 0
    assert end.said("DeadThreadError: VICTIM died ") == 4, end.result.report()


@pytest.mark.parametrize("late", [0, pytest.param(2, marks=ONCE)])
def test_who_waits_sleeps(live: Live, by_levels: Any, late: int) -> None:
    """Each barrier waits for the top or for the root of a domain, most of the time asleep."""
    run = partial(live, 4, waiting.PROGRAM, args=[str(late)], env=by_levels("2x2"))
    waiting.check_waits(run, 3, lambda call: 1.0 if call == "handle" else 0.1)


@pytest.mark.parametrize("nodes", [None, pytest.param("4,1", marks=ONCE)])
def test_the_root_of_a_domain_is_interrupted(by_levels: Any, nodes: str | None) -> None:
    """SIGINT while it waits: it goes on at once, and all that wait report it."""
    n = 5 if nodes else 4
    env = by_levels("2x2")
    end = bring_about("is interrupted", 2, "barrier", n=n, nodes=nodes, env=env, promptly=1.0)
    assert end.said("XupcError: VICTIM was interrupted inside barrier(") >= n - 2
    assert end.result.returncode != 0, end.result.report()


@pytest.mark.parametrize(
    ("late", "nodes"),
    [(2, None), pytest.param(0, None, marks=ONCE), pytest.param(3, "4,1", marks=ONCE)],
)
def test_a_hang_names_the_thread_that_is_late(by_levels: Any, late: int, nodes: str | None) -> None:
    """Each thread that waits, wherever it is in the tree; none names one that waits itself."""
    n = 5 if nodes else 4
    env = {**by_levels("2x2"), "XUPC_TIMEOUT": f"{SLOW:g}"}
    end = bring_about("is late", late, "barrier", n=n, nodes=nodes, env=env)
    assert end.result.returncode != 0
    assert end.said("HangError: thread ") == n - 1, end.result.report()
    assert end.said("not there: VICTIM is outside xupc") == n - 1, end.result.report()
    assert end.said("not there: ") == n - 1, end.result.report()
