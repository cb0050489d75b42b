"""The oracle of all measurements: contents of the operands, and the expected results.

It uses numpy alone and follows the definitions of the collectives, so it can check every
implementation. For each thread it gives the number of blocks that the thread contributes and the
number that it must find afterwards. The numbers in block k of thread t differ from thread to
thread, from block to block and from check to check. Floating-point reductions of these numbers are
exact in any order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..specs import SPECS, CollectiveSpec, calls

__all__ = ["COLLECTIVES", "OPS", "Work"]

OPS = {
    "ADD": np.add,
    "MULT": np.multiply,
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "LOGAND": np.logical_and,
    "LOGOR": np.logical_or,
    "MIN": np.minimum,
    "MAX": np.maximum,
}
_PERIOD = 252  # a multiple of 3: numbers -1, 0, 1 then add up to nothing


COLLECTIVES = ("barrier", *calls())
"""Everything that can be measured, by its name in xupc."""


@dataclass(frozen=True)
class Work:
    """What one call does, as thread `me` of `threads` sees it.

    Attributes
    ----------
    what
        The name of a collective: ``"broadcast"``, ...
    count
        Elements of a block.
    values
        Of private values, where every reduction goes element by element over the threads; else
        plain reductions and scans go over all elements of all threads.
    """

    what: str
    count: int
    dtype: np.dtype[Any]
    op: str
    root: int
    me: int
    threads: int
    values: bool = False

    @property
    def spec(self) -> CollectiveSpec:
        """The spec of the collective."""
        return SPECS[self.what]

    @property
    def given(self) -> int:
        """Return the number of blocks that this thread contributes."""
        at_root = self.me == self.root
        if self.spec.one_buffer:
            return int(at_root)
        return self.spec.src.blocks_on(self.threads, root=at_root)

    @property
    def found(self) -> int:
        """Return the number of elements that this thread must find."""
        spec, at_root = self.spec, self.me == self.root
        if spec.one_buffer and at_root:
            return 0
        blocks = spec.dst.blocks_on(self.threads, root=at_root)
        one_value = spec.whole and not spec.scans and not self.values
        return blocks if one_value else blocks * self.count

    @property
    def moved(self) -> int:
        """The bytes delivered to all threads together, or read by a reduction."""
        block, threads = self.count * self.dtype.itemsize, self.threads
        if self.what in ("gather_all", "exchange", "reduce_scatter"):
            return threads * threads * block
        return (threads - 1 if self.what == "broadcast_in_place" else threads) * block

    @property
    def to(self) -> int:
        """The thread that gets my block in a permute, which reverses the order of the threads."""
        return self.threads - 1 - self.me

    # -- contents ----------------------------------------------------------------------------
    def block(self, thread: int, number: int, salt: int) -> NDArray[Any]:
        """Return block `number` that a thread contributes in the check `salt`: `count` elements."""
        period = _numbers(self.dtype, self.op if self.spec.computes else "")
        start = (31 * salt + 7 * thread + 13 * number + self.count) % _PERIOD
        return np.resize(np.roll(period, -start), self.count)

    def contributed(self, salt: int) -> NDArray[Any]:
        """Return what I contribute; empty if that is nothing."""
        blocks = [self.block(self.me, k, salt) for k in range(self.given)]
        return np.concatenate([np.empty(0, self.dtype), *blocks])

    def expected(self, salt: int) -> Iterator[NDArray[Any]]:
        """Yield what I must find, piece by piece."""
        if not self.found:
            return
        me, threads, root = self.me, self.threads, self.root
        match self.what:
            case "broadcast" | "broadcast_in_place":
                yield self.block(root, 0, salt)
            case "scatter":
                yield self.block(root, me, salt)
            case "gather" | "gather_all":
                yield from (self.block(t, 0, salt) for t in range(threads))
            case "exchange":
                yield from (self.block(t, me, salt) for t in range(threads))
            case "permute":
                yield self.block(threads - 1 - me, 0, salt)
            case "prefix_reduce" | "suffix_reduce":
                yield self._scanned(salt)
            case "exclusive_prefix_reduce" | "exclusive_suffix_reduce":
                yield self._before(salt)
            case "reduce_scatter":
                yield self._joined(range(threads), salt, me)
            case _:
                joined = self._joined(range(threads), salt)
                whole = self.spec.whole and not self.values
                yield self._folded(joined)[None] if whole else joined

    def _joined(self, threads: range, salt: int, number: int = 0) -> NDArray[Any]:
        """Return blocks of some threads, element by element."""
        function = OPS[self.op]
        blocks = (self.block(t, number, salt) for t in threads)
        return functools.reduce(lambda a, b: function(a, b).astype(self.dtype), blocks)

    def _folded(self, numbers: NDArray[Any]) -> Any:
        """Return all elements together."""
        return np.asarray(_ufunc_reduce(OPS[self.op], numbers)).astype(self.dtype)[()]

    @property
    def earlier(self) -> range:
        """Return the threads whose blocks precede this thread's in a scan."""
        return range(self.me + 1, self.threads) if self.spec.backward else range(self.me)

    def identity(self) -> Any:
        """Return what the first element of an exclusive scan gets."""
        if self.op in ("MIN", "MAX"):
            if self.dtype.kind == "f":
                return np.inf if self.op == "MIN" else -np.inf
            if self.dtype.kind == "b":
                return self.op == "MIN"
            limits = np.iinfo(self.dtype)
            return limits.max if self.op == "MIN" else limits.min
        return np.array(OPS[self.op].identity).astype(self.dtype)

    def _before(self, salt: int) -> NDArray[Any]:
        """Return the results of an exclusive scan: the inclusive ones, one thread or element on."""
        forward, before = not self.spec.backward, self.earlier
        if self.values:
            if before:
                return self._joined(before, salt)
            return np.full(self.count, self.identity(), self.dtype)
        first = self._folded(self._joined(before, salt)) if before else self.identity()
        edge, running = np.array([first], self.dtype), self._scanned(salt)
        return np.concatenate([edge, running[:-1]] if forward else [running[1:], edge])

    def _scanned(self, salt: int) -> NDArray[Any]:
        forward, before = not self.spec.backward, self.earlier
        mine = self.block(self.me, 0, salt)
        if self.values:
            return self._joined(
                range(self.me + 1) if forward else range(self.me, self.threads), salt
            )
        mine = mine if forward else mine[::-1]
        if before:
            carry = self._folded(self._joined(before, salt))
            mine = np.concatenate([np.array([carry], self.dtype), mine])
        function: Any = OPS[self.op]
        if function in (np.logical_and, np.logical_or):
            running = function.accumulate(mine.astype(bool))
        else:
            running = function.accumulate(mine, dtype=self.dtype)
        found: NDArray[Any] = running[-self.count :].astype(self.dtype)
        return found if forward else found[::-1]


def _ufunc_reduce(function: Any, numbers: NDArray[Any]) -> Any:
    if function in (np.logical_and, np.logical_or):
        return function.reduce(numbers.astype(bool))
    return function.reduce(numbers, dtype=numbers.dtype)


@functools.cache
def _numbers(dtype: np.dtype[Any], op: str) -> NDArray[Any]:
    """Return a period of numbers with which an operation is exact."""
    n = np.arange(_PERIOD)
    found: NDArray[Any]
    if op == "MULT":
        found = 1 - 2 * (n % 2) if dtype.kind in "ifc" else 2 * (n % 120) + 1
    elif op in ("LOGAND", "LOGOR"):
        found = (n % 7 > 0) if op == "LOGAND" else (n % 7 == 0)
    elif op == "ADD" and dtype.kind in "fc":
        found = n % 3 - 1
    elif dtype.kind == "b":
        found = n % 2
    else:
        found = n % (120 if dtype.itemsize == 1 else _PERIOD)
    return found.astype(dtype)
