"""Results as `xupc bench` writes them, made up: times that follow a rule, with noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

from xupc.bench.results import AGAIN, FLOOR, OURS, PEER, Candidate, Cell, Job, Launch, Result

BOUNDS = {"copy rate": 9e9, "line latency ns": 70.0}
WIRE = {"wire rate": 1.18e8, "wire latency ns": 24_000.0}
ABOUT = {
    "xupc": "0.1.0", "python": "3.12.1", "numpy": "2.1.0", "mpi4py": "4.1.0",
    "mpi": "MPICH 5.0.2", "mpi family": "mpich", "transport": "shm", "thread level": "multiple",
    "netmod": "ofi", "native core": True, "tuning": "built-in", "binding": "none", "cores": 8,
    "oversubscribed": False, "processor": "A processor", "kernel": "Linux 6.1",
}  # fmt: skip
SIZES = (8, 64, 512, 4096, 32768, 262144, 2097152)
COLLECTIVES = ("all_broadcast", "all_gather_all", "all_exchange")
MOVED = {
    "all_broadcast": lambda t: t, "all_scatter": lambda t: t, "all_gather": lambda t: t,
    "all_gather_all": lambda t: t * t, "all_exchange": lambda t: t * t,
}  # fmt: skip

Rule = Callable[[str, str, int], float]
"""The typical time in ns of a candidate, by its name, the collective and the size."""


def nodes_of(shape: str) -> list[list[int]]:
    """``4x2``: 4 nodes of 2."""
    nodes, per = map(int, shape.split("x"))
    return [list(range(i * per, (i + 1) * per)) for i in range(nodes)]


def rule(nodes: list[list[int]]) -> Rule:
    """PUSH for small blocks, PULL for middling ones, MULTICORE for large ones and many nodes."""
    threads, many = sum(map(len, nodes)), len(nodes) > 1

    def typical(name: str, collective: str, nbytes: int) -> float:
        wide = 1 + math.log2(threads)
        total = MOVED.get(collective, lambda t: t)(threads) * nbytes / 9.0
        start, rate = {
            "PULL": (260.0, 1.05), "PUSH": (180.0, 1.3), "MULTICORE": (330.0, 0.9),
            "plan": (120.0, 1.3), "mpi4py": (420.0, 1.25), "floor": (45.0, 0.0),
        }.get(name, (200.0, 0.95))  # fmt: skip
        wire = 0.0
        if many and name != "floor":
            blocks = MOVED.get(collective, lambda t: t)(threads) / threads
            times = {"MULTICORE": 1.1, "xupc": 1.1, "mpi4py": 1.4}.get(name, 0.8 * len(nodes[0]))
            wire = 30_000 + times * nbytes * blocks * len(nodes[0]) / 0.118
        return float(start * wide + rate * total / min(threads, 4) + wire)

    return typical


def job(
    shape: str = "1x2",
    *,
    collectives: Iterable[str] = COLLECTIVES,
    sizes: Sequence[int] = SIZES,
    launches: int = 5,
    repetitions: int = 40,
    between: float = 0.02,
    own: float = 0.0,
    within: float = 0.01,
    peers: Sequence[str] = ("mpi4py",),
    bounds: dict[str, float] | None = None,
    factor: Callable[[str, str, int], float] = lambda *_: 1.0,
    seed: int = 1,
    began: Callable[[int], str] = lambda i: f"2026-11-21T10:{i:02d}:00Z",
) -> Job:
    """A job in which repetitions have heavy tails.

    Launches differ by `between` in all candidates of a cell, by `own` in each. `factor` is what a
    candidate's time is multiplied with.
    """
    nodes = nodes_of(shape)
    rng = random.Random(seed)
    typical = rule(nodes)
    threads = sum(map(len, nodes))
    if bounds is None:
        bounds = {**BOUNDS, **(WIRE if len(nodes) > 1 else {})}
    names = dict.fromkeys(("xupc", "PULL", "PUSH", "MULTICORE", "plan"), OURS)
    names |= {"xupc again": AGAIN, **dict.fromkeys(peers, PEER), "floor": FLOOR}
    cells = []
    for collective in collectives:
        for nbytes in (0,) if collective == "barrier" else sizes:
            moved = MOVED.get(collective, lambda t: t)(threads) * nbytes
            cell = Cell(collective, nbytes, moved, root="0" if moved == threads else "")
            shifts = [rng.gauss(0, between) for _ in range(launches)]
            for name, kind in names.items():
                algorithm = "multicore" if kind in (OURS, AGAIN) else ""
                algorithm = name.lower() if name in ("PULL", "PUSH") else algorithm
                call = f"{collective}(...)" if kind != PEER else "comm.Something"
                crossing = nbytes * (len(nodes) - 1) * (1 if algorithm == "multicore" else 2)
                ours = kind in (OURS, AGAIN)
                candidate = Candidate(name, kind, call, algorithm, crossing if ours else None)
                center = typical(name.removesuffix(" again"), collective, nbytes)
                center *= factor(name, collective, nbytes)
                for common in shifts:
                    shift = common + rng.gauss(0, own)
                    times = [
                        center
                        * math.exp(
                            shift
                            + within * abs(rng.gauss(0, 1))
                            + (rng.random() < 0.05) * rng.expovariate(1.0)
                        )
                        for _ in range(repetitions)
                    ]
                    candidate.ns.append([round(ns) for ns in times])
                    candidate.wrong.append([])
                cell.candidates.append(candidate)
            cells.append(cell)
    started = [Launch(i + 1, began(i), 12.5, [0.2, 1.9], 100 + i) for i in range(launches)]
    several = {"kind": "offsets", "uncertainty ns": 900}
    clock = {"kind": "monotonic"} if len(nodes) == 1 else several
    hosts = [f"node{i}" for i in range(len(nodes))]
    return Job(threads, nodes, hosts, dict(ABOUT), clock, bounds, started, cells)


def cut(whole: Job, measured: int) -> Job:
    """Return a job whose launches came to its first cells only, as those that a budget cuts."""
    for cell in whole.cells[measured:]:
        for candidate in cell.candidates:
            candidate.ns = [[] for _ in candidate.ns]
    return whole


def result(*jobs: Job) -> Result:
    """A whole file."""
    return Result(["xupc", "bench", "--peer"], "2026-11-21T10:00:00Z", jobs=list(jobs))
