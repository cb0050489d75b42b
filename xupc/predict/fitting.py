"""Fit the costs of a machine to one half of the calls of results, to be judged on the other half.

The halves are those of a chessboard whose columns are collectives and whose rows are sizes. Each
collective and each size is in both, and all measurements of one call are in the same half.

The fit changes one cost after the other by a factor, as long as the mean of the logarithms of
modelled by measured time falls. The rate and latency of the network are those that each job has
measured, so they are not fitted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from ..backends.simulator.timeline import run
from .compared import Call
from .machine_file import Machine, Parameter

__all__ = ["FITTED", "fit", "fitted_machine", "halves"]

FITTED: Final[Mapping[str, tuple[str, float]]] = {
    "call_time": ("call", 1e-9),
    "step_time": ("step", 1e-9),
    "switch_time": ("switch", 1e-9),
    "line_latency": ("line", 1e-9),
    "send_time": ("send", 1e-9),
    "receive_time": ("receive", 1e-9),
    "byte_time": ("per_byte", 1e-9),
    "copy_rate": ("copy", 1e9),
    "node_copy_rate": ("node_copy", 1e9),
    "cache_copy_rate": ("cached", 1e9),
    "cache_size": ("cache", 1.0),
    "crossing_rate": ("crossing", 1e9),
    "fold_rate": ("fold", 1e9),
    "scan_rate": ("scan", 1e9),
}
"""The parameters that are fitted: the costs of the clock, and their units."""
_LONGEST: Final = 4000  # steps of a call that counts in the fit
_FINEST: Final = 0.02  # of a factor's logarithm
_MOST: Final = 1.5  # of an error's logarithm: an outlier counts no more than that
_NEAR: Final = 0.05  # an interval ends where the loss has grown by this share
_WAYS: Final = 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0


def halves(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Return the calls of either colour of the chessboard."""
    columns = sorted({call.cell.collective for call in calls})
    rows = sorted({call.cell.nbytes for call in calls})
    parts: tuple[list[Call], list[Call]] = [], []
    for call in calls:
        of = columns.index(call.cell.collective) + rows.index(call.cell.nbytes)
        parts[of % 2].append(call)
    return parts


class _Fit:
    """The loss of costs on some calls."""

    def __init__(self, calls: Sequence[Call], machine: Machine) -> None:
        self.calls = [call for call in calls if call.steps <= _LONGEST]
        self.rates = {id(call): call.rates(machine) for call in self.calls}

    def loss(self, costs: Mapping[str, float]) -> float:
        """Return the mean size of the logarithm of modelled by measured time."""
        total = 0.0
        for call in self.calls:
            rates = replace(self.rates[id(call)], **cast("dict[str, Any]", costs))
            modelled = run(call.programs, rates).end
            error = abs(math.log(modelled / call.measured)) if modelled else _MOST
            total += min(error, _MOST)
        return total / len(self.calls)

    def used(self, costs: Mapping[str, float]) -> list[str]:
        """Return the costs on which any of the calls depends."""
        here = self.loss(costs)
        return [
            cost for cost, value in costs.items()
            if any(self.loss({**costs, cost: value * by}) != here for by in (0.25, 4.0))
        ]  # fmt: skip


def fit(calls: Sequence[Call], machine: Machine, seconds: float) -> dict[str, tuple[float, ...]]:
    """Return the costs of the clock that fit calls best: value, low and high of each.

    Those on which no call depends are missing. `machine` is the start; a cost that is 0 there
    stays 0.
    """
    search = _Fit(calls, machine)
    if not search.calls:
        raise ValueError(f"no call has at most {_LONGEST} steps, so there is nothing to fit to")
    whole = machine.rates()
    costs = {name: float(getattr(whole, name)) for name, _ in FITTED.values()}
    costs = {name: value for name, value in costs.items() if 0 < value < math.inf}
    names = search.used(costs)
    best, widths = search.loss(costs), dict.fromkeys(names, 1.0)
    end = time.monotonic() + seconds
    while max(widths.values(), default=0.0) > _FINEST and time.monotonic() < end:
        for name in names:
            for way in (widths[name], -widths[name]):
                tried = {**costs, name: costs[name] * math.exp(way)}
                found = search.loss(tried)
                if found < best - 1e-6:
                    costs, best = tried, found
                    widths[name] *= 1.3
                    break
            else:
                widths[name] /= 2.2
    return {name: _interval(search, costs, name, best) for name in names}


def _interval(
    search: _Fit, costs: Mapping[str, float], name: str, best: float
) -> tuple[float, float, float]:
    """Return a cost, and how far it can go by a factor until the loss is clearly more."""
    value = costs[name]

    def end(sign: int) -> float:
        found = value
        for way in _WAYS:
            tried = value * way**sign
            if search.loss({**costs, name: tried}) > best * (1 + _NEAR):
                break
            found = tried
        return found

    return value, end(-1), end(1)


def fitted_machine(
    machine: Machine, costs: Mapping[str, tuple[float, ...]], name: str, source: str
) -> Machine:
    """Return a machine with fitted costs in the place of its own."""
    parameters = dict(machine.parameters)
    for key, (cost, unit) in FITTED.items():
        if cost in costs:
            value, low, high = (float(f"{each * unit:.4g}") for each in costs[cost])
            parameters[key] = Parameter(value, low, high, source)
    return Machine(name, parameters)
