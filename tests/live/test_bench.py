"""`xupc bench` with real threads: what it measures, writes, and keeps when it is stopped."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.launch import PROJECT, Result, launch, mpi_family
from support.polling import until

from xupc.bench.methods import METHODS
from xupc.bench.oracle import COLLECTIVES
from xupc.bench.results import FLOOR, OURS, PEER
from xupc.bench.results import Result as Measurement
from xupc.cli.launcher import job_command
from xupc.cli.mpi import find_mpi

pytestmark = pytest.mark.once
PATIENCE = 240.0  # seconds for the start of a job, its trial launch and its first saving


def bench(*words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xupc", "bench", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, cwd=PROJECT
    )


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if line and not line.startswith("#")]


def test_launches_and_placements_are_all_there(tmp_path: Path) -> None:
    file = tmp_path / "r.json.gz"
    done = bench(
        "all_broadcast", "all_reduce_all", "barrier", "-n", "2", "--nodes", "2",
        "--nodes", "1,1", "-m", "8,8K", "--peer", "--plan", "--launches", "2", "-i", "2",
        "-c", "-f", "--root", "rotate", "--json", str(file), "--csv", str(tmp_path / "r.csv"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = Measurement.load(file)
    assert result.complete
    assert [job.nodes for job in result.jobs] == [[[0, 1]], [[0], [1]]]
    for job in result.jobs:
        assert len(job.launches) == 2
        assert {(c.collective, c.nbytes) for c in job.cells} == {
            ("barrier", 0), ("all_broadcast", 8), ("all_broadcast", 8192),
            ("all_reduce_all", 8), ("all_reduce_all", 8192),
        }  # fmt: skip
        for cell in job.cells:
            assert all(len(ns) >= 1 for c in cell.candidates for ns in c.ns), cell.title
            assert all(c.wrong == [[], []] for c in cell.candidates)
            assert all(t > 0 for c in cell.candidates for ns in c.ns for t in ns)
            assert cell.candidate("mpi4py") is not None
            if cell.collective == "all_broadcast":  # once to each other node
                far = (len(job.nodes) - 1) * cell.nbytes
                assert cell.candidate("MULTICORE").network_bytes == far
                assert cell.candidate("xupc").algorithm.startswith("multicore")
    figures = rows(done.stdout)
    assert {row[0] for row in figures} == {"0", "8", "8192"}
    assert all(row[-1] == "Pass" for row in figures)
    kept = sum(1 for j in result.jobs for cell in j.cells for c in cell.candidates)
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + kept


def test_every_variant_is_measured_once(tmp_path: Path) -> None:
    """By its name, or by the flag whose default it is; the table of `xupc tune` takes both."""
    file, names = tmp_path / "r.json", "auto,PULL,PUSH,MULTICORE,variants"
    done = bench(
        "all_gather_all", "allav_prefix_reduce", "allv_gather", "-n", "4", "--nodes", "2,2",
        "-m", "8,64K", "--flags", names, "--launches", "1", "-i", "2", "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [job] = Measurement.load(file).jobs
    ways = {(c.collective, c.nbytes): [] for c in job.cells}
    for cell in job.cells:
        ours = [c for c in cell.of_kind(OURS) if c.name != "xupc"]
        ways[cell.collective, cell.nbytes] += [c.algorithm for c in ours]
        assert cell.spread is not None
    names_of_ways = "circulant", "levels", "linear", "doubling", "rounds", "ring"
    several = [f"multicore:{name}" for name in names_of_ways]
    assert sorted(ways["all_gather_all", 8]) == sorted(["pull", "push", "multicore:led", *several])
    assert sorted(ways["all_gather_all", 1 << 16]) == sorted(["pull", "push", *several])
    scans = [f"multicore:{name}" for name in ("chain", "doubling", "levels", "table")]
    # multicore:push is what PUSH does
    assert sorted(ways["allav_prefix_reduce", 8]) == [*scans, "pull", "push"]
    words = "-n", "2", "-m", "8", "--flags", "variants", "-i", "2", "--launches", "1"
    done = bench("all_gather_all", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by multicore:fused  [multicore:fused]" in done.stdout
    assert "by pull  [PULL]" in done.stdout


def test_launches_are_added(tmp_path: Path) -> None:
    """To the job of the same shape; others stay; what has other calls is refused, and kept."""
    file = tmp_path / "r.json"
    words = ["all_broadcast", "-m", "8,64", "-i", "2", "--json", str(file), "--append"]
    for shape in (["-n", "2"], ["-n", "2"], ["-n", "1"]):
        done = bench(*words, *shape, "--launches", "1")
        assert done.returncode == 0, done.stdout + done.stderr
    result = Measurement.load(file)
    assert [(job.threads, len(job.launches)) for job in result.jobs] == [(2, 2), (1, 1)]
    job = result.jobs[0]
    assert job.launches[0].seed != job.launches[1].seed
    assert all(len(c.ns) == 2 for cell in job.cells for c in cell.candidates)
    assert all(0 <= launch.others <= 1 for job in result.jobs for launch in job.launches)
    before = file.read_bytes()
    done = bench("all_scatter", *words[1:], "-n", "2", "--launches", "1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "earlier launches had other calls" in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_bytes() == before


def test_a_suite_within_a_budget(tmp_path: Path) -> None:
    """No more runs than the document has, and every cell.

    The budget is spent whole. A busy machine has no time for every cell then: it gets more.
    """
    file = tmp_path / "r.json.gz"
    for budget in ("10", "30", "90"):
        words = ["--suite", "mtu", "-n", "2", "--budget", budget, "--json", str(file)]
        done = bench(*words, "--force")
        if done.returncode == 0 and "cut after" not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    job = Measurement.load(file).jobs[0]
    assert len(job.launches) == 1
    runs = [len(c.ns[0]) for cell in job.cells for c in cell.of_kind("ours")]
    assert len(runs) == 12 * 2 * 2
    assert 1 <= min(runs) <= max(runs) <= 501


@pytest.mark.rotates
@pytest.mark.parametrize("team", ["node", "roots"])
def test_teams(tmp_path: Path, team: str) -> None:
    file = tmp_path / "r.json"
    done = bench(
        "all_gather", "allav_exchange", "all_permute_x", "allv_scatter", "-n", "3",
        "--nodes", "2,1", "-m", "64,64", "--team", team, "--root", "last", "-i", "3", "--peer",
        "--launches", "1", "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for cell in Measurement.load(file).jobs[0].cells:
        for candidate in cell.candidates:
            assert [len(ns) for ns in candidate.ns] == [3]
            assert candidate.wrong == [[]]
            assert candidate.kind == FLOOR or min(candidate.ns[0]) > 0


def test_every_collective_gives_what_it_must(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = bench(
        "*", "-n", "3", "-m", "48,48", "-i", "1", "-x", "0", "--flags", "auto", "--sync", "mysync",
        "--root", "last", "--launches", "1", "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    job = Measurement.load(file).jobs[0]
    ours = [c for cell in job.cells for c in cell.of_kind(OURS)]
    assert len(ours) == len(COLLECTIVES)
    assert all(c.wrong == [[]] for c in ours)


def test_methods_of_the_drop_in_communicator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each method beside mpi4py's in one job; under this switch xupc carries them all."""
    monkeypatch.setenv("XUPC_COMM", "force")
    file = tmp_path / "r.json"
    done = bench(
        *METHODS, "--api", "mpi4py", "--peer", "-n", "2", "-m", "48,48", "-i", "2", "-x", "0",
        "--root", "last", "--launches", "1", "--json", str(file),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    cells = Measurement.load(file).jobs[0].cells
    assert [cell.collective for cell in cells] == list(METHODS.values())
    for method, cell in zip(METHODS, cells, strict=True):
        assert cell.api == "mpi4py"
        (ours,), (peer,) = cell.of_kind(OURS), cell.of_kind(PEER)
        assert ours.call == f"xupc.Comm.{method}, carried by xupc"
        assert peer.call == f"comm.{method}"
        for candidate in (ours, peer):
            assert candidate.wrong == [[]], candidate.call
            assert len(candidate.ns[0]) == 2


def test_a_wrong_result_is_told_and_is_the_exit_status() -> None:
    words = ["bench", "all_gather_all", "-m", "64,64", "-i", "2", "--flags", "auto,PULL", "-c"]
    result = launch(3, "tests/live/programs/wrong_bench_result.py", args=words)
    assert result.returncode == 1, result.report()
    assert "wrong result of all_gather_all(..., PULL) on thread 1" in result.stderr
    assert [row[-1] for row in rows(result.stdout)] == ["Pass", "Fail"]


def test_a_mistake_in_the_arguments_is_told_once() -> None:
    program = "tests/live/programs/command_line_in_a_job.py"
    result = launch(3, program, args=["bench", "all_gahter"])
    assert result.returncode == 2, result.report()
    assert result.stderr.count("did you mean all_gather") == 1, result.report()


def figures(file: Path) -> int:
    """The number of candidates that were measured, of what is saved already.

    Where threads are slow the first saving finds a job with nothing but its machine.
    """
    jobs = Measurement.load(file).jobs if file.exists() else []
    return sum(any(c.ns) for job in jobs for cell in job.cells for c in cell.candidates)


def started(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT
    )


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("number", "inside", "across"),
    [
        pytest.param(signal.SIGTERM, False, False, id="launches-SIGTERM"),
        pytest.param(signal.SIGINT, False, False, id="launches-SIGINT"),
        pytest.param(signal.SIGTERM, True, False, id="in a job-SIGTERM"),
        pytest.param(signal.SIGINT, True, False, id="in a job-SIGINT"),
        pytest.param(signal.SIGTERM, True, True, id="across nodes"),
    ],
)
def test_what_was_measured_is_kept(tmp_path: Path, number: int, inside: bool, across: bool) -> None:
    file = tmp_path / "r.json"
    words = ["all_gather", "-m", "8,1K", "--budget", "300", "--peer", "--json", str(file)]
    words += ["--nodes", "1,1"] if across else []
    command = [sys.executable, "-m", "xupc", "bench"]
    if inside:
        command = job_command(find_mpi(), 2, [*command, *words], environment={}, recover=False)
    else:
        command += ["-n", "2", *words]
    job = started(command)
    try:
        until(lambda: figures(file) or job.poll() is not None, "figures are saved", PATIENCE)
        assert job.poll() is None, job.communicate()
        before = file.stat().st_mtime
        job.send_signal(number)
        out, err = job.communicate(timeout=PATIENCE)
    finally:
        job.kill()
    assert job.returncode != 0, out + err
    assert inside or job.returncode == 128 + number  # a launcher has a status of its own
    result = Measurement.load(file)
    assert not result.complete
    assert file.stat().st_mtime >= before
    assert "ended by SIG" in " ".join(result.notes)  # Open MPI's launcher sends SIGTERM for any
    if inside and mpi_family() == "openmpi":
        return  # and drops what its threads print from then on
    assert "# incomplete" in out
    assert rows(out)


def test_clocks_of_several_machines(live: Callable[..., Result]) -> None:
    result: Any = live(5, "tests/live/programs/shared_clock.py")
    assert re.findall("done", result.stdout) == ["done"] * 5
