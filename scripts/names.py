"""Prints docs/names.md, from the tables of `xupc.upc`: python scripts/names.py > docs/names.md."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xupc import upc

HEAD = """\
# The documents' names

`from xupc.upc import *` gives these names, with the arguments in the documents' order. T is one of
{types}.

This page is made by `python scripts/names.py > docs/names.md`.
"""
TITLES = {
    upc.UPC: "UPC Required Library Specifications 1.3",
    upc.PAPER: "The XUPC paper",
    upc.THESIS: "The extensions thesis (MTU CS-TR-05-08)",
    upc.LANGUAGE: "What the documents use of the UPC language",
}


def functions() -> str:
    """Return the tables of every function of every document."""
    entries = upc.TABLE
    parts = []
    for document, title in TITLES.items():
        rows = [_row(entry) for entry in entries if entry.document == document]
        parts.append(f"## {title}\n\n{_table('name | section | stands for | what it does', rows)}")
    return "\n".join(parts)


def _row(entry: upc.Entry) -> str:
    name = entry.name.format("T")
    return f"`{name}` | {entry.section} | `xupc.{entry.function}` | {entry.what}"


def constants() -> str:
    """Return the table of every constant."""
    rows = [
        f"`{name}` | `xupc.{name.removeprefix('UPC_')}`"
        for name in upc.CONSTANTS
        if name != "UPC_HANDLE_COMPLETE"
    ]
    rows.append("`UPC_HANDLE_COMPLETE` | every handle that has been waited for")
    rows += [f"`{name}` | 1" for name in ("__UPC_COLLECTIVE__", "__UPC_TICK__")]
    return f"## Constants\n\n{_table('name | equals', rows)}"


def _table(head: str, rows: Iterable[str]) -> str:
    rule = "|".join("---" for _ in head.split("|"))
    return "".join(f"| {row} |\n" for row in (head, *rows)).replace("\n", f"\n|{rule}|\n", 1)


if __name__ == "__main__":
    print(HEAD.format(types=" ".join(upc.TYPES)), functions(), constants(), sep="\n", end="")
