"""Files of the benchmark: written in one go, and JSON read back as checked dataclasses."""

from __future__ import annotations

import contextlib
import os
import zlib
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from ..given_files import too_long, without_waiting

__all__ = ["LARGEST", "read_as", "unpacked", "write_whole"]

_CHUNK = 1 << 20

LARGEST = 1 << 63
"""The limit of numbers in a file: all are smaller."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one go, at the target of a link; write to a device or pipe directly."""
    path = Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError for a loop of links
    if path.exists() and not path.is_file():
        with open(path, "wb", opener=without_waiting) as file:  # of a pipe without a reader: ENXIO
            os.set_blocking(file.fileno(), True)
            file.write(data)
        return
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def unpacked(data: bytes, most: int) -> bytes:
    """Return what gzip has packed; data without its mark as they are.

    Raises
    ------
    ValueError
        The data are damaged, or more than `most` bytes come out of them.
    """
    found, length = [], 0
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        while data:
            stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
            while not stream.eof:
                found.append(stream.decompress(data, _CHUNK))
                data = stream.unconsumed_tail
                length += len(found[-1])
                if length > most:
                    raise too_long(most)
                if not (data or found[-1] or stream.eof):
                    raise ValueError("compressed data that end too early")
            data = stream.unused_data.lstrip(b"\0")  # zeros may follow
    except zlib.error as error:
        raise ValueError(f"compressed data that are damaged: {error}") from None
    return b"".join(found)


def read_as(kind: Any, value: Any, where: str) -> Any:
    """Return a value as an object of a type; raise ValueError with the place if it is not one."""
    if kind is Any:
        return value
    if isinstance(kind, UnionType):  # X | None
        some = next(k for k in get_args(kind) if k is not NoneType)
        return None if value is None else read_as(some, value, where)
    if is_dataclass(kind):
        return _read_dataclass(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        if arguments[0] is int:  # millions of them
            if all(type(v) is int for v in value):
                if value and max(max(value), -min(value)) >= LARGEST:
                    raise ValueError(f"{where}: a number that is too long")
                return value
        else:
            return [read_as(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        return {k: read_as(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    elif kind is float and type(value) in (int, float):
        with contextlib.suppress(OverflowError):  # an int of hundreds of digits
            return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{where}: {_shown(value)!r} is no {getattr(kind, '__name__', kind)}")


def _shown(value: Any) -> str:
    try:
        return str(value)[:40]
    except ValueError:  # an int with thousands of digits
        return "a number that is too long"


def _read_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object")
    known = {f.name: f for f in fields(kind)}
    for name in value.keys() - known:
        raise ValueError(f"{where}: {name!r} is not known")
    for name, f in known.items():
        if name not in value and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{where}: {name!r} is missing")
    types = get_type_hints(kind)
    return kind(**{n: read_as(types[n], v, f"{where}.{n}") for n, v in value.items()})
