"""The heap of one thread, over real segments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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


HeapOf = Callable[[list[int], int], Heap]


@pytest.fixture
def heap_of() -> Iterator[HeapOf]:
    """Make the heap of one thread; its remote memories have numbers in their order."""
    made: list[Segment] = []

    def heap(labels: list[int], me: int) -> Heap:
        def make_segment(nbytes: int) -> tuple[Segment, Any]:
            made.append(create(nbytes * len(labels)))
            return made[-1], SimpleNamespace(pinned=False, number=len(made) - 1)

        return Heap(Tree(labels), me, make_segment, NBYTES, 0, 0, NBYTES)

    yield heap
    for segment in made:
        segment.close_fd()


def test_freed_pages_take_nothing_from_their_neighbours(heap_of: HeapOf) -> None:
    heap, byte = heap_of([0], 0), np.dtype(np.uint8)
    three = [heap.alloc(n, byte) for n in (5000, 20_000, 5000)]
    views = [heap.view(0, each.offset, each.nbytes) for each in three]
    for view in views:
        assert view is not None
        view[:] = 7
    offset, nbytes = three[1].offset, three[1].nbytes
    del views[1], view
    assert heap.free_own(three[1])
    assert all(view is not None and (view == 7).all() for view in views)
    again = heap.view(0, offset, nbytes)
    assert again is not None
    assert not again.any()


def test_freed_memory_is_used_again_when_no_view_of_it_is_left(heap_of: HeapOf) -> None:
    heap, byte = heap_of([0], 0), np.dtype(np.uint8)
    first = heap.alloc(5000, byte)
    view = heap.view(0, first.offset, 5000)
    assert view is not None
    part = view[10:20]
    del view
    assert heap.free_own(first)
    assert heap.alloc(5000, byte).offset != first.offset
    del part
    assert heap.alloc(5000, byte).offset == first.offset


def test_displacements_count_in_the_segment_that_holds_the_offset(heap_of: HeapOf) -> None:
    heap = heap_of([0, 1, 1], 2)
    first = heap.segments[0]
    heap._add_segment(4 * NBYTES)
    for thread, local in enumerate([0, 0, 1]):
        remote, displacement = heap.displacement(thread, 100, 8)
        assert (remote.number, displacement) == (0, local * first.size + 100)
        remote, displacement = heap.displacement(thread, first.end + 100, 8)
        assert (remote.number, displacement) == (1, local * 4 * NBYTES + 100)


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
