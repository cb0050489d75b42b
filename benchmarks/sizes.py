"""Print the size of the library's code, and the functions that a broadcast's `nbytes` passes.

``python benchmarks/sizes.py CHECKOUT ...`` prints a table with a column for each checkout. It
counts Python of the package `xupc` alone.

``mpiexec -n 2 python benchmarks/sizes.py --hops``, with a checkout on PYTHONPATH, counts the
functions of the library that a call of `all_broadcast` enters on thread 0: all of them, those that
get the number of bytes as an argument, and those that get it inside one (an element, an attribute).
It does so for a first call, a repeated one and one at another address.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

NBYTES = 12_344
RUN = 6
"""Lines that must be alike for a repetition."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension,
    ast.match_case, ast.Assert,
)  # fmt: skip


def complexity(function: Function) -> int:
    """Return the cyclomatic complexity: one more than the decisions, nested functions left out."""
    found, left = 1, list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        found += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            found += len(node.ifs)
        left += ast.iter_child_nodes(node)
    return found


def repeated(texts: list[list[str]]) -> int:
    """Return how many lines are in a run of `RUN` lines that stands somewhere else, too."""
    seen: Counter[tuple[str, ...]] = Counter()
    for lines in texts:
        seen.update(tuple(lines[i : i + RUN]) for i in range(len(lines) - RUN + 1))
    count = 0
    for lines in texts:
        marked: set[int] = set()
        for i in range(len(lines) - RUN + 1):
            if seen[tuple(lines[i : i + RUN])] > 1:
                marked |= set(range(i, i + RUN))
        count += len(marked)
    return count


def _statements(source: str, tree: ast.Module) -> list[str]:
    """Return the lines of code: no blank lines, comments, imports, or closing brackets alone."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), 1)
    bare = (line.strip() for n, line in lines if n not in skipped)
    return [line for line in bare if line.strip("()[]{},\"' ") and not line.startswith("#")]


def rows(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the names and the values of a checkout."""
    paths = sorted(checkout.glob("xupc/**/*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(text) for text in texts]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)]
    lengths = sorted((f.end_lineno or 0) - f.lineno + 1 for f in functions)
    degrees = sorted(complexity(f) for f in functions)
    modules = sorted(len(text.splitlines()) for text in texts)
    lines = sum(modules)
    again = repeated([_statements(x, tree) for x, tree in zip(texts, trees, strict=True)])
    yield "modules", f"{len(paths)}"
    yield "modules at the top, beside `__init__`", f"{len([*checkout.glob('xupc/*.py')]) - 1}"
    yield "lines", f"{lines:,}"
    yield "lines of a module: median, most", f"{statistics.median(modules):.0f}, {modules[-1]}"
    yield "functions", f"{len(functions):,}"
    p90 = lengths[len(lengths) * 9 // 10]
    yield (
        "lines of a function: median, p90, most",
        (f"{statistics.median(lengths):.0f}, {p90}, {lengths[-1]}"),
    )
    p90 = degrees[len(degrees) * 9 // 10]
    yield (
        "cyclomatic complexity: mean, p90, most",
        (f"{statistics.mean(degrees):.2f}, {p90}, {degrees[-1]}"),
    )
    yield "functions with a complexity over 10", f"{sum(d > 10 for d in degrees)}"
    yield f"lines in repeated runs of {RUN}", f"{again} ({again / lines:.1%})"


def table(checkouts: list[Path]) -> None:
    """Print a column for each checkout."""
    each = [list(rows(path)) for path in checkouts]
    print("| |" + "".join(f" {path.name} |" for path in checkouts))
    print("|---|" + "---:|" * len(checkouts))
    for cells in zip(*each, strict=True):
        print(f"| {cells[0][0]} |" + "".join(f" {value} |" for _, value in cells))


def _carries(x: Any, depth: int) -> bool:
    """Return whether a value is the number, or has it inside."""
    if type(x) is int:
        return x == NBYTES
    if not depth:
        return False
    if isinstance(x, list | tuple):
        return any(_carries(each, 0) for each in x)
    if isinstance(x, dict):
        return any(_carries(each, 0) for each in x.values())
    if not type(x).__module__.startswith("xupc"):
        return False
    names = [name for kind in type(x).__mro__ for name in getattr(kind, "__slots__", ())]
    values = [getattr(x, name, None) for name in names if not name.startswith("__")]
    return any(_carries(each, 0) for each in (*values, *getattr(x, "__dict__", {}).values()))


def entered(call: Callable[[], object]) -> tuple[set[str], set[str], set[str]]:
    """Return the functions of the library that a call enters: all, with the number, with it inside.

    A function that is entered several times counts once.
    """
    each: tuple[set[str], set[str], set[str]] = set(), set(), set()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or "/xupc/" not in frame.f_code.co_filename:
            return
        code = frame.f_code
        name = f"{Path(code.co_filename).stem}.{code.co_qualname}"
        each[0].add(name)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
        values = [frame.f_locals[name] for name in names if name in frame.f_locals]
        for depth in (0, 1):
            if any(_carries(x, depth) for x in values):
                each[1 + depth].add(name)
                break

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return each


def hops() -> None:
    """Count in this job, and print what thread 0 found."""
    import xupc

    xupc.init()
    dst, src = (xupc.all_alloc(200_000 * xupc.THREADS, "u1", 200_000) for _ in range(2))
    other = dst.ptr(4096)  # of thread 0
    xupc.all_broadcast(dst, src, 64)  # loads what calls need
    calls = {
        "first call": lambda: xupc.all_broadcast(dst, src, NBYTES),
        "repeated call": lambda: xupc.all_broadcast(dst, src, NBYTES),
        "call at another address": lambda: xupc.all_broadcast(other, src, NBYTES),
    }
    for name, call in calls.items():
        every, direct, inside = entered(call)
        if not xupc.MYTHREAD:
            print(f"{name}: {len(every)} functions, {len(direct)} get nbytes, {len(inside)} more")
            print("  " + " ".join(sorted(direct)))
    xupc.finalize()


if __name__ == "__main__":
    if sys.argv[1:] == ["--hops"]:
        hops()
    else:
        table([Path(name) for name in sys.argv[1:]])
