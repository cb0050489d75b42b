"""Shared by the programs about reductions: what the collectives mean, in numpy, and their data.

The values are such that every order of operations gives the same bits: small integers, powers
of two. What order there is, other programs ask.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.checked_calls import POISON

import xupc
from xupc import Op

Array = NDArray[Any]

FORMS = {
    "reduce": xupc.all_reduce,
    "reduce_all": xupc.all_reduce_all,
    "reduce_mpi": xupc.all_reduce_mpi,
    "reduce_mpi_all": xupc.all_reduce_mpi_all,
    "prefix_reduce": xupc.all_prefix_reduce,
    "suffix_reduce": xupc.all_suffix_reduce,
}
UPC_TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "g")
OTHER_TYPES = ("?", "f2", "c8", "c16")
PAIRS = tuple(
    np.dtype([("value", value), ("index", index)], align=align)
    for value, index, align in (
        ("f8", "i8", False), ("f8", "i4", True), ("f4", "i8", True), ("i4", "u4", False),
        ("u1", "i2", False), ("g", "i8", True), ("f2", "u8", False),
    )
)  # fmt: skip
"""Records of a value and its index: dense, with padding, unaligned, of types without C kernel."""
PART = 1 << 18
"""Bytes of an operand on each thread."""

UFUNCS: dict[Op, Any] = {
    Op.ADD: np.add,
    Op.MULT: np.multiply,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.LOGAND: np.logical_and,
    Op.LOGOR: np.logical_or,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
}


def operations(dtype: np.dtype[Any]) -> list[Op]:
    """Those of a type."""
    if dtype.names:
        return [Op.MINLOC, Op.MAXLOC]
    out = [Op.ADD, Op.MULT, Op.LOGAND, Op.LOGOR]
    if dtype.kind in "biu":
        out += [Op.AND, Op.OR, Op.XOR]
    return out if dtype.kind == "c" else [*out, Op.MIN, Op.MAX]


# Functions of the user's. An affine map x -> p x + q modulo 11 is the number 11 p + q: putting
# them one after the other is associative, and the order counts.
def after(a: Any, b: Any) -> Any:
    """The map b after the map a."""
    (p, q), (r, s) = divmod(int(a), 11), divmod(int(b), 11)
    return p * r % 11 * 11 + (q * r + s) % 11


@xupc.vectorized
def all_after(a: Array, b: Array) -> Array:
    """The same for arrays."""
    assert a.ndim == 1
    (p, q), (r, s) = np.divmod(a.astype("i8"), 11), np.divmod(b.astype("i8"), 11)
    return p * r % 11 * 11 + (q * r + s) % 11


def smaller(a: Any, b: Any) -> Any:
    """Return the smaller of two scalars."""
    return a if a < b else b


@xupc.vectorized(pure=True)
def all_smaller(a: Array, b: Array) -> Array:
    """The same for arrays."""
    return np.where(a < b, a, b)


def first(a: Any, b: Any) -> Any:
    """Return the first operand, for types that have no maps."""
    return a


def nearest(a: Any, b: Any) -> Any:
    """The sum of two records' values, the lower index."""
    with np.errstate(over="ignore"):
        return a["value"] + b["value"], min(a["index"], b["index"])


def leftmost(a: Any, b: Any) -> Any:
    """A record of the first one's value and the last one's index; spoils its operand."""
    a["index"] = b["index"]
    return a


@xupc.vectorized
def all_leftmost(a: Array, b: Array) -> Array:
    """The same for arrays."""
    out = a.copy()
    out["index"] = b["index"]
    return out


RECORD_FUNCTIONS: list[tuple[Op, Callable[..., Any]]] = [
    (Op.FUNC, nearest), (Op.NONCOMM_FUNC, leftmost), (Op.NONCOMM_FUNC, all_leftmost),
]  # fmt: skip
FUNCTIONS: list[tuple[Op, Callable[..., Any]]] = [
    (Op.FUNC, smaller),
    (Op.FUNC, all_smaller),
    (Op.FUNC, np.maximum),
    (Op.NONCOMM_FUNC, after),
    (Op.NONCOMM_FUNC, all_after),
    (Op.NONCOMM_FUNC, first),
]


def values(dtype: np.dtype[Any], op: Op, n: int, rng: np.random.Generator) -> Array:
    """Operands for which the order of operations does not show."""
    if dtype.names:
        return pairs(dtype, n, rng)
    if op in (Op.FUNC, Op.NONCOMM_FUNC):
        return rng.integers(0, 121, n).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, n) == 1
    if dtype.kind in "iu" and op not in (Op.LOGAND, Op.LOGOR):
        return rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8).view(dtype)
    if op in (Op.LOGAND, Op.LOGOR):
        rare = rng.random(n) < min(1.0, 2 / n)
        return np.where(rare == (op == Op.LOGAND), 0, 3).astype(dtype)
    if op == Op.MULT:
        units = [1, -1, 1j, -1j] if dtype.kind == "c" else [1, -1]
        x = rng.choice(np.array(units), n).astype(dtype)
        x[rng.integers(n)] *= dtype.type(2)
        return x
    if op == Op.ADD:
        most = max(1, min(100, (1 << 10) // n)) if dtype.itemsize == 2 else 20
        x = rng.integers(-most, most + 1, n) * (rng.random(n) < 500 / n)
        return (x * (1 + 2j) if dtype.kind == "c" else x).astype(dtype)
    x = rng.integers(-1000, 1000, n).astype(dtype)
    if rng.random() < 0.2:
        x[rng.integers(n)] = np.nan
    return x


def pairs(dtype: np.dtype[Any], n: int, rng: np.random.Generator) -> Array:
    """Records with garbage for padding, many values and indices twice."""
    out = np.frombuffer(bytearray(rng.bytes(n * dtype.itemsize)), dtype)
    out["value"] = rng.integers(0, 4, n)
    out["index"] = rng.integers(0, 100, n)
    if dtype["value"].kind == "f" and rng.random() < 0.4:
        out["value"][rng.integers(n)] = np.nan
        out["value"][rng.integers(n)] = -0.0
    return out


def first_of(op: Op, a: Any, b: Any) -> Any:
    """MINLOC or MAXLOC of two records, from their definition."""

    def key(x: Any) -> tuple[Any, ...]:
        value = x["value"]
        if value != value:
            return (0,)
        sign = 1 if op == Op.MINLOC else -1
        zero = sign * (not np.signbit(value)) if value.dtype.kind == "f" else 0
        return 1, sign * (float(value) if value.dtype.kind == "f" else int(value)), zero

    return min((a, b), key=lambda x: (key(x), int(x["index"])))


def running(op: Op, func: Any, x: Array) -> Array:
    """``out[i] = x[0] op ... op x[i]``, from the left."""
    out = x.copy()
    if op in (Op.MINLOC, Op.MAXLOC):
        for i in range(1, len(x)):
            out[i] = first_of(op, out[i - 1], x[i])
        return out
    if op in (Op.FUNC, Op.NONCOMM_FUNC):
        for i in range(1, len(x)):
            pair = (out[i - 1 : i], x[i : i + 1]) if func in VECTORS else (out[i - 1], x[i])
            if x.dtype.names:
                pair = tuple(record.copy() for record in pair)
            out[i] = np.asarray(func(*pair), x.dtype).reshape(-1)[0]
    elif len(x) > 1:
        with np.errstate(all="ignore"):
            ufunc: Any = UFUNCS[op]
            if op in (Op.LOGAND, Op.LOGOR):
                out[1:] = ufunc.accumulate(x != 0)[1:]
            else:
                out = ufunc.accumulate(x, dtype=x.dtype)
    return out


VECTORS = (all_after, all_smaller, all_leftmost)


def backwards(op: Op, func: Any, x: Array) -> Array:
    """``out[i] = x[i] op ... op x[-1]``."""
    flipped = func
    if op == Op.NONCOMM_FUNC:

        def flipped(a: Any, b: Any) -> Any:
            return func(b, a) if func not in VECTORS else func(*map(np.atleast_1d, (b, a)))[0]

    elif op in (Op.MINLOC, Op.MAXLOC):
        flipped = None

    elif func in VECTORS:
        flipped = np.minimum
    return running(op, flipped, x[::-1])[::-1]


@dataclass(frozen=True)
class Dealt:
    """Elements from a pointer on, as UPC 6.4.2 says."""

    thread: int
    phase: int
    block: int
    offset: int
    """The pointer's own address in an operand's memory."""

    def places(self, n: int, size: int) -> tuple[Array, Array]:
        """The thread and the offset of each of n elements."""
        i = np.arange(n)
        if not self.block:
            return np.full(n, self.thread), self.offset + i * size
        q = self.phase + i
        u = self.thread + q // self.block
        place = u // xupc.THREADS * self.block + q % self.block - self.phase
        return u % xupc.THREADS, self.offset + place * size


@dataclass(frozen=True)
class Case:
    """A call's arguments."""

    form: str
    dtype: np.dtype[Any]
    op: Op
    func: Any
    n: int
    src: Dealt
    dst: Dealt
    given: bool
    """Whether blk_size is given, or src and dst have layouts of their own."""

    @property
    def each(self) -> int:
        """Elements of an element-wise result, or 1."""
        if "mpi" not in self.form:
            return 1
        return min(self.src.block, self.n) if self.src.block else self.n

    @property
    def room(self) -> int:
        """Bytes of an operand's memory on each thread that are looked at."""
        most = self.n + 2 * max(self.src.block, self.dst.block)
        return min(PART, 2048 + most * self.dtype.itemsize)

    def results(self, x: Array) -> Array:
        """The results in order."""
        if self.form == "prefix_reduce":
            return running(self.op, self.func, x)
        if self.form == "suffix_reduce":
            return backwards(self.op, self.func, x)
        each = self.each
        if each < 64 or self.op >= Op.FUNC:
            columns = [x[k::each] for k in range(each)] if each > 1 else [x]
            return np.array([running(self.op, self.func, c)[-1] for c in columns], self.dtype)
        out = x[:each].copy()  # block by block, which is faster
        for at in range(each, self.n, each):
            more = x[at : at + each]
            both = np.stack([out[: len(more)], more])
            with np.errstate(all="ignore"):
                if self.op in (Op.LOGAND, Op.LOGOR):
                    both = both != 0
                out[: len(more)] = UFUNCS[self.op](both[0], both[1])
        return out

    def wanted(self, x: Array, thread: int) -> tuple[Array, Array]:
        """What a thread must find: (offsets, values)."""
        size = self.dtype.itemsize
        if "fix" in self.form:
            threads, offsets = self.dst.places(self.n, size)
            mine = threads == thread
            results = self.results(x) if mine.any() else x
            return offsets[mine], results[mine]
        if not self.form.endswith("all") and thread != self.dst.thread:
            return np.empty(0, int), x[:0]
        results = self.results(x)
        return self.dst.offset + np.arange(len(results)) * size, results


class Memory:
    """Two operands of PART bytes on each thread."""

    def __init__(self) -> None:
        self.src = xupc.all_alloc(xupc.THREADS * PART, "u1", PART)
        self.dst = xupc.all_alloc(xupc.THREADS * PART, "u1", PART)

    def pointer(self, array: str, dealt: Dealt, dtype: np.dtype[Any]) -> Any:
        """The pointer with that layout."""
        shift = dealt.phase * dtype.itemsize
        start = getattr(self, array) + (dealt.thread * PART + dealt.offset - shift)
        return start.cast(dtype, dealt.block) + dealt.phase

    def arguments(self, case: Case, flags: int) -> tuple[Any, ...]:
        """Return the arguments of the collective's call."""
        src, dst = case.src, case.dst
        block = src.block if case.given else None
        return (
            self.pointer("dst", dst, case.dtype),
            self.pointer("src", src, case.dtype),
            case.op, case.n, block, case.func, flags,
        )  # fmt: skip

    def write(self, case: Case, x: Array, thread: int) -> None:
        """A thread's operands, and poison to where its results go."""
        threads, offsets = case.src.places(case.n, case.dtype.itemsize)
        if x.dtype.names:  # numpy would not copy padding
            x = x.view(f"V{x.dtype.itemsize}")
        mine = np.ascontiguousarray(x[threads == thread])
        if len(mine):  # they lie side by side
            xupc.memput(self.src + (thread * PART + int(offsets[threads == thread][0])), mine,
                        mine.nbytes)  # fmt: skip
        xupc.memset(self.dst + thread * PART, POISON, case.room)

    def check(self, case: Case, wanted: tuple[Array, Array], thread: int, what: object) -> None:
        """A thread's results are `Case.wanted`, and nothing else has been written."""
        found = np.empty(case.room, np.uint8)
        xupc.memget(found, self.dst + thread * PART, case.room)
        offsets, want = wanted
        if len(want):
            at, size = int(offsets[0]), want.nbytes
            assert int(offsets[-1]) == at + size - case.dtype.itemsize
            got = found[at : at + size].view(case.dtype)
            bad = different(got, want)
            assert not bad.size, (
                f"{what}: {case}: thread {thread}: {bad.size} of {len(want)} results are wrong, "
                f"the first is {bad[0]}: {got[bad[0]]!r} instead of {want[bad[0]]!r}"
            )
            found[at : at + size] = POISON
        spoilt = np.flatnonzero(found != POISON)
        assert not spoilt.size, f"{what}: {case}: thread {thread}: wrote at {spoilt[:5]}"


def different(got: Array, want: Array) -> Array:
    """Return the indices at which two arrays differ."""
    if got.dtype.names:
        some = [different(got[name], want[name]) for name in got.dtype.names]
        return np.unique(np.concatenate(some))
    return np.flatnonzero((got != want) & ~((got != got) & (want != want)))


def layout(rng: random.Random, dtype: np.dtype[Any], n: int, block: int, *, phase: bool) -> Dealt:
    """Somewhere."""
    at = rng.randrange(block) if phase and block else 0
    offset = (at + rng.randrange(40)) * dtype.itemsize
    return Dealt(rng.randrange(xupc.THREADS), at, block, -(-offset // 16) * 16)


def case(rng: random.Random, form: str, dtype: np.dtype[Any], op: Op, func: Any) -> Case:
    """A call at random: small as a rule, now and then around the sizes where ways part."""
    T, size = xupc.THREADS, dtype.itemsize
    dice = rng.random()
    n = rng.choice([1, 2, 3, 5, 7, 16, 31, 33, 64, 100, 257])
    block = rng.choice([0, 1, 1, 2, 3, 5, 8, 16, 40])
    if dice < 0.25:  # fused or not
        n = (16384 // size) + rng.choice([-1, 0, 1])
        block = rng.choice([0, n // T + 1, n // (2 * T) + 1, n // (3 * T)])
    elif dice < 0.4 and "mpi" in form:  # one piece or two on the way
        block = 32768 // size + rng.choice([-1, 0, 1])
        n = block * min(T + 1, 3) - rng.choice([0, 1, 7])
    elif dice < 0.5:  # many rows
        n, block = rng.choice([400, 1300]), rng.choice([1, 2])
    if func is not None or dtype.names:
        n, block = min(n, 500), min(block, 200)
    if dtype.kind == "f" and size == 2:
        n, block = min(n, 500), min(block, 100)
    src = layout(rng, dtype, n, block, phase="mpi" not in form)
    given = rng.random() < 0.6
    if "fix" not in form:
        dst = layout(rng, dtype, n, rng.choice([0, 1, 7]), phase=True)
        if form.endswith("all"):
            dst = Dealt(0, dst.phase, dst.block, dst.offset)
    elif rng.random() < 0.4:
        dst = Dealt(src.thread, src.phase, block, src.offset + 32)
    else:
        other = block if given else rng.choice([block, 0, 1, 3, n // T + 1])
        dst = layout(rng, dtype, n, other, phase=True)
    return Case(form, dtype, op, func, n, src, dst, given)
