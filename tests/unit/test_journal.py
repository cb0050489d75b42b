"""What the journal of a communicator keeps of calls that MPI carries, with the core and without."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import xupc
from xupc.mpi import journal, journal_notes
from xupc.mpi.failures import met
from xupc.mpi.repeated import form_of

x, y, nine = np.zeros(8), np.zeros(8), np.zeros(9)
DOUBLES = [nine, 8, MPI.DOUBLE]


class Number:
    """A number of a class of the program's."""

    def __int__(self) -> int:
        return 0


Call = tuple[str, tuple[Any, ...], dict[str, Any], int | None, int | None]
ROOTS: list[tuple[Any, int | None]] = [
    (0, 0), (np.int64(0), 0), (np.uint8(0), 0), (False, 0), (Number(), None)
]  # fmt: skip
CALLS: list[Call] = [  # method, arguments, named ones; root and bytes that are kept
    *(("Bcast", (x, root), {}, kept, 64) for root, kept in ROOTS),
    *(("bcast", (1,), {"root": root}, kept, None) for root, kept in ROOTS),
    ("Bcast", (), {"buf": x, "root": 0}, 0, 64),
    ("Bcast", (DOUBLES,), {}, 0, None),
    ("Reduce", (x, y), {}, 0, 64),
    ("Reduce", (x, y, MPI.SUM, 0), {}, 0, 64),
    ("Reduce", (MPI.IN_PLACE, y), {"root": 0}, 0, None),
    ("Reduce", (DOUBLES, y), {}, 0, None),  # on other threads `y` means nothing
    ("Allreduce", (MPI.IN_PLACE, y), {}, None, 64),
    ("Allreduce", (None, y), {}, None, 64),
    ("Allreduce", (DOUBLES, y), {}, None, None),
    ("Allreduce", (), {"recvbuf": y, "sendbuf": DOUBLES}, None, None),
    ("Scan", (x,), {"recvbuf": y}, None, 64),
    ("Gather", (x, y), {}, 0, None),
    ("Gatherv", (x, y, 0), {}, 0, None),
    ("Barrier", (), {}, None, None),
]


class _Python:
    def __init__(self) -> None:
        self.journal = journal.PythonJournal()
        self.inside = journal._inside_mpi

    def call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        run = getattr(MPI.Intracomm, name)
        return self.journal.by_mpi(name, run, met, (MPI.COMM_SELF, *given), named)

    def last(self) -> Any:
        return self.journal.last_calls()


class _Core:
    def __init__(self) -> None:
        self.comm = xupc.Comm(MPI.COMM_SELF.Dup())
        self.inside = journal.inside_mpi

    def call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return getattr(self.comm, name)(*given, **named)

    def last(self) -> Any:
        return self.comm._counts().last_calls()


BOTH = pytest.mark.parametrize("kind", [_Python, _Core])


def made(kind: Any) -> Any:
    if kind is _Core and journal.core is None:
        pytest.skip("needs the native core")
    return kind()


@BOTH
@pytest.mark.parametrize(("name", "given", "named", "root", "nbytes"), CALLS)
def test_roots_and_sizes(
    kind: Any, name: str, given: tuple[Any, ...], named: dict[str, Any], root: int | None,
    nbytes: int | None,
) -> None:  # fmt: skip
    of = made(kind)
    for calls in range(1, 19):
        of.call(name, given, named)
        found, last = of.last()
        assert found == calls
        assert last == min(calls, 16) * [(name, False, root, nbytes)]


def test_a_name_that_may_be_equal() -> None:
    """The core compares names of arguments by identity: Python keeps one object of most of them."""
    of = made(_Core)
    of.call("bcast", (1,), {"".join(["ro", "ot"]): 0})
    assert of.last() == (1, [("bcast", False, None, None)])


@BOTH
def test_a_call_that_pickles_is_not_inside_mpi(kind: Any) -> None:
    """It may fail before it reaches MPI, so other threads must not compare their calls with it."""
    of, seen = made(kind), []

    class Looks:
        """An object whose pickling finds out which call is inside MPI."""

        def __reduce__(self) -> Any:
            seen.append(of.inside())
            raise ValueError

    with contextlib.suppress(ValueError):
        of.call("allgather", (Looks(),), {})
    assert seen == [None]
    assert of.last() == (0, [])


def test_a_wait_in_python_is_inside() -> None:
    """That of `opening` runs as the call itself."""
    found: list[Any] = []
    record = xupc.Comm(MPI.COMM_SELF.Dup())._counts()
    notes = journal_notes.Notes()

    def wait(_: object) -> None:
        found.append(notes.place())

    record.by_mpi(_form("the start of a team"), wait, met, (None,), {})
    assert found == [("", 1)]


def _form(name: str) -> Any:
    return form_of(name) or name


def test_the_sizes_of_a_truncated_message() -> None:
    """MPI's error does not have them."""

    def fails(*_: object, **__: object) -> None:
        raise MPI.Exception(MPI.ERR_TRUNCATE)

    record: Any = xupc.Comm(MPI.COMM_SELF.Dup())._counts()
    with pytest.raises(MPI.Exception) as raised:
        record.by_mpi(_form("Allgather"), fails, met, (MPI.COMM_SELF, x), {"recvbuf": nine})
    note = "xupc: Allgather, which MPI carried. Arrays of this thread: sendbuf: 64 bytes, "
    assert raised.value.__notes__ == [f"{note}recvbuf: 72 bytes"]
