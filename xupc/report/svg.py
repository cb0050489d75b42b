"""Drawings as SVG text: elements, axes, marks. Colours are CSS classes of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["MARKS", "Axis", "mark", "path", "spread_out", "tag", "text"]

MARKS = "disc", "square", "triangle", "diamond", "ring", "cross", "wedge", "box"


_SQUARE = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)]
_CORNERS: dict[str, list[tuple[float, float]]] = {
    "square": _SQUARE,
    "box": _SQUARE,
    "triangle": [(0, -1.25), (1.15, 0.9), (-1.15, 0.9)],
    "wedge": [(0, 1.25), (1.15, -0.9), (-1.15, -0.9)],
    "diamond": [(0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)],
    "cross": [
        (-1.25, -1.25), (0, -0.45), (1.25, -1.25), (0.45, 0),
        (1.25, 1.25), (0, 0.45), (-1.25, 1.25), (-0.45, 0),
    ],
}  # fmt: skip


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element; `inside` is SVG, attributes are escaped; ``_`` becomes ``-``, class_ class."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{''.join(inside)}</{name}>" if inside else f"<{name}{pairs}/>"


def _value(value: object) -> str:
    """A number with one decimal, which is enough for a drawing; anything else escaped."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(str(value))


def text(x: float, y: float, words: object, **attributes: object) -> str:
    """Words, escaped."""
    return tag("text", escape(str(words)), x=float(x), y=float(y), **attributes)


def path(points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """The d of a path."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z" * closed


def mark(kind: str, x: float, y: float, class_: str, r: float = 3.4) -> str:
    """A marker; those of different kinds differ in shape, not in colour alone."""
    if kind in ("disc", "ring"):
        return tag("circle", class_=f"{class_} {kind}", cx=x, cy=y, r=r)
    corners = _CORNERS[kind]
    points = [(x + dx * r * 0.92, y + dy * r * 0.92) for dx, dy in corners]
    return tag("path", class_=f"{class_} {kind}", d=path(points, closed=True))


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from `low` to `high`, drawn from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low) or 1.0
        return self.start + (self.end - self.start) * math.log(value / self.low) / span

    def holds(self, value: float) -> bool:
        """Return True if a value is on the axis."""
        return self.low * 0.999 <= value <= self.high * 1.001

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """An axis that holds values with some room, ten to one at least."""
        low, high = min(values) / 1.25, max(values) * 1.25
        while high < 10 * low:
            low, high = low / 1.1, high * 1.1
        return cls(low, high, start, end)

    def decades(self) -> list[float]:
        """Powers of ten on it; 2 and 5 times them too if those are few."""
        powers = [10.0**k for k in range(-3, 16)]
        found = [p for p in powers if self.holds(p)]
        if len(found) >= 3:
            return found
        return [m * p for p in powers for m in (1, 2, 5) if self.holds(m * p)]


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near those wanted, at least `gap` apart, between `low` and `high` if that fits."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = list(wanted)
    for before, i in zip([-1, *order], order, strict=False):
        least = low if before < 0 else places[before] + gap
        places[i] = max(places[i], least)
    limit = high
    for i in reversed(order):
        places[i] = min(places[i], limit)
        limit = places[i] - gap
    return places
