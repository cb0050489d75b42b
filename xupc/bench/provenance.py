"""Where the figures of a launch come from: versions, MPI, the machine, and what it can do."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

import xupc
from xupc.topology import host
from xupc.topology.picture import NodeView, draw_nodes, legend

from . import machine
from .results import PICTURE

__all__ = ["about", "provenance"]


def provenance(team: Any) -> list[dict[str, Any]]:
    """Return the first lines of a launch: the origin of its figures, the limits of the machine.

    Collective.
    """
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(platform.node())
    views = comm.gather(team.job.node_view() if team.job.info.me in team.tree.roots else None)
    head = {
        "about": {**about(team), PICTURE: _picture(views) if views else ""},
        "hosts": [hosts[node[0]] for node in team.tree.nodes],
    }
    return [head, {"bounds": machine.measure(team, comm)}]


def _picture(views: list[NodeView | None]) -> str:
    """Return the drawing of `xupc topo`: where the threads are on their machines."""
    found = [view for view in views if view is not None]
    return "\n".join(filter(None, (draw_nodes(found), legend(found))))


def about(team: Any) -> dict[str, Any]:
    """Return the versions, settings and machine behind a launch's figures; collective."""
    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    text = MPI.Get_library_version().strip("\0\n ")
    first = text.splitlines()[0].partition(",")[0].replace("Version:", "")
    device = next((w for w in text.split() if w.startswith(("ch3:", "ch4:"))), "")
    cores = MPI.COMM_WORLD.allgather(sorted(host.affinity()))
    place = team.place
    return {
        "xupc": xupc.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "mpi": " ".join(first.split()),
        "mpi family": place.family,
        "transport": place.transport,
        "thread level": levels[MPI.Query_thread()],
        "netmod": device,
        "native core": bool(team.native),
        "binding": _binding(cores),
        "cores": team.job.info.cores,
        "oversubscribed": place.oversubscribed,
        "tuning": team.table.name,
        "processor": _processor(),
        "timer ns": _timer(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _timer() -> float:
    """Return the average ns of one clock reading in Python: part of each time with a busy loop."""
    clock, rounds = time.perf_counter_ns, 1000
    begin = clock()
    for _ in range(rounds):
        clock()
    return (clock() - begin) / rounds


def _binding(cores: list[list[int]]) -> str:
    """Return in words how threads are bound."""
    if len({tuple(c) for c in cores}) == 1:
        return f"all threads on {len(cores[0])} core{'s'[: len(cores[0]) != 1]}"
    sizes = {len(c) for c in cores}
    return f"{min(sizes)} to {max(sizes)} cores each" if len(sizes) > 1 else f"{sizes.pop()} each"


def _processor() -> str:
    """Return the processor's name in /proc/cpuinfo, or Python's where that is missing."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
