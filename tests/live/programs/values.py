"""Arrays of values on real threads against numpy: every form, algorithm, kind of array.

Arguments: number of calls, seed. All threads draw the same cases from the seed, so that each
knows what all others give. Every array lies between guard bytes and results are poisoned.
"""

from __future__ import annotations

import sys

import numpy as np

import xupc

FORMS = (
    "broadcast", "scatter", "gather", "gather_all", "exchange", "permute",
    "reduce", "reduce_all", "prefix_reduce", "suffix_reduce",
)  # fmt: skip
MOVES = FORMS[:6]
IN_PLACE = ("gather_all", "exchange", "permute", "reduce_all", "prefix_reduce", "suffix_reduce")
DTYPES = ["u1", "i2", "i4", "i8", "f4", "f8", "c16", "?", "f2", "g", ">i4", "S5", "u4,f8"]
SIZES = (1, 1, 2, 3, 8, 17, 64, 255, 1000, 4097, 30000, 150001)
GUARD = 64
ALGORITHMS = (0, 0, xupc.PULL, xupc.PUSH, xupc.MULTICORE)
SYNCS = (0, 0, xupc.IN_NOSYNC | xupc.OUT_NOSYNC, xupc.IN_MYSYNC | xupc.OUT_MYSYNC)


def last(a, b):
    """Return the second operand unless it is 0: the order of operands matters."""
    return b if b else a


PAIRS = [
    np.dtype([("f0", value), ("f1", index)], align=align)
    for value, index, align in (
        ("f8", "i8", False), ("f8", "i4", True), ("i2", "u4", False), ("f2", "i8", True),
        (">f4", ">i4", False), ("g", "u1", False),
    )
]  # fmt: skip


def joined(a, b):
    """The lower value of two records and the sum of the indices, as a tuple."""
    return min(a["f0"], b["f0"]), a["f1"] + b["f1"]


def lowest(op, a, b):
    """MINLOC or MAXLOC of two records; there is no NaN."""
    sign = 1 if op == xupc.MINLOC else -1
    return min((a, b), key=lambda x: (sign * x["f0"], x["f1"]))


def values_of(rng, n, dtype):
    """Small numbers: sums of them are exact in every type."""
    raw = rng.integers(0, 5, n)
    if dtype.kind == "V":
        out = np.zeros(n, dtype)
        out["f0"], out["f1"] = raw, rng.integers(0, 9, n)
        return out
    return raw.astype(dtype)


class Guarded:
    """An array of some shape and strides inside a block of guard bytes."""

    def __init__(self, values, kind):
        n, size = len(values), values.dtype.itemsize
        step = 1 if kind in ("plain", "square") else 3
        shift = 1 if kind == "shifted" else 0
        step = 1 if kind == "shifted" else step
        self.block = np.full(2 * GUARD + n * size * step + shift, 0xA5, np.uint8)
        inner = self.block[GUARD + shift : GUARD + shift + n * size * step]
        array = inner.view(values.dtype) if n else np.empty(0, values.dtype)
        self.array = array[::step]
        if kind == "back":
            self.array = self.array[::-1]
        if kind == "square" and n % 2 == 0:
            self.array = self.array.reshape(2, n // 2)
        marks = self.array.view(f"V{size}")
        self.block[:] = 0
        marks[...] = np.void(b"\xff" * size)
        self.guards = self.block == 0
        self.block[:] = 0xA5
        self.array[...] = values.reshape(self.array.shape)
        self.before = self.block.copy()

    def untouched(self):
        """Return whether nothing changed but the elements."""
        return np.array_equal(self.block[self.guards], self.before[self.guards])


def expected(form, root, src, perm, op, func, me):
    """(T, n) or (T, T*n) sources -> my dst, or None where it is not written."""
    t = len(src)
    if form == "broadcast":
        return src[root]
    if form == "scatter":
        return src[root].reshape(t, -1)[me]
    if form == "gather":
        return src.reshape(-1) if me == root else None
    if form == "gather_all":
        return src.reshape(-1)
    if form == "exchange":
        return src.reshape(t, t, -1)[:, me].reshape(-1)
    if form == "permute":
        return src[perm.index(me)]
    if form == "reduce" and me != root:
        return None
    rows = {"prefix_reduce": src[: me + 1], "suffix_reduce": src[me:]}.get(form, src)
    total = rows[0].copy()
    for row in rows[1:]:
        if total.dtype.names:
            func = func or (lambda a, b: lowest(op, a, b))
            both = [func(a, b) for a, b in zip(total, row, strict=True)]
            total = np.array([tuple(x) for x in both], total.dtype)
        elif func is not None:
            total = np.array([func(a, b) for a, b in zip(total, row, strict=False)], total.dtype)
        else:
            total = {
                xupc.ADD: np.add, xupc.MIN: np.minimum, xupc.MAX: np.maximum,
                xupc.XOR: np.bitwise_xor, xupc.LOGAND: np.logical_and, xupc.MULT: np.multiply,
            }[op](total, row).astype(total.dtype)  # fmt: skip
    return total


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    only = sys.argv[3] if len(sys.argv) > 3 else None
    xupc.init(heap_size="4MiB")
    me, t = xupc.MYTHREAD, xupc.THREADS
    rng = np.random.default_rng(seed)
    kept = []
    for case in range(count):
        form = only or FORMS[rng.integers(len(FORMS))]
        dtype = np.dtype(DTYPES[rng.integers(len(DTYPES))])
        moves = form in MOVES
        if not moves:
            dtype = np.dtype(DTYPES[rng.integers(10)])
        n = int(SIZES[rng.integers(len(SIZES))])
        root = int(rng.integers(t))
        flags = int(ALGORITHMS[rng.integers(5)] | SYNCS[rng.integers(4)])
        if rng.random() < 0.2:
            flags |= int(xupc.REPRODUCIBLE)
        perm = [int(x) for x in rng.permutation(t)]
        op, func = xupc.ADD, None
        if not moves:
            op = [xupc.ADD, xupc.MIN, xupc.MAX, xupc.MULT][rng.integers(4)]
            if dtype.kind == "c":
                op = xupc.ADD
            if dtype.kind == "i" and dtype.itemsize == 8 and rng.random() < 0.4:
                n = min(n, 255)
                op, func = xupc.NONCOMM_FUNC, last
            if dtype.kind in "?b" or dtype.str == "|b1":
                op = xupc.LOGAND
            if case % 4 == 1:
                dtype, n = PAIRS[rng.integers(len(PAIRS))], min(n, 1000)
                op = [xupc.MINLOC, xupc.MAXLOC, xupc.FUNC][rng.integers(3)]
                func = joined if op == xupc.FUNC else None
        many = t if form in ("scatter", "exchange") else 1
        src = np.stack([values_of(rng, many * n, dtype) for _ in range(t)]).astype(dtype)
        kinds = ["plain", "plain", "plain", "strided", "back", "square", "shifted"]
        of_dst, of_src = (kinds[rng.integers(len(kinds))] for _ in range(2))
        in_place = form in IN_PLACE and rng.random() < 0.35
        wide = t * n if form in ("gather", "gather_all", "exchange") else n
        poison = values_of(np.random.default_rng(case), wide, dtype)
        name = f"allav_{form}"
        call = getattr(xupc, name)
        what = (case, form, dtype.str, n, root, flags, op, in_place, of_dst, of_src)
        wanted = expected(form, root, src, perm, op, func, me)
        if form == "broadcast":
            dst = Guarded(src[root] if me == root else poison, of_dst)
            args, source = [dst.array, root], None
        else:
            if in_place:
                poison = src[me].copy()
                if form == "gather_all":
                    back = src[me][::-1]
                    poison = np.concatenate([src[me] if i == me else back for i in range(t)])
            dst = Guarded(poison, of_dst)
            source = None if in_place else Guarded(src[me], of_src)
            target = dst.array
            given = None if source is None else source.array
            if in_place and case % 2:
                given = dst.array
            if form == "scatter" and me != root and case % 2:
                given = None
            if form in ("gather", "reduce") and me != root and case % 2:
                target = None
            args = [target, given]
            if form == "permute":
                args.append(perm[me])
            if not moves:
                args.append(op)
            if form in ("scatter", "gather", "reduce"):
                args.append(root)
        keywords = {} if func is None else {"func": func}
        if flags:
            keywords["flags"] = flags
        start = dst.array.copy()
        for _ in range(3):  # the second time by the cache
            dst.array[...] = start
            call(*args, **keywords)
            found = dst.array.reshape(-1)
            want = poison if wanted is None else wanted
            assert found.tobytes() == want.astype(dtype).tobytes() or np.array_equal(found, want), (
                f"thread {me}: {what}: {found[:8]} instead of {want[:8]}"
            )
            assert dst.untouched(), f"thread {me}: {what}: guards"
            if source is not None:
                same = np.array_equal(source.block, source.before)
                assert same, f"thread {me}: {what}: src changed"
        if case % 7 == 0:
            kept.append((dst, source))
        if case % 29 == 0:
            xupc.barrier()
    xupc.barrier()
    if me == 0:
        print(f"done: {count}")
    xupc.finalize()


main()
