"""The parts of `xupc demo`: its folder, its headline, its page; no jobs."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.bench_results import cut, job, result
from support.vega_drawing import NODE, plot_width

from xupc import cli
from xupc.bench.results import Job
from xupc.bench.settings import Shape
from xupc.cli import demo
from xupc.cli.demo import FILES, MARK, Folder
from xupc.cli.example_jobs import example
from xupc.report.demo_page import Story, doubts, headline, render
from xupc.report.findings import Findings
from xupc.report.ratio_chart import ratio_chart

PAGES = dict.fromkeys(FILES, b"new")


def compared(factor: float, *, busy: int = 0, launches: int = 6) -> Job:
    """A job in which xupc takes `factor` times as long as by the rule."""
    made = job(
        "1x2", collectives=["allav_broadcast", "allav_exchange"], sizes=[8], launches=launches,
        factor=lambda name, *_: 1.0 if name == "mpi4py" else factor,
    )  # fmt: skip
    for launch in made.launches[:busy]:
        launch.others = 0.5
    return made


# ---- the folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_where_errors_are_suppressed(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in importlib's look-up of a package, which made a signal between jobs be lost."""

    def step(_at: Path) -> list[str]:
        with contextlib.suppress(Exception):
            signal.raise_signal(number)
        raise AssertionError("the demo goes on")

    monkeypatch.setattr(demo, "_picture", step)
    done = CliRunner().invoke(cli.main, ["demo", "-o", str(tmp_path / "page"), "--no-open"])
    assert done.exit_code == 128 + number, done.output
    assert done.output.endswith(f"xupc demo: ended by {number.name}; nothing was written\n")
    assert [*tmp_path.iterdir()] == []


def test_a_former_demo_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "there"
    for _ in range(2):
        assert Folder(target, force=False).write(PAGES) == target / "index.html"
    assert {path.name for path in target.iterdir()} == {*FILES, MARK}


@pytest.mark.parametrize("name", FILES)
def test_files_of_a_user_are_not_overwritten(tmp_path: Path, name: str) -> None:
    """The error names the file and the remedy; --force replaces the file."""
    (tmp_path / name).write_text("mine")
    done = CliRunner().invoke(cli.main, ["demo", "-o", str(tmp_path)])
    assert done.exit_code == 2
    assert f"expected no {name} in it" in done.output
    assert "--force" in done.output
    assert (tmp_path / name).read_text() == "mine"
    Folder(tmp_path, force=True).write(PAGES)
    assert (tmp_path / name).read_bytes() == b"new"


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    Folder(tmp_path, force=False).write(PAGES)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(click.UsageError):
            Folder(path, force=True)


def test_a_wheel_has_the_examples_that_the_demo_runs() -> None:
    root = Path(demo.__file__).parents[2]
    runs = re.findall(r'_ran\("([\w.]+)"', Path(demo.__file__).read_text())
    copied = re.search(r"^DEMO = (.*)$", (root / "setup.py").read_text(), re.MULTILINE)
    assert copied
    assert len(runs) == 2
    assert sorted(runs) == sorted(re.findall(r'"([\w.]+)"', copied[1]))
    assert all(example(name).exists() for name in runs)


# ---- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (compared(0.3), "xupc is faster than mpi4py in 2 of 2 measurements ("),
        (compared(3.0), "xupc is faster than mpi4py in 0 of 2 measurements, slower in 2 ("),
        (compared(0.3, launches=2), "in 0 of 2 measurements, slower in 0; 2 cannot be decided"),
        (compared(0.3, busy=4), "No verdict on xupc and mpi4py: other processes disturbed"),
        (Job(2, [[0, 1]]), "Nothing was compared with mpi4py"),
    ],
)
def test_the_headline_says_what_was_found(made: Job, words: str) -> None:
    assert words in headline(Findings(made))


def test_calls_that_the_budget_left_out_are_named() -> None:
    """The text and the page name them; they have no row."""
    found = result(cut(compared(0.3), 1))
    named = "Not measured, since the launches ended before: allav_exchange of 8 B."
    assert named in doubts(found)
    page = render(Story(found, Shape(4, "2x2"), 64_000, b"before", b"after", [], ""))
    assert named in page
    assert "in 1 of 1 measurements" in page


def test_the_chart_marks_what_is_no_win() -> None:
    for factor, colour, said in ((0.3, "var(--blue)", ""), (3.0, "var(--red)", ", LOSS")):
        drawn = ratio_chart(Findings(compared(factor)).standings, "mpi4py")
        assert drawn is not None
        rows = drawn["data"]["values"]
        assert [row["colour"] for row in rows] == 2 * [colour]
        assert all(row["label"].endswith(said or "×") for row in rows)
        assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert ratio_chart([], "mpi4py") is None


@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
def test_the_chart_has_room_for_its_values_on_a_phone(tmp_path: Path) -> None:
    drawn = ratio_chart(Findings(compared(0.3, launches=2)).standings, "mpi4py")
    assert drawn is not None
    assert all(row["label"].endswith("not resolvable") for row in drawn["data"]["values"])
    assert plot_width(drawn, 370, tmp_path) > 120
    assert plot_width(drawn, 736, tmp_path) > 350


def test_the_page_has_the_plan_of_the_picture() -> None:
    """The measurement has one node, the picture two. Text is escaped."""
    story = Story(
        result(compared(0.3)), Shape(4, "2x2"), 64_000, b"before", b"after", ["<PULL>"], "<error>"
    )
    page = render(story)
    assert 'aria-label="timeline of a plan"' in page
    assert page.count('class="node"') == 2
    assert "&lt;PULL&gt;" in page
    assert "&lt;error&gt;" in page
    assert "not drawn" not in page
