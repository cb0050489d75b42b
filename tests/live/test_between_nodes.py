"""What the core sends between nodes by itself: what it has learnt, and what it cannot have."""

from __future__ import annotations

import pytest
from support.launch import SLOW_ENGINE, launch

pytestmark = pytest.mark.skipif(SLOW_ENGINE, reason="no native core")

# Messages of exchanges are blocks far apart. MPI is given the types of those back that were not
# used for long, and the core must not use them then, however often a call has run.
TYPES = """
    import numpy as np
    import xupc
    from xupc.engine import mpi

    mpi.TYPES = 5
    team = xupc.init()
    T, me, most = team.size, team.rank, 320
    src = xupc.all_alloc(T * T * most, np.int64, T * most)
    dst = xupc.all_alloc(T * T * most, np.int64, T * most)
    for turn in range(4):
        for n in range(200, most, 10):  # too long to be led
            src.local[: T * n] = 1000 * turn + 100 * me + np.repeat(np.arange(T), n)
            xupc.all_exchange(dst, src, 8 * n, xupc.MULTICORE)
            here = 1000 * turn + 100 * np.repeat(np.arange(T), n) + me
            assert (dst.local[: T * n] == here).all(), (turn, n)
    freed = team.job.network.types_freed
    xupc.finalize()
    print("freed" if freed else "kept")
"""

NO_FUNCTIONS = """
    import mpi4py.MPI
    import xupc
    from xupc.engine import mpi

    if mpi4py.MPI.COMM_WORLD.rank == 1:
        mpi.FUNCTIONS = (*mpi.FUNCTIONS[1:], "MPI_nothing_of_the_kind")
    team = xupc.init()
    total = xupc.allv_reduce_all(team.rank, xupc.ADD)
    print(team.job.native, total)
    xupc.finalize()
"""


@pytest.mark.parametrize(("nodes", "roots"), [("2,2", 2), ("1,3", 1)])
def test_types_that_were_given_back_are_made_again(nodes: str, roots: int) -> None:
    """`roots`: nodes of several threads, whose blocks are apart."""
    result = launch(4, TYPES, nodes=nodes)
    assert result.returncode == 0, result.report()
    assert result.stdout.split().count("freed") == roots, result.report()


def test_without_functions_of_mpi_on_one_thread_all_take_the_python_engine() -> None:
    result = launch(3, NO_FUNCTIONS, nodes="2,1")
    assert result.returncode == 0, result.report()
    assert sorted(result.stdout.splitlines()) == 3 * ["False 3"], result.report()
    assert result.stderr.count("the Python engine runs, which is slow: MPI's C functions") == 1
