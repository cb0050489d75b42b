"""What waiting threads publish of their calls on communicators: which differ, and which do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from support.notes import note, on

from xupc.health.note_comparison import CommNotes, Note, compared


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


@pytest.mark.parametrize(
    ("name", "roots", "sizes", "words"),
    [
        ("Gather", (0, 1), (8, 8), "Gather: root differs: thread 1: 1; thread 0: 0"),
        ("Gather", (0, None), (8, 8), ""),
        ("Gather", (0, 0), (8, 16), ""),  # in MPI only the root's places count
        ("Bcast", (0, 0), (8, 16), ""),
        ("Allreduce", (None, None), (8, 16), "Allreduce: bytes differs: thread 1: 16; thread 0: 8"),
        ("Allreduce", (None, None), (8, None), ""),
    ],
)
def test_arguments_of_calls_by_mpi(
    name: str, roots: tuple[Any, Any], sizes: tuple[Any, Any], words: str
) -> None:
    notes = [
        note(i, {"w": on(5, name, rank=i)}, ("w", name, roots[i]), nbytes=sizes[i])
        for i in range(2)
    ]
    assert text(notes) == words


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
