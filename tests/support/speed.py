"""How slow this machine is now, compared with the one for which the limits of tests were chosen.

Tests multiply what they wait by it: the limits that protect from a hang, the seconds that are a
promise, and the timeouts of jobs (``XUPC_TIMEOUT``) in which threads have to start before one of
them comes late. A run measures it once, when it begins, by what the start of a job takes most:
four processes import numpy. ``XUPC_TEST_SLOW=N`` gives it instead. All processes of the run
inherit it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

__all__ = ["MOST", "SLOW", "USUAL", "slowness"]

START = (sys.executable, "-c", "import numpy")
USUAL = 0.35  # seconds of four `START` at a time on two cores that do nothing else
MOST = 4.0  # a test that hangs has to end some time
NAME = "XUPC_TEST_SLOW"


def slowness(seconds: float) -> float:
    """Return how many times as long as usual the starts took, from 1 to `MOST`."""
    return round(min(max(1.0, seconds / USUAL), MOST), 1)


def _seconds_of_starts() -> float:
    began = time.monotonic()
    for process in [subprocess.Popen(START, stdin=subprocess.DEVNULL) for _ in range(4)]:
        process.wait()
    return time.monotonic() - began


def _known() -> float:
    text = os.environ.get(NAME)
    if not text:
        text = os.environ[NAME] = str(slowness(_seconds_of_starts()))
    return float(text)


SLOW = _known()
"""How many times as long as usual this machine takes."""
