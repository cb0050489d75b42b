"""The threads of a team and where they run, and the plans of its calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..algorithms import registry
from ..algorithms.conditions import CallFacts
from ..algorithms.registry import Variant
from ..backends.native.lowering import lower
from ..backends.native.native_core import core
from ..backends.protocol import MessageEngine, Program
from ..comm.message_layout import MessageLayout, PlacedOperand, UnboundOperand
from ..comm.net_barrier import Rounds, rounds_along, rounds_among
from ..flags import ALGORITHM_MASK, variant_label
from ..plan.plan import Plan
from ..plan.recorder import trace
from ..records import replace
from ..reduction.kernel_base import Kernel
from ..topology.levels import NodeLevels
from ..topology.tree import Tree
from ..tuning.selection import Place, Rule, Table, public_name
from .executor import RunningCall
from .log import DEBUG, note
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
    known_sizes
        What `_v` calls on private arrays keep of earlier calls (`api.uneven_plans`).
    """

    job: Placement
    wire: MessageEngine | None
    """The message engine of the core; None if Python sends messages."""

    def __init__(
        self, job: Placement, table: Table, threads: Sequence[int], *, world: bool
    ) -> None:
        self.job = job
        self.table = table
        self.threads = threads
        self.size = len(threads)
        self.rank = threads.index(job.info.me)
        self.rank_tree: Tree = job.info.tree if world else job.info.tree.sub(threads)
        self.node_number = self.rank_tree.node_of(self.rank)
        self.node_root = self.rank_tree.node_root(self.node_number)
        self.spans_nodes = self.rank_tree.node_count > 1
        self.native = job.info.native
        self.place = Place.of(
            self.rank_tree.node_sizes, job.network.family, job.info.transport, job.info.crowded,
            job.info.level_shape if self.spans_nodes else self.rank_tree.level_shape,
        )
        self.choices = table.at(self.place)
        self.tuning = table.tuning(self.place)
        self.figures = table.figures_of(job.info.machine_host)
        if job.info.pids is None:
            self.tuning = {**self.tuning, "direct_min": 0}
        elif self.tuning["tried"] and self.tuning["direct_min"]:
            self.tuning = self.figures.within(self.tuning, self.size)
        if self.native:
            self.exchange_group: Sequence[int] = [int(t) for t in self.rank_tree.node_roots]
            self.exchange_index = self.node_number
        else:
            self.exchange_group = range(self.size)
            self.exchange_index = self.rank
        self.exchanges = not self.native or self.rank == self.node_root
        self._programs: dict[int, tuple[Plan, dict[tuple[int, ...], Program]]] = {}
        programs = self._programs
        self._plans: LruCache[Plan] = LruCache(PLANS, lambda plan: programs.pop(id(plan), None))
        self.instances: LruCache[RunningCall] = LruCache(INSTANCES)
        self.known_sizes: object = None

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

    def way(
        self, collective: str, flags: int, nbytes: int, sync: tuple[str, str],
        arguments: Sequence[object], kernel: Kernel | None = None,
    ) -> tuple[int, str]:  # fmt: skip
        """Return the flag and the label of a call's variant; "": the default one of the flag.

        The parameters are those of `planned`.
        """
        if flag := flags & ALGORITHM_MASK:
            return flag, variant_label(flags)

        def possible(rule: Rule) -> bool:
            call = CallFacts(self.rank_tree, self.tuning, sync, arguments, kernel)
            return registry.find(collective, rule.algorithm).can_run(rule.variant, call)

        rule = self.choices.rule(collective, nbytes, possible)
        return rule.algorithm, rule.variant

    def _variant(self, collective: str, way: tuple[int, str], call: CallFacts) -> Variant:
        """Return the variant of a call.

        Raises
        ------
        ValueError
            There is no such variant, or it cannot run here.
        """
        flag, label = way
        try:
            return registry.find(collective, flag).choose(label, call)
        except ValueError as e:
            raise ValueError(
                f"{public_name(collective)}: algorithm: {e} (asked for by the call or by the "
                f"selection table {self.table.name})"
            ) from None

    def _proved(self, variant: Variant, call: CallFacts, private: bool) -> list[Plan]:
        """Return the plans of all threads for a variant of the program, which are proved first."""
        from ..backends.simulator.proof import prove  # such a program has loaded it already

        try:
            return prove(variant, call, private=private)
        except ValueError as e:
            raise ValueError(f"{public_name(variant.collective)}: algorithm: {e}") from e

    def planned(
        self,
        collective: str,
        flags: int,
        nbytes: int,
        sync: tuple[str, str],
        key: Hashable,
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

        Raises
        ------
        ValueError
            The variant that the call or the table names does not exist, or cannot run here.
        """
        way = self.way(collective, flags, nbytes, sync, arguments, kernel)

        def build() -> Plan:
            call = CallFacts(self.rank_tree, self.tuning, sync, arguments, kernel)
            variant = self._variant(collective, way, call)
            if variant.own:
                plan = self._proved(variant, call, private)[self.rank]
            else:
                plan = trace(
                    variant.function, variant.name, collective, self.rank, self.rank_tree, sync,
                    self.tuning, arguments, kernel, private=private,
                )  # fmt: skip
            note(
                DEBUG, "%s of %d bytes on %r: %s (%s)", public_name(collective), nbytes, self,
                plan.algorithm, "asked for" if flags & ALGORITHM_MASK else self.table.name,
            )  # fmt: skip
            return replace(plan, nbytes=nbytes)

        computes = None if kernel is None else kernel.key
        return self._plans.get((collective, way, sync, computes, key), build)

    def program_of(self, plan: Plan, bounds: Sequence[PlacedOperand]) -> Program:
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

    def _lower(self, plan: Plan, bounds: Sequence[PlacedOperand]) -> Program:
        place, source = bounds[0].place if bounds else None, None
        if self.wire is not None:
            source = MessageLayout(self.job.network, self, [UnboundOperand(b) for b in bounds])
        made: Program = core.Program(lower(plan, self.rank_tree, place, source), self.wire)
        return made

    @property
    def level_barriers(self) -> NodeLevels | None:
        """The levels by which barriers inside this node go; None: barriers are flat."""
        levels = self.rank_tree.levels(self.node_number)
        pays = self._levels_pay(levels.size, self.job.info.oversubscribed)
        return levels if pays and levels.has_domains else None

    def _levels_pay(self, threads: int, crowded: bool) -> bool:
        """Return whether a barrier of so many threads of a node goes by its domains."""
        may = not crowded or bool(self.tuning["level_barrier_crowded"])
        return may and threads >= self.tuning["level_barrier_min"]

    def _barrier_relatives(self) -> NDArray[np.int32] | None:
        """Return this thread's parent and children in such barriers, as the core takes them."""
        levels = self.level_barriers
        if levels is None:
            return None
        return np.array(levels.relatives(self.rank_tree.local_index(self.rank)), np.int32)

    def _exchange_rounds(self) -> tuple[Rounds, int]:
        """Return the rounds of a barrier by messages, and the bytes of its longest message."""
        rounds, room = rounds_among(self.exchange_group, self.exchange_index, self.tuning)
        if not self.native and self._exchange_by_levels:
            return self._rounds_by_levels(), room
        return rounds, room

    @property
    def _exchange_by_levels(self) -> bool:
        """Whether barriers by messages go up and down a tree in each node; equal on all threads.

        A thread has the levels of its own node only. So several nodes have trees if `init` found
        the same levels on all of them and one is large enough. A node without levels in this team
        is a star.
        """
        if not self.spans_nodes:
            return self.level_barriers is not None
        info, most = self.job.info, int(self.rank_tree.node_sizes.max())
        return bool(info.level_shape) and self._levels_pay(most, info.crowded)

    def _rounds_by_levels(self) -> Rounds:
        tree = self.rank_tree
        members = tree.members(self.node_number).tolist()
        levels = tree.levels(self.node_number)
        parent, *children = levels.relatives(tree.local_index(self.rank))
        tops = [int(root) for root in tree.node_roots]
        top, _ = rounds_among(tops, self.node_number, self.tuning)
        below = [members[j if j >= 0 else ~j] for j in children]
        return rounds_along(members[parent] if parent >= 0 else -1, below, top)

    def _waiting(self) -> tuple[int, int]:
        """Return how often a waiting thread spins and yields before it sleeps."""
        crowded = self.job.info.oversubscribed
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
        least = int(self.tuning["nt_store_min"]) if self.figures.nt_store_min else 0
        if not (least and self.tuning["tried"]):
            return least
        cores = min(self.job.info.cores, self.rank_tree.node_size(self.node_number))
        return max(least, self.figures.nt_store_min * cores)
