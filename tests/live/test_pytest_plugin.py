"""The pytest plugin: tests of a program as jobs of threads, with what a failure shows."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest
from support.launch import PROJECT, TEST_TAG, leftovers, shared_files
from support.pages import Page
from support.polling import until
from support.speed import SLOW

pytestmark = [pytest.mark.once, pytest.mark.waits]

PLUGIN = "xupc.testing.plugin"
PROGRAM = PROJECT / "tests/live/programs/tests_of_a_program.py"
LATE = 50.0  # seconds; three runs among all tests on two cores took 125 to 139, others 7 to 40
STACKS = f"""
import faulthandler, os
faulthandler.dump_traceback_later(
    {LATE}, repeat=True, file=open(f"{{os.path.dirname(__file__)}}/{{os.getpid()}}", "w")
)
"""


@dataclass
class Program:
    """A folder with tests of a user, and what runs them."""

    folder: Path
    tag: str
    late: list[str] = field(default_factory=list)

    def command(self, *words: str) -> list[str]:
        """Return the command: in an installed xupc the plugin is known to pytest."""
        known = {entry.value for entry in metadata.entry_points(group="pytest11")}
        load = () if PLUGIN in known else ("-p", PLUGIN)
        return [sys.executable, "-m", "pytest", *load, "-p", "no:cacheprovider", *words]

    @property
    def stacks(self) -> Path:
        """Return the folder in which each process that is late writes where it is."""
        return self.folder / "stacks"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            TEST_TAG: self.tag, "XUPC_TEST_FOLDER": str(self.folder),
            "XUPC_TEST_PARENT": str(os.getpid()), "PYTHONPATH": f"{self.stacks}:{PROJECT}",
        }  # fmt: skip
        return {**os.environ, **own}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        began = time.monotonic()
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment, capture_output=True,
            text=True, timeout=250, check=False,
        )  # fmt: skip
        if (seconds := time.monotonic() - began) > LATE:
            found = [f"{seconds:.0f} s, {' '.join(words)}"]
            found += [text for file in self.stacks.glob("[0-9]*") if (text := file.read_text())]
            self.late += [*found, *done.stdout.splitlines()[-20:]]
        return done


@pytest.fixture
def program(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> Iterator[Program]:
    """Give a folder with the tests; nothing of the jobs may be left afterwards."""
    shutil.copy(PROGRAM, tmp_path / "test_program.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    files, made = shared_files(), Program(tmp_path, uuid.uuid4().hex)
    made.stacks.mkdir()
    (made.stacks / "sitecustomize.py").write_text(STACKS)
    yield made
    if made.late:
        record_property("late", "\n".join(made.late))
    assert leftovers(made.tag, grace=5.0, files_before=files) == []


def outcomes(file: Path) -> dict[str, tuple[str, str]]:
    """Return the outcome and the text of each test of a junit file."""
    found = {}
    for case in ET.parse(file).iter("testcase"):
        kinds = [part for part in case if part.tag in ("failure", "error", "skipped")]
        kind = kinds[0].tag if kinds else "passed"
        texts = [f"{part.get('message')}\n{part.text}" for part in case if part.text]
        found[str(case.get("name"))] = kind, "\n".join(texts)
    return found


def sections(text: str) -> dict[str, str]:
    """Return what pytest shows of each test that failed."""
    parts = re.split(r"(?m)^_+ (\w+) _+$", text.partition("= PASSES =")[0])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_outcomes_of_all_threads(program: Program) -> None:
    words = ["-o", "junit_logging=all", "--junitxml=out.xml", "-k", "not alone and not for_ever"]
    done = program.run(*words, "-n", "0", "-rA")
    found = outcomes(program.folder / "out.xml")
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert kinds == {
        "test_sum": "passed", "test_a_whole_program": "passed", "test_nodes": "passed",
        "test_numbers_of_threads[np=1]": "passed", "test_numbers_of_threads[np=2]": "passed",
        "test_expected_on_one_thread": "skipped", "test_skipped": "skipped",
        "test_one_fails": "failure", "test_all_fail": "failure",
        "test_one_fails_and_one_waits": "failure", "test_hangs": "failure",
        "test_never_ends": "failure", "test_dies": "failure",
        "test_ends_the_job": "failure", "test_in_no_job": "passed",
    }, done.stdout  # fmt: skip
    assert done.returncode == 1
    shown = sections(done.stdout)
    assert "FAILED test_program.py::test_one_fails - thread 1: assert 1 != 1" in done.stdout
    one = shown["test_one_fails"]
    assert "thread 1 of 2 failed\n" in one
    assert one.index("output of thread 1") < one.index("I am 1") < one.index("output of thread 0")
    assert "threads 0-1 of 2 failed\n" in shown["test_all_fail"]
    assert "xupc/api" not in shown["test_all_fail"], "the library's own lines"
    waiting = shown["test_one_fails_and_one_waits"]
    assert "not at its end 3 s after thread 1 had failed (thread 0)" in waiting
    assert "0: barrier()" in waiting
    assert "not there: thread 1 (host" in shown["test_hangs"]
    late = r"not at its end after \d+\.\d s\nthreads 0-1 of 2 did not"  # 3.0 s, or later if busy
    assert re.search(late, shown["test_never_ends"])
    assert "in test_never_ends" in shown["test_never_ends"], "the line of the program"
    assert "thread 1 was killed by SIGKILL" in shown["test_dies"]
    assert "dying: 1" in shown["test_dies"]
    assert "AssertionError: words of the failure" in shown["test_ends_the_job"]


def test_processes_of_xdist_run_one_job_at_a_time(program: Program) -> None:
    pytest.importorskip("xdist")
    done = program.run("-n", "2", "--xupc-np", "2", "-k", "alone", "-v")
    assert "4 passed" in done.stdout, done.stdout
    assert {"[gw0]", "[gw1]"} <= set(done.stdout.split())


def test_the_tests_of_the_page(program: Program) -> None:
    page = Page(PROJECT / "docs/how-to/test-your-program.md")
    (program.folder / "test_sums.py").write_text(page.files["test_sums.py"], encoding="utf-8")
    done = program.run("-q", "test_sums.py", "-n", "0")
    assert "3 passed" in done.stdout, done.stdout
    assert done.returncode == 0, done.stdout


@pytest.mark.rotates
@pytest.mark.parametrize("words", [(), ("-n", "1")])
def test_ctrl_c_ends_the_job(program: Program, words: tuple[str, ...]) -> None:
    command = program.command("--xupc-np", "2", "-k", "for_ever", *words)
    with subprocess.Popen(
        command, cwd=program.folder, env=program.environment, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        started = [program.folder / f"waits {thread}" for thread in range(2)]
        until(lambda: all(file.exists() for file in started), "both threads are in the test")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=20 * SLOW)  # no idle job's patience
    assert process.returncode == pytest.ExitCode.INTERRUPTED


def test_without_jobs_nothing_is_loaded(program: Program) -> None:
    (program.folder / "test_other.py").write_text(
        "import sys\n\ndef test_it():\n    loaded = set(sys.modules)\n"
        "    assert not loaded & {'numpy', 'mpi4py', 'click', 'xupc.cli', 'xupc.testing.runner'}\n"
    )
    done = program.run("test_other.py", "-q", "-n", "0")
    assert done.returncode == 0, done.stdout


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("np=0", "np: a number of threads, 1 or more, got 0"),
        ("np='2'", "np: a number of threads, 1 or more, got '2'"),
        ("np=2, nodes=4", 'nodes: a string such as "2x2", got 4'),
        ("np=2, timeout=0", "timeout: seconds, more than 0, got 0"),
        ("4", "np=, nodes= and timeout= by keyword, got xupc(4)"),
        ("threads=4", "np=, nodes= and timeout= by keyword, got xupc(threads=4)"),
    ],
)
def test_wrong_arguments_of_the_marker(program: Program, mark: str, words: str) -> None:
    (program.folder / "test_other.py").write_text(
        f"import pytest\n\n@pytest.mark.xupc({mark})\ndef test_it():\n    pass\n"
    )
    done = program.run("test_other.py", "-n", "0")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert f"test_other.py::test_it: marker xupc: expected {words}" in done.stderr + done.stdout
