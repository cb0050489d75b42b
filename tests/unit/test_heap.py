"""The heap of one thread, over real segments."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xupc.pgas.heap import Heap
from xupc.pgas.segment import Segment, create
from xupc.topology.tree import Tree

NBYTES = 1 << 20


@pytest.mark.parametrize("pinned", [None, False, True])
def test_pages_that_a_network_card_may_know_stay(pinned: bool | None) -> None:
    made: list[Segment] = []

    def make_segment(nbytes: int) -> tuple[Segment, Any]:
        made.append(create(nbytes))
        return made[-1], None if pinned is None else SimpleNamespace(pinned=pinned)

    heap = Heap(Tree([0]), 0, make_segment, 1 << 16, 0, 0, 4 * NBYTES)

    def taken() -> int:
        return os.fstat(made[0].fd).st_blocks * 512

    before = taken()
    offset = heap.find_room(NBYTES)
    assert offset is not None
    heap.take(offset, NBYTES, "all_alloc")
    array = heap.adopt(offset, NBYTES, np.dtype(np.uint8), 0)
    view = heap.view(0, offset, NBYTES)
    assert view is not None
    view[:] = 7
    heap.retire(array, viewed=False)
    assert taken() - before == (NBYTES if pinned else 0)
    assert not view.any()  # which takes pages, too
    made[0].close_fd()
