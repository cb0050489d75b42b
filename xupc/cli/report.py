"""`xupc report`: a page and Markdown from results; what got slower from two of them.

What needs numpy is imported when the command runs: the others must work where that is broken.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import blamed_on, check_outputs, examples
from .launcher import EXIT_ENVIRONMENT

if TYPE_CHECKING:
    from ..bench.results import Result
    from ..report.drawn_plan import Choice
    from ..report.two_results import Regressions

__all__ = ["report_command"]

EXIT_REGRESSION, EXIT_UNRESOLVED = 1, 5


def _finite(_context: click.Context, _option: click.Parameter, value: float) -> float:
    """Refuse nan, which no limit does: every comparison with it is false."""
    if math.isnan(value):
        raise click.BadParameter("expected a number, got nan")
    return value


@click.command("report", epilog=examples(
    "xupc report result.json",
    "xupc report before.json after.json --markdown - --tolerance 0.1",
    "xupc report result.json --plan Allgather/64K/multicore",
))  # fmt: skip
@click.argument(
    "results", nargs=-1, required=True, metavar="RESULT.json [OTHER.json...]",
    type=click.Path(path_type=Path, dir_okay=False),
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="OUT.html",
    help="The page; by default beside the first result, unless --markdown or --compact is given.",
)  # fmt: skip
@click.option(
    "--markdown", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="OUT.md", help="The same as Markdown; - prints it.",
)  # fmt: skip
@click.option(
    "--compact", type=click.Path(path_type=Path, dir_okay=False), metavar="OUT.json",
    help="The result itself, with a summary of each launch in the place of every repetition.",
)  # fmt: skip
@click.option(
    "--tolerance", type=click.FloatRange(0, 10), default=0.05, show_default=True,
    callback=_finite, help="How much slower a call may get, at most 10.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option(
    "--plan", "choice", metavar="COLLECTIVE/SIZE[/ALGORITHM]",
    help="The call whose plan is drawn, like all_gather/64K; by default the largest by MULTICORE.",
)  # fmt: skip
def report_command(
    results: Sequence[Path],
    output: Path | None,
    markdown: Path | None,
    compact: Path | None,
    tolerance: float,
    force: bool,
    choice: str | None,
) -> None:
    """Show what results of `xupc bench` say.

    One page, which needs no network, or Markdown. Every result after the first is compared with
    the first.

    A file that exists is replaced only with --force.

    Exits with 1 if anything got slower beyond the tolerance, a result was wrong, or nothing was
    measured; with 5 if nothing got slower, but no call of a result could be compared, for instance
    because there are too few launches.
    """
    from ..report import markdown as as_markdown
    from ..report import page
    from ..report.model import Section, job_content
    from ..report.two_results import regressions

    if compact is not None and len(results) > 1:
        raise click.UsageError(f"--compact: expected one result, got {len(results)}")
    if output is None and markdown is None and compact is None:
        output = _page_of(results[0])
    outputs = ("-o", output), ("--markdown", markdown), ("--compact", compact)
    check_outputs(outputs, replace=force)
    loaded = [_load(path) for path in results]
    wanted = _parsed(choice, loaded)
    names = _names(results)
    sections, compared = [], []
    for name, result in zip(names, loaded, strict=True):
        with blamed_on(name):
            jobs = [job_content(result, job, wanted) for job in result.jobs]
            sections.append(Section(name, result, jobs))
            if result is not loaded[0]:
                found = regressions(loaded[0], result, (names[0], name), tolerance)
                compared.append(found)
            as_markdown.render(name, sections[-1:], compared[-1:])
    title = _title(loaded)
    if output is not None:
        try:
            with blamed_on(", ".join(names)):
                text = page.render(title, sections, compared)
            _write(output, text)
        except page.MissingError as e:
            click.echo(f"xupc report: {e}", err=True)
            sys.exit(EXIT_ENVIRONMENT)
    if markdown is not None:
        _write(markdown, as_markdown.render(title, sections, compared))
    if compact is not None:
        _save(compact, loaded[0].compact())
    for found in compared:
        for said in found.summary:
            click.echo(said, err=True)
    sys.exit(_status(_print_faults(names, loaded), compared))


def _status(faulty: bool, compared: Sequence[Regressions]) -> int:
    """Return the exit status."""
    if faulty or any(found.found for found in compared):
        return EXIT_REGRESSION
    return 0 if all(found.comparable for found in compared) else EXIT_UNRESOLVED


def _page_of(result: Path) -> Path:
    """Return the path of a result's page, beside it."""
    return result.parent / (result.name.split(".json")[0] + ".html")


def _print_faults(names: Sequence[str], results: Sequence[Result]) -> bool:
    """Print wrong and empty results; return True if there is one."""
    from ..bench.collect import wrong_results
    from ..bench.results import AGAIN, OURS

    faults = [
        (name, words)
        for name, result in zip(names, results, strict=True)
        for words in wrong_results(result, (OURS, AGAIN))
    ]
    faults += [
        (name, "nothing was measured")
        for name, result in zip(names, results, strict=True)
        if result.is_empty
    ]
    for name, words in faults:
        click.echo(f"xupc report: {name}: {words}", err=True)
    return bool(faults)


def _load(path: Path) -> Result:
    from ..bench.results import Result

    try:
        return Result.load(path)
    except ValueError as e:
        raise click.UsageError(str(e)) from None


def _parsed(choice: str | None, results: Sequence[Result]) -> Choice | None:
    """Return the chosen call, which a result must have."""
    from ..report.drawn_plan import Choice, has_choice

    if choice is None:
        return None
    try:
        found = Choice.parse(choice)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="--plan") from None
    if not any(has_choice(job, found) for result in results for job in result.jobs):
        raise click.BadParameter(f"no result has measured {choice}", param_hint="--plan")
    return found


def _names(paths: Sequence[Path]) -> list[str]:
    """Return what results are called: their files' names, or whole paths if some are the same."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _title(results: Sequence[Result]) -> str:
    """Return what was measured, and on what."""
    jobs = [job for result in results for job in result.jobs]
    calls = list(dict.fromkeys(cell.collective for job in jobs for cell in job.cells))
    shapes = list(dict.fromkeys(job.shape for job in jobs))
    what = ", ".join(calls[:3]) + (f" and {len(calls) - 3} more" if len(calls) > 3 else "")
    where = ", ".join(shapes[:3]) + (f" and {len(shapes) - 3} more" if len(shapes) > 3 else "")
    return f"{what or 'Nothing'}: {where}" if where else "An empty result"


def _write(path: Path, text: str) -> None:
    """Write a text to a file, in one go, or to standard output."""
    from ..bench.files import write_whole

    if str(path) == "-":
        click.echo(text)
        return
    with _written(path):
        write_whole(path, text.encode())


def _save(path: Path, result: Result) -> None:
    with _written(path):
        result.save(path)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    """Report that a file was written; UsageError if it cannot be."""
    try:
        yield
    except OSError as e:
        raise click.UsageError(f"{path}: not written: {e.strerror}") from None
    click.echo(f"xupc report: wrote {path}", err=True)
