"""Runs one thread of a job as a child process and reports how it ended.

    python -I -S watch.py program args...

Executed by the MPI launcher, once per thread, on Linux, as a plain file: it may import nothing but
the standard library. Why it exists: see `launcher.py`. It

1. asks the kernel to be killed with the launcher, and the program with it;
2. runs the program with the launcher's descriptors and variables, keeping none of the descriptors:
   the launcher takes a closed PMI connection for the thread's end;
3. passes signals on, but for SIGUSR1, which hydra sends to survivors when a thread has died;
4. tells `xupc run` about a failure, unless the launcher had asked for the end, and exits with the
   program's status, or with 128 + the signal that killed it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1
CANNOT_EXECUTE = 127
# Set by the launchers for each of their threads.
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Watch:
    """The child, and whether its end was asked for."""

    def __init__(self) -> None:
        self.child = 0
        self.asked = False

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            return
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.asked = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, number)

    def run(self, program: list[str]) -> int:
        """Run the program and return its status."""
        handled = {
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGUSR1,
            signal.SIGUSR2,
        }
        # Blocked until the child is known and has lost our handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        for number in handled:
            signal.signal(number, self.on_signal)
        parent = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            become(program, parent, handled)
        os.closerange(3, 4096)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        _, status = os.waitpid(self.child, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code


def become(program: list[str], parent: int, handled: set[signal.Signals]) -> None:
    """In the child: turn into the program, with signals as the launcher left them."""
    try:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        # Launchers signal the whole process group: the program would get each signal twice.
        os.setpgid(0, 0)
        for number in {*handled, signal.SIGPIPE, signal.SIGXFSZ}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
        os.execvp(program[0], program)
    except OSError as error:
        print(f"xupc run: cannot execute {program[0]}: {error.strerror}", file=sys.stderr)
    finally:
        os._exit(CANNOT_EXECUTE)


def report(status: int) -> None:
    """Send "thread status" to `xupc run`; nobody listening is no error."""
    tag = os.environ.get("XUPC_JOB", "")
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    if not tag:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.sendto(f"{rank} {status}".encode(), f"\0xupc-job-{tag}")


def main() -> None:
    die_with_parent()
    watch = Watch()
    words = [word[1:] if word.strip("\\") == ":" and word != ":" else word for word in sys.argv[1:]]
    status = watch.run(words)
    if status and not watch.asked:
        report(status)
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
