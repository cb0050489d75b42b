"""Time-independent traces, which SimGrid's ``smpirun -replay`` carries out: a file for each thread.

A thread is a rank, and its file is a sequence, so its two lanes and the reads that it serves take
turns in the order of `schedule`. Signals and barriers inside a node are messages of one byte, which
is also what an empty message is: SimGrid cannot post the receive of an empty one. Computation is in
operations of a host that makes 10^9 of them per second, so it is in ns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ..backends.simulator.rates import Rates
from ..topology.tree import Tree
from .graph import SEND, WORK, Graph
from .schedule import Schedule

__all__ = ["TRACES", "files"]

TRACES: Final = "traces.txt"
"""The file that ``smpirun -replay`` takes."""
_MOST_TAGS: Final = 1 << 19  # of either kind; MPI's largest one is beyond twice as many
_FREE_LATENCY: Final = 1e-9  # of SimGrid's loopback, in seconds, if a machine has none


def files(graph: Graph, schedule: Schedule, rates: Rates) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of all files of a replay."""
    ranks = _ranks(graph, schedule)
    names = [f"rank-{thread}.txt" for thread in range(len(ranks))]
    for name, lines in zip(names, ranks, strict=True):
        yield name, "\n".join(lines) + "\n"
    yield TRACES, "\n".join(names) + "\n"
    node = graph.tree.node_index.tolist()
    yield "hosts.txt", "".join(f"node-{node[t]}\n" for t in range(graph.tree.size))
    yield "platform.xml", _platform(graph.tree, rates)


def _ranks(graph: Graph, schedule: Schedule) -> list[list[str]]:
    """Return the lines of each thread."""
    size = graph.tree.size
    found = [[f"{thread} init"] for thread in range(size)]
    open_: list[dict[int, str]] = [{} for _ in range(size)]  # posted messages, by operation
    raised: list[list[str]] = [[] for _ in range(size)]  # posted signals
    signals: Counter[tuple[int, int]] = Counter()
    tags: dict[tuple[int, int], int] = {}  # the tag of an operation's signal to a thread
    readers = _readers(graph)

    def wait(thread: int, other: int) -> None:
        ends = open_[thread].pop(other, None)
        if ends is not None:
            found[thread].append(f"{thread} wait {ends}")

    before = graph.ended()
    for number in schedule.order:
        operation = graph.operations[number]
        me, lines = operation.thread, found[operation.thread]
        for other in before[number]:
            of = graph.operations[other].thread
            if of == me:
                wait(me, other)
            elif (other, me) in tags:  # the first of this thread's operations that wait for it
                lines.append(f"{me} recv {of} {tags.pop((other, me))} 1")
        if operation.kind == WORK:
            if round(operation.ns):
                lines.append(f"{me} compute {round(operation.ns)}")
            for reader in readers.get(number, ()):
                pair = me, reader
                tags[number, reader] = tag = _MOST_TAGS + signals[pair] % _MOST_TAGS
                signals[pair] += 1
                lines.append(f"{me} isend {reader} {tag} 1")
                raised[me].append(f"{me} {reader} {tag}")
            continue
        peer, tag = operation.peer, operation.tag % _MOST_TAGS
        sends = operation.kind == SEND
        ends = f"{me} {peer} {tag}" if sends else f"{peer} {me} {tag}"
        word = "isend" if sends else "irecv"
        lines.append(f"{me} {word} {peer} {tag} {max(1, operation.nbytes)}")
        open_[me][number] = ends
    for thread, lines in enumerate(found):
        for other in list(open_[thread]):
            wait(thread, other)
        lines += (f"{thread} wait {ends}" for ends in raised[thread])
        lines.append(f"{thread} finalize")
    return found


def _readers(graph: Graph) -> dict[int, list[int]]:
    """Return for each operation the other threads of its node that wait for it."""
    found: dict[int, dict[int, None]] = {}
    for operation, before in zip(graph.operations, graph.ended(), strict=True):
        for other in before:
            if graph.operations[other].thread != operation.thread:
                found.setdefault(other, {})[operation.thread] = None
    return {number: list(threads) for number, threads in found.items()}


def _platform(tree: Tree, rates: Rates) -> str:
    """Return a cluster: each node a host with a link of its own in each direction.

    The loopback inside a host has the latency of a cache line.
    """
    cores = max(1, tree.largest_node)
    loopback = max(rates.line * 1e-9, _FREE_LATENCY)
    return f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="nodes" prefix="node-" suffix="" radical="0-{tree.node_count - 1}" speed="1Gf"
           core="{cores}" bw="{rates.wire * 1e9:.0f}Bps" lat="{rates.latency / 2:.3f}ns"
           loopback_bw="{rates.copy * 1e9:.0f}Bps" loopback_lat="{loopback:.3g}s"/>
</platform>
"""
