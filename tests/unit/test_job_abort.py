"""The end of a job: each thread exits with the status of the job, in any order."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from xupc.health import job_abort
from xupc.health.control_layout import control_bytes
from xupc.health.control_segment import Control
from xupc.health.job_abort import JobAbort
from xupc.pgas.segment import create

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks cannot be asked for")


class Exited(BaseException):
    """Stands in for the end of the process."""


def exit_status_of(control: Control, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the status of a thread with an error, where another one calls MPI_Abort."""

    def leave(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(job_abort.os, "_exit", leave)
    monkeypatch.setattr(job_abort, "try_lock", lambda *_: False)
    monkeypatch.setattr(job_abort, "lock_holder", lambda *_: None)
    for name in ("end_in", "drop_files"):
        monkeypatch.setattr(job_abort, name, lambda *_: None)
    info = cast(Any, type("Info", (), {"machines": 1, "me": 0, "threads": 2}))
    with pytest.raises(Exited) as found:
        JobAbort(info, control, None).end_job(1, "HangError: too long", ours=True)
    return int(found.value.args[0])


@pytest.mark.parametrize("of_the_job", [3, 130, None])
def test_all_threads_exit_with_the_status_of_the_job(
    of_the_job: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thread 0 gets an error because thread 1 has ended by sys.exit(3), or was interrupted."""
    segment = create(control_bytes(2, 1, 0))
    mine, other = (Control(segment, index, 2, 1) for index in range(2))
    if of_the_job is not None:
        other.end_all(of_the_job)
    assert exit_status_of(mine, monkeypatch) == (1 if of_the_job is None else of_the_job)
