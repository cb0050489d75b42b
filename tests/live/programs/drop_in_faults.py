"""Errors of the program on one thread inside calls of `xupc.Comm`: ``drop_in_faults.py CHECK``.

After each error the thread makes the call again, or the next one: no thread waits for ever, and the
calls after that have right results. mpi4py itself often waits for ever after such errors.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.usable_communicators import check_usable

import xupc

COMM = xupc.Comm(MPI.COMM_WORLD)
SIZE, RANK = COMM.size, COMM.rank
LAST = SIZE - 1
BAD = LAST == RANK  # this thread has the errors
ALL_BY_XUPC = os.environ.get("XUPC_COMM") == "force"


class Refused(Exception):
    """An error of the program."""


class Once:
    """An object whose pickling raises an error the first time, and none after that."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error: type[BaseException] | None = error

    def __reduce__(self) -> Any:
        error, self.error = self.error, None
        if error is not None:
            raise error("pickling")
        return int, (7,)


class Unread:
    """An object that one thread cannot make of its pickle."""

    def __init__(self, data: Any, error: type[BaseException]) -> None:
        self.data, self.error = data, error

    def __setstate__(self, state: Any) -> None:
        if BAD:
            raise state["error"]("reading")
        self.__dict__.update(state)


def pair(a: Any, b: Any) -> Any:
    return [a, b]


def methods(x: Any, op: Any = pair) -> dict[str, Callable[[], Any]]:
    """Return calls with an object by method; the root is the thread that has the errors."""
    items = [x] * SIZE
    return {
        "bcast": lambda: COMM.bcast(x, LAST), "gather": lambda: COMM.gather(x, LAST),
        "allgather": lambda: COMM.allgather(x), "alltoall": lambda: COMM.alltoall(items),
        "scatter": lambda: COMM.scatter(items if BAD else None, LAST),
        "allreduce": lambda: COMM.allreduce(x, op), "reduce": lambda: COMM.reduce(x, op, LAST),
        "scan": lambda: COMM.scan(x, op), "exscan": lambda: COMM.exscan(x, op),
    }  # fmt: skip


def raised(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except (Refused, KeyboardInterrupt, RecursionError, xupc.XupcError) as error:
        return error
    return None


# --- checks -------------------------------------------------------------------------------------


def pickled_once() -> None:
    """The error is raised before the call meets the others, and is not lost by a second try."""
    for kind in (Refused, KeyboardInterrupt):
        for turn in range(8):  # beyond the calls that MPI carries at first
            for name in methods(0):
                if name in BY_TREE and not ALL_BY_XUPC:
                    continue  # mpi4py's own reductions then wait for ever
                call = methods(Once(kind) if BAD else RANK)[name]
                if BAD:
                    assert isinstance(raised(call), kind), (turn, name)
                assert raised(call) is None, (turn, name)
        check_usable(COMM)


BY_TREE = ("allreduce", "reduce", "scan", "exscan")


def read() -> None:
    """The error is raised on its thread; the others have their results, and all go on."""
    for kind in (Refused, KeyboardInterrupt):
        for data in (None, np.zeros(100_000), [np.zeros(90_000, "i1")] * 2, "x" * 3000):
            for name, call in methods(Unread(data, kind)).items():
                if name in BY_TREE and not ALL_BY_XUPC:
                    continue  # where mpi4py combines objects, the others would wait for ever
                found = raised(call)
                assert (found is not None) == BAD, (name, found)
                assert found is None or isinstance(found, kind), (name, found)
        check_usable(COMM)


def failing(kind: type[BaseException]) -> Callable[[Any, Any], Any]:
    """Return an operation that raises an error on one thread."""

    def op(a: Any, b: Any) -> Any:
        if BAD:
            raise kind("operation")
        return [a, b]

    return op


def combined() -> None:
    """An error of an operation on one thread."""
    if not ALL_BY_XUPC:
        return
    for kind in (Refused, KeyboardInterrupt, RecursionError):
        for data in (RANK, np.zeros(100_000), "x" * 3000):
            for name in BY_TREE:
                found = raised(methods(data, failing(kind))[name])
                least = 2 if name == "exscan" else 1  # threads without an operation
                assert (found is not None) == (BAD and least < SIZE), (name, found)
        check_usable(COMM)


def depth() -> int:
    """Return how many functions are running."""
    frame, found = sys._getframe(), 0
    while frame is not None:
        frame, found = frame.f_back, found + 1  # type: ignore[assignment]
    return found


def down(levels: int, call: Callable[[], Any]) -> Any:
    return call() if levels <= 0 else down(levels - 1, call)


def new_calls(n: int) -> list[tuple[Callable[[], Any], Callable[[Any], bool]]]:
    """Return calls with messages of sizes that belong to `n`, and what their results must be."""
    x, y, every, text = np.full(n, 1.0), np.zeros(n), np.zeros(n * SIZE), "x" * (700 * n)
    total = [SIZE] * n
    return [
        (lambda: COMM.Allreduce(x, y), lambda _: y.tolist() == total),
        (lambda: COMM.Allgather(x, every), lambda _: bool((every == 1).all())),
        (lambda: COMM.allgather(text), lambda got: got == [text] * SIZE),
        (lambda: COMM.allgather(bytes(300_000 * n)), lambda got: len(got) == SIZE),
        (lambda: COMM.alltoall([text] * SIZE), lambda got: got == [text] * SIZE),
        (lambda: COMM.bcast(text, 0), lambda got: got == text),
        (lambda: COMM.allreduce(n), lambda got: got == n * SIZE),
        (lambda: COMM.Iallreduce(x, y).Wait(), lambda _: y.tolist() == total),
        (COMM.Barrier, lambda _: True),
    ]


def deep() -> None:
    """A call works with a few functions left of the recursion limit, as mpi4py's does.

    The other threads are late, so this one waits, in new calls and in repeated ones.
    """
    for n, left in enumerate((5, 7, 9, 12, 16, 22, 30), 1):
        for call, right in new_calls(n):
            for _ in range(2):
                COMM.Barrier()
                if BAD:
                    got = down(sys.getrecursionlimit() - depth() - left, call)
                else:
                    time.sleep(0.01)
                    got = call()
                assert right(got), (left, got)
        check_usable(COMM)


CHECKS = (pickled_once, read, combined, deep)

{check.__name__: check for check in CHECKS}[sys.argv[1]]()
check_usable(COMM)
print("done", flush=True)
