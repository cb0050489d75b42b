"""Which values of a scan cross between nodes: nodes are in groups, and these in wider groups.

The nodes stand in a line, by the lowest position on each. On a few nodes the team is the only
group. Its node roots send each other what they have joined, and each joins what its node needs. On
more nodes there are as few levels of groups as possible. The root of a group is its first node. It
joins what others need of its group, and gets what the group needs. With groups of two nodes::

    up      0: a+b     2: c+d       in each group the first node joins the values of its nodes
    across  2: a+b     1: a  3: c   what the roots of nodes, and then of groups, send each other
    down    3: a+b                  what comes before a group goes from its root to its nodes
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..records import record
from ..topology.tree import Tree
from .brackets import Runs, merged, pieces_of
from .scan_brackets import BEFORE, Domain, Span, Spans, domain_of, needs_of, outside_of

__all__ = ["Line", "Member", "NodeGroups", "group_size", "line_of", "run_lengths"]


# --- nodes in line --------------------------------------------------------------------------------
@record
class Line:
    """The nodes of a team in the order of a scan.

    Attributes
    ----------
    nodes
        Their numbers.
    runs
        The positions of each one's threads, in the same order.
    """

    nodes: tuple[int, ...]
    runs: tuple[Runs, ...]


def run_lengths(tree: Tree) -> NDArray[np.int64]:
    """Return how many threads each run of consecutive threads on a node of a team has."""
    index = tree.node_index
    ends: NDArray[np.int64] = (index[1:] != index[:-1]).nonzero()[0]
    return np.diff(np.concatenate(([-1], ends, [tree.size - 1])))


def group_size(nodes: int, tuning: Mapping[str, int]) -> int:
    """Return the most nodes of a narrowest group."""
    return _sizes(nodes, tuning["few_nodes_max"])[-2]


def line_of(tree: Tree, first: int, way: int) -> Line:
    """Return the nodes in the order of a scan that begins at a thread, in one way or the other."""
    index, size = tree.node_index, tree.size
    ends = [*((index[1:] != index[:-1]).nonzero()[0] + 1).tolist(), size]
    found: dict[int, list[Span]] = {}
    begin = 0
    for end in ends:
        # `first` begins a run forward, and ends one backward
        cut = first if way > 0 else first + 1
        for a, b in [(begin, cut), (cut, end)] if begin < cut < end else [(begin, end)]:
            at = (a - first) % size if way > 0 else (first - b + 1) % size
            found.setdefault(int(index[a]), []).append((at, at + b - a))
        begin = end
    runs = {node: merged(its) for node, its in found.items()}
    nodes = sorted(runs, key=lambda node: runs[node][0])
    return Line(tuple(nodes), tuple(runs[node] for node in nodes))


# --- groups ---------------------------------------------------------------------------------------
@record
class Member:
    """A group as the root of a domain inside sees it.

    Attributes
    ----------
    group
        The group; this domain's own part is 0.
    sends
        What this domain has joined that each other one gets.
    root
        The first node of the group by its place in the line; -1 for this node itself.
    hands_down
        What each other domain gets of what the group needs from outside, if this is the root.
    """

    group: Domain
    sends: dict[int, Spans]
    root: int
    hands_down: dict[int, Spans]


@record
class NodeGroups:
    """The groups of nodes of some rows of blocks, by level, the team first.

    Attributes
    ----------
    runs
        The positions on each node in line.
    count
        The number of positions: those from there on have no operand.
    most
        The most nodes that a group of nodes should have, and groups a wider one.
    carried, more
        Whether rows come before these, and whether others follow, for which the team joins all.
    """

    runs: tuple[Runs, ...]
    count: int
    most: int
    carried: bool
    more: bool

    @property
    def sizes(self) -> tuple[int, ...]:
        """The nodes of a domain by level: of the team, of the groups inside it, of a node."""
        return _sizes(len(self.runs), self.most)

    @property
    def depth(self) -> int:
        """The number of levels of groups."""
        return len(self.sizes) - 1

    def _inside(self, level: int, first: int) -> dict[int, Runs]:
        """Return the positions of the domains inside the group whose first node is `first`.

        A domain has the place in line of its own first node. Those without operands are left out.
        """
        outer, inner = self.sizes[level : level + 2]
        found = {}
        for at in range(first, min(first + outer, len(self.runs)), inner):
            pieces = [
                (begin, min(end, self.count))
                for runs in self.runs[at : at + inner] for begin, end in runs if begin < self.count
            ]  # fmt: skip
            if pieces:
                found[at] = merged(pieces)
        return found

    def members(self, node: int) -> tuple[list[Member | None], Spans, Spans]:
        """Return the groups in which a node is the root of a domain inside, None for others.

        Also what the node itself joins for others, and what it gets. `node`: its place in line.
        """
        used, needs = outside_of(self.count, carried=self.carried, more=self.more)
        found: list[Member | None] = []
        for level, (outer, inner) in enumerate(zip(self.sizes, self.sizes[1:], strict=False)):
            first, mine = node // outer * outer, node // inner * inner
            inside = self._inside(level, first)
            if mine not in inside:  # its nodes have no operand
                return [None] * self.depth, (), ()
            group = domain_of(first, -1, used, needs, inside, self.count, carried=self.carried)
            found.append(_seen_from(group, mine, level == 0) if mine == node else None)
            used, needs = group.below[mine], group.gives[mine]
        return found, used, needs

    @property
    def most_values(self) -> tuple[int, int]:
        """The most values that a node root keeps for the narrowest groups, and for others.

        The first number includes those of the node itself, without levels below it.
        """
        return _most_values(self)

    def _most_values(self) -> tuple[int, int]:
        narrow = wide = 0
        for level, outer in enumerate(self.sizes[:-1]):
            most = 0
            narrowest = level + 1 == self.depth
            for first in range(0, len(self.runs), outer):
                if inside := self._inside(level, first):
                    used, needs = self._outside(level, inside)
                    group = _shifted(inside, used, needs, self.count, self.carried)
                    most = max(most, _most_of(*group, not level, narrowest))
            narrow, wide = (most, wide) if narrowest else (narrow, wide + most)
        return narrow, wide

    def _outside(self, level: int, inside: dict[int, Runs]) -> tuple[bool, Spans]:
        """Return whether a group may join all it has for others, and what it gets."""
        if not level:
            return self.more, outside_of(self.count, carried=self.carried, more=self.more)[1]
        every = merged([piece for runs in inside.values() for piece in runs])
        return True, needs_of(every, self.count, carried=self.carried)


@lru_cache(maxsize=16)
def _most_values(groups: NodeGroups) -> tuple[int, int]:
    return groups._most_values()


@lru_cache(maxsize=64)
def _sizes(nodes: int, most: int) -> tuple[int, ...]:
    """Return the nodes of a domain by level.

    All but the team have a power of two, and as few as the number of levels allows: then parts of
    the written tree are in one domain where nodes have such numbers of threads.
    """
    if nodes <= max(most, 2):
        return nodes, 1
    bits = max(1, most.bit_length() - 1)
    needed = (nodes - 1).bit_length()
    depth = -(-needed // bits)
    each = -(-needed // depth)
    return (nodes, *(1 << each * level for level in reversed(range(depth))))


def _seen_from(group: Domain, mine: int, everywhere: bool) -> Member:
    """Return a group as the root of a domain inside sees it.

    `everywhere`: the root of each domain inside joins what the group joins, as in the team.
    """
    first = min(group.below)
    joins = {x: group.used if everywhere or x == first else () for x in group.below}
    wants = {x: group.wanted_by(x, joins[x]) for x in group.below}
    below = {0: group.below[mine], **{~x: spans for x, spans in wants[mine].items()}}
    needs = group.needs if everywhere or mine == first else group.fetched_by(mine)
    seen = Domain(0, -1 if everywhere else 0, joins[mine], needs, below, {0: group.gives[mine]})
    sends = {x: wanted[mine] for x, wanted in wants.items() if mine in wanted}
    down: dict[int, Spans] = {}
    if not everywhere and mine == first:
        down = {x: spans for x in group.below if x != first and (spans := group.fetched_by(x))}
    return Member(seen, sends, -1 if everywhere or mine == first else first, down)


# --- places ---------------------------------------------------------------------------------------
_Group = tuple[tuple[Runs, ...], bool, Spans, int, bool]


def _shifted(
    inside: dict[int, Runs], used: bool, needs: Spans, count: int, carried: bool
) -> _Group:
    """Return a group at the begin of the line: groups with the same tree then compare equal."""
    low = min(runs[0][0] for runs in inside.values())
    high = max(runs[-1][1] for runs in inside.values())
    size = 1 << (low ^ high - 1).bit_length()
    at = low // size * size
    moved = tuple(tuple((a - at, b - at) for a, b in runs) for runs in inside.values())
    gets = tuple((a if a == BEFORE else a - at, b - at) for a, b in needs)
    return moved, used, gets, min(count - at, size), carried or at > 0


@lru_cache(maxsize=4096)
def _most_of(
    inside: tuple[Runs, ...], used: bool, needs: Spans, count: int, carried: bool,
    everywhere: bool, with_own: bool,
) -> int:  # fmt: skip
    """Return the most values that the root of a domain inside a group keeps for the group.

    Parameters
    ----------
    used
        True if the group joins all that it has for others.
    everywhere
        As in `_seen_from`.
    with_own
        Include those of the domain itself, which is a node.
    """
    whole = merged([piece for runs in inside for piece in runs])
    every = tuple(pieces_of(whole, 0, count)) if used else ()
    group = domain_of(0, -1, every, needs, dict(enumerate(inside)), count, carried=carried)
    most = 0
    for x in group.below:
        seen = _seen_from(group, x, everywhere).group
        own = len(group.below[x]) + len(group.gives[x]) if with_own else 0
        most = max(most, own + sum(map(len, seen.kept)))
    return most

