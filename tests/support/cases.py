"""Programs of several cases: the first argument names the function to call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

__all__ = ["case", "run_case"]

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
