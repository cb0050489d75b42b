"""The report: its text for made-up results, and that no result breaks it."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome
from support.bench_results import COLLECTIVES, SIZES, cut, job, result
from support.report_page import without_library
from support.vega_drawing import NODE, charts_of, drawings

from xupc import cli
from xupc.algorithms import registry
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.timeline import run
from xupc.bench.results import OURS, PICTURE, Candidate, Cell, Job, Launch, Result
from xupc.cli.topo import described
from xupc.flags import ALGORITHM_NAMES
from xupc.report.advice import advised
from xupc.report.bounds import bounds_of, crossing
from xupc.report.findings import Findings
from xupc.report.plans import programs
from xupc.topology.machine import describe
from xupc.topology.picture import draw_nodes

NOTHING = Job(2, [[0, 1]])
LONG = [8 << i for i in range(12)]
ROOT = Path(__file__).resolve().parents[2]


def report(tmp_path: Path, *results: Result, options: tuple[str, ...] = ()) -> Outcome:
    """Run the command; the page is OUT.html, the Markdown OUT.md."""
    paths = []
    for i, found in enumerate(results):
        paths.append(tmp_path / f"r{i}.json")
        found.save(paths[-1])
    out = ["-o", tmp_path / "OUT.html", "--markdown", tmp_path / "OUT.md", "--force", *options]
    return CliRunner().invoke(cli.main, ["report", *map(str, [*paths, *out])])


def small(shape: str, **more: object) -> Job:
    """A job of few launches and sizes."""
    return job(shape, **{"sizes": SIZES[::3], "launches": 2, "repetitions": 4, **more})


def texts(tmp_path: Path) -> tuple[str, str]:
    return (tmp_path / "OUT.html").read_text(), (tmp_path / "OUT.md").read_text()


def parsed(page: str) -> None:
    """Every drawing is well-formed."""
    for drawing in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(drawing)


# --- results of all kinds -------------------------------------------------------------------------


def _two_nodes_of_nothing() -> Job:
    return Job(2, [[0], [1]], [], {}, {}, {"wire rate": 0.0}, [], [Cell("all_broadcast", 8, 0)])


KINDS: dict[str, Callable[[], list[Job]]] = {
    "one node": lambda: [small("1x2")],
    "several jobs": lambda: [small("1x2"), small("1x8"), small("4x4")],
    "barrier": lambda: [small("2x2", collectives=["barrier"])],
    "no peers, no bounds": lambda: [small("4x4", peers=(), bounds={})],
    "a hundred cells": lambda: [
        job("1x4", sizes=[8 << i for i in range(20)], launches=1, repetitions=3, collectives=(
            *COLLECTIVES, "all_scatter", "all_gather"))
    ],
    "nothing measured": lambda: [NOTHING],
    "cut launches": lambda: [cut(small("1x2"), 4), cut(small("4x4"), 0)],
    "no jobs": list,
    "times of nothing": lambda: [
        Job(2, [[0, 1]], cells=[Cell("all_broadcast", 8, 16, candidates=[
            Candidate("xupc", OURS, "", ns=[[0, 0], []]), Candidate("PULL", OURS, "", ns=[])])])
    ],
    "nodes of nothing": lambda: [_two_nodes_of_nothing()],
    "odd arguments": lambda: [
        Job(2, [[0, 1]], cells=[
            Cell(name, 8, 16, "float99", "NOP", "sometimes", "7", "some", candidates=[
                Candidate("xupc", OURS, "", "multicore", None, [[5]], [[]])])])
        for name in ("all_reduce", "all_broadcast", "all_gather_v", "strange", "")
    ],
    "300 threads": lambda: [Job(300, [[i] for i in range(300)], ["h"] * 300)],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_any_result_has_a_report(tmp_path: Path, kind: str) -> None:
    """Under 2 MB, self-contained, of well-formed drawings."""
    whole = result(*KINDS[kind]())
    done = report(tmp_path, whole)
    assert done.exit_code == whole.is_empty, done.output + str(done.exception)
    assert ("nothing was measured" in done.output) == whole.is_empty
    page, text = texts(tmp_path)
    assert len(page) < 2e6
    own = without_library(page)
    assert not re.search(r"https?://|<script(?! type=.application/json)|url\(", own)
    assert (own != page) == bool(charts_of(page))
    assert text.startswith("# ")
    parsed(page)


def test_nothing_in_a_result_becomes_markup(tmp_path: Path) -> None:
    """Names may come from any user."""
    evil = '<script>alert("1")</script>&|`'
    found = job("2x1", repetitions=3, launches=1)
    found.hosts, found.about, found.clock = [evil, evil], {evil: evil, "mpi": [evil]}, {evil: evil}
    found.about[PICTURE] = evil
    found.launches = [Launch(1, evil, 1.0, [], 1)]
    for cell in found.cells[:1]:
        cell.dtype = cell.root = cell.team = cell.sync = evil
    for candidate in found.cells[1].candidates:
        candidate.name += evil
        candidate.algorithm = candidate.call = evil
        candidate.wrong = [[1]]
    whole = Result([evil], evil, False, [evil], [found])
    assert report(tmp_path, whole, whole).exit_code == 1  # it has a wrong result
    page, text = texts(tmp_path)
    assert "<script" not in without_library(page).replace('<script type="application/json">', "")
    names = {row["name"] for chart in charts_of(page) for row in chart["data"]["values"]}
    assert any(name.endswith(evil) for name in names)
    assert "<script" not in text.replace("\\<script", "")
    parsed(page)


def test_the_picture_of_the_machine(tmp_path: Path) -> None:
    """The drawing of `xupc topo` is beside the node tree, not among the facts."""
    made = job("1x8", repetitions=3, launches=1)
    made.about[PICTURE] = draw_nodes(described(describe("2x2x2"), 8, None))
    report(tmp_path, Result(["xupc"], "", True, [], [made]))
    page, text = texts(tmp_path)
    assert page.count("socket 1: threads 4-7, root 4") == 1
    assert "L3 domain 3: threads 6-7, root 6  [ 6 7 ]" in page
    assert text.count("socket 1: threads 4-7, root 4") == 1


def test_what_it_says_of_a_job() -> None:
    """The report names the fastest by construction, ties, losses and noise."""
    made = job("1x2", sizes=[8, 512], collectives=["all_broadcast"], own=0.001, between=0.0)
    small, large = made.cells
    peer = large.candidate("mpi4py")
    peer.ns = [[ns // 3 for ns in times] for times in peer.ns]
    found = Findings(made)
    first, second = found.standings
    assert (first.winner.name, first.winner.ours, first.winner.tied) == ("PUSH", True, False)
    assert (second.winner.name, second.winner.ours) == ("mpi4py", False)
    assert found.counts("mpi4py") == {
        "win": 1, "parity": 0, "unclear": 0, "LOSS": 1, "not resolvable": 0,
    }  # fmt: skip
    push, pull = small.candidate("PUSH"), small.candidate("PULL")
    pull.ns = [list(times) for times in push.ns]
    again = large.candidate("xupc again")
    again.ns = [[round(1.2 * ns) for ns in times] for times in again.ns]
    first, second = Findings(made).standings
    assert first.winner.tied
    assert second.versus[0].verdict == "not resolvable"


def disturb(made: Job, count: int) -> None:
    """Let other processes take half of the cores in some launches, in which xupc is fastest."""
    for k, launch in enumerate(made.launches[:count]):
        launch.others = 0.5
        for cell in made.cells:
            cell.candidate("mpi4py").ns[k] = [10**9] * len(cell.candidate("mpi4py").ns[k])


@pytest.mark.parametrize("compact", [False, True])
def test_disturbed_launches_never_count_for_a_win(tmp_path: Path, compact: bool) -> None:
    """With three others only those count; else there are times, but no verdict and no mean."""
    slow = {"sizes": [8], "factor": lambda name, *_: 1.0 if name == "mpi4py" else 5.0}
    quiet, some, most = (job("1x2", launches=6, **slow) for _ in range(3))
    disturb(some, 3)
    disturb(most, 4)
    quiet.launches, found = quiet.launches[3:], []
    for cell in quiet.cells:
        for candidate in cell.candidates:
            candidate.ns, candidate.wrong = candidate.ns[3:], candidate.wrong[3:]
    for made in (quiet, some, most):
        whole = result(made).compact() if compact else result(made)
        found.append(Findings(whole.jobs[0]))
        report(tmp_path, whole)
    assert [f.decidable for f in found] == [True, True, False]
    assert found[0].counts()["LOSS"] == len(quiet.cells)
    assert found[1].counts() == found[0].counts()
    assert [s.times for s in found[1].standings] == [s.times for s in found[0].standings]
    assert found[2].counts()["not resolvable"] == len(most.cells)
    page, text = texts(tmp_path)  # of `most`
    for said in (page, text):
        assert "there are no verdicts" in said
        assert "geometric mean" not in said
        assert "▲" not in said.split("Against the peer", 1)[0]
    assert not re.search(r'<td class="[^"]*(win|loss)\d', page)


@pytest.mark.parametrize(
    ("differs", "verdict", "mark"), [(0.02, "parity", "="), (0.5, "unclear", "~")]
)
def test_unclear_is_not_equal(tmp_path: Path, differs: float, verdict: str, mark: str) -> None:
    """An interval that holds 1 says that two are level only if it is narrow."""
    made = job("1x2", collectives=["all_broadcast"], sizes=[8], launches=6)
    (cell,) = made.cells
    for candidate in cell.candidates:
        other = candidate.name == "mpi4py"
        candidate.ns = [[int(1000 * (1 + differs * (-1) ** k * other))] for k in range(6)]
        if candidate.kind == OURS and candidate.name != "xupc":
            candidate.ns = [[5000]] * 6
    (standing,) = Findings(made).standings
    assert standing.versus[0].verdict == verdict
    assert (standing.winner.tied, standing.winner.level) == (True, mark == "=")
    report(tmp_path, result(made))
    page, text = texts(tmp_path)
    found = re.search(r"<b>\d\.\d\d (.)</b>", page)
    assert found
    assert found[1] == mark
    assert f"{mark} mpi4py" in page or f"{mark} xupc" in page
    assert f"level within 10% in {int(mark == '=')}" in text
    assert not re.search(r'<td class="[^"]*(win|loss)\d', page)


def test_one_estimator_gives_colours_and_ratios() -> None:
    """A cell has the colour of its ratio, taken within launches, not of a ratio of medians."""
    made = job("1x2", collectives=["all_broadcast"], sizes=[8], launches=6, own=0.0, between=0.0)
    (cell,) = made.cells
    ours, peer = [100, 200, 300, 400, 500, 600], [130, 260, 390, 520, 200, 210]
    for candidate in cell.candidates:
        times = peer if candidate.name == "mpi4py" else ours
        candidate.ns = [[t] for t in times]
    (standing,) = Findings(made).standings
    assert standing.times["mpi4py"].value < standing.times["xupc"].value
    assert standing.winner.against_peers is standing.versus[0]
    assert standing.winner.against_peers.ratio.value > 1


def test_losses_are_marked_by_more_than_colour(tmp_path: Path) -> None:
    """The page marks losses by a sign, text and a frame; Markdown by sign and text."""
    slow = job("1x2", sizes=[8], factor=lambda name, *_: 5.0 if name != "mpi4py" else 1.0)
    whole = result(slow)
    whole.complete, whole.notes = False, ["a note"]
    slow.cells[0].candidates[1].wrong[0] = [1]
    report(tmp_path, whole)
    page, text = texts(tmp_path)
    assert re.search(r'<td class="lost loss3"><b>0\.\d\d ▼ LOSS</b>', page)
    assert "▼ LOSS" in text
    for said in ("incomplete", "a note", "WRONG RESULTS", "(threads 1)"):
        assert said in page
        assert said in text.replace("\\", "")


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "blocks"),
    [("all_broadcast", 1), ("all_scatter", 4), ("all_gather", 4), ("all_gather_all", 4),
     ("all_exchange", 8), ("allav_exchange", 8), ("all_permute", 0), ("all_gather_v", 0),
     ("all_reduce_mpi_all", 1), ("allav_reduce_all", 1), ("all_reduce", 0), ("barrier", 0)],
)  # fmt: skip
def test_bytes_that_have_to_cross(collective: str, blocks: int) -> None:
    """Nodes of 2 and 4 threads, thread 0 the root; counted by hand."""
    shape = Job(6, [[0, 1], [2, 3, 4, 5]])
    assert crossing(shape, Cell(collective, 100, 0)) == 100 * blocks


def test_bound_lines() -> None:
    """Literal times."""
    shape = Job(
        4,
        [[0, 1], [2, 3]],
        about={"cores": 2},
        bounds={
            "copy rate": 1e9,
            "line latency ns": 50.0,
            "wire rate": 1e8,
            "wire latency ns": 1000.0,
        },
    )
    cell = Cell("all_broadcast", 1000, 4000)
    least = {bound.name: bound.least(cell) for bound in bounds_of(shape)}
    assert least == {"cache line": 50.0, "copy": 1000.0, "wire": 11000.0}
    assert bounds_of(NOTHING) == []


# --- plans on a clock -----------------------------------------------------------------------------

RATES = Rates(copy=2.0, line=10.0, wire=0.5, latency=100.0, assumed=())


def _timeline(nodes: list[list[int]], collective: str, nbytes: int, algorithm: str, **cell):
    shape = Job(sum(map(len, nodes)), nodes, about={"transport": "tcp"})
    made = Cell(collective, nbytes, 0, **cell)
    return run(programs(shape, made, Candidate("x", OURS, "", algorithm)), RATES)


def test_copies_between_arriving_and_leaving() -> None:
    """A cache line's latency after the last has come one thread copies; it takes one to leave."""
    found = _timeline([[0, 1]], "all_broadcast", 1 << 20, "push")
    (copied,) = [act for act in found.acts if act.kind == "copy"]
    assert (copied.thread, copied.nbytes) == (0, 2 << 20)
    assert (copied.start, copied.end) == (10.0, 10.0 + (1 << 20))
    assert found.end == 10.0 + (1 << 20) + 10.0
    assert _timeline([[0, 1]], "barrier", 0, "").end == 20.0
    assert _timeline([[0, 1], [2]], "barrier", 0, "").end == 20.0 + 100.0


def test_a_message() -> None:
    """It leaves at the wire's rate and arrives a latency later."""
    found = _timeline([[0], [1]], "all_broadcast_in_place", 1000, "push", sync="nosync")
    (sent,) = [act for act in found.acts if act.kind == "send"]
    (received,) = [act for act in found.acts if act.kind == "receive"]
    assert (sent.thread, sent.peer, sent.start, sent.end) == (0, 1, 0.0, 2000.0)
    assert (received.thread, received.peer, received.start, received.end) == (1, 0, 0.0, 2100.0)


def test_messages_of_a_node_share_its_network() -> None:
    """Messages of two threads of a node leave one after the other."""
    found = _timeline([[0, 1], [2, 3]], "all_exchange", 1 << 16, "push", sync="nosync")
    spans = sorted((a.start, a.end) for a in found.acts if a.kind == "send" and a.thread < 2)
    assert sum(end - start for start, end in spans) == pytest.approx(4 * (1 << 16) / 0.5)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


@pytest.mark.parametrize("nodes", [[[0, 1, 2]], [[0, 2], [1, 3, 4]]], ids=["one", "two"])
def test_every_registered_algorithm_comes_to_its_end(nodes: list[list[int]]) -> None:
    """On a clock no thread waits for ever, and every message that is sent is received."""
    drawn = 0
    for entry in registry.registered():
        name = entry.collective
        if name.endswith(("_v", "_x", "neighbour_exchange")):  # a result has not all arguments
            continue
        name = name if name.startswith("allav") else f"all_{name}"
        for sync in ("allsync", "mysync", "nosync/allsync"):
            found = _timeline(nodes, name, 4096, ALGORITHM_NAMES[entry.flag], sync=sync)
            total = {
                k: sum(a.nbytes for a in found.acts if a.kind == k) for k in ("send", "receive")
            }
            assert total["send"] == total["receive"]
            assert (len(nodes) > 1) or not total["send"]
            drawn += 1
    assert drawn > 80


def test_a_large_job_is_drawn_by_examples(tmp_path: Path) -> None:
    """Of 40 threads on 3 kinds of nodes: two each, and the root."""
    nodes = [list(range(16)), list(range(16, 32)), list(range(32, 40))]
    cell = Cell(
        "all_broadcast",
        1 << 16,
        0,
        root="18",
        candidates=[Candidate("MULTICORE", OURS, "", "multicore", None, [[9, 9]], [[]])],
    )
    report(tmp_path, result(Job(40, nodes, cells=[cell])))
    page, text = texts(tmp_path)
    assert "7 of 40 threads are drawn" in page
    names = re.findall(r"(\d+), (?:node root of|node) (\d)", text)
    assert {int(rank) for rank, _ in names} == {0, 1, 16, 17, 18, 32, 33}


# --- the command ----------------------------------------------------------------------------------


def test_exit_status(tmp_path: Path) -> None:
    """1 for a regression beyond the tolerance, 5 where nothing can be compared, else 0."""
    old = result(job(sizes=[8, 512], seed=1))
    new = result(job(sizes=[8, 512], seed=2, factor=lambda name, *_: 1.2 if name == "PULL" else 1))
    assert report(tmp_path, old, old).exit_code == 0
    done = report(tmp_path, old, new)
    assert done.exit_code == 1
    assert "6 got slower by more than 5%" in done.output
    page, text = texts(tmp_path)
    assert page.count(" ▼</b>") == page.count("<small>REGRESSION</small>") == 6
    assert text.count(", REGRESSION ") == 6
    assert report(tmp_path, old, new, options=("--tolerance", "0.5")).exit_code == 0
    once = result(job(sizes=[8, 512], seed=1, launches=1))
    assert report(tmp_path, once, once).exit_code == 5
    elsewhere = result(job("1x4", sizes=[8, 512], seed=1))
    assert report(tmp_path, old, elsewhere).exit_code == 5
    assert report(tmp_path, old, elsewhere, new).exit_code == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--plan", "all_broadcast"), "expected COLLECTIVE/SIZE"),
        (("--plan", "all_broadcast/9"), "no result has measured"),
        (("--plan", "all_broadcast/8/WARP"), "no result has measured"),
        (("--tolerance", "-1"), "--tolerance"),
        (("--tolerance", "nan"), "--tolerance"),
        (("--tolerance", "inf"), "--tolerance"),
        (("--tolerance", "1e308"), "--tolerance"),
        (("-o", "/nowhere/at/all.html"), "there is no directory /nowhere/at"),
    ],
)
def test_usage(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    """What is wrong is named, with exit status 2."""
    done = report(tmp_path, result(job(sizes=[8], repetitions=3)), options=options)
    assert done.exit_code == 2
    assert words in done.output


def test_what_was_compared_with_a_peer_is_named(tmp_path: Path) -> None:
    found = small("1x2")
    for cell in found.cells:
        cell.candidates = [c for c in cell.candidates if not c.name.startswith("xupc")]
    assert report(tmp_path, result(found)).exit_code == 0
    text = texts(tmp_path)[1]
    assert re.search(r"Against mpi4py xupc's [A-Z]+ wins", text)
    assert re.search(r"time of xupc's [A-Z]+, and its 95% interval", text)


def test_what_else_differs_comes_first(tmp_path: Path) -> None:
    old, new = result(small("1x2")), result(small("1x2", launches=3))
    new.jobs[0].hosts, new.jobs[0].about["mpi"] = ["elsewhere"], "Another 1.0"
    report(tmp_path, old, new)
    text = texts(tmp_path)[1]
    assert "The two differ in more than times: hosts (" in text
    assert "then Another 1.0" in text
    assert "did not take turns" in text


def test_calls_without_figures_are_named_and_not_counted(tmp_path: Path) -> None:
    """They were to be measured, but each launch ended before."""
    found = cut(small("1x2"), 4)  # of 3 calls with blocks of 8, 4096 and 2097152 bytes
    assert report(tmp_path, result(found)).exit_code == 0
    named = (
        "Not measured, since the launches ended before: all_gather_all of 4 KiB, 2 MiB; "
        "all_exchange of 8 B, 4 KiB, 2 MiB."
    )
    for text in texts(tmp_path):
        assert named in text.replace("\\", "")
        assert "4 cells of 2 kinds of call" in text
    report(tmp_path, result(cut(small("1x2"), 0)))
    assert "Nothing was measured." in texts(tmp_path)[1]


def test_a_chosen_plan(tmp_path: Path) -> None:
    """By collective, size and algorithm."""
    made = result(job(sizes=SIZES[:5], repetitions=3))
    report(tmp_path, made, options=("--plan", "all_exchange/4KiB/PULL"))
    assert "all_exchange of 4 KiB by PULL" in texts(tmp_path)[0]


def test_wrong_data_are_an_error(tmp_path: Path) -> None:
    made = result(job(sizes=SIZES[:3], repetitions=3))
    assert report(tmp_path, made).exit_code == 0
    made.jobs[0].cells[0].candidates[0].wrong = [[1]]
    done = report(tmp_path, made)
    assert done.exit_code == 1
    assert "wrong" in done.output


@pytest.mark.parametrize("word", ["", ".", "..", "/"])
def test_a_folder_is_no_result(word: str) -> None:
    done = CliRunner().invoke(cli.main, ["report", "--force", word])
    assert isinstance(done.exception, SystemExit), done.exception  # no traceback
    assert done.exit_code == 2


def test_a_damaged_file(tmp_path: Path) -> None:
    """The error names it."""
    path = tmp_path / "broken.json"
    path.write_text('{"format": "xupc-bench", "version": 1}')
    done = CliRunner().invoke(cli.main, ["report", str(path)])
    assert done.exit_code == 2
    assert f"{path}: result: 'command' is missing" in " ".join(done.output.split())


@pytest.mark.parametrize("option", ["-o", "--markdown", "--compact", ""])
def test_no_file_is_replaced_without_force(tmp_path: Path, option: str) -> None:
    """Not the default page either, nor the result itself; devices are no files."""
    path = tmp_path / "r.json"
    result(small("1x2")).save(path)
    out = path if option == "--compact" else tmp_path / "r.html"
    words = ["report", str(path), *([option, str(out)] if option else [])]
    if option != "--compact":
        out.write_text("mine")
    before = out.read_bytes()
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 2
    assert "it exists" in done.output
    assert "--force" in done.output
    assert out.read_bytes() == before
    assert CliRunner().invoke(cli.main, [*words, "--force"]).exit_code == 0
    assert out.read_bytes() != before
    assert CliRunner().invoke(cli.main, ["report", str(path), "-o", "/dev/null"]).exit_code == 0


def test_the_contents_name_every_part(tmp_path: Path) -> None:
    """Each link has its place, once, and each part of a job its link."""
    for jobs in ([small("1x2"), small("4x4", peers=())], [NOTHING]):
        report(tmp_path, result(*jobs), result(*jobs))
        page = texts(tmp_path)[0]
        links = re.findall(r'href="#([^"]+)"', page)
        assert sorted(links) == sorted(re.findall(r'<h[23] id="([^"]+)"', page))
        assert len(links) == len(set(links))


def test_mpi_names_are_beside_ours(tmp_path: Path) -> None:
    report(tmp_path, result(small("1x2", collectives=["allav_broadcast", "all_exchange"])))
    for said in texts(tmp_path):
        assert "allav_broadcast · Bcast" in said
        assert "all_exchange · Alltoall" in said


# --- which flag -----------------------------------------------------------------------------------


def advice(*, busy: int = 0, **factors: float) -> list[tuple[str, str, str]]:
    """Return what is recommended where candidates take these multiples of 1 µs."""
    made = job("1x2", collectives=["all_broadcast"], sizes=[8, 64, 512], launches=6, peers=())
    for launch in made.launches[:busy]:
        launch.others = 0.5
    noise = [0.99, 1.01, 1.0, 1.005, 0.995, 1.0]
    for cell in made.cells:
        cell.candidates = [c for c in cell.candidates if c.name in ("xupc", "xupc again", *factors)]
        for k, candidate in enumerate(cell.candidates):
            times = 1000 * factors.get(candidate.name, factors["xupc"])
            candidate.ns = [[round(times * noise[(i + k) % 6])] for i in range(6)]
            if candidate.name == "PULL" and cell.nbytes == 512:
                candidate.ns = [[x * 5 for x in ns] for ns in candidate.ns]
    return [(a.sizes, a.flag, a.why) for a in advised(Findings(made))]


def test_which_flag_by_how_much() -> None:
    """Neighbouring sizes are one line; no flag is recommended that is not clearly faster."""
    assert advice(xupc=2.0, PULL=1.0, PUSH=3.0) == [
        ("8 B to 64 B", "PULL", "2.01 times as fast as without a flag"),
        ("512 B", "no flag", "no flag is more than 5% faster than the library's own choice"),
    ]
    assert [flag for _, flag, _ in advice(xupc=1.0, PULL=1.0, PUSH=1.0)] == ["no flag"]
    assert [flag for _, flag, _ in advice(xupc=1.04, PULL=1.0)] == ["no flag"]
    ((sizes, flag, why),) = advice(busy=4, xupc=2.0, PULL=1.0, PUSH=1.0)[:1]
    assert (sizes, flag) == ("8 B to 512 B", "no flag")
    assert why.startswith("not clear: ")
    assert advice(xupc=1.0) == []


def test_a_page_without_a_peer_answers_which_flag(tmp_path: Path) -> None:
    """The answer is the first table of the page."""
    report(tmp_path, result(job("1x2", peers=(), sizes=[8, 512])))
    page, text = texts(tmp_path)
    assert page.index("<table") == page.index('<table class="advice">')
    assert text.index("### Which flag") < text.index("### Fastest of each call")
    assert "recommended" in text


def test_without_jinja2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page needs jinja2, and the error names it; Markdown needs nothing."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = report(tmp_path, result(NOTHING))
    assert done.exit_code == 4
    assert "pip install jinja2" in done.output
    out = str(tmp_path / "only.md")
    only = ["report", str(tmp_path / "r0.json"), "--markdown", out]
    assert CliRunner().invoke(cli.main, only).exit_code == 1  # there is nothing in it
    assert Path(out).exists()


# --- charts ---


@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
@pytest.mark.parametrize("kind", ["one node", "barrier", "odd arguments", "no peers, no bounds"])
def test_charts_are_what_vega_draws(tmp_path: Path, kind: str) -> None:
    """No chart has a warning; its drawing has all names and a tooltip for each value."""
    report(tmp_path, result(*KINDS[kind]()))
    specs = charts_of(texts(tmp_path)[0])
    assert specs
    for spec, drawing in zip(specs, drawings(specs, tmp_path), strict=True):
        whole = ElementTree.fromstring(drawing)
        texts_drawn = {"".join(each.itertext()) for each in whole.iter() if each.tag[-4:] == "text"}
        rows = spec["data"]["values"]
        assert {row["name"] for row in rows} <= texts_drawn
        assert {row["label"] for row in rows if "label" in row} <= texts_drawn
        assert "var(--ink)" in drawing
        assert "NaN" not in drawing


def test_tables_wider_than_a_small_screen_say_that_they_scroll(tmp_path: Path) -> None:
    for sizes, classes in (([8, 64], ""), ([8, 64, 512], " many"), (LONG, " many wide")):
        report(tmp_path, result(job("1x2", sizes=sizes, launches=1, repetitions=3)))
        caption = 'tabindex="0" role="group" aria-label="The fastest way'
        assert f'<div class="scroll{classes}" {caption}' in texts(tmp_path)[0]


def test_charts_hold_the_times_of_the_tables(tmp_path: Path) -> None:
    made = small("1x2")
    report(tmp_path, result(made))
    latency = charts_of(texts(tmp_path)[0])[0]
    standing = Findings(made).standings[0]
    found = {
        row["name"]: row["value"] for row in latency["data"]["values"]
        if row["size"] == standing.cell.nbytes
    }  # fmt: skip
    assert len(found) > 5
    assert found.items() <= {name: e.value for name, e in standing.times.items()}.items()


# --- in a browser ---------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)  # fmt: skip
FRAME = """<!DOCTYPE html><body><script>
const frame = document.createElement("iframe");
frame.style = "width: WIDTHpx; height: 800px; border: 0";
frame.onload = () => {
  const page = frame.contentDocument.documentElement;
  document.body.dataset.found = [page.scrollWidth, page.clientWidth].join(" ");
};
frame.src = "OUT.html";
document.body.append(frame);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [390, 1400])
def test_drawn_by_a_browser(tmp_path: Path, width: int) -> None:
    """Without errors and without scrolling sideways."""
    report(tmp_path, result(*KINDS["several jobs"](), *KINDS["a hundred cells"]()))
    (tmp_path / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-sync", "--disable-background-networking", "--disable-component-update",
        "--enable-logging=stderr", "--allow-file-access-from-files", "--dump-dom",
    ]  # fmt: skip
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *flags, profile, tmp_path / "frame.html"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    found = re.search(r'data-found="(\d+) (\d+)"', done.stdout)
    assert found, done.stdout
    whole, seen = map(int, found.groups())
    assert whole == seen > width - 30  # a scroll bar's width
