"""What collectives ask of single arguments, and how they name them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..algorithms.registry import parse_name
from ..errors import FlagError, show
from ..fingerprint import fingerprint
from ..flags import ALGORITHM_MASK, IN_PLACE, flag_names, with_variant
from ..ops import Op
from ..pgas.allocation import Allocation
from ..pgas.shared_array import SharedArray
from ..pgas.shared_reference import as_address
from ..records import record, replace

__all__ = [
    "PlaceText", "asks_in_place", "describe", "describing", "flags_text", "func_name",
    "named_flags", "op_name", "signature_of",
]  # fmt: skip

def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return what users see of a call's arguments: names and defaults, without types.

    Every call with flags has `algorithm`, too (`named_flags`).
    """
    given = dict(inspect.signature(function).parameters)
    if "flags" in given:
        kind = inspect.Parameter.KEYWORD_ONLY
        given.setdefault("algorithm", inspect.Parameter("algorithm", kind, default=None))
    empty = inspect.Parameter.empty
    return inspect.Signature([p.replace(annotation=empty) for p in given.values()])


class NamedFlags:
    """The flags of a call that also names its algorithm; what is wrong is raised by ``__index__``.

    So it is found where all other flags are checked, and reported to all threads.
    """

    def __init__(self, call: str, flags: Any, algorithm: Any) -> None:
        self.call = call
        self.flags = flags
        self.algorithm = algorithm

    def __index__(self) -> int:
        """Return the flags with the bits of the algorithm.

        Raises
        ------
        FlagError
            The name is none, or another algorithm flag is given.
        """
        flags = operator.index(self.flags)
        try:
            flag, label = parse_name(self.algorithm)
            other = flags & ALGORITHM_MASK & ~flag
            if other:
                raise ValueError(f"expected no other algorithm flag, {flag_names(other)} is given")
            return with_variant(flags | flag, label)
        except ValueError as e:
            raise FlagError(f"{self.call}: algorithm: {e}, got {show(self.algorithm)}") from None

    def __repr__(self) -> str:
        return f"{show(self.flags)} with algorithm={show(self.algorithm)}"


def named_flags(call: str, flags: Any, algorithm: Any) -> Any:
    """Return the flags of a call with the argument `algorithm`, which may be None."""
    return flags if algorithm is None else NamedFlags(call, flags, algorithm)


def describe(x: Any) -> str:
    """Return an operand as text, the same on every thread."""
    return describing(x)()


def describing(x: Any) -> Callable[[], str]:
    """Return what makes the text later; it keeps no shared memory."""
    try:
        allocation, thread, offset = as_address(x)
    except TypeError:
        return partial(show, x)
    return PlaceText(thread, offset, allocation.nelems, allocation.dtype)


@record
class PlaceText:
    """The text of an operand, made when it is called.

    Attributes
    ----------
    nelems, dtype
        Those of its allocation.
    dealt
        Phase, blocksize and dtype of the operand, where the text has them.
    """

    thread: int
    offset: int
    nelems: int
    dtype: np.dtype[Any]
    dealt: tuple[int, int, np.dtype[Any]] | None = None

    def __call__(self) -> str:
        """Return the text."""
        text = f"thread {self.thread} offset {self.offset} ({self.nelems} x {self.dtype})"
        if self.dealt is None:
            return text
        phase, blocksize, dtype = self.dealt
        return f"{text} phase {phase} of blocks of {blocksize} {dtype}"

    def at(self, offset: int, phase: int) -> PlaceText:
        """Return the text of the same operand at another offset, with another phase."""
        dealt = self.dealt and (phase, *self.dealt[1:])
        return replace(self, offset=offset, dealt=dealt)


def asks_in_place(
    call: str, dst: Any, src: Any, flags: int, first: int, *, rooted: bool
) -> bool:
    """Return whether a call is one in place: by its flag or, if all data is transformed, by src.

    Parameters
    ----------
    first : int
        The team's first thread, where an array alone stands for its start.
    rooted : bool
        Whether it is about the root's own block alone: then src is needed.

    Raises
    ------
    FlagError
        If IN_PLACE is given with a src that does not go with it.
    """
    asked = bool(flags & IN_PLACE)
    if rooted:
        if asked and src is None:
            raise FlagError(f"{call}: flags: IN_PLACE needs src here, got src=None")
        return asked
    if src is None or _same_address(dst, src, first):
        return True
    if asked:
        raise FlagError(
            f"{call}: flags: IN_PLACE: expected src None or the same as dst, got dst "
            f"{describe(dst)}, src {describe(src)}"
        )
    return False


def _same_address(x: Any, y: Any, first: int) -> bool:
    """Return whether both stand for one place; an allocation's end is in no other one."""
    try:
        (of, *one), (within, *other) = _place(x, first), _place(y, first)
    except TypeError:
        return False
    return one == other and of.same(within)


def _place(x: Any, first: int) -> tuple[Allocation, int, int]:
    allocation, thread, offset = as_address(x)
    if isinstance(x, SharedArray) and allocation.blocksize:
        thread = first
    return allocation, thread, offset


def flags_text(flags: Any) -> str:
    """Return flags as text, whatever they are."""
    if isinstance(flags, Op):
        return show(flags)
    try:
        return flag_names(operator.index(flags))
    except Exception:  # an object of the user's may raise from any question
        return show(flags)


def op_name(op: Any) -> str:
    """Return an operation as text."""
    return op.name if type(op) is Op else show(op)


def func_name(func: Any) -> str:
    """Return a function's module, name and code as text, which must be equal on all threads."""
    try:
        return _function_text(func)
    except Exception:  # an object of the user's may raise from any question
        return show(func)


def _function_text(func: Any) -> str:
    if func is None:
        return "None"
    name = f"{getattr(func, '__module__', '')}.{getattr(func, '__qualname__', type(func).__name__)}"
    if isinstance(func, np.ufunc):
        known = getattr(np, func.__name__, None) is func
        return f"numpy.{func.__name__}" if known else f"ufunc {func.__name__}"
    code = getattr(func, "__code__", None)
    if code is None:
        return name
    return f"{name} ({fingerprint(_code_text(code)) % (1 << 32):08x})"


def _code_text(code: Any) -> str:
    return f"{code.co_code.hex()} {code.co_names} {[_constant(c) for c in code.co_consts]}"


def _constant(x: Any) -> str:
    """Return a constant of code; a set's order is another one in every process."""
    if hasattr(x, "co_code"):
        return _code_text(x)
    if isinstance(x, frozenset):
        return f"frozenset({sorted(map(_constant, x))})"
    return f"({', '.join(map(_constant, x))})" if isinstance(x, tuple) else repr(x)
