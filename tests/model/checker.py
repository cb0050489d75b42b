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

The checker numbers places of threads, views, and lists of messages, so a state is a short tuple of
numbers. It keeps the result of each operation by place, view and messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model.operations import (
    ACQUIRE,
    ADD,
    AGAIN_,
    BROKEN,
    END,
    LOAD,
    MARK_,
    MEET,
    NAMES,
    READ,
    RELAXED,
    RELEASE,
    SEQ_CST,
    STORE,
    WAIT,
    WAKE,
    WRITE,
    Op,
    Steps,
)
from model.views import Numbers, View, Views

Row = tuple[tuple[int, int], ...]
"""The messages of a word that can still be read: the value, and the number of the view."""
State = tuple[Any, ...]
What = tuple[int, Op, Any] | str
"""A step: the thread, its operation, the result."""
Drop = tuple[View, dict[int, int], list[dict[int, int]]]
"""How many values of each word no thread reads any more; the views counted anew without them, and
of each word the messages."""
NOBODY = -1


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
        self.states = self.steps = 0
        self._places = Numbers()  # (thread, call, registers, results so far)
        self._ops: list[Op] = []  # the next operation at each place, and whether it is done at once
        self._at_once: list[bool] = []
        self._after: list[dict[Any, int]] = []  # the next place, by the operation's result
        self._views = Views()
        self._rows = Numbers()
        # results, by such numbers
        self._loaded: dict[tuple[int, int, int, int], list[tuple[int, int, What]]] = {}
        self._stored: dict[tuple[int, int, int], tuple[int, int, int, What]] = {}
        self._masked: dict[tuple[int, int], tuple[dict[int, int], dict[int, int]]] = {}
        self._drops: dict[tuple[int, ...], Drop | None] = {}
        self._dropped: dict[View, Drop] = {}

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
    def _place(self, me: int, at: int, registers: Any, results: tuple[Any, ...]) -> int:
        """Return the place of a thread at its next operation on shared memory, END or BROKEN."""
        while True:
            op = self._replay(me, at, registers, results)
            if op[0] == AGAIN_:
                results = results[: len(results) - results[::-1].index("mark")]
            elif op[0] == MARK_:
                results = (*results, "mark")
            elif op[0] == END and len(op) > 1:
                at, registers, results = at + 1, op[1], ()
            else:
                break
        number = self._places.of((me, at, registers, results))
        if number == len(self._ops):
            self._ops.append(op)
            stores = op[0] == STORE and op[1] in self.eager and op[3] != SEQ_CST
            self._at_once.append(stores or op[0] in (READ, WRITE, BROKEN))
            self._after.append({})
        return number

    def _replay(self, me: int, at: int, registers: Any, results: tuple[Any, ...]) -> Op:
        """Return what a thread does next; at a call's end (END, registers), after all (END,)."""
        steps = self.thread(me, at, registers)
        if steps is None:
            return (END,)
        try:
            op = next(steps)
            for result in results:
                op = steps.send(result)
        except StopIteration as over:
            return END, over.value
        except Broken as problem:
            return BROKEN, f"thread {me}: {problem}"
        return op

    def _next(self, place: int, result: Any) -> int:
        """Return the place after an operation with a result."""
        after = self._after[place]
        found = after.get(result)
        if found is None:
            me, at, registers, results = self._places.things[place]
            found = after[result] = self._place(me, at, registers, (*results, result))
        return found

    # -- states ------------------------------------------------------------------------
    # A state is one tuple: of each word the number of its readable messages, then of each word the
    # oldest value that a seq_cst access may read, then of each futex; of each datum (value, a bit
    # for each thread that has read it since); of each thread its place, then its view, then what it
    # is asleep on. A view has an entry for each word, and for each datum the bits of what is known:
    # the last write (1) and which reads since (2, 4, ...).
    def _first(self) -> list[Any]:
        w, d = len(self.words), len(self.plain)
        self._w = self._views.words = w
        self._data = 3 * w
        self._local = self._data + d
        self._view = self._local + self.threads
        self._asleep = self._view + self.threads
        self._nothing = self._views.of((0,) * (w + d))
        view = self._views.of((0,) * w + (1,) * d)
        row = self._rows.of(((0, view),))
        places = [self._place(t, 0, self.registers, ()) for t in range(self.threads)]
        return [
            *[row] * w, *[0] * (2 * w), *[(0, 1)] * d,
            *places, *[view] * self.threads, *[NOBODY] * self.threads,
        ]  # fmt: skip

    def explore(self, most: int = 10_000_000) -> str | None:
        """Every state that can be reached; what is wrong, with the way there, or None."""
        first = self._settle(self._first(), range(self.threads))
        if isinstance(first, str):
            return first
        # known by 64 bits of hash: two states of a million that share one are most unlikely
        known = {hash(first): 0}
        came: list[tuple[int, What]] = [(-1, "")]
        back: list[list[int]] = [[]]
        ends: list[int] = []
        queue = deque([first])
        number = -1
        while queue:
            state = queue.popleft()
            number += 1
            following = self._successors(state)
            self.steps += len(following)
            for what, after in following:
                if isinstance(after, str):
                    return self._story(came, number, [self._text(what), after])
                then = known.setdefault(hash(after), len(came))
                if then == len(came):
                    came.append((number, what))
                    back.append([])
                    queue.append(after)
                back[then].append(number)
            self.states = len(came)
            if not following:
                if any(self._ops[place][0] != END for place in state[self._local : self._view]):
                    return self._story(came, number, [self._stuck(state)])
                ends.append(number)
            if len(came) > most:
                raise MemoryError(f"more than {most} states")
        return self._all_end(came, back, ends)

    def _all_end(
        self, came: list[tuple[int, What]], back: list[list[int]], ends: list[int]
    ) -> str | None:
        """Return the story of a state that cannot reach an end (an endless loop), or None."""
        reaches = bytearray(len(came))
        for number in ends:
            reaches[number] = 1
        waiting = ends
        while waiting:
            for before in back[waiting.pop()]:
                if not reaches[before]:
                    reaches[before] = 1
                    waiting.append(before)
        number = reaches.find(0)
        return None if number < 0 else self._story(came, number, ["never ends"])

    def _story(self, came: list[tuple[int, What]], number: int, last: list[str]) -> str:
        lines = last[::-1]
        while number >= 0:
            number, what = came[number]
            lines.append(self._text(what))
        return "\n".join(reversed(lines))

    def _stuck(self, state: State) -> str:
        rows = []
        for t in range(self.threads):
            place, asleep = state[self._local + t], state[self._asleep + t]
            text = self._operation(self._ops[place])
            where = f"asleep on {self.words[asleep]}" if asleep != NOBODY else text
            rows.append(f"thread {t} in call {self._places.things[place][1]}: {where}")
        return "stuck: " + "; ".join(rows)

    def _text(self, what: What) -> str:
        if isinstance(what, str):
            return what
        t, op, result = what
        return f"thread {t}: {self._operation(op)} -> {result}"

    def _operation(self, op: Op) -> str:
        if op[0] >= MEET:
            return NAMES[op[0]]
        places = self.plain if op[0] in (READ, WRITE) else self.words
        return f"{NAMES[op[0]]} {places[op[1]]} {op[2:] or ''}"

    # -- steps -------------------------------------------------------------------------
    def _successors(self, state: State) -> list[tuple[What, Any]]:
        """Return the states that follow, or what is wrong, each with the step to it."""
        ops = [self._ops[place] for place in state[self._local : self._view]]
        if ops and all(op[0] == MEET for op in ops):
            return [("all meet", self._meet(state))]
        out: list[tuple[What, Any]] = []
        for t, op in enumerate(ops):
            kind = op[0]
            if kind in (END, MEET) or state[self._asleep + t] != NOBODY:
                continue
            if kind == LOAD:
                self._load(state, t, op, out)
            elif kind == WAIT:
                self._wait(state, t, op, out)
            else:
                after = list(state)
                if kind == WAKE:
                    self._wake(after, t, op)
                    what: What = (t, op, None)
                    moved: range | tuple[int] = range(self.threads)
                else:
                    what, moved = self._store(after, t, op), (t,)
                out.append((what, self._settle(after, moved)))
        return out

    def _meet(self, state: State) -> Any:
        after = list(state)
        view = after[self._view]
        for other in after[self._view + 1 : self._asleep]:
            view = self._views.join(view, other)
        for t in range(self.threads):
            after[self._view + t] = view
            after[self._local + t] = self._next(after[self._local + t], None)
        return self._settle(after, range(self.threads))

    def _load(self, state: State, t: int, op: Op, out: list[tuple[What, Any]]) -> None:
        """Add the states after a load: one of each value that the thread may read."""
        _, x, least, how = op
        place, view, row = state[self._local + t], state[self._view + t], state[x]
        oldest = self._views.things[view][x]
        if how == SEQ_CST:
            oldest = max(oldest, state[self._w + x])
        key = place, view, row, oldest
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = []
            messages = self._rows.things[row]
            for ts in range(oldest, len(messages)):
                value, told = messages[ts]
                now = self._views.enter(view, x, ts)
                if how != RELAXED:
                    now = self._views.join(now, told)
                result = value if least is None else value >= least
                found.append((self._next(place, result), now, (t, op, result)))
        for then, now, what in found:
            after = list(state)
            after[self._local + t] = then
            after[self._view + t] = now
            out.append((what, self._settle(after, (t,))))

    def _store(self, after: list[Any], t: int, op: Op) -> What:
        """Change a state by a STORE, ADD or SWAP."""
        x = op[1]
        key = place, view, row = after[self._local + t], after[self._view + t], after[x]
        found = self._stored.get(key)
        if found is None:
            found = self._stored[key] = self._new_store(place, view, row, t, op)
        after[self._local + t], after[self._view + t], after[x], what = found
        if op[3] == SEQ_CST:
            after[self._w + x] = len(self._rows.things[row])
        return what

    def _new_store(
        self, place: int, view: int, row: int, t: int, op: Op
    ) -> tuple[int, int, int, What]:
        """Return the place, the view and the word's messages after a STORE, ADD or SWAP."""
        kind, x, value, how = op
        messages: Row = self._rows.things[row]
        ts = len(messages)
        old, told = messages[-1]
        if kind != STORE and how in (ACQUIRE, SEQ_CST):
            view = self._views.join(view, told)
        now = self._views.enter(view, x, ts)
        given = now if how in (RELEASE, SEQ_CST) else self._views.enter(self._nothing, x, ts)
        if kind != STORE:  # part of the release sequence of what it changes
            given = self._views.join(given, self._views.enter(told, x, ts))
        message = old + value if kind == ADD else value, given
        result = None if kind == STORE else old
        return (
            self._next(place, result), now, self._rows.of((*messages, message)), (t, op, result)
        )  # fmt: skip

    def _wait(self, state: State, t: int, op: Op, out: list[tuple[What, Any]]) -> None:
        """Add the states after a futex wait: asleep, or not if the word may differ."""
        _, x, expected, low = op
        place, view = state[self._local + t], state[self._view + t]
        first = max(self._views.things[view][x], state[2 * self._w + x])
        messages = self._rows.things[state[x]][first:]
        same = {(value - expected) % low == 0 for value, _ in messages}
        if True in same:
            after = list(state)
            after[self._asleep + t] = x
            out.append(((t, op, "sleeps"), self._settle(after, (t,))))
        if False in same:
            after = list(state)
            after[self._local + t] = self._next(place, None)
            out.append(((t, op, "goes on"), self._settle(after, (t,))))

    def _wake(self, after: list[Any], t: int, op: Op) -> None:
        """Change a state by a futex wake."""
        x = op[1]
        kernel = 2 * self._w + x
        after[kernel] = max(after[kernel], self._views.things[after[self._view + t]][x])
        for u in range(self.threads):
            if u == t or after[self._asleep + u] == x:
                after[self._asleep + u] = NOBODY
                after[self._local + u] = self._next(after[self._local + u], None)

    # -- what commutes with whatever others do --------------------------------------------
    def _settle(self, after: list[Any], moved: range | tuple[int]) -> State | str:
        """Do all that threads do at once, of those that have moved; what is wrong, or the state."""
        for t in moved:
            while self._at_once[place := after[self._local + t]]:
                op = self._ops[place]
                if op[0] == STORE:
                    self._store(after, t, op)
                    continue
                wrong = op[1] if op[0] == BROKEN else self._plain(after, t, op)
                if wrong is not None:
                    return wrong  # type: ignore[no-any-return]
        self._forget_the_past(after)
        return tuple(after)

    def _plain(self, after: list[Any], t: int, op: Op) -> str | None:
        """Change a state by a READ or WRITE; return what is wrong."""
        kind, x = op[:2]
        at, datum = self._w + x, self._data + x
        value, done = after[datum]
        knows = self._views.things[after[self._view + t]][at]
        if kind == READ:
            if not knows & 1:
                return f"thread {t} reads {self.plain[x]}: race with a write"
            mine = 2 << t
            if done & mine:
                # a later read is another one: views that include earlier reads do not include it
                self._mask(after, at, ~mine)
            after[datum] = value, done | mine
            result, knows = value, knows | mine
        else:
            if knows & done != done:
                return f"thread {t} writes {self.plain[x]}: race with a read or write"
            self._mask(after, at, 0)
            after[datum] = op[2], 1
            result, knows = None, 1
        after[self._view + t] = self._views.enter(after[self._view + t], at, knows)
        after[self._local + t] = self._next(after[self._local + t], result)
        return None

    def _mask(self, after: list[Any], at: int, mask: int) -> None:
        """Drop the bits outside of `mask` from every view's entry for a datum."""
        rows, views = self._masked.setdefault((at, mask), ({}, {}))

        def less(view: int) -> int:
            found = views.get(view)
            if found is None:
                knows = self._views.things[view][at]
                found = views[view] = self._views.enter(view, at, knows & mask)
            return found

        for x in range(self._w):
            row = after[x]
            found = rows.get(row)
            if found is None:
                messages = self._rows.things[row]
                found = self._rows.of(tuple((value, less(told)) for value, told in messages))
                rows[row] = found
            after[x] = found
        for i in range(self._view, self._asleep):
            after[i] = less(after[i])

    def _forget_the_past(self, after: list[Any]) -> None:
        """Drop the values that no thread can read any more, and count the others anew."""
        places = after[self._local : self._view]
        over = [t for t, place in enumerate(places) if self._ops[place][0] == END]
        if len(over) == self.threads:
            after[: self._data] = [0] * self._data
            after[self._view : self._asleep] = [self._nothing] * self.threads
            return
        running = after[self._view : self._asleep]
        for t in reversed(over):
            del running[t]
        key = tuple(running)
        if key in self._drops:
            found = self._drops[key]
        else:
            found = self._drops[key] = self._drop(key)
        if found is None:
            return
        for t in over:
            after[self._view + t] = self._nothing
        drop, views, rows = found
        w = self._w
        for x, (d, known) in enumerate(zip(drop, rows, strict=True)):
            row = known.get(after[x])
            if row is None:
                messages = self._rows.things[after[x]][d:]
                row = known[after[x]] = self._rows.of(
                    tuple((value, self._less(told, drop, views)) for value, told in messages)
                )
            after[x] = row
            if d:
                after[w + x] = max(after[w + x] - d, 0)
                after[2 * w + x] = max(after[2 * w + x] - d, 0)
        for i in range(self._view, self._asleep):
            after[i] = self._less(after[i], drop, views)

    def _drop(self, running: tuple[int, ...]) -> Drop | None:
        """Return what no thread with these views reads, None if that is nothing."""
        every = [self._views.things[view][: self._w] for view in running]
        drop = tuple(min(column) for column in zip(*every, strict=True))
        if not any(drop):
            return None
        return self._dropped.setdefault(drop, (drop, {}, [{} for _ in drop]))

    def _less(self, view: int, drop: View, known: dict[int, int]) -> int:
        """Return a view counted anew."""
        found = known.get(view)
        if found is None:
            old = self._views.things[view]
            new = [a - b if a > b else 0 for a, b in zip(old, drop, strict=False)]
            found = known[view] = self._views.of((*new, *old[self._w :]))
        return found
