"""all_prefix_reduce, all_suffix_reduce (UPC 1.3, 7.4.3.2; XUPC).

::

    src            a b | c d | e f
    prefix: dst    a a+b | a+b+c a+b+c+d | a+...+e a+...+f
    suffix: dst    a+...+f b+...+f | c+...+f d+e+f | e+f f

    exclusive
    prefix: dst    0 a | a+b a+b+c | a+b+c+d a+...+e
    suffix: dst    b+...+f c+...+f | d+e+f e+f | f 0

Three things one after the other: every block's own value, what lies before every block,
and along each block the results, from there on. The second is a sweep up and down the
binomial tree of threads, for as many rows of blocks at once as the staging buffer holds: on the
way up each vertex learns the value of all below it; on the way down it gives its right
half what lies before itself joined with its left half's value. Rows follow each other.

Suffix is the same from the other end. If dst and src are dealt differently, src's elements
are first brought to dst's places, and all of this happens there.

In an exclusive scan a block's results go one element further, and its first element gets what lies
before the block. So an inclusive result is the exclusive one joined with the element, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ..flags import MULTICORE, PULL, PUSH
from ..pgas.layout import moves
from ..plan.placement import MOST_BYTES, Facts
from ..plan.recorder import ALL, DST, SRC, Operand, Recorder
from ..plan.steps import OP_SCRATCH, OP_SCRATCH_BYTES, STAGING, BlockRef, Blocks, FoldOperand, Ranks
from .conditions import CallFacts
from .registry import algorithm
from .scan_blocks import (
    along,
    in_order,
    joined,
    lowest_block,
    results,
    run_of,
    values_of_rows,
)
from .scan_spec import ScanSpec
from .tree_pipeline import DEPTH, Edge, FanIn, trade_values, traded_values

_BLOCKS = 512  # of a message


class _Sweep:
    """My part of the sweeps: one batch of rows after the other."""

    def __init__(self, t: Recorder, r: ScanSpec, *, push: bool) -> None:
        self.t, self.r, self.push = t, r, push
        line = self.line = r.line
        x, size = line.layout, r.itemsize
        levels = max(1, (x.positions - 1).bit_length())
        # those going up and coming down at each level, my own values, rows' carries
        places = 2 * DEPTH * (2 + levels) + levels + 3
        width = t.tuning["staging_bytes"] // places // 64 * 64 - t.line
        most = max(1, min(width // size, x.rows))
        self.width = -(-(most + 1) * size // 64) * 64
        self.batches = list(line.batches(most))
        counts = [n for _, _, n in self.batches]
        self.up = FanIn(t, line.first, counts, None, self.width, push=push, way=line.way)
        base = DEPTH * self.width * (3 + levels)
        ready, room = t.channel(), t.channel()

        def edge(parent: int, child: int) -> Edge:
            tasks = sum(n > child for n in counts)
            staged = base + DEPTH * self.width * (child - parent).bit_length()
            giver, taker = line.thread(parent), line.thread(child)
            return Edge(t, giver, taker, tasks, ready, room, staged, base, self.width, push)

        me = self.up.me
        self.down = {child: edge(me, child) for child in self.up.below}
        self.before = edge(me & (me - 1), me) if self.up.above is not None else None
        if self.before is not None:
            self.before.begin()
        self.own = base + DEPTH * self.width * (1 + levels)
        self.levels = levels

    def _place(self, i: int, offset: int = 0) -> BlockRef:
        """Return one of my own vectors."""
        return Operand(STAGING).on(self.t.me, self.own + i * self.width + offset)

    def run(self) -> None:
        """Record all batches."""
        for j, (row, rows, positions) in enumerate(self.batches):
            if self.up.me < positions:
                self._batch(j, row, rows, positions)
        self.up.end()
        for edge in self.down.values():
            edge.end()

    def _batch(self, j: int, row: int, rows: int, positions: int) -> None:
        t, r, up = self.t, self.r, self.up
        nbytes = rows * r.itemsize
        lowest = lowest_block(r, up.me, row, rows)
        # up
        value = r.operand.on(t.me, lowest.place * r.itemsize)
        if lowest.nelems > 1:
            value = self._place(0)
            values_of_rows(t, r, value, up.me, row, rows)
        lefts = []
        children = [child for child in up.below if child < positions]
        for i, child in enumerate(children):
            taken = up.below[child].take(j, nbytes)
            lefts.append(value)
            if child != children[-1] or up.above is not None or len(self.batches) > 1:
                target = self._place(1 + i)
                t.fold(target, joined(r, value, taken), rows)
                value = target
            up.below[child].taken(j)
        before: BlockRef | None = None
        if up.above is not None:
            assert self.before is not None
            t.fold(up.above.target(j), [FoldOperand(value)], rows)
            up.above.give(j, nbytes)
            before = self.before.take(j, nbytes)
        elif len(self.batches) > 1:
            before = self._rows(j, value, rows)
        # down
        later = children[::-1]
        for child, left in zip(later, reversed(lefts), strict=True):
            leaves = [FoldOperand(left)] if before is None else joined(r, before, left)
            t.fold(self.down[child].target(j), leaves, rows)
        for child in later:
            self.down[child].give(j, nbytes)
        results(t, r, up.me, before, row, rows)
        if self.before is not None:
            self.before.taken(j)

    def _rows(self, j: int, totals: BlockRef, rows: int) -> BlockRef | None:
        """Return, at the top, what lies before each row; keep what lies before the next batch."""
        t, size, back = self.t, self.r.itemsize, self.r.backward
        carry = self._place(self.levels + 2)
        if j == 0:
            t.fold(carry, [FoldOperand(totals)])
            return None
        # one place more than rows: the carry, then the running totals
        line = self._place(self.levels + 1)
        begin, on = (line + rows * size, line) if back else (line, line + size)
        t.fold(begin, [FoldOperand(carry)])
        t.scan(on, totals, rows, begin, reverse=back)
        t.fold(carry, [FoldOperand(line if back else line + rows * size)])
        return line + size if back else line


# --- src's elements to dst's places -------------------------------------------------------
def _kept(r: ScanSpec) -> BlockRef:
    """Return the place for dst's first element; its thread has no carry there."""
    return Operand(OP_SCRATCH).on(r.start.thread, OP_SCRATCH_BYTES // 2)


def _end(t: Recorder, r: ScanSpec) -> None:
    """Record the end of a call that has moved src's elements."""
    if r.keeps and t.me == r.start.thread:
        t.copy(r.start, _kept(r), r.itemsize)
    t.done(ALL, ALL)


def _deal(t: Recorder, r: ScanSpec, *, push: bool) -> None:
    """dst's elements are src's, wherever they lie: PULL reads them, else they are brought."""
    size = r.itemsize
    most = MOST_BYTES // size * size
    if r.keeps:
        if t.me == r.start.thread:
            t.copy(_kept(r), r.start, size)
        t.barrier()  # no thread writes there before
    there = t.channel() if push else -1
    coming: list[int] = []
    outgoing: list[tuple[int, list[Blocks]]] = []
    for (a, b), pieces in sorted(moves(r.src, r.dst, t.me).items()):
        near = t.tree.node_of(a) == t.tree.node_of(b)
        to = [BlockRef(DST.index, b, p.dst * size, 0, p.dst_step * size) for p in pieces]
        out_of = [BlockRef(SRC.index, a, p.src * size, 0, p.src_step * size) for p in pieces]
        if near or not push:
            for x, y, p in zip(to, out_of, pieces, strict=True):
                if near and t.me == (a if push else b):
                    t.copy(x, y, p.nelems * size, p.times)
                elif not near and t.me == b:
                    coming += t.get(x, y, p.nelems * size, p.times)
            continue
        ends = to if t.me == b else out_of
        blocks = [
            Blocks(x + at, min(most, p.nelems * size - at), p.times)
            for x, p in zip(ends, pieces, strict=True)
            for at in range(0, p.nelems * size, most)
        ]
        for first in range(0, len(blocks), _BLOCKS):
            some = blocks[first : first + _BLOCKS]
            if t.me == b:
                coming.append(t.recv_blocks(a, some, bounded=False))
            else:
                outgoing.append((b, some))
    for b, some in outgoing:
        t.send_blocks(b, some)
    t.need(*coming)
    if push:
        t.signal(there, t.node_ranks())
        t.wait(there, t.node_ranks())


@contextmanager
def dealt(t: Recorder, r: ScanSpec, *, push: bool) -> Iterator[None]:
    """Bring src's elements to dst's places before the steps of the block, if they lie elsewhere.

    Threads then read and write each other's memory.
    """
    if r.moved:
        t.ready(ALL, ALL)
        _deal(t, r, push=push)
    yield
    if r.moved:
        _end(t, r)


# --- a tree of threads --------------------------------------------------------------------
def pull(t: Recorder, r: ScanSpec) -> None:
    """Parents read their children's values in a tree of threads, children their parent's."""
    with dealt(t, r, push=False):
        _Sweep(t, r, push=False).run()


def push(t: Recorder, r: ScanSpec) -> None:
    """Children write their values to their parent in a tree of threads, parents theirs."""
    with dealt(t, r, push=True):
        _Sweep(t, r, push=True).run()


# --- one block on each thread, on one node ------------------------------------------------
def fused(t: Recorder, r: ScanSpec) -> None:
    """Let the last thread to arrive compute all results."""
    with t.single_mover(r.line.first, anyone=True):
        for position in reversed(range(r.line.layout.positions)):
            along(t, r, position, before=_runs_before(r, position))


def values(t: Recorder, r: ScanSpec) -> None:
    """Fold each block into its thread's op_scratch; combine there the values of those before."""
    with dealt(t, r, push=True):
        _at_once(t, r)


def _runs_before(r: ScanSpec, position: int) -> list[FoldOperand]:
    """Return the blocks before a position."""
    return in_order(r, [run_of(r, p) for p in range(position)])


def _at_once(t: Recorder, r: ScanSpec) -> None:
    """Fold my block for the threads after me, combine those before me, and scan my block."""
    line = r.line
    there = t.channel()
    position = (t.me - line.first) * line.way % t.size
    block = line.at(position, 0)
    if block is None:
        return
    later = [line.thread(p) for p in range(position + 1, line.layout.positions)]
    if later:
        t.fold(Operand(OP_SCRATCH).on(t.me), [run_of(r, position)])
        t.signal(there, [Ranks(thread) for thread in later])
    leaves = []
    for p in range(position):
        t.wait(there, line.thread(p))
        leaves.append(FoldOperand(Operand(OP_SCRATCH).on(line.thread(p))))
    along(t, r, position, in_order(r, leaves))


# --- one block on each thread, on a few nodes ---------------------------------------------
def led(t: Recorder, r: ScanSpec) -> None:
    """Let node roots compute all results: they exchange the value of each thread."""
    t.lead(_led_bytes(t, r))
    if t.me != t.node_root:
        return
    threads = _threads(r)
    mine = [p for p, thread in enumerate(threads) if t.on_my_node(thread)]
    for p in mine:
        t.fold(Operand(OP_SCRATCH).on(threads[p]), [run_of(r, p)])
    t.need(*trade_values(t, threads, r.itemsize, range(t.tree.node_count)))
    parts = traded_values(t, threads, r.itemsize)
    for p in mine:
        along(t, r, p, in_order(r, [FoldOperand(part) for part in parts[:p]]))


def table(t: Recorder, r: ScanSpec) -> None:
    """Let node roots exchange the value of each thread; a thread combines those before its own."""
    with dealt(t, r, push=True):
        _by_table(t, r)


def _threads(r: ScanSpec) -> list[int]:
    """Return the threads that have a block, in the order of the scan."""
    return [r.line.thread(p) for p in range(r.line.layout.positions)]


def _by_table(t: Recorder, r: ScanSpec) -> None:
    size, threads = r.itemsize, _threads(r)
    arrived, there, read = t.channel(), t.channel(), t.channel()
    near = [Ranks(thread) for thread in threads if t.on_my_node(thread)]
    listening = near if t.node_root in threads else [*near, Ranks(t.node_root)]
    if t.me in threads:
        t.fold(Operand(OP_SCRATCH).on(t.me), [run_of(r, threads.index(t.me))])
        t.signal(arrived, listening)
    if Ranks(t.me) in listening:
        t.wait(arrived, near)
    if t.me == t.node_root:
        t.need(*trade_values(t, threads, size, range(t.tree.node_count)))
        t.signal(there, near)
    if t.me in threads:
        t.wait(there, t.node_root)
        position = threads.index(t.me)
        parts = traded_values(t, threads, size)
        along(t, r, position, in_order(r, [FoldOperand(part) for part in parts[:position]]))
        if t.me != t.node_root:
            t.signal(read, (Ranks(t.node_root),))
    if t.me == t.node_root:  # its staging buffer is its own again
        t.wait(read, [ranks for ranks in near if t.me not in ranks])


# --- where each variant can run -----------------------------------------------------------
def _work(call: CallFacts) -> ScanSpec:
    work: ScanSpec = call.arguments[0]
    return work


def _values_fit(call: CallFacts) -> bool:
    """The values of all threads take at most `staging_bytes`."""
    r = _work(call)
    values = r.line.layout.positions * r.itemsize
    return call.few_nodes and values <= call.tuning["staging_bytes"]


def _one_row_on_a_node(call: CallFacts) -> bool:
    """One node, one block on each thread."""
    return call.one_node and _work(call).line.layout.rows <= 1


def _can_be_fused(call: CallFacts) -> bool:
    """One node, one block on each thread, src and dst of the same layout."""
    return _one_row_on_a_node(call) and not _work(call).moved


def _is_fused(call: CallFacts) -> bool:
    """At most `fused_max` bytes in all, and no function, which one thread would call many times."""
    r = _work(call)
    short = r.line.layout.nelems * r.itemsize <= call.tuning["fused_max"]
    return short and not call.may_raise and _values_fit(call)


def _has_table(call: CallFacts) -> bool:
    """Few nodes, one block on each thread, at most `staging_bytes` of values."""
    return not call.one_node and _work(call).line.layout.rows <= 1 and _values_fit(call)


def _led_bytes(t: Facts, r: ScanSpec) -> int:
    """Return the bytes per node for `Recorder.lead`."""
    layout = r.line.layout
    share = layout.nelems * r.itemsize // t.tree.node_count
    return max(share, layout.positions * r.itemsize)


def _can_be_led(call: CallFacts) -> bool:
    """Few nodes, one block on each thread, one layout, ALLSYNC both ways, values fit a barrier."""
    r = _work(call)
    room = call.synchronised and call.roots_can_move(_led_bytes(call, r))
    return room and not r.moved and _has_table(call)


def _is_led(call: CallFacts) -> bool:
    """At most `root_exchange_max_one_block` bytes per node."""
    return call.roots_should_move(_led_bytes(call, _work(call)), one_block=True)


def _register(form: str) -> None:
    """Register all variants for a collective."""
    algorithm(form, PULL)(pull)
    algorithm(form, PUSH)(push)
    add = partial(algorithm, form, MULTICORE)
    add(
        "fused", "The last thread to arrive computes all results.",
        applies=_can_be_fused, preferred=_is_fused,
    )(fused)  # fmt: skip
    add(
        "values", "Each thread folds its block, and combines the values of all threads before it.",
        applies=_one_row_on_a_node, preferred=_values_fit,
    )(values)  # fmt: skip
    add(
        "led", "Node roots compute all results, and the threads' values travel with the barrier.",
        applies=_can_be_led, preferred=_is_led,
    )(led)  # fmt: skip
    add(
        "table", "Node roots exchange all threads' values; a thread combines those before its own.",
        applies=_has_table,
    )(table)  # fmt: skip
    add("push", "A binomial tree of threads, as in PUSH: for every size, layout and placement.")(
        push
    )


for _form in (
    "prefix_reduce", "suffix_reduce", "exclusive_prefix_reduce", "exclusive_suffix_reduce",
):  # fmt: skip
    _register(_form)
