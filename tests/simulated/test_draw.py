"""A printed plan shows which thread copies what, to and from where, and in which order."""

from __future__ import annotations

import re

import pytest
from simulated.matrix import ENTRIES, TUNINGS, Planner, Sync, roots_of

from xupc.algorithms.registry import Entry, find
from xupc.flags import MULTICORE, PULL, PUSH
from xupc.plan.draw import step_text
from xupc.plan.plan import Plan
from xupc.plan.steps import (
    Barrier,
    BlockRef,
    Copy,
    FusedBarrier,
    Get,
    Ranks,
    Recv,
    Send,
    Signal,
    Wait,
    WaitTicket,
)
from xupc.topology.tree import Tree

BLOCKS = [0, 0, 0, 1, 1, 2]


def _plans(
    collective: str, flag: int, labels: list[int], sync: Sync = ("all", "all"), n: int = 24
) -> list[Plan]:
    planner = Planner(Tree(labels))
    entry = find(collective, flag)
    root = roots_of(entry, len(labels))[0]
    tuning = TUNINGS["small"][0]
    return [planner.plan(entry, me, sync, tuning, root, n) for me in range(len(labels))]


@pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{e.collective}-{e.name}" for e in ENTRIES]
)
@pytest.mark.parametrize("sync", [("all", "all"), ("my", "no")], ids="-".join)
@pytest.mark.parametrize("labels", [BLOCKS, [0, 0, 0]], ids=["blocks", "one node"])
def test_every_step_is_a_line(entry: Entry, sync: Sync, labels: list[int]) -> None:
    """Heading, lanes, and each step of each lane in order under its number."""
    for plan in _plans(entry.collective, entry.flag, labels, sync):
        lines = str(plan).splitlines()
        modes = f"IN_{sync[0].upper()}SYNC OUT_{sync[1].upper()}SYNC"
        assert lines[0] == (
            f"{entry.collective} by {entry.name}, thread {plan.rank} of {len(labels)}, {modes}"
        )
        expected = []
        for name, lane in zip(("node", "net"), plan.lanes, strict=True):
            if lane:
                expected.append(f"{name} lane")
                expected += [f"{i} {step_text(step)}" for i, step in enumerate(lane)]
        drawn = [re.sub(r"^(\d+) +", r"\1 ", line.strip()) for line in lines[1:]]
        assert drawn == (expected or ["nothing to do"])


@pytest.mark.parametrize(
    ("collective", "flag", "thread", "words"),
    [
        (
            "broadcast",
            PULL,
            4,
            [r"get .*24 B +dst@4\[16:24\] <- src@0\[16:24\]|get .*dst@4\[0:8\]"],
        ),
        ("broadcast", PULL, 1, [r"copy +24 B +dst@1\[0:24\] <- src@0\[0:24\]"]),
        ("broadcast", PUSH, 0, [r"copy +3 x 24 B +dst@0..2\[0:24\]", r"send +16 B .*thread 0-5"]),
        ("broadcast", PUSH, 5, [r"recv +16 B +dst@5\[0:16\] <- thread 0", r"recv +8 B"]),
        (
            "broadcast",
            MULTICORE,
            3,
            [
                r"net lane",
                r"recv +16 B +dst@3\[0:16\] <- thread 0",
                r"signal +channel 0 = 2 for 3-4",
            ],
        ),
        (
            "broadcast",
            MULTICORE,
            4,
            [r"wait +channel 0 >= 2 of 3", r"dst@4\[0:16\] <- dst@3\[0:16\]"],
        ),
        ("scatter", PULL, 4, [r"get .*dst@4\[0:8\] <- src@0\[96:104\]"]),
        ("scatter", PUSH, 0, [r"copy +3 x 24 B +dst@0..2\[0:24\] <- src@0\[0:24 step 24\]"]),
        ("scatter", MULTICORE, 3, [r"recv +8 B \+ 8 B +dst@3\[16:24\] \+ dst@4\[0:8\] <- "]),
        ("gather", PULL, 0, [r"get +6 x 8 B +dst@0\[0:8 step 24\] <- src@0..5\[0:8\]"]),
        ("gather", PUSH, 4, [r"send +16 B +src@4\[0:16\] -> thread 0"]),
        ("gather", PUSH, 1, [r"copy +24 B +dst@0\[24:48\] <- src@1\[0:24\]"]),
        ("gather", MULTICORE, 3, [r"send +8 B \+ 8 B +src@3\[16:24\] \+ src@4\[0:8\] -> thread 0"]),
        ("gather_all", PULL, 2, [r"copy +3 x 24 B +dst@2\[0:24 step 24\] <- src@0..2\[0:24\]"]),
        ("gather_all", PUSH, 2, [r"copy +3 x 24 B +dst@0..2\[48:72\] <- src@2\[0:24\]"]),
        ("gather_all", MULTICORE, 4, [r"wait +channel 0 >= 1 of 3", r"<- dst@3\["]),
    ],
)
def test_plans_show_who_copies_what(
    collective: str, flag: int, thread: int, words: list[str]
) -> None:
    """Literal steps of each algorithm on nodes of three, two and one threads."""
    text = str(_plans(collective, flag, BLOCKS)[thread])
    for word in words:
        assert re.search(word, text), f"no {word!r} in\n{text}"
    assert text.count("barrier  all threads of the team") == 2


def test_a_fused_call_is_one_line() -> None:
    """All threads have the body when the last to arrive does it, one thread otherwise."""
    anyone = str(_plans("broadcast", MULTICORE, [0, 0, 0], n=8)[2])
    assert "the last to arrive does [copy     3 x 8 B  dst@0..2[0:8] <- src@0[0:8]]" in anyone
    by_root = _plans("scatter", PUSH, [0, 0, 0], n=8)
    assert "thread 0 does [copy     3 x 8 B  dst@0..2[0:8] <- src@0[0:8 step 8]]" in str(by_root[0])
    assert "thread 0 does []" in str(by_root[1])
    assert "barrier" not in str(by_root[1])


def test_steps_as_text() -> None:
    """Literal lines."""
    row = BlockRef(0, 2, 8, 3, 16)
    assert step_text(Copy(row, BlockRef(1, 5, 4), 4, 3)) == (
        "copy     3 x 4 B  dst@2..8:3[8:12 step 16] <- src@5[4:8]"
    )
    assert step_text(Get(BlockRef(2, 0), BlockRef(1, 1), 4, 7)) == (
        "get      4 B  slot@0[0:4] <- src@1[0:4]  => t7"
    )
    send = Send(Ranks(0, 3, 2), BlockRef(1, 1), 4, 0)
    assert step_text(send) == "send     4 B  src@1[0:4] -> thread 0-4:2  => t0"
    recv = Recv(Ranks(3), BlockRef(0, 1), 4, 1, 2)
    assert step_text(recv) == "recv     2 x 4 B  dst@1[0:4] <- thread 3  => t1"
    assert step_text(Signal(1, Ranks(0, 2), 3)) == "signal   channel 1 = 3 for 0-1"
    assert step_text(Wait(1, Ranks(4), 3)) == "wait     channel 1 >= 3 of 4"
    assert step_text(WaitTicket(3)) == "need     t3"
    assert step_text(Barrier()) == "barrier  all threads of the team, same call"
    assert (
        step_text(FusedBarrier(1, ())) == "fused    all arrive, thread 1 does [], all are released"
    )
