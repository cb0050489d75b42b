"""Memory under failures and in long runs: nothing grows, nothing wraps round at 4 GiB."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from support.launch import SLOW_ENGINE
from support.soak import WHOLE, amount, figure

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once
GIB = 1 << 30


@pytest.mark.soak
@pytest.mark.parametrize(
    ("threads", "nodes", "sample", "whole"),
    [(2, None, 60, 10_000), pytest.param(3, "2,1", 30, 2000, marks=ONCE)],
)
def test_nothing_grows(
    live: Callable[..., Any], threads: int, nodes: str | None, sample: int, whole: int
) -> None:
    cycles = amount(sample, whole) // (4 if SLOW_ENGINE else 1)
    limit = 120 + cycles / 3
    others = [] if WHOLE else ["teams", "dropped"] if nodes else ["teams"]  # the rest: test_memory
    # UCX, under MPICH, keeps a note of some 150 bytes of every mapping that there has ever been
    result = live(
        threads, f"{PROGRAMS}/memory_growth.py", nodes=nodes, args=[str(cycles), *others],
        env={"UCX_MEM_EVENTS": "n", "MALLOC_ARENA_MAX": "2"}, timeout=limit,
    )  # fmt: skip
    found = re.search("^grown: (.*)$", result.stdout, re.MULTILINE)
    assert found
    place = f"{threads} threads" + (f" as {nodes}" if nodes else "")
    figure("nothing grows", f"{cycles} cycles of each, {place}: {found[1]}")


@pytest.mark.soak
@pytest.mark.once
@pytest.mark.skipif(not WHOLE, reason="takes 9 GiB: only under scripts/soak")
@pytest.mark.parametrize("nodes", [None, "1,1"])
def test_a_collective_beyond_4_gib(live: Callable[..., Any], nodes: str | None) -> None:
    need = 10 * GIB
    room = min(shutil.disk_usage("/dev/shm").free, psutil.virtual_memory().available)
    if room < need:
        pytest.skip(f"needs {need // GIB} GiB of memory and /dev/shm, {room / GIB:.1f} are free")
    result = live(2, f"{PROGRAMS}/beyond_4_gib.py", nodes=nodes, timeout=400)
    found = re.search("^seconds: (.*)$", result.stdout, re.MULTILINE)
    assert found
    place = "two nodes" if nodes else "one node"
    figure("beyond 2**32 bytes", f"broadcasts of 4 GiB + 4099 on {place}, checked: {found[1]} s")
