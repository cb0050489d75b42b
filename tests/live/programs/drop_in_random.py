"""Random calls on `xupc.Comm` beside the same calls on mpi4py's communicator: equal results.

``drop_in_random.py SEED CALLS``. All threads draw the same numbers for what MPI wants to be equal,
and each its own for the rest. Few sizes are drawn, so most calls repeat an earlier one.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc

PLAIN = MPI.COMM_WORLD
comm = xupc.Comm(PLAIN)
size, me = comm.size, comm.rank
seed, calls = int(sys.argv[1]), int(sys.argv[2])
same, mine = random.Random(seed), random.Random(seed * 1000 + me)

OPS = (MPI.SUM, MPI.MAX, MPI.MIN, MPI.PROD)
TYPES = ("f8", "i4")
Call = Callable[[Any], Any]


def values(n: int, dtype: str) -> Any:
    return np.array([mine.randrange(1, 5) for _ in range(min(n, 50))] * (n // 50 + 1), dtype)[:n]


def spelled(x: Any) -> Any:
    """Return one of the descriptions of an array."""
    datatype = MPI._typedict[x.dtype.char]
    return mine.choice((x, x, [x, datatype], (x, x.size, datatype)))


class Draw:
    """A call with its arguments; each run of it works on copies of the same arrays."""

    def __init__(self) -> None:
        self.n = same.choice((1, 100, 3000) if same.random() < 0.2 else (7,))
        self.dtype = same.choice(TYPES)
        self.root = same.choice((0, size - 1))
        self.op = same.choice(OPS)
        self.at_root = me == self.root
        self.in_place = same.random() < 0.3
        self.named = mine.random() < 0.3
        self.seed = mine.random()
        self.method = same.choice(list(METHODS))

    def run(self, on: Any) -> Any:
        """Make the call and return its result."""
        mine.seed(self.seed)
        return METHODS[self.method](self, on)

    def array(self, blocks: int = 1) -> Any:
        return values(self.n * blocks, self.dtype)


def bcast(d: Draw, on: Any) -> Any:
    x = d.array()
    on.Bcast(buf=spelled(x), root=d.root) if d.named else on.Bcast(spelled(x), d.root)
    return x


def reduced(name: str) -> Callable[[Draw, Any], Any]:
    def call(d: Draw, on: Any) -> Any:
        x, y = d.array(), d.array()
        given = MPI.IN_PLACE if d.in_place else spelled(x)
        run = getattr(on, name)
        if d.named:
            run(recvbuf=spelled(y), sendbuf=given, op=d.op)
        else:
            run(given, spelled(y), d.op)
        return y

    return call


def reduce(d: Draw, on: Any) -> Any:
    x, y = d.array(), d.array()
    given = MPI.IN_PLACE if d.in_place and d.at_root else spelled(x)
    on.Reduce(given, spelled(y) if d.at_root else None, op=d.op, root=d.root)
    return y


def gather(d: Draw, on: Any) -> Any:
    x, y = d.array(), d.array(size)
    given = MPI.IN_PLACE if d.in_place and d.at_root else spelled(x)
    on.Gather(given, y if d.at_root else None, d.root)
    return y


def scatter(d: Draw, on: Any) -> Any:
    x, y = d.array(size), d.array()
    into = MPI.IN_PLACE if d.in_place and d.at_root else spelled(y)
    on.Scatter(x if d.at_root else None, into, root=d.root)
    return y


def allgather(d: Draw, on: Any) -> Any:
    x, y = d.array(), d.array(size)
    on.Allgather(MPI.IN_PLACE if d.in_place else spelled(x), y)
    return y


def alltoall(d: Draw, on: Any) -> Any:
    x, y = d.array(size), d.array(size)
    on.Alltoall(MPI.IN_PLACE if d.in_place else x, y)
    return y


def reduce_scatter_block(d: Draw, on: Any) -> Any:
    x, y = d.array(size), d.array(size if d.in_place else 1)
    on.Reduce_scatter_block(MPI.IN_PLACE if d.in_place else x, y, d.op)
    return y[: d.n]


def reduce_scatter(d: Draw, on: Any) -> Any:
    x, y = d.array(size), d.array()
    on.Reduce_scatter(x, y, [d.n] * size, op=d.op)
    return y


def allgatherv(d: Draw, on: Any) -> Any:
    x, y = d.array(), d.array(size)
    on.Allgatherv(x, [y, [d.n] * size, MPI._typedict[y.dtype.char]])
    return y


METHODS: dict[str, Callable[[Draw, Any], Any]] = {
    "Bcast": bcast, "Reduce": reduce, "Gather": gather, "Scatter": scatter,
    "Allgather": allgather, "Alltoall": alltoall, "Reduce_scatter_block": reduce_scatter_block,
    "Reduce_scatter": reduce_scatter, "Allgatherv": allgatherv,
    **{name: reduced(name) for name in ("Allreduce", "Scan", "Exscan")},
    "Barrier": lambda _, on: on.Barrier(),
    "bcast": lambda d, on: on.bcast((d.n, d.seed), d.root),
    "allgather": lambda d, on: on.allgather(obj := (d.n, d.seed)) or obj,
    "allreduce": lambda d, on: on.allreduce(d.seed, d.op if d.op != MPI.PROD else MPI.MAX),
}  # fmt: skip

for number in range(calls):
    draw = Draw()
    state = mine.getstate()
    want = draw.run(PLAIN)
    got = draw.run(comm)
    mine.setstate(state)
    where = (number, draw.method, vars(draw), want, got)
    assert type(want) is type(got), where
    if isinstance(want, np.ndarray):
        assert (want == got).all(), where
    else:
        assert want == got, where
carried = comm.explain(as_dict=True)
assert carried["Allreduce"]["carried_by"].get("xupc"), carried
print("done")
