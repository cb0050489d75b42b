"""The check at start whether threads may access each other's private memory.

Settings of the kernel or of a container may forbid it, and no description of a machine says so.
How fast such accesses are, `xupc tune` measures (`xupc.bench.host_probe`).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..backends.native.native_core import core

__all__ = ["pids_in_reach"]

NONCE = 16


def pids_in_reach(comm: Any) -> list[int] | None:
    """Process numbers of the machine's threads; None here if one is out of my reach.

    Collective on the machine's communicator. Each thread reads a secret in the memory of every
    other one: a number alone could belong to another process, in another container. Then it
    writes the same bytes there, since that may be forbidden alone.
    """
    nonce = np.frombuffer(os.urandom(NONCE), np.uint8).copy()
    rows = comm.allgather((os.getpid(), nonce.ctypes.data, nonce.tobytes()))
    room = np.empty(NONCE, np.uint8)
    here = room.ctypes.data
    good = core is not None and all(
        core.across(pid, here, address, NONCE, False) == 0
        and room.tobytes() == secret
        and core.across(pid, here, address, NONCE, True) == 0
        for pid, address, secret in rows
    )
    comm.Barrier()  # the nonce is needed until here
    return [pid for pid, _, _ in rows] if good else None
