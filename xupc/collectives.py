"""The collectives that users call: check the arguments, find the plan, run it.

Each collective is an object of :class:`Collective`: calling it runs it, its ``plan``
gives a bound plan to run again and again. A call that repeats the arguments of an
earlier one, by identity, goes straight to its bound plan (`HotCall`); nothing below
happens for it.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NoReturn

import numpy as np

from . import algorithms, runtime
from .arguments import as_integer, asks_in_place, describe, flags_text, signature_of
from .engine import python as python_engine
from .engine.live import Bound
from .engine.native_core import core
from .engine.pending import Pending
from .engine.reports import Record
from .errors import AffinityError, FlagError, HeapError, OverlapError, XupcError, show
from .fingerprint import fingerprint
from .flags import (
    ALGORITHM_MASK,
    ASYNC,
    IN_ALLSYNC,
    IN_PLACE,
    OUT_ALLSYNC,
    check_flags,
    sync_modes,
)
from .handles import Handle, post
from .lists import List, permutation
from .plan.recorder import Operand, trace
from .plan.steps import Plan
from .shared import Allocation, SharedArray, SharedPointer, as_address
from .team import Team, resolve

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
    rank: int
    offset: int
    nbytes: int


@dataclass(slots=True)
class Opened:
    """A call of which team and flags are known; `full` has all of them filled in."""

    team: Team
    full: int
    record: Record

    @property
    def posted(self) -> bool:
        """Whether it is only begun."""
        return bool(self.full & ASYNC)

    @property
    def synchronising(self) -> bool:
        """Whether all threads meet in it."""
        return bool(self.full & (IN_ALLSYNC | OUT_ALLSYNC))

    @property
    def sync(self) -> tuple[str, str]:
        """``(in, out)`` as plans have it."""
        return sync_modes(self.full)

    def fail(self, error: Exception) -> NoReturn:
        """Raise the error of an argument, and let no other thread hang."""
        self.team.fail(error, self.record, self.synchronising, posted=self.posted)
        raise error


@dataclass(slots=True)
class Prepared:
    """A call ready to be run.

    Attributes
    ----------
    instance
        What does the work; None if it depends on what shared lists hold.
    meeting
        What has to be run before those may be read.
    read
        Reads them and returns the instance.
    """

    opened: Opened
    allocations: Sequence[Allocation]
    instance: Any = None
    meeting: Sequence[Any] = ()
    read: Callable[[], Any] | None = None

    @property
    def instances(self) -> Iterator[Any]:
        """One after the other; each has to be run before the next one is asked for."""
        yield from self.meeting
        yield self.instance if self.read is None else self.read()

    def run(self) -> Handle | None:
        """Run it, or post it."""
        call = self.opened
        if call.posted:
            return post(Pending(call.team, self.instances, call.record, self.allocations))
        for instance in self.instances:
            instance.execute()
        return None

    def last(self) -> Any:
        """Run all that comes before the work, and return the instance that does it."""
        for instance in self.meeting:
            instance.execute()
        return self.instance if self.read is None else self.read()


@dataclass(slots=True)
class Checked(Opened):
    """A call whose arguments are good; `name` is what its algorithms are registered under."""

    name: str
    targets: list[Target]
    nbytes: int
    root: int
    flags: int

    def fingerprint(self, *more: int, what: str = "") -> int:
        """Of the collective and all its single-valued arguments; `what` of it is done."""
        name = f"{self.name} {what}"
        where = (v for t in self.targets for v in (t.allocation.serial, t.rank, t.offset))
        return fingerprint(name, *where, self.nbytes, self.flags, *more)


def smallest_parts(
    allocation: Allocation, thread: int, team: Team, call: str, argument: str, every: bool = True
) -> Sequence[int]:
    """Threads such that what fits their parts fits those of all the team, and `thread`'s.

    AffinityError if it is not `every` thread's and has to be.
    """
    if not every:
        return (thread,)
    members, threads = allocation.members, team.threads
    if members is threads or members == threads:
        return thread, threads[-1]  # parts never grow from one to the next
    missing = [t for t in threads if allocation.rank_of(t) is None]
    if missing or (not allocation.blocksize and team.size > 1):
        raise AffinityError(
            f"{call}: {argument}: expected memory of which every thread of the team has a part, "
            f"thread {missing[0] if missing else threads[-1]} has none"
        )
    return thread, max(threads, key=members.index)


Given = tuple[str, Any, Shape]
"""An operand of a call as it was given: its name, what it is, what it has to be."""

_PARAMETERS = """
    nbytes : int
        Bytes per block, at least 1.
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library
        choose.
    team : Team, optional
        Whose threads call; default all.

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
        self.__signature__ = signature_of(self.plan)

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    # -- calling -------------------------------------------------------------------------
    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """A call that is not in the cache."""
        call: Prepared = self._told(self._prepare, args, kwargs)
        if call.opened.team.job.native and not call.opened.posted:
            self.remember(args, call.instance, kwargs)
        return call.run()

    def _told(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`takes(*args, **kwargs)`; others are told if an argument is missing or unknown."""
        try:
            return takes(*args, **kwargs)
        except TypeError:
            wrong = self._wrong_names(takes, args, kwargs)
            if wrong is None:  # its own, which it has told
                raise
        team, _ = resolve(kwargs.get("team"), self.__name__)
        team.enter(self.__name__)
        return team.fail(wrong, Record(self.__name__))

    def _wrong_names(
        self, takes: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypeError | None:
        try:
            inspect.signature(takes).bind(*args, **kwargs)
        except TypeError as e:
            return TypeError(f"{self.__name__}: {e}")
        return None

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

    def _plan(self, call: Prepared, **operands: Any) -> BoundPlan:
        """Agree with all threads on the instance, and give it to the user."""
        operands = {name: x for name, x in operands.items() if x is not None}
        team = call.opened.team
        team.enter(f"{self.__name__}.plan")  # all meet, also if it is to be run by ASYNC
        instance = call.last()
        record = Record(f"{self.__name__}.plan", instance.record.arguments)
        team.meet(fingerprint("plan", instance.hash), record)
        return BoundPlan(self, instance, operands, call)

    def _prepare(
        self, dst: Any, src: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> Prepared:
        """Check everything and bind a plan."""
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
        call, given = self.__name__, operands

        def arguments() -> list[tuple[str, str]]:
            return [
                *((name, describe(x)) for name, x, _ in given),
                *([(listed.name, str(listed))] if listed is not None else []),
                ("nbytes", show(nbytes)),
                ("flags", flags_text(flags)),
            ]

        title = f"{call}(nbytes={show(nbytes)}, flags={show(flags)})"
        opened = self._open(team, flags, Record(call, arguments, title=title))
        try:
            in_place = self._in_place(operands, opened.full, opened.team)
            if in_place and not self._rooted:
                operands = operands[:1]
            targets, n, root = self._check_data(operands, nbytes, opened.team, in_place=in_place)
        except Exception as e:
            opened.fail(e)
        name = f"{self.name}_in_place" if in_place else self.name
        bits = operator.index(flags) | IN_PLACE * in_place
        return Checked(opened.team, opened.full, opened.record, name, targets, n, root, bits)

    def _open(self, team: Any, flags: Any, record: Record) -> Opened:
        """Check team and flags; from here on the call is one that the other threads make, too."""
        call = self.__name__
        on, wrong = resolve(team, call)
        full = 0
        try:
            full = self._check_flags(flags)
        except Exception as e:
            wrong = wrong or e
        on.enter(call, posted=bool(full & ASYNC))
        if wrong is not None:
            on.fail(wrong, record, not full or bool(full & (IN_ALLSYNC | OUT_ALLSYNC)))
        return Opened(on, full, record)

    @property
    def _rooted(self) -> bool:
        return self.dst.rooted or self.src.rooted

    def _in_place(self, operands: Sequence[Given], full: int, team: Team) -> bool:
        """Whether a call is one in place; FlagError if it cannot be."""
        (_, dst, _), (_, src, _) = operands
        first = team.threads[0]
        return asks_in_place(self.__name__, dst, src, full, first, rooted=self._rooted)

    def _check_flags(self, flags: Any) -> int:
        call = self.__name__
        return check_flags(as_integer(flags, call, "flags"), call)

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
        rooted = (t.rank for t, (_, _, shape) in zip(targets, operands, strict=True)
                  if shape.rooted)
        root = next(rooted, 0)
        if len(targets) == 2 and not (in_place and self._own_is_shared(targets, n, root)):
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

    def _own_is_shared(self, targets: Sequence[Target], n: int, root: int) -> bool:
        """Whether the root's own block is at one address in dst and in src."""
        places = (
            target.offset + (root * n if shape.blocks == "T" else 0)
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
        if isinstance(x, SharedArray):  # alone it stands for its start on the team's first thread
            thread = team.threads[0] if allocation.blocksize else thread
        rank = team.rank_of(thread)
        if rank is None or not (shape.rooted or rank == 0):
            wanted = "a thread of the team" if shape.rooted else f"thread {team.threads[0]}"
            raise AffinityError(
                f"{call}: {argument}: expected affinity to {wanted}, "
                f"got a pointer with affinity to thread {thread}"
            )
        for where in smallest_parts(allocation, thread, team, call, argument, shape.everywhere):
            if not allocation.holds(where, offset, total):
                start, size = allocation.part(where)
                raise ValueError(
                    f"{call}: {argument}: {total} bytes from offset {offset} are beyond the "
                    f"allocation, which has offsets {start} to {start + size} on thread {where} "
                    f"(nbytes={n})"
                )
        return Target(allocation, rank, offset, total)

    def _meeting(self, call: Opened, signature: int) -> list[Any]:
        """What brings all to where shared lists may be read.

        Every thread reads them, so those must have come to where they may be read, and all
        have read them before their owners may go on to change them (`after_reading`).
        """
        team = call.team
        team.job.engine.expect_reads(team)
        if call.sync[0] != "all":
            return []
        return [team.meeting(signature, call.record)]

    # -- plans -------------------------------------------------------------------------
    def _instance(self, call: Checked) -> Prepared:
        root = (call.root,) if self._rooted else ()
        plan = self._plan_for(call, call.sync, call.root, root)
        instance = self._bind(call, plan, call.fingerprint())
        return Prepared(call, [t.allocation for t in call.targets], instance)

    def _bind(self, call: Checked, plan: Plan, signature: int) -> Any:
        bounds = [Bound(t.allocation.memory, t.offset) for t in call.targets]
        bounds += bounds[:1] * (2 - len(bounds))  # scratch comes third
        try:
            return call.team.make(plan, bounds, signature, call.record)
        except HeapError as e:
            call.record.shared_error = True
            call.fail(e)

    def _plan_for(
        self, call: Checked, sync: tuple[str, str], key: Any, arguments: Sequence[object]
    ) -> Plan:
        """The team's cached plan; `key` is what it depends on besides, as `arguments` say."""
        team, n = call.team, call.nbytes
        flag = call.full & ALGORITHM_MASK
        if not flag:
            flag = team.choices.choose(call.name, n)
        entry = algorithms.find(call.name, flag)

        def build() -> Plan:
            return trace(
                entry.function, entry.name, call.name, team.rank, team.rank_tree, sync,
                team.tuning, [*self._operands(call), *arguments, n],
            )  # fmt: skip

        # all_broadcast_in_place has one operand, an all_broadcast with IN_PLACE two
        return team.plan_for((call.name, len(call.targets), flag, sync, key, n), build)

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

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """The list's contents are data: nothing is remembered unless it is a tuple."""
        call: Prepared = self._told(self._prepare, args, kwargs)
        perm = args[2] if len(args) > 2 else kwargs["perm"]
        if isinstance(perm, tuple) and call.opened.team.job.native and not call.opened.posted:
            self.remember(args, call.instance, kwargs)
        return call.run()

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
        call = self._prepare(dst, src, perm, nbytes, flags, team=team, frozen=True)
        return self._plan(call, dst=dst, src=src)

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
    ) -> Prepared:
        """Check everything but what a shared list holds, and bind a plan when that is read.

        `frozen`: for a plan, which will not look at the list again.
        """
        listed = List("perm", perm)
        operands = ("dst", dst, self.dst), ("src", src, self.src)
        call = self._checked(operands, nbytes, flags, team, listed)
        try:
            target = call.targets[0]
            listed.check(self.__name__, call.team, target.offset, target.nbytes)
        except Exception as e:
            call.fail(e)
        allocations = [t.allocation for t in call.targets]
        if listed.shared is None:
            return Prepared(call, allocations, self._read(call, listed, call.sync))
        allocations.append(listed.shared.allocation)
        sync = call.sync if frozen else after_reading(call.sync)
        meeting = self._meeting(call, call.fingerprint(*listed.where, what="list"))
        return Prepared(
            call, allocations, meeting=meeting, read=lambda: self._read(call, listed, sync)
        )

    def _read(self, call: Checked, listed: List, sync: tuple[str, str]) -> Any:
        """Read the list, and bind the plan that it asks for."""
        on = call.team
        if listed.shared is not None:
            on.job.engine.expect_reads(on)
        try:
            values = permutation(self.__name__, listed.read(on.size))
        except ValueError as e:
            call.fail(e)
        call.record = call.record.with_more(listed.entries(values))
        array = np.array(values, np.int64)
        content = blake2b(array.tobytes(), digest_size=16).digest()
        plan = self._plan_for(call, sync, content, (array,))
        number = int.from_bytes(content[:7], "little")
        return self._bind(call, plan, call.fingerprint(*listed.where, number))


def after_reading(sync: tuple[str, str]) -> tuple[str, str]:
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

    def __init__(
        self, collective: Collective, instance: Any, operands: dict[str, Any], call: Prepared
    ) -> None:
        self.collective = collective
        self.instance = instance
        self.operands = operands
        self.algorithm: str = instance.plan.algorithm
        self._call = call
        self._started: Pending | None = None
        self._bind()

    def _bind(self) -> None:
        if self.instance.owner.job.native and not self._call.opened.posted:
            self.bind(self.instance)

    def slow(self) -> Handle | None:
        """A call after something was freed, or too far ahead, or on the Python engine."""
        if self._call.opened.posted:
            return self.start()
        self._check(posted=False)
        self._bind()
        self.instance.execute()
        return None

    def start(self) -> Handle:
        """Post the call; collective, under the plan's flags, one at a time."""
        self._check(posted=True)
        instance: Any = self.instance
        if self._started in instance.owner.job.unfinished:
            raise XupcError(f"{instance.record.call}.start: it has been started: wait for that")
        pending = Pending(instance.owner, [instance], instance.record, self._call.allocations)
        self._started = pending
        return post(pending)

    def _check(self, *, posted: bool) -> None:
        """That it can be run: all is still there."""
        call = f"{self.collective.__name__}.plan"
        instance, team = self.instance, self._call.opened.team
        if team.job is not runtime.world().job:
            raise XupcError(f"{call}: the plan is of an earlier init()")
        team.enter(call, posted=posted)
        for argument, x in self.operands.items():
            try:
                as_address(x)[0].check_live(call, argument)
            except ValueError as e:
                team.fail(e, Record(call, instance.record.arguments), posted=posted)

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

    def _in_place(self, operands: Sequence[Given], full: int, team: Team) -> bool:
        if full & IN_PLACE:
            raise FlagError(f"{self.__name__}: flags: IN_PLACE is what it always does")
        return False

    def _operands(self, call: Checked) -> list[Operand]:
        return [Operand(0), Operand(0)]

    def _prepare(  # type: ignore[override]
        self, buf: Any, nbytes: Any, flags: Any = 0, *, team: Team | None = None
    ) -> Prepared:
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
    "Overwrite the block at buf's address on every other thread with that of buf's thread "
    "(XUPC paper, III.C).",
    _ONE_EVERYWHERE_FROM_ROOT,
    _ONE_EVERYWHERE_FROM_ROOT,
)
all_permute = Permute(
    "permute",
    "Copy the block at src of thread i to dst on thread perm[i] (UPC 1.3, 7.4.2.6).",
    _ONE_EVERYWHERE,
    _ONE_EVERYWHERE,
)
