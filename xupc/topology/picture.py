"""Draw where the threads of a job are: nodes, sockets, domains, cores, threads and roots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..records import record
from .machine import NOUNS, Machine, MachineLevel
from .runs import name_threads, plural
from .tree import branches

__all__ = ["NodeView", "draw_nodes", "legend"]

_ROW = 16  # cores in a line
_FREE = "·"


@record
class NodeView:
    """A node as it is drawn.

    Attributes
    ----------
    threads
        The node's threads; the first is the node root.
    machine
        None if nothing is known of it.
    masks
        The processors that each of the threads may use.
    """

    threads: tuple[int, ...]
    machine: Machine | None
    masks: tuple[frozenset[int], ...]

    def is_like(self, other: NodeView) -> bool:
        """Return whether two nodes differ in the numbers of their threads only."""
        return self.machine == other.machine and self.masks == other.masks


def draw_nodes(views: Sequence[NodeView]) -> str:
    """Return the picture of all nodes of a job; of successive equal ones the first is drawn."""
    count = sum(len(view.threads) for view in views)
    lines: list[str] = []
    below: list[list[str]] = []
    for first, like in _alike(views):
        lines.append(_node_line(first, views[first]))
        below.append(_draw(views[first]))
        if like:
            threads = sorted(
                t for view in views[first + 1 : first + 1 + like] for t in view.threads
            )
            numbers = f"node {first + 1}" if like == 1 else f"nodes {first + 1}-{first + like}"
            lines.append(f"{numbers}: {name_threads(threads)}, like node {first}")
            below.append([])
    headline = f"{plural(count, 'thread')} on {plural(len(views), 'node')}"
    return "\n".join([headline, *(line.rstrip() for line in branches(lines, below))])


def legend(views: Sequence[NodeView]) -> str:
    """Return what the signs mean that are in the picture, "" if it has no cores."""
    if all(view.machine is None for view in views):
        return ""
    text = (
        f"[ ] the cores of a domain: the threads that are bound to each, {_FREE} without a thread"
    )
    return f"{text}; root: the lowest thread of a domain"


def _alike(views: Sequence[NodeView]) -> Iterator[tuple[int, int]]:
    """Yield each node that differs from the one before, and how many like it follow."""
    first = 0
    for i in range(1, len(views) + 1):
        if i == len(views) or not views[i].is_like(views[first]):
            yield first, i - first - 1
            first = i


def _node_line(number: int, view: NodeView) -> str:
    machine = "its processors are unknown" if view.machine is None else str(view.machine)
    threads = name_threads(sorted(view.threads))
    return f"node {number}: {threads}, node root {view.threads[0]}; {machine}"


def _draw(view: NodeView) -> list[str]:
    """Return the lines below that of a node, with the cores in one column."""
    if view.machine is None:
        return []
    pairs = list(_Node(view, view.machine).lines())
    width = max((len(label) for label, cores in pairs if cores), default=0)
    return [f"{label:{width}}  {cores}" if cores else label for label, cores in pairs]


class _Node:
    """What is drawn of one node: the levels, and which threads are in which domain."""

    def __init__(self, view: NodeView, machine: Machine) -> None:
        every = frozenset(machine.cpus)
        self._masks = {
            thread: mask & every or every
            for thread, mask in zip(view.threads, view.masks, strict=True)
        }
        self._of_first: dict[int, list[int]] = {}  # threads by the lowest processor of their mask
        for thread, mask in self._masks.items():
            self._of_first.setdefault(min(mask), []).append(thread)
        self._cores = machine.cores
        self._levels = [machine.levels[0], *_shown(machine)]
        self._cells = {core: self._cell(core) for core in self._cores}
        self._width = max(map(len, self._cells.values()))

    def _cell(self, core: frozenset[int]) -> str:
        inside = self._threads(core)
        return name_threads(inside).split()[1] if inside else _FREE

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield each line as its label and the cores behind it."""
        every = self._levels[0].domains[0]
        if len(self._levels) == 1:
            yield from (("", row) for row in self._rows(every))
            yield from ((f"  {text}", "") for text in self._loose(0, every))
        else:
            yield from self._below(0, every)

    def _below(self, depth: int, domain: frozenset[int]) -> Iterator[tuple[str, str]]:
        """Yield the lines of the domains inside one, then of its threads that are in none."""
        level = self._levels[depth + 1]
        inside = [(n, d) for n, d in enumerate(level.domains) if d <= domain]
        entries: list[tuple[tuple[str, str], list[tuple[str, str]]]] = []
        for empty, group in groupby(inside, lambda pair: not self._threads(pair[1])):
            several = list(group)
            if empty and len(several) > 1:
                first, last = several[0][0], several[-1][0]
                entries.append(((f"{_noun(level)}s {first}-{last}: no threads", ""), []))
            else:
                entries += [self._entry(depth + 1, number, each) for number, each in several]
        entries += [((text, ""), []) for text in self._loose(depth, domain)]
        yield from _joined(entries)

    def _entry(
        self, depth: int, number: int, domain: frozenset[int]
    ) -> tuple[tuple[str, str], list[tuple[str, str]]]:
        """Return the line of a domain and those below it."""
        threads = self._threads(domain)
        label = f"{_noun(self._levels[depth])} {number}: "
        label += f"{name_threads(threads)}, root {threads[0]}" if threads else "no threads"
        if depth + 1 < len(self._levels):
            return (label, ""), list(self._below(depth, domain))
        first, *more = self._rows(domain)
        loose = [(text, "") for text in self._loose(depth, domain)]
        return (label, first), [*(("", row) for row in more), *loose]

    def _threads(self, domain: frozenset[int]) -> list[int]:
        some = (thread for cpu in domain for thread in self._of_first.get(cpu, ()))
        return sorted(thread for thread in some if self._masks[thread] <= domain)

    def _loose(self, depth: int, domain: frozenset[int]) -> Iterator[str]:
        """Yield a line for the threads that belong to a domain, but to none inside it."""
        narrower = self._levels[depth + 1].domains if depth + 1 < len(self._levels) else self._cores
        loose = [
            thread
            for thread in self._threads(domain)
            if not any(self._masks[thread] <= inside for inside in narrower)
        ]
        if loose:
            where = "cores" if narrower is self._cores else f"{_noun(self._levels[depth + 1])}s"
            yield f"{name_threads(loose)} on several {where}"

    def _rows(self, domain: frozenset[int]) -> Iterator[str]:
        """Yield the cores of a domain as cells, in lines of equal length."""
        cells = [f"{self._cells[core]:>{self._width}}" for core in self._cores if core <= domain]
        for first in range(0, len(cells), _ROW):
            yield f"[ {' '.join(cells[first : first + _ROW])} ]"


def _joined(
    entries: Sequence[tuple[tuple[str, str], list[tuple[str, str]]]],
) -> Iterator[tuple[str, str]]:
    labels = list(
        branches(
            [label for (label, _), _ in entries],
            [[label for label, _ in inner] for _, inner in entries],
        )
    )
    cores = [row for (_, own), inner in entries for row in (own, *(row for _, row in inner))]
    yield from zip(labels, cores, strict=True)


def _noun(level: MachineLevel) -> str:
    return NOUNS[level.name]


def _shown(machine: Machine) -> list[MachineLevel]:
    """Return the levels that divide the one before, and are wider than cores."""
    shown: list[MachineLevel] = []
    count, cores = 1, len(machine.cores)
    for level in machine.levels[1:]:
        if count < len(level.domains) < cores:
            shown.append(level)
            count = len(level.domains)
    return shown
