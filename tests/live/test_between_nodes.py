"""What the core sends between nodes by itself: what it has learnt, and what it cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.launch import SLOW_ENGINE, import_path, launch

pytestmark = pytest.mark.skipif(SLOW_ENGINE, reason="no native core")
PROGRAM = "tests/live/programs/native_messages.py"


@pytest.mark.parametrize(
    ("types", "nodes", "roots"),
    [("few_types", "2,2", 2), ("few_types", "1,3", 1), ("one_type", "2,2", 2)],
)
def test_types_that_were_given_back_are_made_again(types: str, nodes: str, roots: int) -> None:
    """`roots`: nodes of several threads, whose blocks are apart."""
    result = launch(4, PROGRAM, args=[types], nodes=nodes)
    assert result.returncode == 0, result.report()
    assert result.stdout.split().count("freed") == roots, result.report()


def test_calls_at_new_addresses_describe_no_messages() -> None:
    """And a plan in memory whose threads are farther apart has its own datatypes."""
    result = launch(4, PROGRAM, args=["new_addresses"], nodes="2,2")
    assert result.returncode == 0, result.report()
    lines = result.stdout.splitlines()
    assert len(lines) == 4, result.report()
    assert all("distances differ" in line for line in lines), result.report()
    assert any("described 0 " not in line for line in lines), result.report()


def test_without_functions_of_mpi_on_one_thread_all_take_the_python_engine() -> None:
    result = launch(3, PROGRAM, args=["no_functions"], nodes="2,1")
    assert result.returncode == 0, result.report()
    assert sorted(result.stdout.splitlines()) == 3 * ["False 3"], result.report()
    assert result.stderr.count("the Python engine runs, many times slower: MPI's C functions") == 1


def test_without_the_core_init_warns_once_that_calls_are_many_times_slower(tmp_path: Path) -> None:
    """An import of the core fails, as where there was no compiler."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['xupc.backends.native._core'] = None\n"
    )
    env = {"PYTHONPATH": import_path(tmp_path)}
    result = launch(3, PROGRAM, args=["no_core"], nodes="2,1", env=env)
    assert result.returncode == 0, result.report()
    assert sorted(result.stdout.splitlines()) == 6 * ["False 3"], result.report()
    words = "the Python engine runs, many times slower: the native core is missing (import of"
    (line,) = [line for line in result.stderr.splitlines() if words in line]
    assert f"/{PROGRAM}:" in line, result.report()  # the program's own line, not one of xupc
    assert "install a C compiler and Python's headers, then reinstall xupc" in result.stderr
