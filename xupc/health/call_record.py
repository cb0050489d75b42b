"""The record of a thread's call, and the comparison of all threads' records after a mismatch.

Threads exchange records only after they have detected a mismatch. Until then they compare the
fingerprints of calls.
"""

from __future__ import annotations

import binascii
import contextlib
import copy
import pickle
from collections.abc import Callable, Sequence
from typing import TypedDict

from .. import errors
from ..errors import CollectiveMismatchError, XupcError, said
from .thread_ranges import MOST_RANGES, Ranges, count, joined, range_text

__all__ = ["LIBRARY_BARRIER", "CallRecord", "MismatchReport", "compare", "first_apart"]

LIBRARY_BARRIER = "library barrier"  # follows many calls without a barrier


Arguments = list[tuple[str, str]]


class RecordData(TypedDict):
    """A record as data for JSON."""

    name: str
    arguments: Arguments
    error: list[str] | None
    shared: bool
    raised: str
    words: str
    status: int


class Comparison(TypedDict, total=False):
    """The result of a comparison of records, as data for JSON: some of these.

    `raised` (with `thread`, `call` and `words`): the error of a user's function. `failed`: the
    errors of threads by number. `text`: the difference. `earlier`: whether it was in an earlier
    call. `ahead`: the operation, call and place in the program of the thread that is ahead.
    """

    raised: str
    thread: int
    call: str
    words: str
    failed: dict[str, str]
    shared: bool
    earlier: bool
    text: str
    ahead: tuple[int, str, int]
    status: int


class CallRecord:
    """One thread's call.

    Parameters
    ----------
    name : str
        The name of the collective.
    arguments : list of (name, text), or callable that returns it
        The arguments in order. A callable is called only when they are read.
    title : str, optional
        The text that other threads see while the call runs: shorter, the same for all calls of
        a kind. Default: the whole call.

    Attributes
    ----------
    error
        The error that this thread itself found, else None.
    shared_error
        Whether other threads raise the same type (HeapError), not a mismatch.
    raised
        A pickled error of the user's function: all threads raise it.
    words
        The text of the call, where that is not its name and arguments.
    status
        At the end of the program: the exit status of this thread; else 0.
    repeated_by
        The methods of mpi4py's for which the core repeats the call; else "".
    """

    __slots__ = (
        "_arguments", "_failed", "error", "name", "raised", "repeated_by",
        "shared_error", "status", "title", "words",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        arguments: Arguments | Callable[[], Arguments] | tuple[()] = (),
        title: str = "",
    ) -> None:
        self.name = name
        self._arguments = arguments if callable(arguments) else list(arguments)
        self.error: BaseException | None = None
        self._failed: list[str] | None = None
        self.shared_error = False
        self.raised = ""
        self.words = ""
        self.status = 0
        self.repeated_by = ""
        self.title = title or self.call

    @classmethod
    def of_end(cls, words: str, status: int) -> CallRecord:
        """Return the record of the end of xupc when the program has not called finalize."""
        record = cls("finalize", title=words)
        record.words, record.status = words, status
        return record

    @classmethod
    def of_function(cls, name: str, error: BaseException) -> CallRecord:
        """Return the record of a call in which the user's function raised."""
        record = cls(name)
        record.error = error
        try:
            record.raised = binascii.b2a_base64(pickle.dumps(error), newline=False).decode()
            pickle.loads(binascii.a2b_base64(record.raised))
        except Exception:  # other threads get its text
            record.raised = "-"
        return record

    @property
    def arguments(self) -> Arguments:
        """Return (name, value as text) of each argument, in order."""
        if callable(self._arguments):
            try:
                self._arguments = self._arguments()
            except Exception as e:  # from the user's object: other threads wait for the record
                self._arguments = [("arguments", f"not to be shown: {type(e).__name__}")]
        return self._arguments

    def with_more(self, more: Arguments) -> CallRecord:
        """Return the same call with more arguments to compare."""
        return CallRecord(self.name, lambda: [*self.arguments, *more], self.title)

    def renamed(self, name: str) -> CallRecord:
        """Return the same record under the name of a method of mpi4py's.

        Only `xupc.barrier` has a value.
        """
        record = copy.copy(self)
        record.name = name
        if self.name == "barrier":
            record._arguments = []
        return record

    @property
    def call(self) -> str:
        """Return the text of the call, such as ``all_gather(dst=..., nbytes=8)``.

        A barrier without a value has no arguments in it.
        """
        if self.words:
            return self.words
        given = [f"{n}={v}" for n, v in self.arguments if (n, v) != ("value", "None")]
        return f"{self.name}({', '.join(given)})"

    def settle(self) -> None:
        """Replace all objects by texts: a record outlives its call and must not keep arguments.

        The traceback of an error would keep them, too.
        """
        self._arguments = self.arguments
        self._failed, self.error = self._error_text(), None

    def _error_text(self) -> list[str] | None:
        return self._failed if self.error is None else [type(self.error).__name__, said(self.error)]

    def as_data(self) -> RecordData:
        """Return the record as plain data for a message."""
        error = self._error_text()
        return {
            "name": self.name,
            "arguments": self.arguments,
            "error": error,
            "shared": self.shared_error,
            "raised": self.raised,
            "words": self.words,
            "status": self.status,
        }

    @classmethod
    def from_data(cls, data: RecordData) -> CallRecord:
        """Make a record from the plain data of a message."""
        error = None
        if data["error"]:
            error = XupcError(": ".join(data["error"]))
        arguments = [(n, v) for n, v in data["arguments"]]
        record = cls(data["name"], arguments)
        record.error, record.shared_error = error, data["shared"]
        record.raised, record.words = data["raised"], data["words"]
        record.status = data["status"]
        return record


def first_apart(calls: Sequence[Sequence[Sequence[int]]]) -> tuple[int, int | None]:
    """Find where the threads' calls begin to differ: ``(start, place)``.

    Each thread has (operation, running fingerprint after it) of its last calls. `start` is the
    first operation that all lists hold, `place` counts calls from there. It is None if no two
    threads differ so far.
    """
    start = max(own[0][0] for own in calls)
    rows = [[fp for op, fp in own if op >= start] for own in calls]
    for place in range(max(len(row) for row in rows)):
        if len({row[place] for row in rows if place < len(row)}) > 1:
            return start, place
    return start, None


def compare(
    records: Sequence[CallRecord],
    threads: Sequence[int],
    earlier: Sequence[CallRecord | None] | None = None,
) -> Comparison:
    """Find which threads differ from the others, and in which argument, as plain data.

    `records`: the current call of each of the `threads`. `earlier`: their calls at the first
    difference, if that was an earlier call; None for a thread that has not made that call.
    """
    for thread, r in zip(threads, records, strict=True):
        if r.raised:
            return {"raised": r.raised, "thread": thread, "call": r.name, "words": said(r.error)}
    for calls in (records, earlier or ()):
        bad = [(t, r) for t, r in zip(threads, calls, strict=False) if r and r.error is not None]
        if bad:
            failed = {str(thread): said(r.error) for thread, r in bad}
            shared = any(r.shared_error for _, r in bad)
            return {"failed": failed, "shared": shared, "earlier": calls is not records}
    if earlier is None:
        return {"text": _difference(records, threads)}
    known = [(t, r) for t, r in zip(threads, earlier, strict=True) if r is not None]
    text = _difference([r for _, r in known], [t for t, _ in known])
    return {"text": text, "earlier": True}


def _difference(records: Sequence[CallRecord], threads: Sequence[int]) -> str:
    names = [r.name for r in records]
    if len(set(names)) > 1:
        calls = [r.call for r in records]
        return "the threads are in different calls: " + grouped_text(calls, threads)
    for k, (argument, _) in enumerate(records[0].arguments):
        values = [r.arguments[k][1] if k < len(r.arguments) else "?" for r in records]
        if len(set(values)) > 1:
            return f"{names[0]}: {argument} differs: " + grouped_text(values, threads)
    return (
        f"{names[0]}: the calls since the last synchronising one differ in number or kind "
        "between threads"
    )


def grouped_text(values: list[str], threads: Sequence[int]) -> str:
    """Return ``thread 2: 16; the other threads (0, 1, 3): 8``; a tie names both groups."""
    return grouped_ranges(values, [((thread, thread),) for thread in threads], len(threads))


def grouped_ranges(values: list[str], groups: Sequence[Ranges], most: int = MOST_RANGES) -> str:
    """Return the same for values of groups of threads; of a group it names `most` ranges."""
    threads: dict[str, list[Sequence[int]]] = {}
    for value, runs in zip(values, groups, strict=True):
        threads.setdefault(value, []).extend(runs)
    found = {value: joined(runs) for value, runs in threads.items()}
    order = sorted(found, key=lambda value: -count(found[value]))  # stable
    tie = len(order) > 1 and count(found[order[0]]) == count(found[order[1]])
    parts = []
    for value in reversed(order):
        names = range_text(found[value], most)
        if value == order[0] and not tie:
            parts.append(f"the other threads ({names}): {value}")
        else:
            parts.append(f"thread{'s' * (count(found[value]) > 1)} {names}: {value}")
    return "; ".join(parts)


class MismatchReport:
    """The result of the comparison, made by the team's first thread."""

    def __init__(self, data: Comparison) -> None:
        self.data = data

    def error_for(self, record: CallRecord, team: str = "") -> BaseException:
        """Return the error that this thread raises; `team`: the name of the team in messages."""
        if record.error is not None:
            return record.error
        if "raised" in self.data:
            return self._raised()
        failed = self.data.get("failed")
        of = f" of {team}" if team else ""
        found = f"; found in {record.words or record.name}" if self.data.get("earlier") else ""
        if not failed:
            text = self.data["text"] + found
            error = CollectiveMismatchError(f"{text} (calls{of})" if of else text)
            error._exit_status = self.data.get("status", 0)
            return error
        text = "; ".join(f"thread {r}: {t}" for r, t in failed.items())
        if self.data.get("shared"):
            kind, _, message = next(iter(failed.values())).partition(": ")
            type_ = getattr(errors, kind, CollectiveMismatchError)
            return type_(f"{message} (thread {', '.join(failed)})")
        if found:
            return CollectiveMismatchError(f"{record.name}{of}: an earlier call failed: {text}")
        return CollectiveMismatchError(f"{record.name}{of}: the call failed elsewhere: {text}")

    def _raised(self) -> BaseException:
        """Return another thread's error, of the same type if it can be pickled."""
        text = f"raised by the function of {self.data['call']} on thread {self.data['thread']}"
        try:
            error: BaseException = pickle.loads(binascii.a2b_base64(self.data["raised"]))
        except Exception:
            return XupcError(f"{text}: {self.data['words']}")
        with contextlib.suppress(Exception):  # some errors accept no notes
            if text not in getattr(error, "__notes__", ()):
                error.add_note(text)
        return error
