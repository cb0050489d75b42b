"""The candidates of a cell: xupc's algorithms, its plans, the peer, and the overhead alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from xupc.algorithms.registry import Variant, names_variant, registered
from xupc.specs import parse_name
from xupc.tuning.selection import registered_name

from .calls import Call, Memory, our_barrier, our_call
from .methods import DROP_IN, method_of
from .oracle import Work
from .peer_calls import bcast_and_copy, peer_barrier, peer_call
from .results import AGAIN, FLOOR, OURS, PEER
from .settings import VARIANTS, Case, Settings, algorithm_named, flags_of, root_of, rooted

__all__ = ["Candidates", "Timed"]

LARGE = 1 << 20
"""Bytes. From here on Bcast is measured together with the root's own copy, too."""


@dataclass
class Timed:
    """Hold a candidate and its times on my thread; it makes its calls one after the other."""

    name: str
    kind: str
    text: str
    calls: list[Call]
    algorithm: str = ""
    network_bytes: float | None = None
    cost: float = 0.0  # ns of a repetition with its barriers
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    turn: int = 0
    loops: int = 1
    by_mpi: bool = False  # MPI carries the call

    def head(self) -> dict[str, Any]:
        """Return the candidate without its times."""
        return {
            "name": self.name,
            "kind": self.kind,
            "call": self.text,
            "algorithm": self.algorithm,
            "network_bytes": self.network_bytes,
        }


class Candidates:
    """Make the candidates of each cell, on memory that all cells share."""

    def __init__(self, settings: Settings, memory: Memory) -> None:
        self.settings = settings
        self.memory = memory

    def of(self, case: Case) -> Iterator[Timed]:
        """Yield the candidates of a cell."""
        settings, call = self.settings, case.collective
        if settings.api == DROP_IN:
            yield from self._of_methods(case)
            return
        if call == "barrier":
            yield Timed("xupc", OURS, "barrier()", [our_barrier(self.memory)])
            if settings.again:
                yield Timed("xupc again", AGAIN, "barrier()", [our_barrier(self.memory)])
            if settings.peer:
                yield Timed("mpi4py", PEER, "comm.Barrier", [peer_barrier(self.memory.comm)],
                            by_mpi=True)  # fmt: skip
            yield Timed("floor", FLOOR, "nothing", [Call(bool)])
            return
        names = []
        for name, candidate in self._algorithms(case):
            names.append(name)
            yield candidate
        if settings.again and names:
            yield from self._asked(case, names[0], AGAIN)
        if settings.plan and (planned := self._planned(case)) is not None:
            yield planned
        if settings.peer:
            yield from self._peers(case)
        yield Timed("floor", FLOOR, "nothing", [Call(bool)])  # the quickest call of all

    def _of_methods(self, case: Case) -> Iterator[Timed]:
        """Yield the method of the drop-in communicator, and mpi4py's."""
        settings, memory = self.settings, self.memory
        again = [("xupc again", AGAIN)] if settings.again else []
        for name, kind in [("xupc", OURS), *again]:
            yield self._method(case, name, kind, memory.drop_in)
        if settings.peer:
            yield self._method(case, "mpi4py", PEER, memory.comm)
        yield Timed("floor", FLOOR, "nothing", [Call(bool)])

    def _method(self, case: Case, name: str, kind: str, comm: Any) -> Timed:
        """Return a method of a communicator with the library that carries it; collective."""
        memory, method = self.memory, method_of(case.collective)
        if case.collective == "barrier":
            calls = [peer_barrier(comm)]
        else:
            found = [peer_call(case.collective, w, memory, comm) for w in self.works(case)]
            calls = [peer[1] for peer in found if peer is not None]
        if comm is memory.comm:
            return Timed(name, kind, f"comm.{method}", calls, by_mpi=True)
        before = _carried(comm, method)
        for call in calls:
            call()
        now = _carried(comm, method)
        by = " and ".join(library for library in now if now[library] > before.get(library, 0))
        text = f"xupc.Comm.{method}, carried by {by}"
        return Timed(name, kind, text, calls, by_mpi="MPI" in by)

    def works(self, case: Case) -> list[Work]:
        """Return the works of a cell's calls, one for each root."""
        form, spec = parse_name(case.collective)
        dtype = np.dtype(case.dtype)
        team = self.memory.team
        roots = root_of(self.settings, team.size) if rooted(case.collective) else (0,)
        count, values = case.nbytes // dtype.itemsize, form in ("allav", "allv")
        return [
            Work(spec.name, count, dtype, case.op, root, team.rank, team.size, values)
            for root in roots
        ]

    def _algorithms(self, case: Case) -> Iterator[tuple[str, Timed]]:
        """Yield the candidates that the settings name, each with its name there."""
        variants = _variants(case.collective)
        known = {variant.name: variant.function for variant in variants}
        measured = set()  # functions: on one node a variant of MULTICORE may be that of PULL
        for word in self.settings.algorithms:
            every = word == VARIANTS
            for name in known if every else [word]:
                if every and known[name] in measured:
                    continue
                name = name if names_variant(name) else algorithm_named(name)
                for candidate in self._asked(case, name, OURS):
                    measured.add(known.get(candidate.algorithm))
                    yield name, candidate

    def _asked(self, case: Case, algorithm: str, kind: str) -> Iterator[Timed]:
        """Yield the candidate of a name of the settings, if the call can be carried out by it.

        A variant may be one of other collectives, or one that cannot run here.
        """
        variant = names_variant(algorithm)
        if variant and case.collective.startswith("allv_"):  # they have no plans that say so
            return
        name = "xupc" if algorithm == "auto" else algorithm
        try:
            flags = flags_of(algorithm, case.sync)
            yield self._ours(case, f"{name} again" if kind == AGAIN else name, kind, flags)
        except ValueError:
            if not variant:
                raise

    def _ours(self, case: Case, name: str, kind: str, flags: int) -> Timed:
        calls = [our_call(case.collective, w, self.memory, flags) for w in self.works(case)]
        algorithm = name.removesuffix(" again")
        words = ["...", *([algorithm] if algorithm != "xupc" else [])]
        words += [case.sync] if case.sync != "allsync" else []
        plans = [_plan_of(call) for call in calls]
        return self._of_plans(name, kind, f"{case.collective}({', '.join(words)})", calls, plans)

    def _of_plans(
        self, name: str, kind: str, text: str, calls: list[Call], plans: list[Any]
    ) -> Timed:
        """Return a candidate with its plans' algorithm, and their bytes averaged over the roots."""
        found = Timed(name, kind, text, calls)
        if None not in plans:
            node_of = self.memory.team.rank_tree.node_of
            instances = [plan.instance for plan in plans if plan.instance is not None]
            sent = sum(instance.plan.bytes_between_nodes(node_of) for instance in instances)
            found.algorithm = plans[0].algorithm
            found.network_bytes = sent / len(plans)
        return found

    def _planned(self, case: Case) -> Timed | None:
        """Return the library's choice as a plan that is run again; None without a plan."""
        flags = flags_of("auto", case.sync)
        full = [our_call(case.collective, w, self.memory, flags) for w in self.works(case)]
        plans = [_plan_of(call) for call in full]
        if None in plans:
            return None
        calls = [replace(c, function=p, arguments=()) for c, p in zip(full, plans, strict=True)]
        return self._of_plans("plan", OURS, f"{case.collective}.plan(...)()", calls, plans)

    def _peers(self, case: Case) -> Iterator[Timed]:
        """Yield mpi4py's call; of a large broadcast also one with the copy that xupc's includes."""
        works = self.works(case)
        found = [peer_call(case.collective, work, self.memory) for work in works]
        calls = [peer[1] for peer in found if peer is not None]
        if not calls or found[0] is None:
            return
        yield Timed("mpi4py", PEER, f"comm.{found[0][0]}", calls, by_mpi=True)
        if case.collective == "all_broadcast" and case.nbytes >= LARGE:
            calls = [bcast_and_copy(work, self.memory) for work in works]
            text = "comm.Bcast and the root's copy"
            yield Timed("mpi4py and copy", PEER, text, calls, by_mpi=True)


def _carried(comm: Any, method: str) -> dict[str, int]:
    """Return the calls of a method of the drop-in communicator by the library that carried them."""
    found: dict[str, int] = comm.explain(as_dict=True).get(method, {}).get("carried_by", {})
    return found


def _variants(collective: str) -> list[Variant]:
    """Return the variants of a collective; none where a call has no plan that names its variant."""
    if collective.startswith("allv_"):
        return []
    entries = registered(registered_name(collective))
    return [variant for entry in entries for variant in entry.variants]


def _plan_of(call: Call) -> Any:
    """Return a plan of the same call; None if it has none."""
    function: Any = call.function
    keywords: dict[str, Any] = {}
    if isinstance(function, partial):
        function, keywords = function.func, function.keywords
    make = getattr(function, "plan", None)
    return None if make is None else make(*call.arguments, **keywords)
