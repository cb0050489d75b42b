"""Builds the optional native core, `xupc.backends.native._core`; the rest is in pyproject.toml.

A machine without a C compiler, or with one that cannot build the core, gets xupc without it: then
the Python engine runs. `XUPC_NO_CORE=1` leaves the core out on purpose. With `XUPC_REQUIRE_CORE=1`
an installation without the core fails, as wheels for others must.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CCompilerError, ExecError, PlatformError

ROOT = Path(__file__).resolve().parent
NATIVE = Path("xupc/backends/native")
SOURCE = NATIVE / "_core.pyx"
DEMO = "sobel.py", "unequal_arrays.py"

# The same bits everywhere: signed overflow wraps and no multiply-add is contracted, so that a
# reduction gives in C what it gives in numpy. For the same reason there is no -ffast-math.
C_FLAGS = ["-O3", "-std=c11", "-fwrapv", "-ffp-contract=off"]
# Without this a loop's place depends on all code before it: of 32 launches of one core, half took
# 20% longer for a prefix reduction of 64 KiB.
C_FLAGS += ["-falign-loops=32", "-falign-functions=64"]
# What GCC 14 refuses is refused by older compilers too, so that no test of ours accepts it.
C_FLAGS += ["-Werror=" + what for what in
            ("incompatible-pointer-types", "int-conversion", "implicit-function-declaration")]


NOTICE = """
xupc: installed WITHOUT its native core: {reason}
xupc: the Python engine will run, with the same results but MANY TIMES SLOWER.
xupc: install a C compiler and Python's headers (Debian, Ubuntu: gcc python3-dev), then repeat with
xupc: pip install --force-reinstall --no-deps --no-cache-dir
"""


def given(name: str) -> bool:
    """Return True if a variable is set, and not to 0."""
    return os.environ.get(name, "") not in ("", "0")


def without_core(reason: object) -> None:
    """Print why there is no core; this Python must not go on with an older one."""
    if given("XUPC_REQUIRE_CORE"):
        raise SystemExit(f"xupc: XUPC_REQUIRE_CORE: the native core is missing: {reason}")
    if given("XUPC_NO_CORE"):
        print(f"xupc: building without the native core ({reason}); the Python engine will be used")
    else:
        notify(NOTICE.format(reason=reason))
    if {"editable_wheel", "develop", "--inplace"} & set(sys.argv):
        # a source tree holds the cores of several Pythons
        (ROOT / NATIVE / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}").unlink(missing_ok=True)


def notify(text: str) -> None:
    """Print to the terminal, too: pip shows the output of a build only if it fails, or with -v."""
    print(text, flush=True)
    with contextlib.suppress(OSError), open("/dev/tty", "w") as terminal:
        terminal.write(text)


class BuildCore(build_ext):
    """build_ext for which a failing compiler is a notice instead of an error."""

    def run(self) -> None:
        try:
            super().run()
        except PlatformError as error:  # no compiler for this platform at all
            self._give_up(error)

    def build_extension(self, ext: Extension) -> None:
        kept = self._kept(ext)
        try:
            if kept is None or not kept.exists():
                make_c_text(ext)
                super().build_extension(ext)
        except (CCompilerError, ExecError, PlatformError, OSError) as error:
            self._give_up(error)
            return
        core = Path(self.get_ext_fullpath(ext.name))
        if kept is None:
            return
        if kept.exists():
            core.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kept, core)
        else:
            keep(core, kept)

    def _kept(self, ext: Extension) -> Path | None:
        """Return the file for a core of the same text, compiler, options, Python, Cython and numpy.

        Cython and the compiler take a minute, and a checkout has environments that differ in their
        MPI alone. None: the compiler does not say what it is.
        """
        compiler = getattr(self.compiler, "compiler_so", None) or []
        try:
            asked = subprocess.run([*compiler[:1], "--version"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        # The folder is named by the versions of Cython and numpy. Environments have the headers of
        # numpy, and Python's, in different places.
        options = [compiler, self.compiler.linker_so, self.include_dirs, self.library_dirs,
                   ext.include_dirs, ext.define_macros, ext.extra_compile_args]  # fmt: skip
        text = repr((asked.stdout, sys.version, options)).replace(sys.prefix, "")
        digest = hashlib.sha256(text.encode())
        for name in sorted({*ext.sources, *ext.depends}):
            digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes() + b"\0")
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        return ROOT / folder_of_c_text() / f"{digest.hexdigest()[:24]}{suffix}"

    def _give_up(self, error: Exception) -> None:
        without_core(str(error).splitlines()[0] if str(error) else type(error).__name__)
        self.extensions = []  # nothing to copy into the source tree or the wheel


def keep(made: Path, kept: Path) -> None:
    """Keep a core, whole or not at all, in the place of those that this Python made before."""
    if not made.exists():  # the extension is optional
        return
    with contextlib.suppress(OSError):
        for other in kept.parent.glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            other.unlink()
        new = kept.with_suffix(f".{os.getpid()}")
        shutil.copy(made, new)
        new.replace(kept)


class BuildPy(build_py):
    """build_py that adds the examples which `xupc demo` runs; sources are used where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in DEMO:
                target = Path(self.build_lib, "xupc/cli/examples", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(str(ROOT / "examples" / name), str(target))


def core() -> list[Extension]:
    """Return the core as a list of one extension, or of none."""
    if given("XUPC_NO_CORE"):
        without_core("XUPC_NO_CORE is set")
        return []
    if sys.platform == "win32":
        without_core("not supported on Windows")
        return []
    if not (ROOT / SOURCE).exists():
        return []
    try:
        import Cython  # noqa: F401
        import numpy
    except ImportError as error:
        without_core(f"{error.name} is not installed")
        return []
    extension = Extension(
        "xupc.backends.native._core",
        sources=[str(SOURCE)],
        depends=[str(part) for kind in ("*.h", "*.pxi") for part in sorted(NATIVE.glob(kind))],
        include_dirs=[str(NATIVE), numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=C_FLAGS,
        optional=True,
    )
    return [extension]


def make_c_text(extension: Extension) -> None:
    """Have Cython translate an extension, whose source is then the C text.

    A mistake in the .pyx itself is no reason for a silent fallback: it stays an error.
    """
    from Cython.Build import cythonize

    [made] = cythonize([extension], language_level=3, build_dir=folder_of_c_text())
    extension.sources, extension.depends = made.sources, made.depends
    extension.include_dirs = made.include_dirs


def folder_of_c_text() -> str:
    """Return the folder for what Cython makes with its version and numpy's.

    Environments of one checkout may have different versions of numpy: what Cython makes with one
    may not compile with another.
    """
    import Cython
    import numpy

    return f"build/cython-{Cython.__version__}-numpy-{numpy.__version__}"


setup(ext_modules=core(), cmdclass={"build_ext": BuildCore, "build_py": BuildPy})
