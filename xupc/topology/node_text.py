"""The text of a node specification, read without numpy, which `xupc run` does not load."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import plural

__all__ = ["node_sizes", "threads_of_nodes"]


# Nine digits at most: more cannot be a thread count, and int() refuses thousands of them.
_NUMBER = "([0-9]{1,9})"
_EVEN = re.compile(rf"{_NUMBER}x{_NUMBER}")
_UNEVEN = re.compile(r"[0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*")
_CYCLIC = re.compile(rf"cyclic:{_NUMBER}")
_SYNTAX = 'expected "NODESxTHREADS", a list of node sizes like "3,1,4", or "cyclic:NODES"'


def node_sizes(spec: str, threads: int) -> tuple[list[int], bool]:
    """Return the size of each node, and whether threads are dealt round robin over the nodes.

    The arguments and errors are those of `node_spec.parse_nodes`.
    """
    if threads < 1:
        raise ValueError(f"XUPC_NODES (nodes=): expected at least 1 thread, got {threads}")
    text = spec.strip()
    if match := _CYCLIC.fullmatch(text):
        count = int(match[1])
        if not 1 <= count <= threads:
            raise _bad_spec(spec, f"expected 1 to {threads} nodes for {plural(threads, 'thread')}")
        return [threads // count + (i < threads % count) for i in range(count)], True
    if match := _EVEN.fullmatch(text):
        count, size = int(match[1]), int(match[2])
        _check_sizes(spec, [count, size], count * size, threads)
        return [size] * count, False
    if _UNEVEN.fullmatch(text):
        sizes = [int(size) for size in text.split(",")]
        _check_sizes(spec, sizes, sum(sizes), threads)
        return sizes, False
    raise _bad_spec(spec, _SYNTAX)


def threads_of_nodes(spec: str) -> int | None:
    """Return the thread count that a ``XUPC_NODES`` fixes; None if it fixes none or is invalid."""
    if match := _EVEN.fullmatch(spec.strip()):
        return int(match[1]) * int(match[2])
    if _UNEVEN.fullmatch(spec.strip()):
        return sum(map(int, spec.split(",")))
    return None


def _check_sizes(spec: str, numbers: Sequence[int], total: int, threads: int) -> None:
    if min(numbers) < 1:
        raise _bad_spec(spec, "expected numbers of at least 1")
    if total != threads:
        raise _bad_spec(spec, f"its nodes hold {total}, expected {plural(threads, 'thread')}")


def _bad_spec(spec: str, reason: str) -> ValueError:
    return ValueError(f"XUPC_NODES (nodes=) is {spec!r}: {reason}")
