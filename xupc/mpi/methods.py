"""The methods of mpi4py's intracommunicators, and what the drop-in communicator does with each.

The classes read this table, `Comm.explain` prints from it, and `scripts/from_mpi4py.py` makes
docs/from-mpi4py.md of it.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "DIFFERS", "GROUPS", "KEPT", "MPI", "TAKEN", "WRAPPED", "Group", "counted", "group_of", "names",
    "requesting",
]  # fmt: skip

KEPT = "same class"
WRAPPED = "wrapped"
MPI = "MPI"
TAKEN = "taken over"
DIFFERS = "differs"


class Group(NamedTuple):
    """Methods that are treated alike.

    Attributes
    ----------
    title : str
        What the methods are for.
    way : str
        `KEPT`: mpi4py returns a communicator of the caller's class. `WRAPPED`: mpi4py returns a
        communicator of its own class, and the drop-in returns it in a class of xupc. `MPI`: the
        call goes to MPI as it is. `TAKEN`: xupc can carry the call. `DIFFERS`: the result is not
        the same as mpi4py's.
    why : str
        The reason, or what is different.
    methods : str
        Names.
    moves : bool
        True if the methods move data or synchronise, so that ``XUPC_COMM=explain`` counts them.
    requests : bool
        True if the methods return requests, which can be awaited.
    """

    title: str
    way: str
    why: str
    methods: str
    moves: bool = False
    requests: bool = False


_NOT_YET = "not taken over yet"
_NOT_COLLECTIVE = "not a collective"

GROUPS = (
    Group(
        "Copies", KEPT, "mpi4py makes a copy in the class of the communicator",
        "Clone Dup Dup_with_info Idup Idup_with_info",
    ),
    Group(
        "New communicators", WRAPPED, "mpi4py itself would return one of its own classes",
        "Create Create_cart Create_dist_graph Create_dist_graph_adjacent Create_from_group "
        "Create_graph Create_group Shrink Split Split_type Sub",
    ),
    Group(
        "From a handle", WRAPPED, "intercommunicators and null handles come as mpi4py returns them",
        "f2py fromhandle fromint",
    ),
    Group(
        "Communicators of mpi4py's own classes", MPI,
        "intercommunicators, and one that is not complete yet (Ishrink)",
        "Accept Connect Create_intercomm Get_parent Ishrink Join Spawn Spawn_multiple",
    ),
    Group(
        "End", MPI, "`free()` has no effect on COMM_WORLD, as with mpi4py",
        "Disconnect Free free",
    ),
    Group(
        "Collectives on buffers that xupc carries", TAKEN,
        "after 64 calls of a communicator, where the tuning table does not give the call to MPI",
        "Allgather Allreduce Alltoall Barrier Bcast Exscan Gather Reduce Reduce_scatter "
        "Reduce_scatter_block Scan Scatter barrier",
        moves=True,
    ),
    Group(
        "Collectives on buffers of different sizes", TAKEN,
        "as above; the built-in table gives them to MPI; under `XUPC_COMM=force` `Gatherv`, "
        "`Scatterv` and `Alltoallv` go on by MPI where one block is much longer than the others",
        "Allgatherv Alltoallv Gatherv Scatterv",
        moves=True,
    ),
    Group(
        "Collectives on buffers of different types", MPI, _NOT_YET, "Alltoallw",
        moves=True,
    ),
    Group(
        "Collectives on objects", TAKEN,
        "as above; the built-in table gives to MPI those whose pickles have more than 64 KiB on "
        "average (gather, reduce: 16 KiB; bcast on two threads: from 64 KiB to 1 MiB), and all on "
        "several nodes or more than 4 threads; on more than 4 threads MPI's messages combine large "
        "objects, also under `XUPC_COMM=force`; large arrays of one type go as numbers",
        "allgather allreduce alltoall bcast exscan gather reduce scan scatter",
        moves=True,
    ),
    Group(
        "Nonblocking collectives that xupc carries", TAKEN,
        "on one node, after a blocking call has opened the team, where the tuning table does not "
        "give the call to MPI; MPI itself waits for their requests, alone or among others",
        "Iallgather Iallreduce Ialltoall Ibarrier Ibcast Iexscan Igather Ireduce Ireduce_scatter "
        "Ireduce_scatter_block Iscan Iscatter",
        moves=True, requests=True,
    ),
    Group(
        "Other nonblocking collectives", MPI,
        "threads would have to exchange their sizes first",
        "Iallgatherv Ialltoallv Ialltoallw Igatherv Iscatterv",
        moves=True, requests=True,
    ),
    Group(
        "Persistent collectives", MPI,
        "`MPI.Prequest.Startall` starts a persistent request inside MPI, without xupc; another "
        "thread may start the same call by `Start`",
        "Allgather_init Allgatherv_init Allreduce_init Alltoall_init Alltoallv_init Alltoallw_init "
        "Barrier_init Bcast_init Exscan_init Gather_init Gatherv_init Reduce_init "
        "Reduce_scatter_block_init Reduce_scatter_init Scan_init Scatter_init Scatterv_init",
        moves=True, requests=True,
    ),
    Group(
        "Neighbourhood collectives on buffers", TAKEN,
        "as above, on communicators with a topology; the built-in table gives them to MPI between "
        "nodes, and the v and w forms everywhere: there all threads first agree on a plan",
        "Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv "
        "Neighbor_alltoallw",
        moves=True,
    ),
    Group(
        "Nonblocking and persistent neighbourhood collectives", MPI, _NOT_YET,
        "Ineighbor_allgather Ineighbor_allgatherv Ineighbor_alltoall Ineighbor_alltoallv "
        "Ineighbor_alltoallw Neighbor_allgather_init Neighbor_allgatherv_init "
        "Neighbor_alltoall_init Neighbor_alltoallv_init Neighbor_alltoallw_init",
        moves=True, requests=True,
    ),
    Group(
        "Neighbourhood collectives on objects", MPI, _NOT_YET,
        "neighbor_allgather neighbor_alltoall",
        moves=True,
    ),
    Group(
        "Messages between two threads", MPI, _NOT_COLLECTIVE,
        "Bsend Bsend_init Ibsend Improbe Iprobe Irecv Irsend Isend Isendrecv Isendrecv_replace "
        "Issend Mprobe Precv_init Probe Psend_init Recv Recv_init Rsend Rsend_init Send Send_init "
        "Sendrecv Sendrecv_replace Ssend Ssend_init bsend ibsend improbe iprobe irecv isend issend "
        "mprobe probe recv send sendrecv ssend",
        moves=True,
    ),
    Group(
        "Buffers of messages", MPI, _NOT_COLLECTIVE,
        "Attach_buffer Detach_buffer Flush_buffer Iflush_buffer",
    ),
    Group(
        "Properties of a communicator", MPI, "the handle is the program's own, never a duplicate",
        "Compare Get_group Get_info Get_name Get_rank Get_size Get_topology Is_inter Is_intra "
        "Set_info Set_name group handle info is_inter is_intra is_topo name py2f rank size toint "
        "topology",
    ),
    Group(
        "Attributes and error handlers", MPI, "the handle is the program's own, never a duplicate",
        "Abort Call_errhandler Create_errhandler Create_keyval Delete_attr Free_keyval Get_attr "
        "Get_errhandler Set_attr Set_errhandler",
    ),
    Group(
        "Topologies", MPI, _NOT_COLLECTIVE,
        "Cart_map Get_cart_rank Get_coords Get_dim Get_dims Get_dist_neighbors "
        "Get_dist_neighbors_count Get_neighbors Get_neighbors_count Get_topo Graph_map Shift "
        "coords degrees dim dims edges indegree index inedges inoutedges ndim nedges neighbors "
        "nneighbors nnodes outdegree outedges periods topo",
    ),
    Group(
        "Failed processes", MPI, "of MPI's fault tolerance", "Ack_failed Agree Get_failed Iagree "
        "Is_revoked Revoke",
    ),
    Group(
        "In a class of xupc only", DIFFERS, "describes what calls did; mpi4py has no such method",
        "explain",
    ),
)  # fmt: skip


def names(way: str) -> list[str]:
    """Return the methods that are treated in this way."""
    return [name for group in GROUPS if group.way == way for name in group.methods.split()]


def requesting() -> list[str]:
    """Return the methods of collectives that return requests."""
    return [name for group in GROUPS if group.requests for name in group.methods.split()]


def counted() -> list[str]:
    """Return the methods that ``XUPC_COMM=explain`` counts."""
    return [name for group in GROUPS if group.moves for name in group.methods.split()]


def group_of(method: str) -> Group:
    """Return the group of a method."""
    return next(group for group in GROUPS if method in group.methods.split())
