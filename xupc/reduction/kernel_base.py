"""The interface of all kernels: what a reduction computes, for one operation on one type."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import show
from ..ops import Op
from .identities import identity
from .structured_dtypes import name, raw

__all__ = ["Array", "Binary", "Kernel", "function_name"]

Array: TypeAlias = NDArray[Any]
Binary: TypeAlias = Callable[[Any, Any], Any]


class Kernel:
    """One operation on one type.

    Arrays are one-dimensional, contiguous and of this dtype.

    Attributes
    ----------
    dtype : numpy.dtype
        The type of all operands.
    op : Op
        The operation that the caller gave.
    func : callable or None
        The user's function, of FUNC and NONCOMM_FUNC.
    code : tuple of int, or None
        The core's numbers of the type and the operation, and for records the offsets of the
        fields; None: only Python can run this kernel.
    """

    def __init__(
        self, dtype: np.dtype[Any], op: Op, func: Binary | None, code: tuple[int, ...] | None
    ) -> None:
        self.dtype = dtype
        self.op = op
        self.func = func
        self.code = code
        part = np.zeros(1, dtype).real.dtype  # complex: of both parts
        self._padded = part.kind == "f" and part.itemsize > 10 and np.finfo(part).nmant == 63
        self._settles = dtype.kind in "fc" and (func is None or self._padded)

    @property
    def whole(self) -> bool:
        """Return whether its function takes whole arrays, so that `traced` can try it."""
        return False

    @property
    def key(self) -> tuple[object, ...]:
        """Return the key of its plans. They keep its function alive, so the id is enough."""
        return self.code or (name(self.dtype), self.op, id(self.func))

    def combine(self, out: Array, a: Array, b: Array) -> None:
        """Compute ``out[i] = a[i] op b[i]``; `out` may be `a` or `b`."""
        if len(out):
            self.joining(out, a, b)()

    def joining(self, out: Array, a: Array, b: Array) -> Callable[[], object]:
        """Return a callable that does the same, as often as it is called."""
        return partial(self._join, out, self._shield(a), self._shield(b))

    def _join(self, out: Array, a: Array, b: Array) -> None:
        out[...] = self._apply(a, b)
        if self._settles:
            self._settle(out)

    def fold(self, x: Array) -> Any:
        """Return ``x[0] op x[1] op ...`` as a numpy scalar; `x` has at least one element."""
        return self._settled_fold(x)[0]

    def fold_to(self, out: Array, x: Array) -> None:
        """Write the fold of `x` to ``out[0]``, all its bytes included."""
        raw(out)[:1] = raw(self._settled_fold(x))

    def _settled_fold(self, x: Array) -> Array:
        return self._settle(self._fold(x)[:1].copy())

    def scan(
        self, dst: Array, src: Array, carry: object | None = None, reverse: bool = False
    ) -> None:
        """Compute ``dst[i] = carry op src[0] op ... op src[i]``; `dst` may be `src`.

        With `reverse`, ``dst[i] = src[i] op ... op src[-1] op carry``.
        """
        if not len(src):
            return
        x = src[::-1] if reverse else src
        if carry is not None:
            x = np.concatenate([np.asarray(carry, self.dtype).reshape(1), x])
        y = self._scan(x, flip=reverse)[len(x) - len(src) :]
        raw(dst)[...] = raw(self._settle(y[::-1] if reverse else y))

    def fill(self, out: Array) -> None:
        """Write the operation's identity to all elements of `out`.

        Only built-in operations have one.
        """
        raw(out)[...] = raw(self._settle(np.array([self._identity()], self.dtype)))

    # The methods below differ between kinds of kernels. They leave their inputs unchanged.

    def _shield(self, x: Array) -> Array:
        """Return an operand for the user's function: the same memory, not writable."""
        return x

    def _apply(self, a: Array, b: Array) -> Array:
        """Return `a` op `b`, element by element."""
        raise NotImplementedError

    def _fold(self, x: Array) -> Array:
        """Return an array that begins with the fold of `x`."""
        raise NotImplementedError

    def _scan(self, x: Array, flip: bool = False) -> Array:
        """Return the scan of `x` as a new array; with `flip` the operands are swapped."""
        raise NotImplementedError

    def _identity(self) -> Any:
        """Return the identity of a built-in operation."""
        return identity(self.dtype, self.op)

    def _settle(self, x: Array) -> Array:
        """Set NaN and the padding of `x` to their canonical bits; only the caller uses `x`.

        The NaN of a user's function stays as it is.
        """
        if not self._settles:
            return x
        x = np.ascontiguousarray(x)
        parts: Array = x.view(x.real.dtype)  # complex: both parts
        if self.func is None:
            parts[np.isnan(parts)] = np.nan
        if self._padded:  # x87 long double
            parts.view(np.uint8).reshape(-1, parts.itemsize)[:, 10:] = 0
        return x


def function_name(func: Any) -> str:
    with contextlib.suppress(Exception):  # of an object of the user's
        return str(getattr(func, "__qualname__", None) or func.__name__)
    return show(func)
