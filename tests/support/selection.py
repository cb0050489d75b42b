"""Which live tests another engine and another MPI repeat, which wait, and in what they rotate."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["COSTLY", "LONG", "by_threads", "long_ones_first", "mark_cluster", "mark_live"]

# Tests whose processes sleep, hang, die or start: several run at a time on few cores.
WAITING = (
    "test_death", "test_hang", "test_hang_report", "test_interrupt", "test_launch",
    "test_split_phase", "test_trust_death",
)  # fmt: skip
# What depends on the MPI on one node, too: starting, ending, and all that can go wrong.
HEALTH = (*WAITING, "test_command_line", "test_memory", "test_mismatch", "test_shortage")
# Tests of `xupc run` itself, whose programs have MPI alone: another engine changes nothing there.
LAUNCHER = ("test_run_ends", "test_run_surroundings", "test_run_terminal")
# Tests that set XUPC_ENGINE for all of their jobs; with others it is a parameter, `engine`.
OWN_ENGINE = ("test_level_barriers",)
# What takes some seconds even alone. It comes first: one that is the last of a stage would have one
# processor work and all others wait.
LONG = {
    "test_a_suite_within_a_budget", "test_dropped_teams_are_given_back",
    "test_every_algorithm_on_every_placement", "test_every_bad_argument", "test_every_form",
    "test_large_machines", "test_many_of_every_kind",
    "test_many_threads_of_long_records", "test_mpi_s_start_has_a_limit", "test_neighbourhoods",
    "test_nothing_is_left_of_a_job_whose_thread_dies", "test_outcomes_of_all_threads",
    "test_private_arrays",
    "test_programs_do_what_the_oracle_says", "test_sample", "test_the_demo",
    "test_the_tests_of_the_page",
}  # fmt: skip
# Live tests of many processor seconds. Others test the same features at less cost in each run.
COSTLY = {
    "test_a_suite_within_a_budget", "test_differences_on_random_machines", "test_dropped_teams",
    "test_dropped_teams_are_given_back", "test_each_level_is_measured",
    "test_every_variant_is_measured_once", "test_info_measures_in_the_job_that_it_runs_in",
    "test_launches_and_placements_are_all_there", "test_launches_are_added",
    "test_levels_on_several_nodes",
    "test_many_calls_take_a_bounded_file_and_are_all_counted", "test_many_communicators",
    "test_many_threads_meet", "test_methods_of_the_drop_in_communicator",
    "test_mpi_s_start_has_a_limit", "test_neighbourhoods", "test_nothing_grows",
    "test_outcomes_of_all_threads", "test_processes_of_xdist_run_one_job_at_a_time",
    "test_promises_of_the_sync_modes", "test_the_demo", "test_the_same_bits_everywhere",
    "test_the_tests_of_the_page", "test_tune_measures_the_drop_in_beside_mpi4py",
    "test_tune_measures_this_host_and_jobs_use_it",
}  # fmt: skip
# Parameters that say where a feature is tested and how much of it, not which one.
SHAPE = {
    "all_roots", "calls", "cases", "count", "cycles", "every", "folded", "how_many", "inside",
    "labels", "late", "least", "n", "nodes", "part", "repetitions", "roots", "sample", "shape",
    "sizes", "thin", "threads", "victim", "whole", "words",
}  # fmt: skip


def long_ones_first(items: list[pytest.Item]) -> None:
    """Sort tests by whether they are known to take long; those of the cluster share fixtures."""

    def comes_later(item: pytest.Item) -> bool:
        name = getattr(item, "originalname", item.name)
        return name not in LONG or "cluster" in item.path.parts

    items.sort(key=comes_later)


def by_threads(items: list[pytest.Item]) -> None:
    """Sort live tests by numbers of threads: a process that runs some then needs few jobs.

    pytest-xdist gives each process tests that follow each other.
    """

    def threads(item: pytest.Item) -> int:
        if "live" not in item.path.parts:
            return 0
        given = _parameters(item)
        number = given.get("threads", given.get("n", len(given.get("labels", ""))))
        return number if isinstance(number, int) else 0

    items.sort(key=threads)


def mark_live(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of tests/live.

    `waits` (of a file; some tests set it themselves), `launcher`, `own_engine`, `one_node` and
    `takes_turns` say what a test is. `further_shape`, `other_shape` and `other_case` say what
    others in the same list test, too. Of each feature one test on one node and one on several nodes
    are no `further_shape`, and one test is no `other_shape`. Of each function one test is no
    `other_case`.
    The last two leave out tests marked ``once``. A feature rotates in its shapes, unless its
    function says otherwise: a run that has a share has it on one node or on several.
    """
    every: dict[Any, list[pytest.Item]] = {}
    features: dict[Any, list[pytest.Item]] = {}
    functions: dict[Any, list[pytest.Item]] = {}
    for item in items:
        if item.path.stem in WAITING:
            item.add_marker("waits")
        elif _parameters(item).get("nodes", "") is None and item.path.stem not in HEALTH:
            item.add_marker("one_node")
        if item.path.stem in LAUNCHER:
            item.add_marker("launcher")
        if item.path.stem in OWN_ENGINE or "engine" in _parameters(item):
            item.add_marker("own_engine")
        if getattr(item, "originalname", item.name) in COSTLY:
            item.add_marker("takes_turns")
        _rotate(item, SHAPE)
        feature = _feature(item)
        every.setdefault((*feature, _on_several_nodes(item)), []).append(item)
        if not item.get_closest_marker("once"):
            features.setdefault(feature, []).append(item)
            functions.setdefault(feature[:2], []).append(item)
    _mark_all_but_one(every.values(), "further_shape")
    _mark_all_but_one(features.values(), "other_shape")
    _mark_all_but_one(functions.values(), "other_case")


def mark_cluster(items: Iterable[pytest.Item]) -> None:
    """Have the tests of tests/cluster rotate in the two MPIs, where there are two."""
    if os.environ.get("XUPC_TEST_OMPI_PYTHON"):
        for item in items:
            _rotate(item, {"mpi_python"})


def _rotate(item: pytest.Item, names: set[str]) -> None:
    """Mark a test that does not say itself in which parameters it rotates."""
    found = sorted(names & _parameters(item).keys())
    if found and not item.get_closest_marker("rotates"):
        item.add_marker(pytest.mark.rotates(*found))


def _mark_all_but_one(groups: Iterable[list[pytest.Item]], mark: str) -> None:
    """Mark the tests of each group but one, of several nodes and of several threads if any is."""
    for same in groups:
        chosen = max(same, key=_preferred)
        for item in same:
            if item is not chosen:
                item.add_marker(mark)


def _preferred(item: pytest.Item) -> tuple[bool, bool, bool]:
    """Return what makes a test the one of its group, the most important first."""
    parameters = _parameters(item)
    alone = 1 in (parameters.get("threads"), parameters.get("n"))
    return _on_several_nodes(item), not item.get_closest_marker("once"), not alone


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}


def _on_several_nodes(item: pytest.Item) -> bool:
    """Return whether a test has several nodes, as far as its parameters say it."""
    parameters = _parameters(item)
    labels = parameters.get("labels", "")
    shape = str(parameters.get("shape", ""))
    return parameters.get("nodes") is not None or len(set(labels)) > 1 or "," in shape


def _feature(item: pytest.Item) -> tuple[object, ...]:
    """Return what a test is about: its function, and its parameters without the shape."""
    name = getattr(item, "originalname", item.name)
    others = {k: v for k, v in _parameters(item).items() if k not in SHAPE}
    return item.path, name, repr(sorted(others.items(), key=lambda pair: pair[0]))
