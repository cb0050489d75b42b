"""Errors of ranges count in elements of the program's array, never in places of the heap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import xupc


def text(kind: type[Exception], call: Callable[[], Any]) -> str:
    """Return the text of the error that a call raises."""
    try:
        call()
    except kind as e:
        return str(e)
    raise AssertionError("no error")


with xupc.init() as team:
    T = xupc.THREADS
    spare = xupc.all_alloc(1000 * T, "u1", 1000)  # so that offsets in the heap are not 0
    A = xupc.all_alloc(10 * T, np.float64, 10)
    B = xupc.all_alloc(10 * T, np.float64, 10)
    part = "thread 0's part, which has 80 bytes (10 float64)"
    found = text(ValueError, lambda: xupc.all_broadcast(B, A, 96))
    assert found.startswith(f"all_broadcast: dst: 96 bytes from element 0 on are beyond {part}")
    found = text(ValueError, lambda: xupc.all_broadcast(B, A + 3, 64))
    assert found.startswith(f"all_broadcast: src: 64 bytes from element 3 on are beyond {part}")
    found = text(ValueError, lambda: xupc.memget(np.empty(11), A, 88))
    assert f"88 bytes from element 0 on are beyond {part}" in found
    found = text(IndexError, lambda: (A + 0).cast(blocksize=0)[10])
    assert f"8 bytes from element 10 on are beyond {part}" in found
    found = text(IndexError, lambda: (A + 0).cast("u1", 0)[76:84])
    assert f"8 bytes from byte 76 on are beyond {part}" in found
    found = text(IndexError, lambda: (A + 0)[0 : 10 * T + 1 if T == 1 else 1000])
    assert "beyond" in found
    found = text(ValueError, lambda: xupc.all_reduce(B, A + 4, xupc.ADD, 10 * T))
    assert f"beyond {part}" in found or "part, which has 80 bytes (10 float64)" in found
    found = text(ValueError, lambda: xupc.all_broadcast_v(B, A, [10 * i for i in range(T)], 11))
    assert "88 bytes from byte 0 on are beyond thread 0's part, which has 80 bytes" in found
    found = text(xupc.OverlapError, lambda: xupc.all_reduce(A + 1, A, xupc.ADD, 2))
    assert "in its part dst has bytes 8 to 16, src 0 to 16" in found
    print("done")
