"""Functions of the examples on shapes and keys that the examples do not use: ``... CASE``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

import fft
import numpy as np
import sample_sort
from support.cases import case, run_case

import xupc


@case
def cubes() -> None:
    """Cubes that the threads do not divide."""
    with xupc.init():
        for shape in [(1, 1, 1), (3, 5, 2), (13, 4, 9), (8, 1, 15), (2, 7, 30)]:
            nx, ny, nz = shape
            cube = fft.Cube(*shape)
            parts = np.random.default_rng(nx).standard_normal((2, nz, ny, nx))
            values = parts[0] + 1j * parts[1]
            cube.shared.local[:] = np.nan
            cube.transform(values[cube.first : cube.end])
            spectrum = np.fft.fftn(values)
            mine = cube.columns.copy()
            assert np.allclose(mine, spectrum[:, :, cube.left : cube.right], rtol=1e-12)
            xupc.barrier()
            assert np.allclose(cube.everything(), spectrum, rtol=1e-12), shape
            xupc.barrier()
            cube.shared.local[:] = np.nan
            again = cube.transform_back(mine)
            assert np.allclose(again, values[cube.first : cube.end], rtol=1e-12), shape


@case
def keys() -> None:
    """Few keys, all on one thread, all alike."""
    with xupc.init():
        T, me = xupc.THREADS, xupc.MYTHREAD
        rng = np.random.default_rng(T)
        random = rng.integers(3000, size=T).tolist()
        for counts in ([9] + [0] * (T - 1), [0] * (T - 1) + [5000], [1] * T, random):
            for different in (1, 2, 10**9):
                keys = [1 + rng.integers(different, size=count) for count in counts]
                result = sample_sort.sample_sort(keys[me])
                ends = np.cumsum(sample_sort.on_all_threads(len(result)))
                everything = np.sort(np.concatenate(keys))
                assert ends[-1] == len(everything)
                mine = everything[ends[me] - len(result) : ends[me]]
                assert np.array_equal(result, mine), (counts, different)
                assert len(result) <= sum(counts) / T * 1.08 + 1, (counts, different)


run_case()
