"""Every registered algorithm in sequences of calls, simulated, against oracles.

By default a seeded sample of the matrix and of every placement of up to five threads.
``XUPC_TEST_FULL_MATRIX=1`` runs all of it, some minutes on two cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import pytest
from simulated.matrix import (
    ENTRIES,
    MEANING,
    SYNCS,
    THREADS,
    TUNINGS,
    Case,
    Planner,
    Story,
    Tally,
    every_placement,
    matrix,
    partitions,
    placements,
    run_cases,
    sample,
)
from simulated.neighbours import NAME as NEIGHBOURS
from simulated.pool import workers
from simulated.reductions import ALL_FORMS
from simulated.transfers import NAMES
from simulated.values import JOINS, MOVES
from support.soak import FULL_MATRIX, amount, seed, share_of

from xupc.algorithms.registry import Entry, find, registered
from xupc.backends.simulator.script import Call, UserBarrier, UserRead, UserWrite
from xupc.backends.simulator.sim_program import COPY, FUSED, GET, RECV, SEND, Program, Span
from xupc.flags import MULTICORE, PULL
from xupc.plan.steps import FusedBarrier, Get, Recv, Send
from xupc.topology.tree import Tree

SHARD = 400
PER_STRATUM = amount(1, 4)
FEWER = {
    "permute": 1,
    **{entry.collective: 1 for entry in ENTRIES if entry.collective.endswith("in_place")},
}
"""Per stratum, of what shares its way of moving with another collective."""
SPACING = amount(4, 1)
"""One of so many cases on every placement: each placement has some, and each pair of sync modes."""

EVERY_ENTRY = pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{e.collective}-{e.name}" for e in ENTRIES]
)


def _cases(entry: Entry, full: bool) -> list[Case]:
    per_stratum = FEWER.get(entry.collective, PER_STRATUM)
    chosen = matrix(entry) if full else sample(entry, per_stratum, seed())
    if full:
        return chosen + every_placement(entry)
    if entry.collective.endswith("in_place"):  # half of it
        return share_of((chosen + every_placement(entry, 4)[::SPACING])[::2])
    return share_of(chosen[:: amount(2, 1)] + every_placement(entry)[::SPACING])


class Work(NamedTuple):
    """The pool that simulates, and its start time."""

    pool: ProcessPoolExecutor
    full: bool
    began: float


@pytest.fixture(scope="module")
def work() -> Iterator[Work]:
    """The processes for all of them."""
    with workers() as pool:
        yield Work(pool, FULL_MATRIX, time.monotonic())
        pool.shutdown(cancel_futures=True)


@pytest.mark.soak
@EVERY_ENTRY
def test_matrix(entry: Entry, work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    """No race, no deadlock, every byte right, in every case."""
    cases = _cases(entry, work.full)
    shards = [
        work.pool.submit(run_cases, cases[i : i + SHARD]) for i in range(0, len(cases), SHARD)
    ]
    tally = Tally()
    for shard in shards:
        tally.add(shard.result())
    with capsys.disabled():
        print(
            f"\n{entry.collective} {entry.name}: {tally.cases} cases in {tally.stories} "
            f"stories, {time.monotonic() - work.began:.0f} s since the start",
            end="",
        )
    assert not tally.failures, f"{len(tally.failures)} stories fail:\n" + "\n".join(
        tally.failures[:5]
    )


# --- in place -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["exchange_in_place", "permute_in_place"])
@pytest.mark.parametrize("labels", [[0] * 2, [0] * 3, [0] * 5, [0, 0, 1, 1, 0], [0, 1, 1, 0, 2, 2]])
def test_slices_of_large_blocks(name: str, labels: list[int]) -> None:
    """Threads of a node share the bytes of a pair or a cycle: both halves, many slices."""
    for entry in registered(name):
        for i, sync in enumerate(SYNCS[::4]):
            for n in (127, 128, 192, 400):
                Case((name, entry.flag), tuple(labels), sync, list(TUNINGS)[i % 4], n).run()


def _spans(program: Program) -> Iterator[Span]:
    """All bytes that a program reads or writes."""
    for lane in program.lanes:
        for kind, what in lane:
            if kind == FUSED:
                for _, part in what[1]:
                    yield from (*part.reads, *part.writes)
            elif kind in (COPY, GET):
                moves = what[1] if kind == GET else what
                yield from (*moves.reads, *moves.writes)
            elif kind in (SEND, RECV):
                yield from what.spans


@pytest.mark.parametrize("name", ["broadcast_in_place", "scatter_in_place", "gather_in_place"])
def test_the_roots_own_block_is_not_touched(name: str) -> None:
    """Neither in dst nor in src; with root 1 of up to five threads anywhere."""
    n, root = 13, 1
    own = {"broadcast": (0, None), "scatter": (0, root * n), "gather": (root * n, 0)}
    place = own[name.removesuffix("_in_place")]
    for threads in range(2, 6):
        for labels in partitions(threads):
            planner = Planner(Tree(labels))
            for entry in registered(name):
                for i, (tuning, _) in enumerate(TUNINGS.values()):
                    sync = SYNCS[(i + threads) % 9]
                    for program in planner.programs(entry, sync, tuning, root, n):
                        for operand, thread, lo, hi in _spans(program):
                            start = place[operand] if operand < 2 else None
                            if thread == root and start is not None:
                                assert hi <= start or start + n <= lo, (entry.name, labels)


# --- the matrix is complete and right -------------------------------------------------------
def test_every_collective_has_an_oracle() -> None:
    """A collective without one would not be tested."""
    values = {f"allav_{form}" for form in (*MOVES, *JOINS)}
    graphs = {NEIGHBOURS, NEIGHBOURS.removeprefix("allav_")}  # the second one as the `_x` forms
    assert {e.collective for e in registered()} == {
        *MEANING, *ALL_FORMS, *NAMES, *values, *graphs
    }  # fmt: skip


def test_placements_are_different_kinds() -> None:
    """One node, one per node, blocks, uneven, cyclic and interleaved."""
    for threads in THREADS:
        trees = [Tree(labels) for labels in placements(threads).values()]
        counts = {tree.node_count for tree in trees}
        assert {1, threads} <= counts
        assert len(set(trees)) == len(trees)
    assert len(placements(11)) == 6
    assert len(Tree(placements(11)["interleaved"]).runs(0)) > 1


def test_partitions_are_all() -> None:
    """Their number is Bell's."""
    assert [len(list(partitions(n))) for n in range(1, 6)] == [1, 2, 5, 15, 52]
    assert len({Tree(labels) for labels in partitions(5)}) == 52


def test_tunings_reach_every_branch() -> None:
    """Fused or not, chain or tree, ring or all to all, one message or many."""
    one, many = Planner(Tree([0] * 4)), Planner(Tree([0, 0, 1, 1, 2, 2, 3]))
    both = ("all", "all")
    multicore, everywhere = find("broadcast", MULTICORE), find("gather_all", MULTICORE)
    fused, chains, rings, pieces, led = set(), set(), set(), set(), set()
    for tuning, sizes in TUNINGS.values():
        for n in sizes:
            plan = one.plan(multicore, 1, both, tuning, 0, n)
            fused.add(any(isinstance(s, FusedBarrier) for s in plan.steps))
            plan = many.plan(multicore, 0, both, tuning, 0, n)
            led.add(plan.led)
            chains.add(len({s.to for s in plan.steps if isinstance(s, Send)}))
            plan = many.plan(everywhere, 0, both, tuning, 0, n)
            rings.add(len({s.of for s in plan.steps if isinstance(s, Recv)}))
            plan = many.plan(find("broadcast", PULL), 6, both, tuning, 0, n)
            pieces.add(sum(isinstance(s, Get) for s in plan.steps))
    assert fused == {False, True}
    assert led == {False, True}
    assert 1 in chains  # a chain
    assert max(chains) > 1  # a tree
    assert rings == {1, 2, 3}  # the node behind, the ones 1 and 2 places behind, or all others
    assert {1, 2, 6} <= pieces


AFTER_1 = ("read dst@1", "write dst@1", "write src@1")
BEFORE_1 = ("write src@1", "write dst@1")


def _story(sync: tuple[str, str], tight: bool) -> Story:
    planner = Planner(Tree([0, 0, 1]))
    entry, (tuning, _) = find("gather", PULL), TUNINGS["large"]
    story = Story(planner, 3 * 5)
    for _ in range(3):
        story.call(entry, 1, 5, sync, tuning, tight=tight)
    return story


def _between(story: Story, thread: int) -> list[str]:
    names = {UserRead: "read", UserWrite: "write", UserBarrier: "barrier", Call: "call"}
    out = []
    for action in story.scripts[thread]:
        name = names[type(action)]
        if isinstance(action, UserRead | UserWrite):
            name += f" {action.array}@{action.thread}"
        out.append(name)
    return out[out.index("call") + 1 :][: out[out.index("call") + 1 :].index("call")]


@pytest.mark.parametrize(
    ("sync", "tight", "expected"),
    [
        (("all", "all"), True, {2: [*AFTER_1, *BEFORE_1], 0: ["write src@2"] * 2}),
        (("my", "my"), True, {1: [*AFTER_1, *BEFORE_1], 2: ["write src@2"] * 2}),
        (("no", "no"), True, {1: [], 2: []}),
        (
            ("my", "all"),
            False,
            {2: [*AFTER_1, "barrier", "write src@2"], 1: ["write src@0", "barrier"]},
        ),
        (("no", "my"), False, {1: [*AFTER_1, "barrier", "write src@0", "barrier"]}),
        (("all", "no"), False, {2: ["barrier", *AFTER_1, *BEFORE_1], 1: ["barrier"]}),
    ],
)
def test_users_do_what_the_modes_allow(
    sync: tuple[str, str], tight: bool, expected: dict[int, list[str]]
) -> None:
    """Literal tables of what a thread does between two calls; it begins with its buffer."""
    story = _story(sync, tight)
    for thread, actions in expected.items():
        assert _between(story, thread)[: len(actions) + 1] == [f"write buffer@{thread}", *actions]
    story.run()


def test_sync_modes_are_all_nine() -> None:
    """IN and OUT, each of three."""
    assert len(set(SYNCS)) == 9
