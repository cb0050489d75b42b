"""The computational collectives that users call: reduce, in all forms, prefix and suffix.

As in `xupc.api.collectives` there is one object for each collective. It checks the arguments,
finds the plan and runs it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..algorithms.reduce_spec import Reduction
from ..algorithms.scan_spec import ScanSpec
from ..algorithms.values_reduce_scatter import ReduceScatter
from ..backends.operand_binding import BoundOperand
from ..errors import AffinityError, FlagError, OverlapError, show
from ..fingerprint import hashed, numbers
from ..flags import EXCLUSIVE, IN_PLACE, REPRODUCIBLE, sync_modes
from ..ops import Op
from ..pgas.integer_arguments import as_integer
from ..pgas.layout import Layout
from ..plan.plan import Plan
from ..records import replace
from ..reduction import kernels
from ..reduction.foreign_ops import as_op
from ..reduction.kernel_base import Kernel
from ..reduction.structured_dtypes import name as name_of
from ..runtime.team_state import TeamState
from ..specs import SPECS, CollectiveSpec, call_name, exclusive_of
from .argument_checks import (
    asks_in_place,
    flags_text,
    func_name,
    op_name,
    signature_of,
)
from .call_cache import BoundCall, SharedCall, SharedPlan
from .call_family import CallFamily, CallTexts, may_move
from .operand_checks import check_blocks, smallest_parts
from .reduce_operands import (
    ReduceOperand,
    Spans,
    check_shared,
    dealt_alike,
    describe_operand,
    describing_operand,
    may_meet,
    spans_of,
)
from .team import Team

__all__ = [
    "Computation",
    "all_prefix_reduce",
    "all_reduce",
    "all_reduce_all",
    "all_reduce_mpi",
    "all_reduce_mpi_all",
    "all_reduce_scatter",
    "all_suffix_reduce",
]


class Reducing(SharedCall):
    """The common part of `Computation` and `BlockReduction`."""

    def __init__(self, spec: CollectiveSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.__name__ = call_name(spec, "all")
        self.__doc__ = f"{spec.summary['all']}\n\n{type(self).__doc__}"
        self.__signature__ = signature_of(self._prepare)

    def plan(self, *args: Any, **kwargs: Any) -> SharedPlan:
        """Return a plan bound to these arguments; collective itself, like the call."""
        args, kwargs = self._without_algorithm(self._prepare, args, kwargs)
        call = self._prepare(*args, **kwargs)
        named = dict(zip(("dst", "src"), args, strict=False))
        operands = {name: kwargs.get(name, named.get(name)) for name in ("dst", "src")}
        return self._plan(call, **operands)

    def _texts(
        self, dst: Any, src: Any, op: Any, nelems: Any, func: Any, flags: Any, **more: Any
    ) -> CallTexts:
        """Return the call as text; `more` are arguments that only some of the collectives have."""

        def others() -> list[tuple[str, str]]:
            return [
                ("op", op_name(op)),
                ("nelems", show(nelems)),
                *((name, show(value)) for name, value in more.items()),
                ("func", func_name(func)),
                ("flags", flags_text(flags)),
            ]

        call = self.__name__
        title = f"{call}(op={op_name(op)}, nelems={show(nelems)}, flags={show(flags)})"
        operands = [(name, describing_operand(x)) for name, x in (("dst", dst), ("src", src))]
        return CallTexts(call, title, operands, others)

    def _check_dtypes(self, dst: np.dtype[Any], src: np.dtype[Any]) -> None:
        if dst != src:
            raise TypeError(
                f"{self.__name__}: dst: expected {src} as in src, got {dst}: cast first"
            )

    def _count(self, nelems: Any) -> int:
        n = as_integer(nelems, self.__name__, "nelems")
        if n < 1:
            raise ValueError(f"{self.__name__}: nelems: expected at least 1, got {n}")
        return n


class Computation(Reducing):
    """A computational collective.

    ``collective(dst, src, op, nelems=None, blk_size=None, func=None, flags=0, *, team=None)``

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Of the same dtype. src None, or the same as dst: in place, where that can be
        (prefix, suffix and reduce_mpi_all): dst is transformed.
    op : Op
        ``xupc.ADD`` and so on, or as ``np.add`` or ``MPI.SUM``; with FUNC (commutative) and
        NONCOMM_FUNC comes `func`. Records of a value and an index have MINLOC and MAXLOC (`Op`
        shows how), any records FUNC.
    nelems : int, optional
        Elements of src, at least 1. Default: all of an array.
    blk_size : int, optional
        Take src as ``shared [blk_size]`` from its address and phase on (dst of prefix and
        suffix too), 0 as indefinite. Default: their own layouts.
    func : callable, optional
        Of two scalars, or of two records, of which it returns one, or a tuple of its fields; a
        numpy ufunc, or what `xupc.vectorized` marks, of two arrays.
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library choose.
        REPRODUCIBLE: the same bits for every placement and algorithm (the forms with one
        value per call, prefix and suffix always give them). EXCLUSIVE (prefix and suffix): each
        element gets the result without itself. The first one (suffix: the last) gets the
        operation's identity; with `func` it stays as it was.
    team : Team, optional
        Whose threads call; default all. Memory is seen as dealt over the team, so nelems is
        needed unless src was allocated on it.

    Raises
    ------
    TypeError, ValueError, FlagError, AffinityError, OverlapError, HeapError
        On every thread, before anything moves; the library stays usable.
    CollectiveMismatchError
        If the threads' calls differ.
    Exception
        What `func` raised on any thread, on every thread where the call synchronises, else
        at the next call that does.
    """

    def __init__(self, spec: CollectiveSpec) -> None:
        super().__init__(spec)
        self.phased = True  # plans depend on the phases of dst and src

    def _prepare(
        self,
        dst: Any,
        src: Any,
        op: Any,
        nelems: Any = None,
        blk_size: Any = None,
        func: Callable[..., Any] | None = None,
        flags: Any = 0,
        *,
        team: Team | None = None,
    ) -> BoundCall:
        """Check everything and bind a plan."""
        call, op = self.__name__, as_op(op)
        texts = self._texts(dst, src, op, nelems, func, flags, blk_size=blk_size)
        opened = self._open(team, flags, texts.record())
        on, full = opened.team, opened.full
        try:
            to = ReduceOperand.of(dst, "dst", call, on)
            in_place = self._asks_in_place(dst, src, blk_size, full, on)
            source = replace(to, name="src") if in_place else ReduceOperand.of(src, "src", call, on)
            kernel = kernels.find(source.dtype, op, func, call)
            full |= IN_PLACE * in_place
            spec, spans = self._spec(to, source, nelems, blk_size, kernel, full, on)
            if isinstance(spec, ScanSpec) and full & EXCLUSIVE:
                spec = replace(spec, exclusive=True, identity=func is None)
            plan = self._plan_of(on, spec, kernel, full)
            bounds = [BoundOperand(x.allocation.memory, x.offset) for x in (to, source)]
            values = numbers(
                self.name,
                *(v for x in (to, source) for v in x.where),
                name_of(source.dtype), int(op), func_name(func), *self._layout(spec),
                operator.index(flags) | IN_PLACE * in_place,
            )  # fmt: skip
            instance = on.make(plan, bounds, hashed(values), opened.record)
        except Exception as e:
            opened.fail(e)

        def family() -> CallFamily:
            operands = to.in_family(dst, spans[0], 3), source.in_family(src, spans[1], 7)
            apart = 0 if in_place else None
            return CallFamily.of(on, plan, operands, apart, values, texts, opened.record)

        memory = [x.allocation for x in (to, source)]
        return BoundCall(opened, memory, instance, family if may_move(dst, src) else None)

    # -- arguments -----------------------------------------------------------------------
    def _asks_in_place(
        self, dst: Any, src: Any, blk_size: Any, full: int, team: TeamState
    ) -> bool:
        """Return whether the call is one in place; FlagError if it cannot be."""
        call = self.__name__
        if not (self.spec.scans or (self.spec.folds_to_all and self.spec.elementwise)):
            if full & IN_PLACE:
                raise FlagError(
                    f"{call}: flags: IN_PLACE: this call has no form in place: leave the flag out"
                )
            return False
        if src is not None and not dealt_alike(dst, src, blk_size):
            if full & IN_PLACE:
                raise FlagError(
                    f"{call}: flags: IN_PLACE: expected src None or the same as dst, got dst "
                    f"{describe_operand(dst)}, src {describe_operand(src)}"
                )
            return False
        return asks_in_place(call, dst, src, full, team.threads[0], rooted=False)

    def _spec(
        self,
        dst: ReduceOperand,
        src: ReduceOperand,
        nelems: Any,
        blk_size: Any,
        kernel: Kernel,
        full: int,
        team: TeamState,
    ) -> tuple[Reduction | ScanSpec, tuple[Spans, Spans]]:
        """Return the description of the work, and the bytes of dst and src that were checked."""
        call, what = self.__name__, self.spec
        self._check_dtypes(dst.dtype, src.dtype)
        if nelems is None:
            if src.length is None:
                raise ValueError(f"{call}: nelems: needed, since src is no array of the team's")
            nelems = src.length
        n = self._count(nelems)
        layouts = [self._dealt(x, blk_size, n) for x in (src, dst)]
        layout = layouts[0]
        if what.elementwise and src.phase:
            raise ValueError(f"{call}: src: expected phase 0, got {src.phase}")
        if what.folds_to_all and dst.rank:
            raise AffinityError(
                f"{call}: dst: expected affinity to thread {team.threads[0]}, "
                f"got a pointer with affinity to thread {team.threads[dst.rank]}"
            )
        size, in_place = src.dtype.itemsize, bool(full & IN_PLACE)
        read = spans_of(layout, src.offset, size)
        self._in_range(src, read, n)
        if what.scans:
            results = spans_of(layouts[1], dst.offset, size)
            self._in_range(dst, results, n)
            if not in_place and may_meet(results, read):
                results = spans_of(layouts[1], dst.offset, size, all_=True)
                self._disjoint(dst, src, results, layout)
            return ScanSpec(layout, layouts[1], size, what.backward, in_place), (results, read)
        each = min(layout.block, n) if what.elementwise else 1
        where = [dst.rank]
        if what.folds_to_all:
            parts = smallest_parts(dst.allocation, team.threads[0], team, call, "dst")
            where = [team.threads.index(thread) for thread in parts]
        results = [(rank, dst.offset, dst.offset + each * size) for rank in where]
        self._in_range(dst, results, each)
        if not in_place and may_meet(results, read):
            ranks = range(team.size) if what.folds_to_all else where
            self._disjoint(dst, src, [(t, *results[0][1:]) for t in ranks], layout)
        ordered = kernel.op == Op.NONCOMM_FUNC
        exact = ordered or not what.elementwise or bool(full & REPRODUCIBLE)
        to = None if what.folds_to_all else dst.rank
        spec = Reduction(layout, each, size, to, ordered, exact, what.elementwise)
        return spec, (results, read)

    def _dealt(self, x: ReduceOperand, blk_size: Any, n: int) -> Layout:
        call = self.__name__
        block = x.blocksize
        if blk_size is not None:
            block = as_integer(blk_size, call, "blk_size")
            if block < 0:
                raise ValueError(f"{call}: blk_size: expected 0 or more, got {block}")
            if 0 < block <= x.phase and (x.name == "src" or self.spec.scans):
                raise ValueError(
                    f"{call}: blk_size: expected more than the phase {x.phase} of {x.name}, "
                    f"got {block}"
                )
        phase = x.phase if block else 0
        # Longer blocks than one with all elements are one, too; a row of the core holds 64 bits.
        return Layout(len(x.threads), x.rank, phase, min(block, phase + n), n)

    def _in_range(self, x: ReduceOperand, spans: Spans, n: int) -> None:
        for rank, begin, end in spans:
            thread = x.threads[rank]
            if not x.allocation.holds(thread, begin, end - begin):
                text = x.allocation.beyond(thread, begin, end - begin)
                raise ValueError(
                    f"{self.__name__}: {x.name}: of {n} elements of {x.dtype}, {text}"
                )

    def _disjoint(
        self, dst: ReduceOperand, src: ReduceOperand, spans: Spans, layout: Layout
    ) -> None:
        """Raise OverlapError if the bytes of dst and src overlap."""
        taken = {
            t: (a, b) for t, a, b in spans_of(layout, src.offset, src.dtype.itemsize, all_=True)
        }
        for rank, begin, end in spans:
            a, b = taken.get(rank, (0, 0))
            if begin < b and a < end:
                start = dst.allocation.offset
                raise OverlapError(
                    f"{self.__name__}: dst and src overlap on thread {dst.threads[rank]}: in its "
                    f"part dst has bytes {begin - start} to {end - start}, src {a - start} to "
                    f"{b - start}"
                )

    # -- plans -------------------------------------------------------------------------
    @staticmethod
    def _layout(spec: Reduction | ScanSpec) -> Iterator[int]:
        layouts = (spec.src, spec.dst) if isinstance(spec, ScanSpec) else (spec.layout,)
        for x in layouts:
            yield from (x.first, x.phase, x.blocksize, x.nelems)

    def _plan_of(
        self, team: TeamState, spec: Reduction | ScanSpec, kernel: Kernel, full: int
    ) -> Plan:
        """Return the cached plan of the team."""
        sync = sync_modes(full)
        name = exclusive_of(self.name) if full & EXCLUSIVE else self.name
        return team.planned(name, full, spec.block_bytes, sync, spec, [spec], kernel)


class BlockReduction(Reducing):
    """A reduction of one block for each thread.

    ``collective(dst, src, op, nelems, func=None, flags=0, *, team=None)``

    Parameters
    ----------
    dst, src : SharedArray or SharedPointer
        Of the same dtype, with affinity to the team's first thread. Taken as addresses: each
        thread has T blocks of `nelems` elements at src, and one at dst.
    op : Op
        ``xupc.ADD`` and so on, or as ``np.add`` or ``MPI.SUM``; with FUNC (commutative) and
        NONCOMM_FUNC comes `func`.
    nelems : int
        Elements of a block, at least 1.
    func : callable, optional
        Of two scalars or records; a numpy ufunc, or what `xupc.vectorized` marks, of two arrays.
    flags : int
        `xupc.Flags`; no sync flag means ALLSYNC, no algorithm flag lets the library choose.
        REPRODUCIBLE: the same bits for every placement and algorithm.
    team : Team, optional
        Whose threads call; default all.

    Raises
    ------
    TypeError, ValueError, FlagError, AffinityError, OverlapError, HeapError
        On every thread, before anything moves; the library stays usable.
    CollectiveMismatchError
        If the threads' calls differ.
    Exception
        What `func` raised on any thread, as in `all_reduce`.
    """

    def _prepare(
        self,
        dst: Any,
        src: Any,
        op: Any,
        nelems: Any,
        func: Callable[..., Any] | None = None,
        flags: Any = 0,
        *,
        team: Team | None = None,
    ) -> BoundCall:
        """Check everything and bind a plan."""
        call, op = self.__name__, as_op(op)
        texts = self._texts(dst, src, op, nelems, func, flags)
        opened = self._open(team, flags, texts.record())
        on, full = opened.team, opened.full
        try:
            dtype = self._dtype(dst, src, full)
            kernel = kernels.find(dtype, op, func, call)
            n = self._count(nelems)
            operands = ("dst", dst, self.spec.dst), ("src", src, self.spec.src)
            blocks = check_blocks(call, operands, n * dtype.itemsize, on)
            exact = kernel.op == Op.NONCOMM_FUNC or bool(full & REPRODUCIBLE)
            work = ReduceScatter(n, dtype.itemsize, exact)
            plan = on.planned(self.name, full, blocks.nbytes, opened.sync, work, [work], kernel)
            values = numbers(
                self.name, *blocks.where,
                name_of(dtype), int(op), func_name(func), n, operator.index(flags),
            )  # fmt: skip
            bounds = [BoundOperand(x.allocation.memory, x.offset) for x in blocks.targets]
            instance = on.make(plan, bounds, hashed(values), opened.record)
        except Exception as e:
            opened.fail(e)

        def family() -> CallFamily:
            operands = blocks.in_family(dst, src, dealt=True)
            return CallFamily.of(on, plan, operands, None, values, texts, opened.record)

        memory = [x.allocation for x in blocks.targets]
        return BoundCall(opened, memory, instance, family if may_move(dst, src) else None)

    def _dtype(self, dst: Any, src: Any, full: int) -> np.dtype[Any]:
        """Return the type of the elements; TypeError if there are two, or none."""
        call = self.__name__
        if full & IN_PLACE:
            raise FlagError(
                f"{call}: flags: IN_PLACE: this call has no form in place: leave the flag out"
            )
        check_shared(dst, "dst", call)
        check_shared(src, "src", call)
        self._check_dtypes(dst.dtype, src.dtype)
        found: np.dtype[Any] = src.dtype
        return found


all_reduce = Computation(SPECS["reduce"])
all_prefix_reduce = Computation(SPECS["prefix_reduce"])
all_suffix_reduce = Computation(SPECS["suffix_reduce"])
all_reduce_all = Computation(SPECS["reduce_all"])
all_reduce_scatter = BlockReduction(SPECS["reduce_scatter"])
all_reduce_mpi = Computation(SPECS["reduce_mpi"])
all_reduce_mpi_all = Computation(SPECS["reduce_mpi_all"])
