"""The page of scaling curves, in the style of the report: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from ..report import formatting
from ..report.charts import Spec, bands
from ..report.page import rendered
from .curves import Curve, Point
from .machine_file import Machine
from .scaling import EXACT

__all__ = ["render"]


def render(collective: str, nodes: str, machine: Machine, curves: Sequence[Curve]) -> str:
    """Return the whole page; `report.page.MissingError` without jinja2."""
    drawn = [(curve, _spec(collective, curve), _rows(curve)) for curve in curves if curve.points]
    return rendered(
        "curves.html",
        title=f"{collective}, modelled",
        collective=collective,
        nodes=nodes,
        machine=machine,
        parameters=_parameters(machine),
        assumed=len(machine.assumed),
        exact=EXACT,
        drawn=drawn,
        charts=bool(drawn),
    )


def _spec(collective: str, curve: Curve) -> Spec:
    """Return the chart of a curve."""
    rows = [
        {
            "name": p.name, "x": p.x, "value": p.time, "low": p.low, "high": p.high,
            "said": f"{p.name}, nodes {p.nodes}, {formatting.size(p.nbytes)}: {_time(p)}, "
                    f"bound by {p.bound} {p.share:.0%}",
        }
        for p in curve.points
    ]  # fmt: skip
    title = "time of a call (lower is faster), with its range"
    return bands(f"{collective}, {curve.title}", title, curve.along, rows, sizes=curve.sizes)


def _time(point: Point) -> str:
    low, high = formatting.time(point.low), formatting.time(point.high)
    return f"{formatting.time(point.time)} ({low} to {high})"


def _rows(curve: Curve) -> list[list[str]]:
    """Return the cells of the table below a chart."""
    choice = {True: " (the table's choice)", False: ""}
    return [
        [
            p.nodes, formatting.size(p.nbytes), p.name + choice[p.chosen],
            formatting.time(p.time), f"{formatting.time(p.low)} to {formatting.time(p.high)}",
            f"{p.bound} {p.share:.0%}", "" if not p.how else "from smaller shapes",
        ]
        for p in curve.points
    ]  # fmt: skip


def _parameters(machine: Machine) -> list[list[str]]:
    return [
        [name, f"{p.value:g}", f"{p.low:g} to {p.high:g}" if p.low < p.high else "", p.source]
        for name, p in machine.parameters.items()
    ]
