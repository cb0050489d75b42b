"""The reduction kernels, in numpy and in C, against oracles that go one element at a time."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import xupc
from xupc.flags import Flags
from xupc.ops import Op, vectorized
from xupc.reduction.kernel_base import Kernel
from xupc.reduction.kernels import find

INTS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "q", "Q"]
FLOATS = ["f2", "f4", "f8", "g"]
COMPLEX = ["F", "D", "G"]
BITWISE = {Op.AND, Op.OR, Op.XOR}
ORDER = {Op.MIN, Op.MAX}
LOCATED = [Op.MINLOC, Op.MAXLOC]
BUILTIN = [op for op in Op if op not in (Op.FUNC, Op.NONCOMM_FUNC, *LOCATED)]
SIZES = [1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 1000]
# The UPC types in the order of their codes, and what each may do.
UPC = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "g"]


def ops_of(char: str) -> list[Op]:
    kind = np.dtype(char).kind
    without = BITWISE if kind == "f" else BITWISE | ORDER if kind == "c" else set()
    return [op for op in BUILTIN if op not in without]


def pairs(chars: list[str]) -> list:
    return [pytest.param(c, op, id=f"{c}-{op.name}") for c in chars for op in ops_of(c)]


def values(char: str, n: int, seed: int = 1) -> np.ndarray:
    """n values, among them the hard ones of the type."""
    rng = np.random.default_rng([seed, n])
    dtype = np.dtype(char)
    if dtype.kind == "b":
        return rng.choice(np.array([0, 0, 0, 1, 2, 255], np.uint8), n).view(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        hard = [0, 0, info.min, info.max, 1, 2]
    elif dtype.kind == "c":
        parts = values(dtype.type().real.dtype.char, 2 * n, seed)
        return parts.view(dtype)
    else:
        x = (rng.standard_normal(n) * 10.0 ** rng.integers(-2, 3, n)).astype(dtype)
        tiny = np.finfo(dtype).smallest_subnormal
        hard = [0.0, -0.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, tiny, -3 * tiny]
        hard += [np.finfo(dtype).max, np.finfo(dtype).tiny]
        if dtype.itemsize >= 8:
            hard += [1e300, -1e300, 1e-300]
    if seed % 3:  # every third seed: tame values only
        where = rng.random(n) < (0.3 if seed % 3 == 1 else 4 / n)
        x[where] = rng.choice(np.array(hard, dtype), n)[where]
    return x


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    """The same bits. long double has padding: the same value and sign, and one NaN.

    Any byte but 0 is true.
    """
    got, expected = np.atleast_1d(got), np.atleast_1d(expected)
    assert got.dtype == expected.dtype
    if got.dtype.kind == "b":
        return np.array_equal(got.view("u1") != 0, expected.view("u1") != 0)
    if got.dtype.char not in "gG":
        return got.tobytes() == expected.tobytes()
    got, expected = got.view("g"), expected.view("g")
    return np.array_equal(got, expected, equal_nan=True) and np.array_equal(
        np.signbit(got), np.signbit(expected)
    )


# ---- oracles: one element at a time -------------------------------------------------


def wrap(value: int, dtype: np.dtype) -> int:
    width = 8 * dtype.itemsize
    value %= 1 << width
    return value - (1 << width) if dtype.kind == "i" and value >> (width - 1) else value


def int_op(op: Op, a: int, b: int) -> int:
    return {
        Op.ADD: a + b,
        Op.MULT: a * b,
        Op.AND: a & b,
        Op.OR: a | b,
        Op.XOR: a ^ b,
        Op.LOGAND: int(a != 0 and b != 0),
        Op.LOGOR: int(a != 0 or b != 0),
        Op.MIN: min(a, b),
        Op.MAX: max(a, b),
    }[op]


def float_op(op: Op, a, b):
    if op == Op.ADD:
        return a + b
    if op == Op.MULT:
        return a * b
    if op in (Op.LOGAND, Op.LOGOR):
        return float(int_op(op, int(a != 0), int(b != 0)))
    if a != a or b != b:
        return math.nan
    if a == b:
        negative = np.signbit([a, b])
        return a if negative[0] == (negative.any() if op == Op.MIN else negative.all()) else b
    return (a if a < b else b) if op == Op.MIN else (a if a > b else b)


def canonical(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "fc":
        parts = x.view(x.real.dtype)
        parts[np.isnan(parts)] = np.nan
    return x


def oracle(op: Op, a, b):
    """`a` op `b` of two numpy scalars; Python's numbers wherever they are exact enough."""
    dtype = a.dtype
    if dtype.kind == "b":
        whole = {Op.ADD: Op.LOGOR, Op.MULT: Op.LOGAND}.get(op, op)
        return dtype.type(int_op(whole, int(a), int(b)))
    if dtype.kind in "iu":
        return np.array(wrap(int_op(op, int(a), int(b)), dtype), dtype)[()]
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            if op in (Op.LOGAND, Op.LOGOR):
                return dtype.type(int_op(op, int(a != 0), int(b != 0)))
            out = np.empty(1, dtype)
            if op == Op.ADD:
                out.real, out.imag = a.real + b.real, a.imag + b.imag
            else:
                out.real = a.real * b.real - a.imag * b.imag
                out.imag = a.real * b.imag + a.imag * b.real
            return out[0]
        if dtype.char == "g":
            return dtype.type(float_op(op, a, b))
        # Twice the digits and two more: rounding twice does no harm.
        return dtype.type(float_op(op, float(a), float(b)))


def fold_oracle(op: Op, x: np.ndarray):
    step = functools.partial(oracle, op)
    if len(x) < 32:
        return functools.reduce(step, x)
    whole = len(x) // 16 * 16
    acc = [functools.reduce(step, x[j:whole:16]) for j in range(16)]
    a = [step(acc[2 * j], acc[2 * j + 1]) for j in range(8)]
    b = [step(a[2 * j], a[2 * j + 1]) for j in range(4)]
    top = step(step(b[0], b[1]), step(b[2], b[3]))
    return functools.reduce(step, x[whole:], top)


def scan_oracle(op: Op, x: np.ndarray, carry, reverse: bool) -> np.ndarray:
    out = x.copy()
    past = carry
    for i in range(len(x))[:: -1 if reverse else 1]:
        if past is not None:
            out[i] = oracle(op, x[i], past) if reverse else oracle(op, past, x[i])
        past = out[i]
    return out


# ---- numpy against the oracles ------------------------------------------------------

EVERYTHING = pairs([*INTS, *FLOATS, *COMPLEX, "?"])


@pytest.mark.parametrize(("char", "op"), EVERYTHING)
def test_combine(char: str, op: Op) -> None:
    kernel = find(char, op)
    a, b = values(char, 300), values(char, 300, seed=4)
    expected = canonical(np.array([oracle(op, x, y) for x, y in zip(a, b, strict=True)], char))
    for place in (None, a, b):
        x, y = a.copy(), b.copy()
        out = x if place is a else y if place is b else np.empty_like(a)
        kernel.combine(out, x, y)
        assert same(out, expected)
    kernel.combine(a[:0], a[:0], b[:0])


@pytest.mark.parametrize(("char", "op"), EVERYTHING)
def test_fold(char: str, op: Op) -> None:
    for n, seed in itertools.product(SIZES, (1, 2, 3)):
        x = values(char, n, seed)
        before = x.tobytes()
        got = find(char, op).fold(x)
        assert isinstance(got, np.generic)
        assert got.dtype == x.dtype
        assert same(got, canonical(np.array([fold_oracle(op, x)], char)))
        assert x.tobytes() == before


@pytest.mark.parametrize(("char", "op"), EVERYTHING)
def test_scan(char: str, op: Op) -> None:
    kernel = find(char, op)
    for n, seed in itertools.product([0, 1, 2, 3, 16, 33, 200], (1, 3)):
        x = values(char, n, seed)
        for carry in (None, values(char, 5, seed)[3]):
            for reverse in (False, True):
                expected = canonical(scan_oracle(op, x, carry, reverse))
                dst = np.empty_like(x)
                kernel.scan(dst, x, carry, reverse)
                assert same(dst, expected)
                kernel.scan(dst := x.copy(), dst, carry, reverse)
                assert same(dst, expected)


def test_a_long_fold_keeps_the_written_order() -> None:
    x = values("f4", 16 * 3000 + 5, seed=3)
    assert same(find("f4", Op.ADD).fold(x), fold_oracle(Op.ADD, x))


@pytest.mark.parametrize("char", FLOATS)
def test_min_and_max_of_zeros_and_nan(char: str) -> None:
    a = np.array([0.0, -0.0, 0.0, -0.0, np.nan, 1.0, -np.nan, np.inf], char)
    b = np.array([-0.0, 0.0, 0.0, -0.0, 1.0, -np.nan, np.nan, -np.inf], char)
    least = np.array([-0.0, -0.0, 0.0, -0.0, np.nan, np.nan, np.nan, -np.inf], char)
    most = np.array([0.0, 0.0, 0.0, -0.0, np.nan, np.nan, np.nan, np.inf], char)
    for op, expected in ((Op.MIN, least), (Op.MAX, most)):
        out = np.empty_like(a)
        find(char, op).combine(out, a, b)
        assert same(out, expected)
        assert not np.signbit(out[4:7]).any()


def test_float16_rounds_at_each_step() -> None:
    x = np.array([2048, 1, 1], "f2")  # 2049 is no float16
    assert find("f2", Op.ADD).fold(x) == 2048
    find("f2", Op.ADD).scan(x, x)
    assert x.tolist() == [2048, 2048, 2048]


def test_no_warnings() -> None:
    with np.errstate(all="raise"):
        big = np.full(40, 1e300)
        assert find("f8", Op.MULT).fold(big) == np.inf
        find("f8", Op.ADD).combine(big, np.array([np.inf] * 40), np.array([-np.inf] * 40))
        assert np.isnan(big).all()
        find("f8", Op.MIN).scan(big, big)


@pytest.mark.parametrize(("char", "op"), EVERYTHING)
def test_the_identity_leaves_other_values_as_they_are(char: str, op: Op) -> None:
    kernel, x = find(char, op), values(char, 300)
    one = np.empty_like(x)
    kernel.fill(one)
    assert (one == one[0]).all()
    expected = canonical(x.copy())
    if op in (Op.LOGAND, Op.LOGOR):  # 0 or 1, in any type
        expected = (x != 0).astype(char)
    for a, b in ((one, x), (x, one)):
        kernel.combine(out := np.empty_like(x), a, b)
        if op == Op.MULT and np.dtype(char).kind == "c":  # by parts: inf * 0 is NaN
            fine = np.isfinite(x)
            out, right = out[fine], expected[fine]
        else:
            right = expected
        zero = np.zeros(1, char)  # of a sum and of a complex product, zeros may change their sign
        assert same(out + zero, right + zero) if op in (Op.ADD, Op.MULT) else same(out, right)


@pytest.mark.parametrize("op", [Op.ADD, Op.MIN, Op.MAX])
def test_the_identity_of_times_is_no_time_of_its_own(op: Op) -> None:
    kernel = find("m8[s]", op)
    kernel.fill(one := np.empty(4, "m8[s]"))
    x = np.array(["NaT", 3, -7, 0], "m8[s]")
    kernel.combine(out := np.empty_like(x), one, x)
    assert out.tobytes() == x.tobytes()


# ---- functions -----------------------------------------------------------------------

P = 1_000_003


def affine(a, b):
    """First a, then b, of maps x -> m x + c, packed: associative, far from commutative."""
    (m, c), (n, d) = divmod(a, P), divmod(b, P)
    return m * n % P * P + (c * n + d) % P


def affine_words(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(P, P * P, n)


class Counted:
    """A function that counts its calls."""

    def __init__(self, func) -> None:
        self.func = func
        self.calls = 0

    def __call__(self, a, b):
        self.calls += 1
        return self.func(a, b)


def running(func, x: list[int], carry: int | None, reverse: bool) -> list[int]:
    out = []
    past = carry
    for value in reversed(x) if reverse else x:
        if past is not None:
            value = func(value, past) if reverse else func(past, value)
        out.append(past := value)
    return out[::-1] if reverse else out


@pytest.mark.parametrize("whole", [False, True], ids=["scalar", "vectorized"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 10, 31, 100, 1000])
def test_the_order_of_operands(n: int, whole: bool) -> None:
    func = vectorized(Counted(affine)) if whole else Counted(affine)
    kernel = find("i8", Op.NONCOMM_FUNC, func)
    x = affine_words(n)
    words = x.tolist()
    assert kernel.fold(x) == functools.reduce(affine, words)
    assert func.calls == (math.ceil(math.log2(n)) if whole else n - 1)

    for carry in (None, 7 * P + 5):
        for reverse in (False, True):
            func.calls = 0
            dst = x.copy()
            kernel.scan(dst, dst, carry, reverse)
            assert dst.tolist() == running(affine, words, carry, reverse)
            if whole:
                assert func.calls <= 3 * math.sqrt(n) + 5
            else:
                assert func.calls == n - (carry is None)

    func.calls = 0
    y = x[::-1].copy()
    out = np.empty_like(x)
    kernel.combine(out, x, y)
    assert out.tolist() == [affine(a, b) for a, b in zip(words, words[::-1], strict=True)]
    assert func.calls == (1 if whole else n)


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 4095, 4096, 4097, 4096 * 5 + 77])
def test_a_commutative_vectorized_function_is_called_on_long_rows(n: int) -> None:
    func = vectorized(Counted(lambda a, b: a * b % P))
    x = np.random.default_rng(n).integers(1, P, n)
    assert find("i8", Op.FUNC, func).fold(x) == functools.reduce(lambda a, b: a * b % P, x.tolist())
    assert func.calls <= n // 4096 + 12
    other = x.copy()
    find("i8", Op.FUNC, func).scan(other, x)
    assert other.tolist() == running(lambda a, b: a * b % P, x.tolist(), None, False)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1024, 1025, 1026, 2049, 32768, 32769, 32770, 65537, 99999])
def test_long_runs_keep_the_order_of_operands(n: int, reverse: bool) -> None:
    func = vectorized(Counted(affine))
    kernel = find("i8", Op.NONCOMM_FUNC, func)
    x = affine_words(n)
    words = x.tolist()
    assert kernel.fold(x) == functools.reduce(affine, words)
    for carry in (None, 7 * P + 5):
        func.calls = 0
        dst = x.copy()
        kernel.scan(dst, dst, carry, reverse)
        assert dst.tolist() == running(affine, words, carry, reverse)
        blocks = n // 32768 + 1
        assert func.calls <= 30 * blocks
        other = np.empty_like(x)
        kernel.scan(other, x, carry, reverse)
        assert other.tolist() == dst.tolist()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_function_may_return_an_operand(reverse: bool) -> None:
    for char in ("i8", "g"):
        for n in (3, 1100, 40_000):
            x = np.arange(1, n + 1).astype(char)
            first = find(char, Op.NONCOMM_FUNC, vectorized(lambda a, b: a))
            last = find(char, Op.NONCOMM_FUNC, vectorized(lambda a, b: b))
            assert (first.fold(x), last.fold(x)) == (1, n)
            out = np.empty_like(x)
            first.combine(out, x, x[::-1].copy())
            assert out.tolist() == x.tolist()
            first.scan(out, x, None, reverse)
            assert out.tolist() == (x.tolist() if reverse else [1] * n)
            last.scan(out, x, None, reverse)
            assert out.tolist() == ([n] * n if reverse else x.tolist())


SAME = {
    np.add: Op.ADD, np.multiply: Op.MULT, np.bitwise_and: Op.AND, np.bitwise_or: Op.OR,
    np.bitwise_xor: Op.XOR, np.logical_and: Op.LOGAND, np.logical_or: Op.LOGOR,
    np.minimum: Op.MIN, np.maximum: Op.MAX,
}  # fmt: skip


@pytest.mark.parametrize("char", [*UPC, "?"])
@pytest.mark.parametrize("ufunc", SAME, ids=lambda f: f.__name__)
def test_a_ufunc_that_is_a_built_in_operation(char: str, ufunc: np.ufunc) -> None:
    op = SAME[ufunc]
    kernel = find(char, Op.FUNC, ufunc)
    if op not in ops_of(char):
        assert (kernel.code, kernel.func) == (None, ufunc)
        return
    native = find(char, op)
    assert (kernel.code, kernel.func, kernel.op) == (native.code, None, op)
    assert find(char, Op.NONCOMM_FUNC, ufunc).code is None
    # what numpy says of two operands, but for which NaN and which of equal zeros
    a, b = values(char, 4000), values(char, 4000, seed=4)
    got = np.empty_like(a)
    kernel.combine(got, a, b)
    with np.errstate(all="ignore"):
        said = ufunc(a, b).astype(a.dtype)
    if op in ORDER:
        got, said = got + a.dtype.type(0), said + a.dtype.type(0)
    assert same(got, canonical(said))


def test_ufuncs_that_only_look_like_built_in_operations() -> None:
    assert find("f8", Op.FUNC, np.fmax).code is None
    assert find("?", Op.FUNC, np.logical_xor).code is None
    assert find("F", Op.FUNC, np.add).code is None
    assert find("f2", Op.FUNC, np.add).code is None
    assert find("f8", Op.FUNC, np.frompyfunc(lambda a, b: a + b, 2, 1)).code is None


def test_a_scalar_function_gets_scalars_from_left_to_right() -> None:
    seen = []

    def func(a, b):
        seen.append((type(a), type(b), int(a), int(b)))
        return int(b)

    x = np.array([1, 2, 3], "i2")
    for op in (Op.FUNC, Op.NONCOMM_FUNC):
        seen.clear()
        assert find("i2", op, func).fold(x) == 3
        assert seen == [(np.int16, np.int16, 1, 2), (np.int16, np.int16, 2, 3)]


def test_results_become_the_dtype() -> None:
    x = np.array([100, 100], "i1")
    for func in (lambda a, b: int(a) + int(b), vectorized(lambda a, b: a.astype(int) + b)):
        got = find("i1", Op.FUNC, func).fold(x)
        assert got == -56
        assert got.dtype == np.int8
    third = find("f4", Op.FUNC, lambda a, b: float(a) / 3)
    assert third.fold(x.astype("f4")) == np.float32(100 / 3)
    assert find("?", Op.FUNC, lambda a, b: a > b).fold(np.array([True, False])) is np.True_


def test_ufuncs_are_called_on_whole_arrays() -> None:
    x = np.array([3, 5, 4], "i8")
    assert find("i8", Op.FUNC, np.maximum).fold(x) == 5
    assert find("i8", Op.FUNC, np.greater).fold(x) == 0  # (3 > 5) > 4, of numbers
    assert find("i8", Op.FUNC, np.frompyfunc(lambda a, b: a * b, 2, 1)).fold(x) == 60


@pytest.mark.parametrize("result", [lambda a, b: a[:1], lambda a, b: a.sum(), lambda a, b: None])
def test_a_vectorized_function_of_a_wrong_shape(result) -> None:
    kernel = find("f8", Op.FUNC, vectorized(result), call="all_reduce_all")
    x = np.ones(64)
    for attempt in (lambda: kernel.fold(x), lambda: kernel.combine(x, x, x)):
        with pytest.raises(ValueError, match=r"all_reduce_all: func: .*<lambda>.* \(\d+,\)"):
            attempt()
    assert x.tolist() == [1] * 64


def test_a_scalar_function_that_returns_no_scalar() -> None:
    for result in (None, [1, 2], "text"):
        kernel = find("f8", Op.FUNC, lambda a, b, result=result: result)
        with pytest.raises((TypeError, ValueError)):
            kernel.fold(np.ones(3))


def test_a_vectorized_function_cannot_spoil_its_operands() -> None:
    @vectorized
    def func(a, b):
        a += b
        return a

    x = np.ones(10)
    with pytest.raises(ValueError, match="read-only"):
        find("f8", Op.FUNC, func).fold(x)
    assert x.tolist() == [1] * 10


# ---- find ----------------------------------------------------------------------------


def test_codes_and_attributes() -> None:
    for number, char in enumerate(UPC):
        for op in ops_of(char):
            assert find(char, op).code == (number, int(op))
    kernel = find("q", Op.MIN)
    assert (kernel.dtype, kernel.op, kernel.func) == (np.dtype("q"), Op.MIN, None)
    assert kernel.code == (6, 7)
    assert find("Q", Op.ADD).code == (7, 0)
    assert find("?", Op.ADD).code == (11, 0)
    assert find("f2", Op.ADD).code is None
    assert find("D", Op.LOGOR).code is None
    func = find("f8", Op.FUNC, min)
    assert isinstance(func, Kernel)
    assert (func.func, func.code) == (min, None)


def test_times() -> None:
    x = np.array([3, -1, 7, "NaT", 5], "m8[s]")
    for op, expected in ((Op.ADD, np.sum), (Op.MIN, np.min), (Op.MAX, np.max)):
        for some in (x[:3], x):
            assert np.array_equal(find("m8[s]", op).fold(some), expected(some), equal_nan=True)
    out = np.empty(3, "M8[s]")
    find("M8[s]", Op.MAX).scan(out, x[:3].astype("i8").astype("M8[s]"))
    assert out.astype("i8").tolist() == [3, 3, 7]


UNION = np.dtype({"names": ["v", "i"], "formats": ["f8", "i4"], "offsets": [0, 4]})


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("f8", 0), TypeError, "all_reduce: op: .*xupc.Op.*got 0"),
        (("f8", None), TypeError, "all_reduce: op: .*got None"),
        (("f8", Op.AND), TypeError, "all_reduce: op: AND.*float64"),
        (("f2", Op.XOR), TypeError, "all_reduce: op: XOR.*float16"),
        (("D", Op.OR), TypeError, "all_reduce: op: OR.*complex128"),
        (("D", Op.MIN), TypeError, "all_reduce: op: MIN.*complex128"),
        (("F", Op.MAX), TypeError, "all_reduce: op: MAX.*complex64"),
        (("O", Op.ADD), TypeError, "all_reduce: op: ADD.*object"),
        (("O", Op.FUNC, min), TypeError, "all_reduce: op: FUNC.*object"),
        (("i4,i4", Op.ADD), TypeError, "all_reduce: op: ADD.*MINLOC.*FUNC"),
        (("f8", Op.MINLOC), TypeError, "all_reduce: op: MINLOC.*float64.*value.*index"),
        (("c8,i4", Op.MINLOC), TypeError, "all_reduce: op: MINLOC.*value.*index"),
        (("f8,f8", Op.MAXLOC), TypeError, "all_reduce: op: MAXLOC.*value.*index"),
        (("f8,?", Op.MAXLOC), TypeError, "all_reduce: op: MAXLOC.*value.*index"),
        (("f8,i8,i8", Op.MAXLOC), TypeError, "all_reduce: op: MAXLOC.*value.*index"),
        (("2f8,i8", Op.MAXLOC), TypeError, "all_reduce: op: MAXLOC.*value.*index"),
        ((UNION, Op.MINLOC), TypeError, "all_reduce: op: MINLOC.*value.*index"),
        (("f8,i8", Op.MINLOC, min), ValueError, "all_reduce: func: .*MINLOC, got min"),
        (("f8,O", Op.FUNC, min), TypeError, "all_reduce: op: FUNC.*objects"),
        (("f8,O", Op.MINLOC), TypeError, "all_reduce: op: MINLOC.*objects"),
        (("f8,>i4", Op.MINLOC), TypeError, "all_reduce: op: MINLOC.*native byte order"),
        (("257u1,i4", Op.FUNC, min), TypeError, "all_reduce: op: FUNC.*1 to 256 bytes, got 261"),
        (([], Op.FUNC, min), TypeError, "all_reduce: op: FUNC.*1 to 256 bytes, got 0"),
        (("f8,i8", Op.FUNC), ValueError, "all_reduce: func: FUNC"),
        (("f8,i8", Op.FUNC, np.add), TypeError, "all_reduce: func: add is not for records"),
        (("f8,i8", Op.FUNC, 3), TypeError, "all_reduce: func: .*callable.*3"),
        (("m8[s]", Op.MULT), TypeError, "all_reduce: op: MULT.*times"),
        (("M8[s]", Op.ADD), TypeError, "all_reduce: op: ADD.*times"),
        (("S4", Op.MAX), TypeError, "all_reduce: op: MAX"),
        ((np.dtype("f8").newbyteorder(), Op.ADD), TypeError, "native byte order"),
        (("f8", Op.FUNC), ValueError, "all_reduce: func: FUNC"),
        (("f8", Op.NONCOMM_FUNC), ValueError, "all_reduce: func: NONCOMM_FUNC"),
        (("f8", Op.ADD, min), ValueError, "all_reduce: func: .*ADD, got min"),
        (("f8", Op.ADD, Flags.ASYNC), TypeError, "all_reduce: func: got ASYNC, a flag: pass it"),
        (("f8", Op.FUNC, 3), TypeError, "all_reduce: func: .*callable.*3"),
        (("f8", Op.FUNC, np.negative), TypeError, "all_reduce: func: .*negative"),
    ],
)
def test_errors(arguments: tuple, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        find(*arguments)


# ---- C against numpy -----------------------------------------------------------------

C_ALONE = pytest.mark.once  # no Python is compiled into the library: all Pythons test the same

LIBRARY = """
#include "kernels.h"
int size(int type, int op) { return xk_find(type, op) ? xk_find(type, op)->size : 0; }
void combine(int type, int op, void *out, const void *a, const void *b, int64_t n)
{ xk_find(type, op)->combine(xk_find(type, op), out, a, b, n); }
void fold(int type, int op, void *out, const void *x, int64_t n)
{ xk_find(type, op)->fold(xk_find(type, op), out, x, n); }
void scan(int type, int op, void *dst, const void *src, int64_t n, const void *carry,
          int64_t reverse)
{ xk_find(type, op)->scan(xk_find(type, op), dst, src, n, carry, reverse); }
void fill(int type, int op, void *out, int64_t n)
{ xk_find(type, op)->fill(xk_find(type, op), out, n); }
static xk_located found;
int locate(int type, int op, int size, int value, int index, int width, int has_sign)
{ return xk_locate(&found, type, op, size, value, index, width, has_sign); }
void combine_records(void *out, const void *a, const void *b, int64_t n)
{ found.kernel.combine(&found.kernel, out, a, b, n); }
void fold_records(void *out, const void *x, int64_t n)
{ found.kernel.fold(&found.kernel, out, x, n); }
void fill_records(void *out, int64_t n) { found.kernel.fill(&found.kernel, out, n); }
void scan_records(void *dst, const void *src, int64_t n, const void *carry, int64_t reverse)
{ found.kernel.scan(&found.kernel, dst, src, n, carry, reverse); }
"""


@pytest.fixture(scope="module", params=["clones", "no-clones"])
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "library.c").write_text(LIBRARY)
    flags = ["-std=c11", "-O3", "-fwrapv", "-ffp-contract=off", "-fPIC", "-shared", "-Wall"]
    if request.param == "no-clones":
        flags.append("-DXK_NO_CLONES")
    include = Path(xupc.__file__).parent / "backends" / "native"
    command = [compiler, *flags, f"-I{include}", "library.c", "-o", "library.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return ctypes.CDLL(str(folder / "library.so"))


def call(function, code: tuple[int, int], *arguments) -> None:
    """Call C with arrays as addresses and ints as int64_t."""
    function.restype = None
    function(
        *code,
        *(
            ctypes.c_int64(x) if isinstance(x, int) else None if x is None else address(x)
            for x in arguments
        ),
    )


def address(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


@C_ALONE
def test_the_table(native: ctypes.CDLL) -> None:
    for number, char in enumerate(UPC):
        for op in BUILTIN:
            expected = np.dtype(char).itemsize if op in ops_of(char) else 0
            assert native.size(number, int(op)) == expected
    assert all(native.size(11, int(op)) == 1 for op in BUILTIN)
    for type_, op in ((-1, 0), (12, 0), (0, -1), (0, 9)):
        assert native.size(type_, op) == 0


NATIVE = pairs([*UPC, "?"])


@C_ALONE
@pytest.mark.parametrize(("char", "op"), NATIVE)
def test_native_combine(native: ctypes.CDLL, char: str, op: Op) -> None:
    kernel = find(char, op)
    for n, seed in itertools.product([0, *SIZES], (1, 2, 3)):
        a, b = values(char, n + 1, seed)[1:], values(char, n + 1, seed + 3)[1:]
        expected = np.empty_like(a)
        kernel.combine(expected, a, b)
        for place in (None, a, b):
            x, y = a.copy(), b.copy()
            out = x if place is a else y if place is b else np.empty_like(a)
            call(native.combine, kernel.code, out, x, y, n)
            assert same(out, expected)
        kernel.combine(expected, a, a)
        call(native.combine, kernel.code, a, a, a, n)
        assert same(a, expected)


@C_ALONE
@pytest.mark.parametrize(("char", "op"), NATIVE)
def test_native_fold(native: ctypes.CDLL, char: str, op: Op) -> None:
    kernel = find(char, op)
    for n, seed in itertools.product([*SIZES, 30_011], (1, 2, 3)):
        x = values(char, n + 1, seed)[1:]
        out = np.zeros(1, char)
        call(native.fold, kernel.code, out, x, n)
        assert same(out, kernel.fold(x))


@C_ALONE
@pytest.mark.parametrize(("char", "op"), NATIVE)
def test_native_scan(native: ctypes.CDLL, char: str, op: Op) -> None:
    kernel = find(char, op)
    for n, seed, reverse in itertools.product([0, *SIZES], (1, 2, 3), (False, True)):
        x = values(char, n + 1, seed)[1:]
        for carry in (None, values(char, 1, seed + 3)):
            expected = np.empty_like(x)
            kernel.scan(expected, x, carry, reverse)
            dst = np.empty_like(x)
            call(native.scan, kernel.code, dst, x, n, carry, int(reverse))
            assert same(dst, expected)
            call(native.scan, kernel.code, x_too := x.copy(), x_too, n, carry, int(reverse))
            assert same(x_too, expected)


@C_ALONE
@pytest.mark.parametrize(("char", "op"), NATIVE)
def test_native_identity(native: ctypes.CDLL, char: str, op: Op) -> None:
    kernel = find(char, op)
    out, expected = (np.full(5 * np.dtype(char).itemsize, 0xA5, "u1").view(char) for _ in range(2))
    call(native.fill, kernel.code, out, 5)
    kernel.fill(expected)
    assert out.tobytes() == expected.tobytes()


@C_ALONE
def test_native_long_doubles_have_clean_padding(native: ctypes.CDLL) -> None:
    if np.finfo("g").nmant != 63:
        pytest.skip("long double is not x87's here")
    for op in ops_of("g"):
        kernel = find("g", op)
        x = values("g", 50)
        results = []
        for fill in (0, 255):
            out = np.frombuffer(bytearray([fill]) * x.nbytes, "g")
            call(native.combine, kernel.code, out, x, x, len(x))
            results.append(out.tobytes())
        kernel.combine(out, x, x)
        assert {*results, out.tobytes()} == {results[0]}


@pytest.mark.parametrize("more", [0, 1, 2, 31, 32, 33, 63, 64, 65])
@pytest.mark.parametrize("reverse", [False, True])
def test_long_scans_by_vectorized_functions_end_anywhere(more: int, reverse: bool) -> None:
    """They go in blocks; the last one may be a few elements."""
    n = (1 << 17) + more
    x = np.random.default_rng(more).integers(-9, 9, n)
    y = np.empty_like(x)
    find("i8", Op.FUNC, vectorized(lambda a, b: a + b)).scan(y, x, None, reverse)
    expected = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    assert np.array_equal(y, expected)


# ---- records ---------------------------------------------------------------------------

VALUES = [*INTS, *FLOATS, "?", "m8[s]", "M8[s]"]
INDICES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def layouts(value: str, index: str) -> list[np.dtype]:
    """Packed, as C lays them out, the other way round, far apart."""
    wide, far = np.dtype(value).itemsize, np.dtype(index).itemsize
    names = {"names": ["v", "i"], "formats": [value, index]}
    return [
        np.dtype([("v", value), ("i", index)]),
        np.dtype([("v", value), ("i", index)], align=True),
        np.dtype({**names, "offsets": [far, 0]}),
        np.dtype({**names, "offsets": [3, wide + 5], "itemsize": wide + far + 9}),
    ]


def records(dtype: np.dtype, n: int, seed: int = 1, fill: int = 0xA5) -> np.ndarray:
    """n records with garbage between their fields; few different values and indices."""
    x = np.frombuffer(bytearray([fill]) * (n * dtype.itemsize), dtype)
    rng = np.random.default_rng([seed, n])
    (value, _), (index, _) = (dtype.fields[name][:2] for name in dtype.names)
    if value.kind in "mM":
        some = np.array(["NaT", 3, -7, 0], "m8[s]").astype("i8").view(value)
    else:
        some = values(value.str, 7, seed)
        if value.kind == "f":
            some[:4] = 0.0, -0.0, np.nan, -np.nan
    ends = np.iinfo(index)
    few = np.array([ends.min, ends.max, 0, 1, 2, ends.max // 2 + 1], index)
    x["v"], x["i"] = rng.choice(some, n), rng.choice(few, n)
    return x


def key(op: Op, record: np.void) -> tuple:
    """By which the first is taken: NaN, then by value, zeros by sign, then by index."""
    value, index = record["v"], int(record["i"])
    if value != value:
        return (0, 0, 0, index)
    sign = 1 if op == Op.MINLOC else -1
    if value.dtype.kind == "f":
        return (1, sign * value, sign * (0 if np.signbit(value) else 1), index)
    if value.dtype.kind == "b":
        value = value.view("u1") != 0
    elif value.dtype.kind in "mM":
        value = value.view("i8")
    return (1, sign * int(value), 0, index)


def located_oracle(op: Op, *some: np.void) -> bytes:
    """The bytes of the first one."""
    best = min(some, key=functools.partial(key, op))
    out = np.zeros(1, best.dtype)
    value = canonical(np.array([best["v"]]))
    if value.dtype.kind == "b":
        value = value.view("u1") != 0
    elif value.dtype.char == "g" and np.finfo("g").nmant == 63:
        value.view("u1")[10:] = 0
    out["v"], out["i"] = value, best["i"]
    return out.tobytes()


EVERY_PAIR = [
    pytest.param(dtype, op, id=f"{value}-{index}-{layout}-{op.name}")
    for k, (value, index) in enumerate(
        [*((v, "i4") for v in VALUES), *(("f8", i) for i in INDICES), ("i2", "u8")]
    )
    for layout, dtype in enumerate(layouts(value, index))
    for op in LOCATED
    if layout == k % 4 or (value, index) == ("f8", "i4")
]


@pytest.mark.parametrize(("dtype", "op"), EVERY_PAIR)
def test_located(dtype: np.dtype, op: Op) -> None:
    kernel = find(dtype, op)
    assert (kernel.dtype, kernel.op, kernel.func) == (dtype, op, None)
    a, b = records(dtype, 150), records(dtype, 150, seed=2)
    expected = b"".join(located_oracle(op, x, y) for x, y in zip(a, b, strict=True))
    out = records(dtype, 150, fill=0xFF)
    kernel.combine(out, a, b)
    assert out.tobytes() == expected
    kernel.combine(out, b, a)
    assert out.tobytes() == expected
    for place in (a, b):
        x, y = a.copy(), b.copy()
        out = x if place is a else y
        kernel.combine(out, x, y)
        assert out.tobytes() == expected
    one = records(dtype, 150)
    kernel.fill(one)
    for x, y in ((one, a), (a, one)):
        kernel.combine(out, x, y)
        assert out.tobytes() == b"".join(located_oracle(op, record) for record in a)
    for n in (1, 2, 3, 17, 40):
        assert kernel.fold(a[:n]).tobytes() == located_oracle(op, *a[:n])
        kernel.fold_to(out[:1], a[:n])
        assert out[:1].tobytes() == located_oracle(op, *a[:n])
        for carry, reverse in itertools.product((None, b[3]), (False, True)):
            dst = records(dtype, n, fill=0xFF)
            kernel.scan(dst, a[:n], carry, reverse)
            before = [] if carry is None else [carry]
            for i in range(0, n, 3):
                some = [*a[i:n], *before] if reverse else [*before, *a[: i + 1]]
                alone = some[0].tobytes() if len(some) == 1 else b""
                assert dst[i].tobytes() == (alone or located_oracle(op, *some))


@C_ALONE
@pytest.mark.parametrize(("dtype", "op"), EVERY_PAIR)
def test_native_located(native: ctypes.CDLL, dtype: np.dtype, op: Op) -> None:
    kernel = find(dtype, op)
    if dtype["v"].kind in "mM" or dtype["v"] == np.float16:
        assert kernel.code is None
        return
    assert kernel.code is not None
    assert native.locate(*kernel.code) == 1
    one, other = records(dtype, 5, fill=0xFF), records(dtype, 5)
    call(native.fill_records, (), one, 5)
    kernel.fill(other)
    assert one.tobytes() == other.tobytes()
    for n, seed in itertools.product([0, 1, 2, 33, 1000], (1, 2)):
        a, b = records(dtype, n + 1, seed)[1:], records(dtype, n + 1, seed + 3)[1:]
        expected, out = np.zeros(n, dtype), records(dtype, n, fill=0xFF)
        kernel.combine(expected, a, b)
        call(native.combine_records, (), out, a, b, n)
        assert out.tobytes() == expected.tobytes()
        call(native.combine_records, (), x := a.copy(), x, b, n)
        call(native.combine_records, (), y := b.copy(), a, y, n)
        assert x.tobytes() == y.tobytes() == expected.tobytes()
        for carry, reverse in itertools.product((None, b[:1]), (False, True)):
            if n:
                kernel.scan(expected, a, None if carry is None else carry[0], reverse)
            call(native.scan_records, (), out, a, n, carry, int(reverse))
            assert out.tobytes() == expected.tobytes()
            x = np.frombuffer(bytearray(a.tobytes()), dtype)  # numpy would not copy padding
            call(native.scan_records, (), x, x, n, carry, int(reverse))
            assert x.tobytes() == expected.tobytes()
        if n:
            call(native.fold_records, (), out, a, n)
            assert out[0].tobytes() == kernel.fold(a).tobytes()


@C_ALONE
def test_native_located_refuses(native: ctypes.CDLL) -> None:
    good = (9, int(Op.MINLOC), 16, 0, 8, 8, 1)
    assert native.locate(*good) == 1
    for at, bad in (
        (0, -1), (0, 12), (1, 7), (1, 10), (1, 13), (2, 15), (2, 7), (3, -1), (3, 9), (4, -1),
        (4, 9), (5, 0), (5, 3), (5, 16),
    ):  # fmt: skip
        assert native.locate(*good[:at], bad, *good[at + 1 :]) == 0, (at, bad)


def test_the_lowest_index_wins_and_the_order_does_not_count() -> None:
    dtype = np.dtype([("v", "f8"), ("i", "i8")])
    x = np.array([(2, 7), (1, 5), (1, 4), (np.nan, 9), (-np.nan, 8), (-0.0, 3), (0, 2)], dtype)
    for op, some, expected in (
        (Op.MINLOC, x[:3], (1, 4)), (Op.MAXLOC, x[:3], (2, 7)), (Op.MINLOC, x[5:], (-0.0, 3)),
        (Op.MAXLOC, x[5:], (0.0, 2)), (Op.MAXLOC, x[:5], (np.nan, 8)), (Op.MINLOC, x, (np.nan, 8)),
    ):  # fmt: skip
        wanted = np.array(expected, dtype).tobytes()
        for order in itertools.islice(itertools.permutations(range(len(some))), 200):
            assert find(dtype, op).fold(some[list(order)]).tobytes() == wanted


MIXED = np.dtype(
    [("n", "i4"), ("at", "f8", (2, 2)), ("deep", [("x", "u1"), ("y", "g")])], align=True
)


def mixed(n: int) -> np.ndarray:
    x = np.frombuffer(bytearray(b"\xa5" * (n * MIXED.itemsize)), MIXED)
    x["n"], x["deep"]["x"], x["deep"]["y"] = np.arange(n), 1, 0.5
    x["at"] = np.arange(4 * n).reshape(n, 2, 2)
    return x


def one_by_one(a: np.void, b: np.void) -> np.void:
    """Maps of the plane, one after the other; spoils its operands, which are its own."""
    a["n"] += b["n"]
    a["at"] = (a["at"] @ b["at"]) % 97
    return a


def as_tuple(a: np.void, b: np.void) -> tuple:
    return a["n"] + b["n"], (a["at"] @ b["at"]) % 97, (a["deep"]["x"], a["deep"]["y"])


@vectorized
def all_at_once(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = a.copy()
    out["n"] = a["n"] + b["n"]
    out["at"] = (a["at"] @ b["at"]) % 97
    return out


@pytest.mark.parametrize("func", [one_by_one, as_tuple, all_at_once])
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_functions_of_records(func, n: int) -> None:
    kernel = find(MIXED, Op.NONCOMM_FUNC, func)
    x = mixed(n)
    kept = x.tobytes()
    state, results = x[0].copy(), []
    for k in range(n):
        state = state if k == 0 else np.array(as_tuple(state, x[k]), MIXED)[()]
        clean = np.zeros(1, MIXED)
        clean["n"], clean["at"] = state["n"], state["at"]
        for field in MIXED["deep"].names:  # one by one: numpy may copy padding with a record
            clean["deep"][field] = state["deep"][field]
        if np.finfo("g").nmant == 63:
            y = MIXED.fields["deep"][1] + MIXED["deep"].fields["y"][1]
            clean.view("u1")[y + 10 : y + 16] = 0
        results.append(clean.tobytes())
    assert kernel.fold(x).tobytes() == results[-1]
    dst = mixed(n)
    kernel.scan(dst, x)
    assert dst.tobytes() == b"".join([x[:1].tobytes(), *results[1:]])
    kernel.scan(dst, x, None, True)
    assert dst[0].tobytes() == (results[-1] if n > 1 else x.tobytes())
    assert x.tobytes() == kept
    out = mixed(n)
    kernel.combine(out, x, x)
    assert all(out["n"] == 2 * x["n"])
    bytes_of = out.view("u1").reshape(n, -1)
    assert not bytes_of[:, 4:8].any()  # padding


def test_what_functions_of_records_return() -> None:
    dtype = np.dtype([("v", "f8"), ("i", "i4")])
    x = np.array([(1, 2), (3, 4)], dtype)
    other = np.dtype([("a", "f4"), ("b", "i8")])
    for result in ((5, 6), np.array((5, 6), dtype)[()], np.array((5, 6), dtype),
                   np.array((5, 6), other)[()]):  # fmt: skip
        found = find(dtype, Op.FUNC, lambda a, b, r=result: r).fold(x)
        assert found.tolist() == (5.0, 6)
        assert found.dtype == dtype
    for result in (None, 5, 2.5, [5, 6], (5,), (5, 6, 7), ("a", 6), np.zeros(2), np.zeros(1, dtype),
                   np.array((5,), "i4,")[()], x):  # fmt: skip
        with pytest.raises(TypeError, match=r"all_reduce: func: .*lambda.* returned .*expected"):
            find(dtype, Op.FUNC, lambda a, b, r=result: r).fold(x)
    for result in (np.zeros(1), np.zeros(1, "i4,")):
        func = vectorized(lambda a, b, r=result: r)
        with pytest.raises(TypeError, match=r"all_reduce: func: .*lambda.* returned .*records"):
            find(dtype, Op.FUNC, func).fold(x)
    swapped = vectorized(lambda a, b: b.astype(other))
    assert find(dtype, Op.FUNC, swapped).fold(x).tolist() == (3.0, 4)
    by_object = np.frompyfunc(lambda a, b: max(a, b), 2, 1)
    assert find(dtype, Op.FUNC, by_object).fold(x).tolist() == (3.0, 4)


def test_keys_of_records_differ() -> None:
    """Plans are kept by them, and `str` of all dtypes of 12 bytes is the same."""
    def first(a, b):
        return a

    one, other, third = (np.dtype(x) for x in ("f8,i4", "i4,f8", "f4,f8"))
    assert one.str == other.str == third.str
    keys = {find(dtype, Op.FUNC, first).key for dtype in (one, other, third)}
    assert len(keys) == 3
    pairs = [dtype for index in INDICES for dtype in layouts("f8", index)]
    assert len({find(dtype, Op.MINLOC).key for dtype in pairs}) == len(set(pairs))
