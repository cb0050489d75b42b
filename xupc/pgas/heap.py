"""The shared heap: symmetric addresses over a few segments per node.

An address is (thread, offset); offsets are virtual and the same everywhere. Four
zones lie one after the other in the offsets:

==========  ====================================================================
individual  each thread allocates in its own part, alone
global      one thread allocates a part of every thread's memory; its table is
            kept by thread 0 (`xupc.pgas.global_zone`)
scratch     the library's own: `OP_SCRATCH` and `STAGING` of plans
collective  all threads allocate together: the same deterministic allocator
            everywhere, no message; grows by further segments
==========  ====================================================================

A segment covers a range of offsets for all threads of a node: thread with local
index i has its part at ``address + i * size``. Pages are taken when something is
allocated and given back when it is freed, so an empty heap costs nothing.

Memory under a live view is not reused: `view` hands out arrays whose buffer is
watched by weak reference; freed memory with a live one is quarantined.
"""

from __future__ import annotations

import mmap
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HeapError, NotInitializedError
from ..records import mutable_record
from ..topology.tree import Tree
from .allocation import Allocation
from .allocator import Allocator
from .segment import Segment, free_space, shm_dir

__all__ = ["RANGE", "Heap", "HeapSegment"]

ALIGN = 64
PAGE = 65536
SMALL_PAGE = mmap.PAGESIZE
RANGE = 46
"""Bits of the offsets of one heap: a team's begin at its number times 2**46."""


@mutable_record
class HeapSegment:
    """Offsets ``start .. start + size`` of every thread of the node."""

    start: int
    size: int
    segment: Segment
    remote: Any  # a `runtime.remote_memory.RemoteMemory`, None on a single node

    @property
    def end(self) -> int:
        return self.start + self.size


class _Piece:
    """A live collective allocation, as its heap keeps it.

    An `Allocation` in a team's memory keeps the team, so the heap of a team must not keep it: it is
    made again for pointers that come from elsewhere when the program has no more references to it.
    """

    def __init__(self, allocation: Allocation, keep: bool) -> None:
        a = allocation
        self.known: Callable[[], Allocation | None] = weakref.ref(a)
        self._kept = allocation if keep else None
        self._facts = a.serial, a.offset, a.nelems, a.dtype, a.blocksize
        self._members = None if a.of_world else a.members

    def allocation(self, heap: Heap) -> Allocation | None:
        """Return the allocation; None if the program has dropped the team that it is dealt over."""
        allocation, team = self.known(), heap.team
        if allocation is None and team is not None:
            allocation = Allocation(heap, *self._facts, team=team, members=self._members)
            self.known = weakref.ref(allocation)
        return allocation


class Heap:
    """The job's memory as one thread sees it.

    Parameters
    ----------
    tree : Tree
        Of all threads.
    me : int
    make_segment : callable
        ``(nbytes per thread) -> (Segment, RemoteMemory | None)``, collective.
    individual, global_, scratch, collective : int
        Bytes per thread of the zones to begin with.
    base : int
        The lowest offset. Each team's heap has a range of its own.
    """

    def __init__(
        self,
        tree: Tree,
        me: int,
        make_segment: Callable[[int], tuple[Segment, Any]],
        individual: int,
        global_: int,
        scratch: int,
        collective: int,
        base: int = 0,
    ) -> None:
        self.tree = tree
        self.me = me
        self.threads = tree.size
        self.node = tree.node_of(me)
        self.local = tree.local_index(me)
        self._local_of: dict[int, int] = {
            int(t): i for i, t in enumerate(tree.members(self.node))
        }
        self.world: Any = None
        # of a team's heap, what gives that team if the program still has it: see `_Piece`
        self.dealt_over: Callable[[], Callable[[], Any] | None] | None = None
        self.alive: Callable[[], None] = lambda: None
        self.find: Callable[[int], Heap] = lambda _: self
        self._make_segment = make_segment
        self.base = base
        self.individual_end = base + round_up(individual)
        self.global_end = self.individual_end + round_up(global_)
        self.scratch_end = self.global_end + round_up(scratch)
        first_end = self.scratch_end + round_up(collective)
        self._segments: list[HeapSegment] = []
        self._starts: list[int] = []
        self._own = Allocator(self.individual_end - base, ALIGN, base)
        self._zone = Allocator(first_end - self.scratch_end, ALIGN, self.scratch_end)
        self._anchors: list[tuple[int, int, int, weakref.ref[Any]]] = []
        self._live: dict[int, _Piece] = {}  # offset -> collective allocation
        self._mine: dict[int, Allocation] = {}  # offset -> allocation in the individual zone
        self._quarantine: list[tuple[int, int, int]] = []
        self._own_quarantine: list[tuple[int, int]] = []
        self._serial = self._own_serial = 0
        self._add_segment(first_end - base)

    # -- segments --------------------------------------------------------------------
    def _add_segment(self, size: int) -> None:
        start = self._segments[-1].end if self._segments else self.base
        segment, remote = self._make_segment(size)
        self._segments.append(HeapSegment(start, size, segment, remote))
        self._starts.append(start)

    def segment_of(self, offset: int, nbytes: int = 0) -> HeapSegment:
        """Return the segment that holds `nbytes` at an offset; ValueError if there is none."""
        i = bisect_right(self._starts, offset) - 1
        if i >= 0:
            segment = self._segments[i]
            if offset + nbytes <= segment.end:
                return segment
        raise ValueError(f"{nbytes} bytes at offset {offset} are outside the heap")

    @property
    def segments(self) -> list[HeapSegment]:
        """All segments, by offset."""
        return self._segments

    def bind(self, offset: int) -> tuple[int, int]:
        """Return (address on my node's first thread, bytes from thread to thread)."""
        s = self.segment_of(offset)
        return s.segment.address + offset - s.start, s.size

    def displacement(self, thread: int, offset: int, nbytes: int = 0) -> tuple[Any, int]:
        """Return (remote access, displacement in the target's exposed memory) of so many bytes."""
        s = self.segment_of(offset, nbytes)
        return s.remote, self.tree.local_index(thread) * s.size + offset - s.start

    # -- the Memory protocol of shared.py ---------------------------------------------
    def check(self) -> None:
        """Raise NotInitializedError after finalize or in a forked child."""
        self.alive()

    def home(self, offset: int) -> Heap:
        """Return the heap that an offset belongs to; ValueError if there is none here."""
        heap = self.find(offset)
        heap.segment_of(offset)
        return heap

    def view(self, thread: int, offset: int, nbytes: int) -> NDArray[np.uint8] | None:
        """Return bytes of a thread on my node; None off my node."""
        local = self._local_of.get(thread)
        if local is None:
            return None
        s = self.segment_of(offset, nbytes)
        at = local * s.size + offset - s.start
        if nbytes == 0:
            return np.empty(0, np.uint8)
        array: NDArray[np.uint8] = np.frombuffer(s.segment.map, np.uint8, nbytes, at)
        if len(self._anchors) > 256:
            self._anchors = [a for a in self._anchors if a[3]() is not None]
        self._anchors.append((thread, offset, offset + nbytes, weakref.ref(array)))
        return array

    def _raw(self, thread: int, offset: int, nbytes: int) -> NDArray[np.uint8] | None:
        """Return a view for use inside one call: it is not watched."""
        local = self._local_of.get(thread)
        if local is None:
            return None
        s = self.segment_of(offset, nbytes)
        at = local * s.size + offset - s.start
        return s.segment.array[at : at + nbytes]

    def get(self, thread: int, offset: int, out: NDArray[np.uint8]) -> None:
        """Read contiguous bytes from anywhere."""
        raw = self._raw(thread, offset, out.nbytes)
        if raw is not None:
            out[...] = raw
            return
        remote, displacement = self.displacement(thread, offset, out.nbytes)
        remote.get(thread, displacement, out)

    def put(self, thread: int, offset: int, data: NDArray[np.uint8]) -> None:
        """Write contiguous bytes anywhere; they are there on return."""
        raw = self._raw(thread, offset, data.nbytes)
        if raw is not None:
            raw[...] = data
            return
        remote, displacement = self.displacement(thread, offset, data.nbytes)
        remote.put(thread, displacement, data)

    def allocation_at(self, thread: int, offset: int) -> Allocation | None:
        """Return the live allocation that starts at an offset: a collective one, or one of mine."""
        if offset < self.individual_end:
            return self._mine.get(offset) if thread == self.me else None
        piece = self._live.get(offset)
        return None if piece is None else piece.allocation(self)

    # -- the individual zone ------------------------------------------------------------
    def alloc(self, nelems: int, dtype: np.dtype[Any]) -> Allocation:
        """Allocate memory with affinity to this thread; no other thread takes part."""
        nbytes = nelems * dtype.itemsize
        self._reap_own()
        offset = self._own.alloc(max(1, nbytes))
        if offset is None:
            raise HeapError(
                f"alloc: {nbytes} bytes do not fit the individual zone of "
                f"{self.individual_end - self.base} bytes, {self._own.free_bytes} of them free "
                "(heap_size makes it larger; all_alloc grows by itself)"
            )
        try:
            self.take(offset, nbytes, "alloc")
        except HeapError:
            self._own.free(offset)
            raise
        self._own_serial += 1
        self._mine[offset] = Allocation(
            memory=self,
            serial=self._own_serial,
            offset=offset,
            nelems=nelems,
            dtype=dtype,
            blocksize=0,
            first=self.me,
            kind="alloc",
        )
        return self._mine[offset]

    def free_own(self, allocation: Allocation) -> bool:
        """Give back what `alloc` gave; False if that was done before."""
        if self._mine.get(allocation.offset) is not allocation:
            return False
        nbytes = allocation.nbytes
        del self._mine[allocation.offset]
        allocation.retire()
        if self.viewed(self.me, allocation.offset, nbytes):
            self._own.quarantine(allocation.offset)
            self._own_quarantine.append((allocation.offset, nbytes))
        else:
            self.drop(allocation.offset, nbytes)
            self._own.free(allocation.offset)
        return True

    def _reap_own(self) -> None:
        for entry in list(self._own_quarantine):
            if not self.viewed(self.me, *entry):
                self.drop(*entry)
                self._own.release(entry[0])
                self._own_quarantine.remove(entry)

    # -- the collective zone: every thread makes the same calls ---------------------------
    def find_room(self, nbytes: int) -> int | None:
        """Return an offset for `nbytes` of every thread, or None: the heap must grow."""
        return self._zone.alloc(max(1, nbytes))

    def unfind(self, offset: int) -> None:
        """Take `find_room` back."""
        self._zone.free(offset)

    def grow(self, nbytes: int) -> int:
        """Add a segment that holds `nbytes` and allocate in it (collective)."""
        size = round_up(max(nbytes + ALIGN, 2 * self._segments[-1].size))
        self._add_segment(size)
        self._zone.extend(size)
        offset = self._zone.alloc(max(1, nbytes))
        assert offset is not None
        return offset

    def room_for(self, nbytes: int | Iterable[int], call: str) -> str | None:
        """Return why `nbytes` more on my machine, or so many in several places, do not fit.

        None if they do.
        """
        parts = [nbytes] if isinstance(nbytes, int) else list(nbytes)
        try:
            free = free_space()
        except OSError as e:
            return f"{call}: cannot find out how many bytes are free in {shm_dir()}: {e}"
        if sum(-(-part // SMALL_PAGE) * SMALL_PAGE for part in parts) <= free:
            return None
        return (
            f"{call}: {sum(parts)} bytes on this machine do not fit: "
            f"{free} bytes are free in {shm_dir()}"
        )

    def take(self, offset: int, nbytes: int, call: str) -> None:
        """Take the pages of my part; HeapError if there are none."""
        why = self.room_for(nbytes, call)
        if why:
            raise HeapError(why)
        s = self.segment_of(offset)
        s.segment.reserve(self.local * s.size + offset - s.start, nbytes)

    def drop(self, offset: int, nbytes: int) -> None:
        """Give the pages of my part back; zeros are read there then.

        `nbytes` is what I took there: a page that I did not take must not be written to.
        """
        if nbytes == 0:
            return
        s = self.segment_of(offset)
        at = self.local * s.size + offset - s.start
        first = -(-at // SMALL_PAGE) * SMALL_PAGE
        last = (at + nbytes) // SMALL_PAGE * SMALL_PAGE
        if first >= last or (s.remote is not None and s.remote.pinned):
            s.segment.array[at : at + nbytes] = 0
            return
        s.segment.array[at:first] = 0
        s.segment.array[last : at + nbytes] = 0
        s.segment.give_back(first, last - first)

    def adopt(
        self,
        offset: int,
        nelems: int,
        dtype: np.dtype[Any],
        blocksize: int,
        team: Any = None,
        members: Sequence[int] | None = None,
    ) -> Allocation:
        """Register a collective allocation; of a `team`, if that is not all threads."""
        self._serial += 1
        allocation = Allocation(
            memory=self,
            serial=self._serial,
            offset=offset,
            nelems=nelems,
            dtype=dtype,
            blocksize=blocksize,
            kind="all",
            team=team,
            members=members,
        )
        self._live[offset] = _Piece(allocation, self.dealt_over is None)
        return allocation

    @property
    def team(self) -> Any:
        """The team that its memory is dealt over, as programs hold it; None if they do not."""
        find = None if self.dealt_over is None else self.dealt_over()
        return self.world if self.dealt_over is None else find and find()

    def viewed(self, thread: int, offset: int, nbytes: int) -> bool:
        """Return True if a view of mine on these bytes is alive."""
        return any(
            t == thread and a < offset + nbytes and offset < b and ref() is not None
            for t, a, b, ref in self._anchors
        )

    def viewed_anywhere(self, offset: int, nbytes: int) -> bool:
        """Return True if a view of mine on this range of any thread is alive."""
        return any(
            a < offset + nbytes and offset < b and ref() is not None
            for _, a, b, ref in self._anchors
        )

    @property
    def quarantined(self) -> list[tuple[int, int]]:
        """Freed ranges that some thread still views: offset, bytes of the largest part."""
        return [(offset, nbytes) for offset, nbytes, _ in self._quarantine]

    def retire(self, allocation: Allocation, viewed: bool) -> None:
        """End a collective allocation; `viewed`: on some thread a view is alive."""
        del self._live[allocation.offset]
        mine = allocation.part(self.me)[1]
        if viewed:
            nbytes = self._zone.quarantine(allocation.offset)
            self._quarantine.append((allocation.offset, nbytes, mine))
        else:
            self.drop(allocation.offset, mine)
            self._zone.free(allocation.offset)

    def size_of(self, offset: int) -> int:
        """Return bytes per thread of a collective allocation."""
        return self._zone.size_of(offset)

    def release(self, index: int) -> None:
        """Free a quarantined range, which no thread views any more."""
        offset, _, mine = self._quarantine.pop(index)
        self.drop(offset, mine)
        self._zone.release(offset)

    def close(self) -> None:
        """Refuse new accesses; mappings stay while views are alive."""

        def gone() -> None:
            raise NotInitializedError("xupc has been finalized")

        self.alive = gone
        self.retire_all()

    def unmap(self) -> None:
        """Let go of all memory: it is returned when the last view of it has gone."""
        self.retire_all()
        self._segments.clear()
        self._starts.clear()

    def retire_all(self) -> None:
        """End all allocations; mappings stay while views are alive."""
        known = [allocation for piece in self._live.values() if (allocation := piece.known())]
        for allocation in (*known, *self._mine.values()):
            allocation.retire()
        self._live.clear()
        self._mine.clear()


def round_up(nbytes: int) -> int:
    """Round a size up to whole pages of 64 KiB."""
    return -(-nbytes // PAGE) * PAGE
