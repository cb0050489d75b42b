"""Cross sections of nuclides looked up in one table per node, as Monte Carlo transport does.

    xupc run -n 4 --nodes 2x2 examples/lookup_table.py [points] [lookups]

Neutrons of random energies meet random materials; how likely they are to react is interpolated in
a table of resonances on an energy grid. Such tables are large, and every thread needs all of one:
here thread 0 makes it, and `node_broadcast` puts it into the memory of each node once, where its
threads read it as an ordinary ndarray.

Each thread compares some of its lookups with the formula that the table was made of; at the end
thread 0 does all threads' lookups again, in the table that it has made.
"""

import sys
import time

import numpy as np

import xupc

NUCLIDES, RESONANCES, MATERIALS = 12, 40, 5
LOWEST, HIGHEST = 1e-5, 2e7  # eV
ALLOWED = 1e5  # over points squared, of the formula's value: straight lines are not the curve
SEED = 2005


def resonances() -> np.ndarray:
    """Return the energy, width and strength of each nuclide's resonances."""
    rng = np.random.default_rng(SEED)
    energy = np.exp(rng.uniform(np.log(1.0), np.log(1e6), (NUCLIDES, RESONANCES)))
    width = energy * rng.uniform(0.05, 0.3, energy.shape)
    return np.stack([energy, width, rng.uniform(1, 50, energy.shape)], axis=-1)


def cross_section(nuclide: int, energy: np.ndarray) -> np.ndarray:
    """Return single-level Breit-Wigner resonances above a 1/v background, in barn."""
    total = 2 / np.sqrt(energy)
    for at, width, strength in resonances()[nuclide]:
        total += strength / (1 + ((energy - at) / (width / 2)) ** 2)
    return total + 4


def make_table(points: int) -> np.ndarray:
    """Return the energy grid, and under it a row for each nuclide."""
    table = np.empty((1 + NUCLIDES, points))
    table[0] = np.geomspace(LOWEST, HIGHEST, points)
    for nuclide in range(NUCLIDES):
        table[1 + nuclide] = cross_section(nuclide, table[0])
    return table


def densities() -> np.ndarray:
    """Return the density of each nuclide in each material."""
    return np.random.default_rng(SEED + 1).random((MATERIALS, NUCLIDES))


def neutrons(count: int, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a thread's energies and materials, the same on every thread that calls this."""
    rng = np.random.default_rng([SEED + 2, thread])
    energy = np.exp(rng.uniform(np.log(LOWEST), np.log(HIGHEST), count))
    return energy, rng.integers(MATERIALS, size=count)


def look_up(table: np.ndarray, energy: np.ndarray, material: np.ndarray) -> np.ndarray:
    """Return the macroscopic cross section that each neutron sees."""
    amounts = densities()[material]
    total = np.zeros(len(energy))
    for nuclide in range(NUCLIDES):
        total += amounts[:, nuclide] * np.interp(energy, table[0], table[1 + nuclide])
    return total


def by_material(seen: np.ndarray, material: np.ndarray) -> np.ndarray:
    """Return the sums of what the neutrons in each material see."""
    return np.bincount(material, seen, minlength=MATERIALS)


def fits_the_formula(
    seen: np.ndarray, energy: np.ndarray, material: np.ndarray, points: int
) -> bool:
    """Return whether lookups agree with the formula as far as so many points permit."""
    amounts = densities()[material]
    exact = sum(amounts[:, k] * cross_section(k, energy) for k in range(NUCLIDES))
    return bool(np.allclose(seen, exact, rtol=ALLOWED / points**2, atol=0))


def shares(lookups: int, threads: int) -> list[int]:
    """Return the number of lookups that each thread does."""
    return [lookups * (t + 1) // threads - lookups * t // threads for t in range(threads)]


def main(points: int, lookups: int) -> int:
    """Look up and check; return 1 if anything is wrong, 2 if the arguments are."""
    if points < 2 or lookups < 1:
        print("usage: lookup_table.py [points] [lookups]", file=sys.stderr)
        return 2
    with xupc.init() as team:
        T, me = xupc.THREADS, xupc.MYTHREAD
        made = make_table(points) if me == 0 else None
        began = time.perf_counter()
        table = xupc.node_broadcast(made)
        seconds = time.perf_counter() - began
        energy, material = neutrons(shares(lookups, T)[me], me)
        seen = look_up(table, energy, material)

        sums = xupc.all_alloc(MATERIALS * T, np.float64, blocksize=MATERIALS)
        sums.local[:] = by_material(seen, material)
        xupc.all_reduce_mpi_all(sums, None, xupc.ADD)  # in place: all sums, on all threads
        some = slice(0, 1000)
        good = xupc.all_alloc(T, np.int64)
        good.local[:] = fits_the_formula(seen[some], energy[some], material[some], points)
        xupc.all_reduce_mpi_all(good, None, xupc.LOGAND)

        right = bool(good.local[0])
        if me == 0:
            assert made is not None
            again = np.zeros(MATERIALS)
            for thread, count in enumerate(shares(lookups, T)):
                energy, material = neutrons(count, thread)
                again += by_material(look_up(made, energy, material), material)
            right = right and np.array_equal(table, made) and np.allclose(sums.local, again)
            nodes = len(team.tree.nodes)
            place = f"{T} threads on {nodes} node{'s'[: nodes != 1]}"
            print(f"{place}; a table of {table.nbytes / 1e6:.1f} MB")
            print(f"tables in memory       {nodes} instead of {T}, there in {seconds * 1e3:.1f} ms")
            for k, total in enumerate(sums.local):
                print(f"material {k}             {total:.6e} barn in all")
            print("the lookups are right" if right else "THE LOOKUPS ARE WRONG")
        return 0 if right else 1


if __name__ == "__main__":
    chosen = [int(text) for text in sys.argv[1:3]]
    sys.exit(main(*chosen, *[50_000, 200_000][len(chosen) :]))
