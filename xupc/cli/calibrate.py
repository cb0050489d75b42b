"""`xupc calibrate`: measure what steps cost here, for `xupc predict`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from xupc.bench.columns import aligned
from xupc.bench.files import write_whole
from xupc.predict.calibration import machine_of
from xupc.predict.machine_file import MEANING, Machine, text_of
from xupc.topology.node_spec import threads_of_nodes

from .common import (
    EnvironmentProblem,
    check_crowd,
    check_nodes,
    check_outputs,
    examples,
)
from .jobs import bind_option, measured_by

__all__ = ["calibrate_command"]

_LIMIT = 30.0  # seconds of a job


@click.command("calibrate", epilog=examples(
    "xupc calibrate -o here.toml",
    "xupc calibrate -n 4 --nodes 2x2 -o two-nodes.toml --launches 9",
    "xupc calibrate -n 64 --bind spread -o bound.toml",
))  # fmt: skip
@click.option(
    "-n", "-np", "threads", type=click.IntRange(min=1), metavar="N",
    help="The number of threads; by default as many as the nodes hold, or 2.",
)  # fmt: skip
@click.option("--nodes", metavar="SPEC", help="Group the threads as if on several nodes: 2x2.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE",
    help="The machine file to write.",
)  # fmt: skip
@click.option(
    "--launches", type=click.IntRange(min=1, max=100), default=5, show_default=True,
    help="How many jobs measure, one after the other.",
)  # fmt: skip
@bind_option
@click.option("--name", help="The name of the machine; by default that of the file.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def calibrate_command(
    threads: int | None, nodes: str | None, output: Path, launches: int, bind: str,
    name: str | None, force: bool,
) -> None:  # fmt: skip
    """Measure what steps cost here, for `xupc predict`.

    Each value is the median of some short jobs, with the least and the greatest as its interval.
    Values of the network need several nodes: with --nodes on one machine they are those of MPI
    between its processes. Measure on a machine that does nothing else, with the threads bound to
    cores (--bind) as those of your programs will be: a cache line's way depends on it.
    """
    check_outputs([("--output", output)], replace=force)
    threads = threads or threads_of_nodes(nodes or "") or 2
    check_nodes(nodes, threads)
    check_crowd(threads, ())
    found = list(_launches(threads, nodes, launches, bind))
    now = time.strftime("%Y-%m-%d", time.gmtime())
    where = f"{threads} threads" + (f", nodes {nodes}" if nodes else "")
    where += f", --bind {bind}" if bind != "none" else ""
    source = f"measured: xupc calibrate, {launches} launches of {where}, {now}"
    machine = machine_of(found, name or output.stem, source)
    write_whole(output, text_of(machine).encode())
    click.echo("\n".join(_lines(machine)))
    click.echo(f"written to {output}: xupc predict COLLECTIVE --nodes SPEC --machine {output}")


def _launches(
    threads: int, nodes: str | None, launches: int, bind: str
) -> Iterator[dict[str, float]]:
    """Yield what each job has measured; EnvironmentProblem if one measures nothing."""
    for _ in range(launches):
        found, why = measured_by(
            "xupc.bench.calibration", threads, nodes, _LIMIT, bind=bind)
        if not found:
            raise EnvironmentProblem(f"nothing was measured: {why}")
        yield {key: float(value) for key, value in found.items()}


def _lines(machine: Machine) -> Iterator[str]:
    """Yield a line for each value."""
    rows = [
        [key, f"{p.value:g}", f"{p.low:g} - {p.high:g}" if p.low < p.high else "",
         "assumed" if p.assumed else "measured", MEANING[key]]
        for key, p in machine.parameters.items()
    ]  # fmt: skip
    yield from aligned(rows)
