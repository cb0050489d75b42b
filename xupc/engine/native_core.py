"""Whether the native core is there: one place that tries to import it.

``core`` is the compiled module, or None where xupc was installed without a compiler;
then the Python engine runs and ``why_not`` says why.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["core", "forget_calls", "invalidate", "why_not"]

core: Any = None
why_not = ""
try:
    core = import_module("xupc.engine._core")
except ImportError as e:
    why_not = str(e)


def invalidate() -> None:
    """No cached call may run again without being looked at: something changed."""
    if core is not None:
        core.invalidate()


def forget_calls() -> None:
    """Drop all cached calls, and with them what they keep alive."""
    if core is not None:
        core.forget_calls()
