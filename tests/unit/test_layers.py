"""A module imports only from its own layer or lower ones (docs/design/overview.md, "Layers")."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xupc

ROOT = Path(xupc.__file__).parent

# First match counts; "a.b" covers everything under it.
LAYERS = [
    ("errors", 1),
    ("flags", 1),
    ("ops", 1),
    ("fingerprint", 1),
    ("ticks", 1),
    ("records", 1),
    ("specs", 1),
    ("host", 1),
    ("pointer", 2),
    ("topology", 2),
    ("patterns", 2),
    ("layout", 2),
    ("plan", 3),
    ("algorithms", 4),
    ("memory", 5),
    ("shared", 5),
    ("engine", 5),
    ("selection", 6),
    ("selection_file", 6),
    ("arguments", 5),
    ("team", 7),
    ("teams", 7),
    ("handles", 7),
    ("lists", 7),
    ("list_calls", 7),
    ("shared_lists", 7),
    ("values", 7),
    ("scalars", 7),
    ("calls", 7),
    ("collectives", 7),
    ("places", 7),
    ("reductions", 7),
    ("relocations", 7),
    ("allocation", 7),
    ("barriers", 7),
    ("node_arrays", 7),
    ("one_sided", 7),
    ("runtime", 7),
    ("upc", 7),
    ("bench", 8),
    ("report", 8),
    ("cli", 8),
    ("__main__", 8),
]


def layer(module: str) -> int:
    for name, number in LAYERS:
        if module == name or module.startswith(f"{name}."):
            return number
    raise AssertionError(f"xupc.{module} is in no layer: add it here and to design/overview.md")


def test_the_design_has_the_same_table() -> None:
    """`docs/design/overview.md` has it as rows: ``| 1 | `errors`, `flags` |``."""
    text = (ROOT.parent / "docs" / "design" / "overview.md").read_text(encoding="utf-8")
    found = {
        (name, int(number))
        for number, names in re.findall(r"^\| (\d) \| (.*) \|$", text, re.MULTILINE)
        for name in re.findall(r"`([a-z_]+)`", names)
    }
    assert found == {entry for entry in LAYERS if entry[0] != "__main__"}


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, absolute name) of every import that is really executed."""
    tree = ast.parse(path.read_text())
    skipped = {
        inner for node in ast.walk(tree) if is_type_checking(node) for inner in ast.walk(node)
    }
    package = ["xupc", *path.relative_to(ROOT).parent.parts]
    found = []
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            found += [(node.lineno, f"{start}.{alias.name}") for alias in node.names]
    return found


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_imports_only_from_its_layer_or_above(path: Path) -> None:
    mine = layer(module_name(path))
    for line, name in imports(path):
        if name.startswith("xupc.") and mine < 8:
            target = name.removeprefix("xupc.")
            assert layer(target) <= mine, f"{path}:{line} imports {name}, a lower layer"


def test_mpi4py_is_imported_in_one_module_and_in_threads_of_benchmarks() -> None:
    users = {
        module_name(path)
        for path in modules()
        if not module_name(path).startswith("cli")
        for _, name in imports(path)
        if name.split(".")[0] == "mpi4py"
    }
    assert users == {"engine.mpi", "bench.calls", "bench.machine", "bench.wire", "bench.worker"}


def test_import_xupc_starts_no_mpi() -> None:
    code = "import sys, xupc; print('mpi4py' in sys.modules, xupc.Flags.PULL, xupc.Op.ADD)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False")
