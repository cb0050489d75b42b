"""Offsets in a zone of the shared heap, the same on every thread without a message.

An `Allocator` returns offsets only; it never accesses memory. Each thread keeps one per symmetric
zone and makes the same calls in the same order. Every choice depends on those calls alone (best
fit, the lowest offset among equals), so all threads get the same offsets.

**This applies to `quarantine` and `release`, too.** Only the thread itself can check whether its
views are alive. So for a symmetric zone all threads must agree before they call these methods.

Free space is a list of extents sorted by offset, for coalescing, and another sorted by size, for
the search. Extents never join across a boundary that `extend` left, so no allocation spans two
segments.
"""

from __future__ import annotations

from bisect import bisect_left, insort

__all__ = ["Allocator"]


class Allocator:
    """Best-fit allocator of offsets.

    Parameters
    ----------
    size : int
        Bytes at the start, a multiple of `align`; may be 0.
    align : int
        Offsets and sizes are multiples of it; a power of two.
    start : int
        The lowest offset.

    Raises
    ------
    ValueError
        If `size` or `align` is not as said.
    """

    __slots__ = (
        "_align",
        "_boundaries",
        "_by_size",
        "_end",
        "_free",
        "_live",
        "_quarantined",
        "_start",
    )

    def __init__(self, size: int, align: int = 64, start: int = 0) -> None:
        if align < 1 or align & (align - 1):
            raise ValueError(f"align is {align}: expected a power of two")
        self._align = align
        self._start = self._end = start
        self._free: list[tuple[int, int]] = []  # (offset, size), ascending
        self._by_size: list[tuple[int, int]] = []  # (size, offset), ascending
        self._live: dict[int, int] = {}  # offset -> size
        self._quarantined: dict[int, int] = {}
        self._boundaries: set[int] = set()
        self._grow(size)

    # --- figures

    @property
    def size(self) -> int:
        """Bytes managed, free or not."""
        return self._end - self._start

    @property
    def free_bytes(self) -> int:
        """Bytes in free extents."""
        return sum(size for _, size in self._free)

    @property
    def largest(self) -> int:
        """Size of the largest free extent: the most that one `alloc` can get."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def used(self) -> int:
        """Bytes allocated, rounded up to the alignment, those in quarantine included."""
        return self.size - self.free_bytes

    @property
    def quarantined(self) -> int:
        """Bytes freed that wait for `release`."""
        return sum(self._quarantined.values())

    def size_of(self, offset: int) -> int:
        """Return the size, rounded up, of the live allocation at `offset`."""
        return self._live[self._check(offset, self._live, "allocation")]

    # --- changes

    def alloc(self, nbytes: int) -> int | None:
        """Return the offset of `nbytes` free bytes, or None if no extent holds them.

        0 bytes take the smallest extent, so that every live allocation has its own offset.
        """
        need = self._round_up(nbytes)
        at = bisect_left(self._by_size, (need, 0))
        if at == len(self._by_size):
            return None
        extent, offset = self._by_size[at]
        self._remove_extent(offset, extent)
        if extent > need:
            self._add_extent(offset + need, extent - need)
        self._live[offset] = need
        return offset

    def free(self, offset: int) -> int:
        """Return the allocation at `offset` to the free space.

        Returns
        -------
        int
            Its size in bytes, rounded up.

        Raises
        ------
        ValueError
            If no live allocation starts there: unknown, freed before, or in quarantine.
        """
        size = self._live.pop(self._check(offset, self._live, "allocation"))
        self._give_back(offset, size)
        return size

    def quarantine(self, offset: int) -> int:
        """Free the allocation at `offset` without letting its bytes be used again.

        Returns its size; ValueError as in `free`.
        """
        size = self._live.pop(self._check(offset, self._live, "allocation"))
        self._quarantined[offset] = size
        return size

    def release(self, offset: int) -> int:
        """Return what `quarantine` held at `offset` to the free space.

        Returns its size; ValueError if nothing is in quarantine there.
        """
        held = self._quarantined
        size = held.pop(self._check(offset, held, "allocation in quarantine"))
        self._give_back(offset, size)
        return size

    def extend(self, nbytes: int, *, boundary: bool = True) -> int:
        """Add `nbytes` at the end, and return the offset at which they start.

        With `boundary` the old end stays an edge that no allocation ever crosses: the new bytes
        are another segment. ValueError unless `nbytes` is a positive multiple of the alignment.
        """
        if nbytes < 1:
            raise ValueError(f"extend by {nbytes} bytes: expected a positive number")
        return self._grow(nbytes, boundary=boundary)

    # --- inside

    def _grow(self, nbytes: int, *, boundary: bool = False) -> int:
        if nbytes < 0 or nbytes % self._align:
            raise ValueError(f"{nbytes} bytes: expected a multiple of {self._align}")
        old_end = self._end
        self._end += nbytes
        if boundary:
            self._boundaries.add(old_end)
        if nbytes:
            self._give_back(old_end, nbytes)
        return old_end

    def _round_up(self, nbytes: int) -> int:
        if nbytes < 0:
            raise ValueError(f"alloc of {nbytes} bytes: expected at least 0")
        return -(-max(nbytes, 1) // self._align) * self._align

    def _check(self, offset: int, table: dict[int, int], what: str) -> int:
        if offset in table:
            return offset
        state = "freed, and in quarantine" if offset in self._quarantined else "unknown or freed"
        raise ValueError(f"offset {offset} ({state}): expected the start of an {what}")

    def _give_back(self, offset: int, size: int) -> None:
        """Add an extent to the free space, joined with its free neighbours."""
        end = offset + size
        at = bisect_left(self._free, (offset, 0))
        if at < len(self._free) and self._free[at][0] == end and end not in self._boundaries:
            neighbour = self._free[at]
            self._remove_extent(*neighbour)
            end += neighbour[1]
        if at > 0 and sum(self._free[at - 1]) == offset and offset not in self._boundaries:
            neighbour = self._free[at - 1]
            self._remove_extent(*neighbour)
            offset = neighbour[0]
        self._add_extent(offset, end - offset)

    def _add_extent(self, offset: int, size: int) -> None:
        insort(self._free, (offset, size))
        insort(self._by_size, (size, offset))

    def _remove_extent(self, offset: int, size: int) -> None:
        del self._free[bisect_left(self._free, (offset, size))]
        del self._by_size[bisect_left(self._by_size, (size, offset))]
