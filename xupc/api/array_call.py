"""A collective on private arrays: checks, instance and cached call.

Data of other threads travels through the library's own scratch. A call that repeats another one
in everything but the addresses of its arrays goes straight to its bound plan (`CachedArrays`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..algorithms.values import transforms
from ..algorithms.values_reduce_scatter import ReduceScatter
from ..algorithms.values_reduce_spec import ReduceSpec
from ..backends.operand_binding import PrivateOperand
from ..errors import FlagError, HeapError, OverlapError, show
from ..fingerprint import fingerprint
from ..flags import ASYNC, EXCLUSIVE, IN_PLACE, REPRODUCIBLE, check_flags
from ..health.call_record import CallRecord
from ..ops import Op
from ..pgas.integer_arguments import as_integer
from ..pgas.private_memory import array_of
from ..records import replace
from ..reduction import kernels
from ..reduction.structured_dtypes import name as name_of
from ..runtime.async_queue import AsyncCall
from ..runtime.team_state import TeamState
from ..specs import CollectiveSpec, call_name, exclusive_of
from .argument_checks import flags_text, func_name, named_flags, op_name
from .array_arguments import Array, Arrays, Kind, RawArguments, Ready, overlap, plain, same_elements
from .array_signatures import (
    FLAGS_AND_TEAM,
    RETURNED,
    WORDS,
    about_dst,
    about_src,
    argument_names,
    signature_with,
)
from .call_cache import BoundPlan, CachedArrays, NamedCall
from .handles import Handle, post
from .team import resolve

__all__ = [
    "ArrayCall",
    "ArrayPlan",
]


class ArrayCall(NamedCall, CachedArrays):  # type: ignore[misc]
    """A collective on private arrays, T threads, n elements each: ``{signature}``.

    Elements are taken in C order, whatever an array's shape and strides; any dtype but objects,
    the same in all arrays and on all threads (XUPC paper, III.C: array-of-values variants). Where
    an ndarray is asked for, an object with the buffer protocol or with DLPack on the CPU will do;
    where it is only read, also a list or tuple, whose values are copied. No masked arrays.

    Parameters
    ----------
    {parameters}
    {flags_and_team}
    algorithm : str, optional
        A variant by name, such as ``"multicore:rounds"`` (`xupc algorithms` lists them).

    Returns
    -------
    {returned}

    Raises
    ------
    TypeError, ValueError, FlagError, OverlapError, HeapError
        On a thread whose arguments are wrong, before anything moves.
    CollectiveMismatchError
        If the threads' calls differ: on threads that wait for each other in the call, on others
        at the next call that synchronises.
    """

    def __init__(self, spec: CollectiveSpec, form: str = "allav", kind: str = "") -> None:
        self.spec = spec
        self.src_spec = None if spec.one_array else spec.src
        self.collective = call_name(spec, "allav")
        self.name = spec.name
        self.__name__ = call_name(spec, form)
        self.__module__ = "xupc.api.private_arrays"  # for pickles
        self.scalar = form == "allv"
        self.kind = kind
        self.names = argument_names(spec)
        signature = ", ".join(
            f"{x}={'None' if x in ('func', 'team') else 0}" if x in ("func", "flags", "team") else x
            for x in self.names
        )
        about = {**WORDS, "dst": about_dst(spec), "src": about_src(spec)}
        parameters = "\n    ".join(f"{x} : {about[x]}" for x in self.names if x in about)
        self.__signature__ = signature_with(self.names)
        text = str(ArrayCall.__doc__).format(
            signature=f"{self.__name__}({signature})", parameters=parameters,
            flags_and_team=FLAGS_AND_TEAM, returned=RETURNED,
        )
        self.__doc__ = f"{spec.summary[form]}\n\n{text}"

    # -- calling -------------------------------------------------------------------------
    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle | None:
        """Make a call of a kind that is not in the cache."""
        team, given = self._given(args, kwargs)
        ready = self._prepare(team, given, own=given.posted)
        if given.posted:
            return post(AsyncCall(team, ready.steps(), self._record(given, None)))
        if ready.instance is not None:
            self._remember(args, kwargs, ready, given)
            ready.instance.execute()
            ready.finish()
        return None

    def bound(self, *args: Any) -> tuple[Ready, bool]:
        """Return a posted call bound to an instance of its own, and whether it works on copies.

        `args` are all arguments, with flags and team. Not collective; the caller runs the call.
        """
        *given_first, flags, team = args
        state, given = self._given((*given_first, flags | ASYNC, team), {})
        ready = self._prepare(state, given, own=True)
        pairs = ((ready.dst, given.dst), (ready.src, given.src))
        return ready, any(mine is not None and mine is not theirs for mine, theirs in pairs)

    def plan(self, *args: Any, **kwargs: Any) -> ArrayPlan:
        """Return a plan bound to these arrays; collective itself, like the call."""
        team, given = self._given(args, kwargs)
        team.enter(f"{self.__name__}.plan")  # all threads meet, also with ASYNC
        ready = self._prepare(team, given, own=True)
        of = self._record(given, None) if ready.instance is None else ready.instance.record
        record = CallRecord(f"{self.__name__}.plan", of.arguments)
        signature = 0 if ready.instance is None else ready.instance.hash
        team.meet(fingerprint("plan", signature), record)
        return ArrayPlan(self, team, ready, given)

    def plan_alone(self, *args: Any) -> ArrayPlan:
        """Return a plan as `plan` does, without a meeting: the caller ensures that all make it."""
        team, given = self._given(args, {})
        return ArrayPlan(self, team, self._prepare(team, given, own=True), given)

    def _remember(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], ready: Ready, given: RawArguments,
        note: Any = None,
    ) -> None:  # fmt: skip
        """Cache the call if the instance works on the arrays as given.

        It must be able to distinguish them: an ignored argument must not be the same array.
        """
        if (
            ready.into is None
            and not given.converted  # a list has no address; what shows a tensor's ends
            and (ready.in_place or given.dst is not given.src)
            and (ready.dst is None or ready.dst is given.dst)
            and (ready.src is None or ready.src is given.src)
            and ready.instance.owner.native
        ):
            src = given.src if ready.in_place else ready.src
            self.remember(args, kwargs, ready.instance, ready.dst, src, ready.in_place, note)

    def _given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[TeamState, RawArguments]:
        """Return the team and the arguments by name."""
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
        """Return the arguments by name, and an error in their number or names."""
        names, call = self.names, self.__name__
        values: dict[str, Any] = dict(zip(names, args, strict=False))
        wrong = ""
        if len(args) > len(names):
            wrong = f"at most {len(names)} arguments expected, got {len(args)}"
        for name, value in kwargs.items():
            if name == "algorithm":
                continue
            if name not in names:
                wrong = f"got an unexpected argument {name!r}"
            elif name in values:
                wrong = f"got {name} twice"
            else:
                values[name] = value
        if (algorithm := kwargs.get("algorithm")) is not None:
            values["flags"] = named_flags(call, values.get("flags", 0), algorithm)
        optional = {"func", "flags", "team", *(("src",) if self.spec.transforms else ())}
        missing = [name for name in names if name not in values and name not in optional]
        if missing and not wrong:
            wrong = f"missing {', '.join(missing)}"
        return values, TypeError(f"{call}: {wrong}") if wrong else None

    def _prepare(self, team: TeamState, given: RawArguments, *, own: bool = False) -> Ready:
        """Check everything and bind an instance; with `own` other calls do not use it."""
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
            team.fail(e, record, posted=given.posted)

    # -- arguments -----------------------------------------------------------------------
    def _record(self, given: RawArguments, found: Arrays | None) -> CallRecord:
        """Return what must be equal on all threads; the text is made on demand."""
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
        full = check_flags(as_integer(given.flags, call, "flags"), call, self.collective)
        if full & ASYNC and self.scalar:
            raise FlagError(
                f"{call}: flags: ASYNC: a call that returns a value cannot be asynchronous: use "
                "the allav_ form with arrays"
            )
        if full & IN_PLACE:
            if not self.spec.transforms:
                raise FlagError(
                    f"{call}: flags: IN_PLACE: this call has no form in place: leave the flag out"
                )
            if given.src is not None and given.src is not given.dst:
                raise FlagError(
                    f"{call}: flags: IN_PLACE: src: expected None or the array dst, got another"
                )
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
        """Return the arrays of this thread, checked against each other."""
        call, spec, own = self.__name__, self.spec, self.src_spec
        at_root = not spec.root or self._rank(given.root, team, "root") == team.rank
        dst = src = None
        if at_root or spec.dst.everywhere:
            name = "values" if own is None else "dst"
            dst = self._array(given, "dst", receives=not (own is None and at_root))
            if not dst.flags.writeable and not (name == "values" and at_root):
                raise ValueError(f"{call}: {name}: the array is read-only")
        in_place = own is None
        if own is not None and (at_root or own.everywhere):
            if (
                spec.transforms
                and dst is not None
                and (given.src is None or same_elements(given.src, dst))
            ):
                in_place = True
            else:
                src = self._array(given, "src", receives=False)
        either = dst if dst is not None else src
        assert either is not None
        if dst is not None and src is not None:
            if dst.dtype != src.dtype:
                raise TypeError(f"{call}: dst: expected {src.dtype} as in src, got {dst.dtype}")
            if overlap(dst, src):
                raise OverlapError(f"{call}: dst and src overlap")
        n = self._block(team, dst, src)
        return Arrays(dst, src, in_place, n, self._travels_as(either.dtype))

    def _array(self, given: RawArguments, field: str, *, receives: bool) -> Array:
        """Return dst or src as an array, and keep it in `given` for the rest of the call."""
        x = getattr(given, field)
        name = "values" if self.src_spec is None else field
        found = array_of(x, f"{self.__name__}: {name}", receives=receives)
        if found is not x:
            given.converted = True
            if given.src is given.dst:
                given.src = given.dst = found
            setattr(given, field, found)
        return found

    def _block(self, team: TeamState, dst: Array | None, src: Array | None) -> int:
        """Return the elements of a block; the sizes of all arrays must fit it."""
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
            self.__name__, self.collective, self.kind, kind.nbytes, kind.dtype, kind.root, kind.op,
            func_name(kind.func), kind.flags & ~IN_PLACE,
        )  # fmt: skip

    def _in_place_or_not(self, team: TeamState, kind: Kind, full: int) -> Kind:
        """Return the kind, in place only if the algorithm supports that."""
        if not (kind.in_place and self.src_spec) or self.spec.computes:
            return kind
        way = team.way(self.collective, full, kind.nbytes, ("no", "no"), self._moved(kind))
        flag, label = way
        can = transforms(self.name, flag, team.rank_tree, team.tuning, kind.nbytes, label)
        return kind if can else replace(kind, in_place=False)

    def _bind(
        self,
        team: TeamState,
        kind: Kind,
        full: int,
        kernel: Any,
        dst: Array | None,
        src: Array | None,
        record: CallRecord,
        *,
        own: bool = False,
    ) -> Ready:
        """Return the instance, bound to these arrays or to contiguous copies of them."""
        ready = Ready(None, dst, src, None, kind.in_place)
        try:  # before the plan: a copy of a strided array may not fit into memory
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
        """Replace arrays that the core cannot take by contiguous copies."""
        dst, src = ready.dst, ready.src
        if src is None and not ready.in_place and self.spec.transforms:
            assert dst is not None
            src = ready.src = dst.copy()  # the algorithm does not work in place
        if dst is not None and not self._plain(dst):
            if dst.flags.writeable:
                ready.into = dst
            ready.dst = dst.astype(self._travels_as(dst.dtype), "C", subok=False)
        if src is not None and not self._plain(src):
            ready.src = src.astype(self._travels_as(src.dtype), "C", subok=False)

    def _plain(self, x: Array) -> bool:
        """Return True if the core can take an array as it is."""
        return plain(x) and (x.dtype.isnative or not self.spec.computes)

    def _travels_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in messages: reductions need the native byte order."""
        return dtype.newbyteorder("=") if self.spec.computes else dtype

    def _instance(
        self, team: TeamState, kind: Kind, full: int, kernel: Any, record: CallRecord
    ) -> Any:
        """Return the instance of this kind, cached by the team."""
        # the instance keeps a func alive, so that its id stays unique
        key = (self.__name__, self.collective, self.kind, id(kind.func),
               kind if kind.func is None else replace(kind, func=None))  # fmt: skip
        return team.instances.get(key, lambda: self._new_instance(team, kind, full, kernel, record))

    def _new_instance(
        self, team: TeamState, kind: Kind, full: int, kernel: Any, record: CallRecord
    ) -> Any:
        plan = self._plan_of(team, kind, full, kernel)
        bounds: list[Any] = [PrivateOperand(), PrivateOperand()]
        return team.make(plan, bounds, self._signature(kind), record)

    def _plan_of(self, team: TeamState, kind: Kind, full: int, kernel: Any) -> Any:
        """Return the cached plan of the team."""
        arguments = self._moved(kind)
        out = "no"
        if kernel is not None:
            arguments = [self._reduction(kind, full, kernel)]
            if kernel.func is not None:
                out = "all"  # an error of it is raised on all threads before any has a result
        name = exclusive_of(self.collective) if full & EXCLUSIVE else self.collective
        # with EXCLUSIVE the plan depends on whether there is a function, even one of numpy's
        left = full & EXCLUSIVE and kind.func is not None
        key = kind.root, kind.nbytes, kind.in_place, kind.perm, full & REPRODUCIBLE, left
        return team.planned(
            name, full, kind.nbytes, ("no", out), key, arguments, kernel, private=True
        )

    def _moved(self, kind: Kind) -> list[Any]:
        """Return what the algorithms of a call take that moves blocks."""
        first = np.frombuffer(kind.perm, np.int64) if kind.perm else kind.root
        return [first, kind.nbytes, kind.in_place]

    def _reduction(self, kind: Kind, full: int, kernel: Any) -> ReduceSpec | ReduceScatter:
        """Return what the algorithms of a reduction take."""
        ordered = kernel.op == Op.NONCOMM_FUNC
        exact = ordered or bool(full & REPRODUCIBLE)
        size = kernel.dtype.itemsize
        nelems = kind.nbytes // size
        if self.spec.src.blocks == "T":
            return ReduceScatter(nelems, size, exact)
        to = kind.root if self.spec.root else None
        exclusive, identity = bool(full & EXCLUSIVE), kind.func is None
        return ReduceSpec(nelems, size, to, ordered, exact, kind.in_place, exclusive, identity)


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
        """Copy the values of arrays that are not contiguous, when the call starts.

        A posted call may start later; an earlier call may still use the copies until then.
        """
        for mine, theirs in self.copies:
            mine[...] = theirs.reshape(mine.shape)

    def _steps(self) -> Iterator[Any]:
        self._fill()
        yield from self.ready.steps()

    def enter(self) -> None:
        """Prepare for a run, and bind the plan again after a change of the job's state."""
        self.team.enter(self.name)
        self._bind()

    def _bind(self) -> None:
        if self.instance is not None and not self.copies and self.team.native:
            self.bind(self.instance)

    def _run(self) -> None:
        self._fill()
        if self.instance is None:
            return
        self._bind()
        self.instance.execute()
        self.ready.finish()

    def _pending(self) -> AsyncCall:
        return AsyncCall(self.team, self._steps(), self._record)
