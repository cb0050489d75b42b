"""What crosses the borders of levels: numbers computed by hand, and the least that is possible."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from xupc import cli
from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.reduce_spec import Reduction
from xupc.algorithms.registry import Variant, find
from xupc.algorithms.scan_spec import ScanSpec
from xupc.algorithms.transfer_lists import Transfers
from xupc.algorithms.values_reduce_scatter import ReduceScatter
from xupc.backends.simulator.level_counts import FLAT_THREADS, Counted, count
from xupc.backends.simulator.sim_program import Program
from xupc.bench.results import Cell
from xupc.cli.level_counts import counts_of, with_machine
from xupc.flags import MULTICORE, PULL, PUSH
from xupc.ops import Op
from xupc.pgas.layout import Layout
from xupc.plan.plan import Plan, barrier_plan
from xupc.plan.recorder import Operand
from xupc.plan.steps import Barrier, BlockRef, Copy
from xupc.reduction import kernels
from xupc.report.plans import call_of
from xupc.topology.machine import describe
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place
from xupc.tuning.selection_file import built_in

SOCKETS = "2x1x2"
"""Threads 0 and 1 in one socket, 2 and 3 in the other one."""


def tree_on(machine: str, nodes: int = 1) -> Tree:
    found = describe(machine)
    return with_machine(Tree([k for k in range(nodes) for _ in found.cpus]), found)


def call_on(tree: Tree, *given: Any, sync: str = "no") -> CallFacts:
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
    return CallFacts(tree, tuning, (sync, sync), given)


def variant_of(collective: str, flag: int, label: str = "") -> Variant:
    return next(v for v in find(collective, flag).variants if v.label == label)


def table(counted: Counted) -> dict[str, tuple[int, ...]]:
    return {x.level: (x.nbytes, x.lines, x.signals, x.chain) for x in counted.levels}


def broadcast(flag: int, label: str = "") -> Counted:
    call = call_on(tree_on(SOCKETS), Operand(0), Operand(1), 0, 128)
    return counts_of(variant_of("broadcast", flag, label), call)


def test_a_flat_broadcast() -> None:
    """Threads 2 and 3 read 2 lines each from the other socket: 200 ns and a tenth of that."""
    found = broadcast(PULL)
    expected = {"node": (0, 0, 0, 0), "socket": (256, 4, 0, 1), "thread": (384, 6, 0, 1)}
    assert table(found) == expected
    assert found.chain_ns == pytest.approx(220)
    assert found.border_ns == pytest.approx(256 / 144)


def test_a_broadcast_by_levels() -> None:
    """Thread 3 waits for 2, then reads from there: 220 + 25 + 27.5 ns."""
    found = broadcast(MULTICORE, "levels")
    expected = {"node": (0, 0, 0, 0), "socket": (128, 2, 0, 1), "thread": (384, 6, 1, 2)}
    assert table(found) == expected
    assert found.chain_ns == pytest.approx(272.5)
    assert found.border_ns == pytest.approx(128 / 144)


def test_what_a_thread_writes_has_to_go_to_its_owner() -> None:
    found = broadcast(PUSH)
    assert table(found)["socket"][:2] == (256, 4)
    assert table(found)["thread"][:2] == (384, 6)


def counted(plans: list[list[Any]], **options: bool) -> Counted:
    tree = tree_on(SOCKETS)
    made = [
        Plan("test", "test", rank, 4, (tuple(steps), ()), 0, ("no", "no"))
        for rank, steps in enumerate(plans)
    ]
    return count([Program(plan, tree) for plan in made], **options)


def test_the_last_writer_has_the_bytes() -> None:
    """Thread 2 writes 64 of the 128 bytes of thread 0, which reads all of them afterwards."""
    write = Copy(BlockRef(0, 0), BlockRef(1, 2), 64)
    read = Copy(BlockRef(1, 0), BlockRef(0, 0), 128)
    found = counted([[Barrier(), read], [Barrier()], [write, Barrier()], [Barrier()]])
    assert table(found)["socket"][:2] == (64 + 64, 1 + 1)
    again = Copy(BlockRef(0, 0), BlockRef(1, 0), 128)
    found = counted([[Barrier(), again, read], [Barrier()], [write, Barrier()], [Barrier()]])
    assert table(found)["socket"][:2] == (64, 1)


def test_a_place_that_a_step_reads_twice_counts_once() -> None:
    row = Copy(BlockRef(0, 0, 0, 1), BlockRef(1, 2), 64, 2)  # to threads 0 and 1
    found = counted([[row], [], [], []])
    assert table(found) == {
        "node": (0, 0, 0, 0), "socket": (64, 1, 0, 1), "thread": (128, 2, 0, 1)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "by_levels", "socket", "thread"),
    [
        (SOCKETS, False, 8, 12),  # each thread reads the lines of the 3 others
        (SOCKETS, True, 2, 6),  # a line of 1, 2 and 3 on the way up, one to each down
        ("2x9", False, 2, 34),  # the counter passes 17 times, the release is read 17 times
    ],
)
def test_barriers(machine: str, by_levels: bool, socket: int, thread: int) -> None:
    tree = tree_on(machine)
    plans = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    found = count(plans, barrier_by_levels=by_levels)
    assert found.levels[-1].signals == thread
    if machine == SOCKETS:
        assert found.levels[1].signals == socket


@pytest.mark.parametrize(
    ("machine", "times"), [("2x8x8", 5), ("2x4x8", 3), ("2x16", 3), ("8,8/8,6", 1.8)]
)
def test_barriers_by_levels_are_shorter_on_large_machines(machine: str, times: float) -> None:
    """Without a choice they are those of a job; of 16 threads at most they are flat."""
    tree = tree_on(machine)
    plans = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    used, levels, flat = (
        count(plans, barrier_by_levels=way, chains=False).time_ns for way in (None, True, False)
    )
    assert used == levels
    assert flat > times * levels
    small = tree_on("2x2x4")
    plans = [Program(barrier_plan(rank, small.size), small) for rank in range(small.size)]
    assert count(plans).time_ns == count(plans, barrier_by_levels=False).time_ns


def test_barriers_of_several_nodes_go_by_the_levels_of_each() -> None:
    """A node of 20 threads has a tree, one of 4 has not."""
    large, small = tree_on("2x1x10"), tree_on(SOCKETS)
    tree = Tree([0] * 20 + [1] * 4).with_levels({0: large.levels(0), 1: small.levels(0)})
    plans = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    used, every, flat = (
        table(count(plans, barrier_by_levels=way, chains=False)) for way in (None, True, False)
    )
    messages, tree_of_two_sockets, flat_of_the_small = 2, 2, 8 + 2  # arrivals, then the release
    assert used["node"][2] == messages
    assert used["socket"][2] == messages + tree_of_two_sockets + flat_of_the_small
    assert every["socket"][2] == messages + 2 * tree_of_two_sockets
    assert flat["socket"][2] > used["socket"][2] - tree_of_two_sockets


def test_the_threads_from_which_barriers_go_by_levels() -> None:
    """The built-in table and the counts have the same number."""
    tuning = built_in().tuning(Place.of(np.array([1]), "mpich", "shm", False))
    assert tuning["level_barrier_min"] == FLAT_THREADS + 1


@pytest.mark.parametrize(("nodes", "messages"), [(2, 2), (4, 12)])
def test_a_led_call_is_one_exchange_of_messages(nodes: int, messages: int) -> None:
    """Arrivals, a message to each other node, the release: 20 us, and a few lines of 200 ns."""
    tree = tree_on(SOCKETS, nodes)
    call = call_on(tree, Operand(0), Operand(1), 0, 8, sync="all")
    found = counts_of(variant_of("broadcast", MULTICORE, "led"), call)
    assert table(found)["node"] == (8 * (nodes - 1), nodes - 1, messages, 1)
    assert 20_000 < found.chain_ns < 21_500
    plans = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    barrier = count(plans)
    assert table(barrier)["node"] == (0, 0, messages, 1)
    assert 20_000 < barrier.chain_ns < 21_000


def test_messages_count_between_nodes() -> None:
    call = call_on(tree_on(SOCKETS, nodes=2), Operand(0), Operand(1), 0, 128)
    found = counts_of(variant_of("broadcast", MULTICORE, "star"), call)
    assert table(found)["node"] == (128, 2, 1, 1)


MACHINES = ["2x2x2", "2x4x4", "8,8/8,6", "3,1/2,2", "socket:2,numa:2,l3:2,core:3,thread:2"]
LEAST = {
    "broadcast": lambda t, d: len(d) - 1,
    "gather_all": lambda t, d: sum(t - len(part) for part in d),
    "exchange": lambda t, d: sum(len(part) * (t - len(part)) for part in d),
    "scatter": lambda t, d: t - next(len(part) for part in d if 1 in part),
    "gather": lambda t, d: t - next(len(part) for part in d if 1 in part),
}
"""The fewest blocks that cross the borders of domains, of so many threads; the root is thread 1."""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("collective", LEAST)
def test_each_border_is_crossed_by_the_fewest_bytes(collective: str, machine: str) -> None:
    tree, n = tree_on(machine), 64
    root = [] if collective in ("gather_all", "exchange") else [1]
    label = "levels" if collective in ("broadcast", "gather_all") else "pull"
    names = {v.label for v in find(collective, MULTICORE).variants}
    variant = variant_of(collective, *((MULTICORE, label) if label in names else (PULL, "")))
    call = call_on(tree, Operand(0), Operand(1), *root, n)
    found = counts_of(variant, call, chains=False)
    domains = [level.domains for level in tree.levels(0).levels]
    domains.append(tuple((thread,) for thread in range(tree.size)))
    bytes_of = [level.nbytes for level in found.levels]
    assert bytes_of == [n * LEAST[collective](tree.size, some) for some in domains]


@pytest.mark.parametrize(
    ("machine", "nodes"), [*((machine, 1) for machine in MACHINES), ("2x2x2", 3), ("3,1/2,2", 2)]
)
@pytest.mark.parametrize("collective", ["broadcast_v", "gather_all_x"])
def test_blocks_of_any_length_cross_each_border_once(
    collective: str, machine: str, nodes: int
) -> None:
    """Each block enters all domains but that of its own thread.

    The root of its node reads it once more for each other node, in order to send it.
    """
    tree = tree_on(machine, nodes)
    size = tree.size
    lengths = {1: 192} if collective == "broadcast_v" else {i: 64 * (i % 3) for i in range(size)}
    places = dict(zip(lengths, np.cumsum([0, *lengths.values()]).tolist(), strict=False))
    rows = [(to, places[of], of, 0, n) for to in range(size) for of, n in lengths.items()]
    moves = Transfers.of(*np.array(rows, np.int64).T)
    call = call_on(tree, Operand(0), Operand(1), moves)
    found = counts_of(variant_of(collective, MULTICORE, "levels"), call, chains=False)
    total, inside = sum(lengths.values()), tree.size // nodes
    levels = [level.root_of for level in tree.levels(0).levels] + [tuple(range(inside))]
    sent = [
        (nodes - 1) * sum(n for of, n in lengths.items() if root_of[of % inside])
        for root_of in levels
    ]
    assert [x.nbytes for x in found.levels] == [
        total * (x.domains - 1) + more for x, more in zip(found.levels, sent, strict=True)
    ]


@pytest.mark.parametrize("machine", MACHINES[:4])
@pytest.mark.parametrize("collective", ["all_reduce_mpi_all", "allav_reduce_all"])
def test_an_allreduce_moves_at_most_twice_the_least(collective: str, machine: str) -> None:
    """A domain must send its operands out, combined, and take the result in."""
    tree = tree_on(machine)
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
    n = 8 * 64 * tree.size
    cell = Cell(collective, n, n, dtype="f8", op="add", sync="allsync")
    registered = collective.removeprefix("all_")
    variant = variant_of(registered, MULTICORE, "levels")
    found = counts_of(variant, call_of(cell, tree, tuning), chains=False)
    assert [level.nbytes for level in found.levels] == [
        2 * n * (level.domains - 1) for level in found.levels
    ]


def scans_of(collective: str, tree: Tree, rows: int) -> tuple[Variant, CallFacts]:
    """Return a scan of so many rows of blocks of 3 elements of 8 bytes."""
    layout = Layout(tree.size, 0, 0, 3, 3 * rows * tree.size)
    call = call_on(tree, ScanSpec(layout, layout, 8, collective.startswith("suffix")))
    call = CallFacts(tree, call.tuning, call.sync, call.arguments, kernels.find("f8", Op.ADD))
    return variant_of(collective, MULTICORE, "levels"), call


@pytest.mark.parametrize(
    ("machine", "nodes"),
    [("2x2x2", 1), ("2x4x4", 1), ("8,8/8,6", 1), ("3,1/2,2", 1), ("2x2x2", 3), ("2x4x4", 2)],
)
@pytest.mark.parametrize(("collective", "rows"), [("prefix_reduce", 1), ("prefix_reduce", 3)])
def test_a_scan_passes_one_value_out_of_a_domain_and_one_into_it(
    collective: str, rows: int, machine: str, nodes: int
) -> None:
    """The domain of the root of the one around has its values there: nothing crosses its border.

    Nothing comes before the first row of the first thread, nor behind the last row of the last. A
    node sends its value to all that join it: those behind it, and all if more rows come.
    """
    tree = tree_on(machine, nodes)
    found = counts_of(*scans_of(collective, tree, rows), chains=False)
    counted = {x.level: x.nbytes for x in found.levels}
    pairs = nodes * (nodes - 1)
    values = pairs * (rows - 1) + pairs // 2
    assert counted["node"] == 8 * values
    for wider, level in pairwise(tree.levels(0).levels):
        others = set(level.roots) - set(wider.roots)
        values += nodes * 2 * rows * len(others) - (level.root_of[-1] in others)
        assert counted[level.name] == 8 * values, level.name


@pytest.mark.parametrize("collective", ["prefix_reduce", "suffix_reduce"])
def test_a_scan_on_domains_of_any_size_crosses_less_than_without_levels(collective: str) -> None:
    """Six threads of an L3 domain have one value or two, and get as many."""
    tree = tree_on(MACHINES[-1])
    by_levels, call = scans_of(collective, tree, 1)
    found = counts_of(by_levels, call, chains=False)
    flat = counts_of(variant_of(collective, MULTICORE, "values"), call, chains=False)
    for x, other in zip(found.levels, flat.levels, strict=True):
        if x.level not in ("node", "thread"):
            assert x.nbytes <= 8 * 4 * x.domains < other.nbytes, x.level


def reduction_of(form: str, tree: Tree, n: int) -> tuple[Variant, CallFacts]:
    """Return a reduction of n elements of 8 bytes on each thread, by levels."""
    to = None if form.endswith("all") else 0
    layout = Layout(tree.size, 0, 0, n, n * tree.size)
    given = (
        ReduceScatter(n, 8, exact=False) if form == "reduce_scatter"
        else Reduction(
            layout, n if "mpi" in form else 1, 8, to, ordered=False, exact="mpi" not in form,
            element_wise="mpi" in form,
        )
    )  # fmt: skip
    tuning = call_on(tree, None, 8).tuning
    call = CallFacts(tree, tuning, ("all", "all"), [given], kernels.find("f8", Op.ADD))
    return variant_of(form, MULTICORE, "levels"), call


@pytest.mark.parametrize("machine", ["2x2x2", "2x4x4", "3,1/2,2"])
@pytest.mark.parametrize("form", ["reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all"])
def test_one_value_leaves_and_enters_each_domain_on_several_nodes(form: str, machine: str) -> None:
    """Exactly the least: a value of each domain but those of the node root, and one message."""
    tree = tree_on(machine, nodes=2)
    found = counts_of(*reduction_of(form, tree, 1), chains=False)
    ways = 2 if form.endswith("all") else 1
    bytes_of = {x.level: x.nbytes for x in found.levels}
    assert bytes_of["node"] == 8 * ways
    for level in tree.levels(0).levels[1:]:
        inside = 2 * (len(level.roots) - 1)
        assert bytes_of[level.name] == 8 * ways * (1 + inside), level.name


@pytest.mark.parametrize("form", ["reduce_mpi", "reduce_mpi_all", "reduce_scatter"])
def test_long_reductions_on_several_nodes_fold_inside_domains(form: str) -> None:
    """At most twice the least: the results of slices go to the node root."""
    tree, n = tree_on("2x4x4", nodes=2), 1024
    found = counts_of(*reduction_of(form, tree, n), chains=False)
    bytes_of = {x.level: x.nbytes for x in found.levels}
    whole = 8 * n * (tree.size if form == "reduce_scatter" else 1)
    least = {"reduce_mpi": 1, "reduce_mpi_all": 2, "reduce_scatter": 1.5}[form]
    for level in tree.levels(0).levels[1:]:
        inside = 2 * (len(level.roots) - 1)
        assert bytes_of[level.name] - bytes_of["node"] <= 2 * least * inside * whole, level.name


# --- the command ----------------------------------------------------------------------------------
def shown(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(cli.main, ["algorithms", *words])
    assert done.exit_code == status, done.output
    return done.output


def test_the_command_prints_a_row_for_each_level() -> None:
    text = shown("all_broadcast", "--topology", "2x2x2", "--size", "64K", "--count")
    assert text.startswith("counted and modelled, not measured: 1 node, 8 threads")
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["multicore:levels"][1:4] == ["socket", "2", "65536"]
    assert rows["pull"][1:4] == ["socket", "2", str(4 * 65536)]


def test_the_command_refuses_what_it_cannot_count() -> None:
    assert "--count needs a COLLECTIVE" in shown("--count", status=2)
    assert "depend on lists" in shown("all_gather_v", "--count", status=2)
    assert "at most 512 threads" in shown("all_gather", "-n", "513", "--count", status=2)
    assert "--topology" in shown("all_gather", "--topology", "2x0", status=2)
