"""Which MPI, which command, which environment: the parts that start nothing of MPI's."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.launch import BUSY
from support.polling import until

from xupc.cli import batch, launcher, local_threads, mpi
from xupc.cli.diagnostics import mpi_shortage
from xupc.cli.launcher import (
    job_command,
    job_environment,
    launcher_options,
    run_job,
    thread_command,
)
from xupc.cli.local_threads import Failure, LocalThreads, describe_status
from xupc.cli.mpi import LaunchError, Mpi, Probe, clean_environment, family_of, parse_version
from xupc.cli.outcome import Outcome
from xupc.cli.processes import kill_tagged, tagged
from xupc.cli.terminal import JobControl
from xupc.comm import mpi_settings

PROGRAM = Path(__file__).parent / "programs" / "threads_of_a_launcher.py"
MPICH = """MPICH Version:      5.0.2
MPICH Release date: Fri Sep 25 20:45:26 UTC 2026
MPICH ABI:          17:2:5
"""
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI user@host Distribution, ident: 5.0.11, Sep 16, 2026"
HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n"
PRTERUN = "mpiexec (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
INTEL = "Intel(R) MPI Library 2021.13 for Linux* OS"


# --- which MPI ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        (MPICH, "mpich", "5.0.2"),
        (HYDRA, "mpich", "5.0.2"),
        (OPEN_MPI, "openmpi", "5.0.11"),
        (PRTERUN, "openmpi", "5.0.11"),
        ("mpiexec (OpenRTE) 4.1.4", "openmpi", "4.1.4"),
        ("prterun (PRRTE) 3.0.13", "openmpi", "3.0.13"),
        (INTEL, "intelmpi", "2021.13"),
        ("MPICH Version: 4.3.0b1", "mpich", "4.3.0b1"),
        ("something else", "unknown", ""),
    ],
)
def test_descriptions(text: str, family: str, version: str) -> None:
    assert family_of(text) == family
    assert parse_version(text) == version


def fake_mpiexec(directory: Path, says: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "mpiexec"
    file.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.fixture
def built_for_one_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make mpi4py look built for one MPI: packages do not show which one it is."""
    monkeypatch.setattr(mpi, "_from_wheel", lambda prefix: None)


@pytest.mark.usefixtures("built_for_one_mpi")
def test_the_launcher_beside_the_library_comes_first(tmp_path: Path) -> None:
    own = fake_mpiexec(tmp_path / "mpi/bin", HYDRA)
    fake_mpiexec(tmp_path / "env/bin", HYDRA)
    probe = Probe(library=MPICH, path=str(tmp_path / "mpi/lib/libmpi.so.12"))
    found = mpi.find_mpi(probe=lambda: probe, prefix=tmp_path / "env", search_path="")
    assert found == Mpi("mpich", "5.0.2", own, "beside the MPI library")


@pytest.mark.usefixtures("built_for_one_mpi")
def test_a_foreign_launcher_on_path_is_passed_over(tmp_path: Path) -> None:
    fake_mpiexec(tmp_path / "other", PRTERUN)
    fake_mpiexec(tmp_path / "stale", HYDRA.replace("5.0.2", "3.4.1"))
    right = fake_mpiexec(tmp_path / "right", HYDRA)
    path = os.pathsep.join(str(tmp_path / name) for name in ("other", "stale", "missing", "right"))
    found = mpi.find_mpi(probe=lambda: Probe(library=MPICH), prefix=tmp_path, search_path=path)
    assert found.mpiexec == right
    assert found.origin == "on PATH"


@pytest.mark.usefixtures("built_for_one_mpi")
def test_only_foreign_launchers_is_an_error_that_names_them(tmp_path: Path) -> None:
    foreign = fake_mpiexec(tmp_path / "other", PRTERUN)
    with pytest.raises(LaunchError, match=r"mpi4py uses MPICH 5\.0\.2") as caught:
        mpi.find_mpi(
            probe=lambda: Probe(library=MPICH), prefix=tmp_path, search_path=str(tmp_path / "other")
        )
    assert f"{foreign} (on PATH) belongs to Open MPI 5.0.11" in str(caught.value)


@pytest.mark.usefixtures("built_for_one_mpi")
def test_no_launcher_and_no_library(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no mpiexec was found"):
        mpi.find_mpi(probe=lambda: Probe(library=MPICH), prefix=tmp_path, search_path="")
    with pytest.raises(LaunchError, match="cannot load an MPI library: no libmpi"):
        mpi.find_mpi(probe=lambda: Probe(error="no libmpi"), prefix=tmp_path, search_path="")


def test_an_explicit_library_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", "/somewhere/libmpi.so")
    asked = []

    def probe() -> Probe:
        asked.append(1)
        return Probe(error="as expected")

    with pytest.raises(LaunchError, match="as expected"):
        mpi.find_mpi(probe=probe)
    assert asked


def test_no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match="mpi4py is not installed"):
        mpi.find_mpi()


def test_what_is_installed_here_agrees_with_what_loads() -> None:
    found = mpi.find_mpi()
    probe = mpi.probe_mpi()
    assert (found.family, found.version) == (family_of(probe.library), parse_version(probe.library))
    assert (found.family, found.version) == mpi.identify(found.mpiexec)


def test_probe_reports_instead_of_raising(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no answer within" in mpi.probe_mpi(timeout=1e-3).error
    environment = {**os.environ, "MPI4PY_LIBMPI": "/nowhere/libmpi.so"}
    assert "/nowhere/libmpi.so" in mpi.probe_mpi(environment=environment).error
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert mpi.probe_mpi().error


# --- commands and environments --------------------------------------------------------------------


def test_options() -> None:
    assert launcher_options("mpich") == []  # its option against clean-ups kills spawned processes
    assert launcher_options("openmpi") == [
        "--enable-recovery",
        "--oversubscribe",
        "--bind-to",
        "none",
    ]
    assert launcher_options("openmpi", ["--bind-to", "core", "--map-by", "node"]) == [
        "--enable-recovery",
        "--bind-to",
        "core",
        "--map-by",
        "node",
    ]
    assert launcher_options("unknown", ["-x"]) == ["-x"]


def test_job_command() -> None:
    mpich = Mpi("mpich", "5.0.2", Path("/m/mpiexec"), "")
    assert job_command(mpich, 4, ["python", "a.py", "-n", "1"], recover=False) == [
        *("/m/mpiexec", "-n", "4"),
        *("python", "a.py", "-n", "1"),
    ]
    open_mpi = Mpi("openmpi", "5.0.11", Path("/m/mpiexec"), "")
    environment = {"XUPC_NODES": "2x2", "HOME": "/", "XUPC_JOB": "1"}
    command = job_command(open_mpi, 4, ["python", "a.py"], environment=environment)
    assert command[-8:] == ["-x", "XUPC_JOB", "-x", "XUPC_NODES", "-n", "4", "python", "a.py"]
    many = job_command(open_mpi, 1 << 20, ["python", "a.py"])
    assert "mpi_yield_when_idle" in many
    assert "--runtime-options" not in many  # the launcher's status is needed


@pytest.mark.skipif(sys.platform != "linux", reason="rank_wrapper.py is for Linux")
def test_a_failure_counts_once_where_its_status_is_reported() -> None:
    """Open MPI's launcher counts each twice, and ends the job when half of the threads failed."""
    words = thread_command(["python", "a.py"])
    open_mpi = Mpi("openmpi", "5.0.11", Path("/m/mpiexec"), "")
    options = ["--runtime-options", "error-nonzero-status=0"]
    assert options[1] in job_command(open_mpi, 2, words)
    for other in (["--host", "a,b"], ["--runtime-options=continuous"], ["--rtos", "x"]):
        assert options[1] not in job_command(open_mpi, 2, words, extra=other)
    assert options[1] not in job_command(open_mpi, 2, words, recover=False)
    older = Mpi("openmpi", "4.1.6", Path("/m/mpiexec"), "")  # has no such option
    mpich = Mpi("mpich", "5.0.2", Path("/m/mpiexec"), "")
    assert not any(options[0] in job_command(each, 2, words) for each in (older, mpich))


def test_thread_command_ends_with_the_program() -> None:
    command = thread_command(["python", "-m", "module"])
    assert command[-3:] == ["python", "-m", "module"]


@pytest.mark.skipif(sys.platform != "linux", reason="watch.py is for Linux")
def test_colons_get_one_more_backslash() -> None:
    """A colon alone separates programs for mpiexec; watch.py removes one backslash."""
    command = thread_command(["a", ":", "\\:", "b:"])
    assert command[-4:] == ["a", "\\:", "\\\\:", "b:"]


def test_job_environment() -> None:
    base = {"HOME": "/home", "PMI_RANK": "3", "XUPC_NODES": "4x1"}
    environment = job_environment(base, "mpich", tag="t", timeout=2.5)
    assert environment == {
        "HOME": "/home",
        "XUPC_NODES": "4x1",
        "XUPC_JOB": "t",
        "XUPC_TIMEOUT": "2.5",
    }
    assert job_environment(base, "mpich", tag="t", nodes="2x2")["XUPC_NODES"] == "2x2"
    assert base["XUPC_NODES"] == "4x1"


def test_clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    base = {"PMIX_RANK": "1", "PMIX_MCA_gds": "hash", "OMPI_COMM_WORLD_SIZE": "2", "A": "1"}
    kept = {"PMIX_MCA_gds": "hash", "A": "1"}
    (tmp_path / "infiniband").mkdir()
    monkeypatch.setattr(mpi, "_DEVICES", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert clean_environment(base, "openmpi") == kept
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert clean_environment(base, "openmpi")["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    assert clean_environment(base, "mpich") == kept


def test_open_mpi_without_a_fast_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mpi, "_DEVICES", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    without = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi"}
    assert clean_environment({}, "openmpi") == without
    own = {"OMPI_MCA_osc": "ucx", "OMPI_MCA_btl": "self,sm"}
    assert clean_environment(own, "openmpi") == own
    assert clean_environment({}, "mpich") == {}
    (tmp_path / "cxi").mkdir()  # OFI's
    assert clean_environment({}, "openmpi") == {"OMPI_MCA_osc": "^ucx"}


def test_a_process_that_starts_mpi_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mpi_settings, "DEVICES", tmp_path)
    monkeypatch.delenv("OMPI_MCA_osc", raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", os)
    mpi_settings.prepare_start()
    assert "OMPI_MCA_osc" not in os.environ
    monkeypatch.delitem(sys.modules, "mpi4py.MPI")
    mpi_settings.prepare_start()
    assert os.environ.pop("OMPI_MCA_osc") == "^ucx"
    (tmp_path / "infiniband").mkdir()
    mpi_settings.prepare_start()
    assert "OMPI_MCA_osc" not in os.environ


# --- how jobs end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (3, "exited with status 3"),
        (137, "was killed by SIGKILL"),
        (139, "was killed by SIGSEGV"),
        (255, "exited with status 255"),
    ],
)
def test_statuses_in_words(status: int, words: str) -> None:
    assert describe_status(status) == words


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(0), ""),
        (Outcome(5), "the job exited with status 5"),
        (Outcome(137, failures=(Failure(1, 137),)), "thread 1 was killed by SIGKILL"),
        (
            Outcome(1, failures=(Failure(2, 1), Failure(0, 1), Failure(1, 1))),
            "thread 2 exited with status 1; 2 other threads failed after it",
        ),
        (Outcome(3, timed_out=True, survivors=4), "not finished after 7 s; 4 processes still"),
        (Outcome(130, interrupted=2), "ended by SIGINT"),
        (Outcome(1, survivors=1), "1 process still running had to be killed"),
        (Outcome(1, survivors=8, killed=3), "3 threads still running had to be killed"),
        (Outcome(1, survivors=3, killed=1), "1 thread still running had to be killed"),
        (
            Outcome(1, first_error=2),
            "the job exited with status 1; the first error was that of thread 2",
        ),
        (Outcome(1, failures=(Failure(2, 1),), first_error=0), "thread 2 exited with status 1"),
    ],
)
def test_outcomes_in_words(outcome: Outcome, words: str) -> None:
    assert outcome.explain(7).startswith(words)
    assert bool(outcome.explain(7)) == bool(words)


def run(case: str, *arguments: str, **options: object) -> Outcome:
    """Run a case of programs/threads_of_a_launcher.py as a job of one, without MPI."""
    environment = {**os.environ, "XUPC_JOB": uuid.uuid4().hex, "PMI_RANK": "4"}
    command = thread_command([sys.executable, str(PROGRAM), case, *arguments])
    return run_job(command, environment, **options)  # type: ignore[arg-type]


def test_a_good_job() -> None:
    outcome = run("well")
    assert (outcome.status, outcome.launcher_status, outcome.failures) == (0, 0, ())


def test_a_failed_thread_is_reported() -> None:
    outcome = run("fails")
    assert (outcome.status, outcome.failures) == (9, (Failure(4, 9),))


def test_a_killed_thread_is_reported() -> None:
    outcome = run("crashes")
    assert (outcome.status, outcome.failures) == (139, (Failure(4, 139),))


def test_launchers_that_were_killed_leave_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open MPI's keeps files by process id, and does not start if such a file is there already."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    seen = tmp_path / "seen"
    assert run("leaves_a_session_file", str(tmp_path), str(seen)).status == 137
    assert not Path(seen.read_text()).exists()


def test_a_place_for_sessions_of_the_users_own_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRTE_MCA_prte_tmpdir_base", "/tmp")
    assert run("has_no_place_for_sessions").status == 0


def test_the_program_has_ordinary_signals() -> None:
    assert run("has_ordinary_signals").status == 0


def test_time_limit() -> None:
    outcome = run("sleeps", time_limit=0.5)
    assert (outcome.status, outcome.timed_out) == (3, True)
    assert 0.4 < outcome.seconds < BUSY * 5


def test_killed_threads_are_counted_without_their_wrappers() -> None:
    outcome = run("sleeps", time_limit=BUSY * 1.0)
    assert (outcome.killed, outcome.survivors) == (1, 2)
    assert outcome.explain(1.0).endswith("; 1 thread still running had to be killed")


def test_a_survivor_is_killed_and_makes_the_job_fail() -> None:
    outcome = run("leaves_a_child", grace=0.2)
    assert (outcome.status, outcome.launcher_status, outcome.survivors) == (1, 0, 1)


def test_threads_left_waiting_for_a_failed_one_are_killed() -> None:
    # The launcher is a shell that runs one thread which fails, and goes on for ever.
    tag = uuid.uuid4().hex
    thread = " ".join(thread_command([sys.executable, str(PROGRAM), "fails"]))
    outcome = run_job(
        ["sh", "-c", f"{thread}; sleep 600"], {**os.environ, "XUPC_JOB": tag}, failed_grace=0.3
    )
    assert (outcome.status, outcome.timed_out) == (9, False)
    assert outcome.seconds < BUSY * 5
    assert tagged("XUPC_JOB", tag) == []


def test_a_launcher_that_is_not_there() -> None:
    with pytest.raises(LaunchError, match="cannot execute /nowhere/mpiexec"):
        run_job(["/nowhere/mpiexec"], {"XUPC_JOB": "t"})


def test_a_program_that_cannot_be_executed(capfd: pytest.CaptureFixture[str]) -> None:
    environment = {**os.environ, "XUPC_JOB": uuid.uuid4().hex}
    assert run_job(thread_command(["/nowhere/program"]), environment).status == 127
    assert "cannot execute /nowhere/program" in capfd.readouterr().err


# --- marked processes -----------------------------------------------------------------------------


def test_marked_processes_are_found_and_killed() -> None:
    mark = uuid.uuid4().hex
    environment = {**os.environ, "XUPC_TEST_MARK": mark}
    nap = [sys.executable, str(PROGRAM), "sleeps"]
    ours = [subprocess.Popen(nap, env=environment, start_new_session=True) for _ in range(2)]
    # A longer value that begins like ours is another one's.
    other = subprocess.Popen(nap, env={**environment, "XUPC_TEST_MARK": mark + "0"})
    try:
        until(lambda: len(tagged("XUPC_TEST_MARK", mark)) == 2, "both are there")
        assert sorted(tagged("XUPC_TEST_MARK", mark)) == sorted(p.pid for p in ours)
        assert sorted(kill_tagged("XUPC_TEST_MARK", mark)) == sorted(p.pid for p in ours)
        assert [p.wait(BUSY * 5) for p in ours] == [-signal.SIGKILL] * 2
        assert tagged("XUPC_TEST_MARK", mark) == []
        assert other.poll() is None
    finally:
        for process in (*ours, other):
            process.kill()
            process.wait()


def test_exit_statuses_are_the_documented_ones() -> None:
    statuses = (
        launcher.EXIT_WRONG,
        launcher.EXIT_USAGE,
        launcher.EXIT_TIMEOUT,
        launcher.EXIT_ENVIRONMENT,
    )
    assert statuses == (1, 2, 3, 4)


# --- what xupc run has of its surroundings --------------------------------------------------------

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a", "SLURM_NNODES": "1", "PATH": "/nowhere"}


def test_slurm_without_srun() -> None:
    two = {**SLURM, "SLURM_NNODES": "2"}
    assert batch.obstacle(SLURM, "mpich") == ""
    assert batch.local_settings(SLURM, "mpich")["HYDRA_LAUNCHER"] == "fork"
    assert batch.remark(SLURM).startswith("the variables of a Slurm job are set")
    said = batch.obstacle(two, "mpich")
    assert said.endswith("unset SLURM_JOB_ID SLURM_JOB_NODELIST")
    assert "2 machines" in said
    assert batch.local_settings(two, "mpich") == {}
    del two["SLURM_NNODES"]
    two["SLURM_JOB_NODELIST"] = "a[1-2]"
    assert batch.obstacle(two, "openmpi") == said
    # the user's own choice of machines
    assert batch.obstacle(two, "mpich", ["-hosts", "a1"]) == ""
    assert batch.obstacle({**two, "HYDRA_RMK": "user"}, "mpich") == ""


def test_slurm_with_srun(tmp_path: Path) -> None:
    (tmp_path / "srun").touch(mode=0o755)
    there = {**SLURM, "SLURM_NNODES": "2", "PATH": str(tmp_path)}
    assert batch.obstacle(there, "mpich") == batch.remark(there) == ""
    assert batch.local_settings({**SLURM, "PATH": str(tmp_path)}, "mpich") == {}


@pytest.mark.parametrize(
    ("family", "left", "cure"),
    [
        ("mpich", {"PBS_NODEFILE": "/nowhere"}, "PBS_NODEFILE"),
        ("mpich", {"HYDRA_HOST_FILE": "/nowhere"}, "HYDRA_HOST_FILE"),
        ("mpich", {"PE_HOSTFILE": "/nowhere", "SGE_ROOT": "/x"}, "PE_HOSTFILE"),
        ("mpich", {"COBALT_NODEFILE": "/nowhere"}, "COBALT_NODEFILE"),
        (
            "mpich",
            {"LSB_JOBID": "7", "LSF_BINDIR": "/nowhere", "LSB_MCPU_HOSTS": "other 2"},
            "LSB_JOBID LSB_MCPU_HOSTS",
        ),
        ("openmpi", {"PBS_JOBID": "7", "PBS_ENVIRONMENT": "x"}, "PBS_JOBID PBS_ENVIRONMENT"),
    ],
)
def test_batch_systems_that_are_not_there(family: str, left: dict[str, str], cure: str) -> None:
    left = {**left, "PATH": "/nowhere"}
    assert batch.obstacle(left, family).endswith(f"unset {cure}")
    assert batch.obstacle({n: v for n, v in left.items() if n not in cure.split()}, family) == ""
    assert batch.obstacle({"SGE_ROOT": "/x", "PBS_JOBID": "7", "LSF_BINDIR": "/x"}, family) == ""


def test_a_signal_is_passed_on_once_a_second_and_then_kills() -> None:
    threads = LocalThreads(uuid.uuid4().hex, 0)
    child = subprocess.Popen(["sleep", "600"])
    try:
        control = JobControl(threads, active=True)
        control.started(child)
        control._end(signal.SIGCONT, None)
        control._end(signal.SIGCONT, None)  # timeout(1) sends each signal twice
        assert (control.received, control.hurry) == (signal.SIGCONT, False)
        control._last[signal.SIGCONT] -= 2
        control._end(signal.SIGCONT, None)
        assert control.hurry
    finally:
        child.kill()
        child.wait()
        threads.close()


def test_a_signal_before_the_launcher_is_passed_on() -> None:
    threads = LocalThreads(uuid.uuid4().hex, 0)
    with JobControl(threads, active=True) as control:
        os.kill(os.getpid(), signal.SIGTERM)
        child = subprocess.Popen(["sleep", "600"])
        control.started(child)
        assert child.wait(60) == -signal.SIGTERM
    threads.close()


@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_signal_while_the_folder_comes_or_goes(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the job, or finds none, and leaves no folder."""

    where, name = {"begin": (Path, "mkdir"), "end": (shutil, "rmtree")}[when]
    original = getattr(where, name)

    def interrupted(*arguments: Any, **more: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        original(*arguments, **more)

    monkeypatch.setattr(where, name, interrupted)
    program = "600" if when == "begin" else "0"
    environment = {**os.environ, "XUPC_JOB": uuid.uuid4().hex, "TMPDIR": str(tmp_path)}
    outcome = run_job(["sleep", program], environment, forward=True, time_limit=60)
    assert (outcome.status, outcome.interrupted) == (128 + signal.SIGTERM, signal.SIGTERM)
    assert list(tmp_path.iterdir()) == []


def test_messages_of_threads() -> None:
    tag = uuid.uuid4().hex
    threads = LocalThreads(tag, 0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for text in ("up 0 2 11", "up 1 2 12", "1 9", "nonsense", "up", "0 0"):
            sender.sendto(text.encode(), f"\0xupc-job-{tag}")
            threads.drain()
            if text == "up 0 2 11":
                assert not threads.all_here
    threads.close()
    assert threads.all_here
    assert threads.failures == [Failure(1, 9)]


def test_messages_of_other_users_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tag = uuid.uuid4().hex
    threads = LocalThreads(tag, 0)
    monkeypatch.setattr(local_threads, "_own", lambda uid: False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"1 9", f"\0xupc-job-{tag}")
    threads.drain()
    threads.close()
    assert threads.failures == []


def test_where_dev_shm_is_too_small_is_said_after_a_bus_error() -> None:
    assert "docker run --shm-size=1g" in mpi_shortage(1 << 20)
    assert mpi_shortage(1 << 30) == mpi_shortage(None) == ""
    said = mpi_shortage(1 << 20)
    words = Outcome(135, failures=(Failure(1, 135),), shortage=said).explain()
    assert words == f"thread 1 was killed by SIGBUS; {said}"
