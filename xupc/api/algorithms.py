"""Variants of algorithms that a program registers for itself."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from typing import Any, TypeVar

from ..algorithms import registry
from ..algorithms.conditions import CallFacts
from ..algorithms.registry import Variant
from ..errors import FlagError, show
from ..flags import ALGORITHM_NAMES, with_variant
from ..pgas.integer_arguments import as_integer
from ..tuning.selection import public_name, registered_name

__all__ = ["VARIABLE", "algorithm", "load_files"]

VARIABLE = "XUPC_ALGORITHMS"
"""Python files that register variants, with ``:`` in between; they run when xupc starts."""

F = TypeVar("F", bound=Callable[..., None])


def algorithm(
    collective: str,
    flag: int,
    name: str,
    summary: str,
    applies: Callable[[CallFacts], bool] | None = None,
) -> Callable[[F], F]:
    """Register the decorated function as a variant of a collective's algorithm, on all threads.

    A call uses it where it is asked for: by ``algorithm="multicore:NAME"``, or by a rule of the
    selection table. Before its first run in a placement, with a block size and a root, the library
    simulates it there, a call under ALLSYNC under MYSYNC too. It refuses a variant that has a race
    or a deadlock, or moves a wrong byte.

    Parameters
    ----------
    collective : str
        One that moves blocks: ``"all_gather_all"``, ``"all_exchange_in_place"``,
        ``"allav_gather"``, ...
    flag : Flags
        ``xupc.PULL``, ``xupc.PUSH`` or ``xupc.MULTICORE``: how it moves them.
    name : str
        An identifier that no other variant of the collective under this flag has.
    summary : str
        Its idea in one sentence; `xupc algorithms` shows it.
    applies : callable, optional
        Takes the facts of a call (`nbytes`, `size`, `tree`, `one_node`, `largest_node`, `tuning`,
        `sync`) and returns whether the variant can carry it out. The first line of its docstring
        says so in words. Default: everywhere.

    Returns
    -------
    callable
        Takes the function ``f(t, ...)`` and returns it unchanged. `t` is the recorder
        (`xupc.plan.recorder.Recorder`); docs/how-to/write-a-variant.md lists the other arguments.

    Raises
    ------
    ValueError, TypeError, FlagError
        An argument is wrong, or the name is taken.
    """
    registered, number = _checked(collective, flag, name, summary)

    def add(function: F) -> F:
        variant = Variant(registered, number, name, summary, function, applies, own=True)
        if not _again(variant):
            registry.register(variant)
        return function

    return add


def _checked(collective: Any, flag: Any, name: Any, summary: Any) -> tuple[str, int]:
    """Return the registered name of the collective and the flag; raise if anything is wrong."""
    # a running program must not import the simulator in a call
    from ..backends.simulator.proof import PROVABLE

    call = "xupc.algorithm"
    registered = registered_name(collective) if isinstance(collective, str) else ""
    if registered not in PROVABLE or public_name(registered) != collective:
        expected = ", ".join(sorted(map(public_name, PROVABLE)))
        raise ValueError(f"{call}: collective: expected one of {expected}, got {show(collective)}")
    number = as_integer(flag, call, "flags")
    if number not in ALGORITHM_NAMES:
        raise FlagError(f"{call}: flag: expected PULL, PUSH or MULTICORE, got {show(flag)}")
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{call}: name: expected an identifier like ring, got {show(name)}")
    if not isinstance(summary, str) or not summary.strip():
        raise ValueError(f"{call}: summary: expected one sentence, got {show(summary)}")
    with_variant(number, name)
    registry.find(registered, number)  # the library's own are tried first
    return registered, number


def _again(variant: Variant) -> bool:
    """Return whether the same function, from a file that runs twice, has the name already."""
    for other in registry.find(variant.collective, variant.flag).variants:
        if other.own and other.label == variant.label:
            return _origin(other.function) == _origin(variant.function)
    return False


def _origin(function: Any) -> tuple[str, int, str]:
    code = getattr(function, "__code__", None)
    if code is None:
        return "", id(function), ""
    return os.path.realpath(code.co_filename), code.co_firstlineno, function.__qualname__


def load_files() -> None:
    """Run the files that `VARIABLE` names; they register variants."""
    for path in os.environ.get(VARIABLE, "").split(os.pathsep):
        if path:
            runpy.run_path(path, run_name="xupc_algorithms")
