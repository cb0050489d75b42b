"""Which collectives are measured; a launcher reads this without starting MPI."""

from __future__ import annotations

__all__ = ["COLLECTIVES", "ITEM", "REDUCED", "ROOTED", "SUITES", "UNEVEN", "VALUES"]

VALUES, UNEVEN = "values_", "uneven_"
"""How names of collectives on private arrays begin, and those with blocks of uneven sizes."""
_ARRAYS = "broadcast", "scatter", "gather", "gather_all", "exchange", "reduce", "allreduce", "scan"
SUITES = {
    "moves": ("broadcast", "scatter", "gather", "gather_all", "barrier"),
    "computations": ("exchange", "broadcast_in_place", "reduce", "allreduce", "scan"),
    "values": tuple(f"{VALUES}{name}" for name in _ARRAYS),
    "uneven": (f"{UNEVEN}gather_all", f"{UNEVEN}exchange"),
}
COLLECTIVES = tuple(name for names in SUITES.values() for name in names)
ROOTED = ("broadcast", "broadcast_in_place", "scatter", "gather", "reduce")
REDUCED = ("reduce", "allreduce", "scan")
ITEM = 8  # bytes of a float64
