"""all_permute: the block of thread i to thread perm[i] (UPC 1.3, 7.4.2.6).

::

    before   src@0: A   src@1: B   src@2: C      perm 2 0 1
    after    dst@2: A   dst@0: B   dst@1: C
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import chunks, filled
from ..plan.recorder import Operand, Recorder
from ..plan.steps import Blocks
from .conditions import fused, led, on_one_node, on_several_nodes
from .exchange import trade
from .registry import algorithm
from .scatter import all_blocks, node_blocks

Permutation = NDArray[Any]
"""Of the threads, as an array of integers."""


def ends_of(t: Recorder, perm: Permutation) -> tuple[int, int]:
    """Return (the thread that my block goes to, the thread whose block comes to me)."""
    return int(perm[t.me]), int(np.flatnonzero(perm == t.me)[0])


def near(t: Recorder, threads: Iterable[int]) -> list[int]:
    """Return those of the threads that are on my node."""
    return [thread for thread in threads if t.on_my_node(thread)]


def crossing_threads(t: Recorder, perm: Permutation) -> set[int]:
    """Return the threads of my node whose block leaves it or comes from another one."""
    node_of, mine = t.tree.node_index, t.tree.members(t.my_node)
    leaves = mine[node_of[perm[mine]] != t.my_node]
    comes = perm[(node_of[perm] == t.my_node) & (node_of != t.my_node)]
    return {*leaves.tolist(), *comes.tolist()}


@algorithm("permute", PULL)
def pull(t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int) -> None:
    """Each thread copies one block, by load/store or by a one-sided read."""
    to, of = ends_of(t, perm)
    t.ready_each(owners=[of], users=[to])
    t.fetch(dst.on(t.me), src.on(of), nbytes)
    t.done_each(owners=[of], users=[to])


@algorithm("permute", PUSH)
def push(t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int) -> None:
    """Each thread copies one block, by load/store or by a message."""
    to, of = ends_of(t, perm)
    owners, users = near(t, [to]), near(t, [of])
    t.ready_each(owners, users, node_only=True)
    for offset, size in chunks(nbytes, t.tuning["max_message"]):
        if not t.on_my_node(of):
            t.recv(of, dst.on(t.me, offset), size)
        if not t.on_my_node(to):
            t.send(to, src.on(t.me, offset), size)
    if t.on_my_node(to):
        t.copy(dst.on(to), src.on(t.me), nbytes)
    t.done_each(owners, users)


# --- MULTICORE ----------------------------------------------------------------------------------
@algorithm(
    "permute", MULTICORE, "fused", "The last thread to arrive copies all blocks.",
    **fused(all_blocks),
)  # fmt: skip
def fused_copy(t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int) -> None:
    """One thread copies all blocks."""
    with t.single_mover(0, anyone=True):
        _copy_all(t, dst, src, perm, nbytes)


algorithm(
    "permute", MULTICORE, "pull", "Each thread copies its block, as in PULL.",
    applies=on_one_node,
)(pull)  # fmt: skip


@algorithm(
    "permute", MULTICORE, "led",
    "Node roots copy and exchange all blocks, and the data travels with the barrier.",
    **led(node_blocks),
)  # fmt: skip
def led_rounds(t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int) -> None:
    """Each node root does everything for its node."""
    t.lead(nbytes * t.largest_node)
    if t.me == t.node_root:
        trade_blocks(t, dst, src, perm, nbytes, t.message(nbytes))
        _copy_all(t, dst, src, perm, nbytes)


@algorithm(
    "permute", MULTICORE, "rounds",
    "One message per pair of nodes and chunk, from heap to heap; threads pull the rest.",
    applies=on_several_nodes,
)  # fmt: skip
def rounds(t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int) -> None:
    """Send one message per pair of nodes and chunk, from heap to heap; threads pull the rest.

    Only pairs of nodes between which blocks move exchange messages::

        perm 2 3 0 4 1     node 0 (threads 0, 1) to node 1 (2, 3): src@0, src@1 -> dst@2, dst@3
                           node 1 to node 0: src@2 -> dst@0        node 1 to node 2: ...
    """
    message = t.message(nbytes)
    to, of = ends_of(t, perm)
    crossing = crossing_threads(t, perm)  # whose data the node root touches
    owners = [*near(t, [of]), *(crossing if t.me == t.node_root else ())]
    users = [*near(t, [to]), *([t.node_root] if t.me in crossing else ())]
    t.ready_each(owners, users, node_only=True)
    if t.me == t.node_root and crossing:
        with t.net():
            trade_blocks(t, dst, src, perm, nbytes, message)
    if t.on_my_node(of):
        for offset, size in chunks(nbytes, message):
            t.copy(dst.on(t.me, offset), src.on(of, offset), size)
    t.done_each(owners, users)


def _copy_all(t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int) -> None:
    """Copy all blocks that stay on my node."""
    for run in t.node_ranks():
        for of in run:
            to = int(perm[of])
            if t.on_my_node(to):
                t.copy(dst.on(to), src.on(of), nbytes)


def trade_blocks(
    t: Recorder, dst: Operand, src: Operand, perm: Permutation, nbytes: int, message: int
) -> list[int]:
    """Record a node root's messages, of blocks that leave its node or arrive; return the tickets.

    In a message the senders ascend.
    """
    node_of = t.tree.node_index
    leaving = t.tree.members(t.my_node)
    arriving = np.flatnonzero(node_of[perm] == t.my_node)
    given = _grouped(node_of[perm[leaving]], leaving)
    taken = _grouped(node_of[arriving], perm[arriving])
    return trade(
        t,
        lambda node: _messages(src, given.get(node, ()), nbytes, message),
        lambda node: _messages(dst, taken.get(node, ()), nbytes, message),
    )


def _grouped(nodes: NDArray[Any], threads: NDArray[Any]) -> dict[int, list[int]]:
    """Return the threads by node, in order."""
    groups: dict[int, list[int]] = {}
    for node, thread in zip(nodes.tolist(), threads.tolist(), strict=True):
        groups.setdefault(node, []).append(thread)
    return groups


def _messages(
    area: Operand, threads: Sequence[int], nbytes: int, message: int
) -> Iterator[list[Blocks]]:
    """Yield the blocks of some threads in full messages."""
    for shares in filled([(thread, 1) for thread in threads], nbytes, message):
        yield [Blocks(area.on(thread, offset), size) for thread, _, _, offset, size in shares]
