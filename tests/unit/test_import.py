"""What importing xupc and its command line loads; that names imported on demand are all there."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xupc
from xupc import cli
from xupc.algorithms import registry
from xupc.api import call_types

SOURCE = Path(xupc.__file__)
NAMES = [name for names in xupc._HOMES.values() for name in names.split()]
# Modules of ours that each of these may load. More are a reason to look for what pulls them in.
VOCABULARY = {"xupc", "xupc.errors", "xupc.flags", "xupc.ops", "xupc.ticks"}
NEVER_AT_START = {"mpi4py", "psutil", "click", "xupc.upc", "xupc.cli", "xupc.bench", "xupc.report"}

# They take a start some milliseconds, and no call on one machine needs them.
NOT_OF_THE_LIBRARY = {
    "_hashlib", "base64", "dataclasses", "hashlib", "numpy.ma", "random", "select", "selectors",
    "socket", "string", "tempfile", "tomllib",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    """Return the modules that a new interpreter has after `code`."""
    code += "\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "xupc"}


def test_import_xupc_loads_the_vocabulary_alone() -> None:
    found = loaded("import xupc; xupc.Flags, xupc.Op, xupc.PULL, xupc.HangError, xupc.vectorized")
    assert ours(found) == VOCABULARY
    assert found.isdisjoint(NEVER_AT_START | {"numpy", "dataclasses", "inspect", "threading"})


def test_init_loads_all_that_calls_need_and_no_tools() -> None:
    """In a call an import may be interrupted, or find no descriptor left."""
    found = loaded("import xupc; xupc.init") - loaded("import numpy")
    assert found.isdisjoint(NEVER_AT_START | NOT_OF_THE_LIBRARY)
    assert found >= {f"xupc.{module}" for module in xupc._HOMES}
    assert found >= {f"xupc.algorithms.{module}" for module in registry.HOMES}


def test_a_collective_loads_no_others_algorithms() -> None:
    found = loaded("import xupc; xupc.all_broadcast")
    assert found.isdisjoint(NEVER_AT_START)
    assert "xupc.algorithms.block_transfers" not in found


def test_help_loads_no_command() -> None:
    found = loaded("""
import sys
from xupc.cli import main
try:
    main(["--help"])
except SystemExit as e:
    assert e.code == 0""")
    assert ours(found) == VOCABULARY | {"xupc.cli"}
    assert "numpy" not in found


def test_the_help_page_has_the_commands_own_words() -> None:
    for name, (_, _, line) in cli.COMMANDS.items():
        command = cli.main.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(200) == line


def typed() -> dict[str, str]:
    """Return where type checkers find each name: name -> module."""
    tree = ast.parse(SOURCE.read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def test_names_are_imported_from_where_type_checkers_find_them() -> None:
    assert len(NAMES) == len(set(NAMES))
    found = typed()
    calls = {name for name, home in found.items() if home == "api.call_types"}
    assert calls == {*call_types.__all__} - {"Call"}  # test_call_types compares them
    assert found == {**xupc._HOME, **dict.fromkeys(calls, "api.call_types")}
    assert set(NAMES) <= set(xupc.__all__)


def test_all_names_are_there() -> None:
    new: dict[str, object] = {}
    exec("from xupc import *", new)
    assert set(xupc.__all__) <= set(new)
    assert set(xupc.__all__) <= set(dir(xupc))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_its_modules(name: str) -> None:
    value = getattr(xupc, name)
    module = importlib.import_module(f"xupc.{xupc._HOME[name]}")
    assert value is getattr(module, name)
    assert vars(xupc)[name] is value  # from now on without a detour
    assert not (SOURCE.parent / f"{name}.py").exists()  # a module would hide it


def test_pickles_name_modules_that_are_imported_on_demand() -> None:
    for name in ("all_broadcast", "SharedPointer", "Flags", "init", "memcpy"):
        assert pickle.loads(pickle.dumps(getattr(xupc, name))) is getattr(xupc, name)


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'all_brodcast'"):
        xupc.all_brodcast  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(xupc.NotInitializedError):
        xupc.THREADS  # noqa: B018
    assert not hasattr(xupc, "MYTHREAD")


def test_files_of_algorithms_register_what_the_table_says() -> None:
    names = {name for some in registry.HOMES.values() for name in some.split()}
    assert {entry.collective for entry in registry.registered()} == names
    files = (SOURCE.parent / "algorithms").glob("*.py")
    calls = re.compile(r"^ *@?(algorithm|derive)\(|= partial\(algorithm", re.MULTILINE)
    decorated = {path.stem for path in files if calls.search(path.read_text())}
    assert decorated == set(registry.HOMES)
    code = """if True:
        import os, sys
        from importlib import import_module
        from xupc.algorithms import registry
        for module, names in registry.HOMES.items():
            child = os.fork()
            if not child:
                import_module(f"xupc.algorithms.{module}")
                missing = set(names.split()) - {name for name, _ in registry._REGISTRY}
                os._exit(len(missing))
            assert os.waitpid(child, 0)[1] == 0, module
    """
    subprocess.run([sys.executable, "-c", code], check=True)
