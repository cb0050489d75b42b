"""`xupc predict`: what a call costs on a machine that is not here, by each variant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from xupc.algorithms import registry
from xupc.api.algorithms import load_files
from xupc.bench.columns import aligned
from xupc.bench.files import write_whole
from xupc.bench.settings import near
from xupc.predict.candidates import Candidate, Question, candidates, choice_of
from xupc.predict.machine_file import MEANING, Machine, built_in_names, find, text_of
from xupc.predict.scaling import EXACT
from xupc.records import replace
from xupc.report import formatting
from xupc.report.plans import Unplanned
from xupc.specs import of_mpi
from xupc.topology.node_spec import threads_of_nodes
from xupc.tuning import selection_file
from xupc.tuning.selection import FAMILIES, TRANSPORTS, Rule, Table, public_name

from . import options
from .against import beside_lines, fit_to
from .common import (
    EnvironmentProblem,
    check_nodes,
    check_outputs,
    examples,
    plain,
)
from .predict_page import check_page, names_of, write_page
from .predict_program import is_trace, of_program
from .progress import PATIENCE, Progress

__all__ = [
    "family_option", "lines_of", "machine_option", "notes", "predict_command", "priced_or_refused",
    "selection_table", "transport_option",
]  # fmt: skip

_WORTH = 0.01  # a smaller gain is not printed
_HEAD = ["variant", "time", "range", "bound by", "busiest node", "messages"]


def _machine(_context: object, _option: object, value: str) -> Machine:
    try:
        return find(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _sizes(_context: object, _option: object, value: str | None) -> tuple[int, ...] | None:
    """Return the sizes of a list; None for an argument that is not there."""
    if value is None:
        return None
    return tuple(dict.fromkeys(map(options.block, value.split(","))))


machine_option = click.option(
    "--machine", metavar="NAME|FILE", default="default", show_default=True, callback=_machine,
    help=f"What steps cost: {', '.join(built_in_names())}, or a file of `xupc calibrate`.",
)  # fmt: skip
family_option = click.option(
    "--mpi", "family", type=click.Choice(FAMILIES), default="mpich", show_default=True,
    help="The MPI, which the selection table asks for.",
)  # fmt: skip
transport_option = click.option(
    "--transport", type=click.Choice(TRANSPORTS), default="fabric", show_default=True,
    help="The network between nodes, which the selection table asks for.",
)  # fmt: skip


@click.command("predict", epilog=examples(
    "xupc predict Bcast --nodes 64x16 --size 8,64K,1M",
    "xupc predict all_broadcast 1M --nodes 64x128",
    "xupc predict allav_reduce_all --nodes 1000x64 --size 8 --machine lumi-c",
    "xupc predict Allgather --nodes 1000x64 --page curves.html",
    "xupc predict trace.json --nodes 64x4 --machine lumi-c",
    "xupc predict --against result.json --machine here.toml",
    "xupc predict --against result.json --machine here.toml --fit fitted.toml",
))  # fmt: skip
@options.collectives(nargs=1)
@options.size_argument(_sizes)
@click.option("--nodes", metavar="SPEC", help="Nodes and threads, such as 10000x128 or 3,1,4.")
@click.option(
    "--size", "sizes", metavar="LIST", default="8,64K,1M", show_default=True, callback=_sizes,
    help="Bytes of a block: 64K, or several. Or SIZE after COLLECTIVE.",
)  # fmt: skip
@machine_option
@family_option
@transport_option
@click.option(
    "--against", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    multiple=True,
    help="Compare with all calls of a result of `xupc bench`, in place of one COLLECTIVE.",
)  # fmt: skip
@click.option(
    "--compute-factor", "factor", type=click.FloatRange(min=0), default=1.0, show_default=True,
    help="For a TRACE: the time of computation there, as a multiple of that in the trace.",
)  # fmt: skip
@click.option(
    "--fit", "fitted", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="With --against: fit the machine to half of the calls, judge the others, and write it.",
)  # fmt: skip
@click.option(
    "--page", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html",
    help="Write a page of scaling curves, by size and by nodes.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file of --fit or --page if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON data.")
def predict_command(
    collective: str | None, given: tuple[int, ...] | None, nodes: str | None,
    sizes: tuple[int, ...], machine: Machine, family: str, transport: str,
    against: tuple[Path, ...], fitted: Path | None, page: Path | None, force: bool,
    factor: float, as_json: bool,
) -> None:  # fmt: skip
    """Model what a call costs on a machine, by each variant.

    In place of a COLLECTIVE, a file of ``xupc run --trace`` gives the time of the whole program.

    The plans of all threads run on a clock, up to 512 threads. For more of them, smaller shapes are
    priced; some of these are left out and predicted from the others, which gives the error. Nothing
    is measured. ``xupc calibrate`` writes the file of a machine.
    """
    sizes = options.size_given(given, sizes, "sizes")
    if fitted is not None and not against:
        raise click.UsageError("--fit: expected results to fit to, with --against")
    if against:
        if collective is not None or nodes is not None:
            raise click.UsageError("--against: the result has the collectives and the nodes")
        if fitted is None:
            lines = list(beside_lines(against, machine))
        else:
            machine, lines = _fitted(against, machine, fitted, force)
        click.echo("\n".join([*lines, "", *notes(machine)]))
        return
    if collective is None or nodes is None:
        raise click.UsageError("expected a COLLECTIVE, such as all_broadcast or Bcast, and --nodes")
    load_files()
    known = tuple(public_name(name) for name in registry.collectives())
    name = collective if collective in known else of_mpi(collective) or collective
    if name not in known and not is_trace(collective):
        raise click.UsageError(f"{collective!r} has no variants; {near(collective, known)}")
    threads = threads_of_nodes(nodes)
    if threads is None:
        raise click.BadParameter(f"{nodes!r}: expected 64x16 or 3,1,4", param_hint="--nodes")
    check_nodes(nodes, threads)
    if name not in known:
        if page is not None:
            raise click.UsageError("--page: expected a COLLECTIVE, got a trace")
        asked = Question("", 0, nodes, threads, family, transport)
        click.echo(of_program(collective, asked, machine, selection_table(), factor, as_json))
        return
    each = check_page(page, nodes, threads, force)
    questions = [Question(name, n, nodes, threads, family, transport) for n in sizes]
    table = selection_table()
    each_priced = priced_or_refused(questions, machine, table)
    found = [(q, p, choice_of(q, table)) for q, p in zip(questions, each_priced, strict=True)]
    _print(found, machine, as_json)
    if page is not None:
        names = names_of([(choice, priced) for _, priced, (choice, _) in found])
        write_page(page, questions, names, each, machine, table)


def _print(
    found: list[tuple[Question, list[Candidate], tuple[str, Rule]]], machine: Machine, as_json: bool
) -> None:
    """Print all variants of the calls."""
    if as_json:
        click.echo(json.dumps(plain(
            [{"call": q, "candidates": c, "chosen by the table": t, "source": rule.source or None}
             for q, c, (t, rule) in found]
        ), indent=1))  # fmt: skip
        return
    for question, priced, (choice, rule) in found:
        click.echo("\n".join(lines_of(question, priced, choice, rule.source)))
        click.echo()
    click.echo("\n".join(notes(machine)))


def _fitted(
    against: tuple[Path, ...], machine: Machine, path: Path, force: bool
) -> tuple[Machine, list[str]]:
    """Return a machine fitted to results, which is written to a file, and the lines about it."""
    check_outputs([("--fit", path)], replace=force)
    machine, lines = fit_to(against, machine)
    machine = replace(machine, name=path.stem)
    write_whole(path, text_of(machine).encode())
    return machine, lines


def selection_table() -> Table:
    """Return the selection table in force; EnvironmentProblem if its file is wrong."""
    try:
        return selection_file.load(selection_file.find())
    except ValueError as error:
        raise EnvironmentProblem(str(error)) from None


def priced_or_refused(
    questions: Sequence[Question], machine: Machine, table: Table, command: str = "xupc predict"
) -> list[list[Candidate]]:
    """Return the candidates of each call, with the progress of the command on stderr.

    Raises
    ------
    UsageError
        A collective takes lists.
    """
    found: list[list[Candidate]] = []
    with Progress(command, after=PATIENCE) as progress:

        def show(done: float, name: str) -> None:
            size = formatting.size(questions[len(found)].nbytes)
            progress.show((len(found) + done) / len(questions), f"{size}, {name}")

        for question in questions:
            try:
                found.append(candidates(question, machine, table, show))
            except Unplanned:  # options.block has refused what is too large
                raise click.UsageError(
                    f"{question.collective}: the plans of this collective depend on lists"
                ) from None
    return found


def lines_of(
    question: Question, priced: list[Candidate], choice: str, source: str
) -> Iterator[str]:
    """Yield the table of one call, its choice, and how far the price can be trusted.

    `source`: of the rule that made the choice, as in the table.
    """
    where = f"nodes {question.nodes}" if question.nodes else f"{question.threads} threads"
    size = formatting.size(question.nbytes)
    yield f"{question.collective}, {size}, {where}: modelled, not measured"
    yield from aligned([_HEAD, *(_row(each, choice, source) for each in priced)], indent=2)
    if not any(each.name == choice for each in priced):
        yield f"the table chooses {choice}"
    best = priced[0] if priced else None
    if best is not None and best.how:
        yield f"from plans of at most {EXACT} threads; {best.name}: {best.how}"
    if best is not None and best.gains:
        shares = sorted(best.gains.items(), key=lambda pair: -pair[1])
        helps = ", ".join(f"{what} {share:.0%}" for what, share in shares if share >= _WORTH)
        yield f"{best.name} gets shorter if one cost is halved: {helps or 'by nothing'}"


def _row(each: Candidate, choice: str, source: str) -> list[str]:
    """Return the cells of one variant."""
    by = f" ({source})" if source else ""
    mark = f"  <- the table's choice{by}" if each.name == choice else ""
    if each.price is None:
        return [each.name, "-", each.missing + mark]
    found = each.price
    return [
        each.name, formatting.time(each.time),
        f"{formatting.time(each.low)} - {formatting.time(each.high)}",
        f"{found.bound} {found.share:.0%}",
        formatting.size(each.traffic.busiest), str(each.traffic.messages) + mark,
    ]  # fmt: skip


def notes(machine: Machine) -> Iterator[str]:
    """Yield what the prices rest on."""
    yield f"machine {machine.name}:"
    rows = [
        [name, f"{p.value:g}", f"{p.low:g} - {p.high:g}" if p.low < p.high else "", p.source,]
        for name, p in machine.parameters.items()
    ]  # fmt: skip
    yield from aligned(rows, indent=2)
    if machine.assumed:
        yield f"{len(machine.assumed)} of {len(MEANING)} values are assumed"
    yield "bound by: the part that would take longest alone, and its share of the time"
