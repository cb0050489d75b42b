"""Blocks of uneven sizes: the last thread has nine tenths of the data, the others share the rest.

    xupc run -n 2 benchmarks/uneven.py RESULT.json

xupc's `_v` forms on shared arrays, full calls and replayed plans, against mpi4py's Allgatherv and
Alltoallv on private ones; a block's size in the result is the average over the threads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import xupc
from xupc.bench.calls import Call
from xupc.bench.candidates import Timed
from xupc.bench.collect import Collector
from xupc.bench.osu_text import osu
from xupc.bench.provenance import provenance
from xupc.bench.results import AGAIN, OURS, PEER, Result
from xupc.bench.settings import Case, Settings
from xupc.bench.worker import Worker

COLLECTIVES = "all_gather_all_v", "all_exchange_v"
SIZES = (64, 1 << 10, 1 << 16, 1 << 20, 8 << 20)
SECONDS = 60.0
REST = 10  # all but the last thread have together one part of so many


@dataclass
class Split:
    """Hold the distribution of data: thread i has `sizes[i]` bytes for each receiver."""

    sizes: list[int]
    me: int
    exchange: bool

    def of(self, thread: int, receiver: int, salt: int) -> Any:
        """Return the data of a thread for a receiver."""
        start = 31 * salt + 7 * thread + 13 * receiver * self.exchange
        return ((np.arange(self.sizes[thread]) + start) % 251).astype(np.uint8)

    def contributed(self, salt: int) -> Any:
        """Return all data of this thread."""
        receivers = range(len(self.sizes)) if self.exchange else (0,)
        return np.concatenate([self.of(self.me, i, salt) for i in receivers])

    def expected(self, salt: int) -> Iterator[Any]:
        """Yield the data of all threads for this thread."""
        yield from (self.of(t, self.me, salt) for t in range(len(self.sizes)))


class Uneven(Worker):
    """Measure like `xupc bench`, with candidates of its own."""

    def _timed(self, case: Case) -> Iterator[Timed]:
        n, threads, me = case.nbytes, self.team.size, self.team.rank
        exchange = case.collective == "all_exchange_v"
        sizes = [max(1, n * threads // REST // max(1, threads - 1))] * (threads - 1)
        sizes.append(n * threads - sum(sizes))
        if exchange:  # what a thread has goes to all threads in equal parts
            sizes = [max(1, size // threads) for size in sizes]
        places = [sum(sizes[:t]) for t in range(threads)]
        whole, mine, pieces = sum(sizes), sizes[me], threads if exchange else 1
        work: Any = Split(sizes, me, exchange)
        memory, comm = self.memory, self.team_comm
        dst, src = memory.other_row, memory.row
        room = src.blocksize
        ends = {"work": work, "source": src.local[: mine * pieces], "result": dst.local[:whole]}
        to = tuple(i * room + places[j] for i in range(threads) for j in range(threads))
        source, result = memory.own_row[: mine * pieces], memory.own_other_row[:whole]
        own = {"work": work, "source": source, "result": result}
        everyone = range(threads)
        if exchange:
            function = xupc.all_exchange_v
            of = tuple(j * room + i * sizes[j] for j in everyone for i in everyone)
            arguments = (dst, src, to, of, tuple(s for s in sizes for _ in everyone))
            out = [source, ([mine] * threads, [i * mine for i in everyone]), MPI.BYTE]
            peer = Call(comm.Alltoallv, (out, [result, (sizes, places), MPI.BYTE]), **own)
        else:
            function = xupc.all_gather_all_v
            arguments = (dst, src, to, tuple(j * room for j in everyone), tuple(sizes))
            into = [result, (sizes, places), MPI.BYTE]
            peer = Call(comm.Allgatherv, ([source, mine, MPI.BYTE], into), **own)
        text = f"{case.collective}(...)"
        yield Timed("xupc", OURS, text, [Call(function, arguments, **ends)])
        yield Timed("xupc again", AGAIN, text, [Call(function, arguments, **ends)])
        yield Timed("plan", OURS, "its plan", [Call(function.plan(*arguments), (), **ends)])
        yield Timed("mpi4py", PEER, f"comm.{peer.function.__name__}", [peer])


def main() -> None:
    """Measure; let thread 0 print the result, and write it to the file that the command names."""
    settings = Settings(collectives=COLLECTIVES, sizes=SIZES, seconds=SECONDS)
    with xupc.init() as team:
        collector = Collector()
        for line in provenance(team):
            collector.take(line)
        note = collector.take if team.rank == 0 else lambda line: None
        Uneven(team, settings, note).measure()
        if team.rank == 0 and collector.job is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            result = Result(sys.argv, now, jobs=[collector.job])
            print(osu(result, check=True))
            if len(sys.argv) > 1:
                result.save(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
