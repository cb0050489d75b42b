"""Folds and scans by functions under the sanitizers: `functions.c` says which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sanitizers import compiled, damaged, output_of

SOURCE = Path(__file__).with_name("functions.c")

pytestmark = pytest.mark.once


def run(folder: Path, **headers: str) -> str:
    """Compile the driver, maybe with another header, and return the output of a run."""
    return output_of(compiled(folder, SOURCE, "address", **headers))


def test_every_order_within_its_buffers(tmp_path: Path) -> None:
    text = run(tmp_path)
    assert text.endswith(" 0 wrong\n"), text


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


@pytest.mark.rotates
@pytest.mark.parametrize("how", BROKEN)
def test_a_mistake_is_noticed(how: str, tmp_path: Path) -> None:
    right, wrong, seen = BROKEN[how]
    text = run(tmp_path, **damaged("user_functions", right, wrong))
    assert re.search(r"status -?\d+$", text), text
    assert seen in text
