"""Traces: parts written by hand, joined, summed up and drawn; the oracle is what was written."""

from __future__ import annotations

import contextlib
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from xupc.backends.native import lowering
from xupc.backends.simulator.activities import Act, Timeline
from xupc.call_trace import layout
from xupc.call_trace.events import TraceEvents
from xupc.call_trace.file import join_parts, load, write
from xupc.call_trace.join import join
from xupc.call_trace.part import MOST_NUMBERS, Numbers, Part
from xupc.call_trace.summary import as_data, costliest, rendered
from xupc.cli import main
from xupc.comm.clock_offset import best_offset
from xupc.report.plan_events import plan_events
from xupc.topology.host import constant_counter

HEADER = (Path(lowering.__file__).parent / "call_trace.h").read_text()


def part(folder: Path, thread: int, *, node: int = 0, offset: int = 0, members=(0, 1)) -> Part:
    made = Part(folder, thread)
    made.say({"thread": thread, "threads": 4, "node": node, "host": "h", "offset": offset, "at": 0})
    made.say({"team": 0, "threads": None, "members": list(members)})
    kind = {"name": "all_broadcast", "variant": "pull:star", "nbytes": 8, "team": 0}
    assert made.kinds.of("k", kind) == 1
    assert made.lines.of("l", {"file": "prog.py", "number": 7, "function": "main"}) == 1
    return made


def call(
    made: Part, op: int, times: tuple[int, int], wait: tuple[int, int, int] = (0, 0, 0)
) -> None:
    """Write one call: begin and end, and of its wait the length, the end and for whom it was."""
    longest, ready, whom = wait
    made.rows[int(made.head["count"][0])] = (
        op, 1, 1, *times, longest, ready, longest, whom, 0,
    )  # fmt: skip
    made.head["count"] += 1
    made.head["calls"] += 1


def two_nodes(folder: Path) -> None:
    """Write the parts of four threads on two nodes; thread 3 comes 700 ns late.

    Thread 2 waits for it, the root of node 0 for a message of thread 2, thread 1 for its node root.
    The clock of node 1 is 5000 ns behind.
    """
    near, far = (0, 1), (2, 3)
    parts = [
        part(folder, t, node=t // 2, offset=5000 * (t // 2), members=(near, far)[t // 2])
        for t in range(4)
    ]
    call(parts[0], 1, (10_000, 11_000), (800, 10_900, layout.RANK | 2))
    call(parts[1], 1, (10_000, 11_100), (1000, 11_050, layout.ANYONE))
    call(parts[2], 1, (5_050, 5_950), (700, 5_800, layout.MEMBER | 1))
    call(parts[3], 1, (5_750, 5_850))
    for made in parts:
        made.say({"clock": 0, "at": 0})
        made.say({"clock": 5000, "at": 1} if made in parts[2:] else {"clock": 0, "at": 1})


def test_waits_lead_to_the_thread_that_was_late(tmp_path: Path) -> None:
    two_nodes(tmp_path)
    trace = join(tmp_path)
    causes = {call.thread: call.cause for call in trace.calls}
    assert causes == {0: 3, 1: 3, 2: 3, 3: None}
    began = {call.thread: call.began for call in trace.calls}
    assert began == {0: 0, 1: 0, 2: 50, 3: 750}  # on one clock
    (total,) = trace.totals
    assert (total.calls, total.ns, total.waited, total.longest) == (4, 3100, 2500, 1000)
    assert total.causes == {3: 2500}
    assert total.nbytes == 32


def test_the_summary_names_the_line_and_the_thread(tmp_path: Path) -> None:
    two_nodes(tmp_path)
    trace = join(tmp_path)
    (line,) = costliest(trace.totals)
    assert line.line == "prog.py:7 in main"
    assert line.name == "all_broadcast pull:star"
    assert line.waiting == pytest.approx(2500 / 3100)
    assert line.shares == [(3, 1.0)]
    data = as_data(trace)
    assert data["lines"][0]["waits for"] == [{"thread": 3, "part": 1.0}]
    shown = CliRunner().invoke(main, ["trace", str(tmp_path)]).output
    assert "prog.py:7 in main" in shown
    assert "3 (100%)" in shown


def test_calls_that_another_library_carried_are_counted(tmp_path: Path) -> None:
    """The last count of each thread holds; a file keeps them, and one without them is read."""
    parts = [part(tmp_path, t) for t in range(2)]
    for made in parts:
        call(made, 1, (10_000, 11_000))
        made.say({"elsewhere": [["Allreduce", "warm-up", 1]]})
        made.say({"elsewhere": [["Allreduce", "warm-up", 64], ["Gatherv", "table", 1]]})
    write(join(tmp_path), tmp_path / "t.json")
    (tmp_path / "old.json").write_text(
        (tmp_path / "t.json").read_text().replace('"elsewhere"', '"other"')
    )
    trace = load(tmp_path / "t.json")
    assert trace.elsewhere == [
        {"name": "Allreduce", "why": "warm-up", "calls": 128},
        {"name": "Gatherv", "why": "table", "calls": 2},
    ]
    assert as_data(trace)["calls that MPI carried"] == trace.elsewhere
    assert list(rendered(trace))[-1] == (
        "Not recorded, since MPI carried them: 130 calls: 128 Allreduce (warm-up), "
        "2 Gatherv (table)."
    )
    assert load(tmp_path / "old.json").elsewhere == []
    text = (tmp_path / "t.json").read_text().replace('"calls": 128', '"calls": "128"')
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match="expected a trace"):
        load(tmp_path / "t.json")


def test_the_file_has_a_process_for_each_node_and_a_track_for_each_thread(tmp_path: Path) -> None:
    folder = layout.folder_of(tmp_path / "t.json")
    folder.mkdir()
    two_nodes(folder)
    join_parts(tmp_path / "t.json")
    assert not folder.exists()
    data = json.loads((tmp_path / "t.json").read_text())
    events = data["traceEvents"]
    slices = {(e["pid"], e["tid"]): e for e in events if e["ph"] == "X" and e["cat"] == "call"}
    assert sorted(slices) == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert slices[1, 2]["ts"] == 0.05
    assert slices[1, 2]["dur"] == 0.9
    assert slices[0, 1]["args"]["waited for thread"] == 3
    assert slices[0, 1]["args"]["line"] == "prog.py:7 in main"
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]}
    assert {"node 0 (h)", "node 1 (h)", "thread 3"} <= names
    assert load(tmp_path / "t.json").totals == join_again(tmp_path)


def join_again(tmp_path: Path) -> list[object]:
    folder = tmp_path / "again"
    folder.mkdir()
    two_nodes(folder)
    return list(join(folder).totals)


def test_a_thread_without_an_end_is_in_its_last_call(tmp_path: Path) -> None:
    here, late = part(tmp_path, 0), part(tmp_path, 1)
    call(here, 1, (100, 200))
    call(late, 1, (100, 200))
    here.begin(2, 1, 1)
    here.head["open"]["began"], here.head["seen"] = 300, 900
    trace = join(tmp_path)
    (running,) = [c for c in trace.calls if c.running]
    assert (running.began, running.ended, running.cause) == (200, 800, 1)
    assert [about["finalized"] for about in trace.threads] == [False, False]
    assert trace.missing == [2, 3]
    assert trace.totals[0].waited == 600


def test_a_call_that_failed_waited_for_the_thread_that_is_not_in_it(tmp_path: Path) -> None:
    parts = [part(tmp_path, thread) for thread in range(2)]
    call(parts[0], 1, (100, 900), (700, 850, layout.MEMBER))
    parts[0].rows["state"][0] = layout.FAILED
    call(parts[1], 2, (100, 200))
    first, _ = join(tmp_path).calls
    assert (first.failed, first.posted, first.cause) == (True, False, 1)
    assert "ended by an error" in json.dumps(events_of(tmp_path))


def events_of(folder: Path) -> Any:
    write(join(folder), folder / "t.json")
    return json.loads((folder / "t.json").read_text())["traceEvents"]


def test_posted_calls_have_tracks_of_their_own(tmp_path: Path) -> None:
    made = part(tmp_path, 0)
    for op, times in enumerate([(0, 100), (50, 150), (60, 90), (110, 120)], 1):
        call(made, op, times)
    made.rows["state"][:2] = layout.POSTED, layout.CLAIMED
    slices = [e for e in events_of(tmp_path) if e["ph"] == "X"]
    tracks: dict[int, list[int]] = {}
    for each in slices:
        tracks.setdefault(each["tid"], []).append(each["args"]["operation"])
    assert sorted(tracks.values()) == [[1], [2], [3, 4]]
    assert tracks[0] == [3, 4]


def test_thinning_keeps_the_totals_and_the_same_operations_everywhere(tmp_path: Path) -> None:
    parts = [Part(tmp_path, thread, capacity=64) for thread in (0, 1)]
    for thread, made in enumerate(parts):
        made.say({"thread": thread, "threads": 2, "node": 0, "host": "h", "offset": 0, "at": 0})
        for op in range(1, 1001):
            row = made.begin(op, 1, op % 3)
            made.waited(row, int(row["began"][0]), layout.MEMBER)
            made.end(row)
    trace = join(tmp_path)
    assert sum(total.calls for total in trace.totals) == 2000
    assert 0 < len(trace.calls) <= 128
    kept = [{c.op for c in trace.calls if c.thread == thread} for thread in (0, 1)]
    assert kept[0] == kept[1] == {op for op in range(1, 1001) if layout.stays(op, trace.level)}
    assert len(join(tmp_path, most=20).calls) <= 20


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at /proc")
def test_a_closed_part_holds_no_file(tmp_path: Path) -> None:
    """A program may start xupc, and a trace, many times."""

    def held() -> list[str]:
        found = Path("/proc/self/maps").read_text().splitlines()
        for entry in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # of the folder that is listed
                found.append(os.readlink(f"/proc/self/fd/{entry}"))
        return [text for text in found if str(tmp_path) in text]

    made = part(tmp_path, 0)
    call(made, 1, (0, 100))
    assert held()
    made.close()
    assert held() == []
    made.say({"late": 1})  # no other file has its descriptor
    assert [each.op for each in join(tmp_path).calls] == [1]


def test_after_the_most_texts_number_0_stands_for_all_others() -> None:
    said: list[object] = []
    numbers = Numbers("line", said.append)
    given = [numbers.of(k, {}) for k in range(MOST_NUMBERS + 5)]
    assert given[-6:] == [MOST_NUMBERS, 0, 0, 0, 0, 0]
    assert len(said) == MOST_NUMBERS


@pytest.mark.parametrize("text", ["nothing of the kind\n", "[" * 99_999])
@pytest.mark.parametrize("name", ["thread-0.rows", "thread-0.names"])
def test_a_damaged_part_is_an_error_that_names_it(tmp_path: Path, name: str, text: str) -> None:
    part(tmp_path, 0)
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        join(tmp_path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"traceEvents": []}')
    result = CliRunner().invoke(main, ["trace", str(other)])
    assert result.exit_code == 2
    assert "expected a trace that XUPC_TRACE has made" in result.output
    other.write_text('{"xupc": ' + "[" * 99_999)
    assert CliRunner().invoke(main, ["trace", str(other)]).exit_code == 2
    assert CliRunner().invoke(main, ["trace", str(tmp_path / "none")]).exit_code == 2
    with pytest.raises(ValueError, match="found none"):
        join(tmp_path)


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    two_nodes(tmp_path / "p")
    target = tmp_path / "t.json"
    target.write_text("mine")
    arguments = ["trace", str(tmp_path / "p"), "-o", str(target)]
    assert CliRunner().invoke(main, arguments).exit_code == 2
    assert target.read_text() == "mine"
    assert CliRunner().invoke(main, [*arguments, "--force"]).exit_code == 0
    assert load(target).ns == 1100


def test_half_a_file_is_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_nodes(tmp_path)
    trace = join(tmp_path)

    def fail(self: TraceEvents, more: object) -> object:
        yield "{"
        raise OSError("full")

    monkeypatch.setattr(TraceEvents, "lines", fail)
    with pytest.raises(OSError, match="full"):
        write(trace, tmp_path / "t.json")
    assert not [path for path in tmp_path.iterdir() if "t.json" in path.name]


def test_layouts_are_those_of_the_core() -> None:
    assert f"#define XT_TOTALS {layout.TOTALS} " in HEADER
    assert layout.ROW.itemsize == layout.TOTAL.itemsize == 64
    assert layout.HEAD.itemsize == 128 == layout.HEAD.fields["open"][1] + 64
    for name, value in (("MEMBER", layout.MEMBER), ("LAST", layout.ANYONE), ("RANK", layout.RANK)):
        assert f"XT_{name} = {value >> 24} << 24" in HEADER
    assert layout.awaited(layout.RANK | 5) == (layout.RANK, 5)


def test_the_fastest_round_trip_gives_the_offset() -> None:
    assert best_offset([(0, 1000, 400), (500, 1305, 510), (600, 9000, 900)]) == 1305 - 505


def test_the_counter_is_used_where_the_kernel_trusts_it(tmp_path: Path) -> None:
    flags, source = tmp_path / "cpuinfo", tmp_path / "source"
    flags.write_text("model : x\nflags : fpu constant_tsc nonstop_tsc\n")
    source.write_text("tsc\n")
    assert constant_counter(flags, source, "x86_64")
    source.write_text("hpet\n")
    assert not constant_counter(flags, source, "x86_64")
    source.write_text("tsc\n")
    flags.write_text("flags : fpu\n")
    assert not constant_counter(flags, source, "x86_64")
    assert constant_counter(flags, source, "aarch64")


def test_times_are_moved_from_one_offset_to_the_other(tmp_path: Path) -> None:
    made = part(tmp_path, 0, offset=100)
    made.say({"clock": 200, "at": 1000})
    call(made, 1, (500, 1000))
    (only,) = join(tmp_path).calls
    assert only.ended == 550  # 1200 - 650
    assert np.all(made.rows["op"][1:] == 0)


# ---- plans on a clock ----------------------------------------------------------------------------


def test_the_bars_of_a_plan_do_not_overlap_on_a_track() -> None:
    acts = [
        Act("copy", 0, 0, 10), Act("wait", 0, 5, 20), Act("copy", 0, 10, 12),
        Act("send", 0, 1, 9, 64, 1), Act("copy", 1, 0, 3, 8),
    ]  # fmt: skip
    events = plan_events(Timeline(acts, 20), {0: "thread 0", 1: "thread 1"}, {0: 0, 1: 1})
    data = json.loads("".join(events.lines()))["traceEvents"]
    tracks: dict[int, list[tuple[float, float]]] = {}
    for event in (e for e in data if e["ph"] == "X"):
        tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sorted(map(len, tracks.values())) == [1, 1, 1, 2]
    for bars in tracks.values():
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(bars)))
    (sent,) = [e for e in data if e["name"] == "send"]
    assert sent["args"] == {"bytes": 64, "peer": 1}
    names = [e["args"]["name"] for e in data if e["name"] == "thread_name"]
    assert names == ["thread 0", "thread 0", "thread 0, sends", "thread 1"]


def test_a_simulated_plan_is_written_for_perfetto(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    words = ["algorithms", "Allgather", "--nodes", "2x2", "--draw", "multicore"]
    assert CliRunner().invoke(main, [*words, "--timeline", str(path)]).exit_code == 0
    data = json.loads(path.read_text())["traceEvents"]
    assert {e["pid"] for e in data} == {0, 1}
    assert {"copy", "send"} <= {e["name"] for e in data if e["ph"] == "X"}
    again = CliRunner().invoke(main, [*words, "--timeline", str(path)])
    assert again.exit_code == 2
    assert "expected a new file" in again.output
    assert CliRunner().invoke(main, [*words[:4], "--timeline", str(path)]).exit_code == 2
