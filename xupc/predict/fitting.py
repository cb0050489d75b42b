"""Fit the costs of a machine to one half of the calls of results, to be judged on the other half.

The halves are those of a chessboard whose columns are collectives and whose rows are sizes. Each
collective and each size is in both, and all measurements of one call are in the same half.

The fit minimises the mean size of the logarithm of modelled by measured time, over the logarithms
of all costs at once: least squares on the clock's slopes, in which each call has the inverse of its
error as its weight (iteratively reweighted least squares, with the damping of Levenberg and
Marquardt). A cost that the calls hardly show stays near the start. A call counts less, the more its
launches differ. The rate and latency of the network are those that each job has measured, so they
are not fitted. The steps are counted, so a fit ends with the same values on a busy machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

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
    "carry_time": ("carry", 1e-9),
    "carry_byte_time": ("carry_byte", 1e-9),
    "turn_time": ("turn", 1e-9),
    "read_time": ("read", 1e-9),
    "serve_time": ("serve", 1e-9),
    "serve_byte_time": ("serve_byte", 1e-9),
    "serve_turn_time": ("serve_turn", 1e-9),
}
"""The parameters that are fitted: the costs of the clock, and their units."""
_LONGEST: Final = 1000  # steps of a call that counts in the fit
_MOST: Final = 1.5  # of an error's logarithm: an outlier counts no more than that
_ROUNDS: Final = 6  # of slopes
_SLOPE: Final = 0.1  # by which a cost's logarithm changes for a slope
_NEAREST: Final = 0.03  # error below which a call has no greater weight
_HELD: Final = 0.02  # weight of a cost's way from its start, against the mean of all calls
_FARTHEST: Final = 0.7  # step of a cost's logarithm in one round
_FINEST: Final = 0.005  # gain of a round, as a share of the loss, that another one follows
_SPREAD: Final = 0.1  # by which the launches of any call may differ without a smaller weight
_NEAR: Final = 0.05  # an interval ends where the loss has grown by this share
_WAYS: Final = 1.05, 1.1, 1.2, 1.5, 2.0, 4.0


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
    """The errors of costs on some calls."""

    def __init__(self, calls: Sequence[Call], machine: Machine) -> None:
        self.calls = [call for call in calls if call.steps <= _LONGEST]
        self.rates = [call.rates(machine) for call in self.calls]
        spread = np.array([math.log(call.high / call.low) for call in self.calls])
        self.weights = _SPREAD / (_SPREAD + spread)

    def errors(self, costs: Mapping[str, float]) -> NDArray[np.float64]:
        """Return the logarithm of modelled by measured time of each call."""
        found = []
        for call, own in zip(self.calls, self.rates, strict=True):
            modelled = call.end(replace(own, **cast("dict[str, Any]", costs)))
            found.append(math.log(modelled / call.measured) if modelled else _MOST)
        return np.clip(found, -_MOST, _MOST)

    def loss(self, costs: Mapping[str, float]) -> float:
        """Return the weighted mean size of the errors."""
        return self.loss_of(self.errors(costs))

    def loss_of(self, errors: NDArray[np.float64]) -> float:
        return float(np.abs(errors) @ self.weights / self.weights.sum())

    def slopes(
        self, costs: Mapping[str, float], errors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return by how much each error grows with the logarithm of each cost."""
        by = math.exp(_SLOPE)
        moved = [self.errors({**costs, name: value * by}) for name, value in costs.items()]
        return np.stack([(each - errors) / _SLOPE for each in moved], axis=1)

    def step(
        self, errors: NDArray[np.float64], slopes: NDArray[np.float64],
        away: NDArray[np.float64], damping: float,
    ) -> NDArray[np.float64]:  # fmt: skip
        """Return by how much the logarithm of each cost should change.

        `away`: by how much they have changed since the start.
        """
        weights = self.weights / self.weights.sum() / np.maximum(np.abs(errors), _NEAREST)
        normal = (slopes.T * weights) @ slopes
        held = _HELD * np.eye(len(away))
        damped = normal + held + damping * np.diag(np.diag(normal) + _HELD)
        way = np.linalg.solve(damped, -(slopes.T @ (weights * errors) + held @ away))
        return np.clip(way, -_FARTHEST, _FARTHEST)


def fit(calls: Sequence[Call], machine: Machine) -> dict[str, tuple[float, ...]]:
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
    errors = search.errors(costs)
    slopes = search.slopes(costs, errors)
    used = [name for name, slope in zip(costs, slopes.T, strict=True) if slope.any()]
    costs = {name: costs[name] for name in used}
    start = np.log(list(costs.values()))
    damping, found = 0.1, start
    for _ in range(_ROUNDS):
        slopes = search.slopes(costs, errors)
        before = search.loss_of(errors)
        for _ in range(4):
            tried = found + search.step(errors, slopes, found - start, damping)
            there = search.errors(dict(zip(used, np.exp(tried), strict=True)))
            if search.loss_of(there) < before:
                break
            damping *= 4
        else:
            break
        found, errors, damping = tried, there, damping / 3
        costs = dict(zip(used, map(float, np.exp(found)), strict=True))
        if search.loss_of(errors) > before * (1 - _FINEST):
            break
    ends = _ends(search, errors, search.slopes(costs, errors))
    return {
        name: (value, value / end, value * end)
        for (name, value), end in zip(costs.items(), ends, strict=True)
    }


def _ends(search: _Fit, errors: NDArray[np.float64], slopes: NDArray[np.float64]) -> list[float]:
    """Return for each cost by which factor it can change until the loss is clearly more.

    The loss is that of the slopes, the lesser one of both ways.
    """
    most = search.loss_of(errors) * (1 + _NEAR)

    def loss(slope: NDArray[np.float64], way: float) -> float:
        both = (errors + sign * math.log(way) * slope for sign in (-1, 1))
        return min(search.loss_of(np.clip(each, -_MOST, _MOST)) for each in both)

    return [
        next((way for way in _WAYS if loss(slope, way) > most), _WAYS[-1]) for slope in slopes.T
    ]


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
