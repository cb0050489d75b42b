"""Wrong settings of a program on `xupc.Comm`: ``drop_in_wrong.py CALLS``, the calls before a start.

Each variable has a wrong value for a moment, on all threads or on one. All threads have to raise
the error of `xupc.init` then, in two calls. After the last one the settings are right, and a team
is opened.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from support.spare_communicators import spare

import xupc

ALL = -1
CASES = (  # variable, value, thread; files run in the first start of a process, so these come first
    ("XUPC_ALGORITHMS", "/nonexistent.py", ALL), ("XUPC_ALGORITHMS", "/nonexistent.py", 1),
    ("XUPC_TIMEOUT", "0", ALL), ("XUPC_HEAP_SIZE", "64 elephants", ALL),
    ("XUPC_HEAP_SIZE", "32T", ALL), ("XUPC_NODES", "9x9", ALL), ("XUPC_ENGINE", "pyhton", ALL),
    ("XUPC_SHM_DIR", "/nonexistent", ALL), ("XUPC_TUNING", "/nonexistent", ALL),
    ("XUPC_TOPOLOGY", "nowhere", ALL), ("XUPC_TRACE", "/nonexistent/trace", ALL),
    ("XUPC_TIMEOUT", "soon", 1), ("XUPC_HEAP_SIZE", "64 elephants", 1), ("XUPC_ENGINE", "1", 2),
    ("XUPC_SHM_DIR", "/nonexistent", 0),
    ("XUPC_HEAP_SIZE", "16M", 1), ("XUPC_NODES", "1,2", 2),
)  # fmt: skip
comm = xupc.Comm(MPI.COMM_WORLD)
me, size = comm.rank, comm.size


def error_of(act: Callable[[], Any], what: str) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError(f"{what}: no error")


def words_of(error: Exception) -> str:
    """Return the text of an error; the bytes that are free change."""
    return re.sub(r"\d{6,}", "N", str(error))


def check(name: str, value: str, on: int) -> None:
    """Check what two calls raise, with a value on a thread."""
    what = f"{name}={value} on {on}"
    mine = error_of(comm.Barrier, what)
    assert words_of(error_of(lambda: comm.allreduce(1), what)) == words_of(mine), what
    if on == ALL:
        expected = error_of(lambda: xupc.init(), what)  # its name alone runs XUPC_ALGORITHMS
        assert isinstance(mine, type(expected)), (what, mine, expected)
        assert words_of(mine) == words_of(expected), (what, mine, expected)
    elif value in ("16M", "1,2"):
        assert isinstance(mine, xupc.CollectiveMismatchError), (what, mine)
        assert isinstance(mine, MPI.Exception), (what, mine)
    else:
        assert isinstance(mine, ValueError | FileNotFoundError), (what, mine)
        assert value in str(mine), (what, mine)
        assert (f"(thread {on})" in str(mine)) == (on != me), (what, mine)
    print(f"{what}: {type(mine).__name__}: {mine}")


def main() -> None:
    for _ in range(int(sys.argv[1])):
        assert comm.allreduce(1) == size
    communicators = spare()
    for name, value, on in CASES:
        before = os.environ.get(name)
        if on in (ALL, me):
            os.environ[name] = value
        check(name, value, on)
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
    assert "Barrier" not in comm.explain(as_dict=True), comm.explain()
    assert spare() == communicators  # a start that fails returns what it has taken
    for _ in range(70):
        assert comm.allreduce(1) == size
    assert "xupc has a team" in repr(comm), repr(comm)
    print("done", flush=True)


main()
