"""Measure one and two roots per node on one and two links of the emulated cluster, side by side.

    python benchmarks/roots.py --mpich MPICH/bin/python --openmpi OPENMPI/bin/python

Makes clusters with one and with two links by scripts/cluster (Linux, root), and runs itself in jobs
on them with both MPIs in turn: with the sizes of the built-in table and with long messages. In a
job all candidates take turns, a barrier before each call; the time is the longest of all threads.
The bound is the bytes that must enter or leave one node at the rate of its links. `stream` is what
the host carries of it: each node sends the same bytes to the next one, with nothing to wait for.
With `--more` new launches are added to those kept; with that alone the report is made again.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import emulated
import numpy as np
from emulated import Cluster

HERE = Path(__file__).resolve().parent
PAYLOAD = 1448 / 1514  # of an Ethernet frame with TCP's timestamps, as the shaper counts
SIZES = (1 << 20, 8 << 20)
ROUNDS, WARM = 5, 1
LONG = "version = 1\n[tuning.{0}-tcp]\nchunk = {1}\nalltoall_chunk = {1}\nnotify_bytes = {1}\n"
LONG_BYTES = 65536
TABLES = "long", "built-in"
WAYS = {
    "all_broadcast": ("chain", "chain/2", "circulant", "circulant/2"),
    "all_gather_all": ("rounds", "rounds/2", "ring", "ring/2"),
}
PEER, STREAMS = "mpi4py", ("stream", "stream/2")
PIECE = 65536  # bytes of a message of the stream
REMARKS = "## What can be said of it"  # written by hand: it stays when the report is made again
UNITS = {"mbit": 1e6, "gbit": 1e9}
Cell = tuple[str, int, str]
"""Call, bytes, way."""


# ---- in a job ----------------------------------------------------------------------------------
def sent() -> dict[str, int]:
    """Return the bytes that have left this host by each link."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    fields = (line.partition(":") for line in lines if ":" in line)
    return {name.strip(): int(rest.split()[8]) for name, _, rest in fields if "eth" in name}


def ways(name: str, ppn: int) -> list[str]:
    """Return the ways of a call to measure: two roots need two threads on each node."""
    return [way for way in WAYS[name] if ppn > 1 or not way.endswith("/2")]


def stream(world: Any, src: Any, dst: Any, ppn: int, senders: int) -> None:
    """Send `src` from each node to the next one, by so many threads, and wait for all pieces."""
    lane = world.rank % ppn
    if lane >= senders:
        return
    share = len(src) // senders
    pieces = [slice(at, at + PIECE) for at in range(lane * share, (lane + 1) * share, PIECE)]
    last, first = world.rank + ppn >= world.size, world.rank < ppn
    sent = [] if last else [world.Isend(src[piece], world.rank + ppn) for piece in pieces]
    got = [] if first else [world.Irecv(dst[piece], world.rank - ppn) for piece in pieces]
    for request in got + sent:
        request.Wait()


def calls(nbytes: int, ppn: int) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield collectives, ways and what makes a call, for blocks of so many bytes in all."""
    from mpi4py import MPI

    import xupc

    world, block = MPI.COMM_WORLD, nbytes // xupc.THREADS
    src = xupc.all_alloc(nbytes * xupc.THREADS, np.uint8, blocksize=nbytes)
    dst = xupc.all_alloc(nbytes * xupc.THREADS, np.uint8, blocksize=nbytes)
    one, whole = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    src.local[:] = 1
    for way in ways("all_broadcast", ppn):
        yield "all_broadcast", way, xupc.all_broadcast.plan(
            dst, src, nbytes, algorithm=f"multicore:{way}")
    yield "all_broadcast", PEER, lambda: world.Bcast(one, 0)
    for way, senders in zip(STREAMS, range(1, ppn + 1), strict=False):
        yield "all_broadcast", way, partial(stream, world, one, whole, ppn, senders)
    for way in ways("all_gather_all", ppn):
        yield "all_gather_all", way, xupc.all_gather_all.plan(
            dst, src, block, algorithm=f"multicore:{way}")
    mine = one[:block]
    yield "all_gather_all", PEER, lambda: world.Allgather(mine, whole)


def job(sizes: list[int], ppn: int) -> None:
    """Measure all candidates; thread 0 prints a line of JSON for each."""
    from mpi4py import MPI

    import xupc

    xupc.init(heap_size="64MiB")
    world = MPI.COMM_WORLD.Dup()
    for nbytes in sizes:
        candidates = list(calls(nbytes, ppn))
        times: dict[int, list[float]] = defaultdict(list)
        links: dict[int, dict[str, int]] = {}
        for turn in range(WARM + ROUNDS):
            for i, (_, _, call) in enumerate(candidates):
                world.Barrier()
                xupc.barrier()
                before, begin = sent(), time.perf_counter()
                call()
                took = world.allreduce(time.perf_counter() - begin, MPI.MAX)
                if turn >= WARM:
                    times[i].append(took)
                    links[i] = {k: v - before[k] for k, v in sent().items()}
        if xupc.MYTHREAD == 0:
            for i, (name, way, _) in enumerate(candidates):
                took = statistics.median(times[i])
                print(json.dumps([name, nbytes, way, took, links[i]]), flush=True)
    xupc.finalize()


# ---- around the jobs -----------------------------------------------------------------------------
def launch(
    args: argparse.Namespace, mpi: str, table: str, cluster: Cluster
) -> Iterator[list[Any]]:
    """Run one job; yield what it measured, nothing if it failed."""
    environment = {"PYTHONPATH": str(HERE.parent), "XUPC_TIMEOUT": "100"}
    path = HERE / f".{args.name}-{mpi}.toml"
    if table == "long":
        path.write_text(LONG.format(mpi, LONG_BYTES))
        environment["XUPC_TUNING"] = str(path)
    done = cluster.run(
        ["-n", str(args.nodes * args.ppn), "--own-links"],
        [__file__, "--ppn", str(args.ppn), "--job", ",".join(map(str, args.sizes))],
        python=getattr(args, mpi), seconds=110, environment=environment,
    )  # fmt: skip
    path.unlink(missing_ok=True)
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        if line.startswith("["):
            yield json.loads(line)


def bound(args: argparse.Namespace, name: str, nbytes: int, links: int) -> float:
    """Return the seconds that the bytes of one node take on its links."""
    rate = float(args.rate[:-4]) * UNITS[args.rate[-4:]] / 8 * PAYLOAD
    share = 1 if name == "all_broadcast" else (args.nodes - 1) / args.nodes
    return nbytes * share / rate / links


Line = list[Any]
"""MPI, table, links, call, bytes, way, seconds, bytes on each link."""
Found = dict[tuple[str, str, int], dict[Cell, list[float]]]
"""By MPI, table and links: the medians of all launches of each cell."""


def sorted_out(lines: list[Line]) -> Found:
    """Return the times of each cell."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for mpi, table, links, name, nbytes, way, took, _ in lines:
        found[mpi, table, links][name, nbytes, way].append(took)
    return found


def rows(args: argparse.Namespace, found: Found, mpi: str) -> Iterator[str]:
    """Yield the rows of a table with a column for each table of sizes and number of links."""
    cells = [(table, links) for table in TABLES for links in args.links]
    heads = [f"{table}, {links} link{'s' * (links > 1)}" for table, links in cells]
    yield "| call | way | " + " | ".join(heads) + " |"
    yield "|---|---|" + "---|" * len(heads)
    for name in WAYS:
        for nbytes in args.sizes:
            limits = [f"{bound(args, name, nbytes, links) * 1e3:.1f}" for _, links in cells]
            title = f"{name} {nbytes >> 20} MiB"
            yield f"| {title} | bound | {' | '.join(limits)} |"
            streams = STREAMS[: args.ppn] if name == "all_broadcast" else ()
            for way in (*ways(name, args.ppn), PEER, *streams):
                texts = []
                for table, links in cells:
                    times = found[mpi, table, links].get((name, nbytes, way), [])
                    limit = bound(args, name, nbytes, links)
                    took = statistics.median(times) if times else 0.0
                    texts.append(f"{took * 1e3:.1f} ({took / limit:.2f})" if times else "")
                yield f"| | {way} | {' | '.join(texts)} |"


def shares(args: argparse.Namespace, lines: list[Line], mpi: str) -> Iterator[str]:
    """Yield how many bytes left node 0 by each of two links, in a call of the largest size."""
    last = {(table, name, way): devices for which, table, links, name, nbytes, way, _, devices
            in lines if (which, links, nbytes) == (mpi, 2, max(args.sizes))}
    yield "| table | call | way | first link | second link |"
    yield "|---|---|---|---|---|"
    for (table, name, way), devices in last.items():
        counts = " | ".join(f"{count / 1e6:.2f} MB" for _, count in sorted(devices.items()))
        yield f"| {table} | {name} | {way} | {counts} |"


def document(args: argparse.Namespace, lines: list[Line]) -> str:
    """Return the report."""
    found = sorted_out(lines)
    launches = max(len(times) for cells in found.values() for times in cells.values())
    parts = [
        f"# Roots and links: {args.nodes} x {args.ppn} threads, {args.rate} per link\n",
        f"Made by `python benchmarks/roots.py --rate {args.rate}`, up to {launches} launches of "
        f"each kind in turn. Milliseconds, medians of the launches' medians of {ROUNDS} calls; in "
        f"brackets: times the bound. `chain/2` has two "
        f"roots per node. The bytes of all_gather_all are those of all blocks together. `long`: "
        f"messages of {LONG_BYTES >> 10} KiB. `stream`: each node sends the same bytes to the next "
        f"one in pieces of {PIECE >> 10} KiB, with nothing to wait for: what this host carries; "
        f"`stream/2` by two threads.\n",
    ]
    for mpi in sorted({key[0] for key in found}):
        parts += [f"## {mpi}\n", "\n".join(rows(args, found, mpi)), ""]
        if 2 in args.links:
            parts += ["What left node 0 by each of two links, in one call of the largest size:\n",
                      "\n".join(shares(args, lines, mpi)), ""]
    return "\n".join(parts)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--job", metavar="SIZES", help="measure in this job (for jobs alone)")
    top.add_argument("--mpich", metavar="PYTHON", help="interpreter of an environment with MPICH")
    top.add_argument("--openmpi", metavar="PYTHON", help="and of one with Open MPI")
    top.add_argument("--nodes", type=int, default=4, help="number of emulated hosts")
    top.add_argument("--ppn", type=int, default=2, help="threads per node")
    top.add_argument("--rate", default="200mbit", help="of each link: what two cores can carry")
    top.add_argument("--links", type=int, nargs="+", default=(1, 2), help="per node, in turn")
    top.add_argument("--launches", type=int, default=3, help="of each kind of job")
    top.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of the calls")
    top.add_argument("--more", action="store_true", help="add to what is kept beside the report")
    top.add_argument("--name", default="roots", help="of the clusters, with the links behind it")
    top.add_argument("-o", type=Path, default=HERE / "results" / "roots.md", help="the report")
    return top


def main() -> int:
    """Make the clusters, run the jobs in turn, write the report; 1 if there is nothing."""
    args = parser().parse_args()
    if args.job:
        job([int(word) for word in args.job.split(",")], args.ppn)
        return 0
    kept = args.o.with_suffix(".json")
    lines: list[Line] = json.loads(kept.read_text()) if args.more and kept.exists() else []
    kinds = [(mpi, table, links) for mpi in ("mpich", "openmpi") if getattr(args, mpi)
             for table in TABLES for links in args.links]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the clusters go down then, too
    with ExitStack() as stack:
        clusters = {
            links: stack.enter_context(emulated.cluster(
                f"{args.name}{links}", args.nodes, "--rate", args.rate, "--links", str(links)))
            for links in (args.links if kinds else ())
        }  # fmt: skip
        for number in range(args.launches):
            for mpi, table, links in kinds[:: 1 if number % 2 else -1]:
                found = launch(args, mpi, table, clusters[links])
                lines += [[mpi, table, links, *line] for line in found]
                kept.write_text("[" + ",\n".join(map(json.dumps, lines)) + "]\n")
                print(f"launch {number}: {mpi} {table} {links}", file=sys.stderr, flush=True)
    if not lines:
        return 1
    text = document(args, lines)
    old = args.o.read_text() if args.o.exists() else ""
    _, heading, remarks = old.partition(REMARKS)
    args.o.write_text(text + heading + remarks)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
