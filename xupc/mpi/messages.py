"""Messages as programs describe them to mpi4py, in the form in which xupc moves them.

A thread may describe a message in another way than the other threads do: an array, an array with a
count and a datatype, a derived type, any buffer. That must not decide where a call goes. So each
description gets the same form here, a contiguous one-dimensional array. It is the program's memory
if that is contiguous, else a copy. mpi4py packs and unpacks the copy, in a message of this process
to itself.
"""

from __future__ import annotations

import itertools
from functools import cache, lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from .descriptions import code_of, read
from .truncation import truncated

__all__ = [
    "Array", "InBlocks", "Message", "as_block", "as_bytes", "as_elements", "bytes_of_buffer",
    "datatype_of", "for_blocks", "size_of",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]

CODES = frozenset("?bBhHiIlLqQfdgFDG")  # numpy's types that mpi4py takes without a datatype
_BYTE = np.dtype(np.uint8)


class Message:
    """A message in contiguous form.

    Attributes
    ----------
    array
        All of it, one-dimensional.
    described
        The description to unpack into if `array` is a copy, else None.
    """

    __slots__ = ("array", "described")

    def __init__(self, array: Array, described: Any = None) -> None:
        self.array = array
        self.described = described

    def unpack(self) -> None:
        """Copy a result to where the program wants it."""
        if self.described is not None:
            _copy([self.array, self.array.nbytes, MPI.PACKED], self.described)

    def keep_datatype(self) -> None:
        """Have `unpack` work when the program has freed the datatype, as MPI allows."""
        if type(self.described) is list and isinstance(self.described[-1], MPI.Datatype):
            self.described = [*self.described[:-1], _OwnDatatype(self.described[-1].Dup())]


class _OwnDatatype(MPI.Datatype):
    """A duplicate of a program's datatype, which is freed with the last reference to it."""

    def __del__(self) -> None:
        if self != MPI.DATATYPE_NULL and not MPI.Is_finalized():
            self.Free()


class OtherPlaces(Message):
    """A result whose places are longer or shorter than the blocks that arrive.

    The blocks arrive in memory of their own, as the other threads expect. Only then is it an error
    that a place is too short, as in MPI.
    """

    __slots__ = ("blocks",)

    def __init__(self, into: Message, block: int, blocks: int) -> None:
        super().__init__(np.empty(block * blocks, _BYTE), into)
        self.blocks = blocks

    def keep_datatype(self) -> None:
        """Have `unpack` work when the program has freed the datatype, as MPI allows."""
        self.described.keep_datatype()

    def unpack(self) -> None:
        """Copy each block to its place, or as much as there is room for.

        Raises
        ------
        mpi4py.MPI.Exception
            If a block is longer than its place: ERR_TRUNCATE.
        """
        places = self.described.array.reshape(self.blocks, -1)
        arrived = self.array.reshape(self.blocks, -1)
        n = min(places.shape[1], arrived.shape[1])
        places[:, :n] = arrived[:, :n]
        self.described.unpack()
        if n < arrived.shape[1]:
            raise truncated(f"blocks of {arrived.shape[1]} bytes, places of {n} bytes")


def for_blocks(into: Message, block: int, blocks: int) -> Message:
    """Return a result for so many blocks of so many bytes: the given one if it has the size."""
    return into if into.array.size == block * blocks else OtherPlaces(into, block, blocks)


class InBlocks:
    """A message with a block for each thread or neighbour; its classes set `_blocks`."""

    __slots__ = ("_blocks",)
    _blocks: list[Message]

    @property
    def blocks(self) -> list[Array]:
        """Return the bytes of each block."""
        return [block.array for block in self._blocks]

    def unpack(self) -> None:
        """Copy a result to where the program wants it."""
        for block in self._blocks:
            block.unpack()


def as_bytes(described: Any, *, writes: bool, blocks: int = 1) -> Message:
    """Return a message as bytes; `blocks`: an explicit count is that of one of so many blocks.

    Raises
    ------
    Exception
        What mpi4py raises for a wrong description, or one that it would raise for.
    """
    described = read(described)
    found = _memory(described, blocks)
    if found is not None and (found.flags.writeable or not writes):
        message = Message(found)
    else:
        message = _packed(_all_blocks(described, blocks), writes)
    if blocks > 1 and message.array.size % (blocks * _size_of_element(described) or 1):
        raise ValueError(f"the number of elements is no multiple of {blocks} blocks")
    return message


def _size_of_element(described: Any) -> int:
    """Return the bytes of an element of a description."""
    if type(described) is np.ndarray:
        return described.itemsize
    return datatype_of(described).Get_size()


def as_elements(
    described: Any, *, writes: bool, blocks: int = 1
) -> tuple[Message, np.dtype[Any] | None]:
    """Return a message and the type of its elements; None if xupc does not compute with it."""
    if type(described) is np.ndarray:
        dtype = _dtype_of(described.dtype.char)
        if described.dtype is dtype and (found := _elements(described, writes)) is not None:
            return Message(found), dtype
    else:
        described = read(described)
        dtype = _dtypes().get(MPI._handleof(datatype_of(described)))
    message = as_bytes(described, writes=writes, blocks=blocks)
    if dtype is not None:
        message.array = message.array.view(dtype)
    return message, dtype


# --- contiguous memory --------------------------------------------------------------------------


def _memory(described: Any, blocks: int) -> Array | None:
    """Return the bytes of plain contiguous memory, as a view; None for anything else."""
    if type(described) is np.ndarray:
        return _bytes(described) if _plain(described.dtype) else None
    if type(described) is not list:
        return _of_host(described) if _is_plain_buffer(described) else None
    buffer, datatype = described[0], described[-1]
    if not isinstance(datatype, MPI.Datatype):
        return None
    size = size_of(datatype)
    view = _bytes(buffer) if type(buffer) is np.ndarray else _of_host(buffer)
    if view is None or not size:
        return None
    if len(described) == 2:
        return view if view.size % size == 0 else None
    if type(described[1]) is not int:
        return None
    wanted = described[1] * blocks * size
    return view[:wanted] if 0 <= wanted <= view.size else None


@lru_cache(256)
def _plain(dtype: np.dtype[Any]) -> bool:
    return dtype.char in CODES and dtype.isnative


def _elements(array: Array, writes: bool) -> Array | None:
    """Return a contiguous array with one dimension, without a copy; None if that cannot be."""
    flags = array.flags
    if not flags.c_contiguous or (writes and not flags.writeable):
        return None
    return array if array.ndim == 1 else array.reshape(-1)


def _bytes(array: Array) -> Array | None:
    if not array.flags.c_contiguous or array.dtype.hasobject:
        return None
    return (array if array.ndim == 1 else array.reshape(-1)).view(_BYTE)


def _is_plain_buffer(described: Any) -> bool:
    """Return whether an object has elements of a type that mpi4py takes without a datatype."""
    try:
        return memoryview(described).format in CODES
    except Exception:  # mpi4py then tries its other protocols, too
        return False


def _of_host(buffer: Any) -> Array | None:
    """Return the bytes of a contiguous buffer of Python's protocol, as mmap and bytearray have it.

    None for other objects. Arrays of mpi4py's other protocols may be in the memory of a GPU.
    """
    try:
        return np.frombuffer(memoryview(buffer), _BYTE)  # numpy itself takes other objects, too
    except Exception:  # of the object: mpi4py raises it, unless another protocol works
        return None


def size_of(datatype: MPI.Datatype) -> int:
    """Return the bytes of a named datatype without gaps; 0 for any other."""
    handle = MPI._handleof(datatype)
    found = _sizes.get(handle)
    if found is None:
        if datatype == MPI.DATATYPE_NULL or not datatype.is_named:
            return 0  # a handle of a derived type may be another type later
        found = datatype.Get_size() if datatype.Get_extent() == (0, datatype.Get_size()) else 0
        _sizes[handle] = found
    return found


_sizes: dict[int, int] = {}


def bytes_of_buffer(buffer: Any, *, typed: bool) -> Array:
    """Return the memory of any object that mpi4py takes as a buffer.

    Parameters
    ----------
    typed
        True if the program gives a datatype; else that of the elements must be one of MPI's.
    """
    if type(buffer) is not np.ndarray or buffer.dtype.hasobject:
        found = _of_host(buffer)
        memory: Any = MPI.buffer(buffer) if found is None else found
        return np.frombuffer(memory, _BYTE)
    if not typed and not _plain(buffer.dtype):
        datatype_of(buffer)
    found = _bytes(buffer if buffer.flags.c_contiguous else buffer.T)
    if found is None:
        raise ValueError("the array is not contiguous")
    return found


# --- anything else ------------------------------------------------------------------------------


def _all_blocks(described: Any, blocks: int) -> Any:
    """Return a description of all blocks, where an explicit count is that of one block."""
    if blocks == 1 or type(described) is not list:
        return described
    buffer, count, *rest = described
    if type(count) is tuple:
        count = (_times(count[0], blocks), count[1])
    elif type(count) is int:
        count *= blocks
    return [buffer, count, *rest]


def _times(count: int | None, blocks: int) -> int | None:
    return None if count is None else count * blocks


def _packed(described: Any, writes: bool) -> Message:
    """Return a copy of a message; an error of mpi4py's if it cannot be read or written."""
    comm, tag = _own(), _tag()
    if writes:
        comm.Recv_init(described, 0).Free()  # checks the description, and starts nothing
    request = comm.Isend(described, 0, tag)
    status = MPI.Status()
    comm.Probe(0, tag, status)
    array = np.empty(status.Get_elements(MPI.BYTE), _BYTE)
    comm.Recv([array, array.nbytes, MPI.PACKED], 0, tag)
    request.Wait()
    return Message(array, described if writes else None)


_numbers = itertools.count()


def _tag() -> int:
    """Return a tag for one message: other Python threads and finalizers make copies, too."""
    return next(_numbers) % _TAGS


_TAGS = 1 << 15  # that MPI has in any case


class _Block(Message):
    """A copy of elements of a type that is made for it, at an address in `memory`."""

    __slots__ = ("memory",)

    def __init__(self, array: Array, described: Any, memory: Array | None) -> None:
        super().__init__(array, described)
        self.memory = memory

    def unpack(self) -> None:
        """Copy the elements to their places."""
        super().unpack()
        if self.described is not None:
            self.described[-1].Free()
            self.described = None


def as_block(
    memory: Array | None, at: int, count: int, datatype: MPI.Datatype, *, writes: bool
) -> Message:
    """Return a copy of elements in contiguous form; without `memory` they are at an address."""
    if count == 0:
        return Message(np.empty(0, _BYTE))
    address = at if memory is None else memory.ctypes.data + at
    kind = datatype.Create_hindexed([count], [address]).Commit()
    described = [MPI.BOTTOM, 1, kind]
    array = _packed(described, writes).array
    if not writes:
        kind.Free()
    return _Block(array, described if writes else None, memory)


def _copy(source: Any, target: Any) -> None:
    tag = _tag()
    _own().Sendrecv(source, 0, tag, target, 0, tag)


@cache
def _own() -> MPI.Intracomm:
    """Return a communicator of this process alone, without the program's own messages."""
    return MPI.COMM_SELF.Dup()


# --- types of elements --------------------------------------------------------------------------


def datatype_of(described: Any) -> MPI.Datatype:
    """Return the datatype of a description that was read."""
    if type(described) is list:
        last = described[-1]
        if isinstance(last, MPI.Datatype):
            return last
        if isinstance(last, str):
            return MPI.Datatype.fromcode(last)
        described = described[0]
    if type(described) is np.ndarray and _plain(described.dtype):
        return MPI.Datatype.fromcode(described.dtype.char)
    code = "" if type(described) is bytes else code_of(described)
    return MPI.Datatype.fromcode(code) if code else MPI.BYTE


@cache
def _dtype_of(code: str) -> np.dtype[Any] | None:
    """Return the type of the elements of an array of numpy; None if xupc does not compute with it.

    Asking mpi4py at each call takes longer than an exchange of 8 bytes.
    """
    return _dtypes().get(MPI._handleof(MPI.Datatype.fromcode(code)))


@cache
def _dtypes() -> dict[int, np.dtype[Any]]:
    return {
        MPI._handleof(datatype): np.dtype(f"{kind}{datatype.Get_size()}")
        for kind, names in _KINDS.items()
        for name in names.split()
        if (datatype := getattr(MPI, name, MPI.DATATYPE_NULL)) != MPI.DATATYPE_NULL
    }


_KINDS = {
    "i": "SIGNED_CHAR SHORT INT LONG LONG_LONG INT8_T INT16_T INT32_T INT64_T",
    "u": "UNSIGNED_CHAR UNSIGNED_SHORT UNSIGNED UNSIGNED_LONG UNSIGNED_LONG_LONG "
         "UINT8_T UINT16_T UINT32_T UINT64_T",
    "f": "FLOAT DOUBLE",
    "c": "C_FLOAT_COMPLEX C_DOUBLE_COMPLEX",
    "b": "C_BOOL",
}  # fmt: skip
