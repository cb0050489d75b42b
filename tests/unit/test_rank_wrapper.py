"""The process between a launcher and a thread's program."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid

import pytest

from xupc.cli.launcher import JOB_TAG, thread_command
from xupc.cli.processes import tagged
from xupc.cli.rank_wrapper import Watch


@pytest.mark.parametrize(
    ("number", "passed_on", "asked"),
    [
        (signal.SIGINT, True, True),
        (signal.SIGTERM, True, True),
        (signal.SIGHUP, True, True),
        (signal.SIGQUIT, True, False),
        (signal.SIGUSR2, True, False),
        (signal.SIGUSR1, False, False),  # hydra may send it to the survivors of a death
    ],
)
def test_signals_that_the_program_gets(
    monkeypatch: pytest.MonkeyPatch, number: int, passed_on: bool, asked: bool
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    watch = Watch()
    watch.child = 12345
    watch.on_signal(number, None)
    assert sent == [(12345, number)] * passed_on
    assert watch.asked is asked


def thread(program: str, connection: socket.socket, tag: str) -> int:
    """Run a program as a thread of hydra's, and return the status that hydra sees."""
    number = connection.fileno()
    environment = {**os.environ, JOB_TAG: tag, "PMI_FD": str(number), "PMI_RANK": "1"}
    command = thread_command([sys.executable, "-c", program])
    done = subprocess.run(command, env=environment, pass_fds=[number], check=False, timeout=60)
    connection.close()
    return done.returncode


def all_gone(tag: str) -> bool:
    """Return whether all processes of a job end within a minute."""
    deadline = time.monotonic() + 60
    while tagged(JOB_TAG, tag) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not tagged(JOB_TAG, tag)


@pytest.mark.skipif(sys.platform != "linux", reason="the wrapper is for Linux")
@pytest.mark.parametrize(
    ("program", "status"),
    [("", 0), ("import os; os._exit(5)", 5), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_hydra_does_not_see_that_a_thread_has_died(program: str, status: int) -> None:
    """Its connection stays open until hydra closes its own end; then nothing is left."""
    tag = uuid.uuid4().hex
    hydra, of_thread = socket.socketpair()
    assert thread(program, of_thread, tag) == status
    hydra.settimeout(0.3)
    with pytest.raises(TimeoutError):
        hydra.recv(1)
    assert len(tagged(JOB_TAG, tag)) == 1
    hydra.close()
    assert all_gone(tag)


@pytest.mark.skipif(sys.platform != "linux", reason="the wrapper is for Linux")
def test_nothing_is_left_of_a_thread_that_hydra_has_dismissed() -> None:
    """After MPI_Finalize hydra closes the connection: the thread leaves no process."""
    tag = uuid.uuid4().hex
    hydra, of_thread = socket.socketpair()
    hydra.close()
    assert thread("", of_thread, tag) == 0
    assert tagged(JOB_TAG, tag) == []
