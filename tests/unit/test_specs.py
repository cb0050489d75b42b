"""The records of the collectives agree with the calls that programs make, and with arithmetic."""

from __future__ import annotations

import inspect
from itertools import product

import pytest

import xupc
from xupc.specs import (
    FORMS,
    SPECS,
    CollectiveSpec,
    call_name,
    calls,
    exclusive_of,
    function_name,
    parse_name,
)

ALL_CALLS = [(spec, form) for spec in SPECS.values() for form in spec.forms]
IDS = [call_name(spec, form) for spec, form in ALL_CALLS]


@pytest.mark.parametrize(("spec", "form"), ALL_CALLS, ids=IDS)
def test_each_form_is_a_public_call(spec: CollectiveSpec, form: str) -> None:
    """Its docstring begins with the spec's summary; its arguments are those the spec implies."""
    call = getattr(xupc, function_name(spec, form))
    first = " ".join(inspect.getdoc(call).split("\n\n")[0].split())
    assert first == SPECS[spec.inclusive or spec.name].summary[form]
    names = list(inspect.signature(call).parameters)
    private = form in ("allav", "allav_v", "allv")
    assert ("root" in names) == (private and bool(spec.root))
    assert ("op" in names) == bool(spec.computes)
    assert bool({"perm", "to"} & {*names}) == spec.permutes
    assert ("buf" in names) == spec.one_buffer


def test_each_public_collective_has_a_spec() -> None:
    """No call of these families is missing, but exchanges of neighbours, whose sizes vary."""
    prefixes = tuple(f"{form}_" for form in FORMS)
    public = {name for name in xupc.__all__ if name.startswith(prefixes)}
    neighbours = {"all_neighbour_exchange", "allav_neighbour_exchange"}
    others = {"all_alloc", "all_free", *neighbours}
    assert public - others == {function_name(*of) for of in ALL_CALLS}
    assert len(calls()) == len(ALL_CALLS)


def test_an_exclusive_scan_differs_from_the_inclusive_one_in_its_results_alone() -> None:
    """It has the same operands, so the same calls can make it."""
    scans = [spec for spec in SPECS.values() if spec.inclusive]
    assert [spec.inclusive for spec in scans] == ["prefix_reduce", "suffix_reduce"]
    for spec in scans:
        other = SPECS[spec.inclusive]
        assert spec.name == exclusive_of(other.name)
        assert (spec.dst, spec.src, spec.forms) == (other.dst, other.src, other.forms)
        assert (spec.computes, spec.whole, spec.backward) == ("scan", True, other.backward)
        assert f"allav_{spec.name}" == exclusive_of(f"allav_{other.name}")


def test_names_are_read_back() -> None:
    """A name that is none is a ValueError."""
    for spec, form in ALL_CALLS:
        assert parse_name(call_name(spec, form)) == (form, spec)
    for name in ("barrier", "all_broadcast_in_place_v", "allv_reduce_mpi", ""):
        with pytest.raises(ValueError, match="name of a collective"):
            parse_name(name)


def test_blocks_on_each_thread() -> None:
    """Of four threads: a row has four blocks; what only the root has, others have nothing of."""
    assert [SPECS["scatter"].src.blocks_on(4, root=root) for root in (True, False)] == [4, 0]
    assert [SPECS["gather_all"].dst.blocks_on(4, root=root) for root in (True, False)] == [4, 4]
    assert [SPECS["permute"].src.blocks_on(4, root=root) for root in (True, False)] == [1, 1]


def _blocks_of_busiest_node(name: str, node_of: list[int], root: int) -> int:
    """Return the most different blocks that a node must receive or send, by the definition."""
    threads = range(len(node_of))
    pairs = {  # (from, to, block)
        "broadcast": [(root, to, 0) for to in threads],
        "scatter": [(root, to, to) for to in threads],
        "gather": [(of, root, of) for of in threads],
        "gather_all": [(of, to, of) for of, to in product(threads, threads)],
        "exchange": [(of, to, (of, to)) for of, to in product(threads, threads)],
    }[name]
    most = 0
    for node in {*node_of}:
        enter = {block for of, to, block in pairs if node_of[to] == node != node_of[of]}
        leave = {block for of, to, block in pairs if node_of[of] == node != node_of[to]}
        most = max(most, len(enter), len(leave))
    return most


@pytest.mark.parametrize("name", ["broadcast", "scatter", "gather", "gather_all", "exchange"])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (3, 1, 2), (1, 4), (2, 3, 1, 1)])
def test_bytes_that_cross(name: str, sizes: tuple[int, ...]) -> None:
    """As many as the busiest node must send or receive, counted block by block."""
    node_of = [node for node, size in enumerate(sizes) for _ in range(size)]
    for root, node in enumerate(node_of):
        blocks = _blocks_of_busiest_node(name, node_of, root)
        assert SPECS[name].crossing(sizes, node, 10) == 10 * blocks
