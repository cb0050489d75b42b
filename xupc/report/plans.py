"""The plans of a measured call, made again from what its result says: no MPI, no job.

Sizes come from the built-in selection table, for the MPI and the transport that the job used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..algorithms import registry
from ..algorithms.conditions import CallFacts
from ..algorithms.reduce_spec import Reduction
from ..algorithms.scan_spec import ScanSpec
from ..algorithms.values_reduce_scatter import ReduceScatter
from ..algorithms.values_reduce_spec import ReduceSpec
from ..backends.simulator.sim_program import Program
from ..bench.results import Candidate, Cell, Job
from ..ops import Op
from ..pgas.layout import Layout
from ..plan.plan import Plan, barrier_plan
from ..plan.recorder import Operand, trace
from ..reduction import kernels
from ..specs import SPECS
from ..topology.tree import Tree
from ..tuning.selection import Place, registered_name
from ..tuning.selection_file import built_in
from . import formatting

__all__ = [
    "MOST_BLOCK", "MOST_THREADS", "Unplanned", "call_of", "check_block", "maker",
    "programs", "root_of", "team_of", "tree_of",
]  # fmt: skip

MOST_THREADS = 512
"""Of a job of which every thread's plan is made."""
MOST_BYTES = 1 << 33
"""In the blocks of all threads of such a job: each chunk is a step of a plan."""


MOST_BLOCK = 1 << 30
"""Bytes in a block of a call that is not measured but described."""


class Unplanned(Exception):
    """A call whose plan cannot be made from the result; says why."""


def tree_of(job: Job) -> Tree:
    """Return the job's node tree; Unplanned if the file names other threads than it has."""
    label = {thread: node for node, threads in enumerate(job.nodes) for thread in threads}
    named = sum(map(len, job.nodes))
    if not named or named != job.threads or sorted(label) != list(range(job.threads)):
        raise Unplanned("the nodes in the file are not made of the job's threads")
    return Tree([label[thread] for thread in range(job.threads)])


def team_of(tree: Tree, cell: Cell) -> tuple[int, ...]:
    """Return the threads of a cell's team, by rank; of several such teams the first."""
    match cell.team:
        case "world":
            return tuple(range(tree.size))
        case "node":
            return tree.nodes[0]
        case "roots":
            return tree.roots
    raise Unplanned(f"there is no team {cell.team!r}")


def root_of(cell: Cell, threads: int) -> int:
    """Return the root's rank; the first of rotated ones is 0."""
    if cell.root in ("", "rotated"):
        return 0
    if cell.root.isdecimal() and int(cell.root) < threads:
        return int(cell.root)
    raise Unplanned(f"there is no thread {cell.root!r} that could be the root")


def check_block(nbytes: int) -> None:
    """Raise Unplanned if the plans of a call with such blocks would take more memory than there is.

    The steps of a plan are chunks of blocks.
    """
    if nbytes > MOST_BLOCK:
        raise Unplanned(
            f"expected blocks of at most {formatting.size(MOST_BLOCK)}, got {nbytes} bytes"
        )


def programs(job: Job, cell: Cell, candidate: Candidate) -> list[Program]:
    """Return what every thread of a cell's team does in one call of a candidate."""
    world = tree_of(job)
    threads = team_of(world, cell)
    if len(threads) > MOST_THREADS:
        raise Unplanned(f"plans of more than {MOST_THREADS} threads are not drawn")
    if cell.nbytes * len(threads) > MOST_BYTES:
        raise Unplanned(f"plans of more than {formatting.size(MOST_BYTES)} are not drawn")
    tree = world.sub(threads)
    make = _maker(job, cell, candidate, tree)
    return [Program(make(rank), tree) for rank in range(tree.size)]


def _maker(job: Job, cell: Cell, candidate: Candidate, tree: Tree) -> Callable[[int], Plan]:
    """Return the function that makes a rank's plan."""
    if cell.collective == "barrier":
        return lambda rank: barrier_plan(rank, tree.size)
    if cell.collective.startswith("allav_") and cell.collective.endswith("_v"):
        raise Unplanned("it consists of several calls, which depend on the sizes of all blocks")
    flag, label = _way(candidate)
    entries = {entry.flag: entry for entry in registry.registered(registered_name(cell.collective))}
    if not cell.collective.startswith(("all_", "allav_", "allv_")) or flag not in entries:
        raise Unplanned(f"{cell.collective} has no {candidate.algorithm or 'such'} algorithm")
    call = call_of(cell, tree, _tuning(job, tree))
    try:
        return maker(entries[flag].choose(label, call), call)
    except ValueError as e:
        raise Unplanned(f"{cell.collective}: {e}") from None


def maker(variant: registry.Variant, call: CallFacts) -> Callable[[int], Plan]:
    """Return the function that makes a rank's plan of a call by a variant."""
    private = variant.collective.startswith("allav_")
    return lambda rank: trace(
        variant.function, variant.name, variant.collective, rank, call.tree, call.sync,
        call.tuning, call.arguments, call.kernel, private=private,
    )  # fmt: skip


def call_of(cell: Cell, tree: Tree, tuning: Mapping[str, int]) -> CallFacts:
    """Return the facts of a cell's call, with the arguments of its algorithms."""
    prefix, _, name = cell.collective.partition("_")
    private = prefix in ("allav", "allv")
    sync = ("no", "no") if private else _sync(cell.sync)
    kernel = _kernel(cell) if "reduce" in name else None
    root = root_of(cell, tree.size)
    if private:
        given = _of_values(name, cell, tree.size, root, kernel)
    elif kernel is not None:
        given = [_reduction(name, cell, tree.size, root, kernel)]
    else:
        given = _moving(name, tree.size, root, cell.nbytes)
    return CallFacts(tree, tuning, sync, given, kernel)


def _way(candidate: Candidate) -> tuple[int, str]:
    """Return the flag and the label of the algorithm; older results have the flag alone."""
    try:
        return registry.parse_name(candidate.algorithm.lower().split(" ")[0])
    except ValueError:
        raise Unplanned("which algorithm it was is not in the file") from None


def _sync(text: str) -> tuple[str, str]:
    into, _, out = text.partition("/")
    modes = into.removesuffix("sync"), (out or into).removesuffix("sync")
    if not {*modes} <= {"no", "my", "all"}:
        raise Unplanned(f"there is no synchronisation {text!r}")
    return modes


def _tuning(job: Job, tree: Tree) -> dict[str, int]:
    """Return the built-in table's sizes for the place of the job, as far as the result names it."""
    about = job.about
    place = Place.of(
        (tree.node_size(node) for node in range(tree.node_count)),
        str(about.get("mpi family", "")),
        str(about.get("transport", "")),
        bool(about.get("oversubscribed")),
    )
    return built_in().tuning(place)


def _kernel(cell: Cell) -> Any:
    """Return the kernel of the cell's type and operation; a sum replaces a user's function."""
    op = Op.__members__.get(cell.op.upper(), Op.ADD)
    try:
        return kernels.find(cell.dtype or "f8", Op.ADD if op >= Op.FUNC else op)
    except (TypeError, ValueError) as e:  # the latter: numpy's, of some texts that are no type
        raise Unplanned(str(e)) from None


def _moving(name: str, threads: int, root: int, nbytes: int) -> list[object]:
    """Return the arguments of the algorithms of relocalizations."""
    dst, src = Operand(0), Operand(1)
    spec = SPECS.get(name.removesuffix("_in_place"))
    if spec is None:
        raise Unplanned("where the blocks of this call lie is not in the file")
    in_place = name != spec.name and spec.transforms
    arguments: list[object] = [dst] if in_place else [dst, src]
    if spec.permutes:
        arguments.append(_rotation(threads))
    return [*arguments, *([root] if spec.root else []), nbytes]


def _rotation(threads: int) -> Any:
    return np.roll(np.arange(threads), -1)


def _reduction(
    name: str, cell: Cell, threads: int, root: int, kernel: Any
) -> Reduction | ScanSpec | ReduceScatter:
    """Return the arguments of a reduction of one block of each thread."""
    size = kernel.dtype.itemsize
    each = max(1, cell.nbytes // size)
    if SPECS[name].src.blocks == "T":
        return ReduceScatter(each, size, exact=False)
    layout = Layout(threads, 0, 0, each, each * threads)
    if SPECS[name].scans:
        exclusive = bool(SPECS[name].inclusive)
        return ScanSpec(layout, layout, size, SPECS[name].backward, exclusive=exclusive)
    element_wise = SPECS[name].elementwise
    to = None if SPECS[name].folds_to_all else root
    return Reduction(
        layout, each if element_wise else 1, size, to, False, not element_wise, element_wise
    )


def _of_values(name: str, cell: Cell, threads: int, root: int, kernel: Any) -> list[object]:
    """Return the arguments of the algorithms of arrays of values."""
    if kernel is not None:
        size = kernel.dtype.itemsize
        if SPECS[name].src.blocks == "T":
            return [ReduceScatter(max(1, cell.nbytes // size), size, exact=False)]
        to = root if SPECS[name].root else None
        exclusive = bool(SPECS[name].inclusive)
        each = max(1, cell.nbytes // size)
        return [ReduceSpec(each, size, to, False, False, False, exclusive)]
    if name not in SPECS:
        raise Unplanned("which threads are neighbours in this call is not in the file")
    first = _rotation(threads) if name == "permute" else root
    return [first, cell.nbytes, name == "broadcast"]
