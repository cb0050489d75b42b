"""Arrays of values straight from other threads' private memory, and where that cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once
SIZES = "version = 1\n[tuning.default]\nreach = {0}\nreach_each = {0}\nreach_all = {0}\n"


@pytest.fixture
def table(tmp_path: Path) -> Callable[[int], dict[str, str]]:
    """The environment in which blocks are reached for from a size on."""

    def made(least: int) -> dict[str, str]:
        path = tmp_path / "t.toml"
        path.write_text(SIZES.format(least))
        return {"XUPC_TUNING": str(path)}

    return made


@pytest.mark.parametrize(
    ("threads", "least"),
    [(4, 1), pytest.param(2, 0, marks=ONCE), pytest.param(3, 0, marks=ONCE)],
)
def test_every_form(live: Callable[..., Any], table: Any, threads: int, least: int) -> None:
    """Always or never, whatever the size."""
    args = ["60", str(threads)]
    done = live(threads, f"{PROGRAMS}/values.py", args=args, env=table(least), timeout=120)
    assert "done: 60" in done.stdout


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("threads", [pytest.param(1, marks=ONCE), 2, pytest.param(5, marks=ONCE)])
def test_arrays_that_others_cannot_read(
    live: Callable[..., Any], table: Any, threads: int, secret: bool
) -> None:
    """Then they get a copy; and a thread may be in place where others are not."""
    args = ["secret"] if secret else []
    done = live(threads, f"{PROGRAMS}/reaching.py", args=args, env=table(1), timeout=120)
    if "no secrets here" in done.stdout:
        pytest.skip("the kernel has no memfd_secret")
    assert done.stdout.split() == ["done"] * threads


PLANS = """
    import sys, numpy as np, xupc
    team = xupc.init()
    a = np.zeros(8192)
    text = str(xupc.allav_broadcast.plan(a, 0))
    sys.stdout.write(f"{team.rank} {'offer  ' in text} {'reach  ' in text}\\n")
"""


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
@pytest.mark.parametrize(
    ("nodes", "engine", "lines"),
    [
        (None, "native", ["0 True False", "1 False True"]),
        ("1,1", "native", ["0 False False", "1 False False"]),
        (None, "python", ["0 False False", "1 False False"]),
    ],
)
def test_where_memory_is_reached_into(
    live: Callable[..., Any], nodes: str | None, engine: str, lines: list[str]
) -> None:
    """Inside a node, by the native core."""
    done = live(2, PLANS, nodes=nodes, env={"XUPC_ENGINE": engine})
    assert sorted(done.stdout.splitlines()) == lines
