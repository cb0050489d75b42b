"""Every interleaving of the core's protocol, stale reads and sleepers included: see `checker`.

The words "exchange", "fused" and so on are calls of `core_model`. In an ordinary run two threads;
under scripts/soak three as well, and longer stories.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
from model.core_model import MUTATIONS, Action, Core
from support.soak import WHOLE, figure, seed

Story = list[Action]

pytestmark = [pytest.mark.soak, pytest.mark.once]

AGREE: list[tuple[bool, Story]] = [
    (counter_mode, story)
    for counter_mode in (False, True)
    for story in (
        [("exchange", 1), ("barrier",)],
        [("fused", 1, 1), ("fused", None, 2)],
        [("fused", 0, 1)],
        [("led", 1)],
        [("ring", 1)],
    )
    if not (counter_mode and story[0][0] == "ring")  # without a barrier the mode is no matter
]
LONGER: list[tuple[bool, Story]] = [
    (counter_mode, story)
    for counter_mode in (False, True)
    for story in (
        [("exchange", 1), ("barrier",), ("exchange", 2)],
        [("told", 1), ("told", 2)],
        [("told", 1), ("skip", 14), ("told", 2)],
        [("scratch", 1), ("scratch", 2)],
        [("led", 1), ("led", 2)],
        [("fused", 0, 1), ("fused", 1, 2), ("barrier",)],
    )
]
OF_THREE: list[tuple[bool, Story]] = [
    (counter_mode, story)
    for counter_mode in (False, True)
    for story in ([("barrier",)], [("fused", 2, 1)], [("led", 1)], [("told", 1)])
]
DIFFERENT: list[Action] = [
    ("barrier", 1),
    ("ring", 1, 1),
    ("told", 1, 1),
    ("fused", 0, 1, 1),
    ("fused", 1, 1, 1),
]
BROKEN: list[tuple[str, bool, list[Story]]] = [
    *(
        (name, counter_mode, [[("exchange", 1), ("barrier",)]] * 2)
        for counter_mode in (False, True)
        for name in (
            "relaxed publish", "plain store", "no wake", "acquire count", "look first",
            "acquire word", "wakes late",
        )
    ),
    ("relaxed wait", False, [[("ring", 1)]] * 2),
    ("one parity", False, [[("exchange", 1), ("barrier",)]] * 2),
    ("relaxed counter", True, [[("exchange", 1), ("barrier",)]] * 2),
    ("last does not wake", True, [[("fused", 0, 1)]] * 2),
    ("futex on the word", False, [[("told", 1), ("skip", 14), ("told", 2)]] * 2),
    ("word first", False, [[("told", 1), ("barrier",)]] * 2),
    ("no catching up", False, [[("told", 1), ("told", 2), ("told", 3)]] * 2),
]  # fmt: skip
BROKEN_AMONG_DIFFERENT = {
    "wait for release": [("ring", 1, 1), ("fused", 0, 1, 2)],
    "nobody arrives": [("ring", 1, 1), ("barrier", 2)],
}

APART = [
    [("barrier",), ("apart",), ("after",)],
    [("barrier",), ("barrier", 1), ("after",)],
]
"""Calls that differ on other nodes, of which the node root hears in the second one."""


Tree = tuple[int, ...]
PAIR, CHAIN, PAIRS, LONG = (-1, 0), (-1, 0, 1), (-1, 0, 0, 2), (-1, 0, 1, 2)
"""Trees of barriers by levels, as the parents of the threads: two, two, two and three levels."""
BARRIER: Story = [("barrier",)]
DATA: Story = [("exchange", 1)]
TWICE: Story = [("exchange", 1), ("barrier",)]
BY_LEVELS: list[tuple[Tree, list[Story], dict[str, bool]]] = [
    (PAIR, [TWICE] * 2, {}),
    (CHAIN, [DATA] * 3, {"sleeps": False}),
    (CHAIN, [BARRIER] * 3, {"sleeps": False}),
    (PAIR, [BARRIER] * 2, {"sleeps": False, "suspects": True}),
    *((tree, [[*TWICE, *DATA]] * len(tree), {"patient": True}) for tree in (CHAIN, PAIRS, LONG)),
    # a thread whose program goes on meanwhile: at the top, in the middle, at the end
    *(
        (tree, [[("posted",)] if j == i else BARRIER for j in range(len(tree))],
         {"patient": True, "sleeps": len(tree) == 2})
        for tree in (PAIR, CHAIN) for i in range(len(tree))
    ),
]  # fmt: skip
FUSED_BY_LEVELS: list[tuple[Tree, list[Story], dict[str, bool]]] = [
    *(
        (tree, [[("fused", by, 1), ("barrier",)]] * len(tree), {"patient": True, "sleeps": False})
        for tree in (PAIR, CHAIN, PAIRS, LONG) for by in (None, 1, len(tree) - 1)
    ),
    *(
        (CHAIN, [[call]] * 3, {"sleeps": False})
        for call in (("fused", None, 1), ("fused", 2, 1), ("led", 1))
    ),
    *((PAIR, [[call]] * 2, {}) for call in (("fused", 0, 1), ("fused", 1, 1), ("led", 1))),
    (PAIRS, [[("led", 1), ("led", 2)]] * 4, {"patient": True, "sleeps": False}),
]  # fmt: skip
LONGER_BY_LEVELS: list[tuple[Tree, list[Story], dict[str, bool]]] = [
    (CHAIN, [BARRIER] * 3, {"sleeps": False, "suspects": True}),
    (CHAIN, [TWICE] * 3, {"sleeps": False}),
    (PAIRS, [BARRIER] * 4, {"sleeps": False}),
    (LONG, [BARRIER] * 4, {"sleeps": False}),
    (CHAIN, [[("posted",), ("barrier",)], *[[("barrier",)] * 2] * 2],
     {"patient": True, "sleeps": False}),
]  # fmt: skip
DIFFERENT_BY_LEVELS: list[tuple[Tree, list[Action]]] = [
    (PAIR, [("barrier", 1), ("barrier", 2)]),
    (PAIR, [("ring", 1, 1), ("barrier", 2)]),
    (PAIR, [("barrier", 1), ("ring", 1, 2)]),
    (CHAIN, [("barrier", 2), ("barrier", 1), ("barrier", 1)]),
    (CHAIN, [("barrier", 1), ("barrier", 2), ("barrier", 1)]),
    (CHAIN, [("barrier", 1), ("barrier", 1), ("barrier", 2)]),
    (PAIRS, [("barrier", 1), ("barrier", 1), ("barrier", 1), ("barrier", 2)]),
    (LONG, [("barrier", 1), ("barrier", 1), ("barrier", 1), ("barrier", 2)]),
    (PAIR, [("fused", 0, 1, 1), ("fused", 1, 1, 2)]),
    (PAIR, [("fused", 1, 1, 1), ("barrier", 2)]),
    (PAIR, [("fused", 0, 1, 1), ("ring", 1, 2)]),
    (CHAIN, [("fused", 0, 1, 1), ("fused", 0, 1, 1), ("barrier", 2)]),
    (CHAIN, [("barrier", 2), ("fused", 1, 1, 1), ("fused", 1, 1, 1)]),
]
LATE: Action = ("led", 2, "late")
ELSEWHERE_BY_LEVELS: list[tuple[Tree, list[Story], bool]] = [
    # the node root is in the call, or gives up before it and is alone
    *(
        (tree, [[("led", 1), call, ("after",)], *[[("led", 1), LATE, ("after",)]] * n], patient)
        for tree, n, patient in (
            (PAIR, 1, False), (PAIR, 1, True), (CHAIN, 2, True), (PAIRS, 3, True), (LONG, 3, True)
        )
        for call in (LATE, ("led", 2, "early"), ("apart",))
        if (tree, call) != (PAIRS, ("apart",))  # too many states
    ),
]  # fmt: skip
"""Led calls that differ on other nodes."""
BROKEN_BY_LEVELS: dict[str, tuple[Tree, list[Story], dict[str, bool]]] = {
    "relaxed relay": (PAIR, [DATA] * 2, {"patient": True}),
    "relaxed subtree": (CHAIN, [DATA] * 3, {"patient": True}),
    "relaxed climb": (PAIR, [DATA] * 2, {"patient": True}),
    "relaxed descent": (PAIR, [DATA] * 2, {"patient": True}),
    "first child only": (PAIRS, [DATA] * 4, {"patient": True}),
    "one subtree line": (CHAIN, [[("barrier",)] * 2] * 3, {"sleeps": False}),
    "top does not relay": (CHAIN, [[("fused", 2, 1)]] * 3, {"patient": True}),
    "part of the tree": (CHAIN, [[("fused", 1, 1)]] * 3, {"patient": True}),
    "relay before the body": (CHAIN, [[("led", 1)]] * 3, {"patient": True}),
    "no relay": (PAIR, [BARRIER] * 2, {"patient": True}),
    "no mark": (PAIR, [[("posted",)], BARRIER], {"patient": True, "sleeps": False}),
    "mark the relay only": (
        CHAIN, [BARRIER, [("posted",)], BARRIER], {"patient": True, "sleeps": False}
    ),
    "mark the subtree only": (
        CHAIN, [BARRIER, [("posted",)], BARRIER], {"patient": True, "sleeps": False}
    ),
}  # fmt: skip
LOST: dict[str, tuple[Tree, list[Action]]] = {
    "my call only": (CHAIN, [("barrier", 1), ("barrier", 1), ("barrier", 2)]),
    "always good": (CHAIN, [("barrier", 1), ("barrier", 1), ("barrier", 2)]),
    "the top waits": (PAIR, [("fused", 1, 1, 1), ("barrier", 2)]),
    "verdict of the node": (CHAIN, [LATE] * 3),
}
"""Differences that broken trees do not report to all of the threads, which are patient."""


class Count:
    """Cases, states and steps so far."""

    def __init__(self) -> None:
        self.cases = self.states = self.steps = 0

    def check(self, core: Core, what: object) -> None:
        """Nothing may be wrong."""
        found = core.machine.explore()
        self.cases += 1
        self.states += core.machine.states
        self.steps += core.machine.steps
        assert found is None, f"{what}:\n{found}"

    def __str__(self) -> str:
        return f"{self.cases} models, {self.states} states, {self.steps} steps: 0 findings"


def test_calls_that_agree() -> None:
    """No deadlock, no lost wake-up, no overtaking, no false alarm, no race for data."""
    count = Count()
    for counter_mode, story in AGREE + (LONGER if WHOLE else []):
        count.check(Core(2, counter_mode, [story] * 2), (counter_mode, story))
    figure("the core's protocol, every interleaving of 2 threads", str(count))


@pytest.mark.skipif(not WHOLE, reason="three threads: only under scripts/soak")
def test_three_threads() -> None:
    """The same of three."""
    count = Count()
    for counter_mode, story in OF_THREE:
        count.check(Core(3, counter_mode, [story] * 3), (counter_mode, story))
    figure("the core's protocol, every interleaving of 3 threads", str(count))


def test_nobody_suspects_calls_that_agree() -> None:
    """`xu_suspect` returns no at any time of a wait."""
    count = Count()
    for counter_mode, story in ((False, [("told", 1)]), (True, [("barrier",)])):
        core = Core(2, counter_mode, [story] * 2, suspects=True)
        count.check(core, (counter_mode, story))
    figure("false alarms of waiting threads", str(count))


def _differing(first: Action, second: Action, more: list[Action]) -> list[Story]:
    other = (*second[:-1], second[-1] + 1)
    return [[call, ("barrier",), ("after",)] for call in (first, other, *more)]


def test_calls_that_differ() -> None:
    """All find it, meet at the same barrier, and the team is as good as new."""
    count = Count()
    thirds: list[list[Action]] = [[], [("ring", 1, 1)], [("barrier", 1)]] if WHOLE else [[]]
    cases = list(product((False, True), DIFFERENT, DIFFERENT, thirds))
    chosen = cases if WHOLE else random.Random(seed()).sample(cases, 20)
    for counter_mode, first, second, more in chosen:
        stories = _differing(first, second, more)
        core = Core(len(stories), counter_mode, stories, agree=False)
        count.check(core, (counter_mode, stories))
    figure("differing calls, every interleaving", str(count))


@pytest.mark.parametrize("counter_mode", [False, True])
def test_calls_that_differ_elsewhere(counter_mode: bool) -> None:
    """The verdict on the second call may be there before a thread has left the first one."""
    core = Core(2, counter_mode, APART, agree=False)
    Count().check(core, counter_mode)
    core = Core(2, counter_mode, APART, frozenset(["next for mine"]), agree=False)
    assert core.machine.explore() is not None


def test_barriers_by_levels() -> None:
    """The same along trees of 2 and 3 levels, for 2 to 4 threads."""
    count = Count()
    cases = BY_LEVELS + FUSED_BY_LEVELS + (LONGER_BY_LEVELS if WHOLE else [])
    for tree, stories, options in cases:
        core = Core(len(tree), False, stories, parents=tree, **options)
        count.check(core, (tree, stories, options))
    figure("barriers by levels, every interleaving of 2-4 threads", str(count))


@pytest.mark.parametrize("patient", [False, True])
def test_calls_that_differ_by_levels(patient: bool) -> None:
    """All find it, wherever in the tree the thread is that differs."""
    count = Count()
    for tree, calls in DIFFERENT_BY_LEVELS:
        if len(tree) > 2 and not patient:
            continue  # too many states: each look of a waiting thread reads all lines
        stories: list[Story] = [[call, ("barrier",), ("after",)] for call in calls]
        core = Core(len(tree), False, stories, agree=False, parents=tree, patient=patient)
        count.check(core, (tree, calls))
    figure(f"differing calls by levels, {'patient' if patient else 'impatient'}", str(count))


def test_led_calls_that_differ_elsewhere_by_levels() -> None:
    """The verdict comes from the exchange between node roots, down the tree or past it."""
    count = Count()
    for tree, stories, patient in ELSEWHERE_BY_LEVELS:
        core = Core(len(tree), False, stories, agree=False, parents=tree, patient=patient)
        count.check(core, (tree, stories, patient))
    figure("led calls that differ on other nodes, by levels", str(count))


@pytest.mark.parametrize("name", BROKEN_BY_LEVELS)
def test_a_broken_tree_is_noticed(name: str) -> None:
    """One line of a barrier by levels changed."""
    tree, stories, options = BROKEN_BY_LEVELS[name]
    core = Core(len(tree), False, stories, frozenset([name]), parents=tree, **options)
    assert core.machine.explore() is not None


@pytest.mark.parametrize("name", LOST)
def test_a_verdict_that_gets_lost_is_noticed(name: str) -> None:
    """A thread goes on although calls differ, or waits for ever."""
    tree, calls = LOST[name]
    stories: list[Story] = [[call, ("after",)] for call in calls]
    core = Core(len(tree), False, stories, frozenset([name]), agree=False, parents=tree,
                patient=True)  # fmt: skip
    assert core.machine.explore() is not None


@pytest.mark.parametrize(("name", "counter_mode", "stories"), BROKEN)
def test_a_broken_protocol_is_noticed(name: str, counter_mode: bool, stories: list[Story]) -> None:
    """One line changed."""
    assert name in MUTATIONS
    core = Core(2, counter_mode, stories, frozenset([name]), suspects=name == "word first")
    assert core.machine.explore() is not None


@pytest.mark.parametrize("name", BROKEN_AMONG_DIFFERENT)
def test_broken_giving_up_is_noticed(name: str) -> None:
    """A broken rule for giving up leaves at least one thread waiting for ever."""
    first, second = BROKEN_AMONG_DIFFERENT[name]
    stories = _differing(first, second, [])
    core = Core(2, True, stories, frozenset([name]), agree=False)
    assert "never ends" in str(core.machine.explore())


def test_all_mutations_are_tried() -> None:
    """None is only listed."""
    tried = {name for name, *_ in BROKEN} | BROKEN_AMONG_DIFFERENT.keys() | {"next for mine"}
    tried |= BROKEN_BY_LEVELS.keys() | LOST.keys()
    assert tried == MUTATIONS.keys()
