"""Nothing of a trace stays open after its finalize, or after an init that fails; for test_trace."""

from __future__ import annotations

import os

import numpy as np

import xupc

FOLDER = os.path.basename(os.environ["XUPC_TRACE"])


def held() -> list[str]:
    """Return what this process holds of the trace: descriptors and mappings."""
    paths = []
    for entry in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{entry}"):
            paths.append(os.readlink(f"/proc/self/fd/{entry}"))
    with open("/proc/self/maps") as maps:
        paths += [line.split(maxsplit=5)[-1].strip() for line in maps]
    return [path for path in paths if FOLDER in path]


try:
    xupc.init(nodes="99x99")
except ValueError:
    pass
else:
    raise AssertionError("no error")
assert not held(), held()
for _ in range(2):
    with xupc.init() as team:
        plan = xupc.allav_broadcast.plan(np.zeros(8), 0)
        plan()
        assert len(held()) >= 2, held()
    assert not held(), held()
    for call in (plan, team.barrier):
        try:
            call()
        except xupc.NotInitializedError:
            pass
        else:
            raise AssertionError("no error")
print("closed")
