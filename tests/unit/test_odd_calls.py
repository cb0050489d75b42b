"""The trials of calls that differ (programs/differing_call_trials.py) leave out no collective."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

import xupc

TABLE = Path(__file__).resolve().parents[1] / "live" / "programs" / "differing_calls.py"
# Public names that are no collective calls: what one thread does by itself, types, constants.
ALONE = {
    "algorithm", "alloc", "broadcast", "exchange", "fence", "forall", "free", "gather",
    "global_alloc", "memcpy", "memget", "memput", "memset", "pointer_dtype", "scatter",
    "ticks_now", "ticks_to_ns", "vectorized", "wait_all",
}  # fmt: skip
# Swept elsewhere: init by test_launch, finalize by mismatch.py, wait together with notify.
ELSEWHERE = {"init", "finalize", "wait", "hooks"}
METHODS = {"split", "free"}  # of a Team; its others are functions'


def load() -> Any:
    spec = importlib.util.spec_from_file_location("differing_calls", TABLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["odd_calls"] = module
    spec.loader.exec_module(module)
    return module


FORMS = load().FORMS


def public() -> dict[str, Any]:
    """Every public collective by the name that it has in the table."""
    functions = {
        name: getattr(xupc, name)
        for name in xupc.__all__
        if name[0].islower() and name not in ALONE | ELSEWHERE
    }
    plans = {f"{name}.plan": f.plan for name, f in functions.items() if hasattr(f, "plan")}
    return functions | plans | {f"Team.{name}": getattr(xupc.Team, name) for name in METHODS}


def parameters(name: str, function: Any) -> set[str]:
    """The arguments of a collective, whatever kind of object it is."""
    owner = getattr(function, "__self__", function)
    if name.endswith(".plan"):
        function = owner
    if hasattr(function, "names"):  # on private arrays
        return set(function.names)
    if hasattr(function, "arguments"):  # blocks anywhere
        return set(inspect.signature(function.arguments).parameters)
    if hasattr(function, "_value"):  # a barrier
        return set(inspect.signature(function._value).parameters)
    for checks in ("_check", "_prepare"):
        if hasattr(function, checks):
            return set(inspect.signature(getattr(function, checks)).parameters)
    # A variant by name is flags in all that follows, as in the functions above.
    return set(inspect.signature(function).parameters) - {"self", "algorithm"}


def test_every_public_collective_is_there() -> None:
    assert set(FORMS) == set(public())


@pytest.mark.parametrize("name", sorted(public()))
def test_every_argument_is_there(name: str) -> None:
    form = FORMS[name]
    given = parameters(name, public()[name])
    assert set(form.odd) - set(form.own) <= given <= set(form.odd) | set(form.own)


@pytest.mark.parametrize("name", sorted(public()))
def test_every_argument_is_varied(name: str) -> None:
    form = FORMS[name]
    # Two teams that wait for each other are no difference in one call: see test_mismatch.
    alone = {"team", *form.own}
    assert not [argument for argument, odd in form.odd.items() if not odd and argument not in alone]
