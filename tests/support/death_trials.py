"""Trials of thread deaths: the list of cases, one trial, and the checks of its end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from xupc.runtime.job import START_LEAST

from .soak import WHOLE
from .speed import SLOW

__all__ = [
    "BEFORE_MPI", "HANG", "Death", "Ledger", "draw", "fresh_memory", "judge", "trials",
]  # fmt: skip

HANG = 3.0 * SLOW  # s: XUPC_TIMEOUT of a job in which only the timeout detects a missing thread
ALL_GONE = 5.0 if WHOLE else 10.0 * SLOW  # s after the blow; without the soak beside other tests
STARTING = (
    "start", "MPI's start", "settings", "proof", "control segment", "first heap",
)  # fmt: skip
BEFORE_MPI = ("start", "MPI's start")
# Before the threads of a machine share memory: only the launcher detects a death there, and not
# every launcher detects an exit.
UNSEEN = ("settings", "proof")
ENDING = ("finalize", "last memory")
INSIDE = (
    "outside", "growth", "pages", "word", "team", "MPI's turn", "mismatch", "posted", "function",
)  # fmt: skip
BETWEEN = ("one-sided", "MPI step")  # if there are nodes
TIMED = ("native wait", "chunks", "computes", "notified")
FEW = ("growth", "team", "posted", "MPI step")  # some threads come there twice only
DEADLY = ("SIGKILL", "SIGSEGV", "exit 0", "exit 5")
# Where an exception comes out of a call of the program's, in its main thread.
RAISING = (
    "outside", "start", "proof", "first heap", "growth", "word", "team", "function", "finalize",
)  # fmt: skip
LEAVING = ("outside", "outside", "start", "proof", "first heap", "finalize")


@dataclass(frozen=True, slots=True)
class Death:
    """One case: the thread that dies, how, when, in which job."""

    how: str
    phase: str
    victim: int
    hits: int
    after: bool
    nodes: str | None
    via: str

    def __str__(self) -> str:
        when = f"{'after' if self.after else 'in'} {self.phase} #{self.hits}"
        return f"{self.how} of {self.victim} {when}, nodes {self.nodes}, {self.via}"

    @property
    def arguments(self) -> str:
        """The arguments of programs/dying.py."""
        return json.dumps(
            {"victim": self.victim, "phase": self.phase, "how": self.how, "hits": self.hits,
             "after": self.after}
        )  # fmt: skip

    @property
    def patience(self) -> float:
        """The seconds until a timeout detects the death; 0 if something else detects it.

        Only a timeout detects a thread that is stopped, or that ends where only the launcher could
        detect it: on several hosts no launcher of the trials does.
        """
        unseen = self.how.startswith("exit") or self.nodes == "hosts"
        if self.phase in BEFORE_MPI and self.how in ("exit 0", "exit 5", "SIGSTOP"):
            return START_LEAST
        return HANG if self.how == "SIGSTOP" or (self.phase in UNSEEN and unseen) else 0.0

    @property
    def environment(self) -> Mapping[str, str]:
        """The timeout, where it matters."""
        return {"XUPC_TIMEOUT": str(HANG)} if self.patience else {}

    @property
    def seconds(self) -> float:
        """From the blow to the end of everything, at most."""
        return ALL_GONE + self.patience

    def must_be_reported(self, *, begun: bool) -> bool:
        """Return whether survivors detect and report it; `begun`: init is over."""
        early = self.phase not in (*BEFORE_MPI, *UNSEEN) and self.how in DEADLY
        # between hosts Open MPI, if it goes on after a death, may crash another thread in init
        seen = begun or (early and self.nodes != "hosts")
        quiet = self.how == "launcher" or (self.how == "leave" and self.phase in ENDING)
        return self.via == "xupc run" and seen and not quiet


def draw(
    rng: random.Random, vias: tuple[str, ...], nodes: tuple[str | None, ...], *, launcher: bool
) -> Death:
    """A trial from the cross product; deaths inside a running program more often than others.

    `launcher`: whether it may be the launcher that is killed.
    """
    kinds = ["deadly", "SIGSTOP", "raise", "leave", "launcher"]
    kind = rng.choices(kinds, [10, 4, 2, 1, 2 * launcher])[0]
    where = rng.choice(nodes)
    phases = [*STARTING, *INSIDE * 2, *TIMED * 2, *ENDING]
    phases += BETWEEN * 3 if where else ()
    how = rng.choice(DEADLY) if kind == "deadly" else kind
    if how in ("raise", "leave"):
        phases = [*(RAISING if how == "raise" else LEAVING)]
    phase = rng.choice(phases)
    once = phase in (*STARTING, *ENDING, "one-sided", "outside", "function")
    if phase == "one-sided" and where != "hosts":
        where = "2x2"  # what each thread reads is on the other node
    return Death(
        how=how,
        phase=phase,
        victim=rng.randrange(4),
        hits=1 if once else rng.randint(1, 2 if phase in FEW else 3),
        after=not once and phase not in TIMED and rng.random() < 0.5,
        nodes=where,
        via=rng.choice(vias),
    )


@contextlib.contextmanager
def fresh_memory() -> Iterator[str]:
    """A tmpfs of its own for segments, or a folder beside the usual place."""
    with tempfile.TemporaryDirectory(prefix="fresh-xupc-", dir="/dev/shm") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1g", "xupc-test", folder]
        mounted = os.geteuid() == 0 and not subprocess.run(
            mount, check=False, capture_output=True
        ).returncode  # fmt: skip
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", "-l", folder], check=False)


@dataclass
class Ledger:
    """The counts and failures of the trials."""

    trials: int = 0
    clean: int = 0
    reported: int = 0
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def enter(self, death: Death, wrong: list[str], seconds: float, *, spoke: bool) -> None:
        """One trial."""
        self.trials += 1
        self.clean += not wrong
        self.reported += spoke
        self.slowest = max(self.slowest, seconds - death.patience)
        self.wrong += [f"{death}: {what}" for what in wrong]

    def __str__(self) -> str:
        return (
            f"{self.trials} trials, {self.clean} clean, the longest over after {self.slowest:.1f} s"
            f", {self.reported} with a report of ours"
        )


OURS = re.compile(
    r"DeadThreadError: |HangError: |CollectiveMismatchError: |XupcError: |^xupc: thread ",
    re.MULTILINE,
)


def judge(
    death: Death, out: str, err: str, left: list[str], folder: str, now: float
) -> tuple[list[str], float, bool]:
    """(what is wrong, seconds from the blow until `now`, whether we said something)."""
    blow = re.search(r"^struck (\S+)", out, re.MULTILINE)
    wrong = list(left)
    wrong += [f"file {name}" for name in sorted(os.listdir(folder))]
    if blow is None:
        return [*wrong, "the moment never came"], 0.0, False
    seconds = now - float(blow[1])
    if seconds > death.seconds:
        wrong.append(f"{seconds:.1f} s until everything was gone")
    spoke = OURS.search(err) is not None
    who = re.search(r"^victim (\d+) (\d+) (\S+)", out, re.MULTILINE)
    assert who is not None
    name = f"thread {who[1]} (host {who[3]}, pid {who[2]})"
    begun = re.search("^begun", out, re.MULTILINE) is not None
    if death.must_be_reported(begun=begun):
        expected = {"SIGSTOP": "HangError: ", "raise": f"xupc: thread {death.victim} of",
                    "leave": f"thread {death.victim}"}  # fmt: skip
        words = expected.get(death.how, f"{name} died")
        if (death.how, death.phase) == ("raise", "function"):  # on all; the first ends the job
            words = f"on thread {death.victim}"
        if words not in err:
            wrong.append(f"{words!r} was not said")
    return wrong, seconds, spoke


def trials(
    count: int,
    seed: int,
    run: Callable[[Death, str], tuple[Any, list[str], float]],
    *,
    vias: tuple[str, ...] = ("mpiexec", "xupc run"),
    nodes: tuple[str | None, ...] = (None, None, "2x2", "3,1"),
    launcher: bool = True,
) -> tuple[Ledger, list[str]]:
    """Make `count` trials; `run` returns what has stdout and stderr, what was left,
    and when all was over.

    `nodes`: values of ``XUPC_NODES``; "hosts" if there are real ones.
    """
    rng, ledger, reports = random.Random(seed), Ledger(), []
    for _ in range(count):
        death = draw(rng, vias, nodes, launcher=launcher)
        with fresh_memory() as folder:
            result, left, now = run(death, folder)
            wrong, seconds, spoke = judge(death, result.stdout, result.stderr, left, folder, now)
        ledger.enter(death, wrong, seconds, spoke=spoke)
        if wrong:
            reports.append(f"{death}: {wrong}\n{result.stdout[-500:]}\n{result.stderr[-3000:]}")
    return ledger, reports
