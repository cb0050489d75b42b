"""The command line, without starting jobs."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.launch import PROJECT

from xupc import cli
from xupc.cli import info, jobs, options
from xupc.cli.facts import Facts, Heap
from xupc.cli.local_threads import Failure
from xupc.cli.mpi import LaunchError, Mpi, Probe
from xupc.cli.outcome import Outcome
from xupc.cli.rank_wrapper import RANK_VARIABLES
from xupc.topology import host

MPICH = Mpi("mpich", "5.0.2", Path("/env/bin/mpiexec"), "package mpich 5.0.2")
GOOD = Facts(
    python="3.12.1",
    versions={
        "xupc": "0.1.0", "numpy": "2.1.0", "mpi4py": "4.1.0", "psutil": "6.0.0", "click": "8.2.0",
        "jinja2": "3.1.6",
    },
    probe=Probe("MPICH Version:      5.0.2", "/env/lib/libmpi.so.12", "multiple"),
    mpi=MPICH,
    core="/x/_core.so",
    compiler="/usr/bin/cc",
    heap=Heap("/dev/shm", 8 << 30, 16 << 30, True),
    hostname="here",
    hostid=0x1234,
)


def xupc(*args: str, **options: Any) -> Result:
    return CliRunner().invoke(cli.main, args, **options)


# --- run ------------------------------------------------------------------------------------------


class Recorder:
    """Stands in for `run_job`."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.command: Sequence[str] = ()
        self.environment: dict[str, str] = {}
        self.options: dict[str, Any] = {}

    def __call__(self, command: Sequence[str], env: dict[str, str], **options: Any) -> Outcome:
        self.command, self.environment, self.options = command, env, options
        return self.outcome


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(Outcome(0))
    monkeypatch.setattr(jobs, "run_job", recorder)
    monkeypatch.setattr(jobs, "find_mpi", lambda: MPICH)
    return recorder


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "program.py"
    file.touch()
    return str(file)


def test_run_passes_everything_on(job: Recorder, program: str) -> None:
    own = ["--nodes", "2x2", "--timeout", "9", "-n", "7", "-x"]
    done = xupc("run", "-n", "4", "--nodes", "2x2", "--timeout", "5", program, *own)
    assert done.exit_code == 0, done.output
    assert list(job.command[:4]) == ["/env/bin/mpiexec", "-n", "4", sys.executable]
    assert list(job.command[-len(own) - 2 :]) == [sys.executable, program, *own]
    assert job.environment["XUPC_NODES"] == "2x2"
    assert job.environment["XUPC_TIMEOUT"] == "5"
    assert job.environment["XUPC_JOB"]
    assert job.options["forward"]


def test_run_a_module_with_options_of_its_own(job: Recorder) -> None:
    done = xupc("run", "-n", "2", "-m", "package.module", "-v", "--nodes", "x")
    assert done.exit_code == 0, done.output
    assert list(job.command[-5:]) == ["-m", "package.module", "-v", "--nodes", "x"]
    assert "XUPC_NODES" not in job.environment


def test_run_shows_the_command(job: Recorder, program: str) -> None:
    done = xupc("run", "-n", "2", "-v", "--mpiexec-args", "-iface 'e 0'", program)
    assert "-iface 'e 0'" in done.stderr


def test_each_run_has_a_mark_of_its_own(job: Recorder, program: str) -> None:
    marks = set()
    for _ in range(2):
        xupc("run", "-n", "1", program)
        marks.add(job.environment["XUPC_JOB"])
    assert len(marks) == 2


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(137, failures=(Failure(1, 137),)), "thread 1 was killed by SIGKILL"),
        (Outcome(3, timed_out=True), "not finished after 2 s"),
    ],
)
def test_run_exits_with_the_jobs_status(
    job: Recorder, program: str, outcome: Outcome, words: str
) -> None:
    job.outcome = outcome
    done = xupc("run", "-n", "2", "--time-limit", "2", program)
    assert done.exit_code == outcome.status
    assert f"xupc run: {words}" in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["run"],
        ["run", "-n", "2"],
        ["run", "PROGRAM"],
        ["run", "-n", "0", "PROGRAM"],
        ["run", "-n", "two", "PROGRAM"],
        ["run", "-n", "2", "nowhere.py"],
        ["run", "-n", "2", "--bogus", "PROGRAM"],
        ["run", "-n", "2", "-m"],
        ["run", "-n", "2", "--timeout", "0", "PROGRAM"],
        ["run", "-n", "4", "--nodes", "3x2", "PROGRAM"],
        ["run", "-n", "4", "--nodes", "many", "PROGRAM"],
        ["run", "-n", "2", "--mpiexec-args", '"', "PROGRAM"],
        ["job-script", "--", "all_broadcast", "--append"],
        ["tune", "all_scatter", "--from", "PROGRAM", "--dry-run"],
        ["topo", "-n", "4", "--nodes", "2,1"],
        ["unheard-of"],
    ],
)
def test_usage_errors(job: Recorder, program: str, args: list[str]) -> None:
    done = xupc(*[program if arg == "PROGRAM" else arg for arg in args])
    assert done.exit_code == 2, done.output
    assert job.command == ()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "--nn", "2", "PROGRAM"], "No such option '--nn'"),
        (["run", "--tracee=t.json", "PROGRAM"], "No such option '--tracee'"),
        (["run", "-n", "2", "--frce", "PROGRAM"], "--force"),
        (["run", "PROGRAM"], "Missing option '-n'"),
        (["tun"], "No such command 'tun': did you mean tune"),
        (["frobnicate"], "No such command 'frobnicate': there are algorithms, bench"),
        (["--frobnicate"], "No such option '--frobnicate'"),
    ],
)
def test_the_misspelt_word_is_named(
    job: Recorder, program: str, args: list[str], words: str
) -> None:
    done = xupc(*[program if arg == "PROGRAM" else arg for arg in args])
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert job.command == ()


WRITING = [
    ["run", "-n", "2", "--trace", "FILE", "PROGRAM"],
    ["bench", "Bcast", "-n", "2", "--json", "FILE"],
    ["bench", "Bcast", "-n", "2", "--csv", "FILE"],
    ["tune", "Bcast", "-n", "2", "-o", "FILE"],
    ["tune", "Bcast", "-n", "2", "--json", "FILE"],
    ["calibrate", "-n", "2", "-o", "FILE"],
    ["demo", "-o", "FILE"],
    ["algorithms", "all_broadcast", "8", "--draw", "pull:star", "--timeline", "FILE"],
    ["export", "all_broadcast", "--nodes", "2x2", "--format", "goal", "-o", "FILE"],
    ["export", "all_broadcast", "--nodes", "2x2", "--format", "chakra", "-o", "FILE"],
    ["predict", "all_broadcast", "8", "--nodes", "2x2", "--page", "FILE"],
    ["report", "RESULT", "-o", "FILE"],
    ["report", "RESULT", "--markdown", "FILE"],
    ["trace", "FOLDER", "-o", "FILE"],
]


@pytest.mark.parametrize("args", WRITING, ids=" ".join)
def test_a_file_that_cannot_be_made_is_refused_first(
    job: Recorder, program: str, args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a job or a long computation, also where the system seems to permit it, as in /sys."""
    given = {
        "PROGRAM": program, "FILE": str(tmp_path / "there"), "FOLDER": str(tmp_path),
        "RESULT": str(tmp_path / "none.json"),
    }  # fmt: skip
    (tmp_path / "none.json").write_text("{}")

    def refused(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    done = xupc(*[given.get(arg, arg) for arg in args])
    assert done.exit_code == 2, done.output
    assert "there" in done.output
    assert "cannot be written: Permission denied" in done.output
    assert job.command == ()


def test_a_refused_run_leaves_the_earlier_trace(
    job: Recorder, program: str, tmp_path: Path
) -> None:
    """With --force, too, it is replaced only by a job."""
    trace = tmp_path / "t.json"
    trace.write_text("an earlier one")
    words = ["--trace", str(trace), "--force", program]
    for wrong in (["-n", "3", "--nodes", "2x2", *words], ["-n", "2", *words[:3], "nowhere.py"]):
        done = xupc("run", *wrong)
        assert done.exit_code == 2, done.output
        assert trace.read_text() == "an earlier one"
    (tmp_path / "t.json.parts").write_text("")
    done = xupc("run", "-n", "2", *words)
    assert done.exit_code == 2, done.output
    assert "t.json.parts" in done.output


def test_run_names_a_misspelt_variable_once(
    job: Recorder, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are those of `xupc info`, and the job runs all the same."""
    monkeypatch.setenv("XUPC_TIMOUT", "3")
    monkeypatch.setenv("XUPC_TIMEOUT", "3")
    monkeypatch.setenv("XUPC_TEST_OF_A_TEST", "1")
    done = xupc("run", "-n", "2", program)
    words = "XUPC_TIMOUT is set, but xupc knows no such variable: did you mean XUPC_TIMEOUT?"
    assert done.stderr.splitlines() == [f"xupc run: {words}"]
    assert job.command


def test_placements_that_are_one_are_measured_once() -> None:
    found = options.shapes((4,), ("2x2", "2,2", "cyclic:2", "4x1", "1,1,1,1"))
    assert [shape.nodes for shape in found] == ["2x2", "cyclic:2", "4x1"]


def test_no_mpi_is_an_environment_error(
    job: Recorder, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Mpi:
        raise LaunchError("mpi4py uses MPICH 5.0.2, but there is no mpiexec of it")

    monkeypatch.setattr(jobs, "find_mpi", missing)
    done = xupc("run", "-n", "2", program)
    assert done.exit_code == 4
    assert "there is no mpiexec of it" in done.stderr


def test_topo_is_a_job(job: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host, "available_cores", lambda: 6)
    assert xupc("topo").exit_code == 0
    assert list(job.command[1:3]) == ["-n", "6"]
    assert list(job.command[-2:]) == ["-m", "xupc.cli.topo"]
    assert xupc("topo", "-n", "4", "--nodes", "2x2").exit_code == 0
    assert job.environment["XUPC_NODES"] == "2x2"


def test_help_and_version() -> None:
    done = xupc("--help")
    assert done.exit_code == 0
    for command in ("info", "run", "topo"):
        assert command in done.output
    assert xupc("--version").exit_code == 0
    assert "-m MODULE" in xupc("run", "--help").output


def test_python_m_xupc() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xupc", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: python -m xupc")


# --- info -----------------------------------------------------------------------------------------


def test_info_of_this_machine() -> None:
    done = xupc("info")
    assert done.exit_code == 0, done.output
    for row in ("Python", "mpi4py", "MPI", "mpiexec", "native core", "shared memory", "cores"):
        assert f"\n{row} " in done.output


def test_info_with_nothing_wrong() -> None:
    assert info.problems(GOOD) == []
    shown = info.render(GOOD)
    assert "\nnothing wrong\n" in shown
    assert "xupc info --measure" in shown
    assert "MPICH 5.0.2  /env/lib/libmpi.so.12, threads: multiple" in shown
    assert "8 GiB free of 16 GiB" in shown
    assert "0x00001234" in shown


def test_versions_needed_are_those_of_the_package() -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    names_and_versions = [spec.split(">=") for spec in wanted]
    assert {
        name: tuple(map(int, version.split(".")[:2])) for name, version in names_and_versions
    } == info.REQUIRED


@pytest.mark.parametrize(
    ("change", "words", "fatal"),
    [
        ({"python": "3.10.4"}, "Python 3.10.4 is too old: 3.11", True),
        ({"versions": GOOD.versions | {"mpi4py": None}}, "mpi4py is not installed", True),
        ({"versions": GOOD.versions | {"numpy": "1.26.4"}}, "numpy 1.26.4 is too old", True),
        ({"versions": GOOD.versions | {"jinja2": None}}, "xupc demo make no page", False),
        ({"probe": Probe(error="cannot load libmpi")}, "cannot load libmpi", True),
        ({"probe": Probe("MPICH Version: 5.0.2", error="no answer")}, "MPI does not start", True),
        ({"tuning_error": "tuning table t: version"}, "tuning table t: version", True),
        ({"settings_error": "init: timeout: expected"}, "init: timeout: expected", True),
        ({"heap": Heap("/nowhere")}, "there is no directory /nowhere", True),
        ({"heap": Heap("/dev/shm", 1 << 30, 1 << 30, False)}, "is not writable", True),
        ({"heap": Heap("/dev/shm", 1 << 20, 1 << 30, True)}, "only 1 MiB of shared", False),
        ({"mpi": None, "mpi_error": "no mpiexec"}, "xupc run does not work: no mpiexec", False),
        (
            {"probe": Probe("Open MPI v5.0.11", thread_level="multiple")},
            "mpi4py loads Open MPI 5.0.11, but the launcher /env/bin/mpiexec belongs to MPICH",
            False,
        ),
        ({"core": "", "core_error": "not built"}, ": every call is many times slower", False),
        ({"core": "", "compiler": None}, "install a C compiler (none was found)", False),
        ({"variables": {"XUPC_ENGINE": "python"}}, "the native core is there but not used", False),
        ({"variables": {"XUPC_HEAPSIZE": "1"}}, "xupc knows no such variable", False),
    ],
)
def test_info_says_what_is_wrong(change: dict[str, Any], words: str, fatal: bool) -> None:
    facts = dataclasses.replace(GOOD, **change)
    found = info.problems(facts)
    assert len(found) == 1
    assert words in found[0]
    assert bool(info.unusable(facts)) == fatal
    assert "1 problem\n" in info.render(facts)


@pytest.mark.parametrize(
    ("level", "words"),
    [("multiple", "go on between nodes"), ("serialized", "thread level is serialized")],
)
def test_info_says_what_goes_on_in_the_background(level: str, words: str) -> None:
    facts = dataclasses.replace(GOOD, probe=Probe("MPICH Version: 5.0.2", thread_level=level))
    assert words in info.render(facts)


def test_info_exits_with_4_where_xupc_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = dataclasses.replace(GOOD, probe=Probe(error="cannot load libmpi"))
    monkeypatch.setattr(info, "collect", lambda timeout: facts)
    assert xupc("info").exit_code == 4


def test_info_shows_what_was_measured(job: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], env: dict[str, str], **options: Any) -> Outcome:
        options["stdout"].write(b'the launcher has a word\n{"copy rate": 12.5e9, ')
        options["stdout"].write(
            b'"line latency ns": 83.4, "wire rate": 1e9, "wire latency ns": 2e4, '
            b'"line latency ns, l3": 31.0, "cached copy rate, l3": 9e9, '
            b'"line latency ns, socket": 99.0, "cached copy rate, socket": 6e9, '
            b'"copy rate, socket": 5e9}'
        )
        return job(command, env, **options)

    monkeypatch.setattr(jobs, "run_job", run)
    monkeypatch.setattr(info, "collect", lambda timeout: GOOD)
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    shown = xupc("info", "--measure", "-n", "2", "--nodes", "1,1").output
    assert list(job.command[-3:]) == [sys.executable, "-m", "xupc.bench.machine"]
    assert job.environment["XUPC_NODES"] == "1,1"
    assert "12.5 GB/s by one thread\n" in shown
    assert "83 ns from core to core" in shown
    assert "1 GB/s, 20 µs for 8 bytes, between node roots" in shown
    assert "by l3          a cache line 31 ns, 9 GB/s from a cache\n" in shown
    assert "a cache line 99 ns, 6 GB/s from a cache, 5 GB/s from memory\n" in shown
    assert "2 on this machine" in shown


def test_info_says_why_nothing_was_measured(job: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    job.outcome = Outcome(137)
    monkeypatch.setattr(info, "collect", lambda timeout: GOOD)
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    done = xupc("info", "--measure")
    assert "nothing could be measured: the job was killed by SIGKILL" in done.output


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome(3, timed_out=True), "not finished after 7.5 s"),
        (Outcome(137, failures=(Failure(1, 137),)), "thread 1 was killed by SIGKILL"),
        (Outcome(0), "the job printed nothing"),
    ],
)
def test_a_job_that_measures_nothing_is_explained_once(
    job: Recorder, capfd: pytest.CaptureFixture[str], outcome: Outcome, why: str
) -> None:
    job.outcome = outcome
    assert jobs.measured_by("xupc.bench.machine", 2, None, 7.5) == ({}, why)
    assert capfd.readouterr() == ("", "")


def test_a_signal_to_a_job_that_measures_ends_the_command(
    job: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGINT itself, at last, if it was that."""
    died: list[str] = []
    monkeypatch.setattr(jobs, "die_of_interrupt", lambda: died.append("SIGINT"))
    monkeypatch.setattr(info, "collect", lambda timeout: GOOD)
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for number, wanted in ((15, []), (2, ["SIGINT"])):
        job.outcome = Outcome(128 + number, interrupted=number)
        done = xupc("info", "--measure")
        assert (done.exit_code, done.output, died) == (128 + number, "", wanted)


def test_info_when_mpi_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(*, start: bool, timeout: float) -> Probe:
        return Probe(error=f"no answer within {timeout:g} s") if start else Probe("MPICH 5.0.2")

    facts = info.collect(probe=probe, find=lambda: MPICH, timeout=2)
    assert any("MPI does not start: no answer within 2 s" in text for text in info.unusable(facts))


# --- the machine ----------------------------------------------------------------------------------


def cgroup_tree(tmp_path: Path, files: dict[str, str], proc: str) -> tuple[Path, Path]:
    for name, text in files.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    proc_self = tmp_path / "self"
    proc_self.mkdir()
    (proc_self / "cgroup").write_text(proc + "\n")
    return tmp_path / "cgroup", proc_self


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    files = {
        "a/b/memory.max": "max",
        "a/memory.max": "1048576",
        "memory.max": "2097152",
        "a/b/cpu.max": "250000 100000",
        "a/cpu.max": "max 100000",
    }
    tree = cgroup_tree(tmp_path, files, "0::/a/b")
    assert host.memory_limit(*tree) == 1 << 20
    assert host.cpu_limit(*tree) == 2.5


def test_version_1_cgroups(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": "4096",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "cpu/job/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_quota_us": "50000",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/job/cpu.cfs_period_us": "100000",
    }
    tree = cgroup_tree(tmp_path, files, "5:cpu:/job\n4:memory:/job")
    assert host.memory_limit(*tree) == 4096
    assert host.cpu_limit(*tree) == 0.5


def test_no_cgroups(tmp_path: Path) -> None:
    assert host.memory_limit(tmp_path, tmp_path) is None
    assert host.cpu_limit(tmp_path, tmp_path) is None


def test_cores() -> None:
    assert 1 <= host.available_cores() <= host.cpus_allowed() <= (os.cpu_count() or 1)


def sysfs(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def test_two_hardware_threads_of_a_core_are_not_two_cores(tmp_path: Path) -> None:
    lists = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
    cpus = sysfs(tmp_path, {f"cpu{n}/topology/thread_siblings_list": s for n, s in lists.items()})
    assert host.two_cores(frozenset({0, 4}), frozenset({0, 4, 5}), cpus) == (0, 5)
    assert host.two_cores(frozenset({0, 4}), frozenset({0, 4}), cpus) == (0, 4)
    assert host.two_cores(frozenset({5}), frozenset({5}), cpus) is None


def test_last_level_caches_numa_nodes_and_governors(tmp_path: Path) -> None:
    files = {}
    for cpu, sharers in ((0, "0-1"), (1, "0-1"), (2, "2")):
        for index, level, size in ((0, "1", "48K"), (3, "3", "32768K"), (2, "2", "2M")):
            where = f"cpu{cpu}/cache/index{index}"
            files |= {f"{where}/level": level, f"{where}/size": size}
            files[f"{where}/shared_cpu_list"] = sharers if level == "3" else str(cpu)
        files[f"cpu{cpu}/cpufreq/scaling_governor"] = "performance" if cpu else "powersave"
    cpus = sysfs(tmp_path / "cpu", files)
    assert host.caches(cpus) == {frozenset({0, 1}): 32 << 20, frozenset({2}): 32 << 20}
    assert host.governors(cpus) == ("performance", "powersave")
    nodes = sysfs(tmp_path / "node", {"node0/cpulist": "0-1,4", "node1/cpulist": "2-3"})
    assert host.numa_nodes(frozenset({1, 4}), nodes) == 1
    assert host.numa_nodes(frozenset({4, 2}), nodes) == 2


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    assert host.caches(tmp_path) == {}
    assert host.governors(tmp_path) == ()
    assert host.numa_nodes(frozenset({0, 7}), tmp_path) == 1
    assert host.siblings(3, tmp_path) == {3}


@pytest.mark.parametrize(
    "command",
    [
        ("run", "-n", "N", __file__),
        ("bench", "-n", "N"),
        ("tune", "-n", "2,N"),
        ("topo", "-n", "N"),
    ],
)
def test_a_crowd_has_to_be_meant(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr("xupc.cli.common.available_cores", lambda: 3)

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a job was started")

    monkeypatch.setattr("xupc.cli.jobs.run_job", started)
    monkeypatch.setattr("xupc.bench.driver.measure", started)
    for count in ("193", "100000"):
        done = xupc(*(word.replace("N", count) for word in command))
        assert done.exit_code == 2, done.output
        assert f"{count} threads on this machine's 3 cores: expected at most 192" in done.output
