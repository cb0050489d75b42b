"""Calls in which one thread differs, from the table in differing_calls.py: all get an error.

Argument, JSON: seed, count (0: all that there are), part ([k, n]: every n-th of them from the k-th
on), odd (which threads), show. A trial: one thread makes another call than all others, and
each thread without an error so far goes on to a barrier. Then every thread must have raised
CollectiveMismatchError once, or, the odd one, what it did wrong; messages must name the odd thread,
the argument and both values; and data that is moved afterwards must be right.

Verdicts are exchanged by mpi4py alone.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from differing_calls import FORMS, Form, Odd, Shelf
from mpi4py import MPI
from support.checked_calls import group

import xupc
from xupc import CollectiveMismatchError

COMM = MPI.COMM_WORLD
MODES = ("NOSYNC", "MYSYNC", "ALLSYNC")
SYNC = [int(xupc.Flags[f"IN_{i}"] | xupc.Flags[f"OUT_{o}"]) for i in MODES for o in MODES]
MEETING = [f for f in SYNC if f & int(xupc.IN_ALLSYNC | xupc.OUT_ALLSYNC)]
ALGORITHMS = [0, int(xupc.PULL), int(xupc.PUSH), int(xupc.MULTICORE)]
# Without ALLSYNC a difference between nodes is looked for after half a second.
MODES_DRAWN = [*MEETING * 4, *(f for f in SYNC if f not in MEETING)]
CALL_LATE = 8.0  # seconds: longer than any difference takes to be found


class Case(NamedTuple):
    """What is tried: `kind` is an argument's name, or what else is odd."""

    name: str
    kind: str
    what: str
    odd: Odd | None = None


def cases() -> Iterator[Case]:
    """All that there are."""
    for name, form in FORMS.items():
        for argument, odds in form.odd.items():
            yield from (Case(name, argument, odd.what, odd) for odd in odds)
        for argument in form.bad:
            yield Case(name, "bad", argument)
        for kind in ("collective", "barrier", "missing"):
            yield Case(name, kind, "")
        if f"{name}.plan" in FORMS:
            yield Case(name, "bad", "an argument missing")
            yield Case(name, "plan run", "")


class Trial:
    """One case on one odd thread."""

    def __init__(self, s: Shelf, case: Case, odd: int, rng: random.Random) -> None:
        self.s, self.case, self.odd = s, case, odd
        self.form: Form = FORMS[case.name]
        self.flags = rng.choice(MODES_DRAWN) | rng.choice(ALGORITHMS)
        self.warm = rng.random() < 0.5
        self.other = rng.choice([n for n in FORMS if n != case.name and not n.startswith("Team")])
        self.given = self._with_base(self.form.good(s))
        self.error: type[BaseException] | None = None  # of the odd thread itself
        self.words: tuple[str, ...] = ()

    def _with_base(self, given: dict[str, Any]) -> dict[str, Any]:
        if self.case.kind in self.form.base:
            given |= self.form.base[self.case.kind](self.s)
        if self.form.kind == "shared":
            given["flags"] = self.flags
        elif self.form.kind == "values":
            given["flags"] = self.flags & 0x1C0
        if self.form.on_team:
            given["team"] = self.s.team
        return given

    def call(self, form: Form, given: dict[str, Any]) -> Callable[[], Any]:
        """A call, posted ones waited for."""
        f = form.make(self.s)

        def run() -> None:
            handle = f(**given)
            if isinstance(handle, xupc.Handle):
                handle.wait()

        return run

    def calls(self) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """What all do, and what the odd one does."""
        case, form, s = self.case, self.form, self.s
        usual = self.call(form, self.given)
        if case.odd is not None:
            self.words = case.odd.words(s)
            change = case.odd.change(s)
            if case.name.endswith(".plan") and case.what == "shared":  # which is read first
                self.words = "perm", "offset"
            if "flags" in change:  # one flag more, or another sync mode
                change["flags"] = self._other_flags(change["flags"])
            return usual, self.call(form, self.given | change)
        name = case.name.removeprefix("Team.").replace("notify", "barrier")
        if name == "allav_permute.plan":  # it begins by gathering all targets on all threads
            name = "allav_permute"
        if case.kind == "collective":
            other = FORMS[self.other]
            given = other.good(s) | ({"team": s.team} if other.on_team else {})
            self.words = "different calls", name
            return usual, self.call(other, given)
        if case.kind == "barrier":
            self.words = () if name == "barrier" else ("different calls", name, "barrier")
            value = 2 if name == "barrier" else None
            return usual, lambda: s.team.barrier(value)
        if case.kind == "missing":
            other = "node_array" if name == "barrier" else "barrier"
            self.words = "different calls", name, other
            return usual, lambda: None
        if case.kind == "plan run":
            return usual, self._another_plan()
        if case.what == "an argument missing":
            self.error = TypeError
            fewer = dict(list(self.given.items())[1:])
            self.words = (case.name.removesuffix(".plan"), "missing")
            return usual, self.call(form, fewer)
        value, self.error = form.bad[case.what]
        self.words = (case.what,)
        return usual, self.call(form, self.given | {case.what: value})

    def _other_flags(self, more: int) -> int:
        """`more` instead of what excludes it."""
        for mask in (0x7, 0x38, 0x1C0):
            if more & mask:
                if self.given["flags"] & mask == more:
                    self.words = ("flags differs",)
                    return int(self.given["flags"]) & ~mask | (mask & ~more & -(mask & ~more))
                self.words = ("flags differs", str(xupc.Flags(more).name))
                return int(self.given["flags"]) & ~mask | more
        self.words = ("flags differs", str(xupc.Flags(more).name))
        return int(self.given["flags"]) | more

    def _another_plan(self) -> Callable[[], Any]:
        """A bound plan of a call that differs in its first argument that can."""
        first = next(o for odds in self.form.odd.values() for o in odds if "flags" not in
                     o.change(self.s))  # fmt: skip
        plan = self.form.make(self.s).plan(**self.given | first.change(self.s))  # type: ignore[attr-defined]
        self.words = first.words(self.s)

        def run() -> None:
            handle = plan()
            if isinstance(handle, xupc.Handle):
                handle.wait()

        return run

    def run(self) -> tuple[str, float]:
        """What went wrong on this thread, and the seconds until it knew."""
        team = self.s.team
        if self.case.name == "Team.free":
            team, usual, strange = self._freeing()
        else:
            usual, strange = self.calls()
        if self.warm and self.form.kind != "meets":
            usual()
            team.barrier()
        mine = strange if team.rank == self.odd else usual
        began, wrong = time.monotonic(), None
        found: list[BaseException] = []
        meet = team.barrier
        if self.case.name in ("barrier", "notify"):  # one barrier is as good as the next
            meet = lambda: xupc.node_array(2, "u1", team=team)  # noqa: E731
        for step in (mine, meet):
            try:
                step()
            except Exception as e:
                found.append(e)
                if isinstance(e, CollectiveMismatchError) or self._told_all(e):
                    break
        wrong = self._judge(found)
        return wrong, time.monotonic() - began

    def _freeing(self) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
        """A team of its own for each trial, and its end."""
        team = self.s.team.split(0)
        assert team is not None
        self.words = ("different calls",)
        if self.case.kind == "collective":
            return team, team.barrier, lambda: team.split(0)
        return team, team.free, team.barrier if self.case.kind == "barrier" else lambda: None

    def _told_all(self, error: BaseException) -> bool:
        """Return whether my error reaches all threads, so that I skip the barrier that follows."""
        quiet = self.form.kind == "shared" and not self.flags & int(
            xupc.IN_ALLSYNC | xupc.OUT_ALLSYNC
        )
        return not quiet or self.case.what in ("an argument missing", "flags")

    def _judge(self, found: list[BaseException]) -> str:
        mine = self.s.team.rank == self.odd
        if not found:
            return "nothing was raised"
        if mine and self.error is not None:
            if not isinstance(found[0], self.error):
                return f"{self.error.__name__} expected, got {found[0]!r}"
            text = str(found[0])
            return "" if all(w in text for w in self.words) else f"{self.words} not in {text}"
        if not isinstance(found[-1], CollectiveMismatchError) or len(found) > 1:
            return f"CollectiveMismatchError expected, got {found!r}"
        text = str(found[-1])
        missing = [w for w in (*self._names(), *self.words) if w not in text]
        return f"{missing} not in: {text}" if missing else ""

    def _names(self) -> tuple[str, ...]:
        """Return the text that names the odd thread: with two threads each is."""
        threads = self.s.team.threads
        odd = threads[self.odd]
        others = sorted(t for t in threads if t != odd)
        if self.error is not None:
            return (f"thread {odd}: ",)
        if self.case.name == "allv_broadcast" and self.case.kind == "value":
            return ()  # a thread whose type is not the root's detects it and notifies the others
        if len(others) == 1:
            return "thread 0: ", "thread 1: "
        return f"thread {odd}: ", f"the other threads ({group(others)}): "


def usable(s: Shelf, number: int) -> str:
    """Correct calls on shared and private data, with what they must bring."""
    src = np.full(4, number * 100 + s.team.rank)
    dst = np.empty(4 * s.T, np.int64)
    xupc.allav_gather_all(dst, src, team=s.team)
    s.K.local[:8] = src[0]
    xupc.all_broadcast(s.J, s.K, 32, team=s.team)
    s.team.barrier(number)
    want = np.repeat(number * 100 + np.arange(s.T), 4)
    if not np.array_equal(dst, want):
        return f"afterwards gather_all brought {dst}"
    if not (s.J.local[:8] == number * 100).all():
        return f"afterwards broadcast brought {s.J.local[:8]}"
    return ""


def main() -> None:
    options = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    world = xupc.init(timeout=CALL_LATE)
    T = world.size
    rng = random.Random(options["seed"])
    shelves = [Shelf(world)]
    if options.get("teams", True):
        team = world.split(0, -world.rank)
        assert team is not None
        shelves.append(Shelf(team))
    every = list(itertools.product(cases(), options["odd"] or sorted({0, T // 2, T - 1})))
    rng.shuffle(every)
    k, n = options.get("part", [0, 1])
    every = every[k::n][: options["count"] or None]
    failed, longest, slow = 0, 0.0, ""
    for number, (case, odd) in enumerate(every):
        s = rng.choice(shelves)
        if case[1:3] in (("bad", "team"), ("bad", "x")):  # what is neither is of all threads
            s = shelves[0]
        state = rng.getrandbits(32)
        label = f"{case.name}: {case.kind} {case.what}, odd: {odd}"
        if options.get("show") and world.rank == 0:
            print(number, label, state, "team" if s.team.parent else "world", flush=True)
        try:
            wrong, took = Trial(s, case, odd, random.Random(state)).run()
            works = usable(s, number)  # calls of all threads, also where one found something wrong
            wrong = wrong or works
        except BaseException:
            print(f"thread {world.rank}: {label}, state {state}", file=sys.stderr, flush=True)
            raise
        if took > longest:
            longest, slow = took, label
        said = COMM.allgather(wrong)  # no thread begins the next one before all have checked
        if world.rank == 0 and any(said):
            failed += 1
            rows = "; ".join(f"rank {i}: {text}" for i, text in enumerate(said) if text)
            print(f"WRONG {label} (state {state}, {'team' if s.team.parent else 'world'}): {rows}")
    longest, slow = COMM.allreduce((longest, slow), op=MPI.MAX)
    if world.rank == 0:
        figures = {"trials": len(every), "failed": failed, "threads": T, "longest": longest,
                   "slow": slow, "nodes": world.tree.node_count}  # fmt: skip
        print(f"done: {json.dumps(figures)}")


main()
