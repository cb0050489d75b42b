"""Random programs on several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.launch import import_path
from support.random_programs.generate import LIVE, generate
from support.random_programs.shapes import LIVE_PROGRAM, how_to_repeat, programs_file
from support.soak import amount, figure, seed

PROJECT = Path(__file__).resolve().parents[2]
HOSTS = [2, 1, 0, 2]
LABELS = (0, 0, 1, 2, 2)


@pytest.mark.soak
def test_programs_do_what_the_oracle_says(
    cluster: Any, mpi_python: str, tmp_path: Path
) -> None:
    count, first = amount(12, 400), seed() * 1_000_000
    path = import_path(PROJECT)
    programs = [generate(first + i, LABELS, LIVE) for i in range(count)]
    done = cluster.run(
        None, [mpi_python, str(LIVE_PROGRAM), str(programs_file(tmp_path, programs))],
        hosts=HOSTS, python=mpi_python, env={"PYTHONPATH": path, "XUPC_TIMEOUT": "30"},
        timeout=60 + 2 * count,
    )  # fmt: skip
    output = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, f"{how_to_repeat(programs, done.stdout)}\n{output}"
    assert f"done: {count}\n" in done.stdout, output
    figure("random programs on an emulated cluster", f"{count} of {count} right")
