"""The oracle of random programs: a model of the shared space, from the documents, with numpy alone.

Each array is a row of bytes per thread. `blocks` lists for every relocalization which bytes go
where; `Reduced` does elements one after the other. `Order` decides which thread may touch what
when: it records for each access which threads can be sure that it is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from support.random_programs import values
from support.random_programs.program import (
    EXCLUSIVE,
    IN_PLACE,
    SCANS,
    Alloc,
    Alone,
    At,
    Barrier,
    Call,
    Check,
    Fill,
    Free,
    Invalid,
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
    Team,
    Values,
    Wait,
    World,
    at_end,
    item,
    modes,
)
from support.random_programs.values import (
    Array,
    clean,
    crc,
    exclusive,
    fold,
    identity,
    running,
    some,
    two,
)

Place = tuple[int, int]
"""Thread and offset."""


class Block(NamedTuple):
    """A copy of `nbytes` bytes from one place to another."""

    to: At
    of: At
    nbytes: int


class Touch(NamedTuple):
    """Bytes that a thread reads or writes."""

    array: str
    thread: int
    lo: int
    hi: int
    writes: bool


# --- relocalization -----------------------------------------------------------------------------
def _moves(op: Move) -> Iterator[Block]:
    threads = op.team.threads
    t, n, in_place = len(threads), op.nbytes, op.src is None
    dst, src = op.dst, op.src or op.dst
    skip = op.src is not None and bool(op.flags & IN_PLACE)

    def to(i: int, k: int = 0) -> At:
        return At(dst.array, threads[i], dst.offset + k * n)

    def of(i: int, k: int = 0) -> At:
        return At(src.array, threads[i], src.offset + k * n)

    match op.name:
        case "broadcast" | "broadcast_in_place":
            root = threads.index(src.thread)
            skip = skip or in_place
            pairs = [(to(i), of(root)) for i in range(t) if not (skip and i == root)]
        case "scatter":
            root = threads.index(src.thread)
            pairs = [(to(i), of(root, i)) for i in range(t) if not (skip and i == root)]
        case "gather":
            root = threads.index(dst.thread)
            pairs = [(to(root, i), of(i)) for i in range(t) if not (skip and i == root)]
        case "gather_all":
            own = range(t) if in_place else [0] * t
            pairs = [(to(i, j), of(j, own[j])) for i in range(t) for j in range(t)]
        case "exchange":
            pairs = [(to(i, j), of(j, i)) for i in range(t) for j in range(t)]
        case "permute":
            pairs = [(to(op.perm[i]), of(i)) for i in range(t)]
        case _:
            raise AssertionError(op)
    for a, b in pairs:
        yield Block(a, b, n)


def displaced(array: Alloc, base: At, d: int, blk: int | None, size: int | None) -> At:
    """Where ``base + d`` is, in elements of `size` bytes in blocks of `blk`."""
    block = array.block if blk is None else blk
    each = item(array.dtype) if size is None else size
    phase = array.phase(base.offset)
    if (block, each) != (array.block, item(array.dtype)):
        phase = 0
    if not block:
        return At(base.array, base.thread, base.offset + d * each)
    threads = array.team.threads
    u = threads.index(base.thread) + (phase + d) // block
    local = u // len(threads) * block + (phase + d) % block - phase
    return At(base.array, threads[u % len(threads)], base.offset + local * each)


def table(name: str, t: int, perm: Sequence[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """(entry of dst, of src, of the sizes, receiver, sender) of each block, receiver or sender
    -1 where that is the root."""
    for i in range(t):
        if name == "broadcast":
            yield i, 0, 0, i, -1
        elif name == "scatter":
            yield i, i, i, i, -1
        elif name == "gather":
            yield i, i, i, -1, i
        elif name == "permute":
            yield perm[i], i, i, perm[i], i
        else:
            for j in range(t):
                k = j if name == "gather_all" else j * t + i
                yield i * t + j, k, k, i, j


def _listed(op: ListedX | ListedV, arrays: dict[str, Alloc]) -> Iterator[Block]:
    dst: list[At | None]
    src: list[At | None]
    if isinstance(op, ListedX):
        dst, src, sizes = list(op.dst), list(op.src), list(op.nbytes)
    else:
        a, b = arrays[op.dst.array], arrays[op.src.array]
        dst = [displaced(a, op.dst, d, op.dst_blk, op.typesize) for d in op.ddisp]
        src = [displaced(b, op.src, d, op.src_blk, op.typesize) for d in op.sdisp]
        src = src or [op.src]
        sizes = [n * (op.typesize or item(a.dtype)) for n in op.nelems]
    rows = [row for row in table(op.name, len(op.team.threads), op.perm) if sizes[row[2]]]
    root = -1
    for to, of, _, receiver, sender in rows:
        if -1 in (receiver, sender):
            at = dst[to] if receiver == -1 else src[of]
            root = op.team.threads.index(at.thread) if at is not None else root
    for to, of, n, receiver, sender in rows:
        if op.flags & IN_PLACE and root in (receiver, sender) and {receiver, sender} <= {root, -1}:
            continue
        a_, b_ = dst[to], src[of]
        assert a_ is not None
        assert b_ is not None
        yield Block(a_, b_, sizes[n])


def blocks(op: Any, arrays: dict[str, Alloc]) -> list[Block]:
    """What a call, or a one-sided one, moves."""
    if isinstance(op, Alone):
        if op.name == "memcpy":
            assert op.src is not None
            return [Block(op.dst, op.src, op.nbytes)]
        op = Move(op.name, op.team, 0, op.dst, op.src, op.nbytes)
    if isinstance(op, Move):
        return list(_moves(op))
    return list(_listed(op, arrays))


# --- computation --------------------------------------------------------------------------------
class Layout(NamedTuple):
    """Elements from a place on, dealt over a team."""

    at: At
    rank: int
    phase: int
    block: int
    size: int
    threads: tuple[int, ...]

    @classmethod
    def of(cls, array: Alloc, at: At, blk: int | None, threads: tuple[int, ...]) -> Layout:
        block = array.block if blk is None else blk
        phase = array.phase(at.offset) if block else 0
        return cls(at, threads.index(at.thread), phase, block, item(array.dtype), threads)

    def place(self, i: int) -> Place:
        """Return the thread and the offset of element i."""
        if not self.block:
            return self.at.thread, self.at.offset + i * self.size
        q = self.phase + i
        u = self.rank + q // self.block
        local = u // len(self.threads) * self.block + q % self.block - self.phase
        return self.threads[u % len(self.threads)], self.at.offset + local * self.size


class Reduced(NamedTuple):
    """The places that a computational collective reads and writes, in the elements' order."""

    sources: list[Place]
    results: list[list[Place]]
    """Of each result: all places where it goes."""
    block: int
    """Of an element-wise one; else 0."""

    @classmethod
    def of(cls, op: Reduce, arrays: dict[str, Alloc]) -> Reduced:
        threads, n = op.team.threads, op.nelems
        src = op.src or op.dst
        layout = Layout.of(arrays[src.array], src, op.blk, threads)
        sources = [layout.place(i) for i in range(n)]
        if op.name in SCANS:
            to = Layout.of(arrays[op.dst.array], op.dst, op.blk, threads)
            return cls(sources, [[to.place(i)] for i in range(n)], 0)
        block = 0
        each = 1
        if "mpi" in op.name:
            block = layout.block or n
            each = min(block, n)
        where = threads if op.name.endswith("all") else (op.dst.thread,)
        size = layout.size
        results = [[(x, op.dst.offset + k * size) for x in where] for k in range(each)]
        return cls(sources, results, block)


def scan(op: Reduce | Values | Scalar, rows: Array, dtype: str, kept: Array | None = None) -> Array:
    """Return the results of a prefix or suffix; with EXCLUSIVE and a function one is `kept`."""
    back, func = op.name == "suffix_reduce", getattr(op, "func", "")
    results = running(two(op.op, dtype, func), rows, back=back)
    if not op.flags & EXCLUSIVE:
        return results
    first = kept if func else identity(op.op, dtype)
    assert first is not None
    return exclusive(results, first, back=back)


def computed(op: Reduce, x: Array, dtype: str, block: int, kept: Array | None = None) -> Array:
    """The results, of the elements; `kept`: what is where the first one of a scan goes."""
    join = two(op.op, dtype, op.func)
    rows = x.reshape(-1, 1)
    if op.name in SCANS:
        return scan(op, rows, dtype, kept).reshape(-1)
    if not block:
        return fold(join, rows)
    whole, rest = divmod(len(x), block)
    if not whole:
        return x
    out = fold(join, x[: whole * block].reshape(whole, block)).copy()
    if rest:
        out[:rest] = join(out[:rest], x[-rest:])
    return clean(out)


# --- private arrays -----------------------------------------------------------------------------
def lengths(op: Values, rank: int) -> tuple[int, int]:
    """Elements of dst and src that a rank gives; -1: none."""
    t, n = len(op.team.threads), op.n
    at_root = rank == op.root
    dst, src = {
        "broadcast": (n, -1), "scatter": (n, t * n if at_root else -1),
        "gather": (t * n if at_root else -1, n), "gather_all": (t * n, n),
        "exchange": (t * n, t * n), "reduce": (n if at_root else -1, n),
    }.get(op.name, (n, n))  # fmt: skip
    return dst, -1 if op.in_place else src


def given(op: Values, rank: int) -> tuple[Array | None, Array | None]:
    """Return the contents of a rank's dst and src before the call."""
    dst, src = lengths(op, rank)
    return (
        None if dst < 0 else some(op.kind, op.dtype, dst, op.seed, rank, 1),
        None if src < 0 else some(op.kind, op.dtype, src, op.seed, rank, 2),
    )


def values_after(op: Values) -> list[Array | None]:
    """Return the contents of each rank's dst after the call."""
    t, n = len(op.team.threads), op.n
    both = [given(op, rank) for rank in range(t)]
    dst: list[Any] = [d for d, _ in both]
    src: list[Any] = [d if op.in_place else s for d, s in both]
    match op.name:
        case "broadcast":
            return [dst[op.root]] * t
        case "scatter":
            return [src[op.root][i * n : (i + 1) * n] for i in range(t)]
        case "gather":
            dst[op.root] = np.concatenate(src)
            return dst
        case "gather_all":
            own = range(t) if op.in_place else [0] * t
            return [np.concatenate([s[k * n : (k + 1) * n] for s, k in zip(src, own, strict=True)])
                    ] * t  # fmt: skip
        case "exchange":
            return [np.concatenate([s[i * n : (i + 1) * n] for s in src]) for i in range(t)]
        case "permute":
            return [src[op.perm.index(i)] for i in range(t)]
    join, rows = two(op.op, op.dtype, op.func), np.stack(src)
    if op.name == "reduce":
        dst[op.root] = fold(join, rows)
        return dst
    if op.name == "reduce_all":
        return [fold(join, rows)] * t
    return list(scan(op, rows, op.dtype, dst[-1 if op.name == "suffix_reduce" else 0]))


def scalars(op: Scalar, rank: int) -> Array:
    """The values that a rank gives: one for each thread."""
    return some(op.kind, op.dtype, len(op.team.threads), op.seed, rank)


def scalars_after(op: Scalar) -> list[Array | None]:
    """Return the result of each rank."""
    t = len(op.team.threads)
    every = [scalars(op, rank) for rank in range(t)]
    first = np.array([row[0] for row in every])
    match op.name:
        case "broadcast":
            return [first[op.root : op.root + 1]] * t
        case "scatter":
            return [every[op.root][i : i + 1] for i in range(t)]
        case "gather":
            return [first if i == op.root else None for i in range(t)]
        case "gather_all":
            return [first] * t
        case "exchange":
            return [np.array([row[i] for row in every]) for i in range(t)]
        case "permute":
            return [first[op.perm.index(i)].reshape(1) for i in range(t)]
    join, rows = two(op.op, op.dtype), first.reshape(-1, 1)
    if op.name in ("reduce", "reduce_all"):
        total = fold(join, rows)
        return [total if op.name == "reduce_all" or i == op.root else None for i in range(t)]
    return list(scan(op, rows, op.dtype))


# --- which thread may touch what ----------------------------------------------------------------
@dataclass
class _Access:
    """An access, and the threads that are sure that it is over.

    Attributes
    ----------
    known
        Threads that are.
    parts
        Threads that together are, when all of them have come somewhere; None: unknown.
    """

    touch: Touch
    known: frozenset[int]
    parts: frozenset[int] | None
    handle: str = ""


@dataclass
class Order:
    """All accesses that not every thread is sure of."""

    threads: int
    accesses: list[_Access] = field(default_factory=list)

    def barrier(self, threads: Sequence[int]) -> None:
        """These threads have met."""
        met = frozenset(threads)
        left = []
        for a in self.accesses:
            if a.parts is not None and (a.known & met or a.parts <= met):
                a.known |= met
            if len(a.known) < self.threads:
                left.append(a)
        self.accesses = left

    def _conflicts(self, touches: Sequence[Touch]) -> Iterator[tuple[_Access, Touch]]:
        for a in self.accesses:
            old = a.touch
            for new in touches:
                if (
                    (old.writes or new.writes) and old.thread == new.thread
                    and old.lo < new.hi and new.lo < old.hi and old.array == new.array
                ):  # fmt: skip
                    yield a, new

    def by_user(self, thread: int, touches: Sequence[Touch]) -> bool:
        """Return whether a thread's own program may touch these now."""
        return all(thread in a.known for a, _ in self._conflicts(touches))

    def by_call(self, team: Team, into: str, touches: Sequence[Touch]) -> bool:
        """Return whether a call may touch these now."""
        members = frozenset(team.threads)
        for a, new in self._conflicts(touches):
            if a.parts is None:
                return False
            if into == "all":
                fine = bool(a.known & members) or a.parts <= members
            elif into == "my":
                fine = new.thread in a.known
            else:
                fine = members <= a.known
            if not fine:
                return False
        return True

    def note_user(self, thread: int, touches: Sequence[Touch]) -> None:
        me = frozenset((thread,))
        self.accesses += [_Access(touch, me, me) for touch in touches]

    def note_call(self, team: Team, out: str, touches: Sequence[Touch], handle: str = "") -> None:
        members = frozenset(team.threads)
        for touch in touches:
            known = frozenset((touch.thread,)) if out == "my" else frozenset[int]()
            if out == "all":
                known = members
            if handle:
                self.accesses.append(_Access(touch, frozenset(), None, handle))
            elif len(known) < self.threads:
                self.accesses.append(_Access(touch, known, members))

    def waited(self, handle: str, team: Team, out: str) -> None:
        """All threads have waited for a posted call."""
        mine = [a.touch for a in self.accesses if a.handle == handle]
        self.accesses = [a for a in self.accesses if a.handle != handle]
        self.note_call(team, out, mine)


def touches(op: Any, arrays: dict[str, Alloc]) -> list[Touch]:
    """What a call reads and writes; but not the lists that it is given."""
    out: list[Touch] = []
    if isinstance(op, Reduce):
        which = Reduced.of(op, arrays)
        size = item(arrays[op.dst.array].dtype)
        src = (op.src or op.dst).array
        out += _spans(src, which.sources, size, writes=False)
        out += _spans(op.dst.array, [p for ps in which.results for p in ps], size, writes=True)
    elif isinstance(op, Move | ListedX | ListedV | Alone):
        if isinstance(op, Alone) and op.name in ("memput", "memset", "memget"):
            at = op.dst
            writes = op.name != "memget"
            return [Touch(at.array, at.thread, at.offset, at.offset + op.nbytes, writes)]
        for to, of, n in blocks(op, arrays):
            out.append(Touch(of.array, of.thread, of.offset, of.offset + n, False))
            out.append(Touch(to.array, to.thread, to.offset, to.offset + n, True))
    return out


def _spans(array: str, places: Sequence[Place], size: int, *, writes: bool) -> list[Touch]:
    """Return one range per thread, from the first to the last place there."""
    ends: dict[int, tuple[int, int]] = {}
    for thread, offset in places:
        lo, hi = ends.get(thread, (offset, offset))
        ends[thread] = min(lo, offset), max(hi, offset)
    return [Touch(array, x, lo, hi + size, writes) for x, (lo, hi) in ends.items()]


def part_of(array: Alloc, *, writes: bool) -> list[Touch]:
    """All of an array, a thread's part each."""
    return [Touch(array.name, x, 0, array.part(x), writes) for x in array.team.threads]


def lists_of(op: Any) -> list[str]:
    """The shared arrays that hold a call's lists."""
    return [name for _, name in shared_lists(op)]


def shared_lists(op: Any) -> Sequence[tuple[str, str]]:
    """Of a call: (argument, shared array that holds it)."""
    if isinstance(op, Move):
        return [("perm", op.listed)] if op.listed else []
    found: Sequence[tuple[str, str]] = getattr(op, "shared", ())
    return found


def other(array: Alloc, thread: int, by: int) -> int:
    """The thread `by` ranks further on."""
    threads = array.team.threads
    return threads[(threads.index(thread) + by) % len(threads)]


# --- the model ----------------------------------------------------------------------------------
@dataclass
class State:
    """The shared space at a point of a program; `apply` goes on by an operation.

    Attributes
    ----------
    memory
        ``memory[array][thread]``: its bytes.
    lists
        What was put into arrays that hold lists.
    """

    program: Program
    world: World = field(init=False)
    order: Order = field(init=False)
    memory: dict[str, list[Array]] = field(default_factory=dict)
    lists: dict[str, tuple[int | At | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World(self.program.threads)
        self.order = Order(self.program.threads)

    @property
    def arrays(self) -> dict[str, Alloc]:
        return self.world.arrays

    def allowed(self, op: Any) -> bool:
        """Return whether the operation races with no access that may still be under way."""
        order, arrays = self.order, self.arrays
        match op:
            case Fill() | Put() | Check():
                array = self.world.array(op.name)
                by = getattr(op, "by", 0)
                return all(
                    order.by_user(other(array, part.thread, by), [part])
                    for part in part_of(array, writes=not isinstance(op, Check))
                )
            case Alone():
                return order.by_user(op.caller, touches(op, arrays))
            case Call():
                into, _ = modes(op.flags)
                read = [
                    part for name in lists_of(op)
                    for part in part_of(self.world.array(name), writes=False)
                ]  # fmt: skip
                if read and into == "my" and not order.by_call(op.team, "no", read):
                    return False  # all threads read lists at once
                return order.by_call(op.team, into, [*read, *touches(op, arrays)])
        return True

    def apply(self, op: Op) -> Any:
        """Do it; what the program must find, if it looks."""
        for name in arrays_of(op):
            self.world.array(name)
        if not self.allowed(op):
            raise Invalid(f"a race: {op}")
        before = dict(self.arrays)
        posted = dict(self.world.under_way)
        self.world.apply(op)
        self._note(op, before, posted)
        return self._do(op)

    def _note(self, op: Any, arrays: dict[str, Alloc], posted: dict[str, Call]) -> None:
        order = self.order
        match op:
            case Alloc() | Barrier() | NodeArray() | NodeBroadcast():
                order.barrier(op.team.threads)
            case Free():
                order.barrier(arrays[op.name].team.threads)
                order.accesses = [a for a in order.accesses if a.touch.array != op.name]
            case Fill() | Put() | Check():
                array = arrays[op.name]
                for part in part_of(array, writes=not isinstance(op, Check)):
                    order.note_user(other(array, part.thread, getattr(op, "by", 0)), [part])
            case Alone():
                order.note_user(op.caller, touches(op, arrays))
            case Wait():
                for name in {n.rstrip("!") for one in op.orders for n in one}:
                    call = posted[name]
                    order.waited(name, call.team, modes(call.flags)[1])
            case Move() | ListedX() | ListedV() | Reduce():
                into, out = modes(op.flags)
                if into == out == "all" and not op.handle:
                    order.barrier(op.team.threads)
                read = [p for name in lists_of(op) for p in part_of(arrays[name], writes=False)]
                order.note_call(op.team, out, [*read, *touches(op, arrays)], op.handle)

    def _do(self, op: Any) -> Any:
        match op:
            case Alloc():
                if op.name in self.memory:
                    raise Invalid(f"{op.name} twice")
                every = range(self.program.threads)
                self.memory[op.name] = [np.zeros(op.part(x), np.uint8) for x in every]
            case Free():
                self.memory.pop(op.name)
            case Fill():
                array = self.arrays[op.name]
                for x in array.team.threads:
                    data = some(op.kind, array.dtype, array.count(x), op.seed, x)
                    self.memory[op.name][x][:] = data.view(np.uint8)
            case Put():
                self._put(op)
            case Check():
                array = self.arrays[op.name]
                return tuple(
                    crc(self.memory[op.name][x]) if x in array.team.threads else 0
                    for x in range(self.program.threads)
                )
            case Reduce():
                self._reduce(op)
            case Alone(name="memput" | "memset" | "memget"):
                return self._copy_alone(op)
            case Move() | ListedX() | ListedV() | Alone():
                for argument, name in shared_lists(op):
                    if self.lists.get(name) != getattr(op, argument):
                        raise Invalid(f"{name} does not hold {argument}")
                moved = [(to, self._bytes(of, n).copy()) for to, of, n in blocks(op, self.arrays)]
                for to, data in moved:
                    self._bytes(to, len(data))[:] = data
            case Values():
                return self._crcs(op.team, values_after(op))
            case Scalar():
                return self._crcs(op.team, scalars_after(op))
            case NodeArray():
                firsts = [
                    next(x for x in op.team.threads
                         if self.program.labels[x] == self.program.labels[y])
                    for y in range(self.program.threads) if y in op.team.threads
                ]  # fmt: skip
                named = dict(zip(sorted(op.team.threads), firsts, strict=True))
                return tuple(
                    crc(some("bytes", "u1", op.n, op.seed, named[x])) if x in named else 0
                    for x in range(self.program.threads)
                )
            case NodeBroadcast():
                data = crc(some("bytes", "u1", op.n, op.seed, op.team.threads[op.root]))
                return tuple(
                    data if x in op.team.threads else 0 for x in range(self.program.threads)
                )
        return None

    def _crcs(self, team: Team, results: Sequence[Array | None]) -> tuple[int, ...]:
        """Return a checksum for each thread; 0 if it checks nothing."""
        out = [0] * self.program.threads
        for thread, result in zip(team.threads, results, strict=True):
            out[thread] = 0 if result is None else crc(result)
        return tuple(out)

    def _bytes(self, at: At, nbytes: int) -> Array:
        row = self.memory[at.array][at.thread]
        if not 0 <= at.offset <= at.offset + nbytes <= row.size:
            raise Invalid(f"{at} and {nbytes} bytes: there are {row.size}")
        return row[at.offset : at.offset + nbytes]

    def _put(self, op: Put) -> None:
        array = self.arrays[op.name]
        self.lists[op.name] = op.values
        if array.dtype == "pointer":
            return
        at = At(op.name, array.team.threads[0], 0)
        layout = Layout.of(array, at, None, array.team.threads)
        for i, value in enumerate(op.values):
            thread, offset = layout.place(i)
            cell = self._bytes(At(op.name, thread, offset), item(array.dtype))
            cell[:] = np.array([value], array.dtype).view(np.uint8)

    def _reduce(self, op: Reduce) -> None:
        dtype = self.arrays[op.dst.array].dtype
        which, size = Reduced.of(op, self.arrays), item(dtype)
        src = (op.src or op.dst).array
        x = np.concatenate([self._bytes(At(src, *place), size) for place in which.sources])
        first = which.results[-1 if op.name == "suffix_reduce" else 0][0]
        kept = self._bytes(At(op.dst.array, *first), size).copy().view(dtype)
        result = computed(op, x.view(dtype), dtype, which.block, kept)
        data = np.ascontiguousarray(result).view(np.uint8).reshape(-1, size)
        for value, places in zip(data, which.results, strict=True):
            for place in places:
                self._bytes(At(op.dst.array, *place), size)[:] = value

    def _copy_alone(self, op: Alone) -> Any:
        cells = self._bytes(op.dst, op.nbytes)
        if op.name == "memget":
            return tuple(
                crc(cells) if x == op.caller else 0 for x in range(self.program.threads)
            )
        if op.name == "memset":
            cells[:] = op.byte
        else:
            cells[:] = some("bytes", "u1", op.nbytes, op.byte)
        return None


def arrays_of(op: Any) -> list[str]:
    """The arrays that an operation names."""
    given = [getattr(op, "dst", None), getattr(op, "src", None)]
    if isinstance(op, ListedX):
        given = [*op.dst, *op.src]
    names = [p.array for p in given if isinstance(p, At)] + lists_of(op)
    return names + ([op.name] if isinstance(op, Fill | Put | Check | Free) else [])


def run(program: Program) -> list[Any]:
    """What the program must find, operation by operation; Invalid if it means nothing."""
    state = State(program)
    found = [state.apply(op) for op in program.ops]
    at_end(state.world)
    return found


__all__ = ["Block", "Order", "State", "Touch", "blocks", "run", "touches", "values"]
