"""What several commands need."""

from __future__ import annotations

import click

from xupc.topology import parse_nodes

from .launcher import EXIT_ENVIRONMENT

__all__ = ["RANK_VARIABLES", "EnvironmentProblem", "check_nodes"]

# Set by the launchers for each of their threads.
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


class EnvironmentProblem(click.ClickException):
    """Something is missing on this machine; nothing was wrong with the command."""

    exit_code = EXIT_ENVIRONMENT


def check_nodes(nodes: str | None, threads: int) -> None:
    """UsageError if so many threads cannot be split into these nodes."""
    if nodes is not None:
        try:
            parse_nodes(nodes, threads)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--nodes") from None
