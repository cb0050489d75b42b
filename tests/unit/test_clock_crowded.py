"""Emulated nodes and software reads on the clock, by times computed by hand.

The nodes of one machine share its cores, also for the time of messages; and the thread whose memory
is read may have to serve the read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xupc.algorithms import registry
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import Prepared, run
from xupc.bench.results import Cell
from xupc.bench.results import Result as BenchResult
from xupc.plan.plan import Plan, barrier_plan
from xupc.plan.steps import BlockRef, Copy, Get, WaitTicket
from xupc.predict import machine_file
from xupc.predict.compared import Call, calls_of
from xupc.predict.price import bound_of, programs_of
from xupc.report.plans import call_of
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place, registered_name
from xupc.tuning.selection_file import built_in

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FREE = Rates(math.inf, 0.0, math.inf, 0.0)


def of_variant(name: str, collective: str, nodes: int, threads: int, nbytes: int) -> list[Program]:
    tree = Tree([node for node in range(nodes) for _ in range(threads)])
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "tcp", oversubscribed=False))
    call = call_of(Cell(collective, nbytes, nbytes, sync="allsync"), tree, tuning)
    entries = registry.registered(registered_name(collective))
    return programs_of(next(v for e in entries for v in e.variants if v.name == name), call)


def of_steps(steps: dict[int, list[Any]], nodes: list[int], tickets: int = 0) -> list[Program]:
    """Return programs of some threads; the others have no steps."""
    tree = Tree(nodes)
    plans = [
        Plan(
            "test", "test", rank, tree.size, (tuple(steps.get(rank, ())), ()), tickets,
            ("no", "no"), one_sided=bool(tickets),
        )
        for rank in range(tree.size)
    ]  # fmt: skip
    return [Program(plan, tree) for plan in plans]


def copies(rank: int, nbytes: int) -> list[Any]:
    return [Copy(BlockRef(0, rank, 0, 0, 0), BlockRef(1, rank, 0, 0, 0), nbytes, 1)]


def read(of: int, nbytes: int, by: int = 0) -> list[Any]:
    """Return the steps of a thread that reads a block of another node."""
    return [Get(BlockRef(0, by, 0, 0, 0), BlockRef(1, of, 0, 0, 0), nbytes, 0), WaitTicket(0)]


def barrier(nodes: list[int], rates: Rates) -> float:
    tree = Tree(nodes)
    made = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    return run(made, rates).end


# --- cores that are dealt to nodes ----------------------------------------------------------------


@pytest.mark.parametrize(("dealt", "end"), [(0, 300), (1, 600)])
def test_cores_are_dealt_to_the_nodes_of_a_machine(dealt: int, end: float) -> None:
    """Nodes 0 and 2 of 4 copy 600 bytes at 2 B/ns; of 2 cores, dealt ones give both the same."""
    made = of_steps({0: copies(0, 600), 2: copies(2, 600)}, [0, 1, 2, 3])
    assert run(made, Rates(2.0, 0.0, 1.0, 0.0, cores=2, nodes=0, dealt=dealt)).end == end


@pytest.mark.parametrize(("cores", "end"), [(4, 300), (3, 600), (2, 600), (1, 1200), (0, 300)])
def test_a_node_may_have_several_of_the_cores(cores: int, end: float) -> None:
    """The first of 2 nodes with 2 threads has two of 3 cores."""
    made = of_steps({rank: copies(rank, 600) for rank in range(4)}, [0, 0, 1, 1])
    assert run(made, Rates(2.0, 0.0, 1.0, 0.0, cores=cores, nodes=0, dealt=1)).end == end


def test_machines_deal_their_own_cores() -> None:
    """4 nodes on two machines of 2 cores: each node has one."""
    made = of_steps({rank: copies(rank, 600) for rank in range(4)}, [0, 1, 2, 3])
    assert run(made, Rates(2.0, 0.0, 1.0, 0.0, cores=2, nodes=2, dealt=1)).end == 300
    assert run(made, Rates(2.0, 0.0, 1.0, 0.0, cores=2, nodes=4, dealt=1)).end == 600


# --- messages that cores carry --------------------------------------------------------------------


def test_carrying_is_a_part_of_the_latency() -> None:
    """Alone a message takes the latency; with others on one core they take turns."""
    rates = replace(FREE, latency=1000.0, carry=100.0)
    assert barrier([0, 1], rates) == 1000
    assert barrier([0, 1, 2, 3], rates) == 3 * 100 + 900
    crowd = replace(rates, cores=1, nodes=0)
    assert barrier([0, 1, 2, 3], crowd) == 4 * 3 * 100 + 900
    # the latency leaves no room for more than itself
    assert barrier([0, 1], replace(rates, carry=3000.0)) == 3000


def test_bytes_are_carried_at_both_ends() -> None:
    """600 bytes take 600 ns of the wire, and 2 ns of a core each at either end."""
    made = of_variant("push", "all_broadcast", 2, 1, 600)
    rates = Rates(math.inf, 0.0, 1.0, 0.0)
    assert run(made, rates).end == 600
    carried = replace(rates, carry_byte=2.0)
    assert run(made, carried).end == 1200
    assert run(made, replace(carried, carry_byte=0.5)).end == 600  # while the wire is busy
    assert run(made, replace(carried, cores=1, nodes=0)).end == 2400
    assert bound_of(made, carried) == ("MPI's time", 1200)


def test_threads_of_a_core_look_for_messages_in_turn() -> None:
    """A root waits for one other thread; of 4 nodes for the messages of 3 others."""
    rates = replace(FREE, cores=1, nodes=1, turn=10.0)
    assert barrier([0, 0, 1, 1], rates) == 10
    assert barrier([0, 0, 0, 1, 1, 1], rates) == 20
    assert barrier([0, 0, 1, 1, 2, 2, 3, 3], rates) == 3 * 10
    assert barrier([0, 1], rates) == 0
    made = of_variant("push", "all_broadcast", 2, 2, 8)
    assert run(made, rates).end == 10 + 10  # the barrier, and the messages to the threads of node 1


# --- reads ----------------------------------------------------------------------------------------


def test_a_read_takes_time_of_the_thread_that_is_read() -> None:
    """Two nodes read from one thread, which serves one after the other."""
    made = of_steps({0: read(2, 100), 1: read(2, 100, 1)}, [0, 1, 2], 1)
    rates = Rates(math.inf, 0.0, math.inf, 1000.0)
    assert run(made, rates).end == 2000
    assert run(made, replace(rates, serve=70.0)).end == 2000 + 2 * 70
    assert run(made, replace(rates, serve=70.0, per_byte=1.0)).end == 2000 + 2 * 170 + 100
    assert run(made, replace(rates, serve=70.0, serve_byte=3.0)).end == 2000 + 2 * 70 + 300
    assert run(made, replace(rates, read=50.0)).end == 2050
    assert bound_of(made, replace(rates, serve=9000.0)) == ("one-sided reads", 18000)


def test_a_thread_that_copies_serves_later() -> None:
    made = of_steps({0: read(1, 8), 1: copies(1, 600)}, [0, 1], 1)
    rates = Rates(2.0, 0.0, math.inf, 10.0)
    assert run(made, rates).end == 300  # the copy alone; the read has ended
    assert run(made, replace(rates, serve=5.0)).end == 300 + 5 + 10


def test_a_thread_without_a_core_serves_later() -> None:
    """Another thread of its node has the core for 300 ns."""
    made = of_steps({0: read(1, 8), 2: copies(2, 600)}, [0, 1, 1], 1)
    rates = Rates(2.0, 0.0, math.inf, 10.0, serve=5.0)
    assert run(made, rates).end == 300
    assert run(made, replace(rates, cores=1)).end == 300 + 5 + 10


def test_a_read_waits_for_the_turn_of_its_thread() -> None:
    made = of_steps({0: read(1, 8)}, [0, 1, 1, 1], 1)
    rates = replace(FREE, cores=1, serve=5.0, serve_turn=20.0, turn=9000.0)
    assert run(made, rates).end == 2 * 20 + 5


def test_a_read_of_the_plans() -> None:
    """PULL has a barrier, reads by 3 nodes that one thread serves, and a barrier."""
    made = of_variant("pull", "all_broadcast", 4, 1, 8)
    rates = Rates(math.inf, 0.0, math.inf, 1000.0)
    assert run(made, rates).end == 1000 + 2000 + 1000
    assert run(made, replace(rates, serve=70.0)).end == 4000 + 3 * 70


# --- calls in a row -------------------------------------------------------------------------------


@pytest.mark.parametrize(("pause", "end"), [(0, 600), (100, 500), (400, 200), (1e6, 200)])
def test_a_link_is_not_idle_between_calls_in_a_row(pause: float, end: float) -> None:
    """A link that has been idle carries 400 of 600 bytes at once."""
    call = Prepared(of_variant("push", "all_broadcast", 2, 1, 600))
    rates = Rates(math.inf, 0.0, 1.0, 0.0, burst=400.0)
    assert call.end(rates) == 200
    assert call.end_in_a_row(rates, pause) == end
    assert call.end_in_a_row(replace(rates, burst=0.0), pause) == 600


# --- machine files --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_earlier_files_have_reads_by_hardware(version: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"version = {version}\n[cores]\nvalue = 2\n")
    rates = machine_file.find(str(path)).rates()
    assert (rates.cores, rates.dealt, rates.carry, rates.turn, rates.serve) == (2, 0, 0, 0, 0)


def test_a_file_of_an_emulated_cluster(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    heads = "carry", "turn", "read", "serve"
    keys = [key for key in machine_file.MEANING if key.startswith(heads)]
    text = "".join(f"[{key}]\nvalue = {k + 1}e-6\n" for k, key in enumerate(keys))
    path.write_text(f"version = 4\n[cores_dealt]\nvalue = 1\n{text}")
    rates = machine_file.find(str(path)).rates()
    found = (rates.dealt, rates.carry, rates.carry_byte, rates.turn, rates.read, rates.serve,
             rates.serve_byte, rates.serve_turn)  # fmt: skip
    assert found == pytest.approx((1, 1e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3))
    path.write_text("version = 4\n[cores_dealt]\nvalue = 2\n")
    with pytest.raises(ValueError, match="cores_dealt: value: expected 0 or 1, got 2"):
        machine_file.find(str(path))


def test_machines_with_remote_memory_access_need_no_thread_to_read() -> None:
    for name in ("archer2", "default", "frontera", "lumi-c"):
        assert machine_file.find(name).rates().serve == 0


# --- measured calls -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured() -> Call:
    """Return a broadcast of 64 KiB between two emulated hosts."""
    path = RESULTS / "cluster-shapes" / "2x1" / "openmpi.json.gz"
    calls, _ = calls_of(BenchResult.load(path), prepared=False)
    return next(
        call for call in calls
        if (call.cell.collective, call.cell.nbytes, call.algorithm)
        == ("all_broadcast", 1 << 16, "push")
    )  # fmt: skip


def test_a_measured_call_finds_the_links_used(measured: Call) -> None:
    """Three barriers before it are too short to fill a bucket of 32 KiB: 274 µs at 1 Gbit/s."""
    rates = measured.rates(machine_file.find("emulated-cluster"))
    fresh, end = measured.prepared.end(rates), measured.end(rates)
    full = rates.burst / rates.wire
    assert fresh + full / 2 < end <= fresh + full
    assert abs(end / measured.measured - 1) < 0.25 < abs(fresh / measured.measured - 1)
    assert measured.end(replace(rates, burst=0.0)) == measured.prepared.end(
        replace(rates, burst=0.0)
    )


@pytest.mark.parametrize(
    ("job", "file", "used"), [(97e6, 119e6, 119e6), (119e6, 97e6, 119e6), (119e6, 12e9, 119e6)]
)
def test_a_link_that_was_disturbed(measured: Call, job: float, file: float, used: float) -> None:
    """The network is the job's, unless it measured a little less than the machine has."""
    machine = machine_file.find("emulated-cluster")
    known = {**machine.parameters, "wire_rate": machine_file.Parameter(file, file, file, "known")}
    bounds = {**measured.job.bounds, "wire rate": job}
    call = replace(measured, job=replace(measured.job, bounds=bounds))
    assert call.rates(machine_file.Machine("m", known)).wire * 1e9 == used
    assumed = machine_file.Parameter(file, file, file, machine_file.ASSUMED)
    guess = machine_file.Machine("m", {**known, "wire_rate": assumed})
    assert call.rates(guess).wire * 1e9 == job
