"""scripts/cluster itself: nodes look like hosts, the link is shaped, nothing is left behind.

Times are only ever bounded from below: the wire cannot be faster than its rate, but a loaded
machine may be as slow as it likes.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.launch import BUSY

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster"

PROGRAMS = Path(__file__).with_name("programs")
WIRE = str(PROGRAMS / "on_the_wire.py")
NAMES = str(PROGRAMS / "host_names.py")
RANKS = str(PROGRAMS / "mpi_ranks.py")


def load_script() -> ModuleType:
    """The script as a module, for its pure functions."""
    loader = importlib.machinery.SourceFileLoader("cluster_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("cluster_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cluster_script"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


def wire_seconds(nbytes: int, rate: float) -> float:
    """The least time for nbytes at a rate in bit/s, less what the shapers let through at once."""
    return max(0, nbytes - 128 * 1024) * 8 / rate


def processes_with(word: str) -> list[str]:
    """Return the command lines of all processes whose environment contains `word`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if word.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
    return found


def traces_of(name: str) -> list[str]:
    """Everything on this machine that is named after a cluster."""
    namespaces = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    places = [Path("/sys/class/net"), Path("/etc/netns"), Path("/run/xupc-cluster")]
    found = [line for line in namespaces.stdout.splitlines() if line.startswith(name)]
    found += [str(path) for place in places for path in place.glob(f"{name}*")]
    for path in Path("/tmp").glob("hydra_hwloc_xmlfile_*"):
        with contextlib.suppress(FileNotFoundError):  # another cluster's, removed meanwhile
            found += [str(path)] if name in path.read_text() else []
    return found + processes_with(f"XUPC_CLUSTER={name}")


@pytest.fixture(scope="module")
def small(make_cluster: Any) -> Any:
    """Three nodes at 100 Mbit/s, slow enough that few bytes prove the shaping."""
    return make_cluster(3, "100mbit")


# ---- nodes look like hosts ---------------------------------------------------------------------


def test_every_node_has_its_own_host_id_and_name(small: Any) -> None:
    ids = [small.execute(node, sys.executable, NAMES, "id").strip() for node in range(3)]
    assert len(set(ids)) == 3
    names = [small.execute(node, "hostname").strip() for node in range(3)]
    assert names == [f"{small.name}-{node}" for node in range(3)]


def test_nodes_find_each_other_by_name(small: Any) -> None:
    seen = {small.execute(node, sys.executable, NAMES, "address", f"{small.name}-1")
            for node in range(3)}
    assert len(seen) == 1


def test_dev_shm_is_private_and_fresh(small: Any) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    assert small.execute(0, "sh", "-c", f"echo > /dev/shm/{mark}; ls /dev/shm").strip() == mark
    assert small.execute(1, "ls", "/dev/shm") == ""
    assert small.execute(0, "ls", "/dev/shm") == ""
    assert not (Path("/dev/shm") / mark).exists()


def test_working_directory_environment_and_arguments_arrive(small: Any, mpi_python: str) -> None:
    words = ["two words", "$HOME", "'\""]
    done = small.run(1, ["python", NAMES, "surroundings", *words],
                     env={"WORDS": 'a "b" $c'}, python=mpi_python)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([os.getcwd(), 'a "b" $c', words])


# ---- the wire ----------------------------------------------------------------------------------


def test_the_link_is_shaped(small: Any) -> None:
    nbytes = 2_000_000
    receiver = subprocess.Popen(
        [str(SCRIPT), "exec", "--name", small.name, "1", "--", sys.executable, WIRE, "receive"],
        stdout=subprocess.PIPE, text=True,
    )
    try:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        took = small.execute(0, sys.executable, WIRE, "send", f"{small.name}-1", str(nbytes))
    finally:
        receiver.kill()
        receiver.communicate()
    assert float(took) >= wire_seconds(nbytes, 100e6)


def test_mpi_between_nodes_uses_the_wire(cluster: Any, mpi_python: str) -> None:
    nbytes = 8_000_000
    done = cluster.run(2, ["python", RANKS, "transfer", str(nbytes)], python=mpi_python)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) >= wire_seconds(nbytes, 1e9)


@pytest.fixture(scope="module")
def two_links(make_cluster: Any) -> Any:
    """Two nodes with two links of 100 Mbit/s each."""
    return make_cluster(2, "100mbit", links=2)


def sent_by(cluster: Any, node: int) -> dict[str, int]:
    """Return the bytes that have left a node by each of its links."""
    lines = cluster.execute(node, "cat", "/proc/net/dev").splitlines()
    fields = (line.partition(":") for line in lines if "eth" in line)
    return {name.strip(): int(rest.split()[8]) for name, _, rest in fields}


def test_long_messages_use_both_links(two_links: Any, mpi_python: str) -> None:
    """And each link is shaped: both together take at least half of the time of one."""
    nbytes, before = 4_000_000, sent_by(two_links, 0)
    done = two_links.run(2, ["python", RANKS, "transfer", str(nbytes)], python=mpi_python)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) >= wire_seconds(nbytes // 2, 100e6)
    sent = {name: count - before[name] for name, count in sent_by(two_links, 0).items()}
    assert sorted(sent) == ["eth0", "eth1"]
    assert min(sent.values()) > nbytes // 4, sent


def test_number_of_links() -> None:
    done = subprocess.run(
        [str(SCRIPT), "up", "--name", "nolinks", "--links", "5"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in (2, 4)
    assert "--links 5: expected 1 to 4" in done.stderr or done.returncode == 4


# ---- jobs --------------------------------------------------------------------------------------


def test_ranks_are_placed_in_blocks_on_real_hosts(cluster: Any, mpi_python: str) -> None:
    done = cluster.run(None, ["python", RANKS, "places"], hosts=[2, 0, 1, 3], python=mpi_python)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    nodes = [0, 0, 2, 3, 3, 3]
    assert [name for name, *_ in found] == [f"{cluster.name}-{node}" for node in nodes]
    assert [size for *_, size, _ in found] == [2, 2, 1, 3, 3, 3]
    assert len({(name, hostid) for name, hostid, *_ in found}) == 3
    assert len({hostid for _, hostid, *_ in found}) == 3
    assert {cwd for *_, cwd in found} == {os.getcwd()}


def test_the_program_s_status_passes_through(small: Any, mpi_python: str) -> None:
    assert small.run(3, ["python", RANKS, "status"], python=mpi_python).returncode == 7


def test_a_timeout_leaves_no_process(small: Any, mpi_python: str) -> None:
    mark = uuid.uuid4().hex
    for seconds in (5, BUSY * 10):  # to start takes seconds on a busy machine
        done = small.run(6, ["python", RANKS, "stubborn"], timeout=seconds, env={"MARK": mark},
                         python=mpi_python)
        if done.stdout:
            break
    assert (done.returncode, done.stdout) == (124, "hanging\n")
    assert f"killed after {seconds:g} s" in done.stderr
    assert re.search(r"\(.*\b12 python.*\)$", done.stderr, re.MULTILINE), done.stderr
    assert processes_with(mark) == []


@pytest.mark.parametrize(
    ("signum", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_killed_run_leaves_no_process(
    small: Any, mpi_python: str, signum: signal.Signals, status: int
) -> None:
    mark = uuid.uuid4().hex
    run = subprocess.Popen(
        [sys.executable, str(SCRIPT), "run", "--name", small.name, "--python", mpi_python,
         "--env", f"MARK={mark}", "-n", "6", "--", "python", RANKS, "stubborn"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "hanging\n"
    assert processes_with(mark)
    run.send_signal(signum)
    run.stdout.read()  # the guard holds this pipe until it has cleaned up
    assert run.wait() == status
    assert processes_with(mark) == []
    assert list(Path(f"/run/xupc-cluster/{small.name}.jobs").iterdir()) == []


# ---- up and down -------------------------------------------------------------------------------


def test_up_twice_is_fine_if_it_asks_for_the_same(small: Any) -> None:
    small.up()
    other = small.call("up", "--nodes", "2")
    assert other.returncode == 2
    assert "3 nodes, rate 100mbit" in other.stderr


def test_down_kills_what_runs_and_leaves_nothing(make_cluster: Any) -> None:
    before = subprocess.check_output(["hostid"])
    cluster = make_cluster(2)
    assert subprocess.check_output(["hostid"]) == before
    sleeper = subprocess.Popen(
        [str(SCRIPT), "exec", "--name", cluster.name, "0", "--", "sleep", "1000"])
    while "sleep\0001000\0" not in processes_with(f"XUPC_CLUSTER={cluster.name}"):
        assert sleeper.poll() is None
        time.sleep(0.01)
    cluster.down()
    assert sleeper.wait() == -signal.SIGKILL
    assert traces_of(cluster.name) == []
    cluster.down()


@pytest.mark.parametrize("there", [(), ("hostid",), ("netns",), ("hostid", "netns")])
def test_what_clusters_share_is_as_before_after_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...]
) -> None:
    """The files that clusters of a machine share are made by the first one, if they are missing.

    In a folder of its own: on the machine itself other tests may have clusters meanwhile.
    """
    script = load_script()
    hostid, netns, run = (tmp_path / name for name in ("hostid", "netns", "run"))
    for name, path in {"HOSTID": hostid, "NETNS_DIR": netns, "RUN_DIR": run}.items():
        monkeypatch.setattr(script, name, path)
    run.mkdir()
    if "hostid" in there:
        hostid.write_bytes(b"abcd")
    if "netns" in there:
        netns.mkdir()
    before = sorted(tmp_path.iterdir())
    for _ in range(2):  # the second cluster finds what the first one made
        script.prepare_host()
        assert hostid.exists()
        assert netns.is_dir()
    if "hostid" not in there:  # in the order of bytes of the machine, as `hostid` reads it
        own = int(subprocess.check_output(["hostid"]), 16)
        assert hostid.read_bytes() == own.to_bytes(4, sys.byteorder)
    script.restore_host()
    assert sorted(tmp_path.iterdir()) == before
    assert "hostid" not in there or hostid.read_bytes() == b"abcd"


def test_a_failed_up_leaves_nothing(make_cluster: Any) -> None:
    name = "t" + uuid.uuid4().hex[:8]
    done = subprocess.run([str(SCRIPT), "up", "--name", name, "--rate", "fast"],
                          check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "rate" in done.stderr
    assert traces_of(name) == []


def test_without_its_programs_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "available"], check=False,
                          capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "the emulated cluster needs" in done.stderr


# ---- placement, which needs no cluster ---------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "ppn", "hosts", "nodes", "expected"),
    [
        (16, None, None, 4, [4, 4, 4, 4]),
        (10, None, None, 4, [3, 3, 2, 2]),
        (2, None, None, 4, [1, 1, 0, 0]),
        (10, 4, None, 4, [4, 4, 2, 0]),
        (None, None, "4,0,1", 4, [4, 0, 1, 0]),
        (7, None, "4,2,1", 3, [4, 2, 1]),
    ],
)
def test_place(
    n: int | None, ppn: int | None, hosts: str | None, nodes: int, expected: list[int]
) -> None:
    assert load_script().place(n, ppn, hosts, nodes) == expected


@pytest.mark.parametrize(
    ("n", "ppn", "hosts", "nodes"),
    [(None, None, None, 4), (0, None, None, 4), (9, 2, None, 4), (4, 0, None, 4),
     (5, None, "2,2", 4), (None, None, "0,0", 4), (None, None, "1,1,1", 2),
     (None, None, "a", 2), (2, 1, "1,1", 2)],
)
def test_place_refuses(n: int | None, ppn: int | None, hosts: str | None, nodes: int) -> None:
    script = load_script()
    with pytest.raises(script.ClusterError):
        script.place(n, ppn, hosts, nodes)
