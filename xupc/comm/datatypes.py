"""The memory of messages: grids of blocks, and the MPI datatypes that describe them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from ..backends.native.native_core import core

if TYPE_CHECKING:
    from .mpi_types import BufferSpec, Datatype

__all__ = ["TYPES", "Datatypes", "Grid"]

TYPES = 256  # datatypes that are kept


class Grid(NamedTuple):
    """Blocks in `rows` rows, `row_stride` bytes apart, of `columns`, `stride` bytes apart."""

    address: int
    nbytes: int
    columns: int = 1
    stride: int = 0
    rows: int = 1
    row_stride: int = 0

    @classmethod
    def of(
        cls, address: int, nbytes: int, columns: int, stride: int, rows: int, row_stride: int
    ) -> Grid:
        """Return the same bytes in the same order, adjacent blocks merged."""
        if stride == nbytes or columns == 1:
            nbytes, columns, stride = nbytes * columns, rows, row_stride
            rows, row_stride = 1, 0
            if stride == nbytes or columns == 1:
                nbytes, columns, stride = nbytes * columns, 1, 0
        elif rows == 1:
            row_stride = 0
        return cls(address, nbytes, columns, stride, rows, row_stride)

    @property
    def span(self) -> int:
        """Return the bytes from the first to the last. Strides are never negative."""
        return (self.rows - 1) * self.row_stride + (self.columns - 1) * self.stride + self.nbytes

    def each(self) -> Iterator[tuple[int, int]]:
        """Yield the address and bytes of each block."""
        for k in range(self.rows):
            for i in range(self.columns):
                yield self.address + k * self.row_stride + i * self.stride, self.nbytes


class Datatypes:
    """A cache of MPI datatypes, by the grids that they describe.

    Parameters
    ----------
    mpi
        The module ``mpi4py.MPI``.

    Attributes
    ----------
    freed
        How many datatypes have been freed that a `spec` may name.
    """

    def __init__(self, mpi: ModuleType) -> None:
        self.mpi = mpi
        self._types: dict[tuple[Grid, ...], Datatype] = {}
        self.freed = 0

    def spec(self, grids: Sequence[Grid], shift: int = 0) -> BufferSpec:
        """Return a buffer description of all blocks of the grids, moved by `shift` bytes."""
        address, span, n, datatype = self.shape(grids)
        return [self.mpi.buffer.fromaddress(address + shift, span), n, datatype]

    def shape(self, grids: Sequence[Grid]) -> tuple[int, int, int, Datatype]:
        """Return the address, span, count and datatype of all blocks of the grids."""
        first = grids[0]
        if len(grids) == 1 and first.columns == 1:
            return first.address, first.nbytes, first.nbytes, self.mpi.BYTE
        low = min(grid.address for grid in grids)
        key = tuple([grid._replace(address=grid.address - low) for grid in grids])
        datatype = self._types.pop(key, None)
        if datatype is None:
            if len(self._types) >= TYPES:
                self._types.pop(next(iter(self._types))).Free()
                self.freed += 1
                if core is not None:
                    core.type_freed()
            datatype = self._datatype(key)
        self._types[key] = datatype  # most recently used: the first key is the oldest
        return low, max(grid.address + grid.span for grid in key), 1, datatype

    def _datatype(self, grids: Sequence[Grid]) -> Datatype:
        """Make a datatype of grids whose addresses count from the start of the buffer."""
        byte: Datatype = self.mpi.BYTE
        if all(grid.columns == 1 for grid in grids):
            sizes, places = [g.nbytes for g in grids], [g.address for g in grids]
            return byte.Create_hindexed(sizes, places).Commit()
        parts = []
        for grid in grids:
            part = byte.Create_hvector(grid.columns, grid.nbytes, grid.stride)
            if grid.rows > 1:
                row, part = part, part.Create_hvector(grid.rows, 1, grid.row_stride)
                row.Free()
            parts.append(part)
        if len(grids) == 1:
            return parts[0].Commit()
        places = [grid.address for grid in grids]
        whole: Datatype = self.mpi.Datatype.Create_struct([1] * len(parts), places, parts).Commit()
        for part in parts:
            part.Free()
        return whole

    def free(self) -> None:
        """Free all datatypes."""
        for datatype in self._types.values():
            datatype.Free()
        self._types.clear()
