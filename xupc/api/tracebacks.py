"""Tracebacks of the program's lines: without the frames of xupc, which its user has not written."""

from __future__ import annotations

import os
from traceback import FrameSummary, StackSummary, TracebackException, format_exception_only

from ..errors import OWN, XupcError

__all__ = ["traceback_text"]

_CORE = f"{__package__.partition('.')[0]}.backends.native."  # how functions of the core begin
_ABOUT_ARGUMENTS = (XupcError, ValueError, TypeError, IndexError, OverflowError)


def traceback_text(error: BaseException, *, at_end: bool = False) -> str:
    """Return the traceback of an error that a program does not catch.

    At the end of a program no line of it makes the call: an error of xupc has no frames then.

    Frames of xupc are left out of an error about a call and of those that it came from. So is an
    error of xupc alone that it came from, if both say the same. Any other error may be a fault of
    xupc, so all frames are shown. ``XUPC_TRACEBACK=full`` shows all.
    """
    if os.environ.get("XUPC_TRACEBACK") == "full":
        return "".join(TracebackException.from_exception(error).format())
    if at_end and isinstance(error, XupcError):
        return "".join(format_exception_only(error))
    found = TracebackException.from_exception(error)
    if isinstance(error, _ABOUT_ARGUMENTS):
        _shorten(found)
    return "".join(found.format())


def _shorten(found: TracebackException | None) -> None:
    while found is not None:
        if frames := _frames_of_others(found):
            found.stack = StackSummary.from_list(frames)
        cause = found.__cause__
        if cause is not None and str(cause) == str(found) and not _frames_of_others(cause):
            found.__cause__, found.__suppress_context__ = None, True
            return
        if found.__context__ is not None and found.__cause__ is None:
            _shorten(found.__context__)
        found = found.__cause__


def _frames_of_others(found: TracebackException) -> list[FrameSummary]:
    """Return the frames that are not of xupc; none if all others are of Python's own start."""
    frames = [frame for frame in found.stack if not _is_own(frame)]
    return frames if any(not f.filename.startswith("<frozen") for f in frames) else []


def _is_own(frame: FrameSummary) -> bool:
    """Return whether a frame is one of xupc.

    Cython names a file of the core relative to the checkout that it was compiled in. So its frames
    are known by their functions, which have dots in their names as no function of Python has.
    """
    return os.path.abspath(frame.filename).startswith(OWN) or frame.name.startswith(_CORE)
