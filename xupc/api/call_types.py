"""Arguments of the public calls that are objects, for type checkers; no program imports this.

At run time a call takes anything, so that a wrong argument is reported on all threads
(`argument_checks`, `array_call`). A test compares these signatures with the calls' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..ops import Op
from ..pgas.shared_array import SharedArray
from ..pgas.shared_pointer import SharedPointer
from .call_cache import BoundPlan
from .handles import Handle
from .team import Team

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of the type checker: no package is needed

__all__ = [
    "Call", "all_broadcast", "all_broadcast_in_place", "all_broadcast_v", "all_broadcast_x",
    "all_exchange", "all_exchange_v", "all_exchange_x", "all_gather", "all_gather_all",
    "all_gather_all_v", "all_gather_all_x", "all_gather_v", "all_gather_x", "all_permute",
    "all_permute_v", "all_permute_x", "all_prefix_reduce", "all_reduce", "all_reduce_all",
    "all_reduce_mpi", "all_reduce_mpi_all", "all_reduce_scatter", "all_scatter", "all_scatter_v",
    "all_scatter_x", "all_suffix_reduce", "allav_broadcast", "allav_exchange", "allav_exchange_v",
    "allav_gather", "allav_gather_all", "allav_gather_all_v", "allav_gather_v", "allav_permute",
    "allav_prefix_reduce", "allav_reduce", "allav_reduce_all", "allav_reduce_scatter",
    "allav_scatter", "allav_scatter_v", "allav_suffix_reduce",
]  # fmt: skip

P = ParamSpec("P")


class DlpackTensor(Protocol):
    """A tensor of another library; its memory must be on the CPU."""

    @property
    def __dlpack__(self) -> Any:
        """Method of the protocol."""


class MpiOperation(Protocol):
    """An operation of mpi4py, such as ``MPI.SUM``."""

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:  # noqa: N802
        """Combine two buffers."""


Shared: TypeAlias = "SharedArray | SharedPointer"
Ints: TypeAlias = "Shared | Sequence[int] | NDArray[Any]"
Counts: TypeAlias = "Sequence[int] | NDArray[Any]"
Pointers: TypeAlias = "Shared | Sequence[Shared | None] | NDArray[Any]"
Memory: TypeAlias = "NDArray[Any] | Buffer | DlpackTensor"
Values: TypeAlias = "Memory | list[Any] | tuple[Any, ...]"
Operation: TypeAlias = "Op | np.ufunc | MpiOperation"
Function: TypeAlias = "Callable[..., Any] | None"
Number: TypeAlias = SupportsIndex


class Call(Protocol[P]):
    """A collective call, and what makes plans of it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Handle | Any:
        """Make the call: None, or a handle with ASYNC."""

    __name__: str

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> BoundPlan:
        """Return a plan bound to these arguments; collective itself."""
        raise NotImplementedError


def _call(arguments: Callable[P, None]) -> Call[P]:
    return cast("Call[P]", arguments)


# --- shared arrays -------------------------------------------------------------------------------


@_call
def all_broadcast(
    dst: Shared, src: Shared | None, nbytes: Number, flags: int = 0, *,
    team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of the collectives of blocks."""


all_scatter = all_gather = all_gather_all = all_exchange = all_broadcast


@_call
def all_broadcast_in_place(
    buf: Shared, nbytes: Number, flags: int = 0, *,
    team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of the broadcast in place."""


@_call
def all_permute(
    dst: Shared, src: Shared | None, perm: Ints, nbytes: Number, flags: int = 0, *,
    team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of permute."""


@_call
def all_reduce(
    dst: Shared, src: Shared | None, op: Operation, nelems: Number | None = None,
    blk_size: Number | None = None, func: Function = None, flags: int = 0, *,
    team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of reductions and scans."""


all_reduce_all = all_reduce_mpi = all_reduce_mpi_all = all_reduce
all_prefix_reduce = all_suffix_reduce = all_reduce


@_call
def all_reduce_scatter(
    dst: Shared, src: Shared, op: Operation, nelems: Number, func: Function = None,
    flags: int = 0, *, team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of the reduction of blocks."""


@_call
def all_broadcast_v(
    dst: Shared, src: Shared, ddisp: Ints, nelems: Number | Ints, flags: int = 0, *,
    dst_blk: Number | None = None, typesize: Number | None = None, team: Team | None = None,
    algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of the broadcast to displacements."""


@_call
def all_scatter_v(
    dst: Shared, src: Shared, ddisp: Ints, sdisp: Ints, nelems: Ints, flags: int = 0, *,
    dst_blk: Number | None = None, src_blk: Number | None = None,
    typesize: Number | None = None, team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of collectives of blocks at displacements."""


all_gather_v = all_gather_all_v = all_exchange_v = all_scatter_v


@_call
def all_permute_v(
    dst: Shared, src: Shared, perm: Ints, ddisp: Ints, sdisp: Ints, nelems: Ints,
    flags: int = 0, *, dst_blk: Number | None = None, src_blk: Number | None = None,
    typesize: Number | None = None, team: Team | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of permute of blocks at displacements."""


@_call
def all_broadcast_x(
    dst: Pointers, src: Pointers, nbytes: Number | Ints, flags: int = 0,
    team: Team | None = None, *, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of collectives of blocks at pointers."""


all_scatter_x = all_gather_x = all_gather_all_x = all_exchange_x = all_broadcast_x


@_call
def all_permute_x(
    dst: Pointers, src: Pointers, perm: Ints, nbytes: Ints, flags: int = 0,
    team: Team | None = None, *, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of permute of blocks at pointers."""


# --- private arrays ------------------------------------------------------------------------------


@_call
def allav_broadcast(
    values: Memory, root: Number, flags: int = 0, team: Team | None = None, *,
    algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of the broadcast."""


@_call
def allav_scatter(
    dst: Memory, src: Values | None, root: Number, flags: int = 0, team: Team | None = None, *,
    algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of scatter."""


@_call
def allav_gather(
    dst: Memory | None, src: Values, root: Number, flags: int = 0, team: Team | None = None, *,
    algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of gather."""


@_call
def allav_gather_all(
    dst: Memory, src: Values | None, flags: int = 0, team: Team | None = None, *,
    algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of gather_all and exchange."""


allav_exchange = allav_gather_all


@_call
def allav_permute(
    dst: Memory, src: Values | None, to: Number, flags: int = 0, team: Team | None = None, *,
    algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of permute."""


@_call
def allav_reduce(
    dst: Memory | None, src: Values, op: Operation, root: Number, func: Function = None,
    flags: int = 0, team: Team | None = None, *, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of the reduction to one thread."""


@_call
def allav_reduce_all(
    dst: Memory, src: Values | None, op: Operation, func: Function = None, flags: int = 0,
    team: Team | None = None, *, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of reductions to all threads, and of scans."""


allav_prefix_reduce = allav_suffix_reduce = allav_reduce_scatter = allav_reduce_all


@_call
def allav_gather_v(
    dst: Memory | None, src: Values, counts: Counts | None, root: Number, flags: int = 0,
    team: Team | None = None, *, displs: Counts | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of gather of blocks of any size."""


@_call
def allav_scatter_v(
    dst: Memory, src: Values | None, counts: Counts | None, root: Number, flags: int = 0,
    team: Team | None = None, *, displs: Counts | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of scatter of blocks of any size."""


@_call
def allav_gather_all_v(
    dst: Memory, src: Values | None, counts: Counts, flags: int = 0, team: Team | None = None, *,
    displs: Counts | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of gather_all of blocks of any size."""


@_call
def allav_exchange_v(
    dst: Memory, src: Values, recv_counts: Counts, send_counts: Counts, flags: int = 0,
    team: Team | None = None, *, recv_displs: Counts | None = None,
    send_displs: Counts | None = None, algorithm: str | None = None,
) -> None:  # fmt: skip
    """Take the arguments of exchange of blocks of any size."""
