"""Commands with wrong words, files and variables: one sentence and a status, and nothing else.

Each command line is a good one with some words replaced, added or left out. No job starts: the
system refuses to make processes. What no error may be: a traceback, a wait, or much memory.
"""

from __future__ import annotations

import errno
import gzip
import os
import random
import shutil
import subprocess
import traceback
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from support.limits import OutOfTime, limited
from support.soak import amount, figure, seed, share
from unit.test_bench_results import result
from unit.test_call_trace import two_nodes

from xupc import cli
from xupc.call_trace.file import join_parts
from xupc.predict.machine_file import find, text_of

GOOD: dict[str, list[str]] = {
    "algorithms": ["Allgather", "--nodes", "4x2", "--size", "1K"],
    "bench": ["Allreduce", "-n", "2", "-m", "8", "--budget", "10"],
    "calibrate": ["-n", "2", "-o", "new.toml"],
    "demo": [],
    "export": ["Allreduce", "--nodes", "2x2", "--size", "1K", "--format", "goal", "-o", "new"],
    "hang-report": [],
    "info": ["-n", "2"],
    "job-script": ["--nodes", "2", "--threads-per-node", "2", "Allreduce", "-m", "8"],
    "predict": ["Bcast", "--nodes", "2x2", "--size", "8"],
    "report": ["good.json", "--markdown", "-"],
    "run": ["-n", "2", "program.py"],
    "topo": ["-n", "2", "--topology", "1x2x2"],
    "trace": ["trace.json"],
    "tune": ["Bcast", "-n", "2", "-m", "8", "--budget", "20"],
}
TEXTS = [
    "", " ", "-", "--", "0", "-1", "1", "2", "3", "64", "-0", "00", "nan", "inf", "-inf", "1e999",
    "1e-999", "0.5", "9" * 9, "9" * 10, "9" * 20, "9" * 400, "9" * 5000, "4x", "x4", "0x0", "4x2",
    "2x2", "3,1", "99999x99999", "999999999x1", "1x999999999", "1," * 3000, "1,1", ",", ",,", "1,2",
    "cyclic:2", "cyclic:999999999", "cyclic:0", "1:1", "1:8", "8:1", ":", "1:" + "9" * 18, "9T",
    "0:0", "0", "8,", "1.5K", "999999999999999999T", "1h", "1m", "9" * 400 + "h", "9" * 5000 + "m",
    "9" * 400 + ".5s", "0s", "\u0664", "\u0664x\u0662", "\u00b2", "\u00bd", "4\u00d72", "\udcff",
    "\u202e", "\n", "\t", "'", '"', "$(:)", "*", "all_*", "[", "[!", "all_broadcast", "bcast",
    "barrier", "all_gather_v", "allv_scan", "PULL", "pull", "multicore:ring", "multicore:", ":ring",
    "variants", "auto", "auto,auto", "ADD", "add,max", "float64", "float64,int8", "O", "i4,f8",
    "(2,3)i4", "M8[s]", "V0", "S5", "mpi_char", "all", "last", "rotate", "fixed:3", "fixed:",
    "fixed:" + "9" * 5000, "world", "goal", "chakra", "smpi", "chrome", "tcp", "mpich", "default",
    "lumi-c", "l3:2", "socket:2,core:2", "65536x1x1", "2x2x2", "999x999x999", "8,8/8,6", "/", "1/0",
    "nosync/allsync", "mysync", "a/b/c", "Allgather/64K/multicore", "all_broadcast/8", "/8", "a/",
    "all_broadcast/8/multicore", "all_broadcast/" + "9" * 18, "--nodes", "-n", "-h",
]  # fmt: skip
FILES = [
    ".", "/", "nowhere/file", "file.txt/below", "a" * 300, "loop", "dangling", "fifo", "/dev/null",
    "/dev/zero", "/dev/full", "empty", "file.txt", "bytes", "sparse", "bomb.json.gz", "deep.json",
    "deep.toml", "good.json", "good.json.gz", "trace.json", "trace.json.parts", "machine.toml",
    "table.toml", "program.py", "new", "new.json", "new.toml", "folder", "fifo.json", "list.json",
    "null.json", "numbers.json", "cut.json", "zero.json",
]  # fmt: skip
VARIABLES = [
    "XUPC_NODES", "XUPC_TUNING", "XUPC_TOPOLOGY", "XUPC_TIMEOUT", "XUPC_HEAP_SIZE", "XUPC_TRACE",
    "XUPC_VARIANTS", "COLUMNS", "TMPDIR", "HOME", "XDG_CONFIG_HOME", "TERM", "NO_COLOR",
]  # fmt: skip
STATUS = {0, 1, 2, 3, 4, 5}


def options_of(name: str) -> list[click.Option]:
    module, function, _ = cli.COMMANDS[name]
    command = getattr(import_module(f"xupc.cli.{module}"), function)
    return [p for p in command.params if isinstance(p, click.Option)]


class Place:
    """A folder with files of all kinds, made anew for each command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        made = folder.parent / "made"
        parts = made / "trace.json.parts"
        parts.mkdir(parents=True)
        two_nodes(parts)
        self.parts = {path.name: path.read_bytes() for path in parts.iterdir()}
        join_parts(made / "trace.json")
        result().save(made / "good.json")
        whole = (made / "good.json").read_bytes()
        zeros = gzip.compress(bytes(1 << 20)) * 4096  # members follow each other
        self.files = {
            "empty": b"", "file.txt": b"text\n", "bytes": bytes(range(256)), "good.json": whole,
            "good.json.gz": gzip.compress(whole), "trace.json": (made / "trace.json").read_bytes(),
            "machine.toml": text_of(find("default")).encode(), "program.py": b"",
            "table.toml": b"version = 1\n", "deep.json": b"[" * 100_000,
            "deep.toml": b"a = " + b"[" * 100_000, "bomb.json.gz": zeros, "list.json": b"[]",
            "null.json": b"null", "numbers.json": b'{"xupc": 1, "format": 1}',
            "cut.json": whole[: len(whole) // 2], "zero.json": bytes(1 << 16),
        }  # fmt: skip

    def renew(self) -> None:
        """Make all files as they were."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for name, data in self.files.items():
            (self.folder / name).write_bytes(data)
        (self.folder / "folder").mkdir()
        (self.folder / "trace.json.parts").mkdir()
        for name, data in self.parts.items():
            (self.folder / "trace.json.parts" / name).write_bytes(data)
        (self.folder / "loop").symlink_to("loop")
        (self.folder / "dangling").symlink_to("nowhere")
        for name in ("fifo", "fifo.json"):
            os.mkfifo(self.folder / name)
        with (self.folder / "sparse").open("wb") as file:
            file.truncate(1 << 40)


def drawn_text(rng: random.Random) -> str:
    """Draw a value: a text, a file, or characters at random."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(TEXTS)
    if kind < 0.9:
        return rng.choice(FILES)
    return "".join(rng.choices("0123456789x,:/.eE+-_ kMGiB\u0663hms*[]()'", k=rng.randrange(1, 9)))


def drawn_words(rng: random.Random, name: str) -> list[str]:
    """Draw the words after a command's name."""
    words = list(GOOD[name])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind, at = rng.randrange(8), rng.randrange(len(words) + 1)
        if kind < 4:
            option = rng.choice(options_of(name))
            end = rng.choice(option.opts)
            words[:0] = [end] if option.is_flag else [end, drawn_text(rng)]
        elif kind < 6 and words:
            words[at % len(words)] = drawn_text(rng)
        elif kind == 6 and words:
            del words[at % len(words)]
        else:
            words.insert(at, drawn_text(rng))
    return words


def no_process(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def fault_of(
    words: Sequence[str], variables: dict[str, str], wait: float = 90
) -> tuple[str, int]:
    """Run a command; return what is wrong with its end, or "", and its status."""
    try:
        with limited(wait=wait):
            done = CliRunner().invoke(cli.main, words, env=variables)
    except (OutOfTime, MemoryError) as error:
        return "".join(traceback.format_exception(error)), -1
    if isinstance(done.exception, SystemExit | None):
        if done.exit_code not in STATUS:
            return f"status {done.exit_code}", done.exit_code
        if "Traceback (most" in done.output:
            return done.output, done.exit_code
        if done.exit_code == 2 and "rror: " not in done.stderr:
            return f"status 2 without a reason: {done.output[:2000]}", 2
        return "", done.exit_code
    return "".join(traceback.format_exception(done.exception)), -1


@pytest.mark.soak
def test_wrong_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{seed()} commands")
    place = Place(tmp_path / "here")
    monkeypatch.setattr(subprocess, "Popen", no_process)
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    counts: Counter[int] = Counter()
    trials = amount(share(400), 20_000)
    for _ in range(trials):
        place.renew()
        monkeypatch.chdir(place.folder)
        name = rng.choice(sorted(GOOD))
        words = [name, *drawn_words(rng, name)]
        variables = {}
        if rng.random() < 0.15:
            variables[rng.choice(VARIABLES)] = drawn_text(rng)
        fault, status = fault_of(words, variables)
        assert not fault, f"{variables} xupc {[w[:80] for w in words]}: {fault}"
        counts[status] += 1
    ends = ", ".join(f"{n} status {k}" for k, n in sorted(counts.items()))
    figure("wrong words of commands", f"{trials} command lines: {ends}")


LONG = "9" * 5000


@pytest.mark.parametrize("words", [
    "bench -n LONG", "bench Bcast -n 2 -k LONG", "bench -n 2 --budget LONGm",
    f"bench -n 2 --budget {'9' * 400}h", "bench -n 999999999", "bench --nodes 99999x99999",
    "bench Bcast -T 1:8", "bench -n 2 --launches 999999999999999999", "tune -n 999999999",
    "info -n 999999999",
    "job-script --nodes 999999999 --threads-per-node 999999999 Bcast",
    "job-script --nodes 2048 --threads-per-node 2048 Bcast",
    "algorithms Allgather -n 999999999", "algorithms Bcast --nodes 2x2 --size 1T --draw multicore",
    "algorithms all_broadcast --nodes 2x2 --size 1T --count", "predict Bcast --nodes 1x999999999",
    "predict Bcast --nodes 2x2 --size 1T", "topo -n 999999999 --topology 2x2",
    "export Bcast --nodes 2x2 --size 1T --format goal -o new",
    "topo --topology 65536x1x1", "hang-report LONG", "trace LONG", "tune -o loop -n 2 Bcast",
    "report /dev/zero --markdown -", "report sparse --markdown -", "report bomb.json.gz",
    "report fifo --markdown -", "report good.json -o fifo", "trace fifo", "trace /dev/zero",
    "predict fifo.json --nodes 2x2", "predict Bcast --nodes 2x2 --machine fifo",
    "predict Bcast --nodes 2x2 --page fifo", "tune --from fifo",
    "algorithms Bcast --nodes 2x2 --draw multicore --timeline fifo",
    "export Bcast --nodes 2x2 --size 8 --format chrome -o fifo",
])  # fmt: skip
def test_words_that_once_were_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Each of them took all memory, never ended, or ended in a traceback."""
    place = Place(tmp_path / "here")
    place.renew()
    monkeypatch.chdir(place.folder)
    monkeypatch.setattr(subprocess, "Popen", no_process)
    monkeypatch.setenv("HOME", str(tmp_path))
    fault, status = fault_of(words.replace("LONG", LONG).split(), {}, wait=30)
    assert not fault
    assert status in (0, 2, 4)
