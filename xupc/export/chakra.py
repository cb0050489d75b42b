"""Chakra execution traces of MLCommons: a binary file for each node, of nodes of a graph.

A message of protobuf is written by hand, with the field numbers of MLCommons' schema, so that
nothing besides has to be installed. A node of the job is an NPU. Durations are in microseconds, as
the schema has them; the attribute ``duration_ns`` has them in ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from .graph import SEND, WORK, Graph, Operation
from .schedule import Schedule

__all__ = ["VERSION", "files"]

VERSION: Final = "0.0.4"
"""The version of the schema that the files name."""
_COMPUTE, _SEND, _RECEIVE = 4, 5, 6  # types of nodes
_VARINT, _BYTES = 0, 2  # wire types of protobuf
_INT32, _INT64, _BOOL, _TEXT = 7, 9, 27, 29  # fields of an attribute's value


def files(graph: Graph, schedule: Schedule, about: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of the files of all nodes."""
    before = graph.ended()
    for node, numbers in enumerate(graph.of_nodes()):
        identity = {number: k for k, number in enumerate(numbers)}
        parts = [_sized(_text(1, VERSION) + _message(2, _attribute("about", _TEXT, about)))]
        for number in sorted(numbers, key=identity.__getitem__):
            after = [identity[other] for other in before[number]]
            parts.append(_sized(_node(graph, schedule, number, identity[number], after)))
        yield f"xupc.{node}.et", b"".join(parts)


def _node(
    graph: Graph, schedule: Schedule, number: int, identity: int, after: Iterable[int]
) -> bytes:
    """Return the message of one operation."""
    operation = graph.operations[number]
    kind = _COMPUTE if operation.kind == WORK else _SEND if operation.kind == SEND else _RECEIVE
    parts = [
        _number(1, identity),
        _text(2, f"{operation.what} of thread {operation.thread}"),
        _number(3, kind),
        _packed(5, after),
        _number(6, int(schedule.begins[number] / 1000)),
        _number(7, round(operation.ns / 1000)),
        *(_message(10, attribute) for attribute in _attributes(graph, operation)),
    ]
    return b"".join(parts)


def _attributes(graph: Graph, operation: Operation) -> Iterator[bytes]:
    yield _attribute("is_cpu_op", _BOOL, operation.kind == WORK)
    yield _attribute("thread", _INT32, operation.thread)
    if operation.kind == WORK:
        yield _attribute("num_ops", _INT64, operation.nbytes)
        yield _attribute("tensor_size", _INT64, operation.nbytes)
        yield _attribute("duration_ns", _INT64, round(operation.ns))
        return
    ends = graph.tree.node_of(operation.thread), graph.tree.node_of(operation.peer)
    source, target = ends if operation.kind == SEND else ends[::-1]
    yield _attribute("comm_src", _INT32, source)
    yield _attribute("comm_dst", _INT32, target)
    yield _attribute("comm_tag", _INT32, operation.tag)
    yield _attribute("comm_size", _INT64, operation.nbytes)


def _attribute(name: str, kind: int, value: int | str) -> bytes:
    """Return a name and a value, which is there also if it is zero: it is a member of a oneof."""
    if isinstance(value, str):
        return _text(1, name) + _message(kind, value.encode())
    return _text(1, name) + _varint(kind << 3 | _VARINT) + _varint(int(value))


# -- the encoding of protobuf ----------------------------------------------------------------


def _varint(value: int) -> bytes:
    """Return a number in groups of 7 bits, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    """Return a field with a number; zero is the default, which is left out."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _sized(content)


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _packed(field: int, values: Iterable[int]) -> bytes:
    content = b"".join(map(_varint, values))
    return _message(field, content) if content else b""


def _sized(content: bytes) -> bytes:
    """Return content behind its size, as in a stream of messages."""
    return _varint(len(content)) + content
