"""The heap of one thread, over real segments."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xupc.pgas.heap import Heap
from xupc.pgas.segment import RESERVE, Segment, cgroup_headroom, create
from xupc.topology import host
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


def test_the_smallest_room_of_all_cgroups_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions of cgroups; file cache that is not in use is free; groups without a limit."""
    mib = 1 << 20
    given = {
        "own": {"memory.max": "max", "memory.current": f"{900 * mib}"},
        "above": {"memory.limit_in_bytes": f"{800 * mib}", "memory.usage_in_bytes": f"{300 * mib}",
                  "memory.stat": f"cache 5\ntotal_inactive_file {50 * mib}"},
        "top": {"memory.max": f"{8000 * mib}", "memory.current": f"{100 * mib}"},
        "root": {"memory.limit_in_bytes": f"{2**63 - 4096}"},
        "empty": {},
    }  # fmt: skip
    for name, files in given.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text + "\n")
    chosen = list(given)
    monkeypatch.setattr(host, "groups", lambda _: [tmp_path / name for name in chosen])
    assert cgroup_headroom() == (800 - 300 + 50) * mib - min(100 * mib, RESERVE)
    chosen.remove("above")
    assert cgroup_headroom() == (8000 - 100) * mib - min(1000 * mib, RESERVE)
    chosen.remove("top")
    assert cgroup_headroom() is None
