"""Makes a failing program short: operations are left out, sizes lowered, as long as it fails.

A candidate has to mean something (`oracle.run`): nothing may race or be used that is not there.

    python -m support.random_programs.shrink live SEED LABELS [PYTHON]     # LABELS such as 0011
    python -m support.random_programs.shrink simulated SEED LABELS

prints the short program's literal, which goes into a file in kept/.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from support.random_programs import oracle
from support.random_programs.program import (
    ASYNC,
    Alloc,
    Call,
    Invalid,
    ListedV,
    ListedX,
    Op,
    Program,
    Wait,
    World,
)

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails) -> Program:
    """The shortest that can be found step by step; `fails` is asked about each."""
    before = None
    while before != program:
        before = program
        program = _without(program, fails)
        program = _smaller(program, fails)
    return program


def good(program: Program) -> bool:
    """Return whether the program is valid: the oracle can run it."""
    try:
        oracle.run(program)
    except (Invalid, AssertionError, KeyError, IndexError, ValueError):
        return False
    return True


def _without(program: Program, fails: Fails) -> Program:
    """Fewer operations: half of them at a time, then a quarter, then one."""
    size = max(len(program.ops) // 2, 1)
    while size:
        at = len(program.ops) - size
        while at >= 0:
            ops = _mended((*program.ops[:at], *program.ops[at + size :]), program.threads)
            fewer = replace(program, ops=ops)
            if len(ops) < len(program.ops) and good(fewer) and fails(fewer):
                program = fewer
                at = min(at, len(program.ops))
            at -= size
        size //= 2
    return program


def _mended(ops: tuple[Op, ...], threads: int) -> tuple[Op, ...]:
    """Without what cannot be since other operations are gone."""
    world, out = World(threads), []
    for op in ops:
        mended: Any = op
        if isinstance(op, Wait):
            orders = tuple(
                tuple(h for h in order if h.rstrip("!") in world.under_way) for order in op.orders
            )
            mended = Wait(orders)
            if not any(orders):
                continue
        try:
            if any(name not in world.arrays for name in oracle.arrays_of(mended)):
                continue
            world.apply(mended)
        except Invalid:
            continue
        out.append(mended)
    return tuple(out)


def _smaller(program: Program, fails: Fails) -> Program:
    """Simpler arguments, an operation at a time."""
    for k in reversed(range(len(program.ops))):
        if k >= len(program.ops):
            continue
        for simpler in _simpler(program.ops[k]):
            ops = _mended((*program.ops[:k], simpler, *program.ops[k + 1 :]), program.threads)
            candidate = replace(program, ops=ops)
            if len(ops) <= len(program.ops) and good(candidate) and fails(candidate):
                program = candidate
                break
    return program


def _simpler(op: Any) -> Iterator[Any]:
    """Some ways to say less."""
    if isinstance(op, Alloc):
        half = op.nelems // 2
        if half >= len(op.team.threads):
            yield replace(op, nelems=half)
        return
    for name in ("nbytes", "nelems", "n"):
        value = getattr(op, name, 0)
        if isinstance(value, int) and value > 1:
            yield replace(op, **{name: 1})
            yield replace(op, **{name: value // 2})
    if isinstance(op, ListedX | ListedV) and op.shared:
        yield replace(op, shared=())
    if isinstance(op, Call):
        if op.handle:
            yield replace(op, handle="", flags=op.flags & ~ASYNC)
        if op.plan:
            yield replace(op, plan=False)
    for f in fields(op):
        value = getattr(op, f.name)
        if f.name in ("by", "step", "blk") and value not in (f.default, None):
            yield replace(op, **{f.name: f.default})


# --- what fails ---------------------------------------------------------------------------------
def fails_simulated(program: Program) -> bool:
    """Return whether the program fails in the simulator."""
    from support.random_programs import simulate

    try:
        simulate.run(program)
    except Exception:
        return True
    return False


def fails_live(python: str, *, timeout: float = 5.0, times: int = 1) -> Fails:
    """On real threads; also if it hangs."""
    from support.launch import launch
    from support.random_programs.text import nodes_of, text

    def fails(program: Program) -> bool:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "programs.json"
            file.write_text(json.dumps([[program.seed, text(program)]] * times))
            result = launch(
                program.threads, Path(__file__).with_name("live.py"), args=[str(file)],
                nodes=nodes_of(program.labels), env={"XUPC_TIMEOUT": str(timeout)},
                timeout=6 * timeout, python=python,
            )  # fmt: skip
        return result.returncode != 0

    return fails


def main(kind: str, seed: str, labels: str, python: str = sys.executable) -> None:
    """Print a short program that fails."""
    from support.random_programs.generate import LIVE, SIMULATED, generate

    live = kind == "live"
    program = generate(int(seed), tuple(map(int, labels)), LIVE if live else SIMULATED)
    fails = fails_live(python) if live else fails_simulated
    if not fails(program):
        print("it does not fail")
        return
    program = shrink(program, fails)
    print(program)
    print(program.literal())


if __name__ == "__main__":
    main(*sys.argv[1:])
