"""allv_*: collectives on single values, scalars in and scalar out.

A value travels as an array of one element: int, float, complex and bool as int64, float64,
complex128 and bool, and they come back as what they were; numpy scalars as they are. Types are
in the call's fingerprint. Where not all threads have a value, or where it is a shared pointer,
it travels in an envelope of a fixed size that says what it holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CollectiveMismatchError, show
from ..flags import EXCLUSIVE
from ..health.call_record import CallRecord
from ..ops import Op
from ..pgas.integer_arguments import as_integer
from ..specs import SPECS, call_name
from .array_call import ArrayCall
from .array_permute import Permute
from .team import Team, resolve
from .value_types import ENVELOPE, header, kind_of, of_header, packed, unpacked

__all__ = [
    "allv_broadcast",
    "allv_exchange",
    "allv_gather",
    "allv_gather_all",
    "allv_permute",
    "allv_prefix_reduce",
    "allv_reduce",
    "allv_reduce_all",
    "allv_reduce_scatter",
    "allv_scatter",
    "allv_suffix_reduce",
]

Array = NDArray[Any]
Func = Callable[..., Any] | None


class Scalars:
    """A collective on single values; it makes one on arrays for each type that comes along."""

    def __init__(self, name: str) -> None:
        self.spec = SPECS[name]
        self.__name__ = call_name(self.spec, "allv")
        self.calls: dict[str, ArrayCall] = {}

    def array_call(self, kind: str) -> ArrayCall:
        """Return the collective on arrays for one type."""
        call = self.calls.get(kind)
        if call is None:
            make = Permute if self.spec.permutes else ArrayCall
            call = make(self.spec, "allv", kind)
            self.calls[kind] = call
        return call

    def run(self, kind: str, *arguments: Any, algorithm: str | None) -> None:
        """Make the call on arrays for one type."""
        call = self.array_call(kind)
        if algorithm is None:
            call(*arguments)
        else:
            call(*arguments, algorithm=algorithm)

    def fail(self, error: Exception, team: Team | None) -> Any:
        """Raise the error of a bad argument, so that no other thread hangs."""
        on, _ = resolve(team, self.__name__)
        on.enter(self.__name__)
        return on.fail(error, CallRecord(self.__name__))

    def kind_of(self, values: Sequence[Any], team: Team | None) -> tuple[str, Array]:
        """Return the common type of some values, and the values as an array."""
        try:
            kinds = [kind_of(value, self.__name__) for value in values]
            if len({kind for kind, _ in kinds}) > 1:
                names = ", ".join(sorted({kind for kind, _ in kinds}))
                raise TypeError(f"{self.__name__}: values: expected one type, got {names}")
            return kinds[0][0], packed(values, *kinds[0], self.__name__)
        except Exception as e:
            self.fail(e, team)
            raise

    def values_of(self, values: Any, team: Team | None) -> list[Any]:
        """Return the list of values, one for each thread."""
        try:
            return self._values_of(values, resolve(team, "allv")[0].size)
        except Exception as e:  # a sequence of the user's may raise anything
            self.fail(e, team)
            raise

    def _values_of(self, values: Any, size: int) -> list[Any]:
        is_list = isinstance(values, np.ndarray | Sequence)
        if not is_list or isinstance(values, str | bytes):
            raise TypeError(
                f"{self.__name__}: values: expected a sequence of {size} values, got {show(values)}"
            )
        try:
            n = values.size if isinstance(values, np.ndarray) else len(values)
        except OverflowError:  # a range
            n = -1
        if n != size:
            raise ValueError(
                f"{self.__name__}: values: expected one for each of {size} threads, "
                f"got {n if n >= 0 else show(values)}"
            )
        return list(values.reshape(-1) if isinstance(values, np.ndarray) else values)

    def at_root(self, root: Any, team: Team | None) -> bool:
        """Return True if this thread is the root; the call checks the root's range later."""
        try:
            rank = as_integer(root, self.__name__, "root")
        except Exception as e:
            return bool(self.fail(e, team))
        return rank == resolve(team, "allv")[0].rank

    def in_envelopes(self, values: Sequence[Any], team: Team | None) -> Array:
        """Return values in envelopes that hold their types, for threads that do not know them."""
        kind, encoded = self.kind_of(values, team)
        out = np.zeros((len(values), 2 * ENVELOPE), np.uint8)
        head = header(kind, encoded.dtype)
        if len(head) > ENVELOPE or encoded.itemsize > ENVELOPE:
            limit = "is too long, expected 512 bytes at most"
            self.fail(ValueError(f"{self.__name__}: value: {encoded.dtype} {limit}"), team)
        for row, value in zip(out, encoded, strict=True):
            data = np.asarray(value).tobytes()
            row[: len(head)] = np.frombuffer(head, np.uint8)
            row[ENVELOPE : ENVELOPE + len(data)] = np.frombuffer(data, np.uint8)
        return out.reshape(-1)

    def out_of_envelope(self, row: Array, own: Any, team: Team | None) -> Any:
        """Return the value that came; `own`: this thread's value, which must be of its type."""
        kind, dtype = of_header(row[:ENVELOPE].tobytes())
        if own is not None and kind_of(own, self.__name__)[0] != kind:
            mine = kind_of(own, self.__name__)[0]
            error = CollectiveMismatchError(
                f"{self.__name__}: type differs: {kind} on the root, {mine} here"
            )
            self.fail(error, team)
        value = row[ENVELOPE : ENVELOPE + dtype.itemsize]
        return unpacked(value.copy().view(dtype), kind)[0]


_BROADCAST, _SCATTER, _GATHER, _GATHER_ALL, _EXCHANGE, _PERMUTE = (
    Scalars(name)
    for name in ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
)
_REDUCE, _REDUCE_ALL, _REDUCE_SCATTER, _PREFIX, _SUFFIX = (
    Scalars(name)
    for name in ("reduce", "reduce_all", "reduce_scatter", "prefix_reduce", "suffix_reduce")
)


def _size(team: Team | None) -> int:
    return resolve(team, "allv")[0].size


def allv_broadcast(
    value: Any,
    root: int,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return the root's value on all threads (XUPC paper, III.C).

    Parameters
    ----------
    value : int, float, complex, bool, numpy scalar or SharedPointer
        The root's; elsewhere None, or a value of the same type.
    root : int
        A thread, by its rank in the team.
    flags : int
        As in the call on arrays, `allav_broadcast`, but for ASYNC.
    team : Team, optional
        The team of the call; default all threads.
    algorithm : str, optional
        A variant by name, as in the call on arrays.

    Returns
    -------
    The value, of the type that the root gave.

    Raises
    ------
    TypeError, ValueError, OverflowError, FlagError
        On a thread whose arguments are wrong; an int has 64 bits at most.
    CollectiveMismatchError
        If the threads' calls differ, types included.
    """
    row = np.zeros(2 * ENVELOPE, np.uint8)
    me = _BROADCAST.at_root(root, team)
    if me:
        row = _BROADCAST.in_envelopes([value], team)
    elif value is not None:
        _BROADCAST.kind_of([value], team)  # good at all?
    _BROADCAST.run("", row, root, flags, team, algorithm=algorithm)
    return value if me else _BROADCAST.out_of_envelope(row, value, team)


def allv_scatter(
    values: Any,
    root: int,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return the root's i-th value on thread i (XUPC paper, III.C).

    Parameters
    ----------
    values : sequence
        The root's: one for each thread, all of one type. Elsewhere ignored, None as a rule.
    root, flags, team, algorithm
        As in `allv_broadcast`; so are the errors.

    Returns
    -------
    The value for this thread.
    """
    row, rows = np.zeros(2 * ENVELOPE, np.uint8), None
    if _SCATTER.at_root(root, team):
        rows = _SCATTER.in_envelopes(_SCATTER.values_of(values, team), team)
    _SCATTER.run("", row, rows, root, flags, team, algorithm=algorithm)
    return _SCATTER.out_of_envelope(row, None, team)


def allv_gather(
    value: Any,
    root: int,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> list[Any] | None:
    """Return all threads' values on the root (XUPC paper, III.C).

    Parameters
    ----------
    value
        As in `allv_broadcast`, of the same type on all threads.
    root, flags, team, algorithm
        As there; so are the errors.

    Returns
    -------
    list or None
        One value of each thread, in order; None elsewhere.
    """
    kind, src = _GATHER.kind_of([value], team)
    dst = np.empty(_size(team), src.dtype) if _GATHER.at_root(root, team) else None
    _GATHER.run(kind, dst, src, root, flags, team, algorithm=algorithm)
    return None if dst is None else unpacked(dst, kind)


def allv_gather_all(
    value: Any,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> list[Any]:
    """Return all threads' values on all threads (XUPC paper, III.C).

    Parameters
    ----------
    value, flags, team, algorithm
        As in `allv_gather`; errors as in `allv_broadcast`.

    Returns
    -------
    list
        One value of each thread, in order.
    """
    kind, src = _GATHER_ALL.kind_of([value], team)
    dst = np.empty(_size(team), src.dtype)
    _GATHER_ALL.run(kind, dst, src, flags, team, algorithm=algorithm)
    return unpacked(dst, kind)


def allv_exchange(
    values: Any,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> list[Any]:
    """Send the i-th value to thread i, and return what each thread sent (XUPC paper, III.C).

    Parameters
    ----------
    values : sequence
        One for each thread, all of one type, the same on all threads.
    flags, team, algorithm
        As in `allv_broadcast`; so are the errors.

    Returns
    -------
    list
        What each thread gave me, in order.
    """
    kind, src = _EXCHANGE.kind_of(_EXCHANGE.values_of(values, team), team)
    dst = np.empty_like(src)
    _EXCHANGE.run(kind, dst, src, flags, team, algorithm=algorithm)
    return unpacked(dst, kind)


def allv_permute(
    value: Any,
    to: int,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Send the value to thread `to`, and return what this thread was sent (XUPC paper, III.C).

    Parameters
    ----------
    value
        As in `allv_broadcast`, of the same type on all threads.
    to : int
        The thread that gets it; all together a permutation.
    flags, team, algorithm
        As there; so are the errors.

    Returns
    -------
    The value that was given to me.
    """
    kind, src = _PERMUTE.kind_of([value], team)
    dst = np.empty_like(src)
    _PERMUTE.run(kind, dst, src, to, flags, team, algorithm=algorithm)
    return unpacked(dst, kind)[0]


def allv_reduce(
    value: Any,
    op: Op,
    root: int,
    func: Func = None,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return all threads' values joined by `op`, on the root (XUPC paper, III.C).

    Parameters
    ----------
    value : int, float, complex, bool or numpy scalar
        Of the same type on all threads, which is that of the result: an int has 64 bits and
        wraps, and ADD of bools is whether any is true. Give ``int(value)`` to count them.
    op : Op
        ``xupc.ADD`` and so on, or as ``np.add`` or ``MPI.SUM``; with FUNC and NONCOMM_FUNC comes
        `func`. MINLOC and MAXLOC are for records (``np.void``) of a value and an index; `Op`
        shows how to make one.
    root : int
        A thread, by its rank in the team.
    func : callable, optional
        Of two scalars or records; a numpy ufunc, or what `xupc.vectorized` marks, of two arrays.
    flags, team, algorithm
        As in `allv_broadcast`; so are the errors.

    Returns
    -------
    The result; None elsewhere.
    """
    kind, src = _REDUCE.kind_of([value], team)
    dst = np.empty_like(src) if _REDUCE.at_root(root, team) else None
    _REDUCE.run(kind, dst, src, op, root, func, flags, team, algorithm=algorithm)
    return None if dst is None else unpacked(dst, kind)[0]


def _joined(
    form: Scalars,
    value: Any,
    op: Op,
    func: Func,
    flags: int,
    team: Team | None,
    algorithm: str | None,
) -> Any:
    kind, src = form.kind_of([value], team)
    dst = np.empty_like(src)
    form.run(kind, dst, src, op, func, flags, team, algorithm=algorithm)
    if operator.index(flags) & EXCLUSIVE and func is not None:
        on, _ = resolve(team, "allv")
        if on.rank == (on.size - 1 if form.spec.backward else 0):
            return None
    return unpacked(dst, kind)[0]


def allv_reduce_all(
    value: Any,
    op: Op,
    func: Func = None,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return all threads' values joined by `op`, on all threads (XUPC paper, III.C).

    Parameters, types and errors are those of `allv_reduce`, without a root.
    """
    return _joined(_REDUCE_ALL, value, op, func, flags, team, algorithm)


def allv_reduce_scatter(
    values: Any,
    op: Op,
    func: Func = None,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return the i-th values of all threads joined by `op`, on thread i (MPI 4.1, 6.10.1).

    Parameters
    ----------
    values : sequence
        One for each thread, all of one type, the same on all threads.
    op, func, flags, team, algorithm
        As in `allv_reduce`; so are the errors.

    Returns
    -------
    The result for this thread.
    """
    kind, src = _REDUCE_SCATTER.kind_of(_REDUCE_SCATTER.values_of(values, team), team)
    dst = np.empty(1, src.dtype)
    _REDUCE_SCATTER.run(kind, dst, src, op, func, flags, team, algorithm=algorithm)
    return unpacked(dst, kind)[0]


def allv_prefix_reduce(
    value: Any,
    op: Op,
    func: Func = None,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return the values of all threads up to and with this one, joined by `op` (XUPC paper, III.C).

    Parameters, types and errors are those of `allv_reduce`, without a root. With the flag EXCLUSIVE
    this thread's value is left out; the first thread gets the operation's identity, or None with a
    function.
    """
    return _joined(_PREFIX, value, op, func, flags, team, algorithm)


def allv_suffix_reduce(
    value: Any,
    op: Op,
    func: Func = None,
    flags: int = 0,
    team: Team | None = None,
    *,
    algorithm: str | None = None,
) -> Any:
    """Return the values of all threads from this one on, joined by `op` (XUPC paper, III.C).

    Parameters, types and errors are those of `allv_reduce`, without a root. With the flag EXCLUSIVE
    this thread's value is left out; the last thread gets the operation's identity, or None with a
    function.
    """
    return _joined(_SUFFIX, value, op, func, flags, team, algorithm)
