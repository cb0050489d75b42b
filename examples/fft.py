"""3-D Fourier transforms, as in the NAS Parallel Benchmarks (FT): a diffusion solved by spectrum.

    xupc run -n 4 --nodes 2x2 examples/fft.py [S | W | A]

A cube of complex numbers is dealt over the threads by planes of z. A transform goes along x and y
in these planes, then the cube is dealt anew, by x, and the last transform goes along z. Dealing is
one `all_exchange`, in place: a thread's memory is a row of blocks, one for each thread.

    block t of thread s     before: my planes, the columns of t     after: t's planes, my columns

Afterwards the planes of all threads lie one behind the other, so z is simply the first axis, and
nothing has to be copied. If the threads do not divide the cube, the blocks of the last ones are
not full; any number of threads will do.

The first spectrum is compared with numpy's, the sums of some values after each time step with the
figures that the benchmark publishes.
"""

import sys
import time
from typing import NamedTuple

import numpy as np

import xupc

SEED, FACTOR = 314159265, 1220703125  # random numbers: x -> x * FACTOR modulo 2**46
BITS = 46
DIFFUSION = 1e-6
SUMMED = 1024  # values in a checksum
ALLOWED = 1e-12  # relative difference, of checksums and from numpy's spectrum


class Size(NamedTuple):
    """A problem class of the benchmark; one checksum for each time step."""

    nx: int
    ny: int
    nz: int
    checksums: tuple[complex, ...]


SIZES = {
    "S": Size(64, 64, 64, (
        5.546087004964e02 + 4.845363331978e02j, 5.546385409189e02 + 4.865304269511e02j,
        5.546148406171e02 + 4.883910722336e02j, 5.545423607415e02 + 4.901273169046e02j,
        5.544255039624e02 + 4.917475857993e02j, 5.542683411902e02 + 4.932597244941e02j,
    )),
    "W": Size(128, 128, 32, (
        5.673612178944e02 + 5.293246849175e02j, 5.631436885271e02 + 5.282149986629e02j,
        5.594024089970e02 + 5.270996558037e02j, 5.560698047020e02 + 5.260027904925e02j,
        5.530898991250e02 + 5.249400845633e02j, 5.504159734538e02 + 5.239212247086e02j,
    )),
    "A": Size(256, 256, 128, (
        5.046735008193e02 + 5.114047905510e02j, 5.059412319734e02 + 5.098809666433e02j,
        5.069376896287e02 + 5.098144042213e02j, 5.077892868474e02 + 5.101336130759e02j,
        5.085233095391e02 + 5.104914655194e02j, 5.091487099959e02 + 5.107917842803e02j,
    )),
}  # fmt: skip


def randoms(first: int, count: int) -> np.ndarray:
    """Return random numbers `first` .. `first + count`, between 0 and 1.

    Number i is SEED * FACTOR**(i + 1), so a thread starts anywhere and doubles what it has. The
    products overflow 64 bits, which does no harm to the lowest 46.
    """
    x = np.empty(count, np.uint64)
    x[:1] = SEED * pow(FACTOR, first + 1, 1 << BITS) % (1 << BITS)
    have = 1
    while have < count:
        more = min(have, count - have)
        x[have : have + more] = x[:more] * np.uint64(pow(FACTOR, have, 1 << BITS))
        x[have : have + more] &= np.uint64((1 << BITS) - 1)
        have += more
    return x * 2.0**-BITS


def start(nx: int, ny: int, first: int, end: int) -> np.ndarray:
    """Return the planes z = first .. end at time 0; x is the fastest axis, as in the benchmark."""
    plane = 2 * nx * ny  # random numbers: a real and an imaginary part each
    numbers = randoms(first * plane, (end - first) * plane)
    return numbers.view(np.complex128).reshape(end - first, ny, nx)


def decay(nx: int, ny: int, nz: int, columns: slice = slice(None)) -> np.ndarray:
    """Return what a time step leaves of each wave, exp(-4 a pi^2 |k|^2), for the given x."""
    x, y, z = ((np.arange(n) + n // 2) % n - n // 2 for n in (nx, ny, nz))  # 0 .. n/2, -n/2 .. -1
    square = (x**2)[columns] + (y**2)[:, None] + (z**2)[:, None, None]
    return np.exp(-4 * DIFFUSION * np.pi**2 * square)


class Cube:
    """Hold the memory of a transform, which the threads share.

    Before an exchange `blocks[t]` has my planes' columns of thread t; after it `columns` has all
    planes' columns of mine. The same exchange brings them back.
    """

    def __init__(self, nx: int, ny: int, nz: int) -> None:
        T, me = xupc.THREADS, xupc.MYTHREAD
        depth, width = -(-nz // T), -(-nx // T)  # the last threads may have less, or nothing
        self.first, self.end = (min(t * depth, nz) for t in (me, me + 1))  # my planes
        self.left, self.right = (min(t * width, nx) for t in (me, me + 1))  # my columns
        self.shape = nz, ny, nx

        block = depth * ny * width
        self.shared = xupc.all_alloc(T * T * block, np.complex128, T * block)
        self.blocks = self.shared.local.reshape(T, depth, ny, width)
        self.columns = self.of_thread(self.shared.local, me)
        self.cuts = range(width, nx, width)
        self.exchange = xupc.all_exchange.plan(self.shared, None, block * self.shared.itemsize)

    def of_thread(self, part: np.ndarray, t: int) -> np.ndarray:
        """Return a thread's columns, in its part of the memory after an exchange."""
        nz, ny, nx = self.shape
        width = self.blocks.shape[3]
        return part.reshape(-1, ny, width)[:nz, :, : max(0, nx - t * width)]

    def transform(self, planes: np.ndarray) -> None:
        """Transform the cube of which these are my planes; the spectrum is dealt by columns."""
        waves = np.fft.fft2(planes)
        for t, part in enumerate(np.split(waves, self.cuts, axis=2)):
            self.blocks[t, : len(part), :, : part.shape[2]] = part
        self.exchange()
        self.columns[:] = np.fft.fft(self.columns, axis=0)

    def transform_back(self, spectrum: np.ndarray) -> np.ndarray:
        """Return my planes of the cube whose spectrum has these columns of mine."""
        _, ny, nx = self.shape
        depth = self.end - self.first
        self.columns[:] = np.fft.ifft(spectrum, axis=0)
        self.exchange()
        by_plane = self.blocks[:, :depth].transpose(1, 2, 0, 3)  # z, y, thread, column
        rows = by_plane.reshape(depth, ny, len(self.blocks) * self.blocks.shape[3])
        return np.fft.ifft2(rows[:, :, :nx])

    def everything(self) -> np.ndarray:
        """Return the columns of all threads side by side; no thread may change them meanwhile."""
        parts = np.asarray(self.shared).reshape(len(self.blocks), -1)
        return np.concatenate([self.of_thread(part, t) for t, part in enumerate(parts)], axis=2)


def sum_of_some(planes: np.ndarray, first: int, nx: int, ny: int, nz: int) -> complex:
    """Return my share of the checksum: the values at (j, 3j, 5j) that are in my planes."""
    j = np.arange(1, SUMMED + 1)
    z = 5 * j % nz - first
    j, z = (each[(z >= 0) & (z < len(planes))] for each in (j, z))
    return complex(planes[z, 3 * j % ny, j % nx].sum())


def main(name: str) -> int:
    """Run the benchmark; return 1 if a checksum is wrong, or on thread 0 the spectrum, else 0."""
    if name not in SIZES:
        print(f"usage: fft.py [{' | '.join(SIZES)}]", file=sys.stderr)
        return 2
    with xupc.init() as team:
        T, me = xupc.THREADS, xupc.MYTHREAD
        nx, ny, nz, known = SIZES[name]
        cube = Cube(nx, ny, nz)
        share = xupc.all_alloc(T, np.complex128)
        total = xupc.all_alloc(T, np.complex128)

        difference = 0.0  # of the spectrum, from numpy's
        cube.transform(start(nx, ny, cube.first, cube.end))
        xupc.barrier()
        if me == 0:
            numpys = np.fft.fftn(start(nx, ny, 0, nz))
            difference = np.abs(cube.everything() - numpys).max() / np.abs(numpys).max()
        xupc.barrier()

        spectrum = cube.columns.copy()
        factor = decay(nx, ny, nz, slice(cube.left, cube.right))
        sums = []
        began = time.perf_counter()
        for _ in known:
            spectrum *= factor
            planes = cube.transform_back(spectrum)
            share.local[0] = sum_of_some(planes, cube.first, nx, ny, nz)
            xupc.all_reduce_all(total, share, xupc.ADD)
            sums.append(complex(total.local[0]))
        seconds = time.perf_counter() - began

        errors = [
            max(abs(found.real / sure.real - 1), abs(found.imag / sure.imag - 1))
            for found, sure in zip(sums, known, strict=True)
        ]
        good = all(error <= ALLOWED for error in [*errors, difference])
        if me == 0:
            print(f"FT class {name}: {nx} x {ny} x {nz} complex numbers")
            print(f"placed         {T} threads on {len(team.tree.nodes)} nodes")
            print(f"exchange       {cube.exchange.algorithm}, in place")
            print(f"time per step  {seconds / len(known) * 1e3:.3f} ms")
            print(f"spectrum       differs from numpy's by {difference:.1e}")
            for step, (found, error) in enumerate(zip(sums, errors, strict=True), 1):
                print(f"checksum {step}     {found:.12e}  off by {error:.1e}")
            print(f"VERIFICATION {'SUCCESSFUL' if good else 'FAILED'}")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "S"))
