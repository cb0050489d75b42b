"""What calls are known by, and when one-sided ones are over."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import xupc
from xupc.api.argument_checks import func_name
from xupc.api.one_sided import _Call

COLLECTIVES = [name for name in xupc.__all__ if name.startswith("all")] + ["barrier"]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_functions_pickle_by_name(name: str) -> None:
    function = getattr(xupc, name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function


SETS = Path(__file__).parent / "programs" / "function_with_sets.py"


def test_a_function_with_sets_has_one_name_in_all_processes() -> None:
    names = {
        subprocess.run(
            [sys.executable, str(SETS)], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in "12345"
    }  # fmt: skip
    assert len(names) == 1
    assert "__main__.f" in names.pop()


def test_functions_of_other_constants_have_other_names() -> None:
    functions = [
        eval(text)
        for text in (
            "lambda a, b: a + 1", "lambda a, b: a + 2", "lambda a, b: a + 1.0",
            "lambda a, b: a in {1, 2}", "lambda a, b: a in (1, 2)", "lambda a, b: a in {1, (2,)}",
            "lambda a, b: a in {1, 3}", "lambda a, b: a in {'1', 2}",
        )
    ]  # fmt: skip
    assert len({func_name(f) for f in functions}) == len(functions)


def test_a_one_sided_call_is_open_while_a_get_begins_a_put() -> None:
    call = _Call.__new__(_Call)
    call._open = 0
    tracked: list[Any] = []
    track = SimpleNamespace(track=lambda request, finished: tracked.append(finished))
    remote, seen = SimpleNamespace(window=track), []

    def put() -> None:
        call._track(remote, None, None)
        seen.append(call._open)

    call._track(remote, None, None, put)
    tracked.pop()()
    assert (seen, call._open) == ([2], 1)
    tracked.pop()()
    assert call._open == 0
