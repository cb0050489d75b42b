"""The documents' own names: ``from xupc.upc import *``.

>>> from xupc.upc import *                                       # doctest: +SKIP
>>> upc_all_broadcast(B, A + 1, 8, UPC_IN_NOSYNC | UPC_OUT_NOSYNC)          # doctest: +SKIP
>>> upc_all_reduceL(B, A, UPC_ADD, 10 * THREADS, 3, None, 0)                # doctest: +SKIP

Thin names over the functions of `xupc`, with the documents' argument order; ``docs/names.md``
lists them. The collectives are made from `TABLE`, one entry per function of a document; what the
language itself has is written out below it.

Flags are plain ints here, which are quicker to join than `xupc.Flags`. ``NULL`` is None. THREADS
and MYTHREAD are not among the names: they are known only after ``xupc.init()``.

The T of a typed name is the type of src and dst. UPC's compiler converts any pointer to
``shared void *``, so there the name alone says what the elements are; here an array knows, and a
name that contradicts it is a TypeError, on the same road as a collective's own argument errors:
nothing moves, and no thread hangs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

import xupc

from .api.argument_checks import describe, flags_text
from .api.handles import COMPLETE
from .errors import show
from .flags import IN_ALLSYNC, OUT_ALLSYNC, Flags, check_flags
from .health.call_record import CallRecord
from .ops import Op
from .pgas.shared_array import SharedArray
from .pgas.shared_pointer import SharedPointer
from .pgas.shared_reference import as_address
from .runtime import current

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a name that is made at import, where no type checker sees it."""


# --- constants ------------------------------------------------------------------------------------

__UPC_COLLECTIVE__: Final = 1
__UPC_TICK__: Final = 1

# No document has flags like REPRODUCIBLE and EXCLUSIVE, or operations on records.
CONSTANTS: Final[dict[str, Any]] = {
    **{
        f"UPC_{flag.name}": int(flag)
        for flag in Flags
        if flag not in (Flags.REPRODUCIBLE, Flags.EXCLUSIVE)
    },
    **{f"UPC_{op.name}": op for op in Op if op not in (Op.MINLOC, Op.MAXLOC)},
    "UPC_HANDLE_COMPLETE": COMPLETE,
    "UPC_TICK_MIN": xupc.TICK_MIN,
    "UPC_TICK_MAX": xupc.TICK_MAX,
}
UPC_IN_PLACE: Final[int] = CONSTANTS["UPC_IN_PLACE"]

TYPES: Final[dict[str, np.dtype[Any]]] = {
    "C": np.dtype(np.int8),
    "UC": np.dtype(np.uint8),
    "S": np.dtype(np.int16),
    "US": np.dtype(np.uint16),
    "I": np.dtype(np.int32),
    "UI": np.dtype(np.uint32),
    "L": np.dtype(np.int64),
    "UL": np.dtype(np.uint64),
    "F": np.dtype(np.float32),
    "D": np.dtype(np.float64),
    "LD": np.dtype(np.longdouble),
}
"""UPC 1.3, 7.4.3.1: what T stands for in the name of a computational collective."""


# --- forms: how a name calls its function ---------------------------------------------------------
#
# A form has the document's arguments, and no more work for a call than to hand them on. The thesis
# (4.1) has UPC_IN_PLACE in place of src; `xupc` has None there.

Function: TypeAlias = Callable[..., Any]
Shared: TypeAlias = SharedArray | SharedPointer
Numbers: TypeAlias = Shared | Sequence[int]
_F = TypeVar("_F", bound=Function)


def _move(function: Function, name: str, dtype: None) -> Function:
    def call(dst: Shared, src: Shared | int, nbytes: int, flags: int = 0) -> Any:
        return function(dst, None if src is UPC_IN_PLACE else src, nbytes, flags)

    return call


def _permute(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: Shared, src: Shared | int, perm: Shared | Sequence[int], nbytes: int, flags: int = 0
    ) -> Any:
        return function(dst, None if src is UPC_IN_PLACE else src, perm, nbytes, flags)

    return call


def _in_place(function: Function, name: str, dtype: None) -> Function:
    def call(buf: Shared, nbytes: int, flags: int = 0) -> Any:
        return function(buf, nbytes, flags)

    return call


# The lists of the _v and _x forms are shared or private; flags are called mode there. Only three
# _v forms are printed (thesis, 4.2); exchange's has its block sizes in the other order.


def _broadcast_v(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: Shared, src: Shared, ddisp: Numbers, nelems: int, dst_blk: int, typesize: int,
        mode: int = 0,
    ) -> Any:  # fmt: skip
        return function(dst, src, ddisp, nelems, mode, dst_blk=dst_blk, typesize=typesize)

    return call


def _v(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: Shared, src: Shared, ddisp: Numbers, sdisp: Numbers, nelems: Numbers, dst_blk: int,
        src_blk: int, typesize: int, mode: int = 0,
    ) -> Any:  # fmt: skip
        layout = {"dst_blk": dst_blk, "src_blk": src_blk, "typesize": typesize}
        return function(dst, src, ddisp, sdisp, nelems, mode, **layout)

    return call


def _exchange_v(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: Shared, src: Shared, ddisp: Numbers, sdisp: Numbers, nelems: Numbers, src_blk: int,
        dst_blk: int, typesize: int, mode: int = 0,
    ) -> Any:  # fmt: skip
        layout = {"dst_blk": dst_blk, "src_blk": src_blk, "typesize": typesize}
        return function(dst, src, ddisp, sdisp, nelems, mode, **layout)

    return call


def _permute_v(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: Shared, src: Shared, perm: Numbers, ddisp: Numbers, sdisp: Numbers, nelems: Numbers,
        dst_blk: int, src_blk: int, typesize: int, mode: int = 0,
    ) -> Any:  # fmt: skip
        layout = {"dst_blk": dst_blk, "src_blk": src_blk, "typesize": typesize}
        return function(dst, src, perm, ddisp, sdisp, nelems, mode, **layout)

    return call


def _x(function: Function, name: str, dtype: None) -> Function:
    def call(dst: Any, src: Any, nbytes: Any, mode: int = 0, team: Any = None) -> Any:
        return function(dst, src, nbytes, mode, team)

    return call


def _permute_x(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: Any, src: Any, perm: Numbers, nbytes: Any, mode: int = 0, team: Any = None
    ) -> Any:
        return function(dst, src, perm, nbytes, mode, team)

    return call


def _one_sided(function: Function, name: str, dtype: None) -> Function:
    def call(dst: Shared, src: Shared, nbytes: int) -> None:
        function(dst, src, nbytes)

    return call


def _reduce(function: Function, name: str, dtype: np.dtype[Any]) -> Function:
    def call(
        dst: Shared,
        src: Shared | int,
        op: Op,
        nelems: int,
        blk_size: int,
        func: Function | None = None,
        flags: int = 0,
    ) -> Any:
        try:
            fits = dst.dtype is dtype is src.dtype  # type: ignore[union-attr]
        except Exception:  # no shared data: the collective says so
            fits = False
        if not fits:
            _check_types(name, dtype, dst, src, flags)
            if src is UPC_IN_PLACE:
                return function(dst, None, op, nelems, blk_size, func, flags)
        return function(dst, src, op, nelems, blk_size, func, flags)

    return call


def _array_move(function: Function, name: str, dtype: None) -> Function:
    def call(dst: NDArray[Any], src: NDArray[Any] | int | None, flags: int = 0) -> Any:
        return function(dst, None if src is UPC_IN_PLACE else src, flags)

    return call


def _array_rooted(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: NDArray[Any] | None, src: NDArray[Any] | None, root: int, flags: int = 0
    ) -> Any:
        return function(dst, src, root, flags)

    return call


def _array_permute(function: Function, name: str, dtype: None) -> Function:
    def call(dst: NDArray[Any], src: NDArray[Any] | int | None, to: int, flags: int = 0) -> Any:
        return function(dst, None if src is UPC_IN_PLACE else src, to, flags)

    return call


def _array_reduce(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: NDArray[Any] | None,
        src: NDArray[Any],
        op: Op,
        root: int,
        func: Function | None = None,
        flags: int = 0,
    ) -> Any:
        return function(dst, src, op, root, func, flags)

    return call


def _array_reduce_all(function: Function, name: str, dtype: None) -> Function:
    def call(
        dst: NDArray[Any],
        src: NDArray[Any] | int | None,
        op: Op,
        func: Function | None = None,
        flags: int = 0,
    ) -> Any:
        return function(dst, None if src is UPC_IN_PLACE else src, op, func, flags)

    return call


def _values_rooted(function: Function, name: str, dtype: None) -> Function:
    def call(values: Any, root: int, flags: int = 0) -> Any:
        return function(values, root, flags)

    return call


def _value_rooted(function: Function, name: str, dtype: None) -> Function:
    def call(value: Any, root: int, flags: int = 0) -> Any:
        return function(value, root, flags)

    return call


def _value(function: Function, name: str, dtype: None) -> Function:
    def call(value: Any, flags: int = 0) -> Any:
        return function(value, flags)

    return call


def _values(function: Function, name: str, dtype: None) -> Function:
    def call(values: Sequence[Any], flags: int = 0) -> Any:
        return function(values, flags)

    return call


def _value_permute(function: Function, name: str, dtype: None) -> Function:
    def call(value: Any, to: int, flags: int = 0) -> Any:
        return function(value, to, flags)

    return call


def _value_reduce(function: Function, name: str, dtype: None) -> Function:
    def call(
        value: Any, op: Op, root: int, func: Function | None = None, flags: int = 0
    ) -> Any:
        return function(value, op, root, func, flags)

    return call


def _value_reduce_all(function: Function, name: str, dtype: None) -> Function:
    def call(value: Any, op: Op, func: Function | None = None, flags: int = 0) -> Any:
        return function(value, op, func, flags)

    return call


def _check_types(name: str, dtype: np.dtype[Any], dst: Any, src: Any, flags: Any) -> None:
    """Raise TypeError, so that no other thread hangs, if dst or src has another element type.

    The collective itself reports an argument that is no shared data.
    """
    for argument, x in (("dst", dst), ("src", src)):
        if issubclass(type(x), SharedArray | SharedPointer) and x.dtype != dtype:
            error = TypeError(
                f"{name}: {argument}: expected {dtype}, got {describe(x)} of {x.dtype}: "
                f"cast first, {argument}.cast({dtype.name!r})"
            )
            _fail(error, name, dst, src, flags)


def _fail(error: TypeError, name: str, dst: Any, src: Any, flags: Any) -> NoReturn:
    world = current.world()
    world.enter(name)
    try:
        full = check_flags(operator.index(flags), name)
    except Exception:  # said elsewhere; an object of the user's may raise what it likes
        full = IN_ALLSYNC
    arguments = [("dst", describe(dst)), ("src", describe(src)), ("flags", flags_text(flags))]
    world.fail(error, CallRecord(name, arguments), bool(full & (IN_ALLSYNC | OUT_ALLSYNC)))
    raise AssertionError("fail raises")


# --- the table ------------------------------------------------------------------------------------

UPC: Final = "UPC 1.3"
PAPER: Final = "XUPC paper"
THESIS: Final = "MTU thesis"
LANGUAGE: Final = "UPC language"


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of a document.

    Attributes
    ----------
    name : str
        As the document has it, with ``{}`` for the T of a typed one.
    function : str
        What it stands for in `xupc`.
    document, section : str
        Where it is described.
    what : str
        What it does, in a line.
    form : callable, optional
        Makes the name; None: it is made by hand.
    """

    name: str
    function: str
    document: str
    section: str
    what: str
    form: Callable[[Function, str, Any], Function] | None = None

    @property
    def names(self) -> dict[str, np.dtype[Any] | None]:
        """Each real name, with its type."""
        if "{}" not in self.name:
            return {self.name: None}
        return {self.name.format(t): dtype for t, dtype in TYPES.items()}

    @property
    def doc(self) -> str:
        """The docstring of its names."""
        return (
            f"{self.what} ({self.document}, {self.section}).\n\nStands for `xupc.{self.function}`."
        )

    def make(self, name: str, dtype: np.dtype[Any] | None) -> Function:
        """Return the function of one of its names."""
        assert self.form is not None
        call = self.form(getattr(xupc, self.function), name, dtype)
        call.__name__ = call.__qualname__ = name
        call.__doc__ = self.doc
        if dtype is not None:
            call.__doc__ += f" The elements of dst and src are {dtype}."
        return call


# Section in UPC 1.3 and in the paper, which says of its own exchange and permute only that they
# belong to the standard ones.
_MOVES: Final = (
    ("broadcast", "7.4.2.1", "III.B", _move, "Copy one thread's block to every thread"),
    ("scatter", "7.4.2.2", "III.B", _move, "Copy the i-th block of one thread to thread i"),
    ("gather", "7.4.2.3", "III.B", _move, "Copy thread i's block to the i-th block of one thread"),
    ("gather_all", "7.4.2.4", "III.B", _move, "Copy every thread's block to all, in order"),
    (
        "exchange", "7.4.2.5", "II", _move,
        "Copy the i-th block of thread j to the j-th block of thread i",
    ),
    ("permute", "7.4.2.6", "II", _permute, "Copy thread i's block to thread perm[i]"),
)  # fmt: skip


def _document(prefix: str, move: str, letter: str, section: str) -> tuple[str, str]:
    """Return where a _v or _x form is described: three of them, as its own, in the paper."""
    if prefix == "xupc" and letter == "v" and move in ("broadcast", "gather", "gather_all"):
        return PAPER, "III.C"
    return THESIS, section


_BLOCKS: Final = (
    ("broadcast", "4.2.1", "4.2.2", _broadcast_v, _x, "Copy one block to each thread's own place"),
    ("scatter", "4.2.3", "4.2.4", _v, _x, "Copy a block of any size of one thread to each"),
    ("gather", "4.2", "4.2", _v, _x, "Copy a block of any size of each thread to one thread"),
    (
        "gather_all", "4.2", "4.2", _v, _x,
        "Copy a block of any size of each thread to every thread",
    ),
    (
        "exchange", "4.2.5", "4.2.6", _exchange_v, _x,
        "Copy a block of any size from every thread to every thread",
    ),
    (
        "permute", "4.2", "4.2", _permute_v, _permute_x,
        "Copy a block of any size of thread i to thread perm[i]",
    ),
)  # fmt: skip

# Form of the name on private arrays, on single values, and what it does.
_VALUES: Final = (
    ("broadcast", _values_rooted, _value_rooted, "Copy one thread's values to every thread"),
    ("scatter", _array_rooted, _values_rooted, "Hand the i-th block of one thread to thread i"),
    ("gather", _array_rooted, _value_rooted, "Bring every thread's values to one thread"),
    ("gather_all", _array_move, _value, "Bring every thread's values to every thread"),
    ("exchange", _array_move, _values, "Hand my i-th block to thread i"),
    ("permute", _array_permute, _value_permute, "Hand my values to another thread"),
    ("reduce", _array_reduce, _value_reduce, "Combine the threads' values on one thread"),
    ("reduce_all", _array_reduce_all, _value_reduce_all, "Combine the threads' values on all"),
    (
        "prefix_reduce", _array_reduce_all, _value_reduce_all,
        "Combine the values of the threads up to me",
    ),
    (
        "suffix_reduce", _array_reduce_all, _value_reduce_all,
        "Combine the values of the threads from me on",
    ),
)  # fmt: skip

TABLE: Final[list[Entry]] = [
    *(
        Entry(f"upc_all_{move}", f"all_{move}", UPC, section, what, form)
        for move, section, _, form, what in _MOVES
    ),
    Entry(
        "upc_all_reduce{}", "all_reduce", UPC, "7.4.3.1",
        "Combine all elements of src into one at dst", _reduce,
    ),
    Entry(
        "upc_all_prefix_reduce{}", "all_prefix_reduce", UPC, "7.4.3.1",
        "Set dst[i] to src[0] op ... op src[i]", _reduce,
    ),
    *(
        Entry(f"xupc_all_{move}", f"all_{move}", PAPER, section, what, form)
        for move, _, section, form, what in _MOVES
    ),
    Entry(
        "xupc_all_reduce{}_all", "all_reduce_all", PAPER, "III.C",
        "Combine all elements of src into one at dst on every thread", _reduce,
    ),
    Entry(
        "xupc_all_reduce{}_mpi", "all_reduce_mpi", PAPER, "III.C",
        "Combine the blocks of src element by element into one block at dst", _reduce,
    ),
    Entry(
        "xupc_all_reduce{}_mpi_all", "all_reduce_mpi_all", PAPER, "III.C",
        "Combine the blocks of src element by element into one block at dst on every thread",
        _reduce,
    ),
    Entry(
        "xupc_all_suffix_reduce{}", "all_suffix_reduce", PAPER, "III.C",
        "Set dst[i] to src[i] op ... op src[nelems - 1]", _reduce,
    ),
    Entry(
        "xupc_all_broadcast_in_place", "all_broadcast_in_place", PAPER, "III.C",
        "Overwrite the block at buf's address on every thread with that of buf's thread",
        _in_place,
    ),
    *(
        Entry(f"{prefix}_all_{move}_{letter}", f"all_{move}_{letter}", document, section,
              f"{what}, by {by}", form)
        for prefix in ("upc", "xupc")
        for move, v, x, form_v, form_x, what in _BLOCKS
        for letter, section, form, by in (
            ("v", v, form_v, "displacements"), ("x", x, form_x, "pointers"),
        )
        for document, section in [_document(prefix, move, letter, section)]
    ),
    *(
        Entry(
            f"upc_{move}", move, THESIS, "5.1", f"One-sided {move}, by one thread alone",
            _one_sided,
        )
        for move in ("broadcast", "scatter", "gather", "exchange")
    ),
    *(
        Entry(f"xupc_allav_{what}", f"allav_{what}", PAPER, "III.C", f"{does}, of arrays", form)
        for what, form, _, does in _VALUES
    ),
    *(
        Entry(f"xupc_allv_{what}", f"allv_{what}", PAPER, "III.C", f"{does}, one each", form)
        for what, _, form, does in _VALUES
    ),
]  # fmt: skip


# --- the language, and the timers -----------------------------------------------------------------


def _stands_for(function: str, document: str, section: str) -> Callable[[_F], _F]:
    """Enter a name that is written by hand into the table, by its docstring's first line."""

    def enter(call: _F) -> _F:
        what, _, more = cleandoc(call.__doc__ or "").partition(".\n")
        entry = Entry(call.__name__, function, document, section, what.removesuffix("."))
        TABLE.append(entry)
        call.__doc__ = f"{entry.doc}\n{more}".rstrip()
        return call

    return enter


@_stands_for("ticks_now", UPC, "7.5.2.1")
def upc_ticks_now() -> int:
    """Return this thread's clock in ticks."""
    return xupc.ticks_now()


@_stands_for("ticks_to_ns", UPC, "7.5.2.2")
def upc_ticks_to_ns(ticks: SupportsIndex) -> int:
    """Return a number of ticks in nanoseconds."""
    return xupc.ticks_to_ns(ticks)


@_stands_for("all_alloc", LANGUAGE, "7.2.2")
def upc_all_alloc(nblocks: int, nbytes: int) -> SharedArray:
    """Allocate nblocks blocks of nbytes bytes, dealt over the threads; collective.

    The result has the layout ``shared [nbytes] char[nblocks * nbytes]``; where C casts it, write
    ``upc_all_alloc(n, size).cast("i4", 1)``.
    """
    return xupc.all_alloc(_product(nblocks, nbytes), np.uint8, nbytes)


@_stands_for("global_alloc", LANGUAGE, "7.2.2")
def upc_global_alloc(nblocks: int, nbytes: int) -> SharedPointer:
    """Allocate like upc_all_alloc, but by one thread alone."""
    return xupc.global_alloc(_product(nblocks, nbytes), np.uint8, nbytes)


def _product(nblocks: Any, nbytes: Any) -> Any:
    """Return the product; the allocation reports what is no number."""
    try:
        return operator.index(nblocks) * operator.index(nbytes)
    except Exception:  # an object of the user's may raise what it likes
        return nblocks, nbytes


@_stands_for("alloc", LANGUAGE, "7.2.2")
def upc_alloc(nbytes: int) -> SharedPointer:
    """Allocate nbytes bytes with affinity to the calling thread."""
    return xupc.alloc(nbytes, np.uint8)


@_stands_for("free", LANGUAGE, "7.2.2")
def upc_free(ptr: Shared | None) -> None:
    """Free what upc_alloc or upc_global_alloc made, by one thread alone; None is let be.

    Memory of upc_all_alloc is freed by upc_all_free only: all threads have to know of it.
    """
    if ptr is not None:
        xupc.free(ptr)


@_stands_for("all_free", LANGUAGE, "7.2.2")
def upc_all_free(ptr: Shared) -> None:
    """Free shared memory, all threads together."""
    xupc.all_free(ptr)


@_stands_for("SharedPointer.thread", LANGUAGE, "7.2.3")
def upc_threadof(ptr: Shared) -> int:
    """Return the thread that the target of ptr has affinity to."""
    return as_address(ptr)[1]


@_stands_for("SharedPointer.phase", LANGUAGE, "7.2.3")
def upc_phaseof(ptr: Shared) -> int:
    """Return the place of the target of ptr in its block."""
    return _pointer(ptr).phase


@_stands_for("SharedPointer.resetphase", LANGUAGE, "7.2.3")
def upc_resetphase(ptr: Shared) -> SharedPointer:
    """Return ptr with phase 0."""
    return _pointer(ptr).resetphase()


@_stands_for("SharedPointer.addr", LANGUAGE, "7.2.3")
def upc_addrfield(ptr: Shared) -> int:
    """Return the address of the target of ptr on its thread."""
    return as_address(ptr)[2]


def _pointer(x: Shared) -> SharedPointer:
    if isinstance(x, SharedPointer):
        return x
    as_address(x)  # TypeError if it is no array
    return x + 0


@_stands_for("memcpy", LANGUAGE, "7.2.5")
def upc_memcpy(dst: Shared, src: Shared, n: int) -> None:
    """Copy n bytes of shared memory."""
    xupc.memcpy(dst, src, n)


@_stands_for("memget", LANGUAGE, "7.2.5")
def upc_memget(dst: NDArray[Any], src: Shared, n: int) -> None:
    """Copy n bytes of shared memory into a private array."""
    xupc.memget(dst, src, n)


@_stands_for("memput", LANGUAGE, "7.2.5")
def upc_memput(dst: Shared, src: NDArray[Any], n: int) -> None:
    """Copy n bytes of a private array into shared memory."""
    xupc.memput(dst, src, n)


@_stands_for("memset", LANGUAGE, "7.2.5")
def upc_memset(dst: Shared, c: int, n: int) -> None:
    """Set n bytes of shared memory to c, converted to unsigned char."""
    xupc.memset(dst, operator.index(c) & 0xFF, n)


@_stands_for("barrier", LANGUAGE, "6.6.1")
def upc_barrier(value: object = None) -> None:
    """Wait until all threads are in the same barrier."""
    if value is None:
        xupc.barrier()
    else:
        xupc.barrier(value)


@_stands_for("notify", LANGUAGE, "6.6.1")
def upc_notify(value: object = None) -> None:
    """Begin a split-phase barrier."""
    xupc.notify(value)


@_stands_for("wait", LANGUAGE, "6.6.1")
def upc_wait(value: Any = None) -> None:
    """End a split-phase barrier, or complete the operation of a handle (MTU thesis, 4.4)."""
    if value is COMPLETE or issubclass(type(value), xupc.Handle):
        value.wait()
    else:
        xupc.wait(value)


@_stands_for("Handle.test", THESIS, "4.4")
def upc_test(handle: xupc.Handle) -> int:
    """Complete an operation if it is done: positive then, else negative."""
    return 1 if _handle(handle, "upc_test").test() else -1


@_stands_for("Handle.done", THESIS, "4.4")
def upc_get_status(handle: xupc.Handle) -> int:
    """Return whether an operation is done: positive then, else negative."""
    return 1 if _handle(handle, "upc_get_status").done else -1


def _handle(x: Any, call: str) -> Any:
    if not (x is COMPLETE or issubclass(type(x), xupc.Handle)):
        raise TypeError(f"{call}: expected a handle, got {show(x)}")
    return x


@_stands_for("fence", LANGUAGE, "6.6.1")
def upc_fence() -> None:
    """Make what this thread wrote visible to the others."""
    xupc.fence()


@_stands_for("forall", LANGUAGE, "6.6.2")
def upc_forall(
    n: int, affinity: SharedArray | None = None, *, blocksize: int | str | None = None
) -> Sequence[int]:
    """Return the i in range(n) for which ``affinity[i]`` is the calling thread's.

    ``upc_forall(i = 0; i < n; i++; &A[i])`` is ``for i in upc_forall(n, A):``, and with ``i`` as
    affinity ``for i in upc_forall(n, blocksize=1):``.
    """
    return xupc.forall(n, affinity, blocksize=blocksize)


# --- the names ------------------------------------------------------------------------------------


def _made() -> dict[str, Any]:
    """Return every name that is made from a table."""
    functions = {
        name: entry.make(name, dtype)
        for entry in TABLE
        if entry.form is not None
        for name, dtype in entry.names.items()
    }
    return {**CONSTANTS, **functions}


_MADE: Final = _made()
_BY_HAND: Final = [entry.name for entry in TABLE if entry.form is None]
globals().update(_MADE)
__all__ = sorted({*_MADE, *_BY_HAND, "__UPC_COLLECTIVE__", "__UPC_TICK__"})
