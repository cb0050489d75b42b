"""A thread comes to its end in a chosen moment of a program that does a bit of everything.

    dying.py JSON: victim, phase, how, hits, after

`phase` is "outside", where it is in no call; or a key of MOMENTS: a function of the library, in
which the victim strikes when it is called for the `hits`-th time (`after`: when it returns); or of
TIMED: a scene in which it strikes from a timer. The victim prints ``victim THREAD PID HOST``,
``begun`` when init is over and, right before the blow, ``struck TIME``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import xupc

# phase: module, class or module in it, function
MOMENTS = {
    "start": ("xupc.runtime.job", "Job", "start"),
    "MPI's start": ("xupc.runtime", "job", "start_mpi"),
    "settings": ("xupc.runtime", "job", "agree_settings"),
    "proof": ("xupc.runtime", "job", "prove_memory"),
    "control segment": ("xupc.runtime.job", "Job", "_map_control"),
    "first heap": ("xupc.runtime.job", "Job", "_make_heap"),
    "growth": ("xupc.pgas.heap", "Heap", "grow"),
    "pages": ("xupc.pgas.heap", "Heap", "take"),
    "word": ("xupc.comm.setup_collectives", "Agreement", "agree_room"),
    "team": ("xupc.runtime.team_resources", "TeamResources", "open"),
    "one-sided": ("xupc.runtime.remote_memory", "RemoteMemory", "get"),
    "MPI step": ("xupc.comm.message_layout", "MessageLayout", "describe"),
    "MPI's turn": ("xupc.comm.mpi", "MpiContext", "progress"),
    "mismatch": ("xupc.health.mismatch_recovery", "_Talk", "round"),
    "posted": ("xupc.runtime.async_queue", "AsyncCall", "advance"),
    "function": ("", "", ""),
    "finalize": ("xupc.runtime.job", "Job", "close"),
    "last memory": ("xupc.pgas.heap", "Heap", "close"),
}
TIMED = ("native wait", "chunks", "computes", "notified")

FOLDED = 1 << 14  # elements of each thread: so many that each of them folds its own

options: dict[str, Any] = json.loads(sys.argv[1])
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
ME = next(int(os.environ[name]) for name in RANKS if name in os.environ)
IS_VICTIM = options["victim"] == ME
PHASE: str = options["phase"]
left = options["hits"]


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def launcher() -> int:
    """The first process of the job: the oldest ancestor with its mark."""
    mark = b"XUPC_TEST_JOB=" + os.environ["XUPC_TEST_JOB"].encode()
    pid = found = os.getpid()
    while pid > 1:
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found = pid
        status = Path(f"/proc/{pid}/stat").read_text()
        pid = int(status.rpartition(")")[2].split()[1])
    return found


def strike() -> None:
    say("struck", time.monotonic())
    match options["how"]:
        case "launcher":
            time.sleep(0.1)  # what was said goes through it
            os.kill(launcher(), signal.SIGKILL)
        case "exit 0" | "exit 5":
            os._exit(int(options["how"][-1]))
        case "raise":
            raise RuntimeError("the program's own mistake")
        case "leave":
            sys.exit(3)
        case name:
            os.kill(os.getpid(), signal.Signals[name])


def trap(function: Any) -> Any:
    """`function`, with a strike when it is called for the chosen time."""

    @functools.wraps(function)
    def trapped(*args: Any, **kwargs: Any) -> Any:
        global left
        left -= 1
        if left == 0 and not options["after"]:
            strike()
        out = function(*args, **kwargs)
        if left == 0 and options["after"]:
            left -= 1
            strike()
        return out

    return trapped


def in_function() -> None:
    """Called by the function that reductions take, whose code is the same on all threads."""


@xupc.vectorized
def joined(a: Any, b: Any) -> Any:
    in_function()
    return a + b


if IS_VICTIM:
    say("victim", ME, os.getpid(), socket.gethostname())
    if PHASE == "function":
        in_function = trap(in_function)
    elif PHASE in MOMENTS:
        import xupc.api.lifecycle

        module, owner, name = MOMENTS[PHASE]
        at: Any = getattr(importlib.import_module(module), owner)
        plain = getattr(at, name)
        method = trap(plain)
        setattr(at, name, staticmethod(method) if hasattr(plain, "__self__") else method)


def timed(phase: str, seconds: float) -> bool:
    """Whether this is the scene; the victim's end is prepared, at a moment of its own each time."""
    if phase == PHASE and IS_VICTIM:
        threading.Timer(seconds, strike).start()
    return phase == PHASE


def main() -> None:
    team = xupc.init()
    if IS_VICTIM:
        say("begun")
    T, n = team.size, 1 << 20
    late = (options["victim"] + 1) % T
    dst = xupc.all_alloc(n * T, "u1", n)
    src = xupc.all_alloc(n * T, "u1", n)
    result, many = xupc.all_alloc(8 * T, "i8", 8), xupc.all_alloc(FOLDED * T, "i8", FOLDED)
    if timed("native wait", 0.15):
        if late == ME:
            time.sleep(0.4)  # the victim ends before this one comes
        xupc.barrier()
    if timed("computes", 0.1) and IS_VICTIM:
        time.sleep(30)  # it ends meanwhile
    if timed("notified", 0.1):
        xupc.notify()
        if IS_VICTIM:
            time.sleep(30)  # it ends meanwhile
        xupc.wait()
    if PHASE == "outside":
        if IS_VICTIM:
            time.sleep(0.1)  # others are in their call by then, or on the way: both are trials
            strike()
        xupc.all_gather_all(dst, src, 64)
    if timed("chunks", 0.02 + 0.05 * options["hits"]):
        for _ in range(2000):
            xupc.all_broadcast(dst, src, n, xupc.MULTICORE)
    for turn in range(2):
        xupc.all_broadcast(dst, src, n // 2, xupc.MULTICORE)
        xupc.all_reduce_all(result, many, xupc.FUNC, func=joined)
        xupc.all_exchange(dst, src, 5000, xupc.PULL)
        xupc.all_gather_all(dst, src, 5000, xupc.PUSH)
        handle = xupc.all_gather(dst, src, 60_000, xupc.ASYNC)
        assert handle is not None
        handle.wait()
        xupc.memget(np.empty(8, np.uint8), src + n * ((ME + T // 2) % T), 8)
        more = xupc.all_alloc((8 << 20) * T << 2 * turn, "u1", "*")
        xupc.all_free(more)
        part = team.split(ME % 2)
        assert part is not None
        xupc.allav_gather_all(np.empty(8 * part.size), np.empty(8), team=part)
        part.free()
        try:
            xupc.all_broadcast(dst, src, 8 if IS_VICTIM else 16)
        except xupc.CollectiveMismatchError:
            continue
        raise AssertionError("a difference was not found")
    xupc.finalize()
    say("survived")


main()
