"""`xupc tune`: measures every algorithm and writes the selection table that follows.

What is decided is `xupc.bench.tuner`'s business, how the file looks `xupc.bench.tuning_file`'s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from xupc.algorithms.registry import collectives
from xupc.bench import driver
from xupc.bench.results import AGAIN, OURS, Job, Result
from xupc.bench.settings import Settings, named
from xupc.bench.tuner import Tuned, place_of, tuned
from xupc.bench.tuning_file import TuningFile, label_of
from xupc.tuning.selection import registered_name
from xupc.tuning.selection_file import VARIABLE, user_path

from . import options
from .common import EnvironmentProblem, check_crowd, check_writable, in_job
from .launcher import EXIT_WRONG
from .mpi import LaunchError
from .progress import Progress

__all__ = ["has_wrong_results", "hint", "joined", "report", "tune", "tune_command"]

MEASURING = {
    "collectives": "COLLECTIVE", "threads": "-n", "nodes": "--nodes", "sizes": "-m",
    "budget": "--budget", "launches": "--launches", "json_file": "--json",
}  # fmt: skip
COLLECTIVES = "all_*", "allav_*"  # those with algorithms to choose from


@click.command("tune")
@click.argument("collectives", nargs=-1, metavar="[COLLECTIVE]...")
@options.placements
@click.option(
    "-m", "--sizes", callback=options.sizes, metavar="MIN:MAX", default="8:1M", show_default=True,
    help="Bytes of a block.",
)  # fmt: skip
@click.option(
    "--budget", callback=options.seconds, metavar="TIME", default="10m", show_default=True,
    help="For all of it.",
)  # fmt: skip
@click.option(
    "--launches", type=click.IntRange(min=1), default=5, show_default=True, help="Of each job."
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
@click.option("--dry-run", is_flag=True, help="Show the table, write nothing.")
def tune_command(
    collectives: tuple[str, ...],
    threads: tuple[int, ...] | None,
    nodes: tuple[str, ...],
    sizes: tuple[int, ...],
    budget: float,
    launches: int,
    results: tuple[Path, ...],
    output: Path | None,
    json_file: Path | None,
    dry_run: bool,
) -> None:
    """Find the best algorithm for each size on this machine and tell the library.

    Measures PULL, PUSH and MULTICORE of the COLLECTIVES (all of them by default), and writes a
    selection table: XUPC_TUNING, or xupc/tuning.toml in your config directory. It departs from the
    built-in choice only where that is faster beyond doubt. What the table says of other job
    shapes, and your own entries and comments, stay; the old file is kept as FILE.old.

    Exits with 1 if a result was wrong, 3 if a launch took too long.
    """
    if in_job():
        raise click.UsageError(
            "tune starts jobs and cannot run inside one: measure with xupc bench --json, then run "
            "xupc tune --from RESULT.json"
        )
    path = output or user_path()
    if path is None:
        raise click.UsageError("there is no home directory to put the table in: use -o FILE")
    if results:
        context = click.get_current_context()
        for name, option in MEASURING.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{option} has no effect with --from: it measures nothing")
    check_writable(json_file)
    if not dry_run:
        check_writable(path, make=True)
    try:
        file = TuningFile(path)
    except ValueError as error:
        raise EnvironmentProblem(str(error)) from None
    status = 0
    try:
        if results:
            result = joined(results)
        else:
            settings = Settings(collectives=_chosen(collectives or COLLECTIVES), sizes=sizes)
            shapes = options.shapes(threads, nodes)
            check_crowd(max(shape.threads for shape in shapes), ())
            plan = driver.Plan(shapes, settings, launches, budget)
            if file.new and path == user_path():  # jobs would look for what is yet to be
                os.environ.pop(VARIABLE, None)
            result, status = _measure(plan, json_file)
        found = tune(result, file)
    except ValueError as error:
        if status:  # what went wrong has been said
            click.echo(f"Error: {error}", err=True)
            sys.exit(status)
        raise click.UsageError(str(error)) from None
    for line in report(found, result):
        click.echo(line)
    if dry_run:
        click.echo(f"\n{file.text}", nl=False)
    else:
        _save(file)
    sys.exit(EXIT_WRONG if has_wrong_results(result) else status)


def _chosen(words: Sequence[str]) -> tuple[str, ...]:
    """Collectives by name; ValueError if there is nothing to choose of one that was asked for."""
    found = named(words)
    known = set(collectives())
    without = [name for name in found if registered_name(name) not in known]
    if len(without) == len(found) or not set(without).isdisjoint(words):
        raise ValueError(f"there is nothing to choose for {', '.join(without)}")
    return tuple(name for name in found if name not in without)


def _measure(plan: driver.Plan, json_file: Path | None) -> tuple[Result, int]:
    """Launch the jobs; an interrupted measurement decides nothing."""
    with Progress("xupc tune") as progress:
        try:
            result, status = driver.measure(
                plan, ["xupc", *sys.argv[1:]], save=json_file, progress=progress.show
            )
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
    """Results of `xupc bench` as one; ValueError names a file that is none."""
    first, *rest = [Result.load(path) for path in paths]
    for other in rest:
        first.jobs += other.jobs
        first.notes += other.notes
        first.complete &= other.complete
    return first


def tune(result: Result, file: TuningFile) -> list[Tuned]:
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
        jobs = [job for job in result.jobs if place_of(job) == each.place]
        file.put(each.place, each.rules, [*_remarks(result, jobs), summary(each)])
    return found


def _remarks(result: Result, jobs: Sequence[Job]) -> Iterator[str]:
    """When, where and how the rules were made."""
    for job in jobs:
        hosts = ", ".join(dict.fromkeys(job.hosts)) or "a machine without a name"
        what = ", ".join(str(job.about[k]) for k in ("mpi", "processor") if job.about.get(k))
        made = f"{what or 'MPI not known'}; {len(job.launches)} launches"
        yield _line(f"{result.created}, {hosts}: {made}")
    yield _line(" ".join(result.command))


def _line(text: str) -> str:
    """On one line, without anything that a table cannot hold."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def report(found: Sequence[Tuned], result: Result) -> Iterator[str]:
    """What was found, line by line."""
    for each in found:
        yield label_of(each.place)
        for change in each.changed:
            yield (
                f"  {change.collective:24} {change.nbytes:>10}  "
                f"{change.before} -> {change.after}".ljust(64)
                + f"  {change.gain}"
            )
        for change in each.changes:
            if change.why_not:
                yield f"  {change.collective:24} {change.nbytes:>10}  as before: {change.why_not}"
        yield f"  {summary(each)}"
    if not result.complete:
        yield "what was measured is not complete"
    if has_wrong_results(result):
        yield "WRONG RESULTS of some algorithms: these are not used; see xupc report"


def summary(found: Tuned) -> str:
    """Return a text about the gain at a place."""
    changed, count = len(found.changed), len(found.changes)
    if not changed:
        return f"{count} sizes measured: none is faster with another algorithm beyond doubt"
    return (
        f"{changed} of {count} sizes changed: {found.gain_there:.2f} times as fast there, "
        f"{found.gain_over_all:.2f} over all"
    )


def has_wrong_results(result: Result) -> bool:
    """Return True if a measured call of xupc gave a wrong result."""
    return any(
        any(candidate.wrong)
        for job in result.jobs
        for cell in job.cells
        for candidate in cell.candidates
        if candidate.kind in (OURS, AGAIN)
    )


def hint(path: Path) -> str:
    """Return what the user must do so that the library finds a table; empty if it does."""
    usual = user_path()
    if usual is not None and usual.resolve() == path.resolve():
        return ""
    return f"xupc uses it with XUPC_TUNING={path.resolve()}"
