"""The order in which a fold or scan calls an operation on whole arrays."""

from __future__ import annotations

import numpy as np

from ..ops import Op
from .kernel_base import Array, Kernel

__all__ = ["Associative"]

# Bytes per call. Operands and results of a call stay in cache, and malloc keeps their pages; it
# returns those of new arrays of 512 KiB and more after each call.
BLOCK = 1 << 18
ROUNDS = 5  # rounds of pairs inside one block, before the results of blocks are joined
SHORT = 1024  # up to so many elements, fewer calls cost less than less work


class Associative(Kernel):
    """An operation that is called on whole arrays, in a fixed order of calls.

    `user_functions.h` calls user functions in the same order:

    * A fold of FUNC has `BLOCK` bytes of accumulators and joins row after row to them. Then the
      accumulators beyond a power of two are joined to the first ones, and half to half.
    * A fold of NONCOMM_FUNC joins neighbours, round after round; a last odd one stays as it is.
      The first rounds run inside blocks of `BLOCK` bytes, which gives the same pairs.
    * A scan runs in blocks of `BLOCK` bytes. It joins neighbours in pairs, and the scan of the
      pairs gives every second result; one more call computes the other results from those. A
      scan of few elements joins each one with the element 1, 2, 4 ... before it.
    """

    def _fold(self, x: Array) -> Array:
        x = self._shield(x)
        if self.op == Op.NONCOMM_FUNC:
            return self._fold_neighbours(x)
        row = BLOCK // self.dtype.itemsize
        whole = len(x) - len(x) % row or len(x)
        acc = x[:row]
        for i in range(row, whole, row):
            acc = self._apply(acc, x[i : i + row])
        acc = self._onto(acc, x[whole:])
        half = 1 << len(acc).bit_length() - 1
        acc = self._onto(acc[:half], acc[half:])
        while half > 1:
            half //= 2
            acc = self._apply(acc[:half], acc[half:])
        return acc

    def _onto(self, acc: Array, rest: Array) -> Array:
        """Join `rest` to the beginning of `acc`, which is at least as long."""
        n = len(rest)
        if not n:
            return acc
        joined = self._apply(acc[:n], rest)
        return joined if n == len(acc) else np.concatenate([joined, acc[n:]])

    def _fold_neighbours(self, x: Array) -> Array:
        block = BLOCK // self.dtype.itemsize
        while len(x) > block:
            parts = [x[i : i + block] for i in range(0, len(x), block)]
            x = np.concatenate([self._neighbours(part, ROUNDS) for part in parts])
        return self._neighbours(x, len(x).bit_length())

    def _neighbours(self, x: Array, rounds: int) -> Array:
        """Join neighbours in pairs so many times, or until one is left."""
        for _ in range(rounds):
            if len(x) == 1:
                break
            even = len(x) - len(x) % 2
            pairs = self._apply(x[0:even:2], x[1:even:2])
            x = pairs if even == len(x) else np.concatenate([pairs, x[even:]])
        return x

    def scan(
        self, dst: Array, src: Array, carry: object | None = None, reverse: bool = False
    ) -> None:
        """Scan as `Kernel.scan`."""
        if carry is not None:
            before = np.asarray(carry, self.dtype).reshape(1)
            self._scan_behind(before, dst, src, reverse)
        elif len(src) and reverse:
            dst[-1:] = src[-1:]
            self._scan_behind(dst[-1:], dst[:-1], src[:-1], reverse)
        elif len(src):
            dst[:1] = src[:1]
            self._scan_behind(dst[:1], dst[1:], src[1:], reverse)
        self._settle(dst)

    def _scan_behind(self, before: Array, dst: Array, src: Array, reverse: bool) -> None:
        n, block = len(src), BLOCK // self.dtype.itemsize
        for done in range(0, n, block):
            begin, end = done, min(done + block, n)
            if reverse:
                begin, end = n - end, n - begin
            out = dst[begin:end]
            self._running(out, self._shield(src[begin:end]), self._shield(before), reverse)
            before = out[:1] if reverse else out[-1:]

    def _running(self, out: Array, x: Array, before: Array, reverse: bool) -> None:
        """Write the running results of `x` after `before` to `out`, which may be `x`."""
        if len(x) <= SHORT:
            self._running_short(out, x, before, reverse)
            return
        odd = len(x) % 2
        first = odd if reverse else 0  # the element without a partner is at the far end
        end = first + len(x) - odd
        pairs = self._apply(x[first:end:2], x[first + 1 : end : 2])
        line = np.empty(len(pairs) + 1, self.dtype)  # `before`, and the running results of pairs
        inner = line[:-1] if reverse else line[1:]
        line[-1 if reverse else 0] = before[0]
        self._running(inner, self._shield(pairs), before, reverse)
        past = self._shield(line)
        if reverse:
            out[1 - odd :: 2] = self._apply(x[1 - odd :: 2], past[1 - odd :])
            out[odd::2] = inner
        else:
            out[0::2] = self._apply(past[: len(pairs) + odd], x[0::2])
            out[1::2] = inner

    def _running_short(self, out: Array, x: Array, before: Array, reverse: bool) -> None:
        out[...] = x
        now = self._shield(out)
        if reverse:
            out[-1:] = self._apply(now[-1:], before)
        else:
            out[:1] = self._apply(before, now[:1])
        apart = 1
        while apart < len(out):
            near = out[:-apart] if reverse else out[apart:]
            near[...] = self._apply(now[:-apart], now[apart:])
            apart *= 2
