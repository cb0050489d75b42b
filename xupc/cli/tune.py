"""`xupc tune`: measures every algorithm and writes the selection table that follows.

What is decided is `xupc.bench.tuner`'s business, how the file looks `xupc.bench.tuning_file`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from xupc.bench.results import Job, Result
from xupc.bench.tuner import Tuned, place_of, tuned
from xupc.bench.tuning_file import TuningFile, label_of
from xupc.selection_file import user_path

__all__ = ["has_wrong_results", "hint", "joined", "measure", "report", "tune"]


def measure(
    collectives: Sequence[str],
    *,
    threads: int,
    nodes: str | None,
    sizes: str,
    budget: str,
    launches: int,
) -> Result:
    """Measure the library's choice, PULL, PUSH and MULTICORE side by side, each call twice.

    All as on the command line: `sizes` is ``MIN:MAX``, `budget` a time like ``10m``.
    """
    settings = import_module("xupc.bench.settings")
    driver = import_module("xupc.bench.driver")
    low, _, high = sizes.partition(":")
    wanted = settings.Settings(
        collectives=settings.named(collectives or ["all_*", "allav_*"]),
        sizes=settings.sizes_between(settings.size_of(low), settings.size_of(high or low)),
        algorithms=settings.ALGORITHMS,
        again=True,
    )
    plan = driver.Plan(wanted, threads, nodes, launches=launches, budget=budget)
    result: Result = driver.measure(plan)
    return result


def joined(paths: Sequence[Path]) -> Result:
    """Results of `xupc bench` as one; ValueError names a file that is none."""
    first, *rest = [Result.load(path) for path in paths]
    for other in rest:
        first.jobs += other.jobs
        first.notes += other.notes
        first.complete &= other.complete
    return first


def tune(result: Result, file: TuningFile) -> list[Tuned]:
    """Put the rules that follow from a result into a table; it is not saved yet.

    Raises
    ------
    ValueError
        There is nothing in the result to choose by.
    """
    found = tuned(result, file.rest, file.rules)
    if not any(each.changes for each in found):
        raise ValueError("nothing was measured of any collective that has algorithms")
    for each in found:
        jobs = [job for job in result.jobs if place_of(job) == each.place]
        file.put(each.place, each.rules, [*_remarks(result, jobs), summary(each)])
    return found


def _remarks(result: Result, jobs: Sequence[Job]) -> Iterator[str]:
    """When, where and how the rules were made."""
    for job in jobs:
        hosts = ", ".join(dict.fromkeys(job.hosts)) or "a machine without a name"
        what = ", ".join(str(job.about[k]) for k in ("mpi", "processor") if job.about.get(k))
        yield f"{result.created}, {hosts}: {what or 'MPI not known'}; {len(job.launches)} launches"
    yield " ".join(" ".join(result.command).split())


def report(found: Sequence[Tuned], result: Result) -> Iterator[str]:
    """What was found, line by line."""
    for each in found:
        yield label_of(each.place)
        for change in each.changed:
            yield (
                f"  {change.collective:24} {change.nbytes:>10}  "
                f"{change.before} -> {change.after}".ljust(64)
                + f"  {change.gain}"
            )
        for change in each.changes:
            if change.why_not:
                yield f"  {change.collective:24} {change.nbytes:>10}  as before: {change.why_not}"
        yield f"  {summary(each)}"
    if not result.complete:
        yield "what was measured is not complete"
    if has_wrong_results(result):
        yield "WRONG RESULTS of some algorithms: these are not used; see xupc report"


def summary(found: Tuned) -> str:
    """How much is gained at a place."""
    changed, count = len(found.changed), len(found.changes)
    if not changed:
        return f"{count} sizes measured: none is faster with another algorithm beyond doubt"
    return (
        f"{changed} of {count} sizes changed: {found.gain_there:.2f} times as fast there, "
        f"{found.gain_over_all:.2f} over all"
    )


def has_wrong_results(result: Result) -> bool:
    """Whether something that was measured did not do what it should."""
    return any(
        any(candidate.wrong)
        for job in result.jobs
        for cell in job.cells
        for candidate in cell.candidates
    )


def hint(path: Path) -> str:
    """What is to be done for the library to find a table; empty if it does."""
    usual = user_path()
    if usual is not None and usual.resolve() == path.resolve():
        return ""
    return f"xupc uses it with XUPC_TUNING={path.resolve()}"
