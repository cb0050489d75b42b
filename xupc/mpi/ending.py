"""The end of a program under ``python -m xupc.mpi``, as under ``python -m mpi4py``.

An error that the program does not catch, or an exit status other than 0, ends the whole job, and
does so after the program's own handlers (`atexit`). xupc starts late, so a handler that it
registered at its start would run before those that the program registered earlier. This module
loads nothing else: most programs never start xupc.
"""

from __future__ import annotations

import atexit
import sys

__all__ = ["end_last", "note_exit"]


def end_last() -> None:
    """Have xupc end after the handlers that the program registers from now on."""
    atexit.register(_at_exit)


def _at_exit() -> None:
    """End xupc, if it has started: handlers run in the reverse order of their registration."""
    found = sys.modules.get("xupc.api.job_end")
    if found is not None:
        found.at_exit()


def note_exit(error: SystemExit) -> None:
    """Have the end of xupc wait for no other thread, if the exit status is not 0.

    Threads that wait for this one in MPI would never come to the end. mpi4py ends the job, too.
    """
    found = sys.modules.get("xupc.api.job_end")
    if found is not None:
        found.note_exit(error)
