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

import xupc.engine
from xupc.engine.kernels import Kernel, find
from xupc.ops import Op, vectorized

INTS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "q", "Q"]
FLOATS = ["f2", "f4", "f8", "g"]
COMPLEX = ["F", "D", "G"]
BITWISE = {Op.AND, Op.OR, Op.XOR}
ORDER = {Op.MIN, Op.MAX}
BUILTIN = [op for op in Op if op not in (Op.FUNC, Op.NONCOMM_FUNC)]
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
        (("i4,i4", Op.ADD), TypeError, "all_reduce: op: ADD"),
        (("m8[s]", Op.MULT), TypeError, "all_reduce: op: MULT.*times"),
        (("M8[s]", Op.ADD), TypeError, "all_reduce: op: ADD.*times"),
        (("S4", Op.MAX), TypeError, "all_reduce: op: MAX"),
        ((np.dtype("f8").newbyteorder(), Op.ADD), TypeError, "native byte order"),
        (("f8", Op.FUNC), ValueError, "all_reduce: func: FUNC"),
        (("f8", Op.NONCOMM_FUNC), ValueError, "all_reduce: func: NONCOMM_FUNC"),
        (("f8", Op.ADD, min), ValueError, "all_reduce: func: .*ADD, got min"),
        (("f8", Op.FUNC, 3), TypeError, "all_reduce: func: .*callable.*3"),
        (("f8", Op.FUNC, np.negative), TypeError, "all_reduce: func: .*negative"),
    ],
)
def test_errors(arguments: tuple, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        find(*arguments)


# ---- C against numpy -----------------------------------------------------------------

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
    include = Path(xupc.engine.__path__[0])
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


def test_the_table(native: ctypes.CDLL) -> None:
    for number, char in enumerate(UPC):
        for op in BUILTIN:
            expected = np.dtype(char).itemsize if op in ops_of(char) else 0
            assert native.size(number, int(op)) == expected
    assert all(native.size(11, int(op)) == 1 for op in BUILTIN)
    for type_, op in ((-1, 0), (12, 0), (0, -1), (0, 9)):
        assert native.size(type_, op) == 0


NATIVE = pairs([*UPC, "?"])


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


@pytest.mark.parametrize(("char", "op"), NATIVE)
def test_native_fold(native: ctypes.CDLL, char: str, op: Op) -> None:
    kernel = find(char, op)
    for n, seed in itertools.product([*SIZES, 30_011], (1, 2, 3)):
        x = values(char, n + 1, seed)[1:]
        out = np.zeros(1, char)
        call(native.fold, kernel.code, out, x, n)
        assert same(out, kernel.fold(x))


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
