"""Memory that holds, for each byte, where it came from: a simulation without data.

A piece of memory is a list of runs of consecutive symbols. Its size costs nothing, so a plan that
moves gigabytes is simulated as fast as one with the same steps that moves bytes, and every byte is
checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

__all__ = ["Alphabet", "Store", "Symbols"]

Store: TypeAlias = Any
"""Memory or a piece of it: a bytearray (or bytes), or `Symbols`. They share no type."""


class Symbols:
    """Bytes as symbols; it takes the place of a `bytearray` in a simulation.

    Attributes
    ----------
    starts, firsts
        Where each run begins, and its first symbol.
    """

    __slots__ = ("alphabet", "firsts", "size", "starts")

    def __init__(self, alphabet: Alphabet, runs: Iterable[tuple[int, int]]) -> None:
        self.alphabet = alphabet
        self.starts: list[int] = []
        self.firsts: list[int] = []
        self.size = 0
        for nbytes, first in runs:
            if not (self.firsts and first == self.firsts[-1] + self.size - self.starts[-1]):
                self.starts.append(self.size)
                self.firsts.append(first)
            self.size += nbytes

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Symbols):
            return NotImplemented
        return (self.size, self.starts, self.firsts) == (other.size, other.starts, other.firsts)

    def __hash__(self) -> int:
        return hash((self.size, len(self.starts)))

    def runs(self, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Yield (bytes, first symbol) of the runs in a range."""
        at, i = lo, bisect_right(self.starts, lo) - 1
        while at < hi:
            end = self.starts[i + 1] if i + 1 < len(self.starts) else self.size
            end = min(end, hi)
            yield end - at, self.firsts[i] + at - self.starts[i]
            at, i = end, i + 1

    def __getitem__(self, where: slice) -> Symbols:
        lo, hi, _ = where.indices(self.size)
        return Symbols(self.alphabet, self.runs(lo, hi))

    def __setitem__(self, where: slice, data: Symbols) -> None:
        lo, hi, _ = where.indices(self.size)
        assert data.size == hi - lo, (data.size, lo, hi)
        # only the runs that touch the range change
        first = max(0, bisect_right(self.starts, lo) - 2)
        last = min(len(self.starts), bisect_right(self.starts, hi) + 1)
        begin = self.starts[first]
        end = self.starts[last] if last < len(self.starts) else self.size
        new = Symbols(
            self.alphabet,
            [*self.runs(begin, lo), *data.runs(0, data.size), *self.runs(hi, end)],
        )
        self.starts[first:last] = [begin + start for start in new.starts]
        self.firsts[first:last] = new.firsts

    def join(self, parts: Iterable[Symbols]) -> Symbols:
        """Return pieces of memory one after the other, as `bytes.join` does."""
        return Symbols(self.alphabet, (run for part in parts for run in part.runs(0, part.size)))

    def copy(self) -> Symbols:
        """Return a copy."""
        return self[: self.size]

    def difference(self, expected: Symbols) -> tuple[int, int, str]:
        """Return how many bytes differ, the first one, and what it is and should be."""
        edges = sorted({*self.starts, *expected.starts, self.size})
        wrong, where, text = 0, -1, ""
        for lo, hi in pairwise(edges):
            (_, found), (_, wanted) = next(self.runs(lo, hi)), next(expected.runs(lo, hi))
            if found != wanted:
                wrong += hi - lo
                if where < 0:
                    name = self.alphabet.name
                    where, text = lo, f"expected {name(wanted)}, found {name(found)}"
        return wrong, where, text


class Alphabet:
    """All symbols of a simulation, with names."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._names: list[str] = []
        self._next = 0

    def fresh(self, nbytes: int, name: str) -> Symbols:
        """Return so many new symbols; `name` says what they are."""
        first = self._next
        self._starts.append(first)
        self._names.append(name)
        self._next += nbytes + 1  # never in a row with the next ones
        return Symbols(self, [(nbytes, first)])

    def name(self, symbol: int) -> str:
        """Return the name of a symbol."""
        i = bisect_right(self._starts, symbol) - 1
        return f"byte {symbol - self._starts[i]} of {self._names[i]}"
