"""node_array and node_broadcast: data, sharing, life, errors.

Argument: how many random arrays are broadcast.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import sys
from typing import Any

import numpy as np
from support.checked_calls import Usable, done, raises

import xupc
from xupc import CollectiveMismatchError, HeapError

SHAPES: list[Any] = [(), 1, 7, (3, 5), (0,), (4, 0, 2), [2, 2], np.int64(4), (1 << 18,)]
DTYPES = ["u1", "i4", "f8", "?", "c16", "M8[ns]", "S3", [("a", "i2"), ("b", "f8", (2,))]]


def mappings() -> int:
    """How many segments this process has mapped, its heap's included."""
    with open("/proc/self/maps") as maps:
        return sum("/#" in line or "xupc-" in line for line in maps)


def descriptors() -> int:
    """How many files this process has open; a file without a name lives by these and mappings."""
    return len(os.listdir("/proc/self/fd"))


def filled(shape: Any, dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    """An array of random bytes, the same on every thread."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    data = np.random.default_rng(seed).integers(0, 256, count * kind.itemsize, np.uint8)
    if kind.kind == "b":
        data &= 1
    return np.frombuffer(data.tobytes(), kind, count).reshape(shape)


def same(found: np.ndarray[Any, Any], want: np.ndarray[Any, Any], what: object) -> None:
    assert found.shape == want.shape, what
    assert found.dtype == want.dtype, what
    assert found.tobytes() == want.tobytes(), what


def arrays(team: xupc.Team) -> None:
    """Zero-filled, one per node, of all shapes and types."""
    node = team.tree.nodes[team.tree.node_of(xupc.MYTHREAD)]
    for shape in SHAPES:
        for dtype in DTYPES:
            A = xupc.node_array(shape, dtype)
            what = shape, dtype
            assert type(A) is np.ndarray, what
            same(A, np.zeros(shape, dtype), what)
            assert A.flags.c_contiguous, what
            assert A.flags.writeable, what
    A = xupc.node_array((xupc.THREADS, 1000), "i8")
    A[xupc.MYTHREAD] = xupc.MYTHREAD + 1
    team.barrier()
    for thread in range(xupc.THREADS):
        want = thread + 1 if thread in node else 0
        assert (A[thread] == want).all(), (thread, node)
    team.barrier()
    if node[0] == xupc.MYTHREAD:
        A[:] = -node[0]
    team.barrier()
    assert (-node[0] == A).all()


def life(team: xupc.Team) -> None:
    """A view keeps the memory; the last reference gives it back."""
    size = 32 << 20
    gc.collect()
    team.barrier()
    before, files = mappings(), descriptors()
    team.barrier()
    A = xupc.node_array(size, "u1")
    assert mappings() == before + 1
    A[xupc.MYTHREAD] = 5
    view = A[xupc.MYTHREAD : 100][::2]
    del A
    assert view[0] == 5
    assert mappings() == before + 1
    team.barrier()
    del view
    B = xupc.node_broadcast(np.arange(size // 8) if xupc.MYTHREAD == 0 else None)
    assert mappings() == before + 1
    part = B[7:9]
    del B
    assert part.tolist() == [7, 8]
    del part
    assert mappings() == before
    assert descriptors() == files


def broadcasts(count: int) -> None:
    """Arrays of any strides, from every thread."""
    rng = random.Random(3)
    for k in range(count):
        shape = rng.choice([(), 5, (3, 4), (2, 3, 4), (0, 3), (1000, 33), (1 << 17) + 3])
        dtype = rng.choice(DTYPES)
        want = filled(shape, dtype, k)
        given = want
        kind = rng.choice(["C", "F", "back", "every other", "foreign", "read-only"])
        if kind == "F" and want.ndim:
            given = np.asfortranarray(want)
        elif kind == "back" and want.ndim:
            given = want[::-1].copy()[::-1]
        elif kind == "every other" and want.ndim:
            given = np.repeat(want, 2, axis=-1)[..., ::2]
        elif kind == "foreign" and want.dtype.names is None:
            given = want.astype(want.dtype.newbyteorder())
        elif kind == "read-only":
            given = want.copy()
            given.flags.writeable = False
        root = k % xupc.THREADS
        mine = given if root == xupc.MYTHREAD else None
        found = xupc.node_broadcast(mine, root) if k % 2 else xupc.node_broadcast(mine, root=root)
        what = k, shape, dtype, kind
        same(found, want, what)
        assert type(found) is np.ndarray, what
        assert found.flags.c_contiguous, what
        assert not found.flags.writeable, what
        raises(ValueError, (), lambda a=found: a.setflags(write=True) if a.size else int("x"))
        if mine is not None and given.size and given.flags.writeable:
            given.reshape(-1)[:1] = np.zeros(1, given.dtype)  # the array is the root's again
            same(found, want, what)
        pickle.loads(pickle.dumps(found))


def errors(team: xupc.Team, usable: Usable) -> None:
    """On every thread, and on one alone."""
    T, me = xupc.THREADS, xupc.MYTHREAD
    bad: list[tuple[Any, type[BaseException], tuple[str, ...]]] = [
        (lambda: xupc.node_array(-1, "u1"), ValueError, ("node_array", "shape")),
        (lambda: xupc.node_array((2, -3), "u1"), ValueError, ("node_array", "shape")),
        (lambda: xupc.node_array(2.5, "u1"), TypeError, ("node_array", "shape", "2.5")),
        (lambda: xupc.node_array("2", "u1"), TypeError, ("node_array", "shape")),
        (lambda: xupc.node_array(True, "u1"), TypeError, ("node_array", "shape")),
        (lambda: xupc.node_array((1 << 40, 1 << 30), "u1"), ValueError, ("node_array", "shape")),
        (lambda: xupc.node_array(2, object), TypeError, ("node_array", "dtype")),
        (lambda: xupc.node_array(2, None), TypeError, ("node_array", "dtype")),
        (lambda: xupc.node_array(2, "nope"), TypeError, ()),
        (lambda: xupc.node_array(2, "u1", team=3), TypeError, ("node_array", "team")),
        (lambda: xupc.node_broadcast(np.ones(2), T), ValueError, ("node_broadcast", "root")),
        (lambda: xupc.node_broadcast(np.ones(2), -1), ValueError, ("node_broadcast", "root")),
        (lambda: xupc.node_broadcast(np.ones(2), "0"), TypeError, ("node_broadcast", "root")),
    ]
    good = {
        "node_array": lambda: xupc.node_array(2, "u1"),
        "node_broadcast": lambda: xupc.node_broadcast(np.ones(2) if me == 0 else None),
    }
    for k, (call, kind, words) in enumerate(bad):
        raises(kind, words, call, words)
        usable.some(words)
        if T > 1:
            odd = k % T
            if me == odd:
                raises(kind, words, call, words)
            else:
                other = good[words[0] if words else "node_array"]
                raises(CollectiveMismatchError, (f"thread {odd}",), other, words)
            usable.some(words)
    root = T - 1
    for array in (None, [1, 2], 3, np.array([None]), "abc"):
        if me == root:
            words = ("node_broadcast", "array")
            raises(TypeError, words, lambda a=array: xupc.node_broadcast(a, root), array)
        else:
            call = lambda: xupc.node_broadcast(None, root)  # noqa: E731
            raises(CollectiveMismatchError, (f"thread {root}: TypeError",), call, array)
        usable.some(array)
    size = 1 << 45
    raises(HeapError, ("node_array", str(size), "free"), lambda: xupc.node_array(size, "u1"))
    usable("too large")
    huge = np.broadcast_to(np.uint8(0), size)  # costs nothing where it is
    raises(HeapError, ("node_broadcast", str(size)), lambda: xupc.node_broadcast(huge))
    usable("too large")
    if T > 1:
        differing = [
            (lambda: xupc.node_array(2 + (me == 1), "u1"), ("shape", "3")),
            (lambda: xupc.node_array(2, "u2" if me == 1 else "u1"), ("dtype",)),
            (lambda: xupc.node_broadcast(np.ones(2), int(me == 1)), ("root",)),
            (lambda: xupc.node_array(2, "u1") if me else team.barrier(), ("node_array",)),
        ]
        for call, words in differing:
            raises(CollectiveMismatchError, words, call, words)
            usable.some(words)


def main() -> None:
    count = int(sys.argv[1])
    team = xupc.init(timeout=30)
    usable = Usable()
    arrays(team)
    life(team)
    broadcasts(count)
    errors(team, usable)
    done(count)


main()
