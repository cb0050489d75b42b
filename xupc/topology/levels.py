"""The levels below a node: which of its threads share a socket, a NUMA node, a cache, a core.

They follow from the machine and the affinity masks of the node's threads alone, so that all threads
compute the same ones. A thread belongs to the narrowest domain that holds its whole mask; at
narrower levels it is a domain of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ..records import record
from .machine import NAMES, Machine

__all__ = ["Level", "NodeLevels", "flat_levels", "node_levels"]


@record
class Level:
    """A partition of a node's threads into domains.

    Attributes
    ----------
    names
        What the domains are, the first being the level's name: ("socket", "numa") where each
        socket is a NUMA node.
    root_of
        The root of each thread's domain, its lowest thread; threads count inside the node.
    """

    names: tuple[str, ...]
    root_of: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name that `Team.levels` shows."""
        return self.names[0]

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of all domains, ascending."""
        return tuple(i for i, root in enumerate(self.root_of) if root == i)

    @property
    def domains(self) -> tuple[tuple[int, ...], ...]:
        """The threads of each domain, by root."""
        parts: dict[int, list[int]] = {}
        for thread, root in enumerate(self.root_of):
            parts.setdefault(root, []).append(thread)
        return tuple(map(tuple, parts.values()))

    def domain(self, thread: int) -> tuple[int, ...]:
        """Return the threads of the domain of `thread`."""
        mine = self.root_of[thread]
        return tuple(i for i, root in enumerate(self.root_of) if root == mine)

    @property
    def is_single(self) -> bool:
        """True if each domain has one thread."""
        return all(root == i for i, root in enumerate(self.root_of))


@record
class NodeLevels:
    """The levels of a node's threads, from the widest to the narrowest.

    Attributes
    ----------
    levels
        The first is the node, one domain with all threads. Each domain lies in one of the level
        before. No two levels are equal, and each but the first has a domain of several threads.
    single
        The names of levels on which each thread is alone.
    """

    levels: tuple[Level, ...]
    single: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of threads of the node."""
        return len(self.levels[0].root_of)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each level."""
        return tuple(level.name for level in self.levels)

    @property
    def shape(self) -> str:
        """The domains of each level below the node, such as "2,16"; "" if there is none."""
        return ",".join(str(len(level.roots)) for level in self.levels[1:])

    @property
    def is_flat(self) -> bool:
        """True if the node itself is the only level."""
        return len(self.levels) == 1

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """The parent of each thread in the tree of domains; -1 for the top, the node root.

        It is the root of the narrowest domain that holds both.
        """
        found = [-1] * self.size
        for level in self.levels:
            for thread, root in enumerate(level.root_of):
                if root != thread:
                    found[thread] = root
        return tuple(found)

    def relatives(self, thread: int) -> list[int]:
        """Return the parent of a thread in this tree and its children, the nearest first.

        A child j that has children itself is written as ``~j``.
        """
        parents = self.parents
        inner = set(parents)
        children: dict[int, int] = {}
        for level in reversed(self.levels):
            for j in level.domain(thread) if level.root_of[thread] == thread else ():
                if parents[j] == thread:
                    children.setdefault(j, ~j if j in inner else j)
        return [parents[thread], *children.values()]

    @property
    def has_domains(self) -> bool:
        """True if a level has at least two domains with several threads."""
        return any(sum(len(d) > 1 for d in level.domains) > 1 for level in self.levels)

    def find(self, name: str) -> Level:
        """Return the level of a name.

        A name of `NAMES` that nothing is known of, here or because threads are not bound, stands
        for the next wider level.

        Raises
        ------
        ValueError
            If it is no name of `NAMES`.
        """
        if name not in NAMES:
            raise ValueError(f"level {name!r}: expected one of {', '.join(NAMES)}")
        if name in self.single:
            return Level((name,), tuple(range(self.size)))
        for wider in NAMES[NAMES.index(name) :: -1]:
            for level in self.levels:
                if wider in level.names:
                    return level
        return self.levels[0]

    def sub(self, threads: Sequence[int]) -> NodeLevels:
        """Return the levels of some of the threads; thread i of the result is ``threads[i]``."""
        named = [(level.names, [level.root_of[t] for t in threads]) for level in self.levels]
        named += [((name,), list(threads)) for name in self.single]
        return _simplified(len(threads), named)


def flat_levels(threads: int) -> NodeLevels:
    """Return the levels of threads of which nothing is known: the node alone."""
    return NodeLevels((Level(("node",), (0,) * threads),))


def node_levels(machine: Machine | None, masks: Sequence[frozenset[int]]) -> NodeLevels:
    """Return the levels of a node's threads.

    Parameters
    ----------
    machine : Machine or None
        None if nothing is known of it.
    masks : sequence of frozenset of int
        The processors that each thread of the node may use.
    """
    if machine is None or len(set(masks)) == 1:
        return flat_levels(len(masks))
    every = frozenset(machine.cpus)
    distinct = {mask: mask & every or every for mask in set(masks)}
    named = []
    for level in machine.levels:
        number = {cpu: n for n, domain in enumerate(level.domains) for cpu in domain}
        inside = {mask: _common(number, cpus) for mask, cpus in distinct.items()}
        if any(domain is not None for domain in inside.values()):
            labels = [(-1 - i if (d := inside[m]) is None else d) for i, m in enumerate(masks)]
            named.append(((level.name,), labels))
    return _simplified(len(masks), named)


def _common(number: dict[int, int], cpus: Iterable[int]) -> int | None:
    """Return the number of the domain that all processors are in, None if there is none."""
    found = {number[cpu] for cpu in cpus}
    return found.pop() if len(found) == 1 else None


def _simplified(size: int, named: Iterable[tuple[tuple[str, ...], Sequence[int]]]) -> NodeLevels:
    """Return levels without those that equal the one above, or whose domains have one thread."""
    levels = list(flat_levels(size).levels)
    single: list[str] = []
    for names, labels in named:
        level = Level(names, _roots(labels))
        last = levels[-1]
        if level.root_of == last.root_of:
            names = tuple(dict.fromkeys([*last.names, *names]))
            levels[-1] = Level(names, last.root_of)
        elif level.is_single:
            single += names
        else:
            levels.append(level)
    return NodeLevels(tuple(levels), tuple(single))


def _roots(labels: Sequence[int]) -> tuple[int, ...]:
    first: dict[int, int] = {}
    return tuple(first.setdefault(label, i) for i, label in enumerate(labels))
