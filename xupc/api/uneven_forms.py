"""The four `_v` calls on private arrays: arguments, comparison of sizes, and moves."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..ops import Op
from ..runtime.team_state import TeamState
from . import uneven_blocks
from .array_arguments import same_elements
from .uneven_arguments import UnevenArguments, UnevenBlocks, VectorSide
from .uneven_blocks import Moves
from .uneven_calls import UnevenCall
from .uneven_checks import Blocks, UnevenBound

__all__ = ["ExchangeV", "GatherAllV", "GatherV", "ScatterV"]

_MINE = {"src": "ndarray\n        What this thread gives: its block."}
_ROOT = {"root": "int\n        A thread, by its rank in the team."}


class _Rooted(UnevenCall):
    """Gather and scatter: the root has the counts, each thread has a block."""

    mismatch = "the root's counts are not the sizes of the threads' blocks."
    own: str

    def _agree(self, call: UnevenBound) -> Moves:
        """Bring the sizes of all blocks, and the root's counts, to all threads."""
        team = call.team
        one, row = self._one(call), self._many(call)
        sizes, both = np.zeros((2, team.size), np.int64), np.empty((2, team.size), np.int64)
        sizes[0, team.rank] = one.counts[0]
        if row is not None:
            sizes[1] = row.counts
        yield "reduce_all", (both, sizes, Op.ADD, None)
        wrong = np.flatnonzero(both[0] != both[1])
        if wrong.size:
            i = int(wrong[0])
            more = f" (so for {wrong.size} threads)" if wrong.size > 1 else ""
            self._differ(
                call,
                f"thread {i} has {both[0, i]} elements in {self.own}, counts[{i}] of the root "
                f"(thread {call.root}) is {both[1, i]}{more}: give the same number on both",
            )
        call.agreed = (both[0] * one.array.dtype.itemsize).tolist()

    def _ends(self, call: UnevenBound) -> Any:
        ends, row, root = np.zeros((3, call.team.size), np.int64), self._many(call), call.root
        if self.own == "src":
            ends[2, root] = self._one(call).nbytes[0]
            if row is not None:
                ends[0] = row.offsets
        elif row is not None:
            ends[1:] = row.offsets, row.nbytes
        return ends

    def _one(self, call: UnevenBound) -> UnevenBlocks:
        found = call.src if self.own == "src" else call.dst
        assert found is not None
        return found

    def _many(self, call: UnevenBound) -> UnevenBlocks | None:
        return call.dst if self.own == "src" else call.src

    def _pays(self, call: UnevenBound) -> bool:
        """Return True if broadcasts of single blocks move less than places for all blocks."""
        return uneven_blocks.wasteful(max(call.agreed), sum(call.agreed), call.team.size)

    def _one_by_one(self, call: UnevenBound) -> Moves:
        """Broadcast each block; one that a thread does not keep goes to memory that it drops."""
        row, one, me = self._many(call), self._one(call).blocks[0], call.team.rank
        sink, gives = uneven_blocks.empty(max(call.agreed)), self.own == "src"
        for i, nbytes in enumerate(call.agreed):
            block = one if i == me else sink[:nbytes]
            if row is not None and not (i == me and gives):
                block = row.blocks[i]
            yield from uneven_blocks.broadcast(me, block, i if gives else call.root)


class GatherV(_Rooted):
    """`allav_gather_v`."""

    name = "gather"
    own = "src"
    about: ClassVar = {
        "dst": "ndarray\n        The root's, with a block of each thread; None elsewhere, or "
        "ignored.",
        **_MINE,
        "counts": "sequence of T ints\n        Elements of each thread's block. The root's; None "
        "elsewhere, or ignored.",
        **_ROOT,
    }

    def _sides(self, team: TeamState, given: UnevenArguments, root: int) -> Blocks:
        src = self._block(given, "src", receives=False)
        return (self._row(team, given, self._dst) if team.rank == root else None), src

    def _data(self, call: UnevenBound) -> Moves:
        src, root = self._one(call).blocks[0], call.root
        into = None if call.dst is None else call.dst.blocks
        if self._pays(call):
            yield from self._one_by_one(call)
        else:
            yield from uneven_blocks.gather(call.team.size, src, into, root, max(call.agreed))
        if into is not None:
            into[root][...] = src


class ScatterV(_Rooted):
    """`allav_scatter_v`."""

    name = "scatter"
    own = "dst"
    about: ClassVar = {
        "dst": "ndarray\n        Where this thread's block goes.",
        "src": "ndarray\n        The root's, with a block for each thread; None elsewhere, or "
        "ignored.",
        "counts": "sequence of T ints\n        Elements of the block for each thread. The root's; "
        "None elsewhere, or ignored.",
        **_ROOT,
    }

    def _sides(self, team: TeamState, given: UnevenArguments, root: int) -> Blocks:
        dst = self._block(given, "dst", receives=True)
        return dst, (self._row(team, given, self._src) if team.rank == root else None)

    def _data(self, call: UnevenBound) -> Moves:
        into, root = self._one(call).blocks[0], call.root
        blocks = None if call.src is None else call.src.blocks
        if self._pays(call):
            yield from self._one_by_one(call)
        else:
            yield from uneven_blocks.scatter(call.team.size, blocks, into, root, max(call.agreed))
        if blocks is not None:
            into[...] = blocks[root]


class GatherAllV(UnevenCall):
    """`allav_gather_all_v`."""

    name = "gather_all"
    transforms = True
    equal = ("counts",)
    mismatch = "counts differ, or other arguments that must be equal."
    about: ClassVar = {
        "dst": "ndarray\n        Where the blocks of all threads go.",
        "src": "ndarray, or None\n        What this thread gives: its block. None, or dst itself: "
        "the block is at its place\n        in dst.",
        "counts": "sequence of T ints\n        Elements of each thread's block; equal on all "
        "threads.",
    }

    def _in_place(self, given: UnevenArguments) -> bool:
        src, dst = given["src"], given["dst"]
        return src is None or src is dst or (
            isinstance(dst, np.ndarray) and same_elements(src, dst)
        )

    def _sides(self, team: TeamState, given: UnevenArguments, root: int) -> Blocks:
        dst = self._row(team, given, self._dst)
        if self._in_place(given):
            return dst, dst
        src, n = self._block(given, "src", receives=False), dst.counts[team.rank]
        if src.array.size != n:
            raise ValueError(
                f"{self.__name__}: src: expected counts[{team.rank}] = {n} elements, got "
                f"{src.array.size}"
            )
        return dst, src

    def _agree(self, call: UnevenBound) -> Moves:
        """Note the sizes: the barrier has compared the counts."""
        call.agreed = self._sizes(call)
        yield from ()

    def _sizes(self, call: UnevenBound) -> list[int]:
        assert call.dst is not None
        return call.dst.nbytes

    def _ends(self, call: UnevenBound) -> Any:
        dst, src, me = call.dst, call.src, call.team.rank
        assert dst is not None
        assert src is not None
        ends = np.zeros((3, call.team.size), np.int64)
        ends[0] = dst.offsets
        ends[1] = dst.offsets[me] if call.in_place else 0
        ends[2] = dst.nbytes[me]
        if call.in_place:
            ends[2, me] = 0
        return ends

    def _data(self, call: UnevenBound) -> Moves:
        dst, src, me = call.dst, call.src, call.team.rank
        assert dst is not None
        assert src is not None
        blocks = list(dst.blocks)
        if src is not dst:
            blocks[me] = src.blocks[0]
        yield from uneven_blocks.spread(me, blocks)
        if src is not dst:
            dst.blocks[me][...] = src.blocks[0]


class ExchangeV(UnevenCall):
    """`allav_exchange_v`."""

    name = "exchange"
    displacements = ("recv_displs", "send_displs")
    mismatch = "a thread sends another one more or fewer elements than that expects."
    about: ClassVar = {
        "dst": "ndarray\n        Where the blocks of all threads go.",
        "src": "ndarray\n        What this thread gives, with a block for each thread.",
        "recv_counts": "sequence of T ints\n        Elements of the block from each thread.",
        "send_counts": "sequence of T ints\n        Elements of the block for each thread.",
    }
    _dst = VectorSide("dst", "recv_counts", "recv_displs", True)
    _src = VectorSide("src", "send_counts", "send_displs", False)

    def _sides(self, team: TeamState, given: UnevenArguments, root: int) -> Blocks:
        return self._row(team, given, self._dst), self._row(team, given, self._src)

    def _agree(self, call: UnevenBound) -> Moves:
        """Compare what each thread sends with what the receiver expects, on all threads."""
        dst, src, threads, me = call.dst, call.src, call.team.size, call.team.rank
        assert dst is not None
        assert src is not None
        sent, arrives = np.array(src.counts, np.int64), np.empty(threads, np.int64)
        yield "counts", (arrives, sent)
        head, most = np.zeros(threads + 1, np.int64), np.empty(threads + 1, np.int64)
        wrong = np.flatnonzero(arrives != np.array(dst.counts, np.int64))
        if wrong.size:
            head[threads] = 1 + me * threads + wrong[0]
        head[:threads] = np.roll(np.array(src.nbytes, np.int64), -me)
        yield "reduce_all", (most, head, Op.MAX, None)
        if most[threads]:
            to, of = divmod(int(most[threads]) - 1, threads)
            pair = np.array([arrives[of], dst.counts[of]], np.int64)
            yield "broadcast", (pair, to)
            self._differ(
                call,
                f"thread {of} sends {pair[0]} elements to thread {to} (send_counts[{to}]), which "
                f"expects {pair[1]} (recv_counts[{of}]): give the same number on both",
            )
        call.agreed = most[:threads].tolist()

    def _ends(self, call: UnevenBound) -> Any:
        assert call.dst is not None
        assert call.src is not None
        return np.array([call.dst.offsets, call.src.offsets, call.src.nbytes], np.int64)

    def _data(self, call: UnevenBound) -> Moves:
        dst, src, threads = call.dst, call.src, call.team.size
        assert dst is not None
        assert src is not None
        most = max(call.agreed)
        if uneven_blocks.wasteful(most, sum(call.agreed), threads):
            yield from uneven_blocks.shifts(call.team.rank, src.blocks, dst.blocks, call.agreed)
        else:
            yield from uneven_blocks.exchange(threads, src.blocks, dst.blocks, most)
