"""`xupc algorithms`: the variants of algorithms, where each can run, and which one a call gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
import numpy as np

from xupc.algorithms import registry
from xupc.algorithms.conditions import CallFacts, text_of
from xupc.algorithms.registry import Entry, Variant
from xupc.api.algorithms import load_files
from xupc.backends.simulator.rates import rates_of
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import run
from xupc.bench.columns import aligned
from xupc.bench.files import write_whole
from xupc.bench.results import Cell
from xupc.bench.settings import near
from xupc.predict.candidates import Question, choice_of
from xupc.predict.machine_file import Machine as Modelled
from xupc.report.plan_events import plan_events
from xupc.report.plans import MOST_THREADS, Unplanned, call_of, maker
from xupc.specs import of_mpi
from xupc.topology.machine import Machine
from xupc.topology.node_spec import node_tree, threads_of_nodes
from xupc.topology.sysfs import machine_of
from xupc.topology.tree import Tree
from xupc.tuning.selection import TRANSPORTS, Place, Rule, Table, public_name

from . import options
from .common import (
    EnvironmentProblem,
    check_nodes,
    check_outputs,
    examples,
)
from .level_counts import lines_of, with_machine
from .predict import (
    family_option,
    machine_option,
    notes,
    priced_or_refused,
    selection_table,
)
from .predict import lines_of as why_lines

__all__ = ["algorithms_command"]


@click.command("algorithms", epilog=examples(
    "xupc algorithms",
    "xupc algorithms Allgather --nodes 4x2 --size 1MiB",
    "xupc algorithms all_gather_all --nodes 4x2 --draw multicore:ring",
    "xupc algorithms Allreduce --nodes 4x2 --draw multicore --timeline plan.json",
    "xupc algorithms all_broadcast --topology 2x8x8 --size 64K --count",
    "xupc algorithms --why all_broadcast 1M --nodes 64x128",
))  # fmt: skip
@options.collectives(nargs=1)
@options.size_argument()
@options.list_option()
@click.option(
    "--nodes", metavar="SPEC",
    help="Where the threads are: 4x2, 3,1,4 or cyclic:3.",
)  # fmt: skip
@click.option(
    "-n", "-np", "threads", type=click.IntRange(min=1), metavar="N",
    help="The number of threads; by default as many as the nodes hold, or 4.",
)  # fmt: skip
@click.option(
    "--topology", metavar="SPEC", envvar="XUPC_TOPOLOGY",
    help="The machine of each node: 2x4x8 (sockets, L3 domains, cores) or a directory.",
)  # fmt: skip
@click.option(
    "--count", "counted", is_flag=True,
    help="Print what each variant moves across the borders of each level, counted and modelled.",
)  # fmt: skip
@click.option(
    "--why", is_flag=True,
    help="Print the modelled time of each variant, and what bounds it, as `xupc predict` does.",
)  # fmt: skip
@machine_option
@click.option(
    "--size", default="1K", show_default=True,
    help="Bytes of a block: 64K or 1MiB. Or SIZE after COLLECTIVE.",
)  # fmt: skip
@click.option("--draw", metavar="NAME", help="Print the plan of a variant, such as multicore:ring.")
@click.option(
    "--timeline", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Simulate the plan of --draw, and write the times of all threads for Perfetto.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file of --timeline if it exists.")
@click.option("--thread", default=0, show_default=True, help="The thread whose plan is printed.")
@family_option
@click.option(
    "--transport", type=click.Choice(TRANSPORTS),
    help="Between nodes, likewise; by default shm on one node, tcp on several.",
)  # fmt: skip
def algorithms_command(
    collective: str | None, given: str | None, nodes: str | None, threads: int | None,
    topology: str | None, counted: bool, why: bool, machine: Modelled, size: str,
    draw: str | None, timeline: Path | None, force: bool, thread: int, family: str,
    transport: str | None,
) -> None:  # fmt: skip
    """List the variants of algorithms, and which of them a call gets.

    Without COLLECTIVE it lists all names. With one, such as all_gather_all, or MPI's name for it,
    it shows each variant's idea, its conditions, and whether a call with these nodes and this size
    can use it.
    """
    size = options.size_given(given, size, "size")
    _check_timeline(timeline, draw, force)
    load_files()
    known = {public_name(name): name for name in registry.collectives()}
    if collective is None:
        _need_collective(draw=draw, count=counted, why=why)
        click.echo("\n".join(_names(known)))
        return
    collective = collective if collective in known else of_mpi(collective) or collective
    if collective not in known:
        raise click.UsageError(f"{collective!r} has no variants; {near(collective, tuple(known))}")
    described = _machine(topology)
    cores = len(described.cores) if described else 4
    threads = threads or threads_of_nodes(nodes or "") or cores
    check_nodes(nodes, threads)
    tree = _tree(nodes, threads, described)
    transport = transport or ("shm" if tree.node_count == 1 else "tcp")
    table = selection_table()
    place = Place.of(tree.node_sizes, family, transport, False, tree.level_shape)
    nbytes = options.block(size)
    entries = registry.registered(known[collective])
    try:
        call = call_of(Cell(collective, nbytes, nbytes, sync="allsync"), tree, table.tuning(place))
    except Unplanned:
        call = None  # its arguments are lists
    if draw is not None:
        click.echo(_drawn(entries, call, draw, thread))
        _write_timeline(entries, call, draw, timeline)
        return
    lines: Iterable[str]
    if counted:
        lines = lines_of(entries, call)
    elif why:
        asked = Question(collective, nbytes, nodes, threads, family, transport)
        lines = _reasons(asked, machine, table)
    else:
        lines = _lines(collective, entries, call, table, place, nbytes)
    click.echo("\n".join(lines))


def _names(known: Mapping[str, str]) -> list[str]:
    """Return all collectives with the names of their variants."""
    variants = ((name, registry.registered(known[name])) for name in known)
    return aligned([[name, " ".join(registry.names_of(found))] for name, found in variants])


def _reasons(asked: Question, machine: Modelled, table: Table) -> list[str]:
    """Return the lines of ``--why``."""
    (priced,) = priced_or_refused([asked], machine, table, "xupc algorithms")
    choice, rule = choice_of(asked, table)
    return [*why_lines(asked, priced, choice, rule.source), *notes(machine)]


def _need_collective(**options: object) -> None:
    """Raise UsageError if there is an option that only says something about one collective."""
    for option, given in options.items():
        if given:
            raise click.UsageError(f"--{option} needs a COLLECTIVE")


def _check_timeline(timeline: Path | None, draw: str | None, force: bool) -> None:
    """Raise UsageError if the file of ``--timeline`` cannot be made."""
    if timeline is not None and draw is None:
        raise click.UsageError("--timeline: expected the name of a variant in --draw, too")
    check_outputs([("--timeline", timeline)], replace=force)


def _machine(topology: str | None) -> Machine | None:
    """Return the machine of ``--topology``."""
    try:
        return machine_of(topology) if topology else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--topology") from None


def _tree(nodes: str | None, threads: int, machine: Machine | None) -> Tree:
    """Return the tree of so many threads, with the levels of their nodes."""
    tree = node_tree(np.zeros(threads, np.int32), nodes)
    return with_machine(tree, machine) if machine else tree


def _lines(
    collective: str, entries: list[Entry], call: CallFacts | None, table: Table, place: Place,
    nbytes: int,
) -> Iterator[str]:  # fmt: skip
    """Yield a heading, and three lines for each variant."""
    by_flag = {entry.flag: entry for entry in entries}

    def possible(rule: Rule) -> bool:
        return call is None or by_flag[rule.algorithm].can_run(rule.variant, call)

    rule = table.at(place).rule(entries[0].collective, nbytes, possible)
    if call is None:
        yield f"{collective}, blocks of {nbytes} bytes"
    else:
        yield f"{collective} on {call}"
    yield f"the selection table ({table.name}) chooses {rule.name}"
    for entry in entries:
        chosen = _chosen(entry, call, rule.variant if entry.flag == rule.algorithm else "")
        for variant in entry.variants:
            yield ""
            mark = _mark(variant, chosen, call, entry.flag == rule.algorithm)
            yield f"  {variant.name:22} {mark}"
            yield f"      {variant.summary}"
            yield from (f"      {line}" for line in _conditions(variant))


def _chosen(entry: Entry, call: CallFacts | None, label: str) -> Variant | None:
    """Return the variant that a call with the entry's flag gets."""
    if call is None:
        return None
    try:
        return entry.choose(label, call)
    except (LookupError, ValueError):
        return None


def _mark(variant: Variant, chosen: Variant | None, call: CallFacts | None, usual: bool) -> str:
    """Return what a call does with a variant."""
    if call is None:
        return ""
    if variant is chosen:
        return "<- chosen" if usual else f"<- chosen with {variant.name.partition(':')[0].upper()}"
    return "can run" if variant.can_run(call) else "cannot run here"


def _conditions(variant: Variant) -> Iterator[str]:
    """Yield where a variant can run, and where it is the default."""
    if variant.own:
        yield "registered by the program: used where it is asked for"
    if text := text_of(variant.applies):
        yield f"needs: {text}"
    if text := text_of(variant.preferred):
        yield f"default: {text}"


def _drawn(entries: list[Entry], call: CallFacts | None, name: str, thread: int) -> str:
    """Return a variant's plan of one thread."""
    if call is None:
        raise click.UsageError("--draw: the plans of this collective depend on lists")
    if not 0 <= thread < call.size:
        raise click.UsageError(f"--thread: expected 0 to {call.size - 1}, got {thread}")
    return str(maker(_variant(entries, call, name), call)(thread))


def _variant(entries: list[Entry], call: CallFacts | None, name: str) -> Variant:
    """Return the variant that ``--draw`` names; UsageError if there is none."""
    assert call is not None
    try:
        flag, label = registry.parse_name(name.lower() if ":" not in name else name)
        return next(e for e in entries if e.flag == flag).choose(label, call)
    except ValueError as error:
        raise click.UsageError(f"--draw: {error}") from None


def _write_timeline(
    entries: list[Entry], call: CallFacts | None, name: str, path: Path | None
) -> None:
    """Write the plans of all threads, carried out on a clock, as trace events, to a path if any."""
    if path is None or call is None:
        return
    variant = _variant(entries, call, name)
    if call.size > MOST_THREADS:
        raise click.UsageError(f"--timeline: expected at most {MOST_THREADS} threads")
    make, tree = maker(variant, call), call.tree
    made = [Program(make(rank), tree) for rank in range(call.size)]
    happened = run(made, rates_of({}, tree.node_count > 1))
    names = {rank: f"thread {rank}" for rank in range(call.size)}
    events = plan_events(happened, names, {rank: tree.node_of(rank) for rank in names})
    try:
        write_whole(path, "".join(events.lines()).encode())
    except OSError as error:
        raise EnvironmentProblem(str(error)) from None
