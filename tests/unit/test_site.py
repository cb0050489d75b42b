"""The documentation site names every public call, and holds every page."""

import re
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
