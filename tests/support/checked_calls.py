"""Shared by the programs of the live tests: buffers with guards, the oracle, expected errors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xupc

Bytes = NDArray[np.uint8]

FUNCTIONS: dict[str, Any] = {
    "broadcast": xupc.all_broadcast,
    "scatter": xupc.all_scatter,
    "gather": xupc.all_gather,
    "gather_all": xupc.all_gather_all,
    "exchange": xupc.all_exchange,
    "broadcast_in_place": xupc.all_broadcast_in_place,
    "permute": xupc.all_permute,
}
ROOTED = ("broadcast", "scatter", "gather", "broadcast_in_place", "permute")  # permute: which
IN_PLACE = ("broadcast_in_place",)
ALGORITHMS = {"": 0, "pull": xupc.PULL, "push": xupc.PUSH, "multicore": xupc.MULTICORE}
MODES = ("NOSYNC", "MYSYNC", "ALLSYNC")
SYNC = {(i, o): int(xupc.Flags[f"IN_{i}"] | xupc.Flags[f"OUT_{o}"]) for i in MODES for o in MODES}
GUARD = 64
POISON = 0xA5
SMALL = 1 << 16


@cache
def _random(nbytes: int) -> Bytes:
    return np.random.default_rng(20).integers(0, 256, nbytes, dtype=np.uint8)


def values(number: int, thread: int, nbytes: int) -> Bytes:
    """Return what `thread` has to give in call `number`: other bytes for each."""
    found = _random(10 << 20 if nbytes > SMALL else 8 * SMALL)  # few programs have long blocks
    start = (number * 7919 + thread * 104729) % (found.size - nbytes)
    return found[start : start + nbytes]


def permutation(which: int) -> list[int]:
    """Return the identity, the reversal, a rotation, then random ones, the same everywhere."""
    every = np.arange(xupc.THREADS)
    if which > 2:
        every = np.random.default_rng(which).permutation(every)
    every = every[::-1] if which == 1 else np.roll(every, which == 2)
    return [int(i) for i in every]


def blocks(name: str, threads: int) -> tuple[int, int]:
    """Return how many blocks a thread's part of (dst, src) has to hold."""
    dst = threads if name in ("gather", "gather_all", "exchange") else 1
    src = threads if name in ("scatter", "exchange") else 1
    return dst, 0 if name in IN_PLACE else src


def expected(name: str, number: int, n: int, root: int, thread: int) -> Bytes | None:
    """Return what `thread` must find at dst, None if nothing is written there."""
    every = range(xupc.THREADS)
    if name in ("broadcast", "broadcast_in_place"):
        return values(number, root, n)
    if name == "scatter":
        return values(number, root, n * len(every))[thread * n : thread * n + n]
    if name == "exchange":
        mine = slice(thread * n, thread * n + n)
        return np.concatenate([values(number, i, n * len(every))[mine] for i in every])
    if name == "permute":
        return values(number, permutation(root).index(thread), n)
    if name == "gather_all" or thread == root:
        return np.concatenate([values(number, i, n) for i in every])
    return None


class Buffers:
    """Source and target: on each thread `room` bytes of both, with guard bytes around them."""

    def __init__(self, room: int) -> None:
        self.part = room + 2 * GUARD
        self.src = xupc.all_alloc(xupc.THREADS * self.part, "u1", self.part)
        self.dst = xupc.all_alloc(xupc.THREADS * self.part, "u1", self.part)
        self.dst.local[:] = POISON
        self._pointers: dict[Any, Any] = {}
        self.lists = xupc.all_alloc(xupc.THREADS**2, "i4", 1)
        self.lists.local[:] = [permutation(k)[xupc.MYTHREAD] for k in range(xupc.THREADS)]
        xupc.barrier()

    def pointer(self, array: str, thread: int, shift: int = 0) -> Any:
        """Return the same pointer object for the same place."""
        key = array, thread, shift
        if key not in self._pointers:
            at = thread * self.part + GUARD + shift
            self._pointers[key] = getattr(self, array) + at
        return self._pointers[key]

    def operands(self, name: str, root: int, shift: int = 0) -> tuple[Any, ...]:
        """Return what a call has before nbytes: the pointers dst and src as a rule."""
        if name in IN_PLACE:
            return (self.pointer("dst", root, shift),)
        dst = self.pointer("dst", root if name == "gather" else 0, shift)
        src = self.pointer("src", root if name in ("broadcast", "scatter") else 0, shift)
        if name == "permute":
            return dst, src, self.permutation(root, shift)
        return dst, src

    def permutation(self, which: int, shift: int) -> Any:
        """Return a list of each kind in turn."""
        private = permutation(which)
        kinds = private, self.lists + which * xupc.THREADS, np.array(private), tuple(private)
        return kinds[(which + shift) % 4]

    def fill(self, name: str, number: int, n: int, shift: int = 0) -> None:
        """Write my source, and spoil my target."""
        dst, src = (n * k for k in blocks(name, xupc.THREADS))
        start = GUARD + shift
        self.src.local[start : start + src] = values(number, xupc.MYTHREAD, src)
        self.dst.local[start - GUARD : start + dst + GUARD] = POISON
        if name in IN_PLACE:
            self.dst.local[start : start + dst] = values(number, xupc.MYTHREAD, dst)

    def check(self, name: str, number: int, n: int, root: int, shift: int, what: object) -> None:
        """Compare my own target, its guards and my source with what they must be."""
        me = xupc.MYTHREAD
        dst, src = (n * k for k in blocks(name, xupc.THREADS))
        start = GUARD + shift
        want = np.full(dst + 2 * GUARD, POISON, np.uint8)
        data = expected(name, number, n, root, me)
        if data is not None:
            want[GUARD : GUARD + dst] = data
        same(self.dst.local[start - GUARD : start + dst + GUARD], want, "dst", what)
        same(self.src.local[start : start + src], values(number, me, src), "src", what)

    def free(self) -> None:
        """Give both back; collective."""
        xupc.all_free(self.src)
        xupc.all_free(self.dst)
        xupc.all_free(self.lists)


def same(found: Bytes, want: Bytes, where: str, what: object) -> None:
    """Fail unless the bytes are equal; name the first that differs."""
    if np.array_equal(found, want):
        return
    wrong = np.flatnonzero(found != want)
    at = int(wrong[0])
    raise AssertionError(
        f"{what}: thread {xupc.MYTHREAD}: {where}: {wrong.size} of {want.size} bytes are wrong, "
        f"the first at {at - GUARD if where == 'dst' else at}: {found[at]} instead of {want[at]}"
    )


def raises(
    kinds: type[BaseException] | tuple[type[BaseException], ...],
    words: tuple[str, ...],
    call: Callable[[], Any],
    what: object = "",
) -> BaseException:
    """Fail unless `call` raises one of exactly these types, with all words in its message."""
    exact = kinds if isinstance(kinds, tuple) else (kinds,)
    error: BaseException | None = None
    try:
        call()
    except BaseException as e:
        error = e
    assert error is not None, f"{what}: expected {exact}, nothing was raised"
    if type(error) not in exact:
        raise AssertionError(f"{what}: expected {exact}, got {error!r}") from error
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{what}: {missing} not in {error!r}"
    return error


class Within:
    """Has a posted call's function called within the function of another call, on thread 0."""

    def __init__(self) -> None:
        self._reached = xupc.all_alloc(xupc.THREADS, np.int64, 1)
        self._data = [xupc.all_alloc(xupc.THREADS, np.int64, 1) for _ in range(2)]
        self._round = 0

    def hold(self, called: list[Any]) -> None:
        """In the outer function: read memory of other threads until the inner one has come."""
        for thread in range(1, xupc.THREADS):
            self._reached[thread] += 1
        limit = time.monotonic() + 5
        while not called and time.monotonic() < limit:
            int(self._reached[xupc.THREADS - 1])

    def run(self, outer: Callable[[int, int], int], post: Callable[[], Any]) -> None:
        """Make a call of all threads with one function, and post another, which is waited for."""
        self._round += 1
        handle = post() if xupc.MYTHREAD == 0 else None
        flags = xupc.IN_NOSYNC | xupc.OUT_NOSYNC
        dst, src = self._data
        xupc.all_reduce(dst, src, xupc.FUNC, xupc.THREADS, func=outer, flags=flags)
        if handle is None:  # the inner one's turn comes when thread 0 is in the outer one
            while int(self._reached[xupc.MYTHREAD]) < self._round:
                time.sleep(1e-4)
            handle = post()
        handle.wait()


def group(threads: list[int]) -> str:
    """The threads as messages name them: "0, 2-3" for 0, 2 and 3."""
    runs: list[list[int]] = []
    for thread in threads:
        if runs and thread == runs[-1][-1] + 1:
            runs[-1].append(thread)
        else:
            runs.append([thread])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


class Usable:
    """Correct calls with checked data, to prove that nothing is broken."""

    def __init__(self) -> None:
        self.number = 0
        self.buffers = Buffers(8 * xupc.THREADS)
        self.turn = itertools.cycle(FUNCTIONS)

    def __call__(self, what: object = "") -> None:
        """Make a call of each collective."""
        self._calls(FUNCTIONS, what)

    def some(self, what: object = "") -> None:
        """Make calls of the next two collectives: enough after each of hundreds of errors.

        Seven such checks have each collective as the first one after an error, and as the second.
        """
        first = next(self.turn)
        self._calls((first, next(self.turn)), what)

    def _calls(self, names: Iterable[str], what: object) -> None:
        self.number += 1
        for name in names:
            root = self.number % xupc.THREADS if name in ROOTED else 0
            self.buffers.fill(name, self.number, 8)
            FUNCTIONS[name](*self.buffers.operands(name, root), 8)
            self.buffers.check(name, self.number, 8, root, 0, f"{name} after {what}")


class Dawdle:
    """Sleeps now and then, on another thread each time."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, xupc.MYTHREAD])

    def __call__(self, one_in: int = 8, longest: float = 0.001) -> None:
        if self.random.integers(one_in) == 0:
            time.sleep(self.random.random() * longest)


def done(count: int) -> None:
    """Say how much was done; the test looks for it."""
    if xupc.MYTHREAD == 0:
        print(f"done: {count}")
