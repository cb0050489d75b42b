"""The core's protocol with plain threads under the sanitizers: `protocol.c` says what they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sanitizers import SANITIZERS, compiled, damaged, output_of
from support.soak import amount, figure, seed

HERE = Path(__file__).parent
NO_TIMEOUT = "-DXU_SLICE_NS=60000000000u"  # a thread that is not woken sleeps on
SHORT_STALL = "-DSTALL_S=4"  # where a stall is what the test expects
WAYS = [
    (threads, mode, wait)
    for threads in (2, 3, 4)
    for mode in ("flat", "counter")
    for wait in ("spin", "yield", "sleep")
] + [(threads, "levels", wait) for threads in (2, 4, 8) for wait in ("spin", "yield", "sleep")]
"""8 threads are 2 x 2 x 2: three levels."""
CALLS = amount(600, 50_000)
TOTALS = re.compile(r"(\d+) operations, (\d+) barriers, (\d+) wake-ups, (\d+) differences")

pytestmark = [pytest.mark.soak, pytest.mark.once]


def build(folder: Path, kind: str, *flags: str, **headers: str) -> Path:
    """Compile the driver, with another shm_protocol.h if given; skip if that cannot be."""
    return compiled(folder, HERE / "protocol.c", kind, NO_TIMEOUT, *flags, **headers)


@pytest.mark.parametrize("kind", SANITIZERS)
def test_no_race_no_wrong_byte_no_lost_wake_up(kind: str, tmp_path: Path) -> None:
    """Random calls in every mode and way of waiting, calls that differ among them."""
    program = build(tmp_path, kind)
    sums = [0, 0, 0, 0]
    for number, (threads, mode, wait) in enumerate(WAYS):
        text = output_of(program, threads, CALLS, seed() + number, mode, wait)
        found = TOTALS.fullmatch(text.strip())
        assert found, f"{threads} threads, {mode}, {wait}, seed {seed() + number}:\n{text[:6000]}"
        sums = [a + int(b) for a, b in zip(sums, found.groups(), strict=True)]
    operations, barriers, wakes, differences = sums
    assert wakes > len(WAYS)
    assert differences > len(WAYS)
    figure(
        f"the core's protocol under -fsanitize={kind}",
        f"0 findings in {operations} operations of 2-8 threads, {barriers} barriers, "
        f"{wakes} wake-ups, {differences} differing calls",
    )


BROKEN = {
    "signals without order": (
        "atomic_exchange_explicit(w, value, memory_order_seq_cst)",
        "atomic_exchange_explicit(w, value, memory_order_relaxed)",
        "data race",
    ),
    "waits without order": (
        "if (atomic_load_explicit(w, memory_order_acquire) >= target) return 1;",
        "if (atomic_load_explicit(w, memory_order_relaxed) >= target) return 1;",
        "data race",
    ),
    "no wake-up": (
        "if (atomic_load_explicit(&s->count, memory_order_seq_cst)) xu_wake(s);",
        "",
        "a lost wake-up",
    ),
    # a thread that misses a difference waits for one that has found it
    "one line of arrivals": (
        "(t->epoch & 1) * (uint64_t)t->n",
        "0",
        "a false alarm|a lost wake-up",
    ),
    "relays without order": (
        "t->epoch << XU_STATE_BITS | (t->verdict ? XU_BAD : XU_GOOD),\n"
        "                              memory_order_release",
        "t->epoch << XU_STATE_BITS | (t->verdict ? XU_BAD : XU_GOOD),\n"
        "                              memory_order_relaxed",
        "data race",
    ),
    "subtrees without order": (
        "t->epoch << XU_STATE_BITS | XU_HERE, memory_order_release",
        "t->epoch << XU_STATE_BITS | XU_HERE, memory_order_relaxed",
        "data race",
    ),
    "children that nobody waits for": (
        "for (; t->seen < t->nchildren; t->seen++) {",
        "for (t->seen = t->nchildren; t->seen < t->nchildren;) {",
        "data race|wrong bytes|a false alarm",
    ),
    "a verdict that gets lost": (
        "(t->verdict ? XU_BAD : XU_GOOD)",
        "XU_GOOD",
        "a difference is not noticed|a false alarm|a lost wake-up",
    ),
    "scratch lines too few": (
        "in->op % XU_SLOTS * XU_SLOT_BYTES",
        "in->op % 2 * XU_SLOT_BYTES",
        "data race|wrong bytes",
    ),
}

BY_LEVELS = {
    "relays without order", "subtrees without order", "children that nobody waits for",
    "a verdict that gets lost",
}  # fmt: skip
"""Mistakes that barriers by levels show: these are tried first."""


@pytest.mark.rotates
@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_core_is_noticed(name: str, tmp_path: Path) -> None:
    """One line of shm_protocol.h changed at a time."""
    right, wrong, words = BROKEN[name]
    places = 2 if name == "one line of arrivals" else 1
    header = damaged("shm_protocol", right, wrong, places)
    program = build(tmp_path, "thread", SHORT_STALL, **header)
    texts = []
    ways = list(enumerate(WAYS, 1))  # each with a seed of its own
    if name in BY_LEVELS:
        ways.sort(key=lambda way: way[1][1] != "levels")
    for calls in (300, 3000):  # most are noticed by few calls
        for number, (threads, mode, wait) in ways:
            texts.append(output_of(program, threads, calls, number, mode, wait))
            if re.search(words, texts[-1]):
                return
    pytest.fail("\n".join(text[:500] for text in texts))
