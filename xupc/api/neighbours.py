"""Neighbourhoods: which threads of a team exchange blocks, agreed once by all of them.

Each thread gives its own neighbours only. All see all edges while they compare them, and then each
keeps its own: for each source the number of the block at that source, which a plan needs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import show
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..runtime.team_state import TeamState
from .list_arguments import items_of
from .team import Team, resolve

__all__ = ["Neighbours", "cartesian", "gathered", "neighbours"]

Table = NDArray[np.int64]

MOST = 1 << 20  # neighbours of a thread
MOST_DIMENSIONS = 64  # of an array of numpy, which finds the places of ranks
_DIMS = "cartesian: dims: expected a sequence of ints"
_AT_ONCE = 64  # rows of each thread that are gathered in one step


class Neighbours:
    """A neighbourhood of a team: the threads that each thread gives blocks to and takes them from.

    `neighbours` and `cartesian` make it. It keeps its team.

    Attributes
    ----------
    sources, destinations : tuple of int or None
        Ranks that I take blocks from and give blocks to, in the order of the blocks. None: there is
        no neighbour, and no block moves.
    dims, periods, coords : tuple
        The grid, and my place in it; empty if it is none.
    """

    def __init__(
        self, team: TeamState, sources: Sequence[int], destinations: Sequence[int],
        match: Sequence[int],
    ) -> None:  # fmt: skip
        self.state = team
        self._hold = team.hold
        self.sources = _or_none(sources)
        self.destinations = _or_none(destinations)
        self.match = tuple(match)  # for each source the index of the block in its destinations
        self.number: int = team.core.op  # differs between neighbourhoods, on all threads alike
        self.dims: tuple[int, ...] = ()
        self.periods: tuple[bool, ...] = ()
        self.coords: tuple[int, ...] = ()

    def __repr__(self) -> str:
        kind = f" in a grid {'x'.join(map(str, self.dims))}" if self.dims else ""
        return (
            f"<xupc neighbours{kind} of thread {self.state.rank}: sources {_text(self.sources)}, "
            f"destinations {_text(self.destinations)}>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("Neighbours cannot be pickled or copied: they are those of this thread")


def neighbours(
    sources: Sequence[int | None], destinations: Sequence[int | None] | None = None, *,
    team: Any = None,
) -> Neighbours:  # fmt: skip
    """Agree on the neighbours of all threads; collective. Each thread gives its own.

    Parameters
    ----------
    sources : sequence of int or None
        Ranks that I take a block from. A rank may be there several times, and may be my own. None:
        a place without a neighbour, as MPI's PROC_NULL.
    destinations : sequence of int or None, optional
        Ranks that I give a block to; default the sources. The first block for a thread arrives at
        its first place with me as the source, and so on.
    team : Team, optional
        Threads that call; default all.

    Raises
    ------
    TypeError, ValueError
        On a thread whose arguments are wrong; the others raise CollectiveMismatchError.
    ValueError
        On all threads, if one names a neighbour that does not name it.
    """
    call = "neighbours"
    on = _entered(team, call)
    try:
        into = _ranks(sources, on.size, f"{call}: sources")
        of = into
        if destinations is not None:
            of = _ranks(destinations, on.size, f"{call}: destinations")
    except Exception as e:
        on.fail(e, CallRecord(call))
    return _agreed(on, call, fingerprint(call), into, of)


def cartesian(
    dims: Sequence[int], periods: bool | Sequence[bool] = False, *, team: Any = None
) -> Neighbours:
    """Arrange the threads in a grid, as MPI does; collective.

    The last dimension varies fastest. Sources and destinations are, for each dimension, the thread
    before and the thread behind; None beyond a border. What a thread gives to the one behind it
    arrives there as the block from before.

    Parameters
    ----------
    dims : sequence of int
        Threads in each dimension; their product is the number of threads.
    periods : bool or sequence of bool, optional
        Whether the ends of each dimension are neighbours.
    team : Team, optional
        Threads that call; default all.

    Raises
    ------
    TypeError, ValueError
        On a thread whose arguments are wrong; if they differ, CollectiveMismatchError on all.
    """
    call = "cartesian"
    on = _entered(team, call)
    try:
        shape = _shape(dims, on.size)
        round_ = _periods(periods, len(shape))
    except Exception as e:
        on.fail(e, CallRecord(call))
    coords = tuple(int(x) for x in np.unravel_index(on.rank, shape)) if shape else ()
    near = [
        _moved(shape, round_, coords, axis, step) for axis in range(len(shape)) for step in (-1, 1)
    ]
    signature = fingerprint(call, len(shape), *shape, *map(int, round_))
    words = [("dims", str(shape)), ("periods", str(round_))]
    made = _agreed(on, call, signature, near, near, words, crossed=1)
    made.dims, made.periods, made.coords = shape, round_, coords
    return made


Team._makers |= {"neighbours": neighbours, "cartesian": cartesian}


# --- arguments ------------------------------------------------------------------------------------


def _entered(team: Any, call: str) -> TeamState:
    on, wrong = resolve(team, call)
    on.enter(call)
    if wrong is not None:
        on.fail(wrong, CallRecord(call))
    return on


def _ranks(given: Any, size: int, what: str) -> list[int]:
    """Return neighbours as ints, -1 for None."""
    each = items_of(given, MOST, f"{what}: expected a sequence of ranks")
    return [-1 if x is None else _rank(x, size, f"{what}[{i}]") for i, x in enumerate(each)]


def _rank(x: Any, size: int, what: str) -> int:
    try:
        rank = operator.index(x)
    except TypeError:
        raise TypeError(f"{what}: expected a rank or None, got {show(x)}") from None
    if not 0 <= rank < size:
        raise ValueError(f"{what}: expected 0 <= rank < {size}, or None, got {rank}")
    return rank


def _shape(dims: Any, size: int) -> tuple[int, ...]:
    try:
        shape = tuple(map(operator.index, items_of(dims, MOST_DIMENSIONS, _DIMS)))
    except TypeError:
        raise TypeError(f"{_DIMS}, got {show(dims)}") from None
    if min(shape, default=1) < 1 or math.prod(shape) != size:
        raise ValueError(
            f"cartesian: dims: expected positive numbers whose product is {size}, the number of "
            f"threads, got {shape}"
        )
    return shape


def _periods(periods: Any, dimensions: int) -> tuple[bool, ...]:
    if isinstance(periods, bool | np.bool_):
        return (bool(periods),) * dimensions
    try:
        found = tuple(map(bool, items_of(periods, dimensions, "periods")))
    except (TypeError, ValueError):
        found = ()
    if len(found) != dimensions:
        raise ValueError(
            f"cartesian: periods: expected True, False, or one of them for each of {dimensions} "
            f"dimensions, got {show(periods)}"
        )
    return found


def _moved(
    shape: Sequence[int], periods: Sequence[bool], coords: Sequence[int], axis: int, step: int
) -> int:
    """Return the rank one step away in one dimension; -1 beyond a border."""
    at = list(coords)
    at[axis] += step
    if not 0 <= at[axis] < shape[axis]:
        if not periods[axis]:
            return -1
        at[axis] %= shape[axis]
    return int(np.ravel_multi_index(at, shape))


# --- agreement ------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The rows of the tables of all threads, by thread.

    Attributes
    ----------
    first
        For each thread the number of its first row, and that of all rows at the end.
    owner, place
        For each row its thread, and its number among the rows of that.
    values
        The rows.
    """

    first: Table
    owner: Table
    place: Table
    values: Table


def gathered(
    team: TeamState, call: str, signature: int, record: CallRecord, *tables: Sequence[Sequence[int]]
) -> list[Rows]:
    """Return the tables of all threads; collective. The rows of a table have one length."""
    with team.job.whole(call):
        team.meet(signature, record)
        sizes = [x for table in tables for x in (len(table), len(table[0]) if table else 0)]
        heads = np.array(team.agreement.gather_all(sizes), np.int64).reshape(team.size, -1, 2)
        return [_rows_of_all(team, table, heads[:, i]) for i, table in enumerate(tables)]


def _rows_of_all(team: TeamState, table: Sequence[Sequence[int]], heads: Table) -> Rows:
    """Return the tables of all threads, some rows of each at a time: one can be much longer."""
    lengths, width = heads[:, 0], int(heads[:, 1].max(initial=0))
    owner, place = (np.zeros(0, np.int64) for _ in range(2))
    values = np.zeros((0, width), np.int64)
    for begin in range(0, int(lengths.max(initial=0)), _AT_ONCE):
        count = min(_AT_ONCE, int(lengths.max()) - begin)
        mine = [x for row in table[begin : begin + count] for x in row]
        mine += [0] * (count * width - len(mine))
        every = np.array(team.agreement.gather_all(mine), np.int64).reshape(-1, count, width)
        there = begin + np.arange(count) < lengths[:, None]
        more = np.nonzero(there)
        owner, place = np.append(owner, more[0]), np.append(place, more[1] + begin)
        values = np.append(values, every[there], axis=0)
    order = np.lexsort((place, owner))
    first = np.concatenate([[0], np.cumsum(lengths)])
    return Rows(first, owner[order], place[order], values[order])


class _Edges(NamedTuple):
    """Edges in order, from `of` to `to`; `place`: in the list of the thread that names them."""

    of: Table
    to: Table
    place: Table


def _agreed(
    team: TeamState, call: str, signature: int, sources: list[int], destinations: list[int],
    words: Sequence[tuple[str, str]] = (), crossed: int = 0,
) -> Neighbours:  # fmt: skip
    """Compare the edges of all threads, and return this thread's.

    `crossed`: 1 if what a thread gives to its neighbour behind arrives as a block from before, also
    where both neighbours are one thread.
    """
    record = CallRecord(call, list(words))
    taken, given = gathered(
        team, call, signature, record, [[r] for r in sources], [[r] for r in destinations]
    )
    out, into = _edges(given, crossed, gives=True), _edges(taken, 0, gives=False)
    _compare(call, out, into)
    mine = into.to == team.rank
    match = np.full(len(sources), -1, np.int64)
    match[into.place[mine]] = out.place[mine]
    return Neighbours(team, sources, destinations, match.tolist())


def _edges(rows: Rows, crossed: int, *, gives: bool) -> _Edges:
    """Return the edges of a table of all threads, in the order in which both ends match them."""
    ranks = rows.values.reshape(-1)
    real = ranks >= 0
    owner, place, peer = rows.owner[real], rows.place[real], ranks[real]
    of, to = (owner, peer) if gives else (peer, owner)
    order = np.lexsort((place ^ crossed, to, of))
    return _Edges(of[order], to[order], place[order])


def _compare(call: str, out: _Edges, into: _Edges) -> None:
    """Raise ValueError on all threads if an edge is named by one of its ends only."""
    if np.array_equal(out.of, into.of) and np.array_equal(out.to, into.to):
        return
    given = np.stack([out.of, out.to])
    taken = np.stack([into.of, into.to])
    for of, to in np.unique(np.concatenate([given, taken], axis=1), axis=1).T.tolist():
        gives, takes = (int(((e[0] == of) & (e[1] == to)).sum()) for e in (given, taken))
        if gives != takes:
            raise ValueError(
                f"{call}: expected each edge in the lists of both of its threads: thread {of} has "
                f"thread {to} {_times(gives)} in its destinations, and thread {to} has thread {of} "
                f"{_times(takes)} in its sources"
            )


def _times(n: int) -> str:
    return {0: "not", 1: "once", 2: "twice"}.get(n, f"{n} times")


def _or_none(ranks: Sequence[int]) -> tuple[int | None, ...]:
    return tuple(None if rank < 0 else rank for rank in ranks)


def _text(ranks: Sequence[int | None]) -> str:
    return "(" + ", ".join(map(str, ranks)) + ")"
