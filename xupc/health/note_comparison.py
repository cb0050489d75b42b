"""Compare what waiting threads publish of their calls on communicators.

A note is that of one thread of this machine (`crossed_calls`), or of threads of any machines with
equal calls (`note_summary`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TypedDict

from ..records import record
from .call_record import grouped_ranges
from .circles import circle_through
from .thread_ranges import Ranges, count, range_text

__all__ = [
    "MESSAGE", "OPENING", "WORLD", "CommNotes", "Finding", "Inside", "Note", "compared", "late_in",
    "method_of", "name_of", "text_of", "text_of_past",
]  # fmt: skip

OPENING = "the start of a team"
"""The name of an exchange in which the threads of a communicator agree on a team of xupc."""
WORLD = "w"
"""The label of COMM_WORLD."""
MESSAGE = "-"
"""In place of a label: the call is no collective of `xupc.Comm`, so it has no number either."""
_FOR_ALL = frozenset((
    OPENING, "allgather", "allreduce", "alltoall", "alltoallw", "barrier", "reduce_scatter",
    "reduce_scatter_block",
    # a new communicator needs a number that is free on all threads
    "clone", "create", "create_cart", "create_dist_graph", "create_dist_graph_adjacent",
    "create_graph", "dup", "dup_with_info", "split", "split_type", "sub",
))  # fmt: skip
_FROM_ROOT, _TO_ROOT = frozenset(("bcast", "scatter")), frozenset(("gather", "reduce"))
_FROM_BELOW = frozenset(("scan", "exscan"))


class Inside(TypedDict):
    """The call of a thread that is inside MPI: of which communicator, its number and arguments."""

    label: str
    call: int
    name: str
    root: int | None
    nbytes: int | None


class CommNotes(TypedDict):
    """The calls of threads on a communicator.

    `calls`: how many. `last`: the last ones, each as `text_of_past`. `epoch`: numbers of another
    epoch cannot be compared. `team`: the number of its team, or -1. `ranks`: of the threads.
    `alone`: the last call that raised an error on one thread alone, before it met the others: its
    number, and the error.
    """

    epoch: int
    calls: int
    last: list[str]
    team: int
    ranks: Ranges
    alone: tuple[int, str]


class Note(TypedDict):
    """The note that a thread publishes, or the common part of the notes of several threads.

    `threads`: their numbers. `since`: when a thread was first found in this wait, in ns. `wait`:
    (team, operation) if it waits in xupc. `text`: the call. `line`: of the program. `alone`:
    whether the program has one Python thread. `stuck`: whether it has waited for a message beyond
    the limit.
    """

    since: int
    threads: Ranges
    inside: Inside | None
    wait: list[int]
    text: str
    line: str
    alone: bool
    stuck: bool
    comms: dict[str, CommNotes]


def text_of_past(method: str, by_xupc: bool, root: int | None, nbytes: int | None) -> str:
    """Return a call as text, such as ``Reduce:root=1:bytes=64``, with "+" if xupc carried it."""
    of = ("root", root), ("bytes", nbytes)
    more = "".join(f":{name}={value}" for name, value in of if value is not None)
    return f"{method}{more}{'+' if by_xupc else ''}"


def method_of(call: str) -> str:
    """Return the method of a call as `text_of_past` describes it."""
    return call.rstrip("+").partition(":")[0]


@record
class Finding:
    """What shows that calls differ: as text, and the keys of the notes."""

    text: str
    threads: tuple[int, ...]


def compared(
    notes: Mapping[int, Note], awaited: Callable[[int], Collection[int]], *, by_mpi: bool = True
) -> Finding | None:
    """Return what shows that the calls of waiting threads differ; None if nothing does.

    Parameters
    ----------
    notes
        The notes of waiting threads: by the index of the thread on the machine, or any number.
    awaited
        Returns the keys of the notes whose threads those of a note wait for inside xupc.
    by_mpi
        Whether MPI has to carry a call of threads that wait for each other.
    """
    labels = {label for note in notes.values() for label in note["comms"]}
    for label in sorted(labels):
        there = {i: note for i, note in sorted(notes.items()) if label in note["comms"]}
        found = _difference(label, there)
        if found is not None:
            return found
    return _circle(notes, awaited, by_mpi)


def _difference(label: str, notes: Mapping[int, Note]) -> Finding | None:
    """Return how the calls on one communicator differ."""
    if not any(_is_in(note, label) for note in notes.values()):
        return None
    for epoch in sorted({note["comms"][label]["epoch"] for note in notes.values()}):
        same = {i: n for i, n in notes.items() if n["comms"][label]["epoch"] == epoch}
        found = _first_difference(label, same)
        if found is not None:
            return found
    return None


def _first_difference(label: str, notes: Mapping[int, Note]) -> Finding | None:
    """Return the first call of a number that two threads made in different ways."""
    rows = {i: _numbered(note["comms"][label]) for i, note in notes.items()}
    for number in sorted({number for row in rows.values() for number in row}):
        calls = {i: row[number] for i, row in rows.items() if number in row}
        if len({_kind(call) for call in calls.values()}) > 1:
            if all(call.endswith("+") for call in calls.values()):
                return None  # xupc itself finds this difference, and the threads can go on
            return _other_calls(label, notes, number, calls)
        for what in ("root", "bytes"):
            found = _other_argument(label, notes, number, calls, what)
            if found is not None:
                return found
    return None


def _other_calls(
    label: str, notes: Mapping[int, Note], number: int, calls: Mapping[int, str]
) -> Finding | None:
    """Return that calls of a number are of several kinds; None if no thread waits there."""
    if not any(_is_in(notes[i], label) for i in calls):
        return None
    texts = [_text(notes[i], label, number, call) for i, call in calls.items()]
    words = "the threads are in different calls"
    if len({method_of(call) for call in calls.values()}) == 1:
        words = "the arguments differ, so that xupc carries the call on some threads alone"
    return Finding(f"{words}: {_grouped(texts, notes, calls)}", tuple(calls))


def _other_argument(
    label: str, notes: Mapping[int, Note], number: int, calls: Mapping[int, str], what: str
) -> Finding | None:
    """Return how the roots or sizes differ of a call that MPI carries, where they are known.

    Threads may have left it: MPI sends short messages before their receiver is there.
    """
    values = {i: value for i, call in calls.items() if (value := _value_in(call, what))}
    if len(set(values.values())) < 2 or not any(_is_in(notes[i], label) for i in values):
        return None
    texts = [f"{value}{_since(notes[i], label, number)}" for i, value in values.items()]
    name = method_of(next(iter(calls.values())))
    return Finding(f"{name}: {what} differs: {_grouped(texts, notes, values)}", tuple(values))


def _grouped(texts: list[str], notes: Mapping[int, Note], of: Collection[int]) -> str:
    return grouped_ranges(texts, [notes[i]["threads"] for i in of])


def _value_in(call: str, what: str) -> str:
    """Return the root or the bytes of a call of the past as text, "" if not known."""
    pairs = (part.partition("=") for part in call.split(":"))
    return next((value for name, _, value in pairs if name == what), "")


def _numbered(comm: CommNotes) -> dict[int, str]:
    first = comm["calls"] - len(comm["last"]) + 1
    return {first + k: call for k, call in enumerate(comm["last"])}


def _kind(call: str) -> str:
    """Return what must be equal: some methods of mpi4py make the same call of MPI."""
    name, plus = method_of(call), "+" * call.endswith("+")
    if name in ("Barrier", "Gatherv", "Scatterv", "Allgatherv", "Alltoallv"):
        name = name.lower() if name == "Barrier" else name[:-1]
    return name + plus


def _is_in(note: Note, label: str) -> bool:
    """Return whether a thread waits in a call on a communicator."""
    inside = note["inside"]
    if inside is not None:
        return inside["label"] == label
    return note["comms"][label]["team"] == note["wait"][0]


def _text(note: Note, label: str, number: int, call: str) -> str:
    """Describe a call of a thread, the present one with its arguments."""
    comm = note["comms"][label]
    by, words, more = "xupc" if call.endswith("+") else "MPI", method_of(call), ""
    if number == comm["calls"] and _is_in(note, label):
        words = _at(note)
    else:
        more = f", and is now in {_at(note)}"
    at, error = comm["alone"]
    after = f", after {error}" if at == number else ""
    return f"{words}, which {by} carries{after}{more}"


def _since(note: Note, label: str, number: int) -> str:
    """Return where a thread is that has left a call, "" if it has not."""
    left = note["comms"][label]["calls"] - number
    if left == 0 and _is_in(note, label):
        return ""
    later = f", {left} call{'s' * (left > 1)} later" if left and _is_in(note, label) else ""
    return f", now in {_at(note)}{later}"


def _at(note: Note) -> str:
    return note["text"] if note["inside"] is None else f"{note['text']} at {note['line']}"


# --- circles of waits ---------------------------------------------------------------------------


def _circle(
    notes: Mapping[int, Note], awaited: Callable[[int], Collection[int]], by_mpi: bool
) -> Finding | None:
    """Return threads that wait for each other, for `by_mpi` at least one of them in MPI."""
    usable = {i: note for i, note in sorted(notes.items()) if note["alone"]}
    edges = functools.cache(lambda i: _edges(i, usable, awaited))
    for start in usable:
        way = circle_through(start, edges)
        if way and (not by_mpi or any(usable[i]["inside"] for i in way)):
            at = [_where(usable[i]) for i in sorted(way)]
            return Finding(f"the threads wait for each other: {'; '.join(at)}", tuple(sorted(way)))
    return None


def _where(note: Note) -> str:
    names, several = range_text(note["threads"]), count(note["threads"]) > 1
    return f"thread{'s' * several} {names} {'are' if several else 'is'} in {_now(note)}"


def _now(note: Note) -> str:
    inside = note["inside"]
    if inside is None:
        labels = [label for label in note["comms"] if _is_in(note, label)]
        of = " of COMM_WORLD" if labels == [WORLD] else ""  # the text has any other name
        return f"{_at(note)}{of}, which xupc carries"
    by = "" if inside["name"] == OPENING else ", which MPI carries"
    return f"{_at(note)} of {name_of(inside['label'])}{by}"


def text_of(call: Inside) -> str:
    """Describe a call inside MPI by its arguments, as far as they are known."""
    if call["name"] == OPENING:
        return OPENING
    parts = [] if call["nbytes"] is None else [f"{call['nbytes']} bytes"]
    if call["root"] is not None:
        parts.append(f"root={call['root']}")
    return f"{call['name']}({', '.join(parts)})"


def name_of(label: str) -> str:
    """Describe a communicator: its label is that of the one it was made from, and a number."""
    parent, _, number = label.rpartition(".")
    if parent:
        number = number.partition("@")[0]
        by = " by Create_group" * number.endswith("g")
        return f"communicator {number.rstrip('g')}{by} from {name_of(parent)}"
    return "COMM_WORLD" if label else "another communicator"


def _edges(
    i: int, notes: Mapping[int, Note], awaited: Callable[[int], Collection[int]]
) -> list[int]:
    """Return the waiting threads without which the call of a thread cannot end."""
    inside = notes[i]["inside"]
    if inside is None:
        return [j for j in awaited(i) if j in notes]
    return late_in(inside, i, notes)


def late_in(call: Inside, i: int, notes: Mapping[int, Note]) -> list[int]:
    """Return the notes of threads that have not begun a call, which no thread of note i can end."""
    mine = notes[i]["comms"].get(call["label"])
    if mine is None:
        return []
    found = []
    for j, other in notes.items():
        theirs = other["comms"].get(call["label"])
        if j == i or theirs is None or theirs["epoch"] != mine["epoch"]:
            continue
        if theirs["calls"] < call["call"] and _needs(call, mine["ranks"], theirs["ranks"]):
            found.append(j)
    return found


def _needs(call: Inside, ranks: Ranges, others: Ranges) -> bool:
    """Return whether a call cannot end on any of `ranks` before one of `others` has begun it.

    It can if nothing comes from there: an empty message, or an empty block of a vector form.
    """
    name, root = call["name"].lower(), call["root"]
    if call["nbytes"] == 0:
        return False
    if name in _FROM_ROOT:
        return root is not None and any(first <= root <= last for first, last in others)
    if name in _TO_ROOT:
        return all(first == root == last for first, last in ranks)
    return name in _FOR_ALL or (name in _FROM_BELOW and others[0][0] < ranks[0][0])
