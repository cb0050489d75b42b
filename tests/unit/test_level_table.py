"""Each collective has a variant by levels, or docs/design/levels.md says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xupc.algorithms.conditions import text_of
from xupc.algorithms.registry import Variant, collectives, find
from xupc.backends.simulator.timeline import run
from xupc.flags import MULTICORE
from xupc.predict import machine_file
from xupc.predict.candidates import Question, choice_of, variants_of
from xupc.predict.price import programs_of
from xupc.tuning.selection_file import built_in

PAGE = Path(__file__).parents[2] / "docs" / "design" / "levels.md"
ROW = re.compile(r"^\| (`.*`) \| (.*) \| (.*) \|$", re.MULTILINE)
TABLE = {
    name: (inside, across)
    for names, inside, across in ROW.findall(PAGE.read_text(encoding="utf-8"))
    for name in re.findall(r"`([a-z_]+)`", names)
}
WRITTEN = "`levels`"


def by_levels(collective: str) -> Variant | None:
    return next((v for v in find(collective, MULTICORE).variants if v.label == "levels"), None)


def test_the_table_has_each_collective_once() -> None:
    assert sorted(TABLE) == collectives()


@pytest.mark.parametrize("collective", collectives())
def test_it_says_what_the_registry_has(collective: str) -> None:
    variant = by_levels(collective)
    inside, across = TABLE[collective]
    condition = text_of(variant.applies) if variant else ""
    one_node_only = condition.startswith("One node") and not condition.startswith("One node, or")
    assert (inside == WRITTEN) == (variant is not None)
    assert (across == WRITTEN) == (variant is not None and not one_node_only)


@pytest.mark.parametrize("transport", ["tcp", "fabric"])
@pytest.mark.parametrize("nodes", [9, 16, 33])
def test_scans_on_many_nodes_take_it(nodes: int, transport: str) -> None:
    """The model finds it shorter than a tree of threads by a fifth, so the table names it."""
    for form in ("all_prefix_reduce", "all_exclusive_suffix_reduce"):
        asked = Question(form, 8, f"{nodes}x2", 2 * nodes, "mpich", transport)
        name, rule = choice_of(asked, built_in())
        assert (name, rule.source) == ("multicore:levels", "modelled")
        rates = machine_file.find("gigabit" if transport == "tcp" else "default").rates()
        times = {
            variant.name: run(programs_of(variant, call), rates).end
            for variant, call in variants_of(asked, built_in())
            if variant.name in ("multicore:levels", "multicore:push")
        }
        assert times["multicore:levels"] < 0.8 * times["multicore:push"]


def test_what_is_missing_has_a_reason() -> None:
    reasons = {cell for row in TABLE.values() for cell in row if cell != WRITTEN}
    assert all(len(reason.split()) >= 5 for reason in reasons)
