"""Checks of the blocks of a `_v` or `_x` call: threads, ranges and overlap."""

from __future__ import annotations

import numpy as np

from ..algorithms.transfer_lists import Entries
from ..errors import AffinityError, OverlapError
from ..pgas.slices import extent
from ..records import record
from .block_addresses import (
    Ints,
    Numbers,
    Places,
    Side,
    Single,
)
from .vector_arguments import Call

__all__ = [
    "Sides",
]


@record
class Sides:
    """The entries of dst and src during their checks.

    Attributes
    ----------
    name, size_name
        Names of the call and of its list of sizes.
    every
        The pairs of entries that belong together.
    sizes
        Sizes, by entry of the list of sizes.
    numbers
        Rank in the team of each thread, -1 for threads outside of it.
    """

    name: str
    size_name: str
    call: Call
    every: Entries
    sizes: Ints
    numbers: Ints

    def at(self, side: Side, index: Ints, ranks: Ints | None, some: Ints) -> Places:
        """Return the addresses of some entries, checked for the thread of each."""
        index = index[some]
        places = side.places(self.name, index)
        if not some.size:
            return places
        threads = np.asarray(self.call.team.threads)
        if ranks is not None:
            expected = threads[ranks[some]]
        else:
            expected = np.full(some.size, places.thread[0])
            if self.numbers[expected[0]] < 0:
                raise AffinityError(
                    f"{self.name}: {side.entry(int(index[0]))}: expected affinity to a thread of "
                    f"the team, got a pointer with affinity to thread {expected[0]}"
                )
        bad = np.flatnonzero(places.thread != expected)
        if bad.size:
            i = int(bad[0])
            raise AffinityError(
                f"{self.name}: {side.entry(int(index[i]))}: expected affinity to thread "
                f"{expected[i]}, got a pointer with affinity to thread {places.thread[i]}"
            )
        return places

    def without_own(self, some: Ints) -> Ints:
        """Return all entries but the root's own block, which IN_PLACE does not move."""
        given, every = self.call.given, self.every
        if every.to is None:
            side, index, ranks = given.dst, every.dst, every.of
        else:
            side, index, ranks = given.src, every.src, every.to
        assert ranks is not None
        if isinstance(side, Single):
            root = int(self.numbers[side.places(self.name, index[:1]).thread[0]])
            return self._except(some, ranks, root)
        # the root's own entry may be invalid, so finding the root takes two entries
        known = [(int(ranks[k]), self._rank(side, int(index[k]))) for k in some[:2]]
        roots = [rank for _, rank in known if rank is not None] or [rank for rank, _ in known]
        fits = (r for r in roots if all(r in (own, rank) for own, rank in known))
        if not roots:
            return some
        return self._except(some, ranks, next(fits, roots[0]))

    def _except(self, some: Ints, ranks: Ints, root: int) -> Ints:
        others: Ints = some[ranks[some] != root]
        return others

    def _rank(self, side: Side, entry: int) -> int | None:
        """Return the rank whose memory an entry points to; None if it is no pointer."""
        try:
            return int(self.numbers[side.places(self.name, np.array([entry])).thread[0]])
        except (TypeError, ValueError):
            return None

    def check_ranges(self, side: Side, index: Ints, places: Places, some: Ints) -> None:
        """Raise ValueError if a block leaves its allocation."""
        counts = self.sizes[self.every.nbytes[some]]
        nbytes = counts * self.call.unit
        bad = np.flatnonzero((places.addr < places.low) | (places.addr + nbytes > places.high))
        if not bad.size:
            return
        i = int(bad[0])
        of = self.size_name
        if isinstance(self.call.given.sizes, Numbers):
            of += f"[{self.every.nbytes[some][i]}]"
        raise ValueError(
            f"{self.name}: {side.entry(int(index[i]))}: {nbytes[i]} bytes from byte "
            f"{places.addr[i] - places.low[i]} on are beyond thread {places.thread[i]}'s part, "
            f"which has {places.high[i] - places.low[i]} bytes ({of}={counts[i]})"
        )

    def check_overlap(self, to: Places, of: Places, some: Ints) -> None:
        """Raise OverlapError if a destination block overlaps a block or a shared list."""
        nbytes = self.sizes[self.every.nbytes[some]] * self.call.unit
        given = self.call.given
        read: list[tuple[int, int, int, str]] = []
        for listed in given.lists:
            if listed.shared is not None:
                places = extent(listed.shared, listed.count)
                read += [(*place, listed.name) for place in places]
        lists = np.array([run[:3] for run in read], np.int64).reshape(-1, 3).T
        thread = np.concatenate([of.thread, lists[0]])
        start = np.concatenate([of.addr, lists[1]])
        end = start + np.concatenate([nbytes, lists[2]])
        # keys of thread and address, in numbers small enough to fit into one
        marks = np.unique(np.concatenate([to.addr, to.addr + nbytes, start, end]))

        def key(threads: Ints, addr: Ints) -> Ints:
            return threads * (marks.size + 1) + np.searchsorted(marks, addr)

        low, high = key(to.thread, to.addr), key(to.thread, to.addr + nbytes)
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
        names = self.every.dst[some][order]
        bad = np.flatnonzero(high[:-1] > low[1:])
        if bad.size:
            i = int(bad[0])
            first, second = sorted((int(names[i]), int(names[i + 1])))
            raise OverlapError(
                f"{self.name}: the blocks at {given.dst.entry(first)} and "
                f"{given.dst.entry(second)} overlap on thread {to.thread[order][i]}"
            )
        if not low.size:
            return
        before = np.searchsorted(low, key(thread, end), side="left") - 1
        bad = np.flatnonzero((before >= 0) & (high[before] > key(thread, start)))
        if bad.size:
            i = int(bad[0])
            target = given.dst.entry(int(names[before[i]]))
            if i < some.size:
                other = f"the source block at {given.src.entry(int(self.every.src[some][i]))}"
            else:
                other = f"the list {read[i - some.size][3]}"
            raise OverlapError(
                f"{self.name}: the block at {target} overlaps {other} on thread {thread[i]}"
            )
