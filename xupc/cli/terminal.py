"""What a job has of the terminal of `xupc run`: standard input, signals, stop and continue.

The launcher runs in a session of its own and has /dev/null as its input. `xupc run` itself stays
what its shell made it, an ordinary process in a process group: it gets the terminal's signals and
passes them to the threads, and thread 0 reads the standard input of `xupc run` as if there were no
launcher in between.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import IO

from .local_threads import LocalThreads

__all__ = ["JobControl", "StandardInput", "fill_standard_streams"]

AGAIN = 1.0  # seconds; the same signal within them is the same request (timeout sends it twice)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PASSED = (signal.SIGUSR1, signal.SIGUSR2)
# A terminal sends these to a whole process group.
_TO_GROUPS = (signal.SIGINT, signal.SIGQUIT)
_LINE = 4096  # bytes; a terminal gives no more at once


def fill_standard_streams() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next file or socket takes its place, and is read from or printed to.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            os.set_inheritable(number, True)


class StandardInput:
    """Pass the standard input on to thread 0.

    A file, a pipe, or a terminal that does not control this process is handed over as it is, and
    only the program reads it. From the controlling terminal a thread could not
    read in its process group; so this process reads for it, line by line while it is in the
    foreground, into a pipe.

    Parameters
    ----------
    source : file or int, optional
        The input of this process; None for an empty one.

    Attributes
    ----------
    descriptor : int
        What thread 0 is to be given.
    """

    def __init__(self, source: IO[bytes] | int | None) -> None:
        self._opened: list[int] = []
        self._terminal = self._pipe = -1
        if source is None or source == subprocess.DEVNULL:
            self.descriptor = os.open(os.devnull, os.O_RDONLY)
            self._opened = [self.descriptor]
            return
        self.descriptor = source if isinstance(source, int) else source.fileno()
        if _controls_us(self.descriptor):
            self._terminal = self.descriptor
            self.descriptor, self._pipe = os.pipe()
            self._opened = [self.descriptor, self._pipe]

    @property
    def waiting(self) -> bool:
        """Return whether to read the terminal now."""
        return self._terminal >= 0 and _in_foreground(self._terminal)

    @property
    def wanted(self) -> list[int]:
        """The descriptor to wait for; none while thread 0 has not read the last line.

        What it never reads is left to the shell, but for one line.
        """
        return [self._terminal] if self.waiting and not _unread(self._pipe) else []

    def relay(self) -> None:
        """Pass a line on, if there is one."""
        if not self.wanted or not select.select([self._terminal], [], [], 0)[0]:
            return
        data = _read_unless_stopped(self._terminal)
        if data is None:
            return
        with contextlib.suppress(BrokenPipeError):
            if data and os.write(self._pipe, data):
                return
        self._close(self._pipe)
        self._terminal = -1

    def handed_over(self) -> None:
        """Give up the reading end: a write then fails when thread 0 has closed its own."""
        if self._terminal >= 0:
            self._close(self.descriptor)

    def close(self) -> None:
        """Close what was opened here."""
        for descriptor in list(self._opened):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._opened:
            self._opened.remove(descriptor)
            os.close(descriptor)


def _controls_us(descriptor: int) -> bool:
    """Return whether this is the terminal from which signals come and which others may own."""
    try:
        return os.isatty(descriptor) and os.tcgetpgrp(descriptor) >= 0
    except OSError:
        return False


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False


def _unread(pipe: int) -> int:
    """Return how many bytes are in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def _read_unless_stopped(terminal: int) -> bytes | None:
    """Read a line; None if the terminal belongs to others since, who would have us stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTIN])
    try:
        return os.read(terminal, _LINE)
    except InterruptedError:
        return None
    except OSError:  # EIO: in the background, or the terminal has gone
        return None if _controls_us(terminal) else b""
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class JobControl:
    """Pass the signals that this process gets on to the job, while active.

    Attributes
    ----------
    received : int
        The first of the signals that end a job, or 0.
    since : float
        When it came.
    hurry : bool
        Whether it came again: the job is to be killed at once.
    stopped : float
        Seconds that this process and the job were stopped by Ctrl-Z.
    """

    def __init__(self, threads: LocalThreads, active: bool) -> None:
        self.launcher: subprocess.Popen[bytes] | None = None
        self.threads = threads
        self.active = active and threading.current_thread() is threading.main_thread()
        self.received = 0
        self.since = 0.0
        self.hurry = False
        self.stopped = 0.0
        self._last: dict[int, float] = {}
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> JobControl:
        if self.active:
            handlers = {
                **dict.fromkeys(ENDING, self._end),
                **dict.fromkeys(PASSED, self._pass),
                signal.SIGTSTP: self._stop,
                signal.SIGCONT: self._continue,
            }
            for number, handler in handlers.items():
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
                    self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def started(self, launcher: subprocess.Popen[bytes]) -> None:
        """Pass signals on to this launcher and its threads, also one that has come already."""
        self.launcher = launcher
        if self.received:
            self._send(self.received)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        again = number in self._last
        if again and now - self._last[number] < AGAIN:
            return
        self._last[number] = now
        if again:
            self.hurry = True
            return
        if not self.received:
            self.received, self.since = number, now
            self.threads.ending = True
        self._send(number)

    def _pass(self, number: int, _frame: FrameType | None) -> None:
        self._send(number)

    def _send(self, number: int) -> None:
        """Signal the threads, or the launcher if some are elsewhere or have not started.

        Directly, since launchers make another signal of it, or kill the threads a second later.
        """
        if number == signal.SIGHUP:  # UCX, below either MPI, takes it for itself and goes on
            number = signal.SIGTERM
        if self.threads.all_here:
            self.threads.signal(number, groups=number in _TO_GROUPS)
            return
        # hydra dies of SIGQUIT without ending its threads.
        sent = signal.SIGTERM if number == signal.SIGQUIT else number
        if self.launcher is not None:
            with contextlib.suppress(ProcessLookupError):
                self.launcher.send_signal(sent)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """Stop the threads, then this process, until SIGCONT."""
        began = time.monotonic()
        self.threads.signal(signal.SIGSTOP, groups=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stop)
        self.threads.signal(signal.SIGCONT, groups=True)
        self.stopped += time.monotonic() - began

    def _continue(self, _number: int, _frame: FrameType | None) -> None:
        self.threads.signal(signal.SIGCONT, groups=True)
