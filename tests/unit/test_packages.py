"""What a release is made of: the sdist has all that git has, and the wheel all that runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from xupc.cli import variables

PROJECT = Path(__file__).resolve().parents[2]
LEFT_OUT = {".gitignore", ".ci/run"}
DEMO = {"xupc/cli/examples/sobel.py", "xupc/cli/examples/unequal_arrays.py"}

pytestmark = pytest.mark.once


def sources() -> list[str]:
    """Return the files that git knows or would know."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout")
    return [name for name in done.stdout.split("\0") if name and (PROJECT / name).is_file()]


def build(kind: str, folder: Path, to: Path) -> Path:
    """Build an sdist or a wheel of a folder, without the core; return the file."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(to)!r}))"
    words = ["env", "XUPC_NO_CORE=1", sys.executable, "-c", code]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to / done.stdout.split()[-1]


def test_the_sdist_is_complete_and_builds_a_complete_wheel(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77.0.1")
    names = sources()
    copy = tmp_path / "copy"
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, copy / name)
    with tarfile.open(build("sdist", copy, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = next(tmp_path.glob("xupc-*/"))
    found = {str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file()}
    made = {name for name in found if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert found - made == set(names) - LEFT_OUT
    with zipfile.ZipFile(build("wheel", unpacked, tmp_path)) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert files == {name for name in names if name.startswith("xupc/")} | DEMO


def test_the_release_of_all_files_is_the_same() -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {project['version']}" in citation
    assert f"license: {project['license']}" in citation


def test_wheels_are_built_for_all_pythons_and_must_have_the_core() -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]["cibuildwheel"]
    pythons = [f"cp3{minor}-manylinux_*" for minor in (11, 12, 13, 14)]
    assert table["build"].split() == pythons
    assert table["linux"]["archs"] == ["x86_64", "aarch64"]
    assert set(table["environment"]) <= variables.VARIABLES.keys()


def test_a_core_is_compiled_once_for_all_environments(tmp_path: Path) -> None:
    """Until its sources, or what compiles them, change."""
    pytest.importorskip("Cython")
    if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        pytest.skip("no C compiler")
    native = tmp_path / "xupc" / "backends" / "native"
    native.mkdir(parents=True)
    shutil.copy(PROJECT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "xupc"\nversion = "1"\n')
    (native / "_core.pyx").write_text("cdef extern from 'two.h':\n    int TWO\nvalue = TWO\n")
    header = native / "two.h"
    header.write_text("enum { TWO = 2 };\n")
    (wrapper := tmp_path / "wrapper").write_text(
        f'#!/bin/sh\ncase " $* " in *" -c "*) echo >> {tmp_path}/calls;; esac\n'
        f'exec {compiler} "$@"\n'
    )
    wrapper.chmod(0o755)

    def built(to: str, *flags: str) -> tuple[int, str]:
        """How often the compiler ran so far, and the value in the core of a new environment."""
        words = ["env", f"CC={wrapper}", *flags, "-u", "XUPC_NO_CORE", sys.executable, "setup.py",
                 "build_ext", "--build-lib", to, "--build-temp", f"{to}-temp"]  # fmt: skip
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (core,) = (tmp_path / to).rglob("_core*.so")
        code = f"""
import importlib.util as util
spec = util.spec_from_file_location("xupc.backends.native._core", {str(core)!r})
module = util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.value)"""
        words = [sys.executable, "-I", "-c", code]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return len((tmp_path / "calls").read_text()), said.strip()

    assert built("first") == (1, "2")
    assert built("second") == (1, "2")
    header.write_text("enum { TWO = 3 };\n")
    assert built("third") == (2, "3")
    assert built("fourth", "CFLAGS=-DOTHER") == (3, "3")
    header.write_text("enum { TWO = 2 };\n")
    assert built("fifth") == (3, "2")
