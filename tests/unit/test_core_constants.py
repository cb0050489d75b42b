"""Numbers that the native core and Python each write down: they must be the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from xupc.backends import wait
from xupc.backends.native import lowering, rows
from xupc.comm import mpi, plan_messages
from xupc.health import control_layout
from xupc.plan import lanes, steps
from xupc.reduction import ufunc_capture, whole_arrays
from xupc.runtime import team_records

NATIVE = Path(lowering.__file__).parent
CORE = (NATIVE / "shm_protocol.h").read_text()
MESSAGES = (NATIVE / "mpi_messages.h").read_text()
FUNCTIONS = (NATIVE / "user_functions.h").read_text()
CYTHON = (NATIVE / "_core.pyx").read_text()


def written(pattern: str, text: str = CORE) -> int:
    (value,) = re.findall(pattern, text)
    return int(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XU_SLOTS", steps.SLOTS),
        ("XU_CHANNELS", lanes.CHANNELS),
        ("XU_LANES", len(steps.LANES)),
        ("XU_SLOT", steps.OP_SCRATCH),
        ("XU_OPERANDS", steps.STAGING + 1),
        ("XU_SLOT_BYTES", steps.OP_SCRATCH_BYTES),
        ("XU_DEPTH", steps.FOLD_DEPTH),
        ("XU_RING", control_layout.RING),
    ],
)
def test_sizes(name: str, value: int) -> None:
    assert written(rf"#define {name} +(\d+)") == value


def test_what_messages_are() -> None:
    assert written(r"#define XM_STATUS (\d+)", MESSAGES) == mpi.STATUS
    assert written(r"#define XM_SERIES (\d+)", MESSAGES) == plan_messages.SERIES


def test_functions() -> None:
    assert 1 << written(r"#define XF_BLOCK \(1 << (\d+)\)", FUNCTIONS) == whole_arrays.BLOCK
    assert written(r"#define XF_SHORT (\d+)", FUNCTIONS) == whole_arrays.SHORT
    assert written(r"#define XF_STEPS (\d+)", FUNCTIONS) == ufunc_capture.STEPS
    assert written(r"#define XF_CONSTANTS (\d+)", FUNCTIONS) == ufunc_capture.CONSTANTS
    assert written(r"#define XF_MOST (\d+)", FUNCTIONS) == ufunc_capture.MOST


def test_calls_without_a_barrier() -> None:
    assert written(r"\bRUN_AHEAD = (\d+)", CYTHON) == team_records.RUN_AHEAD == steps.SLOTS // 2


def test_outcomes() -> None:
    (body,) = re.findall(r"(XU_DONE = 0[^}]*)}", CORE)
    names = [name.split("=")[0].strip()[3:] for name in body.split(",")]
    assert [getattr(wait, name) for name in names] == list(range(len(names)))


def test_rows() -> None:
    """After a change of rows.py its docstring says how to write rows.h again."""
    assert (NATIVE / "rows.h").read_text() == rows.header()
    for kind in rows.KINDS:
        assert getattr(rows, kind.name.upper()) is kind


def test_a_row_has_exactly_the_fields_of_its_kind() -> None:
    with pytest.raises(TypeError, match="row wait: expected the fields channel, first, count"):
        rows.WAIT(channel=0, value=1)
    with pytest.raises(TypeError, match="row barrier: expected the fields none, got led"):
        rows.BARRIER(led=1)
    assert rows.shown(rows.RELEASE(led=1)) == ("release", {"led": 1})


@pytest.mark.parametrize("kind", rows.KINDS, ids=lambda kind: kind.name)
def test_numbers_of_rows(kind: rows.Kind) -> None:
    """What is put into a row is found there, each number in its own bytes."""
    given, count = {}, 1
    for name, field in kind.fields.items():
        values = tuple(range(count, count + max(1, len(field.fields))))
        given[name] = values if field.fields else values[0]
        count += len(values)
    row = kind(**given)
    assert len(row) == rows.ROW_BYTES
    name, numbers = rows.shown(row)
    assert (name, list(numbers.values())) == (kind.name, list(range(1, count)))


def test_a_table_of_steps_lacks_no_kind() -> None:
    records = [x for x in vars(steps).values() if isinstance(x, type) and x is not steps.Step]
    assert set(steps.KINDS) == {x for x in records if issubclass(x, steps.Step)}
    table = dict.fromkeys(steps.KINDS, 0)
    assert steps.by_kind("a backend", table) == table
    del table[steps.Swap]
    with pytest.raises(TypeError, match=r"a backend: expected an entry .* missing: Swap; "):
        steps.by_kind("a backend", table)
    table[steps.Step] = table[steps.Swap] = 0
    with pytest.raises(TypeError, match="missing: none; not in KINDS: Step"):
        steps.by_kind("a backend", table)


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [("xu_status", control_layout.STATUS), ("xu_ring", control_layout.CALL_RING)],
)
def test_lines_that_control_shares(struct: str, dtype: np.dtype[np.void]) -> None:
    """Its fields stand where the core has room for them, and fill the line."""
    (body,) = re.findall(rf"typedef struct {{([^}}]*)}} {struct};", CORE)
    own = re.findall(r"xu_word (\w+);", body)
    room = written(r"uint64_t of_control\[(\d+)\]", body)
    assert dtype.names
    assert dtype.fields
    assert list(dtype.names[: len(own)]) == own
    assert dtype.fields[dtype.names[len(own)]][1] == 8 * len(own)
    calls = control_layout.RING * control_layout.CALL.itemsize if "xu_call" in body else 0
    assert dtype.itemsize - calls == 8 * (len(own) + room) == control_layout.LINE
