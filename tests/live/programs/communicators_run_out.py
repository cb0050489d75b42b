"""Teams when MPI has no communicators left, and when it has some again. No arguments."""

from __future__ import annotations

import contextlib

from mpi4py import MPI

import xupc


def main() -> None:
    team = xupc.init()
    taken = []
    with contextlib.suppress(MPI.Exception):
        while True:
            taken.append(MPI.COMM_WORLD.Dup())
    for _ in range(3):  # free none, one, two of the three that a team on several nodes takes
        teams = []
        try:
            while True:
                part = team.split(0)
                assert part is not None
                teams.append(part)
        except xupc.XupcError as e:
            assert "split: MPI refuses" in str(e), e
            print("refused", len(teams), flush=True)
        for each in teams:
            each.free()
        taken.pop().Free()
    while len(taken) > 2000:
        taken.pop().Free()
    last = team.split(0)
    assert last is not None
    assert xupc.allv_reduce_all(1, xupc.ADD, team=last) == xupc.THREADS
    last.free()
    print("done", flush=True)


main()
