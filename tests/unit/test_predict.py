"""Prices of calls: times computed by hand, and counts by formulas."""

from __future__ import annotations

import io
import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from xupc import cli
from xupc.algorithms import registry
from xupc.algorithms.conditions import CallFacts
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import Prepared, run
from xupc.bench.results import Cell
from xupc.bench.results import Result as BenchResult
from xupc.cli.progress import Progress
from xupc.plan.plan import Plan
from xupc.plan.steps import BlockRef, Copy
from xupc.predict import calibration, machine_file
from xupc.predict.candidates import Question, candidates, chosen
from xupc.predict.compared import beside, calls_of
from xupc.predict.price import bound_of, gains, price, programs_of, traffic
from xupc.predict.scaling import EXACT, Shape
from xupc.report.plans import call_of
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place, registered_name
from xupc.tuning.selection_file import built_in

DEFAULT = machine_file.find("default")
RATES = Rates(copy=2.0, line=0.0, wire=4.0, latency=1000.0)


def call_on(shape: Shape, collective: str, nbytes: int) -> CallFacts:
    nodes, threads = shape
    tree = Tree(np.repeat(np.arange(nodes), threads).tolist())
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "fabric", oversubscribed=False))
    return call_of(Cell(collective, nbytes, nbytes, sync="allsync"), tree, tuning)


def variant_of(collective: str, name: str) -> registry.Variant:
    entries = registry.registered(registered_name(collective))
    return next(v for e in entries for v in e.variants if v.name == name)


def chosen_of(collective: str, flag: str, call: CallFacts) -> registry.Variant:
    """Return the first variant of a flag that can carry out a call."""
    entries = registry.registered(registered_name(collective))
    return next(
        v for e in entries for v in e.variants
        if v.name.partition(":")[0] == flag and v.can_run(call)
    )  # fmt: skip


def ended(plans: list[list[Any]], nodes: list[int], rates: Rates, tickets: int = 0) -> float:
    """Return the time of plans written by hand: the steps of each thread."""
    tree = Tree(nodes)
    made = [
        Plan("test", "test", rank, len(nodes), (tuple(steps), ()), tickets, ("no", "no"))
        for rank, steps in enumerate(plans)
    ]
    return run([Program(plan, tree) for plan in made], rates).end


# --- the clock --------------------------------------------------------------------------------


def copy_of(rank: int, nbytes: int) -> Copy:
    return Copy(BlockRef(0, rank, 0, 0, 0), BlockRef(1, rank, 0, 0, 0), nbytes, 1)


def test_threads_of_a_node_share_its_memory_rate() -> None:
    """The second copy gets half of 3 B/ns, below its own 2; a node of its own is not shared."""
    plans = [[copy_of(rank, 600)] for rank in range(2)]
    shared = Rates(2.0, 0.0, 1.0, 0.0, node_copy=3.0)
    assert ended(plans, [0, 0], RATES) == 300
    assert ended(plans, [0, 0], shared) == 400
    assert ended(plans, [0, 1], shared) == 300


def test_copies_wait_for_a_core() -> None:
    plans = [[copy_of(rank, 600)] for rank in range(3)]
    assert ended(plans, [0, 0, 0], Rates(2.0, 0.0, 1.0, 0.0, cores=1)) == 900
    assert ended(plans, [0, 0, 0], Rates(2.0, 0.0, 1.0, 0.0, cores=2)) == 600
    assert ended(plans, [0, 0, 0], Rates(2.0, 0.0, 1.0, 0.0, cores=3)) == 300


def test_mpi_takes_time_of_both_threads() -> None:
    """The root of a gather takes two messages, one after the other."""
    call = call_on((3, 1), "all_gather", 400)
    programs = programs_of(variant_of("all_gather", "push"), call)
    free = run(programs, Rates(math.inf, 0.0, math.inf, 0.0)).end
    received = run(programs, Rates(math.inf, 0.0, math.inf, 0.0, receive=70.0)).end
    by_byte = run(programs, Rates(math.inf, 0.0, math.inf, 0.0, per_byte=1.0)).end
    assert free == 0
    # a barrier with messages to two nodes, two messages of data one after the other
    assert received == 2 * 70 + 2 * 70
    assert by_byte == 400 + 2 * 400  # the senders at once, then the root's two


# --- the price ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 5, 8])
def test_the_traffic_of_a_broadcast(nodes: int) -> None:
    """A chain sends each byte once from each node but the last."""
    call = call_on((nodes, 2), "all_broadcast", 1 << 18)
    found = traffic(programs_of(variant_of("all_broadcast", "multicore:chain"), call))
    chunk = call.tuning["chunk"]
    assert found.messages == (nodes - 1) * (1 << 18) // chunk
    assert found.busiest == 1 << 18


def test_the_traffic_of_an_exchange() -> None:
    """Each node sends a block from each thread to each thread elsewhere: T * T * (N - 1)."""
    for name in ("pull", "push", "multicore:rounds"):
        found = traffic(
            programs_of(variant_of("all_exchange", name), call_on((4, 3), "all_exchange", 64))
        )
        assert found.busiest == 3 * 3 * 3 * 64, name


def test_what_bounds_a_call() -> None:
    long = price(
        variant_of("all_broadcast", "push"), call_on((8, 2), "all_broadcast", 1 << 22), DEFAULT
    )
    short = price(
        variant_of("all_broadcast", "multicore:binomial"),
        call_on((16, 2), "all_broadcast", 8),
        DEFAULT,
    )
    alone = price(
        variant_of("all_broadcast", "pull"), call_on((1, 4), "all_broadcast", 1 << 22), DEFAULT
    )
    assert (long.bound, short.bound, alone.bound) == ("wire rate", "wire latency", "copies")
    # 7 nodes have 2 threads, and all bytes leave the root's node
    assert long.time >= 14 * (1 << 22) / 12.5
    assert long.low < long.time < long.high
    assert alone.traffic.messages == 0


ALONE = {
    "copies": ["copy", "node_copy", "cached", "cache", "crossing", "fold", "scan"],
    "cache lines": ["line"],
    "wire rate": ["wire", "burst", "links", "split"],
    "wire latency": ["latency"],
    "MPI's time": ["send", "receive", "per_byte", "carry", "carry_byte"],
    "one-sided reads": ["read", "serve", "serve_byte"],
    "calls and steps": ["call", "step"],
    "threads without a core": ["switch", "turn", "serve_turn"],
}


@pytest.mark.parametrize("machine", ["default", "emulated-cluster"])
@pytest.mark.parametrize("shape", [(1, 4), (5, 1), (3, 2)])
@pytest.mark.parametrize(
    ("name", "variant"),
    [("all_reduce_all", "multicore"), ("allav_exchange", "pull"), ("all_broadcast", "push")],
)
def test_costs_that_are_left_out_are_free(
    name: str, variant: str, shape: Shape, machine: str
) -> None:
    """The bound and the gains are those of runs with each cost, whichever of them can matter."""
    call, known = call_on(shape, name, 4096), machine_file.find(machine)
    found = price(chosen_of(name, variant, call), call, known)
    made, rates = programs_of(chosen_of(name, variant, call), call), known.rates()
    free = Rates(math.inf, 0.0, math.inf, 0.0)
    shared = {"cores": rates.cores, "nodes": rates.nodes, "dealt": rates.dealt}
    alone = {
        key: run(made, replace(free, **shared, **{c: getattr(rates, c) for c in costs})).end
        for key, costs in ALONE.items()
    }
    assert bound_of(made, rates) == (found.bound, alone[found.bound])
    assert alone[found.bound] == max(alone.values())
    whole = run(made, rates).end
    assert (found.time, found.low) == (whole, run(made, known.fastest()).end)
    saved = gains(Prepared(made), rates, whole)
    for key in ("threads without a core", "wire latency"):
        halved = replace(rates, **{cost: getattr(rates, cost) / 2 for cost in ALONE[key]})
        assert saved[key] == 1 - run(made, halved).end / whole


def test_progress_names_each_variant() -> None:
    shown: list[tuple[float, str]] = []
    asked = Question("all_broadcast", 64, "3x2", 6, "mpich", "tcp")
    found = candidates(asked, DEFAULT, built_in(), lambda done, what: shown.append((done, what)))
    assert {what for _, what in shown} == {each.name for each in found}
    assert [done for done, _ in shown] == [k / len(found) for k in range(len(found))]


@pytest.mark.parametrize(("seconds", "lines"), [(1.9, 0), (2.1, 1), (12.1, 2)])
def test_a_log_has_a_line_after_two_seconds_and_then_now_and_again(
    seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, *(t for t in (2.05, 12.08, 99.0) if t < seconds), seconds])
    now = [0.0]
    monkeypatch.setattr("xupc.cli.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    with Progress("xupc predict", after=2.0) as progress:
        for now[0] in times:
            progress.show(0.5, "1 MiB, multicore:chain on 16x2")
    assert capsys.readouterr().err.count("multicore:chain on 16x2: 50%") == lines


@pytest.mark.parametrize(("seconds", "bar"), [(1.9, False), (2.1, True)])
def test_a_bar_appears_on_a_terminal_after_two_seconds(
    seconds: float, bar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, now = io.StringIO(), iter([0.0, *[seconds] * 9])
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("xupc.cli.progress.time", SimpleNamespace(monotonic=lambda: next(now)))
    with Progress("xupc predict", after=2.0) as progress:
        progress.show(0.5, "1 MiB, multicore:chain")
    assert ("xupc predict" in terminal.getvalue()) is bar


def test_the_chosen_variant_is_the_table_s() -> None:
    asked = Question("all_broadcast", 1 << 20, "4x2", 8, "mpich", "tcp")
    found = candidates(asked, DEFAULT, built_in())
    assert [each.time for each in found] == sorted(each.time for each in found)
    assert chosen(asked, built_in()) in {each.name for each in found}
    assert found[0].gains is not None
    assert 0 <= max(found[0].gains.values()) <= 0.5 + 1e-9  # half of one cost saves half at most


# --- files of machines --------------------------------------------------------------------------


def test_the_machines_of_the_library() -> None:
    for name in machine_file.built_in_names():
        found = machine_file.find(name)
        assert machine_file.parse(tomllib.loads(machine_file.text_of(found))) == found
        assert set(found.parameters) == set(machine_file.MEANING)
    assert set(DEFAULT.assumed) == set(machine_file.MEANING)


@pytest.mark.parametrize("name", ["archer2", "frontera", "lumi-c"])
def test_published_machines_have_sources(name: str) -> None:
    """A node's memory and network rates are bounds from its documentation; the rest is assumed."""
    found = machine_file.find(name)
    known = set(found.parameters) - set(found.assumed)
    assert known >= {"wire_rate", "node_copy_rate", "cores"}
    for key in known:
        assert re.search(r"documentation|guide|states", found.parameters[key].source), key
    wire = found.parameters["wire_rate"]
    assert wire.high * found.parameters["links"].value * 8 in (100e9, 200e9)  # bits per second


def test_what_a_file_leaves_out_is_assumed(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('version = 1\n[wire_rate]\nvalue = 5e9\nsource = "measured"\n')
    found = machine_file.find(str(path))
    assert found.name == "mine"
    assert "wire_rate" not in found.assumed
    assert found.parameters["copy_rate"] == DEFAULT.parameters["copy_rate"]
    assert (found.rates().wire, found.fastest().wire, found.slowest().wire) == (5.0, 5.0, 5.0)
    assert found.fastest().copy > found.rates().copy > found.slowest().copy
    assert found.fastest().latency < found.rates().latency < found.slowest().latency


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "version: expected 1"),
        ("version = 5", "version: expected 1 or 2 or 3 or 4"),
        ("version = 1\nspeed = 3", "speed: expected one of copy_rate"),
        ("version = 1\nwire_rate = 3", "wire_rate: expected a table"),
        ("version = 1\n[wire_rate]\nvalue = 'x'", "wire_rate: value: expected a positive number"),
        ("version = 1\n[wire_rate]\nvalue = nan", "wire_rate: value: expected a positive number"),
        ("version = 1\n[wire_rate]\nvalue = -1", "wire_rate: value: expected a positive number"),
        ("version = 1\n[wire_rate]\nvalue = 0", "wire_rate: value: expected a positive number"),
        ("version = 1\n[wire_rate]\nvalue = true", "wire_rate: value: expected a positive number"),
        ("version = 1\n[wire_rate]\nvalue = 2\nlow = 3", "expected low <= value <= high"),
        ("version = 1\n[wire_rate]\nvalue = 2\nmost = 3", "most: expected value, low"),
        ("version = 1\n[cores]\nvalue = 1.5", "cores: value: expected an int"),
        ("version = 3\n[links]\nvalue = 0", "links: value: expected an int, 1 or more"),
        ("version = 1\n[", "machine"),
        ("version = 1\nx = " + "[" * 9999, "nested too deeply"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"wrong\.toml") as caught:
        machine_file.find(str(path))
    assert words in str(caught.value)


def test_a_missing_machine_names_those_that_are_there() -> None:
    with pytest.raises(ValueError, match="one of archer2, default, emulated-cluster, frontera"):
        machine_file.find("nowhere")


def test_a_machine_of_what_jobs_have_measured() -> None:
    launches = [
        {"copy rate": rate, "line latency ns": 90.0, "cores": 2.0, "wire latency ns": 500.0}
        for rate in (4e9, 6e9, 5e9)
    ]
    found = calibration.machine_of(launches, "here", "measured")
    assert machine_file.parse(tomllib.loads(machine_file.text_of(found))) == found
    assert found.parameters["copy_rate"] == machine_file.Parameter(5e9, 4e9, 6e9, "measured")
    assert found.parameters["wire_latency"].value == pytest.approx(5e-7)
    assert found.parameters["cores"].value == 2
    assert set(found.assumed) == {
        "node_copy_rate", "wire_rate", "send_time", "receive_time", "byte_time",
        "nodes_on_machine", "call_time", "step_time", "switch_time", "cache_copy_rate",
        "cache_size", "crossing_rate", "fold_rate", "scan_rate", "wire_burst", "links",
        "split_size", "cores_dealt", "carry_time", "carry_byte_time", "turn_time", "read_time",
        "serve_time", "serve_byte_time", "serve_turn_time",
    }  # fmt: skip


def test_calibrate_keeps_files(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text("mine")
    found = xupc("calibrate", "-o", str(path))
    assert (found.exit_code, path.read_text()) == (2, "mine")
    assert "--force" in found.output
    assert xupc("calibrate", "-o", str(tmp_path / "no" / "such")).exit_code == 2
    assert xupc("calibrate", "-n", "3", "--nodes", "2x2", "-o", str(tmp_path / "x")).exit_code == 2


# --- the command --------------------------------------------------------------------------------


def xupc(*words: str) -> Result:
    return CliRunner().invoke(cli.main, list(words))


def test_the_command_prints_all_variants() -> None:
    found = xupc("predict", "Bcast", "--nodes", "3,1,2", "--size", "8,64K", "--machine", "gigabit")
    assert found.exit_code == 0, found.output
    assert found.output.count("modelled, not measured") == 2
    assert found.output.count("<- the table's choice") == 2
    assert "multicore:binomial" in found.output
    assert "gets shorter if one cost is halved" in found.output
    assert "1 Gbit/s without the headers" in found.output


def test_the_command_prints_json() -> None:
    found = xupc("predict", "all_exchange", "--nodes", "4x2", "--size", "64", "--json")
    (call,) = json.loads(found.stdout)
    names = [each["name"] for each in call["candidates"]]
    assert call["chosen by the table"] in names
    assert all(each["low"] <= each["time"] <= each["high"] for each in call["candidates"])


def test_a_large_machine() -> None:
    found = xupc("predict", "all_broadcast", "--nodes", "10000x128", "--size", "8")
    assert found.exit_code == 0, found.output
    assert f"from plans of at most {EXACT} threads" in found.output


def test_why_a_variant_is_chosen() -> None:
    found = xupc("algorithms", "Allreduce", "-n", "4", "--size", "1K", "--why")
    assert found.exit_code == 0, found.output
    assert "bound by" in found.output
    assert "<- the table's choice" in found.output


@pytest.mark.parametrize("command", [["predict"], ["algorithms", "--why"], ["algorithms"]])
@pytest.mark.parametrize("name", ["all_broadcast", "Bcast"])
def test_the_size_as_an_argument(command: list[str], name: str) -> None:
    word = xupc(*command, name, "64K", "--nodes", "2x2")
    option = xupc(*command, "--nodes", "2x2", "--size", "64K", name)
    assert word.exit_code == 0, word.output
    assert word.stdout == option.stdout
    assert "64 KiB" in word.output or "65536" in word.output


def test_several_sizes_as_an_argument() -> None:
    found = xupc("predict", "--nodes", "2x2", "Bcast", "8,64")
    assert found.output.count("modelled, not measured") == 2


@pytest.mark.parametrize("command", ["predict", "algorithms"])
def test_a_wrong_size_as_an_argument(command: str) -> None:
    call = [command, "Bcast", "--nodes", "2x2"]
    for words, text in [
        (["1M", "--size", "8"], "expected one size, got the argument SIZE and --size"),
        (["1X"], "1X"),
        (["1M", "8"], "unexpected extra argument"),
    ]:
        found = xupc(*call, *words)
        assert (found.exit_code, text in found.output) == (2, True), found.output


def test_a_result_beside_the_model() -> None:
    """Calls of a file in the repository: long ones are bound by the network, and near."""
    path = Path(__file__).parents[2] / "benchmarks/results/cluster-4x4-auto/mpich.json.gz"
    found = xupc("predict", "--against", str(path), "--machine", "gigabit")
    assert found.exit_code == 0, found.output
    assert found.output.startswith("21 calls measured and modelled; 0 have no plan")
    (calls, left), machine = calls_of(BenchResult.load(path)), machine_file.find("gigabit")
    long = [beside(call, machine).error for call in calls if call.cell.nbytes >= 1 << 20]
    assert left == 0
    assert long
    assert max(long) < 0.5


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["Bcast", "--against", __file__], "the result has the collectives"),
        (["--against", __file__], "--against"),
        (["--nodes", "2x2"], "expected a COLLECTIVE"),
        (["Bcasr", "--nodes", "2x2"], "did you mean"),
        (["Bcast", "--nodes", "2y2"], "expected 64x16 or 3,1,4"),
        (["Bcast"], "--nodes"),
        (["Bcast", "--nodes", "2x2", "--size", "x"], "--size"),
        (["Bcast", "--nodes", "2x2", "--machine", "nowhere"], "expected a file or one of"),
        (["all_gather_v", "--nodes", "2x2"], "depend on lists"),
        (["Bcast", "--nodes", "400,200"], "at most 512 threads"),
    ],
)
def test_wrong_words_are_refused(words: list[str], text: str) -> None:
    found = xupc("predict", *words)
    assert text in found.output
    assert found.exit_code == (0 if "512" in text else 2)
