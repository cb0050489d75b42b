"""A room (package) imports only from rooms below it; what still does otherwise is listed."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import xupc

ROOT = Path(xupc.__file__).parent

# From below: a module imports from its own room and from those before it. The first ones
# are modules of words that all rooms use. `backends` is what all backends have in common.
ORDER = [
    "errors", "flags", "ops", "ticks", "fingerprint", "records", "specs",
    "byte_sizes", "given_files", "json_text", "call_trace",
    "topology", "pgas",
    "plan", "backends", "backends.native",
    "algorithms", "reduction", "backends.simulator", "tuning", "comm",
    "backends.interpreter", "health", "runtime", "api", "upc", "mpi", "bench", "report", "predict",
    "export", "cli", "testing", "__main__",
]  # fmt: skip
WORDS = {
    "errors", "flags", "ops", "ticks", "fingerprint", "records", "specs", "byte_sizes",
    "given_files", "json_text",
}  # fmt: skip

LONG = {"upc"}  # modules over 500 lines: it has the names of the documents

# `Any` in these rooms: how often a module may have it, and why. These numbers may only fall.
TYPED_ROOMS = ("backends", "comm", "health", "runtime")
ANY = {
    "backends.interpreter.interpreter": (5, "results of the program's calls"),
    "backends.native.native_core": (1, "the compiled module"),
    "backends.operand_binding": (3, "the memory of an allocation, and its remote access"),
    "backends.protocol": (1, "a record that the core keeps for an upper room"),
    "backends.simulator.barriers": (1, "the argument of a compiled step"),
    "backends.simulator.data_movement": (3, "arguments of compiled steps; a dtype of numpy"),
    "backends.simulator.level_counts": (3, "arguments of compiled steps"),
    "backends.simulator.message_clock": (3, "arguments of compiled steps"),
    "backends.simulator.processors": (2, "arguments of compiled steps"),
    "backends.simulator.race_detector": (2, "arguments of compiled steps"),
    "backends.simulator.script": (1, "a kernel of numpy"),
    "backends.simulator.sim_program": (5, "arguments of compiled steps"),
    "backends.simulator.simulator": (3, "arguments of compiled steps"),
    "backends.simulator.state": (2, "arguments of compiled steps"),
    "backends.simulator.symbols": (1, "memory: a bytearray or symbols"),
    "backends.simulator.timeline": (8, "arguments of compiled steps"),
    "comm.mpi_types": (1, "buffers of mpi4py"),
    "comm.plan_messages": (3, "dtypes of numpy, memory of ctypes"),
    "comm.setup_collectives": (7, "data of JSON, and any non-blocking call of mpi4py"),
    "health.mismatch_recovery": (8, "data of JSON"),
    "health.stack_report": (1, "data of JSON from another machine"),
    "runtime.executor": (1, "a method that typeshed does not have"),
    "runtime.team_state": (4, "the program's Team, and an instance while it is made"),
}

MPI_USERS = {
    "comm.mpi", "comm.mpi_types", "bench.calibration", "bench.drop_in_calls",
    "bench.drop_in_probe", "bench.host_probe",
    "bench.machine", "bench.memory_probe", "bench.network_probe", "bench.pair_probe",
    "bench.peer_calls",
    "bench.provenance", "bench.worker", "mpi.__main__", "mpi.carrier",
    "mpi.communicators", "mpi.entry", "mpi.failures",
    "mpi.constants", "mpi.decision", "mpi.descriptions", "mpi.install", "mpi.message_size",
    "mpi.messages", "mpi.method_locks",
    "mpi.mismatch", "mpi.neighbours", "mpi.object_moves", "mpi.objects", "mpi.opening",
    "mpi.pickles",
    "mpi.record", "mpi.reductions",
    "mpi.journal", "mpi.repeated", "mpi.requests",
    "mpi.vector_messages", "mpi.truncation", "mpi.vectors", "mpi.wide_messages",
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def room(module: str) -> str:
    """Return the entry of the order that a module belongs to."""
    found = [name for name in ORDER if module == name or module.startswith(f"{name}.")]
    if not found:
        raise AssertionError(f"xupc.{module} is in no room: add its package to ORDER in {__file__}")
    return max(found, key=len)


@cache
def names(path: Path) -> frozenset[str]:
    """Return the absolute names that a file imports, also in functions and under TYPE_CHECKING."""
    package = ["xupc", *path.relative_to(ROOT).parent.parts]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *(node.module.split(".") if node.module else [])])
            found |= {f"{start}.{alias.name}" for alias in node.names}
    return frozenset(found)


def imported(module: str) -> set[str]:
    """Return the modules of xupc that a module imports."""
    found = set()
    for name in names(MODULES[module]):
        if name.startswith("xupc."):
            own = name.removeprefix("xupc.")
            found.add(own if own in MODULES else own.rpartition(".")[0])
    return found - {"", module}


def circles() -> list[set[str]]:
    """Return the groups of modules that reach each other by imports."""
    direct = {m: imported(m) & MODULES.keys() for m in MODULES if m}
    reached: dict[str, set[str]] = {}
    for module in direct:
        seen: set[str] = set()
        left = [module]
        while left:
            new = direct[left.pop()] - seen
            seen |= new
            left += new
        reached[module] = seen
    groups = {
        frozenset(m for m in reached[module] if module in reached[m])
        for module in direct
        if module in reached[module]
    }
    return sorted((set(group) for group in groups), key=min)


def test_the_design_says_the_same() -> None:
    """`docs/design/overview.md` lists the rooms in the order that is tested."""
    text = (ROOT.parent / "docs" / "design" / "overview.md").read_text(encoding="utf-8")
    words = " ".join(text.split()).split("The order of the rooms, from below: ")[1].split(". ")[0]
    assert words.split(", ") == [name for name in ORDER if name != "__main__"]


def test_a_room_imports_only_from_rooms_below_it() -> None:
    """Also in functions and under TYPE_CHECKING."""
    found = {
        (module, target)
        for module in MODULES
        if module
        for target in imported(module)
        if ORDER.index(room(target)) > ORDER.index(room(module))
    }
    assert found == set(), "an import from a room above: move down what is needed"


def test_no_modules_import_each_other() -> None:
    assert circles() == []


@pytest.mark.parametrize("name", sorted({m.split(".")[0] for m in MODULES if "." in m}))
def test_a_room_says_what_belongs_there_and_imports_nothing(name: str) -> None:
    path = ROOT / name / "__init__.py"
    assert ast.get_docstring(ast.parse(path.read_text()))
    if name != "cli":
        assert names(path) == set()


def test_modules_are_short() -> None:
    """A module of more than 500 lines has more than one subject: split it."""
    found = {name for name, path in MODULES.items() if len(path.read_text().splitlines()) > 500}
    assert found == LONG


def test_functions_are_short() -> None:
    """A function of more than 60 lines does more than one thing: split it."""
    found = {
        (name, node.name)
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    }
    assert found == set()


def test_any_is_where_nothing_else_can_be() -> None:
    found = {
        name: sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for node in ast.walk(ast.parse(path.read_text()))
        )
        for name, path in MODULES.items()
        if name.split(".")[0] in TYPED_ROOMS
    }
    more = {name: n for name, n in found.items() if n > ANY.get(name, (0, ""))[0]}
    assert more == {}, "use a type or a Protocol, or give the reason in ANY"


@cache
def defined(path: Path) -> frozenset[str]:
    """Return the names that a module defines itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


def test_names_are_imported_from_where_they_are_defined() -> None:
    """`mpi_types` is an exception: it gives types of mpi4py to modules that may not import it."""
    found = {
        (module, name)
        for module, path in MODULES.items()
        if module
        for name in names(path)
        if (home := name.removeprefix("xupc.").rpartition(".")[0]) in MODULES.keys() - {""}
        and name.startswith("xupc.")
        and name.removeprefix("xupc.") not in MODULES
        and not name.endswith("._core")
        and home != "comm.mpi_types"
        and name.rpartition(".")[2] not in defined(MODULES[home]) | {"*"}
    }
    assert found == set()


def test_words_are_all_that_is_outside_of_rooms() -> None:
    found = {module for module in MODULES if module and "." not in module}
    rooms = {module.split(".")[0] for module in MODULES if "." in module}
    assert found - rooms == WORDS | {"upc", "__main__"}


def test_mpi4py_is_imported_in_one_module_and_in_threads_of_benchmarks() -> None:
    """`comm.mpi_types` imports it for type checkers alone."""
    users = {
        module
        for module, path in MODULES.items()
        if not module.startswith("cli")
        and any(name.split(".")[0] == "mpi4py" for name in names(path))
    }
    assert users == MPI_USERS


def test_import_xupc_starts_no_mpi() -> None:
    code = "import sys, xupc; print('mpi4py' in sys.modules, xupc.Flags.PULL, xupc.Op.ADD)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False")
