"""The native core's protocol for the model checker: shm_protocol.h function by function.

A C function there has the same name here. `Core.mutations` names lines that are changed on purpose,
to see that the checker detects it. With `agree` a thread calls `xu_suspect` whenever it waits, and
the result must be no; a sleeper is woken or sleeps for ever. In a story where calls differ, waiting
threads check now and then, as their timeouts make them, and all must come to the meeting.

With `parents` barriers go by levels, along that tree. A thread looks at a line of the tree once and
goes on alone if it must wait; since the look may come at any time, that covers every patience. With
`patient` it looks for ever, as if it spun without end: the tree must be enough without the rest.
Without `sleeps` threads spin instead of sleeping: the sleepers of a line are the same with a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.checker import Broken, Machine
from model.operations import (
    ACQUIRE,
    AGAIN,
    MARK,
    RELAXED,
    RELEASE,
    SEQ_CST,
    Steps,
    add,
    at_least,
    futex_wait,
    futex_wake,
    load,
    meet,
    read,
    store,
    swap,
    write,
)

MUTATIONS = {
    "relaxed publish": "a signal does not hand on what came before it",
    "plain store": "a release store instead of a seq_cst exchange: it may wait in a store buffer",
    "no wake": "nobody is woken",
    "acquire count": "the writer's look for sleepers is not seq_cst",
    "look first": "a waiter looks at the word before it says that it sleeps",
    "acquire word": "the waiter's last look at the word is not seq_cst",
    "wakes late": "a waiter notes the count of wake-ups after it looked at the word",
    "futex on the word": "the kernel compares the word's lower half, as it was once",
    "relaxed wait": "a waiter does not take over what the writer knew",
    "one parity": "one line of arrivals for all barriers",
    "relaxed counter": "arrivals are counted without order",
    "last does not wake": "nobody wakes an executor who sleeps on the counter",
    "no catching up": "calls without a barrier go on for ever",
    "word first": "xu_suspect looks at the signal before it looks whether the writer has gone on",
    "wait for release": "who gave up waits for a release like anybody else, as it was once",
    "nobody arrives": "who finds a difference does not come to the barrier",
    "next for mine": "xu_suspect takes the verdict on the next barrier for one on mine",
    "relaxed relay": "a relay does not hand on what came before it",
    "relaxed subtree": "a subtree line does not hand on what came before it",
    "relaxed climb": "a parent does not take over what its children knew",
    "relaxed descent": "a child does not take over what its parent knew",
    "first child only": "a thread does not wait for all of its children",
    "my call only": "a subtree line holds the call of its thread alone",
    "one subtree line": "one line of each subtree for all barriers",
    "always good": "a relay says that calls are equal, whatever the verdict",
    "no relay": "a thread does not pass the verdict on",
    "top does not relay": "the top of the tree does not pass on what the executor released",
    "the top waits": "the top of the tree waits for an executor though it has seen a difference",
    "verdict of the node": "the top relays what its own node found, not what all nodes did",
    "relay before the body": "a node root passes the verdict on before it has moved the data",
    "part of the tree": "an executor below the top takes its subtree for the whole tree",
    "no mark": "a thread that goes on alone does not mark its lines",
    "mark the relay only": "such a thread does not mark its subtree line",
    "mark the subtree only": "such a thread does not mark its relay",
}
COUNT_BITS = 2
STATE_BITS = 2
AWAY, HERE = range(2)
GOOD, BAD = 1, 2
PASSED = 3  # the line is of a later barrier
LOW = 16  # values of a signal's lower half: what a futex on the word itself would compare


class Sleepers(NamedTuple):
    count: int
    wakes: int


class Line(NamedTuple):
    """xu_line, xu_arrival or xu_slot: `word` is seq, or the list of channels."""

    word: Any
    sleepers: Sleepers
    fp: int = -1
    entered: int = -1


class Subtree(NamedTuple):
    """xu_subtree, without values."""

    seq: int
    low: int
    high: int


class Team(NamedTuple):
    """xu_team's own part."""

    epoch: int = 0
    op: int = 0
    fp: int = 0
    unsynced: int = 0
    giving_up: bool = False
    posted: bool = False
    alone: bool = False
    met: bool = False
    """Whether a difference was found: the story goes on at `after`."""


class Mismatch(Exception):
    """XT_MISMATCH, at a barrier or not."""

    def __init__(self, at_barrier: bool) -> None:
        super().__init__()
        self.at_barrier = at_barrier


Action = tuple[Any, ...]


@dataclass
class Core:
    """Threads, each with its actions: (name, argument, ...)."""

    n: int
    counter_mode: bool
    stories: list[list[Action]]
    mutations: frozenset[str] = frozenset()
    agree: bool = True
    suspects: bool = False
    parents: tuple[int, ...] = ()
    patient: bool = False
    sleeps: bool = True
    slots: int = 2
    channels: int = 2
    words: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = m = Machine(self.n, self._call, Team())
        every = range(self.n)

        def sleepers(name: str) -> Sleepers:
            return Sleepers(m.word(f"{name}.count"), m.word(f"{name}.wakes"))

        told = {name for story in self.stories for name, *_ in story}
        signals = bool(told & {"ring", "told", "scratch"}) or self.suspects or not self.agree
        calm = self.counter_mode and "one seq" not in self.mutations
        # only what the stories use: the fewer words the faster
        none = Line(-1, Sleepers(-1, -1))
        self.counter = self.release = none
        if self.counter_mode:
            self.counter = Line(m.word("counter"), sleepers("counter"))
        if self.counter_mode or told & {"fused", "led"} or self.suspects or not self.agree:
            self.release = Line(m.word("release"), sleepers("release"))
        self.arrival = [
            [
                Line(m.word(f"seq{p}@{j}", eager=calm),
                     none.sleepers if self.counter_mode else sleepers(f"arrival{p}@{j}"),
                     m.word(f"fp{p}@{j}", eager=True))
                for j in every
            ]
            for p in range(2)
        ]  # fmt: skip
        self.slot = [
            [
                Line([m.word(f"chan{c}@{j} slot {s}") for c in range(self.channels)],
                     sleepers(f"slot{s}@{j}"), m.word(f"slot fp{s}@{j}", eager=True),
                     m.word(f"entered{s}@{j}", eager=True))
                for j in every
            ]
            for s in range(self.slots if signals else 0)
        ]  # fmt: skip
        scratch = self.slots if told & {"told", "scratch"} else 0
        inner = sorted({*self.parents} - {-1})
        self.children = [[c for c in every if self.parents and self.parents[c] == j] for j in every]
        self.subtree = [
            {
                j: Subtree(m.word(f"subtree{p}@{j}", eager=True),
                           m.word(f"low{p}@{j}", eager=True), m.word(f"high{p}@{j}", eager=True))
                for j in inner
            }
            for p in range(2)
        ]  # fmt: skip
        self.relay = {j: m.word(f"relay@{j}", eager=True) for j in inner}
        if self.patient and "posted" not in told:  # no thread leaves the tree
            self.sleeps = False
        self.src = [m.data(f"src@{j}") for j in every]
        self.dst = [m.data(f"dst@{j}") for j in every if told & {"fused", "led"}]
        self.line = [[m.data(f"line {s}@{j}") for j in every] for s in range(scratch)]

    def has(self, mutation: str) -> bool:
        return mutation in self.mutations

    # -- sleeping ----------------------------------------------------------------------
    def xu_wake(self, s: Sleepers, word: int) -> Steps:
        if self.has("futex on the word"):
            yield futex_wake(word)
            return
        yield add(s.wakes, 1, SEQ_CST)
        yield futex_wake(s.wakes)

    def xu_publish(self, word: int, s: Sleepers, value: int) -> Steps:
        if self.has("plain store"):
            yield store(word, value, RELEASE)
        elif self.has("relaxed publish"):
            yield store(word, value, RELAXED)
        else:
            yield swap(word, value, SEQ_CST)
        if self.has("no wake") or not self.sleeps:
            return
        order = ACQUIRE if self.has("acquire count") else SEQ_CST
        if (yield load(s.count, order)):
            yield from self.xu_wake(s, word)

    def xu_sleep(self, word: int, s: Sleepers, target: int) -> Steps:
        if self.has("look first"):
            if (yield at_least(word, target, SEQ_CST)):
                return
            yield add(s.count, 1, SEQ_CST)
            yield futex_wait(s.wakes, (yield load(s.wakes, SEQ_CST)))
        elif self.has("futex on the word"):
            yield add(s.count, 1, SEQ_CST)
            seen = yield load(word, SEQ_CST)
            if seen < target:
                yield futex_wait(word, seen, LOW)
        else:
            yield add(s.count, 1, SEQ_CST)
            late = self.has("wakes late")
            wakes = None if late else (yield load(s.wakes, SEQ_CST))
            order = ACQUIRE if self.has("acquire word") else SEQ_CST
            if not (yield at_least(word, target, order)):
                if late:
                    wakes = yield load(s.wakes, SEQ_CST)
                yield futex_wait(s.wakes, wakes)
        yield add(s.count, -1, SEQ_CST)

    def wait(
        self, me: int, t: Team, at: Any, word: int, s: Sleepers, target: int, of: Any = None
    ) -> Steps:
        """xu_ready in the loop of xu_run, until the word is there; `at`: what xu_suspect sees."""
        order = RELAXED if self.has("relaxed wait") else ACQUIRE
        yield MARK
        while True:
            if (yield at_least(word, target, order)):
                return
            looks = self.suspects or not self.agree
            if looks and (yield from self.xu_suspect(me, t, at, of)):
                if self.agree:
                    raise Broken("xu_suspect: a false alarm")
                raise Mismatch(at in ("barrier", "fuse", "await"))
            if self.agree and self.sleeps:
                yield from self.xu_sleep(word, s, target)
            yield AGAIN

    # -- barrier pieces ----------------------------------------------------------------
    def lines(self, t: Team, ahead: int = 0) -> list[Line]:
        return self.arrival[0 if self.has("one parity") else (t.epoch + ahead) & 1]

    def xu_arrive(self, me: int, t: Team) -> Steps:
        """(team, whether I am the last of counter mode)."""
        t = t._replace(epoch=t.epoch + 1)
        mine = self.lines(t)[me]
        yield store(mine.fp, t.fp, RELAXED)
        if not self.counter_mode:
            yield from self.xu_publish(mine.word, mine.sleepers, t.epoch)
            t = t._replace(alone=False)
            if self.parents and (t.posted or t.giving_up):
                t = yield from self.xu_go_alone(me, t)
            return t, False
        yield store(mine.word, t.epoch, RELEASE)
        order = RELAXED if self.has("relaxed counter") else SEQ_CST
        now = 1 + (yield add(self.counter.word, 1, order))
        if now != self.n * t.epoch:
            return t, False
        s = self.counter.sleepers
        if not self.has("last does not wake") and (yield load(s.count, SEQ_CST)):
            yield from self.xu_wake(s, self.counter.word)
        return t, True

    def xu_all_here(self, me: int, t: Team, at: str) -> Steps:
        if self.counter_mode:
            line = self.counter
            yield from self.wait(me, t, at, line.word, line.sleepers, self.n * t.epoch)
            return
        for line in self.lines(t):
            yield from self.wait(me, t, at, line.word, line.sleepers, t.epoch)

    def xu_compare(self, t: Team) -> Steps:
        odd = False
        for j, line in enumerate(self.lines(t)):
            if (yield load(line.word, ACQUIRE)) != t.epoch:
                if self.agree:
                    raise Broken(f"barrier {t.epoch}: thread {j}'s line is of another one")
                continue
            odd |= (yield load(line.fp, RELAXED)) != t.fp
        if odd and self.agree:
            raise Broken(f"barrier {t.epoch}: a false alarm")
        return odd

    # -- barriers by levels --------------------------------------------------------------
    def subtrees(self, t: Team) -> dict[int, Subtree]:
        return self.subtree[0 if self.has("one subtree line") else t.epoch & 1]

    def xu_go_alone(self, me: int, t: Team, *, said: bool = False) -> Steps:
        """The team; `said`: my parent can see that my subtree is here."""
        mark = t.epoch << STATE_BITS | AWAY
        t = t._replace(alone=True)
        if not self.children[me] or self.has("no mark"):
            return t
        if not said and not self.has("mark the relay only"):
            yield store(self.subtrees(t)[me].seq, mark, RELEASE)
        if not self.has("mark the subtree only"):
            yield store(self.relay[me], mark, RELEASE)
        return t

    def tree_ready(self, word: int, target: int, order: int) -> Steps:
        """xu_ready of a line of the tree: at once, or in the end if threads are patient."""
        if not self.patient:
            return (yield at_least(word, target, order))
        yield MARK
        while not (yield at_least(word, target, order)):
            yield AGAIN
        return True

    def xu_state(self, t: Team, word: int, order: int) -> Steps:
        """The state of a line, or None."""
        if not (yield from self.tree_ready(word, t.epoch << STATE_BITS, order)):
            return None
        now = yield load(word, order)
        return now & 3 if now >> STATE_BITS == t.epoch else PASSED

    def xu_climb(self, me: int, t: Team) -> Steps:
        """(The least, the greatest fingerprint of my subtree); None: I have to go on alone."""
        low = high = t.fp
        order = RELAXED if self.has("relaxed climb") else ACQUIRE
        children = self.children[me]
        for j in children[:1] if self.has("first child only") else children:
            if not self.children[j]:
                if not (yield from self.tree_ready(self.lines(t)[j].word, t.epoch, order)):
                    return None
            elif (yield from self.xu_state(t, self.subtrees(t)[j].seq, order)) in (None, AWAY):
                return None
        for j in children:
            line, part = self.lines(t)[j], self.subtrees(t).get(j)
            for word in (part.low, part.high) if part else (line.fp,):
                fp = yield load(word, RELAXED)
                low, high = min(low, fp), max(high, fp)
        if children:
            mine = self.subtrees(t)[me]
            of = (t.fp, t.fp) if self.has("my call only") else (low, high)
            yield store(mine.low, of[0], RELAXED)
            yield store(mine.high, of[1], RELAXED)
            order = RELAXED if self.has("relaxed subtree") else RELEASE
            yield store(mine.seq, t.epoch << STATE_BITS | HERE, order)
        return low, high

    def xu_pass_on(self, me: int, t: Team, odd: bool) -> Steps:
        if odd and self.agree:
            raise Broken(f"barrier {t.epoch}: a false alarm")
        if self.children[me] and not t.alone and not self.has("no relay"):
            order = RELAXED if self.has("relaxed relay") else RELEASE
            state = BAD if odd and not self.has("always good") else GOOD
            yield store(self.relay[me], t.epoch << STATE_BITS | state, order)

    def xu_descend(self, me: int, t: Team) -> Steps:
        """The verdict; None: I have to go on alone."""
        order = RELAXED if self.has("relaxed descent") else ACQUIRE
        state = yield from self.xu_state(t, self.relay[self.parents[me]], order)
        return None if state in (None, AWAY) else state == BAD

    def xu_meet_by_levels(self, me: int, t: Team) -> Steps:
        """(team, verdict); the verdict is None if this thread is alone now."""
        found = yield from self.xu_climb(me, t)
        if found is None:
            return (yield from self.xu_go_alone(me, t)), None
        odd = found[0] != found[1]
        if self.parents[me] >= 0:
            odd = yield from self.xu_descend(me, t)
            if odd is None:
                return (yield from self.xu_go_alone(me, t, said=True)), None
        yield from self.xu_pass_on(me, t, odd)
        return t, odd

    def xu_gather(self, me: int, t: Team, at: str) -> Steps:
        """(team, verdict) of an executor or node root, when all are here."""
        if self.parents and not t.alone:
            found = yield from self.xu_climb(me, t)
            below = found is not None and self.parents[me] >= 0
            if below and not self.has("part of the tree"):
                top = self.subtrees(t)[0]
                if (yield from self.xu_state(t, top.seq, ACQUIRE)) in (None, AWAY):
                    found = None
                else:
                    found = (yield load(top.low, RELAXED)), (yield load(top.high, RELAXED))
            if found is not None:
                if found[0] != found[1] and self.agree:
                    raise Broken(f"barrier {t.epoch}: a false alarm")
                return t, found[0] != found[1]
            t = yield from self.xu_go_alone(me, t, said=below)
        yield from self.xu_all_here(me, t, at)
        return t, (yield from self.xu_compare(t))

    def xu_let_go(self, me: int, t: Team, verdict: bool) -> Steps:
        yield from self.xu_release(t, verdict)
        if self.parents:
            yield from self.xu_pass_on(me, t, verdict and not self.has("verdict of the node"))

    def xu_await(self, me: int, t: Team) -> Steps:
        """Yield the steps of a thread that waits for an executor or the node root."""
        if self.parents and not t.alone:
            found = yield from self.xu_climb(me, t)
            said, odd = found is not None, None
            if said and self.parents[me] >= 0:
                odd = yield from self.xu_descend(me, t)
            elif said and found[0] != found[1] and not self.has("the top waits"):
                odd = True
            elif said and (yield from self.tree_ready(self.release.word, t.epoch << 1, ACQUIRE)):
                r = yield load(self.release.word, ACQUIRE)
                odd = r >> 1 == t.epoch and bool(r & 1)
            if odd is not None:
                if self.parents[me] >= 0 or not self.has("top does not relay"):
                    yield from self.xu_pass_on(me, t, odd)
                return odd
            t = yield from self.xu_go_alone(me, t, said=said)
        return (yield from self.xu_released(me, t, "await"))

    def xu_release(self, t: Team, verdict: bool) -> Steps:
        line = self.release
        yield from self.xu_publish(line.word, line.sleepers, t.epoch << 1 | verdict)

    def xu_released(self, me: int, t: Team, at: str) -> Steps:
        line = self.release
        yield from self.wait(me, t, at, line.word, line.sleepers, t.epoch << 1)
        r = yield load(line.word, ACQUIRE)
        if r >> 1 != t.epoch and self.agree:
            raise Broken(f"barrier {t.epoch}: released as {r >> 1}")
        return r >> 1 == t.epoch and bool(r & 1)

    # -- steps -------------------------------------------------------------------------
    def barrier(self, me: int, t: Team) -> Steps:
        """XS_BARRIER."""
        t, last = yield from self.xu_arrive(me, t)
        odd = None
        if self.parents and not t.alone:
            t, odd = yield from self.xu_meet_by_levels(me, t)
        if odd is not None:
            pass
        elif last:
            odd = yield from self.xu_compare(t)
            yield from self.xu_release(t, odd)
        elif self.counter_mode and not (t.giving_up and not self.has("wait for release")):
            odd = yield from self.xu_released(me, t, "barrier")
        else:
            yield from self.xu_all_here(me, t, "barrier")
            odd = yield from self.xu_compare(t)
        if odd:
            raise Mismatch(True)
        return t._replace(unsynced=0, alone=False)

    def fuse(self, me: int, t: Team, by: int | None, value: int) -> Steps:
        """XS_FUSE, a body that brings thread 0's src to all, XS_FUSE_END or XS_AWAIT."""
        t, last = yield from self.xu_arrive(me, t)
        executor = by == me if by is not None else last if self.counter_mode else me == 0
        if not executor:
            if (yield from self.xu_await(me, t)):
                raise Mismatch(True)
            return t._replace(unsynced=0, alone=False)
        t, odd = yield from self.xu_gather(me, t, "fuse")
        if not odd:
            yield from self.body()
        yield from self.xu_let_go(me, t, odd)
        if odd:
            raise Mismatch(True)
        return t._replace(unsynced=0, alone=False)

    def body(self) -> Steps:
        value = yield read(self.src[0])
        for place in self.dst:
            yield write(place, value)

    def led(self, me: int, t: Team, elsewhere: str) -> Steps:
        """XS_ARRIVE, then of the node root XS_GATHER, copies, XS_RELEASE; else XS_AWAIT."""
        t, _ = yield from self.xu_arrive(me, t)
        if me:
            odd = yield from self.xu_await(me, t)
        else:
            if elsewhere == "early":  # `release_early` of a node root at this barrier
                yield from self.xu_release(t, True)
            t, odd = yield from self.xu_gather(me, t, "gather")
            if self.has("relay before the body"):
                yield from self.xu_pass_on(me, t, odd)
            odd = odd or bool(elsewhere)  # the exchange between node roots
            if not odd:
                yield from self.body()
            yield from self.xu_let_go(me, t, odd)
        if odd:
            raise Mismatch(True)
        return t._replace(unsynced=0, alone=False)

    def signal(self, me: int, t: Team, channel: int, value: int) -> Steps:
        """XS_SIGNAL."""
        mine = self.slot[t.op % self.slots][me]
        word = mine.word[channel]
        yield from self.xu_publish(word, mine.sleepers, t.op << COUNT_BITS | value)

    def wait_for(self, me: int, t: Team, channel: int, value: int, of: list[int]) -> Steps:
        """XS_WAIT."""
        target = t.op << COUNT_BITS | value
        for j in of:
            who = self.slot[t.op % self.slots][j]
            word = who.word[channel]
            yield from self.wait(me, t, "wait", word, who.sleepers, target, (channel, target, j))
            if t.giving_up:
                continue
            fp = yield load(who.fp, RELAXED)
            if fp != t.fp and (yield load(who.entered, RELAXED)) == t.op + 1:
                if self.agree:
                    raise Broken("a signal of another call")
                raise Mismatch(False)

    # -- xu_suspect --------------------------------------------------------------------
    def xu_suspect(self, me: int, t: Team, at: str, of: Any) -> Steps:
        if t.giving_up:
            return False
        arrived = at in ("await", "fuse", "barrier") and not self.has("next for mine")
        early = (yield load(self.release.word, ACQUIRE)) == ((t.epoch + 1) << 1 | 1)
        if early and not arrived:
            return True
        if at == "wait":  # a call with fewer than two barriers
            for other in self.slot[t.op % self.slots]:
                same = (yield load(other.entered, ACQUIRE)) == t.op + 1
                if same and (yield load(other.fp, RELAXED)) != t.fp:
                    return True
        if at in ("await", "fuse", "barrier"):
            for line in self.lines(t):
                same = (yield load(line.word, ACQUIRE)) == t.epoch
                if same and (yield load(line.fp, RELAXED)) != t.fp:
                    return True
        if at == "wait":
            channel, target, j = of
            row = self.slot[t.op % self.slots][j]
            if self.has("word first"):
                there = yield at_least(row.word[channel], target, ACQUIRE)
            later = self.slot[(t.op + 1) % self.slots][j]
            gone = (yield load(later.entered, ACQUIRE)) > t.op + 1
            following = self.lines(t, 1)[j]
            if (yield load(following.word, ACQUIRE)) == t.epoch + 1:
                gone |= (yield load(following.fp, RELAXED)) != t.fp
            if gone:
                if not self.has("word first"):
                    there = yield at_least(row.word[channel], target, ACQUIRE)
                return not there
        return False

    # -- calls -------------------------------------------------------------------------
    def xu_begin(self, me: int, t: Team, call: int, *, barriers: int = 0) -> Steps:
        t = t._replace(op=t.op + 1, fp=t.fp * 4 + call, unsynced=t.unsynced + 1)
        if barriers < 2 and self.slot:
            mine = self.slot[t.op % self.slots][me]
            yield store(mine.fp, t.fp, RELAXED)
            yield store(mine.entered, t.op + 1, RELEASE)
        return t

    def _call(self, me: int, at: int, t: Team) -> Steps | None:
        story = self.stories[me]
        if at >= len(story):
            return None
        name, *arguments = story[at]
        return self._guarded(me, t, name, arguments)

    def _guarded(self, me: int, t: Team, name: str, arguments: list[Any]) -> Steps:
        """A call, and what becomes of a thread that finds a difference: `Team.give_up`."""
        if t.met and name != "after":
            return t
        holder = [t]
        try:
            return (yield from getattr(self, f"do_{name}")(me, t, *arguments, begun=holder))
        except Mismatch as found:
            t, at_barrier = holder[0], found.at_barrier
        if at_barrier:
            t = t._replace(epoch=t.epoch + 1)
        else:
            t = yield from self.xu_begin(me, t._replace(giving_up=True), 2 + me, barriers=1)
            if not self.has("nobody arrives"):
                try:
                    yield from self.barrier(me, t)
                except Mismatch:
                    t = t._replace(epoch=t.epoch + 1)
                else:
                    raise Broken("a barrier of a thread that gave up is good")
        yield meet()
        return Team(epoch=t.epoch, op=20, met=True)  # what they agree on: `restart`

    # In the calls `begun[0]` is the team before the barrier that may find a difference.
    def do_after(self, me: int, t: Team, *, begun: list[Team]) -> Steps:
        """The team is as good as new."""
        if not t.met:
            raise Broken("a difference is not noticed")
        t = yield from self.xu_begin(me, t, 1, barriers=1)
        try:
            return (yield from self.barrier(me, t))
        except Mismatch:
            raise Broken("a false alarm after a difference") from None

    def do_apart(self, me: int, t: Team, *, begun: list[Team]) -> Steps:
        """A node root detects that calls of other nodes differ: `release_early`."""
        t = yield from self.xu_begin(me, t._replace(giving_up=True), 2 + me, barriers=1)
        t, _ = yield from self.xu_arrive(me, t)
        yield from self.xu_release(t, True)
        yield meet()
        return Team(epoch=t.epoch, op=20, met=True)

    def catch_up(self, me: int, t: Team) -> Steps:
        """Add a barrier when half of the slots are in use without one, as `RUN_AHEAD` does."""
        if t.unsynced < self.slots // 2 or self.has("no catching up") or not self.agree:
            return t
        t = yield from self.xu_begin(me, t, 3, barriers=1)
        return (yield from self.barrier(me, t))

    def do_barrier(self, me: int, t: Team, call: int = 1, *, begun: list[Team]) -> Steps:
        t = begun[0] = yield from self.xu_begin(me, t, call, barriers=1)
        return (yield from self.barrier(me, t))

    def do_posted(self, me: int, t: Team, call: int = 1, *, begun: list[Team]) -> Steps:
        """A barrier of a thread whose program goes on meanwhile."""
        t = begun[0] = yield from self.xu_begin(me, t._replace(posted=True), call, barriers=1)
        t = yield from self.barrier(me, t)
        return t._replace(posted=False)

    def do_exchange(self, me: int, t: Team, value: int, *, begun: list[Team]) -> Steps:
        """Write, barrier, read the neighbour's; the next barrier comes before the next write."""
        t = begun[0] = yield from self.xu_begin(me, t, 1, barriers=2)
        yield write(self.src[me], value)
        t = yield from self.barrier(me, t)
        got = yield read(self.src[(me + 1) % self.n])
        if got != value:
            raise Broken(f"read {got}, not {value}")
        return t

    def do_fused(
        self, me: int, t: Team, by: int | None, value: int, call: int = 1, *, begun: list[Team]
    ) -> Steps:
        t = begun[0] = yield from self.xu_begin(me, t, call, barriers=1)
        if me == 0:
            yield write(self.src[me], value)
        t = yield from self.fuse(me, t, by, value)
        got = yield read(self.dst[me])
        if got != value and self.agree:
            raise Broken(f"read {got}, not {value}")
        return t

    def do_led(
        self, me: int, t: Team, value: int, elsewhere: str = "", *, begun: list[Team]
    ) -> Steps:
        """A led call; `elsewhere`: other nodes differ; "early": the node root gives up before."""
        t = begun[0] = yield from self.xu_begin(me, t, 1, barriers=2)
        if me == 0:
            yield write(self.src[me], value)
        t = yield from self.led(me, t, elsewhere)
        got = yield read(self.dst[me])
        if got != value:
            raise Broken(f"read {got}, not {value}")
        return t

    def do_ring(self, me: int, t: Team, value: int, call: int = 1, *, begun: list[Team]) -> Steps:
        """Signal, take the neighbour's value, signal that it is taken."""
        t = begun[0] = yield from self.xu_begin(me, t, call)
        yield write(self.src[me], value)
        yield from self.signal(me, t, 0, 1)
        yield from self.wait_for(me, t, 0, 1, [(me + 1) % self.n])
        got = yield read(self.src[(me + 1) % self.n])
        if got != value and self.agree:
            raise Broken(f"read {got}, not {value}")
        yield from self.signal(me, t, 1, 1)
        yield from self.wait_for(me, t, 1, 1, [(me - 1) % self.n])
        return t

    def do_told(self, me: int, t: Team, value: int, call: int = 1, *, begun: list[Team]) -> Steps:
        """Thread 0 writes and signals; the others wait for it and signal nothing."""
        t = yield from self.catch_up(me, t)
        t = begun[0] = yield from self.xu_begin(me, t, call)
        if me == 0:
            yield write(self.line[t.op % self.slots][0], value)
            yield from self.signal(me, t, 0, 1)
        else:
            yield from self.wait_for(me, t, 0, 1, [0])
            got = yield read(self.line[t.op % self.slots][0])
            if got != value and self.agree:
                raise Broken(f"read {got}, not {value}")
        return t

    def do_scratch(self, me: int, t: Team, value: int, *, begun: list[Team]) -> Steps:
        """Each thread writes a line of scratch without a check that it is free; see RUN_AHEAD."""
        t = yield from self.catch_up(me, t)
        t = begun[0] = yield from self.xu_begin(me, t, 1)
        lines = self.line[t.op % self.slots]
        yield write(lines[me], value)
        yield from self.signal(me, t, 0, 1)
        yield from self.wait_for(me, t, 0, 1, list(range(self.n)))
        for place in lines:
            got = yield read(place)
            if got != value:
                raise Broken(f"read {got}, not {value}")
        return t

    def do_skip(self, me: int, t: Team, operations: int, *, begun: list[Team]) -> Steps:
        """Operations without a signal, and a barrier."""
        t = begun[0] = yield from self.xu_begin(me, t, 1, barriers=2)
        t = yield from self.barrier(me, t)
        return t._replace(op=t.op + operations)


__all__ = ["MUTATIONS", "Core"]
