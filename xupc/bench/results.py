"""The result of a measurement: what `xupc bench --json` writes and report and tune read.

A file of JSON, compressed if its name ends in ``.gz``. It says where the figures come from, and
holds every repetition (version 1), or of each launch a summary (version 2, a compact result), or
some of both. Times are in ns.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from . import stats

__all__ = [
    "AGAIN", "FLOOR", "OURS", "PEER", "Candidate", "Cell", "Job", "Launch", "Result", "Summary",
]  # fmt: skip

FORMAT, VERSION, COMPACT = "xupc-bench", 1, 2
OURS, AGAIN, PEER, FLOOR = "ours", "again", "peer", "floor"
DISTURBED = 0.05
"""Of the cores' time, taken by others."""
LARGEST = 1 << 63
"""What numbers in a file stay below."""


class Summary(NamedTuple):
    """What a compact result keeps of one candidate's repetitions in one launch.

    Attributes
    ----------
    repetitions
        How many there were.
    first
        The time of the first one, which may be a slow one.
    least, most, total
        Of the others; of the first one where it is the only one.
    low, middle, high
        The quartiles of all.
    typical
        The geometric mean of the medians of its visits.
    """

    repetitions: float
    first: float
    least: float
    most: float
    total: float
    low: float
    middle: float
    high: float
    typical: float

    @classmethod
    def of(cls, parts: Sequence[Sequence[int]]) -> Summary:
        """Return that of repetitions, visit by visit."""
        times = [ns for part in parts for ns in part]
        others = times[1:] or times
        low, middle, high = (float(q) for q in np.percentile(times, (25, 50, 75)))
        return cls(
            len(times), times[0], min(others), max(others), sum(others), low, middle, high,
            typical(parts),
        )  # fmt: skip

    @property
    def others(self) -> float:
        """How many repetitions `least`, `most` and `total` are of."""
        return max(1.0, self.repetitions - 1)

    @property
    def mean(self) -> float:
        """The mean of all repetitions."""
        return (self.total + self.first * (self.repetitions > 1)) / self.repetitions

    def row(self) -> list[float]:
        """Return it for a file: in no more digits than it needs."""
        exact = [int(x) if x == int(x) else round(x, 2) for x in self[:-1]]
        return [*exact, float(f"{self.typical:.8g}")]

    def is_sound(self) -> bool:
        """Whether these can be of any repetitions."""
        return (
            all(0 <= x < LARGEST for x in self)
            and self.repetitions >= 1
            and self.repetitions == int(self.repetitions)
            and self.least <= self.most
            and self.low <= self.middle <= self.high
        )


def typical(parts: Sequence[Sequence[int]]) -> float:
    """Return the geometric mean of visits' medians."""
    logs = [math.log(max(1.0, float(np.median(part)))) for part in parts]
    return math.exp(float(np.mean(logs)))


@dataclass(slots=True)
class Candidate:
    """One way to do what a cell asks for, and how long it took.

    Attributes
    ----------
    name
        Unique in its cell: ``xupc`` (the library chooses), ``PULL``, ``PUSH``, ``MULTICORE``,
        ``plan``, ``xupc again`` (the same as ``xupc``, for the A/A spread), ``mpi4py``, ...
    kind
        ``"ours"``, ``"again"``, ``"peer"``, or ``"floor"``: nothing but what is around a call.
    call
        In words, like ``all_broadcast(..., PULL)`` or ``comm.Bcast``.
    algorithm
        Which carries it out, as ``plan.algorithm`` says; empty if that is not ours to know.
    network_bytes
        Bytes that one call moves between nodes, by its plans; None if that is not known.
    ns
        Per launch, per repetition: the maximum over the threads of the time of one call.
    wrong
        Per launch: threads that found a wrong result.
    visits
        Per launch: how many of its repetitions were made in a row, in one visit of the cell, with
        all other candidates' between them.
    kept
        Per launch, where `ns` has no repetitions of it any more: its `Summary`.
    """

    name: str
    kind: str
    call: str
    algorithm: str = ""
    network_bytes: int | None = None
    ns: list[list[int]] = field(default_factory=list)
    wrong: list[list[int]] = field(default_factory=list)
    visits: list[list[int]] = field(default_factory=list)
    kept: list[list[float]] = field(default_factory=list)

    def parts(self, launch: int) -> list[list[int]]:
        """A launch's repetitions, visit by visit; all in one where that is not known."""
        times = self.ns[launch]
        counts = self.visits[launch] if launch < len(self.visits) else []
        if sum(counts) != len(times):
            return [times] if times else []
        ends = itertools.accumulate(counts)
        return [times[end - n : end] for n, end in zip(counts, ends, strict=True) if n]

    def summary(self, launch: int) -> Summary | None:
        """Return what is known of a launch; None if it has no repetitions."""
        if launch < len(self.kept) and self.kept[launch]:
            return Summary(*self.kept[launch])
        parts = self.parts(launch)
        return Summary.of(parts) if parts else None

    def summaries(self) -> list[Summary]:
        """Return what is known of the launches that have repetitions."""
        return [s for k in range(len(self.ns)) if (s := self.summary(k)) is not None]

    def count(self, launch: int) -> int:
        """Return the number of repetitions in a launch."""
        kept = self.kept[launch] if launch < len(self.kept) else []
        return int(kept[0]) if kept else len(self.ns[launch])

    @property
    def measured(self) -> bool:
        """Whether there is at least one repetition."""
        return any(self.ns) or any(self.kept)

    @property
    def medians(self) -> list[list[float]]:
        """Per launch: the median of its repetitions alone, or nothing, as `stats` takes it."""
        return [self._median(k) for k in range(len(self.ns))]

    def _median(self, launch: int) -> list[float]:
        if launch < len(self.kept) and self.kept[launch]:
            return [Summary(*self.kept[launch]).middle]
        times = self.ns[launch]
        return [float(np.median(times))] if times else []

    def typical(self, launch: int) -> float | None:
        """Return `Summary.typical` of a launch; None if it has no repetitions."""
        if launch < len(self.kept) and self.kept[launch]:
            return Summary(*self.kept[launch]).typical
        parts = self.parts(launch)
        return typical(parts) if parts else None

    def compact(self) -> Candidate:
        """Return it with a summary in the place of each launch's repetitions."""
        found = [self.summary(k) for k in range(len(self.ns))]
        rows = [[] if s is None else s.row() for s in found]
        return replace(self, ns=[[] for _ in rows], visits=[], kept=rows if any(rows) else [])

    def check(self, where: str) -> None:
        """ValueError if a summary cannot be one; add the launches that a file leaves out."""
        for k, row in enumerate(self.kept):
            if row and (len(row) != len(Summary._fields) or not Summary(*row).is_sound()):
                raise ValueError(f"{where}.kept[{k}]: no summary of repetitions")
        self.ns += [[] for _ in self.kept[len(self.ns) :]]


@dataclass(slots=True)
class Cell:
    """One collective with one set of arguments, and all that was compared in it.

    Attributes
    ----------
    collective
        Its name in xupc, like ``all_broadcast`` or ``allav_reduce_all``.
    nbytes
        Of a block; 0 for the barrier.
    dtype, op
        What is reduced and how; empty for others.
    sync
        ``"allsync"``, ``"mysync"``, ``"nosync"``, or two with a slash: before and after.
    root
        A thread, or ``"rotated"``; empty where there is none.
    team
        ``"world"``, ``"node"`` or ``"roots"``.
    cold
        Whether caches were emptied before each repetition.
    loop
        Whether a repetition is many calls back to back; its time is that of one.
    moved
        Bytes that one call delivers to all threads together, or reads where it reduces: what
        a bandwidth is worked out from.
    """

    collective: str
    nbytes: int
    moved: int
    dtype: str = ""
    op: str = ""
    sync: str = "allsync"
    root: str = ""
    team: str = "world"
    cold: bool = False
    loop: bool = False
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other cells, of whatever result."""
        return (
            self.collective, self.nbytes, self.dtype, self.op, self.sync, self.root, self.team,
            self.cold, self.loop,
        )  # fmt: skip

    @property
    def title(self) -> str:
        """Its collective with every argument that is not the usual one, like a call."""
        words = [self.dtype, self.op, "" if self.sync == "allsync" else self.sync]
        words += [f"root {self.root}" if self.root not in ("", "0") else ""]
        words += ["" if self.team == "world" else f"team.{self.team}", "cold" * self.cold]
        words += ["back to back" * self.loop]
        said = ", ".join(filter(None, words))
        return f"{self.collective} ({said})" if said else self.collective

    def candidate(self, name: str) -> Candidate | None:
        """By its name; None if it is not among those compared."""
        return next((c for c in self.candidates if c.name == name), None)

    @property
    def pair(self) -> tuple[Candidate, Candidate] | None:
        """The same call under two names, by which the A/A spread is found; None without one."""
        again = next(self.of_kind(AGAIN), None)
        first = None if again is None else self.candidate(again.name.removesuffix(" again"))
        return None if again is None or first is None else (first, again)

    @property
    def spread(self) -> float | None:
        """How far those two differ in a typical launch; None if that was not measured."""
        return None if self.pair is None else stats.spread(*(c.medians for c in self.pair))

    @property
    def repetitions(self) -> int:
        """Of each candidate in each launch, at least."""
        counts = (c.count(k) for c in self.candidates for k in range(len(c.ns)))
        return min(counts, default=0)

    def of_kind(self, kind: str) -> Iterator[Candidate]:
        """Those of a kind, with at least one repetition."""
        return (c for c in self.candidates if c.kind == kind and c.measured)


@dataclass(slots=True)
class Launch:
    """One start of a job: when, for how long, how busy the machine was before and after.

    `others` is the share of the cores' time that went to other processes, or to other machines of
    the same host, while it measured; None if that is not known.
    """

    number: int
    began: str
    seconds: float
    load: list[float]
    seed: int
    others: float | None = None

    @property
    def disturbed(self) -> bool:
        """Whether others took so much that its times say little."""
        return (self.others or 0.0) > DISTURBED


@dataclass(slots=True)
class Job:
    """One kind of job: so many threads in one placement.

    Attributes
    ----------
    nodes
        The threads of each node.
    hosts
        The name of the machine of each node.
    about
        Where the figures come from: ``xupc``, ``python``, ``numpy``, ``mpi4py``, ``mpi``,
        ``mpi family``, ``transport``, ``thread level``, ``netmod``, ``native core``,
        ``tuning``, ``binding``, ``cores``, ``oversubscribed``, ``processor``, ``kernel``.
    clock
        ``{"kind": "monotonic"}`` on one machine; over several ``{"kind": "offsets",
        "uncertainty ns": ...}``.
    bounds
        What the machine can do, measured in the same run: ``copy rate``, ``node copy rate``
        and ``wire rate`` in bytes per second, ``line latency ns`` (a cache line from core to
        core) and ``wire latency ns``; those that do not apply are missing. `xupc.bench.machine`
        says exactly what each is.
    """

    threads: int
    nodes: list[list[int]]
    hosts: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    clock: dict[str, Any] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)

    @property
    def shape(self) -> str:
        """The placement, like ``8 threads`` or ``16 threads on 4 nodes``."""
        threads = f"{self.threads} thread{'s'[: self.threads != 1]}"
        return threads if len(self.nodes) == 1 else f"{threads} on {len(self.nodes)} nodes"

    def check_nodes(self, where: str) -> None:
        """ValueError if not each thread is on one node."""
        if sorted(t for node in self.nodes for t in node) != list(range(self.threads)):
            raise ValueError(f"{where}.nodes: expected each of {self.threads} threads once")

    def check_candidates(self, where: str) -> None:
        """ValueError if a summary of a candidate cannot be one."""
        for i, cell in enumerate(self.cells):
            for k, candidate in enumerate(cell.candidates):
                candidate.check(f"{where}.cells[{i}].candidates[{k}]")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one go, where a link leads; what is no file, like a device, as it is."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


@dataclass(slots=True)
class Result:
    """Everything one command measured.

    Attributes
    ----------
    command
        The command's words.
    complete
        False if it was interrupted or a launch failed: what is there is good all the same.
    notes
        What a reader must know: failures, wrong results, a busy machine.
    """

    command: list[str]
    created: str
    complete: bool = True
    notes: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was timed."""
        cells = (cell for job in self.jobs for cell in job.cells)
        return not any(c.measured for cell in cells for c in cell.candidates)

    @property
    def is_compact(self) -> bool:
        """Whether repetitions of a launch are no longer there."""
        cells = (cell for job in self.jobs for cell in job.cells)
        return any(any(c.kept) for cell in cells for c in cell.candidates)

    def compact(self) -> Result:
        """Return it with a `Summary` of each launch in the place of its repetitions.

        It gives the same tables, reports, comparisons and tunings. What it has no more is a
        distribution: percentiles other than quartiles, and the course of a launch.
        """
        return replace(self, jobs=[
            replace(job, cells=[
                replace(cell, candidates=[c.compact() for c in cell.candidates])
                for cell in job.cells
            ])
            for job in self.jobs
        ])  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the file in one go: a reader never finds half of it."""
        version = COMPACT if self.is_compact else VERSION
        head = {"format": FORMAT, "version": version, **_fields(self)}
        data = (json.dumps(head, default=_fields, separators=(",", ":")) + "\n").encode()
        if path.suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        write_whole(path, data)

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a file.

        Raises
        ------
        ValueError
            It is no result, of another version, or damaged; names the file and the place.
        """
        try:
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            found = json.loads(data)
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except (OSError, EOFError, ValueError, RecursionError, zlib.error) as e:
            raise ValueError(f"{path}: not readable as JSON: {e}") from None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"{path}: not a result of xupc bench")
        version = found.pop("version", None)
        if type(version) is not int or version not in (VERSION, COMPACT):
            raise ValueError(f"{path}: version {version!r}, expected {VERSION} or {COMPACT}")
        try:
            result: Result = _read(cls, found, "result")
            for i, job in enumerate(result.jobs):
                job.check_nodes(f"result.jobs[{i}]")
                job.check_candidates(f"result.jobs[{i}]")
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None
        return result


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass's own fields: `asdict` would copy millions of numbers one by one."""
    found = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Candidate):  # version 1 has no `kept`; a compact one says nothing else
        for name in ("ns", "visits", "kept"):
            if not any(found[name]) and (name == "kept" or any(value.kept)):
                del found[name]
    return found


def _read(kind: Any, value: Any, where: str) -> Any:
    """A value as a type says it is; ValueError naming the place if it is not of that type."""
    if kind is Any:
        return value
    if isinstance(kind, UnionType):  # X | None
        some = next(k for k in get_args(kind) if k is not NoneType)
        return None if value is None else _read(some, value, where)
    if is_dataclass(kind):
        return _read_dataclass(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        if arguments[0] is int:  # millions of them
            if all(type(v) is int for v in value):
                if value and max(max(value), -min(value)) >= LARGEST:
                    raise ValueError(f"{where}: a number that is too long")
                return value
        else:
            return [_read(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        return {k: _read(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    elif kind is float and type(value) in (int, float):
        with contextlib.suppress(OverflowError):  # an int of hundreds of digits
            return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{where}: {_shown(value)!r} is no {getattr(kind, '__name__', kind)}")


def _shown(value: Any) -> str:
    try:
        return str(value)[:40]
    except ValueError:  # an int with thousands of digits
        return "a number that is too long"


def _read_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object")
    known = {f.name: f for f in fields(kind)}
    for name in value.keys() - known:
        raise ValueError(f"{where}: {name!r} is not known")
    for name, f in known.items():
        if name not in value and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{where}: {name!r} is missing")
    types = get_type_hints(kind)
    return kind(**{n: _read(types[n], v, f"{where}.{n}") for n, v in value.items()})
