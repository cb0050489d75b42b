"""Fold steps of functions: piece by piece, in the order of the leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xupc.api.argument_checks import func_name
from xupc.ops import Op, vectorized
from xupc.plan.steps import BlockRef, Fold, FoldOperand, Scan
from xupc.reduction.kernels import find
from xupc.reduction.reduce_steps import carry_out

P = 1_000_003


@vectorized
def affine(a: Any, b: Any) -> Any:
    """First a, then b, of maps x -> m x + c, packed: associative, far from commutative."""
    (m, c), (n, d) = divmod(a, P), divmod(b, P)
    return m * n % P * P + (c * n + d) % P


@pytest.mark.parametrize("n", [1, 3, 8192, 8193, 20_000])
def test_blocks_of_several_threads_are_joined_to_all_places(n: int) -> None:
    threads = np.random.default_rng(n).integers(P, P * P, (3, 3 * n))
    a, b, c = threads.copy()
    before = threads[:, : 2 * n].copy()

    def view(part: BlockRef, nelems: int) -> Any:
        return threads[part.thread, part.offset // 8 :][:nelems]

    size = n * 8
    leaves = (
        FoldOperand(BlockRef(0, 0, 0, 0, size), 2),
        FoldOperand(BlockRef(0, 1, 0)),
        FoldOperand(BlockRef(0, 2, 0, 0, size), 2, 2),
    )
    carry_out(
        Fold(BlockRef(0, 0, 2 * size, 1), leaves, n, copies=3),
        find("i8", Op.NONCOMM_FUNC, affine),
        view,
    )
    first = affine(a[:n], a[n : 2 * n])
    rest = affine(b[:n], affine(c[:n], c[n : 2 * n]))
    for thread in threads:
        assert thread[2 * n :].tolist() == affine(first, rest).tolist()
    assert np.array_equal(threads[:, : 2 * n], before)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_results_one_element_beside_their_operands(reverse: bool, after: bool) -> None:
    """As in an exclusive scan in place: each operand is read before a result overwrites it."""
    memory = np.arange(1, 12, dtype=np.int64)
    x = memory[1:].copy() if reverse else memory[:-1].copy()
    src, dst = (8, 0) if reverse else (0, 8)
    carry = BlockRef(1, 0) if after else None

    def view(part: BlockRef, nelems: int) -> Any:
        return np.full(1, 100) if part.operand else memory[part.offset // 8 :][:nelems]

    step = Scan(BlockRef(0, 0, dst), BlockRef(0, 0, src), 10, carry, reverse=reverse)
    carry_out(step, find("i8", Op.ADD), view)
    sums = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    sums += 100 * after
    wanted = [*sums, 11] if reverse else [1, *sums]
    assert memory.tolist() == wanted


def test_a_fold_of_nothing_is_the_identity() -> None:
    memory = np.arange(8.0)
    carry_out(
        Fold(BlockRef(0, 0, 8, 0, 24), (), 2, copies=2), find("f8", Op.MIN),
        lambda part, nelems: memory[part.offset // 8 :][:nelems],
    )  # fmt: skip
    assert memory.tolist() == [0, np.inf, np.inf, 3, np.inf, np.inf, 6, 7]


def test_only_numpys_own_ufuncs_have_its_name() -> None:
    other = np.frompyfunc(lambda a, b: a, 2, 1)
    assert func_name(np.add) == "numpy.add"
    assert not func_name(other).startswith("numpy")
