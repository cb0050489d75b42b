"""xupc against mpi4py's collectives on one machine, at the best of four configurations.

    python benchmarks/peers.py --mpich MPICH/bin/python --openmpi OPENMPI/bin/python -n 2

Runs `xupc bench --peer` in each configuration and makes a table of the results, which stay beside
it: results/NAME/CONFIGURATION.json.gz holds a summary of every launch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import tables

from xupc.bench.results import Result

RESULTS = Path(__file__).resolve().parent / "results"
SIZES = "8,1K,64K,1M,8M"


@dataclass(frozen=True)
class Configuration:
    """Hold a peer: an MPI and how it is started."""

    name: str
    mpi: str
    mpiexec_args: str = ""
    environment: dict[str, str] = field(default_factory=dict)


CONFIGURATIONS = (
    Configuration("mpich", "mpich"),
    Configuration("mpich-serialized", "mpich", "-bind-to core",
                  {"MPI4PY_RC_THREAD_LEVEL": "serialized"}),
    Configuration("openmpi", "openmpi"),
    Configuration("openmpi-sm90", "openmpi", "--mca coll_sm_priority 90"),
)


def measure(args: argparse.Namespace, configuration: Configuration, python: str, out: Path) -> bool:
    """Run all launches of a configuration; return whether there is a result."""
    words = [python, "-m", "xupc", "bench", *tables.SUITES[args.suite], "-n", str(args.threads),
             "-m", args.sizes, "--flags", "auto", "--peer", "--launches", str(args.launches),
             "--budget", f"{args.minutes * 60:.0f}s", "--force", "--json", out.name, "--compact"]
    words += ["--plan"] if args.suite != "values" else []
    words += ["--loop", "--sync", "allsync,mysync"] if args.loop else []
    if configuration.mpiexec_args:
        words += ["--mpiexec-args", configuration.mpiexec_args]
    environment = {**os.environ, **configuration.environment}
    done = subprocess.run(words, env=environment, cwd=out.parent, check=False,
                          stdout=subprocess.DEVNULL)
    print(f"{configuration.name}: exit status {done.returncode}", file=sys.stderr)
    return out.exists()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--mpich", type=os.path.abspath, metavar="PYTHON",
                     help="interpreter of an environment with MPICH")
    top.add_argument("--openmpi", type=os.path.abspath, metavar="PYTHON",
                     help="and of one with Open MPI")
    top.add_argument("-n", "--threads", type=int, default=2)
    top.add_argument("--suite", choices=tables.SUITES, default="moves", help="which collectives")
    top.add_argument("--sizes", default=SIZES, help="bytes per block")
    top.add_argument("--launches", type=int, default=5, help="of each configuration")
    top.add_argument("--minutes", type=float, default=2.5, help="for each configuration")
    top.add_argument("--loop", action="store_true", help="calls back to back")
    top.add_argument("--merge", action="store_true", help="only make the table again")
    top.add_argument("--results", type=Path, default=RESULTS)
    return top


def main() -> int:
    """Measure, write the report to a file, and print it; return 1 if there is nothing."""
    args = parser().parse_args()
    name = f"one-node-{args.threads}-threads" + (f"-{args.suite}" if args.suite != "moves" else "")
    name += "-loop" if args.loop else ""
    folder = args.results / name
    folder.mkdir(parents=True, exist_ok=True)
    pythons = {"mpich": args.mpich, "openmpi": args.openmpi}
    results = {}
    for configuration in CONFIGURATIONS:
        out, python = folder / f"{configuration.name}.json.gz", pythons[configuration.mpi]
        if args.merge or python is None:  # what was measured before
            there = out.exists()
        else:
            out.unlink(missing_ok=True)
            there = measure(args, configuration, python, out)
        if there:
            results[configuration.name] = Result.load(out)
    if not results:
        return 1
    kind = "calls back to back" if args.loop else "single calls, a barrier before each"
    text = tables.document(f"One node, {args.threads} threads, {args.suite}: {kind}", results)
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
