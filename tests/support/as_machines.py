"""Threads that take this machine for several: ``XUPC_TEST_MACHINES=2,1``, for a program's start."""

from __future__ import annotations

import os
from itertools import accumulate

from xupc.topology import host_record

__all__ = ["MACHINES", "set_machine"]

MACHINES = "XUPC_TEST_MACHINES"


def set_machine(thread: int) -> None:
    """Give this thread the host id of its machine: the variable has the threads of each."""
    if sizes := os.environ.get(MACHINES):
        ends = accumulate(map(int, sizes.split(",")))
        number = next(i for i, end in enumerate(ends) if thread < end)
        host_record._gethostid = lambda: 0x0A000001 + number
