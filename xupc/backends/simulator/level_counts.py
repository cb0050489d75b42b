"""Count what a call moves across the borders of each level, and price its longest chain.

The plans of all threads run on the clock of `timeline`, whose latencies here depend on the
narrowest domain that two threads share. The counts are exact for the plans; the times are a model:

* a thread reads bytes from the thread that wrote them last in the call, else from the one in whose
  memory they are. What it writes into the memory of another thread has to go there;
* a step's access to one place costs one latency, and `PARALLEL_LINES` lines are on their way at
  the same time. Threads slow each other down only at the borders of domains: a call is not shorter
  than the bytes that cross one of them take at its rate;
* the operation of a reduction takes no time;
* a signal is a cache line that each waiting thread reads once;
* a barrier inside a node is flat or by levels, as the core chooses: by levels arrivals and releases
  pass the roots of all domains. A sleeping thread is not priced: nothing is waited for but lines;
* a barrier on several nodes has one exchange of messages, in which a led call sends its data, too;
* bytes and messages between nodes count at the level "node".
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...records import record
from ...topology.levels import Level, NodeLevels
from ...topology.tree import Tree
from .message_clock import Lane
from .rates import DEFAULTS, Rates, rates_of
from .sim_program import Moves, Program, Span
from .timeline import FEW_NODES, Clock, Prepared

__all__ = ["LATENCY_NS", "PARALLEL_LINES", "SOURCES", "Counted", "LevelCount", "count"]

LINE: Final = 64
FLAT_THREADS: Final = 16
"""The most threads of a node whose barrier is flat; more of them use levels or one counter."""

LATENCY_NS: Final = {
    "node": 200.0, "socket": 100.0, "die": 100.0, "numa": 100.0, "l3": 25.0, "cluster": 25.0,
    "l2": 25.0, "core": 8.0,
}  # fmt: skip
"""Latency of a cache line between two threads, by the narrowest domain that both are in."""
PARALLEL_LINES: Final = 10
"""Cache lines that one core waits for at the same time."""
BORDER_RATE: Final = {"socket": 144.0, "die": 144.0, "numa": 100.0, "l3": 50.0}
"""Bytes per ns that enter or leave a domain; the borders of other levels have no limit."""
SOURCES: Final = (
    "latencies within an L3 domain, a socket and a node: assumed, round figures of the order that "
    "core-to-core measurements find. One to compare: 15 to 19 ns within and up to 79.5 ns across "
    "the L3 domains of a Ryzen 9 7950X (AnandTech's review, 2022)",
    "latency between the hardware threads of a core, and the lines on their way: assumed",
    "bytes over the border of a socket: 4 links of 16 lanes at 18 GT/s, as between two EPYC 7763; "
    "of a NUMA node and of an L3 domain: assumed",
    f"between nodes: {DEFAULTS['wire latency ns'] / 1e3:.0f} us and "
    f"{DEFAULTS['wire rate'] / 1e9:.2f} GB/s, the defaults of `xupc report`",
)
"""Where the parameters come from."""


@record
class LevelCount:
    """The traffic across the borders of the domains of one level.

    Attributes
    ----------
    level
        A name of a level, or "thread": each thread is a domain.
    domains
        Their number.
    nbytes, lines
        The data that crosses, and the cache lines that hold it. A place that a step reads twice
        counts once.
    signals
        Cache lines of signals and barriers; between nodes messages.
    chain
        The most crossings of exactly this level that follow each other.
    """

    level: str
    domains: int
    nbytes: int
    lines: int
    signals: int
    chain: int


@record
class Counted:
    """Hold the counts of a call by level, from the nodes on, and its modelled time.

    Attributes
    ----------
    chain_ns
        The longest chain of accesses, signals and messages.
    border_ns
        The bytes over the busiest border, at the rate of its level.
    """

    levels: tuple[LevelCount, ...]
    chain_ns: float
    border_ns: float

    @property
    def time_ns(self) -> float:
        """The modelled time: a call takes at least each of the two."""
        return max(self.chain_ns, self.border_ns)


@record
class Domains:
    """The levels of a team's threads on all nodes.

    Attributes
    ----------
    names
        From "node" to "thread".
    labels
        The number of the domain of each thread, by level.
    latency
        The ns of a cache line that crosses a border, by the widest level that it crosses.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[int, ...], ...]
    latency: tuple[float, ...]

    def widest(self) -> NDArray[np.int64]:
        """Return for two threads the first level on which they are apart; the last if they are one.

        A thread is not apart from itself: its entry is the number of levels.
        """
        table = np.array(self.labels)
        together = table[:, :, None] == table[:, None, :]
        found: NDArray[np.int64] = together.cumprod(axis=0).sum(axis=0)
        return found


def shared(tree: Tree) -> Domains:
    """Return the levels of the threads of a tree on all nodes."""
    nodes = [tree.levels(node) for node in range(tree.node_count)]
    found = {level.name: level for levels in nodes for level in levels.levels[1:]}
    names = sorted(found, key=lambda name: min(_depths(name, nodes)))
    labels = [tuple(tree.node_index.tolist())]
    for name in names:
        labels.append(_labels(tree, [levels.find(name) for levels in nodes]))
    labels.append(tuple(range(tree.size)))
    sockets = any("socket" in level.names[1:] or level.name == "socket" for level in found.values())
    node = nodes[0].levels[0].names if sockets else ("socket",)
    around = [node, *(found[name].names for name in names)]
    latency = [min(LATENCY_NS[name] for name in some) for some in around]
    return Domains(
        ("node", *names, "thread"), tuple(labels), (DEFAULTS["wire latency ns"], *latency)
    )


def _depths(name: str, nodes: Iterable[NodeLevels]) -> list[int]:
    """Return where a level of this name is in the nodes that have it."""
    return [levels.names.index(name) for levels in nodes if name in levels.names]


def _labels(tree: Tree, levels: Sequence[Level]) -> tuple[int, ...]:
    """Return the root of each thread's domain, over all nodes."""
    labels = [0] * tree.size
    for node, level in enumerate(levels):
        members = tree.members(node).tolist()
        for thread, root in zip(members, level.root_of, strict=True):
            labels[thread] = members[root]
    return tuple(labels)


def count(
    programs: Sequence[Program], *, barrier_by_levels: bool | None = None, chains: bool = True
) -> Counted:
    """Count a call of all threads of a team.

    Parameters
    ----------
    programs
        Of all threads, in order, with the levels of the tree that they were made for.
    barrier_by_levels
        True: barriers go by the levels of each node; False: they are flat; None: as in a job with a
        core per thread and the built-in selection table.
    chains
        Count the crossings of the longest chains; this runs the plans again for each level.
    """
    tree = programs[0].tree
    domains = shared(tree)
    nodes = [tree.levels(node) for node in range(tree.node_count)]
    by_levels = [
        barrier_by_levels if barrier_by_levels is not None
        else levels.size > FLAT_THREADS and levels.has_domains for levels in nodes
    ]  # fmt: skip
    priced = _LevelClock(programs, domains, domains.latency, by_levels)
    chain_ns = priced.run().end
    rows = []
    for k, name in enumerate(domains.names):
        chain = _chain(programs, domains, k, by_levels) if chains else 0
        nbytes, lines, signals = map(sum, zip(*priced.counts[: k + 1], strict=True))
        number = len(set(domains.labels[k]))
        rows.append(LevelCount(name, number, nbytes, lines, signals, chain))
    return Counted(tuple(rows), chain_ns, priced.border_ns())


def _chain(
    programs: Sequence[Program], domains: Domains, level: int, by_levels: Sequence[bool]
) -> int:
    """Return the most crossings of one level in a row: its latency is 1, all else takes no time."""
    alone = [float(i == level) for i in range(len(domains.names))]
    clock = _LevelClock(programs, domains, alone, by_levels, only_latency=True)
    return round(clock.run().end)


def _without(piece: tuple[int, int, int], lo: int, hi: int) -> Iterable[tuple[int, int, int]]:
    """Yield what is left of a piece (begin, end, writer) outside of ``lo:hi``."""
    begin, end, writer = piece
    if begin < min(end, lo):
        yield begin, min(end, lo), writer
    if max(begin, hi) < end:
        yield max(begin, hi), end, writer


class _LevelClock(Clock):
    """Run plans with the latencies of levels, and count what crosses each of them.

    `by_levels`: for each node, whether its barriers go by levels.
    """

    def __init__(
        self, programs: Sequence[Program], domains: Domains, latency: Sequence[float],
        by_levels: Sequence[bool], *, only_latency: bool = False,
    ) -> None:  # fmt: skip
        chain = Rates(math.inf, 0.0, math.inf, latency[0], ())
        rates = chain if only_latency else rates_of({}, several_nodes=True)
        super().__init__(Prepared(programs), rates)
        self.names = domains.names
        self.labels = np.array(domains.labels)
        self.apart = domains.widest().tolist()
        self.latencies = [*latency, 0.0]
        self.by_levels = by_levels
        self.only_latency = only_latency
        self.counts = [[0, 0, 0] for _ in latency]  # by the widest level: bytes, lines, signals
        self.between: defaultdict[tuple[int, int], int] = defaultdict(int)  # bytes: from, to
        self.writers: dict[tuple[int, int], list[tuple[int, int, int]]] = {}

    # -- data ----------------------------------------------------------------------------------
    def _work(self, lane: Lane, what: Any) -> None:
        start, me = lane.now, lane.rank
        lane.now += self._accesses(me, what.reads, what.writes)
        self._act("copy", me, start, lane.now)

    def _accesses(self, me: int, reads: Iterable[Span], writes: Iterable[Span]) -> float:
        """Count what thread `me` reads and writes in one step; return its ns."""
        worst, lines = 0.0, 0.0
        crossings = [(*piece, True) for span in {*reads} for piece in self._held(span)]
        crossings += [(thread, lo, hi, False) for _, thread, lo, hi in writes]
        apart, own = self.apart[me], len(self.names)
        for thread, lo, hi, is_read in crossings:
            level = apart[thread]
            if level == own:
                continue
            self.between[(thread, me) if is_read else (me, thread)] += hi - lo
            number = -(-hi // LINE) - lo // LINE
            counts, latency = self.counts[level], self.latencies[level]
            counts[0] += hi - lo
            counts[1] += number
            if latency > worst:
                worst = latency
            lines += (number - 1) * latency / PARALLEL_LINES
        for span in writes:
            self._write(me, span)
        return worst if self.only_latency else worst + lines

    def border_ns(self) -> float:
        """Return the time that the bytes over the busiest border take."""
        worst = 0.0
        for name, labels in zip(self.names, self.labels.tolist(), strict=True):
            moved: defaultdict[tuple[str, int], int] = defaultdict(int)
            for (source, target), nbytes in self.between.items():
                if labels[source] != labels[target]:
                    moved["out", labels[source]] += nbytes
                    moved["in", labels[target]] += nbytes
            worst = max(worst, max(moved.values(), default=0) / BORDER_RATE.get(name, math.inf))
        return worst

    def _held(self, span: Span) -> Iterable[tuple[int, int, int]]:
        """Yield the pieces of a span by the thread that has them: (thread, lo, hi)."""
        operand, thread, lo, hi = span
        for begin, end, writer in self.writers.get((operand, thread), ()):
            if begin < hi and end > lo:
                if begin > lo:
                    yield thread, lo, begin
                yield writer, max(lo, begin), min(hi, end)
                lo = min(hi, end)
        if lo < hi:
            yield thread, lo, hi

    def _write(self, me: int, span: Span) -> None:
        """Keep that thread `me` wrote a span last, if it is in the memory of another thread."""
        operand, thread, lo, hi = span
        before = self.writers.get((operand, thread), [])
        if not before and me == thread:
            return
        kept = [part for old in before for part in _without(old, lo, hi)]
        if me != thread:
            insort(kept, (lo, hi, me))
        self.writers[operand, thread] = kept

    # -- signals -------------------------------------------------------------------------------
    def _signal(self, lane: Lane, what: tuple[int, int, Any]) -> None:
        channel, value, _ = what
        self.signals[lane.rank, channel].append((value, lane.now))
        for waiting in self.listening.pop((lane.rank, channel), ()):
            self._push(lane.now, waiting)

    def _signalled_at(self, lane: Lane, what: tuple[int, int, Iterable[int]]) -> float | None:
        channel, value, of = what
        ranks = tuple(of)
        latest = 0.0
        for rank in ranks:
            time = self._raised_at((rank, channel), value)
            if time is None:
                self.listening[rank, channel].append(lane)
                return None
            latest = max(latest, time + self._line(rank, lane.rank))
        for rank in ranks:
            self._transfer_line(rank, lane.rank)
        return latest

    def _line(self, a: int, b: int) -> float:
        """Return the ns of a cache line from one thread to another."""
        latency: float = self.latencies[self.apart[a][b]]
        return latency

    def _transfer_line(self, a: int, b: int) -> None:
        """Count a cache line of a signal, or a message."""
        if a != b:
            self.counts[self.apart[a][b]][2] += 1

    # -- barriers ------------------------------------------------------------------------------
    def _meet(self, lane: Lane, arrived: Sequence[Lane]) -> None:
        """Let all threads go on after a barrier.

        A led call has one between its two: threads that wait for its end arrive at the first, and
        are released when their node root has done the steps in between.
        """
        now = {x.rank: x.now for x in arrived}
        nodes = [[rank for rank in now if self.node[rank] == k] for k in range(self._nodes)]
        nodes = [node for node in nodes if node]
        first, self.met = not self.met, self.met + 1
        met = 0.0
        if first or not self.led:
            met = max(self._gather(node, now) for node in nodes)
            met = self._exchanged(met) if len(arrived) == self.size else met
        if not self.led:
            times = self._left(lane, arrived, nodes, met)
        elif first:
            times = dict.fromkeys(now, met)
        else:
            times = {}
            for node in nodes:
                times |= self._release(node, min(node), now[min(node)], flat=False)
        for x in arrived:
            x.at += 1
            self._push(times[x.rank], x)

    def _left(
        self, lane: Lane, arrived: Sequence[Lane], nodes: Sequence[list[int]], met: float
    ) -> dict[int, float]:
        """Return when each thread leaves a barrier, after its body if it is fused."""
        by, bodies = self._fused(lane, arrived)
        if self.by_levels[0] and bodies:  # fused calls have one node
            top = min(nodes[0])
            by = top if lane.steps[lane.at][1][0] is None else by
            met += self._line(top, by)
            self._transfer_line(top, by)
        for what in bodies:
            met += self._accesses(by, what.reads, what.writes)
        flat = not bodies and self._nodes == 1 and self.size <= FLAT_THREADS
        times: dict[int, float] = {}
        for node in nodes:
            times |= self._release(node, by if bodies else min(node), met, flat=flat)
        return times

    def _exchanged(self, met: float) -> float:
        nodes = self._nodes
        if nodes > 1:
            rounds = math.ceil(math.log2(nodes))
            self.counts[0][2] += nodes * (nodes - 1 if nodes <= FEW_NODES else rounds)
        return super()._exchanged(met)

    @property
    def _nodes(self) -> int:
        return self.tree.node_count

    def _goes_by_levels(self, node: list[int]) -> bool:
        return bool(self.by_levels[self.node[node[0]]])

    def _gather(self, node: list[int], now: dict[int, float]) -> float:
        """Count the arrivals at a barrier of a node's threads; return when all are known."""
        if self._goes_by_levels(node):
            return self._gather_by_levels(node, dict(now))
        if len(node) > FLAT_THREADS:
            return self._one_counter(node, now)
        for a in node:
            for b in node:
                self._transfer_line(a, b)
        return max(self._reads(a, node, now) for a in node)

    def _one_counter(self, node: list[int], now: dict[int, float]) -> float:
        """Pass the line of the counter from one thread to the next, in the order of arrival."""
        time, before = 0.0, node[0]
        for rank in node:
            time = max(time, now[rank]) + self._line(before, rank)
            self._transfer_line(before, rank)
            before = rank
        return time

    def _reads(self, me: int, others: Sequence[int], now: dict[int, float]) -> float:
        """Return when a thread has read a line of each of some threads."""
        more = sum(self._line(me, other) for other in others) / PARALLEL_LINES
        latest = max([now[me], *(now[other] + self._line(me, other) for other in others)])
        return latest if self.only_latency or len(others) < 2 else latest + more

    def _levels_of(self, node: list[int]) -> list[list[tuple[int, list[int]]]]:
        """Return for each level, the narrowest first, the roots of domains and of their parts."""
        found = []
        below = {rank: rank for rank in node}
        for labels in self.labels[-2::-1].tolist():
            roots: dict[int, list[int]] = {}
            for root in sorted(set(below.values())):
                roots.setdefault(labels[root], []).append(root)
            found.append([(parts[0], parts[1:]) for parts in roots.values()])
            top = {part: parts[0] for parts in roots.values() for part in parts}
            below = {rank: top[root] for rank, root in below.items()}
        return found

    def _gather_by_levels(self, node: list[int], now: dict[int, float]) -> float:
        for level in self._levels_of(node):
            for root, parts in level:
                now[root] = self._reads(root, parts, now)
                for part in parts:
                    self._transfer_line(root, part)
        return now[min(node)]

    def _release(self, node: list[int], root: int, met: float, *, flat: bool) -> dict[int, float]:
        """Count the release of a node's threads; return when each of them goes on."""
        by_levels = self._goes_by_levels(node)
        if flat and not by_levels:  # each thread has read all arrivals itself
            return dict.fromkeys(node, met)
        if not by_levels:
            for rank in node:
                self._transfer_line(root, rank)
            return {rank: met + self._line(root, rank) for rank in node}
        first = min(node)
        times = {first: met + self._line(root, first)}
        for level in reversed(self._levels_of(node)):
            for top, parts in level:
                for part in parts:
                    times[part] = times[top] + self._line(top, part)
                    self._transfer_line(top, part)
        return times

    # -- messages ------------------------------------------------------------------------------
    def _exchange(self, lane: Lane, sends: bool, what: Any) -> None:
        spans = what.spans
        lane.now += self._accesses(lane.rank, *((spans, ()) if sends else ((), spans)))
        super()._exchange(lane, sends, what)

    def _count_message(self, nbytes: int, messages: int) -> None:
        for kind, number in enumerate((nbytes, -(-nbytes // LINE), messages)):
            self.counts[0][kind] += number

    def _transfer(
        self, start: float, ends: tuple[int, int], tickets: tuple[int, int], nbytes: int
    ) -> None:
        self._count_message(nbytes, not self.led)
        super()._transfer(start, ends, tickets, nbytes)

    def _get(self, lane: Lane, number: int, moves: Moves) -> None:
        for _, _, lo, hi in moves.reads:
            self._count_message(hi - lo, 2)
        super()._get(lane, number, moves)
