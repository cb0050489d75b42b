"""Whether the library chooses the best algorithm: with the built-in table, and after `xupc tune`.

    python benchmarks/choices.py PYTHON [-n 2] [--cluster]

Measures the library's choice beside PULL, PUSH and MULTICORE in every cell of collective x size,
has `xupc tune` make a table of that, and measures again with it. A choice is good if it is the
best, or if the lower bound of its paired ratio to the best is within the limit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from xupc.bench import stats
from xupc.bench.results import Cell, Result

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "scripts" / "cluster"
COLLECTIVES = ("all_broadcast", "all_scatter", "all_gather", "all_gather_all", "all_exchange",
               "all_permute", "all_broadcast_in_place", "all_reduce", "all_reduce_all",
               "all_reduce_mpi", "all_reduce_mpi_all", "all_prefix_reduce", "all_suffix_reduce",
               "allav_*")
ALGORITHMS = "PULL", "PUSH", "MULTICORE"
BUILT_IN, TUNED = 1.10, 1.05
NAME = "choices"


def measure(args: argparse.Namespace, out: Path, table: Path | None) -> Result:
    """Run xupc bench and return its result, with a table of the user's or without."""
    environment = {**os.environ, "XUPC_TUNING": str(table)} if table else dict(os.environ)
    words = ["-m", "xupc", "bench", *COLLECTIVES, "-m", args.sizes, "--json", str(out), "--force",
             "--compact", "--budget", f"{args.seconds:.0f}s"]
    if args.cluster:
        words = [str(SCRIPT), "run", "--name", NAME, "-n", "16", "--python", args.python,
                 "--timeout", f"{6 * args.seconds + 300:.0f}",
                 *(["--env", f"XUPC_TUNING={table}"] if table else []), "--", args.python, *words]
        words = [sys.executable, *words]
    else:
        words = [args.python, *words, "-n", str(args.threads), "--launches", str(args.launches)]
    subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
    return Result.load(out)


def judge(cell: Cell, limit: float) -> tuple[bool, str] | None:
    """Return whether the choice is good, and a text with its ratio to the best; None if unknown."""
    chosen = cell.candidate("xupc")
    others = [c for name in ALGORITHMS if (c := cell.candidate(name)) is not None and c.measured]
    if chosen is None or not others:
        return None
    best = min(others, key=lambda c: stats.median(c.medians).value)
    ratio = stats.ratio(chosen.medians, best.medians)
    if ratio is None:
        return None
    same = chosen.algorithm == best.algorithm
    words = f"{cell.title} {cell.nbytes}: {chosen.algorithm}, best {best.algorithm}, {ratio}"
    return same or ratio.low <= limit, words


def report(result: Result, limit: float, what: str, aim: float) -> str:
    """Return how many choices are good, and the others, as Markdown."""
    found = [j for job in result.jobs for cell in job.cells if (j := judge(cell, limit))]
    good = sum(fine for fine, _ in found)
    lines = [f"- {result.jobs[0].shape}, {what}: {good} of {len(found)} choices are the best or "
             f"within {limit:.2f}, {good / len(found):.1%} (at least {aim:.0%})"]
    return "\n".join([*lines, *(f"  - {words}" for fine, words in found if not fine)])


def main() -> int:
    """Judge the choices of the built-in table, tune, and judge those of the tuned one."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("python")
    top.add_argument("-n", "--threads", type=int, default=2)
    top.add_argument("--cluster", action="store_true", help="16 threads on 4 emulated hosts")
    top.add_argument("--sizes", default="8,1K,64K,1M")
    top.add_argument("--launches", type=int, default=5)
    top.add_argument("--seconds", type=float, default=240.0, help="for each of the two")
    top.add_argument("--folder", type=Path, default=HERE / "results" / "choices")
    args = top.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    shape = "cluster-4x4" if args.cluster else f"{args.threads}-threads"
    first, second = (args.folder / f"{shape}.{name}.json.gz" for name in ("built-in", "tuned"))
    table = (args.folder / f"{shape}.toml").resolve()
    table.unlink(missing_ok=True)
    try:
        if args.cluster:
            subprocess.run([sys.executable, str(SCRIPT), "up", "--name", NAME, "--nodes", "4",
                            "--rate", "1gbit"], check=True)
        print(report(measure(args, first, None), BUILT_IN, "built-in table", 0.90), flush=True)
        subprocess.run([args.python, "-m", "xupc", "tune", "--from", str(first), "-o", str(table)],
                       check=True)
        print(report(measure(args, second, table), TUNED, "after xupc tune", 0.95))
    finally:
        if args.cluster:
            subprocess.run([sys.executable, str(SCRIPT), "down", "--name", NAME], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
