"""Threads that end in every way and at every moment: nothing stays, and survivors say why.

Drawn from the cross product of tests/deaths.py; the program is programs/dying.py.
"""

from __future__ import annotations

import os

import pytest
from deaths import Death, trials
from launch import Result, launch, mpi_family
from soak import amount, figure, seed

pytestmark = pytest.mark.soak
ENGINE = os.environ.get("XUPC_ENGINE", "native")
PROGRAM = "tests/live/programs/dying.py"


def test_nothing_is_left_of_a_job_whose_thread_dies() -> None:
    def run(death: Death, folder: str) -> tuple[Result, list[str]]:
        environment = {**death.environment, "XUPC_SHM_DIR": folder}
        result = launch(
            4, PROGRAM, nodes=death.nodes, env=environment, timeout=25, via=death.via,
            args=[death.arguments], grace=death.seconds,
        )  # fmt: skip
        left = list(result.leftovers)
        left += ["it had to be killed"] if result.timed_out else []
        if result.returncode == 0 and death.how != "exit 0":
            left.append("exit status 0")
        return result, left

    # other draws on each MPI and engine
    own = seed() * 7 + {"mpich": 0, "openmpi": 1}.get(mpi_family(), 2) + 3 * (ENGINE == "python")
    ledger, reports = trials(amount(12, 80), own, run)
    figure(f"deaths, {mpi_family()}, {ENGINE} engine", str(ledger))
    assert not ledger.wrong, "\n\n".join([str(ledger), *reports])
