"""Folds and scans by functions under the sanitizers: `functions.c` says which."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.sanitizers import NATIVE, SANITIZERS, compiled

SOURCE = Path(__file__).with_name("functions.c")

pytestmark = pytest.mark.once


def run(folder: Path, **headers: str) -> subprocess.CompletedProcess[str]:
    program = compiled(folder, SOURCE, SANITIZERS["address"], **headers)
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


def test_every_order_within_its_buffers(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" 0 wrong\n")


BROKEN = {
    "buffers too small": (
        "#define XF_ROOM (2 * XF_BLOCK + 2 * XF_SHORT * XF_MOST)",
        "#define XF_ROOM (XF_BLOCK / 2)",
        "heap-buffer-overflow",
    ),
    "an odd one forgotten": (
        "if (n % 2) memcpy(to + pairs * size, x + (n - 1) * size, (size_t)size);",
        "if (n % 2 && n < 4096) memcpy(to + pairs * size, x + (n - 1) * size, (size_t)size);",
        "fold of",
    ),
    "the wrong way round": (
        "reverse ? end : before, reverse ? before : end, 1);",
        "before, end, 1);",
        "scan of",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_mistake_is_noticed(how: str, tmp_path: Path) -> None:
    before, after, seen = BROKEN[how]
    text = (NATIVE / "user_functions.h").read_text()
    assert before in text
    done = run(tmp_path, user_functions=text.replace(before, after))
    assert done.returncode != 0
    assert seen in done.stdout + done.stderr
