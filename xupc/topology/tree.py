"""Which threads share a node: host records, ``XUPC_NODES`` and the node tree.

Nothing here talks to MPI or maps memory: `xupc.topology.discovery` finds the threads of a machine,
by their `HostRecord` and by proof; `node_tree` splits machines into nodes as ``XUPC_NODES`` wishes,
merging none; `diagnose` says what is odd about host ids.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import socket
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HostRecord",
    "Run",
    "ThreadTree",
    "Tree",
    "diagnose",
    "node_tree",
    "parse_nodes",
    "read_boot_id",
    "read_host_record",
    "threads_of_nodes",
]

ScalarT = TypeVar("ScalarT", bound=np.generic)

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_BOOT_ID_BYTES = 48
_HOSTNAME_BYTES = 128
# Little-endian on purpose: the bytes feed a hash that must agree between machines.
_RECORD = struct.Struct(f"<IIQ{_BOOT_ID_BYTES}s{_HOSTNAME_BYTES}s")
_LOOPBACK = 127

_MAX_NODE_LINES = 36
_MAX_RUNS_DRAWN = 8
_MAX_REPR = 32
_MOST_KEPT = 64
"""Nodes of a tree that keeps their runs."""


# --- host records ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostRecord:
    """All that must agree before two threads are taken for neighbours.

    Parameters
    ----------
    hostid : int
        Answer of ``gethostid()``; kept modulo 2**32, since libc sign-extends it.
    boot_id : str
        The kernel's boot id, empty where the system has none.
    hostname : str
        Host name. Names above 128 bytes are shortened to a prefix and a hash.
    shm_dev : int
        Device number of the file system on which segments are made.
    uid : int
        User id of the thread's process.
    """

    hostid: int
    boot_id: str
    hostname: str
    shm_dev: int
    uid: int

    SIZE = _RECORD.size

    def __post_init__(self) -> None:
        put = object.__setattr__  # the dataclass is frozen; this is its only moment of change
        put(self, "hostid", self.hostid & 0xFFFFFFFF)
        put(self, "boot_id", _fit(self.boot_id, _BOOT_ID_BYTES))
        put(self, "hostname", _fit(self.hostname, _HOSTNAME_BYTES))
        put(self, "shm_dev", self.shm_dev & 0xFFFFFFFFFFFFFFFF)
        put(self, "uid", self.uid & 0xFFFFFFFF)

    def pack(self) -> bytes:
        """Return the record as `HostRecord.SIZE` (192) bytes, the same on every platform."""
        return _RECORD.pack(
            self.hostid, self.uid, self.shm_dev, _encode(self.boot_id), _encode(self.hostname)
        )

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> HostRecord:
        """Return the record that `pack` wrote; ValueError if it is not 192 bytes long."""
        if len(data) != cls.SIZE:
            raise ValueError(f"a packed HostRecord has {cls.SIZE} bytes, got {len(data)}")
        hostid, uid, shm_dev, boot_id, hostname = _RECORD.unpack(data)
        return cls(hostid, _decode(boot_id), _decode(hostname), shm_dev, uid)

    def digest(self) -> int:
        """Return a 64-bit hash, equal for equal records in every process and on every host."""
        return int.from_bytes(hashlib.blake2b(self.pack(), digest_size=8).digest(), "little")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decode(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _fit(text: str, room: int) -> str:
    """Return `text` if it fits into `room` bytes, else a prefix and a hash of the whole."""
    text = text.partition("\0")[0]
    data = _encode(text)
    if len(data) <= room:
        return text
    mark = "~" + hashlib.blake2b(data, digest_size=8).hexdigest()
    return data[: room - len(mark)].decode("utf-8", "ignore") + mark


def read_host_record(shm_dir: str) -> HostRecord:
    """Return the record of the calling process.

    Parameters
    ----------
    shm_dir : str
        Directory in which segments are made (``XUPC_SHM_DIR``).

    Raises
    ------
    OSError
        If `shm_dir` cannot be examined.
    """
    return HostRecord(
        hostid=_gethostid(),
        boot_id=read_boot_id(),
        hostname=socket.gethostname(),
        shm_dev=os.stat(shm_dir).st_dev,
        uid=os.getuid(),
    )


def _gethostid() -> int:
    """Return libc's host id, or 0 (as musl does) where libc has no such function."""
    function = getattr(ctypes.CDLL(None), "gethostid", None)
    if function is None:
        return 0
    function.restype = ctypes.c_long
    function.argtypes = ()
    return int(function())


def read_boot_id() -> str:
    """Return the id of this start of the kernel; empty where the system has none."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


# --- XUPC_NODES -----------------------------------------------------------------------------------

# Nine digits at most: more cannot be a thread count, and int() refuses thousands of them.
_NUMBER = "([0-9]{1,9})"
_EVEN = re.compile(rf"{_NUMBER}x{_NUMBER}")
_UNEVEN = re.compile(r"[0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*")
_CYCLIC = re.compile(rf"cyclic:{_NUMBER}")
_SYNTAX = 'expected "NODESxTHREADS", a list of node sizes like "3,1,4", or "cyclic:NODES"'


def parse_nodes(spec: str, threads: int) -> NDArray[np.int32]:
    """Return the node number of each thread that ``XUPC_NODES`` asks for.

    Parameters
    ----------
    spec : str
        ``"4x2"``: 4 nodes of 2 threads, dealt in blocks; ``"3,1,4"``: nodes of these sizes, dealt
        in blocks; ``"cyclic:3"``: threads dealt round robin over 3 nodes.
    threads : int
        Number of threads, at least 1.

    Returns
    -------
    ndarray of int32, shape (threads,)

    Raises
    ------
    ValueError
        If `spec` has another form, holds a zero, or does not add up to `threads`.
    """
    if threads < 1:
        raise ValueError(f"XUPC_NODES (nodes=): expected at least 1 thread, got {threads}")
    text = spec.strip()
    if match := _CYCLIC.fullmatch(text):
        return _cyclic_nodes(spec, int(match[1]), threads)
    if match := _EVEN.fullmatch(text):
        node_count, size = int(match[1]), int(match[2])
        _check_sizes(spec, [node_count, size], node_count * size, threads)
        return (np.arange(threads) // size).astype(np.int32)
    if _UNEVEN.fullmatch(text):
        sizes = [int(size) for size in text.split(",")]
        _check_sizes(spec, sizes, sum(sizes), threads)
        return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    raise _bad_spec(spec, _SYNTAX)


def threads_of_nodes(spec: str) -> int | None:
    """Return how many threads a ``XUPC_NODES`` is for; None if any number, or if it is none."""
    if match := _EVEN.fullmatch(spec.strip()):
        return int(match[1]) * int(match[2])
    if _UNEVEN.fullmatch(spec.strip()):
        return sum(map(int, spec.split(",")))
    return None


def _cyclic_nodes(spec: str, node_count: int, threads: int) -> NDArray[np.int32]:
    if not 1 <= node_count <= threads:
        raise _bad_spec(spec, f"expected 1 to {threads} nodes for {_plural(threads, 'thread')}")
    return (np.arange(threads) % node_count).astype(np.int32)


def _check_sizes(spec: str, numbers: Sequence[int], total: int, threads: int) -> None:
    if min(numbers) < 1:
        raise _bad_spec(spec, "expected numbers of at least 1")
    if total != threads:
        raise _bad_spec(spec, f"its nodes hold {total}, expected {_plural(threads, 'thread')}")


def _bad_spec(spec: str, reason: str) -> ValueError:
    return ValueError(f"XUPC_NODES (nodes=) is {spec!r}: {reason}")


def node_tree(machine_of: NDArray[Any], spec: str | None) -> Tree:
    """The tree of threads on machines, split further as ``XUPC_NODES`` wishes.

    Two threads share a node if they share a machine **and** a node of `spec`. So the wish can split
    a machine and never merge two.

    Parameters
    ----------
    machine_of : ndarray of int, shape (threads,)
        A label of each thread's machine, 0 <= label < threads.
    spec : str or None
        As for `parse_nodes`; None, or empty: it splits nothing.

    Raises
    ------
    ValueError
        As `parse_nodes` does.
    """
    if not spec:
        return Tree(machine_of)
    return Tree(machine_of.astype(np.int64) * machine_of.size + parse_nodes(spec, machine_of.size))


def _number_by_lowest(labels: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Renumber `labels` by first occurrence; also return the first occurrence of each number."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    by_lowest = np.argsort(first)
    number = np.empty(first.size, dtype=np.int32)
    number[by_lowest] = np.arange(first.size, dtype=np.int32)
    return number[inverse], first[by_lowest]


# --- the tree -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """Ranks ``first, first + step, ...``, `count` of them, neighbours in their node.

    `local` is the local index of the first; those of the others follow one by one.
    """

    first: int
    step: int
    count: int
    local: int


class Tree:
    """Threads grouped into nodes, each represented by its node root, its lowest thread.

    Nodes are numbered by their node roots. Three arrays hold it all (8 bytes per thread, 8 per
    node); tuples and `Run` objects are made when asked for. They are kept of a small tree only.

    Parameters
    ----------
    node_index : array_like of int, shape (threads,)
        A label for each thread; threads with equal labels share a node. Any labels will do: they
        are renumbered.

    Raises
    ------
    ValueError
        If there is no thread, or the array has not one dimension.
    """

    __slots__ = (
        "_bounds",
        "_kept_runs",
        "_largest",
        "_members",
        "_node_index",
        "_nodes",
        "_places",
        "_starts",
        "_threads",
    )

    _places: NDArray[np.int64] | None  # of a team's ranks in their nodes' memory
    _node_index: NDArray[np.int32]  # node of each thread
    _members: NDArray[np.int32]  # threads, node after node, ascending within each
    _starts: NDArray[np.int64]  # node k's are _members[_starts[k]:_starts[k + 1]]

    def __init__(self, node_index: Sequence[int] | NDArray[Any]) -> None:
        labels = np.asarray(node_index)
        if labels.ndim != 1 or labels.size == 0:
            raise ValueError(f"expected one label per thread, got shape {labels.shape}")
        numbers, first = _number_by_lowest(labels)
        sizes = np.bincount(numbers, minlength=first.size)
        starts = np.zeros(first.size + 1, dtype=np.int64)
        np.cumsum(sizes, out=starts[1:])
        self._keep(numbers, np.argsort(numbers, kind="stable").astype(np.int32), starts)

    def _keep(
        self,
        node_index: NDArray[np.int32],
        members: NDArray[np.int32],
        starts: NDArray[np.int64],
    ) -> None:
        self._places = None
        self._node_index = _read_only(node_index)
        self._members = _read_only(members)
        self._starts = _read_only(starts)
        # one element of an array takes several times as long as one of a view
        self._nodes = self._node_index.data
        self._threads = self._members.data
        self._bounds = self._starts.data
        self._kept_runs: dict[int, tuple[Run, ...]] = {}
        self._largest = 0

    def write_tables(self, room: NDArray[np.uint8]) -> None:
        """Put the tables there, for `with_tables`."""
        for view, table in zip(self._views(room), self._tables, strict=True):
            view[:] = table

    def with_tables(self, room: NDArray[np.uint8]) -> Tree:
        """The same tree over tables that `write_tables` put there: one copy for many processes.

        Parameters
        ----------
        room : ndarray of uint8
            `nbytes` of them, aligned to 8.
        """
        tree = Tree.__new__(Tree)
        starts, node_index, members = self._views(room)
        tree._keep(node_index, members, starts)
        return tree

    @property
    def _tables(self) -> tuple[NDArray[Any], ...]:
        return self._starts, self._node_index, self._members

    def _views(self, room: NDArray[np.uint8]) -> Iterator[NDArray[Any]]:
        begin = 0
        for table in self._tables:
            yield room[begin : begin + table.nbytes].view(table.dtype)
            begin += table.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables."""
        return self._node_index.nbytes + self._members.nbytes + self._starts.nbytes

    @property
    def size(self) -> int:
        """Number of threads."""
        return len(self._nodes)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self._bounds) - 1

    @property
    def node_index(self) -> NDArray[np.int32]:
        """Node of each thread, read-only, shape (size,)."""
        return self._node_index

    @property
    def node_roots(self) -> NDArray[np.int32]:
        """Node root of each node, ascending, shape (node_count,)."""
        return self._members[self._starts[:-1]]

    @property
    def node_sizes(self) -> NDArray[np.int64]:
        """Number of threads of each node, shape (node_count,)."""
        return np.diff(self._starts)

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The threads of each node; made anew on each use."""
        return tuple(tuple(self.members(node).tolist()) for node in range(self.node_count))

    @property
    def roots(self) -> tuple[int, ...]:
        """The node root of each node; made anew on each use."""
        return tuple(self.node_roots.tolist())

    def node_of(self, thread: int) -> int:
        """Return the node of `thread`."""
        return self._nodes[self._check_thread(thread)]

    def members(self, node: int) -> NDArray[np.int32]:
        """Return the threads of `node`, ascending: a read-only view."""
        node = self._check_node(node)
        return self._members[self._bounds[node] : self._bounds[node + 1]]

    def node_size(self, node: int) -> int:
        """Return the number of threads of `node`."""
        node = self._check_node(node)
        return self._bounds[node + 1] - self._bounds[node]

    @property
    def largest_node(self) -> int:
        """How many threads the largest node has."""
        if not self._largest:
            self._largest = int(self.node_sizes.max())
        return self._largest

    def node_root(self, node: int) -> int:
        """Return the lowest thread of `node`."""
        return self._threads[self._bounds[self._check_node(node)]]

    def root_of(self, thread: int) -> int:
        """Return the node root of the node of `thread`."""
        return self.node_root(self.node_of(thread))

    def local_index(self, thread: int) -> int:
        """Return the position of `thread` among the threads of its node."""
        node = self.node_of(thread)
        first = self._bounds[node]
        return bisect_left(self._threads, thread, first, self._bounds[node + 1]) - first

    def place(self, thread: int) -> int:
        """Return whose part of the node's memory is that of `thread`: its place among all of them.

        In the tree of all threads the same as `local_index`; a team may lack some of them.
        """
        return self.local_index(thread) if self._places is None else int(self._places[thread])

    def runs(self, node: int) -> tuple[Run, ...]:
        """Split the threads of `node` into arithmetic progressions, greedily from the lowest.

        A node of consecutive threads and one of threads dealt round robin are one run each. A run
        of a single thread has step 1. The places of a run are a progression, too, and ascend.
        """
        kept = self._kept_runs.get(node)
        if kept is None:
            kept = self._find_runs(node)
            if self.node_count <= _MOST_KEPT:
                self._kept_runs[node] = kept
        return kept

    def _find_runs(self, node: int) -> tuple[Run, ...]:
        members = self.members(node)
        runs = _runs(members)
        if self._places is None:
            return tuple(runs)
        places = self._places[members]
        return tuple(
            _cut(run, at, count)
            for run in runs
            for at, count in _ascending(places[run.local : run.local + run.count])
        )

    def sub(self, threads: Sequence[int] | NDArray[Any]) -> Tree:
        """Return the tree of a team.

        Parameters
        ----------
        threads : sequence of int
            Distinct threads of this tree; ``threads[r]`` is rank r of the team.

        Returns
        -------
        Tree
            Over ranks 0..k-1, its nodes numbered by lowest rank. Their places are those of the
            threads in this tree, whichever tree of a team of the team's it is.
        """
        chosen = np.asarray(threads)
        if chosen.ndim != 1 or chosen.size == 0:
            raise ValueError("a team needs at least one thread")
        if chosen.min() < 0 or chosen.max() >= self.size:
            raise ValueError(f"threads of a team must lie in 0..{self.size - 1}")
        if np.unique(chosen).size != chosen.size:
            raise ValueError("a team must not hold a thread twice")
        tree = Tree(self._node_index[chosen])
        tree._places = np.array([self.place(thread) for thread in chosen.tolist()], np.int64)
        return tree

    def _check_thread(self, thread: int) -> int:
        if not 0 <= thread < len(self._nodes):
            raise IndexError(f"thread {thread}: expected 0..{self.size - 1}")
        return thread

    def _check_node(self, node: int) -> int:
        if not 0 <= node < len(self._bounds) - 1:
            raise IndexError(f"node {node}: expected 0..{self.node_count - 1}")
        return node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return np.array_equal(self._node_index, other._node_index)

    def __hash__(self) -> int:
        return hash(self._node_index.tobytes())

    def __repr__(self) -> str:
        if self.size <= _MAX_REPR:
            return f"Tree({self._node_index.tolist()})"
        return f"<Tree: {_headline(self)}>"

    def __str__(self) -> str:
        return _draw(self, self.members)


class ThreadTree:
    """A team's tree in terms of its threads: what `Tree` is for its ranks.

    A node root is the thread of the node with the lowest rank.

    Parameters
    ----------
    ranks : Tree
        Over the team's ranks.
    threads : sequence of int
        Thread ids by rank.
    """

    __slots__ = ("_rank_of", "_ranks", "_threads")

    def __init__(self, ranks: Tree, threads: Sequence[int]) -> None:
        self._ranks = ranks
        self._threads = np.asarray(threads)
        self._rank_of = {thread: rank for rank, thread in enumerate(threads)}

    @property
    def size(self) -> int:
        """Number of threads."""
        return self._ranks.size

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return self._ranks.node_count

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The threads of each node, by rank."""
        return tuple(tuple(self.members(node).tolist()) for node in range(self.node_count))

    @property
    def roots(self) -> tuple[int, ...]:
        """The node root of each node."""
        return tuple(self._threads[self._ranks.node_roots].tolist())

    def members(self, node: int) -> NDArray[Any]:
        """Return the threads of `node`, by rank."""
        return np.asarray(self._threads[self._ranks.members(node)])

    def node_of(self, thread: int) -> int:
        """Return the node of `thread`; IndexError if it is not in the team."""
        return self._ranks.node_of(self._rank(thread))

    def root_of(self, thread: int) -> int:
        """Return the node root of the node of `thread`."""
        return int(self._threads[self._ranks.root_of(self._rank(thread))])

    def _rank(self, thread: int) -> int:
        rank = self._rank_of.get(thread)
        if rank is None:
            raise IndexError(f"thread {thread}: expected one of the team's")
        return rank

    def __repr__(self) -> str:
        return f"<ThreadTree: {_headline(self)}>"

    def __str__(self) -> str:
        return _draw(self, self.members)


def _headline(tree: Tree | ThreadTree) -> str:
    return f"{_plural(tree.size, 'thread')} on {_plural(tree.node_count, 'node')}"


def _draw(tree: Tree | ThreadTree, members: Callable[[int], NDArray[Any]]) -> str:
    """A tree in lines: how many there are, then each node with its node root, the first of it."""
    count = tree.node_count
    shown = count if count <= _MAX_NODE_LINES else _MAX_NODE_LINES - 1
    nodes = [members(node) for node in range(shown)]
    lines = [
        f"node {i}: {_name_threads(np.sort(threads))}, node root {threads[0]}"
        for i, threads in enumerate(nodes)
    ]
    if hidden := count - shown:
        lines.append(f"… and {hidden} more nodes")
    stems = ["├─ "] * (len(lines) - 1) + ["└─ "]
    return "\n".join([_headline(tree), *map(str.__add__, stems, lines)])


def _read_only(array: NDArray[ScalarT]) -> NDArray[ScalarT]:
    view = array.view()
    view.flags.writeable = False
    return view


def _runs(ascending: NDArray[Any]) -> Iterator[Run]:
    """Yield the greedy arithmetic progressions of an ascending array, lazily."""
    gaps = ascending[1:] - ascending[:-1]
    if gaps.size and (gaps == gaps[0]).all():  # most nodes
        yield Run(int(ascending[0]), int(gaps[0]), ascending.size, 0)
        return
    # Where two neighbouring gaps differ, the run that reaches there must end.
    bends = np.append(np.flatnonzero(gaps[1:] != gaps[:-1]) + 1, gaps.size)
    at, size = 0, ascending.size
    while at < size:
        last = at if at == size - 1 else int(bends[np.searchsorted(bends, at, side="right")])
        step = int(gaps[at]) if last > at else 1
        yield Run(int(ascending[at]), step, last - at + 1, at)
        at = last + 1


def _ascending(values: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Cut values into ascending arithmetic progressions: (first index, how many)."""
    for run in _runs(values):
        if run.count == 1 or run.step > 0:
            yield run.local, run.count
        else:
            yield from ((run.local + i, 1) for i in range(run.count))


def _cut(run: Run, at: int, count: int) -> Run:
    """`count` of a run's threads from the one at `at` on."""
    step = run.step if count > 1 else 1
    return Run(run.first + at * run.step, step, count, run.local + at)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _name_threads(ascending: Sequence[int] | NDArray[Any]) -> str:
    """Return ascending threads in words: "thread 3", "threads 0-7", "threads 0,3,6,…,21"."""
    array = np.asarray(ascending)
    runs = list(islice(_runs(array), _MAX_RUNS_DRAWN))
    text = ",".join(map(_name_run, runs))
    if hidden := array.size - sum(run.count for run in runs):
        text += f",… ({hidden} more)"
    return f"thread {text}" if array.size == 1 else f"threads {text}"


def _name_run(run: Run) -> str:
    last = run.first + (run.count - 1) * run.step
    if run.step == 1 and run.count > 1:
        return f"{run.first}-{last}"
    ranks = [str(run.first + k * run.step) for k in range(min(run.count, 3))]
    if run.count > 4:
        ranks.append("…")
    if run.count > 3:
        ranks.append(str(last))
    return ",".join(ranks)


# --- warnings -------------------------------------------------------------------------------------


def diagnose(records: Sequence[HostRecord]) -> list[str]:
    """Say which host ids cannot tell machines apart.

    Reported are an id of 0, one that glibc made from a loopback address, and one that several boot
    ids or several host names share. None of them makes the grouping wrong, since whole records
    are compared and sharing is proven.

    Parameters
    ----------
    records : sequence of HostRecord
        ``records[i]`` is thread i's.

    Returns
    -------
    list of str
        Warnings, ordered by the lowest thread concerned.
    """
    by_hostid: dict[int, list[int]] = {}
    for thread, record in enumerate(records):
        by_hostid.setdefault(record.hostid, []).append(thread)
    warnings: list[str] = []
    for hostid, threads in by_hostid.items():
        own = [records[thread] for thread in threads]
        warnings += _odd_value(hostid, _name_threads(threads))
        warnings += _shared_by(hostid, "boot ids", (record.boot_id for record in own))
        warnings += _shared_by(hostid, "host names", (record.hostname for record in own))
    return warnings


def _odd_value(hostid: int, whose: str) -> Iterator[str]:
    if hostid == 0:
        yield f"gethostid is 0 on {whose}: it tells no machines apart"
    octets = _address_behind(hostid)
    if octets[0] == _LOOPBACK:
        address = ".".join(map(str, octets))
        yield (
            f"gethostid 0x{hostid:08x} on {whose} looks derived from the loopback address "
            f"{address}: other machines answer the same"
        )


def _shared_by(hostid: int, what: str, values: Iterable[str]) -> Iterator[str]:
    """Warn if there are several values; an empty one is unknown, hence no other value."""
    distinct = [value for value in dict.fromkeys(values) if value]
    if len(distinct) > 1:
        sample = ", ".join(distinct[:3]) + (", …" if len(distinct) > 3 else "")
        yield f"gethostid 0x{hostid:08x} is shared by {len(distinct)} {what}: {sample}"


def _address_behind(hostid: int) -> bytes:
    """Return the octets of the IPv4 address from which glibc would derive `hostid`.

    glibc swaps the 16-bit halves of the address as it lies in memory, read as a little-endian word.
    """
    swapped = (hostid << 16 | hostid >> 16) & 0xFFFFFFFF
    return swapped.to_bytes(4, "little")
