"""Levels below the node: machines, descriptions, masks of threads, the tree that has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machine_files import MACHINES, facts_of, machine_facts, recorded_machine, write_sysfs

from xupc.topology.host import cpu_list
from xupc.topology.levels import NodeLevels, flat_levels, node_levels
from xupc.topology.machine import NAMES, Machine, describe, nest
from xupc.topology.parts import level_part, ranks_of_part
from xupc.topology.sysfs import machine_here, machine_of, read_machine
from xupc.topology.tree import ThreadTree, Tree

COUNTS = {  # of domains, in order; equal ones in the order of preference
    "a64fx": "node 1 socket 1 numa 4 l2 4 core 48",
    "container-cuts-domain": "node 1 socket 1 numa 1 l3 4 core 32 l2 32",
    "epyc-7313p-l3-numa": "node 1 socket 1 numa 4 l3 4 core 16 l2 16",
    "epyc-milan-2p": "node 1 socket 2 numa 2 die 2 l3 16 core 128 l2 128 cluster 128",
    "epyc-rome-nps4": "node 1 socket 2 numa 8 l3 32 core 128 l2 128",
    "grace-hopper": "node 1 socket 1 numa 1 l3 1 core 72 l2 72",
    "grace-superchip": "node 1 socket 2 numa 2 l3 2 core 144 l2 144",
    "hybrid-laptop": "node 1 socket 1 numa 1 l3 2 l2 9 cluster 9 core 16",
    "kunpeng-920": "node 1 socket 2 numa 4 l3 4 cluster 32 core 128 l2 128",
    "offline-cores": "node 1 socket 1 numa 1 l3 2 core 8",
    "power9": "node 1 socket 2 numa 2 l3 16 l2 16 core 32",
    "vm-no-caches": "node 1 socket 8 core 8",
    "xeon-snc2": "node 1 socket 2 l3 2 numa 4 core 56 l2 56",
}


def counts(found: Machine) -> str:
    return " ".join(f"{level.name} {len(level.domains)}" for level in found.levels)


# --- reading --------------------------------------------------------------------------------------


def test_every_recorded_machine_has_an_answer_here() -> None:
    assert sorted(COUNTS) == MACHINES


@pytest.mark.parametrize("name", MACHINES)
def test_a_recorded_machine_is_read(name: str) -> None:
    found = recorded_machine(name)
    assert counts(found) == COUNTS[name]
    assert frozenset(found.cpus) == machine_facts(name)["online"][0]
    check_machine(found)


def check_machine(found: Machine) -> None:
    """Each level divides all processors, and lies in the one above."""
    above = [frozenset(found.cpus)]
    for level in found.levels:
        assert sorted(cpu for domain in level.domains for cpu in domain) == list(found.cpus)
        assert all(any(domain <= wide for wide in above) for domain in level.domains)
        above = list(level.domains)


def test_the_directory_may_be_of_any_depth(tmp_path: Path) -> None:
    write_sysfs(machine_facts("a64fx"), tmp_path)
    whole = machine_of(str(tmp_path))
    assert machine_of(str(tmp_path / "sys")) == whole
    assert machine_of(str(tmp_path / "sys" / "devices" / "system")) == whole


def test_cores_without_the_last_cache_count_by_their_widest_one() -> None:
    level = recorded_machine("hybrid-laptop").level("l3")
    assert level is not None
    assert level.domains == (frozenset(range(20)), frozenset({20, 21}))


def test_this_machine_is_read_or_unknown() -> None:
    found = machine_here()
    assert found is None or (check_machine(found), found.levels[0].name)[1] == "node"


def test_a_machine_without_an_online_file_is_read_by_its_folders(tmp_path: Path) -> None:
    write_sysfs(machine_facts("power9"), tmp_path)
    (tmp_path / "sys/devices/system/cpu/online").unlink()
    assert counts(machine_of(str(tmp_path))) == COUNTS["power9"]


def test_instruction_caches_do_not_count(tmp_path: Path) -> None:
    write_sysfs(machine_facts("a64fx"), tmp_path)
    for index in tmp_path.glob("sys/devices/system/cpu/cpu*/cache/index2/type"):
        index.write_text("Instruction\n")
    assert "l2" not in counts(machine_of(str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("online 0-3\nl3 0-2 2-3", "level l3 contradict"),
        ("online 0-3\nsocket 0-1\nsocket 1-3", "level socket contradict"),
        ("online 0-3\nnuma 0-1 1-3", "level numa contradict"),
    ],
)
def test_lists_that_contradict_each_other(text: str, words: str, tmp_path: Path) -> None:
    write_sysfs(facts_of(text), tmp_path)
    with pytest.raises(ValueError, match=words) as error:
        machine_of(str(tmp_path))
    assert str(tmp_path) in str(error.value)


def test_a_directory_that_is_no_sysfs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a directory with sys/devices/system/cpu"):
        machine_of(str(tmp_path))
    (tmp_path / "cpu").mkdir()
    with pytest.raises(ValueError, match="lists no processors"):
        machine_of(str(tmp_path))
    (tmp_path / "cpu" / "online").write_text("0-3;5")
    with pytest.raises(ValueError, match=r"online: expected a list of processors like 0-3,8"):
        machine_of(str(tmp_path))


def test_a_wrong_sysfs_of_this_machine_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_machine, "__defaults__", (tmp_path,))
    monkeypatch.setattr("xupc.topology.sysfs.SYSTEM", tmp_path)
    assert machine_here() is None


@pytest.mark.parametrize("text", ["0-3,8", "5", " 0 , 2-2 ", ""])
def test_lists_of_processors(text: str) -> None:
    expected = {"0-3,8": {0, 1, 2, 3, 8}, "5": {5}, " 0 , 2-2 ": {0, 2}, "": set()}
    assert cpu_list(text) == expected[text]


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "0-99999999", "1,,2", "9" * 4000, "0x3"])
def test_what_is_no_list_of_processors(text: str) -> None:
    with pytest.raises(ValueError, match="expected a list of processors like 0-3,8, got"):
        cpu_list(text)


# --- descriptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2x4x8", "node 1 socket 2 l3 8 core 64"),
        ("4x8", "node 1 l3 4 core 32"),
        ("1x1", "node 1 l3 1 core 1"),
        ("3,1/4", "node 1 socket 2 l3 3 core 8"),
        ("3,1", "node 1 l3 2 core 4"),
        ("8/8", "node 1 socket 2 l3 2 core 16"),
        ("socket:2,numa:2,l3:2,core:3,thread:2", "node 1 socket 2 numa 4 l3 8 core 24"),
        ("l3:2 NUMA:2 core:4", "node 1 l3 2 numa 4 core 16"),
        ("core:5", "node 1 core 5"),
    ],
)
def test_descriptions(text: str, expected: str) -> None:
    found = machine_of(text)
    assert counts(found) == expected
    check_machine(found)


def test_uneven_domains_have_their_sizes() -> None:
    level = describe("3,1/4").level("l3")
    assert level is not None
    assert [len(domain) for domain in level.domains] == [3, 1, 4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2x", "expected .SOCKETSxL3DOMAINSxCORES"),
        ("2x2x2x2", "expected .SOCKETSxL3DOMAINSxCORES"),
        ("0x4", "at least 1"),
        ("4,0", "at least 1"),
        ("socket:0,core:2", "at least 1"),
        ("999999x999999x999999", "expected at most 65536"),
        ("socket:2,sofa:2", "'sofa' is no level"),
        ("l3:2,l3:2", "each level once"),
        ("thread:2,core:2", "threads of a core as the last"),
        ("/no/such/directory", "or a directory"),
        ("\0", "expected .SOCKETSxL3DOMAINSxCORES"),
        ("8", "expected .SOCKETSxL3DOMAINSxCORES"),
    ],
)
def test_bad_descriptions(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        machine_of(text)
    assert str(error.value).startswith("XUPC_TOPOLOGY is ")


# --- placing threads ------------------------------------------------------------------------------


def test_threads_are_spread_evenly_or_closely() -> None:
    found = describe("2x2x2")
    assert [sorted(mask) for mask in found.masks(4)] == [[0], [2], [4], [6]]
    assert [sorted(mask) for mask in found.masks(4, spread=False)] == [[0], [1], [2], [3]]
    assert [sorted(mask) for mask in found.masks(3)] == [[0], [2], [5]]
    assert [min(mask) for mask in found.masks(16)] == [i // 2 for i in range(16)]


def test_cores_of_a_domain_follow_each_other_whatever_their_numbers() -> None:
    cores = recorded_machine("xeon-snc2").cores
    numbers = [0, 1, 2, 3, 7, 8, 9, 14, 15, 16, 17, 21, 22, 23, 4, 5]
    assert [min(core) for core in cores[: len(numbers)]] == numbers
    assert cores[0] == {0, 56}


def test_a_part_of_a_machine_keeps_the_domains_of_its_processors() -> None:
    found = recorded_machine("container-cuts-domain").within(range(4, 12))
    assert counts(found) == "node 1 socket 1 numa 1 l3 2 core 8 l2 8"
    level = found.level("l3")
    assert level is not None
    assert level.domains == (frozenset(range(4, 8)), frozenset(range(8, 12)))


# --- levels of threads ----------------------------------------------------------------------------


def masks(*lists: str) -> list[frozenset[int]]:
    return [cpu_list(each) for each in lists]


def shown(levels: NodeLevels) -> str:
    return "; ".join(
        f"{level.name} {' '.join(','.join(map(str, domain)) for domain in level.domains)}"
        for level in levels.levels
    )


@pytest.mark.parametrize(
    ("name", "lists", "expected"),
    [
        ("epyc-milan-2p", ["0", "1", "64", "72"], "node 0,1,2,3; socket 0,1 2,3; l3 0,1 2 3"),
        ("epyc-milan-2p", ["0", "128", "8"], "node 0,1,2; l3 0,1 2"),
        # one thread per domain: nothing below the socket
        ("epyc-milan-2p", ["0", "8", "64", "72"], "node 0,1,2,3; socket 0,1 2,3"),
        ("epyc-milan-2p", ["0", "64"], "node 0,1"),
        # all in one domain: nothing but the node
        ("epyc-milan-2p", ["0-3", "4-7"], "node 0,1"),
        # a mask that spans L3 domains belongs to the socket, one that spans sockets to the node
        ("epyc-milan-2p", ["0-7", "0-7", "4-11", "64-71", "0-255"],
         "node 0,1,2,3,4; socket 0,1,2 3 4; l3 0,1 2 3 4"),
        # nothing is bound
        ("epyc-milan-2p", ["0-255", "0-255"], "node 0,1"),
        ("xeon-snc2", ["0", "1", "4", "28"], "node 0,1,2,3; socket 0,1,2 3; numa 0,1 2 3"),
        ("grace-superchip", ["0", "1", "72"], "node 0,1,2; socket 0,1 2"),
        ("a64fx", ["0-11", "0-11", "12-23", "24"], "node 0,1,2,3; numa 0,1 2 3"),
        ("hybrid-laptop", ["0", "1", "12", "13", "20", "21"],
         "node 0,1,2,3,4,5; l3 0,1,2,3 4,5; l2 0,1 2,3 4,5; core 0,1 2 3 4 5"),
        ("vm-no-caches", ["0", "1", "0"], "node 0,1,2; socket 0,2 1"),
        # the container's own mask: bound, but all alike
        ("container-cuts-domain", ["4-11", "4-11"], "node 0,1"),
        ("container-cuts-domain", ["4-7", "4", "8-11", "9", "4-11"],
         "node 0,1,2,3,4; l3 0,1 2,3 4"),
        ("offline-cores", ["0", "1", "4,12", "12"], "node 0,1,2,3; l3 0,1 2,3; core 0 1 2,3"),
        ("power9", ["0-3", "4-7", "8", "64"], "node 0,1,2,3; socket 0,1,2 3; l3 0,1 2 3"),
        ("kunpeng-920", ["0", "1", "4", "32"], "node 0,1,2,3; numa 0,1,2 3; cluster 0,1 2 3"),
    ],
)  # fmt: skip
def test_levels_of_threads(name: str, lists: list[str], expected: str) -> None:
    assert shown(node_levels(recorded_machine(name), masks(*lists))) == expected


def test_levels_that_are_equal_have_each_other_as_names() -> None:
    found = node_levels(describe("socket:2,numa:1,l3:2,core:2"), masks("0", "1", "4", "5"))
    assert [level.names for level in found.levels] == [("node",), ("socket", "numa", "l3")]
    assert found.single == ("core",)
    assert found.find("l3") is found.levels[1]
    assert found.find("core").domains == ((0,), (1,), (2,), (3,))


def test_what_is_not_known_stands_for_the_next_wider_level() -> None:
    found = node_levels(describe("2x2x2"), masks("0", "1", "2", "4"))
    assert found.names == ("node", "socket", "l3")
    assert found.find("die").name == "socket"
    assert found.find("cluster").name == "l3"
    assert flat_levels(4).find("l3").name == "node"
    with pytest.raises(ValueError, match="level 'L3': expected one of node, socket"):
        found.find("L3")


def test_a_machine_of_which_nothing_is_known_has_one_level() -> None:
    assert node_levels(None, masks("0", "1")) == flat_levels(2)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine with partitions that need not be nested."""
    count = draw(st.integers(1, 12))
    names = draw(st.lists(st.sampled_from(NAMES[1:]), unique=True, max_size=4))
    return nest(
        range(count),
        [
            (name, [frozenset(c for c in range(count) if labels[c] == k) for k in set(labels)])
            for name in names
            for labels in [draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))]
        ],
    )


@st.composite
def bound_threads(draw: st.DrawFn) -> tuple[Machine, list[frozenset[int]]]:
    found = draw(machines())
    mask = st.frozensets(st.sampled_from(found.cpus), min_size=1, max_size=4)
    return found, draw(st.lists(mask, min_size=1, max_size=10))


def check_levels(levels: NodeLevels, threads: int) -> None:
    """Each level holds each thread once and lies in the one above; none is superfluous."""
    assert levels.levels[0].domains == (tuple(range(threads)),)
    for level in levels.levels:
        assert sorted(i for domain in level.domains for i in domain) == list(range(threads))
        assert level.roots == tuple(domain[0] for domain in level.domains)
    for wide, narrow in zip(levels.levels, levels.levels[1:], strict=False):
        assert all(set(domain) <= set(wide.domain(domain[0])) for domain in narrow.domains)
        assert len(narrow.domains) > len(wide.domains)
        assert not narrow.is_single
    names = [name for level in levels.levels for name in level.names] + list(levels.single)
    assert len(set(names)) == len(names)


@given(machines())
def test_random_machines_are_nested(found: Machine) -> None:
    check_machine(found)
    assert len(found.cores) == len({min(core) for core in found.cores})


@given(bound_threads())
def test_levels_of_random_masks(case: tuple[Machine, list[frozenset[int]]]) -> None:
    found, of_threads = case
    check_levels(node_levels(found, of_threads), len(of_threads))


def groups(levels: NodeLevels, names: Sequence[int]) -> list[tuple[str, set[frozenset[int]]]]:
    return [
        (level.name, {frozenset(names[i] for i in domain) for domain in level.domains})
        for level in levels.levels
    ]


@given(bound_threads(), st.randoms(use_true_random=False))
def test_the_order_of_threads_does_not_matter(
    case: tuple[Machine, list[frozenset[int]]], random: Random
) -> None:
    found, of_threads = case
    order = list(range(len(of_threads)))
    random.shuffle(order)
    shuffled = node_levels(found, [of_threads[i] for i in order])
    assert groups(shuffled, order) == groups(node_levels(found, of_threads), range(len(order)))


@given(bound_threads(), st.data())
def test_levels_of_some_threads_are_those_of_their_masks(
    case: tuple[Machine, list[frozenset[int]]], data: st.DataObject
) -> None:
    found, of_threads = case
    chosen = data.draw(st.lists(st.sampled_from(range(len(of_threads))), unique=True, min_size=1))
    part = node_levels(found, of_threads).sub(chosen)
    check_levels(part, len(chosen))
    alone = node_levels(found, [of_threads[i] for i in chosen])
    assert [level.root_of for level in part.levels] == [level.root_of for level in alone.levels]


# --- the tree -------------------------------------------------------------------------------------


def tree_of(nodes: Sequence[int], levels: dict[int, NodeLevels]) -> Tree:
    return Tree(nodes).with_levels(levels)


def test_the_tree_draws_domains_below_their_nodes() -> None:
    levels = node_levels(describe("2x2x2"), describe("2x2x2").masks(8))
    assert str(tree_of([0] * 8 + [1] * 2, {0: levels})) == (
        "10 threads on 2 nodes\n"
        "├─ node 0: threads 0-7, node root 0\n"
        "│  ├─ socket: threads 0-3, root 0\n"
        "│  │  ├─ l3: threads 0-1, root 0\n"
        "│  │  └─ l3: threads 2-3, root 2\n"
        "│  └─ socket: threads 4-7, root 4\n"
        "│     ├─ l3: threads 4-5, root 4\n"
        "│     └─ l3: threads 6-7, root 6\n"
        "└─ node 1: threads 8-9, node root 8"
    )


def test_a_team_has_the_levels_of_its_threads() -> None:
    levels = node_levels(describe("2x2x2"), describe("2x2x2").masks(8))
    tree = tree_of([0] * 8, {0: levels})
    team = tree.sub([7, 1, 6, 0])
    assert shown(team.levels(0)) == "node 0,1,2,3; socket 0,2 1,3"
    assert team.levels(0).levels[1].names == ("socket", "l3")
    assert ThreadTree(team, [7, 1, 6, 0]).levels(0) == team.levels(0)
    assert "socket: threads 6-7, root 7" in str(ThreadTree(team, [7, 1, 6, 0]))


def test_trees_with_other_levels_differ() -> None:
    levels = node_levels(describe("2x2"), describe("2x2").masks(4))
    assert tree_of([0] * 4, {0: levels}) != Tree([0] * 4)
    assert tree_of([0] * 4, {0: levels}) == tree_of([0] * 4, {0: levels})
    assert Tree([0] * 4).levels(0) == flat_levels(4)


def test_parts_of_a_level() -> None:
    levels = node_levels(describe("2x2x2"), describe("2x2x2").masks(8))
    tree = tree_of([1] * 2 + [0] * 8, {1: levels})
    part = level_part(levels, "l3", roots=False)
    assert ranks_of_part(tree, 5, part) == [4, 5]
    assert ranks_of_part(tree, 5, level_part(levels, "l3", roots=True)) == [2, 4, 6, 8]
    assert ranks_of_part(tree, 5, level_part(levels, "socket", roots=False)) == [2, 3, 4, 5]
    assert ranks_of_part(tree, 5, level_part(levels, "core", roots=False)) == [5]
    assert ranks_of_part(tree, 0, level_part(tree.levels(0), "l3", roots=False)) == [0, 1]
    assert level_part(levels, "node", roots=False) == "node"
    with pytest.raises(ValueError, match=r"^level: name: expected one of node, .*, got 'L3'"):
        level_part(levels, "L3", roots=False)
    with pytest.raises(TypeError, match=r"^level_roots: name: expected one of node, .*, got 3"):
        level_part(levels, 3, roots=True)  # type: ignore[arg-type]
    assert ranks_of_part(tree, 5, "roots") == [0, 2]


# --- the tree of domains --------------------------------------------------------------------------
def test_the_parent_is_the_root_of_the_narrowest_domain_of_both() -> None:
    levels = node_levels(describe("2x2x2"), masks(*map(str, range(8))))
    assert levels.parents == (-1, 0, 0, 2, 0, 4, 4, 6)
    assert levels.relatives(0) == [-1, 1, ~2, ~4]
    assert levels.relatives(4) == [0, 5, ~6]
    assert levels.relatives(7) == [6]


def test_the_nearest_children_come_first() -> None:
    """Threads 0, 3 and 4 share the cache domain of the top; thread 1 is in another socket."""
    levels = node_levels(describe("2x2x3"), masks("0", "6", "3", "1", "2", "4", "7"))
    assert levels.parents == (-1, 0, 0, 0, 0, 2, 1)
    assert levels.relatives(0) == [-1, 3, 4, ~2, ~1]


@pytest.mark.parametrize(
    ("machine", "has"),
    [("1x4", False), ("2x1", False), ("3,1", False), ("2x2", True), ("2x2x2", True)],
)
def test_which_nodes_have_domains(machine: str, has: bool) -> None:
    found = describe(machine)
    assert node_levels(found, found.masks(len(found.cpus))).has_domains is has


@given(st.data())
def test_relatives_are_mutual(data: st.DataObject) -> None:
    """Each thread but the top is the child of one thread, and parents are lower."""
    found = describe(data.draw(st.sampled_from(["2x2x2", "3,1/2,2", "2x4x4", "8,8/8,6"])))
    chosen = data.draw(st.permutations(range(len(found.cpus))))
    levels = node_levels(found, found.masks(len(found.cpus))).sub(chosen)
    above, children = {}, []
    for thread in range(levels.size):
        above[thread], *below = levels.relatives(thread)
        named = [j if j >= 0 else ~j for j in below]
        assert all((j < 0) == (k in levels.parents) for j, k in zip(below, named, strict=True))
        assert all(levels.parents[j] == thread for j in named)
        children += named
    assert above == dict(enumerate(levels.parents))
    assert sorted(children) == list(range(1, levels.size))
    assert all(parent < thread for thread, parent in above.items())
