"""Which functions the core runs by itself, and that a program cannot detect it."""

from __future__ import annotations

import functools
import itertools
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xupc.backends.native.native_core import core
from xupc.ops import Op, vectorized
from xupc.reduction import kernels, ufunc_capture

pytestmark = pytest.mark.skipif(core is None, reason="no native core")

scale = 3.0
flag = True
sqrt = math.sqrt  # used as np.sqrt alone
heaps: list[Any] = []
SIZES = [1, 2, 3, 5, 31, 1000, 1023, 1024, 1025, 1500, 2049, 4097, 32768, 32769, 70001, 300003]


def weighted(a: Any, b: Any) -> Any:
    """Uses a global."""
    return a + scale * b


def helper(a: Any, b: Any) -> Any:
    """Calls another function."""
    return weighted(b, a) - 1


def with_default(a: Any, b: Any, factor: float = 0.5) -> Any:
    """Uses a default."""
    c = a * factor
    return np.hypot(c, b)


def closure(limit: float) -> Callable[[Any, Any], Any]:
    """Uses a closure."""
    return lambda a, b: np.minimum(a + b, limit)


def loop(a: Any, b: Any) -> Any:
    """Has a loop, which is the same for all operands."""
    for _ in range(2):
        a = a + b
    return a


PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "one operation": lambda a, b: a - b,
    "the other way round": lambda a, b: b - a,
    "numbers": lambda a, b: 2 * a - b / 4,
    "a square": lambda a, b: (a - b) ** 2,
    "a cube": lambda a, b: (a - b) ** 3,
    "a global": weighted,
    "another function": helper,
    "a default": with_default,
    "a closure": closure(1.5),
    "a choice": lambda a, b: np.where(np.abs(a) > np.abs(b), a, b),
    "abs": lambda a, b: abs(a) + abs(-b),
    "used twice": lambda a, b: (a + b) * (a + b) - a,
    "a ufunc": np.logaddexp,
    "another ufunc": np.fmax,
    "a loop": loop,
    "a branch that no operand decides": lambda a, b: a + b if scale else b,
    "starred": lambda *both: both[0] + both[1],
    "names of attributes": lambda a, b: np.sqrt(abs(a)) + b if flag else a,
    "a function inside": lambda a, b: (lambda x: x * scale)(a - b),
    "a default by keyword": lambda a, b, *, factor=0.5: a * factor + b,
}


def keeping(a: Any, b: Any) -> Any:
    """Uses a list, which may change."""
    heaps.append(len(a))
    return a + b


def quiet(a: Any, b: Any) -> Any:
    """Decides which errors count."""
    with np.errstate(divide="ignore"):
        return a / b


def tried(a: Any, b: Any) -> Any:
    """Computes something else of an array than of its stand-in."""
    try:
        return a + b * len(a)
    except TypeError:
        return a + b


def random_one(a: Any, b: Any) -> Any:
    """Not the same twice, although declared as pure."""
    return a + b + np.random.random()


class Callable_:  # noqa: N801
    """An object."""

    def __call__(self, a: Any, b: Any) -> Any:
        return a + b


def noting(store: list[int]) -> Callable[[Any, Any], Any]:
    """Writes what it encloses."""

    def func(a: Any, b: Any) -> Any:
        store.append(1)
        return a + b

    return func


def telling(a: Any, b: Any, seen: Any = heaps) -> Any:
    """Has a default that may change."""
    return a + b + len(seen)


NOT_PLAIN: dict[str, Any] = {
    "an operand by choice": lambda a, b: a if scale else b,
    "a branch": lambda a, b: a + b if (a > b).any() else a - b,
    "a truth": lambda a, b: a + b if a > b else a - b,
    "a type": lambda a, b: a + b if isinstance(a, np.ndarray) else a - b,
    "errors of its own": quiet,
    "an exception": tried,
    "a list": keeping,
    "an enclosed effect": noting([]),
    "a list as a default": telling,
    "random": random_one,
    "a method": lambda a, b: a + b.sum(),
    "an attribute": lambda a, b: a + b.real,
    "an element": lambda a, b: a + b[0],
    "in place": lambda a, b: a.__iadd__(b),
    "a number that is none": lambda a, b: a + b + np.sqrt(-1.5),
    "a number too large": lambda a, b: np.minimum(a, 1e40) + b,
    "an operand": lambda a, b: b,
    "a number": lambda a, b: 1.0,
    "nothing": lambda a, b: None,
    "another type": lambda a, b: a < b,
    "a conversion": lambda a, b: (a < b) * a,
    "a number of another type": lambda a, b: a + np.longdouble(1) * b,
    "a keyword": lambda a, b: np.add(a, b, out=None, where=True),
    "a reduction": lambda a, b: a + np.add.reduce(b),
    "an object": Callable_(),
    "a partial": functools.partial(with_default, factor=2.0),
    "Python as a ufunc": np.frompyfunc(lambda a, b: a + b, 2, 1),
    "one operand": lambda a: a,
    "a generator": lambda a, b: (yield a),
    "what is not there": lambda a, b: a + b + missing,  # type: ignore[name-defined] # noqa: F821
}


def traced(func: Any, dtype: str = "f8", ordered: bool = False) -> Any:
    return ufunc_capture.trace(func, np.dtype(dtype), ordered)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_functions_run_in_the_core(name: str) -> None:
    assert traced(PLAIN[name]) is not None
    assert traced(PLAIN[name], "f4") is not None


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_others_are_called(name: str) -> None:
    before = scale, len(heaps)
    assert traced(NOT_PLAIN[name], "f4" if name == "a number too large" else "f8") is None
    assert (scale, len(heaps)) == before


def unchanged(guards: list[ufunc_capture.Guard]) -> bool:
    """Compare guards with what is there, as the core does."""
    found = (
        where.cell_contents if name is None
        else where.get(name) if isinstance(where, dict)
        else getattr(where, name)
        for where, name, _ in guards
    )  # fmt: skip
    return all(now is value for now, (*_, value) in zip(found, guards, strict=True))


def whole(func: Any) -> bool:
    """Return whether the core may run a function."""
    return kernels.find("f8", Op.FUNC, func).whole


def test_only_functions_that_are_declared_as_pure_are_traced() -> None:
    assert whole(vectorized(lambda a, b: a + b, pure=True))
    assert whole(vectorized(pure=True)(lambda a, b: a + b))
    assert not whole(vectorized(lambda a, b: a + b))
    assert not whole(vectorized(vectorized(lambda a, b: a + b, pure=True)))
    assert whole(np.logaddexp)


def test_a_function_that_wraps_a_pure_one_is_not_pure() -> None:
    inner = vectorized(lambda a, b: a + b, pure=True)

    @functools.wraps(inner)
    def outer(a: Any, b: Any) -> Any:
        heaps.append(1)
        return inner(a, b)

    assert isinstance(kernels.find("f8", Op.FUNC, outer), type(kernels.find("f8", Op.FUNC, inner)))
    assert not whole(outer)


@pytest.mark.parametrize("pure", [None, 1, "yes"])
def test_pure_is_a_bool(pure: Any) -> None:
    with pytest.raises(TypeError, match="vectorized: pure: expected True or False, got"):
        vectorized(pure=pure)


@pytest.mark.parametrize("func", [None, 5, len])
def test_what_can_carry_no_mark(func: Any) -> None:
    with pytest.raises(TypeError, match="vectorized: expected a function, got"):
        vectorized(func, pure=True)


def test_variables_of_a_function_are_guarded() -> None:
    """Globals, also of helpers, defaults, and a builtin that becomes a global."""
    lines = (
        "def inner(x):\n    return x * scale\n"
        "def func(a, b, more=1.0):\n    return abs(inner(a)) + (lambda x: x - offset)(b) + more\n"
    )
    changes: tuple[Callable[[dict[str, Any]], object], ...] = (
        lambda of: of.update(scale=3.0),
        lambda of: of.update(offset=3.0),
        lambda of: of.update(abs=np.negative),
        lambda of: of.update(inner=of["func"]),
        lambda of: setattr(of["inner"], "__code__", (lambda x: x).__code__),
        lambda of: setattr(of["func"], "__defaults__", (2.0,)),
    )
    for change in changes:
        scope: dict[str, Any] = {"scale": 2.0, "offset": 1.0}
        exec(lines, scope)
        assert traced(scope["func"]) is not None
        guards = ufunc_capture._Reading(scope["func"]).guards
        scope["other"] = 1
        assert unchanged(guards)
        change(scope)
        assert not unchanged(guards)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_types(dtype: str) -> None:
    assert traced(lambda a, b: np.maximum(a, b), dtype) is not None
    assert traced(lambda a, b: a // b, dtype) is None or dtype in ("i1", "u2", "i4", "u8", "f2",
                                                                   "f4", "f8")  # fmt: skip
    assert traced(lambda a, b: np.power(a, np.abs(b)), dtype) is None or dtype[0] in "fc"
    assert traced(np.gcd, dtype) is None or dtype in ("i1", "u2", "i4", "u8")


def test_long_doubles_and_times_are_left_to_python() -> None:
    for dtype in ("g", "m8[s]"):
        kernel = kernels.find(dtype, Op.FUNC, vectorized(lambda a, b: a + b, pure=True))
        assert not kernel.whole or kernel.traced() is None  # type: ignore[attr-defined]


def test_a_function_that_the_core_gets_wrong_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was not thought of: the sample shows it."""
    assert traced(lambda a, b: a - b) is not None
    real = ufunc_capture._Trace.call

    def swapped(self: Any, ufunc: Any, inputs: Any) -> Any:
        return real(self, ufunc, inputs[::-1])

    monkeypatch.setattr(ufunc_capture._Trace, "call", swapped)
    assert traced(lambda a, b: a - b) is None


ODD: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "cbrt f2": ("f2", lambda a, b: np.cbrt(a + b)),
    "arcsin f4": ("f4", lambda a, b: np.arcsin(a - b)),
    "power f8": ("f8", lambda a, b: np.power(a, b)),
    "product c16": ("c16", lambda a, b: a * b),
    "arctan2 f4": ("f4", lambda a, b: np.arctan2(a, b)),
}


@pytest.mark.parametrize("op", [Op.FUNC, Op.NONCOMM_FUNC])
@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_the_order_is_that_of_kernels(name: str, op: Op) -> None:
    """None of these is associative, or not in its last bit: another order shows."""
    dtype, func = ODD[name] if name in ODD else ("f8", PLAIN[name])
    marked = func if isinstance(func, np.ufunc) else vectorized(func, pure=True)
    kernel = kernels.find(dtype, op, marked)
    core_s = kernel.traced()  # type: ignore[attr-defined]
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        for n in SIZES:
            x = rng.standard_normal(n).astype(dtype)
            if dtype == "c16":
                x = x + 1j * rng.standard_normal(n)
            out = np.empty(1, dtype)
            assert core_s.fold(out.ctypes.data, x.ctypes.data, n)
            assert np.array_equal(out[0], kernel.fold(x), equal_nan=True), n
            for carry, reverse, here in itertools.product((None, 0.75), (False, True), (0, 1)):
                expected = np.empty_like(x)
                kernel.scan(expected, x, carry, reverse)
                src = x.copy()
                dst = src if here else np.empty_like(x)
                edge = np.array([carry or 0.0], dtype)
                at = 0 if carry is None else edge.ctypes.data
                assert core_s.scan(dst.ctypes.data, src.ctypes.data, n, at, reverse)
                assert np.array_equal(dst, expected, equal_nan=True), (n, carry, reverse, here)
    core_s.errors()


def test_random_functions() -> None:
    """Made of operations at random: the same bits as numpy, or not traced."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    names = ["np.sqrt({})", "-{}", "abs({})", "np.exp({})", "{} + {}", "{} * {}", "{} - {}",
             "{} / {}", "np.maximum({}, {})", "np.where({} > {}, {}, {})", "{} % {}",
             "np.copysign({}, {})", "{} ** 2", "np.floor({})"]  # fmt: skip
    ran = 0
    for k in range(120):
        values = ["a", "b", "1.5", "2"]
        lines = []
        for i in range(rng.randint(1, 9)):
            form = rng.choice(names)
            used = [rng.choice(values) for _ in range(form.count("{}"))]
            lines.append(f"    v{i} = {form.format(*used)}")
            values.append(f"v{i}")
        scope: dict[str, Any] = {"np": np}
        text = "def f(a, b):\n" + "\n".join(lines) + f"\n    return {values[-1]}\n"
        exec(text, scope)
        dtype = rng.choice(["f4", "f8", "f2", "c16"])
        made = traced(scope["f"], dtype)
        if made is None:
            continue
        ran += 1
        n = rng.choice([1, 7, 511, 513, 3000])
        numbers = np.random.default_rng(k)
        a, b = (numbers.standard_normal(n).astype(dtype) for _ in range(2))
        out = np.empty_like(a)
        made.combine(out.ctypes.data, a.ctypes.data, b.ctypes.data, n)
        with np.errstate(all="ignore"):
            expected = scope["f"](a, b)
        assert np.array_equal(out, expected, equal_nan=True), (seed, text, dtype, n)
    assert ran > 30, seed


def test_errors_are_told_as_numpy_tells_them() -> None:
    def func(a: Any, b: Any) -> Any:
        return a * 1e308 / b

    divide = traced(func)
    a, b = np.array([2.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0])
    out = np.empty(3)

    def errors(mode: str) -> list[str]:
        divide.combine(out.ctypes.data, a.ctypes.data, b.ctypes.data, 3)
        kinds: Any = dict.fromkeys(("divide", "over", "under", "invalid"), mode)
        with np.errstate(**kinds), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ufunc_capture.report(divide, func)
        here = func.__code__.co_filename, func.__code__.co_firstlineno
        assert all((w.filename, w.lineno) == here for w in caught)
        return sorted(str(w.message) for w in caught)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with np.errstate(all="warn"):
            a * 1e308 / b
    assert errors("warn") == sorted(str(w.message) for w in caught)
    assert errors("ignore") == []
    with pytest.raises(FloatingPointError, match="overflow encountered in multiply"):
        errors("raise")
    assert divide.errors() == []
    b[:] = 1
    a[:] = 1
    assert errors("raise") == []


def test_errors_print_and_call(capsys: pytest.CaptureFixture[str]) -> None:
    divide = traced(lambda a, b: a / b)
    a, b, out = np.ones(1), np.zeros(1), np.empty(1)
    told: list[tuple[str, int]] = []
    divide.combine(out.ctypes.data, a.ctypes.data, b.ctypes.data, 1)
    with np.errstate(divide="print"):
        ufunc_capture.report(divide, np.divide)
    assert capsys.readouterr().err == "Warning: divide by zero encountered in divide\n"
    divide.combine(out.ctypes.data, a.ctypes.data, b.ctypes.data, 1)
    with np.errstate(divide="call", call=lambda *what: told.append(what)):
        ufunc_capture.report(divide, np.divide)
        a / b
    assert told[0] == told[1]
