"""Replace ``MPI.COMM_WORLD``: at once, or as soon as the program imports mpi4py.

A program may set ``mpi4py.rc`` before it imports ``mpi4py.MPI``, so nothing here imports that
module early.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..comm.mpi_settings import prepare_start

__all__ = ["install", "install_on_import"]

MODULE = "mpi4py.MPI"


def install() -> None:
    """Replace ``MPI.COMM_WORLD`` by a communicator of xupc; a second call does nothing."""
    from mpi4py import MPI

    from . import constants
    from .communicators import Comm

    if not constants.is_replacement(MPI.COMM_WORLD):
        comm = Comm(MPI.COMM_WORLD) if MPI.Is_initialized() else _without_mpi(Comm)
        constants.keep(comm)
        vars(MPI)[constants.NAME] = comm


def _without_mpi(kind: Any) -> Any:
    """Return a communicator with the handle of COMM_WORLD, before MPI starts.

    mpi4py's constructor asks MPI about the communicator, which is an error at that time.
    """
    import ctypes

    from mpi4py import MPI

    comm = kind()
    to, source = MPI._addressof(comm), MPI._addressof(MPI.COMM_WORLD)
    ctypes.memmove(to, source, MPI._sizeof(MPI.Comm))
    return comm


def install_on_import() -> None:
    """Have ``MPI.COMM_WORLD`` replaced right after the first import of ``mpi4py.MPI``."""
    if MODULE in sys.modules:
        install()
    else:
        prepare_start()
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Find ``mpi4py.MPI`` by the other finders, and extend its loader.

    It stays until the module is loaded: a program may look for it without an import
    (`importlib.util.find_spec`), and an import may fail and be tried again.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's specification; None for any other module."""
        if name != MODULE:
            return None
        for finder in [*sys.meta_path]:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self._extend(spec.loader)
                return spec
        return None

    def _extend(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            install()

        loader.exec_module = exec_module
