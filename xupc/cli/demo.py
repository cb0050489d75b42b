"""`xupc demo`: what xupc does on this machine, in four steps and on one page."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import click

from xupc.bench import driver
from xupc.bench.budget import LAUNCHES, TooShort
from xupc.bench.collect import wrong_results
from xupc.bench.columns import aligned
from xupc.bench.launch_plan import Plan
from xupc.bench.results import AGAIN, OURS, Result
from xupc.bench.settings import Settings, Shape, named

from ..report import demo_page, page
from ..report.findings import Findings
from . import options
from .bench_jobs import find_launcher
from .common import BudgetProblem, EnvironmentProblem, check_writable, examples
from .example_jobs import TIME_LIMIT, Ran, run_example
from .jobs import copies, die_of_interrupt
from .launcher import EXIT_USAGE, EXIT_WRONG
from .mpi import LaunchError
from .progress import Progress

__all__ = ["Folder", "demo_command"]

CLUSTER = Shape(4, "2x2")
PAIR = Shape(2)
CALLS = "Bcast", "Allgather", "Allreduce", "Alltoall"
SIZES = 8, 64 << 10
WIDTH, HEIGHT = 640, 400  # of the picture
BUDGET = 40.0  # seconds for the second step
OTHERS = 15.0  # seconds of the other steps
PAGE, RESULT = "index.html", "result.json"
FILES = PAGE, RESULT, "before.png", "after.png"
MARK = ".xupc-demo"  # in a folder that a demo has made
QUIET = {"PYTHONWARNINGS": "ignore::UserWarning"}  # of the Python engine, once per launch
_ERROR = re.compile(r"^(?:xupc\.errors\.)?(CollectiveMismatchError: .*)$", re.MULTILINE)


class _Ended(BaseException):
    """
    A signal has ended a step.

    No `Exception`: it is raised wherever the signal comes, and much code (importlib's look-up of a
    package, for one) suppresses all of those.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class _Failed(click.ClickException):
    """A step has not shown what it should."""

    def __init__(self, message: str, code: int = EXIT_WRONG) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance


# ---- the folder --------------------------------------------------------------------------------


class Folder:
    """Hold the folder of the page. A demo replaces files of a former demo, but no others.

    Parameters
    ----------
    path : Path
        It need not exist; its parent must.
    force : bool
        Replace files that no demo has made.
    """

    def __init__(self, path: Path, force: bool) -> None:
        self.path = path
        if path.exists() and not path.is_dir():
            raise click.UsageError(f"-o {path}: expected a folder, got a file; name another one")
        there = [name for name in FILES if os.path.lexists(path / name)]
        if there and not force and not (path / MARK).exists():
            raise click.UsageError(
                f"-o {path}: expected no {' and no '.join(there)} in it but those of a former "
                "demo; name another folder, or replace them with --force"
            )
        check_writable(path / PAGE, make=True)

    def write(self, files: dict[str, bytes]) -> Path:
        """Write files, and return the page's path; a file in the folder is never half written."""
        from ..bench.files import write_whole

        try:
            self.path.mkdir(exist_ok=True)
            for name, data in {MARK: b"", **files}.items():
                write_whole(self.path / name, data)
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: not written: {error.strerror}") from None
        return self.path / PAGE


# ---- the command -------------------------------------------------------------------------------


@click.command("demo", epilog=examples("xupc demo", "xupc demo -o there --budget 20"))
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default="xupc-report",
    show_default=True, metavar="FOLDER", help="The folder for the page, its pictures and figures.",
)  # fmt: skip
@click.option(
    "--budget", callback=options.seconds, default=f"{BUDGET:g}", show_default=True, metavar="TIME",
    help="Time for the measurements beside mpi4py; the other steps take some seconds each.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that no demo has made.")
@click.option(
    "--open/--no-open", "opens", default=True,
    help="Show the page in a browser, where there is a screen and a terminal.",
)  # fmt: skip
def demo_command(folder: Path, budget: float, force: bool, opens: bool) -> None:
    """Show in four steps what xupc does on this machine.

    A picture is filtered by three algorithms on 2 emulated nodes and compared with numpy's result;
    four calls are measured beside mpi4py's; a mistake ends in the error that explains it; a page
    has all of it. The path of the page is the last line.

    Exits with 1 if a result was wrong, 3 if a launch took too long, 4 if there is no MPI.
    """
    if number := copies():
        raise click.UsageError(
            f"xupc demo starts threads itself: expected one copy of it, got {number}; use "
            "`xupc demo` without the launcher"
        )
    target = Folder(folder, force)
    try:
        page.require()
        with _heeding(), tempfile.TemporaryDirectory(prefix="xupc-demo-") as at:
            _show(Path(at), target, budget, opens)
    except (LaunchError, page.MissingError) as error:
        raise EnvironmentProblem(str(error)) from None
    except (_Ended, KeyboardInterrupt) as end:
        number = end.number if isinstance(end, _Ended) else signal.SIGINT
        name = signal.Signals(number).name
        click.echo(f"xupc demo: ended by {name}; nothing was written", err=True)
        if number == signal.SIGINT:
            die_of_interrupt()
        sys.exit(128 + number)


def _show(at: Path, target: Folder, budget: float, opens: bool) -> None:
    """Run all steps, and write what they found."""
    click.echo(f"xupc demo: four steps in about {budget + OTHERS:.0f} s; Ctrl-C ends them.")
    filtered = _picture(at)
    result = _measured(budget)
    mismatch = _mismatch()
    _title(4, "One page", "all of this with a chart, the node tree, pictures and a plan")
    before, after = ((at / name).read_bytes() for name in ("before.png", "after.png"))
    block = -(-HEIGHT // CLUSTER.threads) * WIDTH
    story = demo_page.Story(result, CLUSTER, block, before, after, filtered, mismatch)
    text = demo_page.render(story).encode()
    result.compact().save(at / RESULT)
    figures = (at / RESULT).read_bytes()
    path = target.write({PAGE: text, RESULT: figures, "before.png": before, "after.png": after})
    if opens and _has_screen():
        webbrowser.open(path.resolve().as_uri())
        _line("It opens in a browser.")
    click.echo(str(path))


def _title(number: int, title: str, shows: str) -> None:
    """Print the head of a step: what it does and what it shows."""
    click.echo(f"\n{number}. {title}: {shows}")


def _line(*lines: str) -> None:
    for line in lines:
        click.echo(f"   {line}")


def _has_screen() -> bool:
    """Return whether a page opened in a browser would be seen."""
    screen = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return screen and sys.stdout.isatty()


@contextmanager
def _heeding() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the demo between jobs too, so that it leaves no file."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise _Ended(number)

    before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- the steps ---------------------------------------------------------------------------------


def _picture(at: Path) -> list[str]:
    """Filter the picture; return what the program says of each algorithm."""
    _title(1, "Edges in a picture", "a flag changes how data moves, but not a bit of the result")
    _line(f"xupc run -n {CLUSTER.threads} --nodes {CLUSTER.nodes} examples/sobel.py")
    ran = _ran("sobel.py", CLUSTER, [str(WIDTH), str(at)])
    lines = ran.stdout.splitlines()
    _line(*lines)
    if ran.outcome.status:
        raise _failure("the picture's edges", ran)
    return lines


def _measured(budget: float) -> Result:
    """Measure four calls beside mpi4py's. A launch that the budget cuts is only a note."""
    calls = " ".join(CALLS)
    _title(2, "Four calls beside mpi4py's", "what they cost here, in many short launches")
    _line(f"xupc bench {calls} -n {PAIR.threads} -m 8,64K --flags auto --peer --budget {budget:g}")
    result = _launched(budget)
    wrong = list(wrong_results(result, (OURS, AGAIN)))
    if result.is_empty or wrong:
        raise _Failed("; ".join([*wrong, *result.notes]) or "nothing was measured")
    findings = Findings(result.jobs[0])
    head = ["call", "MPI", "block", "xupc", "mpi4py", "ratio (95%)", "verdict"]
    _line(*aligned([head, *(row.words for row in demo_page.rows_of(findings))]))
    _line(f"{demo_page.headline(findings)}.", *demo_page.doubts(result))
    return result


def _launched(budget: float) -> Result:
    """Launch the measurement; _Ended if a signal ended it."""
    settings = Settings(named(CALLS), sizes=SIZES, algorithms=("auto",), peer=True, limited=True)
    began = time.monotonic()
    plan = Plan((PAIR,), settings, LAUNCHES, budget, least=1, enough=LAUNCHES, began=began)
    command = ["xupc", *sys.argv[1:]]
    with Progress("xupc demo") as progress:
        try:
            start = partial(find_launcher, QUIET)
            result, status = driver.measure(plan, command, start, progress=progress.show)
        except TooShort as error:
            raise BudgetProblem(str(error)) from None
    if status > 128:
        raise _Ended(status - 128)
    return result


def _mismatch() -> str:
    """Run a program with a mistake; return the error that explains it."""
    _title(3, "A mistake, on purpose", "the job does not hang; the next line is the expected error")
    ran = _ran("unequal_arrays.py", CLUSTER, [])
    found = _ERROR.search(ran.stderr)
    if found is None or ran.outcome.status != EXIT_WRONG:
        raise _failure("the error about calls that differ", ran)
    _line(found[1], "Expected: thread 1 of examples/unequal_arrays.py has fewer elements.")
    return found[1]


def _ran(name: str, shape: Shape, words: Sequence[str]) -> Ran:
    """Run an example; _Ended if a signal ended it."""
    ran = run_example(name, shape.threads, shape.nodes or "", words)
    if ran.outcome.interrupted:
        raise _Ended(ran.outcome.interrupted)
    return ran


def _failure(wanted: str, ran: Ran) -> _Failed:
    """Return an error about a step, with the last lines that its program has printed."""
    said = "\n".join(ran.stderr.splitlines()[-15:])
    code = ran.outcome.status
    return _Failed(
        f"expected {wanted}, got: {ran.outcome.explain(TIME_LIMIT) or 'nothing'}\n{said}",
        code if code > EXIT_USAGE else EXIT_WRONG,
    )
