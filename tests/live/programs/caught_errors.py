"""Errors that threads detect in different calls: which calls to catch together, and what if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import xupc

team = xupc.init(timeout=60)
ME, THREADS = xupc.MYTHREAD, xupc.THREADS
ERRORS = TypeError, ValueError, xupc.XupcError
D, S = (xupc.all_alloc(8 * THREADS, np.uint8, 8) for _ in range(2))
A = xupc.all_alloc(THREADS, np.int32)
NOSYNC = xupc.IN_NOSYNC | xupc.OUT_NOSYNC
odd = THREADS - 1
wrong = odd == ME
number = 0

TOGETHER: dict[str, Callable[[], Any]] = {
    "a bad value": lambda: xupc.allv_gather(object() if wrong else 1, 0),
    "another type": lambda: xupc.allv_gather(1.0 if wrong else 1, 0),
    "other types from the root": lambda: xupc.allv_broadcast(1 if ME == 0 else 1.5, 0),
    "another size": lambda: xupc.all_broadcast(D, S, 1 if wrong else 2, NOSYNC),
    "another root": lambda: xupc.all_broadcast(D, S + 8 * wrong, 2, NOSYNC),
    "a barrier instead": lambda: xupc.barrier() if wrong else xupc.all_gather(D, S, 1, 0),
    "a bad array": lambda: xupc.allav_gather(np.empty(THREADS), None if wrong else np.ones(1), 0),
}
ONE_BY_ONE: dict[str, Callable[[], Any]] = {
    "a bad size": lambda: xupc.all_broadcast(D, S, 0 if wrong else 2, NOSYNC),
}


def raised(*calls: Callable[[], Any]) -> bool:
    """Return whether one of some calls raised an error, after which the rest is left out."""
    try:
        for call in calls:
            call()
    except ERRORS:
        return True
    return False


def in_step(what: str) -> None:
    """Check that all threads make the same calls: a thread that is one behind has other numbers."""
    global number
    for _ in range(3):
        number += 1
        xupc.barrier(number)
    A[ME] = number
    xupc.barrier()
    assert list(A[:]) == [number] * THREADS, (what, A[:])
    xupc.barrier()


def passes(what: str, call: Callable[[], Any]) -> None:
    """Catch errors pass by pass of a loop, in which the call is not always made."""
    errors = 0
    for turn in range(4):
        errors += raised(*[call] * (turn == 1), xupc.barrier)
    assert errors == 1, (what, errors)
    in_step(what)


def apart(what: str, call: Callable[[], Any]) -> None:
    """Catch errors call by call: all threads detect it at a barrier with a number."""
    global number
    assert raised(call) + raised(xupc.barrier) == 1, what
    before, number = number, number + 3
    assert raised(*(lambda n=n: xupc.barrier(n) for n in range(before + 1, number + 1))), what
    in_step(what)


for name, strange in TOGETHER.items():
    assert raised(strange, xupc.barrier), name
    in_step(name)
    passes(name, strange)
for name, strange in ONE_BY_ONE.items():
    assert raised(strange) + raised(xupc.barrier) == 1 + wrong, name
    in_step(name)
for name in ("a bad value", "a bad array"):
    apart(name, TOGETHER[name])
print("done", flush=True)
