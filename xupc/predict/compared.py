"""Predictions beside the measurements of a result of `xupc bench`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ..backends.simulator.errors import ProtocolError
from ..backends.simulator.rates import Rates, rates_of
from ..backends.simulator.sim_program import Program
from ..backends.simulator.timeline import Prepared
from ..bench.results import OURS, Candidate, Cell, Job, Result
from ..plan.plan import barrier_plan
from ..records import record
from ..report.plans import Unplanned, programs
from .machine_file import Machine
from .price import bound_of, steps_of

__all__ = ["PREPARED", "Call", "Compared", "beside", "calls_of", "reason"]

PREPARED = "plan"
"""The candidate that runs a prepared call, which has no arguments to check."""


_BARRIERS: Final = 3  # between two calls of `xupc.bench.worker`
_DISTURBED: Final = 1.5  # a link that a job has measured slower by no more was busy meanwhile


@dataclass
class Call:
    """A measured call of a result, with its plans; times in ns.

    Attributes
    ----------
    measured, low, high
        The median, the least and the greatest of the launches' medians.
    """

    job: Job
    cell: Cell
    name: str
    algorithm: str
    programs: list[Program]
    measured: float
    low: float
    high: float

    @property
    def steps(self) -> int:
        """Return the number of steps of all threads."""
        return steps_of(self.programs)

    @cached_property
    def prepared(self) -> Prepared:
        """Return the plans as the clock takes them, for many runs."""
        return Prepared(self.programs)

    @cached_property
    def barrier(self) -> Prepared:
        """Return the plans of a barrier of the same threads."""
        tree = self.programs[0].tree
        return Prepared([Program(barrier_plan(rank, tree.size), tree) for rank in range(tree.size)])

    def end(self, rates: Rates) -> float:
        """Return the modelled time: each repetition follows the one before after some barriers."""
        if not rates.burst:
            return self.prepared.end(rates)
        return self.prepared.end_in_a_row(rates, _BARRIERS * self.barrier.end(rates))

    def rates(self, machine: Machine) -> Rates:
        """Return a machine's costs, with what the job has measured.

        The network is always the job's, but for a rate that was disturbed. Its copy rate and its
        cache lines count where the machine's are assumed.
        """
        rates, own = machine.rates(), rates_of(self.job.bounds, several_nodes=True)

        def measured(bound: str, value: float, of_file: float, key: str) -> float:
            known = not machine.parameters[key].assumed and "wire" not in bound
            return of_file if known or bound in own.assumed else value

        return replace(
            rates,
            copy=measured("copy rate", own.copy, rates.copy, "copy_rate"),
            line=measured("line latency ns", own.line, rates.line, "line_latency"),
            wire=self._wire(machine, own.wire, rates.wire),
            latency=measured("wire latency ns", own.latency, rates.latency, "wire_latency"),
        )


    @staticmethod
    def _wire(machine: Machine, measured: float, of_file: float) -> float:
        """Return the rate that the job has measured, or a little faster one that is known."""
        known = not machine.parameters["wire_rate"].assumed
        return of_file if known and measured < of_file <= _DISTURBED * measured else measured


@record
class Compared:
    """A measured call beside its modelled time, in ns."""

    call: Call
    predicted: float

    @property
    def error(self) -> float:
        """Return by which factor less one they differ, whichever is larger."""
        ratio = self.predicted / self.call.measured
        return max(ratio, 1 / ratio) - 1 if ratio else float("inf")


def calls_of(result: Result, *, prepared: bool = True) -> tuple[list[Call], int]:
    """Return all measured calls of a result, and how many have no plan that can be made again.

    `prepared`: whether prepared calls are among them.
    """
    found, left = [], 0
    for job in result.jobs:
        for cell, candidate in _measured(job):
            if candidate.name == PREPARED and not prepared:
                continue
            try:
                made = programs(job, cell, candidate)
            except (Unplanned, ProtocolError):
                left += 1
                continue
            times = [times[0] for times in candidate.medians if times]
            found.append(Call(
                job, cell, candidate.name, candidate.algorithm, made, statistics.median(times),
                min(times), max(times),
            ))  # fmt: skip
    return found, left


def beside(call: Call, machine: Machine) -> Compared:
    """Return a call with its modelled time on a machine."""
    return Compared(call, call.end(call.rates(machine)))


def reason(found: Compared, machine: Machine) -> str:
    """Return why a price may be off: launches that differ, or the cost that it consists of."""
    call = found.call
    if call.low <= found.predicted <= call.high:
        return f"launches differ by {call.high / call.low - 1:.0%}"
    bound, alone = bound_of(call.programs, call.rates(machine))
    share = min(1.0, alone / found.predicted) if found.predicted else 0.0
    return f"{bound} {share:.0%} of the model"


def _measured(job: Job) -> Iterator[tuple[Cell, Candidate]]:
    for cell in job.cells:
        for candidate in cell.of_kind(OURS):
            if candidate.measured:
                yield cell, candidate
