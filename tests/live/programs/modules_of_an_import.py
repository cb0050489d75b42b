"""Print which heavy modules importing xupc loads beside numpy. No arguments."""

# ruff: noqa: E402, F401
from __future__ import annotations

import sys

import numpy

before = set(sys.modules)
import xupc

new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new & {"mpi4py", "click", "matplotlib", "psutil", "hypothesis", "jinja2"}))
