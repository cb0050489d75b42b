"""Predictions beside the measurements of a result of `xupc bench`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from ..backends.simulator.errors import ProtocolError
from ..backends.simulator.timeline import Rates, rates_of, run
from ..bench.results import OURS, Candidate, Cell, Job, Result
from ..records import record
from ..report.plans import Unplanned, programs
from .machine_file import Machine

__all__ = ["Compared", "compared"]


@record
class Compared:
    """One call of a result; times in ns.

    Attributes
    ----------
    measured
        The median over the launches of the median of each.
    """

    collective: str
    nbytes: int
    name: str
    algorithm: str
    threads: int
    nodes: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Return by which factor less one they differ, whichever is larger."""
        ratio = self.predicted / self.measured
        return max(ratio, 1 / ratio) - 1 if ratio else float("inf")


def compared(result: Result, machine: Machine) -> tuple[list[Compared], int]:
    """Return all calls of a result with their modelled times, and how many have no plan.

    What a job has measured of its machine counts more than the machine's file.
    """
    found, left = [], 0
    for job in result.jobs:
        rates = _rates(job, machine)
        for cell, candidate in _measured(job):
            times = [times[0] for times in candidate.medians if times]
            try:
                made = programs(job, cell, candidate)
                time = run(made, rates).end
            except (Unplanned, ProtocolError):
                left += 1
                continue
            found.append(Compared(
                cell.collective, cell.nbytes, candidate.name, candidate.algorithm, job.threads,
                len(job.nodes), statistics.median(times), time,
            ))  # fmt: skip
    return found, left


def _rates(job: Job, machine: Machine) -> Rates:
    rates, own = machine.rates(), rates_of(job.bounds, several_nodes=True)

    def measured(bound: str, value: float, of_file: float) -> float:
        return of_file if bound in own.assumed else value

    return replace(
        rates,
        copy=measured("copy rate", own.copy, rates.copy),
        line=measured("line latency ns", own.line, rates.line),
        wire=measured("wire rate", own.wire, rates.wire),
        latency=measured("wire latency ns", own.latency, rates.latency),
    )


def _measured(job: Job) -> Iterator[tuple[Cell, Candidate]]:
    for cell in job.cells:
        for candidate in cell.of_kind(OURS):
            if candidate.measured:
                yield cell, candidate
