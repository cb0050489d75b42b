"""A chart of how many times as fast as a peer xupc is, call by call, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Spec, ends, whiskers
from .findings import Standing, Versus
from .formatting import margin, size

__all__ = ["compared", "ratio_chart"]

_COLOURS = {"win": "var(--blue)", "LOSS": "var(--red)"}


def compared(standings: Sequence[Standing], peer: str) -> list[tuple[Standing, Versus]]:
    """Return the cells that were compared with a peer, and the comparison."""
    return [(s, v) for s in standings for v in s.versus if v.peer == peer]


def ratio_chart(standings: Sequence[Standing], peer: str) -> Spec | None:
    """Return a row for each cell that was compared with a peer; None if there is none."""
    rows = [_row(standing, versus) for standing, versus in compared(standings, peer)]
    title = f"how many times as fast as {peer} (right of 1: xupc is faster)"
    return whiskers(title, rows, even=1.0) if rows else None


def _row(standing: Standing, versus: Versus) -> Spec:
    cell, (low, high) = standing.cell, ends(versus.ratio)
    name = f"{cell.collective}, {size(cell.nbytes)}" if cell.nbytes else cell.collective
    short = margin(versus.ratio.value)
    label = short + ("" if versus.verdict == "win" else f", {versus.verdict}")
    return {
        "name": name, "value": versus.ratio.value, "low": low, "high": high, "label": label,
        "short": short,
        "colour": _COLOURS.get(versus.verdict, "var(--soft)"),
        "said": f"{name}: {label}, 95% interval {versus.ratio.interval()}",
    }  # fmt: skip
