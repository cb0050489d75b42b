"""Bytes that come to a thread's node, computed from its own plan without those of others."""

from __future__ import annotations

import pytest
from simulated.matrix import arguments
from simulated.test_scale import TUNING

from xupc.algorithms.registry import find
from xupc.backends.native.lowering import Lowered, lower
from xupc.flags import MULTICORE, PULL
from xupc.plan.recorder import trace
from xupc.plan.steps import FusedBarrier
from xupc.topology.tree import Tree

T = 4
NODE = Tree([0] * T)
RESULT = {"broadcast": T, "scatter": T, "gather": T, "gather_all": T * T, "exchange": T * T}
"""Blocks that come to the arrays of T threads."""


def lowered(collective: str, flag: int, nbytes: int, me: int, tree: Tree = NODE) -> Lowered:
    entry = find(collective, flag)
    given = arguments(collective, tree.size, 0, nbytes)
    sync = ("all", "all")
    plan = trace(entry.function, entry.name, collective, me, tree, sync, TUNING, given)
    return lower(plan, tree)


@pytest.mark.parametrize("nbytes", [8, 1 << 20])
@pytest.mark.parametrize("collective", RESULT)
def test_what_a_call_writes_on_a_node(collective: str, nbytes: int) -> None:
    """By all threads, or by the one that does everything in a fused step."""
    found = [lowered(collective, MULTICORE, nbytes, me) for me in range(T)]
    for one in found:
        fused = any(isinstance(step, FusedBarrier) for step in one.plan.steps)
        assert fused == (nbytes == 8)
        assert one.written == RESULT[collective] * nbytes, one.plan


def test_only_what_my_threads_copy_counts() -> None:
    """PULL reads from the other node by messages."""
    two = Tree([0] * T + [1] * T)
    n = 1 << 20
    one = lowered("gather_all", PULL, n, 0)
    assert lowered("gather_all", PULL, n, 0, two).written == one.written
