"""Run a program written for mpi4py on xupc: ``python -m xupc.mpi [-m] PROGRAM``.

``MPI.COMM_WORLD`` is a communicator of xupc in it. Everything else is as under
``python -m mpi4py``, which takes the same arguments: an uncaught error ends the whole job.
"""

from __future__ import annotations

import sys
from types import TracebackType

from .ending import end_last, note_exit
from .install import install_on_import
from .switch import OFF, mode

USAGE = """\
usage: python -m xupc.mpi PROGRAM [ARGUMENT ...]
   or: python -m xupc.mpi -m MODULE [ARGUMENT ...]
   or: python -m xupc.mpi -c CODE [ARGUMENT ...]

Runs a program written for mpi4py with its collectives on xupc. XUPC_COMM=off leaves all calls to
MPI, XUPC_COMM=explain prints at the end where calls went. Options of `python -m mpi4py` come before
the program.
"""


def main() -> None:
    """Run the program of the command line."""
    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        print(USAGE, end="", file=sys.stdout if sys.argv[1:] else sys.stderr)
        sys.exit(0 if sys.argv[1:] else 2)
    try:
        chosen = mode()
    except ValueError as error:
        sys.exit(f"python -m xupc.mpi: {error}")
    sys.excepthook = _uncaught
    if chosen != OFF:
        install_on_import()
    end_last()
    from mpi4py import run

    try:
        run.main()
    except SystemExit as error:
        note_exit(error)
        raise


def _uncaught(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Print an error of the program, also before its first call: in one piece, without our lines.

    What this needs is loaded here: most programs have no error.
    """
    try:
        from ..api.tracebacks import report_error
        from ..comm.place import place_in_mpi

        report_error(error, *place_in_mpi())
    except BaseException:  # nothing may hide the error: no memory is left, or Ctrl-C comes again
        sys.__excepthook__(kind, error, where)


if __name__ == "__main__":
    main()
