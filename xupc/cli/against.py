"""`xupc predict --against`: results of `xupc bench` beside the model, and a fit to them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from xupc.bench.columns import aligned
from xupc.bench.results import Result
from xupc.predict.compared import Call, Compared, beside, calls_of, reason
from xupc.predict.fitting import fit, fitted_machine, halves
from xupc.predict.machine_file import Machine
from xupc.report import formatting

__all__ = ["beside_lines", "fit_to"]

_WORST = 10  # calls that are printed
_STEADY = 0.2  # calls whose launches differ by no more are also judged alone
_HEAD = ["call", "size", "threads", "variant", "measured", "modelled", "ratio", "launches", "why"]


def _calls(paths: Sequence[Path], *, prepared: bool) -> tuple[list[Call], int]:
    found, left = [], 0
    for path in paths:
        try:
            calls, missing = calls_of(Result.load(path), prepared=prepared)
        except ValueError as error:
            raise click.UsageError(f"--against: {error}") from None
        found += calls
        left += missing
    return found, left


def beside_lines(paths: Sequence[Path], machine: Machine) -> Iterator[str]:
    """Yield how far the model is from the measurements of results."""
    calls, left = _calls(paths, prepared=True)
    yield f"{len(calls)} calls measured and modelled; {left} have no plan that can be made again"
    yield from _judged(calls, machine)


def fit_to(paths: Sequence[Path], machine: Machine) -> tuple[Machine, list[str]]:
    """Return a machine fitted to one half of the calls of results, and what the other half says."""
    calls, left = _calls(paths, prepared=False)
    ours, theirs = halves(calls)
    try:
        costs = fit(ours, machine)
    except ValueError as error:
        raise click.UsageError(f"--fit: {error}") from None
    names = ", ".join(path.parent.name + "/" + path.name.partition(".")[0] for path in paths)
    fitted = fitted_machine(machine, costs, machine.name, f"fitted to one half of {names}")
    lines = [
        f"{len(ours)} calls fitted, {len(theirs)} others judged; {left} have no plan that can be "
        "made again",
        *_judged(theirs, fitted),
    ]
    return fitted, lines


def _judged(calls: Sequence[Call], machine: Machine) -> Iterator[str]:
    """Yield how far calls are off, and those that are furthest off."""
    if not calls:
        return
    found = sorted((beside(call, machine) for call in calls), key=lambda each: -each.error)
    yield _errors([each.error for each in found])
    steady = [x.error for x in found if x.call.high <= x.call.low * (1 + _STEADY)]
    if steady:
        yield f"{len(steady)} of them with launches within {_STEADY:.0%}: {_errors(steady)}"
    spread = statistics.median(call.high / call.low - 1 for call in calls)
    yield f"launches of one call differ by {spread:.0%} in the middle"
    yield f"the {min(_WORST, len(calls))} that are furthest off:"
    yield from aligned([_HEAD, *(_row(each, machine) for each in found[:_WORST])], indent=2)
    yield f"*: launches differ by more than {_STEADY:.0%}, so no model could be that near"


def _launches(call: Call) -> str:
    """Return by how much a call's launches differ, marked where no model could be nearer."""
    spread = call.high / call.low - 1
    return f"{spread:.0%}{' *' if spread > _STEADY else ''}"


def _errors(errors: Sequence[float]) -> str:
    ordered = sorted(errors)
    middle, ninth = statistics.median(ordered), ordered[len(ordered) * 9 // 10]
    most = ordered[-1]
    return f"off by {middle:.0%} in the middle, {ninth:.0%} in nine of ten, {most:.0%} at most"


def _row(found: Compared, machine: Machine) -> list[str]:
    call, nodes = found.call, len(found.call.job.nodes)
    where = f"{call.job.threads} on {nodes}" if nodes > 1 else str(call.job.threads)
    return [
        call.cell.collective, formatting.size(call.cell.nbytes), where, call.algorithm,
        formatting.time(call.measured), formatting.time(found.predicted),
        f"{found.predicted / call.measured:.2f}", _launches(call),
        reason(found, machine),
    ]  # fmt: skip
