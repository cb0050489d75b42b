"""all_reduce, all_reduce_all, all_reduce_mpi, all_reduce_mpi_all (UPC 1.3, 7.4.3.1; XUPC).

T threads, an operation written +::

    all_reduce        src: a b | c d        dst@one: a+b+c+d
    all_reduce_all    the same              dst@0: a+b+c+d   dst@1: a+b+c+d
    all_reduce_mpi    src: a b | c d        dst@one: a+c b+d           (blocks of two)
    all_reduce_mpi_all                      dst@0: a+c b+d   dst@1: a+c b+d

The four differ in how long the result is and where it goes; each algorithm below does
them all. A thread first folds what it has, in the order of its memory, then the threads'
values are joined in the order of `patterns.tree_joins`. Where operands must keep their
places (NONCOMM_FUNC) and a thread has blocks of several rows, it goes row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..flags import MULTICORE, PULL, PUSH
from ..plan.patterns import Shape, binary, binomial, chain, chunks, star, tree_joins
from ..plan.placement import Facts
from ..plan.recorder import ALL, DST, Operand, Recorder
from ..plan.steps import OP_SCRATCH, BlockRef, FoldOperand, Ranks
from ..plan.trees import NAMED
from . import reduce_across_nodes as nodes
from .conditions import CallFacts, Condition, by_name, fused
from .pipelined_reduce import pipeline_shape
from .private_staging import LINE
from .reduce_parts import parts_fit, parts_pay
from .reduce_positions import in_order
from .reduce_spec import Reduction, Task, joined
from .registry import algorithm
from .tree_pipeline import FanIn, FanOut

FORMS = ("reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all")


# --- PULL and PUSH -------------------------------------------------------------------------
def _tree(t: Recorder, r: Reduction, *, push: bool) -> None:
    """Reduce up a tree of threads; pass the result from its top to dst's thread, or down to all."""
    width = FanIn.width(t, r.layout.positions, min(t.unit(r.most, r.most), r.most))
    plan = r.tasks(width)
    top = r.layout.first
    up = FanIn(t, top, [task.positions for task in plan], r.to, width, push=push)
    down = FanOut(t, top, r.layout.positions, push=push) if r.to is None else None
    pieces = 0
    for j, task in enumerate(plan):
        nelems = task.nelems * task.rows
        own = r.own(t, task, up.me, up.spare) if up.me < task.positions else []
        leaves = up.values(j, own, nelems, nelems * r.itemsize)
        if t.me == up.owner:
            _finish(t, r, task, leaves, up.spare)
            up.taken(j)
        if down is not None and not r.by_row:
            down.piece(DST.on(top, task.begin * r.itemsize), task.nelems * r.itemsize)
            pieces += 1
    up.end()
    if down is not None:
        if not pieces:  # only now are they final
            for offset, size in chunks(r.nbytes, t.tuning["reduce_chunk"]):
                down.piece(DST.on(top, offset), size)
        down.end()


def _finish(
    t: Recorder, r: Reduction, task: Task, leaves: list[FoldOperand], spare: BlockRef
) -> None:
    """Fold a task's values into my dst."""
    place = DST.on(t.me, task.begin * r.itemsize)
    if task.row in (None, 0):
        t.fold(place, leaves, task.nelems)
    elif r.element_wise or task.rows == 1:
        t.fold(place, [FoldOperand(place), *joined(leaves)], task.nelems)
    else:
        t.fold(spare, leaves, task.rows)
        row = FoldOperand(spare, joins=1, step=r.itemsize)
        t.fold(place, [FoldOperand(place), row], rows=task.rows)


def pull(t: Recorder, r: Reduction) -> None:
    """Each thread of a binomial tree reads its children's values, the last one the top's.

    Each link carries the result once per edge that crosses it, some edges at a time.
    """
    _tree(t, r, push=False)


def push(t: Recorder, r: Reduction) -> None:
    """Each thread of a binomial tree writes its value to its parent."""
    _tree(t, r, push=True)


# --- MULTICORE -----------------------------------------------------------------------------
def fused_fold(t: Recorder, r: Reduction) -> None:
    """Let the last thread to arrive reduce everything."""
    with t.single_mover(r.layout.first if r.to is None else r.to, anyone=True):
        _all_of(t, r, 0, r.each)


def slices(t: Recorder, r: Reduction) -> None:
    """Let each thread fold a slice of all threads' blocks and write it to all its places."""
    t.ready(ALL, ALL)
    grain = max(1, 64 // r.itemsize)
    grains = -(-r.each // grain)
    begin, end = (min(r.each, grains * (t.me + k) // t.size * grain) for k in (0, 1))
    if begin < end:
        _all_of(t, r, begin, end)
    t.done(ALL, ALL)


def led(t: Recorder, r: Reduction) -> None:
    """Let node roots reduce everything: they exchange a value of each thread or of each node."""
    t.lead(_led_bytes(t, r))
    if t.me == t.node_root:
        (nodes.lead if r.element_wise else nodes.lead_table)(t, r)


def _all_of(t: Recorder, r: Reduction, begin: int, end: int) -> None:
    """Fold some of the results from all threads' blocks, and write them to all their places."""
    first, *rest = t.node_ranks() if r.to is None else (Ranks(r.to),)
    for b, e, blocks in r.ranges(begin, end):
        offset, nelems = b * r.itemsize, e - b
        total = DST.on(first.first, offset)
        if not r.by_row:
            t.fold(DST.across(first, offset), r.tree(b, blocks), nelems, first.count)
            others = rest
        else:
            _fold_rows(t, r, b, nelems, total)
            others = [*first.without(first.first), *rest]
        for run in others:
            t.copy(DST.across(run, offset), total, nelems * r.itemsize, run.count)


def _fold_rows(t: Recorder, r: Reduction, begin: int, nelems: int, total: BlockRef) -> None:
    """Fold rows of blocks one after the other, into the first place."""
    last = r.layout.rows - 1
    t.fold(total, r.row_tree(0, begin), nelems)
    for row, rows in ((1, last - 1), (last, 1)):
        if rows and (leaves := r.row_tree(row, begin)):
            t.fold(total, [FoldOperand(total), *joined(leaves)], nelems, rows=rows)


def one_value(t: Recorder, r: Reduction) -> None:
    """Fold each thread's run into its op_scratch; each receiver of the value combines them all."""
    layout = r.layout
    position = layout.position(t.me)
    there = t.channel()
    wanted = t.node_ranks() if r.to is None else (Ranks(r.to),)
    if position is not None:
        t.fold(Operand(OP_SCRATCH).on(t.me), [r.leaf(position, 0, layout.blocks)])
        t.signal(there, wanted)
    if r.to in (None, t.me):
        joins = tree_joins(layout.positions)
        leaves = []
        for p in range(layout.positions):
            t.wait(there, layout.thread(p))
            leaves.append(FoldOperand(Operand(OP_SCRATCH).on(layout.thread(p)), 1, joins[p]))
        t.fold(DST.on(t.me), leaves)


# --- where each variant can run -------------------------------------------------------------
def _work(call: CallFacts) -> Reduction:
    work: Reduction = call.arguments[0]
    return work


def _total(call: CallFacts) -> int:
    r = _work(call)
    return r.layout.nelems * r.itemsize


def _can_slice(call: CallFacts) -> bool:
    """One node, element by element."""
    return call.one_node and _work(call).element_wise


def _has_one_value(call: CallFacts) -> bool:
    """One node, to one value; with NONCOMM_FUNC at most one block on each thread."""
    return call.one_node and not (_work(call).element_wise or _work(call).by_row)


def _by_nodes(call: CallFacts, r: Reduction) -> bool:
    """Return whether nodes can combine their values in the order of the call."""
    if call.one_node or r.by_row:
        return False
    if not r.element_wise:
        fits = r.layout.positions * r.itemsize <= call.tuning["staging_bytes"]
        return call.few_nodes and fits
    ordered = not r.exact or (call.few_nodes and in_order(call, r))
    return r.itemsize <= LINE and ordered


def _led_bytes(t: Facts, r: Reduction) -> int:
    """Return the bytes per node for `Recorder.lead`."""
    if r.element_wise:
        return r.nbytes * t.largest_node
    share = r.layout.nelems * r.itemsize // t.tree.node_count
    return max(share, r.layout.positions * r.itemsize)


def _can_be_led(call: CallFacts) -> bool:
    """Few nodes, in operand order if that matters, ALLSYNC both ways, values that fit a barrier."""
    r = _work(call)
    room = call.synchronised and call.roots_can_move(_led_bytes(call, r))
    return room and _by_nodes(call, r) and (not r.element_wise or nodes.fits(call, r))


def _is_led(call: CallFacts) -> bool:
    """At most `root_exchange_max_one_block` bytes per node, `root_exchange_max` into a node."""
    r = _work(call)
    into_a_node = r.nbytes * (call.tree.node_count - 1) if r.element_wise else 0
    short = into_a_node <= call.tuning["root_exchange_max"]
    return short and call.roots_should_move(_led_bytes(call, r), one_block=True)


def _has_table(call: CallFacts) -> bool:
    """Few nodes, to one value; with NONCOMM_FUNC at most one block on each thread."""
    return not _work(call).element_wise and _by_nodes(call, _work(call))


def _can_be_in_parts(call: CallFacts) -> bool:
    """Several nodes (few for one receiver), element by element; in operand order if it matters."""
    r = _work(call)
    if not (r.element_wise and _by_nodes(call, r)):
        return False
    return call.few_nodes if r.to is not None else parts_fit(call)


def _is_in_parts(call: CallFacts) -> bool:
    """Few nodes or parts that are neither short nor many; for one receiver few short units."""
    r = _work(call)
    if r.to is None:
        return call.few_nodes or parts_pay(call, r.nbytes)
    return r.exact or nodes.gather_pays(call, r)


def _can_be_piped(call: CallFacts) -> bool:
    """Several nodes, element by element to one receiver, not under REPRODUCIBLE."""
    r = _work(call)
    one = r.to is not None and r.element_wise and not r.exact
    return one and _by_nodes(call, r)


def _piped(shape: Shape, text: str) -> Condition:
    """Return the condition that the pieces are fastest in a tree of this shape."""

    def condition(call: CallFacts) -> bool:
        return pipeline_shape(call, _work(call)) is shape

    condition.__doc__ = text
    return condition


_ONE_TO_EACH = "Each node of a tree with the receiver's at its top combines what arrives: "
_SHAPES: tuple[tuple[Shape, str, str], ...] = (  # default: as in `patterns.tree_for`
    (star, "a star.", "Less than `pipeline_min` bytes on at most `few_nodes_max` nodes."),
    (
        binomial,
        "binomial.",
        "Less than `pipeline_min` bytes, or fewest messages in sequence: pieces x log2 N.",
    ),
    (
        chain,
        "a chain, with a piece on each link.",
        "Fewest messages in sequence on N nodes: pieces + N - 2.",
    ),
    (
        binary,
        "binary, two pieces on each way up.",
        "Fewest messages in sequence on N nodes: 2 (pieces + log2 (N + 1) - 2).",
    ),
)


def _register(form: str) -> None:
    """Register all variants for a collective; those between the ends are of its kind alone."""
    algorithm(form, PULL)(pull)
    algorithm(form, PUSH)(push)
    add = partial(algorithm, form, MULTICORE)
    add("fused", "The last thread to arrive reduces everything.", **fused(_total))(fused_fold)
    element_wise = "mpi" in form
    (_register_blocks if element_wise else _register_values)(add, to_one=not form.endswith("_all"))
    add("push", "A binomial tree of threads, as in PUSH: for every order, size and placement.")(
        push
    )


Add = Callable[..., Callable[[Callable[..., None]], Callable[..., None]]]


def _register_led(add: Add) -> None:
    add(
        "led", "Node roots reduce everything, and their values travel with the barrier.",
        applies=_can_be_led, preferred=_is_led,
    )(led)  # fmt: skip


def _register_values(add: Add, *, to_one: bool) -> None:
    """Register what reduces to one value."""
    add(
        "values", "Each thread folds its own run; each receiver combines the threads' values.",
        applies=_has_one_value,
    )(one_value)  # fmt: skip
    _register_led(add)
    add(
        "table", "Node roots exchange every thread's value at once, and combine them all.",
        applies=_has_table,
    )(nodes.table)  # fmt: skip


def _register_blocks(add: Add, *, to_one: bool) -> None:
    """Register what reduces element by element."""
    add(
        "slices", "Each thread folds a slice of all threads' blocks, to all its places.",
        applies=_can_slice,
    )(slices)  # fmt: skip
    _register_led(add)
    add(
        "parts", "Each node finishes a part of the result, for all nodes or for the receiver's.",
        applies=_can_be_in_parts, preferred=_is_in_parts,
    )(nodes.in_parts)  # fmt: skip
    for shape, words, text in _SHAPES if to_one else ():
        add(
            shape.__name__, _ONE_TO_EACH + words, applies=_can_be_piped,
            preferred=_piped(shape, text),
        )(partial(nodes.pipeline, shape=shape))  # fmt: skip
    for shape, words in NAMED if to_one else ():
        add(
            shape.__name__, _ONE_TO_EACH + words, applies=_can_be_piped, preferred=by_name
        )(partial(nodes.pipeline, shape=shape))  # fmt: skip


for _form in FORMS:
    _register(_form)
