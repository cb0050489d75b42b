"""Random programs in the simulator: collectives in all forms, teams, posted calls, sync modes."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product

import pytest
from simulated.pool import Progress, workers
from support.random_programs import oracle, simulate
from support.random_programs.generate import LIVE, SIMULATED, generate
from support.random_programs.program import (
    EXCLUSIVE,
    SCANS,
    Barrier,
    Check,
    Fill,
    Invalid,
    Move,
    Program,
    Reduce,
    Scalar,
    Values,
    modes,
    parse,
)
from support.random_programs.shapes import KEPT, Tally, simulated
from support.random_programs.shrink import good, shrink
from support.soak import amount, figure, part, seed, share

from xupc.backends.simulator.errors import SimulationError

SHARD = 250
PROGRAMS = share(1000), 100_000


@pytest.mark.soak
def test_programs_do_what_the_oracle_says(capsys: pytest.CaptureFixture[str]) -> None:
    """No race, no deadlock, every byte right."""
    began = time.monotonic()
    first = seed() * 1_000_000
    shards = part([(first + i, SHARD) for i in range(0, amount(*PROGRAMS), SHARD)])
    count, done = SHARD * len(shards), 0
    progress = Progress(capsys, "random programs", count)
    failures: list[str] = []
    try:
        with workers() as pool:
            for tally in pool.map(_shard, shards):
                done += tally.programs
                failures += tally.failures or ()
                progress.tell(done, len(failures))
    finally:  # what was done counts, even if it is interrupted
        seconds = time.monotonic() - began
        figure(
            "random programs, simulated",
            f"{done - len(failures)} of {done} right, of {count} from seed {shards[0][0]} on "
            f"({seconds:.0f} s)",
        )
    assert not failures, f"{len(failures)} of {count} fail:\n" + "\n".join(failures[:3])


def _shard(part: tuple[int, int]) -> Tally:
    return simulated(*part)


def test_programs_that_failed_once() -> None:
    """Programs that failed once pass: gather_all's doubling used one signal for two purposes."""
    for file in sorted(KEPT.glob("simulated_*.txt")):
        program = parse(file.read_text())
        for schedule in (None, 1, 2):
            simulate.run(program, schedule)


def test_exclusive_scans_are_drawn_in_all_forms() -> None:
    """With functions and without, on shared and private arrays; single values on real threads."""
    missing = set(product(("Reduce", "Values"), SCANS, (False, True)))
    missing |= {("Scalar", name, False) for name in SCANS}
    for number, style in product(range(500), (SIMULATED, LIVE)):
        for op in generate(number, (0, 0, 1), style).ops:
            if isinstance(op, Reduce | Values | Scalar) and op.flags & EXCLUSIVE:
                missing.discard((type(op).__name__, op.name, bool(getattr(op, "func", ""))))
        if not missing:
            break
    assert not missing


# --- the tests' own machinery ---------------------------------------------------------------------
@pytest.mark.parametrize("labels", [(0,), (0, 0, 1), (0, 1, 0, 1, 2)])
def test_a_literal_is_the_program(labels: tuple[int, ...]) -> None:
    for number in range(5):
        for style in (SIMULATED, LIVE):
            program = generate(number, labels, style)
            assert parse(program.literal()) == program
            assert generate(number, labels, style) == program
            compile(str(program), "program", "exec")
            assert good(program)


def _lax(program: Program) -> list[Program]:
    """The same with one barrier less, each."""
    return [
        replace(program, ops=(*program.ops[:k], *program.ops[k + 1 :]))
        for k, op in enumerate(program.ops)
        if isinstance(op, Barrier)
    ]


def test_no_barrier_is_there_for_nothing() -> None:
    """Where the model asks for one, there is a race without it: in the model, and simulated.

    The model is the stricter one: it believes the documents, not the algorithms.
    """
    told = seen = 0
    for number in range(60):
        program = generate(number, (0, 0, 1), SIMULATED)
        for lax in _lax(program)[:-1]:
            with pytest.raises(Invalid, match="race"):
                oracle.run(lax)
            told += 1
            state = simulate.Story.__new__(simulate.Story)
            try:
                _without_model(lax, state)
            except SimulationError:
                seen += 1
    assert told > 50
    assert seen > told / 3, (told, seen)


def _without_model(program: Program, story: simulate.Story) -> None:
    """Simulate what the model does not allow."""
    allowed = oracle.State.allowed
    try:
        oracle.State.allowed = lambda self, op: True  # type: ignore[method-assign]
        story.__init__(program)  # type: ignore[misc]
    finally:
        oracle.State.allowed = allowed  # type: ignore[method-assign]
    story.run(None)


def test_a_failing_program_becomes_short() -> None:
    """Down to what it takes: the call that is said to be wrong, and its arrays."""

    def fails(candidate: Program) -> bool:
        return any(isinstance(op, Move) and modes(op.flags)[1] == "no" for op in candidate.ops)

    program = next(p for i in range(50) if fails(p := generate(i, (0, 0, 1, 1), LIVE)))
    assert len(program.ops) > 20
    short = shrink(program, fails)
    assert fails(short)
    assert good(short)
    assert len(short.ops) <= 4
    assert not any(isinstance(op, Check | Fill | Barrier) for op in short.ops)
