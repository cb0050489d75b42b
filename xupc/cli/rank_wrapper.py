"""Runs one thread of a job as a child process and reports how it ended.

    python -I -S rank_wrapper.py program args...

Executed by the MPI launcher, once per thread, on Linux, as a plain file: it may import nothing but
the standard library. Why it exists: see `launcher.py`. It

1. asks the kernel to be killed with the launcher, and the program with it;
2. gives thread 0 the standard input of `xupc run`, and all others an empty one: what launchers
   give has no end for some threads, and takes no more than some MB;
3. runs the program with the launcher's descriptors and variables; of the descriptors it keeps that
   of hydra's PMI connection alone;
4. passes the launcher's signals on, but for SIGUSR1, by which hydra notifies survivors if the user
   chose its option -disable-auto-cleanup; `xupc run` sends its own signals to the program itself;
5. reports the start and the end to `xupc run`; an end that the launcher requested is a good one;
6. exits with the program's status, or with 128 + the signal that killed it. Where the program has
   not closed the PMI connection by MPI_Finalize, a child of this process keeps it open until the
   launcher ends. Hydra kills the other threads at once when it sees such a connection closed; with
   the option against that, it kills processes that the program spawns (docs/design/health.md).

The messages are described in `local_threads.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
from types import FrameType

PR_SET_PDEATHSIG = 1
CANNOT_EXECUTE = 127
PATIENCE = 10  # seconds that `xupc run` may take to read the messages of many threads
# Set by the launchers for each of their threads.
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
CONNECTION_VARIABLES = ("PMI_FD",)
HANDLED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Watch:
    """Run the child, and know whether its end was asked for."""

    def __init__(self, connection: int = 0) -> None:
        self.connection = connection  # the descriptor of hydra's PMI connection, 0 for none
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
        # Blocked until the child is known and has lost our handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        for number in HANDLED:
            signal.signal(number, self.on_signal)
        parent = os.getpid()
        self.child = os.fork()
        if self.child == 0:
            become(program, parent)
        with contextlib.suppress(OSError):  # the child does so, too: this one is not always first
            os.setpgid(self.child, self.child)
        close_all_but(self.connection)
        report(f"up {from_launcher(RANK_VARIABLES)} {from_launcher(SIZE_VARIABLES)} {self.child}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        _, status = os.waitpid(self.child, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code


def become(program: list[str], parent: int) -> None:
    """Turn this child into the program, with signals as the launcher left them."""
    try:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        # Launchers signal the whole process group: the program would get each signal twice.
        os.setpgid(0, 0)
        for number in {*HANDLED, signal.SIGPIPE, signal.SIGXFSZ}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        os.execvp(program[0], program)
    except OSError as error:
        print(f"xupc run: cannot execute {program[0]}: {error.strerror}", file=sys.stderr)
    finally:
        os._exit(CANNOT_EXECUTE)


def from_launcher(names: tuple[str, ...]) -> str:
    """Return the first of some variables that is set, or "0"."""
    return next((os.environ[name] for name in names if name in os.environ), "0")


def close_all_but(connection: int, *, begin: int = 3) -> None:
    """Close the descriptors of this process from `begin` on, but for a connection; 0 for none."""
    os.closerange(begin, connection or 4096)
    if connection:
        os.closerange(connection + 1, 4096)


def pmi_connection() -> int:
    """Return the descriptor of hydra's PMI connection, 0 if this launcher has given none."""
    with contextlib.suppress(ValueError, OSError):
        number = int(from_launcher(CONNECTION_VARIABLES))
        if number > 2:
            os.fstat(number)
            return number
    return 0


def keep_open(connection: int) -> None:
    """Leave a process that keeps a connection open until the launcher closes its end."""
    end = select.poll()
    end.register(connection, 0)  # a closed end is always reported
    if end.poll(0):
        return
    with contextlib.suppress(OSError):  # no process can be had: hydra then kills the others
        if os.fork() == 0:
            try:
                for number in HANDLED:
                    signal.signal(number, signal.SIG_IGN)
                os.setsid()  # no signal for this thread's group reaches it
                close_all_but(connection, begin=0)
                end.poll()
            finally:
                os._exit(0)


def report(message: str) -> None:
    """Send a message to `xupc run`; it is no error if there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(PATIENCE)
        send(sender, message)


def send(sender: socket.socket, message: str) -> None:
    """Send a message; OSError if `xupc run` is on another machine, or has ended."""
    tag = os.environ.get("XUPC_JOB", "")
    if not tag:
        raise ConnectionRefusedError
    sender.sendto(message.encode(), f"\0xupc-job-{tag}")


def standard_input() -> int:
    """Return the descriptor of thread 0's standard input; OSError if `xupc run` is not there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind("")  # a name from the kernel, to which the answer goes
        ours.settimeout(PATIENCE)
        send(ours, "stdin")
        ours.settimeout(None)  # it may be stopped, and this process is killed with the job
        return socket.recv_fds(ours, 16, 1)[1][0]


def connect_input() -> None:
    """Give the program its standard input; the launcher's own stays where that is unknown."""
    with contextlib.suppress(OSError, IndexError):
        if int(from_launcher(RANK_VARIABLES)):
            source = os.open(os.devnull, os.O_RDONLY)
        else:
            source = standard_input()
        os.dup2(source, 0)
        os.close(source)


def main() -> None:
    die_with_parent()
    connect_input()
    watch = Watch(pmi_connection())
    words = [word[1:] if word.strip("\\") == ":" and word != ":" else word for word in sys.argv[1:]]
    status = watch.run(words)
    report(f"{from_launcher(RANK_VARIABLES)} {0 if watch.asked else status}")
    sys.stdout.flush()
    if watch.connection:
        keep_open(watch.connection)
    os._exit(status)


if __name__ == "__main__":
    main()
