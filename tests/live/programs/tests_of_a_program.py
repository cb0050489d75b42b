"""Tests as a user of the pytest plugin writes them; `test_pytest_plugin.py` runs them."""

import fcntl
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import xupc

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
FOLDER = Path(os.environ.get("XUPC_TEST_FOLDER", "."))


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    return np.arange(4.0)


@pytest.mark.xupc(np=2)
def test_sum(xupc_team: xupc.Team, numbers: Numbers) -> None:
    total = np.empty_like(numbers)
    xupc.allav_reduce_all(total, numbers, xupc.ADD)
    print(f"summed by {xupc.MYTHREAD}")
    assert (total == xupc_team.size * numbers).all()


@pytest.mark.xupc(np=2)
def test_a_whole_program() -> None:
    with xupc.init() as team:
        assert team.size == xupc.THREADS == 2


@pytest.mark.xupc(np=4, nodes="2x2")
def test_nodes(xupc_team: xupc.Team, tmp_path: Path) -> None:
    assert len(xupc_team.tree.nodes) == 2
    folders = xupc.allv_gather_all(hash(tmp_path))
    assert len(set(folders)) == 4


@pytest.mark.xupc(np=[1, 2])
def test_numbers_of_threads(xupc_team: xupc.Team, xupc_np: int) -> None:
    assert xupc_team.size == xupc_np


@pytest.mark.xupc(np=2)
@pytest.mark.xfail(strict=True)
def test_expected_on_one_thread(xupc_team: xupc.Team) -> None:
    assert xupc.MYTHREAD == 0


@pytest.mark.xupc(np=2)
@pytest.mark.skip(reason="not today")
def test_skipped() -> None:
    raise AssertionError


@pytest.mark.xupc(np=2)
def test_one_fails(xupc_team: xupc.Team) -> None:
    print(f"I am {xupc.MYTHREAD}")
    assert xupc.MYTHREAD != 1


@pytest.mark.xupc(np=2)
def test_all_fail(xupc_team: xupc.Team) -> None:
    xupc.allav_reduce_all(None, None, xupc.ADD)  # type: ignore[arg-type]


@pytest.mark.xupc(np=2)
def test_one_fails_and_one_waits(xupc_team: xupc.Team) -> None:
    assert xupc.MYTHREAD != 1
    xupc.barrier()


@pytest.mark.xupc(np=2, timeout=12)
def test_hangs(xupc_team: xupc.Team) -> None:
    if xupc.MYTHREAD == 1:
        threading.Event().wait()
    xupc.barrier()


@pytest.mark.xupc(np=2, timeout=3)
def test_never_ends() -> None:
    threading.Event().wait()


@pytest.mark.xupc(np=2)
def test_dies(xupc_team: xupc.Team) -> None:
    print(f"dying: {xupc.MYTHREAD}")
    if xupc.MYTHREAD == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    xupc.barrier()


@pytest.mark.xupc(np=2)
def test_ends_the_job() -> None:
    with xupc.init():
        assert xupc.MYTHREAD != 1, "words of the failure"
        xupc.barrier()


def test_in_no_job() -> None:
    assert os.getppid() == int(os.environ["XUPC_TEST_PARENT"])


@pytest.mark.parametrize("turn", range(4))
def test_alone(xupc_team: xupc.Team, turn: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No other process of pytest-xdist can start a job now: the lock of jobs is held."""
    lock = tmp_path_factory.getbasetemp().parent.parent / "xupc-job.lock"
    with lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_for_ever(xupc_team: xupc.Team) -> None:
    (FOLDER / f"waits {xupc.MYTHREAD}").touch()
    threading.Event().wait()
