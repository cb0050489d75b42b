"""Starting a job of threads and ending it whole.

Used by the command line, the tests and the benchmarks. `job_command` and `job_environment` are
pure: what to execute, with which variables. `run_job` executes it, passes signals on, and leaves
nothing running behind.

What `run_job` finds out by itself, because the launchers do not say it: hydra merges the threads'
exit codes bit by bit, and prterun reports success when a thread was killed by a signal
(``--enable-recovery``). So each thread is started by `watch.py`, which tells `run_job` how it
ended. The first to fail gives the job's status.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from .mpi import LaunchError, Mpi, clean_environment
from .processes import kill_tagged, tagged

__all__ = [
    "EXIT_ENVIRONMENT",
    "EXIT_TIMEOUT",
    "EXIT_USAGE",
    "EXIT_WRONG",
    "JOB_TAG",
    "Failure",
    "Outcome",
    "describe_status",
    "job_command",
    "job_environment",
    "launcher_options",
    "run_job",
    "thread_command",
]

EXIT_WRONG, EXIT_USAGE, EXIT_TIMEOUT, EXIT_ENVIRONMENT = 1, 2, 3, 4

JOB_TAG = "XUPC_JOB"
GRACE = 5.0  # seconds that a job which is ending anyway is given to end by itself
FAILED_GRACE = 3.5  # seconds from the first failed thread to the end of the others

# Where prterun keeps its session directory, ompi.PID, by default in TMPDIR. One that was killed
# leaves it there, and the next prterun with that process id then refuses to start.
SESSIONS = "PRTE_MCA_prte_local_tmpdir_base"

_WATCH = Path(__file__).with_name("watch.py")
_POLL = 0.02
_PR_SET_PDEATHSIG = 1


# --- what to execute ------------------------------------------------------------------------------


def launcher_options(family: str, extra: Sequence[str] = (), *, recover: bool = True) -> list[str]:
    """Return the options that every job needs with this family's launcher.

    Parameters
    ----------
    family : str
        As in `Mpi`.
    extra : sequence of str
        The user's own launcher options; ours that contradict them are left out.
    recover : bool
        Let the other threads live when one dies: xupc itself then reports which one it was, and
        ends the job.
    """
    options: list[str] = []
    if family in ("mpich", "intelmpi"):
        if recover and family == "mpich":
            options.append("-disable-auto-cleanup")
    elif family == "openmpi":
        if recover:
            options.append("--enable-recovery")
        if not {"--map-by", "--oversubscribe"} & set(extra):
            options.append("--oversubscribe")
        if "--bind-to" not in extra:  # a thread bound to one core could use no other
            options += ["--bind-to", "none"]
    return [*options, *extra]


def thread_command(program: Sequence[str], *, python: str | None = None) -> list[str]:
    """Return what runs one thread of a job: `watch.py` where it can work, and `program`."""
    if sys.platform != "linux":
        return list(program)
    # -I -S: the watcher needs the standard library alone, and starts in half the time. A colon
    # alone separates programs for mpiexec: it travels with a backslash, and the watcher removes it.
    words = [f"\\{word}" if re.fullmatch(r"\\*:", word) else word for word in program]
    return [python or sys.executable, "-I", "-S", str(_WATCH), *words]


def job_command(
    mpi: Mpi,
    threads: int,
    program: Sequence[str],
    *,
    extra: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    recover: bool = True,
) -> list[str]:
    """Return the command that runs `program` as `threads` threads.

    Parameters
    ----------
    mpi : Mpi
        From `find_mpi`.
    threads : int
        Number of threads.
    program : sequence of str
        What each thread executes, usually from `thread_command`.
    extra : sequence of str
        More options for the launcher.
    environment : mapping, optional
        The job's environment. Open MPI passes no variables of ours on to other machines by itself,
        so their names are put on its command line.
    recover : bool
        As for `launcher_options`; False is what a plain ``mpiexec`` does.
    """
    options = launcher_options(mpi.family, extra, recover=recover)
    if mpi.family == "openmpi":
        for name in sorted(environment or ()):
            if name.startswith("XUPC_"):
                options += ["-x", name]
    return [str(mpi.mpiexec), *options, "-n", str(threads), *program]


def job_environment(
    base: Mapping[str, str],
    family: str,
    *,
    tag: str,
    nodes: str | None = None,
    timeout: float | None = None,
) -> dict[str, str]:
    """Return `base` with what a job needs.

    Parameters
    ----------
    base : mapping
        Usually ``os.environ``.
    family : str
        As in `Mpi`.
    tag : str
        Value of ``XUPC_JOB``, by which all processes of the job can be found.
    nodes : str, optional
        ``XUPC_NODES``.
    timeout : float, optional
        ``XUPC_TIMEOUT``, in seconds.
    """
    environment = clean_environment(base, family)
    environment[JOB_TAG] = tag
    if nodes is not None:
        environment["XUPC_NODES"] = nodes
    if timeout is not None:
        environment["XUPC_TIMEOUT"] = f"{timeout:g}"
    return environment


# --- running a job --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A thread that ended with another status than 0, as a shell counts: 128 + signal."""

    thread: int
    status: int

    def __str__(self) -> str:
        return f"thread {self.thread} {describe_status(self.status)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Attributes
    ----------
    status : int
        The job's exit status: that of the first thread to fail; 3 if its time was up; 128 + signal
        if a signal to us ended it; 1 if all ended well but left processes behind.
    launcher_status : int
        What the launcher itself said.
    failures : tuple of Failure
        The threads that failed, in order of time; known on this machine only.
    survivors : int
        Processes that did not end by themselves and were killed.
    timed_out : bool
        Whether the time limit ended it.
    interrupted : int
        The signal that ended it, or 0.
    seconds : float
        How long it ran.
    """

    status: int
    launcher_status: int = 0
    failures: tuple[Failure, ...] = ()
    survivors: int = 0
    timed_out: bool = False
    interrupted: int = 0
    seconds: float = 0.0

    def explain(self, time_limit: float | None = None) -> str:
        """Return one line about what went wrong, or "" if nothing did."""
        parts = []
        if self.timed_out:
            parts.append(f"not finished after {time_limit:g} s" if time_limit else "time is up")
        elif self.interrupted:
            parts.append(f"ended by {signal.Signals(self.interrupted).name}")
        if self.failures:
            first = self.failures[0]
            more = len(self.failures) - 1
            others = f"; {more} other thread{'s'[: more != 1]} failed after it" if more else ""
            parts.append(f"{first}{others}")
        elif self.status and not parts and not self.survivors:
            parts.append(f"the job {describe_status(self.status)}")
        if self.survivors:
            processes = "process" if self.survivors == 1 else "processes"
            parts.append(f"{self.survivors} {processes} still running had to be killed")
        return "; ".join(parts)


def describe_status(status: int) -> str:
    """Return an exit status in words; above 128 it counts as 128 + signal, as in a shell."""
    if status > 128:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(status - 128).name}"
    return f"exited with status {status}"


class _Reports:
    """The socket on which `watch.py` says how threads ended.

    Its name is in Linux's abstract namespace, derived from the job's tag: nothing is left behind,
    whatever happens. Elsewhere, and from other machines, there are no reports, and the launcher's
    own status must do.
    """

    def __init__(self, tag: str) -> None:
        self.failures: list[Failure] = []
        self.socket: socket.socket | None = None
        if sys.platform == "linux":
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.bind(f"\0xupc-job-{tag}")
            self.socket.setblocking(False)

    def drain(self) -> None:
        while self.socket is not None:
            try:
                thread, status = self.socket.recv(64).split()
                self.failures.append(Failure(int(thread), int(status)))
            except BlockingIOError:
                return
            except ValueError:
                continue

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


class _Forwarder:
    """While active, passes SIGINT, SIGTERM and SIGHUP on to the launcher; remembers the first."""

    def __init__(self, launcher: subprocess.Popen[bytes], active: bool) -> None:
        self.launcher = launcher
        self.active = active and threading.current_thread() is threading.main_thread()
        self.received = 0
        self.since = 0.0
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> _Forwarder:
        if self.active:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
                    self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        if not self.received:
            self.received, self.since = number, time.monotonic()
        # hydra dies of SIGHUP without ending its threads.
        sent = signal.SIGTERM if number == signal.SIGHUP else number
        with contextlib.suppress(ProcessLookupError):
            self.launcher.send_signal(sent)


def run_job(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    time_limit: float | None = None,
    forward: bool = False,
    watched: bool = True,
    tag_name: str = JOB_TAG,
    stdin: IO[bytes] | int | None = None,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
    cwd: Path | str | None = None,
    grace: float = GRACE,
    failed_grace: float = FAILED_GRACE,
) -> Outcome:
    """Execute a job and wait for its end; afterwards no process of it is left.

    Parameters
    ----------
    command, environment
        From `job_command` and `job_environment`.
    time_limit : float, optional
        Seconds after which the whole job is killed.
    forward : bool
        Pass SIGINT, SIGTERM and SIGHUP on to the job; after `grace` seconds it is killed.
    watched : bool
        The threads run under `watch.py` and report how they ended. When one has failed, the others
        have `failed_grace` seconds to notice: one that never reached MPI's start would leave them
        waiting in there for good.
    tag_name : str
        The variable in `environment` by which all processes of the job are known.
    stdin, stdout, stderr, cwd
        As for `subprocess.Popen`. With pipes the caller would have to read them meanwhile: give
        files.
    grace : float
        Seconds for processes that are left when the launcher has ended.

    Raises
    ------
    LaunchError
        The launcher cannot be executed.
    """
    tag = environment[tag_name]
    reports = _Reports(tag if watched else uuid.uuid4().hex)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(reports.close)
        environment = stack.enter_context(_with_sessions(command, environment))
        try:
            # A session of its own: a terminal's Ctrl-C then reaches the launcher once, through us.
            launcher = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            raise LaunchError(f"cannot execute {command[0]}: {error.strerror}") from None
        with _Forwarder(launcher, forward) as forwarder:
            timed_out = not _wait(
                launcher, reports, forwarder, began, time_limit, grace, failed_grace
            )
            survivors = _end(launcher, tag_name, tag, 0.0 if timed_out else grace)
        reports.drain()
    code = launcher.returncode
    said = code if code >= 0 else 128 - code
    timed_out = timed_out and not forwarder.received and not reports.failures
    if timed_out:
        status = EXIT_TIMEOUT
    elif forwarder.received:
        status = 128 + forwarder.received
    elif reports.failures:
        status = reports.failures[0].status
    else:
        status = said or (EXIT_WRONG if survivors else 0)
    return Outcome(
        status=status,
        launcher_status=said,
        failures=tuple(reports.failures),
        survivors=survivors,
        timed_out=timed_out,
        interrupted=forwarder.received,
        seconds=time.monotonic() - began,
    )


@contextlib.contextmanager
def _with_sessions(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """The environment with a place of its own for the launcher's files, or with the user's own."""
    chosen = [*(name for name in environment if name.startswith("PRTE_MCA_")), *command]
    if any(name.endswith("tmpdir_base") for name in chosen):
        yield environment
        return
    base = environment.get("TMPDIR") or None
    try:
        directory = tempfile.TemporaryDirectory(
            prefix="xupc-job-", dir=base, ignore_cleanup_errors=True
        )
    except OSError:  # no space, or no such place: the launcher may still find one
        yield environment
        return
    with directory:
        yield {**environment, SESSIONS: directory.name}


def _die_with_parent() -> None:
    """Have the kernel end the launcher, and so the job, when this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(
    launcher: subprocess.Popen[bytes],
    reports: _Reports,
    forwarder: _Forwarder,
    began: float,
    time_limit: float | None,
    grace: float,
    failed_grace: float,
) -> bool:
    """Wait for the launcher's end; False if its time is up: ours, or after a signal or failure."""
    failed_since = 0.0
    with contextlib.ExitStack() as stack:
        watched: list[int | socket.socket] = []
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(launcher.pid)
                stack.callback(os.close, pidfd)
                watched.append(pidfd)
        patience = 0.2 if watched else _POLL
        if reports.socket is not None:
            watched.append(reports.socket)
        while launcher.poll() is None:
            now = time.monotonic()
            if reports.failures and not failed_since:
                failed_since = now
            if (
                (time_limit is not None and now - began > time_limit)
                or (forwarder.received and now - forwarder.since > grace)
                or (failed_since and now - failed_since > failed_grace)
            ):
                return False
            select.select(watched, [], [], patience)
            reports.drain()
    return True


def _end(launcher: subprocess.Popen[bytes], tag_name: str, tag: str, grace: float) -> int:
    """Give what is left of the job `grace` seconds, then kill it; return how many were killed."""
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and tagged(tag_name, tag):
        time.sleep(_POLL)
    killed = kill_tagged(tag_name, tag)
    launcher.wait()
    return len(killed)
