"""xupc on several hosts with real host ids and real TCP between them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.death_trials import BEFORE_MPI, Death, trials
from support.failing_jobs import by_thread
from support.hosts import HOSTS
from support.hosts import OnHosts as Hosts
from support.launch import BUSY, LIMIT, Result, import_path, one_in_time, shared_files
from support.polling import until
from support.pool import Pool
from support.soak import amount, figure, seed, share
from support.speed import SLOW
from support.tables import SOME_BY_MPI

from xupc.cli.hang import jobs
from xupc.cli.launcher import JOB_TAG, launcher_options, thread_command
from xupc.cli.mpi import identify
from xupc.health.control_segment import Control

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = PROJECT / "tests" / "live" / "programs"
EXAMPLES = PROJECT / "examples"
ALL_GONE = 5.0 * SLOW
OnHosts = Callable[..., Result]


def run(
    cluster: Any, python: str, hosts: list[int], program: str, *words: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program, by default of tests/live/programs, with `hosts[i]` threads on host i.

    The option `timeout` is for a machine that does nothing else, as that of `on_hosts` is.
    """
    options["timeout"] = BUSY * options.get("timeout", LIMIT)
    before = shared_files()
    path = import_path(PROJECT)
    env = {"PYTHONPATH": path, **options.pop("env", {})}
    command = [python, str(PROGRAMS / program), *words]
    if options.pop("survivors", False):
        family, _ = identify(Path(python).parent / "mpiexec")
        options["mpiexec_options"] = launcher_options(family)
        if family == "openmpi":  # its TCP transport ends a process whose peer has died, otherwise
            options["mpiexec_options"] = ["--enable-recovery", "--with-ft", "ulfm"]
        command = thread_command(command, python=python)
    done: subprocess.CompletedProcess[str] = cluster.run(
        None, command, hosts=hosts, python=python, env=env, **options
    )
    until(lambda: shared_files() <= before, "the job has left no file", 5.0)
    return done


def output(done: subprocess.CompletedProcess[str] | Result) -> str:
    """All that is known, for a failure's message."""
    return f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "sizes", "thin"),
    [([4, 4, 4, 4], [8, 1023, 65537], 40), (HOSTS, [1, 8, 1023, 65537, 300_001], 8)],
    ids=["4 x 4", "uneven"],
)
def test_data(
    cluster: Any, on_hosts: OnHosts, mpi_python: str, hosts: list[int], sizes: list[int], thin: int
) -> None:
    options = json.dumps({"sizes": sizes, "all_roots": True, "thin": thin})
    program = "collectives_at_random.py"
    if hosts == HOSTS:
        done = on_hosts(mpi_python, PROGRAMS / program, options, timeout=150)
    else:
        done = run(cluster, mpi_python, hosts, program, options, timeout=150)
    assert done.returncode == 0, output(done)
    assert "done: " in done.stdout


def test_a_job_of_the_pool_takes_more_than_one_program(cluster: Any, mpi_python: str) -> None:
    """What MPI opens between hosts when threads first send is no damage that a program did."""
    jobs = Pool(Hosts(cluster, mpi_python))
    try:
        for word in ("one", "two"):
            program = PROGRAMS / "pool_programs.py"
            done = jobs.launch(sum(HOSTS), program, args=["plain", word], timeout=BUSY * LIMIT)
            assert (done.returncode, done.clean) == (0, True), done.report()
        assert (jobs.programs, jobs.started) == (2, 1), str(jobs)
    finally:
        jobs.close()


@pytest.mark.parametrize(
    ("program", "words", "verdict"),
    [
        ("is_sort.py", ["S"], "VERIFICATION SUCCESSFUL"),
        ("poisson.py", ["24"], "the solution is right"),  # 57 iterations, each waits for all
        ("fft.py", ["S"], "VERIFICATION SUCCESSFUL"),
    ],
)
def test_examples(
    on_hosts: OnHosts, mpi_python: str, program: str, words: list[str], verdict: str
) -> None:
    done = on_hosts(mpi_python, EXAMPLES / program, *words)
    assert "6 threads on 3 nodes" in done.stdout
    assert verdict in done.stdout


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("teams.py", ["[3, 6]"]),
        ("handles.py", ["6"]),
        ("relocations.py", ['{"sizes": [1, 40, 40000], "thin": 12}']),
        ("in_place.py", ["8"]),
        ("one_sided.py", ["6"]),
        ("node_arrays.py", ["4"]),
        ("values.py", ["12", "1"]),
        ("record_dtypes.py", []),
        # without by_cycles and under_limits: 200 splits, for what one process has in itself
        ("dropped_teams.py", ["by_parts", "by_handles", "by_one_thread", "by_travelling",
                              "with_frees", "after_errors"]),
    ],
)
def test_extensions(
    on_hosts: OnHosts, mpi_python: str, program: str, words: list[str]
) -> None:
    done = on_hosts(mpi_python, PROGRAMS / program, *words, timeout=240)
    assert "done" in done.stdout


@pytest.mark.parametrize(
    ("work", "wait"),
    [
        ("many_sends", "barrier"),
        ("accumulates", "barrier"),
        ("late_allreduce", "posted_and_blocking"),
        ("strided_send", "finalize"),
    ],
)
def test_a_waiting_thread_makes_progress_for_other_hosts(
    on_hosts: OnHosts, mpi_python: str, work: str, wait: str
) -> None:
    done = on_hosts(mpi_python, PROGRAMS / "mpi_progress.py", work, wait, timeout=100)
    assert done.stdout.count("done") == sum(HOSTS)


def test_a_host_may_be_a_call_ahead(cluster: Any, mpi_python: str) -> None:
    done = run(cluster, mpi_python, [1, 1, 1, 1], "hosts_run_ahead.py", "3")
    assert done.returncode == 0, output(done)
    assert "done" in done.stdout


@pytest.mark.parametrize("hosts", [[4, 4, 4, 4], HOSTS], ids=["4 x 4", "uneven"])
def test_hosts_are_nodes(cluster: Any, mpi_python: str, hosts: list[int]) -> None:
    done = run(cluster, mpi_python, hosts, "real_hosts.py", json.dumps(hosts), "topology")
    assert done.returncode == 0, output(done)


def test_a_mismatch_is_raised_on_every_host(on_hosts: OnHosts, mpi_python: str) -> None:
    done = on_hosts(mpi_python, PROGRAMS / "real_hosts.py", json.dumps(HOSTS), "mismatch")
    assert done.stdout.count("done: ") == sum(HOSTS)


@pytest.fixture(scope="module")
def cramped(make_cluster: Any) -> Any:
    """Two hosts with little shared memory."""
    return make_cluster(2, "1gbit", "64m")


def test_a_heap_that_a_host_cannot_hold(cramped: Any, mpi_python: str) -> None:
    done = run(cramped, mpi_python, [2, 1], "real_hosts.py", "[2, 1]", "heap")
    assert done.returncode == 0, output(done)


def test_a_first_heap_that_a_host_cannot_hold(cramped: Any, mpi_python: str) -> None:
    done = run(cramped, mpi_python, [2, 1], "too_large_a_heap.py")
    assert done.returncode != 0
    assert "HeapError: init: heap_size: 104857600 bytes" in done.stderr, output(done)


@pytest.mark.parametrize(
    ("scenario", "victim", "words"),
    [
        ("computes sleep", 3, "died outside xupc; its last call was all_broadcast(nbytes=256"),
        ("waits", 0, "died in all_broadcast(nbytes=256, flags=0)"),
        pytest.param("unnoticed", 1, "died outside xupc; its last call", marks=pytest.mark.slow),
    ],
    ids=["the only thread of its host", "the first", "one that nobody waits for"],
)
@pytest.mark.parametrize("survivors", [True, False], ids=["no clean-up", "plain launcher"])
def test_a_death_ends_the_job_on_all_hosts(
    cluster: Any, mpi_python: str, scenario: str, victim: int, words: str, survivors: bool
) -> None:
    """Open MPI's plain launcher may not end after a death (a program in C: in 5 of 569 runs).

    All threads are gone then, and prterun waits for a daemon's last report.
    """
    family, _ = identify(Path(mpi_python).parent / "mpiexec")
    name, _, option = scenario.partition(" ")

    def ended() -> tuple[Any, str]:
        done = run(
            cluster, mpi_python, HOSTS, "thread_failures.py", name, str(victim), option,
            survivors=survivors, timeout=20,  # a launcher that does not end takes all of it
        )  # fmt: skip
        now = time.monotonic()
        assert done.returncode != 0, output(done)
        if done.returncode == 124:
            assert (family, survivors) == ("openmpi", False), output(done)
            assert " python" not in done.stderr.rpartition("(")[2], output(done)
        blow = re.search(r"^struck (\S+)", done.stdout, re.MULTILINE)
        assert blow, output(done)
        return done, "" if now - float(blow[1]) < ALL_GONE else output(done)

    done = one_in_time(ended)
    if survivors:
        pid = re.search(rf"^victim {victim} (\d+) (\S+)", done.stdout, re.MULTILINE)
        assert pid, output(done)
        text = f"DeadThreadError: thread {victim} (host {pid[2]}, pid {pid[1]}) {words}"
        assert by_thread(done.stderr).count(text) == sum(HOSTS) - 1, output(done)


def test_a_hang_names_the_host_that_no_word_came_from(cluster: Any, mpi_python: str) -> None:
    # Thread 3 is alone on host 1.
    done = run(
        cluster, mpi_python, HOSTS, "thread_failures.py", "is late", "3", "broadcast",
        env={"XUPC_TIMEOUT": f"{1.5 * SLOW:g}"},
    )  # fmt: skip
    assert done.returncode not in (0, 124), output(done)
    pid = re.search(r"^victim 3 (\d+) (\S+)", done.stdout, re.MULTILINE)
    assert pid, output(done)
    missing = f"no word from node 1 (thread 3; host {pid[2]}, pid {pid[1]})"
    # thread 3 may raise too, on another thread's HangError; its message then names that thread
    waiting = re.findall(r"^.*errors\.HangError: thread.*$", done.stderr, re.MULTILINE)
    assert len(waiting) == sum(HOSTS) - 1, output(done)
    assert all(missing in line for line in waiting), output(done)
    late = r"\n  3: not in xupc, thread_failures\.py:\d+, for "
    call = r"\n  0-2, 4-5: all_broadcast\(nbytes=256, flags=0\) #\d+, thread_failures\.py:\d+, for "
    for line in (late, call):  # a thread that queries late may find others gone
        assert re.search(line, done.stderr), output(done)


@pytest.mark.parametrize(
    ("phase", "survivors"),
    [("native wait", True), ("native wait", False), ("proof", True), ("MPI's start", False)],
    ids=["in a call, no clean-up", "in a call", "in init, no clean-up", "before MPI"],
)
def test_a_stopped_thread_alone_on_its_host_ends_with_the_job(
    cluster: Any, mpi_python: str, phase: str, survivors: bool
) -> None:
    # No process on its host can end it: the launcher has to detect that the others ended.
    death = Death("SIGSTOP", phase, 3, 1, after=False, nodes="hosts", via="mpiexec")

    def ended() -> tuple[Any, str]:
        done = run(
            cluster, mpi_python, HOSTS, "dying.py", death.arguments, env=dict(death.environment),
            survivors=survivors, timeout=40,
        )  # fmt: skip
        now = time.monotonic()
        assert done.returncode not in (0, 124), output(done)
        blow = re.search(r"^struck (\S+)", done.stdout, re.MULTILINE)
        assert blow, output(done)
        return done, "" if now - float(blow[1]) < death.seconds else output(done)

    done = one_in_time(ended)
    assert "HangError: " in done.stderr, output(done)


def test_who_is_where_on_all_hosts(cluster: Any) -> None:
    # Threads 0 to 2, 3, and 4 and 5; thread 4 stops, the lowest of its host, but not for long.
    python = sys.executable
    tag = uuid.uuid4().hex
    ways = ["gather", "gather", "compute", "gather", "sleep", "gather"]
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(
            run, cluster, python, HOSTS, "known_places.py", *ways, env={JOB_TAG: tag}, timeout=50
        )
        pids = _started(tag, ways, job)
        try:
            os.kill(pids[3], signal.SIGUSR2)
            asked, _ = _hang_report(tag)
            _await_report(tag, pids[3])
            os.kill(pids[4], signal.SIGSTOP)  # its failure detector represents its host
            silent = one_in_time(lambda: _hang_report(str(pids[0])))
            os.kill(pids[4], signal.SIGCONT)
        finally:
            for pid in pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        done = job.result(BUSY * 40)
    places = [
        r"0-1, 3, 5: all_gather\(nbytes=8, flags=0\) #7, known_places\.py:\d+, for \d",
        r"2: not in xupc, known_places\.py:\d+, for ",
        r"4: not in xupc, known_places\.py:\d+, for ",
    ]
    for text in (asked, done.stderr):
        assert all(re.search(f"^  {place}", text, re.MULTILINE) for place in places), text
    assert "4: no word from host " in silent, silent
    assert re.search(r"^  0-1, 3: all_gather", silent, re.MULTILINE), silent


def _hang_report(job: str) -> tuple[str, str]:
    """Return what `xupc hang-report` prints, and what to report if that took long, else ""."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "xupc", "hang-report", job], cwd=PROJECT, text=True,
        capture_output=True, timeout=BUSY * 30, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    return done.stdout, "" if seconds < 10 else f"{seconds:.1f} s\n{done.stdout}"


def _await_report(tag: str, pid: int) -> None:
    """Wait until the machine of a process that got SIGUSR2 has printed its report."""
    (job,) = [each for each in jobs() if each.tag == tag]
    (control,) = [c for c in job.machines if pid in [c.who(i)[0] for i in range(c.threads)]]
    until(lambda: control.printed, f"the report of process {pid}")


def _at_its_place(control: Control, index: int, way: str) -> bool:
    """Whether a thread waits in its gather, or has ended the calls before its other work."""
    calls = control.calls_of(index)
    if way == "gather":
        return control.waits(index) and calls[-1].op == 7
    return bool(calls) and calls[-1].op == 6 and calls[-1].ended > 0


def _started(tag: str, ways: list[str], job: Future[Any]) -> dict[int, int]:
    """The process ids of a job's threads, when all are where they stay."""
    deadline = time.monotonic() + BUSY * 40
    while time.monotonic() < deadline and not job.done():
        found = [each for each in jobs() if each.tag == tag]
        controls = found[0].machines if found else []
        pids = {c.who(i)[1]: c.who(i)[0] for c in controls for i in range(c.threads)}
        if len(pids) == len(ways) and all(
            _at_its_place(c, i, ways[c.who(i)[1]]) for c in controls for i in range(c.threads)
        ):
            return pids
        time.sleep(0.1)
    raise AssertionError("the job has not started")


def test_an_interrupt_is_told_to_other_hosts(cluster: Any, mpi_python: str) -> None:
    done = run(cluster, mpi_python, HOSTS, "thread_failures.py", "is interrupted", "0", "broadcast")
    assert done.returncode not in (0, 124), output(done)
    assert "again: XupcError: the job is broken: thread 0" in done.stdout, output(done)
    # All but the interrupted thread and the one that never comes.
    told = re.findall(r"XupcError: thread 0 \(host .*\) was interrupted inside", done.stderr)
    assert len(told) >= sum(HOSTS) - 2, output(done)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("method", ["thread 5: Barrier() at drop_in_crossed.py:", "Allreduce(elements="]),
        ("both_by_mpi", ["thread 5: Barrier() at drop_in_crossed.py:", "Allreduce(64000 bytes)"]),
        ("order", ["the threads wait for each other: ", "thread 5 is in Allreduce(64 bytes)"]),
        ("order_by_xupc", ["the threads wait for each other: ", "; thread 5 is in Allreduce("]),
        ("of_group", ["thread 5: Barrier() at drop_in_crossed.py:", "Allreduce(64000 bytes)"]),
    ],
)
def test_calls_that_never_meet_are_named_on_every_host(
    cluster: Any, mpi_python: str, case: str, words: list[str]
) -> None:
    done = run(
        cluster, mpi_python, HOSTS, "drop_in_crossed.py", case, env=SOME_BY_MPI, timeout=40
    )  # fmt: skip
    assert done.returncode not in (0, 124), output(done)
    assert "no error" not in done.stdout, output(done)
    printed = by_thread(done.stderr)
    for thread in range(sum(HOSTS)):
        heading = f"thread {thread} of "
        errors = [part for part in printed.split("xupc: ") if part.startswith(heading)]
        assert any(all(word in part for word in words) for part in errors), (thread, output(done))


def test_a_hang_of_all_threads_in_messages_is_named_on_every_host(
    cluster: Any, mpi_python: str
) -> None:
    done = run(
        cluster, mpi_python, HOSTS, "message_hangs.py", "receive_first",
        env={"XUPC_TIMEOUT": f"{3 * SLOW:g}"}, timeout=40 * SLOW,
    )  # fmt: skip
    assert done.returncode not in (0, 124), output(done)
    printed = by_thread(done.stderr)
    for thread in range(sum(HOSTS)):
        words = rf"HangError: thread {thread} \(.* s in Recv\(\) of MPI"
        assert re.search(words, printed), (thread, output(done))


def test_late_threads_of_other_hosts_are_no_difference(
    cluster: Any, mpi_python: str
) -> None:
    args = ["drop_in_late.py", str(seed()), str(share(200))]
    done = run(cluster, mpi_python, [2, 1], *args, env=SOME_BY_MPI, timeout=100)
    assert (done.returncode, done.stdout.count("done")) == (0, 3), output(done)


@pytest.mark.soak
def test_every_difference_is_found(on_hosts: OnHosts, mpi_python: str) -> None:
    options = json.dumps({"seed": seed(), "count": amount(share(20), 300), "odd": [0, 3, 5]})
    limit = amount(60, 600)
    program = PROGRAMS / "differing_call_trials.py"
    done = on_hosts(mpi_python, program, options, timeout=limit)
    found = json.loads(done.stdout.rpartition("done: ")[2])
    family, _ = identify(Path(mpi_python).parent / "mpiexec")
    figure(
        f"mismatches found, 6 threads on 3 hosts, {family}",
        f"{found['trials'] - found['failed']} of {found['trials']}, each on all threads, "
        f"the longest after {found['longest']:.2f} s ({found['slow']})",
    )
    assert found["failed"] == 0, output(done)


@pytest.mark.soak
def test_nothing_is_left_of_a_job_whose_thread_dies(cluster: Any, mpi_python: str) -> None:
    family, _ = identify(Path(mpi_python).parent / "mpiexec")

    # If an option has the launcher leave survivors alone, no process could end a thread that is
    # stopped before MPI has begun; `xupc run` itself is not in use here.
    def strike(death: Death, _folder: str) -> tuple[Any, list[str], float]:
        done = run(
            cluster, mpi_python, HOSTS, "dying.py", death.arguments, env=dict(death.environment),
            survivors=death.via == "xupc run"
            and (death.how != "SIGSTOP" or death.phase not in BEFORE_MPI), timeout=40,
        )  # fmt: skip
        now = time.monotonic()
        left = [f"file {name} on host {host}" for host in range(len(HOSTS))
                for name in cluster.execute(host, "ls", "/dev/shm").split()
                if name.startswith("xupc-")]  # fmt: skip
        if done.returncode == 124 or (done.returncode == 0 and death.how != "exit 0"):
            left.append(f"exit status {done.returncode}")
        return done, left, now

    own = seed() * 5 + (family == "openmpi")
    ledger, reports = trials(amount(share(3), 20), own, strike, nodes=("hosts",), launcher=False)
    figure(f"deaths on 3 hosts, {family}", str(ledger))
    assert not ledger.wrong, "\n\n".join([str(ledger), *reports])
