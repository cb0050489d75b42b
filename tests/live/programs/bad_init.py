"""Call init with invalid arguments and variables, then with valid ones. No arguments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_values import BAD, Evil, is_evil
from mpi4py import MPI
from support.checked_calls import Usable, done

import xupc

PLAIN = int, float, str, bool
MORE: dict[str, list[str]] = {
    "XUPC_HEAP_SIZE": ["-1", "0", "nan", "64 elephants", "9" * 400 + "GiB", "1e9", "65TiB"],
    "XUPC_TIMEOUT": ["-1", "0", "nan", "soon", "1h", "-inf"],
    "XUPC_NODES": ["0x0", "x", "1,", "9x9", "cyclic:0", "cyclic:9", "-1,3", "\u0662x\u0661"],
    "XUPC_ENGINE": ["pyhton", "1", "native,python", " "],
    "XUPC_SHM_DIR": ["/nonexistent", "/proc", "/dev/null", "relative/nowhere", "/dev/shm\n"],
    "XUPC_TUNING": ["/nonexistent", "/", "/dev/zero", "/dev/stdin", "/proc/self/mem", "x" * 5000],
}


def refused(what: str, evil: bool = False, **arguments: Any) -> bool:
    """Call init; return whether it raised an error, which must be a documented one."""
    try:
        xupc.init(**{"timeout": 30, **arguments})
    except (TypeError, ValueError, xupc.HeapError):
        return True
    except Evil:
        assert evil, what
        return True
    except BaseException as e:
        raise AssertionError(f"{what}: {type(e).__name__} is not documented") from e
    return False


def main() -> None:
    count = 0
    for variable, values in MORE.items():
        for value in values:
            os.environ[variable] = value
            assert refused(f"{variable}={value!r}", timeout=None), f"{variable}={value!r}"
            del os.environ[variable]
            count += 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tuning.toml")
        for data in (b"", b"\xff\xfe", b"version = 2", b"[" * 9999, b"version = 1\nx = 1"):
            path.write_bytes(data)
            os.environ["XUPC_TUNING"] = str(path)
            assert refused(f"a table of {data[:20]!r}"), data[:20]
            count += 1
        del os.environ["XUPC_TUNING"]
    for name in ("comm", "heap_size", "nodes", "timeout"):
        for text, make in BAD.items():
            try:
                value = make(None)  # type: ignore[arg-type]
            except AttributeError:
                continue  # what needs a job
            if value is None or (type(value) is str and not value.strip()) or GOOD[name](value):
                continue
            what = f"init({name}: {text})"
            if not refused(what, evil=is_evil(value), **{name: value}):
                assert name in ("heap_size", "timeout") and type(value) not in PLAIN, what
                xupc.finalize()  # it can be a number
            count += 1
    assert refused("a freed communicator", comm=MPI.COMM_NULL)
    xupc.init(timeout=30)
    Usable()("bad ones")
    done(count)


def _fits(value: Any) -> bool:
    """Return whether it is the size in bytes of a heap that there is room for."""
    return (type(value) is int and 0 < value < 1 << 34) or (
        type(value) is str and value.isdigit()
    )


def _is_time(value: Any) -> bool:
    """Return whether it is a number of seconds."""
    return type(value) in (int, float, str) and _number(value) > 0


def _number(value: float | str) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return 0.0


GOOD: dict[str, Callable[[Any], bool]] = {
    "comm": lambda value: issubclass(type(value), MPI.Intracomm),
    "heap_size": _fits,
    "nodes": lambda value: False,
    "timeout": _is_time,
}


main()
