"""Where the errors of calls come from: their tracebacks show it.

To make a call, or a part of it, a second time would show less: an object of the program can raise
an error the first time only. A thread that then entered MPI alone would wait for ever.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from mpi4py import MPI

__all__ = ["met", "of_program"]

# MPI finds these errors in the arguments, before it meets other threads.
_OF_ARGUMENTS = frozenset({
    MPI.ERR_BUFFER, MPI.ERR_COUNT, MPI.ERR_TYPE, MPI.ERR_COMM, MPI.ERR_ROOT, MPI.ERR_OP,
    MPI.ERR_ARG,
})  # fmt: skip
_MPI4PY = "mpi4py.MPI."  # the names of its functions begin so
_BEFORE = ("pickle_dump", "pickle_dumpv", "PyMPI_copy")
"""Functions of mpi4py that run before a call on objects meets the other threads."""
_OURS = str(Path(__file__).parents[1])


def met(name: str, error: BaseException) -> bool:
    """Return whether a call of mpi4py's that raised an error met the other threads.

    After that a call on buffers raises an error of MPI, and no other one. A call on objects reads
    pickles then, and runs operations.
    """
    if isinstance(error, MPI.Exception):
        return error.Get_error_class() not in _OF_ARGUMENTS
    if name[0].isupper():
        return False
    found = [code.co_name.removeprefix(_MPI4PY) for code in _codes(error)]
    return any(of.startswith("PyMPI_") for of in found) and not any(of in _BEFORE for of in found)


def of_program(error: BaseException, pickling: tuple[CodeType, ...] = ()) -> bool:
    """Return whether an error is raised as it is: code of the program has raised it.

    An error of MPI in a copy of a message is raised as it is, too: MPI's collectives do not check
    all that its messages do, so the call itself might wait.

    `pickling`: the code of functions that pickle objects, whose errors are all of this kind.
    """
    if isinstance(error, RecursionError | MemoryError | MPI.Exception):
        return True
    codes = list(_codes(error))
    if any(code in pickling for code in codes):
        return True
    last = codes[-1]
    return not (last.co_filename.startswith(_OURS) or last.co_name.startswith(_MPI4PY))


def _codes(error: BaseException) -> Iterator[CodeType]:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield frame.f_code
