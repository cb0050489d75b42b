"""`xupc hang-report`: request the positions of a job's threads from outside the job.

The command finds a job by its control segments: nameless files that its threads keep open. A user
with permission to open them may request a report. The job's own threads answer, and forward the
request to its other machines.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import psutil

from xupc.health.control_layout import LAST, MAGIC
from xupc.health.control_segment import Control
from xupc.health.stack_report import Gathering, report_text
from xupc.pgas.segment import attach

from .common import EnvironmentProblem, examples
from .launcher import JOB_TAG

__all__ = ["hang_report_command", "report_of"]

_AT_ONCE = (
    "a program for mpi4py starts it at once with `xupc run --mpi --timeout SECONDS`, otherwise "
    "after some calls"
)
_PROC = Path("/proc")


@dataclass
class Machine:
    """Hold a control segment on this machine, and the processes that have it open."""

    path: str
    nbytes: int
    pids: list[int] = field(default_factory=list)

    def open(self) -> Control:
        """Map the segment; raise ValueError or OSError if that is impossible."""
        return Control.of_other(attach(self.path, self.nbytes))


@dataclass
class Job:
    """Hold the part of a job on this machine; several of its machines if they are emulated."""

    number: int
    machines: list[Control]
    pids: set[int]

    @property
    def tag(self) -> str:
        """The job's ``XUPC_JOB``, or ""."""
        return next(filter(None, map(_tag_of, sorted(self.pids))), "")

    @property
    def threads(self) -> int:
        """The number of threads, those on other machines included."""
        return int(self.machines[0].head["total"][0])

    @property
    def first(self) -> int:
        """The process id of the job's lowest thread on this machine."""
        control = self.machines[0]
        return min((control.who(i)[1], control.who(i)[0]) for i in range(control.threads))[1]


def jobs() -> list[Job]:
    """Return the jobs that have threads on this machine and that this user may ask."""
    found: dict[int, Job] = {}
    for machine in _segments():
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            control = machine.open()
            number = int(control.head["job"][0])
            job = found.setdefault(number, Job(number, [], set()))
            job.machines.append(control)
            job.pids |= set(machine.pids)
    for job in found.values():
        job.machines.sort(key=lambda control: control.machine)
    return sorted(found.values(), key=lambda job: job.first)


def _segments() -> list[Machine]:
    """Return control segments of living processes."""
    found: dict[tuple[int, int], Machine] = {}
    for pid, path, status in _open_files():
        key = status.st_dev, status.st_ino
        if key not in found:
            with contextlib.suppress(OSError):
                if not _is_control(path):
                    continue
                found[key] = Machine(path, status.st_size)
        if key in found and pid not in found[key].pids:
            found[key].pids.append(pid)
    return list(found.values())


def _open_files() -> Iterator[tuple[int, str, os.stat_result]]:
    """Yield nameless files that are open anywhere: (pid, path, status)."""
    for process in _PROC.iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            for entry in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if not os.readlink(entry).endswith(" (deleted)"):
                        continue
                    status = os.stat(entry)
                    if stat.S_ISREG(status.st_mode) and status.st_size > 4096:
                        yield int(process.name), str(entry), status


def _is_control(path: str) -> bool:
    with open(path, "rb", buffering=0) as file:
        return file.read(8) == MAGIC.to_bytes(8, sys.byteorder)


# What has ended meanwhile, or is not for us to see, is nothing known.
_UNKNOWN = (psutil.Error, OSError)


def _tag_of(pid: int) -> str:
    with contextlib.suppress(*_UNKNOWN):
        return psutil.Process(pid).environ().get(JOB_TAG, "")
    return ""


def _program_of(pid: int) -> str:
    with contextlib.suppress(*_UNKNOWN):
        words = psutil.Process(pid).cmdline()
        return " ".join(words[1:4] or words)
    return "?"


def choose(found: Sequence[Job], wanted: str) -> list[Job]:
    """Return the jobs that a process id, or a tag or the beginning of one, stands for."""
    alike = [job for job in found if job.tag == wanted]
    if not alike and re.fullmatch("[0-9]{1,18}", wanted):
        pid = int(wanted)
        alike = [job for job in found if pid in job.pids]
        alike = alike or [j for j in found if any(pid in _ancestors(p) for p in j.pids)]
    if not alike and len(wanted) >= 4:
        alike = [job for job in found if job.tag.startswith(wanted)]
    return alike


def report_of(tag: str) -> str:
    """Return where the threads of a job are, by its ``XUPC_JOB``; "" if xupc has not started."""
    with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
        for job in jobs():
            if job.tag == tag:
                gathering = Gathering(job.machines[0])
                gathering.wait()
                return report_text(gathering.groups())
    return ""


def _ancestors(pid: int) -> list[int]:
    """Return a process's parent, its parent, and so on."""
    with contextlib.suppress(*_UNKNOWN):
        return [parent.pid for parent in psutil.Process(pid).parents()]
    return []


@click.command(
    "hang-report", epilog=examples("xupc hang-report", "xupc hang-report 12345 --calls 8")
)
@click.option(
    "--calls",
    type=click.IntRange(0, LAST),
    default=0,
    metavar="N",
    help="Also show the last N calls of every thread on this machine.",
)
@click.argument("job", required=False)
def hang_report_command(calls: int, job: str | None) -> None:
    """Show where the threads of a running job are, without disturbing it.

    JOB is the process id of its launcher or of any of its threads, or its XUPC_JOB. Without JOB,
    list your jobs on this machine.

    For every place: the threads, the call and its number, the Python line, and for how long. A
    thread that does not answer within a second is stopped or in C code; what can be seen of it
    from outside is shown. Threads on other machines answer through those on this one.

    `kill -USR2` to any thread has the job itself print the same.

    Exits with 2 if there is no such job.
    """
    if not (_PROC / "self/fd").exists():
        raise EnvironmentProblem("processes can be looked up on Linux only")
    found = jobs()
    if job is None:
        for each in found:
            click.echo(_line(each))
        if not found:
            click.echo(f"no job on this machine that you may ask has started xupc; {_AT_ONCE}")
        return
    alike = choose(found, job)
    if len(alike) != 1:
        several = "; ".join(str(each.first) for each in alike)
        none = f"there is no job {job} on this machine whose threads have started xupc; {_AT_ONCE}"
        raise click.UsageError(f"{job} may be any of the jobs {several}" if alike else none)
    _report(alike[0], calls)


def _line(job: Job) -> str:
    tag = f", {JOB_TAG} {job.tag}" if job.tag else ""
    return f"{job.first}: {job.threads} threads, {_program_of(job.first)}{tag}"


def _report(job: Job, calls: int) -> None:
    gathering = Gathering(job.machines[0])
    gathering.wait()
    click.echo(f"{_line(job)}; {time.strftime('%H:%M:%S')}")
    click.echo(report_text(gathering.groups()))
    if calls:
        for control in job.machines:
            for index in range(control.threads):
                _show_calls(control, index, calls)


def _show_calls(control: Control, index: int, most: int) -> None:
    """Print the last calls of a thread, the latest one last."""
    now = time.monotonic_ns()
    _, thread, _ = control.who(index)
    click.echo(f"thread {thread}:")
    for call in control.calls_of(index)[-most:]:
        ago = f"began {(now - call.began) * 1e-9:.3f} s ago"
        took = f"took {(call.ended - call.began) * 1e-9:.3f} s" if call.ended else "under way"
        click.echo(f"  {call.name}, {ago}, {took}")
