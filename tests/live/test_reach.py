"""Arrays of values straight from other threads' private memory, and where that cannot be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = "tests/live/programs"
ONCE = pytest.mark.once
SIZES = "version = 1\n[tuning.default]\ntried = 0\nreach_pair = 1\nreach_fold = {1}\n" + "".join(
    f"{name} = {{0}}\n" for name in ("reach", "reach_each", "reach_all", "deposit")
)
FOLDED = 1 << 18


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment in which blocks are reached for from a size on, to be folded up to one."""

    def made(least: int, folded: int = FOLDED) -> dict[str, str]:
        path = tmp_path / "t.toml"
        path.write_text(SIZES.format(least, folded))
        return {"XUPC_TUNING": str(path)}

    return made


@pytest.mark.parametrize(
    ("threads", "least", "folded"),
    [
        (4, 1, FOLDED),
        pytest.param(2, 1, 1, marks=ONCE),
        pytest.param(2, 0, FOLDED, marks=ONCE),
        pytest.param(3, 0, FOLDED, marks=ONCE),
    ],
)
def test_every_form(
    live: Callable[..., Any], table: Any, threads: int, least: int, folded: int
) -> None:
    """Always or never, whatever the size; by all algorithms."""
    args, env = ["60", str(threads)], table(least, folded)
    done = live(threads, f"{PROGRAMS}/values.py", args=args, env=env, timeout=120)
    assert "done: 60" in done.stdout


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize(
    ("threads", "folded"),
    [
        pytest.param(1, FOLDED, marks=ONCE),
        (2, FOLDED),
        pytest.param(2, 1, marks=ONCE),
        pytest.param(2, 1 << 40, marks=ONCE),
        pytest.param(5, FOLDED, marks=ONCE),
    ],
)
def test_arrays_that_others_cannot_read(
    live: Callable[..., Any], table: Any, threads: int, folded: int, secret: bool
) -> None:
    """Then they get a copy; and a thread may be in place where others are not."""
    args, env = ["secret"] if secret else [], table(1, folded)
    done = live(threads, f"{PROGRAMS}/direct_access.py", args=args, env=env, timeout=120)
    if "no secrets here" in done.stdout:
        pytest.skip("the kernel has no memfd_secret")
    assert done.stdout.split() == ["done"] * threads


CLOSED = """
    import ctypes, mmap, sys
    import numpy as np, xupc

    team = xupc.init()
    me, t, n = team.rank, team.size, 20_000
    memory = mmap.mmap(-1, 8 * n * t)
    many = np.frombuffer(memory, np.float64)
    a, into = many[:n], np.empty(n)
    middle = a.ctypes.data + 4 * n
    page = ctypes.c_void_p(middle - middle % mmap.PAGESIZE)  # the first block's
    protect = ctypes.CDLL(None).mprotect
    calls = {
        "broadcast": lambda: xupc.allav_broadcast(a, 1),
        "permute": lambda: xupc.allav_permute(into, a, (me + 1) % t),
        "scatter": lambda: xupc.allav_scatter(into, many if me == 1 else None, 1),
    }
    for name, call in calls.items():
        for turn in range(4):
            closed = me == 1 and turn in (0, 2)
            many[:] = me
            if closed:
                assert protect(page, mmap.PAGESIZE, 0) == 0
            error = None
            try:
                call()
                xupc.barrier()  # a call of signals tells it when threads next meet
            except xupc.XupcError as e:
                error = str(e)
            if closed:
                protect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
            said = "no longer copy" in (error or "") and "thread 1" in error
            assert said == (turn in (0, 2)), (name, turn, error)
            if not said:
                got = a if name == "broadcast" else into
                assert np.all(got == ((me - 1) % t if name == "permute" else 1))
    xupc.finalize()
    sys.stdout.write("done\\n")
"""


@pytest.mark.once  # the Python engine itself reads what is closed, and dies of it
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
@pytest.mark.parametrize("threads", [2, 5])
def test_memory_that_is_closed_meanwhile(
    live: Callable[..., Any], table: Any, threads: int
) -> None:
    """In the middle of an array, or after a call that could read it: all threads are told."""
    done = live(threads, CLOSED, env=table(1), timeout=60)
    assert done.stdout.split() == ["done"] * threads


PLANS = """
    import sys, numpy as np, xupc
    team = xupc.init()
    a = np.zeros(1 << 20)  # so long that no trial at start says otherwise
    text = str(xupc.allav_broadcast.plan(a, 0, xupc.PULL))
    sys.stdout.write(f"{team.rank} {'offer  ' in text} {'reach  ' in text}\\n")
"""


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
@pytest.mark.parametrize(
    ("nodes", "engine", "least", "reached"),
    [
        (None, "native", None, True),
        (None, "native", 1 << 24, False),
        (None, "native", 0, False),
        ("1,1", "native", None, False),
        (None, "python", None, False),
    ],
)
def test_where_memory_is_reached_into(
    live: Callable[..., Any], tmp_path: Path, nodes: str | None, engine: str, least: int | None,
    reached: bool,
) -> None:  # fmt: skip
    """Inside a node, by the native core, from a size on that a table may raise; 0: never."""
    env = {"XUPC_ENGINE": engine}
    if least is not None:
        (tmp_path / "t.toml").write_text(f"version = 1\n[tuning.default]\nreach = {least}\n")
        env["XUPC_TUNING"] = str(tmp_path / "t.toml")
    done = live(2, PLANS, nodes=nodes, env=env)
    assert sorted(done.stdout.splitlines()) == [f"0 {reached} False", f"1 False {reached}"]


ALIKE = """
    import os, sys, tempfile
    import numpy as np, xupc

    team = xupc.init()
    me, t = team.rank, team.size

    class Moving:
        at = 0
        def __index__(self):
            return self.at

    with tempfile.TemporaryDirectory() as folder:
        mapped = np.memmap(os.path.join(folder, "x"), np.float64, "w+", shape=(1000,))
        for turn in range(3):
            mapped[:] = me + turn
            xupc.allav_broadcast(mapped, 1)
            assert np.all(mapped == 1 + turn)
    a, moving = np.empty(10), Moving()
    d, s = (xupc.all_alloc(4 * t, np.float64, 4) for _ in range(2))
    for root in (0, 1, 0, 1):
        moving.at = root
        for given in (np.array(root), moving):
            a[:] = me
            xupc.allav_broadcast(a, given)
            assert np.all(a == root)
    number = np.array(8)
    for n in (8, 16, 8):
        number[...] = n
        d.local[:], s.local[:] = -1, me
        xupc.barrier()
        xupc.all_broadcast(d, s, number)
        assert list(d.local) == [0] * (n // 8) + [-1] * (4 - n // 8)
    xupc.finalize()
    sys.stdout.write("done\\n")
"""


def test_arguments_that_are_the_same_objects(live: Callable[..., Any]) -> None:
    """Not the same numbers; and arrays of a class of their own, again and again."""
    assert live(2, ALIKE, timeout=60).stdout.split() == ["done"] * 2


PART_CLOSED = """
    import ctypes, mmap, sys
    import numpy as np, xupc

    team = xupc.init()
    for members in ((2, 3), (0, 2), (1, 2, 3)):
        sub = team.split(0 if team.rank in members else None)
        a = np.frombuffer(mmap.mmap(-1, 160_000), np.float64)
        middle = a.ctypes.data + 80_000
        page = ctypes.c_void_p(middle - middle % mmap.PAGESIZE)
        protect = ctypes.CDLL(None).mprotect
        if sub is not None:
            if sub.rank == 0:
                protect(page, mmap.PAGESIZE, 0)
            try:
                xupc.allav_broadcast(a, 0, xupc.PULL, sub)
                sub.barrier()
            except xupc.XupcError as e:
                assert f"that of thread {members[0]}:" in str(e), e
                assert any(f"thread {m} can no longer" in str(e) for m in members[1:]), e
            else:
                raise AssertionError("no error")
            if sub.rank == 0:
                protect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
            sub.free()
        team.barrier()
    xupc.finalize()
    sys.stdout.write("done\\n")
"""


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_memory_of_a_thread_of_a_part_that_is_closed(
    live: Callable[..., Any], table: Any
) -> None:
    """The threads are named as those of the job."""
    done = live(4, PART_CLOSED, env=table(1), timeout=60)
    assert done.stdout.split() == ["done"] * 4


GIVEN_UP = """
    import signal, sys, time
    import numpy as np, xupc

    team = xupc.init()
    me, t = team.rank, team.size
    form, flag = sys.argv[1], xupc.Flags[sys.argv[2]]
    n = 50_000
    dst, src = np.zeros(t * n if form == "gather" else n), np.ones(n)

    def call(flags=0):
        if form == "gather":
            return xupc.allav_gather(dst if me == 0 else None, src, 0, flag | flags)
        if me:
            dst[:] = 1
        return xupc.allav_broadcast(dst, 1, flag | flags)

    def whole():
        if "posted" in sys.argv:
            call(xupc.ASYNC).wait()
        else:
            call()

    xupc.barrier()
    if me == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # as Ctrl-C
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            whole()
        except KeyboardInterrupt:
            dst[:] = 7  # the program's again
        time.sleep(1.5)
        assert np.all(dst == 7), "somebody wrote to it"
        sys.stdout.write("untouched\\n")
    else:
        time.sleep(1)
        try:
            whole()
            xupc.barrier()
        except xupc.XupcError as e:
            assert "was interrupted" in str(e), e
            sys.stdout.write("told\\n")
"""


@pytest.mark.once
@pytest.mark.parametrize("posted", [[], ["posted"]])
@pytest.mark.parametrize(
    ("form", "flag"), [("gather", "PUSH"), ("gather", "MULTICORE"), ("broadcast", "PUSH")]
)
def test_nobody_writes_to_an_array_of_a_call_that_was_given_up(
    live: Callable[..., Any], form: str, flag: str, posted: list[str]
) -> None:
    """Threads that come to it later find that there is no such call any more."""
    done = live(2, GIVEN_UP, args=[form, flag, *posted], expect=None, timeout=60)
    assert sorted(done.stdout.split()) == ["told", "untouched"]
