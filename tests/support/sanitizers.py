"""Programs in C around the core's headers, compiled with a sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "xupc" / "backends" / "native"
FLAGS = ["-std=c11", "-g", "-O1", "-fwrapv", "-ffp-contract=off", "-pthread"]
SANITIZERS = {
    "thread": ["-fsanitize=thread"],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}


def compiler_for(folder: Path, flags: list[str]) -> str:
    """The compiler, if it makes programs with these flags that run here; else the test skips."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    trial = [compiler, *flags, str(probe), "-o", str(folder / "probe")]
    built = subprocess.run(trial, capture_output=True).returncode == 0
    if not built or subprocess.run([folder / "probe"], capture_output=True).returncode != 0:
        pytest.skip(f"the compiler's {flags[-1]} does not work here")
    return compiler


def compiled(folder: Path, source: Path, flags: list[str], **headers: str) -> Path:
    """The program, made with the engine's headers, or with these texts in the place of some."""
    compiler = compiler_for(folder, flags)
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    program = folder / source.stem
    command = [compiler, *FLAGS, *flags, "-I", str(folder), "-I", str(NATIVE), str(source)]
    command += ["-o", str(program), "-lm"]
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
