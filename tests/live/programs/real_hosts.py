"""Several real hosts: where the threads are, a mismatch among them, and a heap that is too large.

on_hosts.py SIZES: the threads of each host as JSON, in order; then what to do.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import accumulate, pairwise
from pathlib import Path

from support.checked_calls import Usable, raises

import xupc

sizes = [n for n in json.loads(sys.argv[1]) if n]
what = sys.argv[2]
SHARED = Path(os.environ.get("XUPC_SHM_DIR", "/dev/shm"))


def left() -> list[str]:
    return [path.name for path in SHARED.glob("xupc-*")]


team = xupc.init(timeout=30)
starts = [0, *accumulate(sizes)]
nodes = tuple(tuple(range(a, b)) for a, b in pairwise(starts))
assert team.tree.nodes == nodes, team.tree.nodes
assert left() == [], left()
usable = Usable()
if what == "mismatch":
    A = xupc.all_alloc(64 * xupc.THREADS, "u1", 64)
    B = xupc.all_alloc(64 * xupc.THREADS, "u1", 64)
    calls = [
        lambda: xupc.all_broadcast(B, A, 16),
        lambda: xupc.all_broadcast(B, A, 8, xupc.MULTICORE),
        lambda: xupc.all_gather_all(B, A, 2),
        xupc.barrier,
    ]
    for odd in (0, starts[1], xupc.THREADS - 1):
        for call in calls:
            mine = call if odd == xupc.MYTHREAD else lambda: xupc.all_broadcast(B, A, 8)
            raises(xupc.CollectiveMismatchError, (f"thread {odd}",), mine, odd)
            usable(f"a mismatch of thread {odd}")
elif what == "heap":
    nbytes = 1 << 28
    large = xupc.THREADS * nbytes
    raises(xupc.HeapError, ("all_alloc", "free"), lambda: xupc.all_alloc(large, "u1", nbytes))
    usable("a HeapError")
    # Only the first thread's host would have to hold this.
    raises(xupc.HeapError, ("all_alloc", "free"), lambda: xupc.all_alloc(nbytes, "u1", 0))
    usable("a HeapError on one host")
xupc.finalize()
assert left() == [], left()
print("done:", team.rank)
