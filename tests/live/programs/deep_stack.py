"""A traced call below more frames of xupc's than the core remembers, for test_trace.

Two of these frames then have the same place in its table, wherever they are in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xupc

FRAMES = 5000  # the table of _call_trace.pxi has 4096 places


def inside(call: Callable[[], object], file: Path) -> Callable[[], object]:
    """Return a function of xupc's that makes a call."""
    names: dict[str, Any] = {"call": call}
    exec(compile("def function(): call()", str(file), "exec"), names)
    function: Callable[[], object] = names["function"]
    return function


with xupc.init():
    sys.setrecursionlimit(2 * FRAMES)
    calls: Callable[[], object] = xupc.barrier
    for _ in range(FRAMES):
        calls = inside(calls, Path(xupc.__file__).parent / "deep.py")
    for _ in range(3):
        calls()  # LINE deep
