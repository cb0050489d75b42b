"""Layouts against the pointer arithmetic of UPC, element by element."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xupc.pgas.layout import Layout, moves


def place(threads: int, first: int, phase: int, block: int, i: int) -> tuple[int, int]:
    """(thread, place) of element i, straight from UPC 6.4.2."""
    if block == 0:
        return first, i
    thread, here, at = first, phase, 0
    for _ in range(i):
        here, at = here + 1, at + 1
        if here == block:
            here, thread, at = 0, thread + 1, at - block
            if thread == threads:
                thread, at = 0, at + block
    return thread, at


layouts = st.builds(
    lambda t, f, b, p, n: Layout(t, f % t, p % b if b else 0, b, n),
    st.integers(1, 6), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4),
    st.integers(1, 70),
)  # fmt: skip


def elements(x: Layout) -> list[tuple[int, int]]:
    return [place(x.threads, x.first, x.phase, x.blocksize, i) for i in range(x.nelems)]


@given(layouts)
def test_runs_and_blocks(x: Layout) -> None:
    want = elements(x)
    assert x.positions == len({t for t, _ in want})
    for position in range(x.positions):
        thread = x.thread(position)
        assert x.position(thread) == position
        mine = [p for t, p in want if t == thread]
        run = x.run(position)
        assert mine == list(range(run.place, run.place + run.nelems))
    found = []
    for row in range(x.rows):
        for position in range(x.positions):
            block = x.at(position, row)
            if block is not None:
                places = range(block.place, block.place + block.nelems)
                found += [(x.thread(position), p) for p in places]
    assert found == want
    for thread in set(range(x.threads)) - {t for t, _ in want}:
        assert x.position(thread) is None


@given(layouts)
def test_the_furthest_elements_are_among_the_few(x: Layout) -> None:
    want = elements(x)
    few = x.furthest()
    assert min(lo for lo, _ in few.values()) == min(p for _, p in want)
    assert max(hi for _, hi in few.values()) == max(p for _, p in want) + 1


@given(layouts, st.integers(0, 5), st.integers(0, 5), st.integers(0, 4))
def test_moves(x: Layout, first: int, block: int, phase: int) -> None:
    y = Layout(x.threads, first % x.threads, phase % block if block else 0, block, x.nelems)
    want = {(s, d): [] for s, d in zip(elements(x), elements(y), strict=True)}
    for thread in range(x.threads):
        found = []
        for (a, b), pieces in moves(x, y, thread).items():
            assert pieces == moves(x, y, a)[a, b] == moves(x, y, b)[a, b]
            for piece in pieces:
                for k in range(piece.times):
                    for i in range(piece.nelems):
                        s = piece.src + k * piece.src_step + i
                        found.append(((a, s), (b, piece.dst + k * piece.dst_step + i)))
        assert sorted(found) == sorted(w for w in want if thread in (w[0][0], w[1][0]))


def test_regular_moves_take_few_pieces() -> None:
    x, y = Layout(4, 0, 0, 10, 4000), Layout(4, 1, 3, 10, 4000)
    assert max(len(pieces) for pieces in moves(x, y, 1).values()) <= 4
    cyclic, blocked = Layout(4, 0, 0, 1, 4000), Layout(4, 0, 0, 1000, 4000)
    assert max(len(pieces) for pieces in moves(cyclic, blocked, 1).values()) == 1


def test_moves_of_one_thread_among_many_take_no_time() -> None:
    n = 1_280_000
    assert len(moves(Layout(n, 0, 0, 16, 16 * n), Layout(n, 1, 3, 16, 16 * n), 77)) <= 4
