"""A machine file of what jobs have measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .machine_file import MEANING, Machine, Parameter, find

__all__ = ["machine_of"]

_MEASURED: Mapping[str, tuple[str, float]] = {
    "copy_rate": ("copy rate", 1.0),
    "node_copy_rate": ("node copy rate", 1.0),
    "line_latency": ("line latency ns", 1e-9),
    "wire_rate": ("wire rate", 1.0),
    "wire_latency": ("wire latency ns", 1e-9),
    "send_time": ("send ns", 1e-9),
    "receive_time": ("receive ns", 1e-9),
    "read_time": ("read ns", 1e-9),
    "serve_time": ("serve ns", 1e-9),
    "cores": ("cores", 1.0),
    "call_time": ("call ns", 1e-9),
    "step_time": ("step ns", 1e-9),
    "switch_time": ("switch ns", 1e-9),
    "cache_copy_rate": ("cache copy rate", 1.0),
    "cache_size": ("cache size", 1.0),
    "crossing_rate": ("crossing rate", 1.0),
    "fold_rate": ("fold rate", 1.0),
}
"""The names of the measured values, and the factors that make bytes and seconds of them."""


def machine_of(launches: Sequence[Mapping[str, float]], name: str, source: str) -> Machine:
    """Return a machine with the median of each value, and with its least and its greatest.

    Parameters
    ----------
    launches
        What each job has measured (`xupc.bench.calibration`). A value that none of them has, such
        as the network's on one node, is the assumed one of the machine ``default``.
    source
        The source of all measured values.
    """
    assumed = find("default").parameters
    found = {}
    for key in MEANING:
        measured, factor = _MEASURED.get(key, ("", 1.0))
        values = [each[measured] * factor for each in launches if measured in each]
        if key == "cores":
            values = values[:1]
        found[key] = _parameter(values, source) if values else assumed[key]
    return Machine(name, found)


def _parameter(values: Sequence[float], source: str) -> Parameter:
    middle, low, high = (_rounded(f(values)) for f in (statistics.median, min, max))
    return Parameter(middle, low, high, source)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
