"""A small model checker: all executions of a few threads under C11's memory model.

A thread is a generator: it yields operations on shared memory and is sent their results. Its next
operation depends on nothing else, so the state of a thread is the list of its results so far. The
list is cut short at the end of each call (`Machine.thread` makes one call at a time) and of each
turn of a loop (`MARK`, `AGAIN`).

Memory is that of release and acquire: of every word all values are kept that a thread may still
read. A thread has a *view*, the oldest value of each word that it may read; a release store passes
on the writer's view, an acquire load takes it over. So stale reads and reordered stores, as of
store buffers, are all tried. Between seq_cst accesses of one word no stale value is read: they have
one order, that of the execution. The model omits a load that reads a value stored only because of
that load; the core has no relaxed load with a relaxed store after it that could.

Plain data must not be raced for: a read must know the last write, a write all reads and writes.

The futex is the kernel's: waiting compares and goes to sleep in one step, but may compare a value
that is older than the last FUTEX_WAKE allows to be; waking wakes all. There are no timeouts.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

RELAXED, ACQUIRE, RELEASE, SEQ_CST = range(4)
LOAD, STORE, ADD, SWAP, WAIT, WAKE, READ, WRITE, MEET, MARK_, AGAIN_ = range(11)
MARK, AGAIN = (MARK_,), (AGAIN_,)
_EAGER = (READ, WRITE, MARK_, AGAIN_)

Op = tuple[Any, ...]
Steps = Generator[Op, Any, Any]
View = tuple[int, ...]
Message = tuple[int, View]


class Broken(Exception):
    """A thread found something that must not be."""


@dataclass
class Machine:
    """Words, plain data and threads.

    `thread(me, at, registers)` makes the generator of thread `me`'s call number `at`; its value
    are the registers for the next call. None: there is no such call.
    """

    threads: int
    thread: Callable[[int, int, Any], Steps | None]
    registers: Any
    words: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    eager: set[int] = field(default_factory=set)
    """Words of one writer that nobody reads by seq_cst: when they are stored changes nothing."""

    def __post_init__(self) -> None:
        self.kept: dict[Any, Op] = {}
        self.joined: dict[tuple[View, View], View] = {}
        self.states = self.steps = 0

    def word(self, name: str, *, eager: bool = False) -> int:
        """A new atomic word, 0."""
        self.words.append(name)
        if eager:
            self.eager.add(len(self.words) - 1)
        return len(self.words) - 1

    def data(self, name: str) -> int:
        """A new plain datum, 0."""
        self.plain.append(name)
        return len(self.plain) - 1

    # -- threads -----------------------------------------------------------------------
    def _next(self, me: int, local: tuple[int, Any, tuple[Any, ...]]) -> Op:
        """What a thread does next: an operation, ("goto", local), ("end",) or ("broken", text)."""
        key = (me, local)
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = self._replay(me, *local)
        return found

    def _replay(self, me: int, at: int, registers: Any, results: tuple[Any, ...]) -> Op:
        steps = self.thread(me, at, registers)
        if steps is None:
            return ("end",)
        try:
            op = next(steps)
            for result in results:
                op = steps.send(result)
        except StopIteration as over:
            return ("goto", (at + 1, over.value, ()))
        except Broken as problem:
            return ("broken", f"thread {me}: {problem}")
        if op is MARK:
            return ("goto", (at, registers, (*results, "mark")))
        if op is AGAIN:
            back = len(results) - results[::-1].index("mark")
            return ("goto", (at, registers, results[:back]))
        return op

    # -- states ------------------------------------------------------------------------
    # A state is (memory, order, kernel, data, threads): of each word the readable messages; the
    # oldest value that a seq_cst access may read, and a futex; of each datum (value, a bit for
    # each thread that has read it since); of each thread (local, view, asleep on). A view has an
    # entry for each word, and for each datum the bits of what is known: the last write (1) and
    # which reads since (2, 4, ...).
    def _first(self) -> Any:
        w, d = len(self.words), len(self.plain)
        view = (0,) * w + (1,) * d
        zeros = (0,) * w
        threads = tuple(((0, self.registers, ()), view, -1) for _ in range(self.threads))
        return (((0, view),),) * w, zeros, zeros, ((0, 1),) * d, threads

    def explore(self, most: int = 10_000_000) -> str | None:
        """Every state that can be reached; what is wrong, with the way there, or None."""
        first = self._settle(self._first())
        if isinstance(first, str):
            return first
        # known by 64 bits of hash: two states of a million that share one are most unlikely
        came: dict[int, tuple[int | None, str]] = {hash(first): (None, "")}
        back: dict[int, list[int]] = {}
        ends: list[int] = []
        queue = deque([first])
        while queue:
            state = queue.popleft()
            number = hash(state)
            following = list(self._successors(state))
            for what, after in following:
                self.steps += 1
                if isinstance(after, str):
                    return self._story(came, number, [what, after])
                then = hash(after)
                back.setdefault(then, []).append(number)
                if then not in came:
                    came[then] = (number, sys.intern(what))
                    queue.append(after)
            self.states = len(came)
            if not following:
                if any(self._next(t, th[0])[0] != "end" for t, th in enumerate(state[4])):
                    return self._story(came, number, [self._stuck(state)])
                ends.append(number)
            if len(came) > most:
                raise MemoryError(f"more than {most} states")
        return self._all_end(came, back, ends)

    def _all_end(
        self,
        came: dict[int, tuple[int | None, str]],
        back: dict[int, list[int]],
        ends: list[int],
    ) -> str | None:
        """Return the story of a state that cannot reach an end (an endless loop), or None."""
        seen = set(ends)
        queue = deque(ends)
        while queue:
            for before in back.get(queue.popleft(), ()):
                if before not in seen:
                    seen.add(before)
                    queue.append(before)
        for number in came:
            if number not in seen:
                return self._story(came, number, ["never ends"])
        return None

    def _story(
        self, came: dict[int, tuple[int | None, str]], number: int | None, last: list[str]
    ) -> str:
        lines = last[::-1]
        while number is not None:
            number, what = came[number]
            lines.append(what)
        return "\n".join(reversed(lines))

    def _stuck(self, state: Any) -> str:
        rows = []
        for t, (local, _, asleep) in enumerate(state[4]):
            op = self._next(t, local)
            where = f"asleep on {self.words[asleep]}" if asleep >= 0 else self._text(op)
            rows.append(f"thread {t} in call {local[0]}: {where}")
        return "stuck: " + "; ".join(rows)

    def _text(self, op: Op) -> str:
        names = ("load", "store", "add", "swap", "futex wait", "futex wake", "read", "write",
                 "meet")  # fmt: skip
        if not isinstance(op[0], int):
            return str(op[0])
        place = "" if op[0] == MEET else (self.plain if op[0] in (READ, WRITE) else self.words)
        return f"{names[op[0]]} {place[op[1]] if place else ''} {op[2:] or ''}"

    # -- steps -------------------------------------------------------------------------
    def _settle(self, state: Any) -> Any:
        """Do all that commutes with whatever others do."""
        moved = True
        while moved:
            moved = False
            for t in range(self.threads):
                while True:
                    local = state[4][t][0]
                    op = self._next(t, local)
                    if op[0] == "broken":
                        return op[1]
                    if op[0] == "goto":
                        state = self._with(state, t, local=op[1])
                    elif op[0] in _EAGER or (
                        op[0] == STORE and op[1] in self.eager and op[3] != SEQ_CST
                    ):
                        found = self._do(state, t, op)
                        if isinstance(found, str):
                            return found
                        ((state, _),) = found
                    else:
                        break
                    moved = True
        return self._normal(state)

    def _successors(self, state: Any) -> Any:
        threads = state[4]
        ops = [self._next(t, thread[0]) for t, thread in enumerate(threads)]
        if ops and all(op[0] == MEET for op in ops):
            view = threads[0][1]
            for _, other, _ in threads:
                view = self._join(view, other)
            for t in range(self.threads):
                state = self._with(state, t, view=view, result=None)
            yield "all meet", self._settle(state)
            return
        for t, op in enumerate(ops):
            if threads[t][2] >= 0 or op[0] in ("end", MEET):
                continue
            found = self._do(state, t, op)
            if isinstance(found, str):
                yield f"thread {t}: {self._text(op)}", found
                continue
            for after, result in found:
                yield f"thread {t}: {self._text(op)} -> {result}", self._settle(after)

    def _with(
        self, state: Any, t: int, *, local: Any = None, view: Any = None, **more: Any
    ) -> Any:
        memory, order, kernel, data, threads = state
        old, seen, asleep = threads[t]
        if local is None:
            local = old
        if "result" in more:
            local = (local[0], local[1], (*local[2], more["result"]))
        changed = (local, seen if view is None else view, more.get("asleep", asleep))
        return memory, order, kernel, data, (*threads[:t], changed, *threads[t + 1 :])

    def _join(self, a: View, b: View) -> View:
        key = a, b
        found = self.joined.get(key)
        if found is None:
            w = len(self.words)
            known = (x | y for x, y in zip(a[w:], b[w:], strict=True))
            found = self.joined[key] = (*map(max, a[:w], b[:w]), *known)
        return found

    def _do(self, state: Any, t: int, op: Op) -> Any:
        """[(state, result)] of all ways in which an operation can end, or what is wrong."""
        kind = op[0]
        if kind in (READ, WRITE):
            return self._plain(state, t, op)
        memory, order, kernel, data, threads = state
        view = threads[t][1]
        x = op[1]
        messages = memory[x]
        if kind == LOAD:
            _, _, least, how = op
            oldest = max(view[x], order[x]) if how == SEQ_CST else view[x]
            out = []
            for ts in range(oldest, len(messages)):
                value, told = messages[ts]
                now = (*view[:x], ts, *view[x + 1 :])
                if how != RELAXED:
                    now = self._join(now, told)
                result = value if least is None else value >= least
                out.append((self._with(state, t, view=now, result=result), result))
            return out
        if kind in (STORE, ADD, SWAP):
            _, _, value, how = op
            old, told = messages[-1]
            ts = len(messages)
            if kind != STORE and how in (ACQUIRE, SEQ_CST):
                view = self._join(view, told)
            now = (*view[:x], ts, *view[x + 1 :])
            w = len(self.words)
            given = now if how in (RELEASE, SEQ_CST) else (0,) * len(now)
            given = (*given[:x], ts, *given[x + 1 :])
            if kind != STORE:  # part of the release sequence of what it changes
                given = self._join(given, (*told[:x], ts, *told[x + 1 : w], *told[w:]))
            message = (old + value if kind == ADD else value, given)
            memory = (*memory[:x], (*messages, message), *memory[x + 1 :])
            if how == SEQ_CST:
                order = (*order[:x], ts, *order[x + 1 :])
            result = None if kind == STORE else old
            state = (memory, order, kernel, data, threads)
            return [(self._with(state, t, view=now, result=result), result)]
        if kind == WAIT:
            _, _, expected, low = op
            values = [m[0] for m in messages[max(view[x], kernel[x]) :]]
            same = {(value - expected) % low == 0 for value in values}
            out = []
            if True in same:
                out.append((self._with(state, t, asleep=x), "sleeps"))
            if False in same:
                out.append((self._with(state, t, result=None), "goes on"))
            return out
        assert kind == WAKE
        kernel = (*kernel[:x], max(kernel[x], view[x]), *kernel[x + 1 :])
        state = (memory, order, kernel, data, threads)
        for u, (_, _, asleep) in enumerate(threads):
            if asleep == x:
                state = self._with(state, u, asleep=-1, result=None)
        return [(self._with(state, t, result=None), None)]

    def _plain(self, state: Any, t: int, op: Op) -> Any:
        memory, order, kernel, data, threads = state
        x = op[1]
        at = len(self.words) + x
        view = threads[t][1]
        value, done = data[x]
        if op[0] == READ:
            if not view[at] & 1:
                return f"thread {t} reads {self.plain[x]}: race with a write"
            mine = 2 << t
            data = (*data[:x], (value, done | mine), *data[x + 1 :])
            # a later read is another one: views that include earlier reads do not include it
            state = self._forget((memory, order, kernel, data, threads), at, ~mine)
            view = (*view[:at], view[at] | mine, *view[at + 1 :])
            return [(self._with(state, t, view=view, result=value), value)]
        if view[at] & done != done:
            return f"thread {t} writes {self.plain[x]}: race with a read or write"
        data = (*data[:x], (op[2], 1), *data[x + 1 :])
        state = self._forget((memory, order, kernel, data, threads), at, 0)
        view = (*view[:at], 1, *view[at + 1 :])
        return [(self._with(state, t, view=view, result=None), None)]

    def _forget(self, state: Any, at: int, mask: int) -> Any:
        """Drop the bits outside of `mask` from every view's entry for a datum."""
        memory, order, kernel, data, threads = state

        def less(view: View) -> View:
            if view[at] & ~mask == 0:
                return view
            return (*view[:at], view[at] & mask, *view[at + 1 :])

        memory = tuple(tuple((value, less(told)) for value, told in row) for row in memory)
        threads = tuple((local, less(view), asleep) for local, view, asleep in threads)
        return memory, order, kernel, data, threads

    def _normal(self, state: Any) -> Any:
        """Return the state without values that no thread can read any more, counted anew."""
        memory, order, kernel, data, threads = state
        w = len(self.words)
        nothing = (0,) * (w + len(data))
        over = [self._next(t, thread[0])[0] == "end" for t, thread in enumerate(threads)]
        running = [thread[1] for thread, at_end in zip(threads, over, strict=True) if not at_end]
        if not running:
            return (), (), (), data, tuple((local, (), -1) for local, _, _ in threads)
        threads = tuple(
            (thread[0], nothing, -1) if at_end else thread
            for thread, at_end in zip(threads, over, strict=True)
        )
        drop = tuple(min(column) for column in zip(*(view[:w] for view in running), strict=True))
        if not any(drop):
            return state

        def less(view: View) -> View:
            return (*[a - b if a > b else 0 for a, b in zip(view, drop, strict=False)], *view[w:])

        memory = tuple(
            tuple((value, less(told)) for value, told in row[d:])
            for row, d in zip(memory, drop, strict=True)
        )
        order, kernel = less(order), less(kernel)
        threads = tuple((local, less(view), asleep) for local, view, asleep in threads)
        return memory, order, kernel, data, threads


def load(word: int, how: int) -> Op:
    """The word's value."""
    return LOAD, word, None, how


def at_least(word: int, least: int, how: int) -> Op:
    """A load, of which only is known whether it gave so much."""
    return LOAD, word, least, how


def store(word: int, value: int, how: int) -> Op:
    return STORE, word, value, how


def add(word: int, value: int, how: int) -> Op:
    """fetch_add."""
    return ADD, word, value, how


def swap(word: int, value: int, how: int) -> Op:
    """exchange."""
    return SWAP, word, value, how


def futex_wait(word: int, expected: int, low: int = 1 << 32) -> Op:
    """Sleep if the word has this value, of which only the lower part is compared."""
    return WAIT, word, expected, low


def futex_wake(word: int) -> Op:
    """Wake all."""
    return WAKE, word


def meet() -> Op:
    """Wait for all threads, by other means than the core's."""
    return (MEET,)


def read(datum: int) -> Op:
    return READ, datum


def write(datum: int, value: int) -> Op:
    return WRITE, datum, value
