"""Poisson's equation on a square by conjugate gradients, with one reduction per iteration.

    xupc run -n 4 --nodes 2x2 examples/poisson.py [points per side] [pull | push | multicore]

Each thread has some rows of the grid. The five-point Laplacian needs the rows next to them, which
neighbours exchange by a plan. Textbook conjugate gradients wait for two dot
products, one after the other; the form of Chronopoulos and Gear (1989) needs both at the same
time, so that one `all_reduce_mpi_all` of two numbers per thread adds them up. As it is always the
same call, it is a plan as well. It is REPRODUCIBLE: the placement of threads on nodes does not
change a single bit.

At the end thread 0 compares the result with a direct solution.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

import xupc

WANTED = 1e-10  # of the right-hand side's norm is left when we stop
ALLOWED = 1e-8  # difference from the direct solution, of its largest value
ALGORITHMS = {"": 0, "pull": xupc.PULL, "push": xupc.PUSH, "multicore": xupc.MULTICORE}


def source(n: int) -> np.ndarray:
    """Return the right-hand side: one point feeds the square, another one drains it."""
    b = np.zeros((n, n))
    b[n // 4, n // 3] = 1
    b[-1 - n // 4, -1 - n // 3] = -1
    return b


def direct_solution(b: np.ndarray) -> np.ndarray:
    """Return the solution by the Laplacian's eigenvectors, which are products of sines."""
    n = len(b)
    i = np.arange(1, n + 1)
    vectors = np.sqrt(2 / (n + 1)) * np.sin(np.pi / (n + 1) * np.outer(i, i))
    values = 2 - 2 * np.cos(np.pi / (n + 1) * i)
    return vectors @ ((vectors @ b @ vectors) / np.add.outer(values, values)) @ vectors


class Grid:
    """Hold a shared grid in blocks of rows."""

    def __init__(self, n: int, flags: int = 0) -> None:
        rows = -(-n // xupc.THREADS)
        self.n = n
        self.shared = xupc.all_alloc(n * n, np.float64, blocksize=rows * n)
        self.mine = self.shared.local.reshape(-1, n)  # fewer rows on the last threads, or none
        self.first = xupc.MYTHREAD * rows
        self.end = self.first + len(self.mine)
        self.framed = np.zeros((len(self.mine) + 2, n + 2))  # with a frame of neighbours and zeros
        self.exchange = self.exchange_of_rows(flags)

    def exchange_of_rows(self, flags: int) -> Callable[[], object]:
        """Return the plan that fills the outer rows of the frame with those of my neighbours."""
        f, me = self.framed[:, 1:-1], xupc.MYTHREAD
        before = me - 1 if len(self.mine) and self.first > 0 else None
        behind = me + 1 if len(self.mine) and self.end < self.n else None
        near = xupc.neighbours([before, behind])
        mine = self.mine if len(self.mine) else f  # without rows there are no neighbours
        return xupc.allav_neighbour_exchange(near, [f[0], f[-1]], [mine[0], mine[-1]], flags)

    def laplacian(self) -> np.ndarray:
        """Return my rows of the grid's Laplacian. On return no thread reads my rows any more."""
        f = self.framed
        self.exchange()
        f[1:-1, 1:-1] = self.mine
        result = 4 * self.mine - f[1:-1, :-2] - f[1:-1, 2:]
        result -= f[:-2, 1:-1]
        result -= f[2:, 1:-1]
        return result


def main(n: int, algorithm: str) -> int:
    """Solve and check; return 1 on thread 0 if the solution is wrong."""
    if n < 1 or algorithm not in ALGORITHMS:
        print("usage: poisson.py [points per side] [pull | push | multicore]", file=sys.stderr)
        return 2
    with xupc.init() as team:
        T, me = xupc.THREADS, xupc.MYTHREAD
        pair = xupc.all_alloc(2 * T, np.float64, blocksize=2)
        sums = xupc.all_alloc(2 * T, np.float64, blocksize=2)
        # MYSYNC is enough: the sums hold a part of every thread, so all have entered by the time a
        # thread has them, and a thread overwrites only what it alone reads.
        flags = xupc.IN_MYSYNC | xupc.OUT_MYSYNC | xupc.REPRODUCIBLE
        add_up = xupc.all_reduce_mpi_all.plan(
            sums, pair, xupc.ADD, flags=flags | ALGORITHMS[algorithm]
        )

        def two_dots(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
            pair.local[:] = (a * a).sum(), (a * b).sum()
            add_up()
            return float(sums.local[0]), float(sums.local[1])

        lines = []
        solution, grid = Grid(n), Grid(n, ALGORITHMS[algorithm])
        x, r = solution.mine, grid.mine  # r = b - A x
        r[:] = source(n)[grid.first : grid.end]
        p, s = np.zeros_like(r), np.zeros_like(r)  # the direction, and A p
        began = time.perf_counter()
        w = grid.laplacian()
        rr, rw = two_dots(r, w)
        start, previous, alpha, iteration = rr, np.inf, np.inf, 0
        while rr > WANTED**2 * start and iteration < 10 * n:
            beta = rr / previous
            alpha = rr / (rw - beta * rr / alpha)
            p = r + beta * p
            s = w + beta * s
            x += alpha * p
            r -= alpha * s
            w = grid.laplacian()
            previous = rr
            rr, rw = two_dots(r, w)
            iteration += 1
            if iteration % n == 0:
                lines.append((iteration, rr))
        seconds = time.perf_counter() - began
        if iteration % n:
            lines.append((iteration, rr))

        xupc.barrier()  # all of x is there
        if me > 0:
            return 0
        right = direct_solution(source(n))
        found = np.asarray(solution.shared).reshape(n, n)
        difference = float(np.abs(found - right).max() / np.abs(right).max())
        good = difference <= ALLOWED
        print(f"{n} x {n} points, {T} threads on {len(team.tree.nodes)} nodes")
        print(f"sums by {add_up.algorithm}, {seconds / iteration * 1e6:.0f} us per iteration\n")
        print("iteration   residual")
        for i, square in lines:
            print(f"{i:9}   {np.sqrt(square / start):.2e}")
        print(f"\nlast residual, squared, to the last bit: {rr.hex()}")
        print(f"relative difference from the direct solution: {difference:.1e}")
        print("the solution is right" if good else "THE SOLUTION IS WRONG")
        return 0 if good else 1


if __name__ == "__main__":
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    sys.exit(main(points, sys.argv[2] if len(sys.argv) > 2 else ""))
