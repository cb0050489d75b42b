"""Shared arrays, pointers and copies in a fake heap, against elements dealt like cards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.dealing import deal

from xupc.errors import NotInitializedError, OverlapError
from xupc.pgas import access
from xupc.pgas.allocation import Allocation, check_dtype, set_memory
from xupc.pgas.copy import memcpy, memget, memput, memset
from xupc.pgas.forall import forall
from xupc.pgas.pointer_record import pointer_dtype
from xupc.pgas.shared_array import SharedArray
from xupc.pgas.shared_pointer import SharedPointer, pointer_to
from xupc.pgas.shared_reference import as_address

POISON = 0xA5
HEAP = 1 << 14
BASE = 1 << 12


class FakeMemory:
    """Heaps of T threads as plain arrays; `near` threads are on my node.

    What goes through `put` is noted byte by byte, so that a test can distinguish a write of an
    element from one of its neighbours with the same value.
    """

    def __init__(self, threads: int, me: int = 0, near: frozenset[int] | None = None) -> None:
        self.threads = threads
        self.me = me
        self.near = frozenset(range(threads)) if near is None else near | {me}
        self.world = object()
        self.heaps = [np.full(HEAP, POISON, np.uint8) for _ in range(threads)]
        self.gone = False
        self.known: dict[tuple[int, int], Allocation] = {}
        self.got = 0
        self.written: list[tuple[int, int]] = []
        self.largest = 0
        self._top = BASE
        self._serial = 0

    def _bytes(self, thread: int, offset: int, nbytes: int) -> NDArray[np.uint8]:
        assert 0 <= offset <= offset + nbytes <= HEAP, (thread, offset, nbytes)
        return self.heaps[thread][offset : offset + nbytes]

    def view(self, thread: int, offset: int, nbytes: int) -> NDArray[np.uint8] | None:
        return self._bytes(thread, offset, nbytes) if thread in self.near else None

    def get(self, thread: int, offset: int, out: NDArray[np.uint8]) -> None:
        assert out.dtype == np.uint8
        assert out.ndim == 1
        assert out.flags.c_contiguous
        self.got += out.size
        self.largest = max(self.largest, out.size)
        out[...] = self._bytes(thread, offset, out.size)

    def put(self, thread: int, offset: int, data: NDArray[np.uint8]) -> None:
        assert data.dtype == np.uint8
        assert data.ndim == 1
        assert data.flags.c_contiguous
        self.largest = max(self.largest, data.size)
        self.written += [(thread, offset + k) for k in range(data.size)]
        self._bytes(thread, offset, data.size)[...] = data

    def check(self) -> None:
        if self.gone:
            raise NotInitializedError("finalized")

    def home(self, offset: int) -> Any:
        return self

    def allocation_at(self, thread: int, offset: int) -> Allocation | None:
        return self.known.get((thread, offset))

    # --- what the heap's owner does

    def allocate(
        self,
        nelems: int,
        dtype: Any = np.int32,
        blocksize: int = 1,
        kind: str = "all",
        first: int | None = None,
        members: tuple[int, ...] | None = None,
        known: bool = True,
    ) -> Allocation:
        dtype = np.dtype(dtype)
        self._serial += 1
        team = None if members is None else ("team", members)
        made = Allocation(
            self, self._serial, self._top, nelems, dtype, blocksize, first, kind,
            team=team, members=members,
        )  # fmt: skip
        if known:
            self.known |= {(t, self._top): made for t in range(self.threads)}
        for thread in range(self.threads):
            self._bytes(thread, *made.part(thread))[...] = 0
        self._top += -(-(nelems * dtype.itemsize + 64) // 64) * 64
        return made

    def array(self, *args: Any, **kwargs: Any) -> SharedArray:
        return SharedArray(self.allocate(*args, **kwargs))

    def free(self, allocation: Allocation) -> None:
        allocation.retire()
        self.known = {at: a for at, a in self.known.items() if a is not allocation}


@pytest.fixture
def memory() -> Iterator[FakeMemory]:
    """Four threads, me 1, threads 0 and 1 on my node; the job's memory."""
    fake = FakeMemory(4, me=1, near=frozenset({0}))
    set_memory(fake)
    yield fake
    set_memory(None)


def layouts() -> st.SearchStrategy[tuple[FakeMemory, SharedArray, np.ndarray[Any, Any]]]:
    """A heap, an array in it filled with 1, 2, ... behind its back, and what it should hold."""

    def build(
        threads: int, near: int, me: int, nelems: int, blocksize: int, dtype: str
    ) -> tuple[FakeMemory, SharedArray, np.ndarray[Any, Any]]:
        nodes = frozenset(t for t in range(threads) if near >> t & 1)
        fake = FakeMemory(threads, me % threads, nodes)
        A = fake.array(nelems, dtype, blocksize)
        oracle = np.arange(1, nelems + 1).astype(dtype)
        fill(fake, A, oracle)
        return fake, A, oracle

    return st.builds(
        build,
        st.integers(1, 6),
        st.integers(0, 63),
        st.integers(0, 5),
        st.integers(0, 60),
        st.integers(0, 7),
        st.sampled_from(["u1", "i2", "f8", "c16", "V3", "S5"]),
    )


def fill(fake: FakeMemory, A: SharedArray, values: np.ndarray[Any, Any]) -> None:
    size = A.itemsize
    for i, (thread, _, local) in enumerate(deal(A.nelems, A.blocksize, fake.threads)):
        at = A.allocation.offset + local * size
        fake.heaps[thread][at : at + size] = values[i : i + 1].view(np.uint8)


def expected_heaps(
    fake: FakeMemory, A: SharedArray, values: np.ndarray[Any, Any]
) -> list[np.ndarray[Any, Any]]:
    other = FakeMemory(fake.threads)
    fill(other, A, values)
    return other.heaps


def same_heaps(fake: FakeMemory, heaps: list[np.ndarray[Any, Any]]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(fake.heaps, heaps, strict=True))


def bounds(n: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-n - 3, n + 3)


def slices(n: int) -> st.SearchStrategy[slice]:
    steps = st.none() | st.sampled_from([1, 2, 3, 7, -1, -2, -5, 40, -40])
    return st.builds(slice, bounds(n), bounds(n), steps)


@pytest.fixture(params=[16, 1 << 20])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run with remote copies in tiny pieces too."""
    monkeypatch.setattr(access, "CHUNK", request.param)
    return int(request.param)


# --- arrays against the oracle --------------------------------------------------------------------


class TestArrayAgainstOracle:
    @given(layout=layouts())
    def test_whole(self, layout: Any) -> None:
        _, A, oracle = layout
        assert len(A) == A.nelems == len(oracle)
        assert (A.dtype, A.itemsize, A.nbytes) == (oracle.dtype, oracle.itemsize, oracle.nbytes)
        assert np.asarray(A).tobytes() == oracle.tobytes()
        assert [bytes(x) for x in A] == [bytes(x) for x in oracle]

    @given(layout=layouts())
    def test_local_views(self, layout: Any) -> None:
        fake, A, oracle = layout
        places = deal(len(oracle), A.blocksize, fake.threads)
        for thread in range(fake.threads):
            view = A.local_view(thread)
            if thread not in fake.near:
                assert view is None
                continue
            mine = [oracle[i] for i, place in enumerate(places) if place[0] == thread]
            assert view is not None
            assert view.dtype == A.dtype
            assert [x.tobytes() for x in view] == [x.tobytes() for x in mine]
        assert A.local.tobytes() == A.local_view(fake.me).tobytes()

    @pytest.mark.usefixtures("chunk")
    @settings(max_examples=200, deadline=None)
    @given(data=st.data())
    def test_programs(self, data: st.DataObject) -> None:
        fake, A, oracle = data.draw(layouts())
        n, value = len(oracle), 100
        for _ in range(data.draw(st.integers(1, 6))):
            value += 1
            what = data.draw(st.sampled_from(["read", "write", "fill", "item", "set"]))
            if what in ("item", "set") and n:
                i = data.draw(st.integers(-n, n - 1))
                if what == "set":
                    A[i] = oracle[i] = np.array(value).astype(A.dtype)[()]
                assert bytes(A[i]) == bytes(oracle[i])
                assert type(A[i]) is type(oracle[i])
                continue
            part = data.draw(slices(n))
            if what == "write":
                new = np.arange(value, value + len(oracle[part])).astype(A.dtype)
                A[part] = oracle[part] = new
            elif what == "fill" and A.dtype.kind != "V":
                A[part] = oracle[part] = 7
            got = A[part]
            assert isinstance(got, np.ndarray)
            assert (got.dtype, got.tobytes()) == (oracle.dtype, oracle[part].tobytes())
        assert same_heaps(fake, expected_heaps(fake, A, oracle))

    @pytest.mark.usefixtures("chunk")
    @settings(max_examples=200, deadline=None)
    @given(data=st.data())
    def test_a_write_touches_its_elements_only(self, data: st.DataObject) -> None:
        fake, A, oracle = data.draw(layouts())
        part = data.draw(slices(len(oracle)))
        A[part] = oracle[part]  # the same values: only the log shows the write
        places = deal(len(oracle), A.blocksize, fake.threads)
        touched = [
            (places[i][0], A.allocation.offset + places[i][2] * A.itemsize + byte)
            for i in range(len(oracle))[part]
            for byte in range(A.itemsize)
            if places[i][0] not in fake.near
        ]
        assert sorted(fake.written) == sorted(touched)

    @given(layout=layouts())
    def test_positions(self, layout: Any) -> None:
        fake, A, oracle = layout
        places = deal(len(oracle) + 1, A.blocksize, fake.threads)
        for i, (thread, phase, local) in enumerate(places):
            p = A + i
            addr = A.allocation.offset + local * A.itemsize
            phase = phase if A.blocksize else 0
            assert (p.thread, p.phase, p.addr) == (thread, phase, addr)
            assert (p.blocksize, p.dtype, p.team) == (A.blocksize, A.dtype, fake.world)
            if i < len(oracle):
                assert (A.threadof(i), A.phaseof(i)) == (thread, phase)
                assert (A.threadof(i - len(oracle)), bytes(p[0])) == (thread, bytes(A[i]))

    def test_remote_bytes_are_bounded(self, memory: FakeMemory, chunk: int) -> None:
        A = memory.array(400, np.int32, 100)
        assert np.array_equal(A[200::3], np.zeros(67))  # threads 2 and 3 are remote
        assert memory.largest <= max(chunk, 400)
        assert memory.got <= 800


# --- pointers against the oracle ------------------------------------------------------------------


class Cards:
    """The places that pointers of one kind walk through, dealt one at a time.

    Place k is `centre` places after the first; addresses count from that of the array.
    """

    def __init__(self, threads: int, blocksize: int, itemsize: int, rows: int = 40) -> None:
        row = max(blocksize, 1) * threads
        self.places = deal(2 * rows * row, blocksize, threads)
        self.centre = rows * row
        self.lower = self.places[self.centre][2]
        self.blocksize, self.itemsize = blocksize, itemsize

    def at(self, i: int) -> tuple[int, int, int]:
        """(thread, phase, bytes from the array's start) of element i, maybe negative."""
        thread, phase, local = self.places[self.centre + i]
        return thread, phase if self.blocksize else 0, (local - self.lower) * self.itemsize


def hands(fake: FakeMemory, A: SharedArray) -> list[int]:
    """Bytes of the array on each thread, counted from the deal."""
    places = deal(A.nelems, A.blocksize, fake.threads)
    return [A.itemsize * sum(p[0] == t for p in places) for t in range(fake.threads)]


class TestPointerAgainstOracle:
    @settings(max_examples=200, deadline=None)
    @given(data=st.data(), layout=layouts())
    def test_arithmetic(self, data: st.DataObject, layout: Any) -> None:
        fake, A, _ = layout
        cards = Cards(fake.threads, A.blocksize, A.itemsize)
        i, start = 0, A + 0
        p = start
        for n in data.draw(st.lists(st.integers(-30, 30), max_size=6)):
            if abs(i + n) > 38:
                continue
            p = data.draw(st.sampled_from([p + n, p - -n, n + p, np.int64(n) + p]))
            i += n
            thread, phase, addr = cards.at(i)
            assert (p.thread, p.phase, p.addr - A.allocation.offset) == (thread, phase, addr)
            assert p - start == i
            assert start - p == -i
            assert p - A == i
            assert A.ptr(0) + i == p
            order = (p < start, p <= start, p > start, p >= start)
            assert order == (i < 0, i <= 0, i > 0, i >= 0)
            assert (p == start, hash(p) == hash(start + i)) == (i == 0, True)

    @settings(max_examples=200, deadline=None)
    @given(data=st.data(), layout=layouts())
    def test_access(self, data: st.DataObject, layout: Any) -> None:
        fake, A, oracle = layout
        cards, have = Cards(fake.threads, A.blocksize, A.itemsize), hands(fake, A)
        at = data.draw(st.integers(0, len(oracle)))
        p = A + at
        for i in data.draw(st.lists(st.integers(-70, 70), max_size=8)):
            if abs(at + i) >= cards.centre:
                continue
            thread, _, addr = cards.at(at + i)
            if 0 <= addr < have[thread]:
                assert 0 <= at + i < len(oracle)
                assert bytes(p[i]) == bytes(oracle[at + i])
                p[i] = oracle[at + i] = np.array(i & 63).astype(A.dtype)[()]
            else:
                with pytest.raises(IndexError, match="thread"):
                    p[i]
                with pytest.raises(IndexError, match="thread"):
                    p[i] = oracle[0] if len(oracle) else b""
        assert same_heaps(fake, expected_heaps(fake, A, oracle))

    @pytest.mark.usefixtures("chunk")
    @settings(max_examples=300, deadline=None)
    @given(data=st.data())
    def test_slices(self, data: st.DataObject) -> None:
        fake, A, oracle = data.draw(layouts())
        at = data.draw(st.integers(0, len(oracle)))
        i, j = data.draw(st.integers(-12, 70)), data.draw(st.integers(-12, 70))
        k = data.draw(st.sampled_from([1, 2, 3, 8, -1, -3]))
        wanted = [at + x for x in range(i, j, k)]
        p = A + at
        if all(0 <= x < len(oracle) for x in wanted):
            assert p[i:j:k].tobytes() == oracle[wanted].tobytes()
            new = np.arange(60, 60 + len(wanted)).astype(A.dtype)
            p[i:j:k] = oracle[wanted] = new
        else:
            with pytest.raises(IndexError):
                p[i:j:k]
            with pytest.raises(IndexError):
                p[i:j:k] = np.zeros(len(wanted), A.dtype)
            assert not fake.written
        assert same_heaps(fake, expected_heaps(fake, A, oracle))

    @settings(max_examples=300, deadline=None)
    @given(data=st.data())
    def test_casts(self, data: st.DataObject) -> None:
        """A cast pointer deals on from its own thread with phase 0, over bytes."""
        threads = data.draw(st.integers(1, 5))
        fake = FakeMemory(threads, near=frozenset(data.draw(st.sets(st.integers(0, 4)))))
        A = fake.array(data.draw(st.integers(1, 60)), "i4", data.draw(st.integers(0, 6)))
        for thread, heap in enumerate(fake.heaps):
            heap[...] = (np.arange(HEAP) * (thread + 3)) & 255
        p = A + data.draw(st.integers(0, len(A)))
        dtype = np.dtype(data.draw(st.sampled_from(["u1", "i2", "i4", "f4", "i8"])))
        block = data.draw(st.none() | st.integers(0, 6))
        if p.addr % dtype.alignment:
            with pytest.raises(ValueError, match="multiple of 8"):
                p.cast(dtype, block)
            return
        q = p.cast(dtype, block)
        expected_block = p.blocksize if block is None else block
        kept = expected_block == p.blocksize and dtype.itemsize == 4
        assert (q.thread, q.addr, q.dtype, q.blocksize) == (p.thread, p.addr, dtype, expected_block)
        assert q.phase == (p.phase if kept else 0)
        have = hands(fake, A)
        cards = Cards(threads, q.blocksize, dtype.itemsize)
        thread0, addr0 = q.thread * max(q.blocksize, 1) + q.phase, q.addr - q.phase * dtype.itemsize
        for i in data.draw(st.lists(st.integers(-20, 20), max_size=6)):
            if q.blocksize:
                thread, phase, ahead = cards.at(thread0 + i)
            else:
                thread, phase, ahead = q.thread, 0, i * dtype.itemsize
            r = q + i
            assert (r.thread, r.phase, r.addr) == (thread, phase, addr0 + ahead)
            start = r.addr - A.allocation.offset
            if start >= 0 and start + dtype.itemsize <= have[thread]:
                raw = fake.heaps[thread][r.addr : r.addr + dtype.itemsize]
                assert q[i].tobytes() == raw.tobytes()
            else:
                with pytest.raises(IndexError):
                    q[i]

    @settings(max_examples=200, deadline=None)
    @given(data=st.data(), layout=layouts())
    def test_local(self, data: st.DataObject, layout: Any) -> None:
        fake, A, oracle = layout
        p = A + data.draw(st.integers(0, len(oracle)))
        n = data.draw(st.integers(0, 30))
        start, have = p.addr - A.allocation.offset, hands(fake, A)[p.thread]
        if start + n * A.itemsize > have:
            with pytest.raises(IndexError, match=r"p\.local"):
                p.local(n)
            return
        view = p.local(n)
        if p.thread not in fake.near:
            assert view is None
            return
        raw = fake.heaps[p.thread][p.addr : p.addr + n * A.itemsize]
        assert (view.dtype, view.shape, view.tobytes()) == (A.dtype, (n,), raw.tobytes())
        view[...] = np.zeros(1, A.dtype)
        assert not raw.any()


# --- arrays: the rest -----------------------------------------------------------------------------


class TestArray:
    def test_asarray(self, memory: FakeMemory) -> None:
        A = memory.array(10, "i4", 3)
        A[:] = range(10)
        assert np.array_equal(np.asarray(A), np.arange(10))
        assert np.asarray(A, np.float64).dtype == np.float64
        assert np.array_equal(np.array(A, copy=True), np.arange(10))
        with pytest.raises(ValueError, match="gathered"):
            np.asarray(A, copy=False)
        gathered = np.asarray(A)
        gathered[:] = 0
        assert A[9] == 9

    def test_local_is_a_view(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        A.local[:] = [5, 6]
        A.local += 1
        A.local.shape = (2, 1)  # the user's own view: the next one is flat again
        assert A.local.shape == (2,)
        assert A[2:4].tolist() == [6, 7]

    def test_numpy_integers(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        three = [
            A + 3,
            3 + A,
            A + np.int64(3),
            np.int64(3) + A,
            A.ptr(np.uint8(3)),
            np.array(3) + A,
        ]
        assert three == [A.ptr(3)] * 6
        assert memory.got == 0
        A[np.int16(2)] = 9
        assert A[np.uint64(2)] == 9

    def test_identity(self, memory: FakeMemory) -> None:
        A, B = memory.array(4), memory.array(4)
        assert (A == A, A == B, A != B) == (True, False, True)
        assert (np.zeros(4) == A) is False
        assert len({A, B, A}) == 2
        with pytest.raises(ValueError, match="ambiguous"):
            bool(A)

    def test_values_are_converted_as_by_numpy(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        A[0:8] = 3.7
        A[5] = 4.9
        A[2:4] = [True, 2.5]
        assert A[:].tolist() == [3, 3, 1, 2, 3, 4, 3, 3]
        A[...] = A[::-1]
        A[1:4] = memory.array(3, "f4")
        assert A[...].tolist() == [3, 0, 0, 0, 2, 1, 3, 3]

    def test_a_slice_of_itself(self, memory: FakeMemory) -> None:
        A = memory.array(9, "i4", 0, first=1)
        A[:] = range(9)
        A[1:] = A.local[:-1]
        assert A[:].tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7]
        whole = A.local
        A[::-1] = whole
        assert A[:].tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 0]

    def test_a_view_of_what_is_written(self) -> None:
        A = FakeMemory(2).array(8, "i4", 2)
        A[:] = range(8)
        A[1:5] = A.local_view(0)  # elements 0, 1, 4, 5; in three runs, the first over element 1
        assert A[:].tolist() == [0, 0, 1, 4, 5, 5, 6, 7]

    def test_structured(self, memory: FakeMemory) -> None:
        A = memory.array(8, [("x", "i2"), ("y", "f8")], 2)
        A[1:6] = (1, 2.5)
        A[6] = (3, 4.5)
        for i, value in ((1, (1, 2.5)), (5, (1, 2.5)), (6, (3, 4.5)), (7, (0, 0.0))):
            item = A[i]
            assert item.item() == value
            item["x"] = 99  # by value
            assert A[i].item() == value

    def test_team(self) -> None:
        fake = FakeMemory(6, me=4, near=frozenset({1}))
        members = (5, 1, 4)
        A = fake.array(14, "i4", 2, members=members)
        A[:] = range(14)
        places = [(members[t], phase, k) for t, phase, k in deal(14, 2, 3)]
        for i, (thread, phase, k) in enumerate(places):
            p = A + i
            assert (p.thread, p.phase, p.addr) == (thread, phase, A.allocation.offset + 4 * k)
            assert p.team == ("team", members)
            assert fake.heaps[thread][p.addr] == i
        assert A[3:12:2].tolist() == [3, 5, 7, 9, 11]
        assert (A + 9) - (A + 2) == 7
        assert A.local.tolist() == [i for i, place in enumerate(places) if place[0] == 4]
        assert as_address(A)[1:] == (5, A.allocation.offset)
        assert list(forall(14, A)) == A.local.tolist()
        outside = FakeMemory(3, me=2).array(4, members=(0, 1))
        assert (outside.local.size, list(forall(4, outside))) == (0, [])

    def test_team_pointers_travel(self) -> None:
        fake = FakeMemory(6, me=4)
        set_memory(fake)
        A = fake.array(14, "i4", 2, members=(5, 1, 4))
        A[:] = range(14)
        P = fake.array(2, pointer_dtype)
        P[1] = A + 3
        p = pickle.loads(pickle.dumps(A + 3))
        q = P[1].cast("i4")
        assert (p.thread, p.phase, p[0], p[1:4].tolist()) == (1, 1, 3, [4, 5, 6])
        assert (q.thread, q[0], q.allocation is A.allocation) == (1, 3, True)
        fake.known = {at: a for at, a in fake.known.items() if a is P.allocation}
        for p in (pickle.loads(pickle.dumps(A + 3)), P[1].cast("i4")):
            with pytest.raises(ValueError, match="freed"):
                p[0]
        set_memory(None)

    def test_repr(self, memory: FakeMemory) -> None:
        A = memory.array(4, "i4", 2)
        assert repr(A) == "SharedArray(nelems=4, dtype=int32, blocksize=2, threads=4)"
        expected = f"SharedPointer(thread=1, phase=1, addr={BASE + 4}, blocksize=2, dtype=int32)"
        assert repr(A + 3) == expected
        memory.free(A.allocation)
        assert "freed" in repr(A)


ARRAY_ERRORS: list[tuple[str, Callable[[SharedArray], Any], type[Exception], str | None]] = [
    ("index", lambda A: A[8], IndexError, "8"),
    ("negative", lambda A: A[-9], IndexError, "-9"),
    ("huge", lambda A: A[10**30], IndexError, "1000"),
    ("float", lambda A: A[1.0], TypeError, "1.0"),
    ("NaN", lambda A: A[float("nan")], TypeError, "nan"),
    ("bool", lambda A: A[True], TypeError, "True"),
    ("none", lambda A: A[None], TypeError, "None"),
    ("tuple", lambda A: A[1, 2], TypeError, "1, 2"),
    ("list", lambda A: A[[1, 2]], TypeError, "1, 2"),
    ("mask", lambda A: A[np.ones(8, bool)], TypeError, "True"),
    ("array of one", lambda A: A[np.array([1])], TypeError, "1"),
    ("slice of floats", lambda A: A[0.5:], TypeError, None),
    ("slice step 0", lambda A: A[::0], ValueError, "zero"),
    ("set index", lambda A: A.__setitem__(8, 1), IndexError, "8"),
    ("set length", lambda A: A.__setitem__(slice(0, 3), [1, 2]), ValueError, "broadcast"),
    ("set huge", lambda A: A.__setitem__(slice(0, 3), range(1 << 50)), ValueError, "expected 3"),
    ("set NaN", lambda A: A.__setitem__(0, float("nan")), ValueError, "NaN"),
    ("set NaNs", lambda A: A.__setitem__(slice(3), float("nan")), ValueError, "NaN"),
    ("set str", lambda A: A.__setitem__(0, "x"), ValueError, "x"),
    ("set huge", lambda A: A.__setitem__(7, 1 << 80), OverflowError, None),
    ("set pointer", lambda A: A.__setitem__(0, A + 1), TypeError, None),
    ("set pointers", lambda A: A.__setitem__(slice(2), A + 1), TypeError, None),
    ("ptr", lambda A: A.ptr(9), IndexError, "0 <= i <= 8"),
    ("ptr negative", lambda A: A.ptr(-1), IndexError, "no wrapping"),
    ("ptr float", lambda A: A.ptr(1.5), TypeError, "1.5"),
    ("plus", lambda A: A + 9, IndexError, "A \\+ i"),
    ("plus numpy", lambda A: np.int64(-1) + A, IndexError, "-1"),
    ("plus float", lambda A: A + 1.0, TypeError, None),
    ("plus bool", lambda A: A + True, TypeError, None),
    ("plus array", lambda A: A + np.arange(8), TypeError, None),
    ("array plus", lambda A: np.arange(8) + A, TypeError, None),
    ("plus itself", lambda A: A + A, TypeError, None),
    ("less", lambda A: A < 3, TypeError, None),
    ("threadof", lambda A: A.threadof(8), IndexError, "threadof"),
    ("phaseof", lambda A: A.phaseof("1"), TypeError, "phaseof"),
    ("view of -1", lambda A: A.local_view(-1), ValueError, "-1"),
    ("view of 4", lambda A: A.local_view(4), ValueError, "4"),
    ("view of float", lambda A: A.local_view(0.0), TypeError, "0.0"),
    ("pickle", pickle.dumps, TypeError, "A \\+ 0"),
    ("pickle memory", lambda A: pickle.dumps(A.allocation), TypeError, None),
    ("deepcopy", copy.deepcopy, TypeError, None),
]  # fmt: skip


Refusal = tuple[Callable[[Any], Any], type[Exception], str | None]
"""A call with an operand, the error that it must raise, and words of its text."""


def refused(
    memory: FakeMemory, operand: Any, call: Callable[[Any], Any], error: type[Exception],
    match: str | None,
) -> None:  # fmt: skip
    """Make a call that must raise an error, and change nothing."""
    before = [heap.copy() for heap in memory.heaps]
    with pytest.raises(error, match=match):
        call(operand)
    assert same_heaps(memory, before)


@pytest.mark.parametrize("refusal", [c[1:] for c in ARRAY_ERRORS], ids=[c[0] for c in ARRAY_ERRORS])
def test_array_errors(memory: FakeMemory, refusal: Refusal) -> None:
    refused(memory, memory.array(8, "i4", 2), *refusal)


POINTER_ERRORS: list[tuple[str, Callable[[SharedPointer], Any], type[Exception], str | None]] = [
    ("plus float", lambda p: p + 1.0, TypeError, None),
    ("plus NaN", lambda p: p + float("nan"), TypeError, None),
    ("plus bool", lambda p: p + True, TypeError, None),
    ("plus pointer", lambda p: p + p, TypeError, None),
    ("plus array", lambda p: p + np.arange(3), TypeError, None),
    ("minus float", lambda p: p - 1.0, TypeError, None),
    ("int minus", lambda p: 1 - p, TypeError, None),
    ("minus other dtype", lambda p: p - p.cast("f4"), TypeError, "dtype"),
    ("minus other block", lambda p: p - p.cast(blocksize=3), TypeError, "blocksize"),
    ("less other dtype", lambda p: p < p.cast("u4"), TypeError, "dtype"),
    ("less int", lambda p: p < 1, TypeError, None),
    ("unreachable", lambda p: p.cast("u1", 0) - (p + 2).cast("u1", 0), ValueError, "one thread"),
    ("far", lambda p: p[10**30], IndexError, "p\\["),
    ("far back", lambda p: p[-(10**30)], IndexError, "p\\["),
    ("huge slice", lambda p: p[: 10**30], IndexError, "beyond"),
    ("huge set", lambda p: p.__setitem__(slice(10**18), 0), IndexError, "beyond"),
    ("open slice", lambda p: p[1:], ValueError, "no end"),
    ("step 0", lambda p: p[0:2:0], ValueError, "zero"),
    ("float slice", lambda p: p[0.0:2], TypeError, "0.0"),
    ("float index", lambda p: p[0.0], TypeError, "0.0"),
    ("ellipsis", lambda p: p[...], TypeError, None),
    ("set length", lambda p: p.__setitem__(slice(3), [1, 2]), ValueError, "broadcast"),
    ("iterate", iter, TypeError, None),
    ("in", lambda p: 3 in p, TypeError, None),
    ("cast object", lambda p: p.cast(object), TypeError, "objects"),
    ("cast foreign", lambda p: p.cast(">i4"), TypeError, "byte order"),
    ("cast shape", lambda p: p.cast("(2,)i4"), TypeError, "shape"),
    ("cast empty", lambda p: p.cast("S0"), TypeError, "size"),
    ("cast nonsense", lambda p: p.cast("no such type"), TypeError, None),
    ("cast unaligned", lambda p: (p + 1).cast("i8"), ValueError, "multiple of 8"),
    ("cast negative", lambda p: p.cast(blocksize=-1), ValueError, "-1"),
    ("cast star", lambda p: p.cast(blocksize="*"), TypeError, "integer"),
    ("cast float", lambda p: p.cast(blocksize=1.0), TypeError, "1.0"),
    ("local far", lambda p: p.local(3), IndexError, "p.local\\(3\\)"),
    ("local huge", lambda p: p.local(10**30), IndexError, "p.local"),
    ("local negative", lambda p: p.local(-1), ValueError, "-1"),
    ("local float", lambda p: p.local(1.0), TypeError, "1.0"),
    ("set attribute", lambda p: setattr(p, "thread", 1), AttributeError, None),
    ("new attribute", lambda p: setattr(p, "colour", 1), AttributeError, None),
]  # fmt: skip


@pytest.mark.parametrize(
    "refusal", [c[1:] for c in POINTER_ERRORS], ids=[c[0] for c in POINTER_ERRORS]
)
def test_pointer_errors(memory: FakeMemory, refusal: Refusal) -> None:
    refused(memory, memory.array(8, "i4", 2) + 0, *refusal)


REFUSED = [
    object, "O", ">f8", "(3,)u1", "S", "V0", None, "nonsense", 3, [("a", "O")], [("a", ">i4")],
        *([np.dtypes.StringDType()] if hasattr(np.dtypes, "StringDType") else []),
]  # fmt: skip


@pytest.mark.parametrize("dtype", REFUSED)
def test_dtypes_refused(dtype: Any) -> None:
    with pytest.raises(TypeError):
        check_dtype(dtype, "all_alloc")


class TestLife:
    def uses(self, A: SharedArray, p: SharedPointer) -> list[Callable[[], Any]]:
        private = np.zeros(4, "i4")
        return [
            lambda: A[0], lambda: A[7], lambda: A[:], lambda: A.__setitem__(0, 1),
            lambda: A.__setitem__(slice(2), 1), lambda: A.local, lambda: A.local_view(0),
            lambda: np.asarray(A), lambda: list(A), lambda: p[0], lambda: p[0:2],
            lambda: p.local(1), lambda: p.__setitem__(0, 1), lambda: p.__setitem__(slice(2), 1),
            lambda: memcpy(A, p, 0), lambda: memget(private, p, 4), lambda: memput(A, private, 4),
            lambda: memset(p, 0, 4), lambda: forall(3, A),
        ]  # fmt: skip

    def test_freed(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        A[:] = range(8)
        view, p = A.local, A + 4
        memory.free(A.allocation)
        for use in self.uses(A, p):
            with pytest.raises(ValueError, match="freed array"):
                use()
        assert view.tolist() == [2, 3]
        assert (p + 1, A.threadof(2), len(A)) == (A + 5, 1, 8)

    def test_finalized(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        view, p = A.local, A + 4
        packed = pickle.dumps(p)
        memory.gone = True
        for use in [
            *self.uses(A, p), lambda: pickle.loads(packed), lambda: forall(3, blocksize=1),
        ]:  # fmt: skip
            with pytest.raises(NotInitializedError):
                use()
        assert view.tolist() == [0, 0]

    def test_before_init(self, memory: FakeMemory) -> None:
        packed = pickle.dumps(memory.array(8) + 1)
        set_memory(None)
        for use in (lambda: pickle.loads(packed), lambda: forall(3, blocksize=1)):
            with pytest.raises(NotInitializedError, match="init"):
                use()

    def test_views_are_dropped_by_retire(self, memory: FakeMemory) -> None:
        A = memory.array(8)
        assert A.local.size
        assert A[0] == 0
        allocation = A.allocation
        assert allocation._parts
        memory.free(allocation)
        assert not allocation._parts
        assert not allocation._elements


# --- pointers that travel -------------------------------------------------------------------------


class TestPointersAsData:
    def test_round_trip(self, memory: FakeMemory) -> None:
        A, P = memory.array(8, "i4", 2), memory.array(10, pointer_dtype, 3)
        A[:] = range(8)
        for i in range(8):
            P[i] = A + i
        P[3] = None
        for i in range(8):
            q = P[i]
            if i == 3:
                assert q is None
                continue
            assert (q, q.dtype, q.blocksize, q.phase) == (A + i, np.uint8, 0, 0)
            assert q.cast("i4")[0] == i
            assert q.allocation is A.allocation
        assert P[8:] == [None, None]
        assert P[2:5] == [A + 2, None, A + 4]
        assert np.asarray(P).dtype == pointer_dtype
        assert list(P) == P[:]

    def test_slices(self, memory: FakeMemory) -> None:
        A, P = memory.array(8, "i4", 2), memory.array(10, pointer_dtype, 3)
        P[:] = A + 1
        assert P[...] == [A + 1] * 10
        P[0:10:3] = [A + 2, None, A, A + 3]
        assert P[0:10:3] == [A + 2, None, A + 0, A + 3]
        Q = memory.array(10, pointer_dtype, 0)
        Q[::-1] = P
        assert Q[:] == P[::-1]
        Q[:] = None
        assert Q[:] == [None] * 10
        Q[0] = np.asarray(P)[0]
        Q[1:3] = np.asarray(P)[3:5]
        Q[3] = P
        assert Q[:4] == [A + 2, None, A + 1, P + 0]
        p = Q + 1
        p[0] = A + 7
        p[1:3] = (None, A + 6)
        assert p[-1:3] == [A + 2, A + 7, None, A + 6]

    @pytest.mark.parametrize("bad", [3, "abc", 1.5, [3, 4], b"x", np.zeros(2), object()])
    def test_no_pointers(self, memory: FakeMemory, bad: Any) -> None:
        P = memory.array(4, pointer_dtype)
        with pytest.raises(TypeError):
            P[0] = bad
        with pytest.raises(TypeError):
            P[0:2] = bad

    def test_bad_lengths_and_ranges(self, memory: FakeMemory) -> None:
        P, A = memory.array(4, pointer_dtype), memory.array(4)
        with pytest.raises(ValueError, match="broadcast"):
            P[0:3] = [A, None]
        with pytest.raises(OverflowError, match=r"A\[i\] = v: v: offset 40+"):
            P[0] = A.ptr(1).cast(blocksize=0) + 10**30

    def test_garbage_is_refused(self, memory: FakeMemory) -> None:
        P = memory.array(4, pointer_dtype)
        P[1] = P
        raw = P.local
        for field, value in [("kind", 9), ("kind", -1), ("thread", 4), ("first", -1),
                             ("itemsize", 0), ("nelems", -1), ("blocksize", -2)]:  # fmt: skip
            kept = raw[field][0]
            raw[field][0] = value
            with pytest.raises(ValueError, match="holds no pointer"):
                P[1]
            raw[field][0] = kept
        assert P[1] == P + 0

    def test_pickle(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        A[:] = range(8)
        for p in (A + 3, (A + 3).cast("i2"), (A + 0) + 100, (A + 0) - 100):
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                q = pickle.loads(pickle.dumps(p, protocol))
                assert repr(q) == repr(p)
                assert q == p
                assert q.allocation is A.allocation
        p = A + 3
        assert copy.copy(p) is copy.deepcopy([p])[0] is p

    @pytest.mark.parametrize("kind", ["alloc", "global"])
    def test_memory_of_others(self, memory: FakeMemory, kind: str) -> None:
        """Bounds and layout travel with a pointer whose memory is not known here."""
        block, first = (0, 2) if kind == "alloc" else (1, 0)
        made = memory.allocate(10, "i4", block, kind, first, known=False)
        p = pointer_to(made)
        P = memory.array(2, pointer_dtype)
        P[0] = p
        q, r = pickle.loads(pickle.dumps(p)), P[0].cast("i4", p.blocksize)
        assert (q.thread, q.blocksize) == ((2, 0) if kind == "alloc" else (0, 1))
        for t in (q, r):
            t[0:10] = range(10)
            assert p[0:10].tolist() == list(range(10))
            t[0:10] = 0
            assert t.allocation.kind == kind
            for beyond in (10, -1):
                with pytest.raises(IndexError):
                    t[beyond]

    def test_stale(self, memory: FakeMemory) -> None:
        A, P = memory.array(8, "i4", 2), memory.array(2, pointer_dtype)
        P[0] = A
        packed = pickle.dumps(A + 0)
        memory.free(A.allocation)
        memory._top = A.allocation.offset
        B = memory.array(8, "i4", 2)
        for p in (P[0], pickle.loads(packed)):
            assert p == B + 0  # the same place, in another allocation
            assert p.addr == A.allocation.offset
            with pytest.raises(ValueError, match="freed array"):
                p[0]


# --- copies ---------------------------------------------------------------------------------------


class TestCopies:
    @pytest.mark.parametrize(("to", "of"), [*product(range(4), range(4))])
    @pytest.mark.parametrize("nbytes", [0, 1, 7, 16, 40])
    def test_memcpy(self, memory: FakeMemory, chunk: int, to: int, of: int, nbytes: int) -> None:
        D, S = memory.array(200, "u1", 3), memory.array(200, "u1", 0)
        S = memory.array(200, "u1", 3)
        S[:] = np.arange(1, 201)
        before = [heap.copy() for heap in memory.heaps]
        dst, src = (D + 3 * to).cast(blocksize=0) + 2, (S + 3 * of).cast(blocksize=0) + 5
        memcpy(dst, src, nbytes)
        data = before[of][src.addr : src.addr + nbytes]
        before[to][dst.addr : dst.addr + nbytes] = data
        assert same_heaps(memory, before)
        private = np.full((7, 8), 9, "i2")
        memget(private, src, nbytes)
        assert private.tobytes() == data.tobytes() + np.full(56, 9, "i2").tobytes()[nbytes:]
        memput(D + 3 * to, private.T.copy().T.copy(), nbytes)
        assert memory.heaps[to][D.allocation.offset :][:nbytes].tobytes() == data.tobytes()
        memset(dst, 77, nbytes)
        assert (memory.heaps[to][dst.addr : dst.addr + nbytes] == 77).all()
        assert memory.heaps[to][dst.addr + nbytes] != 77
        assert memory.largest <= max(chunk, nbytes)

    def test_chunks(self, memory: FakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access, "CHUNK", 16)
        A = memory.array(400, "u1", 100)
        A[200:300] = range(100)
        memcpy(A + 300, A + 200, 99)
        assert A[300:].tolist() == [*range(99), 0]
        assert memory.largest <= 100

    def test_memcpy_takes_arrays_and_moves_bytes(self, memory: FakeMemory) -> None:
        A, B = memory.array(8, "f8", 4), memory.array(8, "u1", 8)
        A[0] = 1.5
        memcpy(B, A, np.int64(8))
        assert B[:].view("f8")[0] == 1.5

    @pytest.mark.parametrize("shift", [-7, -1, 0, 1, 7])
    @pytest.mark.parametrize("thread", [0, 3])
    def test_overlap(self, memory: FakeMemory, shift: int, thread: int) -> None:
        A = memory.array(400, "u1", 100)
        p = A + 100 * thread + 20
        with pytest.raises(OverlapError, match=f"thread {thread}"):
            memcpy(p + shift, p, 8)
        memcpy(p + 8, p, 8)
        memcpy(p - 8, p, 8)
        memcpy(p, p, 0)

    def test_addresses(self, memory: FakeMemory) -> None:
        A = memory.array(8, "i4", 2)
        assert as_address(A) == (A.allocation, 0, A.allocation.offset)
        assert as_address(A + 3) == (A.allocation, 1, A.allocation.offset + 4)
        own = memory.allocate(4, "i4", 0, "alloc", 3)
        assert as_address(pointer_to(own) + 1) == (own, 3, own.offset + 4)
        for bad in (None, 3, np.zeros(3), "A", [A]):
            with pytest.raises(TypeError, match="SharedArray or a SharedPointer"):
                as_address(bad)


X = np.zeros(8, "i4")
READ_ONLY = np.zeros(8, "i4")
READ_ONLY.flags.writeable = False

COPY_ERRORS: list[Refusal] = [
    (lambda A: memcpy(A, A + 2, -1), ValueError, "nbytes is -1"),
    (lambda A: memcpy(A, A + 2, 9), ValueError, "memcpy: nbytes is 9: dst"),
    (lambda A: memcpy(A + 2, A + 8, 1), ValueError, "src"),
    (lambda A: memcpy(A, (A + 2) - 8, 1), ValueError, "src"),
    (lambda A: memcpy(A, A + 2, 10**30), ValueError, "1000"),
    (lambda A: memcpy(A, A + 2, 8.0), TypeError, "8.0"),
    (lambda A: memcpy(A, A + 2, float("nan")), TypeError, "nan"),
    (lambda A: memcpy(A, A + 2, True), TypeError, "True"),
    (lambda A: memcpy(A, A + 2, np.True_), TypeError, "True"),
    (lambda A: memcpy(A, A + 2, None), TypeError, "None"),
    (lambda A: memcpy(A, X, 4), TypeError, "src"),
    (lambda A: memcpy(X, A, 4), TypeError, "dst"),
    (lambda A: memget(X[::2], A, 4), ValueError, "C-contiguous"),
    (lambda A: memget(X[:1], A, 8), ValueError, "4 bytes"),
    (lambda A: memget(READ_ONLY, A, 8), ValueError, "read-only"),
    (lambda A: memget(X.astype(object), A, 8), TypeError, "'O'"),
    (lambda A: memget(X.astype(">i4"), A, 8), TypeError, ">i4"),
    (lambda A: memget([0] * 8, A, 8), TypeError, "numpy array"),
    (lambda A: memget(bytearray(8), A, 8), TypeError, "numpy array"),
    (lambda A: memget(A, A, 8), TypeError, "numpy array"),
    (lambda A: memget(X, X, 8), TypeError, "src"),
    (lambda A: memget(X, A, 12), ValueError, "12"),
    (lambda A: memput(A, X[::-1], 4), ValueError, "C-contiguous"),
    (lambda A: memput(A, X.reshape(2, 4).T, 4), ValueError, "C-contiguous"),
    (lambda A: memput(A, X[:1], 8), ValueError, "4 bytes"),
    (lambda A: memput(A, X, 12), ValueError, "dst"),
    (lambda A: memput(X, X, 4), TypeError, "dst"),
    (lambda A: memset(A, 256, 4), ValueError, "256"),
    (lambda A: memset(A, -1, 4), ValueError, "-1"),
    (lambda A: memset(A, b"x", 4), TypeError, "byte"),
    (lambda A: memset(A, 1.0, 4), TypeError, "1.0"),
    (lambda A: memset(A, 0, 9), ValueError, "9"),
    (lambda A: memset(A + 8, 0, 1), ValueError, "dst"),
    (lambda A: memset(3, 0, 1), TypeError, "dst"),
]


@pytest.mark.parametrize("refusal", COPY_ERRORS)
def test_copy_errors(memory: FakeMemory, refusal: Refusal) -> None:
    refused(memory, memory.array(8, "i4", 2), *refusal)


def test_read_only_and_0d_arrays_can_be_put(memory: FakeMemory) -> None:
    A = memory.array(8, "i4", 2)
    memput(A + 4, READ_ONLY, 8)
    memput(A + 6, np.array(7, "i4"), 4)
    one = np.array(0, "i4")
    memget(one, A + 6, 4)
    assert one == A[6] == 7


# --- forall ---------------------------------------------------------------------------------------


@given(layout=layouts(), n=st.integers(-1, 60))
def test_forall(layout: Any, n: int) -> None:
    fake, A, _ = layout
    n = min(n, len(A))
    set_memory(fake)
    places = deal(max(n, 0), A.blocksize, fake.threads)
    mine = [i for i, place in enumerate(places) if place[0] == fake.me]
    assert list(forall(n, A)) == mine
    assert list(forall(n, blocksize=A.blocksize)) == mine
    star = max(1, -(-max(n, 0) // fake.threads))
    assert list(forall(n, blocksize="*")) == list(forall(n, blocksize=star))
    set_memory(None)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda A: forall(9, A), ValueError),
        (lambda A: forall(3), TypeError),
        (lambda A: forall(3, A, blocksize=2), TypeError),
        (lambda A: forall(3, A + 0), TypeError),
        (lambda A: forall(3, np.zeros(8)), TypeError),
        (lambda A: forall(3.0, A), TypeError),
        (lambda A: forall(True, A), TypeError),
        (lambda A: forall(3, blocksize=-1), ValueError),
        (lambda A: forall(3, blocksize=1.5), TypeError),
        (lambda A: forall(3, blocksize="x"), ValueError),
    ],
)
def test_forall_errors(
    memory: FakeMemory, call: Callable[[SharedArray], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(memory.array(8, "i4", 2))
