"""Count what collectives move across sockets and L3 domains, flat and by levels: a table.

``python benchmarks/levels.py > benchmarks/results/levels.md``; with names of machines: their parts;
with names of collectives too: their rows. With the word ``rows``: the part about scans over rows of
blocks; ``nodes``: the one about nodes; ``scans``: the one about scans on nodes.

Each collective of a machine is counted in a process of its own, as many at a time as there are
cores, the largest machines first. The counts do not depend on that.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import product

from xupc.algorithms import registry
from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Variant
from xupc.algorithms.scan_spec import ScanSpec
from xupc.backends.simulator.level_counts import SOURCES, Counted, count
from xupc.backends.simulator.sim_program import Program
from xupc.bench.results import Cell
from xupc.cli.level_counts import with_machine
from xupc.flags import MULTICORE
from xupc.ops import Op
from xupc.pgas.layout import Layout
from xupc.plan.plan import barrier_plan
from xupc.predict.price import programs_of
from xupc.reduction import kernels
from xupc.report.plans import call_of
from xupc.topology.machine import describe
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place, public_name
from xupc.tuning.selection_file import built_in

MACHINES = (
    "1x4", "2x4", "1x8", "2x2x2", "8,8/8,6", "1x4x8", "2x16", "2x4x4", "2x4x8", "2x8x8", "2x8x12",
    "socket:2,l3:8,core:8,thread:2",
)  # fmt: skip
COLLECTIVES = (
    "broadcast", "scatter", "gather", "gather_all", "exchange", "permute", "reduce_mpi",
    "reduce_mpi_all", "reduce_scatter", "prefix_reduce", "allav_broadcast", "allav_gather_all",
    "allav_reduce", "allav_reduce_all", "allav_reduce_scatter", "allav_prefix_reduce",
)  # fmt: skip
SIZES = (8, 1 << 16)
PLACES_OF_NODES = ((2, "2x2x4"), (4, "2x2x4"), (2, "2x4x4"))
PLACES_OF_SCANS = ((2, "1x8"), *PLACES_OF_NODES, (8, "1x4"), (9, "1x4"), (16, "1x4"), (32, "1x4"))
COLLECTIVES_OF_NODES = (
    "reduce_mpi", "reduce_mpi_all", "reduce_scatter", "allav_reduce", "allav_reduce_all",
    "allav_reduce_scatter", "allav_prefix_reduce",
)  # fmt: skip
SIZES_OF_NODES = {False: (4096, 1 << 16), True: (4096,)}  # True: a block for each thread
MACHINES_OF_ROWS = ("2x4", "1x4x8", "2x4x4", "2x4x8")
ROWS_OF_NODES = (1, 2, 20, 300)


def main(words: Sequence[str]) -> None:
    """Print the page, or what some words name."""
    parts = {"rows": _print_rows, "nodes": _print_nodes, "scans": _print_scans}
    if parts.keys() >= {*words} and words:
        for word in words:
            parts[word]()
        return
    if not words:
        print(HEAD)
    named = [name for name in COLLECTIVES if name in words]
    machines = [word for word in words if word not in named] or MACHINES
    tasks = {machine: _tasks(machine, named) for machine in machines}
    with ProcessPoolExecutor(os.cpu_count(), initializer=gc.disable) as pool:
        made: dict[tuple[str, str, int], Future[list[list[str]]]] = {
            task: pool.submit(_counted, *task)
            for machine in sorted(tasks, key=_threads, reverse=True) for task in tasks[machine]
        }  # fmt: skip
        for machine, some in tasks.items():
            print(f"## {machine}: {_threads(machine)} threads\n\n{TABLE}", flush=True)
            for task in some:
                for row in made[task].result():
                    print(f"| {' | '.join(row)} |", flush=True)
            print()
    if not words:
        _print_rows()
        _print_nodes()
        _print_scans()


def _print_nodes() -> None:
    """Print the part about several nodes."""
    print(NODES, flush=True)
    for nodes, machine in PLACES_OF_NODES:
        found = describe(machine)
        tree = with_machine(Tree([k for k in range(nodes) for _ in found.cpus]), found)
        for collective in COLLECTIVES_OF_NODES:
            for nbytes in SIZES_OF_NODES[collective.endswith("scatter")]:
                for row in _rows(collective, nbytes, tree):
                    print(f"| {nodes} | {machine} | {' | '.join(row)} |", flush=True)


def _print_rows() -> None:
    """Print the part about scans over rows of blocks of 3 elements."""
    print(ROWS, flush=True)
    for machine, rows in product(MACHINES_OF_ROWS, (2, 20, 300)):
        found = describe(machine)
        tree = with_machine(Tree([0] * len(found.cpus)), found)
        call = _scan(tree, rows)
        for variant in registry.find("prefix_reduce", MULTICORE).variants:
            if variant.label in ("push", "levels"):
                numbers = _numbers(programs_of(variant, call))
                row = [machine, str(tree.size), str(rows), variant.name, *numbers]
                print(f"| {' | '.join(row)} |", flush=True)


def _print_scans() -> None:
    """Print the part about scans on several nodes: all variants that can run."""
    print(SCANS, flush=True)
    for (nodes, machine), rows in product(PLACES_OF_SCANS, ROWS_OF_NODES):
        found = describe(machine)
        call = _scan(with_machine(Tree([k for k in range(nodes) for _ in found.cpus]), found), rows)
        for variant in registry.find("prefix_reduce", MULTICORE).variants:
            if variant.can_run(call):
                numbers = _numbers(programs_of(variant, call))
                row = [str(nodes), machine, str(rows), variant.name, *numbers]
                print(f"| {' | '.join(row)} |", flush=True)


def _scan(tree: Tree, rows: int) -> CallFacts:
    """Return a scan over so many rows of blocks of 3 elements."""
    place = Place.of(tree.node_sizes, "mpich", "shm", oversubscribed=False)
    layout = Layout(tree.size, 0, 0, 3, 3 * rows * tree.size)
    spec = ScanSpec(layout, layout, 8, backward=False)
    kernel = kernels.find("f8", Op.ADD)
    return CallFacts(tree, built_in().tuning(place), ("all", "all"), [spec], kernel)


def _threads(machine: str) -> int:
    return len(describe(machine).cpus)


def _tasks(machine: str, named: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return what is counted on a machine: (machine, collective, bytes), barriers first.

    `named`: these collectives alone; none: all.
    """
    counted = [(machine, *x) for x in product(named or COLLECTIVES, SIZES)]
    return counted if named else [(machine, "barrier", 0), *counted]


def _counted(machine: str, collective: str, nbytes: int) -> list[list[str]]:
    """Return the rows of a collective; the process collects garbage here alone."""
    found = describe(machine)
    tree = with_machine(Tree([0] * len(found.cpus)), found)
    rows = [_barrier(tree)] if collective == "barrier" else [*_rows(collective, nbytes, tree)]
    gc.collect()
    return rows


def _rows(collective: str, nbytes: int, tree: Tree) -> Iterator[list[str]]:
    """Yield a row for the default variant of MULTICORE and one for that by levels."""
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", oversubscribed=False))
    cell = Cell(public_name(collective), nbytes, nbytes, dtype="f8", op="add", sync="allsync")
    call = call_of(cell, tree, tuning)
    entry = registry.find(collective, MULTICORE)
    flat = entry.default(call)
    yield _row(collective, nbytes, flat, call)
    for variant in entry.variants:
        if variant.label == "levels":
            yield _row(collective, nbytes, variant, call)


def _row(collective: str, nbytes: int, variant: Variant, call: CallFacts) -> list[str]:
    return [collective, str(nbytes), variant.name, *_numbers(programs_of(variant, call))]


def _barrier(tree: Tree) -> list[str]:
    programs = [Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)]
    return ["barrier", "-", "-", *_numbers(programs)]


def _numbers(programs: Sequence[Program]) -> list[str]:
    """Return the columns of counts, with flat barriers and with barriers by levels."""
    flat, by_levels = (count(programs, chains=False, barrier_by_levels=w) for w in (False, True))
    return [*_crossing(flat), *(f"{counted.time_ns / 1e3:.2f}" for counted in (flat, by_levels))]


def _crossing(found: Counted) -> Iterator[str]:
    """Yield the bytes and lines that cross sockets and L3 domains; a dash without such a level."""
    levels = {level.level: level for level in found.levels}
    for name in ("socket", "l3"):
        level = levels.get(name)
        yield f"{level.nbytes}" if level else "-"
        yield f"{level.lines + level.signals}" if level else "-"


COLUMNS = (
    "collective", "bytes", "variant", "socket: bytes", "lines", "L3: bytes", "lines", "us",
    "us, barrier by levels",
)  # fmt: skip
TABLE = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
ROWS = f"""## Scans over rows of blocks

`all_prefix_reduce` of 8-byte values in blocks of 3. The first row is the default of MULTICORE, a
tree of threads.

| machine | threads | rows | {' | '.join(COLUMNS[2:])} |
{'|---' * (len(COLUMNS) + 1)}|"""
NODES = f"""
## Reductions on several nodes

| nodes | machine | {' | '.join(COLUMNS)} |
{'|---' * (len(COLUMNS) + 2)}|"""
SCANS = f"""
## Scans on several nodes

`all_prefix_reduce` of 8-byte values in blocks of 3. Of the variants that can run, the first one but
`levels` is the default of MULTICORE.

| nodes | machine | rows | {' | '.join(COLUMNS[2:])} |
{'|---' * (len(COLUMNS) + 1)}|"""
HEAD = "\n".join([
    "This page is counted and modelled, not measured.",
    "",
    "# Flat against levels below a node",
    "",
    "One node, a thread per processor, ALLSYNC. The first row of a collective is the default of",
    "MULTICORE, the second one its variant by levels. Lines are cache lines of data, signals and",
    "barriers, which are flat but in the last column. In a job more than 16 threads on several",
    "domains have barriers by levels, others flat ones. A machine is written as in",
    "`XUPC_TOPOLOGY`. Where the sockets have one L3 domain each, that level is the socket.",
    "`python benchmarks/levels.py` makes the page. Parameters:",
    "",
    *(f"- {source}" for source in SOURCES),
    "",
])  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1:])
