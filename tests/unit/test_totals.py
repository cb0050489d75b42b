"""The end of a run of scripts/test: the totals, and each failure with its first and last lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import totals
from support.launch import BUSY

TESTS = '''
import pytest

def test_passes():
    pass

def test_long():
    pytest.fail("\\n".join(f"line {i}" for i in range(100)), pytrace=False)

@pytest.fixture
def broken():
    raise ValueError("no fixture")

def test_without(broken):
    pass

@pytest.mark.skip
def test_other():
    pass
'''


def _run(folder: Path, text: str) -> None:
    (folder / "test_some.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=1.xml"]
    subprocess.run([*command, "test_some.py"], cwd=folder, capture_output=True, timeout=BUSY * 60)


def test_what_failed_is_printed_with_both_ends(tmp_path: Path, capsys) -> None:
    _run(tmp_path, TESTS)
    assert totals.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert said.endswith("\n1 passed, 2 failed, 1 skipped\n")
    _, _, short = said.partition("what failed, in short:\n")
    assert "FAILED test_some::test_long\n    line 0\n" in short
    assert "\n    line 5\n    [... 76 lines]\n    line 82\n" in short
    assert "\n    line 99\n" in short
    assert "FAILED test_some::test_without\n" in short
    assert "ValueError: no fixture" in short


def test_a_stage_that_crashed_counts(tmp_path: Path, capsys) -> None:
    _run(tmp_path, "def test_passes(): pass")
    assert totals.main(tmp_path) == 0
    assert "failed, in short" not in capsys.readouterr().out
    (tmp_path / "2.crashed").touch()
    assert totals.main(tmp_path) == 1
    assert capsys.readouterr().out.endswith("\n1 passed, 1 failed, 0 skipped\n")


def test_no_test_is_a_failure(tmp_path: Path) -> None:
    assert totals.main(tmp_path) == 1
