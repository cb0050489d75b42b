"""Calls that name a variant of their algorithm: ``variants.py CASE``."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
from support.cases import case, run_case

import xupc
from xupc.algorithms import registry
from xupc.algorithms.registry import Variant
from xupc.tuning.selection import public_name

N = 72


def _arrays(nbytes: int) -> tuple[Any, Any]:
    size = nbytes * xupc.THREADS
    dst, src = (xupc.all_alloc(size * xupc.THREADS, "u1", size) for _ in range(2))
    mine = np.arange(size) % 251 + xupc.MYTHREAD
    src.local[:] = mine.astype(np.uint8)
    dst.local[:] = 255
    xupc.barrier()
    return dst, src


def _expected(name: str, nbytes: int) -> Any:
    """Return the bytes of my dst; 255: nothing was written there."""
    threads, me = xupc.THREADS, xupc.MYTHREAD
    size = nbytes * threads
    every = [(np.arange(size) % 251 + i).astype(np.uint8) for i in range(threads)]
    dst = np.full(size, 255, np.uint8)
    match name:
        case "broadcast":
            dst[:nbytes] = every[0][:nbytes]
        case "scatter":
            dst[:nbytes] = every[0][me * nbytes : (me + 1) * nbytes]
        case "gather" if me == 0:
            dst[:] = np.concatenate([row[:nbytes] for row in every])
        case "gather_all":
            dst[:] = np.concatenate([row[:nbytes] for row in every])
        case "exchange":
            dst[:] = np.concatenate([row[me * nbytes : (me + 1) * nbytes] for row in every])
        case "permute":
            dst[:nbytes] = every[(me + 1) % threads][:nbytes]
    return dst


def _variants(name: str) -> list[Variant]:
    """Return the variants of the library, without those of this program."""
    return [v for entry in registry.registered(name) for v in entry.variants if not v.own]


def _tried(call: Any, variant: Variant, *arguments: Any) -> bool:
    """Call it twice, and as a plan; False if it cannot run here, on all threads."""
    try:
        plan = call.plan(*arguments, algorithm=variant.name)
    except ValueError as e:
        assert "cannot run here: expected" in str(e), e
        assert public_name(variant.collective) in str(e), e
        return False
    assert plan.algorithm == variant.name
    assert f" by {variant.name}," in str(plan)
    plan()
    flags = (xupc.PULL, xupc.PUSH, xupc.MULTICORE)
    flag = next(f for f in flags if f == variant.flag)
    call(*arguments, algorithm=variant.name)
    call(*arguments, flag, algorithm=variant.name)
    return True


@case
def shared() -> None:
    """All variants of collectives on shared memory."""
    xupc.init()
    perm = [(i - 1) % xupc.THREADS for i in range(xupc.THREADS)]
    ran = set()
    for name in ("broadcast", "scatter", "gather", "gather_all", "exchange", "permute"):
        for nbytes in (N, 40_000):
            dst, src = _arrays(nbytes)
            for variant in _variants(name):
                dst.local[:] = 255
                xupc.barrier()
                more = (perm,) if name == "permute" else ()
                if _tried(getattr(xupc, f"all_{name}"), variant, dst, src, *more, nbytes):
                    ran.add(f"{name} {variant.name}")
                    assert (dst.local == _expected(name, nbytes)).all(), variant
            xupc.all_free(dst)
            xupc.all_free(src)
    _print(ran)


@case
def private() -> None:
    """All variants of collectives on private arrays."""
    xupc.init()
    threads, me = xupc.THREADS, xupc.MYTHREAD
    ran = set()
    for nbytes in (N, 40_000):
        own = (np.arange(nbytes) % 251 + me).astype(np.uint8)
        rows = [(np.arange(nbytes) % 251 + i).astype(np.uint8) for i in range(threads)]
        every = np.concatenate(rows)
        for variant in _variants("allav_gather_all"):
            dst = np.zeros(nbytes * threads, np.uint8)
            if _tried(xupc.allav_gather_all, variant, dst, own):
                ran.add(f"gather_all {variant.name}")
                assert (dst == every).all(), variant
        for variant in _variants("allav_exchange"):
            dst = np.zeros(nbytes * threads, np.uint8)
            row = np.repeat(np.uint8(me), nbytes * threads)
            if _tried(xupc.allav_exchange, variant, dst, row):
                ran.add(f"exchange {variant.name}")
                assert (dst == np.repeat(np.arange(threads), nbytes)).all(), variant
                xupc.allav_exchange(row, None, algorithm=variant.name)
                assert (row == dst).all(), variant
        for variant in _variants("allav_broadcast"):
            values = own.copy()
            if _tried(xupc.allav_broadcast, variant, values, threads - 1):
                ran.add(f"broadcast {variant.name}")
                assert (values == every[-nbytes:]).all(), variant
    _print(ran)


def _joined(form: str, rows: Any) -> Any:
    """Return the expected row of each thread, of which `rows` has one."""
    total = rows.sum(axis=0)
    match form:
        case "prefix_reduce":
            return rows.cumsum(axis=0)
        case "suffix_reduce":
            return rows[::-1].cumsum(axis=0)[::-1]
        case "exclusive_prefix_reduce":
            return rows.cumsum(axis=0) - rows
        case "exclusive_suffix_reduce":
            return rows[::-1].cumsum(axis=0)[::-1] - rows
    return np.broadcast_to(total, rows.shape)


COMPUTED = (
    "reduce", "reduce_all", "prefix_reduce", "suffix_reduce", "exclusive_prefix_reduce",
    "exclusive_suffix_reduce",
)  # fmt: skip


@case
def computed() -> None:
    """All variants of reductions and scans of private arrays, in place too."""
    xupc.init()
    threads, me = xupc.THREADS, xupc.MYTHREAD
    ran = set()
    for form, n in itertools.product(COMPUTED, (9, 5000, 150_000)):
        rows = np.arange(n) % 97 * (np.arange(threads)[:, None] + 1)
        expected = _joined(form, rows)[me]
        call = getattr(xupc, f"allav_{form.removeprefix('exclusive_')}")
        flags = xupc.EXCLUSIVE if form.startswith("exclusive") else 0
        more = (threads - 1,) if form == "reduce" else ()
        for variant in _variants(f"allav_{form}"):
            dst = np.full(n, -1)
            try:
                call(dst, rows[me], xupc.ADD, *more, flags=flags, algorithm=variant.name)
            except ValueError as e:
                assert "cannot run here: expected" in str(e), e
                continue
            ran.add(f"{form} {variant.name}")
            wanted = form != "reduce" or me == threads - 1
            assert (dst == (expected if wanted else -1)).all(), (variant, n)
            if form != "reduce":
                own = rows[me].copy()
                call(own, None, xupc.ADD, flags=flags, algorithm=variant.name)
                assert (own == expected).all(), (variant, n)
    _print(ran)


@case
def scans() -> None:
    """All variants of prefix and suffix reductions of shared arrays, EXCLUSIVE too."""
    xupc.init()
    threads, me = xupc.THREADS, xupc.MYTHREAD
    ran = set()
    for form, n in itertools.product(COMPUTED[2:], (2, 3000)):
        src, dst = (xupc.all_alloc(n * threads, "i8", n) for _ in range(2))
        values = np.arange(n * threads) % 89 + 1
        src.local[:] = values[me * n : (me + 1) * n]
        expected = _joined(form, values[:, None])[me * n : (me + 1) * n, 0]
        call = getattr(xupc, f"all_{form.removeprefix('exclusive_')}")
        flags = xupc.EXCLUSIVE if form.startswith("exclusive") else 0
        for variant in _variants(form):
            for sync in (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC):
                dst.local[:] = -1
                xupc.barrier()
                try:
                    call(dst, src, xupc.ADD, n * threads, n, flags=flags | sync,
                         algorithm=variant.name)  # fmt: skip
                except ValueError as e:
                    assert "cannot run here: expected" in str(e), e
                    continue
                ran.add(f"{form} {variant.name}")
                assert (dst.local == expected).all(), (variant, n)
                xupc.barrier()
        xupc.all_free(src)
        xupc.all_free(dst)
    _print(ran)


@case
def single() -> None:
    """The variants of collectives on single values, of which each has no more than one element."""
    xupc.init()
    threads, me = xupc.THREADS, xupc.MYTHREAD
    calls: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
        "broadcast": (xupc.allv_broadcast, (None if me else 7, 0), 7),
        "scatter": (xupc.allv_scatter, (None if me else list(range(threads)), 0), me),
        "gather": (xupc.allv_gather, (me, 0), None if me else list(range(threads))),
        "gather_all": (xupc.allv_gather_all, (me,), list(range(threads))),
        "exchange": (xupc.allv_exchange, ([me] * threads,), list(range(threads))),
        "permute": (xupc.allv_permute, (me, (me + 1) % threads), (me - 1) % threads),
        "reduce_all": (xupc.allv_reduce_all, (me, xupc.MAX), threads - 1),
        "reduce": (xupc.allv_reduce, (me, xupc.MAX, 0), None if me else threads - 1),
        "prefix_reduce": (xupc.allv_prefix_reduce, (me, xupc.MAX), me),
        "suffix_reduce": (xupc.allv_suffix_reduce, (me, xupc.MAX), threads - 1),
        "reduce_scatter": (xupc.allv_reduce_scatter, ([me] * threads, xupc.MAX), threads - 1),
    }
    ran = set()
    for name, (call, arguments, expected) in calls.items():
        assert call(*arguments) == expected
        for variant in _variants(f"allav_{name}"):
            try:
                assert call(*arguments, algorithm=variant.name) == expected, variant
                ran.add(f"{name} {variant.name}")
            except ValueError as e:
                assert "cannot run here: expected" in str(e), e
        _raises(xupc.FlagError, "algorithm: expected one of", call, *arguments, algorithm="none")
    _print(ran)


def _print(ran: set[str]) -> None:
    if not xupc.MYTHREAD:
        sys.stdout.write("".join(f"{line}\n" for line in sorted(ran)))
    xupc.finalize()


@case
def lists() -> None:
    """The variants of a form with lists."""
    xupc.init()
    threads, me = xupc.THREADS, xupc.MYTHREAD
    dst, src = _arrays(N)
    size = N * threads
    ran = set()
    for variant in _variants("gather_all_v"):
        dst.local[:] = 255
        xupc.barrier()
        to = [i * size + j * N for i in range(threads) for j in range(threads)]
        of = [j * size for j in range(threads)]
        if _tried(xupc.all_gather_all_v, variant, dst, src, to, of, [N] * threads):
            ran.add(f"gather_all_v {variant.name}")
            assert (dst.local == _expected("gather_all", N)).all(), (variant, me)
    _print(ran)


def _raises(error: Any, words: str, call: Any, *arguments: Any, **keywords: Any) -> None:
    try:
        call(*arguments, **keywords)
    except error as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"no {error.__name__}")
    xupc.barrier()  # usable


@case
def refused() -> None:
    """Raise for names that are none, or differ between threads, and continue."""
    xupc.init()
    dst, src = _arrays(N)
    for call in (xupc.all_gather_all, xupc.all_gather_all.plan):
        _raises(ValueError, "there is no multicore:rong, expected one of multicore:fused", call,
                dst, src, N, algorithm="multicore:rong")  # fmt: skip
        _raises(xupc.FlagError, "algorithm: expected one of pull, push, multicore, or", call,
                dst, src, N, algorithm="fast")  # fmt: skip
        _raises(xupc.FlagError, "expected no other algorithm flag, PULL is given", call,
                dst, src, N, xupc.PULL, algorithm="push")  # fmt: skip
    _raises(ValueError, "there is no push:rong, expected one of push", xupc.all_reduce, dst, src,
            xupc.ADD, algorithm="push:rong")  # fmt: skip
    _raises(ValueError, "there is no pull:rong", xupc.allav_gather_all, np.zeros(xupc.THREADS),
            np.zeros(1), algorithm="pull:rong")  # fmt: skip
    places = [dst.ptr(i * N * xupc.THREADS) for i in range(xupc.THREADS)]
    _raises(ValueError, "there is no pull:rong", xupc.all_broadcast_x, places, src, N,
            algorithm="pull:rong")  # fmt: skip
    if xupc.THREADS > 1:
        name = "multicore:led" if xupc.MYTHREAD else "multicore"
        errors = xupc.CollectiveMismatchError, ValueError
        _raises(errors, "", xupc.all_gather_all, dst, src, N, algorithm=name)
    xupc.all_gather_all(dst, src, N)
    assert (dst.local == _expected("gather_all", N)).all()
    xupc.finalize()


@xupc.algorithm("all_gather_all", xupc.PULL, "plain", "Each thread reads all blocks.")
def _plain(t: Any, dst: Any, src: Any, nbytes: int) -> None:
    t.ready("all", "all")
    for i in range(t.size):
        t.fetch(dst.on(t.me, i * nbytes), src.on(i), nbytes)
    t.done("all", "all")


@xupc.algorithm("all_gather_all", xupc.PULL, "wrong", "Each thread reads blocks twice.")
def _wrong(t: Any, dst: Any, src: Any, nbytes: int) -> None:
    t.ready("all", "all")
    for i in range(t.size):
        t.fetch(dst.on(t.me, i * nbytes), src.on(i // 2), nbytes)
    t.done("all", "all")


@xupc.algorithm("allav_gather_all", xupc.PUSH, "mine", "Each thread sends to or copies for all.")
def _private(t: Any, root: int, nbytes: int, in_place: bool) -> None:
    from xupc.algorithms.values import move_of, push_staged

    push_staged(t, move_of(t, "gather_all", root, nbytes, in_place))


@case
def own() -> None:
    """A right variant of the program runs; a wrong one is refused before anything moves."""
    xupc.init()
    for nbytes in (N, 40_000):
        dst, src = _arrays(nbytes)
        for flags in (0, xupc.IN_MYSYNC | xupc.OUT_MYSYNC, xupc.IN_NOSYNC):
            dst.local[:] = 255
            xupc.barrier()
            plan = xupc.all_gather_all.plan(dst, src, nbytes, flags, algorithm="pull:plain")
            assert plan.algorithm == "pull:plain"
            plan()
            xupc.all_gather_all(dst, src, nbytes, flags, algorithm="pull:plain")
            assert (dst.local == _expected("gather_all", nbytes)).all()
            xupc.barrier()
        dst.local[:] = 255
        xupc.barrier()
        if xupc.THREADS > 1:
            _raises(ValueError, "found byte 0 of source block 0 of thread 0", xupc.all_gather_all,
                    dst, src, nbytes, algorithm="pull:wrong")  # fmt: skip
            _raises(ValueError, "written by thread", xupc.all_gather_all, dst, src, nbytes,
                    algorithm="pull:wrong")  # fmt: skip
            assert (dst.local == 255).all()
        values = np.zeros(3 * xupc.THREADS, np.int64)
        xupc.allav_gather_all(values, np.arange(3) + xupc.MYTHREAD, algorithm="push:mine")
        assert values.tolist() == [i + k for i in range(xupc.THREADS) for k in range(3)]
        xupc.all_free(dst)
        xupc.all_free(src)
    xupc.finalize()


def _if_possible(dst: Any, src: Any, *, led: bool) -> None:
    """Entries with `if_possible`: calls that the variant cannot carry out take the next one."""
    my = xupc.IN_MYSYNC | xupc.OUT_MYSYNC
    found = [xupc.all_broadcast.plan(dst, src, N, flags).algorithm for flags in (0, my)]
    assert found == ["multicore:led" if led else "push", "push"], found
    assert xupc.all_scatter.plan(dst, src, N).algorithm.startswith("multicore")
    for n in (8, 40_000):
        values = np.arange(n * xupc.THREADS) + xupc.MYTHREAD
        expected = np.concatenate(
            [np.arange(n) + xupc.MYTHREAD * n + i for i in range(xupc.THREADS)]
        )
        xupc.allav_exchange(values, None)
        assert (values == expected).all()
        assert xupc.allav_exchange.plan(values, None).algorithm in ("pull:direct", "push:staged")


@case
def table() -> None:
    """A table chooses variants; of one that cannot run here each call raises."""
    team = xupc.init()
    dst, src = _arrays(N)
    plan = xupc.all_gather_all.plan(dst, src, N)
    assert plan.algorithm == "pull:plain", plan.algorithm
    plan()
    assert (dst.local == _expected("gather_all", N)).all()
    if team.tree.node_count == 1:
        _raises(ValueError, "selection table", xupc.all_exchange, dst, src, N)
    else:
        assert xupc.all_exchange.plan(dst, src, N).algorithm == "multicore:rounds"
    assert xupc.all_exchange.plan(dst, src, N, xupc.MULTICORE).algorithm.startswith("multicore:")
    _if_possible(dst, src, led=team.tree.node_count > 1)
    xupc.finalize()


run_case()
