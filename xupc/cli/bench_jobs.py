"""Start the jobs of a benchmark with the MPI launcher of this environment."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

from xupc.bench.launch_plan import Launch
from xupc.bench.settings import Shape

from .launcher import job_command, job_environment, run_job, thread_command
from .mpi import find_mpi
from .outcome import Outcome

__all__ = ["find_launcher"]


def find_launcher(variables: dict[str, str] | None = None) -> Launch:
    """Return the function that starts one job; LaunchError if there is no launcher.

    `variables` are more variables of the environment.
    """
    mpi = find_mpi()

    def launch(
        program: Sequence[str], shape: Shape, extra: Sequence[str], timeout: float,
        time_limit: float | None,
    ) -> Outcome:
        environment = job_environment(
            os.environ | (variables or {}), mpi.family,
            tag=uuid.uuid4().hex, nodes=shape.nodes, timeout=timeout,
        )  # fmt: skip
        command = job_command(
            mpi, shape.threads, thread_command(program), extra=extra, environment=environment
        )
        return run_job(command, environment, time_limit=time_limit, forward=True)

    return launch
