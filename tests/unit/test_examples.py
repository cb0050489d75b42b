"""The serial parts of the examples, each against another way to the same result."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


is_sort = load("is_sort")
poisson = load("poisson")
lookup_table = load("lookup_table")


def randlc(count: int) -> list[int]:
    """The benchmark's random numbers, one after the other."""
    x, numbers = 314159265, []
    for _ in range(count):
        x = x * 1220703125 % 2**46
        numbers.append(x)
    return numbers


def test_random_numbers_from_anywhere() -> None:
    serial = np.array(randlc(3000), np.uint64)
    for first, count in [(0, 3000), (0, 1), (1, 1), (7, 1000), (1024, 1025), (2999, 1), (5, 0)]:
        assert np.array_equal(is_sort.randoms(first, count), serial[first : first + count])


def test_keys_are_what_floating_point_makes_of_them() -> None:
    """The benchmark is defined with doubles: key = int(max_key / 4 * (a + b + c + d))."""
    size = is_sort.SIZES["S"]
    numbers = iter([x * 2.0**-46 for x in randlc(4 << size.keys)])
    keys = [
        int(2**size.max_key / 4 * (a + b + c + d))
        for a, b, c, d in zip(numbers, numbers, numbers, numbers, strict=True)
    ]
    assert is_sort.make_keys(size, 0, 1 << size.keys).tolist() == keys
    assert is_sort.make_keys(size, 1000, 77).tolist() == keys[1000:1077]


@pytest.mark.parametrize("name", ["S", "W"])
def test_the_known_ranks_are_those_of_a_serial_sort(name: str) -> None:
    size = is_sort.SIZES[name]
    keys = is_sort.make_keys(size, 0, 1 << size.keys)
    for iteration in range(1, 11):
        keys[iteration] = iteration
        keys[iteration + 10] = 2**size.max_key - iteration
        in_order = np.sort(keys)
        for test in size.tests:
            rank = np.searchsorted(in_order, keys[test.place])
            assert rank == test.in_iteration(iteration), (test, iteration)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_direct_solution_solves_the_equations(n: int) -> None:
    line = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    laplacian = np.kron(line, np.eye(n)) + np.kron(np.eye(n), line)
    b = poisson.source(n)
    solved = np.linalg.solve(laplacian, b.ravel()).reshape(n, n)
    assert np.allclose(poisson.direct_solution(b), solved, rtol=0, atol=1e-13)


def test_lookups_interpolate_between_the_points() -> None:
    table = lookup_table.make_table(5000)
    energy, material = lookup_table.neutrons(200, 3)
    seen = lookup_table.look_up(table, energy, material)
    for k, (e, m) in enumerate(zip(energy, material, strict=True)):
        i = int(np.searchsorted(table[0], e, side="right")) - 1
        share = (e - table[0, i]) / (table[0, i + 1] - table[0, i])
        between = (1 - share) * table[1:, i] + share * table[1:, i + 1]
        assert np.isclose(seen[k], between @ lookup_table.densities()[m], rtol=1e-12)


def test_every_lookup_is_somebodys() -> None:
    assert [sum(lookup_table.shares(1000, t)) for t in (1, 3, 7)] == [1000] * 3
    first, _ = lookup_table.neutrons(10, 0)
    other, _ = lookup_table.neutrons(10, 1)
    assert not np.intersect1d(first, other).size


@pytest.mark.parametrize(
    ("module", "args"),
    [
        (is_sort, ["Z"]),
        (poisson, [0, ""]),
        (poisson, [9, "x"]),
        (lookup_table, [1, 5]),
        (lookup_table, [5, 0]),
    ],
)
def test_a_usage_error_is_told_before_anything_starts(
    module: Any, args: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(*args) == 2
    assert capsys.readouterr().err.startswith(f"usage: {module.__name__}.py [")
