"""The documents' own names: all there, in the documents' order, over the right functions."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xupc
from xupc import upc
from xupc.pgas import shared_pointer

PROJECT = Path(xupc.__file__).parent.parent

# Taken from the documents, not from the table.
MOVES = ("broadcast", "scatter", "gather", "gather_all", "exchange")
TYPES = {
    "C": "int8",
    "UC": "uint8",
    "S": "int16",
    "US": "uint16",
    "I": "int32",
    "UI": "uint32",
    "L": "int64",
    "UL": "uint64",
    "F": "float32",
    "D": "float64",
    "LD": "longdouble",
}
REDUCTIONS = {
    "upc_all_reduce{}": "all_reduce",
    "upc_all_prefix_reduce{}": "all_prefix_reduce",
    "xupc_all_reduce{}_all": "all_reduce_all",
    "xupc_all_reduce{}_mpi": "all_reduce_mpi",
    "xupc_all_reduce{}_mpi_all": "all_reduce_mpi_all",
    "xupc_all_suffix_reduce{}": "all_suffix_reduce",
}
V = ("dst", "src", "ddisp", "sdisp", "nelems", "dst_blk", "src_blk", "typesize", "mode")
FORMS = {
    **{f"{m}_v": V for m in ("scatter", "gather", "gather_all")},
    "broadcast_v": ("dst", "src", "ddisp", "nelems", "dst_blk", "typesize", "mode"),
    "exchange_v": (*V[:5], "src_blk", "dst_blk", *V[7:]),
    "permute_v": (*V[:2], "perm", *V[2:]),
    **{f"{m}_x": ("dst", "src", "nbytes", "mode", "team") for m in MOVES},
    "permute_x": ("dst", "src", "perm", "nbytes", "mode", "team"),
}
TYPED = [
    (pattern.format(t), function, t) for pattern, function in REDUCTIONS.items() for t in TYPES
]
ONE_SIDED = ("broadcast", "scatter", "gather", "exchange")
REDUCTION_ARGUMENTS = ("dst", "src", "op", "nelems", "blk_size", "func", "flags")
RUNNING = ("reduce_all", "prefix_reduce", "suffix_reduce")
ARGUMENTS = {
    **{f"{u}_all_{m}": ("dst", "src", "nbytes", "flags") for u in ("upc", "xupc") for m in MOVES},
    "upc_all_permute": ("dst", "src", "perm", "nbytes", "flags"),
    "xupc_all_permute": ("dst", "src", "perm", "nbytes", "flags"),
    **{name: REDUCTION_ARGUMENTS for name, _, _ in TYPED},
    **{f"{u}_all_{m}": names for u in ("upc", "xupc") for m, names in FORMS.items()},
    "xupc_all_broadcast_in_place": ("buf", "nbytes", "flags"),
    **{f"upc_{m}": ("dst", "src", "nbytes") for m in ONE_SIDED},
    "xupc_allav_broadcast": ("values", "root", "flags"),
    **{f"xupc_allav_{m}": ("dst", "src", "root", "flags") for m in ("scatter", "gather")},
    **{f"xupc_allav_{m}": ("dst", "src", "flags") for m in ("gather_all", "exchange")},
    "xupc_allav_permute": ("dst", "src", "to", "flags"),
    "xupc_allav_reduce": ("dst", "src", "op", "root", "func", "flags"),
    **{f"xupc_allav_{m}": ("dst", "src", "op", "func", "flags") for m in RUNNING},
    "xupc_allv_scatter": ("values", "root", "flags"),
    "xupc_allv_gather": ("value", "root", "flags"),
    "xupc_allv_broadcast": ("value", "root", "flags"),
    "xupc_allv_gather_all": ("value", "flags"),
    "xupc_allv_exchange": ("values", "flags"),
    "xupc_allv_permute": ("value", "to", "flags"),
    "xupc_allv_reduce": ("value", "op", "root", "func", "flags"),
    **{f"xupc_allv_{m}": ("value", "op", "func", "flags") for m in RUNNING},
    "upc_ticks_now": (),
    "upc_ticks_to_ns": ("ticks",),
    "upc_all_alloc": ("nblocks", "nbytes"),
    "upc_global_alloc": ("nblocks", "nbytes"),
    "upc_alloc": ("nbytes",),
    "upc_free": ("ptr",),
    "upc_all_free": ("ptr",),
    "upc_threadof": ("ptr",),
    "upc_phaseof": ("ptr",),
    "upc_resetphase": ("ptr",),
    "upc_addrfield": ("ptr",),
    "upc_memcpy": ("dst", "src", "n"),
    "upc_memget": ("dst", "src", "n"),
    "upc_memput": ("dst", "src", "n"),
    "upc_memset": ("dst", "c", "n"),
    "upc_barrier": ("value",),
    "upc_notify": ("value",),
    "upc_wait": ("value",),
    "upc_test": ("handle",),
    "upc_get_status": ("handle",),
    "upc_fence": (),
    "upc_forall": ("n", "affinity", "blocksize"),
}
FLAGS = (
    "IN_NOSYNC",
    "IN_MYSYNC",
    "IN_ALLSYNC",
    "OUT_NOSYNC",
    "OUT_MYSYNC",
    "OUT_ALLSYNC",
    "PULL",
    "PUSH",
    "MULTICORE",
    "IN_PLACE",
    "ASYNC",
)
OPERATIONS = (
    "ADD",
    "MULT",
    "AND",
    "OR",
    "XOR",
    "LOGAND",
    "LOGOR",
    "MIN",
    "MAX",
    "FUNC",
    "NONCOMM_FUNC",
)


def name(text: str) -> Any:
    return getattr(upc, text)


def test_import_star_gives_exactly_the_names() -> None:
    space: dict[str, Any] = {}
    exec("from xupc.upc import *", space)
    del space["__builtins__"]
    more = ("TICK_MIN", "TICK_MAX", "HANDLE_COMPLETE")
    constants = {f"UPC_{c}" for c in (*FLAGS, *OPERATIONS, *more)}
    assert set(space) == {*ARGUMENTS, *constants, "__UPC_COLLECTIVE__", "__UPC_TICK__"}
    assert len(set(upc.__all__)) == len(upc.__all__)


def test_66_typed_names() -> None:
    assert len(TYPED) == 66


@pytest.mark.parametrize("text", ARGUMENTS)
def test_argument_order(text: str) -> None:
    assert tuple(inspect.signature(name(text)).parameters) == ARGUMENTS[text]


@pytest.mark.parametrize("text", ARGUMENTS)
def test_every_name_says_what_it_is(text: str) -> None:
    f = name(text)
    assert f.__name__ == text
    first = f.__doc__.splitlines()[0]
    assert any(f"({d}, " in first for d in ("UPC 1.3", "XUPC paper", "MTU thesis", "UPC language"))
    assert "Stands for `xupc." in f.__doc__


def test_what_they_stand_for_says_where_it_comes_from() -> None:
    sources: dict[str, list[str]] = {}
    for entry in upc.TABLE:
        sources.setdefault(entry.function, []).append(f"{entry.document}, {entry.section}")
    for function, known in sources.items():
        told = " ".join(str(operator.attrgetter(function)(xupc).__doc__).split())
        assert any(source in told for source in known), f"xupc.{function}: none of {known}"


def test_sections_are_those_of_the_specification() -> None:
    for number, move in enumerate((*MOVES, "permute"), 1):
        assert f"(UPC 1.3, 7.4.2.{number})" in name(f"upc_all_{move}").__doc__
    assert "(UPC 1.3, 7.4.3.1)" in upc.upc_all_prefix_reduceLD.__doc__
    assert "(UPC 1.3, 7.5.2.2)" in upc.upc_ticks_to_ns.__doc__
    assert "(XUPC paper, III.C)" in upc.xupc_all_reduceI_mpi_all.__doc__


@pytest.mark.parametrize("text", [*FLAGS, *OPERATIONS, "TICK_MIN", "TICK_MAX"])
def test_constants_are_xupcs(text: str) -> None:
    assert name(f"UPC_{text}") == getattr(xupc, text)


def test_flags_join_into_plain_ints() -> None:
    assert type(upc.UPC_IN_NOSYNC | upc.UPC_OUT_NOSYNC) is int


def test_feature_macros() -> None:
    assert upc.__UPC_COLLECTIVE__ == 1
    assert upc.__UPC_TICK__ == 1


def test_types() -> None:
    assert {t: dtype.name for t, dtype in upc.TYPES.items()} == {
        t: np.dtype(d).name for t, d in TYPES.items()
    }


# --- what the names call --------------------------------------------------------------------------


class Recorder:
    """Stands in for a function of xupc."""

    def __call__(self, *arguments: Any) -> str:
        self.arguments = arguments
        return "result"


def fresh(monkeypatch: pytest.MonkeyPatch, function: str, stand_in: Any) -> ModuleType:
    """`xupc.upc` as it is when xupc has `function`, or has not."""
    if stand_in is None:
        monkeypatch.delattr(xupc, function, raising=False)
    else:
        monkeypatch.setattr(xupc, function, stand_in, raising=False)
    spec = importlib.util.spec_from_file_location("xupc._upc_again", upc.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("move", [*MOVES, "permute"])
@pytest.mark.parametrize("prefix", ["upc", "xupc"])
def test_moves_hand_their_arguments_on(
    monkeypatch: pytest.MonkeyPatch, move: str, prefix: str
) -> None:
    seen = Recorder()
    again = fresh(monkeypatch, f"all_{move}", seen)
    f = getattr(again, f"{prefix}_all_{move}")
    perm = ("perm",) if move == "permute" else ()
    assert f("dst", "src", *perm, 8, 36) == "result"
    assert seen.arguments == ("dst", "src", *perm, 8, 36)
    f("dst", again.UPC_IN_PLACE, *perm, 8, 36)
    assert seen.arguments == ("dst", None, *perm, 8, 36)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prefix", ["upc", "xupc"])
def test_lists_and_layouts_are_handed_on(
    monkeypatch: pytest.MonkeyPatch, form: str, prefix: str
) -> None:
    seen: list[dict[str, Any]] = []
    real = inspect.signature(getattr(xupc, f"all_{form}"))

    def stand_in(*arguments: Any, **named: Any) -> str:
        seen.append(real.bind(*arguments, **named).arguments)
        return "result"

    again = fresh(monkeypatch, f"all_{form}", stand_in)
    given = {name: object() for name in FORMS[form]}
    assert getattr(again, f"{prefix}_all_{form}")(*given.values()) == "result"
    given["flags"] = given.pop("mode")
    assert seen == [given]


def test_broadcast_in_place_hands_its_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Recorder()
    again = fresh(monkeypatch, "all_broadcast_in_place", seen)
    assert again.xupc_all_broadcast_in_place("buf", 8, 36) == "result"
    assert seen.arguments == ("buf", 8, 36)


@pytest.mark.parametrize("move", ONE_SIDED)
def test_one_sided_names_hand_their_arguments_on(
    monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    seen = Recorder()
    again = fresh(monkeypatch, move, seen)
    getattr(again, f"upc_{move}")("dst", "src", 8)
    assert seen.arguments == ("dst", "src", 8)


def array(dtype: Any) -> Any:
    """What a typed name looks at; only arrays and pointers are refused for their type."""
    return SimpleNamespace(dtype=np.dtype(dtype))


@pytest.mark.parametrize(("text", "function", "t"), TYPED)
def test_typed_names_hand_their_arguments_on(
    monkeypatch: pytest.MonkeyPatch, text: str, function: str, t: str
) -> None:
    seen = Recorder()
    again = fresh(monkeypatch, function, seen)
    dst, src = array(TYPES[t]), array(TYPES[t])
    f = getattr(again, text)
    assert f(dst, src, again.UPC_MAX, 10, 3, None, 36) == "result"
    assert seen.arguments == (dst, src, xupc.MAX, 10, 3, None, 36)
    f(dst, again.UPC_IN_PLACE, again.UPC_ADD, 10, 3, None, 36)
    assert seen.arguments[:2] == (dst, None)


def test_a_typed_name_refuses_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Recorder()
    again = fresh(monkeypatch, "all_reduce", seen)
    refused: list[tuple[str, str]] = []

    def fail(error: TypeError, call: str, *arguments: Any) -> None:
        refused.append((call, str(error)))
        raise error

    monkeypatch.setattr(again, "_fail", fail)
    pointers = {
        dtype: shared_pointer.SharedPointer(_Somewhere(), 0, 0, 0, 0, np.dtype(dtype))  # type: ignore[arg-type]
        for dtype in TYPES.values()
    }
    for t, right in TYPES.items():
        f = getattr(again, f"upc_all_reduce{t}")
        for dtype, p in pointers.items():
            if np.dtype(dtype) == np.dtype(right):
                f(p, p, again.UPC_ADD, 1, 0, None, 0)
                continue
            for argument, dst, src in (("dst", p, pointers[right]), ("src", pointers[right], p)):
                with pytest.raises(TypeError, match=f"{argument}: .*cast first"):
                    f(dst, src, again.UPC_ADD, 1, 0, None, 0)
    assert {call for call, _ in refused} == {f"upc_all_reduce{t}" for t in TYPES}


class _Somewhere:
    """An allocation as far as error messages need one."""

    members = (0,)
    nelems = 8
    dtype = np.dtype(np.uint8)


def test_what_is_not_shared_is_left_to_the_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Recorder()
    again = fresh(monkeypatch, "all_reduce", seen)
    again.upc_all_reduceI(None, "src", again.UPC_ADD, 1, 0, None, 0)
    assert seen.arguments[:2] == (None, "src")


def test_handles_are_complete_when_they_were_waited_for() -> None:
    job = SimpleNamespace(
        unfinished=set(), broken=None, check=lambda: None, check_outside=lambda call: None
    )
    team = SimpleNamespace(job=job)

    class Call:
        done, error, call = False, None, "a call"

        def abandon(self) -> None:
            """Do nothing; stands in for `AsyncCall.abandon`."""

    pending: Any = Call()
    pending.team = team
    job.progress = lambda wait: None
    handle = xupc.Handle(pending)
    assert handle != upc.UPC_HANDLE_COMPLETE
    assert (upc.upc_test(handle), upc.upc_get_status(handle)) == (-1, -1)
    pending.done = True
    assert upc.upc_get_status(handle) == 1
    assert handle != upc.UPC_HANDLE_COMPLETE
    upc.upc_wait(handle)
    assert handle == upc.UPC_HANDLE_COMPLETE
    assert handle == upc.UPC_HANDLE_COMPLETE
    assert upc.upc_test(handle) == 1


# --- the page -------------------------------------------------------------------------------------


def test_the_page_of_names_is_up_to_date() -> None:
    command = [sys.executable, str(PROJECT / "scripts" / "names.py")]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = (PROJECT / "docs" / "names.md").read_text()
    assert found == page, "run: python scripts/names.py > docs/names.md"

