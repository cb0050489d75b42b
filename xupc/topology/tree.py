"""The tree of a job or team: threads grouped into nodes.

`Tree` is over ranks and is what plans are made for; `ThreadTree` shows it in thread ids.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .levels import NodeLevels, flat_levels
from .runs import Run, ascending_pieces, name_threads, part_of_run, plural, split_into_runs

__all__ = [
    "ThreadTree",
    "Tree",
    "branches",
]


ScalarT = TypeVar("ScalarT", bound=np.generic)
_MAX_NODE_LINES = 36
_MAX_REPR = 32
_MOST_KEPT = 64
"""Largest node count of a tree that keeps the runs of its nodes."""


class Tree:
    """Threads grouped into nodes, each represented by its node root, its lowest thread.

    Nodes are numbered by their node roots. Three arrays hold the tree (8 bytes per thread, 8 per
    node). Tuples and `Run` objects are made on demand; only a small tree keeps them.

    Parameters
    ----------
    node_index : array_like of int, shape (threads,)
        A label for each thread; threads with equal labels share a node. Labels are renumbered.

    Raises
    ------
    ValueError
        If there is no thread, or the array has not one dimension.
    """

    __slots__ = (
        "_bounds",
        "_choice",
        "_kept_runs",
        "_largest",
        "_levels",
        "_members",
        "_node_index",
        "_nodes",
        "_places",
        "_starts",
        "_threads",
    )

    _choice: tuple[int, int] | None  # (which, of how many): of `with_other_roots`
    _places: NDArray[np.int64] | None  # of a team's ranks in their nodes' memory
    _node_index: NDArray[np.int32]  # node of each thread
    _members: NDArray[np.int32]  # threads, node after node, ascending within each
    _starts: NDArray[np.int64]  # node k has _members[_starts[k]:_starts[k + 1]]

    def __init__(self, node_index: Sequence[int] | NDArray[Any]) -> None:
        labels = np.asarray(node_index)
        if labels.ndim != 1 or labels.size == 0:
            raise ValueError(f"expected one label per thread, got shape {labels.shape}")
        numbers, first = _number_by_lowest(labels)
        sizes = np.bincount(numbers, minlength=first.size)
        starts = np.zeros(first.size + 1, dtype=np.int64)
        np.cumsum(sizes, out=starts[1:])
        self._keep(numbers, np.argsort(numbers, kind="stable").astype(np.int32), starts)

    def _keep(
        self,
        node_index: NDArray[np.int32],
        members: NDArray[np.int32],
        starts: NDArray[np.int64],
    ) -> None:
        self._places = self._choice = None
        self._node_index = _read_only(node_index)
        self._members = _read_only(members)
        self._starts = _read_only(starts)
        # indexing a memoryview is several times faster than indexing an array
        self._nodes = self._node_index.data
        self._threads = self._members.data
        self._bounds = self._starts.data
        self._kept_runs: dict[int, tuple[Run, ...]] = {}
        self._largest = 0
        self._levels: Mapping[int, NodeLevels] = {}

    def write_tables(self, room: NDArray[np.uint8]) -> None:
        """Copy the tables into `room`, for `with_tables`."""
        for view, table in zip(self._views(room), self._tables, strict=True):
            view[:] = table

    def with_tables(self, room: NDArray[np.uint8]) -> Tree:
        """Return the same tree over tables that `write_tables` wrote: one copy for many processes.

        Parameters
        ----------
        room : ndarray of uint8
            `nbytes` bytes, aligned to 8.
        """
        tree = Tree.__new__(Tree)
        starts, node_index, members = self._views(room)
        tree._keep(node_index, members, starts)
        return tree

    def with_levels(self, levels: Mapping[int, NodeLevels]) -> Tree:
        """Return the same tree with the levels below some of its nodes.

        Parameters
        ----------
        levels : mapping
            Node: the levels of its threads, which count inside the node. A live job has those of
            its own node only.
        """
        tree = Tree.__new__(Tree)
        tree._keep(self._node_index, self._members, self._starts)
        tree._places = self._places
        tree._levels = dict(levels)
        return tree

    def with_other_roots(self, which: int, many: int) -> Tree:
        """Return the same tree with other node roots, where a node has `many` of them.

        They are spread evenly over the threads of a node; a node of fewer threads has some of them
        several times. The first one is the lowest thread.
        """
        tree = self.with_levels(self._levels)
        tree._choice = (which, many) if which else None
        return tree

    def _place_of_root(self, size: int) -> int:
        """Return the position of the node root in a node of so many threads."""
        if self._choice is None:
            return 0
        which, many = self._choice
        return which * size // many if many <= size else which % size

    @property
    def _tables(self) -> tuple[NDArray[Any], ...]:
        return self._starts, self._node_index, self._members

    def _views(self, room: NDArray[np.uint8]) -> Iterator[NDArray[Any]]:
        begin = 0
        for table in self._tables:
            yield room[begin : begin + table.nbytes].view(table.dtype)
            begin += table.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables."""
        return self._node_index.nbytes + self._members.nbytes + self._starts.nbytes

    @property
    def size(self) -> int:
        """Number of threads."""
        return len(self._nodes)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self._bounds) - 1

    @property
    def node_index(self) -> NDArray[np.int32]:
        """Node of each thread, read-only, shape (size,)."""
        return self._node_index

    @property
    def node_roots(self) -> NDArray[np.int32]:
        """Node root of each node, shape (node_count,); the lowest threads ascend."""
        starts = self._starts[:-1]
        if self._choice is None:
            return self._members[starts]
        places = [self._place_of_root(size) for size in self.node_sizes.tolist()]
        found: NDArray[np.int32] = self._members[starts + np.array(places, np.int64)]
        return found

    @property
    def node_sizes(self) -> NDArray[np.int64]:
        """Number of threads of each node, shape (node_count,)."""
        return np.diff(self._starts)

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """Threads of each node; computed on each use."""
        return tuple(tuple(self.members(node).tolist()) for node in range(self.node_count))

    @property
    def roots(self) -> tuple[int, ...]:
        """Node root of each node; computed on each use."""
        return tuple(self.node_roots.tolist())

    def node_of(self, thread: int) -> int:
        """Return the node of `thread`."""
        return self._nodes[self._check_thread(thread)]

    def members(self, node: int) -> NDArray[np.int32]:
        """Return the threads of `node`, ascending: a read-only view."""
        node = self._check_node(node)
        return self._members[self._bounds[node] : self._bounds[node + 1]]

    def node_size(self, node: int) -> int:
        """Return the number of threads of `node`."""
        node = self._check_node(node)
        return self._bounds[node + 1] - self._bounds[node]

    @property
    def largest_node(self) -> int:
        """Number of threads of the largest node."""
        if not self._largest:
            self._largest = int(self.node_sizes.max())
        return self._largest

    def levels(self, node: int) -> NodeLevels:
        """Return the levels of the threads of `node`: the node alone where nothing is known."""
        return self._levels.get(self._check_node(node)) or flat_levels(self.node_size(node))

    @property
    def level_shape(self) -> str:
        """`NodeLevels.shape` of the nodes if it is the same on all of them, else ""."""
        if not self._levels:
            return ""
        shapes = {self.levels(node).shape for node in range(self.node_count)}
        return shapes.pop() if len(shapes) == 1 else ""

    def node_root(self, node: int) -> int:
        """Return the lowest thread of `node`, or that of `with_other_roots`."""
        first = self._bounds[self._check_node(node)]
        if self._choice is None:
            return self._threads[first]
        return self._threads[first + self._place_of_root(self.node_size(node))]

    def acting_root(self, node: int, root: int) -> int:
        """Return the thread that sends and receives for `node` in a call with a root.

        On its own node that is the root of the call. In `with_other_roots` it is as many threads
        behind that root, around the node, as the node root is behind the lowest thread.
        """
        if self.node_of(root) != node:
            return self.node_root(node)
        if self._choice is None:
            return root
        size = self.node_size(node)
        place = (self.local_index(root) + self._place_of_root(size)) % size
        return self._threads[self._bounds[node] + place]

    def root_of(self, thread: int) -> int:
        """Return the node root of the node of `thread`."""
        return self.node_root(self.node_of(thread))

    def local_index(self, thread: int) -> int:
        """Return the position of `thread` among the threads of its node."""
        node = self.node_of(thread)
        first = self._bounds[node]
        return bisect_left(self._threads, thread, first, self._bounds[node + 1]) - first

    def place(self, thread: int) -> int:
        """Return the index of the part of the node's memory that belongs to `thread`.

        In the tree of all threads it is `local_index`; a team may lack some threads of the node.
        """
        return self.local_index(thread) if self._places is None else int(self._places[thread])

    def runs(self, node: int) -> tuple[Run, ...]:
        """Split the threads of `node` into arithmetic progressions, greedily from the lowest.

        A node of consecutive threads and one of threads dealt round robin are one run each. A run
        of a single thread has step 1. The places of a run are a progression, too, and ascend.
        """
        kept = self._kept_runs.get(node)
        if kept is None:
            kept = self._find_runs(node)
            if self.node_count <= _MOST_KEPT:
                self._kept_runs[node] = kept
        return kept

    def _find_runs(self, node: int) -> tuple[Run, ...]:
        members = self.members(node)
        runs = split_into_runs(members)
        if self._places is None:
            return tuple(runs)
        places = self._places[members]
        return tuple(
            part_of_run(run, at, count)
            for run in runs
            for at, count in ascending_pieces(places[run.local : run.local + run.count])
        )

    def sub(self, threads: Sequence[int] | NDArray[Any]) -> Tree:
        """Return the tree of a team.

        Parameters
        ----------
        threads : sequence of int
            Distinct threads of this tree; ``threads[r]`` is rank r of the team.

        Returns
        -------
        Tree
            Over ranks 0..k-1, its nodes numbered by lowest rank. A rank keeps the place of its
            thread in this tree, also in teams of the team.
        """
        chosen = np.asarray(threads)
        if chosen.ndim != 1 or chosen.size == 0:
            raise ValueError("a team needs at least one thread")
        if chosen.min() < 0 or chosen.max() >= self.size:
            raise ValueError(f"threads of a team must lie in 0..{self.size - 1}")
        if np.unique(chosen).size != chosen.size:
            raise ValueError("a team must not hold a thread twice")
        tree = Tree(self._node_index[chosen])
        tree._places = np.array([self.place(thread) for thread in chosen.tolist()], np.int64)
        if self._levels:
            tree._levels = dict(self._levels_of_team(chosen, tree))
        return tree

    def _levels_of_team(self, chosen: NDArray[Any], tree: Tree) -> Iterator[tuple[int, NodeLevels]]:
        """Yield what `self` has of levels for the nodes of a team's tree."""
        for node in range(tree.node_count):
            threads = chosen[tree.members(node)].tolist()
            if levels := self._levels.get(self.node_of(threads[0])):
                yield node, levels.sub([self.local_index(thread) for thread in threads])

    def _check_thread(self, thread: int) -> int:
        if not 0 <= thread < len(self._nodes):
            raise IndexError(f"thread {thread}: expected 0..{self.size - 1}")
        return thread

    def _check_node(self, node: int) -> int:
        if not 0 <= node < len(self._bounds) - 1:
            raise IndexError(f"node {node}: expected 0..{self.node_count - 1}")
        return node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        same = self._levels == other._levels and self._choice == other._choice
        return same and np.array_equal(self._node_index, other._node_index)

    def __hash__(self) -> int:
        return hash(self._node_index.tobytes())

    def __repr__(self) -> str:
        if self.size <= _MAX_REPR:
            return f"Tree({self._node_index.tolist()})"
        return f"<Tree: {_headline(self)}>"

    def __str__(self) -> str:
        return _draw(self, self.members)


def _number_by_lowest(labels: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Renumber `labels` by first occurrence; also return the first occurrence of each."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    by_lowest = np.argsort(first)
    number = np.empty(first.size, dtype=np.int32)
    number[by_lowest] = np.arange(first.size, dtype=np.int32)
    return number[inverse], first[by_lowest]


class ThreadTree:
    """The tree of a team over thread ids, where `Tree` is over ranks.

    A node root is the thread of the node with the lowest rank.

    Parameters
    ----------
    ranks : Tree
        Over the team's ranks.
    threads : sequence of int
        Thread ids by rank.
    """

    __slots__ = ("_rank_of", "_ranks", "_threads")

    def __init__(self, ranks: Tree, threads: Sequence[int]) -> None:
        self._ranks = ranks
        self._threads = np.asarray(threads)
        self._rank_of = {thread: rank for rank, thread in enumerate(threads)}

    @property
    def size(self) -> int:
        """Number of threads."""
        return self._ranks.size

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return self._ranks.node_count

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The threads of each node, by rank."""
        return tuple(tuple(self.members(node).tolist()) for node in range(self.node_count))

    @property
    def roots(self) -> tuple[int, ...]:
        """The node root of each node."""
        return tuple(self._threads[self._ranks.node_roots].tolist())

    def members(self, node: int) -> NDArray[Any]:
        """Return the threads of `node`, by rank."""
        return np.asarray(self._threads[self._ranks.members(node)])

    def levels(self, node: int) -> NodeLevels:
        """Return the levels of the threads of `node`, as `members` lists them."""
        return self._ranks.levels(node)

    def node_of(self, thread: int) -> int:
        """Return the node of `thread`; IndexError if it is not in the team."""
        return self._ranks.node_of(self._rank(thread))

    def root_of(self, thread: int) -> int:
        """Return the node root of the node of `thread`."""
        return int(self._threads[self._ranks.root_of(self._rank(thread))])

    def _rank(self, thread: int) -> int:
        rank = self._rank_of.get(thread)
        if rank is None:
            raise IndexError(f"thread {thread}: expected one of the team's")
        return rank

    def __repr__(self) -> str:
        return f"<ThreadTree: {_headline(self)}>"

    def __str__(self) -> str:
        return _draw(self, self.members)


def _headline(tree: Tree | ThreadTree) -> str:
    return f"{plural(tree.size, 'thread')} on {plural(tree.node_count, 'node')}"


def _draw(tree: Tree | ThreadTree, members: Callable[[int], NDArray[Any]]) -> str:
    """Return a tree as text: the counts, then a line for each node and each domain in it."""
    count = tree.node_count
    shown = count if count <= _MAX_NODE_LINES else _MAX_NODE_LINES - 1
    nodes = [members(node) for node in range(shown)]
    lines = [
        f"node {i}: {name_threads(np.sort(threads))}, node root {threads[0]}"
        for i, threads in enumerate(nodes)
    ]
    below = [
        _draw_domains(tree.levels(i), threads, 1, range(len(threads)))
        for i, threads in enumerate(nodes)
    ]
    if hidden := count - shown:
        lines.append(f"… and {hidden} more nodes")
        below.append([])
    return "\n".join([_headline(tree), *branches(lines, below)])


def _draw_domains(
    levels: NodeLevels, threads: NDArray[Any], depth: int, chosen: Sequence[int]
) -> list[str]:
    """Return a line for each domain of a level that holds several of the chosen threads.

    Parameters
    ----------
    threads : ndarray of int
        The names of all threads of the node.
    depth : int
        The number of the level.
    chosen : sequence of int
        Threads of one domain of the level above.
    """
    if depth == len(levels.levels):
        return []
    level = levels.levels[depth]
    domains = [d for d in level.domains if len(d) > 1 and d[0] in chosen]
    lines = [
        f"{level.name}: {name_threads(np.sort(threads[list(d)]))}, root {threads[d[0]]}"
        for d in domains
    ]
    below = [_draw_domains(levels, threads, depth + 1, domain) for domain in domains]
    return list(branches(lines, below))


def branches(lines: Sequence[str], below: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a tree's children, each with its own children's lines below it."""
    for number, (line, inner) in enumerate(zip(lines, below, strict=True)):
        last = number == len(lines) - 1
        yield ("└─ " if last else "├─ ") + line
        yield from (("   " if last else "│  ") + text for text in inner)


def _read_only(array: NDArray[ScalarT]) -> NDArray[ScalarT]:
    view = array.view()
    view.flags.writeable = False
    return view
