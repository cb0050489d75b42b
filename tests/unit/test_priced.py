"""The rules of the built-in table that the model made, and that the model still says the same."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from xupc import cli
from xupc.algorithms import registry
from xupc.backends.simulator.timeline import run
from xupc.predict import machine_file
from xupc.predict.candidates import Question, choice_of, chosen, variants_of
from xupc.predict.price import programs_of
from xupc.tuning.selection import Place
from xupc.tuning.selection_file import TEXT_OF_PRICED, built_in

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    """Return scripts/priced.py, which is no module of the library."""
    spec = importlib.util.spec_from_file_location("priced", ROOT / "scripts" / "priced.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


registry.registered()  # in the order in which the library lists variants, for tests after these
priced = _script()
CELLS = [
    (transport, collective, nodes, nbytes)
    for transport, collective in priced.PAIRS
    for nodes, nbytes in priced.cells_of(collective)
]


def test_the_rules_follow_from_the_prices() -> None:
    assert priced.text() == TEXT_OF_PRICED.read_text(encoding="utf-8"), (
        "run: python scripts/priced.py rules > xupc/tuning/priced.toml, then the built-in table"
    )


def test_every_cell_has_a_price() -> None:
    stored = json.loads(priced.PRICES.read_text(encoding="utf-8"))
    for transport, collective, nodes, nbytes in CELLS:
        assert len(stored[transport][collective][str(nodes)][str(nbytes)]) >= 1


def test_the_prices_are_those_of_the_model() -> None:
    """Some cells of each transport and collective, priced again."""
    draw = random.Random("priced")
    few = [cell for cell in CELLS if cell[2] <= 16 and cell[3] <= 1 << 12]
    stored = json.loads(priced.PRICES.read_text(encoding="utf-8"))
    for transport, collective in priced.PAIRS:
        cell = draw.choice([c for c in few if c[:2] == (transport, collective)])
        now = priced.prices_of(*cell)
        before = stored[transport][collective][str(cell[2])][str(cell[3])]
        assert now == pytest.approx(before, rel=1e-6), (
            f"run: python scripts/priced.py prices {transport} {collective}"
        )


@pytest.mark.parametrize(("transport", "collective"), priced.PAIRS)
def test_the_table_takes_what_is_cheap(transport: str, collective: str) -> None:
    """At every priced size the choice is within `CLOSE` of the cheapest variant."""
    stored, table = priced.stored()[transport][collective], built_in()
    for nodes, row in stored.items():
        for size, prices in row.items():
            asked = priced.question(transport, collective, int(nodes), int(size))
            assert prices[chosen(asked, table)] <= min(prices.values()) * (1 + priced.CLOSE)


def test_few_nodes_keep_what_was_measured() -> None:
    """No rule by the model applies below 8 nodes, or between processes of one machine."""
    rules = [rule for rule in built_in().rules if rule.source == "priced"]
    assert rules
    assert all((rule.when.min_nodes or 0) >= 8 for rule in rules)
    assert {rule.when.transport for rule in rules} == {"tcp", "fabric"}
    assert all(rule.if_possible for rule in rules)
    assert {rule.name for rule in rules if rule.when.max_nodes is None} <= priced.FAR
    measured = {rule.collective for rule in built_in().rules if rule.source == "measured"}
    assert "gather_all" in measured
    unlabelled = [rule for rule in built_in().rules if not rule.source]
    assert {rule.collective for rule in unlabelled} == {"*"}


def test_sizes_between_priced_ones() -> None:
    """Half-way, in factors, between two sizes the choice changes; no size is left out."""
    picks = {8: ("a", "z"), 512: ("a", "z"), 32768: ("b", "z"), 262144: ("z", "z")}
    assert list(priced._ranges(picks)) == [(0, 4095, "a"), (4096, (1 << 17) - 1, "b")]
    most = priced.BYTES[-1]
    assert list(priced._ranges({8: ("a", "a"), most: ("b", "a")})) == [(4096, 0, "b")]
    assert list(priced._ranges({8: ("a", "a"), 64: ("b", "a")})) == [(32, 255, "b")]
    assert priced.best({"a": 100.0, "b": 97.5}, "a") == "a"
    assert priced.best({"a": 100.0, "b": 90.0}, "a") == "b"


def test_the_price_of_many_nodes() -> None:
    """On 64 nodes 32 chunks take at most 0.6 of the time in chains and trees."""
    table, machine = built_in(), machine_file.find("gigabit")
    asked = Question("all_broadcast", 1, "64x2", 128, "mpich", "tcp")
    chunk = next(variants_of(asked, table))[1].tuning["chunk"]
    asked = Question("all_broadcast", 32 * chunk, "64x2", 128, "mpich", "tcp")
    name, rule = choice_of(asked, table)
    assert (name, rule.source) == ("multicore:circulant", "priced")
    times = {
        variant.name: run(programs_of(variant, call), machine.rates()).end
        for variant, call in variants_of(asked, table)
        if variant.name in (name, *(f"multicore:{tree}" for tree in TREES))
    }
    assert len(times) == 1 + len(TREES)
    assert times.pop(name) <= 0.6 * min(times.values())


TREES = "chain", "binomial", "binary", "knomial4", "knomial8", "bine"


def test_a_call_that_a_variant_cannot_carry_out_takes_the_next_rule() -> None:
    """A reduction in order cannot go by the model's variants; the library chooses."""
    choices = built_in().at(Place.of([2] * 64, "mpich", "tcp", oversubscribed=False))
    assert choices.rule("reduce_mpi", 1 << 21).source == "priced"
    left = choices.rule("reduce_mpi", 1 << 21, lambda rule: not rule.variant)
    assert (left.collective, left.variant) == ("*", "")


def test_why_prints_the_source() -> None:
    words = ["algorithms", "all_broadcast", "--size", "64K", "--nodes", "16x2", "--why"]
    found = CliRunner().invoke(cli.main, words)
    assert found.exit_code == 0, found.output
    assert "<- the table's choice (priced)" in found.output
