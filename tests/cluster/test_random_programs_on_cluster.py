"""Random programs on several hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hosts import HOSTS
from support.random_programs.generate import LIVE, generate
from support.random_programs.shapes import LIVE_PROGRAM, how_to_repeat, programs_file
from support.soak import amount, figure, seed, share

LABELS = tuple(host for host, threads in enumerate(filter(None, HOSTS)) for _ in range(threads))


@pytest.mark.soak
def test_programs_do_what_the_oracle_says(
    on_hosts: Callable[..., Any], mpi_python: str, tmp_path: Path
) -> None:
    count, first = amount(share(12), 400), seed() * 1_000_000
    programs = [generate(first + i, LABELS, LIVE) for i in range(count)]
    done = on_hosts(
        mpi_python, LIVE_PROGRAM, str(programs_file(tmp_path, programs)),
        env={"XUPC_TIMEOUT": "30"}, timeout=60 + 2 * count, expect=None,
    )  # fmt: skip
    assert done.returncode == 0, f"{how_to_repeat(programs, done.stdout)}\n{done.report()}"
    assert f"done: {count}\n" in done.stdout, done.report()
    figure("random programs on an emulated cluster", f"{count} of {count} right")
