"""Batch systems whose variables are set here: what they make of a launcher's start.

A launcher that finds a batch system's variables asks that system for machines and starts processes
by its tools. In a container, or in a shell that has inherited the variables, the tools and files
are not there: MPICH's launcher then waits for ever, others end with a page of errors.

Pure functions of the environment; paths are looked up.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["local_settings", "obstacle", "remark", "stays_here"]

_SLURM_IDS = ("SLURM_JOB_ID", "SLURM_JOBID")
_SLURM_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
_SLURM_COUNTS = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")

# What has the launchers stay on this machine.
_STAY = {
    "mpich": {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"},
    "openmpi": {"PRTE_MCA_ras": "^slurm", "PRTE_MCA_plm": "^slurm"},
}
# With these the user has chosen machines, or how to reach them.
_CHOICES = {
    "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_RMK", "PRTE_MCA_ras", "PRTE_MCA_plm",
}  # fmt: skip
_OPTIONS = {
    "launcher", "bootstrap", "rmk", "host", "hosts", "f", "hostfile", "machinefile", "machine",
    "H", "mca", "prtemca",
}  # fmt: skip

# With these a batch system names the machines of its job, beside Slurm's.
_LISTS = {"PBS_NODEFILE", "PE_HOSTFILE", "COBALT_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS"}
# Files of machines, and the variables with which a launcher reads them.
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "mpich": {
        "PBS_NODEFILE": ("PBS_NODEFILE",),
        "PE_HOSTFILE": ("PE_HOSTFILE", "SGE_ROOT"),
        "COBALT_NODEFILE": ("COBALT_NODEFILE",),
        "HYDRA_HOST_FILE": ("HYDRA_HOST_FILE",),
    },
    "openmpi": {"PBS_NODEFILE": ("PBS_JOBID", "PBS_ENVIRONMENT")},
}


def obstacle(environment: Mapping[str, str], family: str, extra: Sequence[str] = ()) -> str:
    """Return why a launcher of this family cannot start a job here, and what to do, or "".

    `extra` are the user's options for the launcher; where they or variables choose the machines,
    the launcher itself must judge.
    """
    if _chosen(environment, extra):
        return ""
    return next(_obstacles(environment, family), "")


def local_settings(environment: Mapping[str, str], family: str) -> dict[str, str]:
    """Return the variables with which a job in a Slurm job of one machine does not need srun."""
    if _no_srun(environment) and _slurm_nodes(environment) == 1 and not _chosen(environment):
        return dict(_STAY.get(family, {}))
    return {}


def stays_here(environment: Mapping[str, str], extra: Sequence[str] = ()) -> bool:
    """Return whether no variable and no option of the user names another machine."""
    listed = _LISTS & set(environment)
    return not listed and _slurm_nodes(environment) == 1 and not _chosen(environment, extra)


def remark(environment: Mapping[str, str]) -> str:
    """Return what is to know about Slurm's variables where srun is missing, or ""."""
    if _no_srun(environment) and _slurm_nodes(environment) == 1:
        return (
            "the variables of a Slurm job are set, but there is no srun on PATH: xupc run starts "
            "all threads on this machine, without Slurm"
        )
    return ""


def _obstacles(environment: Mapping[str, str], family: str) -> Iterator[str]:
    if _no_srun(environment) and (count := _slurm_nodes(environment)) > 1:
        named = [name for name in (*_SLURM_IDS, *_SLURM_LISTS) if name in environment]
        yield (
            f"the variables of a Slurm job of {count} machines are set "
            f"({named[0]}={environment[named[0]]}), but there is no srun on PATH to reach them: "
            f"start where srun is, or, to use this machine alone, unset {' '.join(named)}"
        )
    for name, others in _FILES.get(family, {}).items():
        yield from _missing_file(environment, name, others)
    if family == "mpich":
        yield from _lsf(environment)


def _missing_file(
    environment: Mapping[str, str], name: str, needed: tuple[str, ...]
) -> Iterator[str]:
    path = environment.get(name)
    if not set(needed) <= set(environment) or (path is not None and os.access(path, os.R_OK)):
        return
    found = "is not set" if path is None else f"names {path}, which cannot be read here"
    cure = (name,) if name in needed else needed
    yield (
        f"{name}, a list of machines for mpiexec, {found}: to use this machine alone, "
        f"unset {' '.join(cure)}"
    )


def _lsf(environment: Mapping[str, str]) -> Iterator[str]:
    hosts = set(environment.get("LSB_MCPU_HOSTS", "").split()[::2]) - {platform.node()}
    if not hosts or not {"LSB_JOBID", "LSF_BINDIR"} <= set(environment):
        return
    path = os.pathsep.join([environment["LSF_BINDIR"], environment.get("PATH", os.defpath)])
    if shutil.which("blaunch", path=path) is None:
        yield (
            f"the variables of an LSF job on {' '.join(sorted(hosts))} are set, but there is no "
            "blaunch to reach it: start where blaunch is, or, to use this machine alone, "
            "unset LSB_JOBID LSB_MCPU_HOSTS"
        )


def _no_srun(environment: Mapping[str, str]) -> bool:
    """Return whether Slurm's variables are set where Slurm's tool is missing."""
    job = any(name in environment for name in _SLURM_IDS)
    listed = any(name in environment for name in _SLURM_LISTS)
    path = environment.get("PATH", os.defpath)
    return job and listed and shutil.which("srun", path=path) is None


def _slurm_nodes(environment: Mapping[str, str]) -> int:
    for name in _SLURM_COUNTS:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    listed = next((environment[name] for name in _SLURM_LISTS if name in environment), "")
    return 2 if {",", "["} & set(listed) else 1


def _chosen(environment: Mapping[str, str], extra: Sequence[str] = ()) -> bool:
    options = {word.lstrip("-") for word in extra if word.startswith("-")}
    return bool(_CHOICES & set(environment) or _OPTIONS & options)
