"""`xupc bench`: measure collectives, alone or beside mpi4py's own.

Started by itself it launches the jobs. Started by mpiexec or srun, every thread runs this and
they measure in that job; thread 0 prints.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import click

from xupc.bench import driver, suites, text
from xupc.bench.cases import OPS
from xupc.bench.results import OURS, PEER, Result
from xupc.bench.settings import (
    ALGORITHMS,
    SYNCS,
    Settings,
    cases,
    named,
    size_of,
    sizes_between,
)

from . import host
from .launcher import EXIT_WRONG
from .mpi import LaunchError

__all__ = ["bench_command"]

PER_CELL = 0.6  # seconds for a cell of a launch where no budget was given
LEAST, MOST = 10.0, 600.0  # seconds for all of it then
LAST_WORD = 5.0  # seconds that other threads of a job leave to thread 0 at an end by a signal
_BARS_EVERY = 10.0  # seconds between two lines of progress in a log
DEFAULT = (
    "all_broadcast", "all_scatter", "all_gather", "all_gather_all", "all_exchange",
    "all_reduce_mpi_all", "barrier",
)  # fmt: skip


# ---- values of options -------------------------------------------------------------------------


def _sizes(_context: Any, _option: Any, value: str | None) -> tuple[int, ...] | None:
    """``MIN:MAX`` or ``MAX``, powers of two; or a list with commas."""
    if value is None:
        return None
    try:
        if "," in value:
            return tuple(dict.fromkeys(size_of(word) for word in value.split(",")))
        low, _, high = value.rpartition(":")
        return sizes_between(size_of(low) if low else 1, size_of(high))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _numbers(_context: Any, _option: Any, value: str | None) -> tuple[int, ...] | None:
    """Like ``2,4,8``."""
    if value is None:
        return None
    words = value.split(",")
    if not all(word.isdecimal() and int(word) for word in words):
        raise click.BadParameter(f"{value!r}: expected numbers of threads like 2,4,8")
    return tuple(dict.fromkeys(int(word) for word in words))


def _seconds(_context: Any, _option: Any, value: str | None) -> float | None:
    """Like ``90``, ``10m`` or ``1h30m``."""
    if value is None:
        return None
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", value.strip())
    hours, minutes, seconds = found.groups() if found else (None, None, None)
    total = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds or 0)
    if not total:
        raise click.BadParameter(f"{value!r}: expected a time like 90, 10m or 1h30m")
    return total


def _chosen(names: Sequence[str], *, upper: bool = False) -> Callable[..., Any]:
    """A list with commas of some of these names."""

    def check(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        given = [word.strip() for word in value.split(",")]
        found = [next((n for n in names if n.lower() == w.lower()), "") for w in given]
        if "" in found:
            wrong = given[found.index("")]
            raise click.BadParameter(f"{wrong!r}: expected some of {', '.join(names)}")
        return tuple(dict.fromkeys(found))

    return check


def _syncs(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
    """Like ``allsync,mysync`` or ``nosync/allsync``: before and after."""
    if value is None:
        return None
    words = value.lower().split(",")
    for word in words:
        if not all(part in SYNCS for part in word.split("/")) or word.count("/") > 1:
            raise click.BadParameter(
                f"{word!r}: expected {', '.join(SYNCS)} or two of them like nosync/allsync"
            )
    return tuple(dict.fromkeys(words))


def _dtypes(_context: Any, _option: Any, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    import numpy as np

    found = []
    for word in value.split(","):
        try:
            dtype = np.dtype(word.strip())
        except TypeError:
            raise click.BadParameter(f"{word!r} is no numpy type") from None
        if dtype.kind not in "biufc":
            raise click.BadParameter(f"{word!r}: expected a type of numbers")
        found.append(dtype.name)
    return tuple(dict.fromkeys(found))


def _root(_context: Any, _option: Any, value: str) -> str:
    if value in ("last", "rotate") or value.isdecimal():
        return value
    raise click.BadParameter(f"{value!r}: expected a thread's number, last or rotate")


# ---- the command -------------------------------------------------------------------------------


@click.command("bench")
@click.argument("collectives", nargs=-1)
@click.option(
    "-n", "threads", callback=_numbers, metavar="N[,N...]",
    help="Threads, one job each; the available cores by default.",
)  # fmt: skip
@click.option(
    "--nodes", multiple=True, metavar="SPEC",
    help="Split this machine into nodes, as `xupc run` does; several: one job each.",
)  # fmt: skip
@click.option(
    "-m", "--sizes", callback=_sizes, metavar="[MIN:]MAX",
    help="Bytes of a block: powers of two like 1:1M, or a list like 8,1K,64K.",
)  # fmt: skip
@click.option(
    "--flags", callback=_chosen(ALGORITHMS), metavar="LIST",
    help=f"Algorithms to compare: {','.join(ALGORITHMS)} (auto: the library chooses).",
)  # fmt: skip
@click.option("--sync", callback=_syncs, metavar="LIST", help="allsync, mysync, nosync/allsync...")
@click.option("--dtype", callback=_dtypes, metavar="LIST", help="Types of reductions: float64,...")
@click.option("--op", callback=_chosen(tuple(OPS)), metavar="LIST", help="Operations: ADD,MAX,...")
@click.option(
    "--root", callback=_root, default="0", show_default=True, metavar="N|last|rotate",
    help="The thread that is root.",
)  # fmt: skip
@click.option(
    "--team", type=click.Choice(["world", "node", "roots"]), default="world", show_default=True,
    help="Who makes the calls.",
)  # fmt: skip
@click.option("--peer", is_flag=True, help="mpi4py's own collective beside ours, in the same run.")
@click.option("--plan", is_flag=True, help="A replayed plan beside the full call.")
@click.option("--cold", is_flag=True, help="Empty the caches before each repetition.")
@click.option("--launches", type=click.IntRange(min=1), help="Start each job so many times.")
@click.option("--budget", callback=_seconds, metavar="TIME", help="For all of it, like 90 or 10m.")
@click.option("-i", "iterations", type=click.IntRange(min=1), help="Repetitions in each launch.")
@click.option("-x", "warmup", type=click.IntRange(min=0), help="Repetitions before, not counted.")
@click.option("-c", "check", is_flag=True, help="Check results at every visit, and say so.")
@click.option("-f", "full", is_flag=True, help="Minimum, mean, maximum and repetitions, too.")
@click.option("--suite", type=click.Choice(list(suites.SUITES)), help="A document's testbed.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write everything, every repetition included (.gz: compressed).")  # fmt: skip
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write a table.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--time-limit", callback=_seconds, metavar="TIME", help="Kill a launch that takes longer."
)
@click.option("--mpiexec-args", default="", metavar="ARGS", help="More options for mpiexec.")
def bench_command(**options: Any) -> None:
    """Measure collectives.

    COLLECTIVES are names like all_gather, or patterns like 'allav_*'; some of the usual ones by
    default. The time of a repetition is the maximum over the threads; what is printed is the
    median with a 95% interval that covers the spread between launches. Exits with 1 if a result
    was wrong, 3 if a launch took too long.
    """
    plan = _plan(options)
    for path in (options["json_file"], options["csv_file"]):
        if path is not None and not path.resolve().parent.is_dir():
            raise click.UsageError(f"there is no directory {path.resolve().parent}")
    output = Output(options)
    if _in_job():
        measure_in_job(plan, options, output)
        return
    with Progress() as progress:
        try:
            result, status = driver.measure(
                plan, ["xupc", *sys.argv[1:]], save=options["json_file"], progress=progress.show
            )
        except LaunchError as error:
            from . import EnvironmentProblem

            raise EnvironmentProblem(str(error)) from None
    output.write(result)
    for note in result.notes:
        click.echo(f"xupc bench: {note}", err=True)
    sys.exit(output.status(result) or status)


def _plan(options: dict[str, Any]) -> driver.Plan:
    """What the options ask for; UsageError if that is nothing."""
    suite = suites.SUITES[options["suite"]] if options["suite"] else None
    settings = suite.settings if suite is not None else Settings(collectives=DEFAULT)
    changes = {
        "sizes": options["sizes"],
        "algorithms": options["flags"],
        "syncs": options["sync"],
        "dtypes": options["dtype"],
        "ops": options["op"],
        "iterations": options["iterations"],
        "warmup": options["warmup"],
    }
    settings = settings.but(**{k: v for k, v in changes.items() if v is not None})
    settings = settings.but(
        root=options["root"], team=options["team"], cold=options["cold"], check=options["check"],
        plan=options["plan"], seed=options["seed"],
        peer=options["peer"] or bool(suite and suite.peer),
    )  # fmt: skip
    if options["collectives"]:
        try:
            settings = settings.but(collectives=named(options["collectives"]))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    shapes = _shapes(options, suite)
    if settings.root.isdecimal() and any(int(settings.root) >= s.threads for s in shapes):
        raise click.BadParameter(f"there is no thread {settings.root}", param_hint="--root")
    count = sum(1 for _ in cases(settings))
    if not count:
        raise click.UsageError("nothing to measure: no size is a multiple of the type's")
    launches = options["launches"] or 1
    seconds = options["budget"] or (suite.seconds if suite is not None else None)
    if seconds is None:
        seconds = min(MOST, max(LEAST, PER_CELL * count) * launches * len(shapes))
    return driver.Plan(
        shapes, settings, launches, seconds, tuple(options["mpiexec_args"].split()),
        time_limit=options["time_limit"],
    )  # fmt: skip


def _shapes(options: dict[str, Any], suite: suites.Suite | None) -> tuple[driver.Shape, ...]:
    from . import _check_nodes

    threads, nodes = options["threads"], options["nodes"]
    if suite is not None and threads is None and not nodes:
        return suite.shapes
    counts = threads or (host.available_cores(),)
    shapes = tuple(driver.Shape(n, spec) for n in counts for spec in nodes or (None,))
    for shape in shapes:
        _check_nodes(shape.nodes, shape.threads)
    return shapes


# ---- output ------------------------------------------------------------------------------------


class Output:
    """Where results go."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.json: Path | None = options["json_file"]
        self.csv: Path | None = options["csv_file"]
        self.suite: str | None = options["suite"]
        self.full: bool = options["full"]
        self.check: bool = options["check"]

    def write(self, result: Result) -> None:
        """Files, and what is printed."""
        if self.json is not None:
            result.save(self.json)
        if self.csv is not None:
            self.csv.write_text(text.table_csv(result), encoding="utf-8")
        if self.suite is not None:
            click.echo(suites.TABLES[self.suite](result), nl=False)
        else:
            click.echo(text.osu(result, full=self.full, check=self.check), nl=False)

    def status(self, result: Result) -> int:
        """1 if a result of ours was wrong; a peer's is only reported."""
        for words in driver.wrong_results(result, (PEER,)):
            click.echo(f"xupc bench: of the peer's: {words}", err=True)
        wrong = list(driver.wrong_results(result, (OURS,)))
        for words in wrong:
            click.echo(f"xupc bench: {words}", err=True)
        return EXIT_WRONG if wrong else 0


class Progress:
    """A bar with the time left on a terminal, a line now and then in a log."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._bar: Any = None
        self._done = 0.0
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            bar = click.progressbar(
                length=1000, label="xupc bench", show_eta=True, file=sys.stderr,
                item_show_func=lambda what: what or "",
            )  # fmt: skip
            self._bar = self._stack.enter_context(bar)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def show(self, done: float, what: str) -> None:
        """So much is done, and this is going on."""
        if self._bar is not None:
            self._bar.update(int(1000 * done) - int(1000 * self._done), what)
            self._done = done
            return
        now = time.monotonic()
        if now - self._said > _BARS_EVERY:
            self._said = now
            left = (now - self._began) * (1 - done) / max(done, 1e-3)
            click.echo(f"xupc bench: {what}: {done:.0%}, about {left:.0f} s left", err=True)


# ---- inside a job ------------------------------------------------------------------------------


def _in_job() -> bool:
    from . import RANK_VARIABLES

    return any(name in os.environ for name in RANK_VARIABLES)


def measure_in_job(plan: driver.Plan, options: dict[str, Any], output: Output) -> None:
    """Every thread of somebody else's job: one launch, whose thread 0 prints.

    A launcher that ends the job leaves its threads a fraction of a second: SIGTERM and SIGINT
    have what was measured written at once.
    """
    import xupc
    from xupc.bench import worker

    settings = plan.settings.but(seconds=plan.seconds)
    team = xupc.init()
    collector = driver.Collector()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    result = Result(["xupc", *sys.argv[1:]], created, complete=False)
    if options["threads"] not in (None, (team.size,)) and team.rank == 0:
        click.echo(f"xupc bench: -n is the launcher's business here: {team.size}", err=True)

    def collect() -> None:
        result.jobs = [collector.job] if collector.job is not None else []

    def finish() -> None:
        collect()
        output.write(result)

    def end(number: int, _frame: FrameType | None) -> None:
        if team.rank:  # the launcher would kill thread 0 when another one is gone
            time.sleep(LAST_WORD)
        else:
            result.notes.append(f"ended by {signal.Signals(number).name}")
            finish()
            sys.stdout.flush()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    facts = worker.provenance(team)
    progress = Progress()
    saved = time.monotonic()

    def note(line: dict[str, Any]) -> None:
        nonlocal saved
        collector.take(line)
        if output.json is not None and time.monotonic() - saved > driver.SAVE:
            collect()
            result.save(output.json)
            saved = time.monotonic()
        if "cell" in line and settings.iterations is None:
            spent = time.monotonic() - began
            progress.show(min(0.99, spent / plan.seconds), f"{team.size} threads")

    began = time.monotonic()
    if team.rank == 0:
        for line in facts:
            note(line)
    worker.Worker(team, settings, note).measure()
    status = 0
    if team.rank == 0:
        result.complete = True
        finish()
        status = output.status(result)
    xupc.finalize()
    sys.exit(status)
