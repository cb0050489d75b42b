"""Arrays of values straight from other threads' private memory, and where that cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = "tests/live/programs"
PROTECTED = f"{PROGRAMS}/protected_memory.py"
ONCE = pytest.mark.once
SIZES = (
    "version = 1\n[tuning.default]\ntried = 0\ndirect_min_pair = 1\ndirect_reduce_max = {1}\n"
    + "".join(
        f"{name} = {{0}}\n"
        for name in (
            "direct_min",
            "direct_min_alltoall",
            "direct_min_shared_source",
            "direct_put_min",
        )
    )
)
FOLDED = 1 << 18


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment in which blocks are reached for from a size on, to be folded up to one."""

    def made(least: int, folded: int = FOLDED) -> dict[str, str]:
        path = tmp_path / "t.toml"
        path.write_text(SIZES.format(least, folded))
        return {"XUPC_TUNING": str(path)}

    return made


@pytest.mark.parametrize(
    ("threads", "least", "folded"),
    [
        (4, 1, FOLDED),
        pytest.param(2, 1, 1, marks=ONCE),
        pytest.param(2, 0, FOLDED, marks=ONCE),
        pytest.param(3, 0, FOLDED, marks=ONCE),
    ],
)
def test_every_form(
    live: Callable[..., Any], table: Any, threads: int, least: int, folded: int
) -> None:
    """Always or never, whatever the size; by all algorithms."""
    args, env = ["60", str(threads)], table(least, folded)
    done = live(threads, f"{PROGRAMS}/values.py", args=args, env=env, timeout=120)
    assert "done: 60" in done.stdout


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize(
    ("threads", "folded"),
    [
        pytest.param(1, FOLDED, marks=ONCE),
        (2, FOLDED),
        pytest.param(2, 1, marks=ONCE),
        pytest.param(2, 1 << 40, marks=ONCE),
        pytest.param(5, FOLDED, marks=ONCE),
    ],
)
def test_arrays_that_others_cannot_read(
    live: Callable[..., Any], table: Any, threads: int, folded: int, secret: bool
) -> None:
    """Then they get a copy; and a thread may be in place where others are not."""
    args, env = ["secret"] if secret else [], table(1, folded)
    done = live(threads, f"{PROGRAMS}/direct_access.py", args=args, env=env, timeout=120)
    if "no secrets here" in done.stdout:
        pytest.skip("the kernel has no memfd_secret")
    assert done.stdout.split() == ["done"] * threads


@pytest.mark.once  # the Python engine itself reads what is closed, and dies of it
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
@pytest.mark.parametrize("threads", [2, 5])
def test_memory_that_is_closed_meanwhile(
    live: Callable[..., Any], table: Any, threads: int
) -> None:
    """All threads raise if part of an array, or an array after a good call, becomes unreadable."""
    done = live(threads, PROTECTED, args=["closed_meanwhile"], env=table(1), timeout=60)
    assert done.stdout.split() == ["done"] * threads


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
@pytest.mark.parametrize(
    ("nodes", "engine", "least", "reached"),
    [
        (None, "native", None, True),
        (None, "native", 1 << 24, False),
        (None, "native", 0, False),
        ("1,1", "native", None, False),
        (None, "python", None, False),
    ],
)
def test_where_memory_is_reached_into(
    live: Callable[..., Any], tmp_path: Path, nodes: str | None, engine: str, least: int | None,
    reached: bool,
) -> None:  # fmt: skip
    """Inside a node, by the native core, from a size on that a table may raise; 0: never."""
    env = {"XUPC_ENGINE": engine}
    if least is not None:
        (tmp_path / "t.toml").write_text(f"version = 1\n[tuning.default]\ndirect_min = {least}\n")
        env["XUPC_TUNING"] = str(tmp_path / "t.toml")
    done = live(2, PROTECTED, args=["steps_of_a_plan"], nodes=nodes, env=env)
    assert sorted(done.stdout.splitlines()) == [f"0 {reached} False", f"1 False {reached}"]


def test_arguments_that_are_the_same_objects(live: Callable[..., Any]) -> None:
    """Not the same numbers; and arrays of a class of their own, again and again."""
    done = live(2, PROTECTED, args=["same_objects"], timeout=60)
    assert done.stdout.split() == ["done"] * 2


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_memory_of_a_thread_of_a_part_that_is_closed(
    live: Callable[..., Any], table: Any
) -> None:
    """The threads are named as those of the job."""
    done = live(4, PROTECTED, args=["closed_in_a_part"], env=table(1), timeout=60)
    assert done.stdout.split() == ["done"] * 4


@pytest.mark.once
@pytest.mark.parametrize("posted", [[], ["posted"]])
@pytest.mark.parametrize(
    ("form", "flag"), [("gather", "PUSH"), ("gather", "MULTICORE"), ("broadcast", "PUSH")]
)
def test_nobody_writes_to_an_array_of_a_call_that_was_given_up(
    live: Callable[..., Any], form: str, flag: str, posted: list[str]
) -> None:
    """Threads that come to it later find that there is no such call any more."""
    program, args = f"{PROGRAMS}/interrupted_memory.py", [form, flag, *posted]
    done = live(2, program, args=args, expect=None, timeout=60)
    assert sorted(done.stdout.split()) == ["told", "untouched"]
