"""Names of variants: in flags, in selection tables, in the tools, and registered by a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import xupc
from xupc import cli
from xupc.algorithms import registry
from xupc.algorithms.conditions import CallFacts
from xupc.algorithms.registry import find
from xupc.algorithms.scan_spec import ScanSpec
from xupc.algorithms.values_reduce_scatter import ReduceScatter
from xupc.algorithms.values_reduce_spec import ReduceSpec
from xupc.api.argument_checks import named_flags
from xupc.bench.settings import algorithm_named, flags_of
from xupc.bench.tuning_file import TuningFile
from xupc.errors import FlagError
from xupc.flags import (
    MULTICORE,
    PULL,
    VARIANT_SHIFT,
    check_flags,
    flag_names,
    variant_label,
    with_variant,
)
from xupc.pgas.layout import Layout
from xupc.plan.recorder import Operand, Recorder, trace
from xupc.topology.tree import Tree
from xupc.tuning.selection import Place
from xupc.tuning.selection_file import built_in, parse

SYNC = "all", "all"
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_gather_all.py"


def call(nodes: list[int], nbytes: int = 8, sync: tuple[str, str] = ("all", "all")) -> CallFacts:
    tree = Tree(nodes)
    tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
    return CallFacts(tree, tuning, sync, (Operand(0), Operand(1), nbytes))


# --- names --------------------------------------------------------------------------------------
def test_a_name_is_a_flag_and_a_label() -> None:
    assert registry.parse_name("pull") == (PULL, "")
    assert registry.parse_name("multicore:ring") == (MULTICORE, "ring")
    assert registry.parse_name("multicore:ring/2") == (MULTICORE, "ring/2")
    assert registry.parse_name("multicore/2") == (MULTICORE, "/2")
    assert registry.parse_name("multicore:ring/1") == (MULTICORE, "ring")
    for bad in ("multicore/0", "multicore:ring/5", "multicore:ring/", "multicore:ring/two"):
        with pytest.raises(ValueError, match="expected 1 to 4 roots"):
            registry.parse_name(bad)
    for bad in ("", "ring", "multicore:", "multicore:a b", "MULTICORE:ring", 3, None, "pull:x:y",
                "multicore:/2", "ring/2"):
        with pytest.raises(ValueError, match="expected one of pull, push, multicore, or a variant"):
            registry.parse_name(bad)


def test_variants_of_a_flag_have_different_names() -> None:
    for entry in registry.registered():
        labels = [variant.label for variant in entry.variants]
        assert len(set(labels)) == len(labels)
        assert labels == [""] or "" not in labels


def test_flags_carry_a_variant() -> None:
    flags = with_variant(MULTICORE, "ring")
    full = check_flags(flags, "call")
    assert variant_label(full) == "ring"
    assert flag_names(full) == "IN_ALLSYNC|OUT_ALLSYNC|MULTICORE:ring"
    assert variant_label(MULTICORE) == ""
    assert with_variant(MULTICORE, "") == MULTICORE
    for bad in (1 << VARIANT_SHIFT, 1 << 40, -1):
        with pytest.raises(FlagError, match="bits that are no xupc flag"):
            check_flags(bad, "call")


def test_old_names_of_the_recorder_warn_and_work() -> None:
    def new(t: Recorder) -> None:
        channel = t.channel()
        t.signal_thread(channel, 1 - t.me)
        t.wait_for_thread(channel, 1 - t.me)

    def old(t: Recorder) -> None:
        channel = t.channel()
        t.tell(channel, 1 - t.me)
        t.hear(channel, 1 - t.me)

    def steps(algorithm: Any, nodes: list[int]) -> Any:
        return trace(algorithm, "pull", "x", 0, Tree(nodes), ("no", "no"), {}, ()).lanes

    for nodes in ([0, 0], [0, 1]):
        with pytest.warns(DeprecationWarning, match="signal_thread|wait_for_thread") as caught:
            assert steps(old, nodes) == steps(new, nodes)
        assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name] * 2


def test_a_call_names_its_algorithm_beside_the_flags() -> None:
    flags = named_flags("all_gather", xupc.IN_MYSYNC, "multicore:star")
    assert flag_names(flags.__index__()) == "IN_MYSYNC|MULTICORE:star"
    assert named_flags("all_gather", 3, None) == 3
    same = named_flags("all_gather", xupc.MULTICORE, "multicore:star")
    assert same.__index__() == with_variant(MULTICORE, "star")
    with pytest.raises(FlagError, match=r"^all_gather: algorithm: expected no other .* PULL is"):
        named_flags("all_gather", xupc.PULL, "multicore:star").__index__()
    with pytest.raises(FlagError, match=r"^all_gather: algorithm: expected one of .* got 'star'$"):
        named_flags("all_gather", 0, "star").__index__()


# --- choosing -----------------------------------------------------------------------------------
def test_a_variant_by_name_runs_or_is_refused() -> None:
    entry = registry.find("gather_all", MULTICORE)
    assert entry.default(call([0, 0, 1, 1], 1 << 20)).name == "multicore:rounds"
    assert entry.choose("ring", call([0, 0, 1, 1], 1 << 20)).name == "multicore:ring"
    assert entry.choose("ring", call([0, 0, 1, 1])).name == "multicore:ring"
    assert entry.choose("", call([0, 0])).name == "multicore:fused"
    with pytest.raises(ValueError, match="multicore:ring cannot run here: expected several nodes, "
                       "got 1 node, 2 threads, blocks of 8 bytes, IN_ALLSYNC"):  # fmt: skip
        entry.choose("ring", call([0, 0]))
    with pytest.raises(ValueError, match=r"expected few nodes, ALLSYNC both ways, .*IN_MYSYNC"):
        entry.choose("led", call([0, 1], sync=("my", "all")))
    with pytest.raises(ValueError, match="there is no multicore:rong, expected one of multicore:f"):
        entry.choose("rong", call([0, 0]))


def test_sizes_of_the_table_decide() -> None:
    """The same conditions as before variants had names: `pipeline_min`, `few_nodes_max` ..."""
    broadcast = registry.find("broadcast", MULTICORE)

    def chosen(nodes: int, nbytes: int) -> str:
        tree = Tree(range(nodes))
        tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
        facts = (Operand(0), Operand(1), 0, nbytes)
        return broadcast.default(CallFacts(tree, tuning, ("all", "all"), facts)).label

    assert [chosen(1, n) for n in (16384, 16385)] == ["fused", "pull"]
    assert [chosen(4, n) for n in (4096, 4097, 32767, 1 << 20)] == ["led", "star", "star", "chain"]
    assert [chosen(9, n) for n in (8, 32767, 1 << 20)] == ["binomial", "binomial", "chain"]
    assert [chosen(1000, n) for n in (32768, 1 << 20)] == ["binomial", "binary"]


def test_sizes_decide_about_scans_and_reductions_of_arrays() -> None:
    """The same conditions as before these variants had names, by the built-in table."""

    def chosen(form: str, nodes: list[int], nbytes: int, **more: bool) -> str:
        tree, scan = Tree(nodes), not form.startswith("allav_")
        tuning = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
        part = nbytes // 8
        layout = Layout(tree.size, 0, 0, part, part * tree.size)
        to = 0 if form == "allav_reduce" else None
        spec = ScanSpec(layout, layout, 8, False) if scan else ReduceSpec(
            part, 8, to, False, more.get("exact", False), False
        )  # fmt: skip
        return find(form, MULTICORE).default(CallFacts(tree, tuning, SYNC, [spec])).label

    one, two, ten = [0] * 4, [0, 0, 1, 1], list(range(10))
    sizes = (8, 2048, 8192, 1 << 20)
    assert [chosen("prefix_reduce", one, n) for n in sizes] == ["fused"] * 2 + ["values"] * 2
    assert [chosen("prefix_reduce", two, n) for n in sizes] == ["led"] * 2 + ["table"] * 2
    assert [chosen("prefix_reduce", ten, n) for n in sizes] == ["push"] * 4
    scan = "allav_prefix_reduce"
    assert [chosen(scan, one, n) for n in (1024, 1032)] == ["staged", "push"]
    assert [chosen(scan, two, n) for n in sizes] == ["table", "table", "table", "push"]
    assert [chosen(scan, ten, n) for n in (8, 1 << 20)] == ["doubling", "chain"]
    assert chosen(scan, ten, 8, exact=True) == "chain"
    assert chosen("allav_reduce", two, 8) == "nodes"
    assert [chosen("allav_reduce", [0, 1, 2], n) for n in (8, 1 << 15, 1 << 20)] == [
        "nodes", "parts", "chain",
    ]  # fmt: skip
    assert chosen("allav_reduce_all", two, 1 << 20) == "parts"
    assert chosen("allav_reduce_all", [0, 1, 1], 8, exact=True) == "table"
    sizes = (8, 2048, 1 << 14, 1 << 20, 1 << 23)
    for threads, to_one, to_all in (
        (2, "staged staged direct staged staged", "staged staged direct staged staged"),
        (3, "staged staged direct staged staged", "staged staged staged staged staged"),
        (4, "staged slices slices slices slices", "staged slices slices slices slices"),
    ):
        node = [0] * threads
        assert [chosen("allav_reduce", node, n) for n in sizes] == to_one.split()
        assert [chosen("allav_reduce_all", node, n) for n in sizes] == to_all.split()
    found = [chosen(scan, [0, 0], n) for n in sizes]
    assert found == ["staged", "push", "direct", "halves", "halves"]


def test_sizes_decide_about_reduce_scatter() -> None:
    """The same conditions as before these variants had names, by the built-in table."""

    def call(nodes: list[int], nbytes: int, *, exact: bool = False, tcp: bool = False) -> CallFacts:
        tree = Tree(nodes)
        place = Place.of(tree.node_sizes, "mpich", "tcp" if tcp else "shm", False)
        spec = ReduceScatter(nbytes // 8, 8, exact)
        return CallFacts(tree, built_in().tuning(place), SYNC, [spec])

    def chosen(form: str, flag: int, *facts: Any, **more: bool) -> str:
        return find(form, flag).default(call(*facts, **more)).label

    one, two, mixed = [0] * 4, [0, 0, 1, 1], [0, 1, 0, 1]
    sizes = (8, 512, 1024, 1 << 20)
    shared, private = "reduce_scatter", "allav_reduce_scatter"
    assert [chosen(shared, MULTICORE, one, n) for n in sizes] == ["fused"] * 3 + ["pull"]
    assert [chosen(shared, MULTICORE, two, n) for n in sizes] == ["led"] * 2 + ["nodes"] * 2
    assert chosen(shared, MULTICORE, mixed, 8, exact=True) == "push"
    for flag in (PULL, MULTICORE):
        found = [chosen(private, flag, one, n) for n in (8, 16383, 16384)]
        assert found == ["staged", "staged", "direct"]
    assert [chosen(private, MULTICORE, two, n) for n in sizes] == ["nodes"] * 4
    # a barrier carries one unit, and no more bytes than the larger limit of the table
    can = find(shared, MULTICORE).can_run
    nodes = list(range(4))
    assert [can("led", call(nodes, n, tcp=True)) for n in (20000, 37448)] == [True, False]


def test_a_table_chooses_variants() -> None:
    text = 'version = 1\n[[choose]]\ncollective = "all_gather_all"\nalgorithm = "{}"\n'
    place = Place.of([2, 2], "mpich", "shm", False)
    rule = parse(text.format("multicore:ring"), "t", built_in()).at(place).rule("gather_all", 8)
    assert (rule.algorithm, rule.variant, rule.name) == (MULTICORE, "ring", "multicore:ring")
    with pytest.raises(ValueError, match=r"algorithm: expected one of pull.* got 'ring'"):
        parse(text.format("ring"), "t", built_in())


def test_the_tuners_file_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "tuning.toml"
    text = 'version = 1\n[[choose]]\ncollective = "all_gather"\nalgorithm = "multicore:star"\n'
    path.write_text(text)
    file, place = TuningFile(path), Place.of([2, 2], "mpich", "shm", False)
    file.put(place, file.rest.rules, [])
    assert file.rules(place) == file.rest.rules
    assert file.text.count('algorithm = "multicore:star"') == 2


def test_the_bench_takes_them() -> None:
    assert algorithm_named("multicore") == "MULTICORE"
    assert algorithm_named("multicore:ring") == "multicore:ring"
    assert algorithm_named("Variants") == "variants"
    assert flags_of("multicore:ring", "mysync") & ~0xFFF
    assert variant_label(flags_of("multicore:ring", "allsync")) == "ring"
    assert variant_label(flags_of("multicore/2", "allsync")) == "/2"
    words = "'fast': expected some of auto, PULL, PUSH, MULTICORE, variants, or names like"
    with pytest.raises(ValueError, match=words):
        algorithm_named("fast")


# --- xupc algorithms ------------------------------------------------------------------------------
def shown(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(cli.main, ["algorithms", *words])
    assert done.exit_code == status, done.output
    return done.output


def test_it_lists_all_names() -> None:
    lines = {line.split()[0]: line.split()[1:] for line in shown().splitlines()}
    assert lines["all_gather_all"] == [
        "pull", "push", *(f"multicore:{name}" for name in
        ("fused", "pull", "led", "linear", "doubling", "rounds", "ring", "circulant", "levels")),
    ]  # fmt: skip
    assert {"allav_exchange", "all_scatter_v", "all_broadcast_in_place"} <= lines.keys()


def test_it_says_which_one_a_call_gets_and_why() -> None:
    text = shown("all_gather_all", "--nodes", "4x2", "--size", "1M")
    assert "4 nodes, 8 threads, blocks of 1048576 bytes" in text
    assert "multicore:rounds       <- chosen\n" in text
    assert "multicore:ring         can run\n" in text
    assert "multicore:pull         cannot run here\n" in text
    assert "needs: One node\n" in text
    assert "pull                   <- chosen with PULL\n" in text
    shown("all_gather_v")  # its arguments are lists


def test_it_lists_scans_and_reductions_of_arrays() -> None:
    lines = {line.split()[0]: line.split()[1:] for line in shown().splitlines()}
    names = ("fused", "values", "led", "table", "push", "levels")
    assert lines["all_suffix_reduce"] == ["pull", "push", *(f"multicore:{n}" for n in names)]
    names = (
        "direct", "slices", "staged", "nodes", "chain", "parts", "table", "push", "levels",
    )  # fmt: skip
    assert lines["allav_reduce"] == ["pull", "push", *(f"multicore:{n}" for n in names)]
    assert "multicore:chain" not in lines["allav_reduce_all"]
    assert "multicore:halves" in lines["allav_prefix_reduce"]
    assert "multicore:halves" not in lines["allav_exclusive_prefix_reduce"]
    text = shown("allav_prefix_reduce", "--nodes", "2x2", "--size", "1K")
    assert "multicore:table        <- chosen\n" in text
    assert "needs: Several nodes, whose threads have consecutive ranks\n" in text


def test_it_draws_a_plan() -> None:
    text = shown("all_broadcast", "--nodes", "3x1", "--size", "64K", "--draw", "multicore:chain")
    assert text.startswith("broadcast by multicore:chain, thread 0 of 3")
    assert "send" in text
    for words in (
        ("all_gather_all", "--draw", "multicore:ring"),
        ("all_gather_all", "--draw", "ring"),
        ("all_gather_all", "--draw", "pull", "--thread", "9"),
        ("all_gather_v", "--draw", "pull"),
        ("--draw", "pull"),
        ("all_gather_al",),
        ("all_gather", "--size", "x"),
        ("all_gather", "--nodes", "3x1", "-n", "4"),
    ):
        shown(*words, status=2)


# --- variants of a program ------------------------------------------------------------------------
@pytest.fixture
def clean() -> Iterator[None]:
    """No variant of a test is left behind."""
    yield
    for entry in registry.registered():
        for variant in entry.variants:
            if variant.own:
                registry.unregister(variant)


@pytest.mark.usefixtures("clean")
def test_a_program_registers_a_variant() -> None:
    @xupc.algorithm("all_gather_all", xupc.MULTICORE, "mine", "My own.", lambda c: c.nbytes > 9)
    def mine(t: object, dst: object, src: object, nbytes: int) -> None:
        pass

    entry = registry.find("gather_all", MULTICORE)
    variant = entry.variants[-1]
    assert (variant.name, variant.own, variant.function) == ("multicore:mine", True, mine)
    assert entry.default(call([0, 0])).label == "fused"  # never by itself
    assert entry.choose("mine", call([0, 0], 10)) is variant
    with pytest.raises(ValueError, match="multicore:mine cannot run here: expected <lambda>, got"):
        entry.choose("mine", call([0, 0]))
    with pytest.raises(ValueError, match="gather_all has a variant multicore:mine already"):
        xupc.algorithm("all_gather_all", xupc.MULTICORE, "mine", "Another one.")(lambda t: None)
    assert "registered by the program" in shown("all_gather_all")

    xupc.algorithm("all_gather", PULL, "bad", "Bad.", lambda c: c.nothing)(lambda t: None)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="pull:bad: its condition `applies` raised AttributeError"):
        registry.find("gather", PULL).choose("bad", call([0, 0]))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("gather_all", PULL, "a", "A."), ValueError, "collective: expected one of all_broadcast,"),
        (("all_reduce", PULL, "a", "A."), ValueError, "got 'all_reduce'"),
        (("all_gather_v", PULL, "a", "A."), ValueError, "got 'all_gather_v'"),
        ((3, PULL, "a", "A."), ValueError, "got 3"),
        (("all_gather", 3, "a", "A."), FlagError, "flag: expected PULL, PUSH or MULTICORE, got 3"),
        (("all_gather", "pull", "a", "A."), TypeError, "flags: expected an int, got 'pull'"),
        (("all_gather", PULL, "a b", "A."), ValueError, "name: expected an identifier like ring"),
        (("all_gather", PULL, "a", " "), ValueError, "summary: expected one sentence, got ' '"),
        (("all_gather", MULTICORE, "star", "A."), ValueError, "has a variant multicore:star alre"),
    ],
)  # fmt: skip
def test_bad_registrations(
    arguments: tuple[object, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        xupc.algorithm(*arguments)(lambda t: None)  # type: ignore[arg-type]


def test_a_file_of_variants_is_run_once_at_the_start() -> None:
    """Also if it is the program itself."""
    code = "import xupc; xupc.init; from xupc.algorithms import registry; " \
        "print(registry.names_of(registry.registered('gather_all'))[-1])"  # fmt: skip
    environment = {**os.environ, "XUPC_ALGORITHMS": os.pathsep.join([str(EXAMPLE)] * 2)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "multicore:thread_ring\n"


ORDERS = """
import json, sys
from importlib import import_module
registry = import_module("xupc.algorithms.registry")
for first in registry.collectives():
    for name in [n for n in sys.modules if n.startswith("xupc.algorithms")]:
        del sys.modules[name]
    registry = import_module("xupc.algorithms.registry")
    registry.registered(first)
    print(json.dumps([first, [registry.names_of([e]) for e in registry.registered()]]))
"""


def test_variants_stand_in_one_order_whatever_is_loaded_first() -> None:
    """Threads load files as their calls need them, and the order decides about the default."""
    done = subprocess.run([sys.executable, "-c", ORDERS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    orders = dict(map(json.loads, done.stdout.splitlines()))
    assert orders.keys() == set(registry.collectives())
    expected = orders["broadcast"]
    assert [name for name, order in orders.items() if order != expected] == []
