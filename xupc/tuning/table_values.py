"""Read single values of a selection table's file, and refuse bad ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["FAR", "Read", "one_of", "truth", "whole"]

FAR = 1 << 46  # no size, count or limit is larger

Read = Callable[[Any], Any]
"""A value as it is in the file -> as we keep it; ValueError says what was expected."""


def whole(least: int, most: int = FAR) -> Read:
    """Return a reader of whole numbers in a range, both ends included."""

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"expected an int from {least} to {most}")
        return value

    return read


def one_of(names: Iterable[str]) -> Read:
    """Return a reader of some names."""
    known = dict.fromkeys(names)

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return value

    return read


def truth(value: Any) -> bool:
    """Return true or false as it is."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value
