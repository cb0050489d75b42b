"""Every collective call, what must be the same in it on all threads, and values that differ.

`FORMS` has an entry for each public collective function and method, and `argument` by argument
what one thread may give instead of what all others do. tests/unit/test_odd_calls.py asserts that
no function and no argument is missing here.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import xupc

N = 8  # elements in most calls
PART = 2048  # bytes of a thread's part of most arrays


class Shelf:
    """What the calls are about: shared arrays, pointers and lists, functions, private arrays."""

    def __init__(self, team: xupc.Team) -> None:
        T = self.T = team.size
        self.team = team
        self.last = T - 1
        self.A, self.B, self.C = (
            xupc.all_alloc(PART * T, "u1", PART, team=team) for _ in range(3)
        )
        room = max(64, 16 * T) * T  # a thread may give 16 elements for each thread
        self.I, self.J, self.K = (xupc.all_alloc(room, "i4", 8, team=team) for _ in range(3))
        self.U, self.V = (xupc.all_alloc(room, "u4", 8, team=team) for _ in range(2))
        self.I.local[:], self.U.local[:] = 3, 3
        self.P = xupc.all_alloc(2 * T, "i8", 1, team=team)
        self.P.local[:] = team.rank
        self.rows = [team.threads.index(t) for t in team.threads]
        self.D = np.arange(float(N * T))
        self.E = np.zeros(N * T)
        self.ring, self.line = (xupc.cartesian((T,), p, team=team) for p in (True, False))
        team.barrier()

    def at(self, array: Any, rank: int, offset: int = 0) -> Any:
        """A pointer to a byte of a thread's part."""
        return array + (PART * rank + offset)


class Odd(NamedTuple):
    """What one thread gives instead, and words that the message must have."""

    what: str
    change: Callable[[Shelf], dict[str, Any]]
    words: Callable[[Shelf], tuple[str, ...]]


class Form(NamedTuple):
    """A collective call.

    Attributes
    ----------
    make
        ``(shelf, team)`` to the function; `team` is given by keyword if `on_team`.
    good
        The arguments of all threads.
    odd
        By argument; those of `own` may differ between threads.
    bad
        By argument: a value that is wrong, and the error.
    kind
        "shared": moves shared data, its flags say whether it synchronises; "values": on private
        data, its flags say nothing, differences are found at the next call; "meets": always
        synchronises.
    """

    make: Callable[[Shelf], Callable[..., Any]]
    good: Callable[[Shelf], dict[str, Any]]
    odd: dict[str, list[Odd]]
    bad: dict[str, tuple[Any, type[BaseException]]]
    kind: str = "shared"
    own: tuple[str, ...] = ()
    on_team: bool = True
    base: dict[str, Callable[[Shelf], dict[str, Any]]] = {}  # noqa: RUF012
    """What all threads give besides when an argument is varied."""


def odd(what: str, change: Callable[[Shelf], dict[str, Any]], *words: str) -> Odd:
    """Words may have ``{last}``, ``{T}``, ``{T1}`` (T + 1)."""
    return Odd(
        what, change, lambda s: tuple(w.format(last=s.last, T=s.T, T1=s.T + 1) for w in words)
    )


# --- functions of users: one code, another code, another name, another module -----------------
def join(a: Any, b: Any) -> Any:
    """Addition."""
    return a + b


def _other(name: str, module: str, code: Any) -> Any:
    f = types.FunctionType(code.__code__, globals(), name)
    f.__qualname__, f.__module__ = name, module
    return f


other_code = _other("join", join.__module__, lambda a, b: b + a)
other_name = _other("joined", join.__module__, join)
other_module = _other("join", "elsewhere", join)


# --- flags -----------------------------------------------------------------------------------
def _flag(name: str) -> Odd:
    return odd(name, lambda s: {"flags": int(xupc.Flags[name])}, "flags differs", name, ": 0")


FLAGS = [_flag(name) for name in ("PULL", "MULTICORE", "REPRODUCIBLE", "ASYNC")]
_SCANS = ("prefix_reduce", "suffix_reduce")
SYNCS = [_flag(name) for name in ("IN_MYSYNC", "OUT_NOSYNC")]
EXCLUSIVE = _flag("EXCLUSIVE")
"""Of prefix and suffix: the others refuse it."""
BAD_FLAGS = (int(xupc.IN_NOSYNC | xupc.IN_ALLSYNC), xupc.FlagError)
BAD_TEAM = ("everybody", TypeError)
TEAM = {"team": BAD_TEAM}


# --- blocks at one address ---------------------------------------------------------------------
def _moves(name: str) -> Form:
    roots = {"broadcast": "src", "scatter": "src", "gather": "dst"}
    good = {"dst": lambda s: s.B, "src": lambda s: s.A, "nbytes": lambda s: 64}
    odds = {
        "dst": [
            odd("offset", lambda s: {"dst": s.B + 8}, "dst differs", "offset"),
            odd("array", lambda s: {"dst": s.C}, "dst differs", "offset"),
        ],
        "src": [
            odd("offset", lambda s: {"src": s.A + 8}, "src differs", "offset"),
            odd("array", lambda s: {"src": s.C}, "src differs", "offset"),
        ],
        "nbytes": [odd("72", lambda s: {"nbytes": 72}, "nbytes differs", ": 72", ": 64")],
        "flags": FLAGS + SYNCS,
        "team": [],
    }
    bad: dict[str, Any] = {
        "dst": (None, TypeError), "src": ([1], TypeError), "nbytes": (0, ValueError),
        "flags": BAD_FLAGS, **TEAM,
    }  # fmt: skip
    root = roots.get(name)
    if root:
        array = "A" if root == "src" else "B"
        odds[root].append(
            odd("root", lambda s: {root: s.at(getattr(s, array), s.last)},
                f"{root} differs", "thread {last} offset", "thread 0 offset")
        )  # fmt: skip
        odds["flags"] = [*odds["flags"], _flag("IN_PLACE")]
    elif name != "broadcast_in_place":
        odds["src"].append(odd("in place", lambda s: {"src": None}, "src differs", "None"))
    if name == "broadcast_in_place":
        good = {"buf": lambda s: s.B, "nbytes": lambda s: 64}
        del odds["dst"], odds["src"], bad["dst"], bad["src"]
        bad["buf"] = (None, TypeError)
        odds["buf"] = [
            odd("root", lambda s: {"buf": s.at(s.B, s.last)}, "buf differs",
                "thread {last} offset", "thread 0 offset"),
            odd("offset", lambda s: {"buf": s.B + 8}, "buf differs", "offset"),
        ]  # fmt: skip
    base = {}
    if name == "permute":
        good["perm"] = lambda s: tuple(s.rows)
        odds["perm"] = [
            odd("entry", lambda s: {"perm": [s.last, *range(1, s.last), 0]},
                "perm[0] differs", ": {last}", ": 0"),
            odd("shared", lambda s: {"perm": s.P}, "perm differs", "a private list", "offset"),
        ]  # fmt: skip
        bad["perm"] = ([0, 0, 0, 0], ValueError)
    return Form(
        lambda s: getattr(xupc, f"all_{name}"),
        lambda s: {key: value(s) for key, value in good.items()}, odds, bad, base=base,
    )  # fmt: skip


# --- reductions ---------------------------------------------------------------------------------
FUNCS = [
    odd("code", lambda s: {"func": other_code}, "func differs", "join ("),
    odd("name", lambda s: {"func": other_name}, "func differs", "join (", "joined ("),
    odd("module", lambda s: {"func": other_module}, "func differs", "elsewhere.join (", ".join ("),
]
OPS = [odd("MAX", lambda s: {"op": xupc.MAX}, "op differs", ": MAX", ": ADD")]
WITH_FUNC: dict[str, Any] = {"func": lambda s: {"op": xupc.FUNC, "func": join}}


def _reduces(name: str) -> Form:
    odds = {
        "dst": [odd("offset", lambda s: {"dst": s.J + 8 * s.T}, "dst differs", "offset")],
        "src": [
            odd("offset", lambda s: {"src": s.I + 8 * s.T}, "src differs", "offset"),
            odd("dtype", lambda s: {"src": s.U, "dst": s.V}, "dst differs", "uint32", "int32"),
        ],
        "op": OPS,
        "nelems": [odd("16", lambda s: {"nelems": 16}, "nelems differs", ": 16", ": 8")],
        "blk_size": [odd("4", lambda s: {"blk_size": 4}, "blk_size differs", ": 4", ": 2")],
        "func": FUNCS,
        "flags": FLAGS + SYNCS,
        "team": [],
    }
    if name in ("reduce", "reduce_mpi"):
        odds["dst"].append(
            odd("root", lambda s: {"dst": s.J + 8 * s.last}, "dst differs",
                "thread {last} offset", "thread 0 offset")
        )  # fmt: skip
    good = {"nelems": 8, "blk_size": 2}
    bad: dict[str, Any] = {
        "dst": (None, TypeError), "src": (3, TypeError), "op": ("ADD", TypeError),
        "nelems": (0, ValueError), "blk_size": (-1, ValueError), "func": (join, ValueError),
        "flags": BAD_FLAGS, **TEAM,
    }  # fmt: skip
    if name == "reduce_scatter":
        for found in (good, bad, odds):
            del found["blk_size"]
    if name in (*_SCANS, "reduce_mpi_all"):
        odds["src"].append(odd("in place", lambda s: {"src": None}, "src differs", "None"))
    if name in _SCANS:
        odds["flags"] = [*odds["flags"], EXCLUSIVE]
    return Form(
        lambda s: getattr(xupc, f"all_{name}"),
        lambda s: {"dst": s.J, "src": s.I, "op": xupc.ADD, **good}, odds, bad,
        base=WITH_FUNC,
    )  # fmt: skip


# --- blocks anywhere ------------------------------------------------------------------------------
def _counts(name: str, T: int) -> tuple[int, int, int]:
    """Entries of dst, src and sizes."""
    return {
        "broadcast": (T, 1, 1), "scatter": (T, T, T), "gather": (T, T, T),
        "gather_all": (T * T, T, T), "permute": (T, T, T), "exchange": (T * T, T * T, T * T),
    }[name]  # fmt: skip


def _owner(name: str, side: str, k: int, T: int) -> int:
    """The rank on whose memory entry k of dst or src has to be."""
    if (name, side) == ("gather", "dst") or (name, side) == ("scatter", "src"):
        return 0
    return k // T if k >= T or _counts(name, T)[side == "src"] > T else k


def _disp(name: str, side: str, T: int) -> list[int]:
    """Displacements that are good with blocks of 8 elements and with blocks of 8 (T + 1)."""
    count = _counts(name, T)[side == "src"]
    out = []
    for k in range(count):
        owner = _owner(name, side, k, T)
        row = k if owner == 0 and count == T and name in ("gather", "scatter") else k % T
        row = 0 if count == T and name not in ("gather", "scatter") else row
        # on thread 0 the two would agree on the places, but for the 8 T
        out.append(8 * (T + 1) * (owner + T * row) + 8 * T * (owner == 0))
    return out


def _sizes(name: str, T: int, n: int) -> Any:
    count = _counts(name, T)[2]
    return n if name == "broadcast" else (n,) * count


def _entry(
    good: Callable[[Shelf], dict[str, Any]], which: str, by: int
) -> Callable[[Shelf], dict[str, Any]]:
    """The last thread's entry in a list of a good call is another."""

    def change(s: Shelf) -> dict[str, Any]:
        given = good(s)[which]
        return {which: (*given[: s.last], given[s.last] + by, *given[s.last + 1 :])}

    return change


def _v_form(name: str) -> Form:
    single = name == "broadcast"

    def good(s: Shelf) -> dict[str, Any]:
        out = {
            "dst": s.B, "src": s.A, "ddisp": tuple(_disp(name, "dst", s.T)),
            "nelems": _sizes(name, s.T, 8), "dst_blk": 8, "typesize": 1,
        }  # fmt: skip
        if not single:
            out |= {"sdisp": tuple(_disp(name, "src", s.T)), "src_blk": 8}
        if name == "permute":
            out["perm"] = tuple(s.rows)
        return out

    entry = functools.partial(_entry, good)
    odds = {
        "dst": [odd("array", lambda s: {"dst": s.C}, "dst differs", "offset")],
        "src": [odd("array", lambda s: {"src": s.C}, "src differs", "offset")],
        "ddisp": [odd("entry", entry("ddisp", 1), "ddisp[{last}] differs")],
        "dst_blk": [
            odd("other", lambda s: {"dst_blk": 8 * (s.T + 1)}, "dst_blk differs", ": 8")
        ],
        "typesize": [odd("2", lambda s: {"typesize": 2}, "typesize differs", ": 2", ": 1")],
        "flags": FLAGS[:2] + FLAGS[3:] + SYNCS,
        "team": [],
    }
    bad: dict[str, Any] = {
        "dst": (None, TypeError), "src": (3, TypeError), "ddisp": ((0,), ValueError),
        "nelems": (-1 if single else (-1,), ValueError), "dst_blk": (-1, ValueError),
        "typesize": (0, ValueError), "flags": BAD_FLAGS, **TEAM,
    }  # fmt: skip
    if single:
        odds["nelems"] = [odd("7", lambda s: {"nelems": 7}, "nelems differs", ": 7", ": 8")]
    else:
        odds["nelems"] = [odd("entry", entry("nelems", -1), "nelems[{last}] differs", ": 7", ": 8")]
        odds["sdisp"] = [odd("entry", entry("sdisp", 1), "sdisp[{last}] differs")]
        odds["src_blk"] = [
            odd("other", lambda s: {"src_blk": 8 * (s.T + 1)}, "src_blk differs", ": 8")
        ]
        bad |= {"sdisp": ((0,), ValueError), "src_blk": (-1, ValueError)}
    if name == "permute":
        odds["perm"] = _PERM
        bad["perm"] = ((0,), ValueError)
    return Form(lambda s: getattr(xupc, f"all_{name}_v"), good, odds, bad)


_PERM = [
    odd("entry", lambda s: {"perm": (s.last, *range(1, s.last), 0)}, "perm[0] differs",
        ": {last}", ": 0"),
    odd("shared", lambda s: {"perm": s.P}, "perm differs", "a private list", "offset"),
]  # fmt: skip


def _x_form(name: str) -> Form:
    single = name == "broadcast"

    def pointers(s: Shelf, side: str) -> Any:
        array = s.B if side == "dst" else s.A
        count = _counts(name, s.T)[side == "src"]
        rows = [k % s.T if count > s.T or _owner(name, side, 1, s.T) == 0 else 0
                for k in range(count)]  # fmt: skip
        return tuple(
            s.at(array, _owner(name, side, k, s.T), 64 * rows[k]) for k in range(count)
        )

    def good(s: Shelf) -> dict[str, Any]:
        out = {
            "dst": pointers(s, "dst"), "src": s.A if single else pointers(s, "src"),
            "nbytes": _sizes(name, s.T, 8),
        }  # fmt: skip
        if name == "permute":
            out["perm"] = tuple(s.rows)
        return out

    entry = functools.partial(_entry, good)
    odds = {
        "dst": [odd("entry", entry("dst", 8), "dst[{last}] differs", "offset")],
        "flags": FLAGS[:2] + FLAGS[3:] + SYNCS,
        "team": [],
    }
    bad: dict[str, Any] = {
        "dst": ((None,), ValueError), "src": (3, TypeError),
        "nbytes": (-1 if single else (-1,), ValueError), "flags": BAD_FLAGS, **TEAM,
    }  # fmt: skip
    if single:
        odds["src"] = [odd("offset", lambda s: {"src": s.A + 8}, "src differs", "offset")]
        odds["nbytes"] = [odd("7", lambda s: {"nbytes": 7}, "nbytes differs", ": 7", ": 8")]
    else:
        odds["src"] = [odd("entry", entry("src", 8), "src[{last}] differs", "offset")]
        odds["nbytes"] = [odd("entry", entry("nbytes", -1), "nbytes[{last}] differs", ": 7", ": 8")]
    if name == "permute":
        odds["perm"] = _PERM
        bad["perm"] = ((0,), ValueError)
    return Form(lambda s: getattr(xupc, f"all_{name}_x"), good, odds, bad)


# --- arrays of values ------------------------------------------------------------------------
_ALL = ("gather_all", "exchange")
_ROOTED = ("broadcast", "scatter", "gather", "reduce")
_ROOT = [odd("last", lambda s: {"root": s.last}, "root differs", ": {last}", ": 0")]


def _with_options(name: str, s: Shelf, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call and those that calls of its kind have besides."""
    out = dict(arguments)
    if name in _ROOTED:
        out["root"] = 0
    if "reduce" in name:
        out["op"] = xupc.ADD
    if name == "permute":
        out["to"] = (s.team.rank + 1) % s.T
    return out


def _vary_options(name: str, odds: dict[str, list[Odd]], bad: dict[str, Any], root: Any) -> None:
    """Add what may differ or be wrong in the arguments of `_with_options`, and EXCLUSIVE."""
    if name in _ROOTED:
        odds["root"] = _ROOT
        bad["root"] = root
    if name == "permute":
        odds["to"] = []
        bad["to"] = (-1, ValueError)
    if "reduce" in name:
        odds |= {"op": OPS, "func": FUNCS}
        bad |= {"op": ("ADD", TypeError), "func": (join, ValueError)}
    if name in _SCANS:
        odds["flags"] = [*odds["flags"], EXCLUSIVE]


def _longer(s: Shelf, name: str, n: int, dtype: Any) -> dict[str, Any]:
    """Arrays of another size or type, as the form has them."""
    dst = n * s.T if name in ("gather", *_ALL) else n
    src = n * s.T if name in ("scatter", "exchange", "reduce_scatter") else n
    if name == "broadcast":
        return {"values": np.zeros(n, dtype)}
    return {"dst": np.zeros(dst, dtype), "src": np.zeros(src, dtype)}


def _values_form(name: str) -> Form:
    arrays = "values" if name == "broadcast" else "src"

    @functools.cache
    def kept(s: Shelf) -> dict[str, Any]:
        return _longer(s, name, N, "f8")

    def good(s: Shelf) -> dict[str, Any]:
        return _with_options(name, s, kept(s))

    odds: dict[str, list[Odd]] = {
        arrays: [
            odd("nine", lambda s: _longer(s, name, 9, "f8"), "elements differs",
                ": 9 x float64", ": 8 x float64"),
            odd("dtype", lambda s: _longer(s, name, N, "f4"), "elements differs",
                ": 8 x float32", ": 8 x float64"),
            odd("dtype of the same size", lambda s: _longer(s, name, N, "i8"), "elements differs",
                ": 8 x int64", ": 8 x float64"),
        ],
        "flags": FLAGS, "team": [],
    }  # fmt: skip
    bad: dict[str, Any] = {arrays: (None, TypeError), "flags": BAD_FLAGS, **TEAM}
    if name != "broadcast":
        odds["dst"] = []
        bad["dst"] = ([0], TypeError)
        if name in ("scatter", "gather", "reduce"):
            bad.pop("src" if name == "scatter" else "dst")  # the root's alone
        if name in (*_ALL, "permute", "reduce_all", "reduce_scatter", *_SCANS):
            bad["src"] = (3, TypeError)
    _vary_options(name, odds, bad, root=(-1, ValueError))
    return Form(
        lambda s: getattr(xupc, f"allav_{name}"), good, odds, bad, "values", ("dst", "to"),
        base=WITH_FUNC,
    )  # fmt: skip


def _uneven_form(name: str) -> Form:
    """Blocks of different sizes: what must be equal is compared before data moves."""
    counts = ("recv_counts", "send_counts") if name == "exchange" else ("counts",)
    displs = tuple(x.replace("counts", "displs") for x in counts)

    def arrays(s: Shelf, dtype: str = "f8") -> dict[str, Any]:
        out = {x: y.astype(dtype) for x, y in _longer(s, name, N, "f8").items()}
        return out | {x: [N] * s.T for x in counts}

    @functools.cache
    def kept(s: Shelf) -> dict[str, Any]:
        return arrays(s)

    def good(s: Shelf) -> dict[str, Any]:
        root = {"root": 0} if name in ("gather", "scatter") else {}
        return {**kept(s), **root, "flags": 0}

    odds: dict[str, list[Odd]] = {
        "src": [
            odd("dtype", lambda s: arrays(s, "i8"), "elements differs", ": int64", ": float64")
        ],
        "flags": FLAGS, "team": [],
    }  # fmt: skip
    bad: dict[str, Any] = {
        "dst": ([0], TypeError), "src": (3, TypeError), "flags": BAD_FLAGS, **TEAM,
        **dict.fromkeys(counts, (3, TypeError)), **dict.fromkeys(displs, ("at", TypeError)),
    }  # fmt: skip
    if name in ("gather", "scatter"):  # some are the root's alone
        for x in ("dst" if name == "gather" else "src", *counts, *displs):
            bad.pop(x)
        odds["root"] = _ROOT
        bad["root"] = (-1, ValueError)
    if name == "gather_all":

        def fewer(s: Shelf) -> dict[str, Any]:
            of = (s.team.rank + 1) % s.T  # its own block has N elements
            return {"counts": [N - (i == of) for i in range(s.T)]}

        odds["counts"] = [odd("fewer", fewer, "counts differs")]
    own = ("dst", *displs, *(counts if name != "gather_all" else ()))
    return Form(
        lambda s: getattr(xupc, f"allav_{name}_v"), good, odds, bad, "meets", own
    )  # fmt: skip


def _scalar_form(name: str) -> Form:
    many = name in ("scatter", "exchange", "reduce_scatter")

    def good(s: Shelf) -> dict[str, Any]:
        return _with_options(name, s, {"values": [7] * s.T} if many else {"value": 7})

    value = "values" if many else "value"

    def other(x: Any) -> Callable[[Shelf], dict[str, Any]]:
        return lambda s: {value: [x] * s.T if many else x}

    odds: dict[str, list[Odd]] = {
        value: [
            odd("float", other(7.0), "differs", "float", "int"),
            odd("numpy", other(np.int64(7)), "type differs", "numpy int64", "int"),
        ],
        "flags": FLAGS[:3], "team": [],
    }  # fmt: skip
    own: tuple[str, ...] = ("to",)
    bad: dict[str, Any] = {value: (object(), TypeError), "flags": BAD_FLAGS, **TEAM}
    if name == "scatter":  # the root's alone
        odds[value], own = [], ("to", "values")
        bad.pop(value)
    if name == "broadcast":
        bad.pop(value)
    _vary_options(name, odds, bad, root=("first", TypeError))
    return Form(
        lambda s: getattr(xupc, f"allv_{name}"), good, odds, bad, "values", own, base=WITH_FUNC
    )


# --- everything else --------------------------------------------------------------------------
def _split_phase(s: Shelf) -> Callable[..., Any]:
    def notify_wait(value: Any = None) -> None:
        s.team.notify(value)
        s.team.wait()

    return notify_wait


def _of_first(s: Shelf) -> list[int]:
    """The destinations of this thread, if it is the source for itself and thread 0 for all."""
    return [s.team.rank, *(range(s.T) if s.team.rank == 0 else ())]


_OTHER_NEIGHBOURS = odd(
    "neighbours", lambda s: {"neighbours": s.line}, "neighbours differs"
)
_HALVES = (slice(0, 8), slice(8, 16)), (slice(16, 24), slice(24, 32))
_NEIGHBOURS = {
    "neighbours": Form(
        lambda s: xupc.neighbours,
        lambda s: {"sources": [s.team.rank, 0], "destinations": _of_first(s)},
        {"team": []}, {"sources": (3, TypeError), "destinations": (["a"], TypeError), **TEAM},
        "meets", own=("sources", "destinations"),
    ),
    "cartesian": Form(
        lambda s: xupc.cartesian, lambda s: {"dims": (s.T,), "periods": True},
        {
            "dims": [odd("dims", lambda s: {"dims": (1, s.T)}, "dims differs", "(1, {T})")],
            "periods": [odd("one", lambda s: {"periods": False}, "periods differs", "False")],
            "team": [],
        },
        {"dims": ((0,), ValueError), "periods": ((True,) * 5, ValueError), **TEAM}, "meets",
    ),
    "all_neighbour_exchange": Form(
        lambda s: xupc.all_neighbour_exchange,
        lambda s: {
            "neighbours": s.ring, "dst": s.B, "src": s.A, "receive": _HALVES[0],
            "send": _HALVES[1], "flags": 0,
        },
        {"neighbours": [_OTHER_NEIGHBOURS], "flags": FLAGS + SYNCS},
        {
            "dst": (3, TypeError), "src": (None, TypeError), "receive": ([1], ValueError),
            "send": ([1, 2], TypeError), "flags": BAD_FLAGS,
        },
        "meets", own=("dst", "src", "receive", "send"), on_team=False,
    ),
    "allav_neighbour_exchange": Form(
        lambda s: xupc.allav_neighbour_exchange,
        lambda s: {
            "neighbours": s.ring, "receive": [np.zeros(3), np.zeros(3)],
            "send": [np.zeros(3), np.zeros(3)], "flags": 0,
        },
        {"neighbours": [_OTHER_NEIGHBOURS], "flags": FLAGS},
        {"receive": ([], ValueError), "send": (3, TypeError), "flags": BAD_FLAGS},
        "meets", own=("receive", "send"), on_team=False,
    ),
}  # fmt: skip

_VALUES = [
    odd("number", lambda s: {"value": 2}, "value differs", ": 2", ": 1"),
    odd("text", lambda s: {"value": "one"}, "value differs", ": 'one'", ": 1"),
]
_MAKES = {
    "nelems": [odd("11", lambda s: {"nelems": 11}, "nelems differs", ": 11", ": 10")],
    "dtype": [
        odd("size", lambda s: {"dtype": "f8"}, "dtype differs", ": f8", ": i4"),
        odd("same size", lambda s: {"dtype": "f4"}, "dtype differs", ": f4", ": i4"),
    ],
    "blocksize": [odd("none", lambda s: {"blocksize": None}, "blocksize differs", ": None", ": 2")],
    "team": [],
}
_MOVES = ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute")
_REDUCES = (
    "reduce", "prefix_reduce", "suffix_reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all",
    "reduce_scatter",
)  # fmt: skip
_ON_VALUES = (
    *_MOVES, "reduce", "reduce_all", "reduce_scatter", "prefix_reduce", "suffix_reduce",
)  # fmt: skip

FORMS: dict[str, Form] = {
    **{f"all_{name}": _moves(name) for name in (*_MOVES, "broadcast_in_place")},
    **{f"all_{name}": _reduces(name) for name in _REDUCES},
    **{f"all_{name}_v": _v_form(name) for name in _MOVES},
    **{f"all_{name}_x": _x_form(name) for name in _MOVES},
    **{f"allav_{name}": _values_form(name) for name in _ON_VALUES},
    **{f"allav_{name}_v": _uneven_form(name) for name in _MOVES[1:5]},
    **{f"allv_{name}": _scalar_form(name) for name in _ON_VALUES},
    "barrier": Form(
        lambda s: s.team.barrier, lambda s: {"value": 1}, {"value": _VALUES}, {}, "meets",
        on_team=False,
    ),
    "notify": Form(
        _split_phase, lambda s: {"value": 1}, {"value": _VALUES}, {}, "meets", on_team=False
    ),
    "all_alloc": Form(
        lambda s: xupc.all_alloc, lambda s: {"nelems": 10, "dtype": "i4", "blocksize": 2},
        _MAKES,
        {"nelems": (-1, ValueError), "dtype": (object, TypeError), "blocksize": (-3, ValueError),
         **TEAM},
        "meets",
    ),
    "all_free": Form(
        lambda s: xupc.all_free, lambda s: {"x": s.A},
        {"x": [odd("array", lambda s: {"x": s.B}, "x differs", "offset")]},
        {"x": (3, TypeError)}, "meets", on_team=False,
    ),
    "node_array": Form(
        lambda s: xupc.node_array, lambda s: {"shape": (3, 4), "dtype": "i4"},
        {
            "shape": [
                odd("other", lambda s: {"shape": (4, 3)}, "shape differs", "(4, 3)", "(3, 4)")
            ],
            "dtype": _MAKES["dtype"], "team": [],
        },
        {"shape": (-1, ValueError), "dtype": (object, TypeError), **TEAM}, "meets",
    ),
    "node_broadcast": Form(
        lambda s: xupc.node_broadcast, lambda s: {"array": s.D, "root": 0},
        {
            "root": [odd("last", lambda s: {"root": s.last}, "root differs", ": {last}", ": 0")],
            "team": [],
        },
        {"root": (-1, ValueError), **TEAM}, "meets", own=("array",),
    ),
    "Team.split": Form(
        lambda s: s.team.split, lambda s: {"color": 0, "key": 0}, {},
        {"color": ("red", TypeError), "key": (1 << 63, ValueError)}, "meets",
        own=("color", "key"), on_team=False,
    ),
    **_NEIGHBOURS,
    "Team.free": Form(lambda s: s.team.free, lambda s: {}, {}, {}, "meets", on_team=False),
}  # fmt: skip


def plan_of(form: Form) -> Form:
    """The making of a plan: always a meeting of all threads."""
    return form._replace(make=lambda s: form.make(s).plan)  # type: ignore[attr-defined]


FORMS |= {
    f"{name}.plan": plan_of(form)
    for name, form in list(FORMS.items())
    if name not in _NEIGHBOURS
    and (name.startswith("allav_") or (name.startswith("all_") and form.kind == "shared"))
}
