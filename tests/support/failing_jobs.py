"""Jobs that fail: how long it takes, which thread reports what, what is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.launch import (
    BUSY,
    PROJECT,
    TEST_TAG,
    Result,
    import_path,
    launch,
    leftovers,
    mpi_family,
    one_in_time,
    shared_files,
)
from support.speed import SLOW

from xupc.cli.launcher import job_command
from xupc.cli.mpi import clean_environment, find_mpi
from xupc.cli.processes import kill_tagged, tagged

__all__ = ["ALL_GONE", "End", "Started", "bring_about", "by_thread", "started"]

PROGRAM = "tests/live/programs/thread_failures.py"
ALL_GONE = 5.0 * SLOW  # seconds after the blow
TRACEBACK = re.compile(r"^xupc: thread (\d+) of \d+:$", re.MULTILINE)
GROUP = re.compile(r"^xupc: threads ([\d, -]+) of (\d+):", re.MULTILINE)
HEADING = re.compile(r"(?=^xupc: threads? \d)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a job.

    Attributes
    ----------
    victim : str
        ``thread 1 (host h, pid 123)``, as in our messages.
    seconds : float
        From the blow (or, where there is none, from the start) until the last process was gone.
    """

    result: Result
    victim: str
    seconds: float

    def said(self, text: str) -> int:
        """How many threads printed a text, with ``VICTIM`` standing for the victim."""
        return by_thread(self.result.stderr).count(text.replace("VICTIM", self.victim))

    def number(self, word: str) -> float:
        """Return the number that the program printed after `word`."""
        found = re.search(rf"^{word} (\S+)", self.result.stdout, re.MULTILINE)
        assert found, self.result.report()
        return float(found[1])

    @property
    def tracebacks(self) -> int:
        """The number of threads that ended by an exception which they reported as their own."""
        return len(TRACEBACK.findall(by_thread(self.result.stderr)))


def by_thread(text: str) -> str:
    """Return what `xupc run` printed once for several threads as if each had printed it."""
    parts = []
    for part in HEADING.split(text):
        group = GROUP.match(part)
        if group is None:
            parts.append(part)
            continue
        for run in group[1].split(", "):
            first, _, last = run.partition("-")
            for thread in range(int(first), int(last or first) + 1):
                parts.append(f"xupc: thread {thread} of {group[2]}:{part[group.end() :]}")
    return "".join(parts)


def bring_about(
    scenario: str,
    victim: int,
    *options: str,
    n: int = 4,
    via: str = "xupc run",
    nodes: str | None = None,
    env: Mapping[str, str | None] | None = None,
    timeout: float = BUSY * 40.0,
    promptly: float = 0.0,
    gone: float = ALL_GONE,
) -> End:
    """Run a scenario of thread_failures.py; it must end by itself, with nothing left in time.

    `gone`: the seconds from the blow to the end of all processes.

    `promptly`: the seconds that the victim has from the blow until it prints "interrupted", on a
    machine that is not slow; 0: it prints nothing.
    """
    run = partial(
        launch, n, PROGRAM, nodes=nodes, env=env, timeout=timeout,
        args=[scenario, str(victim), *options], via=via, grace=1.0,
    )  # fmt: skip

    def end_of_a_run() -> tuple[End, str]:
        end, struck = _end_of(run(), via)
        delay = end.number("interrupted") - end.number("struck") if promptly else -1.0
        if (not struck or end.seconds < gone) and delay < SLOW * promptly:
            return end, ""
        return end, f"{delay:.1f} and {end.seconds:.1f} s after the blow\n{end.result.report()}"

    return one_in_time(end_of_a_run)


def _end_of(result: Result, via: str) -> tuple[End, bool]:
    """Return how a run ended, and whether a blow struck it, from which its seconds count."""
    now = time.monotonic()
    assert result.clean, result.report()
    who = re.search(r"^victim (\d+) (\d+) (\S+)", result.stdout, re.MULTILINE)
    name = f"thread {who[1]} (host {who[3]}, pid {who[2]})" if who else ""
    files = re.search(r"^mpi's(.*)", result.stdout, re.MULTILINE)
    if files and via == "xupc run":
        left = [file for file in files[1].split() if os.path.exists(file)]
        assert not left, f"{left} still there\n{result.report()}"
    blow = re.search(r"^struck (\S+)", result.stdout, re.MULTILINE)
    return End(result, name, now - float(blow[1]) if blow else result.seconds), blow is not None


@dataclass(frozen=True, slots=True)
class Started:
    """A job that runs while the test goes on."""

    launcher: subprocess.Popen[bytes]
    tag: str
    files: set[str]
    output: Path

    def report(self) -> str:
        """Return the output, with the stacks of what still runs: an abort has Python print them."""
        for pid in tagged(TEST_TAG, self.tag):
            with contextlib.suppress(OSError):
                if PROGRAM.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2]:
                    os.kill(pid, signal.SIGABRT)
        leftovers(self.tag, grace=1.0)
        return self.output.read_text(errors="replace")

    def left_after(self, seconds: float) -> list[str]:
        """Return the processes and files that are left after at most that time."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.launcher.wait(seconds)
        left = max(0.0, deadline - time.monotonic())
        return leftovers(self.tag, grace=left, files_before=self.files)


@contextlib.contextmanager
def started(
    scenario: str, victim: int, *, up: int, via: str = "mpiexec", n: int = 4
) -> Iterator[Started]:
    """Start a scenario of thread_failures.py and wait until `up` threads have printed "up"."""
    tag = f"started-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**clean_environment(os.environ, mpi_family()), TEST_TAG: tag}
    environment |= {"PYTHONPATH": import_path(PROJECT), "PYTHONFAULTHANDLER": "1"}
    words = [sys.executable, PROGRAM, scenario, str(victim)]
    if via == "mpiexec":
        command = job_command(find_mpi(), n, words, environment=environment, recover=False)
    else:
        command = [sys.executable, "-m", "xupc", "run", "-n", str(n), *words[1:]]
    with tempfile.TemporaryDirectory(prefix="xupc-test-") as folder:
        said = Path(folder) / "said"
        before = shared_files()
        with said.open("wb") as out:
            launcher = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                cwd=PROJECT, start_new_session=True, preexec_fn=_heed_interrupts,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + BUSY * 30
            while said.read_bytes().count(b"up\n") < up:
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.02)
            yield Started(launcher, tag, before, said)
        finally:
            kill_tagged(TEST_TAG, tag)
            launcher.wait()


def _heed_interrupts() -> None:
    """A shell has background jobs ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
