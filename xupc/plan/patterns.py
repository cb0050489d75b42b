"""Communication patterns: which position sends to which one, as integer arithmetic.

Positions are virtual ranks ``0 .. n-1`` with the root at 0; callers rotate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

__all__ = [
    "Shape",
    "binary",
    "binomial",
    "chain",
    "chunks",
    "dissemination",
    "filled",
    "grouped",
    "mirrored",
    "pieces",
    "pipeline",
    "prefix_joins",
    "rotate",
    "star",
    "tree_for",
    "tree_joins",
]

T = TypeVar("T")
Shape = Callable[[int, int], tuple[int | None, list[int]]]
"""A tree: ``(virtual rank, how many)`` -> parent, children."""


def rotate(rank: int, root: int, n: int) -> int:
    """Return the virtual rank of `rank` when `root` is 0."""
    return (rank - root) % n


def binomial(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children of virtual rank `v` in a binomial tree of `n`.

    A node's parent clears its lowest set bit; children come largest subtree
    first, so that the longest way starts first.

    >>> binomial(0, 6)
    (None, [4, 2, 1])
    >>> binomial(4, 6)
    (0, [5])
    """
    low = v & -v if v else 1 << max(n - 1, 0).bit_length()
    children = []
    bit = low >> 1
    while bit:
        if v + bit < n:
            children.append(v + bit)
        bit >>= 1
    return (v - low if v else None), children


def chain(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children of `v` in a chain 0 -> 1 -> ... -> n-1."""
    return (v - 1 if v else None), ([v + 1] if v + 1 < n else [])


def binary(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children of `v` in a complete binary tree, row by row.

    >>> [binary(v, 5) for v in range(5)]
    [(None, [1, 2]), (0, [3, 4]), (0, []), (1, []), (1, [])]
    """
    return ((v - 1) // 2 if v else None), [w for w in (2 * v + 1, 2 * v + 2) if w < n]


def pipeline(n: int, parts: int) -> Shape:
    """Return the tree in which the last of `parts` messages from 0 is soonest with all of `n`.

    Counted in messages that are sent in sequence. In a chain each link carries every part once,
    and the last part then passes the other links. In a binary tree a position sends each part
    twice, but a part passes only log2 n links. In a binomial tree 0 sends each part log2 n times.

    >>> [pipeline(*case).__name__ for case in ((4, 2), (8, 2), (8, 32), (1000, 32), (1000, 1))]
    ['chain', 'binomial', 'chain', 'binary', 'binomial']
    """
    depth, full_rows = (n - 1).bit_length(), (n + 1).bit_length() - 1
    times = {chain: parts + n - 2, binomial: parts * depth, binary: 2 * (parts + full_rows - 2)}
    return min(times, key=times.__getitem__)


def tree_for(n: int, nbytes: int, unit: int, tuning: Mapping[str, int]) -> Shape:
    """Return the tree for so many bytes, in messages of `unit`, from one of `n` to all or back.

    What is shorter than `pipeline_min` goes in a `star` of up to `few_nodes_max`, in a binomial
    tree of more; the rest goes in the `pipeline` for its messages.
    """
    if nbytes < tuning["pipeline_min"]:
        return star if n <= tuning["few_nodes_max"] else binomial
    return pipeline(n, -(-nbytes // unit))


def star(v: int, n: int) -> tuple[int | None, list[int]]:
    """Return parent and children of `v` where 0 sends to all the others itself."""
    return (None, list(range(1, n))) if v == 0 else (0, [])


def dissemination(v: int, n: int) -> list[tuple[int, int]]:
    """Return ``(to, from)`` for each round of a dissemination among `n` positions.

    After round k each position has information from the 2^(k+1) - 1 positions before it.
    """
    rounds = []
    step = 1
    while step < n:
        rounds.append(((v + step) % n, (v - step) % n))
        step *= 2
    return rounds


def chunks(nbytes: int, chunk: int) -> list[tuple[int, int]]:
    """Return ``(offset, size)`` of the chunks of `nbytes`, all but the last of size `chunk`."""
    return [(o, min(chunk, nbytes - o)) for o in range(0, nbytes, chunk)]


def pieces(count: int, nbytes: int, chunk: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut a row of `count` blocks of `nbytes` into messages of at most `chunk` bytes.

    Yields ``(first block, blocks, offset in block, bytes per block)``: several whole
    blocks while they are small, parts of one block when it is larger than a chunk.
    """
    if nbytes <= chunk:
        per = max(1, chunk // nbytes)
        for first in range(0, count, per):
            yield first, min(per, count - first), 0, nbytes
    else:
        for block in range(count):
            for offset, size in chunks(nbytes, chunk):
                yield block, 1, offset, size


def filled(
    rows: Iterable[tuple[T, int]], nbytes: int, most: int
) -> Iterator[list[tuple[T, int, int, int, int]]]:
    """Cut rows of blocks, of (something, its number of blocks) each, into full messages.

    Each has `most` bytes, but for the last one: where a block does not fit any more its
    beginning goes along, and the rest with the next message. A message is a list of
    ``(something, first block, blocks, offset in block, bytes per block)``.
    """
    message, left = [], most
    for row, count in rows:
        block = offset = 0
        while block < count:
            blocks, size = 1, min(nbytes - offset, left)
            if size == nbytes:
                blocks = min(count - block, left // nbytes)
            message.append((row, block, blocks, offset, size))
            left -= blocks * size
            offset += size
            if offset == nbytes:
                block, offset = block + blocks, 0
            if not left:
                yield message
                message, left = [], most
    if message:
        yield message


def grouped(items: Iterable[T], nbytes: Callable[[T], int], least: int) -> list[list[T]]:
    """Return neighbours in groups that each have at least so many bytes, but for the last."""
    groups: list[list[T]] = []
    room = 0
    for item in items:
        if room <= 0:
            groups.append([])
            room = least
        groups[-1].append(item)
        room -= nbytes(item)
    return groups


def tree_joins(n: int) -> list[int]:
    """Return the tree of a fold over positions ``0 .. n-1``: how many joins follow each leaf.

    Every aligned pair is joined, then every aligned four, and so on; what is left over at
    the end is joined from the right. A `binomial` tree combines in just this order.

    >>> tree_joins(4), tree_joins(7)
    ([0, 1, 0, 2], [0, 1, 0, 2, 0, 1, 2])
    """
    joins = [((i + 1) & -(i + 1)).bit_length() - 1 for i in range(n)]
    if n:
        joins[-1] += bin(n).count("1") - 1
    return joins


def prefix_joins(v: int) -> list[int]:
    """Return the same for all before position `v`, as the tree's vertices are handed down to it.

    Each vertex gives its right child what it got itself, joined with its left child's value.

    >>> prefix_joins(3), prefix_joins(7)
    ([0, 1, 1], [0, 1, 0, 2, 0, 2, 1])
    """
    joins: list[int] = []
    for bit in reversed(range(v.bit_length())):
        if v >> bit & 1:
            group = tree_joins(1 << bit)
            group[-1] += bool(joins)
            joins += group
    return joins


def mirrored(joins: list[int]) -> list[int]:
    """Return the same tree seen in a mirror: for the leaves in reverse, left and right exchanged.

    >>> mirrored([0, 1, 0, 2, 1])
    [0, 0, 1, 0, 3]
    """
    stack: list[list[int]] = []
    for n in joins:
        stack.append([0])
        for _ in range(n):
            right = stack.pop()
            left = stack.pop()
            both = right + left
            both[-1] += 1
            stack.append(both)
    return stack[0] if stack else []
