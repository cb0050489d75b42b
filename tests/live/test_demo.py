"""`xupc demo`: its steps, its page, and that an end by a signal leaves nothing."""

from __future__ import annotations

import base64
import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from support.launch import PROJECT, import_path
from support.report_page import without_library

from xupc.bench.results import Result
from xupc.cli.processes import tagged

sys.path.insert(0, str(PROJECT / "examples"))

pytestmark = pytest.mark.once
BUDGET = 12  # seconds
LINES = 40
STEPS = {"picture": "xupc run", "measurement": "xupc bench"}


def environment(tmp_path: Path, mark: str) -> dict[str, str]:
    """Return one in which all files are made in a folder, and processes are marked."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    extra = {"PYTHONPATH": import_path(), "TMPDIR": str(tmp_path / "tmp"), "XUPC_TEST_DEMO": mark}
    return {**os.environ, **extra}


def demo(tmp_path: Path, budget: int = BUDGET) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, where nothing but its page may be left.

    On a busy machine a start takes long; a budget that is refused as too short is multiplied.
    """
    mark = f"{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "xupc", "demo", "--no-open", "--budget", f"{budget}"],
        capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path,
        env=environment(tmp_path, mark),
    )  # fmt: skip
    assert tagged("XUPC_TEST_DEMO", mark) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    refused = re.search(r"--budget .*: expected (at least|more)", done.stderr)
    if done.returncode == 2 and refused and budget < 100:
        return demo(tmp_path, 3 * budget)
    return done


def grey_of(png: bytes) -> np.ndarray:
    """Return the pixels of a picture that `sobel.png` has made."""
    at, chunks = 8, {}
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            kind + data
        )
        chunks[kind] = data
        at += 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:]


CALLS = {
    "allav_broadcast": "Bcast", "allav_gather_all": "Allgather", "allav_reduce_all": "Allreduce",
    "allav_exchange": "Alltoall",
}  # fmt: skip
SIZES = "8 B", "64 KiB"


def check_rows(text: str, page: str) -> None:
    """Check that each call has a row, or that text and page name it and the reason.

    On a busy machine the budget may end the only launch before its last calls.
    """
    rows = set(re.findall(r"^   (allav_\w+) +(\w+) +(8 B|64 KiB) ", text, re.M))
    missing = {(call, size) for call in CALLS for size in SIZES}
    missing -= {(call, size) for call, mpi, size in rows if CALLS[call] == mpi}
    assert len(rows) + len(missing) == len(CALLS) * len(SIZES)
    for shown in (text, page):
        said = re.search(r"Not measured, since the launches ended before: (.*?)\.[\n<]", shown)
        named = re.findall(r"(allav_\w+)[^;]*? of ([^;]*)", said[1] if said else "")
        assert {(call, size) for call, sizes in named for size in sizes.split(", ")} == missing
        if missing:
            assert "the budget is spent" in shown


def test_the_demo(tmp_path: Path) -> None:
    """It shows all steps and replaces the page of a former demo, and nothing else."""
    import sobel

    folder = tmp_path / "xupc-report"
    folder.mkdir()
    for name in (".xupc-demo", "index.html", "result.json", "mine.txt"):
        (folder / name).write_text("mine")
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= LINES
    assert lines[-1] == "xupc-report/index.html"
    for name in ("PULL", "PUSH", "MULTICORE"):
        assert re.search(
            rf"^   {name} +\d+\.\d\d ms  every edge equal to numpy's$", done.stdout, re.M
        )
    page = (folder / "index.html").read_text(encoding="utf-8")
    check_rows(done.stdout, page)
    error = next(line.strip() for line in lines if "CollectiveMismatchError:" in line)
    assert "thread 1: 990 x float64; the other threads (0, 2-3): 1000 x float64" in error

    before, after = ((folder / name).read_bytes() for name in ("before.png", "after.png"))
    assert np.array_equal(grey_of(before), sobel.picture(640))
    assert np.array_equal(grey_of(after), sobel.by_numpy(sobel.picture(640)))
    assert not Result.load(folder / "result.json").is_empty
    for part in ("<h1>", "how many times as fast as mpi4py", 'aria-label="node tree"',
                 "<details>", 'aria-label="timeline of a plan"', error,
                 base64.b64encode(before).decode(), base64.b64encode(after).decode()):  # fmt: skip
        assert part in page
    own = without_library(page)
    assert not re.search(r"https?://|<script(?! type=.application/json)|url\(", own)

    assert (folder / "mine.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"tmp", "xupc-report"}
    assert {path.name for path in folder.iterdir()} == {
        ".xupc-demo", "after.png", "before.png", "index.html", "mine.txt", "result.json",
    }  # fmt: skip


@pytest.mark.rotates
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", STEPS)
def test_a_signal_leaves_nothing(tmp_path: Path, step: str, number: signal.Signals) -> None:
    """In a step it ends all processes and leaves no file; the status says which signal it was."""
    mark, budget = f"{tmp_path}", f"{10 * BUDGET}"  # of which little is spent
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "xupc", "demo", "--no-open", "--budget", budget],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        env=environment(tmp_path, mark),
    ) as job:  # fmt: skip
        assert job.stdout is not None
        wanted = STEPS[step]
        for line in job.stdout:
            if wanted in line:
                break
        job.send_signal(number)
        rest, _ = job.communicate(timeout=60)
    assert job.returncode == (-signal.SIGINT if number == signal.SIGINT else 128 + number), rest
    assert f"ended by {number.name}; nothing was written" in rest
    assert tagged("XUPC_TEST_DEMO", mark) == []
    assert [*tmp_path.iterdir()] == [tmp_path / "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []
