"""No other user accesses a job's memory.

Its files have no name, or a random one and mode 0600 until they are unlinked. A file that is there
already is never used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.soak import figure

from xupc.pgas import segment

ROOT = Path(__file__).parent.parent.parent
ONCE = pytest.mark.once


@pytest.mark.once
@pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="needs Linux and root, to be somebody else"
)
@pytest.mark.parametrize(("nodes", "named"), [(None, ""), ("2,1", ""), (None, "1")])
def test_another_user_cannot_attach(
    live: Callable[..., Any], nodes: str | None, named: str
) -> None:
    """Another user cannot attach, even if files have names while they are being shared."""
    with tempfile.TemporaryDirectory(prefix="test-", dir="/dev/shm") as folder:
        os.chmod(folder, 0o1777)  # as /dev/shm itself: every user may look for names
        env = {"XUPC_SHM_DIR": folder, "XUPC_NAMED_SEGMENTS": named or None}
        program = "tests/live/programs/access_by_other_users.py"
        result = live(3, program, nodes=nodes, env=env, args=[folder], own_job=True)
        found = re.search(r"done: (\d+)", result.stdout)
        assert found
        assert os.listdir(folder) == []
    kind = "that had a name" if named else "without a name"
    figure("another user", f"{found[1]} files of a thread, {kind}: 0 opened, 0 unlinked")


@pytest.fixture
def named_segments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory for the segments of this process, which get names."""
    monkeypatch.setenv("XUPC_SHM_DIR", str(tmp_path))
    monkeypatch.setenv("XUPC_NAMED_SEGMENTS", "1")
    return tmp_path


@pytest.mark.once
def test_a_name_that_is_there_is_not_used(
    monkeypatch: pytest.MonkeyPatch, named_segments: Path
) -> None:
    """A file, a link or a dangling link that is there is not used: another user may own it."""
    monkeypatch.setattr(os, "urandom", bytes)
    path = named_segments / f"xupc-{os.getuid()}-{'0' * 32}"
    victim = named_segments / "victim"
    victim.write_bytes(b"untouched")
    for put in (
        lambda: path.write_bytes(b"mine"),
        lambda: path.symlink_to(victim),
        lambda: path.symlink_to(named_segments / "nowhere"),
    ):
        put()
        with pytest.raises(segment.HeapError, match="cannot make a segment"):
            segment.create(4096)
        assert victim.read_bytes() == b"untouched"
        assert not (named_segments / "nowhere").exists()
        path.unlink()
    made = segment.create(4096)
    status = path.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, 4096)
    made.settle()
    assert not path.exists()
    made.close_fd()


@pytest.mark.once
@pytest.mark.usefixtures("named_segments")
def test_names_are_random() -> None:
    made = [segment.create(4096) for _ in range(50)]
    names = {Path(x.path).name for x in made}
    assert len(names) == 50
    assert all(re.fullmatch(rf"xupc-{os.getuid()}-[0-9a-f]{{32}}", name) for name in names)
    for x in made:
        x.settle()
        x.close_fd()


@pytest.mark.once
def test_what_cannot_be_made_leaves_no_name(named_segments: Path) -> None:
    for nbytes in (1 << 62, 1 << 63, 1 << 70):
        with pytest.raises(segment.HeapError):
            segment.create(nbytes)
        assert list(named_segments.iterdir()) == []


@pytest.mark.soak
@pytest.mark.once
def test_dependencies_have_no_known_holes() -> None:
    """pip-audit, where it is installed and can ask; says how many it could look up."""
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed")
    audit = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off"]
    run = subprocess.run(audit, capture_output=True, text=True, check=False, timeout=300)
    needed = {_name(x) for x in _project()["dependencies"]}
    skipped = {m[1] for m in re.finditer(r"^(\S+) +Dependency not found", run.stdout, re.M)}
    if run.returncode not in (0, 1) or needed <= skipped:
        why = (run.stderr.strip().splitlines() or ["nothing can be looked up"])[-1]
        pytest.skip(f"pip-audit cannot ask here: {why}")
    assert run.returncode == 0, run.stdout + run.stderr
    figure("known vulnerabilities", f"0 in {len(needed - skipped)} of {len(needed)} dependencies")


def _project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement)[0]


@pytest.mark.once
def test_every_dependency_has_a_lowest_version() -> None:
    """Each has a lower bound for `scripts/test --lowest`, but for MPI, which it does not choose."""
    project = _project()
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for requirement in (r for group in groups for r in group):
        assert ">=" in requirement, requirement
