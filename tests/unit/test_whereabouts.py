"""The text that shows where threads are groups threads in the same place and is never long."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from support.soak import amount, figure

from xupc.backends.native.lowering import lower
from xupc.backends.native.native_core import core
from xupc.cli import hang
from xupc.health.control_layout import LAST, MAGIC, PLACES_BYTES, RING, TEXTS, control_bytes
from xupc.health.control_segment import Control
from xupc.health.stack_report import (
    Gathering,
    Group,
    Row,
    grouped,
    line_of,
    merge,
    pack,
    report_text,
    unpack,
)
from xupc.health.thread_ranges import ranges
from xupc.pgas.segment import Segment, create
from xupc.plan.plan import barrier_plan
from xupc.topology.tree import Tree


def test_the_example() -> None:
    rows = [Row(i, "all_gather #812, train.py:40", 12.3) for i in range(7)]
    rows.append(Row(7, "not in xupc, load.py:12", 12.31, "last call: all_gather #811"))
    assert report_text(grouped(rows)) == (
        "  0-6: all_gather #812, train.py:40, for 12.3 s\n"
        "  7: not in xupc, load.py:12, for 12.3 s (last call: all_gather #811)"
    )


@pytest.mark.parametrize(
    ("threads", "words"),
    [
        ([5], "5: here"),
        ([3, 1, 2], "1-3: here"),
        ([0, 1, 2, 9], "0-2, 9: here"),
        ([0, 2, 4, 6], "0, 2, 4, 6: here"),
        ([7, 8, 8, 7], "7-8: here"),
        (range(0, 40, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 8 more: here"),
        ([*range(0, 24, 2), *range(100, 200)],
         "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 100 more: here"),
    ],
)  # fmt: skip
def test_threads_in_words(threads: list[int], words: str) -> None:
    assert report_text(grouped(Row(t, "here") for t in threads)) == f"  {words}"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ([None], ""),
        ([0.04], ", for 0.0 s"),
        ([12.3, 12.6], ", for 12.6 s"),
        ([1.0, 3.5, 12.0], ", for 1.0 to 12.0 s"),
        ([None, 2.0], ", for 2.0 s"),
    ],
)
def test_times_in_words(seconds: list[float | None], words: str) -> None:
    found = grouped(Row(i, "here", s) for i, s in enumerate(seconds))
    assert str(found[0]).endswith(f"here{words}")


def test_the_largest_group_comes_first_and_equal_ones_by_thread() -> None:
    rows = [Row(0, "a"), Row(5, "c"), Row(6, "c"), Row(2, "b"), Row(9, "c"), Row(1, "b")]
    assert report_text(grouped(rows)) == "  5-6, 9: c\n  1-2: b\n  0: a"


def test_groups_of_several_machines_become_one() -> None:
    here = grouped([Row(0, "a", 1.0), Row(1, "a", 1.1), Row(2, "b")])
    there = grouped([Row(3, "b"), Row(4, "a", 5.0)])
    assert report_text(merge([*here, *there])) == "  0-1, 4: a, for 1.0 to 5.0 s\n  2-3: b"


def test_what_differs_in_the_last_call_only_is_another_place() -> None:
    rows = [Row(0, "not in xupc", 1.0, "last call: x"), Row(1, "not in xupc", 1.0, "last call: y")]
    assert len(grouped(rows)) == 2


@pytest.mark.parametrize("places", [1, 3, 24, 25, 700, 10_000])
def test_ten_thousand_threads_give_a_short_text(places: int) -> None:
    random.seed(places)
    rows = [Row(t, f"all_gather #{random.randrange(places)}", 1.0) for t in range(10_000)]
    text = report_text(grouped(rows))
    assert len(text.splitlines()) <= 24
    assert len(text) < 4000
    shown = sum(g.size for g in grouped(rows))
    assert shown == 10_000
    if places > 100:
        assert f"in {len(grouped(rows)) - 23} other places" in text


def test_ranges_are_what_a_set_of_numbers_is() -> None:
    for seed in range(200):
        random.seed(seed)
        numbers = {random.randrange(60) for _ in range(random.randrange(60))}
        runs = ranges(numbers)
        assert {t for a, b in runs for t in range(a, b + 1)} == numbers
        assert all(b + 1 < c for (_, b), (c, _) in pairwise(runs))


@pytest.mark.parametrize("threads", [1, 8, 300, 4000])
@pytest.mark.parametrize("places", [1, 7, 10_000])
def test_what_is_sent_finds_room_and_comes_back(threads: int, places: int) -> None:
    random.seed(places)
    rows = [
        Row(16 * t, f"ü {random.randrange(places)} {'x' * 500}", 1.5, "y" * 500)
        for t in range(threads)
    ]
    packed = pack(grouped(rows))
    assert len(json.dumps(packed)) < PLACES_BYTES - 16
    back = unpack(json.loads(json.dumps(packed)))
    assert sum(g.size for g in back) == threads or threads * places > 300
    if threads == 8 and places == 1:
        eight = tuple((16 * t, 16 * t) for t in range(8))
        assert back == [Group(rows[0].place[:300], "y" * 300, eight, 1.5, 1.5)]
    report_text(back)


@pytest.mark.parametrize(
    "rows",
    [None, 3, "x", [[1]], [["a", "b", "c", 1, 2]], [[1, 2, [[1]], 1, 2]],
     [["a", "b", [[0, 1]], "soon", 1]]],
)  # fmt: skip
def test_what_others_send_is_looked_at(rows: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        unpack(rows)


# -- the line ------------------------------------------------------------------------------------


def frame_in(*files: str) -> FrameType:
    """The innermost frame of functions in these files, which call each other; outermost first."""
    name, frame = "", None
    space: dict[str, object] = {"sys": sys}
    for file in reversed(files):
        body = f"return {name}()" if name else "return sys._getframe()"
        name = f"f{len(space)}"
        exec(compile(f"\n\ndef {name}():\n    {body}\n", file, "exec"), space)
    frame = space[name]()  # type: ignore[operator]
    assert isinstance(frame, FrameType)
    return frame


XUPC = str(Path(hang.__file__).parents[1])
NUMPY = str(Path(np.__file__).parent)


@pytest.mark.parametrize(
    ("files", "line", "inside"),
    [
        (["/home/me/train.py"], "train.py:4", False),
        (["/home/me/train.py", "/home/me/load.py"], "load.py:4", False),
        (
            ["/home/me/train.py", f"{XUPC}/team.py", f"{XUPC}/runtime/executor.py"],
            "train.py:4",
            True,
        ),
        (["/home/me/train.py", f"{NUMPY}/linalg.py"], "linalg.py:4 from train.py:4", False),
        (["/home/me/op.py", f"{XUPC}/team.py", "/home/me/f.py"], "f.py:4", False),
        (["/home/me/pkg/__main__.py"], "pkg/__main__.py:4", False),
        ([f"{XUPC}/bench/worker.py", f"{XUPC}/team.py"], "worker.py:4", True),
    ],
)
def test_the_line_is_the_innermost_outside_of_xupc(
    files: list[str], line: str, inside: bool
) -> None:
    assert line_of(frame_in(*files)) == (line, inside)


def test_no_frame_is_no_line() -> None:
    assert line_of(None) == ("", False)


# -- the ring ------------------------------------------------------------------------------------


def two_threads() -> tuple[Control, Control, Segment]:
    """A control segment of two threads of this process."""
    segment = create(control_bytes(2, 1, 0))
    first, second = Control(segment, 0, 2, 1), Control(segment, 1, 2, 1)
    first.introduce(0, "h")
    second._write_id(second._record(1), 1, 1, "h")
    first.describe(7, 0, 2)
    return first, second, segment


def test_the_ring_holds_the_last_calls() -> None:
    first, second, _ = two_threads()
    for op in range(1, 2 * RING):
        noted = first.begin_call(op, first.note(f"call {op}"), 0)
        if op != 2 * RING - 1:
            first.end_call(noted)
    calls, last = second.calls_of(0), range(2 * RING - LAST, 2 * RING)
    assert [call.op for call in calls] == list(last)
    assert [call.text for call in calls] == [f"call {op}" for op in last]
    assert all(call.ended >= call.began for call in calls[:-1])
    assert calls[-1].ended == 0
    assert second.calls_of(1) == []


def test_a_text_that_is_gone_is_not_another_calls() -> None:
    first, second, _ = two_threads()
    first.begin_call(1, old := first.note("old"), 3)
    for i in range(TEXTS):
        first.note(f"new {i}")
    assert second.calls_of(0)[0].name == "a call of team 3 #1"
    first.ensure(old, "old")
    assert second.calls_of(0)[0].name == "old #1"


def test_a_posted_call_is_no_place() -> None:
    first, second, _ = two_threads()
    first.begin_call(1, first.note("gather"), 0)
    first.posted()
    rows = Gathering(second).mine()
    assert "not in xupc" in rows[0].place
    assert rows[0].else_ == "posted: gather #1"


def test_a_dead_thread() -> None:
    first, _, _ = two_threads()
    first.begin_call(1, first.note("gather"), 0)
    # The second one's lock was never taken.
    found = {row.threads: row.place for row in Gathering(first, time.monotonic_ns()).mine()}
    assert found[(1, 1),] == "not in xupc, dead"
    assert found[(0, 0),].startswith("gather #1, does not answer (")
    first.answer("train.py:40", False)
    asked = time.monotonic_ns() - 10**9
    assert Gathering(first, asked).mine()[0].place == "gather #1, train.py:40"
    assert Gathering(first, asked).here


def test_after_all_is_over_no_call_is_under_way() -> None:
    first, second, _ = two_threads()
    first.begin_call(1, first.note("gather"), 0)
    assert "gather #1, " in Gathering(second).mine()[0].place
    first.all_over()
    assert "not in xupc" in Gathering(second).mine()[0].place


def test_the_segment_says_what_it_is() -> None:
    first, _, segment = two_threads()
    other = Control.of_other(segment)
    assert (other.threads, other.machines, other.machine) == (2, 1, 0)
    assert int(other.head["job"][0]) == 7
    first.head["magic"] = MAGIC + 1
    with pytest.raises(ValueError, match="not the control segment"):
        Control.of_other(segment)


def test_places_being_written_are_none() -> None:
    first, second, _ = two_threads()
    assert second.places_of(0) == (0, None)
    first.write_places(0, [["a", "", [[0, 1]], None, None]])
    when, rows = second.places_of(0)
    assert when > 0
    assert report_text(unpack(rows)) == "  0-1: a"
    first.segment.map[first._places + 16] = 0
    assert second.places_of(0) == (0, None)


@pytest.mark.soak
@pytest.mark.skipif(core is None, reason="the native core is not there")
def test_what_the_ring_costs() -> None:
    segment = create(control_bytes(1, 1, 0))
    control = Control(segment, 0, 1, 1)
    control.introduce(0, "h")
    area = np.zeros(core.sync_bytes(1) + 64, np.uint8)
    address = area.ctypes.data + -area.ctypes.data % 64

    def a_call(ring: int) -> Callable[[], None]:
        status = control.status_address
        team = core.Team(address, 1, 0, status, True, False, False, 0, 0, 0, 0, 0, area, ring)
        plan = barrier_plan(0, 1)
        program = core.Program(lower(plan, Tree(np.zeros(1, np.int32))))
        run: Callable[[], None] = core.Instance(team, program, (), (), 0, 1, None).execute
        return run

    calls = {"with": a_call(control.ring_address), "without": a_call(0)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(amount(400, 4000)):
        for name, call in random.sample(list(calls.items()), 2):
            began = time.perf_counter_ns()
            for _ in range(1000):
                call()
            times[name].append((time.perf_counter_ns() - began) / 1000)
    with_, without = np.array(times["with"]), np.array(times["without"])
    low, middle, high = np.percentile(with_ - without, [25, 50, 75])
    figure(
        "the ring of the last calls",
        f"{middle:.1f} ns a call (quartiles {low:.1f} and {high:.1f}), on a call of "
        f"{np.median(without):.1f} ns, {len(with_)} pairs of 1000 calls",
    )
    assert len(control.calls_of(0)) == LAST


# -- jobs from outside ---------------------------------------------------------------------------


def test_a_job_is_found_by_process_and_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, _ = two_threads()
    one, two = hang.Job(1, [first], {11, 12}), hang.Job(2, [first], {21})
    monkeypatch.setattr(hang, "_tag_of", lambda pid: "abcdef" if pid < 20 else "")
    monkeypatch.setattr(hang, "_ancestors", lambda pid: [5, 1] if pid < 20 else [6, 1])
    found = [one, two]
    assert hang.choose(found, "12") == [one]
    assert hang.choose(found, "21") == [two]
    assert hang.choose(found, "6") == [two]
    assert hang.choose(found, "1") == found
    assert hang.choose(found, "abcdef") == [one]
    assert hang.choose(found, "abcd") == [one]
    assert hang.choose(found, "abc") == []
    assert hang.choose(found, "99") == []
