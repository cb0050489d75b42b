"""Arrays of values: collectives on private arrays, with no shared memory in sight.

As in `xupc.api.collectives` an object per collective. What it needs from other threads travels
through the library's own scratch. A call that repeats another one in everything but where the
arrays lie goes straight to its bound plan (`CachedArrays`).

The memory of a call is nobody else's, so its sync flags say nothing: a call waits for its data,
and, where others take long blocks straight from its arrays, until they have. A difference
between threads' calls is seen by those who wait for each other, before they take anything, and
by all others at the next call that synchronises.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.values import transforms
from ..algorithms.values_reduce_scatter import ReduceScatter
from ..algorithms.values_reduce_spec import ReduceSpec
from ..backends.interpreter import interpreter as python_engine
from ..backends.native.native_core import core
from ..errors import FlagError, HeapError, OverlapError, show
from ..fingerprint import fingerprint
from ..flags import ASYNC, IN_PLACE, REPRODUCIBLE, check_flags
from ..health.call_record import CallRecord
from ..ops import Op
from ..reduction import kernels
from ..reduction.structured_dtypes import name as name_of
from ..runtime.async_queue import AsyncCall
from ..runtime.operand_binding import PrivateOperand
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec, call_name
from .argument_checks import as_integer, flags_text, func_name, op_name
from .call_cache import BoundPlan
from .handles import Handle, post
from .team import resolve

__all__ = [
    "ArrayCall",
    "allav_broadcast",
    "allav_exchange",
    "allav_gather",
    "allav_gather_all",
    "allav_permute",
    "allav_prefix_reduce",
    "allav_reduce",
    "allav_reduce_all",
    "allav_reduce_scatter",
    "allav_scatter",
    "allav_suffix_reduce",
]

_HotArrays: Any = python_engine.CachedArrays if core is None else core.CachedArrays
if core is not None:
    _sample = np.arange(6.0).reshape(2, 3)
    core.know_arrays(np.ndarray, _sample, _sample.ctypes.data, _sample.size)

Array = NDArray[Any]


@dataclass(slots=True)
class RawArguments:
    """A call's arguments, as they were given."""

    dst: Any
    src: Any
    op: Any
    root: Any
    func: Any
    flags: Any

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RawArguments:
        """By their names."""
        get = values.get
        dst, root = get("dst", get("values")), get("root", get("to"))
        return cls(dst, get("src"), get("op"), root, get("func"), get("flags", 0))

    @property
    def posted(self) -> bool:
        """Whether the call is only begun."""
        try:
            return bool(operator.index(self.flags) & ASYNC)
        except Exception:  # it is no number: said where flags are checked
            return False


@dataclass(frozen=True, slots=True)
class Arrays:
    """What a thread gives and takes.

    Attributes
    ----------
    dst, src
        The arrays as given; None on threads that have none.
    in_place
        Whether dst is src as well.
    n, dtype
        Elements of a block, and their type on the way.
    """

    dst: Array | None
    src: Array | None
    in_place: bool
    n: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Of a block."""
        return self.n * int(self.dtype.itemsize)


@dataclass(slots=True)
class Ready:
    """A call whose arguments are good.

    Attributes
    ----------
    instance
        Bound to `dst` and `src`; None of a call that moves nothing.
    dst, src
        The arrays that it works on: contiguous ones.
    into
        Where the result is to be copied, None if it is there.
    """

    instance: Any
    dst: Array | None = None
    src: Array | None = None
    into: Array | None = None
    in_place: bool = False

    def steps(self) -> Iterator[Any]:
        """What is to be run; the rest is done when that has come to its end."""
        if self.instance is not None:
            yield self.instance
            self.finish()

    def finish(self) -> None:
        """When the instance has come to its end."""
        if self.into is not None:
            assert self.dst is not None
            self.into[...] = self.dst.reshape(self.into.shape)


@dataclass(frozen=True, slots=True)
class Kind:
    """What all threads have to agree on: of an instance, its name."""

    nbytes: int
    dtype: str
    root: int
    op: int
    func: Any
    flags: int
    in_place: bool
    perm: bytes = b""


class ArrayCall(_HotArrays):  # type: ignore[misc]
    """A collective on private arrays, T threads, n elements each: ``{signature}``.

    Elements are taken in C order, whatever an array's shape and strides; any dtype but objects,
    the same in all arrays and on all threads (XUPC paper, III.C: array-of-values variants).

    Parameters
    ----------
    {parameters}
    flags : int
        `xupc.Flags`; sync flags are accepted and change nothing, no algorithm flag lets the
        library choose. With ASYNC the call is only begun.
    team : Team, optional
        Who takes part; default all threads.

    Returns
    -------
    None or Handle
        A handle with ASYNC; the arrays are the call's until it is done.

    Raises
    ------
    TypeError, ValueError, FlagError, OverlapError, HeapError
        On a thread whose arguments are wrong, before anything moves.
    CollectiveMismatchError
        If the threads' calls differ: on those who wait for each other in it, on the others
        at the next call that synchronises.
    """

    def __init__(self, spec: CollectiveSpec, form: str = "allav", kind: str = "") -> None:
        self.spec = spec
        self.src_spec = None if spec.one_array else spec.src
        self.collective = call_name(spec, "allav")
        self.name = spec.name
        self.__name__ = call_name(spec, form)
        self.scalar = form == "allv"
        self.kind = kind
        self.names = _arguments(spec)
        signature = ", ".join(
            f"{x}={'None' if x in ('func', 'team') else 0}" if x in ("func", "flags", "team") else x
            for x in self.names
        )
        about = {**_WORDS, "dst": _about_dst(spec), "src": _about_src(spec)}
        parameters = "\n    ".join(f"{x} : {about[x]}" for x in self.names if x in about)
        self.__signature__ = _signature_of(self.names)
        words = str(ArrayCall.__doc__).format(
            signature=f"{self.__name__}({signature})", parameters=parameters
        )
        self.__doc__ = f"{spec.summary[form]}\n\n{words}"

    def __repr__(self) -> str:
        return f"<xupc collective {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__

    # -- calling -------------------------------------------------------------------------
    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """A call of a kind that is not in the cache."""
        team, given = self._given(args, kwargs)
        ready = self._prepare(team, given, own=given.posted)
        if given.posted:
            return post(AsyncCall(team, ready.steps(), self._record(given, None)))
        if ready.instance is not None:
            self._remember(args, kwargs, ready, given)
            ready.instance.execute()
            ready.finish()
        return None

    def plan(self, *args: Any, **kwargs: Any) -> ArrayPlan:
        """A plan bound to these arrays; collective itself, like the call."""
        team, given = self._given(args, kwargs)
        team.enter(f"{self.__name__}.plan")  # all meet, also if it is to be run by ASYNC
        ready = self._prepare(team, given, own=True)
        of = self._record(given, None) if ready.instance is None else ready.instance.record
        record = CallRecord(f"{self.__name__}.plan", of.arguments)
        signature = 0 if ready.instance is None else ready.instance.hash
        team.meet(fingerprint("plan", signature), record)
        return ArrayPlan(self, team, ready, given)

    def _remember(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ready: Ready, given: RawArguments,
        note: Any = None,
    ) -> None:  # fmt: skip
        """Only where the arrays given are those that the instance works on.

        And where each can be told by itself: not if an ignored argument is the same array.
        """
        if (
            ready.into is None
            and (ready.in_place or given.dst is not given.src)
            and (ready.dst is None or ready.dst is given.dst)
            and (ready.src is None or ready.src is given.src)
            and ready.instance.owner.job.native
        ):
            src = given.src if ready.in_place else ready.src
            self.remember(args, kwargs, ready.instance, ready.dst, src, ready.in_place, note)

    def _given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[TeamState, RawArguments]:
        """The team and the arguments by name."""
        values, wrong = self._by_name(args, kwargs)
        team, foreign = resolve(values.get("team"), self.__name__)
        given = RawArguments.of(values)
        team.enter(self.__name__, posted=given.posted)
        if (error := foreign or wrong) is not None:
            team.fail(error, CallRecord(self.__name__), posted=given.posted)
        return team, given

    def _by_name(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], TypeError | None]:
        """The arguments by name, and what is wrong with their number or names."""
        names, call = self.names, self.__name__
        values: dict[str, Any] = dict(zip(names, args, strict=False))
        wrong = ""
        if len(args) > len(names):
            wrong = f"at most {len(names)} arguments expected, got {len(args)}"
        for name, value in kwargs.items():
            if name not in names:
                wrong = f"got an unexpected argument {name!r}"
            elif name in values:
                wrong = f"got {name} twice"
            else:
                values[name] = value
        optional = {"func", "flags", "team", *(("src",) if self.spec.transforms else ())}
        missing = [name for name in names if name not in values and name not in optional]
        if missing and not wrong:
            wrong = f"missing {', '.join(missing)}"
        return values, TypeError(f"{call}: {wrong}") if wrong else None

    def _prepare(self, team: TeamState, given: RawArguments, *, own: bool = False) -> Ready:
        """Check everything; a bound instance, `own`: not one that other calls use, too."""
        record = self._record(given, None)
        try:
            full = self._check_flags(given)
            found = self._arrays(team, given)
            kernel = None
            if self.spec.computes:
                kernel = kernels.find(found.dtype, given.op, given.func, self.__name__)
            root = 0
            if self.spec.root:
                root = self._rank(given.root, team, "root")
            record = self._record(given, found)
            kind = Kind(
                found.nbytes, name_of(found.dtype), root,
                -1 if kernel is None else int(given.op), None if kernel is None else given.func,
                operator.index(given.flags), found.in_place,
            )  # fmt: skip
            if kind.nbytes == 0:
                team.note(self._signature(kind), record)
                return Ready(None)
            kind = self._in_place_or_not(team, kind, full)
            return self._bind(team, kind, full, kernel, found.dst, found.src, record, own=own)
        except Exception as e:
            return team.fail(e, record, posted=given.posted)  # type: ignore[no-any-return]

    # -- arguments -----------------------------------------------------------------------
    def _record(self, given: RawArguments, found: Arrays | None) -> CallRecord:
        """What has to be equal on all threads; put into words when somebody asks."""
        op, func, root, flags = given.op, given.func, given.root, given.flags
        elements = "" if found is None else f"{found.n} x {found.dtype}"

        def arguments() -> list[tuple[str, str]]:
            out = []
            if elements:
                out.append(("elements", elements))
            if self.kind:
                out.append(("type", self.kind))
            if self.spec.computes:
                out += [("op", op_name(op)), ("func", func_name(func))]
            if self.spec.root:
                out.append(("root", show(root)))
            out.append(("flags", flags_text(flags)))
            return out

        return CallRecord(self.__name__, arguments, title=f"{self.__name__}({elements})")

    def _check_flags(self, given: RawArguments) -> int:
        call = self.__name__
        full = check_flags(as_integer(given.flags, call, "flags"), call)
        if full & ASYNC and self.scalar:
            raise FlagError(f"{call}: flags: ASYNC is for arrays: a value has to be returned")
        if full & IN_PLACE:
            if not self.spec.transforms:
                raise FlagError(f"{call}: flags: IN_PLACE is not for this call")
            if given.src is not None and given.src is not given.dst:
                raise FlagError(f"{call}: flags: IN_PLACE, but src is neither None nor dst")
        return full

    def _rank(self, value: Any, team: TeamState, argument: str) -> int:
        call = self.__name__
        rank = as_integer(value, call, argument)
        if not 0 <= rank < team.size:
            raise ValueError(
                f"{call}: {argument}: expected 0 <= {argument} < {team.size}, got {rank}"
            )
        return rank

    def _arrays(self, team: TeamState, given: RawArguments) -> Arrays:
        """What this thread's arrays are, if they go together."""
        call, spec, own = self.__name__, self.spec, self.src_spec
        at_root = not spec.root or self._rank(given.root, team, "root") == team.rank
        dst = src = None
        if at_root or spec.dst.everywhere:
            name = "values" if own is None else "dst"
            dst = self._array(given.dst, name)
            if not dst.flags.writeable and not (name == "values" and at_root):
                raise ValueError(f"{call}: {name}: the array is read-only")
        in_place = own is None
        if own is not None and (at_root or own.everywhere):
            if spec.transforms and dst is not None and (given.src is None or _same(given.src, dst)):
                in_place = True
            else:
                src = self._array(given.src, "src")
        either = dst if dst is not None else src
        assert either is not None
        if dst is not None and src is not None:
            if dst.dtype != src.dtype:
                raise TypeError(f"{call}: dst: expected {src.dtype} as in src, got {dst.dtype}")
            if _overlap(dst, src):
                raise OverlapError(f"{call}: dst and src overlap")
        n = self._block(team, dst, src)
        return Arrays(dst, src, in_place, n, self._travels_as(either.dtype))

    def _array(self, x: Any, name: str) -> Array:
        call = self.__name__
        if not isinstance(x, np.ndarray):
            raise TypeError(f"{call}: {name}: expected an ndarray, got {show(x)}")
        if x.dtype.hasobject:
            raise TypeError(f"{call}: {name}: objects cannot travel, dtype {x.dtype}")
        return x

    def _block(self, team: TeamState, dst: Array | None, src: Array | None) -> int:
        """Elements of a block; all arrays must have what that means."""
        call, spec, t = self.__name__, self.spec, team.size
        if src is not None and spec.src.blocks == 1:
            n = src.size
        elif dst is not None and spec.dst.blocks == 1:
            n = dst.size
        else:
            x, name = (dst, "dst") if dst is not None else (src, "src")
            assert x is not None
            n = x.size // t
            if n * t != x.size:
                raise ValueError(
                    f"{call}: {name}: expected the same number of elements for each of {t} "
                    f"threads, got {x.size}"
                )
        for x, blocks, name in ((dst, spec.dst.blocks, "dst"), (src, spec.src.blocks, "src")):
            if x is not None and x.size != n * (t if blocks == "T" else 1):
                raise ValueError(
                    f"{call}: {name}: expected {n * (t if blocks == 'T' else 1)} elements "
                    f"({'T blocks' if blocks == 'T' else 'a block'} of {n}), got {x.size}"
                )
        return n

    # -- plans -------------------------------------------------------------------------
    def _signature(self, kind: Kind) -> int:
        return fingerprint(
            self.__name__, self.kind, kind.nbytes, kind.dtype, kind.root, kind.op,
            func_name(kind.func), kind.flags & ~IN_PLACE,
        )  # fmt: skip

    def _in_place_or_not(self, team: TeamState, kind: Kind, full: int) -> Kind:
        """In place only if the algorithm can."""
        if not (kind.in_place and self.src_spec):
            return kind
        flag = team.algorithm_flag(self.collective, full, kind.nbytes)
        can = transforms(self.name, flag, team.rank_tree, team.tuning, kind.nbytes)
        return kind if can else replace(kind, in_place=False)

    def _bind(
        self, team: TeamState, kind: Kind, full: int, kernel: Any, dst: Array | None,
        src: Array | None, record: CallRecord, *, own: bool = False,
    ) -> Ready:
        """The instance, bound to these arrays or to contiguous copies of them."""
        ready = Ready(None, dst, src, None, kind.in_place)
        try:  # before the plan is made: there may be no room for what a strided array stands for
            self._copies(ready)
        except MemoryError as e:
            raise HeapError(f"{self.__name__}: no memory for a contiguous copy: {e}") from None
        make = self._new_instance if own else self._instance
        ready.instance = instance = make(team, kind, full, kernel, record)
        at = 0 if ready.dst is None else ready.dst.ctypes.data
        of = 0 if ready.src is None else ready.src.ctypes.data
        instance.rebind(at, of)
        return ready

    def _copies(self, ready: Ready) -> None:
        """Put contiguous copies where the core cannot take the arrays that were given."""
        dst, src = ready.dst, ready.src
        if src is None and not ready.in_place and self.spec.transforms:
            assert dst is not None
            src = ready.src = dst.copy()  # what the algorithm cannot do in place
        if dst is not None and not self._plain(dst):
            if dst.flags.writeable:
                ready.into = dst
            ready.dst = dst.astype(self._travels_as(dst.dtype), "C", subok=False)
        if src is not None and not self._plain(src):
            ready.src = src.astype(self._travels_as(src.dtype), "C", subok=False)

    def _plain(self, x: Array) -> bool:
        """Whether the core can take an array as it is."""
        return _plain(x) and (x.dtype.isnative or not self.spec.computes)

    def _travels_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What is reduced is in the native byte order."""
        return dtype.newbyteorder("=") if self.spec.computes else dtype

    def _instance(
        self, team: TeamState, kind: Kind, full: int, kernel: Any, record: CallRecord
    ) -> Any:
        """The one of this kind, kept by the team."""
        # a func is kept by its instance, so that nothing else has its id
        key = (self.__name__, self.kind, kind if kind.func is None else replace(kind, func=None),
               id(kind.func) if kind.func is not None else 0)  # fmt: skip
        return team.instances.get(
            key, lambda: self._new_instance(team, kind, full, kernel, record)
        )

    def _new_instance(
        self, team: TeamState, kind: Kind, full: int, kernel: Any, record: CallRecord
    ) -> Any:
        plan = self._plan_of(team, kind, full, kernel)
        bounds: list[Any] = [PrivateOperand(), PrivateOperand()]
        return team.make(plan, bounds, self._signature(kind), record)

    def _plan_of(self, team: TeamState, kind: Kind, full: int, kernel: Any) -> Any:
        """The team's cached plan."""
        arguments: list[Any] = [kind.root, kind.nbytes, kind.in_place]
        out = "no"
        if kernel is not None:
            arguments = [self._reduction(kind, full, kernel)]
            if kernel.func is not None:
                out = "all"  # what it raises all threads raise before they have a result
        elif kind.perm:
            arguments = [np.frombuffer(kind.perm, np.int64), kind.nbytes, kind.in_place]
        key = kind.root, kind.nbytes, kind.in_place, kind.perm, full & REPRODUCIBLE
        return team.planned(
            self.collective, full, kind.nbytes, ("no", out), key, arguments, kernel, private=True
        )


    def _reduction(self, kind: Kind, full: int, kernel: Any) -> ReduceSpec | ReduceScatter:
        """Return what the algorithms of a reduction take."""
        ordered = kernel.op == Op.NONCOMM_FUNC
        exact = ordered or bool(full & REPRODUCIBLE)
        size = kernel.dtype.itemsize
        nelems = kind.nbytes // size
        if self.spec.src.blocks == "T":
            return ReduceScatter(nelems, size, ordered, exact)
        to = kind.root if self.spec.root else None
        return ReduceSpec(nelems, size, to, ordered, exact, kind.in_place)


def _plain(x: Array) -> bool:
    """Whether the core can take an array as it is."""
    return bool(x.flags.c_contiguous and x.flags.aligned)


def _same(x: Any, dst: Array) -> bool:
    """Whether src is dst, perhaps as another view of the same elements."""
    return x is dst or (
        isinstance(x, np.ndarray)
        and x.dtype == dst.dtype
        and x.shape == dst.shape
        and x.strides == dst.strides
        and x.ctypes.data == dst.ctypes.data
    )


def _overlap(a: Array, b: Array) -> bool:
    """Whether two arrays have bytes in common; in doubt they have."""
    if not np.may_share_memory(a, b):
        return False
    if _plain(a) and _plain(b):
        return True
    try:
        return np.shares_memory(a, b, max_work=10000)  # type: ignore[arg-type]
    except RuntimeError:  # too hard
        return True


_WORDS = {
    "values": "ndarray, n elements\n        The root's; overwritten on the others.",
    "to": "int\n        The thread that gets my values; all together a permutation.",
    "op": "Op\n        ``xupc.ADD`` and so on; with FUNC and NONCOMM_FUNC comes `func`.\n"
    "        Records of a value and an index have MINLOC and MAXLOC, any records FUNC.",
    "root": "int\n        A thread, by its rank in the team.",
    "func": "callable, optional\n        Of two scalars or records; a numpy ufunc, or what "
    "`xupc.vectorized` marks, of two arrays.",
}


def _about_dst(spec: CollectiveSpec) -> str:
    elements = _elements(spec.dst.blocks)
    if not spec.dst.everywhere:
        return f"ndarray, {elements}\n        The root's; None elsewhere, or ignored."
    return f"ndarray, {elements}\n        Where the result goes."


def _about_src(spec: CollectiveSpec) -> str:
    elements = _elements(spec.src.blocks)
    if not spec.src.everywhere:
        return f"ndarray, {elements}\n        The root's; None elsewhere, or ignored."
    if spec.transforms:
        own = ", as block MYTHREAD of it" if spec.dst != spec.src else ""
        return (
            f"ndarray, {elements}, or None\n        What this thread gives. "
            f"None, or dst itself: it is in dst{own}, which is\n        changed in place."
        )
    return f"ndarray, {elements}\n        What this thread gives."


def _elements(blocks: int | str) -> str:
    return "T * n elements" if blocks == "T" else "n elements"


def _arguments(spec: CollectiveSpec) -> tuple[str, ...]:
    """Return the names of the arguments, in order."""
    arrays = ("values",) if spec.one_array else ("dst", "src")
    to = ("to",) if spec.permutes else ()
    op = ("op",) if spec.computes else ()
    root = ("root",) if spec.root else ()
    func = ("func",) if spec.computes else ()
    return (*arrays, *to, *op, *root, *func, "flags", "team")


def _signature_of(names: tuple[str, ...]) -> inspect.Signature:
    """What users see of them."""
    optional = {"func": None, "flags": 0, "team": None}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    empty = inspect.Parameter.empty
    return inspect.Signature(
        [inspect.Parameter(x, kind, default=optional.get(x, empty)) for x in names]
    )


class ArrayPlan(BoundPlan):
    """A plan on private arrays."""

    def __init__(self, call: ArrayCall, team: TeamState, ready: Ready, given: RawArguments) -> None:
        super().__init__(call.__name__, team, ready.instance, posted=given.posted)
        self._record = call._record(given, None)
        self.ready = ready
        self.copies = [
            (mine, theirs)
            for mine, theirs in (
                (ready.dst, given.dst),
                (ready.src, given.dst if given.src is None else given.src),
            )
            if mine is not None and mine is not theirs
        ]  # fmt: skip

    def _fill(self) -> None:
        """Copy what arrays that are not contiguous hold, when the call begins.

        Not when it is posted: an earlier one may be under way with what they held then.
        """
        for mine, theirs in self.copies:
            mine[...] = theirs.reshape(mine.shape)

    def _steps(self) -> Iterator[Any]:
        self._fill()
        yield from self.ready.steps()

    def _run(self) -> None:
        self._fill()
        if self.instance is None:
            return
        if not self.copies and self.team.job.native:
            self.bind(self.instance)
        self.instance.execute()
        self.ready.finish()

    def _pending(self) -> AsyncCall:
        return AsyncCall(self.team, self._steps(), self._record)


@dataclass(slots=True)
class PermuteTargets:
    """What comes before a permute: everybody hears of everybody's `to`.

    Attributes
    ----------
    instance
        What tells them, from `mine` to `every`.
    kind, full, record
        The permute itself, of an unknown permutation.
    work, last
        Its instance when `every` was this.
    """

    team: TeamState
    instance: Any
    mine: Array
    every: Array
    kind: Kind
    full: int
    record: CallRecord
    work: Any = None
    last: bytes = b""

    def bound(self) -> Any:
        """The instance, which others may have used for their own."""
        self.instance.rebind(self.every.ctypes.data, self.mine.ctypes.data)
        return self.instance


class Permute(ArrayCall):
    """As the others; `to` differs from thread to thread, so all are told of it first."""

    def __init__(self, spec: CollectiveSpec, form: str = "allav", kind: str = "") -> None:
        super().__init__(spec, form, kind)
        self._tell = ArrayCall(SPECS["gather_all"], form)
        self._tell.__name__ = self.__name__
        self._tell.kind = kind

    def __call__(self, *args: Any, **kwargs: Any) -> Handle | None:
        telling: PermuteTargets | None = self.note_of(args, kwargs)
        if telling is None:
            return self.slow(args, kwargs)
        telling.bound().execute()
        if telling.every.tobytes() == telling.last:
            telling.work.execute()
        else:
            given = RawArguments.of(self._by_name(args, kwargs)[0])
            self._run(telling, given, args, kwargs)
        return None

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """A call of a kind that is not in the cache."""
        team, given = self._given(args, kwargs)
        telling = self._first(team, given, own=given.posted)
        if given.posted:
            return post(AsyncCall(team, self._steps(telling, given), telling.record))
        telling.bound().execute()
        self._run(telling, given, args, kwargs)
        return None

    def _prepare(self, team: TeamState, given: RawArguments, *, own: bool = False) -> Ready:
        """Check everything, hear of all threads' `to`; a bound instance."""
        telling = self._first(team, given, own=own)
        telling.bound().execute()
        return self._work(telling, given, own=own)

    def _steps(self, telling: PermuteTargets, given: RawArguments) -> Iterator[Any]:
        """What is to be run of a posted call."""
        yield telling.bound()
        yield from self._work(telling, given, own=True).steps()

    def _first(self, team: TeamState, given: RawArguments, *, own: bool) -> PermuteTargets:
        """Check what can be checked here."""
        record = self._record(given, None)
        try:
            full = self._check_flags(given)
            found = self._arrays(team, given)
            to = self._rank(given.root, team, "to")
        except Exception as e:
            team.fail(e, record, posted=given.posted)
            raise
        record = self._record(given, found)
        flags = operator.index(given.flags)
        kind = Kind(
            found.nbytes, name_of(found.dtype), 0, -1, None, flags, found.in_place
        )
        # all else that has to be equal is in the fingerprint of this
        told = Kind(8, f"{kind.nbytes} {kind.dtype}", 0, -1, None, kind.flags, False)
        make = self._tell._new_instance if own else self._tell._instance
        instance = make(team, told, full & ~ASYNC, None, record)
        mine, every = np.array([to], np.int64), np.empty(team.size, np.int64)
        return PermuteTargets(team, instance, mine, every, kind, full, record)

    def _work(self, telling: PermuteTargets, given: RawArguments, *, own: bool = False) -> Ready:
        """When all have been told: the work, bound to these arrays."""
        team, full = telling.team, telling.full
        record = telling.record.with_more([])  # what goes wrong now is not said of later calls
        givers: dict[int, int] = {}
        for rank, target in enumerate(telling.every.tolist()):
            if target in givers:
                text = f"threads {givers[target]} and {rank} both give to {target}"
                error = ValueError(f"{self.__name__}: to: {text}: expected a permutation")
                team.fail(error, record)
            givers[target] = rank
        kind = replace(telling.kind, perm=telling.every.tobytes())
        if not kind.nbytes:
            return Ready(None)
        try:
            kind = self._in_place_or_not(team, kind, full)
            src = None if telling.kind.in_place else given.src
            return self._bind(team, kind, full, None, given.dst, src, record, own=own)
        except HeapError as e:
            return team.fail(e, record)  # type: ignore[no-any-return]

    def _run(
        self,
        telling: PermuteTargets,
        given: RawArguments,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """The work, which is remembered."""
        ready = self._work(telling, given)
        if ready.instance is not None:
            note = replace(telling, work=ready.instance, last=telling.every.tobytes())
            self._remember(args, kwargs, ready, given, note)
            ready.instance.execute()
            ready.finish()


allav_broadcast = ArrayCall(SPECS["broadcast"])
allav_scatter = ArrayCall(SPECS["scatter"])
allav_gather = ArrayCall(SPECS["gather"])
allav_gather_all = ArrayCall(SPECS["gather_all"])
allav_exchange = ArrayCall(SPECS["exchange"])
allav_permute = Permute(SPECS["permute"])
allav_reduce = ArrayCall(SPECS["reduce"])
allav_reduce_all = ArrayCall(SPECS["reduce_all"])
allav_reduce_scatter = ArrayCall(SPECS["reduce_scatter"])
allav_prefix_reduce = ArrayCall(SPECS["prefix_reduce"])
allav_suffix_reduce = ArrayCall(SPECS["suffix_reduce"])
