"""Processes that carry a mark in their environment: finding and killing them.

The launchers put threads into sessions and process groups of their own; the environment is the one
thing that all of them keep.

Executed as a plain file, with the standard library alone, this module is a job's keeper:

    python -I -S processes.py NAME VALUE FOLDER

`xupc run` starts one beside each job, in a session of its own, and holds the other end of its
standard input. The end of that input without the byte `DONE` means that `xupc run` has died: then
the keeper gives the job `ORPHAN_GRACE` seconds, kills what is left of it, and removes FOLDER.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["ORPHAN_GRACE", "Keeper", "kill_tagged", "tagged"]

ORPHAN_GRACE = 3.0  # seconds from the death of `xupc run`, when threads get SIGTERM, to SIGKILL
DONE = b"."

_POLL = 0.02
_PROC = Path("/proc")
_NONE = (0, -1)


def tagged(name: str, value: str) -> list[int]:
    """Return the ids of the living processes that were started with ``name=value``.

    This process is never among them.
    """
    entry = f"{name}={value}".encode()
    return [pid for pid, block in _environments() if pid != os.getpid() and entry in block]


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    if (_PROC / "self/environ").exists():
        for directory in _processes():
            # A process that has ended meanwhile, or another user's.
            with contextlib.suppress(OSError):
                yield int(directory.name), (directory / "environ").read_bytes().split(b"\0")
        return
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            block = [f"{key}={value}".encode() for key, value in process.environ().items()]
            yield process.pid, block


def _processes() -> Iterator[Path]:
    """Yield the folder of each process in /proc."""
    return (folder for folder in _PROC.iterdir() if folder.name.isdigit())


def _living() -> dict[int, tuple[int, int]]:
    """Return (parent, time of start) of each process; empty where there is no /proc."""
    found: dict[int, tuple[int, int]] = {}
    for folder in _processes() if (_PROC / "self/stat").exists() else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found[int(folder.name)] = int(fields[1]), int(fields[19])
    return found


class _Family:
    """Find the processes of a job: those with its mark, and their descendants, marked or not.

    A process that has been found once stays known when its parent ends.
    """

    def __init__(self, name: str, value: str) -> None:
        self._mark = name, value
        self._known: dict[int, int] = {}

    def look(self) -> list[int]:
        """Return the ids of all that live."""
        living, known = _living(), self._known
        known = {p: start for p, start in known.items() if living.get(p, _NONE)[1] == start}
        marked = tagged(*self._mark)
        more = [pid for pid in marked if pid not in known and (pid in living or not living)]
        while more:
            known.update((pid, living.get(pid, (0, 0))[1]) for pid in more)
            more = [pid for pid, (up, _) in living.items() if up in known and pid not in known]
        known.pop(os.getpid(), None)
        self._known = known
        return list(known)

    def kill(self, patience: float = 5.0) -> list[int]:
        """Kill them all, again until none is left; return the ids."""
        killed: dict[int, None] = {}
        deadline = time.monotonic() + patience
        while pids := self.look():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(dict.fromkeys(pids))
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL)
        return list(killed)


def kill_tagged(name: str, value: str, *, patience: float = 5.0) -> list[int]:
    """Kill every process started with ``name=value`` and its descendants; return their ids.

    A process may start another one meanwhile: the search is repeated until it finds none.
    """
    return _Family(name, value).kill(patience)


class Keeper:
    """Run the process that ends a job when this process dies, whatever kills it.

    Leaving the context after `done` dismisses the keeper; leaving it otherwise has it end the job.
    """

    def __init__(self, name: str, value: str, folder: str, environment: Mapping[str, str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._last = b""
        if sys.platform != "linux":
            return
        with contextlib.suppress(OSError):  # a job can run without
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, name, value, folder],
                env={key: text for key, text in environment.items() if key != name},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,  # nothing, but its end is the keeper's
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )

    def __enter__(self) -> Keeper:
        return self

    def done(self) -> None:
        """Note that nothing of the job is left."""
        self._last = DONE

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            # It may have been killed, or stopped.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._process.communicate(self._last, timeout=2 * ORPHAN_GRACE)


def _keep(name: str, value: str, folder: str) -> None:
    """Wait for the end of the standard input; without `DONE` in it, end the job."""
    if os.fork():  # no descendant of `xupc run`, which may be in a job whose keeper kills those
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() == DONE:
        return
    family, deadline = _Family(name, value), time.monotonic() + ORPHAN_GRACE
    while family.look() and time.monotonic() < deadline:
        time.sleep(_POLL)
    family.kill()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(*sys.argv[1:])
    os._exit(0)
