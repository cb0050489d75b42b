"""Text in columns that never collide: each is as wide as its widest entry."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned"]

GAP = 2  # blanks between two columns, at least


def aligned(rows: Sequence[Sequence[str]], *, indent: int = 0, right: int | None = None,
            least: int = 0) -> list[str]:  # fmt: skip
    """Return rows as lines in columns.

    Parameters
    ----------
    rows : sequence of sequence of str
        They may have different numbers of entries.
    indent : int
        Blanks before each line.
    right : int, optional
        The first column whose entries are flush right; by default none is.
    least : int
        The least width of a column that is flush right.
    """
    count = max((len(row) for row in rows), default=0)
    first = count if right is None else right
    widths = [_width(rows, k, least if k >= first else 0) for k in range(count)]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if k >= first else text.ljust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append((" " * indent + (" " * GAP).join(cells)).rstrip())
    return lines


def _width(rows: Sequence[Sequence[str]], column: int, least: int) -> int:
    # the last entry of a row pushes no other entry aside
    return max(least, *(len(row[column]) for row in rows if len(row) > column))
