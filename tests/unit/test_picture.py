"""What `xupc topo` draws, from descriptions and recorded machines."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from support.machine_files import MACHINES, recorded_machine

from xupc.cli import main
from xupc.cli.topo import described
from xupc.topology.host import cpu_list
from xupc.topology.machine import Machine, describe
from xupc.topology.picture import NodeView, draw_nodes, legend


def drawn(machine: Machine | None, *lists: str) -> str:
    masks = tuple(cpu_list(each) for each in lists)
    return draw_nodes([NodeView(tuple(range(len(masks))), machine, masks)])


def test_sockets_domains_cores_and_roots() -> None:
    assert draw_nodes(described(describe("2x2x2"), 6, None)) == (
        "6 threads on 1 node\n"
        "└─ node 0: threads 0-5, node root 0; 2 sockets, 4 L3 domains, 8 cores\n"
        "   ├─ socket 0: threads 0-2, root 0\n"
        "   │  ├─ L3 domain 0: threads 0-1, root 0  [ 0 1 ]\n"
        "   │  └─ L3 domain 1: thread 2, root 2     [ 2 · ]\n"
        "   └─ socket 1: threads 3-5, root 3\n"
        "      ├─ L3 domain 2: threads 3-4, root 3  [ 3 4 ]\n"
        "      └─ L3 domain 3: thread 5, root 5     [ 5 · ]"
    )


def test_nodes_that_are_alike_are_drawn_once() -> None:
    assert draw_nodes(described(describe("2x1"), 7, "2,2,2,1")) == (
        "7 threads on 4 nodes\n"
        "├─ node 0: threads 0-1, node root 0; 2 L3 domains\n"
        "│    [ 0 1 ]\n"
        "├─ nodes 1-2: threads 2-5, like node 0\n"
        "└─ node 3: thread 6, node root 6; 2 L3 domains\n"
        "     [ 6 · ]"
    )


def test_threads_that_may_run_on_several_domains_stand_below_them() -> None:
    assert drawn(describe("2x2x2"), "0", "0-1", "2-3", "0-3", "1,5", "0-7") == (
        "6 threads on 1 node\n"
        "└─ node 0: threads 0-5, node root 0; 2 sockets, 4 L3 domains, 8 cores\n"
        "   ├─ socket 0: threads 0-3, root 0\n"
        "   │  ├─ L3 domain 0: threads 0-1, root 0  [ 0 · ]\n"
        "   │  │  thread 1 on several cores\n"
        "   │  ├─ L3 domain 1: thread 2, root 2     [ · · ]\n"
        "   │  │  thread 2 on several cores\n"
        "   │  └─ thread 3 on several L3 domains\n"
        "   ├─ socket 1: no threads\n"
        "   │  └─ L3 domains 2-3: no threads\n"
        "   └─ threads 4-5 on several sockets"
    )


def test_wide_domains_have_lines_of_16_cores() -> None:
    text = draw_nodes(described(describe("2x20"), 2, None)).splitlines()
    assert text[2] == "   ├─ L3 domain 0: thread 0, root 0  [ 0 · · · · · · · · · · · · · · · ]"
    assert text[3] == "   │                                 [ · · · · ]"


def test_many_threads_of_a_core_are_a_range() -> None:
    assert "[ 0-4 5-9 ]" in draw_nodes(described(describe("1x2"), 10, None))


def test_a_machine_of_which_nothing_is_known() -> None:
    text = drawn(None, "0-1", "0-1")
    assert text.splitlines()[1] == "└─ node 0: threads 0-1, node root 0; its processors are unknown"
    assert legend([NodeView((0,), None, (frozenset({0}),))]) == ""


@pytest.mark.parametrize("name", MACHINES)
def test_each_recorded_machine_can_be_drawn(name: str) -> None:
    machine = recorded_machine(name)
    for threads in (1, 5, len(machine.cores), 2 * len(machine.cores)):
        text = draw_nodes(described(machine, threads, None))
        assert text.startswith(f"{threads} thread")
        assert max(map(len, text.splitlines())) < 200


def topo(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["topo", *words])
    return done.exit_code, done.output


def test_the_command_draws_a_description_without_a_job() -> None:
    code, text = topo("--topology", "2x2x2", "--nodes", "2x8")
    assert code == 0
    assert text.startswith(draw_nodes(described(describe("2x2x2"), 16, "2x8")))
    assert "· without a thread" in text


def test_the_command_has_a_thread_for_each_core_by_default() -> None:
    assert topo("--topology", "3,1/4")[1].startswith("8 threads on 1 node")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topology", "2x"], 'expected "SOCKETSxL3DOMAINSxCORES"'),
        (["--topology", "2x2", "-n", "3", "--nodes", "2x2"], "its nodes hold 4"),
    ],
)
def test_what_the_command_refuses(words: list[str], message: str) -> None:
    code, text = topo(*words)
    assert code == 2
    assert message in text
