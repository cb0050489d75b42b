"""The exceptions that xupc raises, all under :class:`XupcError`, and how it warns.

A message names the call, the argument, its value, what was expected, and the
threads concerned.  Plain ``IndexError``, ``TypeError`` and ``ValueError`` are
raised where numpy would raise them.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

__all__ = [
    "AffinityError",
    "CollectiveMismatchError",
    "DeadThreadError",
    "FlagError",
    "HangError",
    "HeapError",
    "NotInitializedError",
    "OverlapError",
    "XupcError",
    "death_text",
    "show",
    "show_dtype",
    "thread_name",
    "warn",
    "warn_alone",
]

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep  # how files of xupc begin
_LONGEST = 500  # characters of a value in a message


def show(value: object) -> str:
    """Return a value in a message: its repr, shortened, or what it is if it has none.

    It may be an int of thousands of digits, which Python refuses to print, or an object of the
    user's, whose repr may raise anything.
    """
    try:
        text = repr(value)
    except Exception:
        if issubclass(type(value), int):  # isinstance may raise, too
            return f"an int of {int.bit_length(value)} bits"  # type: ignore[arg-type]
        return f"<{type(value).__name__}, whose repr raises an error>"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def said(error: object) -> str:
    """Return the text of an error, which may be a user's own and have none to give."""
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__}, whose str raises an error>"


def warn(text: str, kind: type[Warning] = RuntimeWarning) -> None:
    """Warn with the line of the program that called xupc, not with a line of xupc's own.

    A call of the interpreter alone, such as one at its end, has no such line.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((OWN, "<frozen ")):
        frame = frame.f_back
    if frame is None:
        warnings.warn_explicit(text, kind, "xupc", 0)
        return
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    name = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(text, kind, frame.f_code.co_filename, frame.f_lineno, name, seen)


def warn_alone(text: str) -> None:
    """Warn on one thread, as `warn` does; a filter cannot make an error of it.

    The call of this thread has not failed: an error would keep it from meeting the others.
    """
    try:
        warn(text)
    except RuntimeWarning:
        sys.stderr.write(f"xupc: {text}\n")


def thread_name(thread: int, host: str, pid: int) -> str:
    """Return the name of a thread in messages."""
    return f"thread {thread} (host {host}, pid {pid})"


def death_text(name: str, doing: str = "", why: str = "") -> str:
    """Return the message of a thread's death.

    Parameters
    ----------
    name
        From `thread_name`.
    doing
        Its last known activity, such as "in init".
    why
        The reason that it gave itself, if it ended the job.
    """
    if why:
        return f"{name} ended the job: {why}"
    return f"{name} died {doing}" if doing else f"{name} died"


def show_dtype(dtype: object) -> str:
    """Return a dtype as it was given, in a message: the same for a text and for what it names."""
    try:
        return str(dtype)[:_LONGEST]
    except Exception:
        return show(dtype)


class XupcError(Exception):
    """Base of every error of xupc's own."""


class NotInitializedError(XupcError, AttributeError):
    """xupc was used before ``init()`` or after ``finalize()``.

    Also an AttributeError, so that ``hasattr(xupc, "THREADS")`` works.
    """


class FlagError(XupcError, ValueError):
    """The flags contradict each other, or the call does not take them."""


class AffinityError(XupcError, ValueError):
    """A pointer has affinity to another thread than the call needs."""


class OverlapError(XupcError, ValueError):
    """Source and target memory overlap."""


class CollectiveMismatchError(XupcError):
    """The threads are not all in the same call with the same arguments."""

    _exit_status = 0  # of a thread that has come to the end of its program, as by sys.exit


class HangError(XupcError, TimeoutError):
    """A wait took longer than the ``timeout`` given to ``init()``; shows where all threads are."""


class DeadThreadError(XupcError):
    """A thread of the job has died."""


class HeapError(XupcError, MemoryError):
    """The shared heap cannot hold the allocation."""
