"""Files that a user names: read without waiting for a pipe, and never more than fits a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["contents_of", "too_long", "without_waiting"]

_CHUNK: Final = 1 << 20


def contents_of(path: Path | str, most: int, *, pipes: bool = True) -> bytes:
    """Return the contents of a file; of a pipe without a writer, nothing.

    Raises
    ------
    OSError
        It is not there, or cannot be read.
    ValueError
        It is a directory, a device or, without `pipes`, a pipe; or it is longer than `most` bytes.
        The message does not name it.
    """
    found, length = [], 0
    with open(path, "rb", buffering=0, opener=without_waiting) as file:
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) or (pipes and stat.S_ISFIFO(status.st_mode))):
            raise ValueError("it is no file")
        if status.st_size > most:
            raise too_long(most)
        part = file.read(_CHUNK)  # None: the writer of a pipe has not begun
        os.set_blocking(file.fileno(), True)
        while part or part is None:
            found.append(part or b"")
            length += len(found[-1])
            if length > most:
                raise too_long(most)
            part = file.read(_CHUNK)
    return b"".join(found)


def too_long(most: int) -> ValueError:
    """Return the error for a file of more than `most` bytes."""
    return ValueError(f"it is longer than {most >> 20 or most / (1 << 20):g} MiB")


def without_waiting(path: str, flags: int) -> int:
    """Open a file, as an opener; of a pipe do not wait for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)
