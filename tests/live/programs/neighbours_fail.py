"""A thread that does not come to an exchange of its neighbours; argument: how it fails."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import xupc

team = xupc.init()
ring = team.cartesian((team.size,), True)
got, given = np.zeros((2, 1000)), np.ones((2, 1000))
exchange = xupc.allav_neighbour_exchange(ring, list(got), list(given))
for _ in range(100):
    exchange()
if team.rank == 1:
    if sys.argv[1] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
exchange()
team.barrier()
