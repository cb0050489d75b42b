"""The command line, called by each thread of a job, with this program's arguments."""

from __future__ import annotations

import sys

from xupc.cli import main

sys.argv[0] = "xupc"
main(sys.argv[1:])
