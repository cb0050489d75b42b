"""xupc and mpi4py's collectives on the emulated cluster: times, the wire's bound, bytes.

    python benchmarks/cluster.py --mpich MPICH/bin/python --openmpi OPENMPI/bin/python

Makes a cluster with scripts/cluster (Linux, root), runs `xupc bench` in a job on it with both
MPIs in turn, and removes it. The bound of a collective is what no algorithm can beat: the bytes
that must enter or leave one node, beyond the shaper's burst, at the link's rate, and the measured
latency as often as a byte must hop.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import emulated
import tables

from xupc.bench.results import Cell, Job, Result
from xupc.report import formatting

HERE = Path(__file__).resolve().parent
SIZES = "8,1K,64K,1M,8M"
ALGORITHMS = "MULTICORE", "PULL", "PUSH"
BURST = 32 << 10  # of the shaper in scripts/cluster
PAYLOAD = 1448 / 1514  # of an Ethernet frame with TCP's timestamps, as the shaper counts
AIM_FROM = 1 << 20
AIMS = {"all_broadcast": 1.15}
AIMS |= dict.fromkeys(
    ("all_scatter", "all_gather", "all_gather_all", "all_exchange", "all_reduce_mpi_all"), 1.3)
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


# ---- the bound ---------------------------------------------------------------------------------


def payload_rate(rate: str) -> float:
    """Return the payload bytes per second of a link, from its rate as tc takes it."""
    number = rate.rstrip("abcdefghijklmnopqrstuvwxyz")
    return float(number) * UNITS[rate[len(number) :]] / 8 * PAYLOAD


def work_of(cell: Cell) -> str:
    """Return what a cell does: `broadcast` for `all_broadcast` and `allav_broadcast`."""
    return cell.collective.partition("_")[2].replace("reduce_mpi", "reduce")


def busiest_bytes(cell: Cell, nodes: int, threads: int) -> int:
    """Return the bytes that must enter or leave one node in a call.

    These are a broadcast's block or a reduction's result, twice (N-1)/N of it where all get it, one
    value in a scan over all elements, else all blocks from outside; an exchange has one for each of
    the threads of the node.
    """
    inside, work, n = threads // nodes, work_of(cell), cell.nbytes
    if cell.collective == "barrier":
        return 0
    if work in ("broadcast", "broadcast_in_place", "reduce"):
        return n
    if work == "reduce_all":
        return 2 * n * (nodes - 1) // nodes
    if work == "prefix_reduce":
        return n if cell.collective.startswith("allav_") else 8
    return n * (threads - inside) * (inside if work == "exchange" else 1)


def depth(cell: Cell, nodes: int) -> int:
    """Return how often a byte must hop: the root can send a large broadcast only once."""
    work = work_of(cell)
    if work in ("broadcast", "broadcast_in_place", "reduce"):
        return math.ceil(math.log2(nodes))
    return 2 if work == "reduce_all" else 1


def bound_ns(cell: Cell, job: Job, rate: float) -> float:
    """Return the least time of a call in ns; `rate` is the payload of a link in bytes/s."""
    nodes = len(job.nodes)
    beyond = max(0, busiest_bytes(cell, nodes, job.threads) - BURST)
    return beyond / rate * 1e9 + job.bounds["wire latency ns"] * depth(cell, nodes)


# ---- presentation ------------------------------------------------------------------------------


def algorithm_rows(job: Job, rate: float) -> list[list[str]]:
    """Return a row for each cell with one MPI: the bound, every algorithm, the peer."""
    rows = []
    for key in tables.keys({"": job}):
        cell = next(cell for cell in job.cells if cell.key == key)
        bound = bound_ns(cell, job, rate)
        times = {c.name: tables.middle(c) for c in cell.candidates if c.measured}
        if "xupc" not in times:
            continue
        ours = times["xupc"] / bound
        aim = AIMS.get(cell.collective, math.inf) if cell.nbytes >= AIM_FROM else math.inf
        mark = "" if math.isinf(aim) else " ok" if ours <= aim else f" MISSES {aim:g}"
        rows.append([
            f"{cell.title} {tables.size(cell.nbytes)}".strip(), formatting.time(bound),
            *[formatting.time(times[c]) if c in times else ""
              for c in ("xupc", *ALGORITHMS, "mpi4py")],
            f"{ours:.2f}{mark}",
        ])
    return rows


def byte_rows(job: Job) -> list[list[str]]:
    """Return a row for each cell with the bytes between nodes of one call, by the plans."""
    rows = []
    for key in tables.keys({"": job}):
        cell = next(cell for cell in job.cells if cell.key == key)
        found = {c.name: c.network_bytes for c in cell.candidates}
        if any(found.get(name) for name in ALGORITHMS):
            rows.append([f"{cell.title} {tables.size(cell.nbytes)}".strip(),
                         *[f"{found.get(name) or 0:,}" for name in ALGORITHMS]])
    return rows


def wire_of(name: str, job: Job, rate: float) -> str:
    """Format the latency and the rate of the wire in the same launches."""
    measured = job.bounds["wire rate"]
    return (f"- wire with {name}: latency {formatting.time(job.bounds['wire latency ns'])}, stream "
            f"{measured / 1e6:.1f} MB/s ({measured / rate:.0%} of the nominal rate)")


def document(results: dict[str, Result], args: argparse.Namespace) -> str:
    """Return the whole report as Markdown."""
    jobs = {name: result.jobs[0] for name, result in results.items()}
    rate = payload_rate(args.rate)
    rows = tables.matched(jobs, "xupc", "mpi4py")
    parts = [
        f"# Emulated cluster: {args.nodes} x {args.ppn} threads, {args.rate}, {args.suite}\n",
        f"Made by `{tables.command_line()}`.\n",
        "Single calls, a barrier before each. The bound is the bytes that must enter or leave one "
        f"node, beyond a burst of {tables.size(BURST)}, at {rate / 1e6:.1f} MB/s, and the latency "
        "once per hop.\n",
        *[wire_of(name, job, rate) for name, job in jobs.items()],
        tables.summary(rows),
    ]
    for name, job in jobs.items():
        parts += [f"With {name}, medians:\n", formatting.table(
            ["cell", "bound", "xupc", *ALGORITHMS, "peer", "xupc / bound"],
            algorithm_rows(job, rate))]
    parts += ["xupc (its own choice) against the best peer:\n", tables.rows_of(rows)]
    first = next(iter(jobs.values()))
    parts += ["Bytes between nodes of one call, by the plans:\n",
              formatting.table(["cell", *ALGORITHMS], byte_rows(first))]
    parts += ["Where the figures come from:\n", tables.provenance(results)]
    return "\n".join(parts)


# ---- running -----------------------------------------------------------------------------------


def measure(
    args: argparse.Namespace, cluster: emulated.Cluster, python: str, folder: Path, name: str
) -> Result | None:
    """Launch with one MPI and return all launches as one result; None if none left a result."""
    whole: Result | None = None
    for number in range(1, args.launches + 1):
        out = folder / f"{name}.{number}.json.gz"
        out.unlink(missing_ok=True)
        words = [*tables.SUITES[args.suite], "-m", args.sizes, "--peer", "--sync", args.sync,
                 "--flags", args.flags, "--budget", f"{args.seconds:.0f}s", "--json", str(out),
                 "--seed", str(number)]
        began = time.monotonic()
        done = cluster.run(
            ["-n", str(args.nodes * args.ppn)], ["-m", "xupc", "bench", *words], python=python,
            seconds=6 * args.seconds + 120, environment={"XUPC_TIMEOUT": "120"}, captured=False,
        )  # fmt: skip
        print(f"{name} launch {number}: exit status {done.returncode} after "
              f"{time.monotonic() - began:.0f} s", file=sys.stderr)
        if out.exists():
            found = Result.load(out)
            whole = found if whole is None else joined(whole, found)
            # what ends the next launch leaves this one
            whole.compact().save(folder / f"{name}.json.gz")
            out.unlink()
    return whole


def joined(whole: Result, more: Result) -> Result:
    """Add the launch of `more` to `whole`, which measured the same job, and return it."""
    job, other = whole.jobs[0], more.jobs[0]
    job.launches += other.launches
    for cell, again in zip(job.cells, other.cells, strict=True):
        for one, same in zip(cell.candidates, again.candidates, strict=True):
            one.ns += same.ns
            one.wrong += same.wrong
            one.visits += same.visits
    whole.notes += more.notes
    whole.complete &= more.complete
    return whole


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--mpich", metavar="PYTHON", help="interpreter of an environment with MPICH")
    top.add_argument("--openmpi", metavar="PYTHON", help="and of one with Open MPI")
    top.add_argument("--nodes", type=int, default=4)
    top.add_argument("--ppn", type=int, default=4, help="threads per node")
    top.add_argument("--rate", default="1gbit", help="of each link, like 1gbit or 500mbit")
    top.add_argument("--launches", type=int, default=5, help="with each MPI")
    top.add_argument("--seconds", type=float, default=60.0, help="of a launch")
    top.add_argument("--sizes", default=SIZES, help="bytes per block")
    top.add_argument("--suite", choices=tables.SUITES, default="moves", help="which collectives")
    top.add_argument("--flags", default="auto,MULTICORE,PULL,PUSH", help="algorithms")
    top.add_argument("--sync", default="allsync", help="sync modes")
    top.add_argument("--name", default="bench", help="of the cluster")
    top.add_argument("--merge", action="store_true", help="only make the table again")
    top.add_argument("--results", type=Path, default=HERE / "results")
    return top


def main() -> int:
    """Make the cluster, run, write, print; 1 if there is nothing."""
    args = parser().parse_args()
    name = f"cluster-{args.nodes}x{args.ppn}"
    name += f"-{args.suite}" if args.suite != "moves" else ""
    folder = args.results / name
    folder.mkdir(parents=True, exist_ok=True)
    pythons = {k: v for k, v in (("mpich", args.mpich), ("openmpi", args.openmpi)) if v}
    results: dict[str, Result] = {}
    if args.merge:
        results = {p.name.partition(".")[0]: Result.load(p) for p in sorted(folder.glob("*.gz"))}
    else:
        with emulated.cluster(args.name, args.nodes, "--rate", args.rate) as cluster:
            for mpi, python in pythons.items():
                found = measure(args, cluster, python, folder, mpi)
                if found is not None:
                    results[mpi] = found
    if not results:
        return 1
    text = document(results, args)
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
