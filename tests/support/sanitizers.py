"""Programs in C around the core's headers, compiled with a sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "xupc" / "backends" / "native"
FLAGS = ["-std=c11", "-g1", "-O1", "-fwrapv", "-ffp-contract=off", "-pthread"]
SANITIZERS = {
    "thread": ["-fsanitize=thread"],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}

MISTAKES = {**SANITIZERS, "address": ["-fsanitize=address"]}
"""The same for a header with a mistake, in less of the compiler's time: each has its own program.

Programs with the right headers are checked for undefined behaviour, too.
"""


def compiler() -> str:
    """The C compiler; the test skips if there is none."""
    found = os.environ.get("CC") or shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler")
    return found


@cache
def runs(*command: str) -> bool:
    """Return whether programs that are compiled like this run here."""
    with tempfile.TemporaryDirectory() as name:
        source, program = Path(name, "probe.c"), Path(name, "probe")
        source.write_text("int main(void) { return 0; }\n")
        steps = [[*command, str(source), "-o", str(program)], [str(program)]]
        return all(subprocess.run(step, capture_output=True).returncode == 0 for step in steps)


def compiled(folder: Path, source: Path, kind: str, *flags: str, **headers: str) -> Path:
    """The program under a sanitizer, with the engine's headers or these texts in place of some."""
    checks = (MISTAKES if headers else SANITIZERS)[kind]
    if not runs(compiler(), *checks):
        pytest.skip(f"the compiler's {checks[-1]} does not work here")
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    program = folder / source.stem
    command = [compiler(), *FLAGS, *checks, *flags, "-I", str(folder), "-I", str(NATIVE)]
    command += [str(source), "-o", str(program), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def damaged(header: str, right: str, wrong: str, places: int = 1) -> dict[str, str]:
    """Return the text of a header of the core with one mistake, as `compiled` takes it."""
    text = (NATIVE / f"{header}.h").read_text()
    assert text.count(right) == places, right
    return {header: text.replace(right, wrong)}


def output_of(program: Path, *arguments: object) -> str:
    """Run a program and return its output, then its errors, then its status unless it is 0."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    return f"{done.stdout}{done.stderr}" + (f"status {done.returncode}" if done.returncode else "")
