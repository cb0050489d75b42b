"""A share of the largest sets of tests in each run, other ones for each seed.

A function marked ``rotates`` has more parameters than one run needs. ``scripts/test`` sets
``XUPC_TEST_SHARE=1/4`` and runs a fourth of them; the seed chooses which, so runs of other seeds
have others. ``@pytest.mark.rotates("nodes")`` names parameters: the run has a share of the values
of `nodes` for each combination of the others; without names it has a share of all combinations. At
least one of each stays. Without the variable everything runs.

The functions marked ``takes_turns`` are one set together: a run has a share of them. They are live
tests of many processor seconds, listed in `support.selection`.

With ``XUPC_TEST_QUICK`` every function rotates in all of its parameters: a run has a share of them,
and each function once at least. ``XUPC_TEST_REPEATED=N`` says that a run of a share has tests
again, with another engine or MPI: it has one of N functions of each file.

A test with a loop of its own takes its share with `share` or `share_of` of `support.soak`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from support.soak import ONE_OF, seed

__all__ = ["Rotation", "repeated", "rotated"]

QUICK = bool(os.environ.get("XUPC_TEST_QUICK"))
REPEATED = int(os.environ.get("XUPC_TEST_REPEATED") or 1)


class Rotation:
    """A plugin that leaves out the tests of which another run has its share."""

    @pytest.hookimpl(trylast=True)  # of the tests that marks and names have selected
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep a share of each group."""
        kept = rotated(items, ONE_OF, seed(), every=QUICK)
        if ONE_OF > 1 and REPEATED > 1:
            kept &= repeated(items, REPEATED, seed())
        if left := [item for item in items if item.nodeid not in kept]:
            items[:] = [item for item in items if item.nodeid in kept]
            config.hook.pytest_deselected(items=left)


def rotated(items: Iterable[Any], one_of: int, seed: int, *, every: bool = False) -> set[str]:
    """Return the ids of the tests that run: those that do not rotate, one of so many others.

    `every`: each function rotates, in all of its parameters, and none takes turns.
    """
    kept: set[str] = set()
    groups: dict[object, list[str]] = {}
    in_turn: dict[str, list[str]] = {}
    for item in items:
        if item.get_closest_marker("takes_turns") and not every:
            in_turn.setdefault(_function(item), []).append(item.nodeid)
        mark = item.get_closest_marker("rotates")
        if every:
            groups.setdefault(_group(item, ()), []).append(item.nodeid)
        elif mark is None:
            kept.add(item.nodeid)
        else:
            groups.setdefault(_group(item, mark.args), []).append(item.nodeid)
    for ids in groups.values():
        kept |= _chosen(ids, one_of, seed)
    if in_turn:
        for function in in_turn.keys() - _chosen(in_turn, one_of, seed):
            kept.difference_update(in_turn[function])
    return kept


def repeated(items: Iterable[Any], one_of: int, seed: int) -> set[str]:
    """Return the ids of the tests of one of so many functions of each file."""
    functions: dict[str, dict[str, list[str]]] = {}
    for item in items:
        function = _function(item)
        file = function.partition("::")[0]
        functions.setdefault(file, {}).setdefault(function, []).append(item.nodeid)
    return {
        name
        for of in functions.values()
        for function in _chosen(of, one_of, seed)
        for name in of[function]
    }


def _chosen(names: Collection[str], one_of: int, seed: int) -> set[str]:
    """Return one of so many names, at least one.

    Where `one_of` does not divide their number, some seeds have one more, so that each name is in
    one of `one_of` runs in the mean.
    """
    whole, rest = divmod(len(names), one_of)
    count = max(1, whole + (_number(seed, f"one more than {min(names)}") % one_of < rest))
    return set(sorted(names, key=lambda name: _number(seed, name))[:count])


def _group(item: Any, names: tuple[str, ...]) -> tuple[object, ...]:
    """Return the function of a test and its parameters without those that rotate."""
    function = _function(item)
    callspec = getattr(item, "callspec", None)
    if not names or callspec is None:
        return (function,)
    if unknown := set(names) - set(callspec.params):
        raise pytest.UsageError(f"{item.nodeid}: rotates: no parameter {', '.join(unknown)}")
    others = {name: str(x) for name, x in callspec.params.items() if name not in names}
    return function, repr(sorted(others.items()))


def _function(item: Any) -> str:
    """Return the file and the function of a test."""
    name: str = item.nodeid.partition("[")[0]
    return name


def _number(seed: int, text: str) -> int:
    """Return a number that looks random and is the same in each process."""
    return int.from_bytes(hashlib.sha256(f"{seed} {text}".encode()).digest()[:8], "big")
