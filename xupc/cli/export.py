"""`xupc export`: plans and recorded programs as files of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from xupc.algorithms import registry
from xupc.api.algorithms import load_files
from xupc.bench.settings import SYNCS, near
from xupc.export.builder import Builder
from xupc.export.calls import programs_of_call
from xupc.export.chrome import lines as chrome_lines
from xupc.export.formats import CHROME, FORMATS, Files, files_of, in_folder, write
from xupc.export.program import program_graph
from xupc.predict.candidates import Question
from xupc.predict.machine_file import Machine
from xupc.report import formatting
from xupc.report.plans import Unplanned
from xupc.specs import of_mpi
from xupc.topology.node_spec import threads_of_nodes
from xupc.tuning.selection import Table, public_name

from . import options
from .common import (
    EnvironmentProblem,
    blamed_on,
    check_nodes,
    check_outputs,
    check_writable,
    examples,
)
from .predict import family_option, machine_option, selection_table, transport_option
from .predict_program import is_trace, loaded

__all__ = ["export_command"]


def _size(_context: object, _option: object, value: str) -> int:
    return options.block(value)


@click.command("export", epilog=examples(
    "xupc export all_broadcast --nodes 16x4 --size 1M --format goal -o broadcast.goal",
    "xupc export Allreduce --nodes 4x2 --size 64K --format smpi -o replay",
    "xupc export trace.json --format chakra -o traces",
))  # fmt: skip
@click.argument("subject", metavar="COLLECTIVE|TRACE")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), required=True,
    help="GOAL of LogGOPSim, traces of SMPI, Chakra, or trace events of Chrome and Perfetto.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE|FOLDER",
    help="The file; of smpi and chakra, a folder for a file of each thread or node.",
)  # fmt: skip
@click.option("--nodes", metavar="SPEC", help="Nodes and threads, such as 16x4 or 3,1,4.")
@click.option(
    "--size", "nbytes", default="64K", show_default=True, metavar="SIZE", callback=_size,
    help="Bytes of a block, such as 64K or 1M.",
)  # fmt: skip
@click.option(
    "--variant", metavar="NAME",
    help="The variant, such as multicore:chain; by default the selection table's.",
)  # fmt: skip
@click.option(
    "--sync", type=click.Choice(SYNCS), default="allsync", show_default=True,
    help="What threads wait for before and after a call on shared arrays.",
)  # fmt: skip
@machine_option
@family_option
@transport_option
@click.option("--force", is_flag=True, help="Replace files that exist already.")
def export_command(
    subject: str, form: str, output: Path, nodes: str | None, nbytes: int, variant: str | None,
    sync: str, machine: Machine, family: str, transport: str, force: bool,
) -> None:  # fmt: skip
    """Write the plan of a call as a file of another tool.

    In place of a COLLECTIVE, a file of ``xupc run --trace`` gives the whole program on its own
    nodes. Other simulators and viewers can then check what ``xupc predict`` says. Times of copies
    are those of the machine; times of messages are left to the tool.
    """
    _check_output(output, form, force)
    load_files()
    table = selection_table()
    try:
        if is_trace(subject):
            _refuse_options(form, nodes, variant)
            with blamed_on(subject):
                about, files = _traced(subject, form, family, transport, table, machine)
        else:
            question = _question(subject, nodes, nbytes, family, transport)
            about, files = _planned(question, form, variant, sync, table, machine)
        paths = write(files, output)
    except (ValueError, Unplanned) as error:
        raise click.UsageError(f"{subject}: {error}") from None
    except OSError as error:
        raise EnvironmentProblem(str(error)) from None
    what = f"{len(paths)} files in {output}" if in_folder(form) else str(output)
    click.echo(f"{about}: {what}")


def _planned(
    question: Question, form: str, variant: str | None, sync: str, table: Table, machine: Machine
) -> tuple[str, Files]:
    """Return what a call is, and its files."""
    tree = question.tree
    name, programs, tuning = programs_of_call(question, tree, table, variant, sync)
    rates = machine.rates()
    about = (
        f"{question.collective} by {name}, {formatting.size(question.nbytes)}, "
        f"nodes {question.nodes}, machine {machine.name}"
    )
    if form == CHROME:
        return about, [("", "".join(chrome_lines(programs, rates, about)))]
    builder = Builder(tree, rates)
    builder.call(programs, range(tree.size), tuning["few_nodes_max"])
    return about, files_of(form, builder.graph(), rates, about)


def _traced(
    path: str, form: str, family: str, transport: str, table: Table, machine: Machine
) -> tuple[str, Files]:
    """Return what a trace is, and the files of its program."""
    trace, rates = loaded(path), machine.rates()
    graph, kept = program_graph(trace, family, transport, table, rates)
    about = f"{path}, {formatting.count(len(trace.threads), 'thread')}, machine {machine.name}"
    if kept:
        names = ", ".join(f"{name} ({number})" for name, number in sorted(kept.items()))
        click.echo(f"as work, since their plans cannot be made: {names}", err=True)
    return about, files_of(form, graph, rates, about)


def _refuse_options(form: str, nodes: str | None, variant: str | None) -> None:
    """Raise UsageError for options about what a trace has itself."""
    if form == CHROME:
        raise click.UsageError("chrome: a trace is such a file already")
    if nodes is not None or variant is not None:
        raise click.UsageError("--nodes, --variant: a trace has its own nodes and variants")


def _check_output(output: Path, form: str, force: bool) -> None:
    """Raise UsageError if the output exists, or is of the other kind."""
    if in_folder(form):
        if output.exists() and not output.is_dir():
            raise click.UsageError(f"-o: expected a folder for {form}, got the file {output}")
        if output.is_dir() and any(output.iterdir()) and not force:
            raise click.UsageError(
                f"-o {output}: expected a new or an empty folder; name another one, or use --force"
            )
        check_writable(output / form, make=True)
    elif output.is_dir():
        raise click.UsageError(f"-o: expected a file for {form}, got the folder {output}")
    else:
        check_outputs([("-o", output)], replace=force)


def _question(
    collective: str, nodes: str | None, nbytes: int, family: str, transport: str
) -> Question:
    """Return the call; UsageError if there is no such one."""
    known = tuple(public_name(name) for name in registry.collectives())
    name = collective if collective in known else of_mpi(collective) or collective
    if name not in known:
        raise click.UsageError(f"{collective!r} has no variants; {near(collective, known)}")
    if nodes is None:
        raise click.UsageError("expected --nodes, such as --nodes 16x4")
    threads = threads_of_nodes(nodes)
    if threads is None:
        raise click.BadParameter(f"{nodes!r}: expected 64x16 or 3,1,4", param_hint="--nodes")
    check_nodes(nodes, threads)
    return Question(name, nbytes, nodes, threads, family, transport)
