"""A heap larger than the space: HeapError on every thread, never SIGBUS, never an OOM kill."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.launch import BUSY

from xupc.topology import host

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="needs Linux and root, to set limits"
)
PROGRAM = "tests/live/programs/heap_space.py"
FULL = "tests/live/programs/full_directory.py"
MIB = 1 << 20
SPACE = MIB + MIB // 16  # three small heaps on nodes of their own take 1 MiB
ONCE = pytest.mark.once


@pytest.fixture
def small_directory(tmp_path: Path) -> Iterator[Path]:
    """A file system of `SPACE` bytes."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "xupc-test", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("case", "threads", "nodes"),
    [
        ("init", 3, None),
        pytest.param("default", 4, None, marks=ONCE),
        ("growth", 3, None),
        ("growth", 3, "2,1"),
        pytest.param("growth", 1, None, marks=ONCE),
        pytest.param("growth", 4, "cyclic:2", marks=ONCE),
        pytest.param("init", 3, "1,1,1", marks=ONCE),
    ],
)
def test_small_directory(
    live: Callable[..., Any], small_directory: Path, case: str, threads: int, nodes: str | None
) -> None:
    env = {"XUPC_SHM_DIR": str(small_directory)}
    result = live(threads, PROGRAM, args=[case, str(SPACE)], nodes=nodes, env=env, own_job=True)
    assert "done: " in result.stdout
    assert list(small_directory.iterdir()) == []


@ONCE
def test_a_directory_without_a_page(live: Callable[..., Any], small_directory: Path) -> None:
    full = small_directory / "full"
    with contextlib.suppress(OSError):
        full.write_bytes(b"\1" * (2 * MIB))
    env = {"XUPC_SHM_DIR": str(small_directory)}
    result = live(3, FULL, args=["init"], env=env, own_job=True)
    assert result.stdout.count("done: init: no space for ") == 3, result.report()
    assert list(small_directory.iterdir()) == [full]


@pytest.fixture
def limited_cgroup() -> Iterator[Path]:
    """A cgroup with a memory limit of 192 MiB."""
    folder = _new_cgroup()
    if folder is None:
        pytest.skip("cannot make a cgroup with a memory limit")
    try:
        yield folder
    finally:
        deadline = time.monotonic() + BUSY * 5
        while True:
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                break


def _new_cgroup() -> Path | None:
    for parent in host.groups("memory"):
        folder = parent / f"xupc-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        for limit in ("memory.max", "memory.limit_in_bytes"):
            try:
                (folder / limit).write_text(str(192 * MIB))
            except OSError:
                continue
            return folder
        folder.rmdir()
    return None


def _killed(folder: Path) -> int:
    """Return how often the kernel's OOM killer has run in a cgroup."""
    for name in ("memory.events", "memory.oom_control"):
        try:
            lines = (folder / name).read_text().splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0


@pytest.mark.parametrize(
    ("case", "threads", "nodes"),
    [
        ("init", 2, None),
        ("growth", 2, None),
        pytest.param("growth", 2, "2x1", marks=ONCE),
    ],
)
def test_limited_cgroup(
    live: Callable[..., Any], limited_cgroup: Path, case: str, threads: int, nodes: str | None
) -> None:
    args = [case, str(192 * MIB), str(limited_cgroup)]
    result = live(threads, PROGRAM, args=args, nodes=nodes, own_job=True)
    assert "done: " in result.stdout
    assert _killed(limited_cgroup) == 0


@pytest.mark.parametrize("viewed", [False, pytest.param(True, marks=ONCE)])
def test_freeing_takes_no_pages(
    live: Callable[..., Any], small_directory: Path, viewed: bool
) -> None:
    """Threads without a part have no pages there, not even for zeros."""
    args = ["freeing", "viewed" if viewed else ""]
    env = {"XUPC_SHM_DIR": str(small_directory)}
    result = live(3, FULL, args=args, env=env, own_job=True)
    assert result.stdout.count("done: freed") == 3, result.report()


@pytest.mark.parametrize("pages", [1, pytest.param(2, marks=ONCE)])
def test_pages_for_some_threads_only(
    live: Callable[..., Any], small_directory: Path, pages: int
) -> None:
    args = ["pages_for_some", str(pages)]
    env = {"XUPC_SHM_DIR": str(small_directory)}
    result = live(3, FULL, args=args, env=env, own_job=True)
    assert result.stdout.count("done: all_alloc: 120 bytes ") == 3, result.report()


@ONCE
def test_a_directory_that_has_gone(live: Callable[..., Any], tmp_path: Path) -> None:
    """Every thread raises an error if the free space of the directory cannot be queried."""
    folder = tmp_path / "gone"
    folder.mkdir()
    env = {"XUPC_SHM_DIR": str(folder)}
    result = live(3, FULL, args=["gone"], env=env, own_job=True)
    assert result.stdout.count("done: ") == 9, result.report()
