"""What one thread does in one call: its steps in two lanes, with what a backend must know of them.

`Plan.__str__` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..records import record
from .draw import drawn
from .steps import STAGING, Barrier, FusedBarrier, Get, Send, Step, parts_of

__all__ = ["Plan", "barrier_plan"]


@record
class Plan:
    """Keep one thread's steps for one call.

    Attributes
    ----------
    collective, algorithm
        What it does and how; `algorithm` begins pull, push or multicore.
    rank, size
        The thread's rank and the size of its team.
    lanes
        The node lane and the net lane.
    tickets
        Number of tickets in use.
    sync
        ``(in, out)``: each of ``"no"``, ``"my"``, ``"all"``.
    one_sided
        Whether threads read other nodes' memory in this call, so that all must poll.
    led
        Whether node roots alone have steps between the first and the last barrier, and none of
        their messages depends on another one. Then a backend may wake the other threads only
        once and send the data with the first barrier.
    kernel
        What Fold and Scan do to values: an object with `dtype`, `combine`, `fold`, `scan` and
        `fill` (`xupc.reduction.kernels`).
    scratch
        Whether steps name op_scratch or a staging buffer.
    private
        Whether operands 0 and 1 are each thread's own memory, which others cannot access.
    nbytes
        The size of the call by which the selection table chooses, for traces.
    """

    collective: str
    algorithm: str
    rank: int
    size: int
    lanes: tuple[tuple[Step, ...], tuple[Step, ...]]
    tickets: int
    sync: tuple[str, str]
    one_sided: bool = False
    led: bool = False
    kernel: Any = None
    scratch: bool = False
    private: bool = False
    nbytes: int = 0

    def bytes_between_nodes(self, node_of: Callable[[int], int]) -> int:
        """Return how many bytes the thread sends to other nodes or reads there in one call."""
        mine, found = node_of(self.rank), 0
        for step in self.steps:
            match step:
                case Send():
                    peers = sum(node_of(rank) != mine for rank in step.to)
                    found += peers * sum(b.size for b in step.blocks)
                case Get():
                    of = (step.src.block(i).thread for i in range(step.count))
                    found += step.nbytes * sum(node_of(rank) != mine for rank in of)
        return found

    @property
    def steps(self) -> Iterator[Step]:
        """Yield the steps of both lanes."""
        for lane in self.lanes:
            yield from lane

    @property
    def uses_buffer(self) -> bool:
        """Return whether any step reads or writes a staging buffer."""
        return any(part.operand == STAGING for step in self.steps for part in parts_of(step))

    @property
    def barriers(self) -> int:
        """Return how many full barriers (fused ones included) the call makes."""
        return sum(isinstance(s, Barrier | FusedBarrier) for s in self.steps)

    def __str__(self) -> str:
        return "\n".join([self._heading(), *(drawn(self.lanes) or ["  nothing to do"])])

    def _heading(self) -> str:
        """Return the first line of the drawing: the call, and this plan's thread."""
        return (
            f"{self.collective} by {self.algorithm}, thread {self.rank} of {self.size}, "
            f"IN_{self.sync[0].upper()}SYNC OUT_{self.sync[1].upper()}SYNC"
        )


def barrier_plan(rank: int, size: int) -> Plan:
    """Return a plan that is one barrier."""
    steps: tuple[Step, ...] = (Barrier(),) if size > 1 else ()
    return Plan("barrier", "barrier", rank, size, (steps, ()), 0, ("all", "all"))
