"""The pairs of threads between which levels are measured."""

from __future__ import annotations

import pytest

from xupc.bench.pair_probe import pairs_of
from xupc.topology.levels import Level, NodeLevels, flat_levels


def test_the_pair_of_a_level_has_its_narrowest_common_domain_there() -> None:
    socket = Level(("socket", "numa"), (0, 0, 0, 0, 4, 4, 4))
    cache = Level(("l3",), (0, 1, 1, 0, 4, 4, 4))
    levels = NodeLevels((Level(("node",), (0,) * 7), socket, cache), ("core",))
    assert pairs_of(levels) == {"node": (0, 4), "socket": (0, 1), "l3": (0, 3)}


@pytest.mark.parametrize(("threads", "pairs"), [(3, {"node": (0, 1)}), (1, {})])
def test_threads_of_a_flat_node(threads: int, pairs: dict[str, tuple[int, int]]) -> None:
    assert pairs_of(flat_levels(threads)) == pairs
