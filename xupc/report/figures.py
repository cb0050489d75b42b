"""The report's drawings: curves, intervals side by side, the node tree, the timeline of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..backends.simulator.timeline import Act, Timeline
from ..bench.results import FLOOR, PEER, Candidate, Job
from ..bench.stats import Estimate
from ..topology.tree import Tree
from . import formatting
from .bounds import Bound
from .findings import CHOSEN, Standing
from .svg import MARKS, Axis, mark, path, spread_out, tag, text

__all__ = ["Line", "curves", "intervals", "lines_of", "styles", "timeline", "tree"]

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 132, 30, 40
_KNOWN = {CHOSEN: 0, "PULL": 1, "PUSH": 2, "MULTICORE": 3, "plan": 4}
_FIRST_PEER, _STYLES = 5, 8

NODES_DRAWN, THREADS_DRAWN, NODES_IN_A_ROW = 12, 12, 4


@dataclass(frozen=True)
class Style:
    """How a candidate is drawn: a CSS class for colour and dashes, and a marker."""

    class_: str
    mark: str


@dataclass(frozen=True)
class Line:
    """A candidate's times by size."""

    name: str
    kind: str
    style: Style
    points: list[tuple[int, Estimate]]


def styles(candidates: Sequence[Candidate]) -> dict[str, Style]:
    """By name: the same for the same name in all plots of a page, as far as that goes."""
    found, peers, others = {}, _FIRST_PEER, 0
    for candidate in candidates:
        name = candidate.name
        if candidate.kind == FLOOR:
            found[name] = Style("floor", "none")
            continue
        if name in _KNOWN:
            number = _KNOWN[name]
        elif candidate.kind == PEER:
            number, peers = peers, peers + 1
        else:
            number, others = 1 + others % 4, others + 1
        number = number if number < _STYLES else _FIRST_PEER + number % 3
        found[name] = Style(f"s{number}", MARKS[number])
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
    """A bound's line in a plot."""

    name: str
    points: list[tuple[int, float]]


def curves(group: Sequence[Standing], lines: Sequence[Line], bounds: Sequence[Bound]) -> list[str]:
    """Time against size, and bandwidth against size: two drawings."""
    cells = [standing.cell for standing in group]
    limits = [_Limit(b.name, [(c.nbytes, b.least(c)) for c in cells]) for b in bounds]
    moved = {cell.nbytes: cell.moved for cell in cells}
    if len({size for size in moved if size > 0}) < 2:
        return []

    def as_rate(nbytes: int, ns: float) -> float:
        return moved[nbytes] / ns * 1e9

    title = group[0].cell.title
    latency = _plot(
        f"{title}: time", lines, limits, lambda nbytes, ns: ns, formatting.time, faster_down=True
    )
    if not all(moved.values()):
        return [latency]
    timed = [line for line in lines if line.kind != FLOOR]
    rates = [limit for limit in limits if limit.name != "cache line"]
    return [
        latency,
        _plot(f"{title}: bandwidth", timed, rates, as_rate, formatting.rate, faster_down=False),
    ]


def _plot(
    title: str,
    lines: Sequence[Line],
    limits: Sequence[_Limit],
    of: Callable[[int, float], float],
    unit: Callable[[float], str],
    *,
    faster_down: bool,
) -> str:
    """A plot on two logarithmic axes."""
    ys = [of(x, e) for line in lines for x, v in line.points for e in _ends(v)]
    sizes = sorted({x for line in lines for x, _ in line.points})
    x = Axis(sizes[0], sizes[-1], LEFT + 8, WIDTH - RIGHT - 6)
    y = _upright(ys, limits, of)
    parts = [*_grid(x, y, sizes, unit), *_limits(limits, of, x, y, below=faster_down)]
    ends = []
    for line in lines:
        points = [(x(size), y(of(size, e.value))) for size, e in line.points]
        if not points:
            continue
        parts += _curve(line, points, of, x, y)
        ends.append((line, points[-1]))
    parts += _names(ends)
    what = "time of a call" if faster_down else "bandwidth"
    arrow = "lower is faster" if faster_down else "higher is faster"
    parts.append(text(4, 14, f"{what} ({arrow})", class_="axis"))
    parts.append(text(WIDTH - RIGHT, HEIGHT - 4, "bytes per block", class_="axis end"))
    return _svg(title, WIDTH, HEIGHT, parts)


def _upright(
    values: Sequence[float], limits: Sequence[_Limit], of: Callable[[int, float], float]
) -> Axis:
    """The vertical axis: of all values, and of limits that are not far away from them."""
    low, high = min(values), max(values)
    near = [
        v
        for limit in limits
        for size, ns in limit.points
        if ns > 0 and low / 6 <= (v := of(size, ns)) <= high * 6
    ]
    return Axis.around([*values, *near], HEIGHT - BOTTOM - 8, TOP + 6)


def _grid(x: Axis, y: Axis, sizes: Sequence[int], unit: Callable[[float], str]) -> list[str]:
    parts = []
    for value in y.decades():
        at = y(value)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at))
        parts.append(text(LEFT - 5, at + 4, unit(value), class_="tick end"))
    room = max(1, -(-len(sizes) // 5))
    for i, size in enumerate(sizes):
        at = x(size)
        shown = i % room == 0
        foot = HEIGHT - BOTTOM
        parts.append(
            tag("line", class_="grid", x1=at, x2=at, y1=TOP if shown else foot, y2=foot + 3)
        )
        if shown:
            parts.append(text(at, foot + 16, formatting.size(size), class_="tick middle"))
    return parts


def _limits(
    limits: Sequence[_Limit],
    of: Callable[[int, float], float],
    x: Axis,
    y: Axis,
    *,
    below: bool,
) -> list[str]:
    """Bound lines, as far as they are in the plot; named on the side where no curve can be."""
    parts = []
    for limit in limits:
        points = [
            (x(size), y(v)) for size, ns in limit.points if ns > 0 and y.holds(v := of(size, ns))
        ]
        if len(points) < 2:
            continue
        parts.append(tag("path", class_="bound", d=path(points)))
        (x1, y1), (x2, y2) = points[:2]
        side = 1 if below else -1
        at = (x1 + x2) / 2 + 5 * side, (y1 + y2) / 2 + (12 if below else -4)
        parts.append(text(*at, limit.name, class_="limit" if below else "limit above"))
    return parts


def _curve(
    line: Line,
    points: Sequence[tuple[float, float]],
    of: Callable[[int, float], float],
    x: Axis,
    y: Axis,
) -> list[str]:
    """The band of intervals, the line, the markers."""
    class_ = line.style.class_
    parts = []
    if line.kind != FLOOR:
        top = [(x(size), y(of(size, _ends(e)[1]))) for size, e in line.points]
        bottom = [(x(size), y(of(size, _ends(e)[0]))) for size, e in line.points]
        d = path([*top, *bottom[::-1]], closed=True)
        parts.append(tag("path", class_=f"band {class_}", d=d))
    parts.append(tag("path", class_=f"line {class_}", d=path(points)))
    if line.name == CHOSEN or line.kind == FLOOR:
        return parts
    for (px, py), (size, e) in zip(points, line.points, strict=True):
        said = f"{line.name}, {formatting.size(size)}: {formatting.time(e.value)} ({_interval(e)})"
        parts.append(tag("g", tag("title", _escaped(said)), mark(line.style.mark, px, py, class_)))
    return parts


def _ends(e: Estimate) -> tuple[float, float]:
    """What is drawn of an interval: up to a factor of ten, nothing where there is none."""
    if math.isnan(e.low):
        return e.value, e.value
    return max(e.low, e.value / 10), min(e.high, e.value * 10)


def _interval(e: Estimate) -> str:
    if math.isnan(e.low):
        return "fewer than three launches, no interval"
    return f"{formatting.time(e.low)} to {formatting.time(e.high)}"


def _names(ends: Sequence[tuple[Line, tuple[float, float]]]) -> list[str]:
    """Each line's name at its end, apart from the others'."""
    places = spread_out([y for _, (_, y) in ends], 14, TOP, HEIGHT - BOTTOM + 4)
    parts = []
    for (line, (x, y)), place in zip(ends, places, strict=True):
        at, class_ = WIDTH - RIGHT + 10, line.style.class_
        parts.append(tag("path", class_="leader", d=path([(x + 4, y), (at - 3, place)])))
        if line.name == CHOSEN or line.kind == FLOOR:
            parts.append(
                tag("path", class_=f"line {class_}", d=path([(at, place), (at + 10, place)]))
            )
        else:
            parts.append(mark(line.style.mark, at + 5, place, class_))
        parts.append(text(at + 14, place + 4, _short(line.name, 15), class_="name"))
    return parts


def intervals(group: Sequence[Standing], lines: Sequence[Line]) -> str:
    """Medians and intervals side by side, for a collective of which one size was measured."""
    shown = [(line, line.points[0][1]) for line in lines if line.points]
    if not shown:
        return ""
    height = TOP + 22 * len(shown) + 34
    values = [v for _, e in shown for v in _ends(e)]
    x = Axis.around(values, 110, WIDTH - 74)
    parts = []
    for value in x.decades():
        at = x(value)
        parts.append(tag("line", class_="grid", x1=at, x2=at, y1=TOP - 8, y2=height - 30))
        parts.append(text(at, height - 15, formatting.time(value), class_="tick middle"))
    for i, (line, e) in enumerate(shown):
        y, class_ = TOP + 6 + 22.0 * i, line.style.class_
        parts.append(text(104, y + 4, _short(line.name, 16), class_="name end"))
        low, high = (x(end) for end in _ends(e))
        parts.append(tag("line", class_=f"whisker {class_}", x1=low, x2=high, y1=y, y2=y))
        kind = line.style.mark if line.style.mark != "none" else "ring"
        parts.append(mark(kind, x(e.value), y, class_, 4.2))
        parts.append(text(WIDTH - 68, y + 4, formatting.time(e.value), class_="name"))
    parts.append(text(4, 14, "time of a call (left is faster)", class_="axis"))
    return _svg(f"{group[0].cell.title}: time", WIDTH, height, parts)


# --- the node tree --------------------------------------------------------------------------------


def tree(nodes: Tree, job: Job) -> str:
    """Nodes as boxes with their threads, joined by the network at their node roots."""
    shown = min(nodes.node_count, NODES_DRAWN)
    wide, gap, r = 100, 8, 9.5
    columns = min(NODES_IN_A_ROW, shown)
    most = max(min(nodes.node_size(k), THREADS_DRAWN) for k in range(shown))
    inside = 58 + 24 * -(-(most - 1) // 4) + (14 if _hidden(nodes, shown) else 0)
    pitch = inside + (34 if nodes.node_count > 1 else 12)
    parts = []
    for k in range(shown):
        left = (k % columns) * (wide + gap) + 4
        top = (k // columns) * pitch + (22 if nodes.node_count > 1 else 4)
        parts += _node(nodes, job, k, left, top, wide, inside, r)
    if nodes.node_count > 1:
        for row in range(-(-shown // columns)):
            here = min(columns, shown - row * columns)
            y, last = row * pitch + 10.0, (here - 1) * (wide + gap) + 4 + wide / 2
            parts.insert(0, tag("line", class_="wire", x1=4 + wide / 2, x2=last, y1=y, y2=y))
        if shown > columns:  # the rows are on one network
            end = (-(-shown // columns) - 1) * pitch + 10.0
            parts.insert(0, tag("path", class_="wire", d=path(
                [(4 + wide / 2, 10.0), (1.5, 10.0), (1.5, end), (4 + wide / 2, end)])))  # fmt: skip
    rows = -(-shown // columns)
    width, height = columns * (wide + gap), rows * pitch + 6.0
    return _svg("node tree", width, height, parts)


def _hidden(nodes: Tree, shown: int) -> bool:
    return any(nodes.node_size(k) > THREADS_DRAWN for k in range(shown))


def _node(
    nodes: Tree, job: Job, k: int, left: float, top: float, wide: float, high: float, r: float
) -> list[str]:
    """A node: its root on top, its other threads below."""
    members = nodes.members(k).tolist()
    host = job.hosts[k] if k < len(job.hosts) else ""
    middle = left + wide / 2
    parts = [tag("rect", class_="node", x=left, y=top, width=wide, height=high, rx=5)]
    if nodes.node_count > 1:
        parts.insert(0, tag("line", class_="wire", x1=middle, x2=middle, y1=top - 12, y2=top + 14))
    others = members[1:THREADS_DRAWN]
    columns = min(4, len(others))
    for i, thread in enumerate(others):
        x = middle + (i % 4 - (columns - 1) / 2) * 24.0
        y = top + 44 + (i // 4) * 24.0
        if i < 4:
            parts.append(tag("line", class_="twig", x1=middle, x2=x, y1=top + 16, y2=y))
        parts.append(_thread(thread, x, y, r, "thread"))
    parts.append(_thread(members[0], middle, top + 16, r, "thread root"))
    if len(members) > THREADS_DRAWN:
        more = f"and {len(members) - THREADS_DRAWN} more"
        parts.append(text(middle, top + high - 19, more, class_="tick middle"))
    name = _short(f"{k}: {host}" if host else f"node {k}", 15)
    parts.append(text(middle, top + high - 6, name, class_="tick middle"))
    return parts


def _thread(number: int, x: float, y: float, r: float, class_: str) -> str:
    small = " small" if number > 999 else ""
    return tag("circle", class_=class_, cx=x, cy=y, r=r) + text(
        x, y + 3.5, number, class_=f"number middle {class_}{small}"
    )


# --- the timeline ---------------------------------------------------------------------------------

LANE_OF = {"send": 1, "receive": 2, "get": 2}
_FAINTEST = 0.6  # what is narrower, in pixels, is drawn with its neighbour


def timeline(happened: Timeline, names: dict[int, str]) -> str:
    """A row for each of the threads in `names`: by hand above, its network below."""
    left, right, wide = 150, 16, 880
    axis = _Linear(happened.end or 1.0, left, wide - right)
    parts: list[str] = []
    top = 26.0
    body = []
    for rank, name in names.items():
        acts = happened.of(rank)
        lanes = sorted({LANE_OF.get(act.kind, 0) for act in acts} | {0})
        high = 15.0 + 9 * (len(lanes) - 1)
        body.append(text(left - 8, top + 11, _short(name, 24), class_="name end"))
        body.append(
            tag("line", class_="grid", x1=left, x2=wide - right, y1=top + high + 3,
                y2=top + high + 3)
        )  # fmt: skip
        for lane in lanes:
            mine = [act for act in acts if LANE_OF.get(act.kind, 0) == lane]
            y = top if lane == 0 else top + 15 + 9 * (lanes.index(lane) - 1)
            for act, times in _merged(mine, axis):
                body.append(_bar(act, times, axis, y, 13.0 if lane == 0 else 7.0))
        top += high + 7
    for share in range(5):
        at = axis(happened.end * share / 4)
        parts.append(tag("line", class_="grid", x1=at, x2=at, y1=20, y2=top))
        parts.append(
            text(at, 14, formatting.time(happened.end * share / 4) if share else "0",
                 class_="tick end" if share == 4 else "tick middle")
        )  # fmt: skip
    return _svg("timeline of a plan", wide, top + 4, [*parts, *body])


@dataclass(frozen=True)
class _Linear:
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * value / self.high


def _merged(acts: Sequence[Act], axis: _Linear) -> list[tuple[Act, int]]:
    """Neighbours of one kind with no gap to see between them as one, and how many they are."""
    found: list[tuple[Act, int]] = []
    for act in acts:
        last, times = found[-1] if found else (None, 0)
        if (
            last is not None
            and last.kind == act.kind
            and axis(act.start) - axis(last.end) < _FAINTEST
            and (last.peer == act.peer or axis(act.end) - axis(act.start) < 3)
        ):
            peer = last.peer if last.peer == act.peer else -1
            end, nbytes = max(last.end, act.end), last.nbytes + act.nbytes
            found[-1] = Act(act.kind, act.thread, last.start, end, nbytes, peer), times + 1
        else:
            found.append((act, 1))
    return found


def _bar(act: Act, times: int, axis: _Linear, y: float, high: float) -> str:
    x = axis(act.start)
    wide = max(axis(act.end) - x, 0.8)
    several = f" in {times} pieces" if times > 1 else ""
    data = f" {formatting.size(act.nbytes)}{several}" if act.nbytes else ""
    peer = f"{_TOWARDS[act.kind]} {act.peer}" if act.peer >= 0 else ""
    took = formatting.time(act.end - act.start)
    said = f"thread {act.thread}: {act.kind}{data}{peer and ' ' + peer}, {took}"
    bar = tag("rect", class_=f"act {act.kind}", x=x, y=y, width=wide, height=high)
    label = formatting.size(act.nbytes)
    if high > 10 and act.nbytes and wide > 7.5 * len(label):
        bar += text(x + wide / 2, y + 10, label, class_=f"inside middle {act.kind}")
    return tag("g", tag("title", _escaped(said)), bar)


_TOWARDS = {"send": "to", "receive": "from", "get": "from"}


# --- helpers --------------------------------------------------------------------------------------


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    return tag(
        "svg", tag("title", _escaped(title)), *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}", width=float(width), height=float(height),
        role="img", aria_label=title,
    )  # fmt: skip


def _escaped(words_: str) -> str:
    return words_.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
