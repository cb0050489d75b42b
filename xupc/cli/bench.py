"""`xupc bench`: measure collectives, alone or beside mpi4py's own.

Started by itself it launches the jobs. Started by mpiexec or srun, every thread runs this and
they measure in that job; thread 0 prints.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from xupc.bench import driver, osu_text, suites
from xupc.bench.budget import ENOUGH, LAUNCHES, MOST_LAUNCHES, TooShort
from xupc.bench.collect import Collector, wrong_results
from xupc.bench.files import write_whole
from xupc.bench.launch_plan import Plan
from xupc.bench.methods import DROP_IN, USUAL, XUPC, chosen
from xupc.bench.oracle import OPS
from xupc.bench.results import AGAIN, OURS, PEER, Job, Result
from xupc.bench.settings import ALGORITHMS, VARIANTS, Settings, Shape, cases

from . import common, options
from .bench_jobs import find_launcher
from .common import BudgetProblem, EnvironmentProblem, check_crowd, check_outputs, examples, in_job
from .launcher import EXIT_WRONG
from .mpi import LaunchError
from .progress import Progress

__all__ = ["bench_command", "check_arguments"]

PER_CELL = 0.25  # seconds for a cell of a launch where no budget was given
LEAST, MOST = 2.0, 250.0  # seconds of a launch then
LAST_WORD = 5  # seconds that other threads of a job leave to thread 0 at an end by a signal


# ---- the command -------------------------------------------------------------------------------


@click.command("bench", epilog=examples(
    "xupc bench all_gather Allreduce -n 8 -m 8:1M --peer",
    "xupc bench Bcast Allreduce --api mpi4py --peer -n 2",
    "xupc bench 'allav_*' -n 2,8 --budget 10m --json here.json.gz",
    "srun --mpi=pmix xupc bench all_broadcast --peer --budget 20m --json result.json",
))  # fmt: skip
@options.collectives()
@options.placements
@options.list_option()
@click.option(
    "-m", "--sizes", "--message-size", "sizes", callback=options.sizes, metavar="[MIN:]MAX",
    help="Bytes of a block: powers of two like 1:1M, or a list like 8,1K,64KiB.",
)  # fmt: skip
@click.option(
    "--flags", callback=options.algorithms, metavar="LIST",
    help=f"Algorithms to compare: {','.join(ALGORITHMS)} (auto: the library chooses), variants "
    f"like multicore:ring (see xupc algorithms), and {VARIANTS}: all others of these.",
)  # fmt: skip
@click.option(
    "--sync", callback=options.syncs, metavar="LIST",
    help="Synchronisation modes to compare: allsync, mysync, nosync/allsync...",
)  # fmt: skip
@click.option(
    "-T", "--type", "--dtype", "dtype", callback=options.dtypes, metavar="LIST",
    help="Types of the numbers to reduce, like float64,int32 (or OSU's mpi_float).",
)  # fmt: skip
@click.option(
    "--op", callback=options.chosen(tuple(OPS)), metavar="LIST",
    help="Operations of reductions to compare, like ADD,MAX.",
)  # fmt: skip
@click.option(
    "-k", "--root", "--root-rank", "root", callback=options.root, default="0", show_default=True,
    metavar="N|last|rotate", help="The thread that is root; rotate: each thread in turn.",
)  # fmt: skip
@click.option(
    "--team", type=click.Choice(["world", "node", "roots"]), default="world", show_default=True,
    help="The threads that make the calls: all, those of each node, or the node roots.",
)  # fmt: skip
@click.option(
    "--peer", is_flag=True, help="Measure mpi4py's own collective beside ours, in the same run."
)
@click.option(
    "--api", type=click.Choice([XUPC, DROP_IN]), default=XUPC, show_default=True,
    help="Measure xupc's own calls, or mpi4py's methods on xupc.Comm.",
)  # fmt: skip
@click.option("--plan", is_flag=True, help="Measure a replayed plan beside the full call.")
@click.option("--cold", is_flag=True, help="Empty the caches before each repetition.")
@click.option("--loop", is_flag=True, help="Time calls back to back, as many as fill 1 ms.")
@click.option(
    "--launches", type=click.IntRange(1, MOST_LAUNCHES),
    help=f"Start each job so many times; {LAUNCHES} by default, or as many as the budget permits.",
)  # fmt: skip
@click.option(
    "--budget", callback=options.seconds, metavar="TIME",
    help="Time for the whole command, like 90 or 10m; it ends within 10% of it.",
)  # fmt: skip
@click.option(
    "-i", "--iterations", "iterations", type=click.IntRange(min=1),
    help="Repetitions of each call in each launch; by default as many as the time permits.",
)  # fmt: skip
@click.option(
    "-x", "--warmup", "warmup", type=click.IntRange(min=0),
    help="Repetitions before the first that counts; 5 by default.",
)  # fmt: skip
@click.option(
    "-c", "--validation", "check", is_flag=True,
    help="Check results at every visit, and print the outcome.",
)  # fmt: skip
@click.option(
    "-f", "--full", "full", is_flag=True,
    help="Print minimum, mean, maximum and repetitions, too.",
)  # fmt: skip
@click.option(
    "-z", "--tail-lat", "tail", is_flag=True,
    help="Print the 50th, 90th and 99th percentile of all repetitions, too.",
)  # fmt: skip
@click.option(
    "--suite", type=click.Choice(list(suites.SUITES)),
    help="Repeat the measurements of a document: MTU's testbed, or the XUPC paper.",
)  # fmt: skip
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write everything, every repetition included (.gz: compressed).")  # fmt: skip
@click.option("--compact", is_flag=True,
              help="In the --json file keep a summary of each launch, no repetitions.")  # fmt: skip
@click.option("--append", is_flag=True, help="Add the launches to what the --json file holds.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, path_type=Path),
              help="Write a table with a line for each candidate of each size.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files of --json and --csv that exist.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True,
    help="The seed of the order in which candidates take turns.",
)  # fmt: skip
@click.option(
    "--time-limit", callback=options.seconds, metavar="TIME",
    help="Kill a launch that takes longer, and exit with 3.",
)  # fmt: skip
@click.option(
    "--mpiexec-args", default="", metavar="ARGS",
    help="More options for mpiexec, in one word: '-bind-to core'.",
)  # fmt: skip
def bench_command(**given: Any) -> None:
    """Measure collectives.

    A COLLECTIVE is a name like all_gather, a pattern like 'allav_*', or MPI's name: Bcast and
    bcast are allav_broadcast, the same on private arrays (--list shows all). Without one the most
    usual are measured. The time of a repetition is the maximum over the threads. The median is
    printed with a 95% interval over launches (Student's t, from three launches on), and with algbw
    and busbw as in nccl-tests. Options of OSU's benchmarks keep their names: -m, -i, -x, -c, -f,
    -z, -k, -T.

    Exits with 1 if a result was wrong, 2 if the budget is too short for any measurement, 3 if a
    launch took too long.
    """
    began = common.began()
    files = ("--json", given["json_file"]), ("--csv", given["csv_file"])
    check_outputs(files, replace=given["force"] or given["append"])
    if given["compact"] and given["json_file"] is None:
        raise click.UsageError("--compact needs --json FILE: the file to write in compact form")
    output = Output(given)
    if in_job():
        measure_in_job(given, output, began)
        return
    suite = suites.SUITES[given["suite"]] if given["suite"] else None
    with _alone(given["json_file"] if given["append"] else None), Progress() as progress:
        plan = _plan(given, suite, _shapes(given, suite), began=began)
        check_crowd(max(shape.threads for shape in plan.shapes), plan.mpiexec_args)
        try:
            result, status = driver.measure(
                plan,
                ["xupc", *sys.argv[1:]],
                find_launcher,
                save=given["json_file"],
                progress=progress.show,
            )
        except (LaunchError, OSError) as error:
            raise EnvironmentProblem(str(error)) from None
        except TooShort as error:
            raise BudgetProblem(str(error)) from None
        except ValueError as error:
            raise click.UsageError(f"--append: {error}") from None
    output.write(result)
    for note in result.notes:
        click.echo(f"xupc bench: {note}", err=True)
    sys.exit(output.status(result) or status)


@contextlib.contextmanager
def _alone(path: Path | None) -> Iterator[None]:
    """Raise UsageError if another run adds launches to the file: one would lose the other."""
    if path is None:
        yield
        return
    lock = path.with_name(path.name + ".lock")
    try:
        file = lock.open("w")
    except OSError as error:
        raise EnvironmentProblem(str(error)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise click.UsageError(f"--append: another run adds launches to {path}") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def check_arguments(words: Sequence[str], shape: Shape) -> float | None:
    """Raise UsageError if `xupc bench` would refuse or ignore these words in a job of this shape.

    Returns the seconds that all launches may take; None if nothing says so.
    """
    given = bench_command.make_context("xupc bench", list(words)).params
    theirs = {
        "threads": "-n", "nodes": "--nodes", "launches": "--launches", "append": "--append",
        "json_file": "--json", "compact": "--compact", "time_limit": "--time-limit",
        "mpiexec_args": "--mpiexec-args",
    }  # fmt: skip
    if named_ := [option for name, option in theirs.items() if given[name]]:
        raise click.UsageError(
            f"{', '.join(named_)}: options of the job script itself: put them before BENCH"
        )
    suite = suites.SUITES[given["suite"]] if given["suite"] else None
    seconds: float | None = given["budget"] or (suite.seconds if suite is not None else None)
    _plan(given, suite, [shape], launches=1)
    return seconds


def _plan(
    given: dict[str, Any], suite: suites.Suite | None, shapes: Sequence[Shape], launches: int = 0,
    began: float | None = None,
) -> Plan:  # fmt: skip
    """Return what the options request; UsageError if that is nothing."""
    settings = suite.settings if suite is not None else Settings(collectives=USUAL)
    changes = {
        "sizes": given["sizes"],
        "algorithms": given["flags"],
        "syncs": given["sync"],
        "dtypes": given["dtype"],
        "ops": given["op"],
        "iterations": given["iterations"],
        "warmup": given["warmup"],
        "limited": given["budget"] is not None or None,
    }
    settings = settings.but(**{k: v for k, v in changes.items() if v is not None})
    settings = settings.but(
        root=given["root"], team=given["team"], cold=given["cold"], loop=given["loop"],
        check=given["check"], plan=given["plan"], seed=given["seed"],
        peer=given["peer"] or bool(suite and suite.peer),
    )  # fmt: skip
    if settings.cold and settings.loop:
        raise click.UsageError("--cold and --loop: of calls back to back only the first is cold")
    if suite is not None and given["api"] != XUPC:
        raise click.UsageError("--suite and --api mpi4py: a suite measures xupc's own calls")
    try:
        settings = chosen(settings, given["api"], given["collectives"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _check_root(settings, shapes)
    there = {case.collective for case in cases(settings)}
    if missing := [name for name in settings.collectives if name not in there]:
        why = "no size is a multiple of a type's, or no type has such an operation"
        if not there:
            raise click.UsageError(f"nothing to measure: {why}")
        click.echo(f"xupc bench: left out: {', '.join(missing)} ({why})", err=True)
    launches = launches or given["launches"] or (LAUNCHES if suite is None else suite.launches)
    seconds = given["budget"] or (suite.seconds if suite is not None else None)
    if seconds is None:
        count = sum(1 for _ in cases(settings))
        seconds = min(MOST, max(LEAST, PER_CELL * count)) * launches * len(shapes)
    return Plan(
        tuple(shapes), settings, launches, seconds,
        least=None if given["budget"] is None else 1,
        enough=given["launches"] or ENOUGH, began=began, after=_earlier(given),
        mpiexec_args=options.split_words(given["mpiexec_args"], "--mpiexec-args"),
        time_limit=given["time_limit"],
    )  # fmt: skip


def _earlier(given: dict[str, Any]) -> Result | None:
    """Return the result to which launches are added, if there is one."""
    if not given["append"]:
        return None
    if given["json_file"] is None:
        raise click.UsageError("--append needs --json FILE: the file to add launches to")
    if not given["json_file"].exists():
        return None
    try:
        return Result.load(given["json_file"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _check_root(settings: Settings, shapes: Sequence[Shape]) -> None:
    """Raise UsageError if a team that measures has no such thread."""
    for shape in shapes:
        sizes = [len(threads) for threads in shape.placed]
        least = {
            "world": shape.threads,
            "node": min(sizes),
            "roots": len(sizes),
        }[settings.team]
        if settings.root.isdecimal() and int(settings.root) >= least:
            raise click.BadParameter(
                f"there is no thread {settings.root} among {least}", param_hint="--root"
            )


def _shapes(given: dict[str, Any], suite: suites.Suite | None) -> tuple[Shape, ...]:
    threads, nodes = given["threads"], given["nodes"]
    if suite is not None and threads is None and not nodes:
        return suite.shapes
    return options.shapes(threads, nodes)


# ---- output ------------------------------------------------------------------------------------


class Output:
    """Write the outputs of a result: files and standard output."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.json: Path | None = given["json_file"]
        self.compact: bool = given["compact"]
        self.csv: Path | None = given["csv_file"]
        self.suite: str | None = given["suite"]
        self.full: bool = given["full"]
        self.tail: bool = given["tail"]
        self.check: bool = given["check"]

    def write(self, result: Result) -> None:
        """Print a result and write its files."""
        self.show(result)
        try:
            self._save(result)
        except OSError as error:
            raise EnvironmentProblem(str(error)) from None

    def write_measured(self, result: Result) -> None:
        """Write a result at a sudden end; do not replace a file by an empty result."""
        self._save(result, replace=not result.is_empty)
        self.show(result)

    def _save(self, result: Result, *, replace: bool = True) -> None:
        if self.json is not None and (replace or not self.json.exists()):
            (result.compact() if self.compact else result).save(self.json)
        if self.csv is not None and (replace or not self.csv.exists()):
            write_whole(self.csv, osu_text.table_csv(result).encode())

    def show(self, result: Result) -> None:
        """Print a result."""
        if self.suite is not None:
            click.echo(suites.TABLES[self.suite](result), nl=False)
        else:
            text = osu_text.osu(result, full=self.full, check=self.check, tail=self.tail)
            click.echo(text, nl=False)

    def status(self, result: Result) -> int:
        """Return `EXIT_WRONG` if a result of xupc was wrong, else 0; only report a peer's."""
        for words in wrong_results(result, (PEER,)):
            click.echo(f"xupc bench: of the peer's: {words}", err=True)
        wrong = list(wrong_results(result, (OURS, AGAIN)))
        for words in wrong:
            click.echo(f"xupc bench: {words}", err=True)
        return EXIT_WRONG if wrong else 0


# ---- inside a job ------------------------------------------------------------------------------


def measure_in_job(given: dict[str, Any], output: Output, began: float) -> None:
    """Measure in a job that another launcher has started: one launch, whose thread 0 prints.

    Every thread of the job calls this. The command began at `began` of the monotonic clock. A
    launcher that ends the job gives its threads less than a second. So on SIGTERM and SIGINT the
    measured values are written at once.
    """
    import xupc
    from xupc.bench import worker
    from xupc.bench.provenance import provenance

    if len(given["nodes"]) > 1:
        raise click.BadParameter("expected one: a job has one placement", param_hint="--nodes")
    earlier = _earlier(given)
    for number in (signal.SIGTERM, signal.SIGINT):  # nothing to write yet
        signal.signal(number, signal.SIG_DFL)
    try:
        team = xupc.init(nodes=given["nodes"][0] if given["nodes"] else None)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    suite = suites.SUITES[given["suite"]] if given["suite"] else None
    # an error in the options is the same on every thread: only the first one prints it
    with open(os.devnull, "w") as nowhere, contextlib.ExitStack() as stack:
        if team.rank:
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        shape = Shape(team.size, ",".join(str(len(node)) for node in team.tree.nodes))
        plan = _plan(given, suite, [shape], launches=1)
        theirs = [o for o in ("launches", "time_limit", "threads") if given[o] is not None]
        if theirs or plan.mpiexec_args:
            click.echo(
                "xupc bench: -n, --launches, --time-limit and --mpiexec-args are the launcher's "
                "business here",
                err=True,
            )
    settings = _settings_in_job(plan, began)
    nodes = [list(node) for node in team.tree.nodes]
    job = _OwnJob(output, team.rank == 0, earlier, nodes)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, job.end)
    progress = Progress()

    def note(line: dict[str, Any]) -> None:
        job.take(line)
        if "cell" in line:
            spent = time.monotonic() - began
            progress.show(min(0.99, spent / plan.seconds), f"{team.size} threads")

    for line in provenance(team):
        if team.rank == 0:
            note(line)
    worker.Worker(team, settings, note).measure()
    status = 0
    if team.rank == 0:
        job.result.complete = True
        output.write(job.collected())
        status = output.status(job.result)
    xupc.finalize()
    sys.exit(status)


def _settings_in_job(plan: Plan, began: float) -> Settings:
    """Return the settings of the only launch; a budget counts from the start of the command."""
    if plan.least is None:
        return plan.settings.but(seconds=plan.seconds)
    left = max(0.0, plan.seconds - (time.monotonic() - began))
    return plan.settings.but(seconds=left, limit=left)


class _OwnJob:
    """Hold the result so far, on thread 0 of a job that another launcher has started."""

    def __init__(
        self, output: Output, first: bool, earlier: Result | None, nodes: list[list[int]]
    ) -> None:
        self.output = output
        self.first = first
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.result = Result(["xupc", *sys.argv[1:]], created, complete=False)
        self.others: list[Job] = []
        before = None
        if earlier is not None:
            self.result.notes += earlier.notes
            before = next((job for job in earlier.jobs if job.nodes == nodes), None)
            self.others = [job for job in earlier.jobs if job is not before]
        self.collector = Collector(before)
        self.saved = time.monotonic()
        self.wait = driver.SAVE

    def collected(self) -> Result:
        """Return the result with the jobs of the earlier result and this one."""
        own = [self.collector.job] if self.collector.job is not None else []
        self.result.jobs = self.others + own
        return self.result

    def take(self, line: dict[str, Any]) -> None:
        """Add a line to the result; save the result from time to time."""
        try:
            self.collector.take(line)
        except ValueError as error:  # of thread 0 alone: the others wait for it
            click.echo(f"xupc bench: --append: {error}", err=True)
            os._exit(2)
        began = time.monotonic()
        due = began - self.saved > self.wait and not self.collected().is_empty
        if self.output.json is not None and due:
            self.collected().save(self.output.json)
            self.saved = time.monotonic()
            self.wait = max(driver.SAVE, 50 * (self.saved - began))

    def end(self, number: int, _frame: FrameType | None) -> None:
        """End after a signal: thread 0 writes the result, and the others take part until it has."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        if not self.first:  # it may be in a call that needs me, and the launcher would kill it
            signal.signal(signal.SIGALRM, lambda *_: os._exit(128 + number))
            signal.alarm(LAST_WORD)
            return
        self.result.notes.append(f"ended by {signal.Signals(number).name}")
        self.output.write_measured(self.collected())
        sys.stdout.flush()
        os._exit(128 + number)
