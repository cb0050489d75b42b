"""Rows of recorded calls under the sanitizers: `call_trace.c` says which."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.sanitizers import NATIVE, SANITIZERS, compiled

SOURCE = Path(__file__).with_name("call_trace.c")

pytestmark = pytest.mark.once


def run(folder: Path, **headers: str) -> subprocess.CompletedProcess[str]:
    program = compiled(folder, SOURCE, SANITIZERS["address"], **headers)
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


def test_no_call_is_lost_and_no_row_written_beyond_the_last(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("0 wrong\n")


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


@pytest.mark.parametrize("how", BROKEN)
def test_a_mistake_is_noticed(how: str, tmp_path: Path) -> None:
    before, after, seen = BROKEN[how]
    text = (NATIVE / "call_trace.h").read_text()
    assert text.count(before) == 1
    done = run(tmp_path, call_trace=text.replace(before, after))
    assert done.returncode != 0
    assert seen in done.stdout + done.stderr
