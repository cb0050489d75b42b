"""Starting a job of threads and ending it whole.

Used by the command line, the tests and the benchmarks. `job_command` and `job_environment` are
pure: what to execute, with which variables. `run_job` executes it, passes signals on, and leaves
nothing running behind.

What `run_job` finds out by itself, because the launchers do not say it: hydra merges the threads'
exit codes bit by bit, and prterun reports success when a thread was killed by a signal
(``--enable-recovery``). So each thread is started by `rank_wrapper.py`, which reports to `run_job`
how it ended. The first to fail gives the job's status.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..topology import host
from .batch import local_settings, obstacle
from .binding import count_options, yield_options
from .diagnostics import MPI_SHM, mpi_shortage
from .local_threads import Failure, LocalThreads
from .mpi import LaunchError, Mpi, clean_environment
from .outcome import Outcome
from .processes import Keeper, kill_tagged, tagged
from .terminal import JobControl, StandardInput
from .thread_errors import descriptor_of

__all__ = [
    "EXIT_ENVIRONMENT",
    "EXIT_TIMEOUT",
    "EXIT_USAGE",
    "EXIT_WRONG",
    "JOB_TAG",
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

_WATCH = Path(__file__).with_name("rank_wrapper.py")
_OF_MEMORY = (128 + signal.SIGBUS, 128 + signal.SIGSEGV)  # of a thread that found no page
_POLL = 0.02
_READING = 0.05  # seconds between looks whether thread 0 has read the last line
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
        ends the job. MPICH's launcher needs no option for it: `rank_wrapper.py` sees to it.
    """
    options: list[str] = []
    if family == "openmpi":
        if recover:
            options.append("--enable-recovery")
        if not {"--map-by", "--oversubscribe"} & set(extra):
            options.append("--oversubscribe")
        if "--bind-to" not in extra:  # a thread bound to one core could use no other
            options += ["--bind-to", "none"]
    return [*options, *extra]


def thread_command(program: Sequence[str], *, python: str | None = None) -> list[str]:
    """Return what runs one thread of a job: `rank_wrapper.py` where it can work, and `program`."""
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

    Raises
    ------
    LaunchError
        A batch system's variables are set whose tools are not here.
    """
    if why_not := obstacle(environment or {}, mpi.family, extra):
        raise LaunchError(why_not)
    watched = recover and str(_WATCH) in program
    counts = count_options(mpi.family, mpi.version, environment or {}, extra) if watched else []
    extra = [*counts, *yield_options(mpi.family, threads, environment or {}, extra), *extra]
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
    trace: Path | None = None,
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
    trace : Path, optional
        ``XUPC_TRACE``.
    """
    environment = clean_environment(base, family)
    environment |= local_settings(environment, family)
    environment[JOB_TAG] = tag
    if nodes is not None:
        environment["XUPC_NODES"] = nodes
    if timeout is not None:
        environment["XUPC_TIMEOUT"] = f"{timeout:g}"
    if trace is not None:
        environment["XUPC_TRACE"] = str(trace.absolute())
    return environment


# --- running a job --------------------------------------------------------------------------------


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
        Pass signals on to the job. `grace` seconds after SIGINT, SIGTERM, SIGHUP or SIGQUIT it is
        killed, or at once if the signal comes again; it stops and goes on with this process.
    watched : bool
        The threads run under `rank_wrapper.py` and report how they ended. When one has failed, the
        others have `failed_grace` seconds to notice: one that never reached MPI's start would leave
        them waiting in there for good.
    tag_name : str
        The variable in `environment` by which all processes of the job are known.
    stdin
        What thread 0 of a watched job reads, None for nothing; else as for `subprocess.Popen`.
    stdout, stderr, cwd
        As for `subprocess.Popen`. With pipes the caller would have to read them meanwhile: give
        files.
    grace : float
        Seconds for processes that are left when the launcher has ended.

    Raises
    ------
    LaunchError
        The launcher cannot be executed.
    """
    job = _Job(tag_name, environment[tag_name], time_limit, grace, failed_grace)
    streams = _Streams(stdin, stdout, stderr, cwd)
    return _run(command, environment, job, streams, forward=forward, watched=watched)


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    job: _Job,
    streams: _Streams,
    *,
    forward: bool,
    watched: bool,
) -> Outcome:
    """Execute a job; the arguments are those of `run_job`."""
    began, free = time.monotonic(), host.free_shared_memory(MPI_SHM)
    with contextlib.ExitStack() as stack:
        source = StandardInput(streams.stdin if watched else None)
        stack.callback(source.close)
        tag = job.tag if watched else uuid.uuid4().hex
        printed = descriptor_of(streams.stderr, streams.stdout)
        threads = LocalThreads(tag, source.descriptor, printed)
        stack.callback(threads.close)
        # Until the folder is removed: a signal that comes again while that happens must not end it.
        control = stack.enter_context(JobControl(threads, forward))
        folder = _sessions_folder(command, environment)
        # Before the folder is made: a SIGKILL would leave one that the keeper does not know.
        keeper = stack.enter_context(Keeper(job.tag_name, job.tag, folder, environment))
        environment = stack.enter_context(_with_sessions(folder, environment))
        launcher = _start(
            command,
            environment,
            stdin=subprocess.DEVNULL if watched else streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            cwd=streams.cwd,
        )
        control.started(launcher)
        timed_out = not _wait(launcher, threads, source, control, job)
        killed = _end(launcher, job, 0.0 if timed_out else job.grace)
        threads.drain()
        threads.errors.print(all_there_are=True)
        keeper.done()
    timed_out = timed_out and not control.received and not threads.failures
    code = launcher.returncode
    said = code if code >= 0 else 128 - code
    status = _status_of(said, len(killed), timed_out, control.received, threads.failures)
    return Outcome(
        status=status,
        launcher_status=said,
        failures=tuple(threads.failures),
        survivors=len(killed),
        killed=threads.count_of(killed),
        timed_out=timed_out,
        interrupted=control.received,
        first_error=threads.errors.first,
        shortage=mpi_shortage(free, threads.total) if status in _OF_MEMORY else "",
        seconds=time.monotonic() - began,
    )


def _status_of(
    said: int, survivors: int, timed_out: bool, received: int, failures: Sequence[Failure]
) -> int:
    """Return the status of a job: of its time limit, a signal, a thread, or its launcher."""
    if timed_out:
        return EXIT_TIMEOUT
    if received:
        return 128 + received
    if failures:
        return failures[0].status
    return said or (EXIT_WRONG if survivors else 0)


@dataclass(frozen=True, slots=True)
class _Streams:
    """Hold the standard streams and the folder of a job; as for `run_job`."""

    stdin: IO[bytes] | int | None
    stdout: IO[bytes] | int | None
    stderr: IO[bytes] | int | None
    cwd: Path | str | None


@dataclass(frozen=True, slots=True)
class _Job:
    """Hold what marks a job, and its times; as for `run_job`."""

    tag_name: str
    tag: str
    time_limit: float | None
    grace: float
    failed_grace: float
    began: float = field(default_factory=time.monotonic)

    def is_over(self, control: JobControl, failed_since: float) -> bool:
        """Return whether its time is up: ours, or after a signal or failure."""
        now = time.monotonic()
        ran = now - self.began - control.stopped
        return (
            control.hurry
            or (self.time_limit is not None and ran > self.time_limit)
            or (control.received > 0 and now - control.since > self.grace)
            or (failed_since > 0 and now - failed_since > self.failed_grace)
        )


def _start(
    command: Sequence[str], environment: Mapping[str, str], **streams: Any
) -> subprocess.Popen[bytes]:
    """Execute the launcher, in a session of its own: the terminal belongs to this process."""
    try:
        return subprocess.Popen(
            command,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            **streams,
        )
    except OSError as error:
        raise LaunchError(f"cannot execute {command[0]}: {error.strerror}") from None


def _sessions_folder(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return where the launcher's own files shall go, "" if the user has chosen a place."""
    chosen = [*(name for name in environment if name.startswith("PRTE_MCA_")), *command]
    if any(name.endswith("tmpdir_base") for name in chosen):
        return ""
    base = environment.get("TMPDIR") or tempfile.gettempdir()
    return str(Path(base).absolute() / f"xupc-job-{uuid.uuid4().hex[:12]}")


@contextlib.contextmanager
def _with_sessions(folder: str, environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Make the folder for the launcher's own files; yield the environment that names it."""
    try:
        if folder:
            Path(folder).mkdir(mode=0o700)
    except OSError:  # no space, or no such place: the launcher may still find one
        folder = ""
    if not folder:
        yield environment
        return
    try:
        yield {**environment, SESSIONS: folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _die_with_parent() -> None:
    """Have the kernel end the launcher, and so the job, when this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(
    launcher: subprocess.Popen[bytes],
    threads: LocalThreads,
    source: StandardInput,
    control: JobControl,
    job: _Job,
) -> bool:
    """Wait for the launcher's end; False if the job's time is up."""
    failed_since = 0.0
    with contextlib.ExitStack() as stack:
        watched: list[int | socket.socket] = []
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(launcher.pid)
                stack.callback(os.close, pidfd)
                watched.append(pidfd)
        patience = 0.2 if watched else _POLL
        if threads.socket is not None:
            watched.append(threads.socket)
        while launcher.poll() is None:
            if threads.failures and not failed_since:
                failed_since = time.monotonic()
            if job.is_over(control, failed_since):
                return False
            reading = threads.stdin_given and source.waiting
            terminal = source.wanted if reading else []
            select.select([*watched, *terminal], [], [], _READING if reading else patience)
            threads.drain()
            threads.errors.print()
            if threads.stdin_given:
                source.handed_over()
                source.relay()
    return True


def _end(launcher: subprocess.Popen[bytes], job: _Job, grace: float) -> list[int]:
    """Give what is left of the job `grace` seconds, then kill it; return the ids of the killed."""
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and tagged(job.tag_name, job.tag):
        time.sleep(_POLL)
    killed = kill_tagged(job.tag_name, job.tag)
    launcher.wait()
    return killed
