"""Small things that the reports share: Markdown tables, and sizes and times for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["size", "table", "time_of"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are aligned to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def size(nbytes: int) -> str:
    """Like ``8 B`` or ``64 KiB``; empty for 0, which the barrier has."""
    if not nbytes:
        return ""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def time_of(ns: float) -> str:
    """In us below 10 ms, else in ms, with three digits."""
    value, unit = (ns / 1e3, "µs") if ns < 1e7 else (ns / 1e6, "ms")
    if value >= 100:
        return f"{value:.0f} {unit}"
    return f"{value:.3g} {unit}"
