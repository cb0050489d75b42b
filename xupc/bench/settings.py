"""The settings of a benchmark, as text that the command line passes to every thread."""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from xupc.algorithms.registry import is_name, names_variant, parse_name
from xupc.flags import Flags, with_variant
from xupc.topology.node_spec import parse_nodes

from ..specs import MPI_CALLS, of_mpi
from ..specs import parse_name as parse_call
from .oracle import COLLECTIVES, OPS

__all__ = [
    "ALGORITHMS",
    "SYNCS",
    "VARIANTS",
    "algorithm_named",
    "defined_by_mpi",
    "Case",
    "Settings",
    "Shape",
    "cases",
    "flags_of",
    "named",
    "near",
    "root_of",
    "rooted",
    "sizes_between",
]

ALGORITHMS = "auto", "PULL", "PUSH", "MULTICORE"
VARIANTS = "variants"
SYNCS = "allsync", "mysync", "nosync"
SCALARS = "float64", "int64", "complex128", "bool"  # what Python's numbers travel as


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one job.

    Attributes
    ----------
    collectives, sizes, dtypes, ops, syncs
        Every valid combination is a cell; sizes are bytes of a block.
    algorithms
        The names to compare in each cell: those of `ALGORITHMS`, of which ``auto`` is the library's
        choice, and variants, such as ``multicore:ring``. ``variants`` means all of them that can
        run and that no name before it measures.
    api
        ``"xupc"``: xupc's own calls. ``"mpi4py"``: the methods of `xupc.Comm`.
    peer, plan, again
        True to measure also mpi4py's own collective, a replayed plan, and the library's choice
        under a second name.
    root
        A thread's number, ``"last"`` or ``"rotate"``.
    team
        ``"world"``, ``"node"`` or ``"roots"``.
    cold
        Empty the caches before each repetition.
    loop
        Repeat the call for 1 ms in each repetition.
    busy
        Rounds of a loop that keeps the core busy after each repetition.
    iterations, warmup
        Repetitions of each candidate in a launch (None: as many as the time permits), and
        uncounted repetitions before them.
    seconds
        Time for the measurements of a launch.
    limited
        True if `seconds` also limits a given number of repetitions: with less time there are fewer.
    limit
        Seconds after which a launch visits no further cell, even one without a visit. None: never.
    until
        The time of the system's clock when a launch must end: it gives `seconds` and `limit`, with
        the start subtracted. None: they are as they are.
    check
        Check results before every visit of a cell, not only before its first and last one.
    seed
        The seed of the order of the candidates.
    widths
        The uncertainty of each cell so far, which decides the use of time. Empty if not known.
    """

    collectives: tuple[str, ...] = COLLECTIVES
    sizes: tuple[int, ...] = (8, 1 << 10, 1 << 16, 1 << 20)
    dtypes: tuple[str, ...] = ("float64",)
    ops: tuple[str, ...] = ("ADD",)
    syncs: tuple[str, ...] = ("allsync",)
    algorithms: tuple[str, ...] = ALGORITHMS
    api: str = "xupc"
    peer: bool = False
    plan: bool = False
    again: bool = True
    root: str = "0"
    team: str = "world"
    cold: bool = False
    loop: bool = False
    busy: int = 0
    iterations: int | None = None
    warmup: int = 5
    seconds: float = 10.0
    limited: bool = False
    limit: float | None = None
    until: float | None = None
    check: bool = False
    seed: int = 1
    widths: tuple[float, ...] = field(default=())

    def to_json(self) -> str:
        """Return the settings as text for the command line of the threads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings that `to_json` wrote."""
        found: dict[str, Any] = json.loads(text)
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.items()})  # type: ignore[arg-type]

    def but(self, **changes: Any) -> Settings:
        """Return a copy with some settings changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Case:
    """A cell to be measured."""

    collective: str
    nbytes: int
    dtype: str = ""
    op: str = ""
    sync: str = ""


def cases(settings: Settings) -> Iterator[Case]:
    """Yield all cells, small ones first."""
    seen: set[Case] = set()
    for nbytes in sorted(settings.sizes):
        for collective in settings.collectives:
            for case in _cases_of(settings, collective, nbytes):
                if case not in seen:
                    seen.add(case)
                    yield case


def _cases_of(settings: Settings, collective: str, nbytes: int) -> Iterator[Case]:
    if collective == "barrier":
        yield Case("barrier", 0)
        return
    kind, spec = parse_call(collective)
    # no other thread accesses private arrays, so sync modes do not affect them
    syncs = settings.syncs if kind in ("all", "v", "x") else ("allsync",)
    for sync in syncs:
        if kind != "allv" and not spec.computes:
            yield Case(collective, nbytes, "uint8", "", sync)
            continue
        for dtype in settings.dtypes:
            if kind == "allv":
                if dtype not in SCALARS:
                    continue
                nbytes = np.dtype(dtype).itemsize
                if not spec.computes:
                    yield Case(collective, nbytes, dtype, "", sync)
                    continue
            if nbytes % np.dtype(dtype).itemsize:
                continue
            for op in settings.ops:
                known = defined_by_mpi if settings.api == "mpi4py" else defined
                if known(op, np.dtype(dtype)):
                    yield Case(collective, nbytes, dtype, op, sync)


def defined(op: str, dtype: np.dtype[Any]) -> bool:
    """Return True if an operation is defined on a type."""
    if op in ("AND", "OR", "XOR"):
        return dtype.kind in "iub"
    return op in OPS and (dtype.kind != "c" or op in ("ADD", "MULT"))


# The kinds of numbers for which MPI defines its operations.
_MPI_KINDS = dict.fromkeys(("ADD", "MULT"), "iufc") | dict.fromkeys(("MIN", "MAX"), "iuf")
_MPI_KINDS |= dict.fromkeys(("AND", "OR", "XOR"), "iu") | dict.fromkeys(("LOGAND", "LOGOR"), "iub")


def defined_by_mpi(op: str, dtype: np.dtype[Any]) -> bool:
    """Return True if MPI defines an operation on a type."""
    return dtype.kind in _MPI_KINDS.get(op, "")


def algorithm_named(word: str) -> str:
    """Return an entry for `Settings.algorithms`; ValueError if the word is none."""
    known = *ALGORITHMS, VARIANTS
    found = next((name for name in known if name.lower() == word.lower()), "")
    if found or is_name(word):
        return found or word
    raise ValueError(
        f"{word!r}: expected some of {', '.join(known)}, or names like multicore:ring"
    )


def flags_of(algorithm: str, sync: str) -> int:
    """Return the flags of a call."""
    if names_variant(algorithm):
        found = with_variant(*parse_name(algorithm))
    else:
        found = 0 if algorithm == "auto" else int(Flags[algorithm])
    before, _, after = sync.partition("/")
    after = after or before
    if before != "allsync":
        found |= int(Flags[f"IN_{before.upper()}"])
    if after != "allsync":
        found |= int(Flags[f"OUT_{after.upper()}"])
    return found


def root_of(settings: Settings, threads: int) -> tuple[int, ...]:
    """Return the root, or all that it is in turn."""
    if settings.root == "rotate":
        return tuple(range(threads))
    root = threads - 1 if settings.root == "last" else int(settings.root)
    if root >= threads:
        raise ValueError(f"root: expected one of the {threads} threads, got {root}")
    return (root,)


def sizes_between(low: int, high: int) -> tuple[int, ...]:
    """Return `low`, and on by doubling to `high` at most, as OSU's benchmarks do."""
    if not 1 <= low <= high:
        raise ValueError(f"sizes from {low} to {high}: expected at least 1, in ascending order")
    found = [low]
    while found[-1] * 2 <= high:
        found.append(found[-1] * 2)
    return tuple(found)


def rooted(collective: str) -> bool:
    """Return True if a collective has a root."""
    return collective != "barrier" and bool(parse_call(collective)[1].root)


def named(words: Sequence[str]) -> tuple[str, ...]:
    """Return collectives by name, by MPI's name, or by a pattern such as ``all_*``.

    ``Allreduce`` and ``allreduce`` are the call on private arrays, ``allav_reduce_all``.

    Raises
    ------
    ValueError
        If there is none.
    """
    found: list[str] = []
    for word in words:
        some = [name for name in COLLECTIVES if fnmatch.fnmatchcase(name, word)]
        some = some or list(filter(None, [of_mpi(word)]))
        if not some:
            raise ValueError(f"{word!r} is no collective; {near(word, COLLECTIVES)}")
        found += [name for name in some if name not in found]
    return tuple(found)


def near(word: str, names: Sequence[str]) -> str:
    """Return a hint for a name that does not exist: those like it, or all of them."""
    known = {name: name for name in names}
    known |= {mpi: f"{call} ({mpi} of MPI)" for mpi, call in MPI_CALLS.items() if call in names}
    alike = difflib.get_close_matches(word.lower(), known)
    if alike:
        return f"did you mean {' or '.join(known[name] for name in alike)}?"
    return f"there are {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class Shape:
    """Hold the number of threads of a job, and how this machine is split into nodes, if it is."""

    threads: int
    nodes: str | None = None

    @property
    def placed(self) -> tuple[tuple[int, ...], ...]:
        """The threads of each node."""
        if not self.nodes:
            return (tuple(range(self.threads)),)
        found: dict[int, list[int]] = {}
        for thread, node in enumerate(parse_nodes(self.nodes, self.threads).tolist()):
            found.setdefault(node, []).append(thread)
        return tuple(map(tuple, found.values()))

    def __str__(self) -> str:
        text = f"{self.threads} thread{'s'[: self.threads != 1]}"
        return f"{text} as {self.nodes}" if self.nodes else text
