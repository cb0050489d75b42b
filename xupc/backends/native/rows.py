"""The rows that the native core runs: one table of their kinds and fields, for Python and for C.

A lane of a lowered plan is an array of rows of `ROW_BYTES`. Each `Kind` below makes rows of its
kind. `header` writes the enum and the structs of all kinds for C. After a change run ::

    python -m xupc.backends.native.rows > xupc/backends/native/rows.h

In rows a thread is its position in the memory of its node. In WAIT and FUSE it is the position
among the members of the team on this node.
"""

from __future__ import annotations

import struct
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

__all__ = [
    "ARRIVE",
    "AWAIT",
    "BARRIER",
    "CHECK",
    "COPY",
    "COPY_BACK",
    "DIRECT_GET",
    "DIRECT_PUT",
    "EXCHANGE",
    "EXPOSE",
    "FOLD",
    "FOLD_OPERAND",
    "FUNCTION",
    "FUSE",
    "FUSE_END",
    "GATHER",
    "KINDS",
    "PYTHON",
    "RECV",
    "RELEASE",
    "ROW_BYTES",
    "SCAN",
    "SEND",
    "SET_TICKET",
    "SIGNAL",
    "SWAP",
    "WAIT",
    "WAIT_TICKET",
    "Kind",
    "header",
    "shown",
]


class Type:
    """A type of C: a number (`code` as in the module `struct`), or a struct of fields."""

    def __init__(self, name: str, code: str = "", **fields: Type) -> None:
        self.name = name
        self.fields = fields
        aligns = [kind.align for kind in fields.values()]
        self.align: int = max(aligns, default=struct.calcsize(code))
        self.code, self.size = code, struct.calcsize(code)
        if not code:
            self.code, self.size = _layout(0, fields)
            end = -self.size % self.align
            self.code, self.size = self.code + f"{end}x" * (end > 0), self.size + end


def _layout(size: int, fields: dict[str, Type]) -> tuple[str, int]:
    """Return the format of fields that begin at a size, padded as C does, and their end."""
    code = ""
    for kind in fields.values():
        gap = -size % kind.align
        code += f"{gap}x" * (gap > 0) + kind.code
        size += gap + kind.size
    return code, size


INT: Final = Type("int32_t", "i")
COUNT: Final = Type("uint32_t", "I")
LONG: Final = Type("int64_t", "q")
BLOCK: Final = Type("xu_block", offset=LONG, operand=INT, thread=INT)
BLOCKS: Final = Type(
    "xu_blocks", offset=LONG, operand=INT, thread=INT, offset_step=LONG, thread_step=INT
)
STRUCTS: Final = {
    BLOCK: "A block of an operand.",
    BLOCKS: "A row of blocks: where the first is, and the steps from each one to the next.",
}

KINDS: list[Kind] = []
"""All kinds of rows, by their numbers."""


class Kind:
    """A kind of row; a call of it makes a row, as bytes, from the values of all fields.

    Attributes
    ----------
    member
        The name of its struct in the union of C. Kinds with the same fields can share one.
    """

    def __init__(
        self, name: str, doc: str, like: Kind | None = None, *, member: str = "", **fields: Type
    ) -> None:
        self.name = name
        self.doc = doc
        self.fields: dict[str, Type] = fields if like is None else like.fields
        self.member: str = like.member if like is not None else member or name
        self.number = len(KINDS)
        self.struct = Type(f"xu_{self.member}_row", "", kind=INT, **self.fields)
        self._packer = struct.Struct(f"={self.struct.code}")
        KINDS.append(self)

    def __call__(self, **given: int | tuple[int, ...]) -> bytes:
        if given.keys() != self.fields.keys():
            raise TypeError(
                f"row {self.name}: expected the fields {', '.join(self.fields) or 'none'}, "
                f"got {', '.join(given) or 'none'}"
            )
        numbers: list[int] = [self.number]
        for name in self.fields:
            value = given[name]
            numbers += value if isinstance(value, tuple) else (value,)
        return self._packer.pack(*numbers).ljust(ROW_BYTES, b"\0")

    def numbers(self, row: bytes) -> dict[str, int]:
        """Return the numbers in a row, by the names of their fields: the inverse of the call."""
        _, *found = self._packer.unpack(row[: self.struct.size])
        return dict(zip(_names(self.fields), found, strict=True))


def _names(fields: dict[str, Type]) -> Iterator[str]:
    for name, kind in fields.items():
        if kind.fields:
            yield from (f"{name}.{inner}" for inner in _names(kind.fields))
        else:
            yield name


COPY = Kind(
    "copy", "Copy `count` blocks of `nbytes`.", count=INT, nbytes=LONG, dst=BLOCKS, src=BLOCKS
)
SWAP = Kind(
    "swap", "Swap `count` blocks of `nbytes`.", count=INT, nbytes=LONG, a=BLOCKS, b=BLOCKS
)
SIGNAL = Kind("signal", "Raise my channel to `value`.", channel=INT, value=LONG)
WAIT = Kind(
    "wait",
    "Wait until `count` threads from `first` on have raised their channel to `value`.",
    channel=INT,
    first=INT,
    count=INT,
    value=LONG,
)
BARRIER = Kind("barrier", "Run a whole barrier of a team on one node.")
ARRIVE = Kind("arrive", "Arrive at the barrier of my node.")
GATHER = Kind("gather", "Node root: wait until all threads of my node have arrived.")
EXCHANGE = Kind(
    "exchange",
    "Node root: exchange fingerprints with other nodes, and pieces of memory if `led`. `before` "
    "rows make the data; they run again if it is sent again. `step`: its number for Python.",
    step=INT,
    led=INT,
    before=INT,
    sends=INT,
    recvs=INT,
)
CHECK = Kind("check", "Node root: release my node if calls differ.")
RELEASE = Kind("release", "Node root: release my node, which ends the call if `led`.", led=INT)
AWAIT = Kind("await", "Wait for the release of my node, which ends the call if `led`.", RELEASE)
FUSE = Kind(
    "fuse",
    "Arrive; then `executor`, or with -1 any thread, runs `body` rows. FUSE_END and AWAIT follow.",
    executor=INT,
    body=INT,
)
FUSE_END = Kind("fuse_end", "Release my node after the body of a FUSE.")
WAIT_TICKET = Kind("wait_ticket", "Wait until a ticket is set.", member="ticket", ticket=INT)
SET_TICKET = Kind("set_ticket", "Set a ticket.", WAIT_TICKET)
EXPOSE = Kind(
    "expose",
    "Let my node access `nbytes` from `src` on; `thread` is mine.",
    thread=INT,
    nbytes=LONG,
    src=BLOCK,
)
DIRECT_GET = Kind(
    "direct_get",
    "Copy `count` blocks to `mine`, from `offset` bytes behind what `thread`, `thread + "
    "thread_step` and so on expose.",
    member="direct",
    count=INT,
    nbytes=LONG,
    mine=BLOCKS,
    offset=LONG,
    thread=INT,
    thread_step=INT,
)
DIRECT_PUT = Kind("direct_put", "Copy `count` blocks in the other direction.", DIRECT_GET)
COPY_BACK = Kind(
    "copy_back",
    "Copy `count` blocks that others put behind `offset` of what I expose to their place.",
    count=INT,
    nbytes=LONG,
    dst=BLOCKS,
    offset=LONG,
    thread=INT,
)
FOLD = Kind(
    "fold",
    "Fold `nelems` elements of the `operands` rows behind it, to `copies` places; all that `rows` "
    "times, `row_step` bytes apart. With no operands the result is the identity.",
    operands=INT,
    copies=INT,
    rows=INT,
    nelems=LONG,
    row_step=LONG,
    dst=BLOCKS,
)
FOLD_OPERAND = Kind(
    "fold_operand",
    "An operand of a FOLD, or the carry of a SCAN: `times` blocks, combined `joins` times with "
    "the last value that is not yet combined.",
    joins=INT,
    times=LONG,
    src=BLOCK,
    offset_step=LONG,
    row_step=LONG,
)
SCAN = Kind(
    "scan",
    "Scan `rows` rows of `nelems` elements; `reverse`: from the end. With a `carry` a FOLD_OPERAND "
    "follows.",
    rows=INT,
    reverse=INT,
    carry=INT,
    nelems=LONG,
    dst=BLOCK,
    src=BLOCK,
    dst_step=LONG,
    src_step=LONG,
)
FUNCTION = Kind(
    "function",
    "Run the `rows` rows behind it, a FOLD or SCAN, if the call has a kernel; else the step of "
    "Python's.",
    step=INT,
    rows=INT,
)
SEND = Kind(
    "send",
    "Send `count` messages of the plan from `first` on. `types`: the number of types freed so far "
    "if one of theirs may be freed, else 0. Then Python describes its `step` again.",
    member="messages",
    step=INT,
    first=INT,
    count=INT,
    ticket=INT,
    tag=INT,
    types=COUNT,
)
RECV = Kind("recv", "Receive `count` messages likewise.", SEND)
PYTHON = Kind("python", "Let Python run a step.", step=INT)

ROW_BYTES: Final = max(kind.struct.size for kind in KINDS)
"""The size of a row in C, the same for all kinds."""


def shown(row: bytes) -> tuple[str, dict[str, int]]:
    """Return the name of a row's kind, and its numbers by the names of their fields."""
    kind = KINDS[struct.unpack_from(INT.code, row)[0]]
    return kind.name, kind.numbers(row)


# -- rows.h ---------------------------------------------------------------------------------
_HEADER = """\
/* rows.h: the rows of lowered plans. rows.py has the table of kinds and writes this file. */
#ifndef XUPC_ROWS_H
#define XUPC_ROWS_H

#include <stdint.h>

{structs}enum {{
{enum}}};

{rows}/* A row of any kind. */
typedef union {{
    int32_t kind;
{members}}} xu_step;

{sizes}_Static_assert(sizeof(xu_step) == {bytes}, "row");

#endif
"""


def _comment(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(text, 92, initial_indent=f"{indent}/* ", subsequent_indent=f"{indent} * ")
    return "\n".join(lines) + " */\n"


def _typedef(kind: Type) -> str:
    fields = "".join(f"    {field.name} {name};\n" for name, field in kind.fields.items())
    return f"typedef struct {{\n{fields}}} {kind.name};\n\n"


def header() -> str:
    """Return the text of rows.h."""
    structs = {kind.member: kind.struct for kind in KINDS if kind.fields}
    return _HEADER.format(
        structs="".join(f"/* {doc} */\n{_typedef(kind)}" for kind, doc in STRUCTS.items()),
        enum="".join(f"{_comment(k.doc, '    ')}    XS_{k.name.upper()},\n" for k in KINDS),
        rows="".join(map(_typedef, structs.values())),
        members="".join(f"    {kind.name} {name};\n" for name, kind in structs.items()),
        sizes="".join(
            f'_Static_assert(sizeof({kind.name}) == {kind.size}, "{name}");\n'
            for name, kind in structs.items()
        ),
        bytes=ROW_BYTES,
    )


if __name__ == "__main__":
    sys.stdout.write(header())
