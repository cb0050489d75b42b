"""Rows of recorded calls under the sanitizers: `call_trace.c` says which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sanitizers import compiled, damaged, output_of

SOURCE = Path(__file__).with_name("call_trace.c")

pytestmark = pytest.mark.once


def run(folder: Path, **headers: str) -> str:
    """Compile the driver, maybe with another header, and return the output of a run."""
    return output_of(compiled(folder, SOURCE, "address", **headers))


def test_no_call_is_lost_and_no_row_written_beyond_the_last(tmp_path: Path) -> None:
    text = run(tmp_path)
    assert text.endswith("0 wrong\n"), text


BROKEN = {
    "a full log": ("while (head->count == head->capacity) xt_thin(log);", "", "buffer-overflow"),
    "a row too many": (
        "if (head->level && !xt_stays(row->op, head->level)) {",
        "if (head->level > 1 && !xt_stays(row->op, head->level - 1)) {",
        "rows",
    ),
    "totals forgotten": ("            xt_add(log, &log->rows[i]);", "            continue;", "sum"),
    "an open row shared": ("    if (!log->busy) {", "    if (1) {", "inside"),
    "the last wait counts": ("if (ns >= row->longest) row", "row", "waits"),
}


@pytest.mark.rotates
@pytest.mark.parametrize("how", BROKEN)
def test_a_mistake_is_noticed(how: str, tmp_path: Path) -> None:
    right, wrong, seen = BROKEN[how]
    text = run(tmp_path, **damaged("call_trace", right, wrong))
    assert re.search(r"status -?\d+$", text), text
    assert seen in text
