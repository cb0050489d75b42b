"""What the tests' own helpers decide: which live tests are repeated, and what may use the pool."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.launch import program_file
from support.pool import fits
from support.progress import clock
from support.selection import LONG, by_threads, mark_live


class Item:
    """Stand in for a collected test, as far as `mark_live` looks at it."""

    def __init__(self, file: str, name: str, *, once: bool = False, **params: Any) -> None:
        self.path, self.name, self.once = Path(f"tests/live/{file}.py"), name, once
        self.callspec, self.marks = SimpleNamespace(params=params), set[str]()

    def add_marker(self, mark: str) -> None:
        """Note a mark."""
        self.marks.add(mark)

    def get_closest_marker(self, name: str) -> bool | None:
        """Return a mark that the test has by itself."""
        return True if self.once and name == "once" else None


def test_each_feature_is_repeated_in_one_shape_which_has_nodes_if_any_has() -> None:
    items = [
        Item("test_data", "test_plans", threads=4, nodes=None),
        Item("test_data", "test_plans", threads=3, nodes="2,1"),
        Item("test_data", "test_plans", threads=4, nodes="2,2", once=True),
        Item("test_data", "test_other", threads=4, nodes=None),
        Item("test_posted", "test_posted", what="a", nodes=None),
        Item("test_posted", "test_posted", what="b", nodes=None),
    ]
    mark_live(items)  # type: ignore[arg-type]
    assert [item.marks for item in items] == [
        {"other_shape", "other_case", "one_node"}, set(), {"further_shape"}, {"one_node"},
        {"one_node"}, {"other_case", "one_node"},
    ]  # fmt: skip


def test_a_feature_has_one_test_on_one_node_and_one_on_several() -> None:
    nodes = [None, None, "2,1", "1,1,1"]
    items = [Item("test_data", "test_a", threads=n, nodes=nodes[n]) for n in range(4)]
    labels = ["000", "0011", "01201"]
    items += [Item("test_random_programs", "test_b", labels=text) for text in labels]
    items += [Item("test_mpi_progress", "test_c", shape=text) for text in ("2", "4", "1,1", "2,1")]
    items += [Item("test_in_place", "test_d", nodes="2,1", once=once) for once in (True, False)]
    mark_live(items)  # type: ignore[arg-type]
    further = [i for i, item in enumerate(items) if "further_shape" in item.marks]
    other = [i for i, item in enumerate(items) if "other_shape" in item.marks]
    assert further == [1, 3, 6, 8, 10, 11]
    assert other == [0, 1, 3, 4, 6, 7, 8, 10]


def test_a_feature_is_tested_with_several_threads_if_it_can_be() -> None:
    items = [Item("test_drop_in", "test_a", check=check, n=n) for n in (1, 2, 3) for check in "ab"]
    items += [Item("test_reduce", "test_b", threads=n, nodes=None, once=True) for n in (1, 4)]
    mark_live(items)  # type: ignore[arg-type]
    found = [i for i, item in enumerate(items) if "further_shape" not in item.marks]
    assert found == [2, 3, 7]


def test_what_waits_and_what_goes_wrong_is_repeated_on_the_other_mpi() -> None:
    items = [Item("test_death", "test_a", nodes=None), Item("test_memory", "test_b", nodes=None),
             Item("test_data", "test_c", threads=2), Item("test_run_ends", "test_d")]  # fmt: skip
    mark_live(items)  # type: ignore[arg-type]
    assert [item.marks for item in items] == [{"waits"}, set(), set(), {"launcher"}]


def test_what_sets_its_engine_is_not_repeated_with_another_one() -> None:
    items = [Item("test_variants", "test_a", engine=engine, n=2) for engine in ("native", "python")]
    items += [Item("test_level_barriers", "test_b", n=2), Item("test_data", "test_c", n=2)]
    mark_live(items)  # type: ignore[arg-type]
    assert ["own_engine" in item.marks for item in items] == [True, True, True, False]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"env": {"XUPC_ENGINE": "python", "XDG_CONFIG_HOME": "/x"}}, True),
        ({"env": {"LD_PRELOAD": "x.so"}}, False),
        ({"via": "xupc run"}, False),
        ({"launcher_args": ["-v"]}, False),
        ({"python": "/other/python"}, False),
        ({"n": 64}, False),
    ],
)
def test_what_may_run_in_the_pool(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], expected: bool
) -> None:
    monkeypatch.setattr("support.pool.OFF", False)
    assert fits(**{"n": 2, **options}) is expected


def test_seconds_as_a_clock_shows_them() -> None:
    assert [clock(s) for s in (-1, 0, 59.6, 61, 600)] == ["0:00", "0:00", "1:00", "1:01", "10:00"]


def test_a_program_is_a_file() -> None:
    """Text would be seen by no checker of types or style."""
    assert program_file("tests/live/programs/many_nodes.py").is_file()
    for text in ("import xupc; xupc.init()", "pass\n", "tests/live/programs/no_such_program.py"):
        with pytest.raises(ValueError, match="expected a file"):
            program_file(text)


def test_the_long_tests_are_there() -> None:
    """One that is renamed would come last again."""
    tests = Path(__file__).parents[1]
    texts = [file.read_text(encoding="utf-8") for file in tests.glob("*/test_*.py")]
    found = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)}
    assert found >= LONG


def test_live_tests_of_as_many_threads_follow_each_other() -> None:
    items = [
        Item("test_data", "test_a", threads=4), Item("test_launch", "test_b"),
        Item("test_level_barriers", "test_c", labels="00011"), Item("test_values", "test_d", n=2),
        Item("test_data", "test_e", threads=4),
    ]  # fmt: skip
    by_threads(items)  # type: ignore[arg-type]
    assert [item.name[-1] for item in items] == ["b", "d", "a", "e", "c"]
