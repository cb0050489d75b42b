"""`xupc run` as a process of its own, alone or under an interactive shell on a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support.launch import PROJECT, TEST_TAG, import_path, leftovers, mpi_family, shared_files
from support.polling import state
from support.speed import SLOW

from xupc.cli.mpi import clean_environment
from xupc.cli.processes import kill_tagged

__all__ = ["PATIENCE", "PROGRAM", "Running", "Shell", "running", "shell", "state", "wait_until"]

PATIENCE = 60.0 * SLOW  # seconds for what takes one on a machine that is not busy

PROGRAM = str(PROJECT / "tests/live/programs/noting_jobs.py")


def wait_until(
    condition: Callable[[], object], what: object = "", patience: float = PATIENCE
) -> None:
    """Poll until it holds; AssertionError, with what `what` returns, if that takes too long."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience:g} s: {what() if callable(what) else what}")
        time.sleep(0.02)


class Running:
    """A job and the notes of its threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tag = f"running-{os.getpid()}-{time.monotonic_ns()}"
        self.before = shared_files()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of `xupc run`."""
        assert self.process is not None
        return self.process.pid

    @property
    def environment(self) -> dict[str, str]:
        """The variables of `xupc run`."""
        found = {**clean_environment(os.environ, mpi_family()), TEST_TAG: self.tag}
        found["PYTHONPATH"] = import_path(PROJECT)
        found["XUPC_TEST_NOTES"] = str(self.folder / "notes")
        (self.folder / "tmp").mkdir(exist_ok=True)
        found["TMPDIR"] = str(self.folder / "tmp")
        return found

    def notes(self) -> list[str]:
        """Return the lines that threads have noted, each with the thread's number at its end."""
        with contextlib.suppress(OSError):
            return (self.folder / "notes").read_text().splitlines()
        return []

    def wait_for(self, *lines: str) -> None:
        """Wait until each of these lines has been noted."""
        wait_until(lambda: set(lines) <= set(self.notes()), lambda: f"{lines}: {self.said()}")

    def wait_for_count(self, word: str, count: int) -> None:
        """Wait until so many numbers have been noted with this first word."""
        wait_until(lambda: len(self.pids(word)) == count, self.said)

    def pids(self, word: str = "up") -> list[int]:
        """Return the numbers noted with this first word, by thread."""
        found = [line.split() for line in self.notes() if line.startswith(f"{word} ")]
        return [int(pid) for _, pid, _ in sorted(found, key=lambda words: int(words[2]))]

    def start(self, case: str, *arguments: str, n: int = 2, **popen: Any) -> None:
        """Start a case of programs/noting_jobs.py with `n` threads."""
        command = [sys.executable, "-m", "xupc", "run", "-n", str(n), PROGRAM, case]
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [*command, *arguments],
                env={**self.environment, **popen.pop("env", {})}, cwd=PROJECT,
                **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out,
                   "start_new_session": True, "preexec_fn": heed_signals, **popen},
            )  # fmt: skip

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait for the end of `xupc run` and return its status as Popen gives it."""
        assert self.process is not None
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.said()}") from None

    def said(self) -> str:
        """Return the job's output and notes."""
        out = self.folder / "out"
        text = out.read_text(errors="replace") if out.exists() else ""
        return "\n".join([text, "notes:", *self.notes()])

    def left(self, seconds: float) -> list[str]:
        """Return what is there after at most so long, on a machine that is not slow.

        Processes, files and folders count.
        """
        seconds *= SLOW
        end = time.monotonic() + seconds
        found = leftovers(self.tag, grace=seconds, files_before=self.before)
        while (folders := self._job_folders()) and time.monotonic() < end:
            time.sleep(0.05)
        return found + folders

    def _job_folders(self) -> list[str]:
        return [str(folder) for folder in (self.folder / "tmp").glob("xupc-job-*")]


def heed_signals() -> None:
    """Undo what a shell does to a job in the background."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Yield a job that is ended afterwards, whatever happens."""
    job = Running(folder)
    try:
        yield job
    finally:
        if job.process is not None:
            job.process.kill()
            job.process.wait()
        kill_tagged(TEST_TAG, job.tag)


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, job: Running) -> None:
        self.job = job
        self.screen = ""
        self.read_to = 0
        own = {"PS1": "ready> ", "PS2": "more> ", "HISTFILE": "", "TERM": "dumb"}
        environment = {**job.environment, **own}
        del environment[TEST_TAG]  # the shell itself is none of the job
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            heed_signals()
            os.chdir(PROJECT)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        self.expect("ready> ")

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self.terminal, f"{text}\n".encode())

    def press(self, key: str) -> None:
        """Press Ctrl and a key."""
        os.write(self.terminal, bytes([ord(key) & 31]))

    def expect(self, pattern: str, patience: float = PATIENCE) -> re.Match[str]:
        """Wait until the screen shows a pattern after what was expected last."""
        deadline = time.monotonic() + patience
        while (found := re.search(pattern, self.screen[self.read_to :])) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} on: {self.screen}\n{self.job.said()}"
            if select.select([self.terminal], [], [], left)[0]:
                self.screen += os.read(self.terminal, 65536).decode(errors="replace")
        self.read_to += found.end()
        return found

    def command(self, text: str) -> str:
        """Type a command that must be executed at once; return its output."""
        mark = time.monotonic_ns()
        self.type(f"{text}; echo done-$((1+{mark}))")
        began = self.read_to
        self.expect(f"done-{mark + 1}\r\n(?:.|\n)*?ready> ")
        return self.screen[began : self.read_to]

    def run(self, case: str, *, n: int = 2, before: str = "", after: str = "") -> None:
        """Type `xupc run` with a case, words before it and words after it."""
        self.type(f"{self.words(case, n, before)} {after}".strip())

    def words(self, case: str, n: int = 2, before: str = "") -> str:
        """Return the command that runs a case of programs/noting_jobs.py."""
        run = f"{sys.executable} -m xupc run -n {n} {PROGRAM} {case}"
        return f"{TEST_TAG}={self.job.tag} {before} {run}"


@contextlib.contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    """Yield a shell; it and the job are ended afterwards, whatever happens."""
    with running(folder) as job:
        bash = Shell(job)
        try:
            yield bash
        finally:
            os.kill(bash.pid, signal.SIGKILL)
            os.waitpid(bash.pid, 0)
            os.close(bash.terminal)


def words(lines: Sequence[str], first: str) -> list[str]:
    """Return the lines that have this first word, sorted."""
    return sorted(line for line in lines if line.split()[:1] == [first])
