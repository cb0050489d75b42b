"""Where the threads of a job run: a record that is complete at the end of `init`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..records import record
from .tree import Tree

__all__ = ["JobInfo"]


@record
class JobInfo:
    """The threads, machines and nodes of a job, as this thread sees them.

    Attributes
    ----------
    me, threads
        Number of this thread; number of all.
    machine
        The threads of this machine, ascending; `machines` is the number of machines.
    machine_of_node
        The number of each node's machine.
    tree, node
        The tree of all threads; the node of this one.
    native
        True if the native core runs the plans (agreed by all threads).
    cores
        Number of cores that the threads of this machine share.
    oversubscribed
        True if this machine has more threads than cores; `crowded` if any machine has.
    transport
        ``shm`` on one machine, ``fabric`` with RDMA devices on all, else ``tcp``.
    pids
        Process ids of the threads of this node. None unless all threads of the job can read and
        write the private memory of the other threads of their machine.
    machine_host
        Name of this machine's host, by which its figures are found: that of its lowest thread.
    level_shape
        `NodeLevels.shape` of all nodes; "" if they differ.
    """

    me: int
    threads: int
    machine: tuple[int, ...]
    machines: int
    machine_of_node: NDArray[np.intp]
    tree: Tree
    node: int
    native: bool = False
    cores: int = 0
    oversubscribed: bool = False
    crowded: bool = False
    transport: str = ""
    pids: NDArray[np.int32] | None = None
    machine_host: str = ""
    level_shape: str = ""

    def machine_of(self, thread: int) -> int:
        """Return the number of a thread's machine."""
        return int(self.machine_of_node[self.tree.node_of(thread)])

    @property
    def spans_nodes(self) -> bool:
        """True if the job has several nodes."""
        return self.tree.node_count > 1
