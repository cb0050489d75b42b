"""The collectives that users call: check the arguments, find the plan, run it.

Each collective is an object of :class:`Collective`: calling it runs it, its ``plan``
gives a bound plan to run again and again. A call that repeats the arguments of an
earlier one, by identity, goes straight to its bound plan (`HotCall`); nothing below
happens for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from . import algorithms, runtime
from .arguments import as_integer, asks_in_place, describe
from .engine import python as python_engine
from .engine.live import Bound
from .engine.native_core import core
from .engine.reports import Record
from .errors import AffinityError, FlagError, HeapError, OverlapError, XupcError
from .fingerprint import fingerprint
from .flags import (
    ALGORITHM_MASK,
    ASYNC,
    IN_ALLSYNC,
    IN_PLACE,
    OUT_ALLSYNC,
    check_flags,
    flag_names,
    sync_modes,
)
from .lists import List, permutation
from .plan.recorder import Operand, trace
from .plan.steps import Plan
from .shared import Allocation, SharedArray, SharedPointer, as_address
from .team import Team

__all__ = [
    "BoundPlan",
    "Collective",
    "all_broadcast",
    "all_broadcast_in_place",
    "all_exchange",
    "all_gather",
    "all_gather_all",
    "all_permute",
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
        A block on each thread; else on one thread.
    blocks
        Blocks on each thread that has any: 1 or ``"T"``.
    rooted
        Its thread is the root; else that has to be the team's first.
    """

    everywhere: bool
    blocks: int | str
    rooted: bool = False


@dataclass(slots=True)
class Target:
    """An operand of a call, checked."""

    allocation: Allocation
    thread: int
    offset: int
    nbytes: int


@dataclass(slots=True)
class Checked:
    """A call whose arguments are good; `name` is what its algorithms are registered under."""

    name: str
    team: Team
    targets: list[Target]
    nbytes: int
    root: int
    full: int
    flags: int
    record: Record

    @property
    def synchronising(self) -> bool:
        """Whether all threads meet in it."""
        return bool(self.full & (IN_ALLSYNC | OUT_ALLSYNC))

    @property
    def sync(self) -> tuple[str, str]:
        """``(in, out)`` as plans have it."""
        return sync_modes(self.full)

    def fingerprint(self, *more: int, what: str = "") -> int:
        """Of the collective and all its single-valued arguments; `what` of it is done."""
        name = f"{self.name} {what}"
        where = (v for t in self.targets for v in (t.allocation.serial, t.thread, t.offset))
        return fingerprint(name, *where, self.nbytes, self.flags, *more)


def _meet(team: Team, signature: int, record: Record) -> None:
    """A barrier in which all threads must have the same signature."""
    plan = team.plan_for("barrier", lambda: runtime.barrier_plan(team.rank, team.size))
    team.make(plan, [], signature, record).execute()


Given = tuple[str, Any, Shape]
"""An operand of a call as it was given: its name, what it is, what it has to be."""

_PARAMETERS = """
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


class Collective(_HotCall):  # type: ignore[misc]
    """A relocalization collective: ``collective(dst, src, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Taken as addresses: block i is at the same address on thread i. With IN_PLACE the
        root's own block is neither read nor written, and may be src itself; where all
        threads have both, src is None or the same as dst, and dst is transformed."""

    def __init__(self, name: str, doc: str, dst: Shape, src: Shape) -> None:
        self.name = name
        self.__name__ = f"all_{name}"
        self.__doc__ = f"{doc}\n\n{type(self).__doc__}{_PARAMETERS}"
        self.dst = dst
        self.src = src

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    # -- calling -------------------------------------------------------------------------
    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call that is not in the cache."""
        instance = self._prepare(*args, **kwargs)
        if instance.owner.job.native:
            self.remember(args, instance, kwargs)
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
        return self._plan(self._prepare(dst, src, nbytes, flags, team=team), dst=dst, src=src)

    def _plan(self, instance: Any, **operands: Any) -> BoundPlan:
        """Agree with all threads on the instance, and give it to the user."""
        operands = {name: x for name, x in operands.items() if x is not None}
        world = runtime.world()
        world.enter(f"{self.__name__}.plan")
        record = Record(f"{self.__name__}.plan", instance.record.arguments)
        _meet(world, fingerprint("plan", instance.hash), record)
        return BoundPlan(self, instance, operands)

    def _prepare(
        self, dst: Any, src: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> Any:
        """Check everything and return the bound instance."""
        operands = ("dst", dst, self.dst), ("src", src, self.src)
        return self._instance(self._checked(operands, nbytes, flags, team))

    def _checked(
        self,
        operands: Sequence[Given],
        nbytes: Any,
        flags: Any,
        team: Any,
        listed: List | None = None,
    ) -> Checked:
        """Check everything that all collectives have."""
        world = runtime.world()
        call = self.__name__
        world.enter(call)

        def arguments() -> list[tuple[str, str]]:
            return [
                *((name, describe(x)) for name, x, _ in operands),
                *([(listed.name, str(listed))] if listed is not None else []),
                ("nbytes", repr(nbytes)),
                ("flags", flag_names(flags) if isinstance(flags, int) else repr(flags)),
            ]

        record = Record(call, arguments, title=f"{call}(nbytes={nbytes!r}, flags={flags!r})")
        try:
            full = self._check_flags(flags)
        except (TypeError, ValueError, NotImplementedError) as e:
            return world.fail(e, record)  # type: ignore[no-any-return]
        try:
            self._check_team(team, world)
            in_place = self._in_place(operands, full)
            if in_place and not self._rooted:
                operands = operands[:1]
            targets, n, root = self._check_data(operands, nbytes, world, in_place=in_place)
        except (TypeError, ValueError, NotImplementedError) as e:
            meet = bool(full & (IN_ALLSYNC | OUT_ALLSYNC))
            return world.fail(e, record, meet)  # type: ignore[no-any-return]
        name = f"{self.name}_in_place" if in_place else self.name
        bits = int(flags) | IN_PLACE * in_place
        return Checked(name, world, targets, n, root, full, bits, record)

    @property
    def _rooted(self) -> bool:
        return self.dst.rooted or self.src.rooted

    def _in_place(self, operands: Sequence[Given], full: int) -> bool:
        """Whether a call is one in place; FlagError if it cannot be."""
        (_, dst, _), (_, src, _) = operands
        return asks_in_place(self.__name__, dst, src, full, rooted=self._rooted)

    def _check_flags(self, flags: Any) -> int:
        call = self.__name__
        full = check_flags(as_integer(flags, call, "flags"), call)
        if full & ASYNC:
            raise NotImplementedError(f"{call}: flags: ASYNC is not there yet")
        return full

    def _check_team(self, team: Any, world: Team) -> None:
        if team is not None and team is not world:
            raise TypeError(f"{self.__name__}: team: expected the world team, got {team!r}")

    # -- arguments -----------------------------------------------------------------------
    def _check_data(
        self, operands: Sequence[Given], nbytes: Any, team: Team, *, in_place: bool = False
    ) -> tuple[list[Target], int, int]:
        """(operands, nbytes, root)."""
        call = self.__name__
        n = as_integer(nbytes, call, "nbytes")
        if n < 1:
            raise ValueError(f"{call}: nbytes: expected at least 1, got {n}")
        targets = [self._target(x, shape, name, n, team) for name, x, shape in operands]
        rooted = (t.thread for t, (_, _, shape) in zip(targets, operands, strict=True)
                  if shape.rooted)
        root = next(rooted, 0)
        if len(targets) == 2 and not (in_place and self._own_is_shared(targets, n, root, team)):
            (target, source), ((_, dst, _), (_, src, _)) = targets, operands
            if (
                target.offset < source.offset + source.nbytes
                and source.offset < target.offset + target.nbytes
            ):
                raise OverlapError(
                    f"{call}: dst and src overlap: dst is {describe(dst)} and {target.nbytes} "
                    f"bytes, src is {describe(src)} and {source.nbytes} bytes"
                )
        return targets, n, root

    def _own_is_shared(self, targets: Sequence[Target], n: int, root: int, team: Team) -> bool:
        """Whether the root's own block is at one address in dst and in src."""
        rank = team.threads.index(root)
        places = (
            target.offset + (rank * n if shape.blocks == "T" else 0)
            for target, shape in zip(targets, (self.dst, self.src), strict=True)
        )
        return len({*places}) == 1

    def _target(self, x: Any, shape: Shape, argument: str, n: int, team: Team) -> Target:
        call = self.__name__
        try:
            allocation, thread, offset = as_address(x)
        except TypeError as e:
            raise TypeError(f"{call}: {argument}: {e}") from None
        allocation.check_live(call, argument)
        total = n * (team.size if shape.blocks == "T" else 1)
        if not shape.rooted and thread != team.threads[0]:
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
    def _instance(self, call: Checked) -> Any:
        root = (call.root,) if self._rooted else ()
        plan = self._plan_for(call, call.sync, call.root, root)
        return self._bind(call, plan, call.fingerprint())

    def _bind(self, call: Checked, plan: Plan, signature: int) -> Any:
        heap = call.team.job.heap
        bounds = [Bound(heap, t.offset) for t in call.targets]
        bounds += bounds[:1] * (2 - len(bounds))  # scratch comes third
        try:
            return call.team.make(plan, bounds, signature, call.record)
        except HeapError as e:
            call.record.shared_error = True
            return call.team.fail(e, call.record, call.synchronising)

    def _plan_for(
        self, call: Checked, sync: tuple[str, str], key: Any, arguments: Sequence[object]
    ) -> Plan:
        """The team's cached plan; `key` is what it depends on besides, as `arguments` say."""
        team, n = call.team, call.nbytes
        flag = call.full & ALGORITHM_MASK
        if not flag:
            flag = team.table.choose(self.name, n, team.size, team.place)
        entry = algorithms.find(call.name, flag)

        def build() -> Plan:
            return trace(
                entry.function, entry.name, call.name, team.rank, team.tree, sync,
                team.tuning, [*self._operands(call), *arguments, n],
            )  # fmt: skip

        return team.plan_for((call.name, flag, sync, key, n), build)

    def _operands(self, call: Checked) -> list[Operand]:
        """What the algorithms take."""
        return [Operand(i) for i in range(len(call.targets))]


class Permute(Collective):
    """As the others, with a list: ``collective(dst, src, perm, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Taken as addresses: block i is at the same address on thread i.
    perm : SharedArray, SharedPointer, or sequence of int
        T integers, a permutation: the block of thread i goes to thread perm[i]. If shared,
        element i is at ``perm + i``, and it is read after the IN synchronisation; else
        it is copied at the call and must be equal on all threads."""

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Every call: the list's contents are data, so nothing is remembered."""
        self._prepare(*args, **kwargs).execute()

    def plan(  # type: ignore[override]
        self,
        dst: SharedArray | SharedPointer,
        src: SharedArray | SharedPointer,
        perm: SharedArray | SharedPointer | Sequence[int],
        nbytes: int,
        flags: int = 0,
        *,
        team: Team | None = None,
    ) -> BoundPlan:
        """A plan bound to these arguments and to what perm holds now; collective itself."""
        instance = self._prepare(dst, src, perm, nbytes, flags, team=team, frozen=True)
        return self._plan(instance, dst=dst, src=src)

    def _prepare(  # type: ignore[override]
        self,
        dst: Any,
        src: Any,
        perm: Any,
        nbytes: Any,
        flags: Any = 0,
        *,
        team: Team | None = None,
        frozen: bool = False,
    ) -> Any:
        """Check everything, read the list and return the bound instance.

        A shared list is read by every thread, so those must have come to where it may be
        read, and all have read it before its owners may go on to change it.
        """
        listed = List("perm", perm)
        operands = ("dst", dst, self.dst), ("src", src, self.src)
        call = self._checked(operands, nbytes, flags, team, listed)
        world, sync = call.team, call.sync
        try:
            target = call.targets[0]
            listed.check(self.__name__, world, target.offset, target.nbytes)
        except (TypeError, ValueError) as e:
            return world.fail(e, call.record, call.synchronising)
        if listed.shared:
            if sync[0] == "all":
                signature = call.fingerprint(*listed.where, what="list")
                world.job.engine.expect_reads()
                _meet(world, signature, call.record)
            if not frozen:
                sync = _after_reading(sync)
            world.job.engine.expect_reads()
        try:
            values = permutation(self.__name__, listed.read(world.size))
        except ValueError as e:
            return world.fail(e, call.record, call.synchronising)
        call.record = call.record.with_more(listed.entries(values))
        array = np.array(values, np.int64)
        content = blake2b(array.tobytes(), digest_size=16).digest()
        plan = self._plan_for(call, sync, content, (array,))
        number = int.from_bytes(content[:7], "little")
        return self._bind(call, plan, call.fingerprint(*listed.where, number))


def _after_reading(sync: tuple[str, str]) -> tuple[str, str]:
    """The modes of what is left of a call when a shared list has been read."""
    into, out = sync
    if out == "my":
        return "all", out  # nobody may change his part of the list before all have read it
    return ("no" if into == "all" else into), out


class BoundPlan(_HotPlan):  # type: ignore[misc]
    """A collective bound to its arguments: call it to run it, print it to see its steps.

    Attributes
    ----------
    algorithm : str
        Begins ``pull``, ``push`` or ``multicore``.
    """

    def __init__(self, collective: Collective, instance: Any, operands: dict[str, Any]) -> None:
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
        for argument, x in self.operands.items():
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


class InPlace(Collective):
    """One operand is source and target: ``collective(buf, nbytes, flags=0, *, team=None)``.

    Parameters
    ----------
    buf : SharedArray or SharedPointer
        Taken as an address, an array for its element 0; its thread is the root."""

    def _in_place(self, operands: Sequence[Given], full: int) -> bool:
        if full & IN_PLACE:
            raise FlagError(f"{self.__name__}: flags: IN_PLACE is what it always does")
        return False

    def _operands(self, call: Checked) -> list[Operand]:
        return [Operand(0), Operand(0)]

    def _prepare(  # type: ignore[override]
        self, buf: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> Any:
        return self._instance(self._checked((("buf", buf, self.dst),), nbytes, flags, team))

    def plan(  # type: ignore[override]
        self,
        buf: SharedArray | SharedPointer,
        nbytes: int,
        flags: int = 0,
        *,
        team: Team | None = None,
    ) -> BoundPlan:
        """A plan bound to these arguments; collective itself, like the call."""
        return self._plan(self._prepare(buf, nbytes, flags, team=team), buf=buf)


_ONE_EVERYWHERE = Shape(True, 1)
_ALL_EVERYWHERE = Shape(True, "T")
_ONE_AT_ROOT = Shape(False, 1, rooted=True)
_ALL_AT_ROOT = Shape(False, "T", rooted=True)
_ONE_EVERYWHERE_FROM_ROOT = Shape(True, 1, rooted=True)

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
all_broadcast_in_place = InPlace(
    "broadcast_in_place",
    "Overwrite the block at buf's address on every other thread with that of buf's thread.",
    _ONE_EVERYWHERE_FROM_ROOT,
    _ONE_EVERYWHERE_FROM_ROOT,
)
all_permute = Permute(
    "permute",
    "Copy the block at src of thread i to dst on thread perm[i] (UPC 1.3, 7.4.2.6).",
    _ONE_EVERYWHERE,
    _ONE_EVERYWHERE,
)
