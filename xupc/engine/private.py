"""Operands that are private memory: another address at each call of one instance."""

from __future__ import annotations

__all__ = ["PrivateBound"]


class PrivateBound:
    """An operand of one thread's own; plans name no other thread's.

    Attributes
    ----------
    address
        Of the memory that the call under way has.
    """

    __slots__ = ("address",)

    stride = 0
    offset = 0
    place = None

    def __init__(self) -> None:
        self.address = 0

    @property
    def pair(self) -> tuple[int, int]:
        """What the core wants."""
        return self.address, 0
