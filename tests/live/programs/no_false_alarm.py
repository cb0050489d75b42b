"""No false alarm: a long random sequence of correct calls, the same on every thread.

Arguments: how many calls, and a seed. Now and then a thread is late, at times for longer than the
library waits before it suspects that calls differ.
"""

from __future__ import annotations

import random
import sys
import time

from support.checked_calls import ALGORITHMS, FUNCTIONS, ROOTED, SYNC, Buffers, Usable, done

import xupc

NBYTES = (1, 8, 8, 8, 64, 1000)


def main() -> None:
    calls, seed = int(sys.argv[1]), int(sys.argv[2])
    xupc.init(timeout=30)
    if xupc.MYTHREAD == 0:
        print(f"seed {seed}")
    common, own = random.Random(seed), random.Random(seed * 1000 + xupc.MYTHREAD)
    threads = range(xupc.THREADS)
    buffers = Buffers(max(NBYTES) * len(threads))
    usable = Usable()
    flags = [sync | algorithm for sync in SYNC.values() for algorithm in ALGORITHMS.values()]
    plans = [
        FUNCTIONS[name].plan(*buffers.operands(name, len(threads) - 1), 8, common.choice(flags))
        for name in ROOTED
    ]
    arrays = []
    for k in range(calls):
        dice = common.random()
        if own.random() < 0.0005:
            time.sleep(own.random() * 0.005)
        if k % (calls // 3) == calls // 6 and k // (calls // 3) % len(threads) == xupc.MYTHREAD:
            time.sleep(0.8)
        if dice < 0.8:
            name = common.choice(tuple(FUNCTIONS))
            root = common.choice(threads) if name in ROOTED else 0
            operands = buffers.operands(name, root)
            FUNCTIONS[name](*operands, common.choice(NBYTES), common.choice(flags))
        elif dice < 0.9:
            common.choice(plans)()
        elif dice < 0.94:
            xupc.barrier()
        elif dice < 0.96:
            value = common.choice([1, 2, "x"])
            xupc.barrier(value if own.random() < 0.5 else None)
        elif dice < 0.98:
            xupc.notify()
            xupc.wait()
        elif dice < 0.985 and not arrays:
            arrays.append(xupc.all_alloc(100, "i4"))
        elif dice < 0.99 and arrays:
            xupc.all_free(arrays.pop())
        elif dice < 0.995:
            xupc.fence()
        else:
            usable(k)
    usable("all calls")
    done(calls)


main()
