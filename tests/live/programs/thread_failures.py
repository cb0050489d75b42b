"""Ends of threads and what the others do meanwhile, for test_death, test_hang, test_interrupt.

    thread_failures.py SCENARIO VICTIM [OPTION..]

Prints ``victim THREAD PID HOST`` and, right before it strikes, ``struck MONOTONIC_TIME``.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from support.handshakes import (
    await_death,
    await_end_of_calls,
    await_interrupt,
    await_others,
    await_wait,
    control,
    kill_when,
    mates,
)
from support.polling import await_file, job_folder

import xupc
from xupc.runtime import current

scenario, victim, *options = sys.argv[1:]
VICTIM = int(victim)
OF_MPI = r"/dev/shm/(mpich_shm|sm_segment)"  # what MPI itself removes in its end only
LATE = 60.0  # far longer than any test waits


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def say_when() -> None:
    """Print when the victim's end comes."""
    say("struck", time.monotonic())


def strike(number: int, ready: Callable[[], None] = await_others) -> None:
    """Send this process a signal from a thread of its own, when the others wait."""

    def ready_everywhere() -> None:
        ready()
        if control().machines > 1:  # other machines learn some time later what this thread does
            time.sleep(0.3)

    kill_when(ready_everywhere, number, say_when)


def own_wait(*without: int) -> None:
    """Wait until this thread waits, and all others but those."""
    await_wait([control().index, *mates(*without)])


def compute(how: str, seconds: float = LATE) -> None:
    """Do something without calling xupc."""
    end = time.monotonic() + seconds
    if how == "sleep":
        time.sleep(seconds)
    elif how == "C":  # no other thread of the process runs meanwhile
        ctypes.PyDLL(None).sleep(int(seconds))
    elif how == "numpy":
        a = np.random.default_rng(1).random((200, 200))
        while time.monotonic() < end:
            a = a @ a
            a /= a.max()
    else:
        x = 0
        while time.monotonic() < end:
            for i in range(100_000):
                x ^= i


def arrays() -> tuple[xupc.SharedArray, xupc.SharedArray]:
    threads = xupc.THREADS
    dst = xupc.all_alloc(256 * threads, np.uint8, 256)
    src = xupc.all_alloc(256 * threads, np.uint8, 256)
    for _ in range(3):
        xupc.all_broadcast(dst, src, 256)
    return dst, src


if scenario == "never calls init":
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == VICTIM:
        time.sleep(LATE)
if scenario == "warns":
    from xupc.health import failure_detector

    failure_detector.WARN_AFTER = 0.5
xupc.init()
ME, THREADS = xupc.MYTHREAD, xupc.THREADS
IS_VICTIM = ME == VICTIM
if IS_VICTIM:
    say("victim", ME, os.getpid(), socket.gethostname())
    with open("/proc/self/maps") as maps:
        say("mpi's", *{word for line in maps for word in line.split() if re.match(OF_MPI, word)})
dst, src = arrays()

match scenario:
    case "waits":  # the victim dies in a wait, like most others; one computes
        late = (VICTIM + 1) % THREADS
        if IS_VICTIM:
            strike(signal.SIGKILL, partial(own_wait, late))
        if late == ME:
            await_death(VICTIM)  # while this one is on its way
        xupc.all_broadcast(dst, src, 256)
        xupc.barrier()
    case "computes":  # the victim dies while it computes, the others wait
        if IS_VICTIM:
            strike(signal.SIGKILL)
            compute(options[0])
        xupc.all_gather(dst, src, 256 // THREADS)
        xupc.barrier()
    case "unnoticed":  # the others compute, each in its way
        if IS_VICTIM:
            strike(signal.SIGKILL, await_end_of_calls)
        compute(("sleep", "numpy", "python")[ME % 3])
    case "allocates":  # the victim dies somewhere in all_alloc
        if IS_VICTIM:  # at any moment: what it does at just this time is another thing each time
            strike(signal.SIGKILL, partial(time.sleep, 0.3))
        size = 4096
        while True:
            a = xupc.all_alloc(size * THREADS, np.uint8, "*")
            xupc.all_free(a)
            size = size * 2 if size < 1 << 22 else 4096
    case "exits":  # without a message
        if IS_VICTIM:
            await_others()
            say_when()
            os._exit(5)
        xupc.barrier()
    case "segfault":
        if IS_VICTIM:
            strike(signal.SIGSEGV)
            compute("sleep")
        xupc.barrier()
    case "raises":
        if IS_VICTIM:
            await_others()
            say_when()
            raise RuntimeError("the program's own mistake")
        xupc.all_broadcast(dst, src, 256)
    case "leaves":  # sys.exit while the others are in a collective
        if IS_VICTIM:
            await_others()
            say_when()
            sys.exit(4)
        xupc.all_broadcast(dst, src, 256)
    case "a handler raises":  # an exception of the program's own, out of a wait, and is caught

        def handler(*_: object) -> None:
            raise TimeoutError("the program's own")

        private = np.full(400_000, float(ME))
        calls = {
            "push": lambda: xupc.allav_broadcast(private, 1, xupc.PUSH),
            "exchange": lambda: xupc.all_exchange(dst, src, 256 // THREADS),
            "posted": lambda: xupc.all_broadcast(dst, src, 256, xupc.ASYNC).wait(),
            "alloc": lambda: xupc.all_alloc(8, np.uint8),
            "split": lambda: xupc.init().split(0),
            "node_array": lambda: xupc.node_array(8, np.uint8),
        }
        calls[options[0]]()  # what a first call imports and plans, none interrupts
        signal.signal(signal.SIGALRM, handler)
        if IS_VICTIM:
            kill_when(partial(await_wait, [control().index]), signal.SIGALRM, lambda: None)
        else:
            await_interrupt(VICTIM)
        over = job_folder() / "over"
        try:
            calls[options[0]]()
        except (TimeoutError, xupc.XupcError) as e:
            say(type(e).__name__)
        if IS_VICTIM:
            del private
            mine = np.full(400_000, 5.0)
            await_file(over)  # the other's call, whatever it would have written
            say("untouched", bool((mine == 5).all()))
        else:
            over.touch()
        try:
            xupc.barrier()
        except xupc.XupcError as e:
            say(f"then: {e}")
    case "catches":  # a survivor goes on after the error
        if IS_VICTIM:
            strike(signal.SIGKILL)
        try:
            xupc.barrier() if not IS_VICTIM else compute("sleep")
        except xupc.DeadThreadError:
            try:
                xupc.barrier()
            except xupc.XupcError as e:
                say(f"again: {type(e).__name__}: {e}")
            compute("sleep")
    case "mpi fails":  # on the victim, while it waits for another node
        from mpi4py import MPI

        def progress() -> bool:
            raise MPI.Exception(MPI.ERR_OTHER)

        if (VICTIM + THREADS // 2) % THREADS == ME:
            compute("sleep")
        if IS_VICTIM:
            current.world().job.network.progress = progress
        try:
            xupc.barrier()
        finally:  # it takes its time first, for the death that an error of MPI may come from
            say_when()
    case "idles":  # nothing happens; another process ends the launcher
        say("up")
        if ME % 2:
            xupc.barrier()
        compute(("sleep", "numpy", "python")[ME % 3])
    case "warns":  # late, but it comes
        if IS_VICTIM:
            compute("sleep", 1.2)
        xupc.barrier()
        xupc.barrier()
    case "posts":  # the victim dies while the others wait for a posted call
        if IS_VICTIM:
            strike(signal.SIGKILL)
            compute("numpy")
        handles = [xupc.all_broadcast(dst, src, 256, xupc.ASYNC) for _ in range(3)]
        handles[1].wait()
    case "on a team":  # the victim dies, all others wait on teams, one of them without it
        part = xupc.init().split(ME % 2)
        if IS_VICTIM:
            strike(signal.SIGKILL)
            compute("numpy")
        part.barrier()
        xupc.barrier()
    case "crosswise":  # two threads in calls of two teams, each waits for the other
        pair = xupc.init().split(0 if ME in (0, 1) else None)
        other = xupc.init().split(0 if ME in (0, 1) else None)
        if ME == 0:
            pair.barrier()
        elif ME == 1:
            xupc.all_broadcast(dst, src, 256, team=other)
        xupc.barrier()
    case "is late":  # never comes to a call
        part = xupc.init().split(0, -ME) if options[0] == "team" else None
        if IS_VICTIM:
            how = "C" if options[0] == "memget" else "sleep"
            compute(how, float(options[1]) if len(options) > 1 else LATE)
        match options[0]:
            case "barrier":
                xupc.barrier()
            case "broadcast":
                xupc.all_broadcast(dst, src, 256)
            case "wait":
                xupc.notify()
                xupc.wait()
            case "all_alloc":
                xupc.all_alloc(8, np.uint8, 1)
            case "all_free":
                xupc.all_free(dst)
            case "finalize":
                xupc.finalize()
            case "posted":
                xupc.all_broadcast(dst, src, 256, xupc.ASYNC).wait()
            case "team":
                part.barrier()
            case "memget":
                xupc.memget(np.empty(8, np.uint8), src + 256 * VICTIM, 8)
                compute("sleep")
    case "stops":  # SIGSTOP is no death
        if IS_VICTIM:
            say_when()
            os.kill(os.getpid(), signal.SIGSTOP)
        xupc.barrier()
    case "is interrupted":  # in a wait: thread VICTIM gets SIGINT, another never comes
        signal.signal(signal.SIGINT, signal.default_int_handler)
        absent = (VICTIM + THREADS // 2) % THREADS
        # in memget only the two threads of the other node read that thread's memory
        without = [absent, *range(THREADS // 2, THREADS)] if options[0] == "memget" else [absent]
        if absent == ME:
            compute("C" if options[0] == "memget" else "sleep")
        if IS_VICTIM:
            strike(signal.SIGINT, partial(own_wait, *without))
        try:
            match options[0]:
                case "barrier":
                    xupc.barrier()
                case "broadcast":
                    xupc.all_broadcast(dst, src, 256)
                case "wait":
                    xupc.notify()
                    xupc.wait()
                case "all_alloc":
                    xupc.all_alloc(8, np.uint8, 1)
                case "agreement":  # past the barrier of all_alloc, before the agreement
                    current.world().agreement.agree([0])
                case "memget":
                    xupc.memget(np.empty(8, np.uint8), src + 256 * absent, 8)
        except KeyboardInterrupt:
            say("interrupted", time.monotonic())
            if "uncaught" in options:
                raise
            for again in (xupc.barrier, lambda: xupc.all_broadcast(dst, src, 256), xupc.finalize):
                try:
                    again()
                except xupc.XupcError as e:
                    say(f"again: {type(e).__name__}: {e}")
            compute("sleep")
