"""How often the report's test is right: on made-up launches A B A B of machines that misbehave.

    python benchmarks/verdicts.py [--rounds 200] [--couples 60]

Of twenty cells ten are made 10% slower in launches B. A launch's time in a cell is that of a steady
machine times what the launch suffers, and mpi4py's beside it suffers in part alike:

- quiet: launches differ by 2% in each cell, with heavy tails (Student's t with 3 degrees)
- uneven: besides, the machine's speed wanders by 10% (an autoregression over launches)
- two states: besides, it is in a second state for 8 launches on average, in which calls take up to
  2.5 times as long
- neighbours: besides, one launch in six meets something that makes its calls 50 times as long
- much noise: launches differ by 25% in each cell: nothing should be resolvable

How many of the slower cells are called, how many of the others; and in rounds in which no cell is
slower at all: how often p is below 5% in a cell, and how many rounds have a single one called.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from xupc.bench.results import OURS, PEER, Candidate, Cell, Job, Launch, Result
from xupc.report.regression import REGRESSION, UNRESOLVED, compare

CELLS = 20
SLOWER = 1.1


@dataclass(frozen=True)
class Machine:
    """Hold a simulated machine: the sources of variation between its launches."""

    name: str
    own: float = 0.02
    speed: float = 0.0
    states: bool = False
    neighbours: float = 0.0


MACHINES = (
    Machine("quiet"),
    Machine("uneven", speed=0.1),
    Machine("two states", speed=0.1, states=True),
    Machine("neighbours", speed=0.1, states=True, neighbours=1 / 6),
    Machine("much noise", own=0.25, speed=0.1),
)


def suffered(machine: Machine, launches: int, dice: random.Random) -> Iterator[tuple[float, ...]]:
    """Yield for every launch its speed, its state (0 or 1), and the factor by a neighbour."""
    speed, second = dice.gauss(0, machine.speed), dice.random() < 0.5
    for _ in range(launches):
        speed = 0.8 * speed + 0.6 * dice.gauss(0, machine.speed)
        second ^= machine.states and dice.random() < 1 / 8
        hit = dice.uniform(20, 80) if dice.random() < machine.neighbours else 1.0
        yield speed, float(second), hit


def heavy(dice: random.Random) -> float:
    """Return a number of Student's t with 3 degrees of freedom, of variance 1."""
    return dice.gauss(0, 1) / (sum(dice.gauss(0, 1) ** 2 for _ in range(3)) ** 0.5)


def pair(machine: Machine, couples: int, slower: int, dice: random.Random) -> list[Result]:
    """Return two results of launches in turn; the second's first `slower` cells are slow."""
    about = {"mpi": "MPICH", "mpi4py": "4", "transport": "shm"}
    jobs = [Job(2, [[0, 1]], ["here"], about) for _ in range(2)]
    traits = [(dice.uniform(0.7, 1.3), dice.uniform(0.0, 1.3)) for _ in range(CELLS)]
    for job in jobs:
        job.cells = [Cell("all_broadcast", 8 << k, 1, candidates=[
            Candidate("xupc", OURS, ""), Candidate("mpi4py", PEER, "")]) for k in range(CELLS)]
    for i, (speed, second, hit) in enumerate(suffered(machine, 2 * couples, dice)):
        job, later = jobs[i % 2], i % 2
        began = f"2026-01-01T{i // 3600:02d}:{i // 60 % 60:02d}:{i % 60:02d}Z"
        job.launches.append(Launch(i // 2 + 1, began, 1.0, [], i))
        for k, (cell, (slope, more)) in enumerate(zip(job.cells, traits, strict=True)):
            common = 1e6 * 2.0 ** (second * more) * hit
            made = SLOWER if later and k < slower else 1.0
            for one, by, part in zip(cell.candidates, (made, 1.0), (slope, 1.0), strict=True):
                time = common * by * 2.718 ** (part * speed + machine.own * heavy(dice))
                one.ns.append([int(time)])
    return [Result([], "", jobs=[job]) for job in jobs]


def tried(machine: Machine, couples: int, rounds: int, slower: int) -> tuple[Counter[str], int]:
    """Count verdicts on slow cells and on others, and rounds with a false one among the others."""
    count: Counter[str] = Counter()
    false = 0
    for seed in range(rounds):
        (found,) = compare(*pair(machine, couples, slower, random.Random(f"{slower} {seed}")))
        for k, change in enumerate(found.changes):
            count[f"{'slow' if k < slower else 'same'} {change.verdict}"] += 1
            count["p below 5%"] += change.p <= 0.05
        false += any(c.verdict == REGRESSION for c in found.changes[slower:])
    return count, false


def main() -> int:
    """Print a line for each kind of machine."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--rounds", type=int, default=200)
    top.add_argument("--couples", type=int, default=60)
    args = top.parse_args()
    print(f"{args.couples} couples of launches, {args.rounds} rounds of {CELLS} cells each\n")
    print("| machine | slow cells called | not resolvable | missed | others called "
          "| nothing slow: p below 5% | rounds in which a cell was called |")
    print("|---|---|---|---|---|---|---|")
    for machine in MACHINES:
        count, _ = tried(machine, args.couples, args.rounds, CELLS // 2)
        none, false = tried(machine, args.couples, args.rounds, 0)
        slow = args.rounds * (CELLS // 2)
        called, hidden = count[f"slow {REGRESSION}"], count[f"slow {UNRESOLVED}"]
        print(f"| {machine.name} | {called / slow:.1%} | {hidden / slow:.1%} | "
              f"{(slow - called - hidden) / slow:.1%} | {count[f'same {REGRESSION}'] / slow:.2%} | "
              f"{none['p below 5%'] / args.rounds / CELLS:.1%} | {false} of {args.rounds} |",
              flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
