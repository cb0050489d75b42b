"""One thread of a launch: `python -m xupc.bench.worker OUT SETTINGS`, started by the driver.

All candidates of a cell are measured in one run, in an order that is shuffled in each round: a
barrier (xupc's, for all of them), the clock, the call, the clock. The time of a repetition is the
maximum over the threads, computed after the run. Between nodes MPI's barrier comes first, and after
the call the barrier of the candidate's own library: a peer cannot send its buffered messages while
its thread waits in another library's barrier.

The cells are visited several times, first all of them, then those with the widest intervals, so
that a noisy moment of the machine does not affect one cell alone. Thread 0 writes the times of each
visit at once, as a line of JSON, so that they are kept if the job fails.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from mpi4py import MPI

import xupc
from xupc.topology import host
from xupc.topology.host_record import read_boot_id

from . import clocks, machine, stats
from .calls import Memory, our_barrier
from .candidates import Candidates, Timed
from .provenance import provenance
from .results import AGAIN, FLOOR
from .settings import Case, Settings, cases, rooted
from .timing import Lines, keep_busy, timer_of

__all__ = ["Worker", "main"]

MOST = 2000  # repetitions of a candidate in one visit
SLICES = 8  # checks of the time in one visit
OVERRUN = 1.5  # the most that a visit may take, in shares
FIRST = 0.5  # the part of the time for the first visits of all cells
SHORTEST = 0.02  # s, of a visit
IN_TIME = 0.9  # of the time to its end: what a launch aims at
TRIALS = 3
QUICK_NS = 2_000_000  # a call that takes less is tried several times
LOOP_NS = 1_000_000  # the time of calls back to back
MOST_CALLS = 500
SLOW_NS = 20_000_000  # a call that takes more is warmed up once
FEW = 5  # repetitions of a quick call in a trial
LONGEST_NS = 1e9  # between two agreements of all threads


@dataclass
class Measured:
    """Hold a cell under measurement, with the maxima over the threads of all repetitions.

    `spent` is the time of its preparation, visits and checks so far, in seconds.
    """

    case: Case
    timed: list[Timed]
    visits: int = 0
    spent: float = 0.0
    ns: list[list[int]] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Return the widest interval of a median so far, as a share of it."""
        pairs = zip(self.timed, self.ns, strict=True)
        return max((stats.width(ns) for one, ns in pairs if one.kind != FLOOR), default=0.0)


class Worker:
    """Measure my thread's part of the launch.

    Parameters
    ----------
    team : Team
        All threads.
    note : callable
        Takes the results on thread 0: a dict at a time, in order.
    """

    def __init__(
        self, team: Any, settings: Settings, note: Callable[[dict[str, Any]], None]
    ) -> None:
        self.began = time.monotonic()
        # seconds of first checks and trials: of all so far, of the longest; and of the checks alone
        self.opening, self.longest, self.closing = 0.0, SHORTEST, 0.0
        self.world = team
        self.note = note
        self.comm = MPI.COMM_WORLD
        self.settings = settings = self._within(settings)
        self.random = random.Random(settings.seed)  # the same on every thread
        self.team, self.team_comm = self._part()
        self.member = self.team is not None
        self.root_of_all = team.rank == 0
        self.across = self.member and self.team.spans_nodes
        job = team.job
        self.machines: list[int] = self.comm.allgather(job.info.machine[0])
        # "machines" with the same kernel (containers, network namespaces) share their cores
        kernel = read_boot_id() or job.info.machine[0]
        self.kernels: list[str | int] = self.comm.allgather(kernel)
        self.offset = clocks.Offset(0, 0.0, 0.0)
        self.flush = np.zeros(0, np.uint8)
        if self.member and settings.cold:  # all threads of a machine together fill its caches
            self.flush = np.zeros(machine.block_bytes(len(job.info.machine)) or 0, np.uint8)
        if self.member:
            largest = max(*settings.sizes, 8)
            self.memory = Memory(self.team, self.team_comm, largest)
            self.candidates = Candidates(settings, self.memory)
            self.barrier = our_barrier(self.memory).function
        self.timed = timer_of(self.world)
        self.cells = [self._prepared(case) for case in cases(settings)]
        self._share_bytes()
        gc.collect()
        gc.freeze()  # existing objects stay, so that collections need not examine them

    def _within(self, settings: Settings) -> Settings:
        """Return settings with the time that is left, where a launch must end at a time."""
        if settings.until is None:
            return settings
        left = max(0.0, self.comm.bcast(settings.until - time.time()))
        left = min(left, settings.seconds)  # clocks of two machines may differ
        return settings.but(seconds=IN_TIME * left, limit=left)

    def _part(self) -> tuple[Any, Any]:
        """Return the team that measures and a communicator of its threads; None off it."""
        world, comm = self.world, self.comm
        if self.settings.team == "world":
            return world, comm
        node = world.tree.node_of(world.rank)
        if self.settings.team == "node":
            return world.node, comm.Split(node, world.rank)
        team = world.roots
        color = 0 if team is not None else MPI.UNDEFINED
        return team, comm.Split(color, world.rank)

    # -- candidates --------------------------------------------------------------------------
    def _prepared(self, case: Case) -> Measured:
        began = time.monotonic()
        timed = list(self._timed(case)) if self.member else []
        names = self.comm.bcast([(t.name, t.kind, t.text, t.algorithm) for t in timed])
        if not self.member:
            timed = [Timed(name, kind, text, [], how) for name, kind, text, how in names]
        return Measured(case, timed, ns=[[] for _ in timed], spent=time.monotonic() - began)

    def _share_bytes(self) -> None:
        """Add up over all threads the bytes that each call moves between nodes; collective."""
        every = [one for measured in self.cells for one in measured.timed]
        mine = np.array([-1.0 if t.network_bytes is None else t.network_bytes for t in every])
        if not len(mine):
            return
        total, least = np.empty_like(mine), np.empty_like(mine)
        self.comm.Allreduce(np.maximum(mine, 0), total, MPI.SUM)
        unknown = np.minimum(mine, 0) if self.member else np.zeros_like(mine)
        self.comm.Allreduce(unknown, least, MPI.MIN)
        for one, count, known in zip(every, total, least == 0, strict=True):
            one.network_bytes = round(count) if known else None

    def _timed(self, case: Case) -> Iterator[Timed]:
        """Yield the candidates of a cell."""
        return self.candidates.of(case)

    # -- one cell ----------------------------------------------------------------------------
    def visit(self, number: int, seconds: float) -> None:
        """Check results where due, then measure for about so many seconds; collective."""
        gc.collect()
        began, measured = time.monotonic(), self.cells[number]
        fresh = not measured.visits
        wrong = self.check(measured) if fresh or self.settings.check else []
        if fresh:
            self.closing += time.monotonic() - began
            self.try_out(measured)
            self.opening += time.monotonic() - began
            self.longest = max(self.longest, time.monotonic() - began)
        iterations = self.settings.iterations
        free = iterations is not None and not self.settings.limited
        counts = [0] * len(measured.timed) if free else self.counts(measured, seconds)
        if iterations is not None:
            counts = [iterations if free else min(iterations, n) for n in counts]
        before = self.compare_clocks()
        self.run(measured, counts, None if free else seconds)
        self.offset = self.compare_clocks()
        measured.visits += 1
        self.report(number, measured, before, wrong)
        measured.spent += time.monotonic() - began

    def check(self, measured: Measured) -> list[list[int]]:
        """Return the threads that found wrong results, by candidate; collective."""
        found = []
        for one in measured.timed:
            right = True
            if self.member and one.kind != FLOOR:
                for salt, call in enumerate(one.calls, 101 * measured.visits):
                    call.prepare(salt)
                    self.barrier()
                    returned = call()
                    self.leave(one)
                    right &= call.is_right(returned, salt)
            every = xupc.allv_gather_all(bool(right))
            found.append([thread for thread, good in enumerate(every) if not good])
        return found

    def try_out(self, measured: Measured) -> None:
        """Warm up, and measure the cost of a repetition of each candidate."""
        for i, one in enumerate(measured.timed):
            trial = Measured(measured.case, [one], ns=[[]])
            took = self.run(trial, [1])
            if took < SLOW_NS:  # else that was enough
                self.run(trial, [self.settings.warmup])
                took = self.run(trial, [1])
            for _ in range(TRIALS):  # the machine may be busy during any of them
                if took < QUICK_NS:
                    took = min(took, self.run(trial, [FEW]))
            measured.timed[i].cost = took
            one.begins.clear()
            one.ends.clear()
        same = [t for i, t in enumerate(measured.timed) if i == 0 or t.kind == AGAIN]
        for one in same:
            one.cost = min(t.cost for t in same)
        if self.settings.loop:
            for one in measured.timed:
                one.loops = self.agreed(max(1, min(MOST_CALLS, int(LOOP_NS / one.cost))))
                one.cost *= one.loops

    def counts(self, measured: Measured, seconds: float) -> list[int]:
        """Return the repetitions by cost: equal times for candidates, equal numbers for A and A."""
        share = seconds * 1e9 / max(1, len(measured.timed))
        return [max(1, min(MOST, int(share / max(1.0, t.cost)))) for t in measured.timed]

    def run(self, measured: Measured, counts: Sequence[int], seconds: float | None = None) -> float:
        """Measure, stop early where costs were underrated; return ns per round. Collective."""
        rounds = self.shuffled(counts)
        cost = sum(t.cost for t in measured.timed) or LONGEST_NS
        length = max(1, min(-(-len(rounds) // SLICES), int(LONGEST_NS / cost)))
        self.agreed(0)
        begin, took = time.perf_counter_ns(), 0
        for start in range(0, len(rounds), length):
            if seconds is not None and took > OVERRUN * seconds * 1e9:
                break
            order = [i for one in rounds[start : start + length] for i in one]
            if self.member:
                self.run_slice(measured, order)
            took = self.agreed(time.perf_counter_ns() - begin)
        return took / max(1, len(rounds))

    def run_slice(self, measured: Measured, order: Sequence[int]) -> None:
        """Time calls in the given order, with only the call between the two clock readings."""
        barrier, clock, timed = self.barrier, time.perf_counter_ns, self.timed
        settle = self.team_comm.Barrier if self.across else None
        plain = not (self.settings.cold or self.settings.busy or self.settings.loop)
        quick = settle is None and plain
        for i in order:
            one = measured.timed[i]
            call = one.calls[one.turn]
            one.turn = (one.turn + 1) % len(one.calls)
            function, arguments = call.function, call.arguments
            if call.vary is not None:
                call.vary()
            if quick:
                barrier()
                begin, end = timed(function, arguments)
            else:
                self.flush += 1
                if settle is not None:
                    settle()
                barrier()
                begin = clock()
                for _ in repeat(None, one.loops):
                    function(*arguments)
                end = clock()
                if settle is not None:
                    self.leave(one)
                keep_busy(self.settings.busy)
            one.begins.append(begin)
            one.ends.append(end)

    def leave(self, one: Timed) -> None:
        """Wait in a barrier of the call's own library, which sends its buffered messages there."""
        (self.team_comm.Barrier if self.across and one.by_mpi else self.barrier)()

    def shuffled(self, counts: Sequence[int]) -> list[list[int]]:
        """Return indices of candidates, by rounds; those with fewer repetitions are spread out."""
        most = max(counts, default=0)
        rounds: list[list[int]] = []
        for r in range(most):
            # rounded up: a candidate with a single repetition comes in the first round
            done = [-(-r * n // most) for n in counts]
            due = [-(-(r + 1) * n // most) for n in counts]
            rounds.append([i for i in range(len(counts)) if due[i] > done[i]])
            self.random.shuffle(rounds[-1])
        return rounds

    # -- all threads together ----------------------------------------------------------------
    def agreed(self, value: int) -> int:
        """Return the maximum over all threads.

        All agreements between visits use xupc. Where there are more threads than cores, MPI's
        waiting threads would take the cores from the threads that they wait for.
        """
        return int(xupc.allv_reduce_all(value, xupc.MAX))

    def joined(self, values: Any, op: Any) -> Any:
        """Reduce values element by element over all threads."""
        found = np.empty_like(values)
        if len(values):
            xupc.allav_reduce_all(found, values, op)
        return found

    def compare_clocks(self) -> clocks.Offset:
        """Compare my clock with thread 0's; collective."""
        if len(set(self.machines)) == 1:
            return clocks.Offset(0, 0.0, 0.0)
        return clocks.compare(self.comm, self.machines)

    def report(
        self, number: int, measured: Measured, before: clocks.Offset, wrong: list[list[int]]
    ) -> None:
        """Note the maxima over the threads of every repetition of this visit; collective."""
        found, skews = [], []
        for one, kept in zip(measured.timed, measured.ns, strict=True):
            n = self.agreed(len(one.begins))
            begins = np.array(one.begins or [0] * n, np.int64)
            ends = np.array(one.ends or [0] * n, np.int64)
            found.append((self.joined(ends - begins, xupc.MAX) // one.loops).tolist())
            kept += found[-1]
            skews.append(self.skew(before, begins, n))
            one.begins.clear()
            one.ends.clear()
        uncertainty = self.agreed(ceil(max(before.uncertainty, self.offset.uncertainty)))
        if self.root_of_all:
            visit: dict[str, Any] = {"cell": number, "ns": found, "uncertainty ns": uncertainty}
            if any(skews):
                visit["skew ns"] = float(np.median([s for s in skews if s]))
            if wrong:
                visit["wrong"] = wrong
            self.note(visit)

    def skew(self, before: clocks.Offset, begins: Any, n: int) -> float:
        """Return the median time between the first and the last start of a call; collective."""
        times = begins
        if before.at and self.member:
            times = clocks.interpolated(before, self.offset, begins)
        none = np.iinfo(np.int64)
        first = self.joined(times if self.member else np.full(n, none.max), xupc.MIN)
        last = self.joined(times if self.member else np.full(n, none.min), xupc.MAX)
        return float(np.median(last - first)) if n else 0.0

    # -- the launch --------------------------------------------------------------------------
    def measure(self) -> None:
        """Measure all cells once, then those with the widest intervals, until the time is up."""
        gc.disable()  # a collection during a call would count as its time
        began, load, used = time.time(), os.getloadavg()[0], self.used()
        if self.root_of_all:
            self.note(self.head(began))
        self.visit_all()
        self.close()
        others = self.others(used, self.used())
        if self.root_of_all:
            self.note({
                "seconds": time.monotonic() - self.began, "load": [load, os.getloadavg()[0]],
                "others": others, "costs": [round(one.spent, 6) for one in self.cells],
            })  # fmt: skip
        gc.enable()

    def visit_all(self) -> None:
        """Visit all cells, or those that the limit leaves time for; then the widest; collective."""
        settings, cells = self.settings, len(self.cells)
        seconds = settings.seconds
        first = FIRST if settings.iterations is None else 1.0  # then there is one visit only
        for k in range(cells):
            if self.is_spent():
                return
            share = (seconds * first - self.passed) / (cells - k) - self.opening / max(1, k)
            self.visit(k, max(SHORTEST, xupc.allv_broadcast(share, 0)))
        share = max(SHORTEST, seconds * (1 - FIRST) / cells / 2)
        while settings.iterations is None:
            over = self.passed + share / 2 > seconds
            number = xupc.allv_broadcast(-1 if over else self.widest(), 0)
            if number < 0:
                return
            self.visit(number, share)

    def is_spent(self) -> bool:
        """Return whether one more visit may pass the limit; collective."""
        limit = self.settings.limit
        if limit is None:
            return False
        return bool(xupc.allv_broadcast(self.passed + self.longest > limit, 0))

    def close(self) -> None:
        """Check the results of all visited cells once more; collective."""
        for number, measured in enumerate(self.cells):
            if not measured.visits:
                continue
            began = time.monotonic()
            wrong = self.check(measured)
            if self.root_of_all:
                self.note({"cell": number, "ns": [[] for _ in measured.timed], "wrong": wrong})
            measured.spent += time.monotonic() - began

    @property
    def passed(self) -> float:
        """Return the seconds since the start on this thread, with those of the last checks."""
        return time.monotonic() - self.began + self.closing

    def used(self) -> tuple[float, float, float]:
        """Return seconds of thread 0's cores: busy, in all, and used by the job's threads there.

        Collective. Time that the host gave to its other machines counts as busy, since the threads
        could not use it. The cores are those on which thread 0 may run.
        """
        mine = self.comm.allgather(time.process_time())
        ours = sum(s for s, kernel in zip(mine, self.kernels, strict=True)
                   if kernel == self.kernels[0])  # fmt: skip
        allowed = host.affinity()
        cores = [c for i, c in enumerate(psutil.cpu_times(percpu=True)) if i in allowed]
        every = sum(sum(core) - getattr(core, "guest", 0.0) for core in cores)
        idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in cores)
        return every - idle, every, ours

    def others(
        self, before: tuple[float, float, float], after: tuple[float, float, float]
    ) -> float:
        """Return the share of the cores' time that was neither this job's nor idle."""
        worked, there, ours = (y - x for x, y in zip(before, after, strict=True))
        return round(min(1.0, max(0.0, (worked - ours) / max(there, 0.1))), 3)

    def widest(self) -> int:
        """Return the cell that needs time most; cells with many visits count less."""
        before = self.settings.widths or [0.0] * len(self.cells)
        need = [
            (measured.width + width) / measured.visits**0.5
            for measured, width in zip(self.cells, before, strict=True)
        ]
        return int(np.argmax(need))

    def head(self, began: float) -> dict[str, Any]:
        """Return the cells, and the threads and nodes that measure them."""
        tree = self.world.tree
        return {
            "threads": self.world.size,
            "nodes": [list(map(int, node)) for node in tree.nodes],
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
            "seed": self.settings.seed,
            "clock": "monotonic" if len(set(self.machines)) == 1 else "offsets",
            "cells": [self.cell(measured) for measured in self.cells],
        }

    def cell(self, measured: Measured) -> dict[str, Any]:
        """Return a cell of the result without its times."""
        case, settings = measured.case, self.settings
        moves = self.member and case.collective != "barrier"
        works = self.candidates.works(case) if moves else []
        root = {"rotate": "rotated"}.get(settings.root, str(works[0].root) if works else "")
        return {
            "collective": case.collective,
            "nbytes": case.nbytes,
            "moved": works[0].moved if works else 0,
            "dtype": case.dtype if case.op else "",
            "op": case.op,
            "sync": case.sync or "allsync",
            "root": root if rooted(case.collective) else "",
            "team": settings.team,
            "api": settings.api,
            "cold": settings.cold,
            "loop": settings.loop,
            "candidates": [one.head() for one in measured.timed],
        }


def main(arguments: Sequence[str]) -> None:
    """Measure what the settings ask for and write it to a file."""
    out, text = Path(arguments[0]), arguments[1]
    with xupc.init() as team:
        facts = provenance(team)
        lines = Lines(out) if team.rank == 0 else None
        note = lines.write if lines is not None else (lambda _: None)
        for line in facts:
            note(line)
        try:
            Worker(team, Settings.from_json(text), note).measure()
        except Exception as error:
            note({"error": f"{type(error).__name__}: {error}"})
            raise
        except KeyboardInterrupt:  # the driver reports it; a traceback would not help
            sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
