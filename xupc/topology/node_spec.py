"""Node specifications (``XUPC_NODES``, ``nodes=``): which threads form a node of a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .runs import plural
from .tree import Tree

__all__ = [
    "node_tree",
    "parse_nodes",
    "threads_of_nodes",
]


# Nine digits at most: more cannot be a thread count, and int() refuses thousands of them.
_NUMBER = "([0-9]{1,9})"
_EVEN = re.compile(rf"{_NUMBER}x{_NUMBER}")
_UNEVEN = re.compile(r"[0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*")
_CYCLIC = re.compile(rf"cyclic:{_NUMBER}")
_SYNTAX = 'expected "NODESxTHREADS", a list of node sizes like "3,1,4", or "cyclic:NODES"'


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
    if threads < 1:
        raise ValueError(f"XUPC_NODES (nodes=): expected at least 1 thread, got {threads}")
    text = spec.strip()
    if match := _CYCLIC.fullmatch(text):
        return _cyclic_nodes(spec, int(match[1]), threads)
    if match := _EVEN.fullmatch(text):
        node_count, size = int(match[1]), int(match[2])
        _check_sizes(spec, [node_count, size], node_count * size, threads)
        return (np.arange(threads) // size).astype(np.int32)
    if _UNEVEN.fullmatch(text):
        sizes = [int(size) for size in text.split(",")]
        _check_sizes(spec, sizes, sum(sizes), threads)
        return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    raise _bad_spec(spec, _SYNTAX)


def threads_of_nodes(spec: str) -> int | None:
    """Return the thread count that a ``XUPC_NODES`` fixes; None if it fixes none or is invalid."""
    if match := _EVEN.fullmatch(spec.strip()):
        return int(match[1]) * int(match[2])
    if _UNEVEN.fullmatch(spec.strip()):
        return sum(map(int, spec.split(",")))
    return None


def _cyclic_nodes(spec: str, node_count: int, threads: int) -> NDArray[np.int32]:
    if not 1 <= node_count <= threads:
        raise _bad_spec(spec, f"expected 1 to {threads} nodes for {plural(threads, 'thread')}")
    return (np.arange(threads) % node_count).astype(np.int32)


def _check_sizes(spec: str, numbers: Sequence[int], total: int, threads: int) -> None:
    if min(numbers) < 1:
        raise _bad_spec(spec, "expected numbers of at least 1")
    if total != threads:
        raise _bad_spec(spec, f"its nodes hold {total}, expected {plural(threads, 'thread')}")


def _bad_spec(spec: str, reason: str) -> ValueError:
    return ValueError(f"XUPC_NODES (nodes=) is {spec!r}: {reason}")


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
