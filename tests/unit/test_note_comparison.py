"""What waiting threads publish of their calls on communicators: which differ, and which do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from support.notes import note, on

from xupc.health.note_comparison import (
    OPENING,
    CommNotes,
    Note,
    compared,
    method_of,
    text_of_past,
)  # fmt: skip


def text(notes: list[Note], awaited: Mapping[int, Collection[int]] | None = None) -> str:
    found = compared(dict(enumerate(notes)), lambda i: (awaited or {}).get(i, ()))
    return "" if found is None else found.text


BY_XUPC = note(0, {"w": on(5, "Barrier", "Allreduce+", team=7)})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("Allreduce", "the arguments differ, so that xupc carries the call on some threads alone"),
        ("Bcast", "the threads are in different calls: thread 1: Call() at p.py:1, which MPI"),
    ],
)
def test_calls_of_one_number(other: str, words: str) -> None:
    last = on(5, "barrier", other, rank=1)
    assert text([BY_XUPC, note(1, {"w": last}, ("w", other, None))]).startswith(words)


@pytest.mark.parametrize(
    "last",
    [
        on(4, "Barrier", rank=1),  # a call less, which was the same: the thread may come
        on(6, "Allreduce+", "Bcast", rank=1),  # a call more, since it need not wait
        on(5, "Barrier", "Bcast", rank=1, epoch=3),  # numbers that mean something else
        on(25, "Bcast", "Bcast", rank=1),  # no call of both is known any more
    ],
)
def test_calls_that_may_meet(last: CommNotes) -> None:
    assert text([BY_XUPC, note(1, {"w": last}, ("w", last["last"][-1], None))]) == ""


def test_calls_of_xupc_are_left_to_its_own_check() -> None:
    """After its error the threads go on; one of this comparison ends the job."""
    last = on(5, "Barrier", "Bcast+", rank=1, team=7)
    assert text([BY_XUPC, note(1, {"w": last})]) == ""


def test_a_thread_that_waits_elsewhere_shows_no_difference() -> None:
    here = note(0, {"w": on(5, "Bcast"), "w.1@0": on(1, "Barrier")}, ("w.1@0", "Barrier", None))
    there = note(1, {"w": on(5, "Gather"), "w.1@0": on(1, "Barrier", rank=1)}, ("", "Scan", None))
    assert text([here, there]) == ""


ARGUMENTS = [  # the root and the bytes of two threads, and which of them differs
    ("Gather", (0, 1), (None, None), "root differs: thread 1: 1; thread 0: 0"),
    ("Gather", (0, None), (None, None), ""),
    ("Gather", (None, None), (None, None), ""),
    ("Bcast", (2, 2), (8, 16), "bytes differs: thread 1: 16; thread 0: 8"),
    ("Bcast", (0, 2), (8, 16), "root differs: thread 1: 2; thread 0: 0"),
    ("Allreduce", (None, None), (0, 16), "bytes differs: thread 1: 16; thread 0: 0"),
    ("Allreduce", (None, None), (8, None), ""),
]


@pytest.mark.parametrize(("name", "roots", "sizes", "words"), ARGUMENTS)
def test_arguments_of_calls_by_mpi(
    name: str, roots: tuple[Any, Any], sizes: tuple[Any, Any], words: str
) -> None:
    last = [text_of_past(name, False, *each) for each in zip(roots, sizes, strict=True)]
    notes = [
        note(i, {"w": on(5, last[i], rank=i)}, ("w", name, roots[i]), nbytes=sizes[i])
        for i in range(2)
    ]
    assert text(notes) == (words and f"{name}: {words}")


@pytest.mark.parametrize(("name", "roots", "sizes", "words"), ARGUMENTS)
@pytest.mark.parametrize("later", [0, 1, 2])
def test_arguments_of_a_call_that_threads_have_left(
    name: str, roots: tuple[Any, Any], sizes: tuple[Any, Any], words: str, later: int
) -> None:
    """Both threads are in a later call, or one of them on another communicator."""
    last = [text_of_past(name, False, *each) for each in zip(roots, sizes, strict=True)]
    more = ["Bcast:root=0:bytes=8"] * later
    calls = on(5 + later, "Barrier", last[0], *more), on(5 + later, last[1], *more, rank=1)
    notes = [
        note(0, {"w": calls[0]}, ("w", "Bcast" if later else name, 0)),
        note(1, {"w": calls[1], "w.1@0": on(1, "Barrier")}, ("w.1@0", "Barrier", None)),
    ]
    found = text(notes)
    at = ", now in Call() at p.py:1"
    after = f", {later} call{'s' * (later > 1)} later" if later else ""
    if words:
        what, _, values = words.partition(": ")
        one, other = values.split("; ")
        there = f"{at}{after}" if later else ""
        assert found == f"{name}: {what}: {one}{at}; {other}{there}", found
    else:
        assert found == "", found


def test_no_thread_waits_where_roots_differed() -> None:
    comms = [{"w": on(5, f"Bcast:root={i}", rank=i), "w.1@0": on(1, "Barrier")} for i in range(2)]
    notes = [note(i, comms[i], ("w.1@0", "Barrier", None)) for i in range(2)]
    assert text(notes) == ""


def test_the_text_of_a_call() -> None:
    found = text_of_past(OPENING, True, None, None)
    assert (found, method_of(found)) == (f"{OPENING}+", OPENING)
    found = text_of_past("Reduce", False, 3, 0)
    assert (found, method_of(found)) == ("Reduce:root=3:bytes=0", "Reduce")


def test_methods_that_are_one_call_of_mpi() -> None:
    for some in (("Barrier", "barrier"), ("Gatherv", "Gather"), ("Alltoall", "Alltoallv")):
        notes = [note(i, {"w": on(5, some[i], rank=i)}, ("w", some[i], 0)) for i in range(2)]
        assert text(notes) == ""


def crossed(name: str, root: int | None, calls: int = 2, **more: Any) -> list[Note]:
    """Return a thread in a call of xupc, and one in MPI's call on another communicator."""
    comms = {"w": on(5, "Allreduce+", team=7), "w.1@0": on(calls)}
    theirs = {"w": on(4, "Barrier", rank=1), "w.1@0": on(3, name, rank=1)}
    return [note(0, comms), note(1, theirs, ("w.1@0", name, root), **more)]


@pytest.mark.parametrize(
    ("name", "root", "waits"),
    [
        ("Barrier", None, True), ("Allgather", None, True), ("bcast", 0, True),
        ("bcast", 1, False), ("Gather", 1, True), ("Gather", 0, False), ("Scan", None, True),
        ("Neighbor_alltoall", None, False), ("Scatter", None, False), ("Allgatherv", None, False),
    ],
)  # fmt: skip
def test_threads_that_wait_for_each_other(name: str, root: int | None, waits: bool) -> None:
    found = text(crossed(name, root), {0: [1]})
    assert found.startswith("the threads wait for each other: ") == waits
    if waits:
        assert "thread 0 is in Call() of COMM_WORLD, which xupc carries" in found
        assert "Call() at p.py:1 of communicator 1 from COMM_WORLD, which MPI carries" in found


def test_no_circle() -> None:
    assert text(crossed("Barrier", None)) == ""  # thread 0 does not wait for thread 1
    assert text(crossed("Barrier", None, 3), {0: [1]}) == ""  # it has begun that call
    assert text(crossed("Barrier", None, alone=False), {0: [1]}) == ""  # others may make it
    assert text(crossed("Allreduce", None, nbytes=0), {0: [1]}) == ""  # nothing has to come
    last = crossed("Barrier", None)[:1]
    assert text([*last, note(1, {}, ("w.1@0", "Barrier", None))], {0: [1]}) == ""


def test_a_circle_of_three() -> None:
    def at(i: int) -> Note:
        """Thread i waits for thread i + 1 on a communicator of the two."""
        mine, before = f"w.{i + 1}@0", f"w.{(i - 1) % 3 + 1}@0"
        comms = {mine: on(1, "Barrier", rank=0), before: on(0, rank=1)}
        return note(i, comms, (mine, "Barrier", None))

    assert text([at(i) for i in range(3)]).count("thread ") == 3
    assert text([at(0), at(1)]) == ""
