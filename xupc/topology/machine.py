"""The processors of one machine and the domains that they form: sockets, NUMA nodes, caches, cores.

A `Machine` is read from sysfs (`xupc.topology.sysfs`) or made from a description (`describe`).
`xupc.topology.levels` makes of it the levels of the threads of a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ..records import record
from .runs import plural

__all__ = ["NAMES", "NOUNS", "Machine", "MachineLevel", "describe", "nest"]

NAMES = ("node", "socket", "die", "numa", "l3", "cluster", "l2", "core")
"""The names of levels, from the widest to the narrowest on most machines."""

NOUNS = {
    "node": "node",
    "socket": "socket",
    "die": "die",
    "numa": "NUMA node",
    "l3": "L3 domain",
    "cluster": "cluster",
    "l2": "L2 domain",
    "core": "core",
}

_PREFERRED = ("node", "socket", "core", "numa", "l3", "die", "l2", "cluster")
"""Where two levels have the same domains, the name that is first here comes first."""

MOST = 1 << 16
_PRODUCT = re.compile(r"[0-9]{1,9}(?:x[0-9]{1,9}){1,2}")
_LISTS = re.compile(r"[0-9]{1,9}(?:[,/][0-9]{1,9})+")
_NAMED = re.compile(r"[a-z0-9]+:[0-9]{1,9}(?:[ ,]+[a-z0-9]+:[0-9]{1,9})*")
_SYNTAX = (
    'expected "SOCKETSxL3DOMAINSxCORES" or "L3DOMAINSxCORES", the cores of each L3 domain like '
    '"8,8/8,6" (a slash between sockets), named levels like "socket:2,numa:4,core:8,thread:2", '
    "or a directory laid out like /sys"
)

Domains = tuple[frozenset[int], ...]


@record
class MachineLevel:
    """One way to divide the processors of a machine: domains that share a name."""

    name: str
    domains: Domains


@record
class Machine:
    """A machine as its domains.

    Attributes
    ----------
    cpus
        The processors that are online, ascending.
    levels
        From the widest to the narrowest. Each divides all processors, and each of its domains lies
        in one domain of the level before. The first, "node", is one domain with all of them.
    """

    cpus: tuple[int, ...]
    levels: tuple[MachineLevel, ...]

    def level(self, name: str) -> MachineLevel | None:
        """Return the level of a name, None if the machine has none."""
        return next((level for level in self.levels if level.name == name), None)

    @property
    def cores(self) -> Domains:
        """The cores, each with its hardware threads; those of one domain follow each other."""
        level = self.level("core")
        cores = level.domains if level else tuple(frozenset([cpu]) for cpu in self.cpus)
        labels = _Labels(self.levels)
        return tuple(sorted(cores, key=lambda core: labels.path(min(core))))

    def within(self, cpus: Iterable[int]) -> Machine:
        """Return the machine as a process sees it that may use some processors only."""
        allowed = frozenset(cpus) & frozenset(self.cpus)
        return nest(allowed, ((level.name, level.domains) for level in self.levels))

    def masks(self, threads: int, *, spread: bool = True) -> tuple[frozenset[int], ...]:
        """Return a core for each of some threads, as the processors that it may use.

        Parameters
        ----------
        threads : int
            Their number; where it exceeds that of the cores, threads share cores.
        spread : bool
            Divide the threads evenly over the domains of each level; False: fill one domain after
            the other. In both cases threads with successive numbers are close to each other.
        """
        cores = self.cores
        if spread or threads > len(cores):
            return tuple(cores[i * len(cores) // threads] for i in range(threads))
        return cores[:threads]

    def __str__(self) -> str:
        """Return the counts in one line: "2 sockets, 16 L3 domains, 128 cores"."""
        counts: dict[int, str] = {}
        for level in self.levels[1:]:
            counts.setdefault(len(level.domains), NOUNS[level.name])
        return ", ".join(plural(*pair) for pair in counts.items()) or plural(
            len(self.cpus), "processor"
        )


class _Labels:
    """The number of a processor's domain at each level."""

    def __init__(self, levels: Sequence[MachineLevel]) -> None:
        self._of = [
            {cpu: number for number, domain in enumerate(level.domains) for cpu in domain}
            for level in levels
        ]

    def path(self, cpu: int) -> tuple[int, ...]:
        return (*(labels[cpu] for labels in self._of), cpu)


def nest(cpus: Iterable[int], named: Iterable[tuple[str, Iterable[frozenset[int]]]]) -> Machine:
    """Return the machine of some partitions of its processors, ordered and nested.

    The order goes by the number of domains, since NUMA nodes can be wider or narrower than L3
    domains. A domain that lies across the border of a wider one is cut there. A processor that is
    in no domain of a partition is in one with all others of which that is true.

    Parameters
    ----------
    cpus : iterable of int
        All processors.
    named : iterable of (str, domains)
        A name of `NAMES`, and disjoint sets of processors.
    """
    every = frozenset(cpus)
    known = [(name, _whole(domains, every)) for name, domains in named if name != "node"]
    known.sort(key=lambda level: (len(level[1]), _PREFERRED.index(level[0])))
    above: Domains = (every,)
    levels = [MachineLevel("node", above)]
    for name, domains in known:
        above = _cut(domains, above)
        levels.append(MachineLevel(name, above))
    return Machine(tuple(sorted(every)), tuple(levels))


def _whole(domains: Iterable[frozenset[int]], every: frozenset[int]) -> Domains:
    inside = [part for domain in domains if (part := domain & every)]
    rest = every.difference(*inside)
    return tuple([*inside, rest] if rest else inside)


def _cut(domains: Domains, above: Domains) -> Domains:
    wide = {cpu: number for number, domain in enumerate(above) for cpu in domain}
    parts: dict[tuple[int, int], set[int]] = {}
    for number, domain in enumerate(domains):
        for cpu in domain:
            parts.setdefault((wide[cpu], number), set()).add(cpu)
    return tuple(sorted(map(frozenset, parts.values()), key=min))


# --- descriptions ---------------------------------------------------------------------------------


def describe(text: str) -> Machine:
    """Return the machine of a description (``XUPC_TOPOLOGY``) that is no directory.

    Parameters
    ----------
    text : str
        ``"2x4x8"``: 2 sockets of 4 L3 domains of 8 cores each; ``"4x8"``: 4 L3 domains of 8 cores;
        ``"8,8/8,6"``: the cores of each L3 domain, with a slash between sockets;
        ``"socket:2,numa:2,l3:4,core:8,thread:2"``: how many of each level every domain of the one
        before has, from the widest to the narrowest.

    Raises
    ------
    ValueError
        If `text` has another form, holds a zero, or has more than 65536 processors.
    """
    form = text.strip().lower()
    if _PRODUCT.fullmatch(form):
        counts = [int(word) for word in form.split("x")]
        names = ("socket", "l3", "core")[-len(counts) :]
        return _regular(text, list(zip(names, counts, strict=True)))
    if _LISTS.fullmatch(form):
        return _of_lists(text, [[int(n) for n in part.split(",")] for part in form.split("/")])
    if _NAMED.fullmatch(form):
        words = [word.split(":") for word in re.split("[ ,]+", form)]
        return _regular(text, [(name, int(count)) for name, count in words])
    raise _bad(text, _SYNTAX)


def _regular(text: str, counts: list[tuple[str, int]]) -> Machine:
    """Return a machine in which all domains of a level have the same number of parts."""
    names = [name for name, _ in counts]
    allowed = (*NAMES[1:], "thread")
    if unknown := [name for name in names if name not in allowed]:
        raise _bad(text, f"{unknown[0]!r} is no level, expected some of {', '.join(allowed)}")
    if len(set(names)) < len(names) or "thread" in names[:-1]:
        raise _bad(text, "expected each level once, and threads of a core as the last one")
    totals = list(accumulate((count for _, count in counts), lambda a, b: a * b))
    _check(text, [count for _, count in counts], totals[-1])
    every = range(totals[-1])
    partitions = [
        (name, [frozenset(part) for part in _parts(every, total)])
        for name, total in zip(names, totals, strict=True)
        if name != "thread"
    ]
    machine = nest(every, partitions)
    order = [level.name for level in machine.levels[1:]]
    named = [name for name in names if name != "thread"]
    return machine if order == named else _in_order(machine, named)


def _in_order(machine: Machine, names: list[str]) -> Machine:
    """Return the machine with its levels in the order in which the description names them."""
    levels = [level for name in names if (level := machine.level(name)) is not None]
    return Machine(machine.cpus, (machine.levels[0], *levels))


def _parts(every: range, count: int) -> Iterator[range]:
    size = len(every) // count
    return (every[start : start + size] for start in range(0, len(every), size))


def _of_lists(text: str, sockets: list[list[int]]) -> Machine:
    """Return a machine of L3 domains with these many cores, grouped into sockets."""
    sizes = [size for socket in sockets for size in socket]
    _check(text, sizes, sum(sizes))
    named = [("l3", _successive(sizes)), ("core", _successive([1] * sum(sizes)))]
    if len(sockets) > 1:
        named.insert(0, ("socket", _successive([sum(socket) for socket in sockets])))
    return nest(range(sum(sizes)), named)


def _successive(sizes: Sequence[int]) -> list[frozenset[int]]:
    bounds = [0, *accumulate(sizes)]
    return [frozenset(range(first, end)) for first, end in pairwise(bounds)]


def _check(text: str, numbers: Sequence[int], total: int) -> None:
    if min(numbers) < 1:
        raise _bad(text, "expected numbers of at least 1")
    if total > MOST:
        raise _bad(text, f"it has {total} processors, expected at most {MOST}")


def _bad(text: str, reason: str) -> ValueError:
    return ValueError(f"XUPC_TOPOLOGY is {text!r:.200}: {reason}")
