"""Jobs that note what happens to them in a file: ``noting_jobs.py CASE [ARGUMENT..]``.

For tests of `xupc run` as a process of its own. Each line has the thread's number at its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from typing import NoReturn

from mpi4py import MPI
from support.cases import case, run_case
from support.polling import await_file

RANK = MPI.COMM_WORLD.rank
NOTES = os.open(os.environ["XUPC_TEST_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
FOLDER = os.path.dirname(os.environ["XUPC_TEST_NOTES"])
LONG = 600  # seconds: longer than any test takes


def note(*words: object) -> None:
    """Write a line that the test can wait for."""
    os.write(NOTES, (" ".join(map(str, (*words, RANK))) + "\n").encode())


def up() -> None:
    note("up", os.getpid())


def handler(number: int, *_: object) -> None:
    note("handled", number)


def sleep_for_ever() -> NoReturn:
    while True:
        time.sleep(LONG)


# -- signals ---------------------------------------------------------------------------------------


@case
def handles_signals() -> None:
    """Note them, and go on."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handler)
    up()
    sleep_for_ever()


@case
def ignores_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    up()
    sleep_for_ever()


@case
def has_daemons() -> None:
    """A process in a session and with an environment of its own ignores SIGTERM as well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    other = subprocess.Popen(["sleep", str(LONG)], env={}, start_new_session=True)
    note("other", other.pid)
    up()
    sleep_for_ever()


def clean_up_slowly() -> None:
    up()
    try:
        time.sleep(LONG)
    finally:
        time.sleep(1.5)  # longer than Open MPI's launcher leaves a thread after SIGTERM
        note("finally")


@case
def exits_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    clean_up_slowly()


@case
def is_interrupted() -> None:
    clean_up_slowly()


@case
def is_interrupted_without_core_file() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    clean_up_slowly()


@case
def exits_on_user_signals() -> None:
    def leave(number: int, *_: object) -> None:
        note("handled", number)
        raise SystemExit(0)

    signal.signal(signal.SIGUSR1, leave)
    signal.signal(signal.SIGUSR2, leave)
    up()
    time.sleep(LONG)


@case
def cleans_up(on_sigterm: str = "") -> None:
    if on_sigterm:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    up()
    try:
        time.sleep(LONG)
    finally:
        note("finally")


# -- terminal and standard input -------------------------------------------------------------------


@case
def waits() -> None:
    up()
    await_file(f"{FOLDER}/go")
    note("ended")


@case
def reads_lines() -> None:
    up()
    for line in sys.stdin:
        note("read", line.strip())
    note("end")
    await_file(f"{FOLDER}/go")


@case
def reads_bytes() -> None:
    data = sys.stdin.buffer.read()
    note("read", len(data), sum(data) % 1000)


@case
def reads_what_nohup_leaves() -> None:
    with contextlib.suppress(OSError):
        sys.stdin.read()
    note("read", 0, 0)


@case
def reads_one_line() -> None:
    if RANK == 0:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(0, 1)
        note("read", line.decode().strip())


@case
def here() -> None:
    note("here")


@case
def turn(name: str) -> None:
    note("turn", name)


# -- jobs within jobs ------------------------------------------------------------------------------


@case
def hello() -> None:
    note("hello", MPI.COMM_WORLD.size)


@case
def naps() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    up()
    time.sleep(LONG)


@case
def runs(threads: str, inner: str) -> None:
    """Start `xupc run` with a case of this program."""
    words = [sys.executable, "-m", "xupc", "run", "-n", threads, __file__, inner]
    note("inner", subprocess.run(words, check=False).returncode)


@case
def executes_on_thread_0(command: str) -> None:
    if RANK == 0:
        note("inner", subprocess.run(json.loads(command), check=False).returncode)


MPI.COMM_WORLD.Barrier()
run_case()
