"""Results as text: tables that tools for OSU's benchmarks can read, and CSV.

The first column is the size of a block in bytes, the second the median in µs of the maximum over
the threads. All lines that hold no figures begin with ``#``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np

from ..specs import parse_name
from . import stats
from .columns import aligned
from .results import FLOOR, OURS, PEER, Candidate, Cell, Job, Result

__all__ = ["bandwidths", "comparison", "osu", "table_csv"]


TAIL = (50, 90, 99)
"""Percentiles of all repetitions, as OSU's benchmarks print them for ``-z``."""


def osu(
    result: Result, *, full: bool = False, check: bool = False, tail: bool = False
) -> str:  # fmt: skip
    """Return everything, a block of lines for each candidate of a kind of cell.

    Parameters
    ----------
    full
        Minimum, mean and maximum besides.
    check
        A last column with the outcome of the checks.
    tail
        The percentiles `TAIL` besides; a dash where a file keeps no repetitions.
    """
    lines: list[str] = []
    for job in result.jobs:
        lines += _head(job)
        for title, cells in _groups(job):
            for name in _names(cells):
                lines += ["", f"# {title}: {_call(cells, name)}  [{name}]"]
                rows = [
                    _row(job, cell, candidate, full, check, tail)
                    for cell in cells
                    if (candidate := cell.candidate(name)) is not None and candidate.measured
                ]
                lines += aligned([_columns(cells, full, check, tail), *rows], right=1, least=12)
        lines.append("")
    lines += [f"# note: {note}" for note in result.notes]
    if not result.complete:
        lines.append("# incomplete: this is what had been measured")
    return "\n".join(lines) + "\n"


def _head(job: Job) -> list[str]:
    about, clock = job.about, job.clock
    core = "native core" if about.get("native core") else "Python engine"
    cores = about.get("cores")
    where = f"{cores} core{'s' * (cores != 1)}" + ", oversubscribed" * bool(about["oversubscribed"])
    text = "one monotonic clock"
    if clock.get("kind") == "offsets":
        text = f"clock offsets known to {clock.get('uncertainty ns', 0) / 1e3:.2f} us"
    skew = clock.get("entry skew ns")
    if skew is not None:
        text += f"; threads enter a call within {skew / 1e3:.2f} us of each other (median)"
    lines = [
        f"# xupc bench {about.get('xupc')}: {job.shape}",
        f"# {about.get('mpi')}, {about.get('thread level')}, {core}, {where}, "
        f"{about.get('binding')}",
        f"# time of a repetition: maximum over the threads; {text}",
        f"# {_interval(len(job.launches))}",
    ]
    if disturbed := sum(launch.disturbed for launch in job.launches):
        most = max(launch.others or 0.0 for launch in job.launches)
        lines.append(f"# other processes took up to {most:.0%} of the cores' time in {disturbed} "
                     f"of {len(job.launches)} launches")  # fmt: skip
    for title, sizes in job.unmeasured.items():
        lines.append(f"# not measured: {title}, blocks of {', '.join(map(str, sizes))} bytes")
    floors = [t for cell in job.cells for c in cell.of_kind(FLOOR) for ns in c.medians for t in ns]
    if floors:
        lines.append(f"# an empty call takes {np.median(floors) / 1e3:.3f} us: not subtracted")
    return lines


def _interval(launches: int) -> str:
    """Return the explanation of the columns Low and High."""
    if launches < stats.LEAST:
        count = f"{launches} launch{'es' * (launches != 1)}"
        return f"Low, High: - ({count}: an interval needs {stats.LEAST}: --launches {stats.LEAST})"
    return f"Low, High: 95% interval over {launches} launches, by Student's t of their medians"


def _groups(job: Job) -> Iterator[tuple[str, list[Cell]]]:
    """Yield cells that differ in size only."""
    groups: dict[str, list[Cell]] = {}
    for cell in job.cells:
        groups.setdefault(cell.title, []).append(cell)
    yield from groups.items()


def _names(cells: Sequence[Cell]) -> list[str]:
    every = [c for cell in cells for c in cell.candidates if c.kind in (OURS, PEER) and c.measured]
    return list(dict.fromkeys(c.name for c in every))


def _call(cells: Sequence[Cell], name: str) -> str:
    found = [(cell, c) for cell in cells if (c := cell.candidate(name)) is not None]
    by: dict[str, list[int]] = {}
    for cell, candidate in found:
        by.setdefault(candidate.algorithm, []).append(cell.nbytes)
    how = ", ".join(
        algorithm if len(by) == 1 else f"{algorithm} ({', '.join(map(str, sizes))})"
        for algorithm, sizes in by.items()
    )
    return f"{found[0][1].call} by {how}" if how else found[0][1].call


def _columns(cells: Sequence[Cell], full: bool, check: bool, tail: bool) -> list[str]:
    peers = any(c.kind == PEER for cell in cells for c in cell.candidates)
    names = ["# Size", "Latency(us)", "Low(us)", "High(us)", "MB/s", "algbw(GB/s)", "busbw(GB/s)"]
    names += [f"P{k}(us)" for k in TAIL] if tail else []
    names += ["Min(us)", "Mean(us)", "Max(us)", "Iterations"] if full else []
    names += ["Peer/this"] if peers else []
    names += ["Validation"] if check else []
    return names


def _row(
    job: Job, cell: Cell, candidate: Candidate, full: bool, check: bool, tail: bool
) -> list[str]:  # fmt: skip
    found = stats.median(candidate.medians)
    row = [_us(value) for value in (found.value, found.low, found.high)]
    row.append(f"{cell.moved / found.value * 1e3 if cell.moved else 0.0:.2f}")
    row += ["-" if rate is None else f"{rate:.3f}" for rate in bandwidths(job, cell, found.value)]
    row += _tail(candidate) if tail else []
    if full:
        count, *extent = _extent(candidate)
        row += [*(_us(value) for value in extent), str(count)]
    if any(c.kind == PEER for c in cell.candidates):
        against = comparison(cell, candidate)
        row.append("-" if against is None else f"{against.value:.2f}")
    if check:
        row.append("Fail" if any(candidate.wrong) else "Pass")
    return [str(cell.nbytes), *row]


def _us(ns: float) -> str:
    return "-" if np.isnan(ns) else f"{ns / 1e3:.2f}"


def _tail(candidate: Candidate) -> list[str]:
    """Return the percentiles of all repetitions; dashes where some were not kept."""
    if any(candidate.kept):
        return ["-" for _ in TAIL]
    every = [ns for launch in candidate.ns for ns in launch]
    return [_us(float(ns)) for ns in np.percentile(every, TAIL)]


def bandwidths(job: Job, cell: Cell, ns: float) -> tuple[float, float] | tuple[None, None]:
    """Return algbw and busbw of nccl-tests in GB/s, for a call that takes a time.

    None for the barrier, for a team whose size the result does not hold, and for a reduction of
    all elements to one, which nccl-tests do not have.
    """
    if cell.collective == "barrier" or cell.team == "node":
        return None, None
    form, spec = parse_name(cell.collective)
    if form == "all" and spec.whole:
        return None, None
    threads = job.threads if cell.team == "world" else len(job.nodes)
    rate = cell.nbytes * spec.data_blocks(threads) / ns
    return rate, rate * spec.bus_factor(threads)


def _extent(candidate: Candidate) -> tuple[int, float, float, float]:
    """Return the number of all its repetitions, and minimum, mean and maximum in ns."""
    every = candidate.summaries()
    count = sum(s.repetitions for s in every)
    return (
        int(count), min(min(s.first, s.least) for s in every),
        sum(s.mean * s.repetitions for s in every) / count,
        max(max(s.first, s.most) for s in every),
    )  # fmt: skip


def comparison(cell: Cell, candidate: Candidate, peer: str = "mpi4py") -> stats.Ratio | None:
    """Return how many times longer the peer takes; None of the peer itself, or without one."""
    other = cell.candidate(peer)
    if other is None or other is candidate:
        return None
    return stats.ratio(other.medians, candidate.medians)


_CSV = (
    "threads", "nodes", "collective", "bytes", "dtype", "op", "sync", "root", "team", "cold",
    "candidate", "kind", "call", "algorithm", "launches", "repetitions", "median us", "low us",
    "high us", "min us", "mean us", "max us", "MB/s", "algbw GB/s", "busbw GB/s",
    "network bytes", "peer/this", "low", "high", "A/A spread", "verdict", "wrong threads",
)  # fmt: skip


def table_csv(result: Result) -> str:
    """Return a line for each candidate of each cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for job in result.jobs:
        for cell in job.cells:
            for candidate in cell.candidates:
                if candidate.measured:
                    writer.writerow(_fields(job, cell, candidate))
    return out.getvalue()


def _fields(job: Job, cell: Cell, candidate: Candidate) -> list[object]:
    found, (count, *extent) = stats.median(candidate.medians), _extent(candidate)
    against, spread = comparison(cell, candidate), cell.spread
    wrong = sorted({t for some in candidate.wrong for t in some})
    ratios: list[object] = ["", "", ""]
    verdict = ""
    if against is not None:
        ratios = [_figure(v, 4) for v in (against.value, against.low, against.high)]
        verdict = stats.verdict(against, spread) if candidate.kind == OURS else ""
    return [
        job.threads, len(job.nodes), cell.collective, cell.nbytes, cell.dtype, cell.op, cell.sync,
        cell.root, cell.team, int(cell.cold), candidate.name, candidate.kind, candidate.call,
        candidate.algorithm, len(candidate.summaries()), count,
        *(_figure(v / 1e3, 3) for v in (found.value, found.low, found.high)),
        *(f"{v / 1e3:.3f}" for v in extent),
        f"{cell.moved / found.value * 1e3:.2f}" if cell.moved else "",
        *("" if rate is None else f"{rate:.4f}" for rate in bandwidths(job, cell, found.value)),
        "" if candidate.network_bytes is None else candidate.network_bytes, *ratios,
        "" if spread is None else f"{spread:.4f}", verdict, " ".join(map(str, wrong)),
    ]  # fmt: skip


def _figure(value: float, digits: int) -> str:
    """Return a figure as text; empty where there are too few launches for it."""
    return "" if np.isnan(value) else f"{value:.{digits}f}"
