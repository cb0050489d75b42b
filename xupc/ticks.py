"""High-precision wall-clock timers (UPC 1.3, section 7.5).

A tick is a nanosecond of this thread's monotonic clock. Its zero is arbitrary, so ticks of two
threads cannot be compared; intervals can.
"""

from __future__ import annotations

import operator
from time import perf_counter_ns
from typing import Final, SupportsIndex

__all__ = ["TICK_MAX", "TICK_MIN", "ticks_now", "ticks_to_ns"]

TICK_MIN: Final = 0
TICK_MAX: Final = (1 << 64) - 1


def ticks_now() -> int:
    """Return this thread's clock in ticks, TICK_MIN <= ticks <= TICK_MAX (UPC 1.3, 7.5.2.1).

    TICK_MIN is the smallest value and TICK_MAX the largest; the specification's prose, in
    7.5.1.2, has these two the wrong way round.
    """
    return perf_counter_ns()


def ticks_to_ns(ticks: SupportsIndex) -> int:
    """Return a number of ticks in nanoseconds, exactly (UPC 1.3, 7.5.2.2).

    ``ticks_to_ns(end - start) / 1.0e9`` are seconds; the specification's example divides by
    1.0E-9, which is a slip.

    Raises
    ------
    TypeError
        If `ticks` is no integer.
    """
    return operator.index(ticks)
