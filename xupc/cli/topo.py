"""What `xupc topo` runs as a job: thread 0 draws where all threads are.

`described` draws the threads of a job that does not run, on a machine that is described.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click
import numpy as np

import xupc
from xupc.cli.common import plain
from xupc.topology.levels import node_levels
from xupc.topology.machine import Machine
from xupc.topology.node_spec import node_tree
from xupc.topology.picture import NodeView, draw_nodes, legend

__all__ = ["described", "main"]


def main(*, as_json: bool = False) -> None:
    """Draw the threads of this job; collective."""
    with xupc.init() as team:
        from mpi4py import MPI

        rows = MPI.COMM_WORLD.gather(_mine(team))
        if rows is not None:
            show([view for view in rows if view is not None], as_json=as_json)


def _mine(team: xupc.Team) -> NodeView | None:
    """Return the node of this thread if it is the node root."""
    return team.state.job.node_view() if team.node.rank == 0 else None


def described(machine: Machine, threads: int, nodes: str | None) -> list[NodeView]:
    """Return the nodes of so many threads, each node being such a machine.

    Parameters
    ----------
    nodes : str or None
        As ``XUPC_NODES``.
    """
    tree = node_tree(np.zeros(threads, np.int32), nodes)
    return [NodeView(node, machine, machine.masks(len(node))) for node in tree.nodes]


def show(views: list[NodeView], *, as_json: bool = False) -> None:
    """Print the picture, what its signs mean, and how to bind threads that are not."""
    if as_json:
        click.echo(json.dumps({"nodes": [_facts(view) for view in views]}))
        return
    click.echo(draw_nodes(views))
    if text := legend(views):
        click.echo(f"\n{text}")
    if any(_is_unbound(view) for view in views):
        click.echo(
            "threads are not bound, so there are no levels below the node: add --bind spread, or "
            "start with --bind-to core (Open MPI), -bind-to core (MPICH)"
        )


def _facts(view: NodeView) -> dict[str, Any]:
    """Return a node as plain data: its threads, their processors, and its machine."""
    machine = view.machine
    return {
        "threads": list(view.threads),
        "processors": [sorted(mask) for mask in view.masks],
        "machine": plain(machine),
        "levels": [
            {"name": level.name, "domains": [[view.threads[i] for i in d] for d in level.domains]}
            for level in node_levels(machine, list(view.masks)).levels
        ],
    }


def _is_unbound(view: NodeView) -> bool:
    alike = len(view.masks) > 1 and len(set(view.masks)) == 1
    return alike and len(view.masks[0]) > 1


if __name__ == "__main__":
    main(as_json="--json" in sys.argv)
