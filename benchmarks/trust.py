"""Whether the benchmark can be believed: what it says twice, of a slowdown, and what it costs.

    python benchmarks/trust.py PYTHON [--launches 12] [--seconds 8]

1. The same command is run twice: in how many cells the two intervals of a candidate overlap.
2. In half of the cells every call is made 10% longer in launches B, in none in launches A; both
   kinds take turns. The report's test must call all of the former and none of the latter, where
   cells are resolvable. Calls of all cells and launches go through the same wrapper.
3. An empty call against a repetition at 64 KiB.

PYTHON is the interpreter of an environment with xupc in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from xupc.bench import stats
from xupc.bench.collect import Collector, lines_of
from xupc.bench.results import FLOOR, OURS, PEER, Job, Result
from xupc.bench.settings import Settings
from xupc.report.regression import REGRESSION, UNRESOLVED, compare

THREADS = 2
HURT = "all_broadcast", "all_gather_all", "all_exchange", "all_reduce_mpi_all", "allav_gather_all"
SPARED = "all_gather", "all_scatter", "all_permute", "all_reduce_mpi", "allav_exchange"
SIZES = 1 << 16, 1 << 20
SLOWER = 1.1
HERE = Path(__file__).resolve()


def slowed(function: Any, factor: float) -> Any:
    """The same, made longer by a part of what it took; what is around it is always the same."""
    clock = time.perf_counter_ns

    def call(*arguments: Any) -> Any:
        begin = clock()
        found = function(*arguments)
        more = int((clock() - begin) * (factor - 1))
        until = clock() + more
        while clock() < until:
            pass
        return found

    return call


def work(arguments: list[str]) -> None:
    """A launch in which some calls are slower: what `xupc run` starts."""
    from dataclasses import replace

    from xupc.bench import worker

    out, settings, factor = arguments
    plain = worker.our_call

    def our_call(collective: str, *rest: Any) -> Any:
        call = plain(collective, *rest)
        by = float(factor) if collective in HURT else 1.0
        return replace(call, function=slowed(call.function, by))

    worker.our_call = our_call
    worker.main([out, settings])


def launch(python: str, collector: Collector, factor: float, seconds: float, seed: int) -> None:
    """One of either kind."""
    settings = Settings(collectives=(*HURT, *SPARED), sizes=SIZES, algorithms=("auto",), peer=True,
                        seconds=seconds, seed=seed)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "lines"
        subprocess.run([python, "-m", "xupc", "run", "-n", str(THREADS), str(HERE), "--work",
                        str(out), settings.to_json(), str(factor)], check=True)
        for line, _ in lines_of(out):
            collector.take(line)


def result_of(collector: Collector) -> Result:
    """As a file of `xupc bench` has it."""
    assert collector.job is not None
    return Result(sys.argv, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                  jobs=[collector.job])


def overlaps(one: Job, other: Job) -> tuple[int, int, list[str]]:
    """(candidates whose intervals overlap, all of them, those that do not)."""
    agree, every, apart = 0, 0, []
    for cell, again in zip(one.cells, other.cells, strict=True):
        for a, b in zip(cell.candidates, again.candidates, strict=True):
            if a.kind not in (OURS, PEER):
                continue
            x, y = stats.median(a.ns), stats.median(b.ns)
            every += 1
            if x.low <= y.high and y.low <= x.high:
                agree += 1
            else:
                apart.append(f"{cell.title} {cell.nbytes} {a.name}: {x.low / 1e3:.2f}-"
                             f"{x.high / 1e3:.2f} and {y.low / 1e3:.2f}-{y.high / 1e3:.2f} us")
    return agree, every, apart


def repeatability(python: str, launches: int, seconds: float, folder: Path) -> str:
    """The same command twice."""
    found = []
    for name in ("once", "again"):
        out = folder / f"{name}.json.gz"
        subprocess.run([python, "-m", "xupc", "bench", *HURT, *SPARED, "-n", str(THREADS),
                        "-m", "8,1K,64K,1M", "--flags", "auto,PULL,PUSH", "--peer",
                        "--launches", str(launches), "--budget", f"{seconds:.0f}s",
                        "--json", str(out)], stdout=subprocess.DEVNULL, check=True)
        found.append(Result.load(out).jobs[0])
    agree, every, apart = overlaps(*found)
    lines = [f"- the same command twice ({launches} launches of {seconds / launches:.0f} s each): "
             f"{agree} of {every} intervals overlap, {agree / every:.1%} (at least 90%)"]
    lines += [f"  - apart: {text}" for text in apart]
    lines += [cost(found[0])]
    return "\n".join(lines)


def cost(job: Job) -> str:
    """An empty call as a share of calls at 64 KiB."""
    shares = []
    for cell in job.cells:
        floor = next(cell.of_kind(FLOOR), None)
        ours = cell.candidate("xupc")
        if cell.nbytes == 1 << 16 and floor is not None and ours is not None:
            shares.append((stats.median(floor.ns).value / stats.median(ours.ns).value, cell.title))
    worst, name = max(shares)
    return (f"- an empty call takes {stats.geometric_mean(s for s, _ in shares):.1%} of a call at "
            f"64 KiB (geometric mean of {len(shares)}), at most {worst:.1%} ({name}) (under 5%)")


def honesty(python: str, launches: int, seconds: float, folder: Path) -> str:
    """Launches A B A B."""
    before, after = Collector(), Collector()
    for number in range(launches):
        launch(python, before, 1.0, seconds, 2 * number)
        launch(python, after, SLOWER, seconds, 2 * number + 1)
    old, new = result_of(before), result_of(after)
    old.save(folder / "as-it-is.json.gz")
    new.save(folder / "slower.json.gz")
    (found,) = compare(old, new)
    lines = []
    for group, names in ((f"made {SLOWER - 1:.0%} slower", HURT), ("left as they are", SPARED)):
        cells = [c for c in found.changes if c.cell.collective in names]
        hidden = sum(c.verdict == UNRESOLVED for c in cells)
        called = sum(c.verdict == REGRESSION for c in cells)
        lines.append(f"- {len(cells)} cells {group}, {launches} launches of each kind in turn: "
                     f"{called} called a regression, {hidden} not resolvable")
        lines += [f"  - {c.cell.title} {c.cell.nbytes}: {c.verdict}, {c.ratio}, A/A "
                  f"{c.spread or 0:.1%}" for c in cells]
    return "\n".join(lines)


def main() -> int:
    """Run all three and print."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
        return 0
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("python")
    top.add_argument("--launches", type=int, default=12)
    top.add_argument("--seconds", type=float, default=8.0, help="of a launch")
    top.add_argument("--folder", type=Path, default=HERE.parent / "results" / "trust")
    args = top.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    whole = args.launches * (args.seconds + 3.5)
    print(honesty(args.python, args.launches, args.seconds, args.folder), flush=True)
    print(repeatability(args.python, args.launches // 2, whole / 2, args.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
