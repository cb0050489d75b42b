"""all_broadcast_in_place: the root's block over that of every other thread, at one address.

::

    before   buf@0: a   buf@root: B   buf@2: c      after   buf@0: B   buf@root: B   buf@2: B

The ways of `broadcast`, with one operand as source and target; nothing is copied at the root.
"""

from __future__ import annotations

from ..flags import MULTICORE, PULL, PUSH
from ..plan.recorder import Operand, Recorder
from . import broadcast
from .registry import algorithm


@algorithm("broadcast_in_place", PULL, "every other thread reads the root's block")
def pull(t: Recorder, buf: Operand, root: int, nbytes: int) -> None:
    """Each thread but the root copies for itself, by load/store or by a one-sided read."""
    broadcast.pull(t, buf, buf, root, nbytes)


@algorithm("broadcast_in_place", PUSH, "the root writes to every other thread")
def push(t: Recorder, buf: Operand, root: int, nbytes: int) -> None:
    """The root copies to its node's other threads and sends to each of the rest."""
    broadcast.push(t, buf, buf, root, nbytes)


@algorithm(
    "broadcast_in_place", MULTICORE, "one copy crosses to each node; its threads pull it there"
)
def multicore(t: Recorder, buf: Operand, root: int, nbytes: int) -> None:
    """Between node roots in chunks, inside each node chunk by chunk as they arrive.

    As in broadcast, n bytes to each node, with one copy less: the root has its own.
    """
    broadcast.multicore(t, buf, buf, root, nbytes)
