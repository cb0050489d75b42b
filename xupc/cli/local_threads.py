"""The threads of a running job that are on this machine, as `xupc run` knows them.

Each thread's `rank_wrapper.py` sends datagrams to a socket of `xupc run`:

    stdin                   thread 0, before it starts; answered with a descriptor
    up THREAD OF PID        the program runs, as this process, which leads a process group
    THREAD STATUS           the program has ended
    error THREAD OF ...     the thread ends by an error: `xupc.health.error_report`

The socket's name is in Linux's abstract namespace, derived from the job's tag: nothing is left
behind. Other users can see it, so the kernel must vouch for each sender's user. Elsewhere than on
Linux, and from other machines, no message comes, and the launcher's own status must do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from ..health.error_report import LONGEST
from .thread_errors import ThreadErrors

__all__ = ["Failure", "LocalThreads", "describe_status"]

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@dataclass(frozen=True, slots=True)
class Failure:
    """Hold a thread that ended with a status other than 0, as a shell counts: 128 + signal."""

    thread: int
    status: int

    def __str__(self) -> str:
        return f"thread {self.thread} {describe_status(self.status)}"


def describe_status(status: int) -> str:
    """Return an exit status in words; above 128 it counts as 128 + signal, as in a shell."""
    if status > 128:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(status - 128).name}"
    return f"exited with status {status}"


class LocalThreads:
    """Hold what the threads have reported, and signal them without the launcher.

    Parameters
    ----------
    tag : str
        The job's ``XUPC_JOB``.
    stdin : int
        The descriptor that becomes thread 0's standard input.
    stderr : int
        Where errors that threads report are printed; negative: nowhere.

    Attributes
    ----------
    failures : list of Failure
        In order of time.
    errors : ThreadErrors
        Errors to print.
    ending : bool
        Whether the threads were asked to end: how they do so is no failure then.
    stdin_given : bool
        Whether thread 0 has its standard input.
    total : int
        How many threads the job has, 0 before the first of them has started.
    """

    def __init__(self, tag: str, stdin: int, stderr: int = -1) -> None:
        self.failures: list[Failure] = []
        self.errors = ThreadErrors(stderr)
        self.ending = False
        self.stdin_given = False
        self.socket: socket.socket | None = None
        self._stdin = stdin
        self._pids: dict[int, int] = {}
        self._seen: set[int] = set()
        self.total = 0
        if sys.platform == "linux":
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.socket.bind(f"\0xupc-job-{tag}")
            self.socket.setblocking(False)

    @property
    def all_here(self) -> bool:
        """True if every thread of the job has started, and on this machine."""
        return 0 < self.total == len(self._seen)

    def drain(self) -> None:
        """Read all messages that have come."""
        while self.socket is not None:
            try:
                data, extra, _, sender = self.socket.recvmsg(LONGEST, 256)
            except BlockingIOError:
                return
            if any(_from_this_user(item) for item in extra):
                with contextlib.suppress(ValueError):
                    if data.startswith(b"error "):
                        self.errors.take(data)
                    else:
                        self._take(data.split(), sender)

    def _take(self, words: list[bytes], sender: str | bytes) -> None:
        if words == [b"stdin"]:
            self._give_stdin(sender)
        elif words[:1] == [b"up"]:
            thread, self.total, pid = (int(word) for word in words[1:])
            self._pids[thread] = pid
            self._seen.add(thread)
        else:
            thread, status = (int(word) for word in words)
            self._pids.pop(thread, None)
            if status and not self.ending:
                self.failures.append(Failure(thread, status))

    def _give_stdin(self, sender: str | bytes) -> None:
        assert self.socket is not None
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", self._stdin))]
        with contextlib.suppress(OSError):  # it has ended meanwhile
            self.socket.sendmsg([b"stdin"], rights, 0, sender)
            self.stdin_given = True

    def signal(self, number: int, *, groups: bool = False) -> None:
        """Send a signal to each thread that runs, with `groups` to its process group."""
        for pid in list(self._pids.values()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if groups else os.kill)(pid, number)

    def count_of(self, pids: Iterable[int]) -> int:
        """Return how many threads that have not reported an end are among these processes."""
        return len(set(pids).intersection(self._pids.values()))

    def close(self) -> None:
        """Take no more messages."""
        if self.socket is not None:
            self.socket.close()


def _from_this_user(item: tuple[int, int, bytes]) -> bool:
    level, kind, data = item
    if (level, kind) != (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
        return False
    return _own(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[1])


def _own(uid: int) -> bool:
    return uid in (0, os.geteuid())
