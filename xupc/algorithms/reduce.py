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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ..flags import MULTICORE, PULL, PUSH
from ..layout import Layout
from ..patterns import chain, chunks, star, tree_joins
from ..plan.recorder import ALL, NODE, Operand, Recorder
from ..plan.steps import BUFFER, SLOT, SLOT_BYTES, Leaf, Part, Ranks
from .registry import algorithm
from .sweeps import Down, Up, trade_values, traded_values

DST, SRC = Operand(0), Operand(1)
FORMS = ("reduce", "reduce_all", "reduce_mpi", "reduce_mpi_all")


@dataclass(frozen=True, slots=True)
class Task:
    """Some of the results, or of the rows that lead to them.

    Elements ``begin .. begin + nelems`` of the result; rows ``row .. row + rows`` of blocks,
    of which the first `positions` threads have one (all rows: None).
    """

    begin: int
    nelems: int
    positions: int
    row: int | None = None
    rows: int = 1


@dataclass(frozen=True)
class Reduction:
    """What is to be reduced.

    Attributes
    ----------
    layout
        Of src.
    each
        Elements of the result: 1, or those of a block.
    itemsize
        Bytes of an element.
    to
        The thread of dst; None: dst is on all threads.
    ordered
        Operands keep their places.
    exact
        The same order of operations on every placement of the threads.
    """

    layout: Layout
    each: int
    itemsize: int
    to: int | None
    ordered: bool
    exact: bool
    element_wise: bool

    @cached_property
    def by_row(self) -> bool:
        """Whether rows have to be folded one after the other."""
        return self.ordered and self.layout.rows > 1

    @property
    def nbytes(self) -> int:
        """Of the result."""
        return self.each * self.itemsize

    @property
    def most(self) -> int:
        """The most bytes that a task can have."""
        return self.nbytes if self.element_wise else max(1, self.layout.rows) * self.itemsize

    @cached_property
    def short(self) -> int:
        """Elements of the last block."""
        blocks = self.layout.blocks
        return self.layout.nelems - (blocks - 1) * self.each if self.element_wise else 1

    # -- the leaves ------------------------------------------------------------------
    def ranges(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """``(begin, end, blocks)``: results over equally many blocks."""
        cut = min(max(self.short, begin), end)
        if begin < cut:
            yield begin, cut, self.layout.blocks
        if cut < end:
            yield cut, end, self.layout.blocks - 1

    def leaf(self, position: int, begin: int, blocks: int) -> Leaf:
        """All that a position has for the results from `begin` on."""
        layout, size = self.layout, self.itemsize
        thread, run = layout.thread(position), layout.run(position)
        if not self.element_wise:
            return Leaf(Part(SRC.index, thread, run.place * size, 0, size), run.nelems)
        count = -(-(blocks - position) // layout.threads)
        part = Part(SRC.index, thread, (run.place + begin) * size, 0, self.nbytes)
        return Leaf(part, count)

    def positions(self, blocks: int) -> int:
        """How many threads have one of so many blocks."""
        return min(blocks, self.layout.threads) if self.element_wise else self.layout.positions

    def tree(self, begin: int, blocks: int) -> list[Leaf]:
        """All positions' leaves for the results from `begin` on."""
        n = self.positions(blocks)
        joins = tree_joins(n)
        return [self.leaf(p, begin, blocks)._replace(joins=joins[p]) for p in range(n)]

    def row_tree(self, row: int, begin: int) -> list[Leaf]:
        """The leaves of one row, each going on to the next row."""
        layout, size = self.layout, self.itemsize
        leaves = []
        for p in range(layout.threads):
            block = layout.at(p, row)
            if block is None or (self.element_wise and block.nelems <= begin):
                break
            part = Part(SRC.index, layout.thread(p), (block.place + begin) * size, 0, size)
            count = 1 if self.element_wise else block.nelems
            leaves.append(Leaf(part, count, 0, layout.block * size))
        joins = tree_joins(len(leaves))
        return [leaf._replace(joins=j) for leaf, j in zip(leaves, joins, strict=True)]

    # -- the tasks ----------------------------------------------------------------------
    def tasks(self, most: int) -> list[Task]:
        """What goes through a tree of threads, of at most so many bytes each."""
        step = max(1, most // self.itemsize)
        if self.by_row:
            return list(self._row_tasks(step))
        out = []
        for begin, end, blocks in self.ranges(0, self.each):
            for b in range(begin, end, step):
                n = min(step, end - b)
                out.append(Task(b, n, self.positions(blocks)))
        return out

    def _row_tasks(self, step: int) -> Iterator[Task]:
        layout = self.layout
        if self.element_wise:
            for row in range(layout.rows):
                count = min(layout.threads, layout.blocks - row * layout.threads)
                for begin, end, blocks in self.ranges(0, self.each):
                    n = count - (row == layout.rows - 1 and blocks < layout.blocks)
                    for b in range(begin, end, step):
                        if n:
                            yield Task(b, min(step, end - b), n, row)
            return
        last = layout.rows - 1
        yield Task(0, 1, layout.threads, 0)
        for row in range(1, last, step):
            yield Task(0, 1, layout.threads, row, min(step, last - row))
        yield Task(0, 1, layout.blocks - last * layout.threads, last)

    def own(self, t: Recorder, task: Task, position: int, at: Part) -> list[Leaf]:
        """A position's part of a task; `at`: where values of rows may be put first."""
        if task.row is None:
            blocks = self.layout.blocks - (self.element_wise and task.begin >= self.short)
            return [self.leaf(position, task.begin, blocks)]
        block = self.layout.at(position, task.row)
        assert block is not None
        size = self.itemsize
        part = Part(SRC.index, t.me, (block.place + task.begin) * size)
        if self.element_wise or block.nelems == 1:
            return [Leaf(part)]  # rows of single elements lie side by side
        step = self.layout.block * size
        line = Leaf(part._replace(offset_step=size), block.nelems, 0, step)
        t.fold(at, [line], 1, rows=task.rows, dst_step=size)
        return [Leaf(at)]


# --- PULL and PUSH -------------------------------------------------------------------------
def _tree(t: Recorder, r: Reduction, *, push: bool) -> None:
    """Up a tree of threads, from its top to dst's thread or down to all."""
    width = Up.width(t, r.layout.positions, min(t.tuning["fold"], r.most))
    plan = r.tasks(width)
    top = r.layout.first
    up = Up(t, top, [task.positions for task in plan], r.to, width, push=push)
    down = Down(t, top, r.layout.positions, push=push) if r.to is None else None
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
            for offset, size in chunks(r.nbytes, t.tuning["fold"]):
                down.piece(DST.on(top, offset), size)
        down.end()


def _finish(t: Recorder, r: Reduction, task: Task, leaves: list[Leaf], spare: Part) -> None:
    """Fold a task's values into my dst."""
    place = DST.on(t.me, task.begin * r.itemsize)
    if task.row in (None, 0):
        t.fold(place, leaves, task.nelems)
    elif r.element_wise or task.rows == 1:
        t.fold(place, [Leaf(place), *_joined(leaves)], task.nelems)
    else:
        t.fold(spare, leaves, task.rows)
        line = Leaf(spare._replace(offset_step=r.itemsize), task.rows, 1)
        t.fold(place, [Leaf(place), line])


def _joined(leaves: list[Leaf]) -> list[Leaf]:
    """The same value, joined with what lies before it."""
    *rest, last = leaves
    return [*rest, last._replace(joins=last.joins + 1)]


def pull(t: Recorder, r: Reduction) -> None:
    """Each thread of a binomial tree reads its children's values, the last one the top's.

    Each link carries the result once per edge that crosses it, some edges at a time.
    """
    _tree(t, r, push=False)


def push(t: Recorder, r: Reduction) -> None:
    """Each thread of a binomial tree writes its value to its parent."""
    _tree(t, r, push=True)


# --- MULTICORE -----------------------------------------------------------------------------
def multicore(t: Recorder, r: Reduction) -> None:
    """Inside a node threads share the work by load and store; node roots speak for it.

    One node, small: whoever arrives last does everything. One value: each thread folds its
    own run, dst's thread (or each) joins them. Long results: each thread folds a slice of
    all threads' blocks and writes it wherever it is to go.

    Few nodes: node roots tell each other their threads' values at once (`_table`), or their
    node's where results are long and short enough for one message (`_lead`). Longer ones go
    down a chain of nodes to dst's (`_to_one`), or each node finishes a part of the result
    for all (`_to_all`), chunk by chunk. What has to keep an order that is not the nodes'
    goes up a tree of threads, as PUSH does, and so do short results of many nodes.
    """
    if t.one_node:
        _one_node(t, r)
        return
    if r.by_row:
        push(t, r)
        return
    few = t.tree.node_count <= t.tuning["flat"]
    if not r.element_wise:
        if few and r.layout.positions * r.itemsize <= t.tuning["buffer"]:
            _table(t, r)
        else:
            push(t, r)
        return
    nodes = Nodes(t, r)
    if r.exact and not nodes.in_order:
        push(t, r)
    elif t.lead(r.nbytes * t.largest_node) and nodes.count * r.nbytes <= t.tuning["buffer"]:
        if t.me == t.node_root:
            _lead(t, r, nodes)
    elif few and r.to is None:
        _to_all(t, r, nodes)
    elif r.to is not None and not r.exact:
        _to_one(t, r, nodes)
    else:
        push(t, r)


class Nodes:
    """Which positions are on which node, nodes in the order of their first positions.

    Attributes
    ----------
    order
        The nodes that have any.
    in_order
        Whether to join the nodes' values as a tree joins them positions' values in the one
        written order.
    """

    def __init__(self, t: Recorder, r: Reduction) -> None:
        self.r = r
        self.count = t.tree.node_count
        index = t.tree.node_index
        self.positions: dict[int, list[int]] = {}
        for p in range(r.layout.positions):
            self.positions.setdefault(int(index[r.layout.thread(p)]), []).append(p)
        self.order = list(self.positions)
        sizes = [len(ps) for ps in self.positions.values()]
        runs = all(ps[-1] - ps[0] == len(ps) - 1 for ps in self.positions.values())
        alike = all(n == sizes[0] for n in sizes[:-1]) and sizes[-1] <= sizes[0]
        self.in_order = runs and alike and (len(sizes) == 1 or sizes[0] & (sizes[0] - 1) == 0)

    def of(self, node: int, blocks: int) -> list[int]:
        """A node's positions that have one of so many blocks."""
        n = self.r.positions(blocks)
        return [p for p in self.positions.get(node, ()) if p < n]

    def having(self, blocks: int) -> list[int]:
        """Nodes with any of these, in order."""
        return [node for node in self.order if self.of(node, blocks)]

    def leaves(self, node: int, begin: int, blocks: int) -> list[Leaf]:
        """The tree of a node's blocks for the results from `begin` on."""
        positions = self.of(node, blocks)
        joins = tree_joins(len(positions))
        return [
            self.r.leaf(p, begin, blocks)._replace(joins=n)
            for p, n in zip(positions, joins, strict=True)
        ]


def _tree_of(parts: list[Part]) -> list[Leaf]:
    return [Leaf(p, 1, n) for p, n in zip(parts, tree_joins(len(parts)), strict=True)]


def _targets(t: Recorder, r: Reduction) -> list[int]:
    """The nodes that need the result."""
    return list(range(t.tree.node_count)) if r.to is None else [t.tree.node_of(r.to)]


def _all_places(t: Recorder, r: Reduction, begin: int = 0) -> tuple[list[Part], list[int]]:
    """Where results belong on my node: rows, and how long they are."""
    offset = begin * r.itemsize
    if r.to is not None:
        return [DST.on(r.to, offset)], [1]
    runs = t.mates()
    return [DST.across(run, offset) for run in runs], [run.count for run in runs]


def _table(t: Recorder, r: Reduction) -> None:
    """One value: node roots tell each other each thread's, and join them all."""
    layout, size = r.layout, r.itemsize
    position = layout.position(t.me)
    targets = _targets(t, r)
    here = t.my_node in targets
    threads = [layout.thread(p) for p in range(layout.positions)]
    if t.lead(max(layout.nelems * size // t.tree.node_count, layout.positions * size)):
        if t.me == t.node_root:
            for p, thread in enumerate(threads):
                if t.on_my_node(thread):
                    t.fold(Operand(SLOT).on(thread), [r.leaf(p, 0, layout.blocks)])
            t.need(*trade_values(t, threads, size, targets))
            if here:
                (first, *rest), (n, *more) = _all_places(t, r)
                t.fold(first, _tree_of(traded_values(t, threads, size)), 1, n)
                for place, count in zip(rest, more, strict=True):
                    t.copy(place, first._replace(thread_step=0), size, count)
        return
    arrived, there = t.channel(), t.channel()
    total = Operand(SLOT).on(t.node_root, SLOT_BYTES // 2)
    if position is not None:
        t.fold(Operand(SLOT).on(t.me), [r.leaf(position, 0, layout.blocks)])
        t.signal(arrived, (Ranks(t.node_root),))
    if t.me == t.node_root:
        for thread in threads:
            if t.on_my_node(thread):
                t.wait(arrived, thread)
        t.need(*trade_values(t, threads, size, targets))
        if here:
            t.fold(total, _tree_of(traded_values(t, threads, size)))
            t.signal(there, t.mates() if r.to is None else (Ranks(r.to),))
    if r.to in (None, t.me):
        t.wait(there, t.node_root)
        t.copy(DST.on(t.me), total, size)


def _lead(t: Recorder, r: Reduction, nodes: Nodes) -> None:
    """A node root's work when it does everything for its node."""
    targets = _targets(t, r)

    def table(node: int, begin: int = 0) -> Part:
        return Operand(BUFFER).on(t.me, (node * r.each + begin) * r.itemsize)

    ranges = list(r.ranges(0, r.each))
    for begin, end, blocks in ranges:
        if leaves := nodes.leaves(t.my_node, begin, blocks):
            t.fold(table(t.my_node, begin), leaves, end - begin)

    def length(node: int) -> int:
        """Bytes of a node's value: nothing if its threads have no blocks of the short range."""
        return max((e for _, e, blocks in ranges if nodes.of(node, blocks)), default=0) * r.itemsize

    tickets = []
    if t.my_node in targets:
        for node in nodes.order:
            if node != t.my_node:
                root = t.tree.node_root(node)
                tickets.append(t.recv(root, table(node), length(node), bounded=False))
    if t.my_node in nodes.order:
        for node in targets:
            if node != t.my_node:
                t.send(t.tree.node_root(node), table(t.my_node), length(t.my_node))
    t.need(*tickets)
    if t.my_node not in targets:
        return
    for begin, end, blocks in ranges:
        leaves = _tree_of([table(node, begin) for node in nodes.having(blocks)])
        (first, *rest), (n, *more) = _all_places(t, r, begin)
        t.fold(first, leaves, end - begin, n)
        for place, count in zip(rest, more, strict=True):
            source = first._replace(thread_step=0)
            t.copy(place, source, (end - begin) * r.itemsize, count)


Piece = tuple[int, int, int]
"""Results ``begin .. end``, each over so many blocks."""


def _pieces(r: Reduction, begin: int, end: int, most: int) -> list[Piece]:
    step = max(1, most // r.itemsize)
    return [
        (b, min(b + step, e), blocks)
        for first, e, blocks in r.ranges(begin, end)
        for b in range(first, e, step)
    ]


class _Made:
    """A node's threads fold its blocks piece by piece, in turn, for its speaker to use.

    Parameters
    ----------
    speaker
        Who uses them.
    """

    def __init__(self, t: Recorder, nodes: Nodes, speaker: int) -> None:
        self.t, self.nodes, self.speaker = t, nodes, speaker
        self.mates = [thread for run in t.mates() for thread in run]
        self.mine = self.mates.index(t.me)
        self.channel = t.channel()
        self.turns = [0] * len(self.mates)
        self.next = 0

    def turn(self, blocks: int) -> tuple[int, int] | None:
        """Whose turn the next piece is, and which one of his; None: there is nothing."""
        if not self.nodes.of(self.t.my_node, blocks):
            return None
        i = self.next % len(self.mates)
        self.next += 1
        self.turns[i] += 1
        return i, self.turns[i]

    def number(self, mate: int, i: int) -> int:
        """The how-manieth of all pieces a mate's i-th is."""
        return i * len(self.mates) + mate + 1

    def wait(self, turn: tuple[int, int]) -> None:
        """Until the piece is there."""
        self.t.wait(self.channel, self.mates[turn[0]], turn[1])


def _to_all(t: Recorder, r: Reduction, nodes: Nodes) -> None:
    """Each node finishes a part of the result for all.

    ::

        parts     A   B   C        node 0 sends its values of B to node 1, of C to node 2,
                                   takes values of A, joins them, sends the result to both

    Twice (N-1)/N of the result cross each link each way. A node's values and the results are
    in its node root's dst; threads copy from there.
    """
    n, me, size = t.tree.node_count, t.my_node, r.itemsize
    grain = max(1, 64 // size)
    grains = -(-r.each // grain)
    ends = [min(r.each, grains * k // n * grain) for k in range(n + 1)]
    depth = 3
    width = min(t.tuning["fold"], t.tuning["buffer"] // (depth * n) // 64 * 64)
    parts = [_pieces(r, ends[k], ends[k + 1], width) for k in range(n)]
    rounds = max(map(len, parts))
    others = [(me + k) % n for k in range(1, n)]
    made = _Made(t, nodes, t.node_root)
    final = t.channel()
    # whose turn each piece of my node's values is
    turns = {
        (j, k): made.turn(parts[k][j][2])
        for j in range(rounds)
        for k in (*others, me)
        if j < len(parts[k])
    }
    t.ready(NODE, NODE, node_only=True)

    def place(k: int, j: int, on: int) -> Part:
        return DST.on(on, parts[k][j][0] * size)

    def length(k: int, j: int) -> int:
        return (parts[k][j][1] - parts[k][j][0]) * size

    if t.me == t.node_root:
        with t.net():
            _finish_parts(t, r, nodes, made, parts, turns, others, depth, width, final)
    for (j, k), turn in turns.items():
        if turn is not None and turn[0] == made.mine:
            begin, end, blocks = parts[k][j]
            t.fold(place(k, j, t.node_root), nodes.leaves(me, begin, blocks), end - begin)
            t.signal(made.channel, (Ranks(t.node_root),), turn[1])
    if t.me != t.node_root:
        for i, (k, j) in enumerate(_finals(parts, me, others)):
            t.wait(final, t.node_root, i + 1)
            t.copy(place(k, j, t.me), place(k, j, t.node_root), length(k, j))
    t.done(NODE, NODE, node_only=True)


def _finals(parts: list[list[Piece]], me: int, others: list[int]) -> list[tuple[int, int]]:
    """``(part, piece)`` in the order in which results are there on a node."""
    return [
        (k, j)
        for j in range(max(map(len, parts)))
        for k in (me, *others)
        if j < len(parts[k])
    ]


def _finish_parts(
    t: Recorder,
    r: Reduction,
    nodes: Nodes,
    made: _Made,
    parts: list[list[Piece]],
    turns: dict[tuple[int, int], tuple[int, int] | None],
    others: list[int],
    depth: int,
    width: int,
    final: int,
) -> None:
    """A node root's messages and joins, two rounds of them under way."""
    me, size, n = t.my_node, r.itemsize, t.tree.node_count
    rounds = max(map(len, parts))
    coming: dict[tuple[int, int], int] = {}
    going: dict[tuple[int, int], int] = {}
    results: dict[tuple[int, int], int] = {}
    told = 0

    def place(k: int, j: int) -> tuple[Part, int]:
        begin, end, _ = parts[k][j]
        return DST.on(t.me, begin * size), (end - begin) * size

    def landing(k: int, j: int) -> Part:
        return Operand(BUFFER).on(t.me, (j % depth * n + k) * width)

    def values(j: int) -> None:
        for k in others:
            if j < len(parts[me]) and nodes.of(k, parts[me][j][2]):
                coming[j, k] = t.recv(
                    t.tree.node_root(k), landing(k, j), place(me, j)[1], bounded=False
                )
        for k in others:
            turn = turns.get((j, k))
            if turn is not None:
                made.wait(turn)
                going[j, k] = t.send(t.tree.node_root(k), *place(k, j))

    def join(j: int) -> None:
        for k in others:  # before any result is sent, or all would wait for each other
            if j < len(parts[k]):
                if (j, k) in going:
                    t.need(going[j, k])
                results[j, k] = t.recv(t.tree.node_root(k), *place(k, j), bounded=False)
        if j < len(parts[me]):
            here, nbytes = place(me, j)
            begin, end, blocks = parts[me][j]
            for k in others:
                if (j, k) in coming:
                    t.need(coming[j, k])
            turn = turns[j, me]
            if turn is not None:
                made.wait(turn)
            having = nodes.having(blocks)
            leaves = _tree_of([here if k == me else landing(k, j) for k in having])
            if having != [me]:
                t.fold(here, leaves, end - begin)
            for k in others:
                t.send(t.tree.node_root(k), here, nbytes)

    def tell(j: int) -> None:
        nonlocal told
        for k in (me, *others):
            if j < len(parts[k]):
                if k != me:
                    t.need(results[j, k])
                told += 1
                t.signal(final, t.others(), told)

    for j in range(rounds + 2):
        if j < rounds:
            values(j)
        if 1 <= j <= rounds:
            join(j - 1)
        if j >= 2:
            tell(j - 2)


def _to_one(t: Recorder, r: Reduction, nodes: Nodes) -> None:
    """Down a chain of nodes to dst's, each joining what comes with its own: n bytes a link.

    Short results come from all nodes at once. A node's threads fold its pieces into their
    BUFFERs, two of them ahead.
    """
    assert r.to is not None
    n, size = t.tree.node_count, r.itemsize
    home = t.tree.node_of(r.to)
    few = n <= t.tuning["flat"]
    shape = star if few and r.nbytes < t.tuning["chain"] else chain
    v = (t.my_node - home) % n
    parent, children = shape(v, n)
    depth = 2
    slots = depth * (2 + len(shape(0, n)[1]))
    width = min(t.tuning["fold"], t.tuning["buffer"] // slots // 64 * 64)
    pieces = _pieces(r, 0, r.each, width)
    speaker = t.acting_root(t.my_node, r.to)
    made = _Made(t, nodes, speaker)
    used = t.channel()
    turns = [made.turn(blocks) for _, _, blocks in pieces]
    t.ready(NODE, NODE, node_only=True)

    def down_the_line(v: int) -> Iterator[int]:
        yield (home + v) % n
        for child in shape(v, n)[1]:
            yield from down_the_line(child)

    def has(v: int, blocks: int) -> bool:
        return any(nodes.of(node, blocks) for node in down_the_line(v))

    def own(thread: int, i: int) -> Part:
        return Operand(BUFFER).on(thread, i % depth * width)

    if t.me == speaker:
        with t.net():
            sends: list[int] = []
            coming: dict[tuple[int, int], int] = {}

            def landing(i: int, q: int) -> Part:
                return Operand(BUFFER).on(t.me, (depth * (2 + i) + q % depth) * width)

            def post(q: int) -> None:
                if q < len(pieces):
                    begin, end, blocks = pieces[q]
                    for i, child in enumerate(children):
                        if has(child, blocks):
                            of = t.acting_root((home + child) % n, r.to or 0)
                            coming[q, i] = t.recv(
                                of, landing(i, q), (end - begin) * size, bounded=False
                            )

            post(0)
            consumed = 0
            for q, (begin, end, _) in enumerate(pieces):
                post(q + 1)
                parts = []
                turn = turns[q]
                if turn is not None:
                    made.wait(turn)
                    parts.append(own(made.mates[turn[0]], turn[1] - 1))
                for i, _ in enumerate(children):
                    if (q, i) in coming:
                        t.need(coming[q, i])
                        parts.append(landing(i, q))
                if not parts:
                    continue
                if parent is None:
                    t.fold(DST.on(t.me, begin * size), _tree_of(parts), end - begin)
                else:
                    if len(sends) >= depth:
                        t.need(sends[-depth])
                    out = Operand(BUFFER).on(t.me, (depth + len(sends) % depth) * width)
                    t.fold(out, _tree_of(parts), end - begin)
                    to = t.acting_root((home + parent) % n, r.to)
                    sends.append(t.send(to, out, (end - begin) * size))
                if turn is not None:
                    consumed += 1
                    t.signal(used, t.mates(), consumed)
    last = 0
    for turn, (begin, end, blocks) in zip(turns, pieces, strict=True):
        if turn is None or turn[0] != made.mine:
            continue
        i = turn[1] - 1
        if i >= depth:  # the one two turns ago has been used
            t.wait(used, speaker, made.number(made.mine, i - depth))
        t.fold(own(t.me, i), nodes.leaves(t.my_node, begin, blocks), end - begin)
        t.signal(made.channel, (Ranks(speaker),), turn[1])
        last = made.number(made.mine, i)
    if last:
        t.wait(used, speaker, made.next)
    t.done(NODE, NODE, node_only=True)


def _one_node(t: Recorder, r: Reduction) -> None:
    by = r.layout.first if r.to is None else r.to
    if r.layout.nelems * r.itemsize <= t.tuning["fuse"]:
        with t.alone(by, anyone=True):
            _all_of(t, r, 0, r.each)
    elif r.element_wise:
        t.ready(ALL, ALL)
        grain = max(1, 64 // r.itemsize)
        grains = -(-r.each // grain)
        begin, end = (min(r.each, grains * (t.me + k) // t.size * grain) for k in (0, 1))
        if begin < end:
            _all_of(t, r, begin, end)
        t.done(ALL, ALL)
    elif r.by_row:
        push(t, r)
    else:
        _one_value(t, r)


def _all_of(t: Recorder, r: Reduction, begin: int, end: int) -> None:
    """Some of the results from all threads' blocks, to all places where they belong."""
    where = range(t.size) if r.to is None else (r.to,)

    def places(begin: int) -> tuple[Part, int]:
        return DST.across(Ranks(where[0], len(where)), begin * r.itemsize), len(where)

    if not r.by_row:
        for b, e, blocks in r.ranges(begin, end):
            place, copies = places(b)
            t.fold(place, r.tree(b, blocks), e - b, copies)
        return
    last = r.layout.rows - 1
    for b, e, _ in r.ranges(begin, end):
        place, copies = places(b)
        total = place.block(0)
        t.fold(total, r.row_tree(0, b), e - b)
        for row, rows in ((1, last - 1), (last, 1)):
            if rows and (leaves := r.row_tree(row, b)):
                t.fold(total, [Leaf(total), *_joined(leaves)], e - b, rows=rows)
        if copies > 1:
            t.copy(place.block(1)._replace(thread_step=1), total, (e - b) * r.itemsize, copies - 1)


def _one_value(t: Recorder, r: Reduction) -> None:
    """Each thread folds its run into its SLOT; whoever wants the value joins them all."""
    layout = r.layout
    position = layout.position(t.me)
    there = t.channel()
    wanted = t.mates() if r.to is None else (Ranks(r.to),)
    if position is not None:
        t.fold(Operand(SLOT).on(t.me), [r.leaf(position, 0, layout.blocks)])
        t.signal(there, wanted)
    if r.to in (None, t.me):
        joins = tree_joins(layout.positions)
        leaves = []
        for p in range(layout.positions):
            t.wait(there, layout.thread(p))
            leaves.append(Leaf(Operand(SLOT).on(layout.thread(p)), 1, joins[p]))
        t.fold(DST.on(t.me), leaves)


for _form in FORMS:
    algorithm(_form, PULL, "each thread reads its children's values in a tree of threads")(pull)
    algorithm(_form, PUSH, "each thread writes its value to its parent in a tree")(push)
    algorithm(_form, MULTICORE, "threads of a node share the work, node roots speak for it")(
        multicore
    )
