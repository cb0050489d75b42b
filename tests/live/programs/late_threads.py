"""A thread that is late is no mismatch, whatever the others have gone on to meanwhile."""

from __future__ import annotations

import itertools
import time

from support.checked_calls import ALGORITHMS, FUNCTIONS, ROOTED, SYNC, Buffers, done

import xupc

# (seconds, how often): longer than a waiting thread looks away, and than it takes to suspect
LATE = ((0.15, 3), (0.7, 1))


def main() -> None:
    xupc.init(timeout=30)
    threads = xupc.THREADS
    buffers = Buffers(1000 * threads)
    number = 0
    turn = itertools.cycle(itertools.product(SYNC, ALGORITHMS.values()))
    for name, (late, times) in itertools.product(FUNCTIONS, LATE):
        for _ in range(times):
            number += 1
            sync, algorithm = next(turn)
            root = number % threads if name in ROOTED else 0
            buffers.fill(name, number, 1000)
            xupc.barrier()
            if (root + 1) % threads == xupc.MYTHREAD:
                time.sleep(late)
            FUNCTIONS[name](*buffers.operands(name, root), 1000, SYNC[sync] | algorithm)
            xupc.barrier()
            buffers.check(name, number, 1000, root, 0, (name, sync, algorithm, late))
    done(number)


main()
