"""Charts as specifications of Vega-Lite, which the page draws: zoom, hover, hide.

Colours are CSS variables of the page, so charts follow its dark and printed forms. Names of a
result are data in a specification, never expressions.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..bench.results import FLOOR, PEER, Candidate
from ..bench.stats import Estimate, Ratio
from . import formatting
from .bounds import Bound
from .findings import CHOSEN, Standing

__all__ = [
    "Line", "Spec", "as_data", "bands", "curves", "ends", "intervals", "lines_of", "program",
    "styles", "whiskers",
]  # fmt: skip

Spec = dict[str, Any]

_KNOWN = {CHOSEN: 0, "PULL": 1, "PUSH": 2, "MULTICORE": 3, "plan": 4}
_FIRST_PEER = 5
_INK, _SOFT, _RULE = "var(--ink)", "var(--soft)", "var(--rule)"
_NARROW = 480  # pixels of a chart: below that, rows have short labels
_HUES = "blue", "orange", "green", "brown", "red", "purple", "sky"
_COLOURS = _INK, *(f"var(--{hue})" for hue in _HUES)
_SHAPES = (
    "circle", "square", "triangle-up", "diamond", "triangle-left", "cross", "triangle-down",
    "triangle-right",
)  # fmt: skip
_DASHES: Sequence[Sequence[float]] = ([1, 0],) * 4 + ([2, 3], [6, 3], [6, 2, 2, 2], [10, 3])
_SIZE = (
    "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : "
    "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : "
    "datum.value >= 1024 ? datum.value / 1024 + ' KiB' : datum.value + ' B'"
)
_TIME = (
    "datum.value >= 1e9 ? datum.value / 1e9 + ' s' : "
    "datum.value >= 1e6 ? datum.value / 1e6 + ' ms' : "
    "datum.value >= 1e3 ? datum.value / 1e3 + ' µs' : datum.value + ' ns'"
)
_RATE = (
    "datum.value >= 1e9 ? datum.value / 1e9 + ' GB/s' : "
    "datum.value >= 1e6 ? datum.value / 1e6 + ' MB/s' : datum.value / 1e3 + ' kB/s'"
)
_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "text": {"color": _INK},
    "title": {"color": _SOFT, "fontSize": 12, "fontWeight": "normal", "anchor": "start"},
    "axis": {
        "labelColor": _SOFT, "titleColor": _SOFT, "titleFontWeight": "normal", "labelFontSize": 11,
        "gridColor": _RULE, "domainColor": _RULE, "tickColor": _RULE, "labelLimit": 160,
    },
    "legend": {
        "orient": "bottom", "columns": 3, "title": None, "labelColor": _INK, "labelFontSize": 12,
        "labelLimit": 110, "symbolStrokeWidth": 2,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """Hold how a candidate is drawn: colour, marker, dashes."""

    colour: str
    shape: str
    dash: Sequence[float]


@dataclass(frozen=True)
class Line:
    """Hold a candidate's times by size."""

    name: str
    kind: str
    style: Style
    points: list[tuple[int, Estimate]]


def styles(candidates: Sequence[Candidate]) -> dict[str, Style]:
    """Return styles by name: the same for a name in all charts of a page, as far as that goes."""
    found, peers, others = {}, _FIRST_PEER, 0
    for candidate in candidates:
        name = candidate.name
        if candidate.kind == FLOOR:
            found[name] = Style(_SOFT, "stroke", [1.5, 3])
            continue
        if name in _KNOWN:
            number = _KNOWN[name]
        elif candidate.kind == PEER:
            number, peers = peers, peers + 1
        else:
            number, others = 1 + others % 4, others + 1
        number = number if number < len(_COLOURS) else _FIRST_PEER + number % 3
        found[name] = Style(_COLOURS[number], _SHAPES[number], _DASHES[number])
    return found


def lines_of(group: Sequence[Standing], candidates: Sequence[Candidate]) -> list[Line]:
    """Return the lines to draw for a collective."""
    known = styles(candidates)
    return [
        Line(
            candidate.name,
            candidate.kind,
            known[candidate.name],
            [(s.cell.nbytes, s.times[candidate.name]) for s in group if candidate.name in s.times],
        )
        for candidate in candidates
    ]


# --- curves ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Limit:
    """Hold a bound's line in a chart: its name, and (bytes of a block, ns) for each point."""

    name: str
    points: list[tuple[int, float]]


def curves(group: Sequence[Standing], lines: Sequence[Line], bounds: Sequence[Bound]) -> list[Spec]:
    """Return two charts: time against size, and bandwidth against size."""
    cells = [standing.cell for standing in group]
    limits = [_Limit(b.name, [(c.nbytes, b.least(c)) for c in cells]) for b in bounds]
    moved = {cell.nbytes: cell.moved for cell in cells}
    points = [point for line in lines if line.kind != FLOOR for point in line.points]
    if len({size for size, e in points if size > 0 and e.value > 0}) < 2:
        return []

    def as_rate(nbytes: int, ns: float) -> float:
        return moved[nbytes] / ns * 1e9

    call = group[0].cell.title
    latency = _plot(
        call, "time of a call (lower is faster)", lines, limits, lambda nbytes, ns: ns,
        formatting.time, _TIME,
    )  # fmt: skip
    if not all(moved.values()):
        return [latency]
    timed = [line for line in lines if line.kind != FLOOR]
    rates = [limit for limit in limits if limit.name != "cache line"]
    words = "bandwidth (higher is faster)"
    return [latency, _plot(call, words, timed, rates, as_rate, formatting.rate, _RATE)]


def _plot(
    of_call: str,
    title: str,
    lines: Sequence[Line],
    limits: Sequence[_Limit],
    of: Callable[[int, float], float],
    unit: Callable[[float], str],
    labels: str,
) -> Spec:
    """Return a chart on two logarithmic axes; a click on a name shows it alone."""
    rows = [
        _point(line, size, sorted(of(size, end) for end in ends(e)), of(size, e.value), unit)
        for line in lines
        for size, e in line.points
        if size > 0 and e.value > 0
    ]
    sizes = sorted({row["size"] for row in rows})
    least, most = min(r["low"] for r in rows), max(r["high"] for r in rows)
    bounds = _bound_rows(limits, of, least, most, unit)
    return _whole(of_call, title, 230, {
        "encoding": {
            "x": {"field": "size", "type": "quantitative", "title": "bytes per block",
                  "scale": {"type": "log", "base": 2, "nice": False},
                  "axis": {"labelExpr": _SIZE, "values": sizes, "labelOverlap": True}},
            "y": {"field": "value", "type": "quantitative", "title": None,
                  "scale": {"type": "log", "nice": False, "padding": 6},
                  "axis": {"labelExpr": labels, **_tick_axis(
                      *_around([least, most, *(row["value"] for row in bounds)]))}},
            "color": {
                **_by_name(lines, [line.style.colour for line in lines]),
                "legend": {"symbolOpacity": 1},
            },
        },
        "layer": [*_bound_layers(bounds), *_line_layers(lines)],
    }, rows)  # fmt: skip


def _line_layers(lines: Sequence[Line]) -> list[Spec]:
    """Return bands of intervals, lines and markers; the names in the legend choose them."""
    shown = {"condition": {"param": "shown", "value": 1}, "value": 0.06}
    said = {"field": "said", "type": "nominal"}
    band = {
        "mark": {"type": "area", "opacity": 1},
        "transform": [{"filter": {"field": "kind", "oneOf": ["timed"]}}],
        "encoding": {
            "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"},
            "fillOpacity": {"condition": {"param": "shown", "value": 0.2}, "value": 0},
        },
    }  # fmt: skip
    curve = {
        "mark": "line",
        "params": [
            {"name": "shown", "select": {"type": "point", "fields": ["name"]}, "bind": "legend"},
            {"name": "zoom", "bind": "scales",
             "select": {"type": "interval", "zoom": "wheel![event.ctrlKey]"}},
        ],
        "encoding": {
            "strokeDash": _by_name(lines, [list(line.style.dash) for line in lines]),
            "strokeWidth": {
                "condition": {"test": {"field": "name", "equal": CHOSEN}, "value": 3.4},
                "value": 1.6,
            },
            "opacity": shown,
        },
    }  # fmt: skip
    points = {
        "mark": {"type": "point", "filled": True, "size": 42},
        "encoding": {
            "shape": _by_name(lines, [line.style.shape for line in lines]), "tooltip": said,
            "opacity": shown,
        },
    }  # fmt: skip
    return [band, curve, points]


def _point(
    line: Line, size: int, low_high: Sequence[float], value: float, unit: Callable[[float], str]
) -> Spec:
    low, high = low_high
    span = f" ({unit(low)} to {unit(high)})" if high > low else ""
    return {
        "name": line.name, "kind": "floor" if line.kind == FLOOR else "timed", "size": size,
        "value": value, "low": low, "high": high,
        "said": f"{line.name}, {formatting.size(size)}: {unit(value)}{span}",
    }  # fmt: skip


def _around(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _tick_axis(low: float, high: float) -> Spec:
    """Return where an axis has ticks: powers of ten; 2 and 5 times them, too, if those are few."""
    powers = [10.0**k for k in range(-3, 16)]
    found = [p for p in powers if low <= p <= high]
    if len(found) < 3:
        found = [m * p for p in powers for m in (1, 2, 5) if low <= m * p <= high]
    return {"values": found} if len(found) > 1 else {"tickCount": 4}


def _by_name(lines: Sequence[Line], values: Sequence[object]) -> Spec:
    """Return an encoding of the candidates' names, by values in their order."""
    names = [line.name for line in lines]
    return {
        "field": "name", "type": "nominal", "title": None,
        "scale": {"domain": names, "range": list(values)},
    }  # fmt: skip


def _bound_rows(
    limits: Sequence[_Limit],
    of: Callable[[int, float], float],
    least: float,
    most: float,
    unit: Callable[[float], str],
) -> list[Spec]:
    """Return the points of bounds that are not far away from what was measured."""
    rows = []
    for limit in limits:
        points = [(size, of(size, ns)) for size, ns in limit.points if size > 0 and ns > 0]
        near = [(size, v) for size, v in points if least / 6 <= v <= most * 6]
        for number, (size, v) in enumerate(near if len(near) > 1 else []):
            said = f"{limit.name}, {formatting.size(size)}: {unit(v)}"
            rows.append({
                "bound": limit.name, "size": size, "value": v, "said": said,
                "label": limit.name if number == (len(near) - 1) // 2 else "",
            })  # fmt: skip
    return rows


def _bound_layers(rows: Sequence[Spec]) -> list[Spec]:
    """Return the dashed lines of bounds with their names; none without rows."""
    if not rows:
        return []
    soft, said = {"value": _SOFT}, {"field": "said", "type": "nominal"}
    line = {
        "mark": {"type": "line", "strokeDash": [7, 4], "strokeWidth": 1.2},
        "encoding": {
            "color": soft, "detail": {"field": "bound", "type": "nominal"}, "tooltip": said,
        },
    }  # fmt: skip
    name = {
        "mark": {"type": "text", "fontStyle": "italic", "align": "left", "dx": 4, "dy": 9},
        "encoding": {"color": soft, "text": {"field": "label", "type": "nominal"}},
    }
    return [{"data": {"values": list(rows)}, "layer": [line, name]}]


# --- modelled times -----------------------------------------------------------------------------


def bands(of: str, title: str, along: str, rows: Sequence[Spec], *, sizes: bool) -> Spec:
    """Return lines of times with their ranges, on two logarithmic axes.

    Parameters
    ----------
    of
        The call, for readers that do not see the page.
    title, along
        What the chart shows, and what its horizontal axis does.
    rows
        "name", "x", "value", "low", "high" (in ns) and "said" of each point.
    sizes
        True if `x` is in bytes; else it is a number.
    """
    names = list(dict.fromkeys(row["name"] for row in rows))
    values = sorted({row["x"] for row in rows})
    ends_ = min(row["low"] for row in rows), max(row["high"] for row in rows)

    def by_name(values: Sequence[str]) -> Spec:
        scale = {"domain": names, "range": [values[k % len(values)] for k in range(len(names))]}
        return {"field": "name", "type": "nominal", "title": None, "scale": scale}

    axis: Spec = {"labelExpr": _SIZE} if sizes else {}
    return _whole(of, title, 260, {
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": along,
                  "scale": {"type": "log", "base": 2, "nice": False},
                  "axis": {**axis, "values": values, "labelOverlap": True, "labelSeparation": 6}},
            "color": by_name(_COLOURS),
        },
        "layer": [
            {"mark": {"type": "area", "opacity": 0.15}, "encoding": {
                "y": {"field": "low", "type": "quantitative", "title": None,
                      "scale": {"type": "log", "nice": False, "padding": 6},
                      "axis": {"labelExpr": _TIME, **_tick_axis(*ends_)}},
                "y2": {"field": "high"}}},
            {"mark": {"type": "line", "strokeWidth": 1.8},
             "encoding": {"y": {"field": "value", "type": "quantitative"}}},
            {"mark": {"type": "point", "filled": True, "size": 46, "opacity": 1}, "encoding": {
                "y": {"field": "value", "type": "quantitative"}, "shape": by_name(_SHAPES),
                "tooltip": {"field": "said", "type": "nominal"}}},
        ],
    }, rows)  # fmt: skip


# --- intervals side by side -----------------------------------------------------------------------


def intervals(group: Sequence[Standing], lines: Sequence[Line]) -> Spec | None:
    """Return medians and intervals side by side, where one size of a collective was measured."""
    rows = []
    for line in lines:
        for _, e in line.points[:1]:
            low, high = ends(e)
            if e.value > 0:
                label = formatting.time(e.value)
                rows.append({
                    "name": line.name, "value": e.value, "low": low, "high": high,
                    "colour": line.style.colour, "label": label, "short": label,
                    "said": f"{line.name}: {label}",
                })  # fmt: skip
    title, call = "time of a call (left is faster)", group[0].cell.title
    return whiskers(title, rows, of=call, labels=_TIME) if rows else None


def whiskers(
    title: str,
    rows: Sequence[Spec],
    *,
    of: str = "",
    labels: str = "",
    even: float | None = None,
) -> Spec:
    """Return a row for each value, with its interval, on a logarithmic axis.

    Parameters
    ----------
    title
        What the axis shows.
    rows
        "name", "value", "low", "high", "colour", "label" (at the right), "short" (the same on a
        narrow page) and "said" of each row.
    of
        The call, for readers that do not see the page.
    labels
        The expression that formats the axis; "" for plain numbers.
    even
        Where to draw a vertical line.
    """
    least = min([*(row["low"] for row in rows), *([even] if even else [])])
    most = max([*(row["high"] for row in rows), *([even] if even else [])])
    axis: Spec = {"labelExpr": labels} if labels else {}
    along: Spec = {
        "type": "quantitative", "title": None,
        "scale": {"type": "log", "nice": False, "padding": 10},
        "axis": {**axis, **_tick_axis(least, most)},
    }  # fmt: skip
    names = {
        "field": "name", "type": "nominal", "title": None, "sort": None,
        "axis": {"labelColor": _INK, "labelFontSize": 12, "grid": False, "domain": False,
                 "ticks": False},
    }  # fmt: skip
    layers = _whisker_layers(along)
    if even is not None:
        layers.insert(0, {
            "data": {"values": [{"even": even}]}, "mark": {"type": "rule", "color": _INK},
            "encoding": {"x": {"field": "even", **along}, "y": None},
        })  # fmt: skip
    # "fit-x" makes room for names and labels: long ones leave none for the values on a phone
    shown = f"containerSize()[0] < {_NARROW} ? datum.short : datum.label"
    return _whole(of, title, 24 * len(rows) + 10, {
        "transform": [{"calculate": shown, "as": "shown"}],
        "encoding": {"y": names}, "layer": layers,
    }, rows)  # fmt: skip


def _whisker_layers(along: Spec) -> list[Spec]:
    """Return the interval, the value and the label of each row."""
    colour = {"field": "colour", "type": "nominal", "scale": None}
    said = {"field": "said", "type": "nominal"}
    return [
        {"mark": {"type": "rule", "strokeWidth": 2.4}, "params": [
            {"name": "zoom", "bind": "scales", "select": {
                "type": "interval", "encodings": ["x"], "zoom": "wheel![event.ctrlKey]"}}],
         "encoding": {
             "x": {"field": "low", **along}, "x2": {"field": "high"}, "color": colour}},
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1}, "encoding": {
            "x": {"field": "value", **along}, "color": colour, "tooltip": said}},
        {"mark": {"type": "text", "align": "left", "dx": 8, "clip": False}, "encoding": {
            "x": {"value": "width"}, "text": {"field": "shown", "type": "nominal"}}},
    ]  # fmt: skip


def ends(e: Estimate | Ratio) -> tuple[float, float]:
    """Return the drawn ends of an interval: up to a factor of ten, or none."""
    if math.isnan(e.low):
        return e.value, e.value
    return max(e.low, e.value / 10), min(e.high, e.value * 10)


def _whole(
    of: str, title: str, height: float, spec: Mapping[str, Any], rows: Sequence[Spec]
) -> Spec:
    return {
        "title": title, "description": f"{of}: {title}" if of else title,
        "width": "container", "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"}, "config": _CONFIG,
        "data": {"values": list(rows)}, **spec,
    }  # fmt: skip


# --- in the page ----------------------------------------------------------------------------------


def as_data(spec: Spec) -> str:
    """Return a specification as JSON that can be inside of a ``script`` element."""
    return json.dumps(spec, allow_nan=False).replace("<", "\\u003c")


def program() -> tuple[list[str], str]:
    """Return the scripts that draw charts, and the page's policy that allows these alone."""
    folder = resources.files(__package__)
    files = [folder / "vega/vega.min.js", folder / "vega/vega-lite.min.js", folder / "charts.js"]
    scripts = [file.read_text(encoding="utf-8") for file in files]
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    # Vega compiles the expressions of a specification.
    allowed = " ".join(["'unsafe-eval'", *(f"'sha256-{digest}'" for digest in digests)])
    return scripts, f"; script-src {allowed}"
