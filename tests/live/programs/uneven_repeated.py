"""`_v` calls on private arrays that repeat an earlier call, on all threads or on some of them.

The data is new in each call, and what a call must leave is computed from the sizes alone. Sizes
change on all threads, on two of them, and not at all; places and arrays change on one.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

import xupc

ROUNDS = (0, 0, 0, 1, 0, 1, 2, 2, 2, 2, 0, 0)
"""The sizes of each call; each is also made with `LISTS`, so most calls repeat an earlier one."""
LISTS = (list, tuple, np.array)


def sizes(kind: int, threads: int) -> list[int]:
    """Return the elements of each thread's block: kinds 0 and 1 differ on the last thread only."""
    if kind == 2:
        return [3000 + 7 * i for i in range(threads)]
    return [5 + i for i in range(threads - 1)] + [3 + 4 * kind]


def values(of: int, to: int, n: int, call: int) -> Any:
    """Return a block."""
    return np.arange(n) * 3.0 + 1000 * of + 77 * to + call


class Calls:
    """Makes calls and checks them."""

    def __init__(self, team: xupc.Team) -> None:
        self.team, self.me, self.size, self.number = team, team.rank, team.size, 0

    def row(self, counts: list[int], kept: dict[Any, Any]) -> tuple[Any, list[int]]:
        """Return an array with room for blocks, the same one for equal counts, and the places."""
        places = list(accumulate(counts[:-1], initial=0))
        row = kept.setdefault(("row", *counts), np.zeros(sum(counts) + 1))
        row[:] = -1
        return row, places

    def make(self, kind: int, how: Any, kept: dict[Any, Any], flags: int) -> None:
        """Make each of the four calls."""
        me, counts = self.me, sizes(kind, self.size)
        self.number += 1
        for root in range(min(2, self.size)):
            row, places = self.row(counts, kept)
            mine = values(me, 0, counts[me], self.number)
            at_root = me == root
            xupc.allav_gather_v(row if at_root else None, mine, how(counts) if at_root else None,
                                root, flags, self.team)  # fmt: skip
            for i, (at, n) in enumerate(zip(places, counts, strict=True)):
                if at_root:
                    assert (row[at : at + n] == values(i, 0, n, self.number)).all()
            assert row[-1] == -1
            for i, (at, n) in enumerate(zip(places, counts, strict=True)):
                row[at : at + n] = values(root, i, n, self.number)
            got = np.zeros(counts[me])
            xupc.allav_scatter_v(got, row if at_root else None, how(counts) if at_root else None,
                                 root, flags, self.team)  # fmt: skip
            assert (got == values(root, me, counts[me], self.number)).all()
        self.gather_all(counts, how, kept, flags)
        self.exchange(counts, how, kept, flags)

    def gather_all(self, counts: list[int], how: Any, kept: dict[Any, Any], flags: int) -> None:
        """Make it with a src, then in place, then with other places on thread 0."""
        me = self.me
        for case in ("src", "in place", "places"):
            row, places = self.row(counts, kept)
            mine: Any = values(me, 0, counts[me], self.number)
            more: dict[str, Any] = {}
            if case == "in place":
                row[places[me] : places[me] + counts[me]] = mine
                mine = None
            elif case == "places" and me == 0:
                places = [at + 1 for at in places]
                more["displs"] = how(places)
            xupc.allav_gather_all_v(row, mine, how(counts), flags, self.team, **more)
            for i, (at, n) in enumerate(zip(places, counts, strict=True)):
                assert (row[at : at + n] == values(i, 0, n, self.number)).all(), case

    def exchange(self, counts: list[int], how: Any, kept: dict[Any, Any], flags: int) -> None:
        """Thread i sends counts[i] elements to each thread."""
        me, own = self.me, [counts[self.me]] * self.size
        row, places = self.row(counts, kept)
        src = np.concatenate([values(me, i, counts[me], self.number) for i in range(self.size)])
        xupc.allav_exchange_v(row, src, how(counts), how(own), flags, self.team)
        for i, (at, n) in enumerate(zip(places, counts, strict=True)):
            assert (row[at : at + n] == values(i, me, n, self.number)).all()

    def differ(self) -> None:
        """Raise the error of sizes that do not fit, after calls with sizes that did."""
        counts = sizes(0, self.size)
        row, mine = np.full(sum(counts), -1.0), values(self.me, 0, counts[self.me], 0)
        wrong = [counts[0] + 1, *counts[1:]] if self.me == 0 else counts
        for _ in range(3):
            row[:] = -1
            calls: Any = (
                (xupc.allav_gather_v, (np.zeros(sum(wrong)), mine, wrong, 0)),
                (xupc.allav_exchange_v, (row, np.zeros(sum(counts)), counts, counts)),
            )
            for call, arguments in calls:
                try:
                    call(*arguments, 0, self.team)
                except xupc.CollectiveMismatchError as e:
                    assert "elements" in str(e), e
                else:
                    raise AssertionError("no error")
            assert (row == -1).all()
            self.make(0, list, {}, 0)


def main() -> None:
    with xupc.init() as team:
        calls = Calls(team)
        kept: dict[Any, Any] = {}
        for flags in (0, int(xupc.PUSH), int(xupc.MULTICORE)):
            for kind in ROUNDS:
                for how in LISTS:
                    calls.make(kind, how, kept, flags)
            xupc.all_free(xupc.all_alloc(10))  # the core forgets its calls
        for kind in range(40):  # more sizes than are kept
            row = np.zeros(team.size * (kind + 1))
            for _ in range(2):
                xupc.allav_gather_all_v(row, np.full(kind + 1, 1.0), [kind + 1] * team.size)
        calls.make(0, list, kept, 0)
        if team.size > 1:
            calls.differ()
        part = team.split(team.rank % 2)
        assert part is not None
        Calls(part).make(1, list, {}, 0)
        print("done")


if __name__ == "__main__":
    main()
