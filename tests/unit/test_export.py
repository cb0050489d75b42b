"""Exports: read back by readers of the formats, with the bytes, orders and times of the plans."""

from __future__ import annotations

import io
import json
import math
import shutil
import subprocess
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support import loggops

from xupc import cli
from xupc.api.algorithms import load_files
from xupc.backends.simulator.errors import ProtocolError
from xupc.backends.simulator.rates import Rates
from xupc.backends.simulator.sim_program import Program
from xupc.backends.simulator.timeline import run
from xupc.comm.net_barrier import EXCHANGE
from xupc.export import goal
from xupc.export.builder import BARRIER_BYTES, Builder
from xupc.export.calls import programs_of_call, variants
from xupc.export.formats import files_of
from xupc.export.graph import SEND, Graph
from xupc.export.schedule import scheduled
from xupc.plan.plan import Plan
from xupc.plan.steps import Barrier, BlockRef, FusedBarrier, Get, NetSignal, Ranks, Send
from xupc.predict.candidates import Question
from xupc.report.plans import Unplanned
from xupc.topology.node_spec import node_tree, threads_of_nodes
from xupc.topology.tree import Tree
from xupc.tuning.selection_file import built_in

RATES = Rates(copy=8.0, line=100.0, wire=12.5, latency=2000.0)
CALLS = (
    "allav_broadcast", "allav_gather", "allav_scatter", "allav_gather_all", "allav_exchange",
    "allav_reduce", "allav_reduce_all", "allav_reduce_scatter", "allav_permute",
    "allav_prefix_reduce", "all_broadcast", "all_gather_all", "all_reduce",
)  # fmt: skip
NODES = ("1x4", "4x2", "3,1,4")


@cache
def made(
    collective: str, nodes: str, nbytes: int, variant: str | None, rates: Rates = RATES,
    sync: str = "nosync",
) -> tuple[Sequence[Program], Graph]:  # fmt: skip
    """Return the programs and the graph of a call."""
    load_files()
    threads = threads_of_nodes(nodes)
    assert threads
    tree = node_tree(np.zeros(threads, np.int32), nodes)
    question = Question(collective, nbytes, nodes, threads, "mpich", "fabric")
    _, programs, tuning = programs_of_call(question, tree, built_in(), variant, sync)
    builder = Builder(tree, rates)
    builder.call(programs, range(threads), tuning["few_nodes_max"])
    return programs, builder.graph()


def every(nbytes: int, nodes: Sequence[str] = NODES) -> Iterator[tuple[str, str, str]]:
    """Yield all variants of `CALLS` that can run on these nodes."""
    load_files()
    for collective in CALLS:
        for name in variants(collective):
            for spec in nodes:
                try:
                    made(collective, spec, nbytes, name)
                except Unplanned:
                    continue
                yield collective, name, spec


def read(graph: Graph, rates: Rates = RATES) -> list[list[loggops.Operation]]:
    [(_, text)] = files_of("goal", graph, rates, "a call")
    assert isinstance(text, str)
    return loggops.read(text)


def meets(programs: Sequence[Program]) -> bool:
    """Return whether plans have barriers, whose messages are none of their steps."""
    steps = [step for program in programs for lane in program.plan.lanes for step in lane]
    return any(isinstance(step, Barrier | FusedBarrier) for step in steps)


# --- GOAL ---------------------------------------------------------------------------------------


def sent(programs: Sequence[Program]) -> Counter[tuple[int, int, int]]:
    """Count the messages between nodes by the steps of the plans: sender, receiver, bytes."""
    found: Counter[tuple[int, int, int]] = Counter()
    tree = programs[0].tree
    for program in programs:
        me = tree.node_of(program.plan.rank)
        for step in (step for lane in program.plan.lanes for step in lane):
            if isinstance(step, Send | NetSignal):
                size = sum(b.size for b in step.blocks) if isinstance(step, Send) else 0
                for rank in step.to:
                    if tree.node_of(rank) != me:
                        found[me, tree.node_of(rank), max(1, size)] += 1
            elif isinstance(step, Get):
                for k in range(step.count):
                    of = tree.node_of(step.src.block(k).thread)
                    if of != me:
                        found[me, of, 1] += 1
                        found[of, me, step.nbytes] += 1
    return found


@pytest.mark.parametrize("nbytes", [8, 1 << 17])
def test_goal_has_the_messages_of_the_plans(nbytes: int) -> None:
    number = 0
    for collective, name, nodes in every(nbytes, ("4x2", "3,1,4")):
        programs, graph = made(collective, nodes, nbytes, name)
        if meets(programs):
            continue
        ranks = read(graph)
        found: Counter[tuple[int, int, int]] = Counter()
        taken: Counter[tuple[int, int, int]] = Counter()
        for rank, operations in enumerate(ranks):
            for x in operations:
                if x.kind == "send":
                    found[rank, x.peer, x.size] += 1
                elif x.kind == "recv":
                    taken[x.peer, rank, x.size] += 1
        assert found == taken == sent(programs), (collective, name, nodes)
        number += 1
    assert number > 60


def test_goal_has_the_order_of_the_plans() -> None:
    """If only one thing costs anything, a simulator of the file finds the time of the clock."""
    latency, copies = Rates(math.inf, 0.0, math.inf, 1000.0), Rates(0.5, 0.0, math.inf, 0.0)
    number = 0
    for collective, name, nodes in every(1 << 17):
        programs, graph = made(collective, nodes, 1 << 17, name, latency)
        if not (meets(programs) and graph.tree.node_count > 1):
            found = loggops.run(read(graph, latency), L=1000, o=0, G=0)
            assert found == run(programs, latency).end, (collective, name, nodes)
        _, graph = made(collective, nodes, 1 << 17, name, copies)
        found = loggops.run(read(graph, copies), L=0, o=0, G=0)
        expected = run(programs, copies).end
        assert found == pytest.approx(expected, rel=1e-4), (collective, name, nodes)
        number += 1
    assert number > 100


@pytest.mark.parametrize("nbytes", [8, 1 << 17])
def test_goal_has_the_times_of_the_clock(nbytes: int) -> None:
    """Within 10% if the parameters are the same.

    Where several threads of a node send to all nodes at once, the order in which the network takes
    their messages differs: the times are up to 40% apart.
    """
    floods = ("allav_gather_all", "allav_exchange", "all_gather_all")
    apart = {}
    for collective, name, nodes in every(nbytes, (*NODES, "16x1")):
        programs, graph = made(collective, nodes, nbytes, name)
        if meets(programs) and graph.tree.node_count > 1:
            continue
        expected = run(programs, RATES).end
        found = loggops.run(read(graph), L=2000, o=0, G=1 / 12.5)
        ratio = found / expected if expected else 1.0
        most = 0.4 if nbytes > 8 and collective in floods else 0.1
        if not 1 - most < ratio < 1 + most:
            apart[collective, name, nodes] = ratio
    assert not apart


@pytest.mark.parametrize("name", ["multicore:binomial", "multicore:chain", "multicore:star"])
def test_goal_has_the_times_of_messages(name: str) -> None:
    """A sender and a receiver spend the overhead of each message."""
    rates = Rates(8.0, 100.0, 12.5, 2000.0, send=400.0, receive=400.0)
    for nbytes in (8, 1 << 16, 1 << 20):
        programs, graph = made("allav_broadcast", "16x1", nbytes, name, rates)
        found = loggops.run(read(graph, rates), L=2000, o=400, G=1 / 12.5)
        assert found == pytest.approx(run(programs, rates).end, rel=0.1)


def test_a_barrier_lets_all_threads_wait_for_all() -> None:
    """Also between nodes, where its messages go all to all or in rounds."""
    assert EXCHANGE.size == BARRIER_BYTES
    for nodes, few in ((1, 0), (3, 0), (3, 4), (5, 0), (8, 0)):
        tree = Tree([node for node in range(nodes) for _ in range(2)])
        plans = [
            Plan("barrier", "", rank, tree.size, ((Barrier(),), ()), 0, ("no", "no"))
            for rank in range(tree.size)
        ]
        for late in range(tree.size):
            builder = Builder(tree, RATES)
            builder.work(late, 1e6, "compute")
            builder.call([Program(plan, tree) for plan in plans], range(tree.size), few)
            graph = builder.graph()
            _, schedule = scheduled(graph, RATES)
            ends = {x.thread: schedule.ends[n] for n, x in enumerate(graph.operations)}
            assert min(ends[thread] for thread in range(tree.size)) >= 1e6
            messages = sum(x.kind == SEND for x in graph.operations)
            rounds = nodes - 1 if nodes <= few else math.ceil(math.log2(nodes))
            assert messages == nodes * rounds


def test_calls_follow_each_other() -> None:
    programs, _ = made("allav_broadcast", "4x2", 8, None)
    builder = Builder(programs[0].tree, RATES)
    ends = []
    for _ in range(3):
        builder.call(programs, range(8))
        ends.append(max(scheduled(builder.graph(), RATES)[1].ends))
    assert ends[1] > 1.4 * ends[0]
    assert ends[2] > 1.25 * ends[1]
    loggops.run(read(builder.graph()), L=2000, o=0, G=0.08)  # no two messages are alike


def test_plans_that_do_not_fit_together_are_refused() -> None:
    tree = Tree([0, 1])
    plans = [
        Plan("x", "x", 0, 2, ((Send(Ranks(1), BlockRef(1, 0), 8, 0),), ()), 1, ("no", "no")),
        Plan("x", "x", 1, 2, ((), ()), 0, ("no", "no")),
    ]
    with pytest.raises(ProtocolError, match="1 messages have one end"):
        Builder(tree, RATES).call([Program(plan, tree) for plan in plans], range(2))


def test_goal_has_at_most_256_cpus_of_a_rank() -> None:
    widest = Graph(Tree([0] * goal.MOST_NODE_THREADS), [])
    assert list(goal.lines(widest, "x"))[1] == "num_ranks 1"
    with pytest.raises(ValueError, match="expected at most 128 threads of a node, got 129"):
        list(goal.lines(Graph(Tree([0] * 129), []), "x"))


# --- traces of SMPI -----------------------------------------------------------------------------


def replayed(graph: Graph, rates: Rates) -> tuple[Counter[int], float]:
    """Replay traces; return the number of messages by size, and the time of the last thread.

    A send ends at once, and a receive a latency later if its message is of another node.
    """
    files = dict(files_of("smpi", graph, rates, "a call"))
    ranks = [str(files[name]).splitlines() for name in str(files["traces.txt"]).split()]
    lines = [deque(lines) for lines in ranks]
    now = [0.0 for _ in ranks]
    node = graph.tree.node_of
    there: dict[tuple[int, int, int], deque[tuple[int, float]]] = defaultdict(deque)
    posted: list[dict[tuple[int, int, int], int]] = [{} for _ in ranks]
    sizes: Counter[int] = Counter()

    def step(rank: int, words: list[str]) -> bool:
        if words[0] == "isend":
            to, tag, size = map(int, words[1:])
            there[rank, to, tag].append((size, now[rank]))
            sizes[size] += 1
        elif words[0] == "irecv":
            of, tag, size = map(int, words[1:])
            assert (of, rank, tag) not in posted[rank]
            posted[rank][of, rank, tag] = size
        elif words[0] in ("wait", "recv"):
            if words[0] == "recv":
                key, size = (int(words[1]), rank, int(words[2])), int(words[3])
            else:
                key = int(words[1]), int(words[2]), int(words[3])
                if key[0] == rank:
                    return True
                size = posted[rank][key]
            if not there[key]:
                return False
            found, sent_at = there[key].popleft()
            assert found == size
            latency = rates.latency if node(key[0]) != node(rank) else 0.0
            now[rank] = max(now[rank], sent_at + latency)
            posted[rank].pop(key, None)
        elif words[0] == "compute":
            now[rank] += int(words[1])
        else:
            assert words[0] in ("init", "finalize")
        return True

    moved = True
    while moved:
        moved = False
        for rank, left in enumerate(lines):
            while left:
                first, *words = left[0].split()
                assert int(first) == rank
                if not step(rank, words):
                    break
                left.popleft()
                moved = True
    assert not any(lines), "the replay is stuck"
    assert not any(posted)
    assert not any(there.values())
    return sizes, max(now)


@pytest.mark.parametrize("nbytes", [8, 1 << 17])
def test_traces_of_smpi_can_be_replayed(nbytes: int) -> None:
    for collective, name, nodes in every(nbytes):
        programs, graph = made(collective, nodes, nbytes, name)
        sizes, _ = replayed(graph, RATES)
        if not meets(programs):
            expected: Counter[int] = Counter()
            for (_, _, size), number in sent(programs).items():
                expected[size] += number
            del sizes[1], expected[1]  # signals, also inside nodes
            assert sizes == expected, (collective, name, nodes)


def test_traces_of_smpi_have_the_order_of_the_plans() -> None:
    """No thread does a step before the messages that it waits for; all sends end at once here."""
    latency = Rates(math.inf, 0.0, math.inf, 1000.0)
    number = 0
    for collective, name, nodes in every(1 << 17, ("4x2", "3,1,4")):
        programs, graph = made(collective, nodes, 1 << 17, name, latency)
        if not meets(programs):
            _, end = replayed(graph, latency)
            least = loggops.run(read(graph, latency), L=1000, o=0, G=0, S=1 << 30)
            assert end >= least, (collective, name, nodes)
            number += 1
    assert number > 60


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="SimGrid's smpirun is not installed")
@pytest.mark.parametrize(
    ("collective", "nodes", "nbytes"),
    [("allav_reduce_all", "4x4", 1 << 20), ("allav_gather_all", "4x2", 100_000),
     ("allav_broadcast", "16x1", 8), ("all_broadcast", "3,1,4", 1 << 17)],
)  # fmt: skip
def test_simgrid_replays_the_traces(
    collective: str, nodes: str, nbytes: int, tmp_path: Path
) -> None:
    programs, graph = made(collective, nodes, nbytes, None)
    for name, content in files_of("smpi", graph, RATES, "a call"):
        (tmp_path / name).write_text(str(content))
    done = subprocess.run(
        ["smpirun", "-np", str(graph.tree.size), "-platform", "platform.xml", "-hostfile",
         "hosts.txt", "-replay", "traces.txt", "--cfg=network/model:CM02",
         "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0", "--cfg=smpi/host-speed:1Gf",
         "--cfg=smpi/async-small-thresh:0", "--cfg=smpi/send-is-detached-thresh:0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert "Simulation time" in output, output
    seconds = float(output.split("Simulation time ")[1].split()[0])
    ratio = seconds * 1e9 / run(programs, RATES).end
    assert 0.8 < ratio < 1.5  # the lanes of a thread take turns; the output has whole us


# --- Chakra -------------------------------------------------------------------------------------


def fields(content: bytes) -> dict[int, list[Any]]:
    """Return the fields of a message of protobuf, by their numbers."""
    stream, found = io.BytesIO(content), defaultdict(list)
    while (key := varint(stream)) is not None:
        value = varint(stream)
        if key & 7 == 2:
            assert value is not None
            found[key >> 3].append(stream.read(value))
        else:
            assert key & 7 == 0
            found[key >> 3].append(value)
    return found


def varint(stream: io.BytesIO) -> int | None:
    value = shift = 0
    while byte := stream.read(1):
        value |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return value
    return None


def messages(content: bytes) -> list[bytes]:
    stream, found = io.BytesIO(content), []
    while (size := varint(stream)) is not None:
        found.append(stream.read(size))
    return found


def test_chakra_has_the_nodes_of_the_graph() -> None:
    """By a decoder of protobuf's wire format, and the field numbers of the schema."""
    _, graph = made("allav_reduce_all", "3,1,4", 1 << 17, None)
    before = graph.ended()
    files = dict(files_of("chakra", graph, RATES, "a call"))
    assert list(files) == ["xupc.0.et", "xupc.1.et", "xupc.2.et"]
    for numbers, content in zip(graph.of_nodes(), files.values(), strict=True):
        assert isinstance(content, bytes)
        about, *nodes = messages(content)
        assert fields(about)[1] == [b"0.0.4"]
        assert len(nodes) == len(numbers)
        for k, (number, node) in enumerate(zip(numbers, map(fields, nodes), strict=True)):
            operation = graph.operations[number]
            assert node.get(1, [0]) == [k]
            assert node[3] == [{"work": 4, "send": 5, "receive": 6}[operation.kind]]
            after = io.BytesIO(b"".join(node.get(5, [])))
            found = list(iter(lambda after=after: varint(after), None))
            assert found == [numbers.index(other) for other in before[number]]
            attributes = {a[1][0]: a for a in map(fields, node[10])}
            if operation.kind != "work":
                assert attributes[b"comm_size"][9] == [operation.nbytes]


def test_mlc_chakra_reads_the_files(tmp_path: Path) -> None:
    schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason="no mlc-chakra here")
    stream = pytest.importorskip("chakra.src.third_party.utils.protolib")
    _, graph = made("allav_gather_all", "4x2", 1 << 17, None)
    sides: Counter[tuple[Any, ...]] = Counter()
    for name, content in files_of("chakra", graph, RATES, "a call"):
        path = tmp_path / name
        assert isinstance(content, bytes)
        path.write_bytes(content)
        file = stream.openFileRd(str(path))
        assert stream.decodeMessage(file, schema.GlobalMetadata())
        known: set[int] = set()
        while stream.decodeMessage(file, node := schema.Node()):
            assert set(node.data_deps) <= known
            known.add(node.id)
            values = {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}
            if node.type != schema.COMP_NODE:
                kind = node.type == schema.COMM_SEND_NODE
                names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
                sides[(*(values[n] for n in names), kind)] += 1
    assert sides
    assert set(sides.values()) == {1}
    assert all((*key[:-1], not key[-1]) in sides for key in sides)


# --- the command ----------------------------------------------------------------------------------


def xupc(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["export", *arguments])


def test_the_command_writes_each_format(tmp_path: Path) -> None:
    call = ("Bcast", "--nodes", "2x2", "--size", "64K", "--variant", "multicore:chain")
    for form in ("goal", "chrome", "smpi", "chakra"):
        done = xupc(*call, "--format", form, "-o", str(tmp_path / form))
        assert done.exit_code == 0, done.output
        assert "allav_broadcast by multicore:chain, 64 KiB, nodes 2x2" in done.output
        again = xupc(*call, "--format", form, "-o", str(tmp_path / form))
        assert again.exit_code == 2
        assert "--force" in again.output
        assert xupc(*call, "--format", form, "-o", str(tmp_path / form), "--force").exit_code == 0
    assert loggops.run(loggops.read((tmp_path / "goal").read_text()), L=1, o=0, G=0) > 0
    events = json.loads((tmp_path / "chrome").read_text())["traceEvents"]
    sends = [event for event in events if event["name"] == "send"]
    assert sum(event["args"]["bytes"] for event in sends) == 1 << 16
    assert len(list((tmp_path / "smpi").iterdir())) == 4 + 3
    assert len(list((tmp_path / "chakra").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Bcast"], "expected --nodes"),
        (["Bast", "--nodes", "2x2"], "'Bast' has no variants"),
        (["Bcast", "--nodes", "2y2"], "expected 64x16 or 3,1,4"),
        (["Bcast", "--nodes", "2x2", "--size", "x"], "size"),
        (["Bcast", "--nodes", "2x2", "--variant", "fast"], "variant: expected one of pull"),
        (["Bcast", "--nodes", "64x128"], "expected at most 4096 threads, got 8192"),
        (["Bcast", "--nodes", "1x200"], "expected at most 128 threads of a node, got 200"),
        (["all_neighbour_exchange", "--nodes", "2x2"], "depend on lists"),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = xupc(*arguments, "--format", "goal", "-o", str(tmp_path / "x"))
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())
    assert not (tmp_path / "x").exists()
