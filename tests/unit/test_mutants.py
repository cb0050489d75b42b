"""The patches of tests/mutants apply and name tests that exist; what scripts/mutants decides."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from support.polling import until

ROOT = Path(__file__).resolve().parents[2]
AREAS = {
    "bench_statistics",
    "broadcast",
    "c_protocol",
    "exchange",
    "failure_detection",
    "gather_all",
    "handles",
    "hang_report",
    "heap",
    "launcher",
    "lowering",
    "messages",
    "mismatch",
    "permute",
    "pointers",
    "prefix",
    "private_arrays",
    "recorder",
    "reduce",
    "teams",
    "topology",
    "v_forms",
}


def load(path: Path) -> ModuleType:
    """Import a script whose name has no suffix."""
    loader = SourceFileLoader("xupc_mutants_script", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = sys.modules[loader.name] = module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


script = load(ROOT / "scripts" / "mutants")
MUTANTS = script.all_mutants()


def result(outcome: str, by: str = "") -> object:
    return script.Result(outcome, by, "named", 1.0, "patch")


def test_areas() -> None:
    found = Counter(mutant.area for mutant in MUTANTS)
    assert set(found) == AREAS
    assert min(found.values()) >= 4
    assert len(MUTANTS) >= 88


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("area", sorted(AREAS))
def test_each_patch_applies(area: str) -> None:
    for mutant in script.all_mutants(f"{area}/*"):
        check = ["git", "apply", "--check", str(mutant.path)]
        done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{mutant.name}: {done.stderr}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_head_of_each_patch(mutant: script.Mutant) -> None:
    assert mutant.tests
    assert all((ROOT / path).exists() for path in mutant.tests), mutant.tests
    assert len(mutant.changes) == 1
    assert mutant.breaks.endswith(".")


def test_no_two_patches_are_alike() -> None:
    assert len({mutant.digest for mutant in MUTANTS}) == len(MUTANTS)


def test_patch_without_tests(tmp_path: Path) -> None:
    patch = tmp_path / "bad.patch"
    patch.write_text("It breaks something.\nscope: all\n\n--- a/x\n+++ b/x\n")
    with pytest.raises(ValueError, match="expected a sentence, a line 'tests: PATHS'"):
        script.read_patch(patch)


def test_only_some() -> None:
    assert {m.area for m in script.all_mutants("heap/*")} == {"heap"}
    assert [m.name for m in script.all_mutants("no_wake_up")] == ["c_protocol/no_wake_up"]
    assert script.all_mutants("no such mutant") == []


def test_name_of_the_test_that_failed() -> None:
    output = (
        "F\n= short test summary info =\nFAILED tests/a.py::test_b[1 x] - assert 1 == 2\n1 failed"
    )
    assert script.failed_test(output) == "tests/a.py::test_b[1 x]"
    assert script.failed_test("ERROR tests/a.py\n1 error") == "tests/a.py"
    assert script.failed_test("Fatal error\nKilled\n\n") == "Killed"


def runs(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_no_process_is_left(tmp_path: Path) -> None:
    """A process in another session ends, too: live tests start such jobs."""
    log = tmp_path / "log"
    assert script.run(["sh", "-c", "setsid sleep 600 & echo $!"], tmp_path, 60, log) == 0
    pid = int(log.read_text())
    until(lambda: not runs(pid), "it has ended")  # a killed process ends when it is scheduled


def test_time_limit(tmp_path: Path) -> None:
    assert script.run(["sleep", "600"], tmp_path, 0.1, tmp_path / "log") is None


def test_status_of_a_command(tmp_path: Path) -> None:
    assert script.run(["sh", "-c", "exit 3"], tmp_path, 60, tmp_path / "log") == 3


def test_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "WORK", tmp_path)
    script.Results("c" * 40).add("heap/x", result("killed", "tests/a.py"))
    again = script.Results("c" * 40)
    assert again.of["heap/x"].dead
    assert again.known("heap/x", "patch")
    assert not again.known("heap/x", "another patch")
    assert not script.Results("d" * 40).of


def test_files_are_as_before(tmp_path: Path) -> None:
    """After a mutant, and after an error while one is tried."""
    mutant = script.all_mutants("exact_fit_missed")[0]
    (changed,) = mutant.changes
    there = tmp_path / "copy" / changed
    there.parent.mkdir(parents=True)
    shutil.copy(ROOT / changed, there)
    copy = object.__new__(script.Copy)
    copy.folder, copy.log = tmp_path / "copy", tmp_path / "log"

    def fail_while_applied() -> None:
        with copy.applied(mutant) as fits:
            assert fits
            assert there.read_text() != (ROOT / changed).read_text()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_applied()
    assert there.read_text() == (ROOT / changed).read_text()


def test_table_names_what_the_old_tests_alone_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "WORK", tmp_path)
    old, new = script.Results("a" * 40), script.Results("b" * 40)
    mutants = script.all_mutants("heap/*")[:3]
    first, second, third = (mutant.name for mutant in mutants)
    old.of = {first: result("killed", "tests/x.py"), second: result("killed", "tests/y.py")}
    new.of = {first: result("timed out", "named"), second: result("survived")}
    assert script.lost_mutants(mutants, old.of, new.of) == [second]
    text = script.comparison(mutants, old, new)
    assert f"Killed by the old tests alone: {second}." in text
    assert "The tests of aaaaaaa kill 2, those of bbbbbbb kill 1." in text
    assert f"| {third} | {mutants[2].breaks} | not tried | not tried |" in text
    assert f"survived: {second}" in script.summary(mutants, new.of)


def test_table_of_one_commit_names_the_stage_that_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "WORK", tmp_path)
    results = script.Results("c" * 40)
    mutants = script.all_mutants("heap/*")[:3]
    first, second, third = (mutant.name for mutant in mutants)
    results.of = {first: result("killed", "tests/x.py"), second: result("survived")}
    text = script.table(mutants, results)
    assert "Of 2 that were tried 1 are killed: 1 by named tests." in text
    assert f"| {second} | {mutants[1].breaks} | **survived** |" in text
    assert f"| {third} | {mutants[2].breaks} | not tried |" in text
