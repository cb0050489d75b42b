"""What a release is made of: the sdist has all that git has, and the wheel all that runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
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


COMPILER = """#!/bin/sh
case "$*" in *--version*) ;; *" -c "*) echo "$*" >>"$XUPC_TEST_COMPILED" ;; esac
exec cc "$@"
"""


def another_environment(folder: Path) -> str:
    """Return the interpreter of a new environment that has the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    python = folder / "bin/python"
    words = [python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    packages = Path(subprocess.check_output(words, text=True, timeout=60).strip())
    packages.rmdir()
    packages.symlink_to(sysconfig.get_path("platlib"))
    return str(python)


def test_a_core_is_compiled_once_for_equal_inputs(tmp_path: Path) -> None:
    """Another environment with the same Python takes it; another text or option does not."""
    pytest.importorskip("setuptools", minversion="77.0.1")
    pytest.importorskip("Cython")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    native = tmp_path / "xupc/backends/native"
    native.mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, tmp_path / name)
    # the headers of numpy, which are in the folder of each environment
    (native / "_core.pyx").write_text("cimport numpy\nVALUE = 1\n")
    (native / "other.h").write_text("")
    other = another_environment(tmp_path / ".venv-other")
    cc, compiled = tmp_path / "cc", tmp_path / "compiled"
    cc.write_text(COMPILER)
    cc.chmod(0o755)
    environment = {**os.environ, "CC": str(cc), "XUPC_TEST_COMPILED": str(compiled)}
    for name in ("XUPC_NO_CORE", "CFLAGS"):
        environment.pop(name, None)

    def core(python: str = sys.executable, **more: str) -> int:
        """Build it in place; return the number of compilations so far."""
        for old in native.glob("*.so"):
            old.unlink()
        shutil.rmtree(tmp_path / "build/lib", ignore_errors=True)
        words = [python, "setup.py", "-q", "build_ext", "--inplace"]
        words += ["--build-lib", "build/lib", "--build-temp", "build/temp"]
        done = subprocess.run(
            words, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(list(native.glob("*.so"))) == 1, done.stdout + done.stderr
        return len(compiled.read_text().splitlines())

    assert [core(), core(other), core()] == [1, 1, 1]
    (native / "_core.pyx").write_text("VALUE = 2\n")
    assert [core(), core()] == [2, 2]
    (native / "other.h").write_text("#define OTHER\n")
    assert [core(), core(CFLAGS="-O0"), core(CFLAGS="-O0")] == [3, 4, 4]
    assert len(list((tmp_path / "build").glob("cython-*/*.so"))) == 1
    assert not list((tmp_path / "build").glob("cython-*/*.[0-9]*"))


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
