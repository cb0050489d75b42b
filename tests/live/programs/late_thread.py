"""A thread comes late to a call, for test_trace.

    late_thread.py THREAD WAY

The thread enters the call on the marked line when all others wait there. Then, by WAY, the job
``ends``, the thread is ``killed``, is ``posted``: the late call is one of a handle; or ``many``
calls follow.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from support.handshakes import await_others

import xupc

LATE, WAY = int(sys.argv[1]), sys.argv[2]
MANY = 20_000

with xupc.init() as team:
    src = xupc.all_alloc(8 * xupc.THREADS, np.float64, 8)
    dst = xupc.all_alloc(8 * xupc.THREADS, np.float64, 8)
    xupc.all_broadcast(dst, src, 64)
    late = xupc.MYTHREAD == LATE
    if WAY == "killed" and late:
        await_others()
        os.kill(os.getpid(), signal.SIGKILL)
    if late:
        await_others()
    if WAY == "posted":
        xupc.all_broadcast(dst, src, 64, xupc.ASYNC).wait()  # LINE posted
    else:
        xupc.all_broadcast(dst, src, 64)  # LINE late
    for _ in range(MANY if WAY == "many" else 0):
        xupc.all_broadcast(dst, src, 64)  # LINE many
