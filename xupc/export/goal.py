"""GOAL, the text that LogGOPSim and ATLAHS simulate.

A node is a rank, so what happens inside it is dependences. Each lane of a thread has a cpu of its
own, so that they overlap as they do on the clock of `xupc predict`; the times are ns. An empty
message is written as one byte, which is the least that the format has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .graph import SEND, SERVED, WORK, Graph, Operation

__all__ = ["MOST_NODE_THREADS", "lines"]

MOST_NODE_THREADS: Final = 128
"""Threads of a node: the format counts the cpus of a rank with 8 bits."""
_LAST_CPU: Final = 255


def lines(graph: Graph, about: str) -> Iterator[str]:
    """Yield the lines of a file; `about` is a comment of one line.

    Raises
    ------
    ValueError
        A node has more than `MOST_NODE_THREADS` threads.
    """
    most = graph.tree.largest_node
    if most > MOST_NODE_THREADS:
        raise ValueError(f"expected at most {MOST_NODE_THREADS} threads of a node, got {most}")
    yield f"// {about}"
    yield f"num_ranks {graph.tree.node_count}"
    for node, numbers in enumerate(graph.of_nodes()):
        yield ""
        yield f"rank {node} {{"
        served = min(2 * graph.tree.node_size(node), _LAST_CPU)
        label = {number: f"l{k + 1}" for k, number in enumerate(numbers)}
        for number in numbers:
            operation = graph.operations[number]
            yield f"{label[number]}: {_operation(operation, graph, served)}"
            for word, others in (("requires", operation.ended), ("irequires", operation.begun)):
                for other in others:
                    yield f"{label[number]} {word} {label[other]}"
        yield "}"


def _operation(operation: Operation, graph: Graph, served: int) -> str:
    tree = graph.tree
    cpu = 2 * tree.local_index(operation.thread) + operation.unit
    if operation.unit == SERVED:
        cpu = served
    if operation.kind == WORK:
        return f"calc {round(operation.ns)} cpu {cpu}"
    way = "to" if operation.kind == SEND else "from"
    return (
        f"{operation.kind if operation.kind == SEND else 'recv'} {max(1, operation.nbytes)}b {way} "
        f"{tree.node_of(operation.peer)} tag {operation.tag} cpu {cpu}"
    )
