"""Reports of where each thread is: in a HangError, on SIGUSR2 to any thread, and from outside.

The places are known beforehand: which thread does what in which line of programs/known_places.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from support.launch import (
    BUSY,
    PROJECT,
    SOON,
    TEST_TAG,
    import_path,
    launch,
    leftovers,
    mpi_family,
    shared_files,
)
from support.polling import until
from support.soak import amount, figure
from support.speed import SLOW

from xupc.cli.hang import Job as RunningJob
from xupc.cli.hang import choose, jobs
from xupc.cli.launcher import JOB_TAG, job_command
from xupc.cli.mpi import clean_environment, find_mpi
from xupc.cli.processes import kill_tagged
from xupc.health.stack_report import Gathering, report_text

ONCE = pytest.mark.once
PROGRAM = "tests/live/programs/known_places.py"
QUERIES = "tests/live/programs/queries_while_running.py"
GATHER = r"all_gather\(nbytes=8, flags=0\)"
TITLE = "where the threads are:"
SECONDS = r"(?:\d+\.\d to )?\d+\.\d s"


def line(name: str, program: str = PROGRAM) -> str:
    """FILE:NUMBER of a line that is marked with a name."""
    text = (PROJECT / program).read_text()
    number = next(i for i, row in enumerate(text.splitlines(), 1) if f"# LINE {name}" in row)
    return f"{Path(program).name}:{number}"


def in_gather(threads: str, number: int = 7) -> str:
    """The report's line for threads in the gather."""
    return rf"^  {threads}: {GATHER} #{number}, {line('gather')}, for {SECONDS}$"


def outside(threads: str, name: str, number: int = 6) -> str:
    """The report's line for threads that do something else."""
    last = rf"\(last call: {GATHER} #{number}\)"
    return rf"^  {threads}: not in xupc, {line(name)}, for {SECONDS} {last}$"


def silent(threads: str, state: str) -> str:
    """The report's line for one that does not answer."""
    return rf"^  {threads}: not in xupc, does not answer \({state}; pid \d+\), for {SECONDS} \(last"


def check(report: str, *lines: str) -> None:
    """A report consists of these lines, whatever their order."""
    for each in lines:
        assert re.search(each, report, re.MULTILINE), f"no {each}\n{report}"
    assert len(re.findall(r"^  \d", report, re.MULTILINE)) == len(lines), report


@dataclass(frozen=True)
class Job:
    """A running job of programs/known_places.py."""

    launcher: subprocess.Popen[bytes]
    said: Path
    tag: str

    def text(self) -> str:
        """All that it has printed."""
        return self.said.read_text()

    def pid(self, thread: int) -> int:
        """A thread's process id."""
        found = re.search(rf"^pid {thread} (\d+)", self.text(), re.MULTILINE)
        assert found, self.text()
        return int(found[1])

    def reports(self) -> list[str]:
        """Everything that was printed after each title."""
        return self.text().split(f"xupc: {TITLE}\n")[1:]

    def signalled(self, thread: int, seconds: float = 10.0 * SLOW) -> str:
        """The report that a thread prints on SIGUSR2."""
        before = len(self.reports())
        os.kill(self.pid(thread), signal.SIGUSR2)
        deadline = time.monotonic() + seconds
        while len(self.reports()) == before:
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)
        time.sleep(0.2)  # in which there must not come a second one
        assert len(self.reports()) == before + 1, self.text()
        return self.reports()[-1]

    def asked(self, job: object, *options: str) -> str:
        """Return the output of `xupc hang-report`."""
        done = subprocess.run(
            [sys.executable, "-m", "xupc", "hang-report", str(job), *options],
            cwd=PROJECT, capture_output=True, text=True, timeout=BUSY * 30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def _await_waits(tag: str, ways: Sequence[str]) -> None:
    """Wait until the threads that are to wait do so: their status says it."""
    (job,) = choose(jobs(), tag)
    control = job.machines[0]
    waiting = [i for i, way in enumerate(ways) if way in ("gather", "agree", "wait")]
    until(lambda: all(control.waits(i) for i in waiting), f"{waiting} wait")


@contextlib.contextmanager
def running(
    ways: Sequence[str], nodes: str | None = None, program: str = PROGRAM
) -> Iterator[Job]:
    """Start programs/known_places.py, a thread for each way; yield when all are where they stay."""
    tag = f"where-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**clean_environment(os.environ, mpi_family()), TEST_TAG: tag, JOB_TAG: tag}
    environment["PYTHONPATH"] = import_path(PROJECT)
    if nodes:
        environment["XUPC_NODES"] = nodes
    words = [sys.executable, program, *ways]
    command = job_command(find_mpi(), len(ways), words, environment=environment, recover=False)
    before = shared_files()
    with tempfile.TemporaryDirectory(prefix="xupc-test-") as folder:
        said = Path(folder) / "said"
        with said.open("wb") as out:
            launcher = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                cwd=PROJECT, start_new_session=True,
            )  # fmt: skip
        try:
            deadline = time.monotonic() + BUSY * 30
            while said.read_bytes().count(b"up\n") < len(ways):
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.02)
            _await_waits(tag, ways)
            yield Job(launcher, said, tag)
        finally:
            kill_tagged(TEST_TAG, tag)
            launcher.wait()
            assert not leftovers(tag, grace=5.0, files_before=before)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("ways", "nodes"),
    [
        ("gather gather sleep gather", None),
        ("gather sleep gather gather", "3,1"),
        pytest.param("compute gather gather gather", "1,1,1,1", marks=ONCE),
    ],
)
def test_a_hang_error_shows_all_threads(ways: str, nodes: str | None) -> None:
    result = launch(
        4, PROGRAM, args=ways.split(), nodes=nodes, env={"XUPC_TIMEOUT": f"{SLOW:g}"},
        timeout=BUSY * 40, via="xupc run",
    )  # fmt: skip
    assert result.returncode != 0, result.report()
    odd = next(i for i, way in enumerate(ways.split()) if way != "gather")
    others = {0: "1-3", 1: "0, 2-3", 2: "0-1, 3", 3: "0-2"}[odd]
    errors = result.stderr.split("HangError: thread ")[1:]
    assert len(errors) == 3, result.report()
    for error in errors:
        report = error.split(f"{TITLE}\n")[1].split("xupc: thread ")[0]
        check(report, in_gather(others), outside(str(odd), ways.split()[odd]))
    assert result.seconds < SOON


def test_posted_calls_and_other_waits() -> None:
    with running(["post", "wait", "sleep"]) as job:
        gather = rf"{GATHER.replace('flags=0', 'flags=.*ASYNC.*')} #7"
        posted = rf"^  0: not in xupc, {line('post')}, for {SECONDS} \(posted: {gather}\)$"
        waits = rf"^  1: {gather}, {line('wait')}, for {SECONDS}$"
        check(job.signalled(0), posted, waits, outside("2", "sleep"))
    with running(["agree", "sleep"]) as job:
        alloc = rf"^  0: all_alloc\(.*\) #7, {line('agree')}, for {SECONDS}$"
        check(job.signalled(1), alloc, outside("1", "sleep"))


def stop(pid: int) -> None:
    """SIGSTOP, and wait until none of the process's threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        while task.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)


@pytest.mark.parametrize("nodes", [None, pytest.param("3,1", marks=ONCE)])
def test_a_signal_to_any_thread_and_questions_from_outside(nodes: str | None) -> None:
    lines = [in_gather("0, 3"), outside("1", "sleep"), outside("2", "compute")]
    with running(["gather", "sleep", "compute", "gather"], nodes) as job:
        for thread in (0, 1, 2):
            began = time.monotonic()
            check(job.signalled(thread), *lines)
            assert time.monotonic() - began < 5 * SLOW
        check(job.asked(job.launcher.pid), *lines)
        shown = job.asked(job.tag[:-1], "--calls", "2")
        assert len(re.findall(rf"^  {GATHER} #6, began .* ago, took 0", shown, re.MULTILINE)) == 4
        assert len(re.findall(rf"^  {GATHER} #7, began .* under way", shown, re.MULTILINE)) == 2
        (mine,) = choose(jobs(), str(job.pid(3)))
        assert (mine.tag, mine.threads, mine.first) == (job.tag, 4, job.pid(0))

        stop(job.pid(1))
        stopped = [in_gather("0, 3"), silent("1", "stopped"), outside("2", "compute")]
        check(asked_here(mine), *stopped)
        check(job.signalled(3), *stopped)
        os.kill(job.pid(1), signal.SIGCONT)
        stop(job.pid(3))
        gone = rf"^  3: {GATHER} #7, does not answer \(stopped; pid \d+\), for {SECONDS}$"
        check(asked_here(mine), in_gather("0"), *lines[1:], gone)
        os.kill(job.pid(3), signal.SIGCONT)
        check(asked_here(mine), *lines)
        assert job.launcher.poll() is None


def asked_here(job: RunningJob) -> str:
    """What the command line would show, without another process."""
    gathering = Gathering(job.machines[0])
    gathering.wait()
    return report_text(gathering.groups())


@ONCE
def test_jobs_are_listed() -> None:
    with running(["gather", "sleep"]) as job:
        listed = subprocess.run(
            [sys.executable, "-m", "xupc", "hang-report"], cwd=PROJECT, capture_output=True,
            text=True, timeout=BUSY * 30, check=True,
        )  # fmt: skip
        assert f"{job.pid(0)}: 2 threads, {PROGRAM}" in listed.stdout
        assert f"XUPC_JOB {job.tag}" in listed.stdout


@pytest.mark.skipif(os.environ.get("XUPC_ENGINE") == "python", reason="needs a handler in C")
@ONCE
def test_a_signal_to_a_thread_in_c_code_is_answered_by_another() -> None:
    with running(["gather", "C", "sleep"]) as job:
        report = job.signalled(1)
        c = silent("1", r"computing in C code\?")
        check(report, in_gather("0"), c, outside("2", "sleep"))
        check(job.asked(job.tag), in_gather("0"), c, outside("2", "sleep"))


@ONCE
def test_there_is_no_such_job() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xupc", "hang-report", "1234567890"], cwd=PROJECT,
        capture_output=True, text=True, timeout=BUSY * 30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no job 1234567890" in done.stderr


@pytest.mark.parametrize("whose", ["own", "later", "nobody's", "thread"])
def test_the_programs_own_use_of_the_signal(live: object, whose: str) -> None:
    result = live(2, QUERIES, args=["own_signal_handler", whose])  # type: ignore[operator]
    assert result.stdout.count("good") == 2
    assert result.stderr == ""


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [None, pytest.param("2,1", marks=ONCE)])
def test_questions_harm_no_call(nodes: str | None, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    answered, unheard, seen = amount(40, 1000), amount(100, 5000), 0
    with running(["many_calls", str(stop), ""], nodes, QUERIES) as running_job:
        assert running_job.launcher.poll() is None, running_job.text()
        (job,) = choose(jobs(), running_job.tag)
        control = job.machines[0]
        silent = reports = 0
        asked: list[Gathering] = []
        while reports < answered:
            if reports + len(asked) < answered:
                asked.append(Gathering(control))
            time.sleep(0.01)
            while asked and asked[0].there:
                groups = asked.pop(0).groups()
                assert sum(group.size for group in groups) == 3, groups
                silent += any("does not answer" in group.place for group in groups)
                reports += 1
        assert silent < reports / 2  # on a machine that is busy with other things
        for _ in range(unheard):  # the rings, while their threads write them
            Gathering(control).mine()
            for index in range(3):
                calls = control.calls_of(index)
                numbers = [call.op for call in calls]
                assert all(b == a + 1 for a, b in pairwise(numbers)), numbers
                texts = {call.text.partition("(")[0] for call in calls}
                assert texts <= {"allv_gather_all", "allv_broadcast", "library barrier"}, texts
                seen += len(calls)
        assert running_job.signalled(2)
        stop.touch()
        assert running_job.launcher.wait(20) == 0, running_job.text()
        counts = re.findall(r"^calls (\d+)", running_job.text(), re.MULTILINE)
        assert len(counts) == 3, running_job.text()
        assert len(set(counts)) == 1
    figure(
        "a report disturbs no call",
        f"{answered} reports ({silent} without all answers) and {unheard} questions "
        f"({seen} calls read) during "
        f"{counts[0]} calls of 3 threads, all results right",
    )


def test_after_a_mismatch_nobody_is_in_a_call(live: object) -> None:
    for nodes in (None, "2,1"):
        result = live(3, QUERIES, args=["calls_after_a_mismatch"], nodes=nodes)  # type: ignore[operator]
        assert result.stdout.count("good") == 3
