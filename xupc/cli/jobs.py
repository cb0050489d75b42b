"""`xupc info`, `xupc run` and `xupc topo`: look at this machine, or start one job."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from xupc.topology.node_spec import threads_of_nodes

from ..topology import host
from ..topology.sysfs import machine_here
from . import options
from .binding import POLICIES, bind_options, binds
from .common import (
    EnvironmentProblem,
    check_crowd,
    check_nodes,
    examples,
    in_job,
)
from .launcher import (
    EXIT_ENVIRONMENT,
    EXIT_WRONG,
    job_command,
    job_environment,
    run_job,
    thread_command,
)
from .mpi import LaunchError, find_mpi
from .outcome import Outcome
from .rank_wrapper import SIZE_VARIABLES
from .run_trace import check_trace, join_trace
from .terminal import fill_standard_streams
from .variables import unknown

__all__ = [
    "copies", "die_of_interrupt", "info_command", "measured_by", "run_command", "topo_command",
]  # fmt: skip

MOST_DRAWN, MOST_PROCESSORS = 1 << 16, 1 << 12  # threads and processors of a node in a picture
TOPO_SECONDS = 120.0  # that a job of `xupc topo` may take


def _nodes_option(command: Any) -> Any:
    return click.option(
        "--nodes",
        metavar="SPEC",
        envvar="XUPC_NODES",
        help="Split this machine into several nodes: 4x2 (4 nodes of 2), 3,1,4 or cyclic:3.",
    )(command)


def bind_option(command: Any) -> Any:
    """Add the option --bind to a command that starts jobs."""
    return click.option(
        "--bind",
        type=click.Choice(POLICIES),
        default="none",
        show_default=True,
        help="Bind each thread to a core: spread over the domains of caches, close to each other, "
        "or spread where that makes levels (auto).",
    )(command)


@click.command("info", epilog=examples(
    "xupc info",
    "xupc info --measure -n 8",
    "mpiexec -n 8 xupc info",
))  # fmt: skip
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for MPI to answer.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Start a job that measures copy rates, cache-line latency and the wire; takes seconds.",
)
@click.option(
    "-n",
    "-np",
    "threads",
    type=click.IntRange(min=1),
    help="Judge, and measure, for so many threads; the available cores by default.",
)
@_nodes_option
@click.option("--json", "as_json", is_flag=True, help="Print the same as one object of JSON.")
def info_command(
    timeout: float, measure: bool, threads: int | None, nodes: str | None, as_json: bool
) -> None:
    """Show what is in use and what is wrong with it.

    Started by mpiexec itself, it judges that job: how many threads there are and where each may
    run; one of them prints.

    Exits with 4 if xupc cannot work here.
    """
    from . import info
    from .facts import Facts

    facts: Facts | None
    if in_job():
        from . import job_info

        facts = job_info.collect(timeout=timeout, measure=measure)
        if facts is None:
            return
    else:
        count = threads or threads_of_nodes(nodes or "")
        if count is None and measure:
            count = host.available_cores()
        check_nodes(nodes, count or 1)
        facts = info.collect(timeout=timeout)
        if count is not None:
            facts = dataclasses.replace(facts, threads=(info.this_process(),) * count)
        if measure and count is not None:
            found, why_not = measured_by("xupc.bench.machine", count, nodes)
            facts = dataclasses.replace(facts, measured=found, measure_error=why_not)
    click.echo(info.as_json(facts) if as_json else info.render(facts))
    if info.unusable(facts):
        sys.exit(EXIT_ENVIRONMENT)


def measured_by(
    module: str, threads: int, nodes: str | None = None, time_limit: float = 120.0,
    arguments: Sequence[str] = (), bind: str = "none",
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """Return the JSON that a job of a module prints, or the reason why there is none."""
    python = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile() as said:
        try:
            outcome = _run(
                threads, python, nodes=nodes, time_limit=time_limit, bind=bind, stdout=said
            )
        except EnvironmentProblem as problem:
            return {}, problem.message
        if outcome.interrupted:
            _end_interrupted(outcome.interrupted)
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines()
    for line in lines:
        with contextlib.suppress(ValueError):  # a launcher may say something too
            if isinstance(found := json.loads(line), dict):
                return found, ""
    return {}, outcome.explain(time_limit) or "the job printed nothing"


def _end_interrupted(number: int) -> NoReturn:
    """End the command after a signal has ended its job; files of the command are removed first."""
    if number == signal.SIGINT:
        click.get_current_context().call_on_close(die_of_interrupt)
    sys.exit(128 + number)


_LAUNCHERS = {
    "hydra_pmi_proxy", "mpiexec", "mpiexec.hydra", "mpirun", "orted", "orterun", "prted", "prterun",
    "slurmstepd",
}  # fmt: skip


def copies() -> int:
    """Return how many copies of this command a launcher itself has started; 0 if none has.

    In a thread of a job it starts a job of its own: then its parent is no launcher.
    """
    size = next((os.environ[n] for n in SIZE_VARIABLES if n in os.environ), "")
    if not in_job() or not size.isdecimal() or int(size) < 2:
        return 0
    # variables that a shell has kept prove nothing
    return int(size) if _parent() in _LAUNCHERS else 0


def _refuse_copies() -> None:
    """Raise UsageError if a launcher itself has started several copies of this command."""
    size = copies()
    if not size:
        return
    raise click.UsageError(
        f"xupc run starts the threads itself: expected one copy of it, got {size}, started by a "
        f"launcher; use `xupc run -n {size} PROGRAM` without the launcher, or give the launcher "
        "`python PROGRAM`"
    )


def _parent() -> str:
    """Return the name of the process that started this one; "" if the system does not say."""
    try:
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _given(context: click.Context, option: click.Parameter, threads: int | None) -> int:
    """Return the number of threads; without one, a launcher's copies are refused first.

    So is a misspelt option, which would otherwise be taken for the program: it may be this one.
    """
    if threads is None:
        _refuse_copies()
        first = next(iter(context.params.get("program") or ()), "")
        if first.startswith("-") and first != "-m":
            raise _no_such_option(first, context)
        raise click.MissingParameter(ctx=context, param=option)
    return threads


def _no_such_option(word: str, context: click.Context) -> click.NoSuchOption:
    """Return the error about a misspelt option, with those like it."""
    option = word.partition("=")[0]
    known = [name for each in context.command.params for name in each.opts]
    return click.NoSuchOption(option, possibilities=known, ctx=context)


@click.command("run", context_settings={"ignore_unknown_options": True}, epilog=examples(
    "xupc run -n 4 program.py ARGUMENTS",
    "xupc run -np 8 --nodes 4x2 python -m package.module",
    "xupc run -n 4 --mpi mpi4py_program.py",
))  # fmt: skip
@click.option(
    "-n", "-np", "threads", type=click.IntRange(min=1), callback=_given,
    help="The number of threads to start.  [required]",
)  # fmt: skip
@_nodes_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Raise HangError in a wait of xupc that takes longer (XUPC_TIMEOUT).",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Kill the job and exit with 3 if it takes longer.",
)
@bind_option
@click.option("--mpiexec-args", metavar="ARGS", default="", help="More options for mpiexec.")
@click.option(
    "--mpi", "drop_in", is_flag=True, help="PROGRAM is written for mpi4py: run its calls on xupc."
)
@click.option(
    "--trace", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Record all calls in FILE, for `xupc trace` and Perfetto (XUPC_TRACE).",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file of --trace if it exists.")
@click.option("-v", "--verbose", is_flag=True, help="Show the mpiexec command.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
    threads: int,
    nodes: str | None,
    timeout: float | None,
    time_limit: float | None,
    bind: str,
    mpiexec_args: str,
    drop_in: bool,
    trace: Path | None,
    force: bool,
    verbose: bool,
    program: tuple[str, ...],
) -> None:
    """Run a Python program as N threads.

    PROGRAM is a file and its arguments, or -m MODULE and its arguments; `python` before it is
    understood, with options of Python's. It is started with the mpiexec that belongs to mpi4py's
    MPI; with --mpi it runs under `python -m xupc.mpi`. The exit status is the program's: that of
    the first thread to fail, 128 + signal if a signal killed it.

    Thread 0 reads the standard input, as far as the program reads it; that of all other threads is
    empty. SIGINT (Ctrl-C), SIGTERM and SIGHUP (as SIGTERM) give handlers in the program 5 seconds;
    then, or if the signal comes again, the job is killed. If this command is killed itself, the
    program gets SIGTERM, and all of it is killed 3 seconds later.
    """
    _refuse_copies()
    check_trace(trace, replace=force)
    for sentence in unknown(os.environ):
        click.echo(f"xupc run: {sentence}", err=True)
    fill_standard_streams()
    python = [*_interpreter(program), *(("-m", "xupc.mpi") if drop_in else ())]
    python += _checked_program(program, drop_in)
    outcome = _run(
        threads,
        python,
        nodes=nodes,
        timeout=timeout,
        time_limit=time_limit,
        bind=bind,
        extra=options.split_words(mpiexec_args, "--mpiexec-args"),
        verbose=verbose,
        stdin=0,
        trace=trace,
    )
    _report(outcome, time_limit)
    if trace is not None:
        join_trace(trace, drop_in)
    _exit(outcome)


# The program's own options are not ours: everything after its name is left alone.
run_command.allow_interspersed_args = False


def _interpreter(program: Sequence[str]) -> list[str]:
    """Return the Python that a program names, or else ours: all threads run this environment."""
    first = Path(program[0])
    return [str(first)] if _is_python(first) and len(first.parts) > 1 else [sys.executable]


def _is_python(path: Path) -> bool:
    """Return whether a path is the command `python`, not a program that has this name."""
    named = re.fullmatch(r"python(\d+(\.\d+)?)?", path.name)
    return bool(named) and (len(path.parts) > 1 or not path.exists())


def _checked_program(program: Sequence[str], drop_in: bool = False) -> list[str]:
    """Return what follows `python`, or raise UsageError: better once here than on every thread."""
    named = _is_python(Path(program[0]))
    words = list(program[named:])
    if not words:
        raise click.UsageError(f"{program[0]} needs a program, or -m MODULE")
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise click.UsageError("-m needs the name of a module")
    elif first.startswith("-"):
        if not named:
            raise _no_such_option(first, click.get_current_context())
        if drop_in:
            raise click.UsageError(f"--mpi takes no options of Python's, got {first}")
    elif not Path(first).exists():
        raise click.UsageError(f"there is no program {first}")
    return words


def _run(
    threads: int,
    python: Sequence[str],
    *,
    nodes: str | None = None,
    timeout: float | None = None,
    time_limit: float | None = None,
    bind: str = "none",
    extra: Sequence[str] = (),
    verbose: bool = False,
    stdin: int | None = None,
    stdout: IO[bytes] | None = None,
    trace: Path | None = None,
) -> Outcome:
    """Run a job and return its end; EnvironmentProblem if none can be started."""
    check_crowd(threads, extra)
    check_nodes(nodes, threads)
    if bind in ("spread", "close") and (own := binds(extra)):
        raise click.UsageError(f"--bind {bind} and {own} in --mpiexec-args: expected one of them")
    try:
        mpi = find_mpi()
        extra = [*_bound(bind, mpi.family, threads, extra), *extra]
        environment = job_environment(
            os.environ, mpi.family, tag=uuid.uuid4().hex, nodes=nodes, timeout=timeout,
            trace=trace,
        )  # fmt: skip
        command = job_command(
            mpi, threads, thread_command(python), extra=extra, environment=environment
        )
        if verbose:
            click.echo(f"xupc run: {shlex.join(command)}", err=True)
        if trace is not None and trace.is_file():
            trace.unlink()  # what exists after the job is the job's
        return run_job(
            command, environment, time_limit=time_limit, forward=True, stdin=stdin, stdout=stdout
        )
    except LaunchError as error:
        raise EnvironmentProblem(str(error)) from None


def _report(outcome: Outcome, time_limit: float | None) -> None:
    """Print on stderr what went wrong in a job, if anything did."""
    if outcome.status or outcome.survivors:
        click.echo(f"xupc run: {outcome.explain(time_limit)}", err=True)


def _exit(outcome: Outcome, wrong: int = EXIT_WRONG) -> NoReturn:
    """End with the status of a job, with `wrong` in place of 1; by SIGINT if that ended the job."""
    if outcome.interrupted == signal.SIGINT:
        die_of_interrupt()
    sys.exit(wrong if outcome.status == EXIT_WRONG else outcome.status)


def _bound(bind: str, family: str, threads: int, extra: Sequence[str]) -> list[str]:
    """Return the launcher's options for a policy, on the part of this machine that we may use."""
    if bind == "none":
        return []
    machine = machine_here()
    here = None if machine is None else machine.within(host.affinity())
    return bind_options(bind, family, here, threads, extra)


def die_of_interrupt() -> None:
    """End by SIGINT itself: a shell ends its loop then, and shows the status 128 + SIGINT."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed streams
        sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


@click.command("topo", epilog=examples(
    "xupc topo -n 8 --bind spread",
    "xupc topo --topology 2x4x8 --nodes 2x64",
    "mpiexec -n 8 xupc topo",
))  # fmt: skip
@click.option(
    "-n",
    "-np",
    "threads",
    type=click.IntRange(min=1),
    help="Threads; by default as many as the nodes hold, or the available cores.",
)
@_nodes_option
@click.option(
    "--topology",
    metavar="SPEC",
    envvar="XUPC_TOPOLOGY",
    help="Draw another machine, without a job: 2x4x8 (sockets, L3 domains, cores) or a directory.",
)
@bind_option
@click.option("--json", "as_json", is_flag=True, help="Print the same as one object of JSON.")
def topo_command(
    threads: int | None, nodes: str | None, topology: str | None, bind: str, as_json: bool
) -> None:
    """Draw where threads are: nodes, sockets, caches, cores.

    Started by mpiexec itself, it draws that job's.
    """
    if in_job():
        from .topo import main as draw

        draw(as_json=as_json)
        return
    count = threads or threads_of_nodes(nodes or "")
    if topology:
        _draw_described(topology, count, nodes, as_json)
        return
    outcome = _run(
        count or host.available_cores(),
        [sys.executable, "-m", "xupc.cli.topo", *["--json"][:as_json]],
        nodes=nodes,
        time_limit=TOPO_SECONDS,
        bind=bind,
    )
    _report(outcome, TOPO_SECONDS)
    _exit(outcome, EXIT_ENVIRONMENT)


def _draw_described(
    topology: str, threads: int | None, nodes: str | None, as_json: bool
) -> None:  # fmt: skip
    """Draw a machine that is described, as many threads as it has cores by default."""
    from xupc.topology.sysfs import machine_of

    from .topo import described, show

    try:
        machine = machine_of(topology)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--topology") from None
    count = threads or len(machine.cores)
    check_nodes(nodes, count)
    if count > MOST_DRAWN or (len(machine.cpus) > MOST_PROCESSORS and not as_json):
        raise click.UsageError(
            f"--topology: expected at most {MOST_DRAWN} threads and, without --json, "
            f"{MOST_PROCESSORS} processors to draw, got {count} and {len(machine.cpus)}"
        )
    show(described(machine, count, nodes), as_json=as_json)
