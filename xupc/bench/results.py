"""The result of a measurement: what `xupc bench --json` writes and report and tune read.

A file of JSON, compressed if its name ends in ``.gz``. It states where the figures come from. It
holds every repetition (version 1), or a summary of each launch (version 2, a compact result), or
some of both. Times are in ns.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..given_files import contents_of
from ..json_text import parsed
from . import stats
from .files import read_as, unpacked, write_whole
from .summary import Summary, typical

__all__ = [
    "AGAIN", "FLOOR", "OURS", "PEER", "PICTURE", "Candidate", "Cell", "Job", "Launch", "Result",
]  # fmt: skip

FORMAT, VERSION, COMPACT = "xupc-bench", 1, 2
MOST_BYTES = 1 << 29
"""Of a result's text: a longer one would take more memory to read than most machines have."""
OURS, AGAIN, PEER, FLOOR = "ours", "again", "peer", "floor"
PICTURE = "picture"
"""The entry of `Job.about` that draws where the threads were."""
DISTURBED = 0.05
"""A share of the cores' time. A launch in which other processes took more is disturbed."""


@dataclass(slots=True)
class Candidate:
    """Hold one way to do the work of a cell, and its times.

    Attributes
    ----------
    name
        Unique in its cell: ``xupc`` (the library chooses), ``PULL``, ``PUSH``, ``MULTICORE``,
        ``plan``, ``xupc again`` (the same as ``xupc``, for the A/A spread), ``mpi4py``, ...
    kind
        ``"ours"``, ``"again"``, ``"peer"``, or ``"floor"``: the overhead of a measurement alone.
    call
        In words, like ``all_broadcast(..., PULL)`` or ``comm.Bcast``.
    algorithm
        The algorithm, as in ``plan.algorithm``; empty if it is unknown, as for a peer.
    network_bytes
        Bytes that one call moves between nodes, by its plans; None if unknown.
    ns
        Per launch, per repetition: the maximum over the threads of the time of one call.
    wrong
        Per launch: threads that found a wrong result.
    visits
        Per launch: how many of its repetitions belong to each visit of the cell, in which those of
        all candidates alternate.
    kept
        Per launch whose repetitions are no longer in `ns`: its `Summary`.
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
        """Return a launch's repetitions, visit by visit; as one visit if that is unknown."""
        times = self.ns[launch]
        counts = self.visits[launch] if launch < len(self.visits) else []
        if sum(counts) != len(times):
            return [times] if times else []
        ends = itertools.accumulate(counts)
        return [times[end - n : end] for n, end in zip(counts, ends, strict=True) if n]

    def summary(self, launch: int) -> Summary | None:
        """Return the summary of a launch; None if it has no repetitions."""
        if launch < len(self.kept) and self.kept[launch]:
            return Summary(*self.kept[launch])
        parts = self.parts(launch)
        return Summary.of(parts) if parts else None

    def summaries(self) -> list[Summary]:
        """Return the summaries of the launches that have repetitions."""
        return [s for k in range(len(self.ns)) if (s := self.summary(k)) is not None]

    def count(self, launch: int) -> int:
        """Return the number of repetitions in a launch."""
        kept = self.kept[launch] if launch < len(self.kept) else []
        return int(kept[0]) if kept else len(self.ns[launch])

    @property
    def measured(self) -> bool:
        """Return whether there is at least one repetition."""
        return any(self.ns) or any(self.kept)

    @property
    def medians(self) -> list[list[float]]:
        """Return for each launch a list with its median, or an empty one, as `stats` takes it."""
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
        """Return the candidate with a summary in the place of each launch's repetitions."""
        found = [self.summary(k) for k in range(len(self.ns))]
        rows = [[] if s is None else s.row() for s in found]
        return replace(self, ns=[[] for _ in rows], visits=[], kept=rows if any(rows) else [])

    def check(self, where: str) -> None:
        """Raise ValueError if a summary is impossible; add the launches that a file leaves out."""
        for k, row in enumerate(self.kept):
            if row and (len(row) != len(Summary._fields) or not Summary(*row).is_sound()):
                raise ValueError(f"{where}.kept[{k}]: no summary of repetitions")
        self.ns += [[] for _ in self.kept[len(self.ns) :]]


@dataclass(slots=True)
class Cell:
    """Hold one collective with one set of arguments, and the candidates compared in it.

    Attributes
    ----------
    collective
        Its name in xupc, like ``all_broadcast`` or ``allav_reduce_all``.
    nbytes
        The bytes of a block; 0 for the barrier.
    dtype, op
        The type and operation of a reduction; empty for others.
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
    api
        ``"xupc"``, or ``"mpi4py"``: the methods of `xupc.Comm` were measured.
    moved
        Bytes that one call delivers to all threads together, or reads if it reduces. Bandwidths
        are calculated from them.
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
    api: str = "xupc"
    candidates: list[Candidate] = field(default_factory=list)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the arguments, which are unique among the cells of any result."""
        return (
            self.collective, self.nbytes, self.dtype, self.op, self.sync, self.root, self.team,
            self.cold, self.loop, self.api,
        )  # fmt: skip

    @property
    def title(self) -> str:
        """Return the collective with every unusual argument, like a call."""
        words = [self.dtype, self.op, "" if self.sync == "allsync" else self.sync]
        words += [f"root {self.root}" if self.root not in ("", "0") else ""]
        words += ["" if self.team == "world" else f"team.{self.team}", "cold" * self.cold]
        words += ["back to back" * self.loop, "xupc.Comm" * (self.api != "xupc")]
        said = ", ".join(filter(None, words))
        return f"{self.collective} ({said})" if said else self.collective

    def candidate(self, name: str) -> Candidate | None:
        """Return the candidate of a name; None if it was not compared."""
        return next((c for c in self.candidates if c.name == name), None)

    @property
    def pair(self) -> tuple[Candidate, Candidate] | None:
        """Return the same call under two names, for the A/A spread; None without one."""
        again = next(self.of_kind(AGAIN), None)
        first = None if again is None else self.candidate(again.name.removesuffix(" again"))
        return None if again is None or first is None else (first, again)

    @property
    def spread(self) -> float | None:
        """Return how far these two differ in a typical launch; None if that was not measured."""
        return None if self.pair is None else stats.spread(*(c.medians for c in self.pair))

    @property
    def repetitions(self) -> int:
        """Return the least number of repetitions of any candidate in any launch."""
        counts = (c.count(k) for c in self.candidates for k in range(len(c.ns)))
        return min(counts, default=0)

    @property
    def measured(self) -> bool:
        """Return whether a candidate has at least one repetition."""
        return any(candidate.measured for candidate in self.candidates)

    def of_kind(self, kind: str) -> Iterator[Candidate]:
        """Return the candidates of a kind that have at least one repetition."""
        return (c for c in self.candidates if c.kind == kind and c.measured)


@dataclass(slots=True)
class Launch:
    """Hold one start of a job: its time and length, and the machine's load before and after.

    `others` is the share of the cores' time that other processes, or other machines of the same
    host, took during the measurement; None if that is unknown.
    """

    number: int
    began: str
    seconds: float
    load: list[float]
    seed: int
    others: float | None = None

    @property
    def disturbed(self) -> bool:
        """Return whether others took so much that its times are of little use."""
        return (self.others or 0.0) > DISTURBED


@dataclass(slots=True)
class Job:
    """Hold one kind of job: a number of threads in one placement.

    Attributes
    ----------
    nodes
        The threads of each node.
    hosts
        The name of the machine of each node.
    about
        The origin of the figures: ``xupc``, ``python``, ``numpy``, ``mpi4py``, ``mpi``,
        ``mpi family``, ``transport``, ``thread level``, ``netmod``, ``native core``,
        ``tuning``, ``binding``, ``cores``, ``oversubscribed``, ``processor``, ``kernel``,
        ``picture``: the levels of the machine and the threads in them, drawn as text.
    clock
        ``{"kind": "monotonic"}`` on one machine; over several ``{"kind": "offsets",
        "uncertainty ns": ...}``.
    bounds
        The limits of the machine, measured in the same run: ``copy rate``, ``node copy rate``
        and ``wire rate`` in bytes per second, ``line latency ns`` (a cache line from core to
        core) and ``wire latency ns``. Those that do not apply are missing. `xupc.bench.machine`
        defines each of them.
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
        """Return the placement, like ``8 threads`` or ``16 threads on 4 nodes``."""
        threads = f"{self.threads} thread{'s'[: self.threads != 1]}"
        return threads if len(self.nodes) == 1 else f"{threads} on {len(self.nodes)} nodes"

    @property
    def unmeasured(self) -> dict[str, list[int]]:
        """Return calls and bytes without a repetition: each launch ended before it came to them."""
        found: dict[str, list[int]] = {}
        for cell in self.cells:
            if not cell.measured:
                found.setdefault(cell.title, []).append(cell.nbytes)
        return found

    def check_nodes(self, where: str) -> None:
        """Raise ValueError unless each thread is on exactly one node."""
        named = sorted(thread for node in self.nodes for thread in node)
        if len(named) != self.threads or named != list(range(len(named))):
            raise ValueError(f"{where}.nodes: expected each of {self.threads} threads once")

    def check_candidates(self, where: str) -> None:
        """Raise ValueError if a summary of a candidate is impossible."""
        for i, cell in enumerate(self.cells):
            for k, candidate in enumerate(cell.candidates):
                candidate.check(f"{where}.cells[{i}].candidates[{k}]")


@dataclass(slots=True)
class Result:
    """Hold everything that one command measured.

    Attributes
    ----------
    command
        The command's words.
    complete
        False if it was interrupted or a launch failed; the other launches are valid then too.
    notes
        Warnings for the reader: failures, wrong results, a busy machine.
    """

    command: list[str]
    created: str
    complete: bool = True
    notes: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was timed."""
        return not any(cell.measured for job in self.jobs for cell in job.cells)

    @property
    def is_compact(self) -> bool:
        """Return whether repetitions of a launch are replaced by a summary."""
        cells = (cell for job in self.jobs for cell in job.cells)
        return any(any(c.kept) for cell in cells for c in cell.candidates)

    def compact(self) -> Result:
        """Return the result with a `Summary` of each launch in the place of its repetitions.

        It gives the same tables, reports, comparisons and tunings. It has no distributions any
        more: no percentiles except quartiles, and no course of a launch.
        """
        return replace(self, jobs=[
            replace(job, cells=[
                replace(cell, candidates=[c.compact() for c in cell.candidates])
                for cell in job.cells
            ])
            for job in self.jobs
        ])  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the file in one go, so that a reader never finds half of it."""
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
            It is no result, of another version, or damaged; the message names file and place.
        """
        try:
            found = parsed(unpacked(contents_of(path, MOST_BYTES), MOST_BYTES))
        except FileNotFoundError:
            raise ValueError(f"there is no file {path}") from None
        except (OSError, ValueError) as e:
            raise ValueError(f"{path}: not readable as JSON: {e}") from None
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"{path}: not a result of xupc bench")
        version = found.pop("version", None)
        if type(version) is not int or version not in (VERSION, COMPACT):
            raise ValueError(f"{path}: version {version!r}, expected {VERSION} or {COMPACT}")
        try:
            result: Result = read_as(cls, found, "result")
            for i, job in enumerate(result.jobs):
                job.check_nodes(f"result.jobs[{i}]")
                job.check_candidates(f"result.jobs[{i}]")
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None
        return result


def _fields(value: Any) -> dict[str, Any]:
    """Return a dataclass's own fields; `asdict` would copy millions of numbers one by one."""
    found = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Candidate):  # version 1 has no `kept`, a compact result nothing else
        for name in ("ns", "visits", "kept"):
            if not any(found[name]) and (name == "kept" or any(value.kept)):
                del found[name]
    if isinstance(value, Cell) and value.api == "xupc":  # as before there was another one
        del found["api"]
    return found
