"""Variants of programs: right ones are proved, broken ones refused by step, thread and bytes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from simulated.matrix import MEANING, TUNINGS, arguments, placements, roots_of
from simulated.values import MOVES, One, given, tuning_of

from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import Variant, find, registered
from xupc.backends.simulator import proof
from xupc.backends.simulator.proof import NotProvedError, prove, prove_call
from xupc.backends.simulator.script import Call
from xupc.backends.simulator.symbols import Alphabet
from xupc.flags import MULTICORE
from xupc.plan.plan import Plan
from xupc.plan.recorder import ALL, NODE, Operand, Recorder
from xupc.plan.steps import Ranks
from xupc.records import replace
from xupc.topology.tree import Tree

Way = Callable[..., None]
TWO_NODES = (0, 0, 1, 1)
N = 24


def own(function: Way, collective: str = "gather_all") -> Variant:
    return Variant(collective, MULTICORE, "mine", "A variant of a test.", function, own=True)


def proved(
    function: Way, labels: tuple[int, ...] = (0, 0, 0), sync: tuple[str, str] = ("my", "my"),
    nbytes: int = N,
) -> list[Plan]:  # fmt: skip
    """Prove a variant of gather_all."""
    facts = (Operand(0), Operand(1), nbytes)
    return prove(own(function), CallFacts(Tree(labels), tuning_of("large"), sync, facts))


# --- right ones ------------------------------------------------------------------------------
def ring(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    """Blocks go around a ring of all threads, as in examples/own_gather_all.py."""
    before, behind = (t.me - 1) % t.size, (t.me + 1) % t.size
    t.ready(ALL, ALL)
    passed = t.channel()
    t.copy(dst.on(t.me, t.me * nbytes), src.on(t.me), nbytes)
    for k in range(t.size - 1):
        mine, theirs = (t.me - k) % t.size * nbytes, (before - k) % t.size * nbytes
        arrived = None
        if not t.on_my_node(before):
            arrived = t.recv(before, dst.on(t.me, theirs), nbytes)
        if t.on_my_node(behind):
            t.copy(dst.on(behind, mine), dst.on(t.me, mine), nbytes)
            t.signal_thread(passed, behind, k + 1)
        else:
            t.send(behind, dst.on(t.me, mine), nbytes)
        if arrived is None:
            t.wait_for_thread(passed, before, k + 1)
        else:
            t.need(arrived)
    t.done(ALL, ALL)


@pytest.mark.parametrize("labels", [(0,), (0, 0), (0, 0, 0, 0), TWO_NODES, (0, 1, 1, 0, 2)])
def test_a_right_one_is_proved(labels: tuple[int, ...]) -> None:
    for sync in product(("no", "my", "all"), repeat=2):
        if "no" not in sync:  # under NOSYNC threads may not have entered
            plans = proved(ring, labels, sync)
            assert [plan.rank for plan in plans] == list(range(len(labels)))
            assert plans[0].algorithm == "multicore:mine"


def _library() -> Iterator[tuple[Variant, tuple[int, ...], str, int]]:
    """Yield the library's own variants with a placement, a tuning and a size."""
    for name in MEANING:
        for entry in registered(name):
            for variant in entry.variants:
                for labels in placements(5).values():
                    for tuning, (_, sizes) in TUNINGS.items():
                        yield variant, tuple(labels), tuning, sizes[-1]


def test_the_oracle_agrees_with_all_variants_of_the_library() -> None:
    """In all sync modes: what is proved by bytes elsewhere is proved by symbols here."""
    syncs = list(product(("no", "my", "all"), repeat=2))
    count = 0
    for i, (variant, labels, tuning, n) in enumerate(_library()):
        tree, sizes = Tree(labels), TUNINGS[tuning][0]
        sizes = {**sizes, "staging_bytes": sizes["scratch"]}
        roots = roots_of(variant, tree.size)
        facts = arguments(variant.collective, tree.size, roots[i % len(roots)], n)
        call = CallFacts(tree, sizes, syncs[i % 9], facts)
        if variant.can_run(call):
            prove_call(variant, call)
            count += 1
    assert count > 500


def test_private_arrays_are_proved_too() -> None:
    for form, flag, labels in product(MOVES, (1 << 6, 1 << 7, 1 << 8), placements(4).values()):
        tree, entry = Tree(labels), find(f"allav_{form}", flag)
        for tuning, n in (("large", 400), ("small", 24), ("mixed", 104)):
            one = One(form, flag, 1, n, form == "broadcast")
            facts = tuple(given(one, tree.size, ordered=False))
            call = CallFacts(tree, tuning_of(tuning), ("no", "no"), facts)
            prove(own(entry.function, f"allav_{form}"), call, private=True)


def test_a_proof_costs_steps_and_not_bytes() -> None:
    """A block of 1 GiB is proved as fast as one of 24 bytes: by symbols, byte for byte."""
    began = time.process_time()
    proved(ring, TWO_NODES)
    short = time.process_time() - began
    began = time.process_time()
    proved(ring, TWO_NODES, nbytes=1 << 30)
    assert time.process_time() - began < 20 * short + 0.1


@pytest.mark.parametrize(
    ("sync", "between", "after"),
    [
        (("all", "all"), "reads dst@0, writes src@0, writes dst@0", "1"),
        (("my", "my"), "reads dst@1, writes src@1, writes dst@1", "1"),
        (("no", "all"), "", "1"),
        (("all", "no"), "", ""),
    ],
)
def test_a_proof_makes_all_accesses_that_the_modes_allow(
    sync: tuple[str, str], between: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two calls, and after the second one before the program's barrier."""
    seen: list[list[Any]] = []

    class NoSimulation:
        def __init__(self, tree: Tree, memory: object, scripts: list[list[Any]]) -> None:
            seen.extend(scripts)

        def run(self) -> None:
            pass

    monkeypatch.setattr(proof, "Simulation", NoSimulation)
    proved(ring, (0, 0), sync)
    texts = [["call" if isinstance(x, Call) else str(x) for x in script] for script in seen]
    mine = texts[1]
    first = mine.index("call")
    second = mine.index("call", first + 1)
    words = [re.sub(r"user |\[.*\]", "", text) for text in mine[first + 1 : second]]
    assert ", ".join(dict.fromkeys(words)) == between
    end = mine.index("user barrier", second)
    assert bool([text for text in mine[second + 1 : end] if "writes" in text]) == bool(after)


# --- broken ones ------------------------------------------------------------------------------
def _copies(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    for i in range(t.size):
        t.copy(dst.on(t.me, i * nbytes), src.on(i), nbytes)


def too_early(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    _copies(t, dst, src, nbytes)
    t.done(ALL, ALL)


def no_end(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    _copies(t, dst, src, nbytes)


def wrong_place(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    for i in range(t.size):
        t.copy(dst.on(t.me, i * nbytes), src.on((i + 1) % t.size), nbytes)
    t.done(ALL, ALL)


def own_block_missing(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    for i in range(t.size):
        if i != t.me:
            t.copy(dst.on(t.me, i * nbytes), src.on(i), nbytes)
    t.done(ALL, ALL)


def last_byte_missing(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    _copies(t, dst, src, nbytes - 1)
    t.done(ALL, ALL)


def too_long(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    for i in range(t.size):
        t.copy(dst.on(t.me, i * nbytes), src.on(i), nbytes + 1)
    t.done(ALL, ALL)


def never_signalled(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    there = t.channel()
    if t.me:
        t.wait(there, 0)
    _copies(t, dst, src, nbytes)
    t.done(ALL, ALL)


def never_awaited(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    _copies(t, dst, src, nbytes)
    if not t.me:
        t.signal(t.channel(), (Ranks(1),))
    t.done(ALL, ALL)


def other_nodes_memory(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    _copies(t, dst, src, nbytes)
    t.done(ALL, ALL)


def _far(t: Recorder, dst: Operand, src: Operand, nbytes: int, size: int, *, need: bool) -> None:
    """Node roots send their node's blocks, of `size` each; the others read them there."""
    t.ready(NODE, NODE, node_only=True)
    there, far = t.channel(), t.tree.members(1 - t.my_node).tolist()
    arrived = []
    if t.me == t.node_root:
        for i in far:
            arrived.append(t.recv(t.tree.root_of(i), dst.on(t.me, i * nbytes), nbytes))
        for i in t.tree.members(t.my_node).tolist():
            t.send(t.tree.node_root(1 - t.my_node), src.on(i), size)
        t.need(*(arrived if need else ()))
        t.signal(there, t.node_ranks())
    for i in t.tree.members(t.my_node).tolist():
        t.copy(dst.on(t.me, i * nbytes), src.on(i), nbytes)
    if t.me != t.node_root:
        t.wait(there, t.node_root)
        for i in far:
            t.copy(dst.on(t.me, i * nbytes), dst.on(t.node_root, i * nbytes), nbytes)
    t.done(NODE, NODE, node_only=True)


def right_far(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    _far(t, dst, src, nbytes, nbytes, need=True)


def short_message(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    _far(t, dst, src, nbytes, nbytes - 1, need=True)


def read_before_arrival(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    _far(t, dst, src, nbytes, nbytes, need=False)


def nobody_receives(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    right_far(t, dst, src, nbytes)
    if t.me == 0:
        t.send(2, src.on(0), nbytes)


def other_order(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    first, second = (1, 2)[:: 1 if t.me else -1]
    for turn in (first, second):
        t.barrier() if turn == 1 else t.after(ALL, 0)
    _copies(t, dst, src, nbytes)
    t.done(ALL, ALL)


def raises(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.copy(dst.on(t.me), src.on(t.me + t.size), nbytes // (t.me - 1))


BROKEN: list[tuple[Way, tuple[int, ...], str]] = [
    (too_early, (0, 0, 0), r"race on src@1\[0:24\]:\n.*user writes.*\n.*thread \d.*step \d+"),
    (no_end, (0, 0, 0), r"race on src@\d\[0:24\]:\n.*copy.*\n.*user writes"),
    (wrong_place, (0, 0, 0), r"wrong bytes: thread 0.*expected byte 0 of source block 0 of thread "
     r"0 .*found byte 0 of source block 0 of thread 1 .*; written by thread 0.*step \d+: copy"),
    (own_block_missing, (0, 0, 0), r"wrong bytes: .*24 of \d+ bytes are wrong, the first at 0: "
     r"expected byte 0 of source block 0 of thread 0.*found byte 0 of old result"),
    (last_byte_missing, (0, 0, 0), r"wrong bytes: .*the first at 23: expected byte 23 of source"),
    (too_long, (0, 0, 0), r"wrong bytes: .*found byte 24 of thread 2's src.*written by .*step"),
    (never_signalled, (0, 0, 0), r"deadlock: 3 blocked\n.*\nthread 1.*step \d+: wait "),
    (never_awaited, (0, 0, 0), r"impossible step: .*thread 0 signals channel \d 1 times for thread "
     "1, which waits for 0"),
    (other_nodes_memory, TWO_NODES, r"impossible step: thread 0.*step \d+: copy .*thread 2 is not "
     "on the node of thread 0"),
    (short_message, TWO_NODES, r"impossible step: message of 23 B meets a receive of 24 B:\n.*sen"),
    (read_before_arrival, TWO_NODES, r"race on dst@\d\[\d+:\d+\]:\n.*recv.*\n.*copy"),
    (nobody_receives, TWO_NODES, r"deadlock: 4 blocked\nthread 0.*t\d+ is not set \(.*step \d+: "
     "send"),
    (other_order, (0, 0, 0), r"deadlock: \d blocked\nthread 0.*step \d+: (wait|barrier)"),
    (raises, (0, 0, 0), r"multicore:mine raised ZeroDivisionError for thread 1 on 1 node, 3 thr"),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "labels", "words"), BROKEN, ids=[b[0].__name__ for b in BROKEN])
def test_a_broken_one_is_refused(broken: Way, labels: tuple[int, ...], words: str) -> None:
    """The message names the step, the thread and the bytes."""
    with pytest.raises(NotProvedError, match=words):
        proved(broken, labels)


def wrong_ready(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(0, ALL)
    _copies(t, dst, src, nbytes)
    t.done(ALL, ALL)


def wrong_done(t: Recorder, dst: Operand, src: Operand, nbytes: int) -> None:
    t.ready(ALL, ALL)
    _copies(t, dst, src, nbytes)
    t.done(0, ALL)


@pytest.mark.parametrize(
    ("broken", "sync", "hidden"),
    [
        (wrong_ready, ("all", "all"), True),
        (wrong_done, ("all", "all"), True),
        (wrong_ready, ("all", "my"), True),
        (wrong_done, ("my", "all"), True),
        (wrong_ready, ("my", "all"), False),
        (wrong_done, ("my", "my"), False),
    ],
)
def test_what_barriers_of_allsync_hide_is_refused(
    broken: Way, sync: tuple[str, str], hidden: bool
) -> None:
    """The proof under MYSYNC finds it, unless the variant is for ALLSYNC alone."""
    facts = CallFacts(Tree((0, 0, 0)), tuning_of("large"), sync, (Operand(0), Operand(1), N))
    with pytest.raises(NotProvedError, match="SYNC: race on") as e:
        prove(own(broken), facts)
    assert ("IN_MYSYNC OUT_MYSYNC: race" in str(e.value)) == (hidden or sync == ("my", "my"))
    assert ("register the variant with applies=lambda call: call.sync" in str(e.value)) == hidden
    if sync == ("all", "all"):
        prove(replace(own(broken), applies=lambda call: call.synchronised), facts)


def test_their_sister_without_a_fault_is_proved() -> None:
    proved(right_far, TWO_NODES)
    proved(right_far, (0, 0, 1))


# --- limits -----------------------------------------------------------------------------------
def test_too_many_steps_or_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "MOST_STEPS", 50)
    with pytest.raises(NotProvedError, match="most 50 steps of all threads, got 72 of the first 3"):
        proved(ring, (0,) * 8)
    monkeypatch.setattr(proof, "MOST_THREADS", 4)
    with pytest.raises(NotProvedError, match="at most 4 threads, got 5"):
        proved(ring, (0,) * 5)


# --- symbols ----------------------------------------------------------------------------------
def test_symbols_are_memory() -> None:
    """As a list of the symbols of each byte, with random writes."""
    import random

    rng, alphabet = random.Random(1), Alphabet()

    def flat(x: Any) -> list[int]:
        return [first + i for n, first in x.runs(0, len(x)) for i in range(n)]

    memory = alphabet.fresh(50, "memory")
    plain = flat(memory)
    for _ in range(400):
        lo = rng.randrange(50)
        hi = rng.randrange(lo, 51)
        of = rng.randrange(51 - (hi - lo))
        new = alphabet.fresh(hi - lo, "new") if rng.random() < 0.3 else memory[of : of + hi - lo]
        memory[lo:hi] = new
        plain[lo:hi] = flat(new)
        assert flat(memory) == plain
        assert memory.starts == sorted(set(memory.starts))
        again = memory[:0].join([memory[:lo], memory[lo:hi], memory[hi:50]])
        assert again == memory
        assert (again.starts, again.firsts) == (memory.starts, memory.firsts)
    assert alphabet.name(3) == "byte 3 of memory"
