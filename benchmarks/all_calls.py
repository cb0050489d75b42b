"""Every collective beside another checkout: launches of both in turn.

    python benchmarks/all_calls.py --before FOLDER [-n 2] [--nodes SPEC] [--sizes 8,65536]
                                   [--hosts 4] [--blocks 15] [--only CALL ...] [--tuned TABLE]

FOLDER is a checkout whose core is built in place. A launch's figure for a call is the quartile
of 15 blocks of 20 calls, or of 12 from 64 KiB on, or of as many as take 20 ms. `--hosts` makes an
emulated cluster by scripts/cluster (Linux, root) and launches on it. Printed are the median over
launches of FOLDER's, the median and an interval (order statistics, some 90%) of the ratios of
neighbouring launches, and the ratio of the least figures: noise makes calls only slower. TABLE is
this checkout's `XUPC_TUNING`, for instance with the host's figures of `xupc tune --host-only -o
TABLE`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulated
import in_turn

BLOCKS, WARM = 15, 4
BLOCK = 0.02  # seconds that a block of calls takes at most, if it has more than one
SLOWER = 0.03  # that much of a median's logarithm is marked, if the whole interval is above 0


def all_of(nbytes: int) -> dict[str, Callable[[], object]]:
    """Return the calls by name, each on blocks of so many bytes."""
    import numpy as np

    import xupc
    from xupc import ADD

    t, n = xupc.THREADS, nbytes // 8
    many, many2 = (xupc.all_alloc(t * t * n, np.float64, t * n) for _ in range(2))
    one, one2 = (xupc.all_alloc(t * n, np.float64, n) for _ in range(2))
    single = xupc.all_alloc(t, np.float64, 1)
    turned = [(i + 1) % t for i in range(t)]
    x, y, xs, ys = np.zeros(n), np.zeros(n), np.zeros(n * t), np.zeros(n * t)
    return {
        "barrier": lambda: xupc.barrier(),
        "broadcast": lambda: xupc.all_broadcast(many, many2, nbytes),
        "broadcast PULL": lambda: xupc.all_broadcast(many, many2, nbytes, xupc.PULL),
        "broadcast PUSH": lambda: xupc.all_broadcast(many, many2, nbytes, xupc.PUSH),
        "broadcast MULTICORE": lambda: xupc.all_broadcast(many, many2, nbytes, xupc.MULTICORE),
        "broadcast posted": lambda: xupc.all_broadcast(many, many2, nbytes, xupc.ASYNC).wait(),
        "scatter": lambda: xupc.all_scatter(one2, many2, nbytes),
        "gather": lambda: xupc.all_gather(many, one2, nbytes),
        "gather_all": lambda: xupc.all_gather_all(many, one2, nbytes),
        "exchange": lambda: xupc.all_exchange(many, many2, nbytes),
        "permute": lambda: xupc.all_permute(one, one2, turned, nbytes),
        "broadcast_in_place": lambda: xupc.all_broadcast_in_place(one2, nbytes),
        "reduce": lambda: xupc.all_reduce(single, one2, ADD, n * t, n),
        "reduce_all": lambda: xupc.all_reduce_all(single, one2, ADD, n * t, n),
        "reduce_mpi_all": lambda: xupc.all_reduce_mpi_all(one, one2, ADD, n * t, n),
        "prefix_reduce": lambda: xupc.all_prefix_reduce(one, one2, ADD, n * t, n),
        "allav_broadcast": lambda: xupc.allav_broadcast(x, 0),
        "allav_gather_all": lambda: xupc.allav_gather_all(ys, x),
        "allav_exchange": lambda: xupc.allav_exchange(ys, xs),
        "allav_reduce": lambda: xupc.allav_reduce(y, x, ADD, 0),
        "allav_reduce_all": lambda: xupc.allav_reduce_all(y, x, ADD),
        "allav_prefix_reduce": lambda: xupc.allav_prefix_reduce(y, x, ADD),
        "allv_reduce_all": lambda: xupc.allv_reduce_all(1.0, ADD),
    }


def batch(call: Callable[[], object], most: int) -> int:
    """Return how many calls make a block: `most`, or as many as take 20 ms; for all the same."""
    import numpy as np

    import xupc

    begin = time.perf_counter()
    call()
    count = np.array([max(1, min(most, int(BLOCK / (time.perf_counter() - begin))))])
    xupc.allav_broadcast(count, 0)
    return int(count[0])


def run_thread() -> None:
    """Time all calls; thread 0 prints a line of JSON for each."""
    import xupc

    sizes, blocks, only = sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3:]
    with xupc.init():
        for nbytes in map(int, sizes):
            for name, call in all_of(nbytes).items():
                if only and name not in only:
                    continue
                for _ in range(WARM):
                    call()
                count = batch(call, 20 if nbytes < 65536 else 12)
                took = []
                for _ in range(blocks):
                    xupc.barrier()
                    begin = time.perf_counter()
                    for _ in range(count):
                        call()
                    took.append((time.perf_counter() - begin) / count)
                if xupc.MYTHREAD == 0:
                    print(json.dumps([f"{name} {nbytes}", sorted(took)[blocks // 4]]), flush=True)


def row(name: str, before: list[float], now: list[float]) -> tuple[str, float]:
    """Return a line of the table, and the logarithm of the median ratio."""
    ratios = sorted(math.log(b / a) for a, b in zip(before, now, strict=True))
    middle, count = statistics.median(ratios), len(ratios)
    from_end = max(0, int(count / 2 - 0.82 * math.sqrt(count)))
    low, high = ratios[from_end], ratios[-1 - from_end]
    mark = "  slower" if low > 0 and middle > SLOWER else ""
    text = (
        f"{name:28} {statistics.median(before) * 1e6:9.2f} us  {math.exp(middle):.3f} "
        f"({math.exp(low):.3f}-{math.exp(high):.3f})  least {min(now) / min(before):.3f}{mark}"
    )
    return text, middle


def main() -> None:
    """Launch both in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--nodes", default="")
    parser.add_argument("--hosts", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--sizes", default="8,65536")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--only", nargs="+", default=[], metavar="CALL")
    parser.add_argument("--tuned", default="")
    chosen = parser.parse_args()
    if chosen.hosts:
        with emulated.cluster("allcalls", chosen.hosts) as cluster:
            report(measured(chosen, cluster))
    else:
        report(measured(chosen))


def measured(
    chosen: argparse.Namespace, cluster: emulated.Cluster | None = None
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each call, of both sides, by launch."""
    options = ["-n", str(chosen.n), *(["--nodes", chosen.nodes] if chosen.nodes else [])]
    folders = in_turn.sides(chosen.before)
    times: dict[str, dict[str, list[float]]] = {}
    for _, side in in_turn.turns(folders, chosen.rounds):
        variables = {"XUPC_ALL_CALLS": "thread"}
        if chosen.tuned and side == "now":
            variables["XUPC_TUNING"] = chosen.tuned
        job = [str(Path(__file__).resolve()), chosen.sizes, str(chosen.blocks), *chosen.only]
        found = in_turn.figures(folders[side], job, options, cluster, **variables)
        for name, seconds in found.items():
            times.setdefault(name, {"before": [], "now": []})[side].append(seconds)
    return times


def report(times: dict[str, dict[str, list[float]]]) -> None:
    """Print the table."""
    middles = []
    for name, both in times.items():
        text, middle = row(name, both["before"], both["now"])
        middles.append(middle)
        print(text)
    print(f"geometric mean {math.exp(statistics.fmean(middles)):.3f} of {len(middles)}")


if __name__ == "__main__":
    run: Any = run_thread if os.environ.get("XUPC_ALL_CALLS") else main
    run()
