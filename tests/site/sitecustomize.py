"""Imported by every Python process of a live test, before its program.

Prints whole lines at once, also into a file, so that a killed job loses no line and lines of
different threads do not mix. It also writes where each thread is shortly before its time is up,
each into a file of its own: a stack is written in pieces, which would mix in a common one.
"""

import faulthandler
import os
import sys
import time

sys.stdout.reconfigure(line_buffering=True)
_left = float(os.environ.get("XUPC_TEST_DUMP_AT", "0")) - time.monotonic()
if _left > 0:
    _stacks = open(f"{os.environ['XUPC_TEST_STACKS']}/stacks.{os.getpid()}", "w")  # noqa: SIM115
    faulthandler.dump_traceback_later(_left, file=_stacks)
