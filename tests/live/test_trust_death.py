"""Threads that end in every way and at every moment: nothing stays, and survivors say why.

Drawn from the cross product of tests/support/death_trials.py; the program is programs/dying.py.
"""

from __future__ import annotations

import os
import time

import pytest
from support.death_trials import Death, trials
from support.launch import BUSY, Result, launch, mpi_family
from support.soak import amount, figure, seed, share

pytestmark = pytest.mark.soak
ENGINE = os.environ.get("XUPC_ENGINE", "native")
PROGRAM = "tests/live/programs/dying.py"
PARTS = 4  # tests that may run at the same time


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_left_of_a_job_whose_thread_dies(part: int) -> None:
    def run(death: Death, folder: str) -> tuple[Result, list[str], float]:
        environment = {**death.environment, "XUPC_SHM_DIR": folder}
        result = launch(
            4, PROGRAM, nodes=death.nodes, env=environment, timeout=BUSY * 40, via=death.via,
            args=[death.arguments], grace=death.seconds,
        )  # fmt: skip
        now, left = time.monotonic(), list(result.leftovers)
        left += ["it had to be killed"] if result.timed_out else []
        if result.returncode == 0 and death.how != "exit 0":
            left.append("exit status 0")
        return result, left, now

    # other draws in each part, on each MPI and engine
    place = {"mpich": 0, "openmpi": 1}.get(mpi_family(), 2) + 3 * (ENGINE == "python")
    own = seed() * 7 + 1_000_003 * part + place
    ledger, reports = trials(amount(share(4), 20), own, run)
    figure(f"deaths, {mpi_family()}, {ENGINE} engine, part {part + 1} of {PARTS}", str(ledger))
    assert not ledger.wrong, "\n\n".join([str(ledger), *reports])


@pytest.mark.once
def test_leaving_from_a_signal_s_handler_inside_a_call_is_told() -> None:
    program = "tests/live/programs/exit_in_signal_handler.py"
    result = launch(3, program, via="xupc run")
    assert result.clean, result.report()
    assert result.returncode != 0
    assert result.stderr.count("was interrupted inside barrier(") >= 1, result.report()
