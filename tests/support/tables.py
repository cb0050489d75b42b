"""Selection tables of several tests."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SOME_BY_MPI"]

SOME_BY_MPI = {"XUPC_TUNING": str(Path(__file__).with_name("some_by_mpi.toml"))}
"""The variable of a table that gives barriers and blocks from 5,000 bytes on to MPI."""
