"""`xupc predict --page`: the page of scaling curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import numpy as np

from xupc.bench.files import write_whole
from xupc.predict.candidates import Candidate, Question
from xupc.predict.curves import curves
from xupc.predict.machine_file import Machine
from xupc.predict.page import render
from xupc.report.page import MissingError, require
from xupc.topology.node_spec import parse_nodes
from xupc.tuning.selection import Table

from .common import EnvironmentProblem, check_outputs
from .progress import PATIENCE, Progress

__all__ = ["check_page", "names_of", "write_page"]

_MOST = 3  # variants of a page


def check_page(path: Path | None, nodes: str, threads: int, force: bool) -> int:
    """Return the threads of a node; UsageError if the page cannot be made."""
    if path is None:
        return 0
    check_outputs([("--page", path)], replace=force)
    try:
        require()
    except MissingError as error:
        raise EnvironmentProblem(str(error)) from None
    sizes = set(np.bincount(parse_nodes(nodes, threads)).tolist())
    if len(sizes) != 1:
        raise click.UsageError(f"--page: expected equal nodes such as 64x16, got --nodes {nodes}")
    return int(sizes.pop())


def write_page(
    path: Path, questions: Sequence[Question], names: Iterable[str], each: int, machine: Machine,
    table: Table,
) -> None:  # fmt: skip
    """Write the page of a call on nodes of `each` threads, with the first of these variants."""
    chosen = list(dict.fromkeys(names))[:_MOST]
    with Progress("xupc predict", after=PATIENCE) as progress:
        found = curves(questions, chosen, each, machine, table, progress.show)
    first = questions[0]
    page = render(first.collective, f"{first.nodes}", machine, found)
    try:
        write_whole(path, page.encode())
    except OSError as error:
        raise EnvironmentProblem(str(error)) from None
    click.echo(f"scaling curves of {', '.join(chosen)}: {path}", err=True)


def names_of(priced: Sequence[tuple[str, Sequence[Candidate]]]) -> list[str]:
    """Return the table's choices, then the cheapest variant of each size, then the others."""
    choices = [choice for choice, _ in priced]
    best = [found[0].name for _, found in priced if found and found[0].price]
    second = [found[1].name for _, found in priced if len(found) > 1 and found[1].price]
    return [*choices, *best, *second]
