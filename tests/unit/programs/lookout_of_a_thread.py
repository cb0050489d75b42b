"""Run another thread's watchdog of init; a line of input makes it leave.

``lookout_of_a_thread.py SEGMENT NBYTES``
"""

from __future__ import annotations

import sys

from xupc.health.init_watchdog import InitDeathWatch
from xupc.pgas.segment import attach

lookout = InitDeathWatch(attach(sys.argv[1], int(sys.argv[2])), 2)
print("here", flush=True)
for _ in sys.stdin:
    lookout.close()
    print("left", flush=True)
