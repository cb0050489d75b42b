"""xupc: a partitioned global address space and machine-aware collectives for Python.

>>> import xupc                                                  # doctest: +SKIP
>>> with xupc.init() as team:                                    # doctest: +SKIP
...     A = xupc.all_alloc(4 * xupc.THREADS, "f8", 4)
...     B = xupc.all_alloc(4 * xupc.THREADS, "f8", 4)
...     A.local[:] = xupc.MYTHREAD
...     xupc.all_broadcast(B, A + 4, 32)

Importing it starts nothing; MPI starts at :func:`init`. A name other than errors, flags, operations
and timers is imported from its module when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AffinityError,
    CollectiveMismatchError,
    DeadThreadError,
    FlagError,
    HangError,
    HeapError,
    NotInitializedError,
    OverlapError,
    XupcError,
)
from .flags import Flags
from .ops import Op, vectorized
from .ticks import TICK_MAX, TICK_MIN, ticks_now, ticks_to_ns

if TYPE_CHECKING:
    from .api.algorithms import algorithm
    from .api.allocation import all_alloc, all_free, alloc, free, global_alloc
    from .api.barriers import barrier, fence, notify, wait
    from .api.call_types import (
        all_broadcast,
        all_broadcast_in_place,
        all_broadcast_v,
        all_broadcast_x,
        all_exchange,
        all_exchange_v,
        all_exchange_x,
        all_gather,
        all_gather_all,
        all_gather_all_v,
        all_gather_all_x,
        all_gather_v,
        all_gather_x,
        all_permute,
        all_permute_v,
        all_permute_x,
        all_prefix_reduce,
        all_reduce,
        all_reduce_all,
        all_reduce_mpi,
        all_reduce_mpi_all,
        all_reduce_scatter,
        all_scatter,
        all_scatter_v,
        all_scatter_x,
        all_suffix_reduce,
        allav_broadcast,
        allav_exchange,
        allav_exchange_v,
        allav_gather,
        allav_gather_all,
        allav_gather_all_v,
        allav_gather_v,
        allav_permute,
        allav_prefix_reduce,
        allav_reduce,
        allav_reduce_all,
        allav_reduce_scatter,
        allav_scatter,
        allav_scatter_v,
        allav_suffix_reduce,
    )
    from .api.handles import Handle, wait_all
    from .api.job_end import finalize
    from .api.lifecycle import init
    from .api.neighbour_exchange import all_neighbour_exchange, allav_neighbour_exchange
    from .api.neighbours import Neighbours, cartesian, neighbours
    from .api.node_arrays import node_array, node_broadcast
    from .api.one_sided import broadcast, exchange, gather, scatter
    from .api.scalars import (
        allv_broadcast,
        allv_exchange,
        allv_gather,
        allv_gather_all,
        allv_permute,
        allv_prefix_reduce,
        allv_reduce,
        allv_reduce_all,
        allv_reduce_scatter,
        allv_scatter,
        allv_suffix_reduce,
    )
    from .api.team import Team
    from .mpi.communicators import Comm as Comm
    from .pgas.copy import memcpy, memget, memput, memset
    from .pgas.forall import forall
    from .pgas.pointer_record import pointer_dtype
    from .pgas.shared_array import SharedArray
    from .pgas.shared_pointer import SharedPointer
    from .runtime.call_hooks import hooks

__version__ = "0.1.0"

IN_NOSYNC = Flags.IN_NOSYNC
IN_MYSYNC = Flags.IN_MYSYNC
IN_ALLSYNC = Flags.IN_ALLSYNC
OUT_NOSYNC = Flags.OUT_NOSYNC
OUT_MYSYNC = Flags.OUT_MYSYNC
OUT_ALLSYNC = Flags.OUT_ALLSYNC
PULL = Flags.PULL
PUSH = Flags.PUSH
MULTICORE = Flags.MULTICORE
IN_PLACE = Flags.IN_PLACE
ASYNC = Flags.ASYNC
REPRODUCIBLE = Flags.REPRODUCIBLE
EXCLUSIVE = Flags.EXCLUSIVE

ADD = Op.ADD
MULT = Op.MULT
AND = Op.AND
OR = Op.OR
XOR = Op.XOR
LOGAND = Op.LOGAND
LOGOR = Op.LOGOR
MIN = Op.MIN
MAX = Op.MAX
MINLOC = Op.MINLOC
MAXLOC = Op.MAXLOC
FUNC = Op.FUNC
NONCOMM_FUNC = Op.NONCOMM_FUNC

THREADS: int
MYTHREAD: int

_HOMES = {  # module: the public names that are imported from it when they are first asked for
    "api.algorithms": "algorithm",
    "api.allocation": "all_alloc all_free alloc free global_alloc",
    "api.barriers": "barrier fence notify wait",
    "api.collectives":
        "all_broadcast all_broadcast_in_place all_exchange all_gather all_gather_all "
        "all_permute all_scatter",
    "api.handles": "Handle wait_all",
    "api.neighbour_exchange": "all_neighbour_exchange allav_neighbour_exchange",
    "api.neighbours": "Neighbours cartesian neighbours",
    "api.node_arrays": "node_array node_broadcast",
    "api.one_sided": "broadcast exchange gather scatter",
    "api.reductions":
        "all_prefix_reduce all_reduce all_reduce_all all_reduce_mpi all_reduce_mpi_all "
        "all_reduce_scatter all_suffix_reduce",
    "api.vector_collectives":
        "all_broadcast_v all_broadcast_x all_exchange_v all_exchange_x all_gather_all_v "
        "all_gather_all_x all_gather_v all_gather_x all_permute_v all_permute_x "
        "all_scatter_v all_scatter_x",
    "api.job_end": "finalize",
    "api.lifecycle": "init",
    "api.scalars":
        "allv_broadcast allv_exchange allv_gather allv_gather_all allv_permute "
        "allv_prefix_reduce allv_reduce allv_reduce_all allv_reduce_scatter allv_scatter "
        "allv_suffix_reduce",
    "pgas.copy": "memcpy memget memput memset",
    "pgas.forall": "forall",
    "pgas.pointer_record": "pointer_dtype",
    "pgas.shared_array": "SharedArray",
    "pgas.shared_pointer": "SharedPointer",
    "runtime.call_hooks": "hooks",
    "api.team": "Team",
    "api.private_arrays":
        "allav_broadcast allav_exchange allav_exchange_v allav_gather allav_gather_all "
        "allav_gather_all_v allav_gather_v allav_permute allav_prefix_reduce allav_reduce "
        "allav_reduce_all allav_reduce_scatter allav_scatter allav_scatter_v allav_suffix_reduce",
}
_STARTS_MPI = {"Comm": "mpi.communicators"}  # names that import mpi4py: at their first use only
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()} | _STARTS_MPI


def __getattr__(name: str) -> Any:
    if name == "THREADS" or name == "MYTHREAD":
        from .runtime import current

        return current.threads().size if name == "THREADS" else current.threads().rank
    if name not in _HOME:
        raise AttributeError(f"module 'xupc' has no attribute {name!r}")
    if name == "init":
        _load_all()
    if name in _STARTS_MPI:
        import_module(".comm.mpi_settings", __name__).prepare_start()
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def _load_all() -> None:
    """Import what calls need: an import in a call may be interrupted, or find no descriptor."""
    for module in _HOMES:
        import_module(f".{module}", __name__)
    import_module(".algorithms.registry", __name__).registered()
    import_module(".api.algorithms", __name__).load_files()


def __dir__() -> list[str]:
    there = (name for name in globals() if name.startswith("__") or name in _STARTS_MPI)
    return sorted({*__all__, *there})


# Not THREADS and MYTHREAD, which there are after init only, and not Comm, which imports mpi4py.
__all__ = [
    "ADD",
    "AND",
    "ASYNC",
    "EXCLUSIVE",
    "FUNC",
    "IN_ALLSYNC",
    "IN_MYSYNC",
    "IN_NOSYNC",
    "IN_PLACE",
    "LOGAND",
    "LOGOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "MULT",
    "MULTICORE",
    "NONCOMM_FUNC",
    "OR",
    "OUT_ALLSYNC",
    "OUT_MYSYNC",
    "OUT_NOSYNC",
    "PULL",
    "PUSH",
    "REPRODUCIBLE",
    "TICK_MAX",
    "TICK_MIN",
    "XOR",
    "AffinityError",
    "CollectiveMismatchError",
    "DeadThreadError",
    "FlagError",
    "Flags",
    "Handle",
    "HangError",
    "HeapError",
    "Neighbours",
    "NotInitializedError",
    "Op",
    "OverlapError",
    "SharedArray",
    "SharedPointer",
    "Team",
    "XupcError",
    "all_alloc",
    "all_broadcast",
    "all_broadcast_in_place",
    "all_broadcast_v",
    "all_broadcast_x",
    "all_exchange",
    "all_exchange_v",
    "all_exchange_x",
    "all_free",
    "all_gather",
    "all_gather_all",
    "all_gather_all_v",
    "all_gather_all_x",
    "all_gather_v",
    "all_gather_x",
    "all_neighbour_exchange",
    "all_permute",
    "all_permute_v",
    "all_permute_x",
    "all_prefix_reduce",
    "all_reduce",
    "all_reduce_all",
    "all_reduce_mpi",
    "all_reduce_mpi_all",
    "all_reduce_scatter",
    "all_scatter",
    "all_scatter_v",
    "all_scatter_x",
    "all_suffix_reduce",
    "algorithm",
    "alloc",
    "allav_broadcast",
    "allav_exchange",
    "allav_exchange_v",
    "allav_gather",
    "allav_gather_v",
    "allav_gather_all",
    "allav_neighbour_exchange",
    "allav_gather_all_v",
    "allav_permute",
    "allav_prefix_reduce",
    "allav_reduce",
    "allav_reduce_all",
    "allav_reduce_scatter",
    "allav_scatter",
    "allav_scatter_v",
    "allav_suffix_reduce",
    "allv_broadcast",
    "allv_exchange",
    "allv_gather",
    "allv_gather_all",
    "allv_permute",
    "allv_prefix_reduce",
    "allv_reduce",
    "allv_reduce_all",
    "allv_reduce_scatter",
    "allv_scatter",
    "allv_suffix_reduce",
    "barrier",
    "broadcast",
    "cartesian",
    "exchange",
    "fence",
    "finalize",
    "forall",
    "free",
    "gather",
    "global_alloc",
    "hooks",
    "init",
    "memcpy",
    "memget",
    "memput",
    "memset",
    "neighbours",
    "node_array",
    "node_broadcast",
    "notify",
    "pointer_dtype",
    "scatter",
    "ticks_now",
    "ticks_to_ns",
    "vectorized",
    "wait",
    "wait_all",
]
