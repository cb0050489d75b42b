"""Sizes, times and rates for people, and Markdown tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

__all__ = ["count", "fact", "margin", "plain", "rate", "size", "table", "time"]

_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_DECIMAL = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


def size(nbytes: float) -> str:
    """Return a size like ``8 B``, ``64 KiB`` or ``1.5 MiB``."""
    for unit, name in _BINARY:
        if abs(nbytes) >= unit:
            return f"{_digits(nbytes / unit)} {name}"
    return f"{nbytes:.0f} B"


def time(ns: float) -> str:
    """Return a time with three digits, like ``1.25 µs``."""
    return _scaled(ns, _TIMES, "ns")


def rate(bytes_per_second: float) -> str:
    """Return a rate with three digits, like ``9.1 GB/s``."""
    return _scaled(bytes_per_second, _DECIMAL, "B/s")


def _scaled(value: float, units: Sequence[tuple[float, str]], least: str) -> str:
    if not math.isfinite(value):
        return "?"
    for unit, name in units:
        if abs(value) >= 0.9995 * unit:  # what rounds to 1000 of a unit is 1 of the next
            return f"{_digits(value / unit)} {name}"
    return f"{_digits(value)} {least}"


def _digits(value: float) -> str:
    """Return three digits of a number, without zeros at the end of a fraction."""
    text = f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"
    return text if "e" not in text else f"{value:.0f}"


def margin(ratio: float) -> str:
    """Return a ratio like ``1.32×``; large ones with fewer digits."""
    if not math.isfinite(ratio):
        return "?"
    return f"{ratio:.0f}×" if ratio >= 20 else f"{ratio:.1f}×" if ratio >= 5 else f"{ratio:.2f}×"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, like ``1 loss`` or ``2 launches``."""
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def plain(text: object) -> str:
    """Return Markdown that shows just this text, on one line: a result may hold any characters."""
    flat = " ".join(str(text).split())
    return re.sub(r"([\\`*{}\[\]<>|#~$&]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", flat)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def fact(value: object) -> str:
    """Return a value of a result's `about` as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(fact, value))
    return str(value)
