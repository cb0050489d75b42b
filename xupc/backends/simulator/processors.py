"""The cores, the caches and the memory of machines, as the clock of a plan shares them out."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...plan.steps import Scan
from ...topology.tree import Tree
from .rates import Rates
from .sim_program import COPY, FUSED, RECV, SEND, WORK, Program, Span, Work

__all__ = ["Memory", "Processors"]


class Memory:
    """Hold what the plans of a call do to memory.

    Attributes
    ----------
    touched
        The bytes of memory that the call touches on each node. Of each operand of each thread it is
        the range from the first byte to the last one.
    """

    def __init__(self, programs: Sequence[Program]) -> None:
        tree = programs[0].tree
        self.writers: dict[tuple[int, int], set[int]] = {}
        ranges: dict[tuple[int, int], list[int]] = {}
        for program in programs:
            for reads, writes in _accesses(program):
                for operand, thread, lo, hi in (*reads, *writes):
                    known = ranges.setdefault((operand, thread), [lo, hi])
                    known[0], known[1] = min(known[0], lo), max(known[1], hi)
                for operand, thread, _, _ in writes:
                    self.writers.setdefault((operand, thread), set()).add(program.plan.rank)
        self._foreign: dict[tuple[int, int], tuple[Sequence[Span], float]] = {}
        self.touched = [0] * tree.node_count
        for (_, thread), (lo, hi) in ranges.items():
            self.touched[tree.node_of(thread)] += hi - lo

    def foreign(self, me: int, reads: Sequence[Span]) -> float:
        """Return which share of what a thread reads is of other threads, or written by them."""
        known = self._foreign.get((me, id(reads)))
        if known is None:  # with the spans, so that no others get their id
            known = self._foreign[me, id(reads)] = reads, self._share_of(me, reads)
        return known[1]

    def _share_of(self, me: int, reads: Sequence[Span]) -> float:
        total = theirs = 0
        for operand, thread, lo, hi in reads:
            total += hi - lo
            if thread != me or self.writers.get((operand, thread), _NOBODY) - {me}:
                theirs += hi - lo
        return theirs / total if total else 0.0


_NOBODY: frozenset[int] = frozenset()


def _accesses(program: Program) -> Iterator[tuple[Sequence[Span], Sequence[Span]]]:
    """Yield what each step of a thread reads and writes on its own node."""
    steps = [step for lane in program.lanes for step in lane]
    for kind, what in steps:
        if kind in (COPY, WORK):
            yield what.reads, what.writes
        elif kind == SEND:
            yield what.spans, ()
        elif kind == RECV:
            yield (), what.spans
        elif kind == FUSED:
            steps.extend(what[1])


class Processors:
    """Say when a thread gets a core, and how long its loads and stores take.

    Parameters
    ----------
    tree
        The nodes. `Rates.nodes` of them in a row are on one machine; 0: all. They share its cores,
        or some of them each, if `Rates.dealt`.
    memory
        What the call does to memory. None: whatever it reads is in no cache, or in its thread's.
    """

    def __init__(self, tree: Tree, rates: Rates, memory: Memory | None) -> None:
        self.rates = rates
        self.memory = memory
        touched = memory.touched if memory else [0] * tree.node_count
        self.each = rates.nodes or tree.node_count
        machines = range(-(-tree.node_count // self.each))
        threads = [0 for _ in machines]
        bytes_of = [0 for _ in machines]
        for node in range(tree.node_count):
            threads[node // self.each] += tree.node_size(node)
            bytes_of[node // self.each] += touched[node]
        self.ends: list[list[float]] = [[] for _ in machines]  # of copies
        self.cached = [self._share(bytes_of[m], threads[m]) for m in machines]
        self.part, self.cores = self._parts(tree.node_count)
        self.sharing = [0 for _ in self.cores]  # threads
        for node, part in enumerate(self.part):
            self.sharing[part] += tree.node_size(node)
        pairs = list(zip(self.cores, self.sharing, strict=True))
        self.crowded = [0 < cores < count for cores, count in pairs]
        self.free = [[0.0] * cores if cores < count else [] for cores, count in pairs]
        self.entered = [0 for _ in pairs]

    def _parts(self, nodes: int) -> tuple[list[int], list[int]]:
        """Return the part of its machine's cores that each node has, and the cores of each part.

        A part is all of them, unless cores are dealt: then one after the other goes to the next
        node, and where there are fewer than nodes, some nodes have the same one.
        """
        part: list[int] = []
        cores: list[int] = []
        for first in range(0, nodes, self.each):
            here = min(self.each, nodes - first)
            parts = min(here, self.rates.cores) if self.rates.dealt and self.rates.cores else 1
            part += [len(cores) + node % parts for node in range(here)]
            cores += [len(range(place, self.rates.cores, parts)) for place in range(parts)]
        return part, cores

    def others(self, node: int) -> float:
        """Return how many other threads share the core of a thread of a node."""
        part = self.part[node]
        return self.sharing[part] / self.cores[part] - 1 if self.crowded[part] else 0.0

    def _share(self, touched: int, threads: int) -> float:
        """Return which share of the bytes of a call is in the caches of a machine's cores."""
        cores = min(threads, self.rates.cores or threads)
        return min(1.0, cores * self.rates.cache / touched) if touched else 1.0

    def busy(self, node: int, now: float, ns: float) -> tuple[float, float]:
        """Return when a thread of a node begins and ends work that it has from `now` on."""
        free = self.free[self.part[node]]
        if not free or not ns:
            return now, now + ns
        start = max(now, heapq.heappop(free))
        heapq.heappush(free, start + ns)
        return start, start + ns

    def resume(self, node: int, now: float) -> float:
        """Return when a thread runs that waited for what is there at `now`."""
        if not self.crowded[self.part[node]]:
            return now
        return self.busy(node, now, self.rates.switch)[1]

    def enter(self, node: int) -> float:
        """Return when a thread that calls at time 0 begins its first step.

        The first ones have a core each; each of the others takes one from a thread that waits.
        """
        part = self.part[node]
        self.entered[part] += 1
        runs = self.entered[part] <= self.cores[part]
        return self.busy(node, 0.0 if runs else self.resume(node, 0.0), self.rates.call)[1]

    def last(self, arrivals: Iterable[tuple[float, int, int]]) -> set[int]:
        """Return the threads that have a core when all have arrived at a barrier.

        Of the threads of a machine, given as (time, thread, node), they are the last ones. None
        where each thread has a core of its own: then `resume` takes no time.
        """
        on_core: set[int] = set()
        if not any(self.crowded):
            return on_core
        count = [0] * len(self.crowded)
        for _, thread, node in sorted(arrivals, reverse=True):
            part = self.part[node]
            count[part] += 1
            if count[part] <= self.cores[part]:
                on_core.add(thread)
        return on_core

    def work(
        self, me: int, node: int, now: float, what: Any, nbytes: int
    ) -> tuple[float, float]:
        """Return when a step by loads and stores of thread `me` begins and ends."""
        rates, machine, part = self.rates, node // self.each, self.part[node]
        free, ends = self.free[part], self.ends[machine]
        start = max(now, heapq.heappop(free)) if free else now
        rate = self.rate(me, machine, what)
        if rates.node_copy != math.inf:
            while ends and ends[0] <= start:
                heapq.heappop(ends)
            rate = min(rate, self._of_all(machine) / (len(ends) + 1))
        end = start + rates.step + nbytes / rate
        if rates.node_copy != math.inf:
            heapq.heappush(ends, end)
        if free or self.crowded[part]:
            heapq.heappush(free, end)
        return start, end

    def rate(self, me: int, machine: int, what: Any) -> float:
        """Return the rate of one thread's step, in bytes per ns."""
        rates = self.rates
        fast = rates.cached or rates.copy
        if isinstance(what, Work):
            own = rates.scan if isinstance(what.step, Scan) else rates.fold
            fast = own or fast
        if rates.crossing and self.memory and rates.crossing < fast:
            fast = _between(rates.crossing, fast, self.memory.foreign(me, what.reads))
        return _between(fast, min(fast, rates.copy), self.cached[machine])

    def _of_all(self, machine: int) -> float:
        """Return the rate of all copies of a machine; bytes in caches do not load its memory."""
        away = 1 - self.cached[machine] if self.rates.cached else 1.0
        return self.rates.node_copy / away if away else math.inf


def _between(fast: float, slow: float, share: float) -> float:
    """Return the rate of bytes of which a share moves at `fast` and the others at `slow`."""
    if share in (0, 1):
        return fast if share else slow
    return 1 / (share / fast + (1 - share) / slow)
