"""Numbers of what the states of the model checker hold, and the views of its threads among them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

View = tuple[int, ...]
"""The oldest value of each word that a thread may read, then bits: what it knows of each datum."""


class Numbers:
    """Numbers of things, in the order in which they are met."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self._found: dict[Hashable, int] = {}

    def of(self, thing: Hashable) -> int:
        """Return the number of a thing, a new one if it is new."""
        number = self._found.setdefault(thing, len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number


class Views(Numbers):
    """Numbers of views of so many words, and of what follows from them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = 0
        self._entered: dict[tuple[int, int, int], int] = {}
        self._joined: dict[tuple[int, int], int] = {}

    def enter(self, view: int, at: int, value: int) -> int:
        """Return a view with another entry."""
        key = view, at, value
        found = self._entered.get(key)
        if found is None:
            old = self.things[view]
            found = self._entered[key] = self.of((*old[:at], value, *old[at + 1 :]))
        return found

    def join(self, a: int, b: int) -> int:
        """Return the view of a thread that has two."""
        key = a, b
        found = self._joined.get(key)
        if found is None:
            w = self.words
            one, other = self.things[a], self.things[b]
            known = (x | y for x, y in zip(one[w:], other[w:], strict=True))
            found = self._joined[key] = self.of((*map(max, one[:w], other[:w]), *known))
        return found
