"""A dtype that cannot be sent, shapes that numpy cannot make: refused on all threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import xupc


def main() -> None:
    xupc.init(timeout=20)
    me = xupc.MYTHREAD
    kind: Any = np.dtype("f8", metadata={"x": lambda: 1})
    calls: tuple[Callable[[], object], ...] = (
        lambda: xupc.node_broadcast(np.ones(4, kind) if me == 0 else None),
        lambda: xupc.node_array((0, 1 << 63), "u1"),
        lambda: xupc.node_array((0, 1 << 40, 1 << 40), "u1"),
        lambda: xupc.node_array((1,) * 65, "u1"),
    )
    for call in calls:
        try:
            call()
        except (TypeError, ValueError, xupc.CollectiveMismatchError) as e:
            assert "node_" in str(e), e
            print("refused: " + str(e), flush=True)
        xupc.barrier()


main()
