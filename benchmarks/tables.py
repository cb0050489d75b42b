"""From results of `xupc bench` in several configurations to tables: xupc against the best peer.

A configuration is an MPI and how it is started. xupc runs in each of them; a ratio is taken within
a configuration, and for each cell the one with the lowest ratio counts: the best peer. Since it is
the worst of several, its interval is one at 5% divided by the number of configurations compared
(Bonferroni).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xupc.bench import stats
from xupc.bench.results import Candidate, Cell, Job, Result
from xupc.report import formatting

__all__ = ["SUITES", "Comparison", "command_line", "compare", "document", "keys", "matched",
           "middle", "provenance", "rows_of", "size", "summary"]

_ARRAYS = "broadcast", "scatter", "gather", "gather_all", "exchange", "reduce", "reduce_all"
SUITES = {
    "moves": ("all_broadcast", "all_scatter", "all_gather", "all_gather_all", "barrier"),
    "computations": ("all_exchange", "all_broadcast_in_place", "all_reduce_mpi",
                     "all_reduce_mpi_all", "all_prefix_reduce"),
    "values": tuple(f"allav_{name}" for name in (*_ARRAYS, "prefix_reduce")),
    "scatters": ("all_reduce_scatter", "allav_reduce_scatter", "all_exclusive_prefix_reduce",
                 "allav_exclusive_prefix_reduce"),
}
COPY = "mpi4py and copy"
Jobs = dict[str, Job]  # by configuration


@dataclass(frozen=True)
class Comparison:
    """Hold a candidate of xupc against one of mpi4py, in one cell and configuration."""

    cell: Cell
    configuration: str
    ratio: stats.Ratio
    spread: float | None
    ours_ns: float
    peer_ns: float

    @property
    def verdict(self) -> str:
        """The verdict of the statistics on the cell."""
        return stats.verdict(self.ratio, self.spread)

    @property
    def name(self) -> str:
        """The cell as text."""
        return f"{self.cell.title} {size(self.cell.nbytes)}".strip()


def compare(
    jobs: Jobs, key: tuple[object, ...], ours: str, peer: Callable[[Cell], str] | str
) -> Comparison | None:
    """Compare with the best peer; None where the two were not measured.

    But if any configuration shows a loss, compare with the best of those: a better one that is too
    noisy to decide must not hide it.
    """
    pairs = []
    for configuration, job in jobs.items():
        for cell in job.cells:
            if cell.key == key:
                one = cell.candidate(ours)
                other = cell.candidate(peer if isinstance(peer, str) else peer(cell))
                if one is None or other is None:
                    continue
                if stats.together(other.medians, one.medians)[0]:
                    pairs.append((configuration, cell, one, other))
    found = []
    for configuration, cell, one, other in pairs:
        ratio = stats.ratio(other.medians, one.medians, stats.ERROR / len(pairs))
        assert ratio is not None
        times = middle(one), middle(other)
        found.append(Comparison(cell, configuration, ratio, cell.spread, *times))
    lost = [comparison for comparison in found if comparison.verdict == "LOSS"]
    return min(lost or found, key=lambda comparison: comparison.ratio.value, default=None)


def middle(candidate: Candidate) -> float:
    """Return the median over launches of the medians, in ns."""
    return statistics.median(ns for (ns,) in filter(None, candidate.medians))


def same_work(cell: Cell) -> str:
    """Return the peer that does the same work: all_broadcast also copies the root's block."""
    return COPY if cell.candidate(COPY) is not None else "mpi4py"


def keys(jobs: Jobs) -> list[tuple[object, ...]]:
    """Return the keys of all cells, those of one collective together."""
    found = list(dict.fromkeys(cell.key for job in jobs.values() for cell in job.cells))
    order = list(dict.fromkeys(key[0] for key in found))
    return sorted(found, key=lambda key: order.index(key[0]))


def matched(
    jobs: Jobs, ours: str, peer: Callable[[Cell], str] | str = same_work
) -> list[Comparison]:
    """Return the comparisons of all cells in which both were measured."""
    found = (compare(jobs, key, ours, peer) for key in keys(jobs))
    return [comparison for comparison in found if comparison is not None]


# ---- presentation ------------------------------------------------------------------------------


def size(nbytes: int) -> str:
    """Return a size like ``64 KiB``; empty for 0, which the barrier has."""
    return formatting.size(nbytes) if nbytes else ""


def rows_of(rows: Sequence[Comparison]) -> str:
    """Return a table of comparisons with the best peers, as Markdown."""
    head = ["cell", "xupc", "peer", "best peer", "peer / xupc (95% in all)", "A/A", "verdict"]
    return formatting.table(head, (
        [row.name, formatting.time(row.ours_ns), formatting.time(row.peer_ns), row.configuration,
         str(row.ratio), "" if row.spread is None else f"{row.spread:.1%}", row.verdict]
        for row in rows
    ))


def every_configuration(jobs: Jobs, ours: str, peer: Callable[[Cell], str] | str) -> str:
    """Return a table of the ratios in each configuration, not only the best peer's."""
    lines = []
    for key in keys(jobs):
        found = [compare({name: job}, key, ours, peer) for name, job in jobs.items()]
        cell = next((one for one in found if one is not None), None)
        if cell is not None:
            lines.append([cell.name, *["" if f is None else f"{f.ratio.value:.2f}" for f in found]])
    return formatting.table(["peer / xupc", *jobs], lines)


def summary(rows: Sequence[Comparison], aim: str = "") -> str:
    """Return counts, means, and all losses by name, as Markdown."""
    resolvable = [row for row in rows if row.verdict != "not resolvable"]
    counts = [
        f"{name}: {sum(row.verdict == name for row in rows)}"
        for name in ("win", "parity", "LOSS", "not resolvable")
    ]
    lines = [
        f"- {', '.join(counts)} of {len(rows)} cells",
        "- intervals are Student's over launches, at 5% divided by the number of configurations "
        "of which the worst counts",
        f"- geometric mean against the best peer per cell: "
        f"{stats.geometric_mean(row.ratio.value for row in rows):.2f} over all cells, "
        f"{stats.geometric_mean(row.ratio.value for row in resolvable):.2f} over those "
        f"resolvable{aim}",
        f"- losses: {_names([row for row in rows if row.verdict == 'LOSS'])}",
        "- ratio below 1.0, whatever the verdict: "
        f"{_names([row for row in rows if row.ratio.value < 1.0])}",
    ]
    return "\n".join(lines) + "\n"


def _names(rows: Sequence[Comparison]) -> str:
    return "; ".join(f"{row.name} {row.ratio}" for row in rows) or "none"


def provenance(results: dict[str, Result]) -> str:
    """Return where the figures come from, a line per configuration, and what went wrong."""
    lines = []
    for name, result in results.items():
        job = result.jobs[0]
        loads = [load for launch in job.launches for load in launch.load[:1]]
        lines.append(
            f"- {name}: {job.about['mpi']}, mpi4py {job.about['mpi4py']}, thread level "
            f"{job.about['thread level']}, {len(job.launches)} launches, native core "
            f"{'in use' if job.about['native core'] else 'MISSING'}, highest load average before "
            f"a launch {max(loads, default=0.0):.1f}"
        )
        lines += [f"- **{name}: {note}**" for note in result.notes]
    about = next(iter(results.values())).jobs[0].about
    cores = f"{about['cores']} core{'s'[: about['cores'] != 1]}"
    lines.append(
        f"- {cores}{' (oversubscribed)' if about['oversubscribed'] else ''} of "
        f"{about['processor']}, {about['kernel']}, Python {about['python']}, numpy "
        f"{about['numpy']}, xupc {about['xupc']} at {revision() or 'an unknown commit'}"
    )
    return "\n".join(lines) + "\n"


def document(title: str, results: dict[str, Result]) -> str:
    """Return the report of one node: every cell, the plans, large broadcasts by Bcast alone."""
    jobs = {name: result.jobs[0] for name, result in results.items()}
    rows = matched(jobs, "xupc")
    parts = [f"# {title}\n", f"Made by `{command_line()}`.\n", summary(rows), rows_of(rows)]
    copied = {cell.key for job in jobs.values() for cell in job.cells if cell.candidate(COPY)}
    bare = [row for row in matched(jobs, "xupc", "mpi4py") if row.cell.key in copied]
    if bare:
        parts += ["Large broadcasts above are compared with Bcast and the root's own copy, which "
                  "is the same work. With Bcast alone:\n", rows_of(bare)]
    if plans := matched(jobs, "plan"):
        parts += ["A replayed plan:\n", rows_of(plans)]
    parts += ["All configurations:\n", every_configuration(jobs, "xupc", same_work)]
    parts += ["Where the figures come from:\n", provenance(results)]
    return "\n".join(parts)


def command_line() -> str:
    """Return the command that is running, with interpreters by their environments alone."""
    words_of_it = [f"benchmarks/{Path(sys.argv[0]).name}"]
    for word in sys.argv[1:]:
        path = Path(word)
        words_of_it.append(f"{path.parent.parent.name}/bin/{path.name}" if path.is_absolute()
                           and path.parent.name == "bin" else word)
    return "python " + " ".join(words_of_it)


def revision() -> str:
    """Return the commit that was measured, with a plus if files differ; empty if unknown."""
    here = Path(__file__).resolve().parent

    def git(*said: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *said], check=False, capture_output=True,
                              text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../xupc")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
