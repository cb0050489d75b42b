"""Test the benchmark itself: whether it repeats, whether it detects a slowdown, what it costs.

    python benchmarks/trust.py slowdown [--launches 150] [--seconds 0.8] [--minutes 20]
    python benchmarks/trust.py twice [--launches 6] [--seconds 12]

slowdown
    In half of the cells every call is made 10% longer in launches B, in none in launches A; both
    kinds take turns. The report's test must call all of the former and none of the latter, where
    cells are resolvable. Calls of all cells and launches go through the same wrapper. A launch in
    which both kinds are candidates side by side shows first how much longer calls really get. Given
    less time than it takes it keeps the launches made so far, and goes on when it is run again.
twice
    The same command is run twice: in how many cells the two intervals of a candidate overlap. And
    an empty call against a repetition at 64 KiB.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xupc.bench import stats
from xupc.bench.collect import Collector, lines_of
from xupc.bench.results import AGAIN, FLOOR, OURS, PEER, Job, Result
from xupc.bench.settings import Settings
from xupc.cli.launcher import job_command, job_environment, run_job, thread_command
from xupc.cli.mpi import Mpi, find_mpi
from xupc.report.regression import REGRESSION, UNRESOLVED, Change, compare

THREADS = 2
HURT = "all_broadcast", "all_gather_all", "all_exchange", "all_reduce_mpi_all", "allav_gather_all"
SPARED = "all_gather", "all_scatter", "all_permute", "all_reduce_mpi", "allav_exchange"
SIZES = 1 << 16, 1 << 20
SLOWER = 1.1
HERE = Path(__file__).resolve()


def slowed(function: Any, factor: float, around: int = 0) -> Any:
    """Return a function that takes `factor` times as long, with the same overhead for any factor.

    `around` ns of what is timed are neither between the first look at the clock nor the last one:
    they count as a part of the call.
    """
    clock = time.perf_counter_ns

    def call(*arguments: Any) -> Any:
        begin = clock()
        found = function(*arguments)
        more = int((clock() - begin + around) * (factor - 1.0))
        until = clock() + more
        while clock() < until:
            pass
        return found

    return call


def around_of(timed: Any) -> int:
    """Return the ns that a call through the wrapper takes outside of its own two clock readings."""
    clock = time.perf_counter_ns

    def nothing(*_: Any) -> None:
        pass

    wrapped, whole, inner = slowed(nothing, 1.0), [], []
    for _ in range(2000):
        begin, end = timed(wrapped, ())
        whole.append(end - begin)
        begin = clock()
        nothing()
        inner.append(clock() - begin)
    return max(0, int(statistics.median(whole) - statistics.median(inner)))


def work(arguments: list[str]) -> None:
    """Run one thread of a launch in which some calls are slower."""
    from dataclasses import replace

    from xupc.backends.native.native_core import core
    from xupc.bench import candidates, worker

    worker.machine.measure = lambda *_: {}  # bounds are not needed here, and take a second
    out, settings, factor = arguments
    side_by_side = factor == "both"
    plain = candidates.our_call
    around = around_of(core.timed)

    def our_call(collective: str, *rest: Any) -> Any:
        call = plain(collective, *rest)
        by = float(factor) if not side_by_side and collective in HURT else 1.0
        return replace(call, function=slowed(call.function, by, around))

    def again(self: Any, case: Any, name: str, kind: str, flags: int) -> Any:
        found = ours(self, case, name, kind, flags)
        if kind == AGAIN and case.collective in HURT:
            made = [plain(case.collective, w, self.memory, flags) for w in self.works(case)]
            found.calls = [replace(c, function=slowed(c.function, SLOWER, around)) for c in made]
        return found

    candidates.our_call = our_call
    ours = candidates.Candidates._ours
    if side_by_side:
        candidates.Candidates._ours = again  # type: ignore[method-assign]
    worker.main([out, settings])


def launch(mpi: Mpi, collector: Collector, factor: object, seconds: float, seed: int) -> None:
    """Add one launch of either kind to a collector."""
    settings = Settings(collectives=(*HURT, *SPARED), sizes=SIZES, algorithms=("auto",), peer=True,
                        seconds=seconds, seed=seed)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "lines"
        environment = job_environment(os.environ, mpi.family, tag=uuid.uuid4().hex)
        program = [sys.executable, str(HERE), "--work", str(out), settings.to_json(), str(factor)]
        command = job_command(mpi, THREADS, thread_command(program), environment=environment)
        if run_job(command, environment, time_limit=120, forward=True).status:
            raise SystemExit("a launch failed")
        for line, _ in lines_of(out):
            collector.take(line)


def result_of(collector: Collector) -> Result:
    """Return the launches as a `Result`, the content of a file of `xupc bench`."""
    assert collector.job is not None
    return Result(sys.argv, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                  jobs=[collector.job])


def overlaps(one: Job, other: Job) -> tuple[int, int, list[str]]:
    """Return how many intervals of candidates overlap, of how many, and those that do not."""
    agree, every, apart = 0, 0, []
    for cell, again in zip(one.cells, other.cells, strict=True):
        for a, b in zip(cell.candidates, again.candidates, strict=True):
            if a.kind not in (OURS, PEER):
                continue
            x, y = stats.median(a.medians), stats.median(b.medians)
            every += 1
            if x.low <= y.high and y.low <= x.high:
                agree += 1
            else:
                apart.append(f"{cell.title} {cell.nbytes} {a.name}: {x.low / 1e3:.2f}-"
                             f"{x.high / 1e3:.2f} and {y.low / 1e3:.2f}-{y.high / 1e3:.2f} us")
    return agree, every, apart


def repeatability(launches: int, seconds: float, folder: Path) -> str:
    """Run the same command twice; return as Markdown how many intervals overlap."""
    found = []
    for name in ("once", "again"):
        out = folder / f"{name}.json.gz"
        subprocess.run([sys.executable, "-m", "xupc", "bench", *HURT, *SPARED, "-n", str(THREADS),
                        "-m", "8,1K,64K,1M", "--flags", "auto,PULL,PUSH", "--peer",
                        "--launches", str(launches), "--budget", f"{seconds:.0f}s",
                        "--force", "--json", str(out)], stdout=subprocess.DEVNULL, check=True)
        found.append(Result.load(out).jobs[0])
    agree, every, apart = overlaps(*found)
    lines = [f"- the same command twice ({launches} launches of {seconds / launches:.0f} s each): "
             f"{agree} of {every} intervals overlap, {agree / every:.1%} (at least 90%)"]
    lines += [f"  - apart: {text}" for text in apart]
    lines += [cost(found[0])]
    return "\n".join(lines)


def cost(job: Job) -> str:
    """Return the share of an empty call in calls at 64 KiB, as Markdown."""
    shares = []
    for cell in job.cells:
        floor = next(cell.of_kind(FLOOR), None)
        ours = cell.candidate("xupc")
        if cell.nbytes == 1 << 16 and floor is not None and ours is not None:
            share = stats.median(floor.medians).value / stats.median(ours.medians).value
            shares.append((share, cell.title))
    worst, name = max(shares)
    return (f"- an empty call takes {stats.geometric_mean(s for s, _ in shares):.1%} of a call at "
            f"64 KiB (geometric mean of {len(shares)}), at most {worst:.1%} ({name}) (under 5%)")


def slowdown(args: argparse.Namespace) -> str:
    """Launch A B A B for as long as there is time, and compare with the launches so far."""
    until = time.monotonic() + 60 * args.minutes
    files = [args.folder / name for name in ("as-it-is.json.gz", "slower.json.gz")]
    before, after = (Collector(Result.load(f).jobs[0] if f.exists() else None) for f in files)
    number = len(before.job.launches) if before.job is not None else 0
    mpi = find_mpi()
    said = [exactness(mpi, args.seconds)]
    while number < args.launches and time.monotonic() < until:
        launch(mpi, before, 1.0, args.seconds, 2 * number)
        launch(mpi, after, SLOWER, args.seconds, 2 * number + 1)
        number += 1
    old, new = result_of(before), result_of(after)
    for result, file in zip((old, new), files, strict=True):
        result.save(file)
    (found,) = compare(old, new)
    said.append(f"- {number} launches of each kind in turn, {args.seconds:g} s each, "
                f"{sum(found.disturbed)} of them left out (other processes); compared by "
                f"{'ranks' if found.ranked else 'variances'}"
                f"{', at equal times of ' + found.relative if found.relative else ''}")
    for group, names in ((f"made {SLOWER - 1:.0%} slower", HURT), ("left as they are", SPARED)):
        said += verdicts(group, [c for c in found.changes if c.cell.collective in names])
    return "\n".join(said)


def verdicts(group: str, cells: list[Change]) -> Iterator[str]:
    """Yield lines of Markdown: the verdicts on a group of cells, counted and as a table."""
    called = sum(c.verdict == REGRESSION for c in cells)
    hidden = sum(c.verdict == UNRESOLVED for c in cells)
    yield (f"- {len(cells)} cells {group}: {called} called a regression, {hidden} not resolvable, "
           f"{len(cells) - called - hidden} neither")
    yield ""
    yield "| call | size | ratio | A/A spread | verdict |"
    yield "|---|---|---|---|---|"
    for c in cells:
        r = c.ratio
        ratio = f"{r.value:.3f} ({r.low:.3f}-{r.high:.3f})" if r is not None else ""
        size = f"{c.cell.nbytes >> 10} KiB"
        yield f"| {c.cell.title} | {size} | {ratio} | {c.spread or 0:.1%} | {c.verdict} |"
    yield ""


def exactness(mpi: Mpi, seconds: float) -> str:
    """Return how much longer calls get, as candidates of the same launch, as Markdown."""
    collector = Collector()
    launch(mpi, collector, "both", 5 * seconds, 1)
    assert collector.job is not None
    found = [stats.median(again.medians).value / stats.median(once.medians).value
             for cell in collector.job.cells if cell.collective in HURT and cell.pair
             for once, again in [cell.pair]]  # fmt: skip
    return (f"- side by side in one launch calls made {SLOWER - 1:.0%} slower take "
            f"{stats.geometric_mean(found):.3f} times as long, {min(found):.3f} to "
            f"{max(found):.3f}")


def main() -> int:
    """Run one of them and print."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
        return 0
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("what", choices=["slowdown", "twice"])
    top.add_argument("--launches", type=int, help="of a kind")
    top.add_argument("--seconds", type=float, help="of a launch")
    top.add_argument("--minutes", type=float, default=60.0, help="for launches that take turns")
    top.add_argument("--folder", type=Path, default=HERE.parent / "results" / "trust")
    args = top.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.what == "slowdown":
        args.launches, args.seconds = args.launches or 150, args.seconds or 0.8
        print(slowdown(args))
        return 0
    launches, seconds = args.launches or 6, args.seconds or 12.0
    print(repeatability(launches, launches * seconds, args.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
