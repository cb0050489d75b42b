"""xupc against mpi4py's collectives on one machine: launches, ratios, verdicts.

    python benchmarks/compare.py --mpich MPICH/bin/python --openmpi OPENMPI/bin/python --threads 2

Each configuration of the peers is launched several times, in turn; see worker.py for a launch and
stats.py for the arithmetic. For each cell the best peer is the configuration with the lowest
ratio. Written to results/: the repetitions of every launch, the merged figures (JSON), and the
tables (Markdown), which are printed too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launches import (
    BENCHMARKS,
    CONFIGURATIONS,
    Configuration,
    LaunchFailed,
    command_line,
    forget,
    launch,
    revision,
    stored,
)
from suites import COLLECTIVES, SUITES
from tables import size, table, time_of

from xupc.bench.stats import Ratio, geometric_mean, ratio, spread, verdict

SIZES = [8, 1 << 10, 1 << 16, 1 << 20, 8 << 20]
START = 2.5  # seconds that a launch takes besides the measuring
PLAN_AIM, MEAN_LEAST, MEAN_AIM = 2.0, 1.8, 3.0

Reports = dict[str, list[dict[str, Any]]]  # by configuration, one per launch


@dataclass(frozen=True)
class Comparison:
    """A candidate of xupc's against one of MPI's, in one cell and configuration."""

    collective: str
    nbytes: int
    ours: str
    peer: str
    configuration: str
    ratio: Ratio
    spread: float
    ours_ns: float
    peer_ns: float

    @property
    def verdict(self) -> str:
        """What the cell says."""
        return verdict(self.ratio, self.spread)


# ---- arithmetic --------------------------------------------------------------------------------


def compare(reports: Reports, cell: str, ours: str, peer: str) -> Comparison:
    """Against the best peer: the configuration with the lowest ratio."""
    found = [
        compared(configuration, launches, cell, ours, peer)
        for configuration, launches in reports.items()
    ]
    return min(found, key=lambda comparison: comparison.ratio.value)


def compared(
    configuration: str, launches: Sequence[dict[str, Any]], cell: str, ours: str, peer: str
) -> Comparison:
    """In one configuration."""
    times = [report["cells"][cell]["ns"] for report in launches]
    mine, theirs = [t[ours] for t in times], [t[peer] for t in times]
    collective, _, nbytes = cell.partition("/")
    return Comparison(
        collective, int(nbytes), ours, peer, configuration,
        ratio(theirs, mine),
        spread([t["xupc"] for t in times], [t["xupc again"] for t in times]),
        statistics.median(statistics.median(t) for t in mine),
        statistics.median(statistics.median(t) for t in theirs),
    )


def cells_of(reports: Reports) -> Iterator[tuple[str, set[str]]]:
    """(cell, names of its candidates)."""
    first = next(iter(reports.values()))[0]
    for name, cell in first["cells"].items():
        yield name, set(cell["ns"])


def main_rows(reports: Reports) -> list[Comparison]:
    """Every cell against the peer that does the same work, grouped by collective."""
    rows = [
        compare(reports, cell, "xupc", "mpi+copy" if "mpi+copy" in names else "mpi")
        for cell, names in cells_of(reports)
    ]
    return sorted(rows, key=lambda row: COLLECTIVES.index(row.collective))


def bare_rows(reports: Reports) -> list[Comparison]:
    """Large broadcasts against Bcast alone, which lacks the root's copy."""
    return [compare(reports, cell, "xupc", "mpi")
            for cell, names in cells_of(reports) if "mpi+copy" in names]


def plan_rows(reports: Reports) -> list[Comparison]:
    """The replayed plan."""
    return [compare(reports, cell, "plan", "mpi")
            for cell, names in cells_of(reports) if "plan" in names]


def wrong_results(reports: Reports) -> list[str]:
    """Results that were not what they should have been."""
    return [
        f"{configuration} launch {number}: {cell} by {name} on threads {threads}"
        for configuration, launches in reports.items()
        for number, report in enumerate(launches, 1)
        for cell, found in report["cells"].items()
        for name, threads in found["wrong"].items()
    ]


# ---- presentation ------------------------------------------------------------------------------


def row_of(row: Comparison) -> list[str]:
    """One line of a table."""
    return [
        f"{row.collective} {size(row.nbytes)}".strip(), time_of(row.ours_ns),
        time_of(row.peer_ns), row.configuration, str(row.ratio), f"{row.spread:.1%}", row.verdict,
    ]


def rows_of(rows: Sequence[Comparison]) -> str:
    """A table of comparisons with the best peers."""
    head = ["cell", "xupc", "peer", "best peer", "peer / xupc (95%)", "A/A", "verdict"]
    return table(head, map(row_of, rows))


def every_configuration(reports: Reports, rows: Sequence[Comparison]) -> str:
    """The ratio in each configuration, not only the best peer's."""
    lines = []
    for row in rows:
        cell = f"{row.collective}/{row.nbytes}"
        ratios = [
            compared(configuration, launches, cell, row.ours, row.peer).ratio.value
            for configuration, launches in reports.items()
        ]
        name = f"{row.collective} {size(row.nbytes)}".strip()
        lines.append([name, *[f"{value:.2f}" for value in ratios]])
    return table(["peer / xupc", *reports], lines)


def summary(rows: Sequence[Comparison], aim: str) -> str:
    """Counts, means, and all losses by name."""
    resolvable = [row for row in rows if row.verdict != "not resolvable"]
    losses = [row for row in rows if row.verdict == "LOSS"]
    below = [row for row in rows if row.ratio.value < 1.0]
    counts = [
        f"{name}: {sum(row.verdict == name for row in rows)}"
        for name in ("win", "parity", "LOSS", "not resolvable")
    ]
    lines = [
        f"- {', '.join(counts)} of {len(rows)} cells",
        f"- geometric mean against the best peer per cell: "
        f"{geometric_mean(row.ratio.value for row in rows):.2f} over all cells, "
        f"{geometric_mean(row.ratio.value for row in resolvable):.2f} over those resolvable{aim}",
        f"- losses: {names_of(losses)}",
        f"- ratio below 1.0, whatever the verdict: {names_of(below)}",
    ]
    return "\n".join(lines) + "\n"


def names_of(rows: Sequence[Comparison]) -> str:
    """Cells with their ratios, in words."""
    return "; ".join(
        f"{row.collective} {size(row.nbytes)}".strip() + f" {row.ratio}" for row in rows
    ) or "none"


def provenance(reports: Reports) -> str:
    """Where the figures come from, one line per configuration."""
    lines = []
    for configuration, launches in reports.items():
        about = launches[0]["about"]
        loads = [report["about"]["load average before and after"] for report in launches]
        busiest = max(load[0] for pair in loads for load in pair)
        lines.append(
            f"- {configuration}: {about['MPI']}, mpi4py {about['mpi4py']}, thread level "
            f"{about['thread level']}, {len(launches)} launches, native core "
            f"{'in use' if about['native core'] else 'MISSING'}, highest load average {busiest:.1f}"
        )
    about = next(iter(reports.values()))[0]["about"]
    lines.append(
        f"- {about['threads']} threads on {about['cores']} cores"
        f"{' (oversubscribed)' if about['oversubscribed'] else ''} of {about['processor']}, "
        f"{about['kernel']}, Python {about['python']}, numpy {about['numpy']}, "
        f"xupc {about['xupc']} at {revision() or 'an unknown commit'}, {about['time']}"
    )
    return "\n".join(lines) + "\n"


def document(reports: Reports, failures: Sequence[str], loop: bool) -> str:
    """The whole report."""
    rows = main_rows(reports)
    threads = next(iter(reports.values()))[0]["about"]["threads"]
    kind = "back-to-back loops, rooted calls with MYSYNC" if loop else (
        "single calls with ALLSYNC, a barrier before each")
    aim = f" (at least {MEAN_LEAST:g}, aim {MEAN_AIM:g})" if threads == 2 and not loop else ""
    parts = [
        f"# One node, {threads} threads: {kind}\n",
        f"Made by `{command_line()}`.\n",
        summary(rows, aim),
        rows_of(rows),
    ]
    if bare := bare_rows(reports):
        parts += ["Large broadcasts above are compared with Bcast and the root's own copy, which "
                  "is the same work. With Bcast alone:\n", rows_of(bare)]
    if plans := plan_rows(reports):
        least = f" (at least {PLAN_AIM:g})" if aim else ""
        parts += [f"A replayed plan{least}:\n", rows_of(plans)]
    parts += ["All configurations:\n", every_configuration(reports, rows)]
    wrong = wrong_results(reports)
    if wrong or failures:
        parts.append("**Wrong results and failed launches**\n\n" + "\n".join(
            f"- {text}" for text in [*wrong, *failures]) + "\n")
    parts += ["Where the figures come from:\n", provenance(reports)]
    return "\n".join(parts)


def merged(reports: Reports) -> dict[str, Any]:
    """The merged figures of all configurations, for programs."""
    rows = []
    for cell, names in cells_of(reports):
        for configuration, launches in reports.items():
            for ours in sorted(names & {"xupc", "plan"}):
                for peer in sorted(names & {"mpi", "mpi+copy"}):
                    row = compared(configuration, launches, cell, ours, peer)
                    rows.append({**asdict(row), "verdict": row.verdict})
    abouts = {name: [report["about"] for report in found] for name, found in reports.items()}
    return {"command": command_line(), "commit": revision(), "rows": rows, "about": abouts}


# ---- running -----------------------------------------------------------------------------------


def worker_words(args: argparse.Namespace, seconds: float, seed: int) -> list[str]:
    """The worker's arguments."""
    words = ["--seconds", f"{seconds:.1f}", "--seed", str(seed), "--most", str(args.most),
             "--visits", str(args.visits), "--sizes", *map(str, args.sizes),
             "--collectives", *args.collectives]
    return [*words, "--loop"] if args.loop else words


def run_all(args: argparse.Namespace, folder: Path) -> tuple[Reports, list[str]]:
    """All launches, the configurations in turn, and what failed."""
    pythons = {"mpich": args.mpich, "openmpi": args.openmpi}
    chosen = [c for c in CONFIGURATIONS if pythons[c.mpi] and c.name in args.configurations]
    if not chosen:
        raise SystemExit("nothing to compare with: give --mpich PYTHON, --openmpi PYTHON or both")
    seconds = max(1.0, 60 * args.minutes / (args.launches * len(chosen)) - START)
    forget(folder)
    reports: Reports = {c.name: [] for c in chosen}
    failures: list[str] = []
    for number in range(1, args.launches + 1):
        for configuration in chosen:
            try:
                report = one_launch(args, configuration, pythons[configuration.mpi], number,
                                    seconds, folder)
            except LaunchFailed as failure:
                failures.append(f"launch {number}: {failure}")
                print(f"launch {number} failed: {failure}", file=sys.stderr)
            else:
                reports[configuration.name].append(report)
    return {name: found for name, found in reports.items() if found}, failures


def one_launch(
    args: argparse.Namespace,
    configuration: Configuration,
    python: str,
    number: int,
    seconds: float,
    folder: Path,
) -> dict[str, Any]:
    """One launch of one configuration."""
    out = folder / f"{configuration.name}.{number}.json.gz"
    begin = time.monotonic()
    report = launch(configuration, python, args.threads, out,
                    worker_words(args, seconds, number), args.patience * seconds + 60)
    print(f"{configuration.name} launch {number}: {time.monotonic() - begin:.0f} s",
          file=sys.stderr)
    return report


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--mpich", metavar="PYTHON", help="interpreter of an environment with MPICH")
    top.add_argument("--openmpi", metavar="PYTHON", help="and of one with Open MPI")
    names = [c.name for c in CONFIGURATIONS]
    top.add_argument("--configurations", nargs="+", choices=names, default=names)
    top.add_argument("--threads", type=int, default=2)
    top.add_argument("--launches", type=int, default=5, help="of each configuration")
    top.add_argument("--minutes", type=float, help="for all launches (10, or 12 from 3 threads on)")
    top.add_argument("--patience", type=float, default=6.0,
                     help="kill a launch that takes so many times its share, and a minute")
    top.add_argument("--loop", action="store_true", help="the second table: calls back to back")
    top.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="bytes per block")
    top.add_argument("--suite", choices=SUITES, default="moves", help="which collectives")
    top.add_argument("--collectives", nargs="+", choices=COLLECTIVES, help="of the suite")
    top.add_argument("--visits", type=int, default=4, help="of each cell in a launch")
    top.add_argument("--most", type=int, default=1000, help="repetitions of a cell in a launch")
    top.add_argument("--quick", action="store_true", help="a trial: 2 launches, a minute")
    top.add_argument("--merge", action="store_true", help="only merge what is in results/ already")
    top.add_argument("--results", type=Path, default=BENCHMARKS / "results")
    return top


def main() -> int:
    """Run, write, print; 1 if a result was wrong or a launch failed."""
    args = parser().parse_args()
    if args.quick:
        args.launches = 2
    if args.minutes is None:
        args.minutes = 1.0 if args.quick else 10.0 if args.threads <= 2 else 12.0
    args.collectives = args.collectives or SUITES[args.suite]
    name = f"one-node-{args.threads}-threads" + ("-loop" if args.loop else "")
    name += f"-{args.suite}" if args.suite != "moves" else ""
    if args.quick:
        name += "-quick"
    folder = args.results / name
    folder.mkdir(parents=True, exist_ok=True)
    reports, failures = (stored(folder), []) if args.merge else run_all(args, folder)
    if not reports:
        return 1
    text = document(reports, failures, args.loop)
    (args.results / f"{name}.json").write_text(json.dumps(merged(reports), indent=1) + "\n")
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 1 if failures or wrong_results(reports) else 0


if __name__ == "__main__":
    sys.exit(main())
