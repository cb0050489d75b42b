"""Import the native core if it is installed.

``core`` is the compiled module, or None if xupc was installed without a compiler. Then the
Python engine runs, and ``why_not`` gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["caches", "core", "empty_caches", "invalidate", "invalidations", "why_not"]

core: Any = None
why_not = ""
caches: list[Callable[[], object]] = []
"""The functions that empty the caches of calls outside of the core."""
try:
    core = import_module("xupc.backends.native._core")
except ImportError as e:
    why_not = str(e)


_invalidations = 0


def invalidate() -> None:
    """Invalidate all cached calls after a change of the job's state."""
    global _invalidations
    _invalidations += 1
    if core is not None:
        core.invalidate()


def invalidations() -> int:
    """Return the number of changes so far: what was usable at the same number still is."""
    return _invalidations


def empty_caches() -> None:
    """Drop all cached calls, and the objects that only they refer to."""
    for empty in caches:
        empty()
    if core is not None:
        core.empty_caches()
