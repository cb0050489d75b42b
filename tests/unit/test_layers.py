"""A room (package) imports only from rooms below it; what still does otherwise is listed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import xupc

ROOT = Path(xupc.__file__).parent

# From below: a module imports from its own room and from those before it. The first ones
# are modules of words that all rooms use.
ORDER = [
    "errors", "flags", "ops", "ticks", "fingerprint", "records", "specs", "topology", "pgas",
    "plan",
    "algorithms", "reduction", "backends.native", "backends.simulator", "tuning", "comm",
    "backends.interpreter", "health", "runtime", "api", "upc", "bench", "report", "cli", "__main__",
]  # fmt: skip
WORDS = {"errors", "flags", "ops", "ticks", "fingerprint", "records", "specs"}

# Imports from a room above: module, imported module. This list may only become shorter.
UPWARDS = {
    ("backends.interpreter.interpreter", "health.control_segment"),
    ("backends.interpreter.interpreter", "runtime.executor"),
    ("backends.interpreter.interpreter", "runtime.operand_binding"),
    ("bench.driver", "cli.launcher"),
    ("bench.driver", "cli.mpi"),
    ("comm.plan_messages", "health.mismatch_recovery"),
    ("comm.plan_messages", "runtime.job"),
    ("comm.plan_messages", "runtime.operand_binding"),
    ("comm.setup_collectives", "health.mismatch_recovery"),
    ("comm.setup_collectives", "runtime.executor"),
    ("comm.setup_collectives", "runtime.job"),
    ("health.failure_detector", "runtime.executor"),
    ("health.failure_detector", "runtime.job"),
    ("health.init_watchdog", "runtime.executor"),
    ("health.mismatch_recovery", "runtime.executor"),
    ("health.mismatch_recovery", "runtime.team_state"),
    ("reduction.ufunc_capture", "backends.native.native_core"),
    ("runtime.team_state", "api.argument_checks"),
    ("runtime.team_state", "api.lifecycle"),
    ("topology.discovery", "health.init_watchdog"),
    ("topology.discovery", "pgas.segment"),
}

# Modules that import each other, some of them under TYPE_CHECKING or in functions. A circle may
# only become smaller; there is none among imports at the start of modules.
CIRCLES = [
    {
        "api.lifecycle",
        "api.team",
        "backends.interpreter.interpreter",
        "comm.plan_messages",
        "comm.setup_collectives",
        "health.failure_detector",
        "health.init_watchdog",
        "health.mismatch_recovery",
        "runtime.async_queue",
        "runtime.dropped_teams",
        "runtime.executor",
        "runtime.job",
        "runtime.team_resources",
        "runtime.team_state",
        "topology.discovery",
    },
]

# Modules over 500 lines: `upc` has the names of the documents, the others wait for a cut.
LONG = {
    "algorithms.block_transfers",
    "algorithms.reduce_across_nodes",
    "algorithms.values_across_nodes",
    "backends.simulator.simulator",
    "bench.calls",
    "bench.results",
    "bench.worker",
    "comm.mpi",
    "health.control_segment",
    "plan.recorder",
    "plan.steps",
    "reduction.kernels",
    "report.model",
    "upc",
}

MPI_USERS = {"comm.mpi", "bench.calls", "bench.machine", "bench.network_probe", "bench.worker"}
MPI_USERS = {
    "comm.mpi", "bench.host_probe", "bench.machine", "bench.network_probe", "bench.peer_calls",
    "bench.provenance", "bench.worker",
}  # fmt: skip


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def room(module: str) -> str:
    """Return the entry of the order that a module belongs to."""
    for name in ORDER:
        if module == name or module.startswith(f"{name}."):
            return name
    raise AssertionError(f"xupc.{module} is in no room: add its package to ORDER in {__file__}")


def names(path: Path, *, all_of_them: bool = True) -> set[str]:
    """Return the absolute names that a file imports, or only those imported with the module."""
    tree = ast.parse(path.read_text())
    later: set[int] = set()
    for node in ast.walk(tree):
        typing = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if typing or isinstance(node, ast.FunctionDef):
            later |= {id(inner) for inner in ast.walk(node)}
    package = ["xupc", *path.relative_to(ROOT).parent.parts]
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in later and not all_of_them:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *(node.module.split(".") if node.module else [])])
            found |= {f"{start}.{alias.name}" for alias in node.names}
    return found


def imported(module: str, *, all_of_them: bool = True) -> set[str]:
    """Return the modules of xupc that a module imports."""
    found = set()
    for name in names(MODULES[module], all_of_them=all_of_them):
        if name.startswith("xupc."):
            own = name.removeprefix("xupc.")
            found.add(own if own in MODULES else own.rpartition(".")[0])
    return found - {"", module}


def circles(*, all_of_them: bool) -> list[set[str]]:
    """Return the groups of modules that reach each other by imports."""
    direct = {m: imported(m, all_of_them=all_of_them) & MODULES.keys() for m in MODULES if m}
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
    found = {
        (module, target)
        for module in MODULES
        if module
        for target in imported(module)
        if ORDER.index(room(target)) > ORDER.index(room(module))
    }
    assert found - UPWARDS == set(), "an import from a room above: move what is needed down"
    assert UPWARDS - found == set(), "no longer needed: remove them from UPWARDS"


def test_circles_of_imports_only_become_smaller() -> None:
    assert circles(all_of_them=False) == []
    assert circles(all_of_them=True) == CIRCLES


@pytest.mark.parametrize("name", sorted({m.split(".")[0] for m in MODULES if "." in m}))
def test_a_room_says_what_belongs_there_and_imports_nothing(name: str) -> None:
    path = ROOT / name / "__init__.py"
    assert ast.get_docstring(ast.parse(path.read_text()))
    if name != "cli":
        assert names(path) == set()


def test_modules_are_short() -> None:
    """A module of more than 500 lines has more than one subject: split it."""
    found = {name for name, path in MODULES.items() if len(path.read_text().splitlines()) > 500}
    assert found - LONG == set()


def test_words_are_all_that_is_outside_of_rooms() -> None:
    found = {module for module in MODULES if module and "." not in module}
    rooms = {module.split(".")[0] for module in MODULES if "." in module}
    assert found - rooms == WORDS | {"upc", "__main__"}


def test_mpi4py_is_imported_in_one_module_and_in_threads_of_benchmarks() -> None:
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
