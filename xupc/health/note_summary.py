"""Sum up what the threads of many machines publish of their calls, for one comparison of all.

A summary has a line for each *wait*, a call in which threads are, and for each *past*, the last
calls on a communicator. Threads with equal lines are one line. So 1,000 machines whose threads wait
in one call have one line together. What does not fit into `ROOM` bytes is left out, so it is not
compared; what is compared stays true.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict, TypeVar, cast

from .note_comparison import CommNotes, Inside, Note, compared, late_in, method_of
from .thread_ranges import joined

__all__ = ["ROOM", "Past", "Runs", "Summary", "Wait", "difference_in", "merged", "summary_of"]

ROOM = 48 << 10  # bytes as JSON: a line of the failure tree has 64 KiB
MOST_RUNS = 64  # of a line; of more, the threads that follow are left out
MOST_NOTES = 512  # in one comparison
LINE_BYTES = 160

Runs = list[list[int]]


class Wait(TypedDict):
    """A call in which threads wait.

    The fields of `note_comparison.Inside` and `Note`, and these. `by_xupc`: which library carries
    the call. `epoch`: of the call's number. `at_root`: whether the thread is the root of the call.
    `runs`: (first, last) thread of each run of threads.
    """

    label: str
    call: int
    name: str
    root: int | None
    nbytes: int | None
    by_xupc: bool
    at_root: bool
    text: str
    line: str
    alone: bool
    runs: Runs


class Past(TypedDict):
    """The last calls of threads on a communicator, as in `note_comparison.CommNotes`.

    `runs`: (first, last, rank of the first) of each run of threads with consecutive ranks.
    """

    label: str
    epoch: int
    calls: int
    last: list[str]
    alone: Sequence[int | str]
    runs: Runs


class Summary(TypedDict):
    """What threads publish, by lines; and the threads that are stuck (`message_waits`)."""

    waits: list[Wait]
    pasts: list[Past]
    stuck: Runs


_Line = TypeVar("_Line", Wait, Past)


def summary_of(notes: Iterable[Note]) -> Summary:
    """Return the summary of the notes of single threads."""
    waits: list[Wait] = []
    pasts: list[Past] = []
    for note in notes:
        ((thread, _),) = note["threads"]
        waits.append(_wait(note, thread))
        for label, comm in note["comms"].items():
            ((rank, _),) = comm["ranks"]
            pasts.append(
                Past(
                    label=label, epoch=comm["epoch"], calls=comm["calls"], last=comm["last"],
                    alone=list(comm["alone"]), runs=[[thread, thread, rank]],
                )
            )  # fmt: skip
    return merged([Summary(waits=waits, pasts=pasts, stuck=[])])


def _wait(note: Note, thread: int) -> Wait:
    """Return the wait of a note; its label is "" if the numbers of its calls mean nothing."""
    inside, comms = note["inside"], note["comms"]
    if inside is None:
        call = Inside(label="", call=0, name="", root=None, nbytes=None)
        for label, comm in comms.items():
            if comm["team"] == note["wait"][0] and comm["last"]:
                name = method_of(comm["last"][-1])
                call = Inside(
                    label=label, call=comm["calls"], name=name, root=None, nbytes=None
                )  # fmt: skip
    else:
        call = inside
    label = call["label"] if call["label"] in comms else ""
    at_root = bool(label) and comms[label]["ranks"][0][0] == call["root"]
    return Wait(
        label=label, call=call["call"], name=call["name"], root=call["root"],
        nbytes=call["nbytes"], by_xupc=inside is None, at_root=at_root, text=note["text"],
        line=note["line"][:LINE_BYTES], alone=note["alone"], runs=[[thread, thread]],
    )  # fmt: skip


# --- one summary of several ---------------------------------------------------------------------


def merged(parts: Iterable[Summary]) -> Summary:
    """Return one summary of several, which have no thread in common; equal lines are one.

    If there is no room for all, calls that no thread is in are left out first.
    """
    parts = list(parts)
    waits = _joined([wait for part in parts for wait in part["waits"]])
    waits.sort(key=lambda wait: not wait["label"])
    waits = waits[: _fitting(waits, ROOM // 2)]
    where = {wait["label"] for wait in waits}
    pasts = _joined([past for part in parts for past in part["pasts"]])
    pasts.sort(key=lambda past: (past["label"] not in where, len(past["label"])))
    pasts = pasts[: _fitting(pasts, ROOM // 2)]
    stuck = joined(run for part in parts for run in part["stuck"])
    # too many ranges: not all threads are stuck
    return Summary(waits=waits, pasts=pasts, stuck=stuck[:MOST_RUNS])


def _joined(lines: list[_Line]) -> list[_Line]:
    """Return each line once, with the runs of all that are equal but for these, in order."""
    found: dict[str, Runs] = {}
    for line in lines:
        key = json.dumps({name: value for name, value in line.items() if name != "runs"})
        found.setdefault(key, []).extend(line["runs"])
    rows = [
        {**json.loads(key), "runs": _connected(runs)[:MOST_RUNS]}
        for key, runs in sorted(found.items())
    ]  # fmt: skip
    return cast("list[_Line]", rows)


def _connected(runs: Runs) -> Runs:
    """Return runs in order, those that continue each other as one; the ranks must, too."""
    found: Runs = []
    for run in sorted(runs):
        if found:
            last = found[-1]
            n = last[1] - last[0] + 1
            if run[0] == last[1] + 1 and run[2:] == [rank + n for rank in last[2:]]:
                last[1] = run[1]
                continue
        found.append([*run])
    return found


def _fitting(lines: list[_Line], room: int) -> int:
    """Return how many lines, from the first on, have room in so many bytes as JSON."""
    used = 2
    for i, line in enumerate(lines):
        used += len(json.dumps(line)) + 2
        if used > room:
            return i
    return len(lines)


# --- the comparison -----------------------------------------------------------------------------


def difference_in(summary: Summary) -> str:
    """Return what shows that the calls of waiting threads differ; "" if nothing does."""
    notes, calls = _notes(summary)
    found = compared(notes, lambda i: late_in(calls[i], i, notes), by_mpi=False)
    return "" if found is None else found.text


def _notes(summary: Summary) -> tuple[dict[int, Note], dict[int, Inside]]:
    """Return a note of each set of threads whose lines are the same, and the calls they are in."""
    groups: dict[tuple[int, ...], Runs] = {}
    for thread, last, lines in _pieces(summary):
        groups.setdefault(lines, []).append([thread, last])
    notes: dict[int, Note] = {}
    calls: dict[int, Inside] = {}
    for i, (lines, runs) in enumerate(groups.items()):
        if i == MOST_NOTES:
            break
        wait = summary["waits"][lines[0]]
        calls[i] = Inside(
            label=wait["label"], call=wait["call"], name=wait["name"], root=wait["root"],
            nbytes=wait["nbytes"],
        )  # fmt: skip
        pasts = [summary["pasts"][k] for k in lines[1:]]
        notes[i] = Note(
            since=0, threads=runs, inside=None if wait["by_xupc"] else calls[i], wait=[1, 0],
            text=wait["text"], line=wait["line"], alone=wait["alone"], stuck=False,
            comms={past["label"]: _comm(past, wait, runs) for past in pasts},
        )  # fmt: skip
    return notes, calls


def _comm(past: Past, wait: Wait, threads: Runs) -> CommNotes:
    number, error = past["alone"]
    here = wait["by_xupc"] and wait["label"] == past["label"]
    return CommNotes(
        epoch=past["epoch"], calls=past["calls"], last=past["last"], team=int(here) or -1,
        ranks=joined(_ranks(past["runs"], threads)), alone=(int(number), str(error)),
    )  # fmt: skip


def _ranks(runs: Runs, threads: Runs) -> Iterator[list[int]]:
    """Yield the ranks of threads, each of whose ranges is inside one run."""
    firsts = [run[0] for run in runs]
    for first, last in threads:
        start, _, rank = runs[bisect.bisect(firsts, first) - 1]
        yield [rank + first - start, rank + last - start]


def _pieces(summary: Summary) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (first, last, lines) for ranges of threads that are in the same lines.

    The lines: the index of their wait, then those of their pasts on communicators in which any
    thread waits.
    """
    waits = summary["waits"]
    where = {wait["label"] for wait in waits}
    pasts = [(i, p) for i, p in enumerate(summary["pasts"]) if p["label"] in where]
    every = [run for line in (*waits, *(p for _, p in pasts)) for run in line["runs"]]
    cuts = sorted({cut for run in every for cut in (run[0], run[1] + 1)})
    lines: list[list[int]] = [[] for _ in cuts]
    for i, wait in enumerate(waits):
        for k in _covered(cuts, wait["runs"]):
            lines[k].append(i)
    waiting = [bool(each) for each in lines]
    for i, past in pasts:
        for k in _covered(cuts, past["runs"]):
            lines[k].append(i)
    for k, there in enumerate(waiting):
        if there:
            yield cuts[k], cuts[k + 1] - 1, tuple(lines[k])


def _covered(cuts: list[int], runs: Runs) -> Iterator[int]:
    """Yield the indices of the pieces between cuts that runs consist of."""
    for run in runs:
        yield from range(bisect.bisect_left(cuts, run[0]), bisect.bisect_left(cuts, run[1] + 1))
