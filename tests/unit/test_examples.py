"""The serial parts of the examples, each against another way to the same result."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


is_sort = load("is_sort")
poisson = load("poisson")
lookup_table = load("lookup_table")
fft = load("fft")
sample_sort = load("sample_sort")
sobel = load("sobel")


def randlc(count: int) -> list[int]:
    """The benchmark's random numbers, one after the other."""
    x, numbers = 314159265, []
    for _ in range(count):
        x = x * 1220703125 % 2**46
        numbers.append(x)
    return numbers


def test_random_numbers_from_anywhere() -> None:
    serial = np.array(randlc(3000), np.uint64)
    for first, count in [(0, 3000), (0, 1), (1, 1), (7, 1000), (1024, 1025), (2999, 1), (5, 0)]:
        assert np.array_equal(is_sort.randoms(first, count), serial[first : first + count])
        fractions = serial[first : first + count] / 2**46
        assert np.array_equal(fft.randoms(first, count), fractions)


def test_keys_are_what_floating_point_makes_of_them() -> None:
    """The benchmark is defined with doubles: key = int(max_key / 4 * (a + b + c + d))."""
    size = is_sort.SIZES["S"]
    numbers = iter([x * 2.0**-46 for x in randlc(4 << size.keys)])
    keys = [
        int(2**size.max_key / 4 * (a + b + c + d))
        for a, b, c, d in zip(numbers, numbers, numbers, numbers, strict=True)
    ]
    assert is_sort.make_keys(size, 0, 1 << size.keys).tolist() == keys
    assert is_sort.make_keys(size, 1000, 77).tolist() == keys[1000:1077]


@pytest.mark.parametrize("name", ["S", "W"])
def test_the_known_ranks_are_those_of_a_serial_sort(name: str) -> None:
    size = is_sort.SIZES[name]
    keys = is_sort.make_keys(size, 0, 1 << size.keys)
    for iteration in range(1, 11):
        keys[iteration] = iteration
        keys[iteration + 10] = 2**size.max_key - iteration
        in_order = np.sort(keys)
        for test in size.tests:
            rank = np.searchsorted(in_order, keys[test.place])
            assert rank == test.in_iteration(iteration), (test, iteration)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_the_direct_solution_solves_the_equations(n: int) -> None:
    line = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    laplacian = np.kron(line, np.eye(n)) + np.kron(np.eye(n), line)
    b = poisson.source(n)
    solved = np.linalg.solve(laplacian, b.ravel()).reshape(n, n)
    assert np.allclose(poisson.direct_solution(b), solved, rtol=0, atol=1e-13)


def test_lookups_interpolate_between_the_points() -> None:
    table = lookup_table.make_table(5000)
    energy, material = lookup_table.neutrons(200, 3)
    seen = lookup_table.look_up(table, energy, material)
    for k, (e, m) in enumerate(zip(energy, material, strict=True)):
        i = int(np.searchsorted(table[0], e, side="right")) - 1
        share = (e - table[0, i]) / (table[0, i + 1] - table[0, i])
        between = (1 - share) * table[1:, i] + share * table[1:, i + 1]
        assert np.isclose(seen[k], between @ lookup_table.densities()[m], rtol=1e-12)


def test_every_lookup_is_somebodys() -> None:
    assert [sum(lookup_table.shares(1000, t)) for t in (1, 3, 7)] == [1000] * 3
    first, _ = lookup_table.neutrons(10, 0)
    other, _ = lookup_table.neutrons(10, 1)
    assert not np.intersect1d(first, other).size


@pytest.mark.parametrize("name", ["S", "W"])
def test_the_known_checksums_are_those_of_a_serial_transform(name: str) -> None:
    nx, ny, nz, known = fft.SIZES[name]
    numbers = np.array(randlc(2 * nx * ny * nz)) * 2.0**-46
    cube = (numbers[::2] + 1j * numbers[1::2]).reshape(nz, ny, nx)
    assert np.array_equal(fft.start(nx, ny, 3, 5), cube[3:5])
    spectrum = np.fft.fftn(cube)
    z, y, x = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in cube.shape), indexing="ij")
    for step, checksum in enumerate(known, 1):
        left = np.exp(-4 * 1e-6 * np.pi**2 * (x * x + y * y + z * z) * step)
        later = np.fft.ifftn(spectrum * left)
        total = sum(later[5 * j % nz, 3 * j % ny, j % nx] for j in range(1, 1025))
        assert total.real == pytest.approx(checksum.real, rel=1e-12, abs=0)
        assert total.imag == pytest.approx(checksum.imag, rel=1e-12, abs=0)


@pytest.mark.parametrize(("nx", "ny", "nz"), [(4, 4, 4), (3, 6, 5), (1, 2, 7)])
def test_waves_decay_by_their_length(nx: int, ny: int, nz: int) -> None:
    left = fft.decay(nx, ny, nz)
    z, y, x = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in (nz, ny, nx)), indexing="ij")
    assert np.allclose(np.log(left), -4e-6 * np.pi**2 * (x * x + y * y + z * z), rtol=1e-10)
    assert np.array_equal(fft.decay(nx, ny, nz, slice(1, 3)), left[:, :, 1:3])


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_a_checksum_counts_each_point_once(threads: int) -> None:
    nx, ny, nz = 5, 6, 7
    cube = np.random.default_rng(threads).random((nz, ny, nx)) + 0j
    cuts = [nz * t // threads for t in range(threads + 1)]
    parts = [
        fft.sum_of_some(cube[first:end], first, nx, ny, nz)
        for first, end in itertools.pairwise(cuts)
    ]
    total = sum(cube[5 * j % nz, 3 * j % ny, j % nx] for j in range(1, 1025))
    assert sum(parts) == pytest.approx(total)


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 40])
def test_keys_are_dealt_unevenly(threads: int) -> None:
    for keys in (1, 7, 100_000):
        shares = sample_sort.shares(keys, threads)
        assert sum(shares) == keys
        assert len(shares) == threads
        assert sorted(shares, reverse=True) == shares
        assert 4 * shares[0] >= 3 * keys
        assert threads == 1 or shares[-1] == 0


@pytest.mark.parametrize("different", [1, 3, 1000])
def test_splitters_cut_in_the_order_of_key_thread_and_place(different: int) -> None:
    rng = np.random.default_rng(different)
    parts = [np.sort(rng.integers(different, size=n)) for n in (0, 50, 7, 1, 0, 20)]
    everything = [(k, t, i) for t, part in enumerate(parts) for i, k in enumerate(part.tolist())]
    samples = sample_sort.Splitters(*np.array(everything[::3]).T)
    for count in (1, 2, 5, 30):
        chosen = sample_sort.choose(samples, count)
        by_hand = sorted(everything[::3])
        triples = list(zip(*(each.tolist() for each in chosen), strict=True))
        assert triples == [by_hand[len(by_hand) * i // count] for i in range(1, count)]
        for t, part in enumerate(parts):
            below = [sum(x[1] == t and x < triple for x in everything) for triple in triples]
            assert chosen.cut(part, t).tolist() == below


def test_a_checksum_notices_a_lost_and_a_changed_key_but_not_their_order() -> None:
    keys = sample_sort.make_keys(10_000, 5)
    sums = sample_sort.checksum(keys)
    assert sample_sort.checksum(np.sort(keys)) == sums
    moved = keys.copy()
    moved[7] += 1
    moved[8] -= 1
    for other in (keys[1:], moved, np.append(keys, 1)):
        assert sample_sort.checksum(other) != sums


@pytest.mark.parametrize(
    ("module", "args"),
    [
        (fft, ["Z"]),
        (sample_sort, [0]),
        (is_sort, ["Z"]),
        (poisson, [0, ""]),
        (poisson, [9, "x"]),
        (lookup_table, [1, 5]),
        (lookup_table, [5, 0]),
    ],
)
def test_a_usage_error_is_told_before_anything_starts(
    module: Any, args: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(*args) == 2
    assert capsys.readouterr().err.startswith(f"usage: {module.__name__}.py [")


# --- edges in a picture ---------------------------------------------------------------------------


def test_edges_by_the_definition() -> None:
    """Both masks of Sobel's filter, pixel by pixel; the strongest edge is white."""
    seen = np.random.default_rng(1).integers(0, 256, (6, 9)).astype(np.uint8)
    across = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    p = np.pad(seen.astype(int), 1, mode="edge")
    found = np.empty(seen.shape, int)
    for i, j in itertools.product(*map(range, seen.shape)):
        window = p[i : i + 3, j : j + 3]
        found[i, j] = abs((window * across).sum()) + abs((window * across.T).sum())
    assert np.array_equal(sobel.gradient(p), found)
    assert np.array_equal(sobel.by_numpy(seen), found * 255 // found.max())
    assert not sobel.by_numpy(np.full((3, 4), 7, np.uint8)).any()


@pytest.mark.parametrize("width", [1, 2, 7, 640])
def test_the_picture_is_always_the_same(width: int) -> None:
    """It has structure, so that edges are there to find."""
    seen = sobel.picture(width)
    assert seen.shape == (max(1, width * 5 // 8), width)
    assert np.array_equal(seen, sobel.picture(width))
    if width == 640:
        assert len(np.unique(seen)) > 100
        assert 0.02 < np.mean(sobel.by_numpy(seen) > 25) < 0.5
