"""The collectives that users call: check the arguments, find the plan, run it.

Each collective is an object of :class:`Collective`: calling it runs it, its ``plan``
gives a bound plan to run again and again. A call that repeats the arguments of an
earlier one, by identity, goes straight to its bound plan (`HotCall`); nothing below
happens for it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from . import algorithms, runtime
from .engine import python as python_engine
from .engine.live import Bound
from .engine.native_core import core
from .engine.reports import Record
from .errors import AffinityError, OverlapError, XupcError
from .fingerprint import fingerprint
from .flags import (
    ALGORITHM_MASK,
    ASYNC,
    IN_ALLSYNC,
    IN_MASK,
    IN_MYSYNC,
    IN_PLACE,
    OUT_ALLSYNC,
    OUT_MASK,
    OUT_MYSYNC,
    check_flags,
    flag_names,
)
from .plan.recorder import Operand, trace
from .plan.steps import Plan
from .shared import Allocation, SharedArray, SharedPointer, as_address
from .team import Team

__all__ = [
    "BoundPlan",
    "Collective",
    "all_broadcast",
    "all_exchange",
    "all_gather",
    "all_gather_all",
    "all_scatter",
]

_HotCall: Any = python_engine.HotCall if core is None else core.HotCall
_HotPlan: Any = python_engine.HotPlan if core is None else core.HotPlan


@dataclass(frozen=True, slots=True)
class Shape:
    """What a relocalization collective asks of one operand.

    Attributes
    ----------
    everywhere
        A block on each thread, from the team's first on; else on one thread, which
        is the root.
    blocks
        Blocks on each thread that has any: 1 or ``"T"``.
    """

    everywhere: bool
    blocks: int | str


@dataclass(slots=True)
class Target:
    """An operand of a call, checked."""

    allocation: Allocation
    thread: int
    offset: int
    nbytes: int


def _integer(value: Any, call: str, argument: str) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{call}: {argument}: expected an int, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{call}: {argument}: expected an int, got {value!r}") from None


def _describe(x: Any) -> str:
    """An operand as text, the same on every thread."""
    try:
        allocation, thread, offset = as_address(x)
    except TypeError:
        return repr(x)
    return f"thread {thread} offset {offset} ({allocation.nelems} x {allocation.dtype})"


class Collective(_HotCall):  # type: ignore[misc]
    """A relocalization collective: ``collective(dst, src, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Taken as addresses: block i is at the same address on thread i.
    nbytes : int
        Bytes per block, at least 1.
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library
        choose.
    team : Team, optional
        Only the world team so far.

    Raises
    ------
    TypeError, ValueError, FlagError, AffinityError, OverlapError
        On every thread, before anything moves; the library stays usable.
    CollectiveMismatchError
        If the threads' calls differ.
    """

    def __init__(self, name: str, doc: str, dst: Shape, src: Shape) -> None:
        self.name = name
        self.__name__ = f"all_{name}"
        self.__doc__ = f"{doc}\n\n{Collective.__doc__}"
        self.dst = dst
        self.src = src

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    # -- calling -------------------------------------------------------------------------
    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call that is not in the cache."""
        instance = self._prepare(*args, **kwargs)
        if not kwargs and instance.owner.job.native:
            self.remember(args, instance)
        instance.execute()

    def plan(
        self,
        dst: SharedArray | SharedPointer,
        src: SharedArray | SharedPointer,
        nbytes: int,
        flags: int = 0,
        *,
        team: Team | None = None,
    ) -> BoundPlan:
        """A plan bound to these arguments; collective itself, like the call."""
        instance = self._prepare(dst, src, nbytes, flags, team=team)
        world = runtime.world()
        world.enter(f"{self.__name__}.plan")
        agree = world.make(
            world.plan_for("barrier", lambda: runtime.barrier_plan(world.rank, world.size)),
            [],
            fingerprint("plan", instance.hash),
            Record(f"{self.__name__}.plan", instance.record.arguments),
        )
        agree.execute()
        return BoundPlan(self, instance, (dst, src))

    def _prepare(
        self, dst: Any, src: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> Any:
        """Check everything and return the bound instance."""
        world = runtime.world()
        call = self.__name__
        world.enter(call)

        def arguments() -> list[tuple[str, str]]:
            return [
                ("dst", _describe(dst)),
                ("src", _describe(src)),
                ("nbytes", repr(nbytes)),
                ("flags", flag_names(flags) if isinstance(flags, int) else repr(flags)),
            ]

        record = Record(call, arguments, title=f"{call}(nbytes={nbytes!r}, flags={flags!r})")
        try:
            full = self._check_flags(flags)
        except (TypeError, ValueError, NotImplementedError) as e:
            return world.fail(e, record)
        try:
            self._check_team(team, world)
            targets, n, root = self._check_data(dst, src, nbytes, world)
        except (TypeError, ValueError, NotImplementedError) as e:
            return world.fail(e, record, bool(full & (IN_ALLSYNC | OUT_ALLSYNC)))
        return self._instance(world, targets, n, root, full, flags, record)

    def _check_flags(self, flags: Any) -> int:
        call = self.__name__
        full = check_flags(_integer(flags, call, "flags"), call)
        for bit, name in ((IN_PLACE, "IN_PLACE"), (ASYNC, "ASYNC")):
            if full & bit:
                raise NotImplementedError(f"{call}: flags: {name} is not there yet")
        return full

    def _check_team(self, team: Any, world: Team) -> None:
        if team is not None and team is not world:
            raise TypeError(f"{self.__name__}: team: expected the world team, got {team!r}")

    # -- arguments -----------------------------------------------------------------------
    def _check_data(
        self, dst: Any, src: Any, nbytes: Any, team: Team
    ) -> tuple[tuple[Target, Target], int, int]:
        """((dst, src), nbytes, root)."""
        call = self.__name__
        n = _integer(nbytes, call, "nbytes")
        if n < 1:
            raise ValueError(f"{call}: nbytes: expected at least 1, got {n}")
        target = self._target(dst, self.dst, "dst", n, team)
        source = self._target(src, self.src, "src", n, team)
        if (
            target.offset < source.offset + source.nbytes
            and source.offset < target.offset + target.nbytes
        ):
            raise OverlapError(
                f"{call}: dst and src overlap: dst is {_describe(dst)} and {target.nbytes} bytes, "
                f"src is {_describe(src)} and {source.nbytes} bytes"
            )
        root = 0
        if not self.dst.everywhere:
            root = target.thread
        elif not self.src.everywhere:
            root = source.thread
        return (target, source), n, root

    def _target(self, x: Any, shape: Shape, argument: str, n: int, team: Team) -> Target:
        call = self.__name__
        try:
            allocation, thread, offset = as_address(x)
        except TypeError as e:
            raise TypeError(f"{call}: {argument}: {e}") from None
        allocation.check_live(call, argument)
        total = n * (team.size if shape.blocks == "T" else 1)
        if shape.everywhere and thread != team.threads[0]:
            raise AffinityError(
                f"{call}: {argument}: expected affinity to thread {team.threads[0]}, "
                f"got a pointer with affinity to thread {thread}"
            )
        # parts never grow from thread to thread: the last one's is the smallest
        for where in {thread, team.threads[-1]} if shape.everywhere else {thread}:
            if not allocation.holds(where, offset, total):
                start, size = allocation.part(where)
                raise ValueError(
                    f"{call}: {argument}: {total} bytes from offset {offset} are beyond the "
                    f"allocation, which has offsets {start} to {start + size} on thread {where} "
                    f"(nbytes={n})"
                )
        return Target(allocation, thread, offset, total)

    # -- plans -------------------------------------------------------------------------
    def _instance(
        self,
        team: Team,
        targets: tuple[Target, Target],
        n: int,
        root: int,
        full: int,
        flags: int,
        record: Record,
    ) -> Any:
        plan = self.plan_of(team, n, root, full)
        signature = fingerprint(
            self.name,
            *(v for t in targets for v in (t.allocation.serial, t.thread, t.offset)),
            n,
            int(flags),
        )
        heap = team.job.heap
        return team.make(plan, [Bound(heap, t.offset) for t in targets], signature, record)

    def plan_of(self, team: Team, n: int, root: int, full: int) -> Plan:
        """The team's cached plan for a signature."""
        flag = full & ALGORITHM_MASK
        if not flag:
            flag = team.table.choose(self.name, n, team.size, team.place)
        sync = (_mode(full & IN_MASK, IN_MYSYNC, IN_ALLSYNC),
                _mode(full & OUT_MASK, OUT_MYSYNC, OUT_ALLSYNC))
        entry = algorithms.find(self.name, flag)
        rooted = not (self.dst.everywhere and self.src.everywhere)

        def build() -> Plan:
            arguments: list[object] = [Operand(0), Operand(1)]
            if rooted:
                arguments.append(root)
            return trace(
                entry.function, entry.name, self.name, team.rank, team.tree, sync,
                team.tuning, [*arguments, n],
            )

        return team.plan_for((self.name, flag, sync, root, n), build)


def _mode(bits: int, my: int, all_: int) -> str:
    return "my" if bits == my else "all" if bits == all_ else "no"


class BoundPlan(_HotPlan):  # type: ignore[misc]
    """A collective bound to its arguments: call it to run it, print it to see its steps.

    Attributes
    ----------
    algorithm : str
        Begins ``pull``, ``push`` or ``multicore``.
    """

    def __init__(self, collective: Collective, instance: Any, operands: tuple[Any, Any]) -> None:
        self.collective = collective
        self.instance = instance
        self.operands = operands
        self.algorithm: str = instance.plan.algorithm
        if instance.owner.job.native:
            self.bind(instance)

    def slow(self) -> None:
        """A call after something was freed, or too far ahead, or on the Python engine."""
        world = runtime.world()
        call = f"{self.collective.__name__}.plan"
        world.enter(call)
        instance = self.instance
        if instance.owner is not world:
            raise XupcError(f"{call}: the plan is of an earlier init()")
        for argument, x in zip(("dst", "src"), self.operands, strict=True):
            try:
                as_address(x)[0].check_live(call, argument)
            except ValueError as e:
                world.fail(e, Record(call, instance.record.arguments))
        if world.job.native:
            self.bind(instance)
        instance.execute()

    def start(self) -> Any:
        """Run it in the background."""
        raise NotImplementedError("plan.start() comes with the asynchronous collectives")

    def __str__(self) -> str:
        return str(self.instance.plan)

    def __repr__(self) -> str:
        return f"<xupc plan of {self.instance.record.call} by {self.algorithm}>"


_ONE_EVERYWHERE = Shape(True, 1)
_ALL_EVERYWHERE = Shape(True, "T")
_ONE_AT_ROOT = Shape(False, 1)
_ALL_AT_ROOT = Shape(False, "T")

all_broadcast = Collective(
    "broadcast",
    "Copy src's block to dst on every thread (UPC 1.3, 7.4.2.1).",
    _ONE_EVERYWHERE,
    _ONE_AT_ROOT,
)
all_scatter = Collective(
    "scatter",
    "Copy the i-th block at src to dst on thread i (UPC 1.3, 7.4.2.2).",
    _ONE_EVERYWHERE,
    _ALL_AT_ROOT,
)
all_gather = Collective(
    "gather",
    "Copy src's block of thread i to the i-th block at dst (UPC 1.3, 7.4.2.3).",
    _ALL_AT_ROOT,
    _ONE_EVERYWHERE,
)
all_gather_all = Collective(
    "gather_all",
    "Copy every thread's block at src to dst on every thread, in order (UPC 1.3, 7.4.2.4).",
    _ALL_EVERYWHERE,
    _ONE_EVERYWHERE,
)
all_exchange = Collective(
    "exchange",
    "Copy the j-th block at src of thread i to the i-th block at dst of thread j "
    "(UPC 1.3, 7.4.2.5).",
    _ALL_EVERYWHERE,
    _ALL_EVERYWHERE,
)
