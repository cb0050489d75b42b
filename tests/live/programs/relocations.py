"""The `_v` and `_x` forms: random lists of all kinds, their errors, and what a plan keeps."""

from __future__ import annotations

import itertools
import json
import random
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from support.checked_calls import ALGORITHMS, POISON, SYNC, Usable, done, raises, same, values

import xupc

NAMES = ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
ROOTED = ("broadcast", "scatter", "gather")
BLOCK = 6  # elements in a block of the arrays for displacements


@dataclass
class Block:
    """So many elements from a local element of a thread's part of an array to another one's."""

    to: tuple[int, int, int]  # thread, array, local element
    of: tuple[int, int, int]
    nelems: int
    dst: int  # index of its entry in the list of destinations
    src: int
    size: int


class Memory:
    """Source and target arrays, the second ones in a segment that the heap grew by."""

    def __init__(self, part: int, dtype: str, blocksize: int) -> None:
        self.part, self.blocksize = part, blocksize
        self.dtype = np.dtype(dtype)
        nelems = part * xupc.THREADS
        self.src, self.dst = [], []
        for i in range(2):
            self.src.append(xupc.all_alloc(nelems, dtype, blocksize))
            self.dst.append(xupc.all_alloc(nelems, dtype, blocksize))
            if i == 0:
                xupc.all_alloc(xupc.THREADS << 20, "u1", 1 << 20)

    def index(self, thread: int, local: int) -> int:
        """The element of an array that is a thread's so-and-so many-th."""
        row, phase = divmod(local, self.blocksize)
        return (row * xupc.THREADS + thread) * self.blocksize + phase

    def data(self, number: int, thread: int, array: int) -> Any:
        """Return the data of a thread in a source array."""
        nbytes = self.part * self.dtype.itemsize
        return values(number + 31 * array, thread, nbytes).view(self.dtype)

    def fill(self, number: int) -> None:
        """Write my sources and spoil my targets."""
        for i in range(2):
            self.src[i].local[:] = self.data(number, xupc.MYTHREAD, i)
            self.dst[i].local.view("u1")[:] = POISON

    def check(self, number: int, blocks: list[Block], what: object) -> None:
        """Compare every byte of my targets and sources."""
        me = xupc.MYTHREAD
        for i in range(2):
            want = np.full(self.part * self.dtype.itemsize, POISON, np.uint8).view(self.dtype)
            for b in blocks:
                if b.to[:2] == (me, i):
                    thread, array, at = b.of
                    found = self.data(number, thread, array)[at : at + b.nelems]
                    want[b.to[2] : b.to[2] + b.nelems] = found
            same(self.dst[i].local.view("u1"), want.view("u1"), f"dst {i}", what)
            same(self.src[i].local.view("u1"), self.data(number, me, i).view("u1"), "src", what)


def plan_blocks(
    rng: random.Random, name: str, memory: Memory, most: int, arrays: int
) -> tuple[list[Block], list[int], list[int]]:
    """Blocks as the documents number them, the sizes, and a permutation."""
    threads = xupc.THREADS
    every = range(threads)
    root, perm = rng.randrange(threads), rng.sample(every, threads)
    heavy = rng.random() < 0.4
    used = {(t, a): rng.randrange(3) for t in every for a in range(2)}

    def some(count: int) -> list[int]:
        sizes = [rng.randrange(most) if rng.random() < 0.8 else 0 for _ in range(count)]
        if heavy:
            sizes = [rng.randrange(4) for _ in range(count)]
            sizes[rng.randrange(count)] = most
        return sizes

    def place(thread: int, n: int) -> tuple[int, int, int]:
        array = rng.randrange(arrays)
        at = used[thread, array]
        used[thread, array] = at + n + rng.randrange(3)
        return thread, array, at

    def source(thread: int) -> tuple[int, int, int]:
        return thread, rng.randrange(arrays), rng.randrange(memory.part - most)

    if name == "broadcast":
        n, of = most, source(root)
        return [Block(place(i, n), of, n, i, 0, 0) for i in every], [n], perm
    pairs = name in ("gather_all", "exchange")
    sizes = some(threads**2 if name == "exchange" else threads)
    sources: dict[int, tuple[int, int, int]] = {}
    blocks = []
    for i, j in itertools.product(every, every) if pairs else zip(every, every, strict=True):
        to, of, dst, src = {
            "scatter": (i, root, i, i),
            "gather": (root, i, i, i),
            "permute": (perm[i], i, perm[i], i),
            "gather_all": (i, j, i * threads + j, j),
            "exchange": (i, j, i * threads + j, j * threads + i),
        }[name]
        if src not in sources:
            sources[src] = source(of)
        n = sizes[src]
        blocks.append(Block(place(to, n), sources[src], n, dst, src, src))
    return blocks, sizes, perm


class Lists:
    """Makes lists of every kind: shared ones each thread writes its part of."""

    def __init__(self) -> None:
        count = xupc.THREADS**2
        self.numbers = [xupc.all_alloc(count, d, b) for d in ("i8", "i4") for b in (1, 3)]
        self.pointers = [xupc.all_alloc(count, xupc.pointer_dtype, b) for b in (1, 2)]
        self.taken = 0

    def __call__(self, entries: list[Any], shared: bool, pointers: bool = False) -> Any:
        """The entries as one list or another."""
        self.taken += 1
        if not shared:
            if pointers:
                return entries if self.taken % 2 else tuple(entries)
            kinds = (list, tuple, np.array)
            return kinds[self.taken % 3](entries)
        kind = self.pointers if pointers else self.numbers
        found = kind[self.taken % len(kind)]
        if not pointers:  # no int64 is None
            entries = [1 << 29 if x is None else x for x in entries]
        if found.dtype.itemsize == 4 and max(entries, key=abs) >= 1 << 31:
            found = self.numbers[0]
        for k, x in enumerate(entries):
            if found.threadof(k) == xupc.MYTHREAD:
                found[k] = x
        return found


def call(
    rng: random.Random, name: str, form: str, memory: Memory, lists: Lists, most: int,
    shared: bool, flags: int,
) -> tuple[Any, tuple[Any, ...], list[Block]]:  # fmt: skip
    """A function, its arguments and what it has to do."""
    function = getattr(xupc, f"all_{name}_{form}")
    blocks, sizes, perm = plan_blocks(rng, name, memory, most, 2 if form == "x" else 1)
    dst: dict[int, Any] = {}
    src: dict[int, Any] = {}
    ahead = rng.randrange(memory.part // 2), rng.randrange(memory.part // 2)
    for b in blocks:
        to, of = memory.index(b.to[0], b.to[2]), memory.index(b.of[0], b.of[2])
        if form == "x":
            dst[b.dst] = memory.dst[b.to[1]] + to if b.nelems else None
            src[b.src] = memory.src[b.of[1]] + of if b.nelems else None
        else:  # of what is empty, anything will do
            dst[b.dst] = to - ahead[0] if b.nelems else None
            src[b.src] = of - ahead[1] if b.nelems else rng.choice([None, 7, 1 << 29])
    left = [dst[k] for k in sorted(dst)]
    right = [src[k] for k in sorted(src)]
    unit = memory.dtype.itemsize if form == "x" else 1
    counts = [n * unit for n in sizes]
    if form == "x":
        lists.taken += 1
        given = [lists(left, shared, True)]
        given.append(right[0] if name == "broadcast" else lists(right, False, True))
    else:
        lone = name == "broadcast"
        source = memory.src[0] + (right[0] + ahead[1] if lone else ahead[1])
        given = [memory.dst[0] + ahead[0], source, lists(left, shared)]
        if not lone:
            given.append(lists(right, False))
    if name == "permute":
        given.insert(2, perm)
    given.append(counts[0] if name == "broadcast" else lists(counts, False))
    return function, (*given, flags), [b for b in blocks if b.nelems]


def every_form(memory: Memory, lists: Lists, sizes: list[int], thin: int, usable: Usable) -> int:
    """All forms, algorithms and sync modes, the lists private and shared."""
    number = 0
    cases = list(itertools.product(NAMES, "vx", ALGORITHMS, SYNC, sizes))
    for name, form, algorithm, sync, most in random.Random(5).sample(cases, len(cases) // thin):
        number += 1
        rng = random.Random(number)
        shared = number % 3 == 0
        what = name, form, algorithm, sync, most, "shared" if shared else "private", number
        flags = SYNC[sync] | ALGORITHMS[algorithm]
        memory.fill(number)
        xupc.barrier()
        function, given, blocks = call(rng, name, form, memory, lists, most, shared, flags)
        if shared and sync[0] != "ALLSYNC":
            xupc.barrier()  # the list must be complete
        if number % 4 == 1 and not shared:
            plan = function.plan(*given)
            assert plan.algorithm.startswith(algorithm or ("pull", "push", "multicore"))
            plan()
        else:
            assert function(*given) is None
        xupc.barrier()
        memory.check(number, blocks, what)
        if number % 50 == 0:
            usable(what)
    return number


def in_place(memory: Memory) -> None:
    """The root's own block stays; its entry may be anything."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    every = range(threads)
    for root in {0, threads - 1}:
        memory.fill(root)
        xupc.barrier()
        own = memory.dst[0] + memory.index(root, 0)
        out = [memory.dst[0] + memory.index(i, 0) for i in every]
        src = memory.src[0] + memory.index(root, 3)
        size = memory.dtype.itemsize
        xupc.all_broadcast_x(out, src, 2 * size, xupc.IN_PLACE)
        blocks = [Block((i, 0, 0), (root, 0, 3), 2, i, 0, 0) for i in every if i != root]
        memory.check(root, blocks, "broadcast_x in place")
        xupc.barrier()
        sources: list[Any] = [None if i == root else src for i in every]
        targets: list[Any] = [p + 3 if i != root else own for i, p in enumerate(out)]
        xupc.all_scatter_x(targets, sources, [size] * threads, xupc.IN_PLACE)
        blocks += [Block((i, 0, 3), (root, 0, 3), 1, i, 0, 0) for i in every if i != root]
        memory.check(root, blocks, "scatter_x in place")
        xupc.barrier()
        to = [memory.index(root, 6 + i) for i in every]
        of = [memory.index(i, 9) for i in every]
        to[root], of[root] = to[(root + 1) % threads], 0
        flags = xupc.IN_PLACE
        xupc.all_gather_v(memory.dst[0], memory.src[0], to, of, [1] * threads, flags)
        if threads > 2:  # of two threads both entries are needed to find the root
            own = [None if i == root else n for i, n in enumerate(of)]
            xupc.all_gather_v(memory.dst[0], memory.src[0], to, own, [1] * threads, flags)
        blocks += [Block((root, 0, 6 + i), (i, 0, 9), 1, i, 0, 0) for i in every if i != root]
        memory.check(root, blocks, "gather_v in place")
        xupc.barrier()
    assert me in every


def freezes(memory: Memory, lists: Lists) -> None:
    """A plan keeps what its lists held."""
    rng = random.Random(3)
    plans = []
    for name, form in itertools.product(("exchange", "gather_all"), "vx"):
        function, given, blocks = call(rng, name, form, memory, lists, 9, True, 0)
        plans.append((function.plan(*given), blocks))
        xupc.barrier()
        for array in (*lists.numbers, *lists.pointers):
            array.local.view("u1")[:] = 0
        if not isinstance(given[-2], tuple):
            given[-2][:] = [0] * len(given[-2])
        xupc.barrier()
    for number, (plan, blocks) in enumerate(plans * 2):
        memory.fill(number)
        plan()
        memory.check(number, [b for b in blocks if b.nelems], ("frozen", number))
        xupc.barrier()


def changes(memory: Memory) -> None:
    """The same lists with other contents, and other memory at the same place."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    every = range(threads)
    shared = xupc.all_alloc(threads, "i4", 1)
    dst, src = memory.dst[0], memory.src[0]
    ddisp = [memory.index(i, 0) for i in every]
    sdisp = np.array([memory.index(i, 0) for i in every])
    for number in range(12):
        start, nelems = number // 3, 1 + number % 3
        memory.fill(number)
        sdisp[:] = [memory.index(i, start) for i in every]
        ddisp[:] = [memory.index(i, 2 * start) for i in every]
        shared[me] = nelems + me % 2
        xupc.all_permute_v(dst, src, tuple(every), ddisp, sdisp, shared)
        blocks = [
            Block((i, 0, 2 * start), (i, 0, start), nelems + i % 2, i, i, i) for i in every
        ]  # fmt: skip
        memory.check(number, blocks, ("changed", number))
        shared[me] = -1  # all have read it
    shared_lists(memory)
    into = [dst + memory.index(i, 0) for i in every]
    out_of: list[Any] = []
    perm, sizes = tuple(every), [8] * threads

    def copy() -> None:
        xupc.all_permute_x(into, out_of, perm, sizes)

    for number in range(3):
        fresh = xupc.all_alloc(threads * 8, "u1", 8)
        fresh.local[:] = number + 1
        out_of[:] = [fresh + 8 * i for i in every]
        for _ in range(3):
            copy()
            assert (memory.dst[0].local.view("u1")[:8] == number + 1).all()
        xupc.all_free(fresh)
        raises(ValueError, ("src[0]", "freed"), copy, "lists of freed memory")
    xupc.barrier()


def shared_lists(memory: Memory) -> None:
    """Shared displacements and pointers that change from call to call."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    every = range(threads)
    to, of = (xupc.all_alloc(threads, "i8", 1) for _ in range(2))
    into, out_of = (xupc.all_alloc(threads, xupc.pointer_dtype, 1) for _ in range(2))
    perm, ones, sizes = tuple(every), (1,) * threads, (memory.dtype.itemsize,) * threads
    for number in range(6):
        start = number // 2
        memory.fill(number)
        to[me], of[me] = memory.index(me, 2 * start), memory.index(me, start)
        into[me], out_of[me] = memory.dst[0] + to[me], memory.src[0] + of[me]
        blocks = [Block((i, 0, 2 * start), (i, 0, start), 1, i, i, i) for i in every]
        xupc.all_permute_v(memory.dst[0], memory.src[0], perm, to, of, ones)
        memory.check(number, blocks, ("shared displacements", number))
        memory.fill(number)
        xupc.all_permute_x(into, out_of, perm, sizes)
        memory.check(number, blocks, ("shared pointers", number))
        xupc.barrier()


def object_arrays(memory: Memory) -> None:
    """Arrays of objects may hold None, and be changed and given again."""
    threads = xupc.THREADS
    every = range(threads)
    square = np.full((threads, threads), None, object)
    for number in range(4):
        memory.fill(number)
        xupc.barrier()
        square[...] = None
        for i in every:  # only what thread 0 gives; of two numbers in the same memory
            square[i, 0] = memory.index(i, 1000 // BLOCK - number)
        sdisp, sizes = [number, *[None] * (threads - 1)], [2, *[0] * (threads - 1)]
        xupc.all_gather_all_v(memory.dst[0], memory.src[0], square, sdisp, sizes)
        at = 1000 // BLOCK - number
        blocks = [Block((i, 0, at), (0, 0, number), 2, i, 0, 0) for i in every]
        memory.check(number, blocks, ("objects", number))
        xupc.barrier()


def individual() -> None:
    """Blocks in memory that single threads allocated."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    mine = xupc.alloc(64, "u1")
    box = xupc.all_alloc(threads, xupc.pointer_dtype, 1)
    out = xupc.all_alloc(threads * 40 * threads, "u1", 40 * threads)
    box[me] = mine
    mine.local(64)[:] = values(9, me, 64)
    sizes = [8 + 5 * j for j in range(threads)]
    dst = [out + i * 40 * threads + 40 * j for i in range(threads) for j in range(threads)]
    for flags in ALGORITHMS.values():
        out.local[:] = POISON
        xupc.barrier()
        xupc.all_gather_all_x(dst, box, [min(n, 40) for n in sizes], flags)
        for j in range(threads):
            n = min(sizes[j], 40)
            same(out.local[40 * j : 40 * j + n], values(9, j, 64)[:n], "dst", ("alloc", j))
        xupc.barrier()
    xupc.free(mine)


def blocks_of_types() -> None:
    """dst_blk, src_blk and typesize give the layout that a cast took away."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    raw, out = (xupc.all_alloc(threads * 96, "u1", 96) for _ in range(2))
    as_doubles = xupc.all_alloc(threads * 12, "f8", 3)
    as_doubles.local[:] = np.arange(12) + 100 * me
    raw.local[:] = 1
    out.local[:] = 0
    xupc.barrier()
    one_each = [3 * i + 3 * threads + 1 for i in range(threads)]  # row 1, phase 1 of thread i
    back = [2 * ((threads - 1 - i) + threads) for i in range(threads)]  # row 1 in blocks of 2
    sizes = [2] * threads
    perm = list(range(threads))[::-1]
    source = as_doubles.cast("u1", 0)
    xupc.all_permute_v(out, source, perm, back[::-1], one_each, sizes, 0,
                       dst_blk=2, src_blk=3, typesize=8)  # fmt: skip
    want = np.zeros(12)
    want[2:4] = [100 * (threads - 1 - me) + 4, 100 * (threads - 1 - me) + 5]
    same(out.local, want.view("u1"), "dst", "blocksizes and typesize")
    xupc.barrier()


def errors(memory: Memory, usable: Usable) -> None:
    """Every wrong argument, on all threads or on one."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    every = range(threads)
    x, v = xupc.all_scatter_x, xupc.all_scatter_v
    dst = [memory.dst[0] + memory.index(i, 0) for i in every]
    src = [memory.src[0] + i for i in every][:1] * threads
    sizes = [8] * threads
    last = threads - 1
    gone = xupc.all_alloc(threads, "u1", 1)
    lost = gone + last
    numbers = xupc.all_alloc(threads, "i4", 1)
    kept = xupc.all_alloc(threads, xupc.pointer_dtype, 1)
    numbers.local[:] = -1
    xupc.all_free(gone)
    zero = [0] * threads
    ddisp = [memory.index(i, 0) for i in every]
    other = xupc.all_alloc(threads, "f4", 1)
    at = f"[{last}]"

    def bad(kind: Any, words: tuple[str, ...], function: Any, *given: Any, **named: Any) -> None:
        raises(kind, words, lambda: function(*given, **named), words)
        raises(kind, words, lambda: function.plan(*given, **named), words)

    bad(ValueError, ("nbytes", str(threads)), x, dst, src, sizes[:-1])
    bad(ValueError, (f"nbytes{at}", "-1"), x, dst, src, [*sizes[:-1], -1])
    bad(TypeError, (f"nbytes{at}", "int"), x, dst, src, [*sizes[:-1], 2.5])
    bad(ValueError, ("nbytes[0]", "at least 0"), x, dst, src, numbers)
    bad(ValueError, (f"dst{at}", "None"), x, [*dst[:-1], None], src, sizes)
    bad(TypeError, (f"dst{at}", "pointer", "5"), x, [*dst[:-1], 5], src, sizes)
    bad(ValueError, (f"dst{at}", "freed"), x, [*dst[:-1], lost], src, [1] * threads)
    bad(ValueError, ("dst[0]", "None"), x, kept, src, sizes)
    bad(TypeError, ("src", "pointers"), x, dst, numbers, sizes)
    bad(TypeError, ("dst",), x, 7, src, sizes)
    bad(ValueError, (f"dst{at}", "beyond", f"nbytes{at}"), x, dst, src, [*sizes[:-1], 1 << 40])
    bad(xupc.OverlapError, ("dst[0]", "src[0]"), x, dst, dst[:1] * threads, sizes)
    bad(xupc.FlagError, ("PULL", "PUSH"), x, dst, src, sizes, xupc.PULL | xupc.PUSH)
    bad(TypeError, ("dtype", "typesize"), v, other, memory.src[0], zero, zero, zero)
    bad(ValueError, ("typesize",), v, other, memory.src[0], zero, zero, zero, typesize=0)
    bad(ValueError, ("dst_blk",), v, memory.dst[0], memory.src[0], ddisp, zero, zero, dst_blk=-1)
    arrays = v, memory.dst[0], memory.src[0]
    bad(ValueError, ("ddisp[0]", "44 bits"), *arrays, [1 << 60] * threads, zero, sizes)
    xupc.all_scatter_v(*arrays[1:], [1 << 60] * threads, ["none"] * threads, zero)
    bad(TypeError, (f"ddisp{at}", "int", "None"), *arrays, [*ddisp[:-1], None], zero, sizes)
    bad(TypeError, (f"sdisp{at}", "int", "None"), *arrays, ddisp, [*zero[:-1], None], sizes)
    bad(TypeError, (f"nelems{at}", "int", "None"), *arrays, ddisp, zero, [*zero[:-1], None])
    bad(TypeError, (f"perm{at}", "int", "None"), xupc.all_permute_v, *arrays[1:],
        [*every[:-1], None], ddisp, ddisp, zero)  # fmt: skip
    for e in ([*ddisp[:-1], None], np.array([*ddisp[:-1], None]), (*ddisp[:-1], 2.5)):
        words = (f"ddisp{at}", "int", str(e[-1]))
        bad(TypeError, words, xupc.all_broadcast_v, *arrays[1:], e, 2)
        bad(TypeError, words, *arrays, e, zero, sizes)
    bad(ValueError, ("nelems", "at least 1"), xupc.all_broadcast_v, *memory.dst[:1], memory.src[0],
        ddisp, 0)  # fmt: skip
    inside = xupc.all_gather_v, memory.dst[0], memory.src[0]
    starts = [memory.index(i, 0) for i in every]
    bad(ValueError, ("sdisp[0]", "beyond"), *inside, zero, [-threads * BLOCK, *starts[1:]],
        [1] * threads)  # fmt: skip
    for name in ("gather_all", "exchange", "permute"):
        f = getattr(xupc, f"all_{name}_x")
        square = 1 if name == "permute" else threads
        perm = (list(every),) if name == "permute" else ()
        count = threads if name == "gather_all" else threads * square
        to = (dst * square, src if name == "gather_all" else src * square)
        bad(xupc.FlagError, ("IN_PLACE",), f, *to, *perm, [0] * count, xupc.IN_PLACE)
    bad(ValueError, ("perm[",), xupc.all_permute_x, dst, src, [threads] * threads, sizes)
    if threads > 1:
        wrong = [dst[0], *dst[:1], *dst[2:]]
        bad(xupc.AffinityError, ("dst[1]", "thread 1", "thread 0"), x, wrong, src, sizes)
        moved = [*src[:-1], memory.src[0] + memory.index(1, 0)]
        bad(xupc.AffinityError, (f"src{at}", "thread 0"), x, dst, moved, sizes)
        bad(xupc.OverlapError, ("dst[0]", "dst[1]"), xupc.all_gather_x, dst[:1] * threads,
            [memory.src[0] + memory.index(i, 0) for i in every], sizes)  # fmt: skip
        mine = [1 + (me == 1 and k == last) for k in every]
        words = (f"nelems{at}", "thread", "1", "2")
        wrong_sizes = (memory.dst[0], memory.src[0], ddisp, zero, mine)
        raises(xupc.CollectiveMismatchError, words, lambda: v(*wrong_sizes), "sizes differ")
        kind = ValueError if me == 1 else xupc.CollectiveMismatchError
        one_bad = [None, *dst[1:]] if me == 1 else dst
        raises(kind, ("dst[0]",), lambda: x(one_bad, src, sizes), "one thread's list is bad")
    usable("wrong lists")
    freed = xupc.all_alloc(threads, "u1", 1)
    plan = x.plan(dst, [freed + 0] * threads, [1] * threads)
    xupc.all_free(freed)
    raises(ValueError, ("src[0]", "freed"), plan, "a plan of freed memory")
    usable("a plan of freed memory")


def next_to_each_other() -> None:
    """A destination block may begin where a source block ends, and end where one begins."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    block, n = 32, 8
    both = xupc.all_alloc(block * threads, "u1", block)
    every = range(threads)
    for dst_at, src_at in ((8, 0), (8, 16), (0, 8)):
        both.local[:] = np.arange(block) + block * me
        xupc.barrier()
        to, of = ([both.ptr(block * i + at) for i in every] for at in (dst_at, src_at))
        xupc.all_permute_x(to, of, list(every)[::-1], [n] * threads)
        want = np.arange(block) + block * me
        want[dst_at : dst_at + n] = block * (threads - 1 - me) + np.arange(src_at, src_at + n)
        same(both.local, want.astype("u1"), "dst", f"dst at {dst_at}, src at {src_at}")
        xupc.barrier()
    for dst_at, src_at in ((7, 0), (8, 15), (3, 3)):
        to, of = ([both.ptr(block * i + at) for i in every] for at in (dst_at, src_at))
        raises(
            xupc.OverlapError, ("dst[0]", "src[0]"),
            lambda to=to, of=of: xupc.all_permute_x(to, of, list(every), [n] * threads), dst_at,
        )  # fmt: skip


def main() -> None:
    xupc.init(timeout=40)
    options = json.loads(sys.argv[1])
    usable = Usable()
    sizes = options["sizes"]
    room = max(sizes) * (xupc.THREADS + 2) + 64
    memory = Memory(room // BLOCK * BLOCK, "i4", BLOCK)
    lists = Lists()
    count = every_form(memory, lists, sizes, options["thin"], usable)
    small = Memory(60 * BLOCK, "i4", BLOCK)
    in_place(small)
    freezes(small, lists)
    changes(small)
    object_arrays(small)
    individual()
    blocks_of_types()
    next_to_each_other()
    errors(small, usable)
    done(count)


main()
