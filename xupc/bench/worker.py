"""One thread of a launch: `python -m xupc.bench.worker OUT SETTINGS`, started by the driver.

All candidates of a cell are measured in one run, in an order that is shuffled anew in each round:
a barrier (xupc's, for all of them), the clock, the call, the clock. The time of a repetition is
the maximum over the threads, found after the run. Between nodes MPI's barrier comes first, and
after the call that of the candidate's own library: a peer whose messages were buffered could
not send them while its thread waits in a barrier of somebody else.

The cells are visited several times, first all of them, then those whose intervals are widest, so
that a noisy moment of the machine does not fall on one cell alone. What a visit found is written
by thread 0 at once, a line of JSON each: whatever ends the job, it is not lost.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from math import ceil
from pathlib import Path
from typing import IO, Any

import mpi4py
import numpy as np
import psutil
from mpi4py import MPI

import xupc
from xupc.backends.native.native_core import core
from xupc.specs import parse_name
from xupc.topology import host
from xupc.topology.host_record import read_boot_id

from . import clocks, machine, stats
from .calls import Call, Memory, bcast_and_copy, our_barrier, our_call, peer_barrier, peer_call
from .oracle import Work
from .results import AGAIN, FLOOR, OURS, PEER
from .settings import Case, Settings, cases, flags_of, root_of, rooted

__all__ = ["Worker", "main", "provenance"]

MOST = 2000  # repetitions of a candidate in one visit
SLICES = 8  # the clock is looked at so often in a visit
OVERRUN = 1.5  # a visit may take so many times its share
FIRST = 0.5  # of the time, for the first visit of all cells
SHORTEST = 0.02  # seconds of a visit
TRIALS = 3
QUICK_NS = 2_000_000  # a call that takes less is tried several times
LOOP_NS = 1_000_000  # calls back to back last about so long
MOST_CALLS = 500
LARGE = 1 << 20  # from here on Bcast is measured together with the root's own copy, too
SLOW_NS = 20_000_000  # a call that takes more is warmed up once
FEW = 5  # repetitions of a quick call in a trial
LONGEST_NS = 1e9  # between two words from thread to thread


@dataclass
class Timed:
    """A candidate and its times on my thread; several calls: one after the other in turn."""

    name: str
    kind: str
    text: str
    calls: list[Call]
    algorithm: str = ""
    network_bytes: float | None = None
    cost: float = 0.0  # ns of a repetition with all that is around it
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    turn: int = 0
    loops: int = 1

    def head(self) -> dict[str, Any]:
        """What it is, without its times."""
        return {
            "name": self.name,
            "kind": self.kind,
            "call": self.text,
            "algorithm": self.algorithm,
            "network_bytes": self.network_bytes,
        }


@dataclass
class Measured:
    """A cell under measurement; thread 0 keeps the maxima of all its repetitions."""

    case: Case
    timed: list[Timed]
    visits: int = 0
    ns: list[list[int]] = field(default_factory=list)

    @property
    def width(self) -> float:
        """The widest interval of a median so far, as a share of it."""
        pairs = zip(self.timed, self.ns, strict=True)
        return max((stats.width(ns) for one, ns in pairs if one.kind != FLOOR), default=0.0)


class Worker:
    """My thread's part of the launch.

    Parameters
    ----------
    team : Team
        All threads.
    note : callable
        Takes what is found, on thread 0: a dict at a time, in order.
    """

    def __init__(
        self, team: Any, settings: Settings, note: Callable[[dict[str, Any]], None]
    ) -> None:
        self.world = team
        self.settings = settings
        self.note = note
        self.comm = MPI.COMM_WORLD
        self.random = random.Random(settings.seed)  # the same on every thread
        self.team, self.team_comm = self._part()
        self.member = self.team is not None
        self.root_of_all = team.rank == 0
        self.across = self.member and self.team.spans_nodes
        job = team.job
        self.machines: list[int] = self.comm.allgather(job.machine[0])
        # machines with the same kernel (containers, network namespaces) share their cores
        kernel = read_boot_id() or job.machine[0]
        self.kernels: list[str | int] = self.comm.allgather(kernel)
        self.offset = clocks.Offset(0, 0.0, 0.0)
        self.flush = np.zeros(0, np.uint8)
        if self.member and settings.cold:  # all threads of a machine together fill its caches
            self.flush = np.zeros(machine.block_bytes(len(job.machine)) or 0, np.uint8)
        if self.member:
            largest = max(*settings.sizes, 8)
            self.memory = Memory(self.team, self.team_comm, largest)
            self.barrier = our_barrier(self.memory).function
        self.timed = timer_of(self.world)
        self.cells = [self._prepared(case) for case in cases(settings)]
        self._share_bytes()
        gc.collect()
        gc.freeze()  # what is there now stays, and need not be looked at again and again

    def _part(self) -> tuple[Any, Any]:
        """The team that measures, and a communicator of its threads; None off it."""
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
        timed = list(self._timed(case)) if self.member else []
        names = self.comm.bcast([(t.name, t.kind, t.text, t.algorithm) for t in timed])
        if not self.member:
            timed = [Timed(name, kind, text, [], how) for name, kind, text, how in names]
        return Measured(case, timed, ns=[[] for _ in timed])

    def _share_bytes(self) -> None:
        """Of every call, what all threads together move between nodes; collective."""
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
        settings, call = self.settings, case.collective
        if call == "barrier":
            yield Timed("xupc", OURS, "barrier()", [our_barrier(self.memory)])
            if settings.again:
                yield Timed("xupc again", AGAIN, "barrier()", [our_barrier(self.memory)])
            if settings.peer:
                yield Timed("mpi4py", PEER, "comm.Barrier", [peer_barrier(self.memory)])
            yield Timed("floor", FLOOR, "nothing", [Call(bool)])
            return
        for algorithm in settings.algorithms:
            name = "xupc" if algorithm == "auto" else algorithm
            yield self._ours(case, name, OURS, flags_of(algorithm, case.sync))
        first = settings.algorithms[0]
        if settings.again:
            name = "xupc again" if first == "auto" else f"{first} again"
            yield self._ours(case, name, AGAIN, flags_of(first, case.sync))
        if settings.plan and (planned := self._planned(case)) is not None:
            yield planned
        if settings.peer:
            yield from self._peers(case)
        yield Timed("floor", FLOOR, "nothing", [Call(bool)])  # the quickest call there is

    def works(self, case: Case) -> list[Work]:
        """What the calls of a cell do, one for each root."""
        form, spec = parse_name(case.collective)
        dtype = np.dtype(case.dtype)
        team = self.team
        roots = root_of(self.settings, team.size) if rooted(case.collective) else (0,)
        count, values = case.nbytes // dtype.itemsize, form in ("allav", "allv")
        return [
            Work(spec.name, count, dtype, case.op, root, team.rank, team.size, values)
            for root in roots
        ]

    def _ours(self, case: Case, name: str, kind: str, flags: int) -> Timed:
        calls = [our_call(case.collective, w, self.memory, flags) for w in self.works(case)]
        algorithm = name.removesuffix(" again")
        words = ["...", *([algorithm] if algorithm != "xupc" else [])]
        words += [case.sync] if case.sync != "allsync" else []
        plans = [_plan_of(call) for call in calls]
        return self._of_plans(name, kind, f"{case.collective}({', '.join(words)})", calls, plans)

    def _of_plans(
        self, name: str, kind: str, text: str, calls: list[Call], plans: list[Any]
    ) -> Timed:
        """A candidate of which plans tell more: of several roots the average bytes."""
        found = Timed(name, kind, text, calls)
        if None not in plans:
            node_of = self.team.rank_tree.node_of
            instances = [plan.instance for plan in plans if plan.instance is not None]
            sent = sum(instance.plan.bytes_between_nodes(node_of) for instance in instances)
            found.algorithm = plans[0].algorithm
            found.network_bytes = sent / len(plans)
        return found

    def _planned(self, case: Case) -> Timed | None:
        """The library's choice as a plan that is replayed."""
        flags = flags_of("auto", case.sync)
        full = [our_call(case.collective, w, self.memory, flags) for w in self.works(case)]
        plans = [_plan_of(call) for call in full]
        if None in plans:
            return None
        calls = [replace(c, function=p, arguments=()) for c, p in zip(full, plans, strict=True)]
        return self._of_plans("plan", OURS, f"{case.collective}.plan(...)()", calls, plans)

    def _peers(self, case: Case) -> Iterator[Timed]:
        """mpi4py's; of a large broadcast also with the copy that ours makes at the root."""
        works = self.works(case)
        found = [peer_call(case.collective, work, self.memory) for work in works]
        calls = [peer[1] for peer in found if peer is not None]
        if not calls or found[0] is None:
            return
        yield Timed("mpi4py", PEER, f"comm.{found[0][0]}", calls)
        if case.collective == "all_broadcast" and case.nbytes >= LARGE:
            calls = [bcast_and_copy(work, self.memory) for work in works]
            yield Timed("mpi4py and copy", PEER, "comm.Bcast and the root's copy", calls)

    # -- one cell ----------------------------------------------------------------------------
    def visit(self, number: int, seconds: float) -> None:
        """Check results if it is time to, then measure for about so many seconds; collective."""
        gc.collect()
        measured = self.cells[number]
        fresh = not measured.visits
        wrong = self.check(measured) if fresh or self.settings.check else []
        if fresh:
            self.try_out(measured)
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

    def check(self, measured: Measured) -> list[list[int]]:
        """Which threads found wrong results, by candidate; collective."""
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
        """Warm up, and find out what a repetition of each candidate costs."""
        for i, one in enumerate(measured.timed):
            trial = Measured(measured.case, [one], ns=[[]])
            took = self.run(trial, [1])
            if took < SLOW_NS:  # else that was enough
                self.run(trial, [self.settings.warmup])
                took = self.run(trial, [1])
            for _ in range(TRIALS):  # any of them may have met a busy moment
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
        """Repetitions by cost: the same time for each candidate, the same number for A and A."""
        share = seconds * 1e9 / max(1, len(measured.timed))
        return [max(1, min(MOST, int(share / max(1.0, t.cost)))) for t in measured.timed]

    def run(self, measured: Measured, counts: Sequence[int], seconds: float | None = None) -> float:
        """Measure, and stop early where costs were underrated; ns per round. Collective."""
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
        """Nothing but the call is between the two looks at the clock."""
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
                _keep_busy(self.settings.busy)
            one.begins.append(begin)
            one.ends.append(end)

    def leave(self, one: Timed) -> None:
        """After a call, a barrier of its own library: nobody else sends what that has buffered."""
        (self.team_comm.Barrier if self.across and one.kind == PEER else self.barrier)()

    def shuffled(self, counts: Sequence[int]) -> list[list[int]]:
        """Indices of candidates, by rounds; those with fewer repetitions are spread out."""
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
        """The maximum over all threads.

        By xupc, as all that threads have to agree on between visits: MPI's waiting threads would
        keep those from their cores that they wait for, where there are more threads than cores.
        """
        return int(xupc.allv_reduce_all(value, xupc.MAX))

    def joined(self, values: Any, op: Any) -> Any:
        """Element by element over all threads."""
        found = np.empty_like(values)
        if len(values):
            xupc.allav_reduce_all(found, values, op)
        return found

    def compare_clocks(self) -> clocks.Offset:
        """My clock against thread 0's; collective."""
        if len(set(self.machines)) == 1:
            return clocks.Offset(0, 0.0, 0.0)
        return clocks.compare(self.comm, self.machines)

    def report(
        self, number: int, measured: Measured, before: clocks.Offset, wrong: list[list[int]]
    ) -> None:
        """Maxima over the threads of every repetition since the last visit; collective."""
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
        """By how much threads left the barrier one after the other, in the middle; collective."""
        times = begins
        if before.at and self.member:
            times = clocks.interpolated(before, self.offset, begins)
        none = np.iinfo(np.int64)
        first = self.joined(times if self.member else np.full(n, none.max), xupc.MIN)
        last = self.joined(times if self.member else np.full(n, none.min), xupc.MAX)
        return float(np.median(last - first)) if n else 0.0

    # -- the launch --------------------------------------------------------------------------
    def measure(self) -> None:
        """All cells once, then those whose intervals are widest, till the time is up."""
        gc.disable()  # a collection in the middle of a call would count as its time
        began, load, used = time.time(), os.getloadavg()[0], self.used()
        if self.root_of_all:
            self.note(self.head(began))
        start = time.monotonic()
        seconds, cells = self.settings.seconds, len(self.cells)
        first = FIRST if self.settings.iterations is None else 1.0  # then there is one visit only
        for k in range(cells):
            spent = xupc.allv_broadcast(time.monotonic() - start, 0)
            self.visit(k, max(SHORTEST, (seconds * first - spent) / (cells - k)))
        share = max(SHORTEST, seconds * (1 - FIRST) / cells / 2)
        while self.settings.iterations is None:
            over = time.monotonic() - start + share / 2 > seconds
            number = xupc.allv_broadcast(-1 if over else self.widest(), 0)
            if number < 0:
                break
            self.visit(number, share)
        for number, measured in enumerate(self.cells):
            wrong = self.check(measured)
            if self.root_of_all:
                self.note({"cell": number, "ns": [[] for _ in measured.timed], "wrong": wrong})
        others = self.others(used, self.used())
        if self.root_of_all:
            loads = [load, os.getloadavg()[0]]
            self.note({"seconds": time.monotonic() - start, "load": loads, "others": others})
        gc.enable()

    def used(self) -> tuple[float, float, float]:
        """Of thread 0's machine: seconds its cores worked, seconds they existed, by its threads.

        Collective. What the host gave to its other machines counts as worked: the threads wanted
        it. The cores are those that thread 0 may run on.
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
        """The share of the cores' time that was not this job's and not idle."""
        worked, there, ours = (y - x for x, y in zip(before, after, strict=True))
        return round(min(1.0, max(0.0, (worked - ours) / max(there, 0.1))), 3)

    def widest(self) -> int:
        """The cell that needs time most; those visited often are taken less readily."""
        before = self.settings.widths or [0.0] * len(self.cells)
        need = [
            (measured.width + width) / measured.visits**0.5
            for measured, width in zip(self.cells, before, strict=True)
        ]
        return int(np.argmax(need))

    def head(self, began: float) -> dict[str, Any]:
        """What is measured, and where."""
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
        """A cell of the result, but for its times."""
        case, settings = measured.case, self.settings
        works = [] if case.collective == "barrier" or not self.member else self.works(case)
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
            "cold": settings.cold,
            "loop": settings.loop,
            "candidates": [one.head() for one in measured.timed],
        }


def _nothing(*_: Any) -> None:
    """What takes no notes."""


def _keep_busy(rounds: int) -> None:
    """Something that costs time and leaves the caches alone."""
    total = 0
    for k in range(rounds):
        total += k * k


def _plan_of(call: Call) -> Any:
    """A plan of the same call; None if there is no such thing."""
    function: Any = call.function
    keywords: dict[str, Any] = {}
    if isinstance(function, partial):
        function, keywords = function.func, function.keywords
    make = getattr(function, "plan", None)
    return None if make is None else make(*call.arguments, **keywords)


def about(team: Any) -> dict[str, Any]:
    """Where figures come from; collective."""
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    text = MPI.Get_library_version().strip("\0\n ")
    first = text.splitlines()[0].partition(",")[0].replace("Version:", "")
    device = next((w for w in text.split() if w.startswith(("ch3:", "ch4:"))), "")
    cores = MPI.COMM_WORLD.allgather(sorted(host.affinity()))
    place = team.place
    return {
        "xupc": xupc.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "mpi": " ".join(first.split()),
        "mpi family": place.family,
        "transport": place.transport,
        "thread level": levels[MPI.Query_thread()],
        "netmod": device,
        "native core": bool(team.job.native),
        "binding": _binding(cores),
        "cores": team.job.cores,
        "oversubscribed": place.oversubscribed,
        "tuning": team.table.name,
        "processor": _processor(),
        "timer ns": _timer(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int, int]:
    """The clock before and after a call."""
    clock = time.perf_counter_ns
    begin = clock()
    function(*arguments)
    return begin, clock()


def timer_of(team: Any) -> Callable[..., tuple[int, int]]:
    """What times a call: the core's own, if its clock is Python's; that costs half as much."""
    same = "CLOCK_MONOTONIC)" in time.get_clock_info("perf_counter").implementation
    return core.timed if team.job.native and same else _timed


def _timer() -> float:
    """What one look at the clock takes in Python, on average: the runs with a busy loop have it."""
    clock, rounds = time.perf_counter_ns, 1000
    begin = clock()
    for _ in range(rounds):
        clock()
    return (clock() - begin) / rounds


def _binding(cores: list[list[int]]) -> str:
    """How threads are bound, in words."""
    if len({tuple(c) for c in cores}) == 1:
        return f"all threads on {len(cores[0])} core{'s'[: len(cores[0]) != 1]}"
    sizes = {len(c) for c in cores}
    return f"{min(sizes)} to {max(sizes)} cores each" if len(sizes) > 1 else f"{sizes.pop()} each"


def _processor() -> str:
    """The processor's name as Linux tells it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


class Lines:
    """A file of JSON lines: each is on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self.file: IO[str] = path.open("w", encoding="utf-8")

    def write(self, found: dict[str, Any]) -> None:
        """One more."""
        self.file.write(json.dumps(found, separators=(",", ":")) + "\n")
        self.file.flush()


def provenance(team: Any) -> list[dict[str, Any]]:
    """The first lines of a launch: where figures come from, and what the machine can do.

    Collective.
    """
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(platform.node())
    head = {"about": about(team), "hosts": [hosts[node[0]] for node in team.tree.nodes]}
    return [head, {"bounds": machine.measure(team, comm)}]


def main(arguments: Sequence[str]) -> None:
    """Measure what the settings ask for and write it to a file."""
    out, text = Path(arguments[0]), arguments[1]
    with xupc.init() as team:
        facts = provenance(team)
        lines = Lines(out) if team.rank == 0 else None
        note = lines.write if lines is not None else _nothing
        for line in facts:
            note(line)
        try:
            Worker(team, Settings.from_json(text), note).measure()
        except Exception as error:
            note({"error": f"{type(error).__name__}: {error}"})
            raise
        except KeyboardInterrupt:  # the driver says that it came; where I was is of no interest
            sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
