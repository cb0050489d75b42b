"""Makes random programs that mean something: all exists that they use, and nothing races.

The model goes along (`oracle.State`). Where an operation would touch what an earlier one may still
touch, by what the sync modes promise, a barrier comes first, and what is under way is waited for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from support.random_programs.oracle import Reduced, State, Touch, arrays_of, touches
from support.random_programs.program import (
    ASYNC,
    EXCLUSIVE,
    IN_PLACE,
    MODES,
    REPRODUCIBLE,
    SCANS,
    Alloc,
    Alone,
    At,
    Barrier,
    Check,
    Fill,
    Free,
    FreeTeam,
    ListedV,
    ListedX,
    Move,
    NodeArray,
    NodeBroadcast,
    Op,
    Program,
    Put,
    Reduce,
    Scalar,
    Split,
    Team,
    Threads,
    Values,
    Wait,
    flag_bits,
    item,
    node_teams,
)
from support.random_programs.values import FLOATS, INTS, OPS, OTHERS, kind_of

EVERYWHERE, AT_ROOT = "everywhere", "root"
SHAPES = {
    "broadcast": (1, EVERYWHERE, 1, AT_ROOT), "scatter": (1, EVERYWHERE, "T", AT_ROOT),
    "gather": ("T", AT_ROOT, 1, EVERYWHERE), "gather_all": ("T", EVERYWHERE, 1, EVERYWHERE),
    "exchange": ("T", EVERYWHERE, "T", EVERYWHERE), "permute": (1, EVERYWHERE, 1, EVERYWHERE),
}  # fmt: skip
"""Of a relocalization: blocks of dst and src, and where they are."""
REDUCTIONS = ("reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all", *SCANS)
JOINS = ("reduce", "reduce_all", *SCANS)
TRANSFORMS = ("gather_all", "exchange", "permute", *JOINS[1:])


@dataclass(frozen=True)
class Style:
    """A kind of programs.

    Attributes
    ----------
    live
        For real threads: all operations; else those that consist of plans.
    parts
        Bytes that arrays have on each thread.
    sizes
        Of blocks, near what the library's sizes are; some are chosen, others are small.
    most
        Bytes of a private array.
    ops
        About so many operations.
    """

    live: bool
    parts: tuple[int, ...]
    sizes: tuple[int, ...]
    most: int
    ops: tuple[int, int]
    tunings: tuple[str, ...] = ("",)


SIMULATED = Style(
    False, (48, 96, 200, 400), (1, 7, 8, 9, 12, 13, 15, 16, 17, 20, 21, 32, 33, 40, 64), 400,
    (5, 8), ("large", "small", "mixed", "whole"),
)  # fmt: skip
_EDGES = (1, 8, 64, 1024, 4096, 16384, 32768, 65536, 131072)
LIVE = Style(
    True, (64, 300, 1500, 1500, 9000, 9000, 40_000, 140_000),
    (*(size + d for size in _EDGES for d in (-1, 0, 1) if size + d), 24, 100, 3000),
    140_000, (10, 24),
)  # fmt: skip


def generate(seed: int, labels: Threads, style: Style) -> Program:
    """The program of a seed on a placement."""
    return Maker(seed, labels, style).program()


class Retry(Exception):
    """The random choice does not fit; choose again."""


@dataclass
class Maker:
    """A program while it is made."""

    seed: int
    labels: Threads
    style: Style
    ops: list[Op] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed} {self.labels} {self.style.live}")
        self.threads = len(self.labels)
        self.world = Team("", tuple(range(self.threads)))
        tuning = self.rng.choice(self.style.tunings)
        self.empty = Program(self.labels, (), self.seed, tuning)
        self.state = State(self.empty)
        self.calls: list[Any] = []

    # -- choices -----------------------------------------------------------------------------
    def some_of(self, p: float) -> bool:
        return self.rng.random() < p

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def new_seed(self) -> int:
        return self.rng.randrange(1 << 20)

    def team(self) -> Team:
        """Mostly all threads."""
        if self.some_of(0.65):
            return self.world
        nodes, roots = node_teams(self.labels)
        every = [team for teams in self.state.world.teams.values() for team in teams]
        if self.style.live or not every:
            every += [*nodes, roots]
        return self.rng.choice(every)

    def flags(self, *, more: int = 0) -> int:
        """Any modes, ALLSYNC sometimes by saying nothing, any algorithm."""
        rng = self.rng
        algorithm = rng.choice(("PULL", "PUSH", "MULTICORE"))
        if self.style.live and self.some_of(0.3):
            algorithm = ""
        kind = rng.randrange(5)
        if kind == 0:
            return flag_bits("all", "all", algorithm, more) & ~(4 | 32)
        if kind == 1:
            return flag_bits("my", "my", algorithm, more)
        return flag_bits(rng.choice(MODES), rng.choice(MODES), algorithm, more)

    def exclusive(self, name: str) -> int:
        """EXCLUSIVE for some of the scans."""
        return EXCLUSIVE * (name in SCANS and self.some_of(0.4))

    def size(self, most: int) -> int:
        """Bytes, at least 1."""
        if most < 1:
            raise Retry
        fitting = [size for size in self.style.sizes if size <= most]
        kind = self.rng.randrange(4)
        if kind == 0 or not fitting:
            return self.rng.randint(1, min(most, 64))
        if kind == 1:
            return self.rng.choice(fitting[-6:])
        return self.rng.choice(fitting)

    def arrays(self, team: Team, *, dtype: str | None = None) -> list[Alloc]:
        """Those in which every thread of a team has a part."""
        return [
            a for a in self.known(team)
            if dtype in (None, a.dtype) and all(a.part(x) for x in team.threads)
        ]  # fmt: skip

    def known(self, team: Team) -> list[Alloc]:
        """Those that every thread of a team knows, but for lists."""
        return [
            a for a in self.state.arrays.values()
            if not a.name.startswith("L") and set(team.threads) <= set(a.team.threads)
        ]  # fmt: skip

    # -- operations ----------------------------------------------------------------------------
    def emit(self, op: Any) -> None:
        """Append an operation, after the waits and barriers that it needs."""
        if not self.state.allowed(op):
            self.finish(everything=self.state.world.under_way != {})
            if not self.state.allowed(op):
                self.barrier()
        self.state.apply(op)
        self.ops.append(op)

    def barrier(self) -> None:
        split = self.style.live and self.some_of(0.1) and not self.state.world.under_way
        self.emit(Barrier(self.world, split))

    def finish(self, *, everything: bool = True) -> None:
        """Wait for what is under way, or some of it."""
        handles = list(self.state.world.under_way)
        if not everything:
            handles = [h for h in handles if self.some_of(0.5)]
        if not handles:
            return
        orders = []
        for thread in range(self.threads):
            mine = [h for h in handles if thread in self.state.world.under_way[h].team.threads]
            self.rng.shuffle(mine)
            orders.append(tuple(h + "!" * (self.style.live and self.some_of(0.3)) for h in mine))
        self.emit(Wait(tuple(orders)))

    def alloc(self, dtype: str = "", team: Team | None = None) -> None:
        """A new array, with values."""
        rng = self.rng
        team = team or self.world
        dtype = dtype or rng.choice(("u1", "u1", *INTS, *FLOATS, *OTHERS))
        part = max(rng.choice(self.style.parts) // item(dtype), 4)
        kind, t = rng.randrange(6), len(team.threads)
        if kind < 3:
            nelems, block = part * t, part
        elif kind == 3:
            nelems, block = part, 0
        else:
            block = rng.choice([1, 2, 3, 5, 16])
            nelems = max(part * t - rng.randrange(block * t), t * block)
        by = -1
        if self.style.live and not team.name and part * item(dtype) <= 9000 and self.some_of(0.2):
            by = rng.choice(team.threads)
        array = Alloc(self.name("A"), nelems, dtype, block, team, by)
        self.emit(array)
        self.fill(array)

    def fill(self, array: Alloc, kind: str = "") -> None:
        """New values."""
        by = 1 if self.some_of(0.25) else 0
        kind = kind or ("bytes" if array.dtype in INTS else "extremes")
        self.emit(Fill(array.name, self.new_seed(), by, kind))

    def call(self, op: Any) -> None:
        """A call, sometimes posted, sometimes by a plan; and what users do after it."""
        if self.some_of(0.25 if self.style.live else 0.2) and not isinstance(op, Scalar):
            op = replace(op, flags=op.flags | ASYNC, handle=self.name("h"))
        if self.style.live and self.some_of(0.12) and not isinstance(op, Scalar):
            op = replace(op, plan=True)
        self.emit(op)
        if isinstance(op, Move | Reduce | ListedX | ListedV):
            self.calls.append(replace(op, flags=op.flags & ~ASYNC, handle="", plan=False))
        self.after(op)

    def after(self, op: Any) -> None:
        """Reads of results, writes of sources: where the modes allow it, mostly."""
        arrays = self.state.arrays
        for touch_writes in (True, False):
            names = dict.fromkeys(t.array for t in touches(op, arrays) if t.writes == touch_writes)
            for name in names:
                by = int(self.some_of(0.3))
                next_: Any = Check(name, by)
                if not touch_writes:
                    next_ = Fill(name, self.new_seed(), by, self.kind(arrays[name]))
                if self.some_of(0.6) and (self.state.allowed(next_) or self.some_of(0.1)):
                    self.emit(next_)

    def kind(self, array: Alloc) -> str:
        return "bytes" if array.dtype in INTS else "extremes"

    # -- relocalization ------------------------------------------------------------------------
    def move(self) -> None:
        """A standard collective, or one in place."""
        rng, team = self.rng, self.team()
        name = rng.choice((*SHAPES, "broadcast_in_place"))
        if name == "broadcast_in_place" or (name not in ("broadcast", "scatter", "gather")
                                            and self.some_of(0.3)):  # fmt: skip
            self.call(self._transformed(name, team))
            return
        in_place = name in ("broadcast", "scatter", "gather") and self.some_of(0.3)
        dst, src, n = self._operands(name, team, own=in_place and self.some_of(0.5))
        perm, listed = self._perm(name, team)
        flags = self.flags(more=IN_PLACE * in_place)
        self.call(Move(name, team, flags, dst, src, n, perm, listed))

    def _perm(self, name: str, team: Team) -> tuple[Threads, str]:
        if name != "permute":
            return (), ""
        perm = self.rng.sample(range(len(team.threads)), len(team.threads))
        listed = ""
        if self.style.live and not team.name and self.some_of(0.3):
            listed = self.put("i8", tuple(perm))
        return tuple(perm), listed

    def put(self, dtype: str, values: tuple[Any, ...]) -> str:
        """A shared list."""
        array = Alloc(self.name("L"), len(values), dtype, self.rng.choice((1, 1, 2, 0)), self.world)
        if array.block == 2 and array.dtype == "pointer":
            array = replace(array, block=1)
        self.emit(array)
        self.emit(Put(array.name, values))
        return array.name

    def _transformed(self, name: str, team: Team) -> Move:
        blocks = len(team.threads) if name in ("gather_all", "exchange") else 1
        array = self.rng.choice(self.arrays(team) or self._none())
        room = min(array.part(x) for x in team.threads)
        n = self.size(room // blocks)
        offset = self.offset(array, room - blocks * n)
        thread = team.threads[0]
        src: At | None = None
        if name == "broadcast_in_place":
            thread = self.rng.choice(team.threads)
            src = At(array.name, thread, offset)
        perm, listed = self._perm(name, team)
        return Move(name, team, self.flags(), At(array.name, thread, offset), src, n, perm, listed)

    def _none(self) -> Any:
        raise Retry

    def offset(self, array: Alloc, most: int) -> int:
        """Choose an offset, in bytes, at which an element begins."""
        size = item(array.dtype)
        if most < 0:
            raise Retry
        return 0 if self.some_of(0.3) else self.rng.randint(0, most // size) * size

    def _operands(self, name: str, team: Team, *, own: bool = False) -> tuple[At, At, int]:
        """dst, src and bytes of a block; `own`: the root's own block is in both."""
        rng, t = self.rng, len(team.threads)
        shape = SHAPES[name]
        to, of = (t if shape[k] == "T" else 1 for k in (0, 2))
        root = rng.choice(team.threads)
        where = [[root] if shape[k] == AT_ROOT else list(team.threads) for k in (1, 3)]
        some = [
            [a for a in self.known(team) if all(a.part(x) for x in who)] or self._none()
            for who in where
        ]  # fmt: skip
        a, b = (rng.choice(arrays) for arrays in some)
        room_a, room_b = (min(x.part(y) for y in who) for x, who in zip((a, b), where, strict=True))
        first = [root if shape[k] == AT_ROOT else team.threads[0] for k in (1, 3)]
        if own:
            room = min(a.part(x) for x in team.threads)
            if not room:
                raise Retry
            n = self.size(room // max(to, of))
            n = max(n // item(a.dtype), 1) * item(a.dtype)
            low = self.offset(a, room - max(to, of) * n)
            at = low + team.threads.index(root) * n if max(to, of) > 1 else low
            dst = At(a.name, first[0], low if to > 1 or of == to else at)
            src = At(a.name, first[1], low if of > 1 or of == to else at)
            return dst, src, n
        if a is not b:
            n = self.size(min(room_a // to, room_b // of))
            dst = At(a.name, first[0], self.offset(a, room_a - to * n))
            return dst, At(b.name, first[1], self.offset(b, room_b - of * n)), n
        room = min(room_a, room_b)
        n = self.size((room - item(a.dtype)) // (to + of))
        sizes = [to * n, of * n]
        turned = self.some_of(0.5)
        low = self.offset(a, room - sum(sizes) - item(a.dtype) + 1)
        high = -(-(low + sizes[turned]) // item(a.dtype)) * item(a.dtype)
        dst, src = (At(a.name, x, y) for x, y in
                    zip(first, (high, low) if turned else (low, high), strict=True))  # fmt: skip
        return dst, src, n

    # -- lists ---------------------------------------------------------------------------------
    def listed(self) -> None:
        """A `_v` or `_x` form."""
        team = self.team()
        t = len(team.threads)
        name = self.rng.choice(tuple(SHAPES))
        root = self.rng.choice(team.threads)
        perm = tuple(self.rng.sample(range(t), t)) if name == "permute" else ()
        arrays = self.rng.sample(self.arrays(team), k=len(self.arrays(team)))
        if len(arrays) < 2:
            raise Retry
        count = {"broadcast": 1, "exchange": t * t}.get(name, t)
        to, of = _entry_threads(name, team, root, perm)
        in_place = IN_PLACE * (name in ("broadcast", "scatter", "gather") and self.some_of(0.2))
        flags = self.flags(more=in_place)
        if self.some_of(0.5):
            op: Any = self._v(name, team, flags, arrays, (to, of, count), perm)
        else:
            op = self._x(name, team, flags, arrays, (to, of, count), perm)
        if self.style.live and not team.name and self.some_of(0.3):
            op = self._shared_lists(op)
        self.call(op)

    def _list_sizes(self, count: int, most: int) -> list[int]:
        """Of each block: all alike, uneven, some none, nearly all in one."""
        n, kind = self.size(most), self.rng.randrange(4)
        if kind == 0 or count == 1:
            return [n] * count
        if kind == 1:
            return [self.rng.randrange(n + 1) if self.some_of(0.8) else 0 for _ in range(count)]
        sizes = [self.rng.randrange(3) for _ in range(count)] if kind == 2 else [0] * count
        sizes[self.rng.randrange(count)] = n
        return [min(size, most) for size in sizes]

    def _places(
        self, arrays: list[Alloc], threads: list[int], sizes: list[int], unit: int, *, apart: bool
    ) -> list[At]:
        """Choose places for blocks on these threads; `apart`: without overlap."""
        used: dict[tuple[str, int], int] = {}
        out = [At("", 0, 0)] * len(threads)
        for k in self.rng.sample(range(len(threads)), len(threads)):
            array, thread = self.rng.choice(arrays), threads[k]
            each = max(unit, item(array.dtype))
            room = array.part(thread)
            if apart:
                low = used.get((array.name, thread), 0) + each * self.some_of(0.3)
                low = -(-low // each) * each
                used[array.name, thread] = low + sizes[k]
            else:
                low = self.rng.randint(0, max(room - sizes[k], 0) // each) * each
            if low + sizes[k] > room or low >= room:
                raise Retry
            out[k] = At(array.name, thread, low)
        return out

    def _x(
        self, name: str, team: Team, flags: int, arrays: list[Alloc],
        entries: tuple[list[int], list[int], int], perm: Threads,
    ) -> ListedX:  # fmt: skip
        to, of, count = entries
        cut = self.rng.randint(1, len(arrays) - 1)
        targets, sources = arrays[:cut], arrays[cut:]
        room = min(a.part(x) for a in arrays for x in team.threads)
        sizes = self._list_sizes(count, max(room // len(team.threads), 1))
        by_dst = _sizes_of_dst(name, team, sizes, perm)
        dst = self._places(targets, to, by_dst, 1, apart=True)
        src = self._places(sources, of, sizes if len(of) == count else sizes * len(of), 1,
                           apart=False)  # fmt: skip
        hide = self.some_of(0.3)
        return ListedX(
            name, team, flags,
            tuple(None if hide and not n else at for at, n in zip(dst, by_dst, strict=True)),
            tuple(None if hide and not n else at for at, n in
                  zip(src, sizes if len(of) == count else sizes * len(of), strict=True)),
            tuple(sizes), perm,
        )  # fmt: skip

    def _v(
        self, name: str, team: Team, flags: int, arrays: list[Alloc],
        entries: tuple[list[int], list[int], int], perm: Threads,
    ) -> ListedV:  # fmt: skip
        to, of, count = entries
        a, b = arrays[:2]
        typesize = None
        if a.dtype != b.dtype or self.some_of(0.2):
            typesize = self.rng.choice([1, 2, 4, item(a.dtype)])
        unit = typesize or item(a.dtype)
        room = min(x.part(y) for x in (a, b) for y in team.threads)
        sizes = self._list_sizes(count, max(room // len(team.threads) // unit, 1))
        by_dst = [n * unit for n in _sizes_of_dst(name, team, sizes, perm)]
        nbytes = [n * unit for n in sizes]
        single = name == "broadcast"
        dst = self._places([a], to, by_dst, unit, apart=True)
        src = self._places([b], of, nbytes, unit, apart=False)
        dst_blk, src_blk = (
            self.rng.choice([None, None, 1, 3, 8, 1000]) if (a, b)[k].block else None
            for k in range(2)
        )
        base, ddisp = self._displacements(a, dst, dst_blk, unit)
        other, sdisp = (src[0], ()) if single else self._displacements(b, src, src_blk, unit)
        if single:
            src_blk = None
        return ListedV(
            name, team, flags, base, other, ddisp, sdisp, tuple(sizes), perm, dst_blk, src_blk,
            typesize,
        )  # fmt: skip

    def _displacements(
        self, array: Alloc, places: list[At], blk: int | None, unit: int
    ) -> tuple[At, tuple[int, ...]]:
        """A base, and how far from it places are, in elements of `unit` bytes."""
        threads = array.team.threads
        size = item(array.dtype)
        each = size // _gcd(size, unit) * unit  # what both kinds of elements fit into
        thread = self.rng.choice(threads)
        offset = self.rng.randint(0, array.part(thread) // each) * each // 2 // each * each
        block = array.block if blk is None else blk
        phase = array.phase(offset)
        if (block, unit) != (array.block, size):
            phase = 0
        out = []
        for at in places:
            if (at.offset - offset) % unit:
                raise Retry
            row, within = divmod((at.offset - offset) // unit + phase, block or 1)
            if not block:
                raise Retry
            u = row * len(threads) + threads.index(at.thread) - threads.index(thread)
            out.append(u * block + within - phase)
        return At(array.name, thread, offset), tuple(out)

    def _shared_lists(self, op: Any) -> Any:
        """The same with some of its lists in shared arrays."""
        single = op.name == "broadcast"
        names = ["ddisp", "sdisp", "nelems"]
        if isinstance(op, ListedX):
            names = ["dst", "src", "nbytes"]
        if single:
            names = names[:1]
        if op.name == "permute":
            names.append("perm")
        shared = []
        for name in names:
            values = getattr(op, name)
            if self.some_of(0.5):
                dtype = "pointer" if name in ("dst", "src") else "i8"
                shared.append((name, self.put(dtype, values)))
        return replace(op, shared=tuple(shared))

    # -- computation ---------------------------------------------------------------------------
    def reduce(self) -> None:
        """A computational collective."""
        team, name = self.team(), self.rng.choice(REDUCTIONS)
        every = [a for a in self.known(team) if a.dtype in OPS]
        source = self.rng.choice(every or self._none())
        dtype = source.dtype
        op, func = self._operation(dtype)
        same = [a for a in every if a.dtype == dtype]
        target = self.rng.choice(same)
        in_place = name in ("reduce_mpi_all", *SCANS) and self.some_of(0.3)
        call = self._reduction(name, team, (source, target), op, func, in_place=in_place)
        if dtype not in INTS:
            self.fill(source if not in_place else target, kind_of(dtype, op))
        self.call(call)

    def _operation(self, dtype: str) -> tuple[str, str]:
        if dtype in ("u2", "u4", "u8") and self.some_of(0.3):
            if self.some_of(0.5):
                return "FUNC", self.rng.choice(("mix", "mix_rows"))
            return "NONCOMM_FUNC", self.rng.choice(("compose", "compose_rows"))
        return self.rng.choice(OPS[dtype]), ""

    def _pointer(self, array: Alloc, team: Team, *, first: bool = False) -> At:
        """A place in an array, on a thread of the team."""
        threads = [x for x in team.threads if array.part(x)]
        thread = team.threads[0] if first else self.rng.choice(threads or self._none())
        room = array.part(thread) // item(array.dtype)
        if not room:
            raise Retry
        k = 0 if self.some_of(0.4) else self.rng.randrange(room // 2 + 1)
        return At(array.name, thread, k * item(array.dtype))

    def _reduction(
        self, name: str, team: Team, arrays: tuple[Alloc, Alloc], op: str, func: str, *,
        in_place: bool,
    ) -> Reduce:  # fmt: skip
        source, target = arrays
        src = self._pointer(source, team, first=self.some_of(0.3))
        dst = self._pointer(target, team, first=name.endswith("all") or self.some_of(0.2))
        begin = dst if in_place else src
        array = self.state.arrays[begin.array]
        blk = self.rng.choice([None, None, None, 0, 1, 2, 3, 7, 16])
        if array.dtype and blk and array.phase(begin.offset) >= blk:
            blk = None
        if "mpi" in name and array.phase(begin.offset):
            raise Retry
        most = sum(array.count(x) for x in team.threads)
        n = self.size(min(most, 600))
        flags = self.flags(more=REPRODUCIBLE * self.some_of(0.2) | self.exclusive(name))
        for _ in range(8):
            call = Reduce(name, team, flags, dst, None if in_place else src, op, n, blk, func)
            if self._fits(call):
                return call
            n = max(n // 2, 1)
        raise Retry

    def _fits(self, call: Reduce) -> bool:
        """Whether all elements are there, and dst and src are apart."""
        arrays, blk = self.state.arrays, call.blk
        for at in (call.dst if call.name in SCANS else None, call.src):
            if at is not None and blk and arrays[at.array].phase(at.offset) >= blk:
                return False
        which = Reduced.of(call, arrays)
        size = item(arrays[call.dst.array].dtype)
        src = arrays[(call.src or call.dst).array]
        dst = arrays[call.dst.array]
        for array, places in ((src, which.sources), (dst, [p for x in which.results for p in x])):
            if any(not 0 <= o <= array.part(x) - size for x, o in places):
                return False
        if call.src is None:
            return True
        every = touches(call, arrays)
        return not any(_meet(a, b) for a in every for b in every if a.writes and not b.writes)

    # -- private values ------------------------------------------------------------------------
    def values(self) -> None:
        """A collective on private arrays."""
        team = self.team()
        t, rng = len(team.threads), self.rng
        dtype = rng.choice(tuple(OPS))
        name = rng.choice((*SHAPES, *JOINS))
        op, func = self._operation(dtype) if name in JOINS else ("", "")
        most = self.style.most // item(dtype) // (t if name not in JOINS else 1)
        n = 0 if self.style.live and self.some_of(0.04) else max(
            1, self.size(most * item(dtype)) // item(dtype))  # fmt: skip
        perm = tuple(rng.sample(range(t), t)) if name == "permute" else ()
        in_place = name == "broadcast" or (name in TRANSFORMS and self.some_of(0.35))
        step = rng.choice((1, 1, 1, 2, 3)) if self.style.live and n else 1
        more = REPRODUCIBLE * (name in JOINS and self.some_of(0.3))
        flags = self.flags(more=more | self.exclusive(name))
        self.call(Values(
            name, team, flags, dtype, n, self.new_seed(), rng.randrange(t), perm, op, func,
            in_place, step, kind_of(dtype, op),
        ))  # fmt: skip

    def scalar(self) -> None:
        """A collective on single values."""
        team = self.team()
        t, rng = len(team.threads), self.rng
        dtype = rng.choice(tuple(OPS))
        name = rng.choice((*SHAPES, *JOINS))
        op = rng.choice(OPS[dtype]) if name in JOINS else ""
        perm = tuple(rng.sample(range(t), t)) if name == "permute" else ()
        self.call(Scalar(
            name, team, self.flags(more=self.exclusive(name)), dtype, self.new_seed(),
            rng.randrange(t), perm, op, kind_of(dtype, op),
        ))  # fmt: skip

    # -- what only real threads do -------------------------------------------------------------
    def alone(self) -> None:
        """One thread, for all."""
        rng, team = self.rng, self.world
        caller = rng.choice(team.threads)
        if self.some_of(0.5):
            name = rng.choice(("broadcast", "scatter", "gather", "exchange"))
            dst, src, n = self._operands(name, team)
            self.emit(Alone(name, team, caller, dst, src, n))
            return
        name = rng.choice(("memcpy", "memput", "memset", "memget"))
        arrays = self.known(team)
        places = []
        for array in rng.sample(arrays, k=min(2, len(arrays))):
            at = self._pointer(array, self.world)
            places.append((at, array.part(at.thread) - at.offset))
        if len(places) < 2:
            raise Retry
        (dst, room), (other, room2) = places
        n = self.size(min(room, room2))
        self.emit(Alone(name, team, caller, dst, other if name == "memcpy" else None, n,
                        rng.randrange(256)))  # fmt: skip

    def node_arrays(self) -> None:
        """Arrays per node."""
        team = self.team()
        n = self.size(self.style.most)
        if self.some_of(0.5):
            self.emit(NodeArray(team, n, self.new_seed()))
        else:
            root = self.rng.randrange(len(team.threads))
            self.emit(NodeBroadcast(team, n, root, self.new_seed()))

    def split(self) -> None:
        """A new team, of all or of one that was made before."""
        made = [team for teams in self.state.world.teams.values() for team in teams]
        parent = self.rng.choice([self.world, self.world, *made])
        t = len(parent.threads)
        colors = [self.rng.choice((0, 0, 1, 2)) for _ in range(t)]
        some = [None if self.some_of(0.1) else color for color in colors]
        keys = [self.rng.randrange(3) for _ in range(t)]
        if all(color is None for color in some):
            some = list(colors)
        split = Split(self.name("T"), parent, tuple(some), tuple(keys))
        self.emit(split)
        if self.style.live and self.some_of(0.6):
            self.alloc(team=self.rng.choice(split.teams()))

    def free(self) -> None:
        """An array, or a team and its arrays."""
        world = self.state.world
        self.finish()
        inner = [name for name in world.teams if name not in world.parents.values()]
        if inner and self.some_of(0.4):
            name = self.rng.choice(inner)
            for array in [a for a in world.arrays.values() if a.team.name == name]:
                self.emit(Free(array.name))
            self.forget()
            self.emit(FreeTeam(name))
            return
        if len(world.arrays) > 2:
            self.emit(Free(self.rng.choice(list(world.arrays)), self.some_of(0.5)))
            self.forget()

    def forget(self) -> None:
        """Calls that cannot be repeated."""
        kept = []
        for op in self.calls:
            names = set(arrays_of(op))
            known = op.team.name in ("", "node", "roots") or op.team.name in self.state.world.teams
            if names and names <= self.state.arrays.keys() and known:
                kept.append(op)
        self.calls = kept

    def repeat(self) -> None:
        """An earlier call once more, with other values."""
        self.forget()
        op = self.rng.choice(self.calls or self._none())
        src = next((t.array for t in touches(op, self.state.arrays) if not t.writes), None)
        if src is not None:
            array = self.state.arrays[src]
            kind = kind_of(array.dtype, getattr(op, "op", ""))
            if isinstance(op, Reduce) and array.dtype not in INTS:
                self.fill(array, kind)
            elif self.some_of(0.7):
                self.fill(array)
        self.call(op)

    # -- the whole -----------------------------------------------------------------------------
    def program(self) -> Program:
        """Arrays first; then anything."""
        for dtype in ("u1", "", "", "u1"):
            self.alloc(dtype)
        if self.threads > 1 and self.some_of(0.5):
            self.split()
        steps: list[Callable[[], None]] = [self.move] * 5 + [self.listed] * 3 + [self.reduce] * 3
        steps += [self.values] * 2 + [self.repeat] * 3
        if self.style.live:
            steps += [self.scalar, self.alone, self.node_arrays, self.split, self.free, self.alloc]
            steps += [self.finish, self.values]
        for _ in range(self.rng.randint(*self.style.ops)):
            for _ in range(20):
                try:
                    self.rng.choice(steps)()
                    break
                except Retry:
                    continue
        return replace(self.empty, ops=tuple(self._end()))

    def _end(self) -> list[Op]:
        self.finish()
        self.barrier()
        world = self.state.world
        for array in list(world.arrays.values()):
            if array.dtype != "pointer":
                self.emit(Check(array.name, self.rng.randrange(2)))
        if self.style.live:  # a launch runs many programs
            for array in list(world.arrays.values()):
                self.emit(Free(array.name))
            for name in reversed(list(world.teams)):
                self.emit(FreeTeam(name))
        return self.ops


def _meet(a: Touch, b: Touch) -> bool:
    return a.array == b.array and a.thread == b.thread and a.lo < b.hi and b.lo < a.hi


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def _entry_threads(
    name: str, team: Team, root: int, perm: Threads
) -> tuple[list[int], list[int]]:
    """On which thread each entry of dst and src has to be."""
    every, t = list(team.threads), len(team.threads)
    match name:
        case "broadcast":
            return every, [root]
        case "scatter":
            return every, [root] * t
        case "gather":
            return [root] * t, every
        case "gather_all":
            return [x for x in every for _ in every], every
        case "exchange":
            return [x for x in every for _ in every], [x for x in every for _ in every]
    return every, every


def _sizes_of_dst(name: str, team: Team, sizes: list[int], perm: Threads) -> list[int]:
    """Return the size of the block that goes to each entry of dst."""
    t = len(team.threads)
    match name:
        case "broadcast":
            return sizes * t
        case "gather_all":
            return sizes * t
        case "exchange":
            return [sizes[j * t + i] for i in range(t) for j in range(t)]
        case "permute":
            return [sizes[perm.index(i)] for i in range(t)]
    return sizes

