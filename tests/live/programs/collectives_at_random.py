"""Every collective, algorithm, pair of sync modes, size and root, in random order.

Arguments as JSON: sizes, whether all roots are taken, one of how many cases.
Each case runs twice in a row, the second time through the cache of calls. Nothing but what the
sync modes promise stands between a call and the accesses of its data.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from typing import Any

from support.checked_calls import ALGORITHMS, FUNCTIONS, ROOTED, SYNC, Buffers, blocks, done

import xupc

SEED = 7
SHIFTS = (0, 5)
FEWER = ("exchange", "broadcast_in_place", "permute")  # a third: they move as others do


def cases(sizes: list[int], all_roots: bool, thin: int) -> list[tuple[Any, ...]]:
    """(collective, algorithm, sync modes, nbytes, root) in an order that is random but known."""
    out = []
    for name, algorithm, sync, n in itertools.product(FUNCTIONS, ALGORITHMS, SYNC, sizes):
        roots = range(xupc.THREADS) if name in ROOTED else range(1)
        if not (all_roots and n < 4096):
            roots = [len(out) % len(roots)]
        out += [(name, algorithm, sync, n, root) for root in roots]
    random.Random(SEED).shuffle(out)
    out = [case for i, case in enumerate(out) if case[0] not in FEWER or i % 3 == 0]
    return out[::thin]


def main() -> None:
    options = json.loads(sys.argv[1])
    xupc.init(timeout=30)
    room = max(options["sizes"]) + max(SHIFTS)
    small = Buffers(4096 * xupc.THREADS)
    large = Buffers(room * xupc.THREADS)
    number = 0
    todo = cases(**options)
    for count, (name, algorithm, sync, n, root) in enumerate(todo):
        buffers = small if n < 4096 else large
        shift = SHIFTS[count % 2]
        flags = SYNC[sync] | ALGORITHMS[algorithm]
        operands = buffers.operands(name, root, shift)
        for repetition in range(2):
            number += 1
            buffers.fill(name, number, n, shift)
            if sync[0] == "NOSYNC":
                xupc.barrier()
            FUNCTIONS[name](*operands, n, flags)
            if sync[1] == "NOSYNC":
                xupc.barrier()
            what = (SEED, count, name, algorithm or "no flag", *sync, n, f"root {root}", repetition)
            buffers.check(name, number, n, root, shift, what)
        if count % 300 == 299:  # the heap grows, and the operands move
            extra = xupc.all_alloc(xupc.THREADS * (1 << 18) * (1 + count // 300), "u1", 1 << 16)
            assert not extra.local.any()
            extra.local[:] = 255
            small.free()
            small = Buffers(4096 * xupc.THREADS)
            xupc.all_free(extra)
    assert max(blocks("gather", xupc.THREADS)) * room <= large.part
    done(len(todo))


main()
