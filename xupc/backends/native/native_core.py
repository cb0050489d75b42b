"""Whether the native core is there: one place that tries to import it.

``core`` is the compiled module, or None where xupc was installed without a compiler;
then the Python engine runs and ``why_not`` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["caches", "core", "empty_caches", "invalidate", "why_not"]

core: Any = None
why_not = ""
caches: list[Callable[[], object]] = []
"""What empties each cache of calls that is not in the core."""
try:
    core = import_module("xupc.backends.native._core")
except ImportError as e:
    why_not = str(e)


def invalidate() -> None:
    """No cached call may run again without being looked at: something changed."""
    if core is not None:
        core.invalidate()


def empty_caches() -> None:
    """Forget all remembered calls, and with them what only they refer to."""
    for empty in caches:
        empty()
    if core is not None:
        core.empty_caches()
