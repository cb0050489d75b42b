"""The arguments of a reduction of arrays of values."""

from __future__ import annotations

from ..plan.placement import Facts
from ..plan.recorder import Operand
from ..records import record
from .private_staging import LINE, cut

__all__ = ["ReduceSpec"]


@record
class ReduceSpec:
    """Describe a reduction of arrays of values.

    Attributes
    ----------
    nelems, itemsize
        The elements of a block, and the bytes of an element.
    to
        The thread that gets the result; None: all.
    ordered
        Whether operands keep their places.
    exact
        Whether the order of operations is the same on every placement of the threads.
    in_place
        Whether dst is also src.
    exclusive
        Of prefix and suffix: whether a thread's result is without the thread's own values.
    identity
        Whether the first thread of an exclusive scan gets the identity of the operation; else its
        dst stays as it was.
    """

    nelems: int
    itemsize: int
    to: int | None
    ordered: bool
    exact: bool
    in_place: bool
    exclusive: bool = False
    identity: bool = True

    @property
    def nbytes(self) -> int:
        """Return the bytes of a block."""
        return self.nelems * self.itemsize

    @staticmethod
    def room(t: Facts) -> int:
        """Return the bytes of a staging buffer for one piece of each other thread's values."""
        return max(LINE, t.tuning["staging_bytes"] // max(4, t.size) // LINE * LINE)

    @property
    def src(self) -> Operand:
        """Return the operand that holds the values."""
        return Operand(0 if self.in_place else 1)

    @property
    def dst(self) -> Operand:
        """Return the operand for the results."""
        return Operand(0)

    def operands(self, thread: int, threads: int, reverse: bool) -> range:
        """Return the threads whose values make up a thread's result of a prefix or suffix."""
        if reverse:
            return range(thread + self.exclusive, threads)
        return range(thread + (not self.exclusive))

    def wanted(self, thread: int) -> bool:
        """Return whether a thread gets the result."""
        return self.to in (None, thread)

    def units(self, width: int) -> list[tuple[int, int]]:
        """Return (offset, size) of units of at most `width` bytes, of whole elements."""
        return cut(self.nbytes, width, self.itemsize)
