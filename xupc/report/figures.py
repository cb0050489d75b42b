"""The report's drawings: the node tree, the timeline of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backends.simulator.activities import Act, Timeline
from ..bench.results import Job
from ..topology.tree import Tree
from . import formatting
from .svg import path, tag, text

__all__ = ["timeline", "tree"]

NODES_DRAWN, THREADS_DRAWN, NODES_IN_A_ROW = 12, 12, 4


# --- the node tree --------------------------------------------------------------------------------


def tree(nodes: Tree, job: Job) -> str:
    """Return nodes as boxes with their threads, joined by the network at their node roots."""
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
    """Return a node: its root on top, its other threads below."""
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
    """Return a row for each of the threads in `names`: by hand above, its network below."""
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
    """Return neighbours of one kind without a visible gap as one, with their number."""
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
