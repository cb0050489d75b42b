"""Blocks of different sizes between threads, for methods that xupc takes over.

The moves are those of the public ``_v`` calls (`xupc.api.uneven_blocks`). Where sizes differ
between threads, a first exchange of slots brings them, with the data itself if that is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from ..api import uneven_blocks
from ..api.private_arrays import (
    allav_broadcast,
    allav_exchange,
    allav_gather,
    allav_gather_all,
    allav_scatter,
)
from ..api.uneven_blocks import Array, Moves, empty

__all__ = [
    "SLOT", "broadcast", "exchange", "exchange_slots", "gather", "gather_all_slots", "scatter",
    "scatter_slots", "slot", "spread",
]  # fmt: skip

SLOT = 512  # bytes: a header and a short message, for which one call is enough
_CALLS = {
    "broadcast": allav_broadcast, "exchange": allav_exchange, "gather": allav_gather,
    "gather_all": allav_gather_all, "scatter": allav_scatter,
}  # fmt: skip


# --- known sizes ---------------------------------------------------------------------------------


def _carry_out(team: Any, moves: Moves) -> None:
    for name, arguments in moves:
        _CALLS[name](*arguments, 0, team)


def broadcast(team: Any, block: Array, root: int) -> None:
    """Copy the root's block to the blocks of all threads."""
    _carry_out(team, uneven_blocks.broadcast(team.rank, block, root))


def spread(team: Any, blocks: Sequence[Array]) -> None:
    """Copy ``blocks[i]`` of thread i to ``blocks[i]`` of all threads."""
    _carry_out(team, uneven_blocks.spread(team.rank, blocks))


def gather(team: Any, mine: Array, into: Sequence[Array] | None, root: int, most: int) -> None:
    """Copy the block of thread i to ``into[i]`` of the root; no block is longer than `most`."""
    _carry_out(team, uneven_blocks.gather(team.size, mine, into, root, most))


def scatter(team: Any, blocks: Sequence[Array] | None, into: Array, root: int, most: int) -> None:
    """Copy ``blocks[i]`` of the root to thread i; no block is longer than `most`."""
    _carry_out(team, uneven_blocks.scatter(team.size, blocks, into, root, most))


def exchange(team: Any, blocks: Sequence[Array], into: Sequence[Array], most: int) -> None:
    """Copy ``blocks[i]`` of thread j to ``into[j]`` of thread i."""
    _carry_out(team, uneven_blocks.exchange(team.size, blocks, into, most))


# --- sizes that differ between threads -----------------------------------------------------------


def slot(head: Struct, data: Any, *numbers: int) -> bytes:
    """Return a slot: numbers, and as much of the data as there is room for."""
    start: bytes = head.pack(*numbers) + data[: SLOT - head.size]
    return start.ljust(SLOT, b"\0")


def gather_all_slots(team: Any, mine: bytes) -> list[memoryview]:
    """Return the slots of all threads."""
    every = empty(SLOT * team.size)
    allav_gather_all(every, np.frombuffer(mine, np.uint8), 0, team)
    return _slots(every)


def scatter_slots(team: Any, slots: Sequence[bytes] | None, root: int) -> memoryview:
    """Return the slot that the root has for this thread."""
    mine = empty(SLOT)
    allav_scatter(mine, None if slots is None else _joined(slots), root, 0, team)
    return mine.data


def exchange_slots(team: Any, slots: Sequence[bytes]) -> list[memoryview]:
    """Return the slots that all threads have for this one."""
    every = empty(SLOT * team.size)
    allav_exchange(every, _joined(slots), 0, team)
    return _slots(every)


def _joined(slots: Sequence[bytes]) -> Array:
    return np.frombuffer(b"".join(slots), np.uint8)


def _slots(every: Array) -> list[memoryview]:
    view = every.data
    return [view[at : at + SLOT] for at in range(0, len(view), SLOT)]
