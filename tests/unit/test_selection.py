"""Selection tables: what they choose, how one lies over another, and how bad ones are refused."""

from __future__ import annotations

import json
import os
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xupc
from xupc.algorithms.registry import registered
from xupc.bench.results import Cell
from xupc.flags import MULTICORE, PULL, PUSH
from xupc.mpi import methods
from xupc.records import replace
from xupc.report.plans import Unplanned, call_of, maker
from xupc.topology.tree import Tree
from xupc.tuning.old_keys import NEW_KEYS
from xupc.tuning.selection import (
    CONDITIONS,
    SENDER_SIZED,
    Place,
    Rule,
    Table,
    When,
    public_name,
    registered_name,
)
from xupc.tuning.selection_file import BUILT_IN, METHODS, SIZES, built_in, find, load, parse
from xupc.tuning.selection_file import text_of as entry_of

ONE = Place.of([8], "mpich", "shm", False)
CLUSTER = Place.of([4, 4, 4, 4], "openmpi", "tcp", True)
UNEVEN = Place.of([3, 1, 4], "mpich", "shm", False)
LEVELLED = Place.of([16], "mpich", "shm", False, "2,4")


def table(body: str, base: Table | None = None) -> Table:
    return parse(f"version = 1\n{body}", "t.toml", base or built_in())


def rule(words: str, algorithm: str = "push", collective: str = "all_gather") -> str:
    head = f'[[choose]]\ncollective = "{collective}"\nalgorithm = "{algorithm}"\n'
    return head + words.replace("; ", "\n") + "\n"


def carrier(method: str, of: str = "mpi", words: str = "") -> str:
    return f'[[drop_in]]\nmethod = "{method}"\ncarrier = "{of}"\n{words}\n'


# --- choosing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "fits"),
    [
        ("none", {ONE, UNEVEN}), ("some", {LEVELLED}), ("2,4", {LEVELLED}), ("2", set()),
        ("2,8", set()),
    ],
)  # fmt: skip
def test_rules_ask_for_levels_below_the_node(levels: str, fits: set[Place]) -> None:
    choices = {
        place: table(rule(f'levels = "{levels}"')).at(place).rule("gather", 8)
        for place in (ONE, UNEVEN, LEVELLED)
    }
    assert {place for place, found in choices.items() if found.when.levels == levels} == fits


def test_long_calls_on_a_node_with_levels_go_by_levels() -> None:
    levelled, flat = built_in().at(LEVELLED), built_in().at(replace(LEVELLED, levels=""))
    assert levelled.rule("reduce_mpi_all", 1 << 20).name == "multicore:levels"
    assert levelled.rule("reduce_mpi_all", 1 << 12).name != "multicore:levels"
    assert flat.rule("reduce_mpi_all", 1 << 20).name != "multicore:levels"


def test_reductions_on_a_few_nodes_with_levels_go_by_levels() -> None:
    nodes = Place.of([16, 16], "mpich", "tcp", False, "2,4")
    for name in ("reduce_mpi", "reduce_scatter", "allav_reduce_all"):
        found = built_in().at(nodes)
        assert found.rule(name, 4096).name == "multicore:levels"
        assert found.rule(name, 4095).name != "multicore:levels"
        flat = built_in().at(replace(nodes, levels=""))
        assert flat.rule(name, 4096).name != "multicore:levels"


def test_scans_on_a_node_with_levels_go_by_levels_over_rows_of_blocks() -> None:
    """One block on each thread has the shorter chain of reads, where that can be carried out."""
    levelled = built_in().at(LEVELLED)
    for name in ("prefix_reduce", "exclusive_suffix_reduce"):
        assert levelled.rule(name, 8).name == "multicore:values"
        other = levelled.rule(name, 8, lambda rule: rule.variant != "values")
        assert other.name == "multicore:levels"


def test_scans_on_a_few_nodes_go_by_levels_over_rows_of_blocks() -> None:
    """One block on each thread: node roots exchange the values of all threads."""
    for levels in ("", "2,4"):
        nodes = built_in().at(Place.of([16, 16], "mpich", "tcp", False, levels))
        for name in ("suffix_reduce", "exclusive_prefix_reduce"):
            tried: list[str] = []
            while not tried or tried[-1] != "levels":
                found = nodes.rule(name, 8, lambda rule, t=tried: rule.variant not in t)
                tried.append(found.variant)
            assert tried == ["led", "table", "levels"]


@pytest.mark.parametrize("levels", ["", "2x4", "0", "many", "2,", "01"])
def test_bad_levels(levels: str) -> None:
    with pytest.raises(ValueError, match=r'levels.*expected "none", "some", or the domains'):
        table(rule(f'levels = "{levels}"'))


@pytest.mark.parametrize("place", [ONE, CLUSTER, UNEVEN])
def test_the_built_in_table_knows_every_collective(place: Place) -> None:
    choices = built_in().at(place)
    chosen = {e.collective: choices.choose(e.collective, 1 << 12) for e in registered()}
    assert len(chosen) == 48
    assert all(flag in (PULL, PUSH, MULTICORE) for flag in chosen.values())


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("", {ONE, CLUSTER, UNEVEN}),
        ('shape = "8"', {ONE}),
        ('shape = "1x8"', {ONE}),
        ('shape = "4x4"', {CLUSTER}),
        ('shape = "4,4,2x4"', {CLUSTER}),
        ('shape = "3,1,4"', {UNEVEN}),
        ('shape = "1,3,4"', set()),
        ("min_threads = 9", {CLUSTER}),
        ("max_threads = 8", {ONE, UNEVEN}),
        ("min_nodes = 3; max_nodes = 3", {UNEVEN}),
        ('nodes = "many"', {CLUSTER, UNEVEN}),
        ('nodes = "one"', {ONE}),
        ("oversubscribed = true", {CLUSTER}),
        ("oversubscribed = false", {ONE, UNEVEN}),
        ('family = "openmpi"', {CLUSTER}),
        ('transport = "shm"', {ONE, UNEVEN}),
        ('transport = "shm"; max_nodes = 1', {ONE}),
    ],
)
def test_where_a_rule_holds(words: str, fits: set[Place]) -> None:
    found = table(rule(words))
    for place in (ONE, CLUSTER, UNEVEN):
        expected = PUSH if place in fits else MULTICORE
        assert found.at(place).choose("gather", 64) == expected
        assert found.at(place).choose("gather_all", 64) == MULTICORE


ONLY = {  # of each condition two values, of which the first one fits a call of 64 bytes at CLUSTER
    "min_bytes": (64, 65), "max_bytes": (64, 63), "min_threads": (16, 17), "max_threads": (16, 15),
    "min_nodes": (4, 5), "max_nodes": (4, 3), "nodes": ("many", "one"), "shape": ("4x4", "16"),
    "oversubscribed": (True, False), "family": ("openmpi", "mpich"), "transport": ("tcp", "fabric"),
    "levels": ("none", "some"),
}  # fmt: skip


@pytest.mark.parametrize("key", CONDITIONS)
def test_every_condition_is_asked_for(key: str) -> None:
    for value, fits in zip(ONLY[key], (True, False), strict=True):
        found = table(rule(f"{key} = {json.dumps(value)}"))
        assert found.rules[0].when == When(**{key: value})
        assert (found.at(CLUSTER).choose("gather", 64) == PUSH) is fits


def test_a_rule_that_is_written_is_read_the_same() -> None:
    every = When(**{key: fits for key, (fits, _) in ONLY.items()})
    ours = Rule("gather", MULTICORE, every, "ring", if_possible=False, source="measured")
    rules = (ours, *built_in().rules)
    assert table("\n".join(map(entry_of, rules))).rules == rules


def test_sizes_are_limits_that_belong_to_their_range() -> None:
    found = table(
        rule("max_bytes = 100")
        + rule("min_bytes = 200; max_bytes = 300", "pull")
        + rule("", "push")
    ).at(ONE)
    chosen = [found.choose("gather", n) for n in (0, 100, 101, 199, 200, 300, 301)]
    assert chosen == [PUSH, PUSH, PUSH, PUSH, PULL, PULL, PUSH]


def test_a_rule_for_where_it_is_possible_is_skipped_elsewhere() -> None:
    lower = rule("", "pull")
    found = table(rule("if_possible = true", "multicore:ring") + lower).at(ONE)
    assert found.rule("gather", 8).name == "multicore:ring"
    assert found.rule("gather", 8, lambda rule: False).name == "pull"
    asked: list[str] = []
    found.rule("gather", 8, lambda rule: asked.append(rule.name) is None)
    assert asked == ["multicore:ring"]
    for strict in ("", "if_possible = false"):
        found = table(rule(strict, "multicore:ring") + lower).at(ONE)
        assert found.rule("gather", 8, lambda rule: False).name == "multicore:ring"
    with pytest.raises(ValueError, match="if_possible: expected true or false, got 1"):
        table(rule("if_possible = 1"))


@pytest.mark.parametrize(
    ("public", "registry"),
    [
        ("all_gather", "gather"),
        ("all_gather_v", "gather_v"),
        ("all_gather_all_x", "gather_all_x"),
        ("all_exchange_in_place", "exchange_in_place"),
        ("all_reduce_mpi_all", "reduce_mpi_all"),
        ("allav_reduce_all", "allav_reduce_all"),
        ("allv_reduce_all", "allav_reduce_all"),
    ],
)
def test_names(public: str, registry: str) -> None:
    assert registered_name(public) == registry
    found = table(rule("", collective=public.replace("allv_", "allav_"))).at(ONE)
    assert found.choose(registry, 8) == PUSH


def test_every_registered_name_is_a_function_or_its_form_under_a_flag() -> None:
    for entry in registered():
        name = public_name(entry.collective)
        function = name.removesuffix("_in_place").replace("exclusive_", "")
        assert callable(getattr(xupc, function)), name
        assert registered_name(name) == entry.collective


# --- one over another -----------------------------------------------------------------------------


def test_a_users_rules_come_first_and_the_rest_is_built_in() -> None:
    found = table(rule("", "push", "*") + rule("", "pull"))
    assert found.at(ONE).choose("gather", 8) == PUSH
    found = table(rule("", "pull") + rule('shape = "8"', "push", "*"))
    assert [found.at(p).choose("gather", 8) for p in (ONE, UNEVEN)] == [PULL, PULL]
    assert [found.at(p).choose("scatter", 8) for p in (ONE, UNEVEN)] == [PUSH, MULTICORE]


def test_a_users_sizes_count_more_in_whatever_section() -> None:
    found = table("[tuning.default]\nroot_exchange_max = 5\n[tuning.openmpi-tcp]\nchunk = 4096\n")
    assert built_in().tuning(CLUSTER)["root_exchange_max"] == 131072
    assert found.tuning(CLUSTER) == {
        **built_in().tuning(CLUSTER),
        "root_exchange_max": 5,
        "chunk": 4096,
    }
    assert found.tuning(ONE) == {**built_in().tuning(ONE), "root_exchange_max": 5}


# --- hosts ----------------------------------------------------------------------------------------


def test_a_host_without_figures_has_the_built_in_ones() -> None:
    found = table("")
    assert found.figures_of("node17") == built_in().figures_of("anything")
    assert found.source_of("node17") == BUILT_IN


def test_figures_of_a_host_lie_over_the_built_in_ones() -> None:
    found = table('[host.node17]\ndirect_min = 7\n[host."node*"]\ndirect_min_pair = 9\n')
    base = built_in().figures_of("")
    assert found.figures_of("node17") == replace(base, direct_min=7)
    assert found.figures_of("node3") == replace(base, direct_min_pair=9)
    assert found.figures_of("login") == base
    assert [found.source_of(host) for host in ("node17", "node3", "login")] == [
        "t.toml", "t.toml", BUILT_IN,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("host = 3", 'host: expected sections like [host."node17"]'),
        ("[host]\nnode17 = 3", "[host.'node17']: expected figures"),
        ("[host.a]\ndirect_reduce = 2", "[host.'a']: direct_reduce: expected an int from 0 to 1"),
        ("[host.a]\nchunk = 2", "[host.'a']: 'chunk': expected one of direct_min, "),
    ],
)
def test_figures_that_are_refused(body: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        table(body)


# --- where it is looked for -----------------------------------------------------------------------


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, str]:
    """A table in each place, which says whose it is by its size `few_nodes_max`."""
    places = {"named.toml": 1, "config/xupc/tuning.toml": 2, "home/.config/xupc/tuning.toml": 3}
    for name, number in places.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"version = 1\n[tuning.default]\nfew_nodes_max = {number}\n")
    return {
        "XUPC_TUNING": str(tmp_path / "named.toml"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path / "home"),
    }


def test_search_order(homes: dict[str, str]) -> None:
    flat = []
    for name in ("XUPC_TUNING", "XDG_CONFIG_HOME", "HOME"):
        flat.append(load(find(homes)).tuning(ONE)["few_nodes_max"])
        del homes[name]
    assert flat == [1, 2, 3]
    assert load(find(homes)) is built_in()


def test_a_table_that_is_named_must_be_there(homes: dict[str, str]) -> None:
    homes["XUPC_TUNING"] += ".none"
    with pytest.raises(ValueError, match=r"named\.toml\.none: XUPC_TUNING names it, but it is not"):
        load(find(homes))
    homes["XUPC_TUNING"] = ""
    homes["XDG_CONFIG_HOME"] = "not/absolute"
    assert load(find(homes)).tuning(ONE)["few_nodes_max"] == 3
    homes["HOME"] += "/nowhere"
    assert find(homes) is None


@pytest.mark.parametrize("kind", ["directory", "pipe", "long", "bytes"])
def test_what_is_no_table_at_all(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"\xff" if kind == "bytes" else b"#" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match=f"^tuning table {path}: it "):
        load(find({"XUPC_TUNING": str(path)}))


# --- bad ones -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "version: expected 1, it is missing"),
        ("version = 2", "version: expected 1, got 2"),
        ("version = true", "version: expected 1, got True"),
        ("version = 1\nversion = 1", "no TOML"),
        ("version = 1\n[choices]", "'choices': there is no such key"),
        ("version = 1\nchoose = 3", "choose: expected entries"),
        ("version = 1\nchoose = [3]", "[[choose]] entry 1: expected keys and values"),
        ("version = 1\n" + rule("") + rule("size = 3"), "[[choose]] entry 2: 'size': expected one"),
        ("version = 1\n" + rule("max_bytes = -1"), "entry 1: max_bytes: expected an int from 0"),
        ("version = 1\n" + rule("max_bytes = 1.5"), "entry 1: max_bytes: expected an int"),
        ("version = 1\n" + rule("max_bytes = '1K'"), "max_bytes: expected an int from 0"),
        ("version = 1\n" + rule("min_threads = true"), "min_threads: expected an int from 1"),
        ("version = 1\n" + rule("min_nodes = 3; max_nodes = 2"), "max_nodes: expected at least 3"),
        ("version = 1\n" + rule("shape = '4*4'"), "entry 1: shape: expected node sizes"),
        ("version = 1\n" + rule("shape = '0x4'"), "entry 1: shape: expected node sizes"),
        ("version = 1\n" + rule("nodes = 'two'"), "nodes: expected one of one, many, got 'two'"),
        ("version = 1\n" + rule("oversubscribed = 1"), "oversubscribed: expected true or false"),
        ("version = 1\n" + rule("family = 'lam'"), "family: expected one of mpich"),
        ("version = 1\n" + rule("", "fast"), "algorithm: expected one of pull, push, multicore"),
        ("version = 1\n" + rule("", collective="gather"), "collective: expected a collective"),
        ("version = 1\n" + rule("", collective="barrier"), "collective: expected a collective"),
        ("version = 1\n[[choose]]", "collective: it is missing; [[choose]] entry 1: algorithm: it"),
        ("version = 1\n[[drop_in]]", "[[drop_in]] entry 1: method: it is missing"),
        ("version = 1\ndrop_in = 3", "drop_in: expected entries that begin with [[drop_in]]"),
        ("version = 1\n" + carrier("Isend"), "[[drop_in]] entry 1: method: expected one of *, Al"),
        ("version = 1\n" + carrier("*", "ours"), "carrier: expected one of xupc, mpi, got 'ours'"),
        ("version = 1\n[tuning]\nchunk = 3", "[tuning.chunk]: expected one of default"),
        ("version = 1\n[tuning.tcp]\nchunck = 64", "[tuning.tcp]: 'chunck': expected one of chunk"),
        ("version = 1\n[tuning.tcp]\nchunk = 0", "[tuning.tcp]: chunk: expected an int from 4096"),
        (
            "version = 1\n[tuning.shm]\neager_max = 2048",
            "eager_max: expected an int from 0 to 1024",
        ),
        (
            "version = 1\n[tuning.shm]\nstaging_bytes = 2097152",
            "staging_bytes: expected an int from 65536",
        ),
        ("version = 1\n" + rule("max_bytes = 0x" + "f" * 5000), "got a number that is too long"),
        ("version = 1\nx = " + "[" * 9999, "nested too deeply"),
    ],
)
def test_a_bad_table_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text, "my/t.toml", built_in())
    assert str(caught.value).startswith("tuning table my/t.toml: ")
    assert words in str(caught.value)


def test_carriers() -> None:
    """The first entry that fits decides, the user's before the built-in ones; xupc without one."""
    text = carrier("Bcast", "xupc", "max_bytes = 99") + carrier("Bcast") + carrier("scan")
    here = parse("version = 1\n" + text, "t", built_in()).carriers_at(ONE)
    assert not here.by_mpi("Bcast", 99)
    assert here.by_mpi("Bcast", 100)
    assert here.by_mpi("scan", None)
    assert not here.by_mpi("Scan", 8)
    assert here.by_mpi("Gatherv", None), "of the built-in table"
    assert here.all_by_mpi("scan")
    assert not here.all_by_mpi("Bcast"), "an entry with a size comes first"
    assert not here.all_by_mpi("Barrier"), "no entry"
    limited = parse("version = 1\n" + carrier("*", "mpi", "max_bytes = 9"), "t", built_in())
    assert not limited.carriers_at(ONE).by_mpi("Barrier", None), "it has no size"
    many = parse("version = 1\n" + carrier("*", "mpi", 'nodes = "many"'), "t", built_in())
    assert not many.carriers_at(ONE).by_mpi("Bcast", 8)


@pytest.mark.parametrize(
    ("method", "nbytes", "sizes", "family", "by_mpi"),
    [
        ("Scatter", 1024, [4] * 4, "mpich", True), ("Scatter", 65_536, [4] * 4, "mpich", False),
        ("Scatter", 1024, [16], "mpich", False), ("Gather", 1024, [4] * 4, "mpich", False),
        ("Exscan", 1 << 23, [2], "openmpi", True), ("Exscan", 1 << 20, [2], "openmpi", False),
        ("Exscan", 1 << 23, [3], "openmpi", False), ("Exscan", 1 << 23, [2], "mpich", False),
        ("bcast", 1 << 20, [2], "mpich", False), ("bcast", 1 << 18, [2], "mpich", True),
        ("bcast", 1 << 20, [4], "mpich", True), ("allreduce", 1 << 20, [2], "mpich", True),
    ],
)  # fmt: skip
def test_built_in_carriers(
    method: str, nbytes: int, sizes: list[int], family: str, by_mpi: bool
) -> None:
    """Calls that lose by measurement go to MPI, and those beside them do not."""
    place = Place.of(sizes, family, "tcp" if len(sizes) > 1 else "shm", False)
    assert built_in().carriers_at(place).by_mpi(method, nbytes) == by_mpi


def test_carriers_of_calls_whose_sizes_only_their_senders_have() -> None:
    """The entry for the shortest decides which library begins, the one for their size the rest."""
    text = carrier("bcast", "xupc", "max_bytes = 99") + carrier("*", "mpi", "min_bytes = 5000")
    text += carrier("bcast") + carrier("scan", "xupc") + carrier("Gatherv", "mpi", "max_bytes = 7")
    text += carrier("Gatherv", "xupc")
    here = parse("version = 1\n" + text, "t", built_in()).carriers_at(ONE)
    assert not here.by_mpi("bcast", None)
    assert (here.by_mpi("bcast", 99), here.by_mpi("bcast", 100)) == (False, True)
    assert here.first_by_mpi("bcast") == 100
    assert not here.by_mpi("scan", None)
    assert here.first_by_mpi("scan") == 5000
    assert here.by_mpi("Gatherv", None), "it would begin as one of 0 bytes"
    assert here.first_by_mpi("Gatherv") == 0
    assert here.first_by_mpi("Bcast") == 5000
    assert built_in().carriers_at(ONE).first_by_mpi("Bcast") is None


def test_methods_of_carriers() -> None:
    assert set(METHODS) == set(methods.names(methods.TAKEN))
    on_objects = set(methods.group_of("bcast").methods.split())
    assert on_objects | {"Alltoallv", "Gatherv", "Scatterv"} == SENDER_SIZED


def test_all_that_is_wrong_is_told_but_not_endlessly() -> None:
    with pytest.raises(ValueError) as caught:
        table(rule("max_bytes = -1") * 9)
    assert str(caught.value).count("[[choose]] entry") == 5
    assert "entry 5: max_bytes" in str(caught.value)
    assert str(caught.value).endswith("; and 4 more")


def test_without_another_below_it_must_be_complete() -> None:
    sizes = "[tuning.default]\n" + "".join(
        f"{k} = {v}\n" for k, v in built_in().tuning(ONE).items()
    )
    figures = "direct_min = 1\ndirect_min_pair = 1\ndirect_reduce = 0\nnt_store_min = 0\n"
    whole = f"version = 1\n{sizes}[host.\"*\"]\n{figures}{rule('', 'pull', '*')}"
    assert parse(whole, "t", None).at(ONE).choose("gather", 1) == PULL
    for lacking, words in [
        (whole.replace("alltoall_chunk = ", "chunk = "), "no TOML"),
        (
            whole.replace("alltoall_chunk = 524288\n", ""),
            "[tuning.default]: alltoall_chunk: it is missing",
        ),
        (whole.replace("nt_store_min = 0\n", ""), '[host."*"]: nt_store_min: it is missing'),
        (whole.replace('= "*"', '= "all_gather"'), 'fits allav_broadcast with nodes = "one"'),
        (whole + 'nodes = "one"', 'fits allav_broadcast with nodes = "many"'),
        (whole + "max_bytes = 9", 'fits allav_broadcast with nodes = "one"'),
    ]:
        with pytest.raises(ValueError) as caught:
            parse(lacking, "t", None)
        assert words in str(caught.value)


KEYS = st.sampled_from(
    ["version", "collective", "algorithm", "max_bytes", "shape", "nodes", "chunk", '""', "a.b", "x"]
)
VALUES = st.one_of(
    st.sampled_from(
        ["1", "-1", "1.5", "nan", "true", '"*"', '"push"', '"4x4"', "[]", "{}", "[[1]]"]
    ),
    st.sampled_from(
        ["1979-05-27", "1e999", "0x" + "f" * 5000, "9" * 5000, '"""\n[x]"""', "{a={b=1}}"]
    ),
    st.text(max_size=8).map(repr),
)
LINES = st.one_of(
    st.sampled_from(
        ["[[choose]]", "[choose]", "[tuning]", "[tuning.tcp]", "[[tuning.tcp]]", "[x.y]"]
    ),
    st.builds("{} = {}".format, KEYS, VALUES),
)


@given(st.one_of(st.text(), st.lists(LINES, max_size=8).map("\n".join)), st.booleans())
def test_whatever_the_text_only_value_errors_come_of_it(text: str, headed: bool) -> None:
    problem, found = "", None
    try:
        found = parse("version = 1\n" * headed + text, "t", built_in())
    except ValueError as e:
        problem = str(e)
    if found is None:
        assert problem.startswith("tuning table t: ")
    else:
        assert found.at(ONE).choose("gather", 8) in (PULL, PUSH, MULTICORE)
        assert found.tuning(ONE).keys() == built_in().tuning(ONE).keys()


@pytest.mark.parametrize(("old", "new"), NEW_KEYS.items(), ids=NEW_KEYS)
def test_old_keys_are_read_with_a_warning(old: str, new: str) -> None:
    least = max(1, built_in().sizes["default"][new])
    text = f"version = 1\n[tuning.default]\n{old} = {least}\n"
    with pytest.warns(DeprecationWarning, match=rf"default\]: {old} is now called {new}: rename"):
        found = parse(text, "mine", built_in())
    assert found.sizes == {"default": {new: least}}


def test_a_size_by_its_old_and_its_new_name() -> None:
    for keys in (("slot", "eager_max"), ("eager_max", "slot")):
        text = "version = 1\n[tuning.tcp]\n" + "".join(f"{key} = 5\n" for key in keys)
        with pytest.raises(ValueError, match="eager_max: it is there twice, also as 'slot'"):
            parse(text, "mine", built_in())


def test_new_keys_warn_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    parse("version = 1\n[tuning.default]\neager_max = 5\n", "mine", built_in())
    assert not recwarn
    assert set(NEW_KEYS.values()) <= built_in().sizes["default"].keys()
    assert built_in().sizes["default"].keys().isdisjoint(NEW_KEYS)


def least(key: str) -> int:
    """Return the least value that a table may have for a size."""
    for value in (0, 1, 4096, 1 << 16):
        try:
            found: int = SIZES[key](value)
        except ValueError:
            continue
        return found
    raise AssertionError(key)


@pytest.mark.parametrize("labels", [[0, 0], [0, 0, 1, 1], list(range(10))], ids=str)
def test_every_plan_can_be_made_with_the_least_of_each_size(labels: list[int]) -> None:
    """A limit of 0 divides nothing."""
    tree = Tree(labels)
    usual = built_in().tuning(Place.of(tree.node_sizes, "mpich", "shm", False))
    made = 0
    for key, entry, nbytes in product(SIZES, registered(), (8, 1 << 16)):
        cell = Cell(public_name(entry.collective), nbytes, nbytes, sync="allsync")
        try:
            call = call_of(cell, tree, {**usual, key: least(key)})
        except Unplanned:
            continue
        maker(entry.default(call), call)(tree.size - 1)
        made += 1
    assert made > 1000
