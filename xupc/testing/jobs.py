"""Jobs of threads that run tests: start one, run a test in it, end it whole.

Each thread is a pytest of its own (`rank.py`) with a socket to this process, so a thread that dies
is seen at once. A job runs one test after the other until one fails: then it is replaced, since
its threads may be in different calls.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..cli.hang import report_of
from ..cli.launcher import JOB_TAG, job_command, job_environment, run_job, thread_command
from ..cli.mpi import find_mpi
from ..cli.outcome import Outcome
from ..cli.processes import kill_tagged
from .settings import FOLDER, Setting

__all__ = ["Job", "Run", "StartError"]

_START = 60.0  # seconds for all threads to collect their tests
_OTHERS = 3.0  # seconds from the first thread that fails to the end of the others
_END = 10.0  # seconds for an idle job to end
_WRITING = 2.0  # the most seconds after a time limit until threads have written their stacks
_WAIT = 0.6  # part of a test's time after which a wait in xupc raises HangError
_WHOLE = (" in <module>\n", "  ...\n")  # the last line of stacks, whole or cut by faulthandler
_MOST_OUTPUT = 100_000  # bytes of a thread's output that are shown
_LONGEST = 90  # characters of a folder's name; the address of a socket has 107
_RANK = Path(__file__).with_name("rank.py")


class StartError(Exception):
    """A job has not started; says why."""


@dataclass
class Run:
    """Hold what the threads of a job have reported about a test.

    Attributes
    ----------
    threads
        The number of threads.
    reports
        (thread, report) in order of time; a report as pytest makes it for a transfer.
    warnings
        Descriptions of warnings, of all threads.
    output
        What each thread has printed.
    missing
        Threads that did not end the test.
    why
        The reason why the test did not end on all threads; "" if it did.
    where
        The positions of the threads at that time; "" if unknown.
    launcher
        What the launcher has printed of a job that ended in the test, such as its threads' errors.
    """

    threads: int
    reports: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    launcher: str = ""
    why: str = ""
    where: str = ""

    @property
    def failed(self) -> bool:
        """Whether any thread failed, or did not end."""
        return bool(self.why) or any(r["outcome"] == "failed" for _, r in self.reports)


class Job:
    """A job of tests.

    Parameters
    ----------
    setting
        The threads, nodes and time limit.
    request
        What `rank.py` needs: "options", "files", "path" and "temporary".
    folder
        The working directory.
    """

    def __init__(self, setting: Setting, request: Mapping[str, Any], folder: Path) -> None:
        self.setting = setting
        self._tag = uuid.uuid4().hex
        self._outcome: Outcome | None = None
        self._error = ""
        self._folder = _private_folder()
        self._read = [0] * setting.threads
        self._ranks: list[Connection] = []
        (self._folder / "request").write_bytes(
            pickle.dumps({**request, "threads": setting.threads, "tag": self._tag})
        )
        try:
            self._open(folder)
        except BaseException:
            self.kill()
            raise

    # --- start and end ---------------------------------------------------------------------------

    def _open(self, folder: Path) -> None:
        deadline = time.monotonic() + _START
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._folder / "socket"))
            listener.listen(self.setting.threads)
            self._start(folder)
            came: dict[int, Connection] = {}
            while len(came) < self.setting.threads:
                connection = self._accept(listener, deadline)
                came[connection.recv()[1]] = connection
        self._ranks = [came[rank] for rank in sorted(came)]
        for rank, connection in enumerate(self._ranks):
            self._ready(rank, connection, deadline)
        self._output()  # of imports: shown only if the start fails

    def _start(self, folder: Path) -> None:
        """Start the job in a thread of Python's that waits for its end."""
        mpi, timeout = find_mpi(), _WAIT * self.setting.timeout
        environment = job_environment(
            os.environ, mpi.family, tag=self._tag, nodes=self.setting.nodes,
            timeout=None if "XUPC_TIMEOUT" in os.environ else timeout,
        )  # fmt: skip
        environment[FOLDER] = str(self._folder)
        command = job_command(
            mpi, self.setting.threads, thread_command([sys.executable, str(_RANK)]),
            environment=environment,
        )  # fmt: skip
        self._thread = threading.Thread(
            target=self._wait, args=(command, environment, folder), daemon=True
        )
        self._thread.start()

    def _wait(self, command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
        with (self._folder / "launcher").open("wb") as output:
            try:
                self._outcome = run_job(
                    command, environment, stdout=output, stderr=subprocess.STDOUT, cwd=folder
                )
            except Exception as error:
                self._error = str(error)
                self._outcome = Outcome(status=1)

    def _accept(self, listener: socket.socket, deadline: float) -> Connection:
        """Return the next thread's connection; StartError if the job ends before."""
        listener.settimeout(0.1)
        while self._outcome is None and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
        raise StartError(self._no_start("did not start"))

    def _ready(self, rank: int, connection: Connection, deadline: float) -> None:
        """Wait until a thread has collected its tests."""
        with contextlib.suppress(EOFError, OSError):
            while connection.poll(max(0.0, deadline - time.monotonic())):
                if connection.recv()[0] == "ready":
                    return
        raise StartError(self._no_start(f"thread {rank} collected no tests"))

    def _no_start(self, what: str) -> str:
        """Return why the job has not started, with all that it has printed."""
        self._end_threads()
        outcome = self._outcome
        why = self._error or (outcome.explain() if outcome is not None else "")
        texts = [f"the job of {self.setting.threads} threads: {what} within {_START:g} s", why]
        texts += [f"thread {i}: {text}" for i, text in enumerate(self._output()) if text]
        return "\n".join(text for text in [*texts, self._said()] if text)

    def close(self) -> str:
        """End an idle job; return what went wrong in that, or ""."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                rank.send(None)
        for rank in self._ranks:  # reports of no test any more
            with contextlib.suppress(EOFError, OSError):
                while rank.poll(_END):
                    rank.recv()
        self._thread.join(_END)
        late = self._thread.is_alive()
        where = report_of(self._tag) if late else ""
        self._end_threads()
        outcome = self._outcome
        words = f"not at its end after {_END:g} s" if late else outcome.explain() if outcome else ""
        texts = [where] if where else []
        texts += [f"thread {i}: {text}" for i, text in enumerate(self._output()) if text]
        self.kill()
        if not words:
            return ""
        return "\n".join([f"a job of {self.setting.threads} threads: {words}", *texts])

    def kill(self) -> None:
        """End all processes of the job, and remove its files."""
        self._end_threads()
        for rank in self._ranks:
            rank.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_threads(self) -> None:
        kill_tagged(JOB_TAG, self._tag)
        if hasattr(self, "_thread"):
            self._thread.join(_END)

    # --- a test ----------------------------------------------------------------------------------

    def run(self, name: str, follows: str | None) -> Run:
        """Run a test on all threads; a job whose test failed can run no other.

        Parameters
        ----------
        name
            The node id.
        follows
            The node id of the next test of this job; None if none follows.
        """
        found = Run(self.setting.threads)
        now = time.monotonic()
        deadline = now + self.setting.timeout
        left = set(range(self.setting.threads))
        for rank in self._ranks:
            with contextlib.suppress(OSError):  # it is dead: the loop below finds that
                rank.send((name, follows, 0.95 * self.setting.timeout))
        died: list[int] = []
        while left:
            ready = wait([self._ranks[i] for i in left], max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for i in sorted(left):
                if self._ranks[i] in ready and self._take(i, found, left, died):
                    deadline = min(deadline, time.monotonic() + _OTHERS)
        if left or died:
            self._explain(found, left, died, time.monotonic() - now)
        found.output = self._output()
        return found

    def _take(self, rank: int, found: Run, left: set[int], died: list[int]) -> bool:
        """Take a message of a thread; return True if the thread has failed."""
        try:
            kind, value = self._ranks[rank].recv()
        except (EOFError, OSError):
            left.discard(rank)
            died.append(rank)
            return True
        if kind == "report":
            found.reports.append((rank, value))
            return bool(value["outcome"] == "failed")
        if kind == "warning":
            found.warnings.append(value)
        elif kind == "missing":
            found.why = value
        elif kind == "done":
            left.discard(rank)
        return bool(kind == "missing")

    def _explain(self, found: Run, left: set[int], died: list[int], seconds: float) -> None:
        """Note why a test did not end on all threads, and where they are."""
        found.missing = sorted({*left, *died})
        if left and not died:
            late = seconds >= self.setting.timeout
            found.where = report_of(self._tag) or self._stacks(left, _WRITING if late else 0.0)
        if died:
            self._thread.join(_OTHERS)  # until its launcher has noticed
            found.launcher = self._said()
        self._end_threads()
        failed = {rank for rank, report in found.reports if report["outcome"] == "failed"}
        ended = "" if self._outcome is None else self._outcome.explain()
        if died:
            why = ended or f"thread {died[0]} ended"
        elif failed:
            why = f"not at its end {_OTHERS:g} s after thread {min(failed)} had failed"
        else:
            why = f"not at its end after {seconds:.1f} s"
        found.why = found.why or why

    def _stacks(self, threads: set[int], patience: float) -> str:
        """Return the Python stacks that threads write shortly before the time limit.

        `patience`: the seconds to wait for them, since a busy machine may run a thread late.
        """
        files = [(rank, self._folder / f"stacks.{rank}") for rank in sorted(threads)]
        deadline = time.monotonic() + patience
        while True:
            found = {r: file.read_text(errors="replace") for r, file in files if file.exists()}
            whole = [text for text in found.values() if text.endswith(_WHOLE)]
            if len(whole) == len(files) or time.monotonic() >= deadline:
                return "\n".join(f"thread {r}:\n{text}" for r, text in found.items() if text)
            time.sleep(0.01)

    def _output(self) -> list[str]:
        """Return what each thread has printed since the last test."""
        return [self._new_output(rank) for rank in range(self.setting.threads)]

    def _new_output(self, rank: int) -> str:
        try:
            with (self._folder / f"output.{rank}").open("rb") as file:
                file.seek(self._read[rank])
                data = file.read()
        except FileNotFoundError:
            return ""
        self._read[rank] += len(data)
        cut = "... " if len(data) > _MOST_OUTPUT else ""
        return cut + data[-_MOST_OUTPUT:].decode(errors="replace")

    def _said(self) -> str:
        """Return what the launcher itself has printed."""
        file = self._folder / "launcher"
        return file.read_text(errors="replace") if file.exists() else ""


def _private_folder() -> Path:
    """Return a new folder of this user alone, whose name leaves room for that of a socket."""
    place = None if len(tempfile.gettempdir()) < _LONGEST - 24 else "/tmp"
    return Path(tempfile.mkdtemp(prefix="xupc-pytest-", dir=place))
