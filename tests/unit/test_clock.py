"""The clock's cores, caches and messages, by times computed by hand; and a fit to known costs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from xupc import cli
from xupc.algorithms import registry
from xupc.backends.simulator.processors import Memory
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import run
from xupc.bench.results import Cell, Result
from xupc.plan.plan import Plan, barrier_plan
from xupc.plan.steps import BlockRef, Copy
from xupc.predict import machine_file
from xupc.predict.compared import Call, beside, calls_of, reason
from xupc.predict.fitting import FITTED, fit, fitted_machine, halves
from xupc.predict.price import programs_of
from xupc.report.plans import call_of
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place, registered_name
from xupc.tuning.selection_file import built_in

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FREE = Rates(math.inf, 0.0, math.inf, 0.0)


def copy_of(rank: int, nbytes: int, of: int | None = None) -> Copy:
    source = rank if of is None else of
    return Copy(BlockRef(0, rank, 0, 0, 0), BlockRef(1, source, 0, 0, 0), nbytes, 1)


def programs(plans: list[list[Any]], nodes: list[int]) -> list[Program]:
    tree = Tree(nodes)
    return [
        Program(Plan("test", "test", rank, len(nodes), (tuple(s), ()), 0, ("no", "no")), tree)
        for rank, s in enumerate(plans)
    ]


def ended(plans: list[list[Any]], nodes: list[int], rates: Rates) -> float:
    return run(programs(plans, nodes), rates).end


def barrier(nodes: list[int], rates: Rates) -> float:
    tree = Tree(nodes)
    made = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    return run(made, rates).end


def of_variant(name: str, collective: str, nodes: int, threads: int, nbytes: int) -> list[Program]:
    tree = Tree([node for node in range(nodes) for _ in range(threads)])
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "fabric", oversubscribed=False))
    call = call_of(Cell(collective, nbytes, nbytes, sync="allsync"), tree, tuning)
    entries = registry.registered(registered_name(collective))
    variant = next(v for e in entries for v in e.variants if v.name == name)
    return programs_of(variant, call)


# --- cores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "end"), [(1, 600), (2, 200), (3, 200), (4, 0), (0, 0)])
def test_threads_without_a_core_are_switched(cores: int, end: float) -> None:
    """Those without a core enter on one after the other; then those that arrived first leave."""
    assert barrier([0] * 4, replace(FREE, switch=100.0, cores=cores)) == end


def test_a_call_and_a_step_take_time_of_a_core() -> None:
    costs = replace(FREE, call=50.0, step=7.0)
    plans = [[copy_of(rank, 8), copy_of(rank, 8)] for rank in range(2)]
    assert ended(plans, [0, 0], costs) == 50 + 2 * 7
    assert ended(plans, [0, 0], replace(costs, cores=1)) == 2 * (50 + 2 * 7)


@pytest.mark.parametrize(("nodes", "end"), [(1, 300), (2, 600), (0, 1200)])
def test_nodes_on_one_machine_share_its_cores(nodes: int, end: float) -> None:
    """4 nodes with a thread each: a machine with one core has 1, 2 or all of them."""
    plans = [[copy_of(rank, 600)] for rank in range(4)]
    assert ended(plans, [0, 1, 2, 3], Rates(2.0, 0.0, 1.0, 0.0, cores=1, nodes=nodes)) == end


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cache", "end"), [(1200, 150), (600, 225), (0, 300), (9999, 150)])
def test_copies_are_faster_in_a_cache(cache: float, end: float) -> None:
    """600 bytes are read and 600 written: a part of them is in a cache of so many bytes."""
    rates = Rates(2.0, 0.0, 1.0, 0.0, cached=4.0, cache=cache)
    assert ended([[copy_of(0, 600)]], [0], rates) == end


def test_bytes_of_another_core_are_slower() -> None:
    rates = Rates(2.0, 0.0, 1.0, 0.0, cached=4.0, cache=1e9, crossing=3.0)
    assert ended([[copy_of(0, 600)], []], [0, 0], rates) == 150
    assert ended([[copy_of(0, 600, of=1)], []], [0, 0], rates) == 200


def test_what_others_write_is_in_their_caches() -> None:
    """Thread 1 writes into the block of thread 0, which thread 0 reads."""
    push = Copy(BlockRef(1, 0, 0, 0, 0), BlockRef(0, 1, 0, 0, 0), 600, 1)
    made = programs([[copy_of(0, 600)], [push]], [0, 0])
    memory = Memory(made)
    assert memory.touched == [600 + 600 + 600]
    assert memory.foreign(0, [(1, 0, 0, 600)]) == 1.0
    assert memory.foreign(0, [(0, 0, 0, 600)]) == 0.0
    assert memory.foreign(1, [(0, 1, 0, 300), (1, 0, 0, 300)]) == 0.5


# --- messages -------------------------------------------------------------------------------------


def test_a_barrier_is_one_round_on_few_nodes() -> None:
    """Each of 4 node roots handles 3 messages each way; 16 nodes take 4 rounds of one message."""
    costs = Rates(math.inf, 0.0, math.inf, 1000.0, send=30.0, receive=70.0)
    assert barrier(list(range(4)), costs) == 3 * 100 + 1000
    assert barrier(list(range(16)), costs) == 4 * (100 + 1000)


def test_a_led_call_is_one_exchange() -> None:
    """The data is in the messages of its barrier; without that it follows one."""
    costs = Rates(math.inf, 0.0, math.inf, 1000.0)
    assert run(of_variant("multicore:led", "all_broadcast", 4, 2, 8), costs).end == 1000
    assert run(of_variant("multicore:star", "all_broadcast", 4, 2, 8), costs).end == 2000
    assert run(of_variant("multicore:rounds", "allav_gather_all", 4, 2, 8), costs).end == 1000


def test_a_busy_receiver_does_not_hold_up_others() -> None:
    """Each node sends 400 bytes to 3 others at 4 B/ns, in whatever order: 300 ns each way."""
    costs = Rates(math.inf, 0.0, 4.0, 0.0)
    assert run(of_variant("push", "all_exchange", 4, 1, 400), costs).end <= 2 * 300


# --- a fit ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    result = Result.load(RESULTS / "one-node-2-threads" / "openmpi.json.gz")
    return calls_of(result, prepared=False)[0]


def test_the_halves_of_calls(calls: list[Call]) -> None:
    ours, theirs = halves([*calls, *calls])
    cells = [{(c.cell.collective, c.cell.nbytes) for c in part} for part in (ours, theirs)]
    assert not cells[0] & cells[1]
    assert len(cells[0] | cells[1]) == len(calls)
    for key in (0, 1):
        seen = [{cell[key] for cell in part} - {"barrier", 0} for part in cells]
        assert seen[0] == seen[1]


def test_hidden_costs_are_found(calls: list[Call]) -> None:
    """Times of a clock with other costs: a fit to one half predicts the other half."""
    start = machine_file.find("default")
    hidden = {"call_time": 4e-7, "step_time": 9e-8, "cache_copy_rate": 3e10, "copy_rate": 5e9}
    parameters = dict(start.parameters)
    for key, value in hidden.items():
        parameters[key] = machine_file.Parameter(value, value, value, "hidden")
    other = machine_file.Machine("other", parameters)
    made = [replace(call, measured=beside(call, other).predicted) for call in calls]
    ours, theirs = halves(made)
    known = dict(parameters)
    known["copy_rate"] = replace_source(start.parameters["copy_rate"])
    before = machine_file.Machine("start", {**start.parameters, "copy_rate": known["copy_rate"]})
    fitted = fitted_machine(before, fit(ours, before), "fitted", "a test")
    assert max(beside(call, before).error for call in theirs) > 0.5
    assert max(beside(call, fitted).error for call in theirs) < 0.15
    assert all(fitted.parameters[key].source == "a test" for key in hidden)
    assert "switch_time" in FITTED
    assert fitted.parameters["switch_time"] == start.parameters["switch_time"]  # there are 2 cores


def replace_source(given: machine_file.Parameter) -> machine_file.Parameter:
    """Return a parameter that does not count as assumed, so that no job's value replaces it."""
    return machine_file.Parameter(given.value, given.low, given.high, "known")


def test_why_a_price_is_off(calls: list[Call]) -> None:
    machine = machine_file.find("default")
    call = calls[0]
    predicted = beside(call, machine).predicted
    steady = replace(call, low=predicted * 2, high=predicted * 2)
    noisy = replace(call, low=predicted / 2, high=predicted * 2)
    assert reason(beside(noisy, machine), machine) == "launches differ by 300%"
    assert "of the model" in reason(beside(steady, machine), machine)


def test_the_command_writes_a_fitted_machine(tmp_path: Path) -> None:
    result, path = RESULTS / "one-node-2-threads" / "openmpi.json.gz", tmp_path / "fitted.toml"
    words = ["predict", "--against", str(result), "--fit", str(path)]
    found = CliRunner().invoke(cli.main, words)
    assert found.exit_code == 0, found.output
    assert "11 calls fitted, 10 others judged" in found.output
    assert "furthest off" in found.output
    source = machine_file.find(str(path)).parameters["call_time"].source
    assert source == "fitted to one half of one-node-2-threads/openmpi"
    again = CliRunner().invoke(cli.main, words)
    assert again.exit_code == 2
    assert "--force" in again.output
    alone = CliRunner().invoke(cli.main, ["predict", "--fit", str(path)])
    assert alone.exit_code == 2
