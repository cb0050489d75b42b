"""A node's threads fold its blocks piece by piece, so that one thread can use each piece."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan.recorder import Recorder
from ..plan.steps import BlockRef, Ranks
from .reduce_positions import leaves_of, positions_of
from .reduce_spec import Piece, Reduction

__all__ = ["ReducePipeline", "worth_waking"]


def _makers(t: Recorder, r: Reduction, node_source: int) -> list[int]:
    """Return my node's threads that fold its blocks, the node source first."""
    mates = [node_source, *(thread for run in t.node_ranks_but(node_source) for thread in run)]
    return mates[: worth_waking(t, r, len(mates))]


def worth_waking(t: Recorder, r: Reduction, mates: int) -> int:
    """Return how many of so many threads fold: each must have enough bytes to be worth waking."""
    return min(mates, max(1, mates * r.nbytes // t.tuning["fold_wakeup_min"]))


class ReducePipeline:
    """Distribute a node's pieces over its threads, which fold them for a node source.

    Parameters
    ----------
    pieces
        All pieces, in the order in which threads fold them.
    node_source
        The thread that uses them.
    """

    def __init__(self, t: Recorder, r: Reduction, pieces: list[Piece], node_source: int) -> None:
        self.t, self.r, self.pieces, self.node_source = t, r, pieces, node_source
        self.mates = _makers(t, r, node_source)
        self.channel = t.channel()
        has = {blocks: bool(positions_of(t, r, t.my_node, blocks)) for _, _, blocks in pieces}
        numbers = iter(range(len(pieces)))
        # the number of each piece among those that my node has; None: it has no block of it
        self.number = [next(numbers) if has[blocks] else None for _, _, blocks in pieces]
        self.there = len(pieces) - self.number.count(None)
        self.makers = [Ranks(thread) for thread in self.mates[: self.there]]  # those with a piece

    def maker(self, i: int) -> int:
        """Return the thread that folds the i-th piece."""
        return self.mates[i % len(self.mates)]

    def turn(self, i: int) -> int:
        """Return the number of the i-th piece among those of its thread."""
        return i // len(self.mates)

    def mine(self) -> Iterator[tuple[int, Piece]]:
        """Yield my pieces and their numbers."""
        for i, piece in zip(self.number, self.pieces, strict=True):
            if i is not None and self.maker(i) == self.t.me:
                yield i, piece

    def make(self, i: int, piece: Piece, place: BlockRef) -> None:
        """Fold my node's blocks of a piece and notify the node source."""
        begin, end, blocks = piece
        self.t.fold(place, leaves_of(self.t, self.r, begin, blocks), end - begin)
        self.t.signal(self.channel, (Ranks(self.node_source),), self.turn(i) + 1)

    def wait(self, i: int) -> None:
        """Wait until the i-th piece is folded."""
        self.t.wait(self.channel, self.maker(i), self.turn(i) + 1)
