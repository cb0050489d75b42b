"""Every tree of levels of a few threads."""

from __future__ import annotations

import random
from collections.abc import Iterator

from xupc.topology.levels import Level, NodeLevels
from xupc.topology.tree import Tree


def nested(threads: int) -> Iterator[NodeLevels]:
    """Yield every tree of levels of successive threads, of at most three levels below the node."""

    def cuts(sizes: tuple[int, ...], depth: int) -> Iterator[list[tuple[int, ...]]]:
        yield []
        if depth:
            for finer in finer_cuts(sizes):
                if len(sizes) < len(finer) < threads:
                    yield from ([finer, *rest] for rest in cuts(finer, depth - 1))

    for levels in cuts((threads,), 3):
        yield made(threads, [(threads,), *levels])


def finer_cuts(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to cut each of some runs of threads into runs."""
    if not sizes:
        yield ()
        return
    for tail in finer_cuts(sizes[1:]):
        yield from ((*cut, *tail) for cut in compositions(sizes[0]))


def compositions(n: int) -> Iterator[tuple[int, ...]]:
    """Yield all ordered sums of `n`."""
    yield (n,)
    for first in range(1, n):
        yield from ((first, *rest) for rest in compositions(n - first))


def made(threads: int, levels: list[tuple[int, ...]]) -> NodeLevels:
    """Return levels whose domains are runs of threads with these lengths."""
    found = []
    for name, sizes in zip(("node", "socket", "l3", "l2"), levels, strict=False):
        roots = [root for at, n in enumerate(sizes) for root in [sum(sizes[:at])] * n]
        assert len(roots) == threads
        found.append(Level((name,), tuple(roots)))
    return NodeLevels(tuple(found))


def tree_of(levels: NodeLevels) -> Tree:
    return Tree([0] * levels.size).with_levels({0: levels})


def shuffled(levels: NodeLevels, rng: random.Random) -> NodeLevels:
    """Return the levels with the threads in another order."""
    return levels.sub(rng.sample(range(levels.size), levels.size))


def on_nodes(labels: list[int], rng: random.Random) -> Tree:
    """Return the tree of some nodes with levels of their own, threads in any order."""
    tree = Tree(labels)
    sizes = enumerate(tree.node_sizes.tolist())
    return tree.with_levels(
        {node: shuffled(rng.choice(list(nested(size))), rng) for node, size in sizes}
    )
