"""Make calls with invalid arguments. Arguments: seed, calls, a folder for notes.

One argument (now and then two) of a good call is replaced by a bad value, on all threads or on one
alone. In each case there is no crash, no hang, and only errors that are documented. Every thread
that would otherwise wait raises one. The same function, called well, works right after, as does a
collective whose data is checked. Each call is noted in a file before it is made.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections import Counter
from typing import Any

import numpy as np
from bad_values import BAD, Evil, is_evil, random_value
from mpi4py import MPI
from public_api import Public, World, good, publics
from support.checked_calls import FUNCTIONS, ROOTED, Buffers, done

import xupc
from xupc import CollectiveMismatchError, XupcError

COMM = MPI.COMM_WORLD
SYNCHRONISES = ("all_", "barrier", "node_", "Team.split")
INDEXES = ("__getitem__", "__setitem__", "ptr", "local", "__add__", "__radd__", "threadof",
           "phaseof")  # fmt: skip
DOCUMENTED = (TypeError, ValueError, xupc.HeapError, CollectiveMismatchError)


class Fuzz:
    """The calls, and what comes of them."""

    def __init__(self, seed: int, folder: str) -> None:
        self.rng = random.Random(seed)
        self.world = self._new_world()
        self.publics = [p for p in publics() if p.parameters]
        self.bad = list(BAD.items())
        self.note = os.open(f"{folder}/thread-{xupc.MYTHREAD}", os.O_CREAT | os.O_RDWR, 0o600)
        self.buffers = Buffers(8 * xupc.THREADS)
        self.kinds: Counter[str] = Counter()
        self.count = self.number = 0

    def _new_world(self) -> World:
        """What good calls are made with, and what bad values are made of."""
        w: Any = World()
        w.freed = xupc.all_alloc(64, "u1")
        w.freed_pointer = w.freed + 1
        xupc.all_free(w.freed)
        w.one = xupc.all_alloc(64, "u1", 0)
        w.none = xupc.all_alloc(0, "i4")
        w.own = xupc.alloc(64)
        w.freed_own = xupc.alloc(64)
        xupc.free(w.freed_own)
        w.pointers = xupc.all_alloc(xupc.THREADS**2, xupc.pointer_dtype)
        w.broken = xupc.all_alloc(xupc.THREADS**2, xupc.pointer_dtype)
        w.broken.local.view("u1")[:] = 0x7F
        w.freed_team = w.team.split(0)
        w.freed_team.free()
        xupc.barrier()
        return w  # type: ignore[no-any-return]

    def _renew(self) -> None:
        """Another world if a call has freed something of this one, as it was asked to."""
        w: Any = self.world
        held = [w.A, w.B, w.one, w.none, w.pointers, w.broken, w.own]
        if COMM.allreduce(int(any(not x.allocation.live for x in held))):
            self.world = self._new_world()

    # -- one call --------------------------------------------------------------------------
    def step(self) -> None:
        """Draw a call, make it, judge it, and see that all still works."""
        rng = self.rng
        p = rng.choice(self.publics)
        names = rng.sample(p.parameters, 2 if rng.random() < 0.1 and len(p.parameters) > 1 else 1)
        changed = {}
        for name in names:
            text, make = random_value(rng) if rng.random() < 0.25 else rng.choice(self.bad)
            changed[name] = text, make
        # Teams that differ between threads are another matter: they wait for each other.
        odd = rng.randrange(-1, xupc.THREADS) if "team" not in names else -1
        words = ", ".join(f"{name}: {text[:200]}" for name, (text, _) in changed.items())
        what = f"{self.count}: {p.name}({words}) on {'every thread' if odd < 0 else odd}"
        text = f"{what}\n".encode(errors="replace")
        os.pwrite(self.note, text + b" " * (1000 - len(text)), 0)
        self.count += 1
        try:
            self._call(p, changed, odd, what)
        except Exception as e:
            raise AssertionError(what) from e

    def _call(self, p: Public, changed: dict[str, Any], odd: int, what: str) -> None:
        bad_here = odd in (-1, xupc.MYTHREAD)
        arguments, evil = self._arguments(p, changed if bad_here else {})
        silent = p.alone and not bad_here
        error: BaseException | None = None
        result = None
        self._before(p)
        if not silent:
            try:
                result = p.find(self.world)(**arguments)
                result = self._completed(result)
            except Exception as e:
                error = e
        if error is not None:
            self._documented(p, error, evil)
        late = self._settle(p, result, odd)
        named = not {"flags", "mode"} & set(changed)  # without ALLSYNC no thread is queried
        self._together(p, error or late, odd, named=named)
        del arguments, result, error
        if "free" in p.function:
            self._renew()
        self._good(p)
        self._usable()

    def _arguments(self, p: Public, changed: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        arguments = good(p, self.world)
        evil = False
        for name, (_, make) in changed.items():
            arguments[name] = make(self.world)
            evil = evil or is_evil(arguments[name])
        return arguments, evil

    def _before(self, p: Public) -> None:
        if p.function == "wait":
            xupc.notify()
        elif p.function == "Team.wait":
            self.world.part.notify()

    def _completed(self, result: Any) -> Any:
        if isinstance(result, xupc.Handle) and result is not self.world.handle:
            result.wait()
        return result

    # -- judging -----------------------------------------------------------------------------
    def _documented(self, p: Public, error: BaseException, evil: bool) -> None:
        """Its type is one that the documentation names, or the user's own object raised it."""
        self.kinds[type(error).__name__] += 1
        if isinstance(error, DOCUMENTED) and not isinstance(error, UnicodeError):
            return
        if isinstance(error, Evil | ReferenceError | AttributeError) and evil:
            return
        if isinstance(error, IndexError) and p.name.rpartition(".")[2] in INDEXES:
            return
        if isinstance(error, MemoryError) and "__array__" in p.name:
            return  # of a private copy: as numpy's
        if isinstance(error, OverflowError) and (
            p.function.startswith("allv_") or "set" in p.name or "__array__" in p.name
        ):
            return
        if type(error) is XupcError and ("free" in p.function or "wait" in p.function):
            return  # freed by a thread that may not; a wait without a notify
        raise AssertionError(f"not documented: {type(error).__name__}") from error

    def _together(
        self, p: Public, error: BaseException | None, odd: int, *, named: bool
    ) -> None:
        """Check that every thread raises, and that the errors of the others name the odd thread."""
        mine = None if error is None else (type(error).__name__, str(error)[:2000])
        outcomes = COMM.allgather(mine)
        if p.alone or all(outcome is None for outcome in outcomes):
            return
        assert None not in outcomes, outcomes
        if odd < 0:
            return
        theirs = outcomes[odd][0]
        if theirs == "CollectiveMismatchError":
            return  # good in itself, but not what the others gave
        for thread, (kind, text) in enumerate(outcomes):
            if thread != odd and kind not in (theirs, "HeapError"):
                assert kind == "CollectiveMismatchError", outcomes
                assert f"thread {odd}: {theirs}" in text or not named, outcomes

    # -- afterwards --------------------------------------------------------------------------
    def _settle(self, p: Public, result: Any, odd: int) -> BaseException | None:
        """Synchronise all threads again, and free what the call made.

        Return an error that was only detected here, for a call that does not synchronise.
        """
        late = None
        try:
            self._end_split_phase()
            xupc.barrier()
            self.world.part.barrier()
        except (CollectiveMismatchError, xupc.HeapError) as e:
            assert odd >= 0 or not p.function.startswith(SYNCHRONISES), "heard of late"
            late = e
            xupc.barrier()
            self.world.part.barrier()
        made = COMM.allgather(type(result).__name__)
        if p.alone and isinstance(result, xupc.SharedPointer) and "alloc" in p.function:
            xupc.free(result)
        elif set(made) == {"SharedArray"} and "alloc" in p.function:
            xupc.all_free(result)
        elif set(made) == {"Team"} and p.name == "Team.split":
            result.free()
        return late

    def _end_split_phase(self) -> None:
        for wait in (xupc.wait, self.world.part.wait):
            try:
                wait()
            except CollectiveMismatchError:
                raise
            except XupcError as e:
                if "no notify" not in str(e):
                    raise

    def _good(self, p: Public) -> None:
        """The same function with good arguments."""
        self._before(p)
        result = p.find(self.world)(**good(p, self.world))
        self._completed(result)
        assert self._settle(p, result, -1) is None

    def _usable(self) -> None:
        """A collective whose data is checked, another one each time."""
        self.number += 1
        name = list(FUNCTIONS)[self.number % len(FUNCTIONS)]
        root = self.number % xupc.THREADS if name in ROOTED else 0
        self.buffers.fill(name, self.number, 8)
        xupc.barrier()
        FUNCTIONS[name](*self.buffers.operands(name, root), 8)
        self.buffers.check(name, self.number, 8, root, 0, name)


def main() -> None:
    seed, calls, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    xupc.init(timeout=20)
    fuzz = Fuzz(seed, folder)
    for _ in range(calls):
        fuzz.step()
    if xupc.MYTHREAD == 0:
        print("kinds:", *(f"{k}={n}" for k, n in sorted(fuzz.kinds.items())))
    done(calls)


if __name__ == "__main__":
    main()
