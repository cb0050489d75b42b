"""Tracebacks of the program's lines: without the frames of xupc, which its user has not written."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable
from traceback import FrameSummary, StackSummary, TracebackException, format_exception_only

from ..errors import OWN, XupcError
from ..health.error_report import print_error

__all__ = ["report_error", "traceback_text"]

_CORE = f"{__package__.partition('.')[0]}.backends.native."  # how functions of the core begin
_ABOUT_ARGUMENTS = (
    XupcError, ValueError, TypeError, IndexError, OverflowError, KeyboardInterrupt,
)  # fmt: skip
_STARTS = (f"{OWN}mpi{os.sep}__main__.py", os.path.join(os.sep, "mpi4py", "run.py"))


def report_error(
    error: BaseException | None, rank: int, size: int, *, at_end: bool = False
) -> None:
    """Print the traceback of an error in one piece, with others' that are the same.

    Launchers merge what threads write, each piece as it comes, and Python would write a
    traceback word by word.
    """
    if isinstance(error, SystemExit):
        words = f"{error.code}\n"
        if error.code is None or isinstance(error.code, int):  # Python prints neither
            words = f"SystemExit: {error.code}\n" if size > 1 and error.code else ""
    else:
        words = "" if error is None else traceback_text(error, at_end=at_end)
    if words:
        with contextlib.suppress(Exception):  # stderr may have no reader
            sys.stderr.flush()
        print_error(rank, size, f"\n{words}")


def traceback_text(error: BaseException, *, at_end: bool = False) -> str:
    """Return the traceback of an error that a program does not catch.

    At the end of a program no line of it makes the call: an error of xupc has no frames then.

    Frames that start the program are left out. So are those of xupc, also of the errors that it
    came from, if it is about a call, or if code of others has raised it. So is an error of xupc
    alone that it came from, if both say the same. Any other error that xupc has raised may be a
    fault of xupc, so its frames are shown. ``XUPC_TRACEBACK=full`` shows all.
    """
    if os.environ.get("XUPC_TRACEBACK") == "full":
        return "".join(TracebackException.from_exception(error).format())
    if at_end and isinstance(error, XupcError):
        return "".join(format_exception_only(error))
    found = TracebackException.from_exception(error)
    _shorten(found, error)
    return "".join(found.format())


def _is_about_call(error: BaseException) -> bool:
    """Return whether an error is about a call, and no fault of xupc; also an error of MPI's."""
    of_mpi = any(kind.__module__ == "mpi4py.MPI" for kind in type(error).__mro__)
    return of_mpi or isinstance(error, _ABOUT_ARGUMENTS)


def _shorten(found: TracebackException | None, error: BaseException | None) -> None:
    """Leave out frames of an error, of those that it came from, and of those in its group."""
    while found is not None and error is not None:
        about_call = _is_about_call(error)
        _leave_out_frames(found, about_call)
        parts = zip(found.exceptions or (), getattr(error, "exceptions", ()), strict=False)
        for part, one in parts:
            _shorten(part, one)
        if found.__cause__ is None:
            found, error = found.__context__, error.__context__
            continue
        if about_call and _says_the_same(found.__cause__, found):
            found.__cause__, found.__suppress_context__ = None, True
            return
        found, error = found.__cause__, error.__cause__


def _says_the_same(cause: TracebackException, found: TracebackException) -> bool:
    """Return whether an error of xupc alone, from which another one came, adds nothing to it."""
    return str(cause) == str(found) and not _frames_of_others(cause.stack)


def _leave_out_frames(found: TracebackException, about_call: bool) -> None:
    frames = _without_start(found.stack)
    if not frames:  # such as an error in the syntax of the program
        if found.stack:
            found.stack = None  # type: ignore[assignment]
        return
    if about_call or not _is_own(frames[-1]):
        frames = _frames_of_others(frames) or frames
    found.stack = StackSummary.from_list(frames)


def _without_start(stack: Iterable[FrameSummary]) -> list[FrameSummary]:
    """Return the frames after those by which Python and mpi4py start a program, and of imports."""
    after = itertools.dropwhile(lambda frame: _starts(frame.filename), stack)
    return [frame for frame in after if not frame.filename.startswith("<frozen importlib")]


def _starts(file: str) -> bool:
    return file.startswith("<frozen ") or file.endswith(_STARTS)


def _frames_of_others(stack: Iterable[FrameSummary]) -> list[FrameSummary]:
    """Return the frames that are not of xupc."""
    return [frame for frame in _without_start(stack) if not _is_own(frame)]


def _is_own(frame: FrameSummary) -> bool:
    """Return whether a frame is one of xupc.

    Cython names a file of the core relative to the checkout that it was compiled in. So its frames
    are known by their functions, which have dots in their names as no function of Python has.
    """
    return os.path.abspath(frame.filename).startswith(OWN) or frame.name.startswith(_CORE)
