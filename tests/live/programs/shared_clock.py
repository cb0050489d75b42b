"""Clocks that are one and the same are found to be: every thread plays a machine of its own."""

from __future__ import annotations

from mpi4py import MPI

from xupc.bench.clocks import compare

comm = MPI.COMM_WORLD
for machines in (list(range(comm.size)), [t - t % 2 for t in range(comm.size)], [0] * comm.size):
    found = compare(comm, machines)
    assert abs(found.ns) <= found.uncertainty, found
    assert (found.uncertainty > 0) == (machines[comm.rank] != 0), found
print("done")
