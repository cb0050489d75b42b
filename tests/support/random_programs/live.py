"""Real threads that run many random programs after each other.

``mpiexec -n N python live.py FILE``: FILE holds JSON, ``[[seed, text], ...]``. Programs whose text
is wrong, or raises, end the job with status 1: thread 0, or the thread that raises, names the seed.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.random_programs import kit

import xupc


def main(file: str) -> None:
    """Run them all."""
    programs = json.loads(Path(file).read_text())
    with xupc.init() as world:
        me = int(xupc.MYTHREAD)
        names = {name: getattr(kit, name) for name in kit.__all__}
        for number, (seed, text) in enumerate(programs):
            space = {**names, "xupc": xupc, "world": world, "me": me}
            try:
                exec(compile(text, f"<program {seed}>", "exec"), space)
            except BaseException as problem:
                _tell(number, seed, me, text, problem)
                raise
            kit.forget()
        xupc.barrier()
        if me == 0:
            print(f"done: {len(programs)}", flush=True)


def _tell(number: int, seed: int, me: int, text: str, problem: BaseException) -> None:
    """Print the error, its line and the seed."""
    last = traceback.extract_tb(problem.__traceback__)[-1:]
    lines = [f.lineno for f in traceback.extract_tb(problem.__traceback__)
             if f.filename.startswith("<program")]  # fmt: skip
    line = text.splitlines()[(lines[0] or 1) - 1] if lines else str(last)
    words = f"{type(problem).__name__}: {str(problem)[:1000]}"
    print(
        f"failed: seed {seed} (program {number}) on thread {me}, line {lines[:1]}:\n"
        f"    {line[:500]}\n    {words}", flush=True,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
