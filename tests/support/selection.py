"""Which live tests another engine and another MPI repeat, and which wait more than they compute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["mark_live"]

# Tests whose processes sleep, hang, die or start: several run at a time on few cores.
WAITING = (
    "test_death", "test_hang", "test_hang_report", "test_interrupt", "test_launch",
    "test_split_phase", "test_trust_death",
)  # fmt: skip
# What depends on the MPI on one node, too: starting, ending, and all that can go wrong.
HEALTH = (*WAITING, "test_command_line", "test_memory", "test_mismatch", "test_shortage")
# Parameters that say where a feature is tested and how much of it, not which one.
SHAPE = {
    "all_roots", "calls", "cases", "count", "cycles", "folded", "how_many", "least", "n", "nodes",
    "repetitions", "roots", "sample", "sizes", "thin", "threads", "victim", "whole",
}  # fmt: skip


def mark_live(items: Iterable[pytest.Item]) -> None:
    """Give the marks `waits`, `one_node` and `other_shape` to the tests of tests/live."""
    features: dict[Any, list[pytest.Item]] = {}
    for item in items:
        if item.path.stem in WAITING:
            item.add_marker("waits")
        elif _parameters(item).get("nodes", "") is None and item.path.stem not in HEALTH:
            item.add_marker("one_node")
        if not item.get_closest_marker("once"):
            features.setdefault(_feature(item), []).append(item)
    for same in features.values():
        chosen = max(same, key=lambda item: _parameters(item).get("nodes") is not None)
        for item in same:
            if item is not chosen:
                item.add_marker("other_shape")


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}


def _feature(item: pytest.Item) -> tuple[object, ...]:
    """Return what a test is about: its function, and its parameters without the shape."""
    name = getattr(item, "originalname", item.name)
    others = {k: v for k, v in _parameters(item).items() if k not in SHAPE}
    return item.path, name, repr(sorted(others.items(), key=lambda pair: pair[0]))
