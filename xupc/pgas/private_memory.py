"""Private memory that a program gives to a call: numpy's arrays, and what can be seen as one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import said, show

__all__ = ["array_of", "check_readable"]

_NUMBERS: Final = frozenset({int, float, complex, bool})
_MOST_LEVELS: Final = 64  # dimensions of a numpy array
# of DLPack: plain memory, and memory of CUDA or ROCm that the CPU addresses as its own
_OF_THE_CPU: Final = frozenset({1, 3, 11, 13})


def array_of(x: Any, what: str, *, receives: bool) -> NDArray[Any]:
    """Return an ndarray on the memory of `x`; of a list or tuple, a new one.

    Parameters
    ----------
    x
        An ndarray, an object with the buffer protocol (bytes, memoryview, array.array, mmap ...) or
        with DLPack on the CPU (tensors of other libraries), or a list or tuple of numbers.
    what : str
        The call and the argument, with which error messages begin.
    receives : bool
        The call writes to it: a list cannot be seen as memory.

    Raises
    ------
    TypeError
        It is nothing of that, holds Python objects, or is a masked array.
    """
    check_readable(x, what)
    found = x if isinstance(x, np.ndarray) else _seen_as_array(x, what, receives=receives)
    if found.dtype.hasobject:
        raise TypeError(
            f"{what}: expected numbers, bytes or records, got dtype {found.dtype}: an array of "
            "Python objects cannot be sent"
        )
    return found


def check_readable(x: Any, what: str) -> None:
    """Raise TypeError if numpy would lose a mask of `x`, or would never finish reading it."""
    if isinstance(x, list | tuple):
        _check_lists(x, what)
    elif type(x) is not np.ndarray and isinstance(x, np.ndarray) and _is_masked(x):
        raise TypeError(
            f"{what}: expected an array without a mask, got a masked array: give x.filled(value), "
            "or x.data and x.mask in calls of their own"
        )


def _is_masked(x: NDArray[Any]) -> bool:
    return any(base.__name__ == "MaskedArray" for base in type(x).__mro__)  # without numpy.ma


def _check_lists(x: Any, what: str) -> None:
    """Check what a list holds, level by level, each list once in a level.

    Lists may hold themselves: on ``x = []; x += [x, x]`` numpy takes 2^64 steps.
    """
    level = {id(x): x}
    for _ in range(_MOST_LEVELS):
        below = {}
        for some in level.values():
            kinds = set(map(type, some)) - _NUMBERS
            if any(issubclass(kind, list | tuple | np.ndarray) for kind in kinds):
                for each in some:
                    if isinstance(each, list | tuple):
                        below[id(each)] = each
                    else:
                        check_readable(each, what)
        if not below:
            return
        level = below
    raise TypeError(
        f"{what}: expected a list of at most {_MOST_LEVELS} dimensions, got {show(x)}: does it "
        "hold itself?"
    )


def _seen_as_array(x: Any, what: str, *, receives: bool) -> NDArray[Any]:
    if isinstance(x, list | tuple):
        if receives:
            raise TypeError(f"{what}: expected an ndarray or a buffer to write to, got {show(x)}")
        see: Any = np.array
    elif (view := _buffer(x)) is not None:
        x, see = view, np.asarray
    elif hasattr(x, "__dlpack__"):
        see = _on_the_cpu
    else:
        raise TypeError(f"{what}: expected an ndarray or a buffer, got {show(x)}")
    try:
        return see(x)  # type: ignore[no-any-return]
    except Exception as error:  # of any library
        kind = type(x).__name__
        raise TypeError(
            f"{what}: expected an array of numbers in the memory of the CPU, got a {kind} that "
            f"numpy cannot read: {said(error)}"
        ) from None


def _on_the_cpu(x: Any) -> NDArray[Any]:
    """Return an ndarray on the memory of a tensor; BufferError if the CPU does not address it.

    From a GPU numpy would ask for a copy, which a call would fill in place of the tensor.
    """
    kind, number = x.__dlpack_device__()
    if int(kind) not in _OF_THE_CPU:
        raise BufferError(f"it is in the memory of device {number}, of DLPack's type {int(kind)}")
    return np.from_dlpack(x)


def _buffer(x: Any) -> memoryview | None:
    try:
        return memoryview(x)
    except Exception:  # TypeError, or whatever the object of another library raises
        return None
