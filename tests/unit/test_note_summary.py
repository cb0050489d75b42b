"""The sum of what the threads of many machines publish: its size, and the differences in it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest
from support.notes import note, on

from xupc.health.note_comparison import Note, compared, text_of_past
from xupc.health.note_summary import ROOM, Summary, difference_in, merged, summary_of


def machines(notes: Iterable[Note], each: int) -> list[Summary]:
    """Return the summaries of machines with so many threads."""
    threads = list(notes)
    return [summary_of(threads[i : i + each]) for i in range(0, len(threads), each)]


def up_the_tree(found: list[Summary]) -> Summary:
    """Return the sum over all machines, which sum up 8 at a time."""
    while len(found) > 1:
        found = [merged(found[i : i + 8]) for i in range(0, len(found), 8)]
        assert all(len(json.dumps(each)) <= ROOM for each in found)
    return found[0]


def waiting(thread: int, name: str = "Allreduce", calls: int = 77) -> Note:
    """Return the note of a thread inside MPI's call on COMM_WORLD."""
    return note(thread, {"w": on(calls, name, rank=thread)}, ("w", name, None), text=name)


def test_threads_in_one_call_are_one_line() -> None:
    whole = up_the_tree(machines((waiting(t) for t in range(10_000)), 10))
    ((wait,), (past,)) = whole["waits"], whole["pasts"]
    assert (wait["runs"], past["runs"]) == ([[0, 9999]], [[0, 9999, 0]])
    assert difference_in(whole) == ""


def test_one_thread_of_many_differs() -> None:
    notes = [waiting(t, "Bcast" if t == 7123 else "Allreduce") for t in range(10_000)]
    words = "the threads are in different calls: thread 7123: Bcast at p.py:1, which MPI carries; "
    words += "the other threads (0-7122, 7124-9999): Allreduce at p.py:1, which MPI carries"
    assert difference_in(up_the_tree(machines(notes, 10))) == words


def test_a_late_thread_of_each_machine_is_no_difference() -> None:
    """The lines of so many runs of threads have no room; some threads are left out."""
    whole = up_the_tree(machines((waiting(t) for t in range(4_000) if t % 4), 3))
    assert len(whole["waits"][0]["runs"]) == 64
    assert difference_in(whole) == ""


def on_a_grid(t: int, side: int, label: str, calls: tuple[int, int]) -> Note:
    """Return a thread of a grid, in MPI's call on COMM_WORLD, its row or its column."""
    row, column = divmod(t, side)
    labels = {"world": "w", "row": f"w.1@{row * side}", "column": f"w.2@{column}"}
    comms = {
        "w": on(5, "Barrier", rank=t), labels["row"]: on(calls[0], "Allreduce", rank=column),
        labels["column"]: on(calls[1], "Allreduce", rank=row),
    }  # fmt: skip
    return note(t, comms, (labels[label], "Barrier" if label == "world" else "Allreduce", None))


def test_many_communicators_have_room_or_are_left_out() -> None:
    side = 64
    notes = [on_a_grid(t, side, "world", (40, 40)) for t in range(side * side)]
    whole = up_the_tree(machines(notes, side))
    assert whole["pasts"][0]["label"] == "w"
    assert difference_in(whole) == ""
    odd = on_a_grid(70, side, "world", (40, 40))
    odd["comms"]["w"]["last"] = ["Scan"]
    odd["text"] = "Scan"
    notes[70] = odd
    assert "thread 70: Scan at p.py:1" in difference_in(up_the_tree(machines(notes, side)))


@pytest.mark.parametrize("begun", [False, True])
def test_rows_and_columns_that_wait_for_each_other(begun: bool) -> None:
    """Thread 0 is in a call on its row, thread 1 in one on its column, thread 3 on its row."""
    notes = [
        on_a_grid(0, 2, "row", (9, 8)),  # waits for 1 on row 0
        on_a_grid(1, 2, "column", (8 + begun, 9)),  # waits for 3 on column 1
        on_a_grid(3, 2, "row", (9, 8)),  # waits for 2 on row 1
        on_a_grid(2, 2, "column", (8, 9)),  # waits for 0 on column 0
    ]
    found = difference_in(merged(machines(notes, 1)))
    assert found.count(" is in Call() at p.py:1 of communicator ") == (0 if begun else 4)
    assert difference_in(merged(machines(notes[:3], 1))) == ""


@pytest.mark.parametrize(("root", "found"), [(2, True), (0, False)])
def test_a_root_that_waits_elsewhere(root: int, found: bool) -> None:
    """Threads 0 and 1 wait for the root of a Bcast; thread 2 waits for them in a Barrier."""
    comms = [{"w": on(4, rank=t), "w.1@0": on(1 if t < 2 else 0, rank=t)} for t in range(3)]
    comms[2]["w"] = on(5, "Barrier", rank=2)
    notes = [note(t, comms[t], ("w.1@0", "Bcast", root)) for t in range(2)]
    notes.append(note(2, comms[2], ("w", "Barrier", None)))
    text = difference_in(merged(machines(notes, 1)))
    assert text.startswith("the threads wait for each other: ") == found


def test_a_root_that_waits_for_all() -> None:
    """The root of a Gather waits; the others need not, so they can come to the next call."""
    comms = [{"w": on(4, rank=t), "w.1@0": on(1, "Gather", rank=t)} for t in range(3)]
    comms[2] = {"w": on(5, "Barrier", rank=2), "w.1@0": on(0, rank=2)}
    at = [note(t, comms[t], ("w.1@0", "Gather", 0)) for t in range(2)]
    at.append(note(2, comms[2], ("w", "Barrier", None)))
    assert difference_in(merged(machines(at, 1))).count("Call()") == 2
    assert difference_in(merged(machines(at[1:], 1))) == ""


def by_xupc(thread: int, label: str, other: str) -> Note:
    comms = {label: on(5, "Allreduce+", rank=thread, team=7), other: on(4, rank=thread, team=8)}
    return note(thread, comms)


def test_threads_that_xupc_holds_on_two_machines() -> None:
    """Each machine alone sees no circle."""
    found = machines([by_xupc(0, "w", "w.1@0"), by_xupc(1, "w.1@0", "w")], 1)
    assert difference_in(merged(found)).startswith("the threads wait for each other: ")
    assert [difference_in(each) for each in found] == ["", ""]


def test_what_one_comparison_of_all_threads_finds() -> None:
    """The oracle compares all notes at once, as the threads of one machine do."""
    draw, seen = random.Random(5), set()
    for _ in range(400):
        notes = [random_note(draw, thread) for thread in range(draw.randrange(2, 9))]
        oracle = compared(dict(enumerate(notes)), lambda i: ())
        found = difference_in(up_the_tree(machines(notes, draw.randrange(1, 4))))
        kinds = (found == "", oracle is None)
        assert kinds[0] == kinds[1], (notes, found, oracle)
        seen.add(kinds)
    assert len(seen) == 2


def random_note(draw: random.Random, thread: int) -> Note:
    """Return a thread inside a call of MPI on one of two communicators."""
    names = ["Barrier", "Allreduce", "Bcast", "Gather"]
    comms = {
        label: on(draw.choice([3, 3, 3, 4]), *draw.choices(names[:2], [9, 1], k=2), rank=thread)
        for label in ("w", "w.1@0")
    }  # fmt: skip
    label = draw.choice(["w", "w", "w.1@0"])
    name = draw.choice(names) if draw.random() < 0.2 else "Barrier"
    root = draw.choice([0, 0, 0, 1]) if name in ("Bcast", "Gather") else None
    comms[label]["last"][-1] = text_of_past(name, False, root, None)
    return note(thread, comms, (label, name, root), alone=draw.random() < 0.9)
