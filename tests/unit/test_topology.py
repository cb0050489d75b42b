"""Host tables, node groups, XUPC_NODES and the node tree, against literal answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.thread_comm import Comm, in_threads

from xupc.errors import HeapError
from xupc.health.init_watchdog import InitDeathWatch
from xupc.pgas.segment import Segment, attach, create
from xupc.records import replace
from xupc.runtime import memory_proof
from xupc.topology import discovery, node_spec
from xupc.topology.discovery import Neighbours
from xupc.topology.host_record import HostRecord, diagnose, read_host_record
from xupc.topology.node_spec import node_tree, parse_nodes
from xupc.topology.runs import Run
from xupc.topology.tree import Tree

Groups = list[tuple[int, ...]]

A = HostRecord(0xA8C01401, "boot-a", "alpha", 26, 1000)  # 192.168.1.20
B = HostRecord(0xA8C01501, "boot-b", "beta", 26, 1000)
C = HostRecord(0xA8C01601, "boot-c", "gamma", 26, 1000)
D = HostRecord(0xA8C01701, "boot-d", "delta", 26, 1000)


def with_id(hostid: int, *hosts: HostRecord) -> tuple[HostRecord, ...]:
    return tuple(replace(host, hostid=hostid) for host in hosts)


ZERO_A, ZERO_B, ZERO_C = with_id(0, A, B, C)
LOOP_A, LOOP_B, LOOP_C = with_id(0x007F0101, A, B, C)  # Debian: 127.0.1.1
HOME_A, HOME_B = with_id(0x007F0100, A, B)  # 127.0.0.1
SAME_A, SAME_B, SAME_C, SAME_D = with_id(0x12345678, A, B, C, D)


def zero(threads: str) -> str:
    return f"gethostid is 0 on {threads}: it does not distinguish machines"


def loopback(hostid: str, threads: str, address: str) -> str:
    return (
        f"gethostid {hostid} on {threads} looks derived from the loopback address {address}: "
        "other machines answer the same"
    )


def boots(hostid: str, count: int, values: str) -> str:
    return f"gethostid {hostid} is shared by {count} boot ids: {values}"


def names(hostid: str, count: int, values: str) -> str:
    return f"gethostid {hostid} is shared by {count} host names: {values}"


@dataclass(frozen=True)
class Table:
    """Threads on hosts, the node groups that must come out, and the warnings.

    `deaf` holds the (node root, member) pairs whose mapping fails, `spec` is XUPC_NODES.
    """

    name: str
    hosts: Sequence[HostRecord]
    nodes: Groups
    warnings: list[str] = field(default_factory=list)
    deaf: set[tuple[int, int]] = field(default_factory=set)
    spec: str | None = None


BOOT_AB = "boot-a, boot-b"
NAMES_AB = "alpha, beta"
SAME_AB = [boots("0x12345678", 2, BOOT_AB), names("0x12345678", 2, NAMES_AB)]

TABLES = [
    # --- plain placements
    Table("one thread", [A], [(0,)]),
    Table("two threads, one host", [A, A], [(0, 1)]),
    Table("two threads, two hosts", [A, B], [(0,), (1,)]),
    Table("blocks", [A, A, B, B], [(0, 1), (2, 3)]),
    Table("interleaved", [A, B, A, B], [(0, 2), (1, 3)]),
    Table("interleaved by three", [A, B, C, A, B, C, A], [(0, 3, 6), (1, 4), (2, 5)]),
    Table("mirrored", [A, B, C, C, B, A], [(0, 5), (1, 4), (2, 3)]),
    Table("uneven 3 1 4", [A, A, A, B, C, C, C, C], [(0, 1, 2), (3,), (4, 5, 6, 7)]),
    Table("uneven 1 5", [A, B, B, B, B, B], [(0,), (1, 2, 3, 4, 5)]),
    Table("one per node", [D, C, B, A], [(0,), (1,), (2,), (3,)]),
    Table("irregular", [A, A, B, A, C, B, A], [(0, 1, 3, 6), (2, 5), (4,)]),
    Table("lowest thread decides the order", [C, A, B, A], [(0,), (1, 3), (2,)]),
    # --- a record that differs in one field
    Table("other uid", [A, replace(A, uid=1001), A], [(0, 2), (1,)]),
    Table("root and user", [replace(A, uid=0), A], [(0,), (1,)]),
    Table("other shm device", [A, A, replace(A, shm_dev=27)], [(0, 1), (2,)]),
    Table(
        "a container each, devices differ",
        [replace(A, shm_dev=dev) for dev in (50, 51, 50, 52)],
        [(0, 2), (1,), (3,)],
    ),
    Table("other hostid, else equal", [A, replace(A, hostid=0x1), A], [(0, 2), (1,)]),
    Table(
        "other boot id, else equal",
        [A, replace(A, boot_id="boot-x")],
        [(0,), (1,)],
        [boots("0xa8c01401", 2, "boot-a, boot-x")],
    ),
    Table(
        "other host name, else equal",
        [A, replace(A, hostname="jail"), A, replace(A, hostname="jail")],
        [(0, 2), (1, 3)],
        [names("0xa8c01401", 2, "alpha, jail")],
    ),
    Table(
        "host names differ in case only",
        [A, replace(A, hostname="ALPHA")],
        [(0,), (1,)],
        [names("0xa8c01401", 2, "alpha, ALPHA")],
    ),
    # --- equal ids on different machines
    Table("equal ids", [SAME_A, SAME_A, SAME_B, SAME_B], [(0, 1), (2, 3)], SAME_AB),
    Table("equal ids, interleaved", [SAME_A, SAME_B] * 2, [(0, 2), (1, 3)], SAME_AB),
    Table("equal ids, one per node", [SAME_A, SAME_B], [(0,), (1,)], SAME_AB),
    Table(
        "equal ids on four machines: three are named",
        [SAME_D, SAME_C, SAME_B, SAME_A],
        [(0,), (1,), (2,), (3,)],
        [
            boots("0x12345678", 4, "boot-d, boot-c, boot-b, …"),
            names("0x12345678", 4, "delta, gamma, beta, …"),
        ],
    ),
    Table(
        "equal ids and names, cloned machines",
        [A, replace(A, boot_id="boot-b"), A],
        [(0, 2), (1,)],
        [boots("0xa8c01401", 2, BOOT_AB)],
    ),
    Table(
        "equal ids on two of three",
        [SAME_A, C, SAME_B, C],
        [(0,), (1, 3), (2,)],
        SAME_AB,
    ),
    Table(
        "no boot ids, names tell machines apart",
        [replace(host, boot_id="") for host in (SAME_A, SAME_B, SAME_A)],
        [(0, 2), (1,)],
        [names("0x12345678", 2, NAMES_AB)],
    ),
    Table("no boot id on some threads", [A, replace(A, boot_id=""), A], [(0, 2), (1,)]),
    # --- zero, as musl answers
    Table("zero, one host", [ZERO_A] * 3, [(0, 1, 2)], [zero("threads 0-2")]),
    Table("zero, one thread", [A, ZERO_B], [(0,), (1,)], [zero("thread 1")]),
    Table(
        "zero on two hosts",
        [ZERO_A, ZERO_A, ZERO_B],
        [(0, 1), (2,)],
        [
            zero("threads 0-2"),
            boots("0x00000000", 2, BOOT_AB),
            names("0x00000000", 2, NAMES_AB),
        ],
    ),
    Table(
        "zero beside a proper id, interleaved",
        [ZERO_A, B, ZERO_A, B, ZERO_A, B, ZERO_A, B, ZERO_A, B],
        [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9)],
        [zero("threads 0,2,4,…,8")],
    ),
    # --- loopback-derived (glibc without /etc/hostid)
    Table(
        "127.0.1.1 on one host",
        [LOOP_A, LOOP_A],
        [(0, 1)],
        [loopback("0x007f0101", "threads 0-1", "127.0.1.1")],
    ),
    Table(
        "127.0.0.1 on one thread",
        [HOME_A],
        [(0,)],
        [loopback("0x007f0100", "thread 0", "127.0.0.1")],
    ),
    Table(
        "127.0.1.1 on two hosts",
        [LOOP_A, LOOP_B, LOOP_A, LOOP_B],
        [(0, 2), (1, 3)],
        [
            loopback("0x007f0101", "threads 0-3", "127.0.1.1"),
            boots("0x007f0101", 2, BOOT_AB),
            names("0x007f0101", 2, NAMES_AB),
        ],
    ),
    Table(
        "127.0.0.1 and 127.0.1.1",
        [HOME_A, LOOP_C, HOME_A],
        [(0, 2), (1,)],
        [
            loopback("0x007f0100", "threads 0,2", "127.0.0.1"),
            loopback("0x007f0101", "thread 1", "127.0.1.1"),
        ],
    ),
    Table(
        "127.17.34.51",
        [replace(A, hostid=0x117F3322)],
        [(0,)],
        [loopback("0x117f3322", "thread 0", "127.17.34.51")],
    ),
    Table("127 elsewhere in the address", [replace(A, hostid=0x7F0A7F7F)], [(0,)]),
    Table("10.0.1.127 is no loopback", [replace(A, hostid=0x000A7F01)], [(0,)]),
    Table(
        "loopback and zero on one machine",
        [LOOP_A, ZERO_A],
        [(0,), (1,)],
        [loopback("0x007f0101", "thread 0", "127.0.1.1"), zero("thread 1")],
    ),
    # --- sign-extended ids
    Table("sign-extended", [replace(A, hostid=-0x573FEBFF), A], [(0, 1)]),
    Table("sign-extended, as 64 bits", [replace(A, hostid=0xFFFFFFFFA8C01401), A], [(0, 1)]),
    Table("minus one", with_id(-1, A, A), [(0, 1)]),
    Table("high bits over zero", [replace(A, hostid=1 << 32)], [(0,)], [zero("thread 0")]),
    # --- the proof fails
    Table("all deaf", [A] * 3, [(0,), (1,), (2,)], deaf={(0, 1), (0, 2), (1, 2)}),
    Table("one deaf to the first", [A] * 4, [(0, 1, 3), (2,)], deaf={(0, 2)}),
    Table("the last is deaf", [A] * 3, [(0, 1), (2,)], deaf={(0, 2)}),
    Table("the first is alone", [A] * 3, [(0,), (1, 2)], deaf={(0, 1), (0, 2)}),
    Table("two halves", [A] * 4, [(0, 1), (2, 3)], deaf={(0, 2), (0, 3)}),
    Table("two interleaved halves", [A] * 4, [(0, 2), (1, 3)], deaf={(0, 1), (0, 3)}),
    Table(
        "three rounds",
        [A] * 6,
        [(0, 5), (1, 3), (2, 4)],
        deaf={(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 4)},
    ),
    Table("failure between two members is not asked for", [A] * 3, [(0, 1, 2)], deaf={(1, 2)}),
    Table("failure the other way round is not asked for", [A] * 2, [(0, 1)], deaf={(1, 0)}),
    Table(
        "one group fails, the other holds",
        [A, B, A, B, A, B],
        [(0,), (1, 3, 5), (2, 4)],
        deaf={(0, 2), (0, 4)},
    ),
    Table(
        "a group that falls apart around another",
        [A, A, B, B, A],
        [(0, 4), (1,), (2, 3)],
        deaf={(0, 1)},
    ),
    Table(
        "equal records on two machines: only the proof tells",
        [LOOP_A] * 4,
        [(0, 1), (2, 3)],
        [loopback("0x007f0101", "threads 0-3", "127.0.1.1")],
        deaf={(0, 2), (0, 3)},
    ),
    # --- XUPC_NODES on top
    Table("spec splits one host", [A] * 4, [(0, 1), (2, 3)], spec="2x2"),
    Table("spec splits cyclically", [A] * 5, [(0, 2, 4), (1, 3)], spec="cyclic:2"),
    Table("spec cannot merge hosts", [A, B, A, B], [(0, 2), (1, 3)], spec="1x4"),
    Table("spec crosses hosts", [A, A, A, B, B], [(0, 1), (2,), (3, 4)], spec="2,3"),
    Table(
        "spec splits interleaved hosts",
        [A, B, A, B, A, B, A, B],
        [(0, 2), (1, 3), (4, 6), (5, 7)],
        spec="2x4",
    ),
    Table("spec agrees with hosts", [A, A, B, C, C], [(0, 1), (2,), (3, 4)], spec="2,1,2"),
    Table("spec: one per node", [A, A, B], [(0,), (1,), (2,)], spec="3x1"),
    Table(
        "spec does not skip the proof",
        [A] * 4,
        [(0,), (1, 2), (3,)],
        deaf={(0, 1), (0, 2), (0, 3)},
        spec="3,1",
    ),
    Table(
        "spec splits what the proof split",
        [A] * 6,
        [(0, 2), (1,), (3, 5), (4,)],
        deaf={(0, 3), (0, 4), (0, 5)},
        spec="cyclic:2",
    ),
]


class Proof:
    """Start-up's search for the threads of a machine, in threads of this process.

    They make and map real segments; that of thread i fails for j if (i, j) is in `deaf`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        monkeypatch.setenv("XUPC_SHM_DIR", str(folder))
        monkeypatch.setattr(memory_proof, "create", self.create)
        monkeypatch.setattr(memory_proof, "attach", self.attach)
        self.me = threading.local()
        self.makers: dict[str, int] = {}
        self.deaf: set[tuple[int, int]] = set()

    def create(self, nbytes: int) -> Segment:
        segment = create(nbytes)
        self.makers[segment.path] = self.me.rank
        return segment

    def attach(self, path: str, nbytes: int) -> Segment:
        if (self.makers[path], self.me.rank) in self.deaf:
            raise PermissionError(path)
        return attach(path, nbytes)

    def find(self, hosts: Sequence[HostRecord], deaf: set[tuple[int, int]]) -> list[Any]:
        """Return the result of each thread."""
        self.deaf = deaf

        def mine(comm: Comm) -> Neighbours[InitDeathWatch]:
            self.me.rank = comm.rank
            who = f"thread {comm.rank}"
            return discovery.find_neighbours(
                comm, hosts[comm.rank], who, memory_proof.prove_memory
            )

        return in_threads(len(hosts), mine)

    def machines(self, hosts: Sequence[HostRecord], deaf: set[tuple[int, int]]) -> Groups:
        """The groups that they found to share memory."""
        return self.groups(self.find(hosts, deaf))

    def groups(self, found: list[Any]) -> Groups:
        return sorted({tuple(n.threads) for n in found})


@pytest.fixture
def proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Proof:
    return Proof(monkeypatch, tmp_path)


def test_there_are_fifty_tables_with_names_of_their_own() -> None:
    assert len(TABLES) >= 50
    assert len({table.name for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_table(table: Table, proof: Proof) -> None:
    found = proof.find(table.hosts, table.deaf)
    assert all(thread in found[thread].threads for thread in range(len(found)))
    tree = node_tree(np.array([n.threads[0] for n in found]), table.spec)
    assert list(tree.nodes) == table.nodes
    assert diagnose(table.hosts) == table.warnings
    if not table.spec:
        assert proof.groups(found) == table.nodes


# --- records


def test_record_masks_numbers() -> None:
    record = HostRecord(-1, "b", "h", -1, -2)
    assert (record.hostid, record.shm_dev, record.uid) == (2**32 - 1, 2**64 - 1, 2**32 - 2)


def test_packed_record_is_192_bytes_as_written_here() -> None:
    expected = b"\x01\x14\xc0\xa8" + b"\xe8\x03\0\0" + b"\x1a" + bytes(7)
    expected += b"boot-a".ljust(48, b"\0") + b"alpha".ljust(128, b"\0")
    assert A.pack() == expected
    assert len(expected) == HostRecord.SIZE == 192


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=60),
    st.text(max_size=200),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
)
def test_unpack_inverts_pack(hostid: int, boot: str, name: str, dev: int, uid: int) -> None:
    record = HostRecord(hostid, boot, name, dev, uid)
    assert len(record.pack()) == 192
    assert HostRecord.unpack(record.pack()) == record


def test_long_names_stay_different() -> None:
    one, other = (replace(A, hostname="h" * 300 + end) for end in "12")
    assert len(one.hostname.encode()) == 128
    assert one != other
    assert one.pack() != other.pack()
    assert replace(A, hostname="h" * 128).hostname == "h" * 128


def test_undecodable_host_name_survives() -> None:
    record = replace(A, hostname=b"h\xff".decode("utf-8", "surrogateescape"))
    assert HostRecord.unpack(record.pack()) == record


@pytest.mark.parametrize("size", [0, 191, 193])
def test_unpack_refuses_other_sizes(size: int) -> None:
    with pytest.raises(ValueError, match=f"192 bytes, got {size}"):
        HostRecord.unpack(bytes(size))


DIGEST_OF_A = 0xE922CD96B9329E0B


def test_digest_never_changes() -> None:
    assert A.digest() == DIGEST_OF_A
    assert replace(A, hostid=-0x573FEBFF).digest() == DIGEST_OF_A


def test_digest_sees_every_field() -> None:
    variants = [
        A,
        replace(A, hostid=2),
        replace(A, boot_id="x"),
        replace(A, hostname="x"),
        replace(A, shm_dev=2),
        replace(A, uid=2),
    ]
    assert len({record.digest() for record in variants}) == len(variants)
    assert all(0 <= record.digest() < 2**64 for record in variants)


def test_own_record(tmp_path: Path) -> None:
    record = read_host_record(os.fspath(tmp_path))
    assert record == read_host_record(os.fspath(tmp_path))
    assert record.shm_dev == os.stat(tmp_path).st_dev
    assert record.hostname == os.uname().nodename
    assert record.uid == os.getuid()
    if hostid := shutil.which("hostid"):
        answer = subprocess.run([hostid], capture_output=True, text=True, check=True)
        assert record.hostid == int(answer.stdout, 16)


def test_own_record_needs_the_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_host_record(str(tmp_path / "none"))


# --- proof and groups


def test_no_threads_no_warnings() -> None:
    assert diagnose([]) == []


def test_records_are_compared_not_hashes(monkeypatch: pytest.MonkeyPatch, proof: Proof) -> None:
    monkeypatch.setattr(HostRecord, "digest", lambda _self: 1)
    assert proof.machines([A, B, A], set()) == [(0, 2), (1,)]


def test_another_file_under_the_same_name_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, proof: Proof
) -> None:
    def attach(path: str, nbytes: int) -> Segment:
        segment = proof.attach(path, nbytes)
        if proof.me.rank == 1:
            segment = create(nbytes)
            segment.reserve(0, nbytes)
        return segment

    monkeypatch.setattr(memory_proof, "attach", attach)
    assert proof.machines([A, A, A], set()) == [(0, 2), (1,)]


def test_without_a_segment_all_get_why(monkeypatch: pytest.MonkeyPatch, proof: Proof) -> None:
    def full(nbytes: int) -> Segment:
        raise HeapError("no room")

    monkeypatch.setattr(memory_proof, "create", full)
    found = proof.find([A, A, B], set())
    assert [(n.threads, n.lookout, n.why_none) for n in found] == [
        ([0, 1], None, "no room"), ([0, 1], None, ""), ([2], None, "no room"),
    ]  # fmt: skip


def test_the_lookout_knows_its_machine(proof: Proof) -> None:
    found = proof.find([A, A, B, A], {(0, 1)})
    assert [n.lookout.names for n in found] == [
        ["thread 0", "", "thread 3"], ["thread 1"], ["thread 2"], ["thread 0", "", "thread 3"],
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_nodes_are_the_common_refinement(labels: list[tuple[int, int]]) -> None:
    machines = np.array([machine for machine, _ in labels], np.int32) % len(labels)
    wishes = np.array([wish for _, wish in labels]) % len(labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_spec, "parse_nodes", lambda _spec, _threads: wishes)
        tree = node_tree(machines, "a wish")
    pairs = list(zip(machines.tolist(), wishes.tolist(), strict=True))
    order = list(dict.fromkeys(pairs))
    assert tree.node_index.tolist() == [order.index(pair) for pair in pairs]


def test_no_wish_splits_nothing() -> None:
    labels = np.array([2, 2, 0])
    assert node_tree(labels, None) == node_tree(labels, "") == Tree([0, 0, 1])


# --- XUPC_NODES


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("1x1", [0]),
        ("4x2", [0, 0, 1, 1, 2, 2, 3, 3]),
        ("2x3", [0, 0, 0, 1, 1, 1]),
        ("1x5", [0, 0, 0, 0, 0]),
        ("5x1", [0, 1, 2, 3, 4]),
        ("3,1,4", [0, 0, 0, 1, 2, 2, 2, 2]),
        ("3, 1 ,4", [0, 0, 0, 1, 2, 2, 2, 2]),
        ("1,2", [0, 1, 1]),
        ("3", [0, 0, 0]),
        (" 2x1 ", [0, 1]),
        ("cyclic:1", [0, 0, 0]),
        ("cyclic:3", [0, 1, 2, 0, 1, 2, 0, 1]),
        ("cyclic:4", [0, 1, 2, 3]),
    ],
)
def test_parse_nodes(spec: str, expected: list[int]) -> None:
    nodes = parse_nodes(spec, len(expected))
    assert nodes.dtype == np.int32
    assert nodes.tolist() == expected


@pytest.mark.parametrize(
    ("spec", "threads", "reason"),
    [
        ("", 4, 'expected "NODESxTHREADS"'),
        ("x", 4, 'expected "NODESxTHREADS"'),
        ("4x", 4, 'expected "NODESxTHREADS"'),
        ("x2", 4, 'expected "NODESxTHREADS"'),
        ("4X2", 8, 'expected "NODESxTHREADS"'),
        ("2x2x1", 4, 'expected "NODESxTHREADS"'),
        ("2*2", 4, 'expected "NODESxTHREADS"'),
        ("2x-2", 4, 'expected "NODESxTHREADS"'),
        ("-2x-2", 4, 'expected "NODESxTHREADS"'),
        ("2.0x2", 4, 'expected "NODESxTHREADS"'),
        ("1,,3", 4, 'expected "NODESxTHREADS"'),
        ("1,3,", 4, 'expected "NODESxTHREADS"'),
        ("5,-1", 4, 'expected "NODESxTHREADS"'),
        ("1;3", 4, 'expected "NODESxTHREADS"'),
        ("cyclic", 4, 'expected "NODESxTHREADS"'),
        ("cyclic:", 4, 'expected "NODESxTHREADS"'),
        ("cyclic:-1", 4, 'expected "NODESxTHREADS"'),
        ("cyclic:2,2", 4, 'expected "NODESxTHREADS"'),
        ("\u0664x\u0662", 8, 'expected "NODESxTHREADS"'),
        ("1" * 5000, 4, 'expected "NODESxTHREADS"'),
        ("4x2", 7, "its nodes hold 8, expected 7 threads"),
        ("4x2", 1, "its nodes hold 8, expected 1 thread"),
        ("999999999x999999999", 4, "its nodes hold 999999998000000001, expected 4 threads"),
        ("3,1,4", 9, "its nodes hold 8, expected 9 threads"),
        ("3", 4, "its nodes hold 3, expected 4 threads"),
        ("0x4", 4, "expected numbers of at least 1"),
        ("4x0", 4, "expected numbers of at least 1"),
        ("4,0", 4, "expected numbers of at least 1"),
        ("0", 4, "expected numbers of at least 1"),
        ("cyclic:0", 4, "expected 1 to 4 nodes for 4 threads"),
        ("cyclic:5", 4, "expected 1 to 4 nodes for 4 threads"),
    ],
)
def test_parse_nodes_refuses(spec: str, threads: int, reason: str) -> None:
    with pytest.raises(ValueError, match="XUPC_NODES") as caught:
        parse_nodes(spec, threads)
    message = str(caught.value)
    assert "nodes=" in message
    assert repr(spec) in message
    assert reason in message


@pytest.mark.parametrize("threads", [0, -1])
def test_parse_nodes_needs_threads(threads: int) -> None:
    with pytest.raises(ValueError, match="at least 1 thread"):
        parse_nodes("1x1", threads)


# --- the tree


labels_strategy = st.lists(st.integers(-3, 6), min_size=1, max_size=40)


@given(labels_strategy)
def test_tree_against_a_dict(labels: list[int]) -> None:
    by_label: dict[int, list[int]] = {}
    for thread, label in enumerate(labels):
        by_label.setdefault(label, []).append(thread)
    groups = list(by_label.values())  # insertion order is by lowest thread
    tree = Tree(np.array(labels))
    assert tree.size == len(labels)
    assert tree.node_count == len(groups)
    assert tree.nodes == tuple(map(tuple, groups))
    assert tree.roots == tuple(group[0] for group in groups)
    assert tree.node_roots.tolist() == [group[0] for group in groups]
    for node, group in enumerate(groups):
        assert tree.members(node).tolist() == group
        assert tree.node_size(node) == len(group)
        assert tree.node_root(node) == group[0]
        for local, thread in enumerate(group):
            assert tree.node_of(thread) == node
            assert tree.node_index[thread] == node
            assert tree.root_of(thread) == group[0]
            assert tree.local_index(thread) == local


@given(labels_strategy)
def test_runs_put_together_give_the_members(labels: list[int]) -> None:
    tree = Tree(labels)
    for node in range(tree.node_count):
        members: list[int] = []
        for run in tree.runs(node):
            assert run.count >= 1
            assert run.step >= 1
            assert run.local == len(members)
            members += [run.first + k * run.step for k in range(run.count)]
        assert members == tree.members(node).tolist()


@pytest.mark.parametrize(
    ("members", "runs"),
    [
        ([0], [Run(0, 1, 1, 0)]),
        ([0, 1, 2, 3], [Run(0, 1, 4, 0)]),
        ([0, 3, 6, 9], [Run(0, 3, 4, 0)]),
        ([0, 5], [Run(0, 5, 2, 0)]),
        ([0, 1, 2, 10, 11, 12], [Run(0, 1, 3, 0), Run(10, 1, 3, 3)]),
        ([0, 1, 4, 5, 8, 9], [Run(0, 1, 2, 0), Run(4, 1, 2, 2), Run(8, 1, 2, 4)]),
        ([0, 2, 3, 4, 5], [Run(0, 2, 2, 0), Run(3, 1, 3, 2)]),
        ([0, 1, 2, 9], [Run(0, 1, 3, 0), Run(9, 1, 1, 3)]),
        ([0, 1, 3, 6, 10], [Run(0, 1, 2, 0), Run(3, 3, 2, 2), Run(10, 1, 1, 4)]),
    ],
)
def test_runs(members: list[int], runs: list[Run]) -> None:
    labels = np.ones(13, dtype=int)
    labels[members] = 0
    assert list(Tree(labels).runs(0)) == runs


def test_cyclic_nodes_are_one_run_each() -> None:
    tree = Tree(parse_nodes("cyclic:3", 11))
    assert [tree.runs(node) for node in range(3)] == [
        (Run(0, 3, 4, 0),),
        (Run(1, 3, 4, 0),),
        (Run(2, 3, 3, 0),),
    ]


@given(labels_strategy, st.randoms(use_true_random=False))
def test_sub_tree_against_lists(labels: list[int], random: Random) -> None:
    threads = list(range(len(labels)))
    random.shuffle(threads)
    team = threads[: (len(threads) + 1) // 2]
    expected: dict[int, list[int]] = {}
    for rank, thread in enumerate(team):
        expected.setdefault(labels[thread], []).append(rank)
    assert Tree(labels).sub(team).nodes == tuple(map(tuple, expected.values()))


@given(labels_strategy, st.randoms(use_true_random=False))
def test_a_team_of_a_team_has_the_places_of_its_threads(labels: list[int], random: Random) -> None:
    """A place is that among all threads of the node, whatever the team leaves out."""
    tree, threads = Tree(labels), list(range(len(labels)))
    for _ in range(3):
        chosen = random.sample(range(len(threads)), (len(threads) + 1) // 2)
        tree, threads = tree.sub(chosen), [threads[rank] for rank in chosen]
        before = [labels[:thread].count(labels[thread]) for thread in threads]
        assert [tree.place(rank) for rank in range(len(threads))] == before


@pytest.mark.parametrize("team", [[], [0, 0], [4], [-1], [[0, 1]]])
def test_sub_refuses(team: list[int]) -> None:
    with pytest.raises(ValueError, match="team"):
        Tree([0, 0, 1, 1]).sub(team)


@pytest.mark.parametrize("labels", [[], [[0, 1]], 3])
def test_tree_refuses(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="one label per thread"):
        Tree(labels)


@pytest.mark.parametrize("thread", [-1, 4])
def test_unknown_threads_and_nodes(thread: int) -> None:
    tree = Tree([0, 1, 2, 3])
    by_thread: list[Callable[[int], object]] = [tree.node_of, tree.root_of, tree.local_index]
    by_node: list[Callable[[int], object]] = [
        tree.members,
        tree.node_size,
        tree.node_root,
        tree.runs,
    ]
    for method in by_thread:
        with pytest.raises(IndexError, match=f"thread {thread}: expected 0..3"):
            method(thread)
    for method in by_node:
        with pytest.raises(IndexError, match=f"node {thread}: expected 0..3"):
            method(thread)


def test_trees_are_equal_by_grouping() -> None:
    assert Tree([5, 5, 2]) == Tree(np.array([0, 0, 1]))
    assert hash(Tree([5, 5, 2])) == hash(Tree([0, 0, 1]))
    assert Tree([0, 0, 1]) != Tree([0, 1, 1])
    assert Tree([0, 0, 1]) != Tree([0, 0, 1, 1])
    assert Tree([0]) != "Tree([0])"


def test_tables_are_read_only_and_can_be_shared() -> None:
    labels = np.array([1, 0, 1, 0], dtype=np.int32)
    tree = Tree(labels)
    labels[:] = 0
    assert tree.nodes == ((0, 2), (1, 3))
    room = np.zeros(tree.nbytes, np.uint8)
    tree.write_tables(room)
    twins = [tree.with_tables(room) for _ in range(2)]
    for twin in twins:
        assert twin == tree
        assert twin.nodes == tree.nodes
        for array in (twin.node_index, twin.members(1)):
            assert np.shares_memory(array, room)
    for array in (tree.node_index, tree.members(1), twins[0].node_index, twins[0].members(1)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@pytest.mark.parametrize("placement", ["blocks", "cyclic", "random"])
def test_ten_thousand_nodes_of_128_threads(placement: str) -> None:
    threads = np.arange(1_280_000)
    labels = {
        "blocks": threads // 128,
        "cyclic": threads % 10_000,
        "random": np.random.default_rng(1).permutation(threads % 10_000),
    }[placement]
    tree = Tree(labels)
    assert tree.nbytes <= 8 * threads.size + 8 * 10_001
    assert (tree.size, tree.node_count, len(tree.roots)) == (1_280_000, 10_000, 10_000)
    node = tree.node_of(777_777)
    assert np.shares_memory(tree.members(node), tree.members(0).base)
    assert tree.members(node).tolist() == np.flatnonzero(labels == labels[777_777]).tolist()
    assert tree.members(node)[tree.local_index(777_777)] == 777_777
    assert len(str(tree).splitlines()) <= 40
    if placement != "random":
        assert len(tree.runs(node)) == 1


# --- drawing


def test_draw_even() -> None:
    assert str(Tree(parse_nodes("2x4", 8))) == (
        "8 threads on 2 nodes\n"
        "├─ node 0: threads 0-3, node root 0\n"
        "└─ node 1: threads 4-7, node root 4"
    )


def test_draw_one_thread() -> None:
    assert str(Tree([9])) == "1 thread on 1 node\n└─ node 0: thread 0, node root 0"


def test_draw_cyclic_and_irregular() -> None:
    labels = parse_nodes("cyclic:3", 18)
    labels[[14, 16]] = 3
    assert str(Tree(labels)) == (
        "18 threads on 4 nodes\n"
        "├─ node 0: threads 0,3,6,…,15, node root 0\n"
        "├─ node 1: threads 1,4,7,…,13, node root 1\n"
        "├─ node 2: threads 2,5,8,11,17, node root 2\n"
        "└─ node 3: threads 14,16, node root 14"
    )


def test_draw_many_nodes() -> None:
    lines = str(Tree(np.arange(100))).splitlines()
    assert len(lines) == 37
    assert lines[0] == "100 threads on 100 nodes"
    assert lines[35] == "├─ node 34: thread 34, node root 34"
    assert lines[36] == "└─ … and 65 more nodes"


def test_draw_as_many_nodes_as_fit() -> None:
    lines = str(Tree(np.arange(36))).splitlines()
    assert len(lines) == 37
    assert lines[36] == "└─ node 35: thread 35, node root 35"


def test_draw_a_very_irregular_node() -> None:
    squares = [0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225, 256, 289]
    labels = np.ones(290, dtype=int)
    labels[squares] = 0
    line = str(Tree(labels)).splitlines()[1]
    assert line == (
        "├─ node 0: threads 0-1,4,9,16,25,36,49,64,81,100,121,144,169,196,225,… (2 more), "
        "node root 0"
    )


def test_repr() -> None:
    assert repr(Tree([4, 4, 1])) == "Tree([0, 0, 1])"
    assert repr(Tree(np.arange(64) // 8)) == "<Tree: 64 threads on 8 nodes>"
