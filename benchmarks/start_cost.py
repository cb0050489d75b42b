"""CPU time that starting costs: `import xupc`, `xupc --help`, `init` and `finalize` of two threads.

    python benchmarks/start_cost.py [--before FOLDER] [--rounds 20] [--only WORD] [--json FILE]
    python benchmarks/start_cost.py --instructions [--before FOLDER] [--only WORD]

Run it with the interpreter to be measured; its MPI's mpiexec is taken. Each round runs every
command once with the sources of this checkout and, with --before, once with those in FOLDER (a
checkout whose core is built in place), the sides in turn. A time is user and system time of the
command and all its processes, from start to end; the table shows medians over the rounds. FOLDER
and this checkout are put on PYTHONPATH, so an interpreter without xupc installed measures best: an
editable installation costs every start of Python some milliseconds of its own.

On a busy machine times mislead. With --instructions each command runs once under valgrind, jobs as
one thread, and the table shows the instructions that it executes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import in_turn

HELP = "import sys; sys.argv = ['xupc', '--help']; from xupc.cli import main; main()"
COMMANDS = {
    "python": "pass",
    "numpy": "import numpy",
    "import": "import xupc",
    "both": "import numpy, xupc",
    "used": "import xupc; xupc.all_broadcast",
    "help": HELP,
    "mpi": "import numpy, mpi4py.MPI",
    "init": "import xupc; xupc.init(); xupc.finalize()",
}
JOBS = "mpi", "init"
PLAIN = "python", "numpy", "mpi"


def mpiexec() -> str:
    """Return the mpiexec that belongs to mpi4py's MPI."""
    from xupc.cli.mpi import find_mpi

    return str(find_mpi().mpiexec)


def spent(command: Sequence[str], environment: dict[str, str]) -> float:
    """Return the CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, env=environment, cwd="/", check=True, stdout=subprocess.DEVNULL, timeout=120
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measured(
    folders: dict[str, Path], rounds: int, only: str, cache: str
) -> dict[str, dict[str, list[float]]]:
    """Return the CPU seconds of each command, round by round, for each folder of sources."""
    found: dict[str, dict[str, list[float]]] = {
        side: {name: [] for name in COMMANDS if not only or name in ("python", "numpy", only)}
        for side in folders
    }
    launcher = [mpiexec(), "-n", "2"]
    common = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
    common.pop("PYTHONDONTWRITEBYTECODE", None)
    for number, side in in_turn.turns(folders, rounds, first=-1):
        for name in found[side]:
            command = [*launcher * (name in JOBS), sys.executable, "-c", COMMANDS[name]]
            seconds = spent(command, {**common, "PYTHONPATH": str(folders[side])})
            if number >= 0:  # the first one fills caches
                found[side][name].append(seconds)
    return found


def counted(folders: dict[str, Path], only: str, cache: str) -> dict[str, dict[str, int]]:
    """Return the instructions of each command, by side: the same in each run, to a thousandth."""
    found: dict[str, dict[str, int]] = {side: {} for side in folders}
    count = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    for side, folder in folders.items():
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONPYCACHEPREFIX": cache,
                       "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for name, code in COMMANDS.items():
            if only and name not in ("python", "numpy", only):
                continue
            for prefix in ([], count):  # the first run fills caches
                done = subprocess.run(
                    [*prefix, sys.executable, "-c", code], env=environment, cwd="/",
                    capture_output=True, text=True, timeout=300, check=True,
                )  # fmt: skip
            found[side][name] = int(done.stderr.rsplit("Collected :", 1)[1].split()[0])
    return found


def count_table(found: dict[str, dict[str, int]]) -> str:
    """Return millions of instructions as Markdown."""
    lines = [f"| million instructions | {' | '.join(found)} |", "|---|" + "---:|" * len(found)]
    for name in next(iter(found.values())):
        row = " | ".join(f"{side[name] / 1e6:.0f}" for side in found.values())
        lines.append(f"| `{COMMANDS[name]}` | {row} |")
    return "\n".join(lines) + "\n"


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Return medians in milliseconds, and the ratios that matter, as Markdown."""
    lines = [f"| CPU, ms | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    middles = {
        side: {name: statistics.median(times) * 1e3 for name, times in of.items()}
        for side, of in found.items()
    }
    for name in next(iter(middles.values())):
        row = " | ".join(f"{middle[name]:.1f}" for middle in middles.values())
        lines.append(f"| `{COMMANDS[name]}` | {row} |")
    lines += ["", f"| ratio | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    for title, name, less, of, base in (
        ("import numpy and xupc beyond numpy / numpy", "both", "numpy", "numpy", "python"),
        ("import xupc and a collective's name beyond numpy / numpy", "used", "numpy", "numpy",
         "python"),
        ("xupc --help / import numpy", "help", "python", "numpy", "python"),
        ("xupc --help / import numpy, whole processes", "help", "", "numpy", ""),
    ):
        if name in next(iter(middles.values())):
            row = " | ".join(
                f"{(m[name] - m.get(less, 0.0)) / (m[of] - m.get(base, 0.0)):.2f}"
                for m in middles.values()
            )
            lines.append(f"| {title} | {row} |")
    if "init" in next(iter(middles.values())) and len(middles) == 2:
        before, now = middles.values()
        lines.append(f"| init and finalize, whole job, now / before | | "
                     f"{now['init'] / before['init']:.2f} |")
        if "mpi" in now:
            lines.append(f"| the same beyond numpy and mpi4py | | "
                         f"{(now['init'] - now['mpi']) / (before['init'] - before['mpi']):.2f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure and print."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--before", type=Path, metavar="FOLDER", help="other sources to compare with")
    top.add_argument("--rounds", type=int, default=20, help="how often each command runs")
    top.add_argument("--only", default="", choices=["", *COMMANDS], help="one command")
    top.add_argument("--json", type=Path, metavar="FILE", help="keep the medians here")
    top.add_argument("--instructions", action="store_true", help="count instructions, by valgrind")
    args = top.parse_args()
    with tempfile.TemporaryDirectory() as cache:  # all modules compiled, whatever the settings
        if args.instructions:
            print(count_table(counted(in_turn.sides(args.before), args.only, cache)), end="")
            return 0
        found = measured(in_turn.sides(args.before), args.rounds, args.only, cache)
    print(table(found), end="")
    if args.json:
        middles = {side: {name: statistics.quantiles(times, n=4) for name, times in of.items()}
                   for side, of in found.items()}
        args.json.write_text(json.dumps(middles, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
