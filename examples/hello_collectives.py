"""The four relocalization collectives of xupc, each with another algorithm flag, and checked.

    xupc run -n 4 --nodes 2x2 examples/hello_collectives.py [elements per thread]

or with the plain launcher: mpiexec -n 4 python examples/hello_collectives.py
"""

import sys
import time

import numpy as np

import xupc

N = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000


def main() -> int:
    """Run the collectives; return 1 if a thread found wrong data, else 0."""
    with xupc.init() as team:
        T, me = xupc.THREADS, xupc.MYTHREAD
        block = N * np.dtype(np.float64).itemsize

        # Blocks of N elements, dealt round robin: the first T of them are one per thread.
        per_thread = xupc.all_alloc(N * T, np.float64, blocksize=N)
        everything = xupc.all_alloc(N * T * T, np.float64, blocksize=N * T)
        # Indefinite: all of it is on thread 0, the root of scatter and gather.
        at_root = xupc.all_alloc(N * T, np.float64, blocksize=0)
        result = xupc.all_alloc(N * T, np.float64, blocksize=0)

        expected = np.arange(N * T, dtype=np.float64).reshape(T, N)
        if me == 0:
            at_root.local[:] = expected.ravel()

        lines = []

        def step(name, call, mine, wanted):
            began = time.perf_counter()
            call()
            spent = (time.perf_counter() - began) * 1e3
            good = mine is None or np.array_equal(mine, wanted)
            lines.append(f"  {name:<40} {spent:8.3f} ms  {'ok' if good else 'WRONG'}")
            return good

        good = [
            step(
                "all_broadcast   PULL",
                lambda: xupc.all_broadcast(per_thread, at_root, block, xupc.PULL),
                per_thread.local,
                expected[0],
            ),
            step(
                "all_scatter     PUSH, OUT_MYSYNC",
                lambda: xupc.all_scatter(
                    per_thread, at_root, block, xupc.PUSH | xupc.IN_ALLSYNC | xupc.OUT_MYSYNC
                ),
                per_thread.local,
                expected[me],
            ),
            step(
                "all_gather_all  MULTICORE",
                lambda: xupc.all_gather_all(everything, per_thread, block, xupc.MULTICORE),
                everything.local,
                expected.ravel(),
            ),
            step(
                "all_gather      the library chooses",
                lambda: xupc.all_gather(result, per_thread, block),
                result.local if me == 0 else None,
                expected.ravel(),
            ),
        ]

        plan = xupc.all_broadcast.plan(per_thread, at_root, block, xupc.MULTICORE)
        plan()

        # Every thread stores whether its own data were right; thread 0 reads the answers.
        verdicts = xupc.all_alloc(T, np.uint8)
        verdicts[me] = all(good)
        xupc.barrier()
        all_good = bool(np.all(np.asarray(verdicts)))
        if me == 0:
            print(team.tree)
            print(f"\n{T} threads, {N} float64 per block ({block} bytes), times of thread 0:")
            print("\n".join(lines))
            print(f"\nplan of a broadcast, algorithm {plan.algorithm}, steps of thread 0:")
            print(plan)
            print(f"\n{'all threads have the right data' if all_good else 'WRONG DATA'}")
        return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
