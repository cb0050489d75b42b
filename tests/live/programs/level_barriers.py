"""Barriers by levels: data behind each of them, fused calls, threads that come late or go away."""

from __future__ import annotations

import sys
import time

import xupc

CALLS = int(sys.argv[1])


def meet(team: xupc.Team, line: xupc.SharedArray, i: int) -> None:
    """Write, meet, read all; the next barrier comes before the next write."""
    line[team.rank] = 1000 * i + team.rank
    team.barrier(i)
    found = [int(line[j]) for j in range(team.size)]
    assert found == [1000 * i + j for j in range(team.size)], found
    team.barrier()


def main() -> None:
    with xupc.init() as team:
        assert team.state.level_barriers is not None
        n, me = team.size, team.rank
        line = xupc.all_alloc(n, "i8", 1)
        for i in range(CALLS):
            if i % 50 == me:  # all others sleep meanwhile
                time.sleep(0.05)
            meet(team, line, i)
            root = i % n
            assert xupc.allv_broadcast(i if me == root else None, root) == i
            assert xupc.allv_reduce_all(me, xupc.ADD) == n * (n - 1) // 2
        for away in range(n):
            team.notify(away)
            if me == away:
                time.sleep(0.02)
            team.wait(away)
        try:  # the last thread, a leaf of the deepest domain
            team.barrier(7 if me == n - 1 else 8)
        except xupc.CollectiveMismatchError as error:
            assert f"thread {n - 1}" in str(error), error
        else:
            raise AssertionError("a mismatch that is not noticed")
        meet(team, line, 1)
        print("done")


main()
