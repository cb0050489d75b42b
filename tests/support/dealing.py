"""Where the elements of a shared array are, found by dealing them like cards."""

from __future__ import annotations


def deal(nelems: int, blocksize: int, threads: int) -> list[tuple[int, int, int]]:
    """Deal elements like cards: the (thread, phase, local element) of each."""
    given_out = [0] * threads
    places = []
    thread = phase = 0
    for _ in range(nelems):
        places.append((thread, phase, given_out[thread]))
        given_out[thread] += 1
        if blocksize:
            phase += 1
            if phase == blocksize:
                phase = 0
                thread = (thread + 1) % threads
    return places
