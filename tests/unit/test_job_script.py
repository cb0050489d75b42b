"""The batch script works, with stand-ins for srun and xupc, and the ReFrame check loads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.polling import PATIENCE, until

from xupc import cli
from xupc.cli import job_script

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
EXAMPLE = SCRIPTS / "slurm" / "xupc-bench.sbatch"
CHECK = SCRIPTS / "reframe" / "xupc_check.py"

# Stand-ins that note how they were called. The benchmark waits for SIGTERM if it is to.
SRUN = """\
#!/bin/sh
echo "srun $1" >> calls
shift
exec "$@"
"""
PYTHON = """\
#!/bin/bash
echo "$*" >> calls
[[ "$*" == *" bench "* ]] || exit 0
if [ -e wait ]; then
  trap 'echo told >> calls; echo half > xupc-bench-7.json; exit 143' TERM
  touch begun
  for _ in $(seq 500); do sleep 0.02; done
  exit 1
fi
[ -e fail ] && exit 4
echo all > xupc-bench-7.json
"""


def job_script_text(*args: str) -> str:
    done = CliRunner().invoke(cli.main, ["job-script", *args])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "an env'ironment" / "bin"
    folder.mkdir(parents=True)
    for name, text in (("srun", SRUN), ("python", PYTHON)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return tmp_path


def start(place: Path, *args: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8"}
    (place / "job").write_text(
        job_script_text("--environment", str(place / "an env'ironment"), *args)
    )
    return subprocess.Popen(["bash", "job"], cwd=place, env=environment)


def calls(place: Path) -> list[str]:
    return (place / "calls").read_text().splitlines()


def test_it_measures_and_reports(place: Path) -> None:
    assert start(place, "--", "all_broadcast", "-m", "8:1K").wait(PATIENCE) == 0
    assert calls(place) == [
        "srun --mpi=pmix",
        "-m xupc info",
        *(
            "srun --mpi=pmix",
            "-m xupc bench all_broadcast -m 8:1K --json xupc-bench-7.json --append",
        )
        * 5,
        "-m xupc report xupc-bench-7.json --force",
    ]


def test_with_mpiexec(place: Path) -> None:
    assert start(place, "--mpi", "mpiexec").wait(PATIENCE) == 0
    assert "-m xupc run -n 8 -m xupc bench --json xupc-bench-7.json --append" in calls(place)


def test_when_the_time_is_up_what_there_is_is_reported(place: Path) -> None:
    (place / "wait").touch()
    job = start(place)
    until((place / "begun").exists, "the job has begun")
    job.send_signal(signal.SIGTERM)  # to the shell alone, as --signal=B:TERM says
    assert job.wait(PATIENCE) == 143
    assert calls(place)[-2:] == ["told", "-m xupc report xupc-bench-7.json --force"]


def test_a_failure_without_a_result_is_the_jobs(place: Path) -> None:
    (place / "fail").touch()
    assert start(place).wait(PATIENCE) == 4
    assert "report" not in calls(place)[-1]


@pytest.mark.parametrize("mpi", job_script.LAUNCHERS)
def test_the_text_is_a_good_shell_script(mpi: str, tmp_path: Path) -> None:
    text = job_script_text(
        *("--mpi", mpi, "--time", "90", "--nodes", "3", "--threads-per-node", "1"),
        *("--", "all_[b]roadcast", "--csv", '"it\'s $HOME" `x`\n', "-c"),
    )
    for line in (
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --time=01:30:00",
        "#SBATCH --signal=B:TERM@60",
        f'export PATH={Path(sys.executable).parent}:"$PATH"',
    ):
        assert line in text.splitlines()
    subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    if shellcheck := shutil.which("shellcheck"):
        file = tmp_path / "job"
        file.write_text(text)
        subprocess.run([shellcheck, "-S", "warning", str(file)], check=True)


def test_a_misspelt_option_is_an_error() -> None:
    assert CliRunner().invoke(cli.main, ["job-script", "--tme", "5"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "'nosuch' is no collective"),
        (["--flgs", "PULL"], "No such option"),
        (["--root", "8"], "no thread 8 among 8"),
        (["--append", "--json", "x"], "--append, --json: options of the job script"),
        (["-n", "2", "--launches", "3"], "-n, --launches: options of the job script"),
        (["--nodes", "2x4", "--nodes", "1x8"], "--nodes: options of the job script"),
        (["--time-limit", "9", "--mpiexec-args", "-x"], "--time-limit, --mpiexec-args"),
    ],
)
def test_what_the_benchmark_would_refuse(words: list[str], said: str) -> None:
    """Better now than when the job has waited for its turn."""
    done = CliRunner().invoke(cli.main, ["job-script", "--", *words])
    assert done.exit_code == 2
    assert said in done.output
    assert "#SBATCH" not in done.output


def test_the_example_is_what_the_command_prints() -> None:
    words = "--threads-per-node 16 --environment .venv all_broadcast all_gather_all all_reduce"
    assert EXAMPLE.read_text() == job_script_text(*words.split(), "--budget", "20m")


def test_the_reframe_check_compiles_and_is_listed(tmp_path: Path) -> None:
    compile(CHECK.read_text(), str(CHECK), "exec")
    reframe = shutil.which("reframe")
    if reframe is None:
        pytest.skip("reframe is not installed")
    done = subprocess.run(
        [reframe, "--prefix", str(tmp_path), "-c", str(CHECK), "-l"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "XupcCheck %collective=all_broadcast" in done.stdout


def test_a_budget_is_for_all_launches() -> None:
    text = job_script_text("--launches", "4", "--", "--budget", "2m")
    assert "each=(--budget 30s)" in text
    assert "launches=4" in text
