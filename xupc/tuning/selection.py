"""Choose the algorithm and the sizes for a place from a selection table.

A table has a list of rules and sizes. The first rule that matches decides. The entries of a user's
table come before those of the built-in one. `xupc.tuning.selection_file` reads tables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, TypeVar

from ..flags import algorithm_name
from ..records import record
from .host_figures import HostFigures
from .table_values import Read, one_of, truth, whole

__all__ = [
    "CONDITIONS", "FAMILIES", "TRANSPORTS", "CarrierRule", "Carriers", "Choices", "Condition",
    "Place", "Rule", "SENDER_SIZED", "Table", "When", "public_name", "registered_name", "shape_of",
]  # fmt: skip

FAMILIES = "mpich", "openmpi", "other"
TRANSPORTS = "shm", "tcp", "fabric"
SENDER_SIZED = frozenset(
    (
        "Alltoallv", "Gatherv", "Scatterv", "allgather", "allreduce", "alltoall", "bcast", "exscan",
        "gather", "reduce", "scan", "scatter",
    )
)  # fmt: skip
"""Methods of the drop-in communicator whose messages have lengths that only their senders know."""
_RUN = re.compile(r"(?:([1-9][0-9]{0,8})x)?([1-9][0-9]{0,8})")
_LEVELS = re.compile(r"none|some|[1-9][0-9]{0,8}(?:,[1-9][0-9]{0,8})*")
_T = TypeVar("_T")

Runs = Iterable[tuple[int, int]]
"""How many nodes in a row have how many threads."""


def registered_name(public: str) -> str:
    """Return a collective's name in the registry of algorithms: ``all_scatter_v`` -> ``scatter_v``.

    Scalars (``allv_``) use the algorithms of arrays of values (``allav_``). So do arrays of values
    in blocks of different sizes: ``allav_scatter_v`` -> ``allav_scatter``.
    """
    if public.startswith("allav_"):
        return public.removesuffix("_v")
    if public.startswith("allv_"):
        return f"allav_{public.removeprefix('allv_')}"
    return public.removeprefix("all_")


def public_name(registered: str) -> str:
    """Return the name of a registered collective in tables and results."""
    return registered if registered.startswith("allav_") else f"all_{registered}"


def shape_of(runs: Runs) -> str:
    """Return node sizes as text: ``"8"`` is one node of 8 threads, ``"4x2"`` is 4 nodes of 2."""
    merged = []
    for size, same in itertools.groupby(runs, key=lambda run: run[1]):
        count = sum(count for count, _ in same)
        merged.append(str(size) if count == 1 else f"{count}x{size}")
    return ",".join(merged)


@record
class Place:
    """Where a team runs: what rules may ask about. The same on all threads.

    Attributes
    ----------
    shape
        How many threads each node has, as `shape_of` says it.
    oversubscribed
        Some machine of the job has more threads than cores.
    levels
        The domains of each level below the node, such as "2,16", where all nodes have the same; ""
        if nothing is known, or if they differ.
    """

    threads: int
    node_count: int
    shape: str
    family: str
    transport: str
    oversubscribed: bool
    levels: str = ""

    @classmethod
    def of(
        cls, sizes: Iterable[int], family: str, transport: str, oversubscribed: bool,
        levels: str = "",
    ) -> Place:  # fmt: skip
        """Return the place of a team with so many threads on each node."""
        each = [int(size) for size in sizes]
        shape = shape_of((1, size) for size in each)
        return cls(sum(each), len(each), shape, family, transport, oversubscribed, levels)

    @property
    def nodes(self) -> str:
        """``"one"`` or ``"many"``."""
        return "many" if self.node_count > 1 else "one"


# --- conditions -----------------------------------------------------------------------------------


@record
class Condition:
    """A condition of rules, as a table's file has it.

    Attributes
    ----------
    meaning
        The text for the reference of a table's keys.
    read
        How its value is read.
    """

    meaning: str
    read: Read


CONDITIONS: dict[str, Condition] = {}
"""All conditions by their keys in a file, in the order in which they are written."""


def _condition(meaning: str, read: Read) -> Any:
    """Return what makes a field of `When` a condition."""
    return Condition(meaning, read)


def _entered(cls: type[_T]) -> type[_T]:
    """Enter the conditions of a class into `CONDITIONS`; leave None as their defaults."""
    for name in cls.__annotations__:
        CONDITIONS[name] = vars(cls)[name]
        setattr(cls, name, None)
    return cls


def _shape(value: Any) -> str:
    """Return a shape in the form of `shape_of`, which places use."""
    runs = [_RUN.fullmatch(part) for part in value.split(",")] if isinstance(value, str) else [None]
    if None in runs:
        raise ValueError('expected node sizes like "8", "4x2" or "3,1,4"')
    return shape_of((int(run[1] or 1), int(run[2])) for run in runs if run)


def _levels(value: Any) -> str:
    if not isinstance(value, str) or not _LEVELS.fullmatch(value):
        raise ValueError('expected "none", "some", or the domains of each level, like "2,16"')
    return value


@record
@_entered
class When:
    """The conditions of a rule, all of which must hold; one that is None always does.

    A new condition is a field here and a term of `holds_at`; files and the reference follow.
    """

    min_bytes: int | None = _condition(
        "smallest size of a block (in a reduction to single values: of a thread's part)", whole(0)
    )
    max_bytes: int | None = _condition("largest size of a block", whole(0))
    min_threads: int | None = _condition("smallest number of threads", whole(1))
    max_threads: int | None = _condition("largest number of threads", whole(1))
    min_nodes: int | None = _condition("smallest number of nodes", whole(1))
    max_nodes: int | None = _condition("largest number of nodes", whole(1))
    nodes: str | None = _condition("`one` or `many`", one_of(["one", "many"]))
    shape: str | None = _condition(
        'threads of each node: `"8"` (one node), `"4x2"` (4 nodes of 2), `"3,1,4"`', _shape
    )
    oversubscribed: bool | None = _condition(
        "whether some machine has more threads than cores", truth
    )
    family: str | None = _condition("MPI", one_of(FAMILIES))
    transport: str | None = _condition(
        "the way between nodes: `shm` is one machine", one_of(TRANSPORTS)
    )
    levels: str | None = _condition(
        'levels below the node: `none`, `some`, or the domains of each, like `"2,16"` (2 '
        "sockets, 16 L3 domains)",
        _levels,
    )

    def holds_at(self, place: Place) -> bool:
        """Return True if the rule applies to calls at a place."""
        return (
            _within(place.threads, self.min_threads, self.max_threads)
            and _within(place.node_count, self.min_nodes, self.max_nodes)
            and self.nodes in (None, place.nodes)
            and self.shape in (None, place.shape)
            and self.oversubscribed in (None, place.oversubscribed)
            and self.family in (None, place.family)
            and self.transport in (None, place.transport)
            and self.levels in (None, place.levels or "none", "some" if place.levels else None)
        )

    def covers(self, nbytes: int) -> bool:
        """Return True if the rule applies to blocks of `nbytes`."""
        return _within(nbytes, self.min_bytes, self.max_bytes)


ALWAYS = When()


def _within(value: int, least: int | None, most: int | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


# --- rules and tables -----------------------------------------------------------------------------


@record
class Rule:
    """One ``[[choose]]`` entry.

    Attributes
    ----------
    collective
        By its registered name; ``"*"``: all of them.
    algorithm
        Its flag.
    when
        The calls and places that it is for.
    variant
        The label of the variant; "": the default one of the flag.
    if_possible
        True: a call that the variant cannot carry out takes the next rule that fits. Otherwise it
        is an error.
    source
        ``"measured"``; ``"priced"`` by the clock; ``"modelled"`` by cache lines; "": unknown.
    """

    collective: str
    algorithm: int
    when: When = ALWAYS
    variant: str = ""
    if_possible: bool | None = None
    source: str = ""

    @property
    def name(self) -> str:
        """The name of what it chooses: ``pull``, or a variant such as ``multicore:ring``."""
        return algorithm_name(self.algorithm, self.variant)


@record
class CarrierRule:
    """One ``[[drop_in]]`` entry: which library carries a call of the drop-in communicator.

    Attributes
    ----------
    method
        Its name in mpi4py; ``"*"``: all of them.
    carrier
        ``"xupc"`` or ``"mpi"``.
    when
        The calls and places that it is for.
    """

    method: str
    carrier: str
    when: When = ALWAYS

    def fits(self, method: str, nbytes: int | None) -> bool:
        """Return True if the rule is for a call; `nbytes` is None for a call without data."""
        if self.method not in ("*", method):
            return False
        if nbytes is None:
            return self.when.min_bytes is None and self.when.max_bytes is None
        return self.when.covers(nbytes)


class Carriers:
    """A table's rules for the calls of the drop-in communicator at one place.

    A call of a method in `SENDER_SIZED` begins as one of the shortest. If xupc carries these, its
    first exchange brings the sizes to all threads, and the rule for them decides about the rest.
    """

    def __init__(self, rules: Iterable[CarrierRule], place: Place) -> None:
        self._rules = [rule for rule in rules if rule.when.holds_at(place)]

    def by_mpi(self, method: str, nbytes: int | None) -> bool:
        """Return whether MPI carries a call.

        Parameters
        ----------
        method : str
            Its name in mpi4py.
        nbytes : int or None
            Bytes of a block; None for a call without data, or if only its sender has the number.
        """
        if nbytes is None and method in SENDER_SIZED:
            nbytes = 0
        carrier = next((rule.carrier for rule in self._rules if rule.fits(method, nbytes)), "xupc")
        return carrier == "mpi"

    def first_by_mpi(self, method: str) -> int | None:
        """Return the least bytes of a block at which MPI carries a method; None: at no size."""
        edges = {0}
        for rule in self._rules:
            if rule.method in ("*", method):
                least, most = rule.when.min_bytes, rule.when.max_bytes
                edges |= {least or 0, 0 if most is None else most + 1}
        return next((edge for edge in sorted(edges) if self.by_mpi(method, edge)), None)

    def all_by_mpi(self, method: str) -> bool:
        """Return whether MPI carries all calls of a method, whatever their size."""
        rule = next((rule for rule in self._rules if rule.method in ("*", method)), None)
        return rule is not None and rule.carrier == "mpi" and rule.fits(method, None)


class Choices:
    """A table's rules for one place, collective by collective: few are left to be tried."""

    def __init__(self, rules: Iterable[Rule], place: Place) -> None:
        self._rules = [rule for rule in rules if rule.when.holds_at(place)]
        self._of: dict[str, list[Rule]] = {}

    def choose(self, collective: str, nbytes: int) -> int:
        """Return the algorithm flag for a call without one."""
        return self.rule(collective, nbytes).algorithm

    def rule(
        self, collective: str, nbytes: int, possible: Callable[[Rule], bool] = lambda rule: True
    ) -> Rule:
        """Return the rule for a call without an algorithm flag.

        Parameters
        ----------
        collective : str
            Its registered name.
        nbytes : int
            Bytes of a block: what one thread contributes or receives from another one.
        possible : callable, optional
            Whether the call can be carried out as a rule with `if_possible` says.
        """
        rules = self._of.get(collective)
        if rules is None:
            rules = [rule for rule in self._rules if rule.collective in ("*", collective)]
            self._of[collective] = rules
        for rule in rules:
            if rule.when.covers(nbytes) and (not rule.if_possible or possible(rule)):
                return rule
        raise LookupError(f"the selection table has no rule for {collective}")


@record
class Table:
    """A selection table, and the one that it lies over.

    Attributes
    ----------
    name
        Its file; ``"built-in"``.
    sizes
        By section: ``default``, ``tcp``, ``openmpi``, ``openmpi-tcp``, ...
    hosts
        The figures of hosts, by a pattern of their names.
    carriers
        Which library carries calls of the drop-in communicator.
    """

    name: str
    rules: tuple[Rule, ...]
    sizes: Mapping[str, Mapping[str, int]]
    base: Table | None = None
    hosts: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    carriers: tuple[CarrierRule, ...] = ()

    def at(self, place: Place) -> Choices:
        """Return the choices for a place."""
        return Choices(self._all_rules(), place)

    def _all_rules(self) -> Iterator[Rule]:
        yield from self.rules
        if self.base is not None:
            yield from self.base._all_rules()

    def carriers_at(self, place: Place) -> Carriers:
        """Return the rules for the drop-in communicator at a place."""
        return Carriers(self._all_carriers(), place)

    def _all_carriers(self) -> Iterator[CarrierRule]:
        yield from self.carriers
        if self.base is not None:
            yield from self.base._all_carriers()

    def tuning(self, place: Place) -> dict[str, int]:
        """Return sizes for a place: default, ``transport``, ``family``, then ``family-transport``.

        Whatever section an upper table has a size in, it counts more than what lies below.
        """
        sizes = {} if self.base is None else self.base.tuning(place)
        both = f"{place.family}-{place.transport}"
        for section in ("default", place.transport, place.family, both):
            sizes.update(self.sizes.get(section, {}))
        return sizes

    def figures_of(self, host: str) -> HostFigures:
        """Return the figures of a host: of the first pattern that fits, else of tables below."""
        return HostFigures(**self._figures_of(host))

    def _figures_of(self, host: str) -> dict[str, int]:
        found = {} if self.base is None else self.base._figures_of(host)
        return {**found, **self.hosts.get(self._pattern_of(host), {})}

    def _pattern_of(self, host: str) -> str:
        return next((pattern for pattern in self.hosts if fnmatchcase(host, pattern)), "")

    def source_of(self, host: str) -> str:
        """Return the name of the table that has the figures of a host."""
        if self.base is None or self._pattern_of(host):
            return self.name
        return self.base.source_of(host)
