"""What the tests' own helpers decide: which live tests are repeated, and what may use the pool."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import rotation, soak, speed
from support.launch import import_path, program_file
from support.pool import fits
from support.progress import clock
from support.rotation import repeated, rotated
from support.selection import COSTLY, LONG, by_threads, mark_live
from support.speed import slowness


class Item:
    """Stand in for a collected test, as far as `mark_live` looks at it."""

    def __init__(self, file: str, name: str, *, once: bool = False, **params: Any) -> None:
        self.path, self.name, self.once = Path(f"tests/live/{file}.py"), name, once
        self.callspec, self.marks = SimpleNamespace(params=params), set[str]()
        self.nodeid = f"{self.path}::{name}[{'-'.join(map(str, params.values()))}]"
        self.rotates: Any = None

    def add_marker(self, mark: Any) -> None:
        """Note a mark."""
        if isinstance(mark, str):
            self.marks.add(mark)
        else:
            self.rotates = mark

    def get_closest_marker(self, name: str) -> Any:
        """Return a mark that the test has by itself."""
        return {
            "once": self.once or None, "rotates": self.rotates,
            "takes_turns": "takes_turns" in self.marks or None,
        }[name]  # fmt: skip


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


def test_the_long_and_the_costly_tests_are_there() -> None:
    """One that is renamed would come last again, or be in each run."""
    tests = Path(__file__).parents[1]
    texts = [file.read_text(encoding="utf-8") for file in tests.glob("*/test_*.py")]
    found = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)}
    assert found >= LONG | COSTLY


def test_live_tests_of_as_many_threads_follow_each_other() -> None:
    items = [
        Item("test_data", "test_a", threads=4), Item("test_launch", "test_b"),
        Item("test_level_barriers", "test_c", labels="00011"), Item("test_values", "test_d", n=2),
        Item("test_data", "test_e", threads=4),
    ]  # fmt: skip
    by_threads(items)  # type: ignore[arg-type]
    assert [item.name[-1] for item in items] == ["b", "d", "a", "e", "c"]


# --- the share of a run ---------------------------------------------------------------------------
def rotating(*names: str, **counts: int) -> list[Any]:
    """Return tests with all combinations of parameters, which rotate in those of these names."""
    items = [
        Item("test_data", "test_a", **dict(zip(counts, values, strict=True)))
        for values in itertools.product(*map(range, counts.values()))
    ]
    for item in items:
        item.rotates = pytest.mark.rotates(*names)
    return items


def test_a_run_has_a_share_and_another_seed_has_another_one() -> None:
    items = rotating(case=20)
    found = [rotated(items, 4, seed) for seed in range(60)]
    assert {len(kept) for kept in found} == {5}
    assert set.union(*found) == {item.nodeid for item in items}
    assert rotated(items[::-1], 4, 7) == found[7]
    times = Counter(name for kept in found for name in kept)
    assert 5 < min(times.values()) <= max(times.values()) < 30  # 15 in the mean


def test_what_does_not_rotate_is_in_every_run() -> None:
    item = Item("test_data", "test_b", n=1)
    assert item.nodeid in rotated([item, *rotating(case=20)], 4, 1)
    items = rotating(case=20)
    assert rotated(items, 1, 1) == {item.nodeid for item in items}


def test_in_a_quick_run_every_function_rotates_and_stays() -> None:
    items = [Item("test_data", f"test_{x}", n=n) for x in "bc" for n in range(8)]
    items += rotating("n", form=3, n=8)  # of test_a
    seen = set()
    for seed in range(60):
        kept = [item for item in items if item.nodeid in rotated(items, 4, seed, every=True)]
        functions = Counter(item.nodeid.partition("[")[0] for item in kept)
        assert sorted(functions.values()) == [2, 2, 6]
        seen |= {item.nodeid for item in kept}
    assert seen == {item.nodeid for item in items}


def test_each_combination_of_the_other_parameters_stays() -> None:
    items = rotating("n", form=3, n=8)
    for seed in range(10):
        kept = [item for item in items if item.nodeid in rotated(items, 4, seed)]
        assert Counter(item.callspec.params["form"] for item in kept) == {0: 2, 1: 2, 2: 2}


def test_a_group_that_is_small_or_does_not_divide() -> None:
    """One of two stays; of six one or two, so that each is in one of four runs."""
    assert {len(rotated(rotating(n=2), 4, seed)) for seed in range(20)} == {1}
    sizes = Counter(len(rotated(rotating(n=6), 4, seed)) for seed in range(400))
    assert sizes.keys() == {1, 2}
    assert abs(sizes[2] - 200) < 60


def test_costly_functions_take_turns_and_others_stay() -> None:
    """Without a share, and in a quick run, all stay; a file of each has another function."""
    costly = [Item("test_bench", name, n=n) for name in sorted(COSTLY) for n in (2, 3)]
    items = [Item("test_bench", "test_a"), *costly]
    mark_live(items)  # type: ignore[arg-type]
    assert [i for i, item in enumerate(items) if "takes_turns" not in item.marks] == [0]
    turns = Counter[str]()
    for seed in range(40):
        kept = [item for item in items if item.nodeid in rotated(items, 4, seed)]
        assert kept[0] is items[0]
        turns.update(item.name for item in kept[1:])
        assert len(kept) - 1 in (len(COSTLY) // 4, -(-len(COSTLY) // 4))
    assert turns.keys() == COSTLY
    assert len(rotated(items, 1, 1)) == len(items)
    functions = {item.partition("[")[0] for item in rotated(items, 4, 1, every=True)}
    assert len(functions) == 1 + len(COSTLY)


def test_a_name_that_is_no_parameter_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match=r"no parameter node$"):
        rotated(rotating("node", nodes=2), 4, 1)


def test_a_live_test_rotates_in_its_shapes() -> None:
    """Each feature stays, on one node or on several; a test with no shape always."""
    items = [Item("test_posted", "test_posted", what=what, nodes=nodes)
             for what in "ab" for nodes in (None, "2,1")]  # fmt: skip
    items.append(Item("test_posted", "test_c", what="c"))
    mark_live(items)  # type: ignore[arg-type]
    assert items[0].rotates.args == ("nodes",)
    seen = set()
    for seed in range(20):
        kept = [i for i, item in enumerate(items) if item.nodeid in rotated(items, 4, seed)]
        assert [i // 2 for i in kept] == [0, 1, 2]
        seen |= {*kept}
    assert seen == {0, 1, 2, 3, 4}


def test_what_is_repeated_has_a_part_of_the_functions_of_each_file() -> None:
    """All tests of a function stay or go; each file keeps one function at least."""
    items = [Item("test_data", f"test_{x}", n=n) for x in "abcd" for n in (1, 2)]
    items.append(Item("test_values", "test_e"))
    seen = Counter[str]()
    for seed in range(40):
        kept = [item.name for item in items if item.nodeid in repeated(items, 2, seed)]
        assert len(kept) == 5
        assert {*Counter(kept[:4]).values()} == {2}
        assert kept[4] == "test_e"
        seen.update(kept)
    assert min(seen.values()) > 20


def test_a_run_of_everything_repeats_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "REPEATED", 4)
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    for one_of, number in ((1, 4), (4, 1)):
        monkeypatch.setattr(rotation, "ONE_OF", one_of)
        items: Any = [Item("test_data", f"test_{x}") for x in "abcd"]
        rotation.Rotation().pytest_collection_modifyitems(config, items)
        assert len(items) == number


def test_a_share_of_cases_is_drawn_with_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*range(100)]
    assert soak.share_of(cases) == cases or soak.ONE_OF > 1
    monkeypatch.setattr(soak, "ONE_OF", 4)
    assert (soak.share(10), soak.share(3)) == (2, 1)
    found = []
    for seed in range(40):
        monkeypatch.setattr(soak, "_SEED", seed)
        found.append(soak.share_of(cases))
    assert all(len(some) == 25 and some == sorted(some) for some in found)
    assert {x for some in found for x in some} == {*cases}


def test_how_slow_the_machine_is() -> None:
    """A fast one has the usual limits; what hangs ends some time on a slow one, too."""
    usual = speed.USUAL
    assert [slowness(n * usual) for n in (0.5, 1, 2, 100)] == [1.0, 1.0, 2.0, speed.MOST]


def test_processes_of_a_run_inherit_how_slow_the_machine_is() -> None:
    code = "import os; from support.speed import SLOW; print(SLOW, os.environ['XUPC_TEST_SLOW'])"
    path = import_path()
    for given, expected in (("2.5", "2.5 2.5\n"), ("", None)):
        environment = {**os.environ, "PYTHONPATH": path, "XUPC_TEST_SLOW": given}
        said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        first, second = said.split()
        assert said == (expected or said)
        assert 1.0 <= float(first) == float(second) <= max(speed.MOST, float(given or 0))
