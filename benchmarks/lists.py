"""What lists of uniform blocks cost: the `_v` and `_x` forms against the plain collectives.

    python benchmarks/lists.py PYTHON [-n 2]

Runs `xupc bench` on the three forms of each relocalization, full calls and replayed plans, in the
same launches, and divides the medians of each launch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import tables

from xupc.bench import stats
from xupc.bench.results import Cell, Result
from xupc.report import formatting

RESULTS = Path(__file__).resolve().parent / "results"
PLAIN = tuple(f"all_{name}" for name in (
    "broadcast", "scatter", "gather", "gather_all", "exchange", "permute"))
FORMS = "_v", "_x"
SIZES = "8,128K,1M,8M"
SMALL, LARGE = 1.5, 1.1  # at 8 B and above 64 KiB, once planned


def measure(args: argparse.Namespace, out: Path) -> Result:
    """Measure all forms with xupc bench and return the result."""
    names = [name + form for name in PLAIN for form in ("", *FORMS)]
    command = [args.python, "-m", "xupc", "bench", *names, "-n", str(args.threads), "-m", SIZES,
               "--flags", "auto", "--plan", "--launches", str(args.launches),
               "--budget", f"{args.seconds:.0f}s", "--force", "--json", str(out), "--compact"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return Result.load(out)


def against_plain(plain: Cell, other: Cell, candidate: str) -> stats.Ratio | None:
    """Return the time of the form with lists, divided by that of the plain one."""
    one, base = other.candidate(candidate), plain.candidate(candidate)
    return stats.ratio(one.medians, base.medians) if one is not None and base is not None else None


def table(result: Result) -> str:
    """Return a row per cell, and the cells that miss what they are to reach, as Markdown."""
    cells = {(cell.collective, cell.nbytes): cell for cell in result.jobs[0].cells}
    rows, missed = [], []
    for (name, nbytes), plain in cells.items():
        if name not in PLAIN:
            continue
        row = [f"{name} {tables.size(nbytes)}"]
        for form in FORMS:
            for candidate in ("xupc", "plan"):
                other = cells.get((name + form, nbytes))
                found = against_plain(plain, other, candidate) if other is not None else None
                row.append("" if found is None else str(found))
                limit = SMALL if nbytes <= 8 else LARGE
                if candidate == "plan" and found is not None and found.low > limit:
                    missed.append(f"{name}{form} {tables.size(nbytes)} {found}")
        rows.append(row)
    head = ["cell", "_v / plain", "_v / plain, plans", "_x / plain", "_x / plain, plans"]
    verdict = "; ".join(missed) or "none"
    return (f"- plans beyond {SMALL} at 8 B or {LARGE} above (95%): {verdict}\n\n"
            f"{formatting.table(head, rows)}")


def main() -> int:
    """Measure, write the report to a file, and print it."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("python")
    top.add_argument("-n", "--threads", type=int, default=2)
    top.add_argument("--launches", type=int, default=5)
    top.add_argument("--seconds", type=float, default=150.0)
    top.add_argument("--results", type=Path, default=RESULTS)
    args = top.parse_args()
    name = f"one-node-{args.threads}-threads-lists"
    (args.results / name).mkdir(parents=True, exist_ok=True)
    result = measure(args, args.results / name / "mpich.json.gz")
    title = f"One node, {args.threads} threads: blocks of one size by lists"
    text = "\n".join([f"# {title}\n", f"Made by `{tables.command_line()}`.\n", table(result),
                      "Where the figures come from:\n",
                      tables.provenance({"mpich": result})])
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
