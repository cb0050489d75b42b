"""Find out where the threads of a job run: machines, nodes, cores, the engine and the transport.

The steps are part of `init` and collective over all threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..backends.native.native_core import core, why_not
from ..comm.mpi import MpiContext
from ..comm.team_comm import TeamComm
from ..errors import warn
from ..fingerprint import digest
from ..health.control_layout import control_bytes
from ..health.control_segment import Control
from ..pgas.segment import Segment
from ..records import replace
from ..topology import host
from ..topology.job_info import JobInfo
from ..topology.levels import NodeLevels, node_levels
from ..topology.machine import Machine
from ..topology.node_spec import node_tree
from ..topology.sysfs import machine_here
from ..tuning.probes import pids_in_reach
from .log import INFO, note
from .settings import Settings

if TYPE_CHECKING:
    from ..comm.mpi_types import Op
    from ..health.failure_tree import FailureTree, Identity
    from ..topology.picture import NodeView

__all__ = [
    "Placement",
]


class Placement:
    """The steps of `init` that find out where the threads of a job run.

    Attributes
    ----------
    info
        The result.
    sync_address
        Address of the sync area of the world team.
    masks
        The affinity mask of each thread of this machine.
    described
        The machine of ``XUPC_TOPOLOGY`` for every node; None without that variable.
    """

    settings: Settings
    network: MpiContext
    link: TeamComm
    lifeline: FailureTree | None
    host: str
    pid: int
    info: JobInfo
    described: Machine | None
    masks: list[frozenset[int]]

    def _of_all(self, value: int, op: Op) -> int:
        """Reduce a value over all threads, in init.

        It reduces arrays: for objects mpi4py would hold the interpreter's lock, and the watchdog
        could not run.
        """
        found = np.empty(1, np.int64)
        self.link.comm.Allreduce(np.array([value], np.int64), found, op)
        return int(found[0])

    def _find_nodes(self, machine: Sequence[int]) -> JobInfo:
        """Return where the threads run: on machines, split into nodes by the setting ``nodes``."""
        me, threads = self.link.rank, self.link.size
        of = np.empty(threads, np.int32)
        self.link.comm.Allgather(np.array([machine[0]], np.int32), of)
        machine_roots, _ = np.unique(of, return_counts=True)  # alone it imports numpy.ma
        tree = node_tree(of, self.settings.nodes)
        of_node = np.searchsorted(machine_roots, of[tree.node_roots])
        return JobInfo(
            me, threads, tuple(machine), len(machine_roots), of_node, tree, tree.node_of(me)
        )

    def _agree_engine(self) -> bool:
        """Return True if all threads want and have the native core and it can call MPI."""
        wish = os.environ.get("XUPC_ENGINE", "native") != "python"
        can = [core is not None, self.network.functions is not None]
        found = np.empty(3, np.int32)
        self.link.comm.Allreduce(np.array([wish, *can], np.int32), found, self.network.mpi.MIN)
        if found[0] and not found.all() and self.link.rank == 0:
            slow = _slow(core_everywhere=bool(found[1]))
            warn(slow, UserWarning)
            note(INFO, "%s", slow)
        return bool(found.all())

    def _map_control(self, shared_segment: Callable[..., Segment]) -> Control:
        """Map the machine's control segment, which its lowest thread makes."""
        info = self.info
        tree, count = info.tree, len(info.machine)
        index = info.machine.index(info.me)
        comm = self.link.split(info.machine[0])
        rows = comm.allgather((host.affinity(), self.host))
        unique: dict[frozenset[int], frozenset[int]] = {}  # equal masks take memory once
        self.masks = [unique.setdefault(mask, mask) for mask, _ in rows]
        usable = host.within_limit(len(frozenset().union(*unique)))
        self.network.wait_with_progress(count / usable)
        nodes = sorted({tree.node_of(t) for t in info.machine})
        sizes = [self._sync_bytes(tree.node_size(n)) for n in nodes]
        total = control_bytes(count, info.machines, sum(sizes) + tree.nbytes)
        segment = shared_segment(comm, total, whole=True)
        control = self._open_control(segment, index)
        start = control.sync_start + sum(sizes[: nodes.index(info.node)])
        self.sync_address = segment.address + start
        tables = segment.array[control.sync_start + sum(sizes) :][: tree.nbytes]
        if index == 0:
            tree.write_tables(tables)
        self._in_reach = pids_in_reach(comm)
        levels = comm.bcast(self._levels() if index == 0 else None)
        tree = tree.with_tables(tables)  # one copy for the machine
        self.info = replace(
            info,
            tree=tree.with_levels({info.node: levels[info.node]} if levels else {}),
            cores=usable,
            oversubscribed=count > usable,
            machine_host=rows[0][1],
        )
        comm.Free()
        return control

    def _levels(self) -> dict[int, NodeLevels]:
        """Return the levels of the nodes of this machine that have any; one thread computes them.

        The machine is read only if threads are bound, since reading takes milliseconds.
        """
        nodes = sorted({self.info.tree.node_of(thread) for thread in self.info.machine})
        masks = {node: self.masks_of(node) for node in nodes}
        if all(len(set(each)) == 1 for each in masks.values()):
            return {}
        machine = self.described or machine_here()
        return {node: node_levels(machine, masks[node]) for node in nodes}

    def node_view(self) -> NodeView:
        """Return my node as it is drawn; this reads the machine, which takes milliseconds."""
        from ..topology.picture import NodeView  # few jobs are drawn

        threads = tuple(self.info.tree.members(self.info.node).tolist())
        machine = self.described or machine_here()
        return NodeView(threads, machine, tuple(self.masks_of(self.info.node)))

    def masks_of(self, node: int) -> Sequence[frozenset[int]]:
        """Return the affinity masks of a node's threads; of a described machine, those it gets."""
        threads = self.info.tree.members(node).tolist()
        if self.described is not None:
            return self.described.masks(len(threads))
        return [self.masks[self.info.machine.index(thread)] for thread in threads]

    def _open_control(self, segment: Segment, index: int) -> Control:
        """Return the view of a new control segment, with the identities of threads and job."""
        info = self.info
        control = Control(segment, index, len(info.machine), info.machines)
        control.introduce(info.me, self.host)
        number = self.link.comm.bcast(int.from_bytes(os.urandom(8)) >> 1 if info.me == 0 else None)
        if index == 0:
            control.describe(number, info.machine_of(info.me), info.threads)
            rows = self.lifeline.rows if self.lifeline is not None else [self._row]
            control.note_hosts([(r["pid"], r["thread"], r["host"]) for r in rows])
        return control

    def _agree_place(self) -> JobInfo:
        """Agree on what plans depend on: `crowded`, `transport`, `pids` or none, `level_shape`."""
        info = self.info
        no_fabric = not os.path.isdir("/sys/class/infiniband")
        shape = info.tree.levels(info.node).shape
        code = int.from_bytes(digest(shape.encode(), 4), "big") >> 1
        flags = info.oversubscribed, no_fabric, self._in_reach is None
        mine = np.array([*flags, code, -code], np.int32)
        worst = np.empty_like(mine)
        self.link.comm.Allreduce(mine, worst, self.network.mpi.MAX)
        crowded, no_fabric, shut = (bool(v) for v in worst[:3])
        shape = shape if worst[3] == -worst[4] else ""
        pids = None
        if info.native and not shut:
            places = [info.machine.index(t) for t in info.tree.members(info.node).tolist()]
            pids = np.array(self._in_reach, np.int32)[places]
        transport = "shm" if info.machines == 1 else "tcp" if no_fabric else "fabric"
        return replace(
            info, crowded=crowded, transport=transport, pids=pids, level_shape=shape
        )

    def _join_machines(self) -> FailureTree | None:
        """Connect the lowest threads of all machines, so that each detects the death of others."""
        if self.info.machines == 1:
            return None
        from ..health.failure_tree import FailureTree  # it needs sockets

        lowest = self.info.me == self.info.machine[0]
        comm = self.link.split(0 if lowest else 1)
        line = None
        if lowest:
            line = FailureTree(comm, self._row)
        comm.Free()
        return line

    @property
    def _row(self) -> Identity:
        """Describe this thread for threads of other machines."""
        return {"thread": self.link.rank, "host": self.host, "pid": self.pid}

    def _sync_bytes(self, n: int) -> int:
        return int(core.sync_bytes(n)) if core is not None else 0


def _slow(*, core_everywhere: bool) -> str:
    """Return why the Python engine runs, and what to do."""
    if core_everywhere:
        why = "MPI's C functions cannot be called on all threads"
        what = "`xupc info` on each machine shows its MPI and mpi4py"
    else:
        why = f"the native core is missing ({why_not or 'on another machine than this one'})"
        what = "install a C compiler and Python's headers, then reinstall xupc (see `xupc info`)"
    return f"init: the Python engine runs, many times slower: {why}; {what}"
