"""The algorithms, one file per collective, PULL, PUSH and MULTICORE side by side.

A file is imported when an algorithm of its collectives is first looked up. A new one needs its
decorator, and its collective a line in `registry.HOMES`.
"""

from .registry import Entry, algorithm, collectives, find, registered

__all__ = ["Entry", "algorithm", "collectives", "find", "registered"]
