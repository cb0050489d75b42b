"""Trees that only a call or a table names: each place once, as few levels as they promise."""

from __future__ import annotations

import doctest
from math import ceil, log

import pytest
from support.soak import amount

from xupc.plan import trees
from xupc.plan.patterns import Shape, binomial
from xupc.plan.trees import NAMED, bine, knomial4, knomial8

SHAPES = [shape for shape, _ in NAMED]
NUMBERS = [*range(1, 66), 100, 127, 128, 129, 1000, *range(130, 1025, amount(179, 1))]


def depths(shape: Shape, n: int) -> dict[int, int]:
    """Return the depth of each place that is reached from the root, in order."""
    found = {0: 0}
    for v in (order := [0]):
        for child in shape(v, n)[1]:
            assert child not in found, f"{child} of {n} has two parents"
            assert shape(child, n)[0] == v
            found[child] = found[v] + 1
            order.append(child)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_each_place_has_one_parent(shape: Shape) -> None:
    for n in NUMBERS:
        assert sorted(depths(shape, n)) == list(range(n))


@pytest.mark.parametrize(("shape", "radix"), [(knomial4, 4), (knomial8, 8), (bine, 2)])
def test_depth(shape: Shape, radix: int) -> None:
    for n in NUMBERS[1:]:
        assert max(depths(shape, n).values()) <= ceil(log(n, radix) - 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_most_children(shape: Shape) -> None:
    """A reduction divides its staging buffer by the children of the top, of Bine by one more."""
    for n in NUMBERS:
        most = max(len(shape(v, n)[1]) for v in range(n))
        assert most <= len(shape(0, n)[1]) + (shape is bine)


def test_distances_in_bine_order() -> None:
    """Their sum is at most 0.72 of that of a binomial tree, on a ring of 2^k nodes."""

    def total(shape: Shape, n: int) -> int:
        ends = [(v, child) for v in range(n) for child in shape(v, n)[1]]
        return sum(min(abs(a - b), n - abs(a - b)) for a, b in ends)

    for n in (64, 256, 1024):
        assert total(bine, n) <= 0.72 * total(binomial, n)


def test_the_examples_are_true() -> None:
    assert doctest.testmod(trees).failed == 0
