"""Measure calls at new addresses, `f(p + i*k)`, and the same calls repeated.

    python benchmarks/new_addresses.py [--before FOLDER] [--launches 20] [-n 4] [--nodes 2,2]
        [--quantile 0.5]
    python benchmarks/new_addresses.py --instructions [--before FOLDER]

Each launch is a short job that makes 1,000 calls of each kind: at addresses that no earlier call
used, then 5,000 at one address. A time is the median of batches of 20 calls, or another quantile
of them: on a machine with other work a low one shows calls that it has not disturbed. With
--before, jobs with the sources in FOLDER (a checkout whose core is built in place) and with those
of this checkout take turns. The table shows microseconds per call, medians over the launches, and
the median of the launches' ratios, before to now, with the quartiles.

With --instructions valgrind counts the instructions of a call on one thread, the expressions
`p + i` included; other work on the machine does not change them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import in_turn

CALLS = 1000
BATCH = 20
SIZES = 8, 1 << 16
COUNTED = 200, 900  # calls of two runs, whose difference is counted
Times = dict[str, list[float]]


# -- one job ---------------------------------------------------------------------------------
def kinds(nbytes: int) -> Iterator[tuple[str, Callable[[int], object]]]:
    """Yield each kind of call: its name, and the call at the i-th address."""
    import numpy as np

    import xupc

    threads, n, room = xupc.THREADS, nbytes // 8, CALLS + 1
    dst, src = (
        xupc.all_alloc((threads * n + room) * threads, np.float64, threads * n + room)
        for _ in range(2)
    )
    yield "all_broadcast", lambda i: xupc.all_broadcast(dst + i, src + i, nbytes)
    yield "all_gather_all", lambda i: xupc.all_gather_all(dst + i, src + i, nbytes)
    yield "all_scatter", lambda i: xupc.all_scatter(dst + i, src + i, nbytes)
    yield "all_exchange", lambda i: xupc.all_exchange(dst + i, src + i, nbytes)
    total = xupc.all_alloc(room, np.float64)
    dealt = xupc.all_alloc((n + room) * threads, np.float64, 1)
    of_all = n * threads
    yield "all_reduce", lambda i: xupc.all_reduce(total + i, dealt + i * threads, xupc.ADD, of_all)
    out, into = np.zeros(n + room), np.zeros(n + room)
    yield "allav_reduce_all", lambda i: xupc.allav_reduce_all(
        into[i : i + n], out[i : i + n], xupc.ADD
    )
    same = dst + 0, src + 0
    yield "all_broadcast, repeated", lambda i: xupc.all_broadcast(*same, nbytes)
    yield "all_gather_all, repeated", lambda i: xupc.all_gather_all(*same, nbytes)
    mine = into[:n], out[:n]
    yield "allav_reduce_all, repeated", lambda i: xupc.allav_reduce_all(*mine, xupc.ADD)


def batches(call: Callable[[int], object], rounds: int) -> list[float]:
    """Return the microseconds per call of each batch."""
    found = []
    for first in list(range(0, CALLS, BATCH)) * rounds:
        began = time.perf_counter()
        for i in range(first, first + BATCH):
            call(i)
        found.append((time.perf_counter() - began) / BATCH * 1e6)
    return found


def job(quantile: float) -> None:
    """Print the microseconds per call of each kind, on thread 0."""
    import numpy as np

    import xupc

    with xupc.init():
        for nbytes in SIZES:
            for name, call in kinds(nbytes):
                call(CALLS)  # the plan is made
                xupc.barrier()
                spent = np.quantile(batches(call, 5 if "repeated" in name else 1), quantile)
                if xupc.MYTHREAD == 0:
                    print(json.dumps([f"{name}, {nbytes} B", float(spent)]), flush=True)


def repeat(name: str, nbytes: int, calls: int) -> None:
    """Make so many calls of a kind, for `instructions`."""
    import xupc

    with xupc.init():
        call = dict(kinds(nbytes))[name]
        call(CALLS)
        for i in range(calls):
            call(i)


# -- many jobs -------------------------------------------------------------------------------
def measured(
    folders: dict[str, Path], launches: int, options: Sequence[str], quantile: float
) -> dict[str, Times]:
    """Return the times of each kind of call, launch by launch, for each folder."""
    found: dict[str, Times] = {side: {} for side in folders}
    words = [str(Path(__file__).resolve()), "job", str(quantile)]
    for _, side in in_turn.turns(folders, launches):
        for name, spent in in_turn.figures(folders[side], words, options).items():
            found[side].setdefault(name, []).append(spent)
    return found


def instructions(folder: Path, name: str) -> float:
    """Return the instructions of a call of 8 bytes on one thread, by the sources in `folder`."""

    def total(calls: int) -> int:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                   sys.executable, __file__, "repeat", name, str(SIZES[0]), str(calls)]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found = re.search(r"refs:\s+([\d,]+)", done.stderr)
        assert found is not None, done.stderr
        return int(found[1].replace(",", ""))

    few, many = COUNTED
    return (total(many) - total(few)) / (many - few)


def counted(folders: dict[str, Path]) -> str:
    """Return the instructions of each kind of call as Markdown."""
    names = [
        "all_broadcast", "all_gather_all", "all_scatter", "all_exchange", "all_reduce",
        "allav_reduce_all", "all_broadcast, repeated",
    ]  # fmt: skip
    lines = [f"| call | {' | '.join(folders)} |", "|---|" + "---|" * len(folders)]
    for name in names:
        each = [f"{instructions(folder, name):,.0f}" for folder in folders.values()]
        lines.append(f"| {name} | {' | '.join(each)} |")
    return "\n".join(lines)


def table(found: dict[str, Times]) -> str:
    """Return medians and ratios as Markdown."""
    sides = list(found)
    heads = [*(f"{side}, us" for side in sides), *(["ratio", "quartiles"] * (len(sides) > 1))]
    lines = [f"| call | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for name in found[sides[0]]:
        row: list[Any] = [f"{statistics.median(found[side][name]):.1f}" for side in sides]
        if len(sides) > 1:
            pairs = zip(found[sides[0]][name], found[sides[1]][name], strict=True)
            ratios = [before / now for before, now in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4)
            row += [f"{middle:.3f}", f"{low:.3f} to {high:.3f}"]
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> None:
    """Run a job, or launch many of them."""
    if sys.argv[1:2] == ["job"]:
        job(float(sys.argv[2]))
        return
    if sys.argv[1:2] == ["repeat"]:
        repeat(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("-n", default="4", help="threads")
    parser.add_argument("--nodes", default="2,2")
    parser.add_argument("--quantile", type=float, default=0.5)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead")
    given = parser.parse_args()
    if given.instructions:
        print(counted(in_turn.sides(given.before)))
        return
    options = ["-n", given.n, "--nodes", given.nodes]
    print(table(measured(in_turn.sides(given.before), given.launches, options, given.quantile)))


if __name__ == "__main__":
    main()
