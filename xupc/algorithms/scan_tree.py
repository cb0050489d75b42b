"""The domains of a node in a scan: which thread joins which values, and which thread reads them.

On several nodes the widest domains are groups of nodes (`scan_nodes`), as the node's root sees
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from ..records import record
from ..topology.levels import NodeLevels
from .brackets import Runs, runs_of
from .scan_brackets import BEFORE, Domain, Span, Spans, domain_of, outside_of
from .scan_nodes import Member, NodeGroups

__all__ = ["Positions", "ScanTree", "scan_tree"]

Positions = tuple[int | None, ...]
"""The position of each thread of a node; None if it has no operand."""


@record
class ScanTree:
    """The domains of a node by level, the widest first, then by their roots.

    On several nodes the first levels are groups of nodes, which have the root of this node; on one
    node there are none. With `depth` levels, phase 0 makes the threads' values, and phase
    ``depth - k`` joins those of the domains of level k. What lies before these comes in phase
    ``depth + 1 + k``, and the results in phase ``2 * depth + 1``.

    Attributes
    ----------
    levels
        The domains that have operands.
    positions
        The position of each thread of the node.
    groups
        The groups of nodes; None where the node root is not the root of a domain inside.
    """

    levels: tuple[dict[int, Domain], ...]
    positions: Positions
    groups: tuple[Member | None, ...]

    @property
    def depth(self) -> int:
        """The number of levels; single threads are none."""
        return len(self.levels)

    def before(self, thread: int) -> tuple[Domain, list[tuple[Span, int]]] | None:
        """Return how a thread joins what is before it, and its domain; None without an operand."""
        position = self.positions[thread]
        for domain in self.levels[-1].values():
            if position is not None and thread in domain.below:
                return domain, domain.parts((BEFORE, position)) if domain.gives[thread] else []
        return None

    @cached_property
    def reads(self) -> frozenset[tuple[int, int, int, int]]:
        """The reads between threads: (phase, phase in which it was written, reader, source)."""
        found = set()
        depth = self.depth
        for level, domains in enumerate(self.levels):
            for x in domains.values():
                last = level + 1 == depth
                joined = [x.owner(part) for span in x.used for part, _ in x.parts(span)]
                sources = joined if last else [root for root, some in x.below.items() if some]
                up = depth - level
                found |= {
                    (up, up - 1, x.root, source)
                    for source in sources if source is not None and source >= 0
                }  # fmt: skip
                if level and x.needs:
                    down = depth + 1 + level
                    found.add((down, down - 1, x.root, x.above))
        for thread in range(len(self.positions)):
            if way := self.before(thread):
                domain, parts = way
                owners = [domain.owner(span) for span, _ in parts]
                found |= {
                    (2 * depth + 1, self._has_needs(domain), thread, domain.root)
                    if owner is None else (2 * depth + 1, 0, thread, owner)
                    for owner in owners
                }  # fmt: skip
        return frozenset(found)

    def _has_needs(self, domain: Domain) -> int:
        """Return the phase in which the root of a narrowest domain writes what that needs.

        The root of the domain around, if it is the same thread, joins that for itself at once.
        """
        at_once = self.depth > 1 and domain.above == domain.root
        return 2 * self.depth - at_once


@lru_cache(maxsize=32)
def scan_tree(
    levels: NodeLevels, positions: Positions, groups: NodeGroups | None, node: int, count: int,
    *, carried: bool, more: bool,
) -> ScanTree:  # fmt: skip
    """Return the domains of a node.

    Parameters
    ----------
    levels
        Of the node.
    positions
        Of its threads.
    groups
        The groups of nodes; None on one node.
    node
        The place of the node in their line.
    count
        The number of positions.
    carried
        True if earlier rows come before the first position.
    more
        True if later rows follow, for which the widest domain joins all operands.
    """
    members: list[Member | None] = []
    above = -1
    if groups is None:
        used, needs = outside_of(count, carried=carried, more=more)
    else:
        members, used, needs = groups.members(node)
        above = 0
    found: list[dict[int, Domain]] = [{0: x.group} if x else {} for x in members]
    found += _domains_of(levels, positions, (above, used, needs), count, carried)
    return ScanTree(tuple(found), positions, tuple(members))


def _domains_of(
    levels: NodeLevels, positions: Positions, node: tuple[int, Spans, Spans], count: int,
    carried: bool,
) -> Iterator[dict[int, Domain]]:  # fmt: skip
    """Yield the domains of a node by level.

    `node`: the root of the domain around the node, the spans that the node joins for others, and
    those that it gets.
    """
    roots = [level.root_of for level in levels.levels]
    above = {0: node}
    for level, root_of in enumerate(roots):
        last = level + 1 == len(roots)
        inner = tuple(range(levels.size)) if last else roots[level + 1]
        members: dict[int, dict[int, list[int]]] = {}
        for thread, position in enumerate(positions):
            if position is not None:
                mine = members.setdefault(root_of[thread], {})
                mine.setdefault(inner[thread], []).append(position)
        domains = {
            root: domain_of(root, *above[root], _runs(its), count, carried=carried)
            for root, its in members.items()
        }
        yield domains
        above = {
            root: (domain.root, domain.below[root], domain.gives[root])
            for domain in domains.values() for root in domain.below
        }  # fmt: skip


def _runs(members: dict[int, list[int]]) -> dict[int, Runs]:
    return {root: runs_of(its) for root, its in members.items()}
