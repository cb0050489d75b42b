"""xupc and mpi4py's collectives on the emulated cluster: times, the wire's bound, bytes.

    python benchmarks/cluster.py --mpich MPICH/bin/python --openmpi OPENMPI/bin/python

Makes a cluster with scripts/cluster (Linux, root), launches worker.py on it with both MPIs in
turn, and removes it. The bound of a collective is what no algorithm can beat: the bytes that must
enter or leave one node, beyond the shaper's burst, at the link's rate, and the measured latency as
often as a byte must hop. PULL and PUSH are what the library's users had before MULTICORE.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare import (
    Comparison,
    Reports,
    bare_rows,
    cells_of,
    compare,
    merged,
    names_of,
    provenance,
    rows_of,
    wrong_results,
)
from launches import BENCHMARKS, HANG, WORKER, LaunchFailed, command_line, forget, read, stored
from suites import COLLECTIVES, ITEM, SUITES
from tables import size, table, time_of

SCRIPT = BENCHMARKS.parent / "scripts" / "cluster"
SIZES = [8, 1 << 10, 1 << 16, 1 << 20, 8 << 20]
ALGORITHMS = ("MULTICORE", "PULL", "PUSH")
BURST = 32 << 10  # of the shaper in scripts/cluster
PAYLOAD = 1448 / 1514  # of an Ethernet frame with TCP's timestamps, as the shaper counts
AIM_FROM = 1 << 20
AIMS = {
    "broadcast": 1.15, "scatter": 1.3, "gather": 1.3, "gather_all": 1.3, "exchange": 1.3,
    "allreduce": 1.3,
}
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


# ---- the bound ---------------------------------------------------------------------------------


def payload_rate(rate: str) -> float:
    """Payload bytes per second of a link, from its rate as tc takes it."""
    number = rate.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(number) * UNITS[rate[len(number) :]] / 8 * PAYLOAD


def busiest_bytes(collective: str, nbytes: int, nodes: int, threads: int) -> int:
    """Bytes that must enter or leave one node.

    A broadcast's block or a reduction's result, twice (N-1)/N of it where all get it, one value
    in a scan, else all blocks from outside; an exchange has one for each of the node's threads.
    """
    inside = threads // nodes
    if collective == "barrier":
        return 0
    if collective in ("broadcast", "broadcast_in_place", "reduce"):
        return nbytes
    if collective == "allreduce":
        return 2 * nbytes * (nodes - 1) // nodes
    if collective == "scan":
        return ITEM
    return nbytes * (threads - inside) * (inside if collective == "exchange" else 1)


def depth(collective: str, nodes: int) -> int:
    """How often a byte must hop: the root of a broadcast can send a large block only once."""
    if collective in ("broadcast", "broadcast_in_place", "reduce"):
        return math.ceil(math.log2(nodes))
    return 2 if collective == "allreduce" else 1


def bound_ns(
    collective: str, nbytes: int, shape: tuple[int, int], rate: float, latency: float
) -> float:
    """The least time of a collective on (nodes, threads), in ns."""
    nodes, threads = shape
    beyond = max(0, busiest_bytes(collective, nbytes, nodes, threads) - BURST)
    return beyond / rate * 1e9 + latency * depth(collective, nodes)


# ---- presentation ------------------------------------------------------------------------------


def median(reports: Sequence[dict[str, Any]], cell: str, candidate: str) -> float:
    """Over launches, of the medians."""
    return float(statistics.median(
        statistics.median(report["cells"][cell]["ns"][candidate]) for report in reports
    ))


def latency_of(reports: Sequence[dict[str, Any]]) -> float:
    """Median half round trip between two node roots, in ns."""
    return float(statistics.median(statistics.median(r["wire"]["latency ns"]) for r in reports))


def stream_rate(reports: Sequence[dict[str, Any]]) -> float:
    """The best measured payload rate between two node roots, bytes per second."""
    best = min(min(r["wire"]["stream ns"]) for r in reports)
    return float((reports[0]["wire"]["stream bytes"] - BURST) / best * 1e9)


def shape_of(reports: Reports) -> tuple[int, int]:
    """(nodes, threads)."""
    about = next(iter(reports.values()))[0]["about"]
    return len(about["nodes"]), about["threads"]


def algorithm_rows(
    reports: Sequence[dict[str, Any]], names: Sequence[str], shape: tuple[int, int], rate: float
) -> list[list[str]]:
    """One MPI's table of all cells: the bound, every algorithm, the peer."""
    rows = []
    for cell in names:
        collective, _, text = cell.partition("/")
        bound = bound_ns(collective, int(text), shape, rate, latency_of(reports))
        times = {c: median(reports, cell, c) for c in reports[0]["cells"][cell]["ns"]}
        ours = times.get("MULTICORE", times["xupc"]) / bound
        aim = AIMS.get(collective, math.inf) if int(text) >= AIM_FROM else math.inf
        mark = "" if math.isinf(aim) else " ok" if ours <= aim else f" MISSES {aim:g}"
        rows.append([
            f"{collective} {size(int(text))}".strip(), time_of(bound), time_of(times["xupc"]),
            *[time_of(times[a]) if a in times else "" for a in ALGORITHMS], time_of(times["mpi"]),
            f"{ours:.2f}{mark}",
        ])
    return rows


def byte_rows(reports: Sequence[dict[str, Any]], names: Sequence[str]) -> list[list[str]]:
    """Bytes on the wire of one call: of all nodes together, and of the busiest one."""
    rows = []
    for cell in names:
        counted = reports[0]["cells"][cell].get("wire bytes")
        if not counted:
            continue
        collective, _, text = cell.partition("/")
        row = [f"{collective} {size(int(text))}".strip()]
        for candidate in (*ALGORITHMS, "mpi"):
            total, sent, received = counted.get(candidate, (0, 0, 0))
            row.append(f"{total:,} ({max(sent, received):,})" if total else "")
        rows.append(row)
    return rows


def ordered(reports: Reports) -> list[str]:
    """Cells, grouped by collective."""
    names = [name for name, _ in cells_of(reports)]
    return sorted(names, key=lambda name: COLLECTIVES.index(name.partition("/")[0]))


def document(reports: Reports, failures: Sequence[str], rate_text: str) -> str:
    """The whole report."""
    shape, rate, names = shape_of(reports), payload_rate(rate_text), ordered(reports)
    rows = [compare(reports, cell, "xupc", "mpi") for cell in names]
    parts = [
        f"# Emulated cluster: {shape[1]} threads on {shape[0]} nodes, {rate_text}\n",
        f"Made by `{command_line()}`.\n",
        "Single calls with ALLSYNC, a barrier before each. The bound is the bytes that must enter "
        f"or leave one node, beyond a burst of {size(BURST)}, at {rate / 1e6:.1f} MB/s, and the "
        "latency once per hop.\n",
        summary(rows, reports, rate),
    ]
    for name, found in reports.items():
        parts += [f"With {name}, medians:\n", table(
            ["cell", "bound", "xupc", *ALGORITHMS, "peer", "MULTICORE / bound"],
            algorithm_rows(found, names, shape, rate))]
    parts += ["xupc (its own choice) against the best peer:\n", rows_of(rows)]
    alike = [compare(reports, cell, "MYSYNC", "mpi")
             for cell, candidates in cells_of(reports) if "MYSYNC" in candidates]
    parts += ["Rooted calls with MYSYNC, which synchronise no more than the peer's do:\n",
              rows_of(alike)]
    if bare_rows(reports):
        copies = [compare(reports, cell, "xupc", "mpi+copy")
                  for cell, candidates in cells_of(reports) if "mpi+copy" in candidates]
        parts += ["Large broadcasts against Bcast and the root's own copy:\n", rows_of(copies)]
    for name, found in reports.items():
        if counts := byte_rows(found, names):
            parts += [f"Bytes on the wire with {name}, one call: all nodes (the busiest):\n",
                      table(["cell", *ALGORITHMS, "peer"], counts)]
    wrong = wrong_results(reports)
    if wrong or failures:
        parts.append("**Wrong results and failed launches**\n\n" + "\n".join(
            f"- {text}" for text in [*wrong, *failures]) + "\n")
    parts += ["Where the figures come from:\n", provenance(reports)]
    return "\n".join(parts)


def summary(rows: Sequence[Comparison], reports: Reports, rate: float) -> str:
    """The wire, and where xupc is behind."""
    lines = [
        f"- wire with {name}: latency {time_of(latency_of(found))}, stream "
        f"{stream_rate(found) / 1e6:.1f} MB/s ({stream_rate(found) / rate:.0%} of the nominal rate)"
        for name, found in reports.items()
    ]
    lines.append(f"- behind the best peer: {names_of([r for r in rows if r.verdict == 'LOSS'])}")
    lines.append("- ratio below 1.0, whatever the verdict: "
                 f"{names_of([r for r in rows if r.ratio.value < 1])}")
    return "\n".join(lines) + "\n"


# ---- running -----------------------------------------------------------------------------------


def script(*words: str) -> int:
    """Run scripts/cluster."""
    return subprocess.run([sys.executable, str(SCRIPT), *words], check=False).returncode


def one_launch(
    args: argparse.Namespace, name: str, python: str, number: int, folder: Path
) -> dict[str, Any]:
    """One launch with one MPI."""
    out = folder / f"{name}.{number}.json.gz"
    out.unlink(missing_ok=True)
    words = ["--out", str(out), "--label", name, "--cluster", "--seconds", f"{args.seconds:.1f}",
             "--visits", "1", "--most", str(args.most), "--seed", str(number),
             "--sizes", *map(str, args.sizes), "--collectives", *args.collectives,
             "--algorithms", *args.algorithms]
    if number == 1:
        words.append("--count-bytes")
    begin = time.monotonic()
    status = script(
        "run", "--name", args.name, "-n", str(args.nodes * args.ppn), "--python", python,
        "--timeout", f"{args.patience * args.seconds + 120:.0f}", "--env", f"XUPC_TIMEOUT={HANG}",
        "--", python, str(WORKER), *words)
    if status or not out.exists():
        raise LaunchFailed(f"{name}: exit status {status} after {time.monotonic() - begin:.0f} s")
    print(f"{name} launch {number}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return read(out)


def run_all(args: argparse.Namespace, folder: Path) -> tuple[Reports, list[str]]:
    """All launches, the MPIs in turn, and what failed."""
    pythons = {"mpich": args.mpich, "openmpi": args.openmpi}
    forget(folder)
    reports: Reports = {}
    failures: list[str] = []
    for number in range(1, args.launches + 1):
        for name, python in pythons.items():
            if not python:
                continue
            try:
                reports.setdefault(name, []).append(
                    one_launch(args, name, python, number, folder))
            except LaunchFailed as failure:
                failures.append(f"launch {number}: {failure}")
                print(f"launch {number} failed: {failure}", file=sys.stderr)
    return {name: found for name, found in reports.items() if found}, failures


def on_cluster(args: argparse.Namespace, folder: Path) -> tuple[Reports, list[str]]:
    """Make the cluster, run all launches, remove it."""
    try:
        status = script("up", "--name", args.name, "--nodes", str(args.nodes), "--rate", args.rate)
        if status:
            raise SystemExit(status)
        return run_all(args, folder)
    finally:
        script("down", "--name", args.name)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--mpich", metavar="PYTHON", help="interpreter of an environment with MPICH")
    top.add_argument("--openmpi", metavar="PYTHON", help="and of one with Open MPI")
    top.add_argument("--nodes", type=int, default=4)
    top.add_argument("--ppn", type=int, default=4, help="threads per node")
    top.add_argument("--rate", default="1gbit", help="of each link, like 1gbit or 500mbit")
    top.add_argument("--launches", type=int, default=5, help="with each MPI")
    top.add_argument("--seconds", type=float, default=90.0,
                     help="for the cells of a launch; each candidate runs once at least")
    top.add_argument("--patience", type=float, default=6.0,
                     help="kill a launch that takes so many times its share, and two minutes")
    top.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="bytes per block")
    top.add_argument("--suite", choices=SUITES, default="moves", help="which collectives")
    top.add_argument("--collectives", nargs="+", choices=COLLECTIVES, help="of the suite")
    top.add_argument("--algorithms", nargs="*", choices=ALGORITHMS, default=list(ALGORITHMS))
    top.add_argument("--most", type=int, default=300, help="repetitions of a cell in a launch")
    top.add_argument("--name", default="bench", help="of the cluster")
    top.add_argument("--quick", action="store_true", help="a trial: one launch, up to 1 MiB")
    top.add_argument("--merge", action="store_true", help="only merge what is in results/ already")
    top.add_argument("--results", type=Path, default=BENCHMARKS / "results")
    return top


def main() -> int:
    """Make the cluster, run, write, print; 1 if a result was wrong or a launch failed."""
    args = parser().parse_args()
    args.collectives = args.collectives or SUITES[args.suite]
    name = f"cluster-{args.nodes}x{args.ppn}"
    name += "-computations" if args.suite == "computations" else ""
    if args.quick:
        name += "-quick"
        args.launches, args.seconds = 1, 20.0
        args.sizes = [n for n in args.sizes if n <= AIM_FROM]
    folder = args.results / name
    folder.mkdir(parents=True, exist_ok=True)
    reports, failures = (stored(folder), []) if args.merge else on_cluster(args, folder)
    if not reports:
        return 1
    text = document(reports, failures, args.rate)
    (args.results / f"{name}.json").write_text(json.dumps(merged(reports), indent=1) + "\n")
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 1 if failures or wrong_results(reports) else 0


if __name__ == "__main__":
    sys.exit(main())
