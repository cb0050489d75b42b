"""Node specifications (``XUPC_NODES``, ``nodes=``): which threads form a node of a machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .node_text import node_sizes
from .tree import Tree

__all__ = ["node_tree", "parse_nodes"]


def parse_nodes(spec: str, threads: int) -> NDArray[np.int32]:
    """Return the node number of each thread that ``XUPC_NODES`` asks for.

    Parameters
    ----------
    spec : str
        ``"4x2"``: 4 nodes of 2 threads, dealt in blocks; ``"3,1,4"``: nodes of these sizes, dealt
        in blocks; ``"cyclic:3"``: threads dealt round robin over 3 nodes.
    threads : int
        Number of threads, at least 1.

    Returns
    -------
    ndarray of int32, shape (threads,)

    Raises
    ------
    ValueError
        If `spec` has another form, holds a zero, or does not add up to `threads`.
    """
    sizes, cyclic = node_sizes(spec, threads)
    if cyclic:
        return (np.arange(threads) % len(sizes)).astype(np.int32)
    return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def node_tree(machine_of: NDArray[Any], spec: str | None) -> Tree:
    """Return the tree of threads on machines, split further by ``XUPC_NODES``.

    Two threads share a node if they share a machine **and** a node of `spec`. So `spec` can split
    a machine and never merges two.

    Parameters
    ----------
    machine_of : ndarray of int, shape (threads,)
        A label of each thread's machine, 0 <= label < threads.
    spec : str or None
        As for `parse_nodes`; None or an empty text splits nothing.

    Raises
    ------
    ValueError
        If `parse_nodes` refuses `spec`.
    """
    if not spec:
        return Tree(machine_of)
    return Tree(machine_of.astype(np.int64) * machine_of.size + parse_nodes(spec, machine_of.size))
