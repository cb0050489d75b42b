"""Configure Sphinx for the documentation of xupc; `scripts/docs` runs it."""

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
_DATA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

project = "xupc"
author = "the xupc developers"
release = version = _DATA["project"]["version"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_click",
]
html_theme = "furo"
html_title = "xupc"
myst_heading_anchors = 3
autodoc_member_order = "groupwise"
autodoc_typehints = "none"
numpydoc_show_class_members = False

_OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)#:]+)\)")


def _link(page: Path) -> Callable[[re.Match[str]], str]:
    """Return a function that turns a link to a file outside docs/ into a download."""

    def replace(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve()
        inside = target.is_relative_to(ROOT / "docs")
        return match[0] if inside else f"](path:{match[1]})"

    return replace


def _read(app: Sphinx, name: str, content: list[str]) -> None:
    """Keep links to figures and examples: Sphinx takes no page from outside docs/."""
    content[0] = _OUTSIDE.sub(_link(Path(app.env.doc2path(name))), content[0])


def setup(app: Sphinx) -> None:
    """Connect the function above."""
    app.connect("source-read", _read)
