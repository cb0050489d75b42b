"""`xupc tune`: measures every algorithm and writes the selection table that follows.

What is decided is `xupc.bench.tuner`'s business, how the file looks `xupc.bench.tuning_file`'s.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from xupc.algorithms.registry import collectives
from xupc.bench import driver
from xupc.bench.budget import ENOUGH, LAUNCHES, MOST_LAUNCHES, Preparation, TooShort, thinned
from xupc.bench.decisions import LEAST_LAUNCHES, Tuned
from xupc.bench.drop_in_tuner import methods_named
from xupc.bench.launch_plan import Plan
from xupc.bench.results import Job, Result
from xupc.bench.settings import ALGORITHMS, VARIANTS, Settings, Shape, named
from xupc.bench.tuner import place_of, tuned
from xupc.bench.tuning_file import TuningFile
from xupc.tuning.selection import Rule, registered_name
from xupc.tuning.selection_file import VARIABLE, user_path

from . import common, options
from .bench_jobs import find_launcher
from .common import (
    BudgetProblem,
    EnvironmentProblem,
    check_crowd,
    check_outputs,
    check_writable,
    examples,
    in_job,
)
from .launcher import EXIT_WRONG
from .mpi import LaunchError
from .progress import Progress
from .tune_drop_in import DropInPlan, add_carriers
from .tune_host import add_host
from .tune_report import has_wrong_results, hint, remark, report, summary

__all__ = ["joined", "tune", "tune_command"]

INSIDE = (
    "tune starts jobs and cannot run inside one: measure with xupc bench --json, then run xupc "
    "tune --from RESULT.json"
)
MEASURING = {
    "collectives": "COLLECTIVE", "threads": "-n", "nodes": "--nodes", "sizes": "-m",
    "budget": "--budget", "launches": "--launches", "json_file": "--json",
    "variants": "--variants",
}  # fmt: skip
ALLOWED = {
    "--host-only": ("threads",),
    "--drop-in": ("collectives", "threads", "nodes", "sizes", "budget", "launches"),
}
"""The options that say what to measure and go with another one."""
COLLECTIVES = "all_*", "allav_*"  # those with algorithms to choose from
PROBE = 120.0  # seconds that the job for the figures of the host may take; with a budget
HOST_SECONDS, HOST_SHARE = 30.0, 0.25  # so many, and this share of it
THIN = 2  # index in `thinned`: without -m every third size of the drop-in's methods


@click.command("tune", epilog=examples(
    "xupc tune -n 8",
    "xupc tune Bcast Allreduce -n 8 -m 8:64K --budget 2m",
    "xupc tune --from result.json --dry-run -v",
    "xupc tune --drop-in -n 4",
    "xupc tune --drop-in bcast allgather 'Neighbor*' -n 4 --budget 2m --dry-run",
))  # fmt: skip
@options.collectives()
@options.placements
@options.list_option()
@click.option(
    "-m", "--sizes", "--message-size", "sizes", callback=options.sizes, metavar="MIN:MAX",
    default="8:1M", show_default=True,
    help="Bytes of a block. Without it some sizes are left out where the budget is short.",
)  # fmt: skip
@click.option(
    "--budget", callback=options.seconds, metavar="TIME", default="10m", show_default=True,
    help="Time for the whole command, like 90 or 10m; it ends within 10% of it.",
)  # fmt: skip
@click.option(
    "--launches",
    type=click.IntRange(1, MOST_LAUNCHES),
    help=f"Start each job so many times; by default up to {LAUNCHES}, as the budget permits.",
)
@click.option(
    "--from", "results", multiple=True, metavar="RESULT.json",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Do not measure, take what xupc bench --json wrote. May be given several times.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="The table; by default the one that the library looks for.",
)  # fmt: skip
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Keep what was measured, for xupc report.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file of --json if it exists.")
@click.option(
    "--host-only", is_flag=True, help="Measure only the figures of this host, which takes seconds."
)
@click.option(
    "--drop-in", is_flag=True,
    help="Measure which calls of mpi4py's methods xupc.Comm carries faster than MPI. COLLECTIVE is "
    "then a method: Bcast, bcast, 'I*'.",
)  # fmt: skip
@click.option(
    "--variants", is_flag=True,
    help="Measure every variant of an algorithm by name, too; it takes more launches to decide.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the table, write nothing.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Print a line for each size of each collective."
)
def tune_command(
    collectives: tuple[str, ...],
    threads: tuple[int, ...] | None,
    nodes: tuple[str, ...],
    sizes: tuple[int, ...],
    budget: float,
    launches: int | None,
    results: tuple[Path, ...],
    output: Path | None,
    json_file: Path | None,
    force: bool,
    host_only: bool,
    drop_in: bool,
    variants: bool,
    dry_run: bool,
    verbose: bool,
) -> None:
    """Find the best algorithm for each size on this machine, for the library to follow.

    Measures PULL, PUSH and MULTICORE of each COLLECTIVE (all of them by default), and with
    --variants all variants of these. Writes a selection table: XUPC_TUNING, or xupc/tuning.toml in
    your config directory. It overrides the built-in choice only where the gain is statistically
    significant. What the table says of other job shapes, and your own entries and comments, stay;
    the old file is kept as FILE.old. Where nothing was decided, nothing is written.

    If a trial shows that the budget is enough, it measures figures of this host first: from which
    size threads access the memory of each other directly, and copy past the cache.

    With --drop-in it measures methods of mpi4py's communicators instead, beside mpi4py itself, and
    writes which library carries their calls.

    Exits with 1 if a result was wrong, 3 if a launch took too long.
    """
    began, load, status = common.began(), os.getloadavg()[0], 0
    given = {"--from": bool(results), "--host-only": host_only, "--drop-in": drop_in}
    file = _checked(given, output, json_file, force, dry_run)
    try:
        if results:
            result = joined(results)
        else:
            shapes = options.shapes(threads, nodes)
            if drop_in:
                limits = budget, launches, began, load
                _tune_drop_in(file, shapes, collectives, sizes, limits, verbose)
            elif host_only:
                _tune_host(file, shapes, load)
            if drop_in or host_only:
                _end(file, dry_run)
                return
            plan = _plan(_settings(collectives, sizes, variants), shapes, budget, launches, began)
            result, status = _host_and_result(file, plan, json_file, load)
        found = tune(result, file)
    except ValueError as error:
        if status:  # what went wrong has been said
            click.echo(f"Error: {error}", err=True)
            sys.exit(status)
        raise click.UsageError(str(error)) from None
    click.echo("".join(f"{line}\n" for line in report(found, result, verbose=verbose)), nl=False)
    _end(file, dry_run)
    sys.exit(EXIT_WRONG if has_wrong_results(result) else status)


def _checked(
    given: Mapping[str, bool],
    output: Path | None,
    json_file: Path | None,
    force: bool,
    dry_run: bool,
) -> TuningFile:
    """Return the table to change; UsageError if options contradict each other.

    `given` has the options that replace the usual measurement, and whether each was given.
    """
    if in_job():
        raise click.UsageError(INSIDE)
    path = _table_path(output)
    if option := next((name for name, there in given.items() if there), ""):
        _refuse_measuring(option)
    check_outputs([("--json", json_file)], replace=force)
    return _opened(path, dry_run)


def _settings(collectives: tuple[str, ...], sizes: tuple[int, ...], variants: bool) -> Settings:
    algorithms = (*ALGORITHMS, VARIANTS) if variants else ALGORITHMS
    chosen = _chosen(collectives or COLLECTIVES)
    return Settings(collectives=chosen, sizes=sizes, algorithms=algorithms)


def _tune_drop_in(
    file: TuningFile,
    shapes: tuple[Shape, ...],
    methods: Sequence[str],
    sizes: tuple[int, ...],
    limits: tuple[float, int | None, float, float],
    verbose: bool,
) -> None:
    """Measure methods of mpi4py, and put the rules into the table; print what was decided."""
    check_crowd(_most_threads(shapes), ())
    few = sizes if _is_given("sizes") else thinned(sizes)[THIN]
    plan = DropInPlan(shapes, methods_named(methods), few, *limits)
    with _in_force(file), Progress("xupc tune") as progress:
        lines = add_carriers(file, plan, progress.show, verbose=verbose)
    for line in lines:
        click.echo(line)


def _tune_host(file: TuningFile, shapes: Sequence[Shape], load: float) -> None:
    """Measure the figures of the host alone, put them into the table, and print them."""
    with _in_force(file):
        click.echo(add_host(file, _most_threads(shapes), PROBE, load, needed=True))


def _host_and_result(
    file: TuningFile, plan: Plan, json_file: Path | None, load: float
) -> tuple[Result, int]:
    """Measure the algorithms, and before them the figures of the host, which they use.

    Nothing of the host is measured, nor printed, if the budget is too short for the algorithms.
    """
    said: list[str] = []

    def host(limit: float) -> None:
        said.append(add_host(file, _most_threads(plan.shapes), limit, load))
        in_force.write_text(file.text, encoding="utf-8")

    with _in_force(file) as in_force:
        plan = replace(plan, prepare=Preparation(host, HOST_SHARE, HOST_SECONDS))
        found = _measure(plan, json_file)
    for text in said:
        click.echo(text)
    return found


def _most_threads(shapes: Sequence[Shape]) -> int:
    return max(shape.threads for shape in shapes)


def _plan(
    settings: Settings, shapes: tuple[Shape, ...], budget: float, launches: int | None, began: float
) -> Plan:
    """Return the launches; UsageError if there are too many threads for this machine."""
    check_crowd(_most_threads(shapes), ())
    most = launches or LAUNCHES
    return Plan(
        shapes, settings, most, budget, least=min(LEAST_LAUNCHES, most),
        enough=launches or ENOUGH, thin=not _is_given("sizes"), began=began,
    )  # fmt: skip


def _opened(path: Path, dry_run: bool) -> TuningFile:
    if not dry_run:
        check_writable(path, make=True)
    try:
        return TuningFile(path)
    except ValueError as error:
        raise EnvironmentProblem(str(error)) from None


def _refuse_measuring(option: str) -> None:
    """Raise UsageError if an option on the command line contradicts `option`."""
    contradicting = {
        **MEASURING, "results": "--from", "host_only": "--host-only", "drop_in": "--drop-in",
    }  # fmt: skip
    for name in ALLOWED.get(option, ()):
        del contradicting[name]
    for name, other in contradicting.items():
        if other != option and _is_given(name):
            raise click.UsageError(f"{option}: not with {other}, which says what to measure")


def _is_given(name: str) -> bool:
    """Return whether an option is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


@contextlib.contextmanager
def _in_force(file: TuningFile) -> Iterator[Path]:
    """Have jobs use a table that is not saved yet; yield the file in which they find it."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tuning.toml")
        path.write_text(file.text, encoding="utf-8")
        os.environ[VARIABLE] = str(path)
        try:
            yield path
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def _end(file: TuningFile, dry_run: bool) -> None:
    """Save a table, or print it; one without a decision is not written."""
    if not file.changed:
        click.echo(f"nothing was decided: {file.path} is not written")
    elif dry_run:
        click.echo(f"\n{file.text}", nl=False)
    else:
        _save(file)


def _table_path(output: Path | None) -> Path:
    """Return the file of the table; UsageError if there is no place for it."""
    path = output or user_path()
    if path is None:
        raise click.UsageError("there is no home directory to put the table in: use -o FILE")
    return path


def _chosen(words: Sequence[str]) -> tuple[str, ...]:
    """Return collectives by name; ValueError if one that was asked for has no variants."""
    found = named(words)
    known = set(collectives())
    without = [name for name in found if registered_name(name) not in known]
    if len(without) == len(found) or not set(without).isdisjoint(words):
        raise ValueError(f"there is nothing to choose for {', '.join(without)}")
    return tuple(name for name in found if name not in without)


def _measure(plan: Plan, json_file: Path | None) -> tuple[Result, int]:
    """Launch the jobs; an interrupted measurement decides nothing."""
    with Progress("xupc tune") as progress:
        try:
            result, status = driver.measure(
                plan,
                ["xupc", *sys.argv[1:]],
                find_launcher,
                save=json_file,
                progress=progress.show,
            )
        except TooShort as error:
            raise BudgetProblem(str(error)) from None
        except (LaunchError, OSError) as error:
            raise EnvironmentProblem(str(error)) from None
    for note in result.notes:
        click.echo(f"xupc tune: {note}", err=True)
    if status > 128:
        sys.exit(status)
    return result, status


def _save(file: TuningFile) -> None:
    """Write a table and say so."""
    try:
        old = file.save()
    except OSError as error:
        raise EnvironmentProblem(f"{file.path}: {error.strerror}") from None
    kept = f"; what was there is {old}" if old is not None else ""
    click.echo(f"wrote {file.path}{kept}")
    if words := hint(file.path):
        click.echo(words)


def joined(paths: Sequence[Path]) -> Result:
    """Return results of `xupc bench` as one; ValueError names a file that is none."""
    first, *rest = [Result.load(path) for path in paths]
    for other in rest:
        first.jobs += other.jobs
        first.notes += other.notes
        first.complete &= other.complete
    return first


def tune(result: Result, file: TuningFile) -> list[Tuned[Rule]]:
    """Put the rules that follow from a result into a table; it is not saved yet.

    Raises
    ------
    ValueError
        There is nothing in the result to choose by.
    """
    found = tuned(result, file.rest, file.rules)
    if not any(each.changes for each in found):
        raise ValueError("nothing was measured of any collective that has algorithms")
    for each in found:
        if list(each.rules) == list(file.rules(each.place)):
            continue
        jobs = [job for job in result.jobs if place_of(job) == each.place]
        file.put(each.place, each.rules, [*_remarks(result, jobs), summary(each)])
    return found


def _remarks(result: Result, jobs: Sequence[Job]) -> Iterator[str]:
    """Yield remarks: when, where and how the rules were made."""
    for job in jobs:
        hosts = ", ".join(dict.fromkeys(job.hosts)) or "a machine without a name"
        what = ", ".join(str(job.about[k]) for k in ("mpi", "processor") if job.about.get(k))
        made = f"{what or 'MPI not known'}; {len(job.launches)} launches"
        yield remark(f"{result.created}, {hosts}: {made}")
    yield remark(" ".join(result.command))
