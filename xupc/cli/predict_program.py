"""What `xupc predict TRACE` prints: a traced program on another machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from xupc.bench.columns import aligned
from xupc.call_trace.file import load_calls
from xupc.call_trace.join import Trace
from xupc.call_trace.operations import nodes_of
from xupc.predict.candidates import Question
from xupc.predict.machine_file import Machine
from xupc.predict.program import CallTime, ProgramTime, program_time
from xupc.report import formatting
from xupc.tuning.selection import Table

from .common import blamed_on, plain
from .progress import PATIENCE, Progress

__all__ = ["is_trace", "loaded", "of_program"]

_MOST = 12  # kinds of calls that are printed
_HEAD = ["call", "size", "team", "calls", "measured", "modelled", "range", "variant", "bound by"]


def is_trace(text: str) -> bool:
    """Return True if an argument names a file or a folder, not a collective."""
    return text.endswith((".json", ".parts")) or "/" in text


def loaded(text: str) -> Trace:
    """Return the trace in a file; UsageError if there is none."""
    path = Path(text)
    if not path.exists():
        raise click.UsageError(f"there is no trace {path}")
    try:
        return load_calls(path)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None


def of_program(
    text: str, question: Question, machine: Machine, table: Table, factor: float, as_json: bool
) -> str:
    """Return the output of a trace, as text or as JSON."""
    trace = loaded(text)
    with blamed_on(text):
        try:
            with Progress("xupc predict", after=PATIENCE) as progress:
                found = program_time(trace, question, machine, table, factor, progress.show)
        except ValueError as error:
            raise click.UsageError(f"{text}: {error}") from None
        if as_json:
            return json.dumps(plain(found), indent=1)
        return "\n".join(_lines(text, trace, found, question, machine))


def _lines(
    text: str, trace: Trace, found: ProgramTime, question: Question, machine: Machine
) -> Iterator[str]:
    threads, nodes = len(trace.threads), len(nodes_of(trace))
    yield (
        f"{text}: {formatting.count(threads, 'thread')} on {formatting.count(nodes, 'node')}, "
        f"{formatting.time(found.measured)} measured"
    )
    yield (
        f"on nodes {question.nodes}, machine {machine.name}: {formatting.time(found.time)} "
        f"({formatting.time(found.low)} - {formatting.time(found.high)}), modelled, not measured"
    )
    in_calls = found.time - found.computing - found.waiting
    yield (
        f"a thread computes for {formatting.time(found.computing)}, waits for others for "
        f"{formatting.time(found.waiting)}, and is in calls for {formatting.time(in_calls)}"
    )
    if found.calls:
        yield ""
        yield from aligned([_HEAD, *map(_row, found.calls[:_MOST])], indent=2)
    more = len(found.calls) - _MOST
    if more > 0:
        yield f"  and {formatting.count(more, 'kind')} of calls more"
    for reason in dict.fromkeys(call.missing for call in found.calls if call.missing):
        names = ", ".join(dict.fromkeys(c.name for c in found.calls if c.missing == reason))
        yield f"as measured, since {reason}: {names}"


def _row(call: CallTime) -> list[str]:
    modelled = ["-", ""] if call.missing else [
        formatting.time(call.time),
        f"{formatting.time(call.low)} - {formatting.time(call.high)}",
    ]  # fmt: skip
    return [
        call.name, formatting.size(call.nbytes), call.team, str(call.number),
        formatting.time(call.measured), *modelled, call.variant, call.bound,
    ]  # fmt: skip
