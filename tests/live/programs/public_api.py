"""Everything public, and one good call of each: the fuzz test starts from these.

Arguments are identified by their names, so a new function is covered when it has a good call here;
`forgotten` returns those that have none. A good call's arguments are made anew for each thread from
the same `World`, and so are equal on all threads where they have to be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import xupc
import xupc.upc

PART = 512  # elements of each thread
BLOCK = 8  # bytes, or elements, that a good call moves
CLASSES = {
    "SharedArray": xupc.SharedArray,
    "SharedPointer": xupc.SharedPointer,
    "Team": xupc.Team,
    "Handle": xupc.Handle,
}
# The library's own, although they begin without an underscore.
INTERNAL = {
    "Team": {"rank_of"},
    "SharedArray": {"allocation"},
    "SharedPointer": {"allocation"},
    "Handle": set(),
}  # fmt: skip
OPERATORS = {
    "SharedArray": ("__getitem__", "__setitem__", "__add__", "__radd__", "__array__", "__iter__"),
    "SharedPointer": (
        "__getitem__", "__setitem__", "__add__", "__radd__", "__sub__", "__rsub__", "__lt__",
        "__le__", "__gt__", "__ge__", "__eq__",
    ),
    "Team": ("__enter__",),
    "Handle": ("__eq__",),
}  # fmt: skip
# Not called by the fuzz test: finalize ends the job, the constructors are the library's own.
LEFT_OUT = {"algorithm", "finalize", *CLASSES}
ALONE = {
    "alloc", "broadcast", "exchange", "fence", "forall", "free", "gather", "global_alloc", "init",
    "memcpy", "memget", "memput", "memset", "scatter", "ticks_now", "ticks_to_ns", "vectorized",
    "wait_all",
}  # fmt: skip
TOGETHER = {
    "Team.barrier", "Team.cartesian", "Team.free", "Team.neighbours", "Team.notify", "Team.split",
    "Team.wait",
}  # fmt: skip
TYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
    "longdouble",
)  # fmt: skip


@dataclass(frozen=True)
class Public:
    """Something that can be called.

    Attributes
    ----------
    function
        What it comes to: the function of `xupc` whose arguments it has.
    alone
        Whether one thread calls it by itself.
    """

    name: str
    function: str
    alone: bool
    find: Callable[[World], Callable[..., Any]]
    parameters: tuple[str, ...]


class World:
    """The teams, arrays and values that good calls use."""

    def __init__(self) -> None:
        T = xupc.THREADS
        self.team = xupc.init()
        self.A = xupc.all_alloc(PART * T, "u1", PART)
        self.B = xupc.all_alloc(PART * T, "u1", PART)
        self.src = {k: xupc.all_alloc(PART * T, k, PART) for k in TYPES}
        self.dst = {k: xupc.all_alloc(PART * T, k, PART) for k in TYPES}
        self.part = self.team.split(0)
        self.ring = xupc.cartesian((T,), True)
        self.values = np.arange(BLOCK * T, dtype="i8")
        self.result = np.zeros(BLOCK * T, dtype="i8")
        self.handle = xupc.all_broadcast(self.B, self.A, BLOCK, xupc.ASYNC)
        self.handle.wait()
        self.notified = False


def _functions() -> Iterator[tuple[str, Any]]:
    for name in xupc.__all__:
        if name not in ("THREADS", "MYTHREAD"):
            value = getattr(xupc, name)
            if callable(value) and not _is_type(value) and name not in LEFT_OUT:
                yield name, value


def _is_type(value: Any) -> bool:
    return isinstance(value, type)


def parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters."""
    names = inspect.signature(function).parameters
    return tuple(name for name in names if name != "self")


def publics() -> list[Public]:
    """Everything that can be called."""
    out = []
    for name, value in _functions():
        plain = Public(name, name, name in ALONE, lambda _, f=value: f, parameters(value))
        out.append(plain)
        if hasattr(value, "plan"):
            out.append(
                Public(f"{name}.plan", name, False, lambda _, f=value: f.plan, plain.parameters)
            )
    for entry in xupc.upc.__all__:
        value = getattr(xupc.upc, entry)
        if inspect.isfunction(value):
            function = _stands_for(entry)
            alone = function in ALONE or function.startswith(("Shared", "Handle"))
            out.append(Public(entry, function, alone, lambda _, f=value: f, parameters(value)))
    for kind, cls in CLASSES.items():
        for name in members(cls):
            value = inspect.getattr_static(cls, name)
            names = parameters(value) if inspect.isfunction(value) else ()
            out.append(
                Public(
                    f"{kind}.{name}", f"{kind}.{name}", f"{kind}.{name}" not in TOGETHER,
                    _member(kind, name, value), names,
                )
            )  # fmt: skip
    return out


def members(cls: type) -> list[str]:
    """Methods and properties of a class that are public."""
    own = [n for n in attributes(cls) if not n.startswith("_")]
    return [*(n for n in own if n not in INTERNAL[cls.__name__]), *OPERATORS[cls.__name__]]


def attributes(cls: type) -> list[str]:
    """Return the names that a class and its bases define."""
    return list(dict.fromkeys(n for base in cls.__mro__[:-1] for n in vars(base)))


def _stands_for(name: str) -> str:
    table = xupc.upc.TABLE
    return next(e.function for e in table if name in e.names)


def _member(kind: str, name: str, value: Any) -> Callable[[World], Callable[..., Any]]:
    def find(w: World) -> Callable[..., Any]:
        x = {
            "SharedArray": w.A, "SharedPointer": w.A + 4, "Team": w.part, "Handle": w.handle
        }[kind]  # fmt: skip
        if kind == "Team" and name == "free":
            x = w.part.split(0)
        if isinstance(value, property):
            return lambda: getattr(x, name)
        return getattr(x, name)  # type: ignore[no-any-return]

    return find


def forgotten() -> set[str]:
    """Return the public names that have no good call."""
    return {p.name for p in publics() if not isinstance(good_names(p), frozenset)}


def good_names(p: Public) -> frozenset[str] | None:
    """The parameters that a good call gives."""
    makers = _good(p)
    return None if makers is None or set(p.parameters) - set(makers) else frozenset(makers)


def good(p: Public, w: World) -> dict[str, Any]:
    """The arguments of a good call."""
    makers = _good(p)
    assert makers is not None
    return {name: makers[name](w) for name in p.parameters}


Makers = dict[str, Callable[[World], Any]]
_COMMON: Makers = {
    "flags": lambda w: 0, "mode": lambda w: 0, "team": lambda w: None, "algorithm": lambda w: None,
}  # fmt: skip


def _good(p: Public) -> Makers | None:
    for family in (_by_class, _by_name, _relocation, _values, _computation):
        makers = family(p)
        if makers is not None:
            return {**_COMMON, **makers}
    return None


def _by_class(p: Public) -> Makers | None:
    if p.name in _OF_CLASSES:
        return _OF_CLASSES[p.name]
    kind = p.name.partition(".")[0]
    return {} if kind in CLASSES and not p.parameters else None


_OF_CLASSES: dict[str, Makers] = {
    "SharedArray.threadof": {"i": lambda w: 3},
    "SharedArray.phaseof": {"i": lambda w: 3},
    "SharedArray.local_view": {"thread": lambda w: 0},
    "SharedArray.ptr": {"i": lambda w: 3},
    "SharedArray.cast": {"dtype": lambda w: "i4", "blocksize": lambda w: 0},
    "SharedArray.__getitem__": {"key": lambda w: 3},
    "SharedArray.__setitem__": {"key": lambda w: slice(16, 24), "value": lambda w: 7},
    "SharedArray.__add__": {"i": lambda w: 3},
    "SharedArray.__radd__": {"i": lambda w: 3},
    "SharedArray.__array__": {"dtype": lambda w: "i8", "copy": lambda w: None},
    "SharedPointer.cast": {"dtype": lambda w: "i4", "blocksize": lambda w: 0},
    "SharedPointer.local": {"n": lambda w: 3},
    "SharedPointer.__getitem__": {"key": lambda w: 3},
    "SharedPointer.__setitem__": {"key": lambda w: slice(16, 24), "value": lambda w: 7},
    "SharedPointer.__add__": {"n": lambda w: 3},
    "SharedPointer.__radd__": {"n": lambda w: 3},
    "SharedPointer.__sub__": {"other": lambda w: w.A + 1},
    "SharedPointer.__rsub__": {"other": lambda w: w.A},
    **{
        f"SharedPointer.__{name}__": {"other": lambda w: w.A + 1}
        for name in ("lt", "le", "gt", "ge", "eq")
    },
    "Team.neighbours": {"sources": lambda w: [0], "destinations": lambda w: _first_to_all(w)},
    "Team.cartesian": {"dims": lambda w: (w.part.size,), "periods": lambda w: True},
    "Team.split": {"color": lambda w: 0, "key": lambda w: 0},
    "Team.level": {"name": lambda w: "l3"},
    "Team.level_roots": {"name": lambda w: "socket"},
    "Team.barrier": {"value": lambda w: None},
    "Team.notify": {"value": lambda w: None},
    "Team.wait": {"value": lambda w: None},
    "Handle.__eq__": {"other": lambda w: w.handle},
}



def _first_to_all(w: World) -> list[int]:
    return list(range(w.team.size)) if w.team.rank == 0 else []


_POINTERS: Makers = {"dst": lambda w: w.B, "src": lambda w: w.A, "nbytes": lambda w: BLOCK}
_NAMED: dict[str, Makers] = {
    "init": {name: lambda w: None for name in ("comm", "heap_size", "nodes", "timeout")},
    "all_alloc": {
        "nelems": lambda w: 64, "dtype": lambda w: "i4", "blocksize": lambda w: 2,
        "nblocks": lambda w: 4, "nbytes": lambda w: BLOCK,
    },
    "alloc": {"nelems": lambda w: 4, "dtype": lambda w: "i4", "nbytes": lambda w: BLOCK},
    "free": {"x": lambda w: xupc.alloc(8), "ptr": lambda w: xupc.alloc(8)},
    "all_free": {
        "x": lambda w: xupc.all_alloc(8, "i4"), "ptr": lambda w: xupc.all_alloc(8, "i4")
    },
    "barrier": {"value": lambda w: None},
    "notify": {"value": lambda w: None},
    "wait": {"value": lambda w: None},
    "fence": {},
    "ticks_now": {},
    "ticks_to_ns": {"ticks": lambda w: 5},
    "vectorized": {"func": lambda w: lambda a, b: a, "pure": lambda w: True},
    "forall": {
        "n": lambda w: 9, "A": lambda w: w.A, "blocksize": lambda w: None,
        "affinity": lambda w: w.A,
    },
    "wait_all": {"handles": lambda w: [w.handle]},
    "memcpy": {**_POINTERS, "n": lambda w: BLOCK},
    "memget": {
        "array": lambda w: w.result, "dst": lambda w: w.result, "src": lambda w: w.A,
        "nbytes": lambda w: BLOCK, "n": lambda w: BLOCK,
    },
    "memput": {
        "array": lambda w: w.values, "src": lambda w: w.values, "dst": lambda w: w.B,
        "nbytes": lambda w: BLOCK, "n": lambda w: BLOCK,
    },
    "memset": {
        "dst": lambda w: w.B, "byte": lambda w: 3, "c": lambda w: 3, "nbytes": lambda w: BLOCK,
        "n": lambda w: BLOCK,
    },
    "neighbours": {"sources": lambda w: [0], "destinations": _first_to_all},
    "cartesian": {"dims": lambda w: (w.team.size,), "periods": lambda w: True},
    "all_neighbour_exchange": {
        "neighbours": lambda w: w.ring, "dst": lambda w: w.B, "src": lambda w: w.A,
        "receive": lambda w: [slice(0, 8), slice(8, 16)],
        "send": lambda w: [slice(16, 24), slice(24, 32)],
    },
    "allav_neighbour_exchange": {
        "neighbours": lambda w: w.ring,
        "receive": lambda w: [w.result[:1], w.result[1:2]],
        "send": lambda w: [w.values[:1], w.values[1:2]],
    },
    "node_array": {"shape": lambda w: (3, 4), "dtype": lambda w: "f8"},
    "node_broadcast": {"array": lambda w: w.values, "root": lambda w: 0},
    "broadcast": _POINTERS,
    "scatter": _POINTERS,
    "gather": _POINTERS,
    "exchange": _POINTERS,
    **{f"SharedPointer.{name}": {"ptr": lambda w: w.A + 4} for name in (
        "thread", "phase", "resetphase", "addr"
    )},
    "Handle.test": {"handle": lambda w: w.handle},
    "Handle.done": {"handle": lambda w: w.handle},
}  # fmt: skip
_NAMED["global_alloc"] = _NAMED["all_alloc"]


def _by_name(p: Public) -> Makers | None:
    return _NAMED.get(p.function)


# By thread: T of [i], T*T of [i*T+j]; blocks side by side where there are several on a thread.
def _parts(w: World) -> list[int]:
    return [PART * i for i in range(xupc.THREADS)]


def _beside(w: World) -> list[int]:
    return [BLOCK * i for i in range(xupc.THREADS)]


def _all(w: World) -> list[int]:
    T = xupc.THREADS
    return [PART * i + BLOCK * j for i in range(T) for j in range(T)]


_SIDES: dict[str, tuple[Any, Any]] = {
    "broadcast": (_parts, None),
    "scatter": (_parts, _beside),
    "gather": (_beside, _parts),
    "gather_all": (_all, _parts),
    "exchange": (_all, _all),
    "permute": (_parts, _parts),
}


def _relocation(p: Public) -> Makers | None:
    name = p.function.removeprefix("all_")
    if not p.function.startswith("all_") or "reduce" in name:
        return None
    base, _, form = name.rpartition("_")
    makers: Makers = {**_POINTERS, "buf": lambda w: w.B, "perm": lambda w: list(range(w.team.size))}
    if form not in ("v", "x"):
        return makers if name.removesuffix("_in_place") in _SIDES else None
    dst, src = _SIDES[base]
    count = {"broadcast": 0, "exchange": 2}.get(base, 1)
    sizes = lambda w: [BLOCK] * w.team.size**count if count else BLOCK  # noqa: E731
    if form == "x":
        makers["dst"] = lambda w: [w.B + n for n in dst(w)]
        makers["src"] = lambda w: w.A if src is None else [w.A + n for n in src(w)]
        return {**makers, "nbytes": sizes}
    return {
        **makers, "ddisp": dst, "sdisp": src, "nelems": sizes, "dst_blk": lambda w: PART,
        "src_blk": lambda w: PART, "typesize": lambda w: 1,
    }  # fmt: skip


def _computation(p: Public) -> Makers | None:
    if not (p.function.startswith("all_") and "reduce" in p.function):
        return None
    entry = next((e for e in xupc.upc.TABLE if p.name in e.names), None)
    dtype = "int64" if entry is None else str(entry.names[p.name])
    name = next(k for k in TYPES if np.dtype(k) == np.dtype(dtype))
    most = PART // 16 if p.function == "all_reduce_scatter" else PART  # of each of T blocks there
    return {
        "dst": lambda w: w.dst[name], "src": lambda w: w.src[name], "op": lambda w: xupc.MAX,
        "nelems": lambda w: 2 * most if w.team.size > 1 else most, "blk_size": lambda w: PART,
        "func": lambda w: None,
    }  # fmt: skip


def _values(p: Public) -> Makers | None:
    prefix, _, name = p.function.partition("_")
    makers: Makers = {
        "op": lambda w: xupc.MAX, "func": lambda w: None, "root": lambda w: 0,
        "to": lambda w: w.team.rank, "value": lambda w: 5,
    }  # fmt: skip
    if prefix == "allv":
        one = p.parameters[0] == "values" and name not in ("scatter", "exchange", "reduce_scatter")
        return {**makers, "values": lambda w: 5 if one else list(range(w.team.size))}
    if prefix != "allav":
        return None
    counts = lambda w: [BLOCK] * w.team.size  # noqa: E731
    makers |= {"counts": counts, "recv_counts": counts, "send_counts": counts}
    places = lambda w: [BLOCK * i for i in range(w.team.size)]  # noqa: E731
    makers |= {"displs": places, "recv_displs": places, "send_displs": places}
    name = name.removesuffix("_v")
    dst = name in ("gather", "gather_all", "exchange")
    src = name in ("scatter", "exchange", "reduce_scatter")
    return {
        **makers, "values": lambda w: w.result,
        "dst": lambda w: w.result if dst else w.result[:BLOCK],
        "src": lambda w: w.values if src else w.values[:BLOCK],
    }  # fmt: skip
