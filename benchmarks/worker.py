"""One launch of a benchmark: run by mpiexec on every thread, started by compare.py and cluster.py.

All candidates of a cell are measured in one run, in an order that is shuffled anew in each round:
a barrier (xupc's, for all of them), the call, the clock. The time of a repetition is the maximum
over the threads, found after the run. The cells are visited several times, so that a quiet or a
noisy moment of the machine does not fall on one cell alone. Results are checked at each visit,
outside the timed part.

With --loop a repetition is a number of calls back to back, and MYSYNC is asked of xupc's rooted
collectives, since MPI's do not synchronise.

With --cluster the barrier before a repetition is MPI's and then xupc's: MPI then has sent all it
had buffered, which nobody but itself would do. The candidates get repetitions by their own cost.
With --count-bytes the bytes that a call of each puts on the wire are counted.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import mpi4py
import numpy as np
import values
from cells import MYSYNC, Candidate, Cell, Memory, candidates, cells, is_right
from mpi4py import MPI
from suites import COLLECTIVES, ROOTED, UNEVEN, VALUES

import xupc
from xupc.bench import wire

LOOP_NS = 1_000_000  # a loop of calls lasts about so long
MAX_LOOP = 500
TRIAL_ROUNDS = 5
QUICK_NS = 20_000_000
SLOW_NS = 200_000_000
SLICES = 8  # the clock is looked at so often in a visit
OVERRUN = 1.5  # a visit may take so many times its share


@dataclass
class Measured:
    """A cell, what is measured in it, and what came out on my thread."""

    cell: Cell
    candidates: list[Candidate]
    loops: list[int]
    times: list[list[int]]
    costs: list[float] = field(default_factory=list)  # ns per repetition, barrier included
    wrong: set[str] = field(default_factory=set)
    wire_bytes: dict[str, list[int]] = field(default_factory=dict)


class Worker:
    """My thread's part of the launch."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.team = xupc.init()
        self.comm = MPI.COMM_WORLD
        self.memory = Memory(self.team, self.comm, max(args.sizes))
        self.random = random.Random(args.seed)  # the same on every thread
        self.cells = [self._prepared(cell) for cell in cells(args.collectives, args.sizes)]
        self.load = [os.getloadavg()]

    def _prepared(self, cell: Cell) -> Measured:
        flags = MYSYNC if self.args.loop and cell.collective in ROOTED else 0
        if cell.collective.startswith((VALUES, UNEVEN)):
            found = values.candidates(cell, self.memory)
        else:
            found = candidates(
                cell, self.memory, flags=flags, algorithms=self.args.algorithms,
                mysync=self.args.cluster,
            )
        return Measured(cell, found, [1] * len(found), [[] for _ in found])

    # -- one cell ----------------------------------------------------------------------------
    def visit(self, measured: Measured, number: int, seconds: float) -> None:
        """Check all results, and then measure for about so many seconds."""
        for i, candidate in enumerate(measured.candidates):
            if measured.cell.collective == "barrier":
                candidate.call()
            elif not is_right(measured.cell, candidate, self.memory, 10 * number + i):
                measured.wrong.add(candidate.name)
        if not measured.costs:
            self.try_out(measured)
            if self.args.count_bytes:
                self.count_bytes(measured)
        self.run(measured, self.counts(measured, seconds), seconds)

    def try_out(self, measured: Measured) -> None:
        """Find out what each candidate costs, and how many calls make a loop."""
        for i, candidate in enumerate(measured.candidates):
            trial = Measured(measured.cell, [candidate], [1], [[]])
            took = self.run(trial, [1])
            if took < SLOW_NS:  # the first one may be far off
                took = min(took, self.run(trial, [TRIAL_ROUNDS if took < QUICK_NS else 1]))
            if self.args.loop:
                calls = LOOP_NS // max(1, self.agreed(min(trial.times[0])))
                measured.loops[i] = trial.loops[0] = max(1, min(MAX_LOOP, calls))
                took = self.run(trial, [1])
            measured.costs.append(took)
            if self.args.cluster and took > SLOW_NS:
                measured.times[i] += trial.times[0]  # seconds long, and no worse than any other

    def counts(self, measured: Measured, seconds: float) -> list[int]:
        """Repetitions of each candidate: equal, except on the cluster, where costs decide."""
        costs, most = measured.costs, -(-self.args.most // self.args.visits)
        budget = seconds * 1e9
        if not self.args.cluster:
            fair = int(budget / sum(costs))
            return [max(self.args.least, min(most, fair))] * len(costs)
        share = budget / len(costs)
        return [
            max(0 if times else self.args.least, min(most, int(share / cost)))
            for cost, times in zip(costs, measured.times, strict=True)
        ]

    def run(
        self, measured: Measured, counts: Sequence[int], seconds: float | None = None
    ) -> float:
        """Measure, and stop early where costs were underrated; returns ns per round."""
        rounds = self.shuffled(counts)
        length = max(1, -(-len(rounds) // (1 if seconds is None else SLICES)))
        gc.collect()  # takes longer than many calls do, on more threads than cores
        self.agreed(0)
        gc.disable()
        try:
            begin, took = time.perf_counter_ns(), 0
            for start in range(0, len(rounds), length):
                if seconds is not None and took > OVERRUN * seconds * 1e9:
                    break
                order = [i for one in rounds[start : start + length] for i in one]
                took = self.run_slice(measured, order, begin)
            return took / max(1, len(rounds))
        finally:
            gc.enable()

    def run_slice(self, measured: Measured, order: Sequence[int], begin: int) -> int:
        """Nothing but calls and the clock is in the timed part; returns ns since `begin`."""
        if self.args.loop:
            self.run_loops(measured, order)
        else:
            self.run_calls(measured, order)
        return self.agreed(time.perf_counter_ns() - begin)

    def run_calls(self, measured: Measured, order: Sequence[int]) -> None:
        """One call at a time."""
        barrier, clock = xupc.barrier, time.perf_counter_ns
        settle = self.comm.Barrier if self.args.cluster else None
        parts = [(c.call, c.arguments, times.append, settle if c.of_mpi else barrier)
                 for c, times in zip(measured.candidates, measured.times, strict=True)]
        for i in order:
            call, arguments, note, afterwards = parts[i]
            if settle is not None:
                settle()
            barrier()
            begin = clock()
            call(*arguments)
            end = clock()
            if settle is not None:
                afterwards()
            note(end - begin)

    def run_loops(self, measured: Measured, order: Sequence[int]) -> None:
        """Calls back to back; noted is the time of one."""
        barrier, clock = xupc.barrier, time.perf_counter_ns
        for i in order:
            call, arguments = measured.candidates[i].call, measured.candidates[i].arguments
            calls = measured.loops[i]
            barrier()
            begin = clock()
            for _ in repeat(None, calls):
                call(*arguments)
            end = clock()
            measured.times[i].append((end - begin) // calls)

    def shuffled(self, counts: Sequence[int]) -> list[list[int]]:
        """Indices of candidates, by rounds; those with fewer repetitions are spread out."""
        rounds: list[list[int]] = []
        for r in range(max(counts)):
            # rounded up: a candidate with a single repetition comes in the first round
            done = [-(-r * n // max(counts)) for n in counts]
            due = [-(-(r + 1) * n // max(counts)) for n in counts]
            rounds.append([i for i in range(len(counts)) if due[i] > done[i]])
            self.random.shuffle(rounds[-1])
        return rounds

    def count_bytes(self, measured: Measured) -> None:
        """Bytes that one call of each candidate puts on the wire."""
        for candidate in measured.candidates:
            self.comm.Barrier()
            before = wire.counters(self.team)
            self.comm.Barrier()
            candidate.call(*candidate.arguments)
            self.comm.Barrier()
            time.sleep(0.01)
            after = wire.counters(self.team)
            mine = np.array(after) - np.array(before)
            total, most = np.empty_like(mine), np.empty_like(mine)
            self.comm.Allreduce(mine, total, MPI.SUM)
            self.comm.Allreduce(mine, most, MPI.MAX)
            measured.wire_bytes[candidate.name] = [int(total[0]), int(most[0]), int(most[1])]

    def agreed(self, value: int) -> int:
        """The maximum over all threads."""
        return int(self.comm.allreduce(value, MPI.MAX))

    # -- the launch --------------------------------------------------------------------------
    def measure(self) -> None:
        """Visit all cells several times; time left over goes to the cells still to come."""
        end = time.monotonic() + self.args.seconds
        left = self.args.visits * len(self.cells)
        for number in range(self.args.visits):
            for measured in self.cells:
                remaining = self.comm.bcast(max(0.0, end - time.monotonic()))
                self.visit(measured, number, remaining / left)
                left -= 1
        self.load.append(os.getloadavg())

    def report(self) -> dict[str, Any]:
        """What thread 0 writes; collective."""
        return {
            "about": self.about(),
            "cells": {m.cell.name: self.cell_report(m) for m in self.cells},
        }

    def cell_report(self, measured: Measured) -> dict[str, Any]:
        """Maxima over threads of every repetition, and on which threads a result was wrong."""
        times = {}
        for candidate, mine in zip(measured.candidates, measured.times, strict=True):
            most = np.empty(len(mine), np.int64)
            self.comm.Allreduce(np.array(mine, np.int64), most, MPI.MAX)
            times[candidate.name] = most.tolist()
        wrong: dict[str, list[int]] = {}
        for thread, names in enumerate(self.comm.allgather(sorted(measured.wrong))):
            for name in names:
                wrong.setdefault(name, []).append(thread)
        names = [c.name for c in measured.candidates]
        found: dict[str, Any] = {"ns": times, "wrong": wrong}
        if self.args.loop:
            found["calls"] = dict(zip(names, measured.loops, strict=True))
        if measured.wire_bytes:
            found["wire bytes"] = measured.wire_bytes
        return found

    def about(self) -> dict[str, Any]:
        """Where these figures come from."""
        team = self.team
        levels = {
            MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled",
            MPI.THREAD_SERIALIZED: "serialized", MPI.THREAD_MULTIPLE: "multiple",
        }
        return {
            "label": self.args.label,
            "threads": team.size,
            "nodes": [len(node) for node in team.tree.nodes],
            "oversubscribed": bool(team.job.oversubscribed),
            "cores": len(os.sched_getaffinity(0)),
            "native core": bool(team.job.native),
            "MPI": library(),
            "thread level": levels[MPI.Query_thread()],
            "mpi4py": mpi4py.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "xupc": xupc.__version__,
            "kernel": f"{platform.system()} {platform.release()}",
            "processor": processor(),
            "load average before and after": self.load,
            "loop": self.args.loop,
            "visits": self.args.visits,
            "seed": self.args.seed,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def library() -> str:
    """MPI's name and version."""
    first = MPI.Get_library_version().splitlines()[0].partition(",")[0]
    return " ".join(first.replace("Version:", "").strip("\0").split())


def processor() -> str:
    """The processor's name as Linux tells it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def write(path: Path, data: dict[str, Any]) -> None:
    """As JSON, compressed; the same data gives the same bytes."""
    text = json.dumps(data, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--out", type=Path, required=True, help="file to write, .json.gz")
    top.add_argument("--label", default="", help="name of the configuration")
    top.add_argument("--collectives", nargs="+", choices=COLLECTIVES, default=list(COLLECTIVES))
    top.add_argument("--sizes", nargs="+", type=int, required=True, help="bytes per block")
    top.add_argument("--algorithms", nargs="*", default=[], choices=("PULL", "PUSH", "MULTICORE"))
    top.add_argument("--loop", action="store_true", help="calls back to back")
    top.add_argument("--cluster", action="store_true", help="several nodes with a wire between")
    top.add_argument("--count-bytes", action="store_true", help="that cross the wire")
    top.add_argument("--seconds", type=float, default=20.0, help="for all cells together")
    top.add_argument("--visits", type=int, default=4, help="of each cell")
    top.add_argument("--most", type=int, default=1000, help="repetitions of a cell at most")
    top.add_argument("--least", type=int, default=1, help="repetitions per visit at least")
    top.add_argument("--seed", type=int, default=1)
    return top


def main() -> None:
    """Measure, and let thread 0 write the file."""
    args = parser().parse_args()
    worker = Worker(args)
    network = wire.measure(worker.team, worker.comm) if args.cluster else None
    worker.measure()
    report = worker.report()
    if network is not None:
        report["wire"] = network
    if worker.team.rank == 0:
        write(args.out, report)
    xupc.finalize()


if __name__ == "__main__":
    main()
