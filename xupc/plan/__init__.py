"""Plans: an algorithm is traced once per call signature and leaves straight-line steps."""

from .recorder import Operand, Recorder, trace
from .steps import Plan

__all__ = ["Operand", "Plan", "Recorder", "trace"]
