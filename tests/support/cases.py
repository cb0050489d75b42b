"""Programs of several cases, or of a list CHECKS: the first argument names the function to call."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["case", "checks", "run_case"]

PROJECT = Path(__file__).resolve().parents[2]

Case = TypeVar("Case", bound=Callable[..., None])
_CASES: dict[str, Callable[..., None]] = {}


def case(function: Case) -> Case:
    """Register a function of a program; its parameters are strings, the program's arguments."""
    _CASES[function.__name__] = function
    return function


def run_case() -> None:
    """Call the function that the first argument names, with the other arguments."""
    name, *rest = sys.argv[1:]
    _CASES[name](*rest)


def checks(program: str) -> list[str]:
    """Return the names of a program's checks."""
    tree = ast.parse((PROJECT / program).read_text())
    found = next(
        node.value for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHECKS"
    )  # fmt: skip
    return [name.id for name in ast.walk(found) if isinstance(name, ast.Name)]
