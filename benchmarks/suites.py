"""Which collectives are measured; a launcher reads this without starting MPI."""

from __future__ import annotations

__all__ = ["COLLECTIVES", "ITEM", "REDUCED", "ROOTED", "SUITES"]

SUITES = {
    "moves": ("broadcast", "scatter", "gather", "gather_all", "barrier"),
    "computations": ("exchange", "broadcast_in_place", "reduce", "allreduce", "scan"),
}
COLLECTIVES = tuple(name for names in SUITES.values() for name in names)
ROOTED = ("broadcast", "broadcast_in_place", "scatter", "gather", "reduce")
REDUCED = ("reduce", "allreduce", "scan")
ITEM = 8  # bytes of a float64
