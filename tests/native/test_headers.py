"""The core's headers under the warnings of the C compiler, each by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.sanitizers import NATIVE, compiler

# Conversions that lose bits or a sign, such as those of a size beyond 2 GiB to an int, and what
# newer compilers refuse.
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
# Functions that only another header, or the Cython module, calls.
WARNINGS += ["-Wno-unused-function"]
ALONE = ("kernels", "user_functions", "shm_protocol", "mpi_messages", "mpi_requests")
"""Headers that other programs include first, so that they choose what the system's headers have."""
AFTER_PYTHON = ("call_trace", "exit_timer", "query_signal")
"""Headers of which Python.h, or shm_protocol.h, has chosen that before."""

pytestmark = pytest.mark.once


@pytest.mark.parametrize("header", [*ALONE, *AFTER_PYTHON])
def test_no_warning(header: str, tmp_path: Path) -> None:
    source = tmp_path / "source.c"
    source.write_text(f'#include "{header}.h"\n')
    command = [compiler(), "-std=c11", "-fwrapv", *WARNINGS, "-fsyntax-only"]
    if header in AFTER_PYTHON:
        command.append("-D_GNU_SOURCE")
    done = subprocess.run(
        [*command, "-I", str(NATIVE), str(source)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
