"""One record per collective: its operands, root, forms, MPI's name, and its bound.

A `CollectiveSpec` describes the work. A *form* is one way to call it (`call_name`):

=========== ================================= ============================================
form        call                              operands
=========== ================================= ============================================
``all``     ``all_gather(dst, src, n)``       shared memory, a block at one address.
``v``       ``all_gather_v(dst, src, ...)``   shared memory, blocks at displacements.
``x``       ``all_gather_x(dst, src, ...)``   shared memory, blocks at pointers.
``allav``   ``allav_gather(dst, src, root)``  private arrays.
``allav_v`` ``allav_gather_v(dst, ...)``      private arrays, blocks of different sizes.
``allv``    ``allv_gather(value, root)``      single values.
=========== ================================= ============================================

The argument checks, the documentation of the calls, the calls that ``xupc bench`` times, and the
bounds in reports read these records. How the data travels is not here: see `xupc.algorithms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from .records import record

__all__ = [
    "FORMS", "MPI_CALLS", "SPECS", "UNEVEN", "CollectiveSpec", "ListSpec", "OperandSpec",
    "call_name", "calls", "exclusive_of", "function_name", "mpi_name", "of_mpi", "parse_name",
]  # fmt: skip

FORMS = ("all", "v", "x", "allav", "allav_v", "allv")
"""All ways to call a collective; not every collective has all of them."""

UNEVEN = ("v", "x", "allav_v")
"""Those with blocks of different sizes."""


@record
class OperandSpec:
    """The requirements of a collective on dst or src.

    Attributes
    ----------
    blocks
        Blocks on each thread that has the operand: 1, or ``"T"`` for one block per thread.
    everywhere
        True if all threads have the operand, False if only the root has it.
    names_root
        True if, in shared memory, the thread of this operand's address is the root. Else the
        address has affinity to the team's first thread.
    """

    blocks: Literal[1, "T"]
    everywhere: bool = True
    names_root: bool = False

    def blocks_on(self, threads: int, *, root: bool) -> int:
        """Return the number of blocks on one of `threads` threads, which may be the `root`."""
        if not (self.everywhere or root):
            return 0
        return threads if self.blocks == "T" else 1


@record
class ListSpec:
    """How the lists of the ``v`` and ``x`` forms are indexed, as their docstrings say it.

    Attributes
    ----------
    dst, src
        Length and meaning of the list of places; src is "" where one place is enough.
    sizes
        Of the list of block sizes, or of the one size.
    """

    dst: str
    src: str
    sizes: str


@record
class CollectiveSpec:
    """What a collective does, whichever form calls it.

    Attributes
    ----------
    name
        Without prefix and suffix: ``"gather_all"``.
    summary
        By form: the first line of its docstring, with the source's section.
    dst, src
        What the collective asks of its operands.
    computes
        ``"fold"``: every thread's block (or element) contributes to one result; ``"scan"``:
        each thread gets the result of the threads before it; ``""``: data only moves.
    whole
        In shared memory the reduction runs over all elements of all blocks, to one element (fold)
        or one result per element (scan). Else it runs element by element over the blocks.
    one_buffer
        dst and src are the same memory.
    permutes
        There is an argument that says which thread gets which block.
    lists
        Of the forms ``v`` and ``x``; None if there are none.
    peer
        mpi4py's method of the same meaning, "" if MPI has none.
    peer_v
        mpi4py's method for blocks of different sizes, "" if MPI has none.
    crosses
        The blocks that must enter or leave a node with any algorithm: ``"block"``, one block;
        ``"away"``, the blocks of all threads outside the root's node; ``"others"``, the blocks of
        all threads outside the node; ``"pairs"``, one block for each pair of a thread inside and
        one outside; ``""`` if that depends on the data.
    inclusive
        Of an exclusive scan, the collective that does it under the flag EXCLUSIVE. Programs call
        that one; the name of the scan itself is for tables, measurements and plans.
    """

    name: str
    summary: Mapping[str, str]
    dst: OperandSpec
    src: OperandSpec
    computes: Literal["", "fold", "scan"] = ""
    whole: bool = False
    one_buffer: bool = False
    permutes: bool = False
    lists: ListSpec | None = None
    peer: str = ""
    peer_v: str = ""
    crosses: Literal["", "block", "away", "others", "pairs"] = ""
    inclusive: str = ""

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that the collective has."""
        return tuple(form for form in FORMS if form in self.summary)

    @property
    def root(self) -> str:
        """The operand of the root: ``"dst"`` or ``"src"``; "" if all threads are alike."""
        if self.src.names_root:
            return "src"
        return "dst" if self.dst.names_root else ""

    @property
    def elementwise(self) -> bool:
        """True if, in shared memory, blocks are reduced element by element."""
        return bool(self.computes) and not self.whole

    @property
    def scans(self) -> bool:
        """True if each thread gets the result of the threads before it or after it."""
        return self.computes == "scan"

    @property
    def backward(self) -> bool:
        """True for a scan from the last thread on."""
        return self.scans and self.name.endswith("suffix_reduce")

    @property
    def folds_to_all(self) -> bool:
        """True if all threads get the result of one reduction."""
        return self.computes == "fold" and self.dst.everywhere and self.src.blocks == 1

    @property
    def one_array(self) -> bool:
        """True if, in private memory, one array is both dst and src, since they are one block."""
        return self.root == "src" and self.dst.blocks == self.src.blocks

    @property
    def transforms(self) -> bool:
        """True if a call in place changes all of the data, since every thread has dst and src."""
        everywhere = self.dst.everywhere and self.src.everywhere and not self.one_buffer
        return everywhere and not (self.computes and self.src.blocks != self.dst.blocks)

    def data_blocks(self, threads: int) -> int:
        """Return the blocks that nccl-tests count as the size of one call."""
        return threads if "T" in (self.dst.blocks, self.src.blocks) else 1

    def bus_factor(self, threads: int) -> float:
        """Return busbw / algbw of nccl-tests: what a link carries of each byte of the call."""
        if self.folds_to_all:
            return 2 * (threads - 1) / threads
        return (threads - 1) / threads if self.data_blocks(threads) > 1 else 1.0

    def crossing(self, sizes: Sequence[int], root_node: int, nbytes: int) -> int:
        """Return the bytes that at least one node must send or receive, whatever the algorithm.

        Parameters
        ----------
        sizes : sequence of int
            Threads of each node; more than one node.
        root_node : int
            The node of the root.
        nbytes : int
            Of a block.
        """
        threads = sum(sizes)
        away = threads - sizes[root_node]
        match self.crosses:
            case "block":
                return nbytes
            case "away":
                return away * nbytes
            case "others":
                return max(threads - size for size in sizes) * nbytes
            case "pairs":
                return max(size * (threads - size) for size in sizes) * nbytes
        return 0


_ONE, _ROW = OperandSpec(1), OperandSpec("T")
_ONE_AT_ROOT = OperandSpec(1, everywhere=False, names_root=True)
_ROW_AT_ROOT = OperandSpec("T", everywhere=False, names_root=True)


def _moving(
    upc: str, shared: str, thesis: tuple[str, str], listed: str, private: str, value: str,
    uneven: str = "",
) -> dict[str, str]:
    """Return the summaries of a relocalization collective, which has all forms."""
    return ({"allav_v": f"{uneven}; blocks may differ in size."} if uneven else {}) | {
        "all": f"{shared} (UPC 1.3, {upc}).",
        "v": f"{listed}, by displacements (MTU thesis, {thesis[0]}).",
        "x": f"{listed}, by pointers (MTU thesis, {thesis[1]}).",
        "allav": private,
        "allv": f"{value} (XUPC paper, III.C).",
    }


_SPECS = (
    CollectiveSpec(
        "broadcast",
        _moving(
            "7.4.2.1", "Copy src's block to dst on every thread",
            ("4.2.1", "4.2.2"), "Copy one block to a place of each thread's own",
            "Copy the root's values to all threads.",
            "Return the root's value on all threads",
        ),
        dst=_ONE, src=_ONE_AT_ROOT,
        lists=ListSpec("T: [i] on thread i", "", "Of the block"),
        peer="Bcast", crosses="block",
    ),
    CollectiveSpec(
        "scatter",
        _moving(
            "7.4.2.2", "Copy the i-th block at src to dst on thread i",
            ("4.2.3", "4.2.4"), "Copy the i-th block of one thread to thread i",
            "Copy the i-th block of the root's src to thread i.",
            "Return the root's i-th value on thread i",
            "Copy the i-th block of the root's src to thread i",
        ),
        dst=_ONE, src=_ROW_AT_ROOT,
        lists=ListSpec(
            "T: [i] on thread i", "T: [i] on the root, for thread i", "T ints, by receiver"
        ),
        peer="Scatter", peer_v="Scatterv", crosses="away",
    ),
    CollectiveSpec(
        "gather",
        _moving(
            "7.4.2.3", "Copy src's block of thread i to the i-th block at dst",
            ("4.2", "4.2"), "Copy a block of every thread to one thread",
            "Copy every thread's values to the root, in order.",
            "Return all threads' values on the root",
            "Copy a block of every thread to the root",
        ),
        dst=_ROW_AT_ROOT, src=_ONE,
        lists=ListSpec(
            "T: [i] on the root, from thread i", "T: [i] on thread i", "T ints, by sender"
        ),
        peer="Gather", peer_v="Gatherv", crosses="away",
    ),
    CollectiveSpec(
        "gather_all",
        _moving(
            "7.4.2.4", "Copy every thread's block at src to dst on every thread, in order",
            ("4.2", "4.2"), "Copy a block of every thread to every thread",
            "Copy every thread's values to every thread, in order.",
            "Return all threads' values on all threads",
            "Copy a block of every thread to every thread",
        ),
        dst=_ROW, src=_ONE,
        lists=ListSpec(
            "T*T: [i*T+j] on thread i, from thread j", "T: [j] on thread j", "T ints, by sender"
        ),
        peer="Allgather", peer_v="Allgatherv", crosses="others",
    ),
    CollectiveSpec(
        "exchange",
        _moving(
            "7.4.2.5",
            "Copy the j-th block at src of thread i to the i-th block at dst of thread j",
            ("4.2.5", "4.2.6"),
            "Copy a block of every thread to every thread, another one to each",
            "Copy block j of thread i's src to block i of thread j's dst.",
            "Send the i-th value to thread i, and return what each thread sent",
            "Copy a block of every thread to every thread, another one to each",
        ),
        dst=_ROW, src=_ROW,
        lists=ListSpec(
            "T*T: [i*T+j] on thread i, from thread j", "T*T: [j*T+i] on thread j, for thread i",
            "T*T ints, indexed like src",
        ),
        peer="Alltoall", peer_v="Alltoallv", crosses="pairs",
    ),
    CollectiveSpec(
        "permute",
        _moving(
            "7.4.2.6", "Copy the block at src of thread i to dst on thread perm[i]",
            ("4.2", "4.2"), "Copy a block of thread i to thread perm[i]",
            "Copy this thread's values to thread `to`.",
            "Send the value to thread `to`, and return what this thread was sent",
        ),
        dst=_ONE, src=_ONE, permutes=True,
        lists=ListSpec(
            "T: [i] on thread i; thread i's block goes to [perm[i]]", "T: [i] on thread i",
            "T ints, by sender",
        ),
        peer="Sendrecv",
    ),
    CollectiveSpec(
        "broadcast_in_place",
        {
            "all": "Overwrite the block at buf's address on every other thread with that of buf's "
            "thread (XUPC paper, III.C).",
        },
        dst=OperandSpec(1, names_root=True), src=OperandSpec(1, names_root=True),
        one_buffer=True, peer="Bcast", crosses="block",
    ),
    CollectiveSpec(
        "reduce",
        {
            "all": "Reduce all elements of src to one value at dst (UPC 1.3, 7.4.3.1).",
            "allav": "Reduce element by element over the threads, to the root.",
            "allv": "Return all threads' values joined by `op`, on the root (XUPC paper, III.C).",
        },
        dst=_ONE_AT_ROOT, src=_ONE, computes="fold", whole=True, peer="Reduce", crosses="block",
    ),
    CollectiveSpec(
        "reduce_all",
        {
            "all": "Reduce all elements of src to one value at dst's address on every thread "
            "(XUPC paper, III.C).",
            "allav": "Reduce element by element over the threads, to all threads.",
            "allv": "Return all threads' values joined by `op`, on all threads "
            "(XUPC paper, III.C).",
        },
        dst=_ONE, src=_ONE, computes="fold", whole=True, peer="Allreduce", crosses="block",
    ),
    CollectiveSpec(
        "reduce_mpi",
        {
            "all": "Reduce the blocks of src element by element, to ``dst[k]`` over element k of "
            "all blocks (XUPC paper, III.C).",
        },
        dst=_ONE_AT_ROOT, src=_ONE, computes="fold", peer="Reduce", crosses="block",
    ),
    CollectiveSpec(
        "reduce_mpi_all",
        {
            "all": "Reduce the blocks of src element by element, to dst's address on every thread: "
            "an element-wise allreduce (XUPC paper, III.C).",
        },
        dst=_ONE, src=_ONE, computes="fold", peer="Allreduce", crosses="block",
    ),
    CollectiveSpec(
        "reduce_scatter",
        {
            "all": "Reduce element by element over the threads, the i-th block at src to dst on "
            "thread i (MPI 4.1, 6.10.1).",
            "allav": "Reduce element by element over the threads, the i-th block to thread i.",
            "allv": "Return the i-th values of all threads joined by `op`, on thread i "
            "(MPI 4.1, 6.10.1).",
        },
        dst=_ONE, src=_ROW, computes="fold", peer="Reduce_scatter_block", crosses="others",
    ),
    CollectiveSpec(
        "prefix_reduce",
        {
            "all": "Compute ``dst[i] = src[0] op ... op src[i]`` (UPC 1.3, 7.4.3.1).",
            "allav": "Reduce element by element over the threads up to and with this one.",
            "allv": "Return the values of all threads up to and with this one, joined by `op` "
            "(XUPC paper, III.C).",
        },
        dst=_ONE, src=_ONE, computes="scan", whole=True, peer="Scan", crosses="block",
    ),
    CollectiveSpec(
        "suffix_reduce",
        {
            "all": "Compute ``dst[i] = src[i] op ... op src[nelems - 1]`` (XUPC paper, III.C).",
            "allav": "Reduce element by element over the threads from this one on.",
            "allv": "Return the values of all threads from this one on, joined by `op` "
            "(XUPC paper, III.C).",
        },
        dst=_ONE, src=_ONE, computes="scan", whole=True, crosses="block",
    ),
    CollectiveSpec(
        "exclusive_prefix_reduce",
        {
            "all": "Compute ``dst[i] = src[0] op ... op src[i - 1]``.",
            "allav": "Reduce element by element over the threads before this one "
            "(MPI 4.1, 6.11.2).",
            "allv": "Return the values of all threads before this one, joined by `op`.",
        },
        dst=_ONE, src=_ONE, computes="scan", whole=True, peer="Exscan", crosses="block",
        inclusive="prefix_reduce",
    ),
    CollectiveSpec(
        "exclusive_suffix_reduce",
        {
            "all": "Compute ``dst[i] = src[i + 1] op ... op src[nelems - 1]``.",
            "allav": "Reduce element by element over the threads behind this one.",
            "allv": "Return the values of all threads behind this one, joined by `op`.",
        },
        dst=_ONE, src=_ONE, computes="scan", whole=True, crosses="block",
        inclusive="suffix_reduce",
    ),
)  # fmt: skip
SPECS: dict[str, CollectiveSpec] = {spec.name: spec for spec in _SPECS}
"""All collectives, by name."""


def call_name(spec: CollectiveSpec, form: str) -> str:
    """Return the name of a call: ``"all_gather_v"`` of gather in the form ``"v"``."""
    if form == "allav_v":
        return f"allav_{spec.name}_v"
    return f"all_{spec.name}_{form}" if form in ("v", "x") else f"{form}_{spec.name}"


def function_name(spec: CollectiveSpec, form: str) -> str:
    """Return the name of the public function that makes a call; EXCLUSIVE has none of its own."""
    return call_name(SPECS[spec.inclusive or spec.name], form)


def exclusive_of(name: str) -> str:
    """Return the registered name of a scan under the flag EXCLUSIVE."""
    return f"allav_exclusive_{name[6:]}" if name.startswith("allav_") else f"exclusive_{name}"


_BY_CALL = {
    call_name(spec, form): (form, spec) for form in FORMS for spec in _SPECS if form in spec.forms
}


def parse_name(call: str) -> tuple[str, CollectiveSpec]:
    """Return the form and the collective of a call's name.

    Raises
    ------
    ValueError
        If there is no such collective.
    """
    try:
        return _BY_CALL[call]
    except KeyError:
        raise ValueError(f"expected the name of a collective, got {call!r}") from None


def _mpi_calls() -> dict[str, str]:
    """Return the call on private arrays for each of MPI's names, in lower case."""
    found = {"barrier": "barrier"}
    for spec in _SPECS:
        if spec.peer and "allav" in spec.forms:
            found[spec.peer.lower()] = call_name(spec, "allav")
        if spec.peer_v:
            found[spec.peer_v.lower()] = call_name(spec, "allav_v")
    return found


MPI_CALLS = _mpi_calls()
"""By MPI's name in lower case: the call that does the same, on private arrays if there is one."""


def of_mpi(name: str) -> str:
    """Return the call of one of MPI's names, like ``Bcast`` or ``allreduce``; "" if none is."""
    return MPI_CALLS.get(name.lower().removeprefix("mpi_"), "")


def mpi_name(call: str) -> str:
    """Return mpi4py's method of the same meaning as a call; "" if MPI has none."""
    if call == "barrier":
        return "Barrier"
    form, spec = parse_name(call)
    return spec.peer_v if form in UNEVEN and spec.peer_v else spec.peer


def calls() -> tuple[str, ...]:
    """Return the names of all calls, form by form."""
    return tuple(_BY_CALL)
