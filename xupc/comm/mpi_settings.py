"""Settings of MPI that have to be in the environment before MPI starts in a process."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["DEVICES", "prepare_start", "without_ucx_windows"]

DEVICES = Path("/sys/class")


def without_ucx_windows(environment: MutableMapping[str, str], devices: Path) -> None:
    """Have Open MPI leave out its UCX windows where they only print errors, without InfiniBand.

    A setting of the user stays.

    Parameters
    ----------
    environment : mapping
        The variables of the process in which MPI will start; they are changed.
    devices : Path
        Where the system lists its devices.
    """
    if not (devices / "infiniband").exists():
        environment.setdefault("OMPI_MCA_osc", "^ucx")


def prepare_start() -> None:
    """Prepare the variables of this process for the start of MPI, if mpi4py has not started it."""
    if "mpi4py.MPI" not in sys.modules:
        without_ucx_windows(os.environ, DEVICES)
