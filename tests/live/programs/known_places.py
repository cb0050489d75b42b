"""Threads in known places, for test_hang_report.

    known_places.py WAY..

Thread i follows the i-th WAY. Each prints ``pid THREAD PID`` first, and ``up`` right before
the line where it stays.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import xupc

LATE = 100  # far longer than any test waits


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def sleep() -> None:
    say("up")
    time.sleep(LATE)  # LINE sleep


def compute() -> None:
    a = np.random.default_rng(1).random((300, 300))
    say("up")
    any(np.matmul(a, a) is None for _ in iter(int, 1))  # LINE compute


def in_c() -> None:
    say("up")
    sum(range(10**12))  # no other thread of the process runs meanwhile, and no signal's handler


def agree(dst: xupc.SharedArray, src: xupc.SharedArray) -> None:
    say("up")
    xupc.all_alloc(64, np.uint8)  # LINE agree


def gather(dst: xupc.SharedArray, src: xupc.SharedArray) -> None:
    say("up")
    xupc.all_gather(dst, src, 8)  # LINE gather


def post(dst: xupc.SharedArray, src: xupc.SharedArray) -> None:
    handle = xupc.all_gather(dst, src, 8, xupc.ASYNC)
    say("up")
    time.sleep(LATE)  # LINE post
    handle.wait()


def post_and_wait(dst: xupc.SharedArray, src: xupc.SharedArray) -> None:
    say("up")
    xupc.all_gather(dst, src, 8, xupc.ASYNC).wait()  # LINE wait


xupc.init()
say("pid", xupc.MYTHREAD, os.getpid())
threads = xupc.THREADS
dst = xupc.all_alloc(8 * threads, np.uint8, 8 * threads)
src = xupc.all_alloc(8 * threads, np.uint8, 8)
for _ in range(3):
    xupc.all_gather(dst, src, 8)
match sys.argv[1 + xupc.MYTHREAD]:
    case "sleep":
        sleep()
    case "compute":
        compute()
    case "C":
        in_c()
    case "agree":
        agree(dst, src)
    case "gather":
        gather(dst, src)
    case "post":
        post(dst, src)
    case "wait":
        post_and_wait(dst, src)
xupc.barrier()
