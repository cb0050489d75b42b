"""Prints docs/from-mpi4py.md: python scripts/from_mpi4py.py > docs/from-mpi4py.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xupc.mpi import methods

PAGE = """\
# From mpi4py

After this page you can run a program that is written for mpi4py on xupc, and you know what each of
its calls does there.

This page is made by `python scripts/from_mpi4py.py > docs/from-mpi4py.md`, from the table that the
library itself uses.

## Start

```
xupc run --mpi -n 4 program.py             # no line of the program changes
mpiexec -n 4 python -m xupc.mpi program.py
```

or change one line of the program:

```python
comm = xupc.Comm(MPI.COMM_WORLD)
```

- `xupc.Comm(comm)` has the handle of `comm`. The two are equal, and tags, messages, attributes,
  names and error handlers are the same. It is a subclass of `MPI.Intracomm`, or of `MPI.Cartcomm`,
  `MPI.Graphcomm` or `MPI.Distgraphcomm`, so C code that takes a communicator of mpi4py takes it.
- `python -m xupc.mpi` replaces `MPI.COMM_WORLD`. It takes the options of `python -m mpi4py`, and an
  uncaught error ends the whole job in the same way.
- Communicators that it makes are of xupc, too (see the table).
- `type(comm) == MPI.Intracomm` is true; `type(comm) is MPI.Intracomm` is false.
- An intercommunicator and what `Merge` returns are mpi4py's. `xupc.Comm(...)` takes the second.
- `MPI.COMM_SELF` is mpi4py's: with one thread there is nothing to gain.
- The communicators inside mpi4py's C code, such as the default of `Win.Create`, are mpi4py's.

| `XUPC_COMM` | means |
|---|---|
| not set | xupc carries out the calls that it can carry out and that are faster there |
| `off` | all calls go to MPI |
| `force` | xupc carries out all calls that it can, from the first one on |
| `explain` | counts all calls; thread 0 prints the counts at the end of the program |

`comm.explain()` returns the counts of one communicator as text, `comm.explain(as_dict=True)` as
data.

In this version all calls go to MPI.

## Method by method

| way | means |
|---|---|
| MPI | the call goes to MPI as it is |
| same class | mpi4py returns a communicator of the class that makes the call |
| wrapped | mpi4py returns a communicator of its own class, and xupc returns it in a class of xupc |
| differs | mpi4py has no such method, or another result |

"""


def table() -> str:
    """Return a row per group of methods."""
    rows = [
        f"| {group.title} | {group.way} | {group.why} | "
        f"{' '.join(f'`{name}`' for name in group.methods.split())} |\n"
        for group in methods.GROUPS
    ]
    return "| methods | way | why | names |\n|---|---|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    print(PAGE + table(), end="")
