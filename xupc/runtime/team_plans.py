"""The threads of a team and where they run, and the plans of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ..algorithms import registry
from ..backends.native.lowering import lower
from ..backends.native.native_core import core
from ..comm.message_layout import MessageLayout, PlacedOperand, UnboundOperand
from ..flags import ALGORITHM_MASK
from ..plan.plan import Plan
from ..plan.recorder import trace
from ..reduction.kernels import Kernel
from ..topology.tree import Tree
from ..tuning.selection import Place, Table
from .lru_cache import LruCache
from .placement import Placement

PLANS = 512
INSTANCES = 512


__all__ = [
    "TeamPlans",
]


class TeamPlans:
    """The threads of a team, and the plans of its calls.

    Attributes
    ----------
    size, rank : int
        Number of threads, and the rank of this one.
    threads : sequence of int
        Thread ids by rank.
    rank_tree : Tree
        The nodes of the ranks.
    exchange_group, exchange_index
        Ranks that exchange messages between nodes, and the index of this thread's among them.
    instances
        Cached instances of calls on private arrays.
    """

    job: Placement
    wire: Any
    """The message engine of the core; None if Python sends messages."""

    def __init__(
        self, job: Placement, table: Table, threads: Sequence[int], *, world: bool
    ) -> None:
        self.job = job
        self.table = table
        self.threads = threads
        self.size = len(threads)
        self.rank = threads.index(job.me)
        self.rank_tree: Tree = job.tree if world else job.tree.sub(threads)
        self.node_number = self.rank_tree.node_of(self.rank)
        self.node_root = self.rank_tree.node_root(self.node_number)
        self.spans_nodes = self.rank_tree.node_count > 1
        self.place = Place.of(
            self.rank_tree.node_sizes, job.network.family, job.transport, job.crowded
        )
        self.choices = table.at(self.place)
        self.tuning = table.tuning(self.place)
        if job.pids is None:
            self.tuning = {**self.tuning, "direct_min": 0}
        elif self.tuning["tried"] and self.tuning["direct_min"]:
            self.tuning = job.reaching.within(self.tuning, self.size)
        if job.native:
            self.exchange_group: Sequence[int] = [int(t) for t in self.rank_tree.node_roots]
            self.exchange_index = self.node_number
        else:
            self.exchange_group = range(self.size)
            self.exchange_index = self.rank
        self.exchanges = not job.native or self.rank == self.node_root
        self._programs: dict[int, tuple[Plan, dict[tuple[int, ...], Any]]] = {}
        programs = self._programs
        self._plans: LruCache[Plan] = LruCache(PLANS, lambda plan: programs.pop(id(plan), None))
        self.instances: LruCache[Any] = LruCache(INSTANCES)

    def __repr__(self) -> str:
        return f"<xupc team of {self.size} threads on {self.rank_tree.node_count} nodes>"

    def rank_of(self, thread: int) -> int | None:
        """Return the rank of a thread, None if it is not in the team."""
        try:
            return self.threads.index(thread)
        except ValueError:
            return None

    @cached_property
    def places(self) -> dict[int, int]:
        """Index of the parts of this node's threads in the node's memory, by rank."""
        tree = self.rank_tree
        return {int(rank): tree.place(int(rank)) for rank in tree.members(self.node_number)}

    def algorithm_flag(self, collective: str, flags: int, nbytes: int) -> int:
        """Return the algorithm flag of a call, or the one that the table chooses."""
        return flags & ALGORITHM_MASK or self.choices.choose(collective, nbytes)

    def planned(
        self,
        collective: str,
        flags: int,
        nbytes: int,
        sync: tuple[str, str],
        key: Any,
        arguments: Sequence[object],
        kernel: Kernel | None = None,
        *,
        private: bool = False,
    ) -> Plan:
        """Return the cached plan of a call.

        Parameters
        ----------
        collective : str
            Name that its algorithms are registered under.
        flags : int
            Flags of the call; without an algorithm flag the table chooses by `nbytes`.
        sync : tuple of str
            ``(in, out)``.
        key : hashable
            Key of `arguments` in the cache.
        arguments : sequence
            Arguments of the algorithm.
        kernel, private
            As for `trace`.
        """
        flag = self.algorithm_flag(collective, flags, nbytes)
        entry = registry.find(collective, flag)

        def build() -> Plan:
            return trace(
                entry.function, entry.name, collective, self.rank, self.rank_tree, sync,
                self.tuning, arguments, kernel, private=private,
            )  # fmt: skip

        computes = None if kernel is None else kernel.key
        return self._plans.get((collective, flag, sync, computes, key), build)

    def program_of(self, plan: Plan, bounds: Sequence[PlacedOperand]) -> Any:
        """Return the lowered plan, which holds for all addresses of its operands.

        The types of its messages depend on the bytes from thread to thread.
        """
        strides = tuple([b.stride for b in bounds]) if self.wire is not None else ()
        known, programs = self._programs.get(id(plan), (None, {}))
        if known is not plan:
            programs = {}
            self._programs[id(plan)] = plan, programs
        program = programs.get(strides)
        if program is None:
            program = programs[strides] = self._lower(plan, bounds)
        return program

    def _lower(self, plan: Plan, bounds: Sequence[PlacedOperand]) -> Any:
        place, source = bounds[0].place if bounds else None, None
        if self.wire is not None:
            source = MessageLayout(self.job.network, self, [UnboundOperand(b) for b in bounds])
        return core.Program(lower(plan, self.rank_tree, place, source), self.wire)

    def _waiting(self) -> tuple[int, int]:
        """Return how often a waiting thread spins and yields before it sleeps."""
        crowded = self.job.oversubscribed
        if not self.spans_nodes:
            n = self.rank_tree.node_size(self.node_number)
            return (0, 2 * n + 2) if crowded else (8000, 20)
        spins, yields = (0, self.tuning["yields_before_sleep"]) if crowded else (200, 1)
        # other threads yield to a node root, since it polls MPI
        return spins, 0 if self.rank == self.node_root else yields

    def _past_the_cache(self) -> int:
        """Return the size from which a call writes past the cache on this node; 0: never.

        It is the least size at which a copy by one thread gains, times the cores that copy.
        """
        least = int(self.tuning["nt_store_min"]) if self.job.bypass else 0
        if not (least and self.tuning["tried"]):
            return least
        cores = min(self.job.cores, self.rank_tree.node_size(self.node_number))
        return max(least, self.job.bypass * cores)
