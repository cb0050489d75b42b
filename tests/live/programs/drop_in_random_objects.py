"""Random calls that move objects, beside the same calls on mpi4py's communicator: equal results.

``drop_in_random_objects.py SEED CALLS LARGEST``. All threads draw the same numbers for what MPI
wants to be equal, and each its own for its objects, whose sizes differ: 0 to `LARGEST` bytes in one
call.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import reprlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from support.any_objects import draw, same

import xupc

seed, calls, largest = map(int, sys.argv[1:4])
WORLD = xupc.Comm(MPI.COMM_WORLD)
together, mine = random.Random(seed), random.Random(seed * 1000 + WORLD.rank)


# --- communicators ------------------------------------------------------------------------------


def new_communicator(old: Any) -> Any:
    """Return one of all threads or, of another set on each of some threads, a part of them."""
    kind = together.choice(["dup", "halves", "reversed", "some", "group"])
    first = together.randrange(old.size)
    if kind == "dup":
        return old.Dup()
    if kind == "group":
        group = old.Get_group().Incl(range(old.size - 1, -1, -1))
        return old.Create_group(group)
    if kind == "some":  # thread `first` is alone
        return old.Split(old.rank == first)
    return old.Split(old.rank % 2 if kind == "halves" else 0, -old.rank)


comms: list[Any] = [WORLD]


def change_communicators() -> None:
    """Make another communicator; free one if there are many."""
    if len(comms) > 4:
        comms.pop(together.randrange(1, len(comms))).Free()
    comms.append(new_communicator(WORLD))


# --- operations ---------------------------------------------------------------------------------


def pair(a: Any, b: Any) -> Any:
    """Show the order and the grouping of all operands: neither commutative nor associative."""
    return [a, b]


def longer(a: Any, b: Any) -> Any:
    return a if len(repr(type(a))) >= len(repr(type(b))) else b


def of_mpi(a: Any, b: Any, datatype: Any = None) -> Any:
    return a, b


def adding(a: Any, b: Any) -> Any:
    """Change the first operand, as operations of some programs do.

    mpi4py's own scans then use the changed operand once more: xupc's results are the right ones.
    """
    if isinstance(a, np.ndarray) and a.flags.writeable:
        a += b
        return a
    return a + b


USER = MPI.Op.Create(of_mpi, commute=False)
Operand = Callable[[int], Any]


def number(n: int) -> Any:
    return mine.randrange(100)


def array_of(kind: str) -> Operand:
    def make(n: int) -> Any:  # all threads have the same length: n is drawn together
        return (np.arange(max(n // 8, 1)) % 7 + WORLD.rank).astype(kind)

    return make


def words(n: int) -> Any:
    return chr(97 + WORLD.rank) * size_below(n)


def square(n: int) -> Any:
    return np.array([[1, WORLD.rank + 1], [0, mine.randrange(3)]], object)


OPERATIONS: list[tuple[Any, Operand]] = [
    (pair, lambda n: draw(mine, size_below(n))), (longer, lambda n: draw(mine, size_below(n))),
    (of_mpi, lambda n: draw(mine, size_below(n))), (USER, lambda n: draw(mine, size_below(n))),
    (MPI.SUM, number), (MPI.SUM, words), (MPI.SUM, array_of("i8")), (MPI.SUM, array_of("f8")),
    (MPI.PROD, array_of("u4")), (MPI.MAX, words), (MPI.MIN, number), (MPI.BXOR, array_of("i4")),
    (MPI.MAXLOC, lambda n: (number(n), WORLD.rank)), (lambda a, b: a @ b, square),
    (lambda a, b: a, words), (MPI.REPLACE, words), (adding, array_of("i8")), (adding, words),
]  # fmt: skip


# --- calls --------------------------------------------------------------------------------------


def size_below(top: int) -> int:
    """Return a size of this thread's own: small ones are as frequent as large ones."""
    return int(math.exp(mine.random() * math.log(top + 1))) - 1


class Call:
    """A call with the arguments of this thread."""

    def __init__(self) -> None:
        self.comm = together.choice(comms)
        self.method = together.choice(METHODS)
        root, top = together.random(), together.choice([30, 600, 600, 20_000, 300_000, largest])
        scans = self.method in ("scan", "exscan")
        self.op, operand = together.choice(OPERATIONS[:-2] if scans else OPERATIONS)
        self.by_default = together.random() < 0.1  # the root and the operation
        if self.by_default:
            self.op, operand = MPI.SUM, number
        self.root = 0 if self.by_default else int(root * self.comm.size)
        self.named = mine.random() < 0.2
        self.in_flight = together.choice([0, 0, 0, 1, 3])  # nonblocking calls before it
        self.object: Any = None
        if self.method in ("reduce", "allreduce", "scan", "exscan"):
            self.object = operand(top)
        elif self.method in ("scatter", "alltoall"):
            top = min(top, 4 * largest // self.comm.size)
            if self.method == "alltoall" or self.comm.rank == self.root:
                items = [draw(mine, size_below(top)) for _ in range(self.comm.size)]
                self.object = mine.choice([list, tuple])(items)
        elif self.method != "bcast" or self.comm.rank == self.root or mine.random() < 0.5:
            self.object = draw(mine, size_below(top))

    def make(self, on: Any) -> Any:
        """Make the call; return its result."""
        first = "obj" if self.method == "bcast" else "sendobj"
        keywords: dict[str, Any] = {}
        if self.method in ROOTED and not self.by_default:
            keywords["root"] = self.root
        if self.method in ("reduce", "allreduce", "scan", "exscan") and not self.by_default:
            keywords["op"] = self.op
        run = getattr(on, self.method)
        if self.named:
            return run(**{first: self.object}, **keywords)
        if "op" in keywords:
            return run(self.object, keywords.pop("op"), *keywords.values())
        return run(self.object, *keywords.values())


ROOTED = ("bcast", "gather", "scatter", "reduce")
METHODS = [*ROOTED, "allgather", "alltoall", "allreduce", "scan", "exscan"]


def same_results(call: Call) -> None:
    """Make a call by mpi4py and by xupc, with nonblocking calls in flight; compare results."""
    again = mine.getstate()
    before = pickle.dumps(call.object, 5) if call.op is adding else b""
    want = call.make(MPI.Intracomm(call.comm))
    mine.setstate(again)
    n, size = 100 * call.in_flight, call.comm.size
    source, found = np.full(n, 1.0), [np.zeros(n) for _ in range(call.in_flight)]
    requests = [call.comm.Iallreduce(source, each) for each in found]
    got = call.make(call.comm)
    MPI.Request.Waitall(requests)
    assert all((each == size).all() for each in found), about(call, want, got)
    assert same(want, got), about(call, want, got)
    assert not before or pickle.dumps(call.object, 5) == before, about(call, want, got)
    assert (got is call.object) == (want is call.object) or is_constant(got), about(call, want, got)


def about(call: Call, want: Any, got: Any) -> str:
    """Return what a failure shows, as shortly as objects of any size need."""
    return f"{call.method}: {reprlib.repr(vars(call))}: {reprlib.repr(want)} {reprlib.repr(got)}"


def is_constant(x: Any) -> bool:
    """Return whether nothing can tell an object from a copy of it."""
    return not isinstance(x, list | dict | np.ndarray | bytearray)


for turn in range(calls):
    if turn % 20 == 0:
        change_communicators()
    same_results(Call())
carried = [of["carried_by"] for of in WORLD.explain(as_dict=True).values()]
if WORLD.size > 1 and os.environ.get("XUPC_COMM") == "force":
    assert any("xupc" in of for of in carried), carried
print(f"done, {calls} calls")
