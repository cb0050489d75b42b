"""Print the name of a function whose code holds sets, in an order that varies. No arguments."""

from __future__ import annotations

from typing import Any

from xupc.api.argument_checks import func_name


def f(a: Any, b: Any) -> Any:
    return a if "x" in {"x", "yy", "zzz", ("t", 1), b"b"} else (lambda: a in {"x", "yy", "zzz"})


print(func_name(f))
