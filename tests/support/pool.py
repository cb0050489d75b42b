"""A pool of ranks: long-lived jobs that run the programs of live tests, one after the other.

There is one job for each number of threads; nodes, engine, heap and timeout are variables that a
program's init reads. Each rank (`rank.py`) has a socket of its own to this process, so a rank that
dies is seen at once. A job is replaced after any failure, and when a rank reports that a program
has changed it for good.

Programs that kill, hang, interrupt or launch, or look at what only a launcher shows, have a job of
their own (`support.launch.launch`).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from support.launch import (
    BUSY,
    GRACE,
    LIMIT,
    PROJECT,
    TEST_TAG,
    Result,
    job_environment_of_a_test,
    leftovers,
    program_file,
    shared_files,
)

from xupc.cli.launcher import job_command, run_job
from xupc.cli.mpi import find_mpi
from xupc.cli.processes import kill_tagged, tagged

__all__ = ["OFF", "RANK", "Pool", "ThisMachine", "fits", "repeat_command"]

RANK = Path(__file__).with_name("rank.py")
START = BUSY * 60.0  # seconds for a job to start
END = 10.0  # seconds for an idle job to end
MOST_RANKS = 40  # idle ones included; the job that was not used for longest goes first
LARGEST = 12  # threads of a job in the pool
ENVIRONMENT = ("XUPC_", "XDG_CONFIG_HOME")  # variables that a program may set for itself
OFF = os.environ.get("XUPC_TEST_POOL") == "0"


def fits(
    n: int,
    *,
    env: Mapping[str, str | None] | None = None,
    python: str = sys.executable,
    via: str = "mpiexec",
    launcher_args: Sequence[str] = (),
    **_: Any,
) -> bool:
    """Return whether a job with these options may run in the pool."""
    plain = via == "mpiexec" and python == sys.executable and not launcher_args
    settable = all(name.startswith(ENVIRONMENT) for name in env or ())
    return not OFF and n <= LARGEST and plain and settable


class _Ended(Exception):
    """A rank has gone, or the job's time was up."""


class ThisMachine:
    """Where a pool has its jobs: here, by the MPI under this Python."""

    def environment(self, tag: str) -> dict[str, str]:
        """Return the variables of a job; `tag` is its value of ``XUPC_TEST_JOB``."""
        return job_environment_of_a_test(tag)

    def command(self, threads: int, words: Sequence[str]) -> list[str]:
        """Return what runs a program in a job of its own."""
        return job_command(find_mpi(), threads, [sys.executable, *words], recover=False)

    def run(
        self, threads: int, environment: Mapping[str, str], out: BinaryIO, err: BinaryIO
    ) -> int:
        """Run a job of ranks until its end; return the launcher's exit status."""
        words = [sys.executable, str(RANK)]
        command = job_command(find_mpi(), threads, words, environment=environment, recover=False)
        outcome = run_job(
            command, environment, watched=False, tag_name=TEST_TAG, stdin=subprocess.DEVNULL,
            stdout=out, stderr=err, cwd=PROJECT, grace=GRACE,
        )  # fmt: skip
        return outcome.launcher_status


class _Job:
    """One job of so many ranks."""

    def __init__(self, threads: int, place: ThisMachine) -> None:
        self.threads = threads
        self.place = place
        self.tag = uuid.uuid4().hex
        self.folder = tempfile.TemporaryDirectory(prefix="xupc-pool-", ignore_cleanup_errors=True)
        self.status: int | None = None  # the launcher's, at its end
        self.ranks: list[socket.socket] = []
        self._buffers: dict[socket.socket, bytes] = {}
        self.environment = place.environment(self.tag)
        address = str(Path(self.folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(threads)
            self._start(address)
            self._accept(listener)

    def _start(self, address: str) -> None:
        environment = {**self.environment, "XUPC_TEST_RANK_SOCKET": address}
        self._thread = threading.Thread(
            target=self._run, args=(environment,), name=f"pool-{self.threads}", daemon=True
        )
        self._thread.start()

    def _run(self, environment: Mapping[str, str]) -> None:
        folder = Path(self.folder.name)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            self.status = self.place.run(self.threads, environment, out, err)

    def _accept(self, listener: socket.socket) -> None:
        """Wait until all ranks have sent their numbers; sort their connections by number."""
        deadline = time.monotonic() + START
        came: dict[int, socket.socket] = {}
        listener.settimeout(0.2)
        while len(came) < self.threads:
            if self.status is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"no pool of {self.threads} ranks:\n{self.said()}")
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                self._buffers[connection] = b""
                came[self._line(connection, deadline)["rank"]] = connection
        self.ranks = [came[rank] for rank in sorted(came)]

    def _line(self, connection: socket.socket, deadline: float) -> Any:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        while b"\n" not in self._buffers[connection]:
            try:
                piece = connection.recv(1 << 16)
            except OSError:
                piece = b""
            if not piece:
                raise _Ended
            self._buffers[connection] += piece
        line, _, self._buffers[connection] = self._buffers[connection].partition(b"\n")
        return json.loads(line)

    def said(self) -> str:
        """Return what the launcher itself printed."""
        folder = Path(self.folder.name)
        return "".join((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))

    def changes(self, env: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the variables that differ from the job's own; None: there is none."""
        now = {**self.place.environment(self.tag), **env}
        names = {*now, *self.environment} - {"PYTEST_CURRENT_TEST"}
        return {
            name: now.get(name) for name in sorted(names)
            if now.get(name) != self.environment.get(name)
        }  # fmt: skip

    @property
    def alive(self) -> bool:
        """True if it can take a program."""
        return self.status is None and bool(self.ranks)

    def run(self, request: Mapping[str, Any], deadline: float) -> list[dict[str, Any]]:
        """Have all ranks run a program; their replies. `_Ended` if one does not reply."""
        text = json.dumps(request).encode() + b"\n"
        with selectors.DefaultSelector() as selector:
            for rank in self.ranks:
                selector.register(rank, selectors.EVENT_READ)
                with contextlib.suppress(OSError):
                    rank.settimeout(10)
                    rank.sendall(text)
            replies: dict[socket.socket, dict[str, Any]] = {}
            while len(replies) < len(self.ranks):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise _Ended
                for key, _ in ready:
                    rank = key.fileobj  # type: ignore[assignment]
                    replies[rank] = self._line(rank, deadline)
                    selector.unregister(rank)
        return [replies[rank] for rank in self.ranks]

    def end(self, patience: float) -> bool:
        """Wait for its end, for so long; then kill it. Whether it ended by itself."""
        self._thread.join(max(0.0, patience))
        ended = not self._thread.is_alive()
        if not ended:
            self.kill()
        self.hang_up()
        return ended

    def kill(self) -> None:
        """End all of its processes."""
        kill_tagged(TEST_TAG, self.tag)
        self._thread.join(END)

    def hang_up(self) -> None:
        """Let idle ranks come to their end."""
        for rank in self._buffers:
            rank.close()

    def close(self) -> None:
        """End an idle job."""
        self.hang_up()
        self.end(END)
        self.folder.cleanup()


class Pool:
    """The jobs, by number of threads; those that were used last come last."""

    def __init__(self, place: ThisMachine | None = None) -> None:
        self.place = place or ThisMachine()
        self._jobs: dict[int, _Job] = {}
        self.programs, self.started, self.damages = 0, 0, []  # type: tuple[int, int, list[str]]

    def __str__(self) -> str:
        replaced = "".join(f"\n  {what}" for what in self.damages)
        return f"{self.programs} programs in {self.started} jobs, replaced after:{replaced or ' -'}"

    def launch(
        self,
        n: int,
        program: str | Path,
        *,
        nodes: str | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float = LIMIT,
        args: Sequence[str] = (),
        grace: float = GRACE,
        **_: Any,
    ) -> Result:
        """Run a program as `support.launch.launch` does, in a job of the pool."""
        job = self._take(n)
        variables = job.changes({**({} if nodes is None else {"XUPC_NODES": nodes}), **(env or {})})
        with tempfile.TemporaryDirectory(prefix="xupc-test-") as name:
            folder = Path(name)
            file = program_file(program)
            words = [str(file), *map(str, args)]
            return self._run(job, words, variables, timeout, folder, grace)

    def close(self) -> None:
        """End all jobs."""
        for job in self._jobs.values():
            job.hang_up()
        while self._jobs:
            self._jobs.popitem()[1].close()

    def _take(self, n: int) -> _Job:
        job = self._jobs.pop(n, None)
        if job is not None and not job.alive:
            job.close()
            job = None
        if job is None:
            while self._jobs and n + sum(self._jobs) > MOST_RANKS:
                self._jobs.pop(next(iter(self._jobs))).close()
            job = _Job(n, self.place)
            self.started += 1
        self.programs += 1
        self._jobs[n] = job
        return job

    def _drop(self, job: _Job) -> None:
        del self._jobs[job.threads]
        job.close()

    def _run(
        self, job: _Job, words: list[str], variables: dict[str, str | None], timeout: float,
        folder: Path, grace: float,
    ) -> Result:  # fmt: skip
        out, err = folder / "stdout", folder / "stderr"
        out.touch()
        err.touch()
        request = {
            "file": words[0],
            "args": words[1:],
            "environment": {k: v for k, v in variables.items() if v is not None},
            "without": [k for k, v in variables.items() if v is None],
            "stdout": str(out),
            "stderr": str(err),
            "stacks": str(folder / "stacks"),
            "patience": timeout - max(0.1 * timeout, 0.7),
        }
        files, processes = shared_files(), set(tagged(TEST_TAG, job.tag))
        began = time.monotonic()
        deadline, ended = began + timeout, False
        left: list[str] = []
        damage = True
        try:
            replies = job.run(request, deadline)
        except _Ended:
            ended = job.end(deadline - time.monotonic())
        else:
            for rank, reply in enumerate(replies):
                left += [f"{what} (thread {rank})" for what in reply["left"]]
            changed = sorted({what for reply in replies for what in reply["damage"]})
            damage = bool(left or changed)
            if changed:
                more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
                self.damages.append(f"{Path(words[0]).name}: {'; '.join(changed[:3])}{more}")
        seconds = time.monotonic() - began
        died = job.status
        said = "" if died is None else job.said()
        left += self._left(job, processes, files, grace)
        result = Result(
            returncode=died or 0,
            stdout=out.read_text(encoding="utf-8", errors="replace"),
            stderr=err.read_text(encoding="utf-8", errors="replace") + said,
            timed_out=died is not None and not ended,
            seconds=seconds,
            leftovers=tuple(left),
            stacks="".join(file.read_text() for file in sorted(folder.glob("stacks.*"))),
            command=tuple(self._command(job, words, variables)),
        )
        if damage:
            self._drop(job)
        return result

    @staticmethod
    def _left(job: _Job, processes: set[int], files: set[str], grace: float) -> list[str]:
        """Processes that a program has started, and files; they have some seconds to go."""
        if job.status is not None:
            return leftovers(job.tag, grace=grace, files_before=files)
        deadline = time.monotonic() + grace
        while True:
            found = [
                what for what in leftovers(job.tag, files_before=files)
                if not any(what.startswith(f"process {pid}:") for pid in processes)
            ]  # fmt: skip
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    @staticmethod
    def _command(job: _Job, words: Sequence[str], variables: Mapping[str, str | None]) -> list[str]:
        """Return what runs the same program in a job of its own."""
        settings = [f"{name}={value}" for name, value in variables.items() if value is not None]
        command = job.place.command(job.threads, words)
        return [*(["env", *settings] if settings else []), *command]


def repeat_command() -> str:
    """Return the command that repeats the present test alone, in jobs of its own."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    names = ("XUPC_TEST_SEED", "XUPC_TEST_SHARE", "XUPC_ENGINE")
    settings = "".join(f"{name}={value} " for name in names if (value := os.environ.get(name)))
    return f"XUPC_TEST_POOL=0 {settings}{shlex.quote(sys.executable)} -m pytest {shlex.quote(test)}"
