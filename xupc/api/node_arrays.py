"""One ordinary ndarray per node, shared by its threads: `node_array` and `node_broadcast`.

Each lies in a nameless segment of its own, which is unmapped with the last reference to
the array or to a view of it; the pages go with the last thread's mapping.

Both calls begin with a barrier that proves that all threads make them. What else has to be
said goes in small messages under that barrier's tag, which has no data of its own: where
a node root's segment is, and whether it is there on all nodes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..comm.datatypes import Grid
from ..comm.tags import DATA
from ..errors import HeapError, show, show_dtype
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..pgas.allocation import check_dtype
from ..pgas.integer_arguments import as_integer
from ..pgas.private_memory import check_readable
from ..pgas.segment import Segment, attach, create, shm_dir, shortage
from ..plan.patterns import binomial, chunks, rotate, tree_for
from ..runtime.team_state import TeamState
from .team import Team, resolve

__all__ = ["node_array", "node_broadcast"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
_MOST = 1 << 60
_PAGE = 1 << 16


def node_array(
    shape: int | tuple[int, ...], dtype: DTypeLike, *, team: Team | None = None
) -> Array:
    """Return one zero-filled ndarray per node, shared by its threads; collective.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : dtype
    team : Team, optional
        Whose nodes; default all threads.

    Returns
    -------
    ndarray
        The same memory on all threads of a node. It is freed when no thread of the node has a
        reference to the array or to a view of it.

    Raises
    ------
    TypeError, ValueError
        On every thread.
    HeapError
        On every thread, naming size and free space.
    CollectiveMismatchError
        If the threads' calls differ.
    """
    call = "node_array"
    group, wrong = resolve(team, call)
    group.enter(call)
    record = CallRecord(call, [("shape", show(shape)), ("dtype", show_dtype(dtype))])
    try:
        if wrong is not None:
            raise wrong
        extent = _shape(shape, call)
        kind = check_dtype(dtype, call)
        nbytes = _nbytes(extent, kind, call)
    except Exception as e:
        group.fail(e, record)
    with group.job.whole(call):
        words = SetupMessages(group, record, fingerprint(call, *extent, kind.str, repr(kind)))
        _, memory = _node_segment(words, nbytes, call)
    return _ndarray(memory, extent, kind)


def node_broadcast(array: Any, root: int = 0, *, team: Team | None = None) -> Array:
    """Deliver a private array of one thread once to each node; collective.

    Parameters
    ----------
    array : ndarray
        Thread root's, of any strides; what the others give is not looked at (None).
    root : int
        A rank in the team.
    team : Team, optional
        Default all threads.

    Returns
    -------
    ndarray
        In C order and the native byte order, read-only, the same memory on all threads of a node.

    Raises
    ------
    TypeError, ValueError, HeapError, CollectiveMismatchError
        As `node_array`; if only thread root's array is bad, the others raise
        CollectiveMismatchError, naming it.
    """
    call = "node_broadcast"
    group, wrong = resolve(team, call)
    group.enter(call)
    record = CallRecord(call, [("root", show(root))])
    source: Array | None = None
    mine: bytes | None = None
    kind = np.dtype(np.uint8)
    try:
        if wrong is not None:
            raise wrong
        top = as_integer(root, call, "root")
        if not 0 <= top < group.size:
            raise ValueError(f"{call}: root: expected 0 <= root < {group.size}, got {top}")
        if group.rank == top:
            source, kind = _given(array, call)
            mine = _pickled(source, kind, call)
    except Exception as e:
        group.fail(e, record)
    with group.job.whole(call):
        words = SetupMessages(group, record, fingerprint(call, top))
        shape, kind = pickle.loads(words.from_root(mine, top))
        segment, memory = _node_segment(words, _nbytes(shape, kind, call), call, read_only=True)
        if segment is not None:
            if source is not None:
                np.frombuffer(segment.map, kind, source.size).reshape(shape)[...] = source
            _between_nodes(words, segment, top)
            words.meet("end")
    return _ndarray(memory, shape, kind, read_only=True)


# --- arguments --------------------------------------------------------------------------------
def _shape(shape: Any, call: str) -> Shape:
    given = shape if isinstance(shape, tuple | list) else (shape,)
    lengths = tuple(as_integer(n, call, "shape") for n in given)
    for n in lengths:
        if n < 0:
            raise ValueError(f"{call}: shape: expected lengths of at least 0, got {show(shape)}")
    try:
        np.empty((0,) * len(lengths))
    except ValueError as e:
        raise ValueError(f"{call}: shape: {len(lengths)} dimensions are too many: {e}") from None
    return lengths


def _nbytes(shape: Shape, dtype: np.dtype[Any], call: str) -> int:
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= max(n, 1)  # numpy looks at the other lengths of an empty array, too
    if nbytes >= _MOST:
        raise ValueError(f"{call}: shape: {shape} of {dtype} is {nbytes} bytes, too many")
    return 0 if 0 in shape else nbytes


def _given(array: Any, call: str) -> tuple[Array, np.dtype[Any]]:
    """Return the array of the root, and the dtype that all threads see: of native byte order."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{call}: array: expected an ndarray on thread root, got {show(array)}")
    check_readable(array, f"{call}: array")
    try:
        return array, check_dtype(array.dtype.newbyteorder("="), call)
    except TypeError as e:
        raise TypeError(str(e).replace("dtype is", "array has dtype")) from None


def _pickled(array: Array, dtype: np.dtype[Any], call: str) -> bytes:
    """Return the pickled shape and dtype of the root's array, for the other threads."""
    try:
        return pickle.dumps((array.shape, dtype))
    except Exception as e:  # of what the dtype's metadata hold
        raise TypeError(f"{call}: array has dtype {dtype!r}, which cannot be pickled: {e}") from e


def _ndarray(
    memory: memoryview | None, shape: Shape, dtype: np.dtype[Any], *, read_only: bool = False
) -> Array:
    """Return an array that alone keeps the mapping; of an empty one there is none."""
    if memory is None:
        empty = np.zeros(shape, dtype)
        empty.flags.writeable = not read_only
        return empty
    count = 1
    for n in shape:
        count *= n
    return np.frombuffer(memory, dtype, count).reshape(shape)


# --- a node's segment ---------------------------------------------------------------------------
def _node_segment(
    words: SetupMessages, nbytes: int, call: str, *, read_only: bool = False
) -> tuple[Segment, memoryview] | tuple[None, None]:
    """Return a segment that all threads of my node have mapped, and the array's mapping.

    The pages of the segment are reserved. The array uses the same mapping; if `read_only`, another
    one, which stays unwritable even if the user changes the array's flags. Both are None if the
    array is empty.

    HeapError on every thread, with nothing left, if the array does not fit on some machine.
    """
    if not nbytes:
        return None, None
    words.agree(_no_room(words, nbytes, call))
    segment, why = _shared(words, nbytes, call)
    memory: memoryview | None = None
    if segment is not None and not why:
        why = _take_share(words, segment)
        try:
            memory = segment.read_only() if read_only else segment.map
        except OSError as e:
            why = why or _unmapped(nbytes, e, call)
    try:
        words.agree(why)
    except HeapError:
        if segment is not None:
            segment.discard()  # the error's traceback may keep the mapping
        raise
    finally:
        if segment is not None:
            segment.settle()
            segment.close_fd()
    assert segment is not None
    assert memory is not None
    return segment, memory


def _no_room(words: SetupMessages, nbytes: int, call: str) -> str:
    """Return why the arrays of all nodes of my machine do not fit; computed by node roots."""
    team, job = words.team, words.team.job
    if team.rank != words.node_root:
        return ""
    info = job.info
    here = info.machine_of(info.me)
    roots = (team.threads[int(rank)] for rank in team.rank_tree.node_roots)
    mine = sum(info.machine_of(thread) == here for thread in roots)
    why = job.heap.room_for(nbytes * mine, call)
    return f"{why}, for {nbytes} bytes on each of {mine} node{'s'[: mine != 1]}" if why else ""


def _unmapped(nbytes: int, error: OSError, call: str) -> str:
    return f"{call}: cannot map {nbytes} bytes of {shm_dir()}: {shortage(error)}"


def _shared(words: SetupMessages, nbytes: int, call: str) -> tuple[Segment | None, str]:
    """Make a segment on the node root and map it on its threads; or return why that cannot be."""
    team = words.team
    if team.rank != words.node_root:
        path = words.take(words.node_root).decode()
        if not path:
            return None, ""  # my node root reports the cause
        try:
            return attach(path, nbytes), ""
        except OSError as e:
            return None, _unmapped(nbytes, e, call)
    segment, why = None, ""
    try:
        segment = create(nbytes)
    except HeapError as e:
        why = f"{call}: {e}"
    for mate in words.members[1:]:
        words.send(mate, b"" if segment is None else segment.path.encode())
    return segment, why


def _take_share(words: SetupMessages, segment: Segment) -> str:
    """Reserve my part of the pages, so that they are near me; return the cause of a failure."""
    place, n = words.members.index(words.team.rank), len(words.members)
    begin, end = (segment.nbytes * k // n // _PAGE * _PAGE for k in (place, place + 1))
    if place == n - 1:
        end = segment.nbytes
    try:
        segment.reserve(begin, end - begin)
    except HeapError as e:
        return f"{words.record.name}: {e}"
    return ""


# --- words --------------------------------------------------------------------------------------
class SetupMessages:
    """Small messages between the threads of a team during a rare call.

    The constructor runs a barrier, which proves that all threads are in the same call.

    Attributes
    ----------
    members
        The ranks on my node; the first one is the node root.
    """

    def __init__(self, team: TeamState, record: CallRecord, signature: int) -> None:
        self.team = team
        self.record = record
        instance = team.meeting(signature, record)
        instance.execute()
        self.tag = team.call_tag(instance, DATA)
        tree = team.rank_tree
        self.members = [int(rank) for rank in tree.members(tree.node_of(team.rank))]

    @property
    def node_root(self) -> int:
        """The rank of my node root."""
        return self.members[0]

    def meet(self, what: str) -> None:
        """Run a barrier of the team."""
        self.team.meet(fingerprint(self.record.name, what), self.record)

    def wait_for(self, done: Callable[[], bool], of: int) -> None:
        """Wait until a message from or to another thread completes."""
        thread = self.team.threads[of]
        what = f"{self.record.call}, thread {thread}"
        self.team.job.engine.wait_for(done, what, threads=(thread,))

    def send(self, to: int, data: bytes) -> None:
        """Send a message to a rank, without a wait."""
        link = self.team.link
        link.track(link.send_bytes(to, self.tag, data), lambda: None)

    def take(self, of: int) -> bytes:
        """Return the next message of a rank."""
        got: list[bytes] = []

        def arrived() -> bool:
            data = self.team.link.take(of, self.tag)
            if data is not None:
                got.append(data)
            return bool(got)

        self.wait_for(arrived, of)
        return got[0]

    def from_root(self, data: bytes | None, root: int) -> bytes:
        """Return the root's data, sent down a binomial tree."""
        n = self.team.size
        parent, children = binomial(rotate(self.team.rank, root, n), n)
        if parent is not None:
            data = self.take((parent + root) % n)
        assert data is not None
        for child in children:
            self.send((child + root) % n, data)
        return data

    def agree(self, why: str) -> None:
        """Raise HeapError on every thread if any has a reason, with that of the lowest one."""
        team = self.team
        parent, children = binomial(team.rank, team.size)
        word = f"{team.threads[team.rank]} {why}".encode() if why else b""
        for child in sorted(children):  # lower ranks first
            theirs = self.take(child)
            word = word or theirs
        if parent is not None:
            self.send(parent, word)
        word = self.from_root(word if parent is None else None, 0)
        if word:
            thread, _, text = word.decode().partition(" ")
            raise HeapError(f"{text} (thread {thread})")


# --- between nodes -----------------------------------------------------------------------------
def _between_nodes(words: SetupMessages, segment: Segment, root: int) -> None:
    """Send the bytes of the root's node to one thread of each other node.

    Large ones go in chunks, of which each link carries one at the same time.
    """
    team, tree = words.team, words.team.rank_tree
    home, n = tree.node_of(root), tree.node_count
    node = tree.node_of(team.rank)
    if team.rank != (root if node == home else words.node_root):
        return
    parts = chunks(segment.nbytes, team.tuning["chunk"])
    shape = tree_for(n, segment.nbytes, team.tuning["chunk"], team.tuning)
    parent, children = shape(rotate(node, home, n), n)

    def node_source(place: int) -> int:
        there = (place + home) % n
        return root if there == home else int(tree.node_root(there))

    _Relay(
        words,
        segment.address,
        parts,
        None if parent is None else node_source(parent),
        [node_source(child) for child in children],
    ).run()


class _Relay:
    """Chunks from a parent, and on to children as they come; a window of them under way."""

    def __init__(
        self,
        words: SetupMessages,
        address: int,
        parts: list[tuple[int, int]],
        parent: int | None,
        children: list[int],
    ) -> None:
        self.words = words
        self.address = address
        self.parts = parts
        self.parent, self.children = parent, children
        self.window = words.team.tuning["window"]
        self.here = [parent is None] * len(parts)
        self.asked = self.arrived = self.passed = self.open = 0

    def run(self) -> None:
        """Advance until all pieces have come and gone."""
        of = self.children[0] if self.parent is None and self.children else self.parent
        if of is not None:
            self.words.wait_for(self._advance, of)

    def _advance(self) -> bool:
        """Post what can be posted; True when all is over."""
        link = self.words.team.link
        n = len(self.parts)
        while self.arrived < n and self.here[self.arrived]:
            self.arrived += 1
        while self.parent is not None and self.asked < min(n, self.arrived + self.window):
            request = link.recv(self.parent, self.words.tag, self._memory(self.asked))
            link.track(request, partial(self._came, self.asked))
            self.asked += 1
        while self.children and self.passed < self.arrived and self.open < self.window:
            for child in self.children:
                self.open += 1
                request = link.send(child, self.words.tag, self._memory(self.passed))
                link.track(request, self._gone)
            self.passed += 1
        return self.arrived == n and not self.open and (not self.children or self.passed == n)

    def _memory(self, i: int) -> list[Any]:
        offset, nbytes = self.parts[i]
        return self.words.team.link.network.spec([Grid(self.address + offset, nbytes)])

    def _came(self, i: int) -> None:
        self.here[i] = True

    def _gone(self) -> None:
        self.open -= 1
