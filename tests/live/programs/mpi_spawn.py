"""A program for mpi4py that starts processes: new ones start while earlier ones end."""

from __future__ import annotations

from mpi4py.futures import MPIPoolExecutor

POOLS = 6

if __name__ == "__main__":  # the processes of a pool import this file
    for _ in range(POOLS):
        with MPIPoolExecutor(2) as pool:
            assert list(pool.map(abs, range(-8, 0))) == list(range(8, 0, -1))
    print("spawned", flush=True)
