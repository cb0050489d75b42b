"""Jobs of the pytest plugin: what a test that is not at its end shows."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from xupc.testing.jobs import Job

STACK = """Timeout (0:00:02)!
Thread 0x00007f0000000000 (most recent call first):
  File "test_program.py", line 7 in test_never_ends
  File "rank.py", line 142 in <module>
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that has not started."""
    made = Job.__new__(Job)
    made._folder = tmp_path
    return made


@pytest.mark.parametrize("parts", [[STACK], [STACK[:40], STACK[40:]], ["", STACK[:-1], "\n"]])
def test_stacks_that_are_written_late_are_shown_whole(job: Job, parts: list[str]) -> None:
    """On a busy machine a thread writes them some time after the limit, in pieces."""

    def write() -> None:
        for rank in range(2):
            with (job._folder / f"stacks.{rank}").open("w") as file:
                for text in parts:
                    time.sleep(0.03)
                    file.write(text)
                    file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    found = job._stacks({0, 1}, 60.0)
    writer.join()
    assert found == f"thread 0:\n{STACK}\nthread 1:\n{STACK}"


def test_no_thread_is_waited_for_in_vain(job: Job) -> None:
    (job._folder / "stacks.0").write_text(STACK)
    (job._folder / "stacks.1").touch()
    assert job._stacks({0, 1, 2}, 0.0) == job._stacks({0, 1}, 0.05) == f"thread 0:\n{STACK}"
