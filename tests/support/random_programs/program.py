"""Random programs: what they consist of.

A program is a list of small operations with literal arguments on a number of threads. All threads
go through the list in the same order; some operations are for some of them. The same list is run
by real threads (`text` writes it as Python), by the simulator (`simulate`) and by the oracle.

An array is identified by its name, and a place in it by thread and byte: `At`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

Threads = tuple[int, ...]

MODES = ("no", "my", "all")
_IN = {"no": 1, "my": 2, "all": 4}
_OUT = {"no": 8, "my": 16, "all": 32}
ALGORITHMS = {"": 0, "PULL": 64, "PUSH": 128, "MULTICORE": 256}
IN_PLACE, ASYNC, REPRODUCIBLE, EXCLUSIVE = 512, 1024, 2048, 4096
_BITS = {
    **{f"IN_{mode.upper()}SYNC": bit for mode, bit in _IN.items()},
    **{f"OUT_{mode.upper()}SYNC": bit for mode, bit in _OUT.items()},
    **{name: bit for name, bit in ALGORITHMS.items() if bit},
    "IN_PLACE": IN_PLACE, "ASYNC": ASYNC, "REPRODUCIBLE": REPRODUCIBLE,
    "EXCLUSIVE": EXCLUSIVE,
}  # fmt: skip


def flag_bits(into: str, out: str, algorithm: str = "", more: int = 0) -> int:
    """The flags of two modes and an algorithm, ALLSYNC spelled out or not."""
    return _IN[into] | _OUT[out] | ALGORITHMS[algorithm] | more


def modes(flags: int) -> tuple[str, str]:
    """The two sync modes of flags: none means all."""
    into = next((mode for mode, bit in _IN.items() if flags & bit), "all")
    return into, next((mode for mode, bit in _OUT.items() if flags & bit), "all")


def flag_text(flags: int) -> str:
    """Return the flags as a user writes them."""
    return "|".join(name for name, bit in _BITS.items() if flags & bit)


@cache
def item(dtype: str) -> int:
    """Return the bytes of an element; 1 for a pointer, whose size has no effect here."""
    return 1 if dtype == "pointer" else np.dtype(dtype).itemsize


class Team(NamedTuple):
    """Whose threads a call is for: thread ids by rank. The name "" is that of all threads."""

    name: str
    threads: Threads


class At(NamedTuple):
    """A place: byte `offset` of the part of `array` that `thread` has."""

    array: str
    thread: int
    offset: int


@dataclass(frozen=True)
class Alloc:
    """``name = xupc.all_alloc(nelems, dtype, block)``; block 0: all on the first thread.

    `by`: the thread that makes it with global_alloc; -1: all together.
    """

    name: str
    nelems: int
    dtype: str
    block: int
    team: Team
    by: int = -1

    def count(self, thread: int) -> int:
        """Elements with affinity to a thread."""
        return self.counts.get(thread, 0)

    @cached_property
    def counts(self) -> dict[int, int]:
        """That of each thread of the team."""
        threads, block = self.team.threads, self.block
        if not block:
            return {threads[0]: self.nelems}
        rows, rest = divmod(self.nelems, block * len(threads))
        return {
            thread: rows * block + min(max(rest - rank * block, 0), block)
            for rank, thread in enumerate(threads)
        }

    def part(self, thread: int) -> int:
        """The bytes of that."""
        return self.count(thread) * item(self.dtype)

    def index(self, thread: int, offset: int) -> int:
        """The number of the element at a place."""
        k, rest = divmod(offset, item(self.dtype))
        if rest:  # simulated programs have such places, the text of a program has none
            raise Invalid(f"{self.name}: no element begins at byte {offset} of thread {thread}")
        threads = self.team.threads
        if not self.block:
            return k
        row, phase = divmod(k, self.block)
        return (row * len(threads) + threads.index(thread)) * self.block + phase

    def phase(self, offset: int) -> int:
        """The phase of a pointer to there."""
        return offset // item(self.dtype) % self.block if self.block else 0


@dataclass(frozen=True)
class Free:
    """``xupc.all_free(name)``; or `alone` by the one thread that made it."""

    name: str
    alone: bool = False


@dataclass(frozen=True)
class Split:
    """``name = parent.split(color, key)``, both by rank in the parent."""

    name: str
    parent: Team
    colors: tuple[int | None, ...]
    keys: tuple[int, ...]

    def teams(self) -> list[Team]:
        """Those that it makes."""
        rows = list(zip(self.colors, self.keys, self.parent.threads, strict=True))
        ranks = range(len(rows))
        return [
            Team(self.name, tuple(rows[r][2] for r in sorted(
                (r for r in ranks if rows[r][0] == color), key=lambda r: (rows[r][1], r))))
            for color in sorted({c for c in self.colors if c is not None})
        ]  # fmt: skip


@dataclass(frozen=True)
class FreeTeam:
    """``name.free()``, by all that are in one of that name."""

    name: str


@dataclass(frozen=True)
class Fill:
    """Every part gets values, written by the thread `by` ranks further on in the array's team.

    `kind`: see `values.some`.
    """

    name: str
    seed: int
    by: int = 0
    kind: str = "bytes"


@dataclass(frozen=True)
class Put:
    """A list is written into a shared array, each element by whose it is."""

    name: str
    values: tuple[int | At | None, ...]


@dataclass(frozen=True)
class Check:
    """Every part is read, by the thread `by` ranks further on, and compared."""

    name: str
    by: int = 0


@dataclass(frozen=True)
class Barrier:
    """A barrier of all threads of a team; `split`: in two halves."""

    team: Team
    split: bool = False


@dataclass(frozen=True)
class Wait:
    """Posted calls are waited for, by each thread in an order of its own; some by testing."""

    orders: tuple[tuple[str, ...], ...]
    """By thread; a name that ends in "!" is tested until it is done."""


@dataclass(frozen=True)
class Call:
    """A collective call.

    Attributes
    ----------
    handle
        Its name if it is posted.
    plan
        Made a plan first, and run by that.
    """

    name: str
    team: Team
    flags: int
    handle: str = field(default="", kw_only=True)
    plan: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Move(Call):
    """A standard relocalization; `listed`: the shared array that holds the perm."""

    dst: At
    src: At | None
    nbytes: int
    perm: Threads = ()
    listed: str = ""


@dataclass(frozen=True)
class ListedX(Call):
    """An `_x` form: lists of places; None where nothing is looked at."""

    dst: tuple[At | None, ...]
    src: tuple[At | None, ...]
    nbytes: tuple[int, ...]
    perm: Threads = ()
    shared: tuple[tuple[str, str], ...] = ()
    """(argument, shared array that holds that list)"""


@dataclass(frozen=True)
class ListedV(Call):
    """A `_v` form: displacements from two places."""

    dst: At
    src: At
    ddisp: tuple[int, ...]
    sdisp: tuple[int, ...]
    nelems: tuple[int, ...]
    perm: Threads = ()
    dst_blk: int | None = None
    src_blk: int | None = None
    typesize: int | None = None
    shared: tuple[tuple[str, str], ...] = ()


SCANS = ("prefix_reduce", "suffix_reduce")


@dataclass(frozen=True)
class Reduce(Call):
    """A computational collective; src None: in place."""

    dst: At
    src: At | None
    op: str
    nelems: int
    blk: int | None = None
    func: str = ""


@dataclass(frozen=True)
class Values(Call):
    """``allav_``: on private arrays of `n` elements to a block; `perm` are all threads' `to`.

    `step`: of the arrays' elements in memory.
    """

    dtype: str
    n: int
    seed: int
    root: int = 0
    perm: Threads = ()
    op: str = ""
    func: str = ""
    in_place: bool = False
    step: int = 1
    kind: str = "bytes"


@dataclass(frozen=True)
class Scalar(Call):
    """``allv_``: one value of each thread."""

    dtype: str
    seed: int
    root: int = 0
    perm: Threads = ()
    op: str = ""
    kind: str = "bytes"


@dataclass(frozen=True)
class Alone:
    """A one-sided collective or copy, made by one thread."""

    name: str
    team: Team
    caller: int
    dst: At
    src: At | None
    nbytes: int
    byte: int = 0


@dataclass(frozen=True)
class NodeArray:
    """``xupc.node_array``: written by a node's first thread, read by all."""

    team: Team
    n: int
    seed: int


@dataclass(frozen=True)
class NodeBroadcast:
    """``xupc.node_broadcast``."""

    team: Team
    n: int
    root: int
    seed: int


Op = (
    Alloc | Free | Split | FreeTeam | Fill | Put | Check | Barrier | Wait | Move | ListedX | ListedV
    | Reduce | Values | Scalar | Alone | NodeArray | NodeBroadcast
)  # fmt: skip
CALLS = (Move, ListedX, ListedV, Reduce, Values, Scalar)


@dataclass(frozen=True)
class Program:
    """Operations, on threads of which ``labels[i]`` is thread i's node."""

    labels: Threads
    ops: tuple[Op, ...]
    seed: int = 0
    tuning: str = ""

    @property
    def threads(self) -> int:
        return len(self.labels)

    @property
    def world(self) -> Team:
        """The team of all."""
        return Team("", tuple(range(self.threads)))

    def __str__(self) -> str:
        from support.random_programs.text import text

        return text(self)

    def literal(self) -> str:
        """As a Python expression, an operation to a line: what `parse` reads."""
        ops = "".join(f"        {op!r},\n" for op in self.ops)
        return (
            f"Program(\n    labels={self.labels!r},\n    seed={self.seed},\n"
            f"    tuning={self.tuning!r},\n    ops=(\n{ops}    ),\n)\n"
        )


def parse(literal: str) -> Program:
    """The other way round."""
    names = (*CALLS, Alloc, Free, Split, FreeTeam, Fill, Put, Check, Barrier, Wait, Alone,
             NodeArray, NodeBroadcast, Program, Team, At)  # fmt: skip
    program: Program = eval(literal, {cls.__name__: cls for cls in names})
    return program


class Invalid(Exception):
    """No program that means anything: it uses what is not there, or races."""


@dataclass
class World:
    """All that exists at a point of a program."""

    threads: int
    arrays: dict[str, Alloc] = field(default_factory=dict)
    teams: dict[str, list[Team]] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    under_way: dict[str, Call] = field(default_factory=dict)

    def array(self, name: str) -> Alloc:
        if name not in self.arrays:
            raise Invalid(f"no array {name}")
        return self.arrays[name]

    def apply(self, op: Any) -> None:
        """What an operation makes and unmakes; Invalid if it cannot be."""
        team = getattr(op, "team", None) or getattr(op, "parent", None)
        if team is not None:
            self._team(team)
        match op:
            case Alloc():
                if op.name in self.arrays:
                    raise Invalid(f"{op.name} twice")
                self.arrays[op.name] = op
            case Free():
                self.array(op.name)
                if self.under_way:
                    raise Invalid("free while something is under way")
                del self.arrays[op.name]
            case Split():
                if op.name in self.teams:
                    raise Invalid(f"{op.name} twice")
                self.teams[op.name] = op.teams()
                self.parents[op.name] = op.parent.name
            case FreeTeam():
                self._free_team(op.name)
            case Wait():
                for name in {n.rstrip("!") for order in op.orders for n in order}:
                    if name not in self.under_way:
                        raise Invalid(f"{name} is not under way")
                    del self.under_way[name]
            case Call():
                if op.handle:
                    if op.handle in self.under_way:
                        raise Invalid(f"{op.handle} twice")
                    self.under_way[op.handle] = op

    def _team(self, team: Team) -> None:
        if team.name in ("", "node", "roots"):
            return
        if team not in self.teams.get(team.name, ()):
            raise Invalid(f"no team {team}")

    def _free_team(self, name: str) -> None:
        inside = [a for a in self.arrays.values() if a.team.name == name]
        if name not in self.teams or inside or self.under_way or name in self.parents.values():
            raise Invalid(f"team {name} cannot be freed")
        del self.teams[name], self.parents[name]


def at_end(world: World) -> None:
    """Nothing may be left under way."""
    if world.under_way:
        raise Invalid(f"nobody waits for {sorted(world.under_way)}")


def node_teams(labels: Sequence[int]) -> tuple[list[Team], Team]:
    """Those of `team.node`, and `team.roots`."""
    every = range(len(labels))
    nodes = [tuple(t for t in every if labels[t] == node) for node in dict.fromkeys(labels)]
    return [Team("node", node) for node in nodes], Team("roots", tuple(n[0] for n in nodes))
