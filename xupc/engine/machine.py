"""What this machine can do, found by trying when a job starts.

Three things that no description of a machine tells: whether its threads may read and write each
other's private memory, which settings of the kernel or of a container may forbid; what that costs;
and whether copies of long blocks are faster past the cache.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .native_core import core

__all__ = ["Reaching", "bypass_pays", "pids_in_reach", "reaching"]

NONCE = 16
LONG = 8 << 20
"""Bytes of a copy that is past the second-level cache, not always past the last one."""
MEDIUM = 1 << 17
"""Bytes of a copy that fits the second-level cache."""
REPEATED = 30
LEAST, MOST = 1 << 12, 1 << 16
"""Bytes from which on the kernel may copy, if its calls cost little, and if they cost much."""
HIDDEN = 1 / 3
"""Of a call of the kernel's cost, as bytes that a thread copies: the rest goes for what staging
costs besides. Found on two machines whose calls took 0.5 and 1.6 us."""
SLOW = 1.3
TRIES = 3
GAIN = 0.9
"""Of the plain copy's time the other one may take to be chosen."""


def pids_in_reach(comm: Any) -> list[int] | None:
    """Process numbers of the machine's threads; None here if one is out of my reach.

    Collective on the machine's communicator. Each thread reads a secret in the memory of every
    other one: a number alone could belong to another process, in another container. Then it
    writes the same bytes there, since that may be forbidden alone.
    """
    nonce = np.frombuffer(secrets.token_bytes(NONCE), np.uint8).copy()
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


class Reaching(NamedTuple):
    """What it costs to have the kernel copy from another process.

    Attributes
    ----------
    least
        Bytes from which on that is cheaper than a second copy.
    slow
        Whether the kernel copies so much slower than a thread does that two copies of two threads
        at the same time may be faster.
    """

    least: int = LEAST
    slow: bool = False


def reaching() -> Reaching:
    """Find that out, by copies inside this process: well below a millisecond."""
    memory = np.ones(2 * MEDIUM, np.uint8)
    here, there = memory.ctypes.data, memory.ctypes.data + MEDIUM
    own = os.getpid()
    nothing = _best(core.across, own, here, there, 0, False)
    call = _best(core.across, own, here, there, 1, False) - nothing
    kernel = _best(core.across, own, here, there, MEDIUM, False) - nothing - call
    thread = max(1, _best(core.copy_bytes, here, there, MEDIUM, 0) - nothing)
    least = round(call / thread * MEDIUM * HIDDEN)
    return Reaching(min(max(least, LEAST), MOST), kernel > SLOW * thread)


def _best(function: Callable[..., object], *args: Any) -> int:
    """The shortest of some calls, in ns."""
    found = []
    for _ in range(REPEATED):
        begin = time.perf_counter_ns()
        function(*args)
        found.append(time.perf_counter_ns() - begin)
    return min(found)


def bypass_pays() -> bool:
    """Whether one thread's long copies are faster when they bypass the cache."""
    with mmap.mmap(-1, 2 * LONG, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        if hasattr(mmap, "MADV_HUGEPAGE"):  # or half of the time goes into getting the pages
            with contextlib.suppress(OSError):
                room.madvise(mmap.MADV_HUGEPAGE)
        memory = np.frombuffer(room, np.uint8)
        try:
            memory[:: mmap.PAGESIZE] = 1
            source, target = memory.ctypes.data, memory.ctypes.data + LONG
            times: dict[int, list[int]] = {0: [], 1: []}
            for _ in range(TRIES):
                for limit, found in times.items():
                    begin = time.perf_counter_ns()
                    core.copy_bytes(target, source, LONG, limit)
                    found.append(time.perf_counter_ns() - begin)
        finally:  # an interrupt, too: what has an array cannot be closed
            del memory
        return min(times[1]) < GAIN * min(times[0])
