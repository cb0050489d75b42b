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
from ..patterns import chunks, tree_joins
from ..plan.recorder import ALL, Operand, Recorder
from ..plan.steps import SLOT, Leaf, Part, Ranks
from .registry import algorithm
from .sweeps import Down, Up

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
        row = Leaf(spare, joins=1, step=r.itemsize)
        t.fold(place, [Leaf(place), row], rows=task.rows)


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
    """
    if t.one_node:
        _one_node(t, r)
    else:
        push(t, r)


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
