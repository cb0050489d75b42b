"""A program that ends with a handle without a wait: ``with``, ``exit`` or ``finalize``.

``differ`` instead: the call failed, since one thread made another one.
"""

from __future__ import annotations

import sys

import numpy as np

import xupc

how = sys.argv[1]
team = xupc.init()
mine, whole = np.arange(4.0), np.empty(4 * xupc.THREADS)
if how == "differ":
    kept = xupc.allav_gather_all(whole, mine, xupc.ASYNC | (xupc.PULL if team.rank else 0))
else:
    kept = xupc.allav_gather_all(whole, mine, xupc.ASYNC)
if how == "with":
    with team:
        pass
elif how == "finalize":
    xupc.finalize()
