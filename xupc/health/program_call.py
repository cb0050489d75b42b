"""Find the method of MPI that a thread of the program is executing, from its Python frame.

A method of mpi4py leaves no frame of its own. What the innermost frame executes has a place in the
source, and its objects are in the frame. This reads both from another Python thread: it runs no
code of the program's objects, and calls no function of MPI. What cannot be known so is not known.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Iterator
from itertools import chain, islice
from types import FrameType, MemberDescriptorType, ModuleType
from typing import cast

__all__ = ["blocking_method", "holds_intercommunicator"]

_OF_FUNCTION = 1  # flag of the code of a function, as in `inspect`, which takes long to import
_PART = 1000  # objects between two switches to other Python threads
_OWN_REFERENCES = 3  # to the variables: the frame's, the name's and the argument's
_UNKNOWN = object()
_COLLECTIVES = (
    "barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv "
    "Alltoallw Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan "
    "bcast gather scatter allgather alltoall reduce allreduce scan exscan Barrier"
)
_MESSAGES = (
    "Send Ssend Rsend Recv Sendrecv Sendrecv_replace Probe Mprobe send ssend recv sendrecv probe "
    "mprobe"
)
_WAITS = "Wait Waitall Waitany Waitsome wait waitall waitany waitsome"
_EPOCHS = "Fence Start Complete Wait Lock Unlock Lock_all Unlock_all Flush Flush_all"
_BLOCKING = {
    "Comm": frozenset(f"{_MESSAGES} {_COLLECTIVES}".split()),
    "Intracomm": frozenset(("Scan", "Exscan", "scan", "exscan")),
    "Message": frozenset(("Recv", "recv")),
    "Request": frozenset(_WAITS.split()),
    "Win": frozenset(_EPOCHS.split()),
}
"""By class of mpi4py: the methods in which a thread waits for other threads of its job."""
_MAKERS = {
    "Message": frozenset(("Mprobe", "mprobe")),
    "Request": frozenset((
        "Isend", "Issend", "Irsend", "Ibsend", "Irecv", "Isendrecv", "isend", "issend", "ibsend",
        "irecv", "Ibarrier", "Ibcast", "Igather", "Igatherv", "Iscatter", "Iscatterv", "Iallgather",
        "Iallgatherv", "Ialltoall", "Ialltoallv", "Ialltoallw", "Ireduce", "Iallreduce",
        "Ireduce_scatter", "Ireduce_scatter_block", "Iscan", "Iexscan",
    )),
}  # fmt: skip
"""By class of mpi4py: the methods of communicators that return an object of it."""


def blocking_method(frame: FrameType) -> str:
    """Return the name of the blocking method of mpi4py that a frame executes; "": none is known.

    Methods that a class of the program's or of xupc's has in place of mpi4py's are not known.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or (call := _executed(frame)) is None:
        return ""
    function = call.func
    if isinstance(function, ast.Attribute):
        owner = _class_of(function.value, frame, mpi)
        name = function.attr
    else:
        owner, name = _class_and_name(_value(function, frame), mpi)
    return name if _blocks(owner, name, mpi) else ""


def holds_intercommunicator() -> bool:
    """Return whether any Python object of this process holds an intercommunicator.

    Its threads may wait for messages of another job. This looks at all objects, and lets other
    Python threads run meanwhile.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        return False
    import gc

    objects = gc.get_objects()
    parts = (gc.get_referents(*objects[i : i + _PART]) for i in range(0, len(objects), _PART))
    variables = (list(_variables(frame).values()) for frame in _frames())  # not of the collector's
    return any(issubclass(type(x), mpi.Intercomm) for each in chain(parts, variables) for x in each)


def _frames() -> Iterator[FrameType]:
    for frame in sys._current_frames().values():
        each: FrameType | None = frame
        while each is not None:
            yield each
            each = each.f_back


def _variables(frame: FrameType) -> dict[str, object]:
    """Return the variables of a frame, of which the frame keeps no copy.

    Up to Python 3.12 it would keep one, and so all their values, until its function returns.
    """
    kept = frame.f_locals
    found = dict(kept)
    optimized = frame.f_code.co_flags & _OF_FUNCTION
    if optimized and type(kept) is dict and sys.getrefcount(kept) <= _OWN_REFERENCES:
        kept.clear()  # else the program has it, from `locals()`
    return found


# --- the call in the source ---------------------------------------------------------------------


def _executed(frame: FrameType) -> ast.Call | None:
    """Return the call that a frame executes, as far as its source shows it."""
    code = frame.f_code
    places = next(islice(code.co_positions(), frame.f_lasti // 2, None), ())
    known = [place for place in places if place is not None]
    if len(known) < 4:
        return None
    text = _text(code.co_filename, frame, *known)
    try:
        tree = ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no call, or another source
        return None
    if not isinstance(tree, ast.Call):
        return None
    name = tree.func.attr if isinstance(tree.func, ast.Attribute) else getattr(tree.func, "id", "")
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    return tree if name in names else None  # else the source has changed since


def _text(file: str, frame: FrameType, *places: int) -> str:
    """Return the source from (first line, last line, first column, end column) of a frame."""
    first, last, start, end = places
    lines = linecache.getlines(file, frame.f_globals)[first - 1 : last]
    if len(lines) != last - first + 1:
        return ""
    rows = [line.encode() for line in lines]  # columns count bytes
    rows[-1] = rows[-1][:end]
    rows[0] = rows[0][start:]
    return b"".join(rows).decode(errors="replace")


# --- the object whose method it is --------------------------------------------------------------


def _blocks(owner: type | None, name: str, mpi: ModuleType) -> bool:
    """Return whether a method is mpi4py's, and blocks."""
    if owner is None or issubclass(owner, mpi.Intercomm):
        return False
    for kind in owner.__mro__:
        if name in vars(kind):
            return kind.__module__ == mpi.__name__ and name in _methods_of(kind, mpi)
    return False


def _methods_of(kind: type, mpi: ModuleType) -> frozenset[str]:
    """Return the blocking methods of a class of mpi4py; those of a class hold for its parts."""
    found: frozenset[str] = frozenset()
    for name, methods in _BLOCKING.items():
        if issubclass(kind, getattr(mpi, name)):
            found |= methods
    return found


def _class_of(node: ast.expr, frame: FrameType, mpi: ModuleType) -> type | None:
    """Return the class of the object that an expression stands for, or the class itself."""
    if isinstance(node, ast.Call):
        function = node.func
        if not isinstance(function, ast.Attribute):
            return None
        of = _class_of(function.value, frame, mpi)
        if of is None or not issubclass(of, mpi.Comm):
            return None
        for name, makers in _MAKERS.items():
            if function.attr in makers:
                found: type = getattr(mpi, name)
                return found
        return None
    value = _value(node, frame)
    if value is _UNKNOWN:
        return None
    return value if isinstance(value, type) else type(value)


def _class_and_name(value: object, mpi: ModuleType) -> tuple[type | None, str]:
    """Return the class and the name of a method of mpi4py that a name stands for."""
    kind = type(value)
    if kind.__module__ not in ("builtins", type(mpi.Comm.Send).__module__):
        return None, ""
    function = getattr(value, "__func__", value)
    if getattr(function, "__module__", None) != mpi.__name__:
        return None, ""
    of, _, name = str(getattr(function, "__qualname__", "")).rpartition(".")
    owner = getattr(value, "__self__", None)
    owner = owner if isinstance(owner, type) else type(owner)
    if owner is type(None) or not issubclass(owner, getattr(mpi, of, ())):
        owner = getattr(mpi, of, None)
    return (owner if isinstance(owner, type) else None), name


def _value(node: ast.expr, frame: FrameType) -> object:
    """Return the object that an expression stands for in a frame, `_UNKNOWN` if that needs code."""
    if isinstance(node, ast.Name):
        return _named(node.id, frame)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        return _attribute(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _item(_value(node.value, frame), _value(node.slice, frame))
    return _UNKNOWN


def _named(name: str, frame: FrameType) -> object:
    for names in (_variables(frame), frame.f_globals, vars(builtins)):
        if name in names:
            return names[name]
    return _UNKNOWN


def _attribute(owner: object, name: str) -> object:
    """Return an attribute that is a value of an object, a class or a module."""
    if owner is _UNKNOWN:
        return _UNKNOWN
    if isinstance(owner, type):
        return next((vars(kind)[name] for kind in owner.__mro__ if name in vars(kind)), _UNKNOWN)
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        own = {}
    if type(own) is dict and name in own:
        return own[name]
    if isinstance(owner, ModuleType):
        return _UNKNOWN
    found = _attribute(type(owner), name)
    if isinstance(found, MemberDescriptorType):  # of __slots__
        try:
            return found.__get__(owner)
        except AttributeError:
            return _UNKNOWN
    return _UNKNOWN if hasattr(type(found), "__get__") else found


def _item(owner: object, key: object) -> object:
    """Return an item of a list, a tuple or a dict."""
    try:
        if type(owner) in (list, tuple) and type(key) is int:
            return cast("list[object]", owner)[key]
        if type(owner) is dict and type(key) in (int, str):
            return cast("dict[object, object]", owner)[key]
    except LookupError:
        pass
    return _UNKNOWN
