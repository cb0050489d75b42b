"""A chart of how many times as fast as a peer xupc is, call by call, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .findings import Standing, Versus
from .formatting import margin, size
from .svg import Axis, mark, tag, text

__all__ = ["compared", "ratio_chart"]

WIDTH, LEFT, RIGHT, TOP, ROW = 520, 170, 146, 34, 24
_COLOURS = {"win": "s1", "LOSS": "s5"}


def compared(standings: Sequence[Standing], peer: str) -> list[tuple[Standing, Versus]]:
    """Return the cells that were compared with a peer, and the comparison."""
    return [(s, v) for s in standings for v in s.versus if v.peer == peer]


def ratio_chart(standings: Sequence[Standing], peer: str) -> str:
    """Return a row for each cell that was compared with a peer; "" if there is none."""
    rows = compared(standings, peer)
    if not rows:
        return ""
    height = TOP + ROW * len(rows) + 30
    ends = [end for _, versus in rows for end in _ends(versus)]
    axis = Axis.around([1.0, *ends], LEFT + 6, WIDTH - RIGHT)
    title = f"how many times as fast as {peer}"
    head = text(4, 15, f"{title} (right of 1: xupc is faster)", class_="axis")
    parts = [head, *_grid(axis, height)]
    for i, (standing, versus) in enumerate(rows):
        parts += _row(standing, versus, axis, TOP + 12.0 + ROW * i)
    return tag(
        "svg", tag("title", title), *parts, viewBox=f"0 0 {WIDTH} {height}", width=float(WIDTH),
        height=float(height), role="img", aria_label=title,
    )  # fmt: skip


def _ends(versus: Versus) -> tuple[float, float]:
    """Return the drawn ends of an interval: up to a factor of ten, or none."""
    r = versus.ratio
    if math.isnan(r.low):
        return r.value, r.value
    return max(r.low, r.value / 10), min(r.high, r.value * 10)


def _grid(axis: Axis, height: float) -> list[str]:
    parts = []
    for value in axis.decades():
        at, class_ = axis(value), "even" if value == 1 else "grid"
        parts.append(tag("line", class_=class_, x1=at, x2=at, y1=TOP - 8, y2=height - 26))
        parts.append(text(at, height - 11, f"{value:g}", class_="tick middle"))
    return parts


def _row(standing: Standing, versus: Versus, axis: Axis, y: float) -> list[str]:
    cell, class_ = standing.cell, _COLOURS.get(versus.verdict, "floor")
    name = f"{cell.collective}, {size(cell.nbytes)}" if cell.nbytes else cell.collective
    low, high = (axis(end) for end in _ends(versus))
    won = versus.verdict == "win"
    said = margin(versus.ratio.value) + ("" if won else f", {versus.verdict}")
    return [
        text(LEFT - 8, y + 4, name, class_="name end"),
        tag("line", class_=f"whisker {class_}", x1=low, x2=high, y1=y, y2=y),
        mark("disc" if won else "box", axis(versus.ratio.value), y, class_, 4.2),
        text(WIDTH - RIGHT + 8, y + 4, said, class_="name"),
    ]
