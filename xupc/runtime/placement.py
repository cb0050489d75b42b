"""Where the threads of a job run: machines, nodes, cores, the engine and the transport.

The steps of start-up that find this out are collective over all threads.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.native.native_core import core, why_not
from ..comm.mpi import MpiContext, TeamComm
from ..health.control_segment import Control, control_bytes
from ..health.failure_tree import FailureTree
from ..pgas.segment import Segment
from ..topology import host
from ..topology.levels import NodeLevels, node_levels
from ..topology.machine import Machine
from ..topology.node_spec import node_tree
from ..topology.sysfs import machine_here
from ..topology.tree import Tree
from ..tuning.probes import bypass_from, pids_in_reach, reaching
from .settings import Settings

__all__ = [
    "Placement",
]


class Placement:
    """The threads, machines and nodes of a job, as this thread sees them.

    Attributes
    ----------
    me, threads
        Number of this thread; number of all.
    tree, node
        The tree of all threads; the node of this one.
    machine
        The threads of this machine; `machines` is the number of machines.
    native
        True if the native core runs the plans (agreed by all threads).
    oversubscribed
        True if this machine has more threads than cores; `crowded` if any machine has.
    pids
        Process ids of the threads of this node. None unless all threads of the job can read and
        write the private memory of the other threads of their machine.
    reaching
        Cost of such an access on this machine.
    bypass
        Size in bytes from which copies past the cache are faster on this machine; 0: never.
    masks
        The affinity mask of each thread of this machine.
    described
        The machine of ``XUPC_TOPOLOGY`` for every node; None without that variable.
    transport
        ``shm`` on one machine, ``fabric`` with RDMA devices on all, else ``tcp``.
    """

    settings: Settings
    network: MpiContext
    link: TeamComm
    lifeline: FailureTree | None
    host: str
    pid: int
    me: int
    threads: int
    machine: list[int]
    tree: Tree
    node: int
    native: bool
    crowded: bool
    transport: str
    pids: NDArray[np.int32] | None
    described: Machine | None
    masks: list[frozenset[int]]

    def _of_all(self, value: int, op: Any) -> int:
        """Reduce a value over all threads, in init.

        It reduces arrays: for objects mpi4py would hold the interpreter's lock, and the watchdog
        could not run.
        """
        found = np.empty(1, np.int64)
        self.link.comm.Allreduce(np.array([value], np.int64), found, op)
        return int(found[0])

    def _find_tree(self) -> Tree:
        """Return the node tree: machines, split by the setting ``nodes``."""
        of = np.empty(self.threads, np.int32)
        self.link.comm.Allgather(np.array([self.machine[0]], np.int32), of)
        self._machine_roots, _ = np.unique(of, return_counts=True)  # alone it imports numpy.ma
        self.machines = len(self._machine_roots)
        tree = node_tree(of, self.settings.nodes)
        self._machine_of_node = np.searchsorted(self._machine_roots, of[tree.node_roots])
        return tree

    def machine_of(self, thread: int) -> int:
        """Return the number of a thread's machine."""
        return int(self._machine_of_node[self.tree.node_of(thread)])

    def _agree_engine(self) -> bool:
        """Return True if all threads want and have the native core and it can call MPI."""
        wish = os.environ.get("XUPC_ENGINE", "native") != "python"
        can = core is not None and self.network.functions is not None
        found = np.empty(2, np.int32)
        self.link.comm.Allreduce(np.array([wish, can], np.int32), found, self.network.mpi.MIN)
        if found[0] and not found[1] and self.me == 0:
            why = why_not or "MPI's C functions cannot be called on all threads"
            warnings.warn(f"init: the Python engine runs, which is slow: {why}", stacklevel=2)
        return bool(found.all())

    def _map_control(self, shared_segment: Callable[..., Segment]) -> Control:
        """Map the machine's control segment, which its lowest thread makes."""
        count = len(self.machine)
        index = self.machine.index(self.me)
        comm = self.link.split(self.machine[0])
        unique: dict[frozenset[int], frozenset[int]] = {}  # equal masks take memory once
        self.masks = [unique.setdefault(mask, mask) for mask in comm.allgather(host.affinity())]
        cores = frozenset().union(*self.masks)
        self.cores = host.within_limit(len(cores))
        self.oversubscribed = count > self.cores
        self.network.wait_with_progress(count / self.cores)
        nodes = sorted({self.tree.node_of(t) for t in self.machine})
        sizes = [self._sync_bytes(self.tree.node_size(n)) for n in nodes]
        total = control_bytes(count, self.machines, sum(sizes) + self.tree.nbytes)
        segment = shared_segment(comm, total, whole=True)
        control = Control(segment, index, count, self.machines)
        control.introduce(self.me, self.host)
        number = self.link.comm.bcast(int.from_bytes(os.urandom(8)) >> 1 if self.me == 0 else None)
        if index == 0:
            control.describe(number, self.machine_of(self.me), self.threads)
            rows = self.lifeline.rows if self.lifeline is not None else [self._row]
            control.note_hosts([(r["pid"], r["thread"], r["host"]) for r in rows])
        start = control.sync_start + sum(sizes[: nodes.index(self.node)])
        self.sync_address = segment.address + start
        tables = segment.array[control.sync_start + sum(sizes) :][: self.tree.nbytes]
        if index == 0:
            self.tree.write_tables(tables)
        self._in_reach = pids_in_reach(comm)
        found = (bypass_from() if self.native else 0, self._levels()) if index == 0 else None
        self.bypass, levels = comm.bcast(found)
        self.reaching = reaching(comm, self._in_reach if self.native else None, self.cores)
        tree = self.tree.with_tables(tables)  # one copy for the machine
        self.tree = tree.with_levels({self.node: levels[self.node]} if levels else {})
        comm.Free()
        return control

    def _levels(self) -> dict[int, NodeLevels]:
        """Return the levels of the nodes of this machine that have any; one thread computes them.

        The machine is read only if threads are bound, since reading takes milliseconds.
        """
        nodes = {self.tree.node_of(thread) for thread in self.machine}
        masks = {node: self.masks_of(node) for node in nodes}
        if all(len(set(each)) == 1 for each in masks.values()):
            return {}
        machine = self.described or machine_here()
        return {node: node_levels(machine, masks[node]) for node in sorted(nodes)}

    def masks_of(self, node: int) -> Sequence[frozenset[int]]:
        """Return the affinity masks of a node's threads; of a described machine, those it gets."""
        threads = self.tree.members(node).tolist()
        if self.described is not None:
            return self.described.masks(len(threads))
        return [self.masks[self.machine.index(thread)] for thread in threads]

    def _agree_place(self) -> tuple[bool, str, NDArray[np.int32] | None]:
        """Agree on `crowded`, `transport` and whether `pids` exist, since plans depend on them."""
        no_fabric = not os.path.isdir("/sys/class/infiniband")
        mine = np.array([self.oversubscribed, no_fabric, self._in_reach is None], np.int32)
        worst = np.empty_like(mine)
        self.link.comm.Allreduce(mine, worst, self.network.mpi.MAX)
        crowded, no_fabric, shut = (bool(v) for v in worst)
        pids = None
        if self.native and not shut:
            places = [self.machine.index(t) for t in self.tree.members(self.node).tolist()]
            pids = np.array(self._in_reach, np.int32)[places]
        if self.machines == 1:
            return crowded, "shm", pids
        return crowded, "tcp" if no_fabric else "fabric", pids

    def _join_machines(self) -> FailureTree | None:
        """Connect the lowest threads of all machines, so that each detects the death of others."""
        if self.machines == 1:
            return None
        lowest = self.me == self.machine[0]
        comm = self.link.split(0 if lowest else 1)
        line = None
        if lowest:
            line = FailureTree(comm, self._row)
        comm.Free()
        return line

    @property
    def _row(self) -> dict[str, Any]:
        """Describe this thread for threads of other machines."""
        return {"thread": self.me, "host": self.host, "pid": self.pid}

    def _sync_bytes(self, n: int) -> int:
        return int(core.sync_bytes(n)) if core is not None else 0
