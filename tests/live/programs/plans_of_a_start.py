"""Print sizes and plans of a job whose clock runs at random: ``plans_of_a_start.py SEED``.

A job that times anything at its start would choose its sizes by these times.
"""

from __future__ import annotations

import random
import sys
import time

import numpy as np

rng = random.Random(int(sys.argv[1]))
passed = 0


def random_clock() -> int:
    """Return a time in ns that grows by anything from 1 ns to 1 s."""
    global passed
    passed += int(10 ** rng.uniform(0, 9))
    return passed


time.perf_counter_ns = random_clock
time.perf_counter = lambda: random_clock() / 1e9

import xupc  # noqa: E402

team = xupc.init()
state = team.state
lines = [str(sorted(team.tuning.items())), str(state._past_the_cache())]
for nbytes in (1 << k for k in range(10, 24)):
    a, b = np.zeros(nbytes // 8), np.zeros(nbytes // 8)
    every = np.zeros(nbytes // 8 * team.size)
    lines += [
        str(plan)
        for plan in (
            xupc.allav_broadcast.plan(a, 0),
            xupc.allav_gather_all.plan(every, a),
            xupc.allav_exchange.plan(every, every.copy()),
            xupc.allav_reduce_all.plan(b, a, xupc.ADD),
            xupc.allav_prefix_reduce.plan(b, a, xupc.ADD),
        )
    ]
xupc.finalize()
sys.stdout.write(f"thread {state.rank}\n" + "\n".join(lines) + "\n")
sys.stdout.flush()
