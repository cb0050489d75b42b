"""Check the model of small calls on the cores of this machine: modelled beside measured, in turn.

    python benchmarks/small_calls_modelled.py [--launches 9]

The calls are a barrier and broadcasts of 8 bytes, of one thread, of two threads bound to a core
each, and of two threads on one core. Each launch of `xupc bench` follows one of `xupc calibrate`,
with the same threads on the same cores. The modelled time takes the time of a call, a step and a
switch from the calibration, and the way of a cache line from the launch of `xupc bench` itself:
on a virtual machine it differs between launches by more than 3 times. Printed are medians over the
launches and the quartiles of the ratio, modelled by measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from xupc.bench.results import Result
from xupc.predict.compared import Compared, beside, calls_of
from xupc.predict.machine_file import ASSUMED, Machine, find
from xupc.records import replace

XUPC = sys.executable, "-m", "xupc"
BENCH = (
    "bench", "barrier", "all_broadcast", "allav_broadcast", "-m", "8:8", "--flags", "auto",
    "--launches", "1", "--budget", "8s",
)  # fmt: skip
Place = tuple[int, bool, bool]
"""The number of threads, whether each is bound to a core, and whether all have one core."""
PLACES: dict[str, Place] = {
    "1 thread": (1, False, False),
    "2 threads, a core each": (2, True, False),
    "2 threads, 1 core": (2, False, True),
}


@contextmanager
def only_on(cores: Collection[int]) -> Iterator[None]:
    """Let this process, and those that it starts, run on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def with_line_of_job(machine: Machine) -> Machine:
    """Return a machine whose way of a cache line is that of each job."""
    parameters = dict(machine.parameters)
    parameters["line_latency"] = replace(parameters["line_latency"], source=ASSUMED)
    return replace(machine, parameters=parameters)


def launch(threads: int, bound: bool) -> list[Compared]:
    """Calibrate, measure, and return the calls with their modelled times."""
    bind = ["--bind", "spread"] if bound else []
    options = ["--mpiexec-args", "-bind-to core"] if bound else []
    with tempfile.TemporaryDirectory() as folder:
        machine, result = f"{folder}/here.toml", f"{folder}/result.json.gz"
        for command in (
            ["calibrate", "-n", str(threads), *bind, "--launches", "1", "-o", machine],
            [*BENCH, "-n", str(threads), *options, "--json", result],
        ):
            subprocess.run([*XUPC, *command], check=True, capture_output=True, timeout=60)
        calls, _ = calls_of(Result.load(Path(result)))
        here = with_line_of_job(find(machine))
        return [beside(call, here) for call in calls]


def main() -> None:
    """Launch all in turn and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=9)
    launches = parser.parse_args().launches
    cores = os.sched_getaffinity(0)
    found: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for number in range(launches):
        for place, (threads, bound, one_core) in list(PLACES.items())[:: 1 if number % 2 else -1]:
            with only_on([min(cores)] if one_core else cores):
                for each in launch(threads, bound):
                    found[place, each.call.cell.collective].append(each)
    print("| threads | call | measured, us | modelled, us | ratio | quartiles |")
    print("|---|---|---:|---:|---:|---|")
    for (place, call), all_launches in found.items():
        ratios = [each.predicted / each.call.measured for each in all_launches]
        low, middle, high = statistics.quantiles(ratios, n=4)
        times = (
            statistics.median(figure) / 1e3
            for figure in ([each.call.measured for each in all_launches],
                           [each.predicted for each in all_launches])
        )  # fmt: skip
        measured, modelled = (f"{time:.2f}" for time in times)
        ratio = f"{middle:.2f} | {low:.2f} to {high:.2f}"
        print(f"| {place} | {call} | {measured} | {modelled} | {ratio} |")


if __name__ == "__main__":
    main()
