"""The command line for people who know MPI: names, options, help pages, JSON, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from xupc import cli
from xupc.bench.columns import aligned
from xupc.bench.osu_text import bandwidths
from xupc.bench.results import Candidate, Cell, Job
from xupc.bench.settings import named
from xupc.cli import jobs, options
from xupc.cli.mpi import Mpi
from xupc.cli.outcome import Outcome
from xupc.cli.rank_wrapper import RANK_VARIABLES
from xupc.specs import SPECS, calls, mpi_name, of_mpi

COMMANDS = {
    name: getattr(import_module(f"xupc.cli.{module}"), function)
    for name, (module, function, _) in cli.COMMANDS.items()
}


def xupc(*words: str) -> Result:
    return CliRunner().invoke(cli.main, words)


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("Bcast", "allav_broadcast"), ("bcast", "allav_broadcast"), ("BARRIER", "barrier"),
        ("allreduce", "allav_reduce_all"), ("Allreduce", "allav_reduce_all"),
        ("MPI_Allreduce", "allav_reduce_all"), ("Reduce", "allav_reduce"),
        ("Allgather", "allav_gather_all"), ("alltoall", "allav_exchange"),
        ("Reduce_scatter_block", "allav_reduce_scatter"), ("scan", "allav_prefix_reduce"),
        ("Exscan", "allav_exclusive_prefix_reduce"), ("Allgatherv", "allav_gather_all_v"),
        ("Alltoallv", "allav_exchange_v"), ("Sendrecv", "allav_permute"),
    ],
)  # fmt: skip
def test_names_of_mpi(word: str, call: str) -> None:
    assert named([word]) == (call,)
    assert named([word, call]) == (call,)


def test_every_name_of_mpi_leads_to_the_call_that_has_it() -> None:
    for spec in SPECS.values():
        for name in filter(None, (spec.peer, spec.peer_v)):
            assert mpi_name(of_mpi(name)) == name
    assert {of_mpi(name) for name in ("all_reduce", "allav_reduce", "gather_all", "")} == {""}
    assert not [call for call in calls() if of_mpi(call)]


def test_a_misspelt_name_gets_a_hint_with_both_names() -> None:
    with pytest.raises(ValueError, match=r"did you mean .*allav_reduce_all \(allreduce of MPI\)"):
        named(["allredcue"])


def test_algorithms_takes_them_too() -> None:
    ours, theirs = xupc("algorithms", "allav_reduce_all"), xupc("algorithms", "Allreduce")
    assert ours.exit_code == 0
    assert ours.output == theirs.output
    done = xupc("algorithms", "allgater")
    assert done.exit_code == 2
    assert "did you mean" in done.output
    assert "allav_gather_all" in done.output


@pytest.mark.parametrize("command", ["bench", "tune", "algorithms"])
def test_the_list_has_all_names(command: str) -> None:
    done = xupc(command, "--list")
    assert done.exit_code == 0
    rows = [line.split() for line in done.output.splitlines()[1:]]
    assert [row[0] for row in rows] == ["barrier", *calls()]
    assert dict(row[:2] for row in rows)["allav_reduce_all"] == "Allreduce"
    assert dict(row[:2] for row in rows)["all_suffix_reduce"] == "-"


def test_a_shell_completes_names() -> None:
    for command in ("bench", "tune", "algorithms"):
        complete = ShellComplete(cli.main, {}, "xupc", "_XUPC_COMPLETE")
        found = [item.value for item in complete.get_completions([command], "all_gather_a")]
        assert found == ["all_gather_all", "all_gather_all_v", "all_gather_all_x"]
        found = [item.value for item in complete.get_completions([command], "Allg")]
        assert found == ["Allgatherv", "Allgather"] or found == ["Allgather", "Allgatherv"]


# ---- options -------------------------------------------------------------------------------------


def test_options_of_osu_s_benchmarks() -> None:
    from xupc.cli.bench import bench_command

    ours, long, short = (text.split() for text in (
        "-m 8:1K -i 7 -x 3 -c -f -z --root 3 --dtype int32,float32 Bcast",
        "--message-size 8:1KiB --iterations 7 --warmup 3 --validation --full --tail-lat "
        "--root-rank fixed:3 --type mpi_int,mpi_float Bcast",
        "-m 8:1k -i 7 -x 3 -c -f -z -k 3 -T int32,float32 Bcast",
    ))  # fmt: skip
    found = [bench_command.make_context("bench", words).params for words in (ours, long, short)]
    assert found[0] == found[1] == found[2]
    assert found[0]["dtype"] == ("int32", "float32")
    assert options.dtypes(None, None, "all") == ("int8", "int32", "float32")


@pytest.mark.parametrize("command", ["bench", "tune", "run", "info", "topo", "algorithms"])
def test_np_is_n(command: str) -> None:
    program = [__file__] if command == "run" else []
    for words in (["-np", "3"], ["-n", "3"], ["-n3"]):
        context = COMMANDS[command].make_context(command, [*words, *program])
        assert context.params["threads"] in (3, (3,))


# ---- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_a_help_page_has_examples_and_no_empty_line(name: str) -> None:
    done = xupc(name, "--help")
    assert done.exit_code == 0
    examples = done.output.partition("Examples:")[2].splitlines()
    assert sum("xupc " in line for line in examples) >= 2, done.output
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            text = option.help or ""
            assert len(text.split()) >= 4, (option.opts, text)
            assert not text.startswith("Of "), text


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_the_examples_are_commands_that_exist(name: str) -> None:
    text = COMMANDS[name].epilog
    for line in text.splitlines():
        if "xupc " not in line:
            continue
        words = line.partition("xupc ")[2].partition(" >")[0].replace("'", "").split()
        known = {o for p in COMMANDS[words[0]].params for o in p.opts} | _of_bench(words[0])
        for word in words[1:]:
            if word.startswith("-") and words[0] != "run":
                assert word in known, line


def _of_bench(command: str) -> set[str]:
    """Return the options that the job script passes on."""
    bench = COMMANDS["bench"].params if command == "job-script" else []
    return {"-", *(o for p in bench for o in p.opts)}


# ---- run -----------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def run_job(command: list[str], *_: Any, **__: Any) -> Outcome:
        commands.append(list(command))
        return Outcome(0)

    monkeypatch.setattr(jobs, "run_job", run_job)
    monkeypatch.setattr(jobs, "find_mpi", lambda: Mpi("mpich", "5", Path("/bin/mpiexec"), "a test"))
    return commands


def test_python_before_the_program(started: list[list[str]], tmp_path: Path) -> None:
    here = str(Path(sys.executable).parent / "python3")
    for words, last in (
        (["python", __file__, "-v"], [sys.executable, __file__, "-v"]),
        (["python3", "-u", "-m", "this"], [sys.executable, "-u", "-m", "this"]),
        ([here, __file__], [here, __file__]),
        (["--mpi", "python", __file__], [sys.executable, "-m", "xupc.mpi", __file__]),
    ):
        done = xupc("run", "-n", "2", *words)
        assert done.exit_code == 0, done.output
        assert started[-1][-len(last) :] == last
    for words in (
        ["python"],
        ["python", "-m"],
        ["python", "nowhere.py"],
        ["--mpi", "python", "-u"],
    ):
        assert xupc("run", "-n", "2", *words).exit_code == 2


def test_a_file_that_is_called_python_is_a_program(
    started: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").touch()
    assert xupc("run", "-n", "2", "python").exit_code == 0
    assert started[-1][-2:] == [sys.executable, "python"]


@pytest.mark.parametrize(
    ("size", "parent", "status"),
    [("2", "prterun", 2), ("2", "hydra_pmi_proxy", 2), ("1", "prterun", 0), ("2", "bash", 0),
     ("2", "", 0)],
)  # fmt: skip
def test_several_copies_of_run_are_refused(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch, size: str, parent: str, status: int
) -> None:
    """Those that a launcher starts; variables alone may be left from another job."""
    monkeypatch.setattr("xupc.cli.jobs._parent", lambda: parent)
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", size)
    refused = "xupc run starts the threads itself: expected one copy"
    done = xupc("run", "-n", "2", __file__)
    assert done.exit_code == status, done.output
    assert (refused in done.output) == bool(status)
    assert len(started) == (not status)
    without = xupc("run", __file__)  # it is not first asked for -n, and then refused
    assert without.exit_code == 2
    assert (refused if status else "Missing option '-n' / '-np'") in without.output


def test_run_within_a_thread_of_a_job_is_a_job_of_its_own() -> None:
    """There the parent is a program."""
    code = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    check = "from xupc.cli.jobs import _refuse_copies as f; f()"
    done = subprocess.run(
        [sys.executable, "-c", code, sys.executable, "-c", check],
        env={**os.environ, "PMI_RANK": "1", "PMI_SIZE": "2"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# ---- job-script ----------------------------------------------------------------------------------


def test_the_job_script_takes_the_benchmark_s_options_as_they_are() -> None:
    own = ["--nodes", "4", "--launches", "4"]
    bench = ["Bcast", "--budget", "2m", "-m", "8:1K", "--peer"]
    plain, marked = xupc("job-script", *own, *bench), xupc("job-script", *own, "--", *bench)
    mixed = xupc("job-script", *bench[:3], *own, *bench[3:])
    assert plain.exit_code == 0, plain.output
    assert plain.output == marked.output == mixed.output
    assert "bench=(Bcast --budget 2m -m 8:1K --peer)" in plain.output
    assert "each=(--budget 30s)" in plain.output


# ---- JSON ----------------------------------------------------------------------------------------


def test_info_as_json() -> None:
    done = xupc("info", "--json", "-n", "2")
    found = json.loads(done.output)
    assert found["versions"]["numpy"]
    assert found["problems"] is not None
    assert len(found["threads"]) == 2


def test_topo_as_json() -> None:
    done = xupc("topo", "--json", "--topology", "2x2x2", "-n", "4", "--nodes", "2x2")
    nodes = json.loads(done.output)["nodes"]
    assert [node["threads"] for node in nodes] == [[0, 1], [2, 3]]
    assert nodes[1]["levels"][0] == {"name": "node", "domains": [[2, 3]]}
    assert len(nodes[0]["machine"]["cpus"]) == 8
    assert nodes[0]["processors"][0] == [0]


# ---- tables --------------------------------------------------------------------------------------


def test_columns_never_collide() -> None:
    rows = [["a", "1"], ["a long name of a call", "123456789012345678.00", "x"], ["b"]]
    lines = aligned(rows, right=1, least=6)
    assert [line.split("  ")[0] for line in lines] == ["a", "a long name of a call", "b"]
    assert len(lines[0]) == len(lines[1]) - len("  ") - 6
    assert lines[1].split()[-2:] == ["123456789012345678.00", "x"]
    assert aligned([]) == []


@pytest.mark.parametrize(
    ("collective", "algbw", "bus"),
    [
        ("allav_reduce_all", 8, 2 * 3 / 4), ("allav_broadcast", 8, 1), ("allav_reduce", 8, 1),
        ("allav_gather_all", 32, 3 / 4), ("allav_reduce_scatter", 32, 3 / 4),
        ("all_exchange", 32, 3 / 4), ("all_scatter_v", 32, 3 / 4), ("all_reduce_mpi_all", 8, 1.5),
        ("allav_permute", 8, 1),
    ],
)  # fmt: skip
def test_bandwidths_are_those_of_nccl_tests(collective: str, algbw: float, bus: float) -> None:
    job = Job(4, [[0, 1, 2, 3]])
    found = bandwidths(job, Cell(collective, 8, 1), 1.0)
    assert found == pytest.approx((algbw, algbw * bus))
    assert bandwidths(job, Cell("all_reduce", 8, 1), 1.0) == (None, None)
    assert bandwidths(job, Cell("barrier", 0, 0), 1.0) == (None, None)
    two = Job(4, [[0, 1], [2, 3]])
    assert bandwidths(two, Cell("allav_gather_all", 8, 1, team="roots"), 1.0) == (16, 8)
    assert bandwidths(two, Cell("allav_gather_all", 8, 1, team="node"), 1.0) == (None, None)


def test_percentiles_are_of_all_repetitions() -> None:
    from xupc.bench import osu_text
    from xupc.bench.results import Result as Measurement

    times = [[1000 * k for k in range(1, 51)], [1000 * k for k in range(51, 101)]]
    cell = Cell("all_gather", 8, 8, candidates=[Candidate("xupc", "ours", "x", ns=times)])
    job = Job(2, [[0, 1]], about={"oversubscribed": False, "cores": 2}, cells=[cell])
    result = Measurement(["x"], "t", jobs=[job])
    table = [
        line.removeprefix("# ").split()
        for line in osu_text.osu(result, tail=True).splitlines()
        if "P99" in line or line.startswith("8")
    ]
    row = dict(zip(table[0], table[1], strict=True))
    assert (row["P50(us)"], row["P90(us)"], row["P99(us)"]) == ("50.50", "90.10", "99.01")
    assert (row["Low(us)"], row["High(us)"]) == ("-", "-")  # two launches
    compact = osu_text.osu(result.compact(), tail=True).splitlines()
    row = dict(zip(table[0], next(x for x in compact if x[0:1] == "8").split(), strict=True))
    assert row["P99(us)"] == "-"
