"""`xupc run` under an interactive shell on a terminal: jobs in the background, Ctrl-Z, input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.launch import PROJECT
from support.xupc_run import (
    PATIENCE,
    PROGRAM,
    Running,
    Shell,
    running,
    shell,
    state,
    wait_until,
    words,
)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Shell]:
    with shell(tmp_path) as found:
        yield found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as found:
        yield found


def up(bash: Shell, n: int = 2) -> list[int]:
    wait_until(lambda: len(bash.job.pids()) == n, lambda: bash.screen + bash.job.said())
    return bash.job.pids()


def go(bash: Shell) -> None:
    """Let the program end."""
    (bash.job.folder / "go").touch()


# --- job control ----------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["", "nohup", "setsid"])
def test_a_job_in_the_background_leaves_the_terminal_to_the_shell(bash: Shell, before: str) -> None:
    bash.run("waits", before=before, after=f"> {bash.job.folder}/out 2>&1 &")
    up(bash)
    for number in range(6):
        assert f"answer {number * 7}" in bash.command(f"echo answer $(({number} * 7))")
    assert words(bash.job.notes(), "ended") == []
    go(bash)
    bash.job.wait_for("ended 0", "ended 1")


def test_a_job_in_the_background_that_reads_takes_nothing(bash: Shell) -> None:
    bash.run("reads_lines", after="&")
    up(bash)
    for number in range(6):
        assert f"answer {number}" in bash.command(f"echo answer {number}")
    assert words(bash.job.notes(), "read") == []
    bash.job.wait_for("end 1")  # the others' input is empty
    bash.type("fg")
    bash.expect("xupc run")
    bash.type("for you")
    bash.job.wait_for("read for you 0")
    bash.press("D")
    bash.job.wait_for("end 0")
    go(bash)
    bash.expect("ready> ")
    assert "status 0" in bash.command("echo status $?")


def test_ctrl_z_stops_the_job_and_fg_continues_it(bash: Shell) -> None:
    bash.run("waits")
    threads = up(bash)
    bash.press("Z")
    bash.expect("Stopped")
    bash.expect("ready> ")
    wait_until(lambda: all(state(pid) == "T" for pid in threads))
    go(bash)
    assert "answer 1" in bash.command("echo answer 1")
    assert words(bash.job.notes(), "ended") == []
    bash.type("fg")
    bash.job.wait_for("ended 0", "ended 1")
    bash.expect("ready> ")
    assert "status 0" in bash.command("echo status $?")


def test_ctrl_z_and_bg(bash: Shell) -> None:
    bash.run("waits")
    threads = up(bash)
    bash.press("Z")
    bash.expect("Stopped")
    wait_until(lambda: all(state(pid) == "T" for pid in threads))
    bash.command("bg")
    wait_until(lambda: all(state(pid) in ("S", "R") for pid in threads))
    assert "answer 1" in bash.command("echo answer 1")
    go(bash)
    bash.job.wait_for("ended 0", "ended 1")


def test_ctrl_c_ends_the_job_and_a_loop_around_it(bash: Shell) -> None:
    bash.type(f"for i in 1 2 3; do echo turn $i; {bash.words('cleans_up')}; done")
    bash.expect("turn 1")
    up(bash)
    bash.press("C")
    bash.expect("ended by SIGINT")
    bash.expect("ready> ")
    assert "status 130" in bash.command("echo status $?")
    assert words(bash.job.notes(), "finally") == ["finally 0", "finally 1"]
    assert "turn 2" not in bash.screen.replace("do echo turn", "")
    assert bash.job.left(0.5) == []


def test_a_terminal_that_is_closed_ends_the_job(bash: Shell) -> None:
    bash.run("cleans_up on_sigterm")
    up(bash)
    bash.type("")
    os.kill(bash.pid, signal.SIGHUP)
    bash.job.wait_for("finally 0", "finally 1")
    assert bash.job.left(10) == []


# --- standard input -------------------------------------------------------------------------------


def test_lines_that_are_typed_go_to_thread_0_of_the_job_in_the_foreground(bash: Shell) -> None:
    bash.run("reads_lines")
    up(bash)
    for number in range(20):
        bash.type(f"line {number}")
    bash.press("D")
    bash.job.wait_for("end 0", "end 1")
    assert words(bash.job.notes(), "read") == sorted(f"read line {i} 0" for i in range(20))
    go(bash)
    bash.expect("ready> ")


BIG = bytes(range(256)) * (3 << 12)  # 3 MiB
SUM = sum(BIG) % 1000


@pytest.mark.parametrize("kind", ["file", "pipe", "null", "closed", "unreadable"])
def test_stdin_is_thread_0_s_and_has_an_end(job: Running, kind: str) -> None:
    given = job.folder / "given"
    given.write_bytes(BIG)
    case, size = "reads_bytes", len(BIG)
    if kind == "file":
        with given.open("rb") as file:
            job.start(case, n=3, stdin=file)
            status = job.wait()
    elif kind == "pipe":
        cat = subprocess.Popen(["cat", str(given)], stdout=subprocess.PIPE)
        job.start(case, n=3, stdin=cat.stdout)
        status = job.wait()
        assert cat.wait(PATIENCE) == 0
    elif kind == "closed":
        size = 0
        job.start(case, n=3, preexec_fn=lambda: os.close(0))
        status = job.wait()
    elif kind == "null":
        size = 0
        job.start(case, n=3)
        status = job.wait()
    else:  # as nohup leaves it
        size = 0
        case = "reads_what_nohup_leaves"
        with open(os.devnull, "wb") as file:
            job.start(case, n=3, stdin=file)
            status = job.wait()
    assert status == 0, job.said()
    expected = f"read {size} {SUM if size else 0} 0"
    assert words(job.notes(), "read") == sorted([expected, "read 0 0 1", "read 0 0 2"])


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
@pytest.mark.once
def test_closed_streams_do_no_harm(job: Running, closed: tuple[int, ...]) -> None:
    job.start("here", preexec_fn=lambda: [os.close(number) for number in closed])
    assert job.wait() == 0, job.said()
    assert words(job.notes(), "here") == ["here 0", "here 1"]


def test_a_loop_over_lines_keeps_its_lines(job: Running) -> None:
    script = job.folder / "loop.sh"
    script.write_text(
        f"while read line; do {sys.executable} -m xupc run -n 2 {PROGRAM} turn $line; done < list\n"
    )
    (job.folder / "list").write_text("a\nb\nc\n")
    subprocess.run(
        ["sh", str(script)], cwd=job.folder, check=True, timeout=180, env=job.environment
    )
    turns = [f"turn {name} {thread}" for name in "abc" for thread in (0, 1)]
    assert words(job.notes(), "turn") == turns


def test_a_program_that_reads_one_line_leaves_the_rest(job: Running) -> None:
    """Thread 0 takes from the input what it reads, like any program."""
    (job.folder / "list").write_text("first\nsecond\n")
    command = f"{sys.executable} -m xupc run -n 2 {PROGRAM} reads_one_line; cat"
    done = subprocess.run(
        ["sh", "-c", command], stdin=(job.folder / "list").open(), cwd=PROJECT, timeout=120,
        env=job.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "second\n"
    assert words(job.notes(), "read") == ["read first 0"]
