"""On which threads and nodes random programs run, and how many of them in one launch."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.random_programs.generate import LIVE, SIMULATED, generate
from support.random_programs.program import Program
from support.random_programs.simulate import run
from support.random_programs.text import nodes_of, text

LIVE_PROGRAM = Path(__file__).with_name("live.py")
KEPT = Path(__file__).with_name("kept")
SMALL = {"XUPC_TUNING": str(Path(__file__).with_name("small.toml")), "XUPC_HEAP_SIZE": "1MiB"}
"""A selection table with small sizes, so that chunks have edges where programs are small; a heap
that has to grow."""
LABELS = (
    "00", "0011", "000", "01201", "001", "00000000", "0000", "0001222", "01", "0", "0101",
    "00112233", "00012", "012", "01201201",
)  # fmt: skip
"""The node of each thread: one, even, uneven, cyclic, one thread each."""
SIMULATED_THREADS = (1, 2, 2, 3, 3, 4, 4, 5, 5, 7, 8, 11)


@dataclass
class Tally:
    """The results of simulated programs; failures as text."""

    programs: int = 0
    failures: list[str] | None = None


def simulated(first: int, count: int) -> Tally:
    """Run so many programs in the simulator, every third by a random schedule."""
    from simulated.matrix import placements

    failures = []
    for seed in range(first, first + count):
        rng = random.Random(seed)
        threads = rng.choice(SIMULATED_THREADS)
        labels = tuple(rng.choice(list(placements(threads).values())))
        program = generate(seed, labels, SIMULATED)
        try:
            run(program, None if seed % 3 else seed)
        except Exception as problem:
            words = f"{type(problem).__name__}: {str(problem)[:2000]}"
            failures.append(f"seed {seed} on {labels}\n{words}\n{program}")
    return Tally(count, failures)


def programs_file(directory: Path, programs: Sequence[Program]) -> Path:
    """Write the input file of a launch."""
    file = directory / "programs.json"
    file.write_text(json.dumps([[program.seed, text(program)] for program in programs]))
    return file


def launch_many(
    live: Callable[..., Any], directory: Path, labels: str, seeds: Sequence[int], **options: Any
) -> float:
    """Run the programs of these seeds in one launch; its seconds. The failure names the seed."""
    nodes = tuple(map(int, labels))
    programs = [generate(seed, nodes, LIVE) for seed in seeds]
    return launch_these(live, directory, programs, **options)


def launch_these(
    live: Callable[..., Any], directory: Path, programs: Sequence[Program], *, timeout: float = 90,
    small: bool = False, env: dict[str, str] | None = None,
) -> float:  # fmt: skip
    """The same with programs at hand, all on one placement."""
    first = programs[0]
    began = time.monotonic()
    result = live(
        first.threads, LIVE_PROGRAM, args=[str(programs_file(directory, programs))],
        nodes=nodes_of(first.labels), timeout=timeout, expect=None, own_job=False,
        env={"XUPC_TIMEOUT": "30", **(SMALL if small else {}), **(env or {})},
    )  # fmt: skip
    if f"done: {len(programs)}\n" not in result.stdout:
        raise AssertionError(f"{how_to_repeat(programs, result.stdout)}\n{result.report()}")
    return time.monotonic() - began


def how_to_repeat(programs: Sequence[Program], output: str) -> str:
    """The program that failed, and what makes it short."""
    seeds = re.findall(r"failed: seed (\d+)", output)
    of = [program for program in programs if str(program.seed) in seeds[:1]]
    if not of:
        return "no program said that it failed"
    labels = "".join(map(str, of[0].labels))
    return (
        f"python -m support.random_programs.shrink live {of[0].seed} {labels} (in tests) "
        f"makes it shorter:\n{of[0]}"
    )
