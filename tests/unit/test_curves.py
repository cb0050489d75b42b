"""Scaling curves: their shapes and sizes, and the page that draws them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.report_page import without_library
from support.vega_drawing import NODE, charts_of, drawings

from xupc import cli
from xupc.api.algorithms import load_files
from xupc.predict import machine_file
from xupc.predict.candidates import Known, Question, candidates, priced
from xupc.predict.curves import SIZES, Curve, curves, node_counts
from xupc.predict.page import render
from xupc.tuning.selection_file import built_in

DEFAULT = machine_file.find("default")


def question(collective: str, nodes: int, nbytes: int) -> Question:
    return Question(collective, nbytes, f"{nodes}x2", 2 * nodes, "mpich", "fabric")


def made(collective: str, names: tuple[str, ...], nbytes: int, nodes: int = 8) -> list[Curve]:
    load_files()
    return curves([question(collective, nodes, nbytes)], names, 2, DEFAULT, built_in())


def test_nodes_double_up_to_64() -> None:
    assert node_counts(6) == [1, 2, 4, 6]
    assert node_counts(1) == [1]
    assert node_counts(10_000) == [1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096, 10_000]


def test_blocks_get_shorter_where_all_data_keep_their_size() -> None:
    def strong(collective: str) -> list[int]:
        found = made(collective, ("push",), 1024)
        return [p.nbytes for c in found if c.title.startswith("Strong") for p in c.points]

    assert strong("all_gather_all") == [1024, 512, 256, 128]
    assert strong("all_exchange") == [1024, 256, 64, 16]  # with the square of the threads
    assert strong("all_broadcast") == []  # the block is all of the data


def test_curves_have_the_prices_of_single_calls() -> None:
    by_size, weak = made("allav_broadcast", ("multicore:chain", "multicore:binomial"), 4096)
    assert (by_size.sizes, weak.sizes) == (True, False)
    assert {p.x for p in by_size.points} == {*SIZES, 4096}
    assert [p.x for p in weak.points if p.name == "multicore:chain"] == [2, 4, 8]
    assert any("multicore:chain, 1x2" in words for words in weak.missing)
    for point in weak.points:
        asked = question("allav_broadcast", point.x, 4096)
        found = next(c for c in candidates(asked, DEFAULT, built_in()) if c.name == point.name)
        assert (point.time, point.low, point.high) == (found.time, found.low, found.high)


def test_known_prices_are_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    load_files()
    known: Known = {}
    asked = question("allav_broadcast", 600, 64)
    first = priced(asked, "multicore:binomial", DEFAULT, built_in(), known)
    assert first.how
    monkeypatch.setattr("xupc.predict.candidates.Prepared", None)
    monkeypatch.setattr("xupc.predict.candidates.price", None)
    assert priced(asked, "multicore:binomial", DEFAULT, built_in(), known) == first


@pytest.mark.skipif(NODE is None, reason="there is no Node.js")
def test_charts_are_what_vega_draws(tmp_path: Path) -> None:
    names = ("multicore:chain", "multicore:binomial")
    page = render("allav_broadcast", "8x2", DEFAULT, made("allav_broadcast", names, 4096))
    specs = charts_of(page)
    assert len(specs) == 2
    for spec, drawing in zip(specs, drawings(specs, tmp_path), strict=True):
        assert all(name in drawing for name in names)
        assert "NaN" not in drawing
        for row in spec["data"]["values"]:
            assert row["low"] <= row["value"] <= row["high"]
            assert "bound by" in row["said"]


def xupc(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["predict", *words])


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    path = tmp_path / "curves.html"
    call = ("Allgather", "--nodes", "4x2", "--size", "64", "--page", str(path))
    done = xupc(*call)
    assert done.exit_code == 0, done.output
    page = path.read_text()
    rest = without_library(page)
    assert "<script>" not in rest
    assert "://" not in rest
    every = len(machine_file.MEANING)
    for words in ("Time by size", "Weak scaling, blocks of 64 B", "Strong scaling", "wire_latency",
                  "the table&#39;s choice", f"{every} of {every} values assumed"):  # fmt: skip
        assert words in rest
    again = xupc(*call)
    assert again.exit_code == 2
    assert "--force" in again.output
    assert xupc(*call, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Bcast", "--nodes", "3,1,4"], "expected equal nodes such as 64x16, got --nodes 3,1,4"),
        (["t.json", "--nodes", "2x2"], "expected a COLLECTIVE, got a trace"),
    ],
)
def test_a_page_needs_equal_nodes(words: list[str], said: str, tmp_path: Path) -> None:
    done = xupc(*words, "--page", str(tmp_path / "x.html"))
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "x.html").exists()
