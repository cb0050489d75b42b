"""Prints docs/from-mpi4py.md: python scripts/from_mpi4py.py > docs/from-mpi4py.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from xupc.mpi import methods

PAGE = """\
# From mpi4py

After this page you can run a program that is written for mpi4py on xupc, and you know what each of
its calls does there. A library *carries* a call if it carries it out: xupc or MPI. A *thread* is
one process, what MPI calls a rank. A *team* is xupc's counterpart of a communicator.

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
- All threads of a communicator have to make its collective calls in the same way, through xupc or
  through mpi4py's own object: also processes that `Spawn` starts, after `Merge`.
- `python -m xupc.mpi` replaces `MPI.COMM_WORLD`. It takes the options of `python -m mpi4py`. An
  uncaught error ends the whole job in the same way, and so does an exit status other than 0
  (`sys.exit(3)`): after the thread's own exit handlers (`atexit`), without waiting for others.
- Communicators that a communicator of xupc makes are of xupc, too ([the table](#method-by-method)).
- `type(comm) == MPI.Intracomm` is true; `type(comm) is MPI.Intracomm` is false.
- `repr(comm)` has the rank, the number of threads, and whether xupc has a team for it.
- An intercommunicator is mpi4py's, and so is what its `Merge` returns. `xupc.Comm(...)` takes what
  `Merge` returns.
- `MPI.COMM_SELF` is mpi4py's: with one thread there is nothing to gain.
- The communicators inside mpi4py's C code, such as the default of `Win.Create`, are mpi4py's.

| `XUPC_COMM` | means |
|---|---|
| `auto`, or not set | xupc carries calls that are faster with it, if a communicator has many |
| `off` | all calls go to MPI, and `python -m xupc.mpi` leaves `MPI.COMM_WORLD` as it is |
| `force` | xupc carries all calls that it can carry, from the first one on |
| `explain` | as `auto`; counts all calls, and thread 0 prints the counts at the end |

`comm.explain()` returns the counts of one communicator as text, `comm.explain(as_dict=True)` as
data. Bytes are those of the message that decides. `-`, or None, stands where this thread does not
know the bytes of all calls of a row: of objects, and of blocks of different sizes; without
`XUPC_COMM=explain` also of calls before a team is open, and of methods that all go to MPI.

`xupc bench Bcast Allreduce --api mpi4py --peer -n 2` measures methods on such a communicator beside
mpi4py's own, with all options of [`xupc bench`](how-to/measure.md).

## Which library carries a call

1. MPI carries the first 64 collective calls of a communicator ("warm-up"). A program whose
   communicators make fewer calls never starts xupc, and loads little of it.
2. The next call opens a team of xupc, and starts xupc if it does not run yet. The start takes some
   tenths of a second. In these cases no team is opened:
   - xupc does not run, and the communicator lacks threads of `MPI.COMM_WORLD`: MPI carries the
     call, and a later call tries again.
   - 128 communicators of the process have teams already: MPI carries the call, and a later call
     tries again. A team takes up to three of the 2,048 communicators that MPICH has.
   - The program has called `xupc.finalize`, whether xupc ran or not: MPI carries the call, and a
     later call tries again, since only `xupc.init` starts xupc from then on.
   - The communicator has one thread, or threads for which xupc does not run, or a Python thread
     other than the main one makes this call: MPI carries all calls from then on.
   - The machine lacks what a start needs, such as room in `/dev/shm`: MPI carries all calls from
     then on, one thread warns, and `explain()` names the reason.

   A mistake in the settings is an error on all threads, the one that `xupc.init` raises: a wrong
   value of an [`XUPC_` variable](reference/variables.md), a heap of `XUPC_HEAP_SIZE` that does not
   fit, a table or a file that cannot be read, settings that differ between threads. The call has
   moved nothing then, and the next one tries again. Set `XUPC_COMM` and `XUPC_TIMEOUT` for all
   threads or for none (Open MPI: `mpiexec -x NAME` passes a variable to other machines): threads
   without them, or with `XUPC_COMM=off`, do not start xupc in the same call, so the others wait.
   After a minute these warn. With a limit of waits they end the job by a `HangError` that names
   the two variables. A program of one thread never starts xupc, and reads no settings.
3. From then on the [selection table](how-to/choose-and-tune.md) decides, by method, threads, nodes
   and bytes of a block. Calls that were measured to be slower than mpi4py's go to MPI. A table of
   your own can have other
   [`[[drop_in]]` entries](reference/table-keys.md#drop_in-calls-of-the-drop-in-communicator);
   [`xupc tune --drop-in`](how-to/choose-and-tune.md#choose-the-library-for-a-program-of-mpi4py)
   measures on your machine and writes them.
4. Only their senders have the sizes of objects, and of the blocks of `Gatherv`, `Scatterv` and
   `Alltoallv`. So if xupc carries the shortest of these calls, it makes the first exchange of all
   of them, which brings the sizes to all threads. The average size then decides. If MPI is faster,
   it moves what that exchange had no room for: the pickles that are already made, or in
   reductions the objects.

Only what MPI makes equal on all threads decides: the method, the communicator, the root, the
operation, the sizes and the basic type. How a thread describes its message does not.

Under `XUPC_COMM=force` there is no warm-up, and the table does not decide. With a limit of waits
(`XUPC_TIMEOUT`, `xupc run --mpi --timeout`) there is no warm-up either: until xupc runs, no wait
has a limit. Collectives that MPI carries have it, too; a thread inside MPI prints the `HangError`
and ends.

## Calls that xupc carries

- Messages can be described in any way that mpi4py takes, and in another way on each thread. A
  derived type, or an array that is not in C order, costs one copy on that thread.
- `Allreduce`: `SUM`, `PROD`, `MIN`, `MAX`, `BAND`, `BOR`, `BXOR`, `LAND` and `LOR`, for all types
  that MPI has them for except long double. Sums of floating-point numbers can differ from MPI's in
  their last bits. Other operations and types go to MPI.
- `Allgatherv`, `Gatherv`, `Scatterv`, `Alltoallv`, and `Reduce_scatter` with any counts: what lies
  between the blocks of a result stays as it was. A block can be shorter than the receiver expects
  (but not in `Allgatherv`); a longer one raises `MPI.ERR_TRUNCATE` on the receiver.
- `Neighbor_allgather`, `Neighbor_alltoall` and their v and w forms, on any topology: sources and
  destinations are in MPI's order, and a thread may be listed twice or be its own neighbour. Beyond
  a border without a period there is no neighbour. In the first call messages of MPI pair the blocks
  of both ends. The first call with each new size makes a plan. A block that is longer than its
  place raises `MPI.ERR_TRUNCATE` on all threads.
- Objects are pickled by `MPI.pickle`, whose functions a program can replace. With mpi4py's own
  functions, large buffers stay out of the pickle and go from array to array. The results are of the
  same types as mpi4py's.
- `allreduce`, `reduce`, `scan` and `exscan` combine objects in mpi4py's order, with any operation.
  Each thread that gets a result computes it itself, so it calls the operation. An error of the
  operation is raised there, and no other thread waits for it.
- `allreduce` and `reduce` combine large arrays (of 256 KiB or more, `MPI.pickle.THRESHOLD`) as
  numbers, without their pickles, where the result is the same: all threads give arrays of one type,
  shape and memory order, of integers (`SUM`, `PROD`, `BAND`, `BOR`, `BXOR`) or, on two threads, of
  floating-point (`SUM`, `PROD`) or complex numbers (`SUM`). numpy then gives no warning of an
  overflow. The rules for `Allreduce` and `Reduce` decide. All threads have to give the same
  `MPI.Op`.
- An object that cannot be pickled raises its error on its thread, before the call reaches the
  others. One that cannot be read raises it where it is read, and no other thread waits for that.
- A wrong argument raises mpi4py's error on that thread alone. Descriptions are read as mpi4py reads
  them, each list once: also lists, counts, roots and arrays of classes of your own.
- Where a thread gives less room than its own block needs, it takes part in the call, and then
  raises `MPI.ERR_TRUNCATE`: the root in `Gather`, `Scatter` and their v forms, each thread in
  `Allgather`, `Allgatherv` and `Alltoall`. With more room the blocks lie apart, as the description
  says. If a thread receives from another root, or reduces, other sizes are a mismatch. So are calls
  that are empty on some threads only.
- Calls that differ between threads raise `CollectiveMismatchError` (here of the class
  `MismatchError`, which is also an `MPI.Exception`). It names the methods, and so do
  reports of hangs and recorded calls (`XUPC_TRACE`). Where MPI carries a call of some threads,
  see [below](#calls-that-never-meet).
- After a call for which this thread waits for another one, or after `Wait` of its request, one
  look without a wait (`Iprobe`, `Win.Test`) finds what that thread has done in MPI before the call,
  as with MPI's own collectives.
- A call works where a program has few calls left of Python's recursion limit, as mpi4py's does.
- `Free` waits for no thread.
- Several Python threads of a process may be inside such calls at once, each on a communicator of
  its own. This needs one node, the native core, and an MPI that allows calls from several threads
  (`MPI.THREAD_MULTIPLE`, as mpi4py starts it). Without these, and on one communicator, a second
  Python thread gets an `XupcError`. Let the main thread make the first calls on each communicator:
  only one Python thread at a time can open a team.

## Calls that never meet

If MPI carries the calls of some threads or of all of them, calls that differ would never end. xupc
compares the calls of threads that wait. After about a second each of them has a `MismatchError`
that names the calls:

```
MismatchError: the threads are in different calls: thread 1: Barrier() at program.py:12,
which MPI carries; thread 0: Allreduce(elements=8 x float64, ...), which xupc carries
```

- It finds another method, another root or size, a call more or less, and another order of
  communicators, also of calls that make communicators, such as `Split` and `Dup`, and between
  threads of different machines. An error that a thread raised before such a call is named, too
  ("after ValueError in bcast").
- Threads can have left the call in which they differ, since MPI sends short messages before their
  receiver is there. They get the error, which names that call, when they wait later, if no thread
  has made 16 calls on the communicator since.
- A thread that waits in xupc raises the error. A thread inside MPI cannot leave its call: it prints
  the error and ends with status 1. The job cannot go on.
- A late thread is no difference, however late it is.

What is not found:

- Anything before xupc runs, so in the first 64 calls of a program. With a limit of waits
  (`xupc run --mpi --timeout 60`) or `XUPC_COMM=force` it runs from the first call on.
- Calls on a communicator that is not made from `COMM_WORLD` by methods of `xupc.Comm`: that of
  `Intercomm.Merge`, for example, or of `fromhandle`. mpi4py's own classes make these, so xupc does
  not count them, and MPI has no number of a communicator that is equal on all its threads.
- Some differences between machines in jobs whose threads wait in some hundred different calls or
  communicators at once: [a summary](design/health.md#between-machines) has 48 KiB.
- Another order of communicators, if the program has several Python threads.
- A `Recv`, `Probe`, `Send` or `Wait` in place of a collective: a message may still come. `xupc
  hang-report` shows it, and with a limit of waits so does the `HangError` of the others. If all
  threads wait in such calls, there is [one](how-to/find-a-hang.md), too.
- Other sizes of calls that MPI carries on all threads, but for `Bcast` and reductions of arrays:
  MPI itself may report them.
- A root, or an array, that only code of the program can read, such as a root of a class of its own.

## Requests

- All functions of mpi4py take the requests of nonblocking collectives: `Wait`, `Test`, `Waitall`,
  `Waitany`, `Waitsome`, `Testall` and so on, alone or among MPI's own. The request of a call that
  xupc carries is a generalized request of MPI. MPI advances the call in each step of its progress,
  so it also goes on while this thread waits in a `Recv`. This needs Open MPI, or an MPICH with
  `MPIX_Async_start`; with any other MPI all nonblocking calls go to MPI.
- A nonblocking call waits for no thread. So it does not open a team: MPI carries it until a
  blocking collective on the communicator has opened one. Between nodes, and while calls are
  recorded (`XUPC_TRACE`), MPI carries them all.
- `Cancel` raises `MPI.Exception` (`MPI.ERR_REQUEST`).
- If the calls of the threads differ, `request.Wait()` raises `CollectiveMismatchError`. MPI's
  functions for several requests print it and raise `MPI.Exception`.
- A coroutine can await a request of a collective: `await comm.Iallreduce(a, b)`. After its `Start`
  it can await a persistent request, too.

## Method by method

| way | means |
|---|---|
| taken over | xupc can carry the call |
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
