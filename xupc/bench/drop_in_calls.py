"""The calls of the drop-in communicator's methods, ready to be timed beside mpi4py's."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
from mpi4py import MPI

__all__ = ["Call", "near_of", "ways"]

Call = Callable[[Any], object]
"""Makes one call on a communicator."""
SMALL = 8  # bytes; reductions of objects are of a number, too


def near_of(comm: MPI.Intracomm) -> MPI.Cartcomm:
    """Return the threads of a communicator as a periodic grid, in two dimensions from 4 on."""
    dims = MPI.Compute_dims(comm.size, 2 if comm.size >= 4 else 1)
    return comm.Create_cart(dims, [True] * len(dims))


def ways(method: str, nbytes: int, comm: MPI.Intracomm) -> dict[str, Call]:
    """Return the calls that are timed for a method, by the way in which a program makes them.

    Parameters
    ----------
    method : str
        Its name in mpi4py.
    nbytes : int
        Bytes of the block of a thread; in the v and w forms all blocks have them.
    comm
        A communicator with as many threads; for a neighbourhood, with the same topology.
    """
    if method in ("Barrier", "barrier"):
        return {"": methodcaller(method)}
    if method.startswith("Neighbor"):
        return {"": methodcaller(method, *_of_neighbours(method, nbytes, comm))}
    if method[0].islower():
        return _of_objects(method, nbytes, comm.size)
    if method[0] == "I":
        blocking = method[1:].capitalize()
        start = methodcaller(method, *_of_buffers(blocking, nbytes, comm.size))
        return {"Wait": lambda of: start(of).Wait(), "Test": lambda of: _polled(start(of))}
    return {"": methodcaller(method, *_of_buffers(method, nbytes, comm.size))}


def _polled(request: Any) -> None:
    while not request.Test():
        pass


def _of_buffers(method: str, nbytes: int, threads: int) -> tuple[Any, ...]:
    """Return the arguments of a method on buffers."""
    n = max(1, nbytes // 8)
    one, into = np.ones(n), np.zeros(n)

    def many() -> Any:
        return np.ones(n * threads)

    def listed() -> Any:
        return [many(), [n] * threads, MPI.DOUBLE]

    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "Barrier": lambda: (),
        "Bcast": lambda: (one,),
        "Gather": lambda: (one, many()),
        "Scatter": lambda: (many(), into),
        "Allgather": lambda: (one, many()),
        "Alltoall": lambda: (many(), many()),
        "Reduce_scatter_block": lambda: (many(), into),
        "Reduce_scatter": lambda: (many(), into, [n] * threads),
        "Allgatherv": lambda: (one, listed()),
        "Gatherv": lambda: (one, listed()),
        "Scatterv": lambda: (listed(), into),
        "Alltoallv": lambda: (listed(), listed()),
    }
    return made.get(method, lambda: (one, into))()


def _of_neighbours(method: str, nbytes: int, comm: MPI.Intracomm) -> tuple[Any, ...]:
    """Return the arguments of an exchange between neighbours."""
    blocks = len(comm.inedges)  # type: ignore[attr-defined]
    one = np.ones(nbytes, np.uint8)
    src, dst = np.ones((blocks, nbytes), np.uint8), np.zeros((blocks, nbytes), np.uint8)
    counts, places = [nbytes] * blocks, [k * nbytes for k in range(blocks)]
    types = [MPI.BYTE] * blocks
    return {
        "Neighbor_allgather": (one, dst),
        "Neighbor_allgatherv": (one, [dst, counts]),
        "Neighbor_alltoall": (src, dst),
        "Neighbor_alltoallv": ([src, counts], [dst, counts]),
        "Neighbor_alltoallw": ([src, counts, places, types], [dst, counts, places, types]),
    }[method]


def _of_objects(method: str, nbytes: int, threads: int) -> dict[str, Call]:
    """Return calls on strings of bytes and on arrays; in reductions on numbers and arrays."""
    array = np.ones(max(1, nbytes // 8))
    objects: dict[str, Any] = {"arrays": array}
    if method not in ("reduce", "allreduce", "scan", "exscan"):
        objects["bytes"] = bytes(nbytes)
    elif nbytes <= SMALL:
        objects["numbers"] = 1.5
    elif nbytes >= MPI.pickle.THRESHOLD:  # xupc may combine the arrays themselves as numbers
        objects["lists"] = [array]
    for_all = method in ("scatter", "alltoall")
    return {
        way: methodcaller(method, [item] * threads if for_all else item)
        for way, item in objects.items()
    }
