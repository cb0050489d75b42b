"""Blocks of different sizes between threads, for methods that xupc takes over.

The moves are those of the public ``_v`` calls (`xupc.api.uneven_blocks`). All threads have the
sizes: MPI makes them equal, or an exchange of slots has brought them (`slots`). The calls
have the name of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..api import uneven_blocks
from ..api.uneven_blocks import Array, Moves
from .method_calls import call_of

__all__ = ["broadcast", "exchange", "gather", "scatter", "spread"]


def _carry_out(team: Any, method: str, moves: Moves) -> None:
    for name, arguments in moves:
        call_of(method, name)(*arguments, 0, team)


def broadcast(team: Any, method: str, block: Array, root: int) -> None:
    """Copy the root's block to the blocks of all threads."""
    _carry_out(team, method, uneven_blocks.broadcast(team.rank, block, root))


def spread(team: Any, method: str, blocks: Sequence[Array]) -> None:
    """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""
    _carry_out(team, method, uneven_blocks.spread(team.rank, blocks))


def gather(
    team: Any, method: str, mine: Array, into: Sequence[Array] | None, root: int, most: int
) -> None:
    """Copy the block of thread i to ``into[i]`` of the root; no block is longer than `most`."""
    _carry_out(team, method, uneven_blocks.gather(team.size, mine, into, root, most))


def scatter(
    team: Any, method: str, blocks: Sequence[Array] | None, into: Array, root: int, most: int
) -> None:
    """Copy ``blocks[i]`` of the root to thread i; no block is longer than `most`."""
    _carry_out(team, method, uneven_blocks.scatter(team.size, blocks, into, root, most))


def exchange(
    team: Any, method: str, blocks: Sequence[Array], into: Sequence[Array], most: int
) -> None:
    """Copy ``blocks[i]`` of thread j to ``into[j]`` of thread i."""
    _carry_out(team, method, uneven_blocks.exchange(team.size, blocks, into, most))
