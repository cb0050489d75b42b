"""With which MPI libraries nonblocking calls are requests that xupc completes."""

from __future__ import annotations

import pytest

from xupc.mpi.requests import _is_known_mpich


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("MPICH Version:      5.0.2\nMPICH Release date: Fri", True),
        ("MPICH Version:      5.1rc1\n", True),
        ("MPICH Version:      4.3.2\n", False),
        ("MPI VERSION    : CRAY MPICH version 9.0.1\n", False),
        ("Open MPI v5.0.8, package: Open MPI", False),
    ],
)
def test_only_an_mpich_of_known_constants_is_used(version: str, known: bool) -> None:
    assert _is_known_mpich(version) is known
