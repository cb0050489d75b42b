"""The result of a measurement: what `xupc bench --json` writes and report and tune read.

A file of JSON, compressed if its name ends in ``.gz``. It holds every repetition and says
where the figures come from, so that anybody can work them out again. Times are whole ns.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from . import stats

__all__ = ["AGAIN", "FLOOR", "OURS", "PEER", "Candidate", "Cell", "Job", "Launch", "Result"]

FORMAT, VERSION = "xupc-bench", 1
OURS, AGAIN, PEER, FLOOR = "ours", "again", "peer", "floor"
DISTURBED = 0.05
"""Of the cores' time, taken by others."""
LARGEST = 1 << 63
"""What numbers in a file stay below."""


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
    """

    name: str
    kind: str
    call: str
    algorithm: str = ""
    network_bytes: int | None = None
    ns: list[list[int]] = field(default_factory=list)
    wrong: list[list[int]] = field(default_factory=list)
    visits: list[list[int]] = field(default_factory=list)

    def parts(self, launch: int) -> list[list[int]]:
        """A launch's repetitions, visit by visit; all in one where that is not known."""
        times = self.ns[launch]
        counts = self.visits[launch] if launch < len(self.visits) else []
        if sum(counts) != len(times):
            return [times] if times else []
        ends = itertools.accumulate(counts)
        return [times[end - n : end] for n, end in zip(counts, ends, strict=True) if n]


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
        return None if self.pair is None else stats.spread(*(c.ns for c in self.pair))

    @property
    def repetitions(self) -> int:
        """Of each candidate in each launch, at least."""
        return min((len(times) for c in self.candidates for times in c.ns), default=0)

    def of_kind(self, kind: str) -> Iterator[Candidate]:
        """Those of a kind, with at least one repetition."""
        return (c for c in self.candidates if c.kind == kind and any(c.ns))


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
        return not any(any(c.ns) for cell in cells for c in cell.candidates)

    def save(self, path: Path) -> None:
        """Write the file in one go: a reader never finds half of it."""
        head = {"format": FORMAT, "version": VERSION, **_fields(self)}
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
        if type(version) is not int or version != VERSION:
            raise ValueError(f"{path}: version {version!r}, expected {VERSION}")
        try:
            result: Result = _read(cls, found, "result")
            for i, job in enumerate(result.jobs):
                job.check_nodes(f"result.jobs[{i}]")
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None
        return result


def _fields(value: Any) -> dict[str, Any]:
    """A dataclass's own fields: `asdict` would copy millions of numbers one by one."""
    return {f.name: getattr(value, f.name) for f in fields(value)}


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
