"""What an algorithm asks about its team: where the threads are, and how large messages are to be.

Sizes come from the tuning table. They grow where a plan would otherwise have too many steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .steps import Ranks

if TYPE_CHECKING:
    from ..topology.runs import Run
    from ..topology.tree import Tree

__all__ = ["MOST_BYTES", "Facts", "Placement"]

MOST_BYTES: Final = 1 << 30
"""No message is longer: MPI counts in 32 bits."""

_ROOT_LIMITS: Final = "root_exchange_max", "root_exchange_max_one_block"


class Facts:
    """Describe a team and its tuning table, as far as they are the same on all threads.

    Attributes
    ----------
    size
        The number of the team's threads.
    tree
        The team's node tree over ranks.
    tuning
        Sizes from the tuning table: ``chunk``, ``window``, ...
    kernel
        What a reduction does to values; None in other calls.
    """

    def __init__(self, tree: Tree, tuning: Mapping[str, int], kernel: Any = None) -> None:
        self.kernel = kernel
        self.size = tree.size
        self.tree = tree
        self.tuning = tuning

    @property
    def one_node(self) -> bool:
        """Return whether the whole team shares memory."""
        return self.tree.node_count == 1

    @property
    def few_nodes(self) -> bool:
        """Return whether one node may exchange messages with all others itself."""
        return self.tree.node_count <= self.tuning["few_nodes_max"]

    @property
    def may_raise(self) -> bool:
        """Return whether the call runs a function of the user's, which may raise."""
        return self.kernel is not None and self.kernel.func is not None

    def roots_can_move(self, nbytes: int) -> bool:
        """Return whether node roots alone can move so many bytes per node with a barrier."""
        room = max(self.tuning[name] for name in _ROOT_LIMITS)
        return self.few_nodes and not (self.one_node or self.may_raise) and nbytes <= room

    def roots_should_move(self, nbytes: int, *, one_block: bool = False) -> bool:
        """Return whether node roots alone move so many bytes per node faster than all threads.

        `one_block`: only one block crosses, as in broadcasts and reductions.
        """
        return self.roots_can_move(nbytes) and nbytes <= self.tuning[_ROOT_LIMITS[one_block]]

    @property
    def largest_node(self) -> int:
        """Return how many threads the largest node has."""
        return self.tree.largest_node

    def message(self, nbytes: int, size: str = "max_message") -> int:
        """Return the largest message when each thread of every node has a block of `nbytes`.

        It is the tuned size, or more where one plan would have too many messages: a plan must
        stay small at 10,000 nodes. `size`: the name of that size in the table.
        """
        nodes = self.tree.node_count
        per_node = max(1, self.tuning["max_messages"] // nodes)
        needed = -(-self.largest_node * nbytes // per_node)
        return min(max(self.tuning[size], needed), MOST_BYTES)

    @property
    def line(self) -> int:
        """Return the bytes of the shortest place for values: whole cache lines for one of them."""
        itemsize = 1 if self.kernel is None else int(self.kernel.dtype.itemsize)
        return -(-itemsize // 64) * 64

    def unit(self, nbytes: int, most: int) -> int:
        """Return the size of the units, of at most `most`, that a reduction of `nbytes` sends.

        It is the tuned size. It is down to half of that where there would be only a few units, so
        that a node root combines one while the next one arrives. It is more where one plan would
        have too many units. All have about the same size: a short last one takes as much time for
        its message as any other.
        """
        line, fold = (
            self.line,
            max(self.tuning["reduce_chunk"], -(-nbytes // self.tuning["max_messages"])),
        )
        limit = max(line, min(fold, most) // line * line)
        units = max(1, -(-nbytes // limit), nbytes // min(limit, max(fold // 2, nbytes // 8)))
        return -(-nbytes // (line * units)) * line or line

    def chunk(self, nbytes: int) -> int:
        """Return the size of the chunks in which a block of `nbytes` passes a chain of nodes.

        It is the tuned size, or more where one plan would have too many chunks.
        """
        chunk, needed = self.tuning["chunk"], -(-nbytes // self.tuning["max_messages"])
        return chunk if needed <= chunk else min(-(-needed // 64) * 64, MOST_BYTES)

    def notify_interval(self, chunk: int) -> int:
        """Return after how many bytes of arriving chunks a node root notifies its threads.

        It is a multiple of `chunk`. Where threads share cores with the node root, waking them for
        every chunk costs more than it gains.
        """
        return max(1, self.tuning["notify_bytes"] // chunk) * chunk


class Placement(Facts):
    """Describe a team as thread `me` sees it.

    Attributes
    ----------
    me
        My rank in the team.
    my_node, node_root
        My node and its root.
    """

    def __init__(self, me: int, tree: Tree, tuning: Mapping[str, int], kernel: Any = None) -> None:
        super().__init__(tree, tuning, kernel)
        self.me = me
        self.my_node = tree.node_of(me)
        self.node_root = tree.node_root(self.my_node)
        self._node_ranks = _ranks(tree.runs(self.my_node))

    def on_my_node(self, rank: int) -> bool:
        """Return whether `rank` is on my node, so that I can load and store its memory."""
        return self.tree.node_of(rank) == self.my_node

    def node_ranks(self, node: int | None = None) -> tuple[Ranks, ...]:
        """Return the ranks of a node (default mine) as a few arithmetic runs."""
        if node is None or node == self.my_node:
            return self._node_ranks
        return _ranks(self.tree.runs(node))

    def node_ranks_but(self, rank: int | None) -> list[Ranks]:
        """Return my node's threads without one of them; all of them if that is None."""
        return [part for run in self.node_ranks() for part in run.without(rank)]

    def acting_root(self, node: int, root: int) -> int:
        """Return the thread that sends and receives for `node`: the call's root on its own node."""
        return self.tree.acting_root(node, root)


def _ranks(runs: Iterable[Run]) -> tuple[Ranks, ...]:
    """Return runs of threads as steps name them."""
    return tuple(Ranks(run.first, run.count, run.step) for run in runs)
