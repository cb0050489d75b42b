"""all_broadcast_in_place, and all_broadcast with IN_PLACE: to every thread but the root.

::

    before   dst@0: a   src@root: B   dst@2: c      after   dst@0: B   dst@2: B

The ways of `broadcast` without the copy at the root, where src may be dst itself.
"""

from __future__ import annotations

from ..flags import MULTICORE, PULL, PUSH
from ..plan.recorder import Operand, Recorder
from . import broadcast
from .registry import algorithm


@algorithm("broadcast_in_place", PULL)
def pull(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
    """Each thread but the root copies for itself, by load/store or by a one-sided read."""
    broadcast.pull(t, dst, src, root, nbytes, in_place=True)


@algorithm("broadcast_in_place", PUSH)
def push(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
    """The root copies to its node's other threads and sends to each of the rest."""
    broadcast.push(t, dst, src, root, nbytes, in_place=True)


@algorithm("broadcast_in_place", MULTICORE)
def multicore(t: Recorder, dst: Operand, src: Operand, root: int, nbytes: int) -> None:
    """Between node roots in chunks, inside each node chunk by chunk as they arrive.

    As in broadcast, n bytes to each node, with one copy less: the root has its own.
    """
    broadcast.multicore(t, dst, src, root, nbytes, in_place=True)
