"""The documentation site names every public call, and holds every page."""

import re
import subprocess
import sys
from pathlib import Path

import xupc

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    found = set(re.findall(r"^\.\. (?:auto\w+|data):: (\w+)$", page, flags=re.MULTILINE))
    # Flags, operations and limits are in capitals; flags.md explains them. `import *` leaves out
    # Comm, which loads mpi4py.
    assert found - {"Comm"} == {name for name in xupc.__all__ if not name.isupper()}


def test_the_index_has_every_page() -> None:
    listed = set((DOCS / "index.md").read_text(encoding="utf-8").split())
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert pages - {"index"} <= listed


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    """`scripts/docs` runs this script on the site."""
    (tmp_path / "deep").mkdir()
    good = '<a href="deep/b.html#x%20y"></a><a href="#top">b</a><img src="c.png?v=3"><p id="top">'
    other = '<a href="https://example.org/none"></a><a href="mailto:a@example.org"></a>'
    (tmp_path / "a.html").write_text(good + other)
    (tmp_path / "deep" / "b.html").write_text('<h1 id="x y"></h1><a href="../a.html">a</a>')
    (tmp_path / "c.png").touch()
    command = [sys.executable, Path(__file__).parents[2] / "scripts" / "site_links.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "links     4 inside, 0 broken; 2 to other sites"
    for wrong in ("d.html", "deep/b.html#z", "#none", "deep/c.png"):
        (tmp_path / "a.html").write_text(f'{good}<a href="{wrong}">')
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.split("\n")[2]) == (1, f"  a.html: {wrong}")
