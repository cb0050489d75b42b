"""What ALLSYNC and MYSYNC promise, with threads that dawdle.

Under ALLSYNC thread i writes the input of thread i+1 just before the call and reads the output of
thread i+1 just after it. Under MYSYNC each does so with its own. Nothing else synchronises.
"""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
from support.checked_calls import (
    ALGORITHMS,
    FUNCTIONS,
    GUARD,
    IN_PLACE,
    POISON,
    ROOTED,
    SYNC,
    Buffers,
    Dawdle,
    blocks,
    done,
    expected,
    same,
    values,
)

import xupc

SIZES = (1, 1023, 40_000)


def neighbours(buffers: Buffers, mode: str, repetitions: int) -> int:
    """Run all collectives under IN_mode and OUT_mode."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    whose = (me + 1) % threads if mode == "ALLSYNC" else me
    dawdle = Dawdle(3)
    number = 0
    for name, algorithm, n in itertools.product(FUNCTIONS, ALGORITHMS, SIZES):
        flags = SYNC[mode, mode] | ALGORITHMS[algorithm]
        dst_bytes, src_bytes = (n * k for k in blocks(name, threads))
        source = buffers.pointer("src", whose)
        target = buffers.pointer("dst", whose, -GUARD)
        got = np.empty(dst_bytes + 2 * GUARD, np.uint8)
        for repetition in range(repetitions):
            number += 1
            root = number // 3 % threads if name in ROOTED else 0
            dawdle()
            xupc.memput(source, values(number, whose, src_bytes), src_bytes)
            xupc.memset(target, POISON, got.size)
            if name in IN_PLACE:
                block = buffers.pointer("dst", whose)
                xupc.memput(block, values(number, whose, dst_bytes), dst_bytes)
            FUNCTIONS[name](*buffers.operands(name, root), n, flags)
            xupc.memget(got, target, got.size)
            want = np.full(got.size, POISON, np.uint8)
            data = expected(name, number, n, root, whose)
            if data is not None:
                want[GUARD : GUARD + dst_bytes] = data
            what = (mode, name, algorithm, n, f"root {root}", repetition, f"of thread {whose}")
            same(got, want, "dst", what)
            dawdle()
    return number


def lists(buffers: Buffers, into: str, out: str, repetitions: int) -> int:
    """Permute: a list's contents are data, and the sync modes apply to them as to other data.

    A neighbour writes each element, or its owner does, just before the call, and spoils it
    just after. A private list is another one each time, in the same object.
    """
    threads, me = xupc.THREADS, xupc.MYTHREAD
    dawdle, random = Dawdle(5), np.random.default_rng(9)
    shared = xupc.all_alloc(3 * threads, "i8", 1)
    private: list[int] = list(range(threads))
    dst, src = buffers.operands("gather_all", 0)
    for number in range(repetitions * len(ALGORITHMS)):
        n = SIZES[number % len(SIZES)]
        flags = SYNC[into, out] | list(ALGORITHMS.values())[number % len(ALGORITHMS)]
        chosen = random.permutation(threads).tolist()
        buffers.fill("broadcast", number, n)
        dawdle()
        first = threads * (number % 3)
        mine = (me + 1) % threads if into == "ALLSYNC" else me
        shared[first + mine] = chosen[mine]
        if into != "ALLSYNC":
            xupc.barrier()
        xupc.all_permute(dst, src, shared + first, n, flags)
        spoilt = (me + 1) % threads if out == "ALLSYNC" else me
        shared[first + spoilt] = -1
        want = values(number, chosen.index(me), n)
        same(buffers.dst.local[GUARD : GUARD + n], want, "array", (into, out, "list", number))
        dawdle()
        xupc.barrier()
        private[:] = chosen
        xupc.all_permute(dst, src, private, n, flags)
        private[0] = -1
        same(buffers.dst.local[GUARD : GUARD + n], want, "array", (into, out, "private", number))
        xupc.barrier()
    xupc.all_free(shared)
    return repetitions * len(ALGORITHMS)


def run_ahead(buffers: Buffers) -> int:
    """Far more calls without any synchronisation than may be under way, one thread being slow."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    number = 0
    for name, algorithm in itertools.product(FUNCTIONS, ALGORITHMS):
        flags = SYNC["NOSYNC", "NOSYNC"] | ALGORITHMS[algorithm]
        dst_blocks, src_blocks = blocks(name, threads)
        calls = 120
        for k in range(calls):
            at = GUARD + 8 * threads * k
            mine = values(number + k, me, 8 * src_blocks)
            buffers.src.local[at : at + mine.size] = mine
            buffers.dst.local[at : at + 8 * threads] = POISON
            if name in IN_PLACE:
                buffers.dst.local[at : at + 8] = values(number + k, me, 8)
        xupc.barrier()
        dawdle = Dawdle(number)
        for k in range(calls):
            dawdle(30, 0.003)
            root = k % threads if name in ROOTED else 0
            FUNCTIONS[name](*buffers.operands(name, root, 8 * threads * k), 8, flags)
        xupc.barrier()
        for k in range(calls):
            at = GUARD + 8 * threads * k
            root = k % threads if name in ROOTED else 0
            want = np.full(8 * threads, POISON, np.uint8)
            data = expected(name, number + k, 8, root, me)
            if data is not None:
                want[: 8 * dst_blocks] = data
            found = buffers.dst.local[at : at + 8 * threads]
            same(found, want, "dst", ("NOSYNC", name, algorithm, k, f"root {root}"))
        number += calls
    return number


def main() -> None:
    repetitions = json.loads(sys.argv[1])
    xupc.init(timeout=30)
    buffers = Buffers(max(SIZES) * xupc.THREADS)
    count = neighbours(buffers, "ALLSYNC", repetitions)
    xupc.barrier()
    count += neighbours(buffers, "MYSYNC", repetitions)
    xupc.barrier()
    for into, out in itertools.product(("ALLSYNC", "MYSYNC"), repeat=2):
        count += lists(buffers, into, out, min(repetitions, 3))
    done(count + run_ahead(buffers))


main()
