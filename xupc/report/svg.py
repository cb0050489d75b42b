"""Drawings as SVG text: elements and paths. Colours are CSS classes of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["path", "tag", "text"]

def tag(name: str, *inside: str, **attributes: object) -> str:
    """Return an element; `inside` is SVG, the values of attributes are escaped.

    In the names of attributes ``_`` becomes ``-``; ``class_`` is ``class``.
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{pairs}>{''.join(inside)}</{name}>" if inside else f"<{name}{pairs}/>"


def _value(value: object) -> str:
    """Return a number with one decimal, which is enough for a drawing; anything else escaped."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(str(value))


def text(x: float, y: float, words: object, **attributes: object) -> str:
    """Return words, escaped."""
    return tag("text", escape(str(words)), x=float(x), y=float(y), **attributes)


def path(points: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """Return the d of a path."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z" * closed
