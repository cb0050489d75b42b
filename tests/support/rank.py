"""One thread of a pool: run the programs that tests send, one after the other, in one process.

Started by `pool.py`, as one of the processes of an MPI job. A program sees what it would see in a
process of its own: ``__main__``, arguments, environment, output, exit functions, its own modules.
It ends like a process, too: a program that fails ends this one, with the same output and status.

After each program, what it changed in the process is put back. What cannot be put back is reported
as *damage*: the pool then replaces the job. What xupc should have given back is reported as *left*:
the test fails.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import ctypes
import faulthandler
import gc
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
OURS = re.compile(r"/dev/shm/(xupc|#)|memfd:xupc")
LASTING = "xupc-deadline"  # a thread of Python's that xupc starts once in a process
WARNING = 30  # of logging
ENDING = 10.0  # the most seconds that threads of a program have to end after it
FREED = 4  # communicators of a program that are looked at for messages that stayed
WATCHED = ("builtins", "ctypes", "mpi4py.MPI", "numpy", "os", "secrets", "signal", "socket", "sys",
           "threading", "time")  # fmt: skip
# What init and finalize change in xupc's modules as they should.
STATE = {
    "xupc": {"THREADS", "MYTHREAD", "__getattr__"},
    "xupc.api.job_end": {"_hooked"},
    "xupc.backends.native.native_core": {"_invalidations"},
    "xupc.health.crossed_calls": {"_source"},  # set once, at the first team of a communicator
    "xupc.health.init_watchdog": {"_thread"},  # LASTING
    "xupc.mpi.record": {"_key", "_rank"},  # made once, at the first call of a communicator
    "xupc.runtime.current": {"failed", "finalized", "halfway", "team"},
}
CHANGES = {"argv", "displayhook", "excepthook", "flags", "last_exc", "last_traceback", "last_type",
           "last_value", "modules", "path", "path_importer_cache", "stderr", "stdin", "stdout",
           "threading_excepthook", "unraisablehook"}  # of sys: put back, or harmless  # fmt: skip


class Exits:
    """The exit functions of one program: what it registers with atexit."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., object], Any, Any]] = []

    def register(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stand in for `atexit.register`."""
        self._calls.append((function, args, kwargs))
        return function

    def unregister(self, function: Callable[..., object]) -> None:
        """Stand in for `atexit.unregister`."""
        self._calls = [call for call in self._calls if call[0] != function]

    def run(self) -> None:
        """Call them, the last one first, as the end of a process does."""
        while self._calls:
            function, args, kwargs = self._calls.pop()
            try:
                function(*args, **kwargs)
            except BaseException:
                traceback.print_exc()


class Setting:
    """What a program may change in a process, as it was before."""

    def __init__(self) -> None:
        self.cwd, self.environ = Path.cwd(), dict(os.environ)
        self.path, self.modules = list(sys.path), set(sys.modules)
        self.main = sys.modules["__main__"]
        self.streams = sys.stdin, sys.stdout, sys.stderr
        self.hooks = sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook
        self.loggers = {
            name: (x.level, list(x.handlers), x.propagate, x.disabled) for name, x in _loggers()
        }
        self.filters = list(warnings.filters)
        self.show = warnings.showwarning
        self.handlers = {number: _handler(number) for number in signal.valid_signals()}
        self.limits = gc.get_threshold(), sys.getswitchinterval(), sys.getrecursionlimit()
        self.umask = _umask()

    def restore(self) -> None:
        """Put it all back, and give up what the program had."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self.handlers.items():
            if handler is not None and _handler(number) is not handler:
                signal.signal(number, handler)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook = self.hooks
        sys.settrace(None)
        sys.setprofile(None)
        os.chdir(self.cwd)
        os.umask(self.umask)
        self._restore_environment()
        self._restore_logging()
        self._restore_warnings()
        gc.enable()
        gc.set_threshold(*self.limits[0])
        sys.setswitchinterval(self.limits[1])
        sys.setrecursionlimit(self.limits[2])
        self._drop_modules()

    def _restore_environment(self) -> None:
        for name in set(os.environ) - set(self.environ):
            del os.environ[name]
        os.environ.update(self.environ)

    def _restore_logging(self) -> None:
        """Take away what the program had set of loggers: the next one would print more."""
        for name, logger in _loggers():
            level, handlers, logger.propagate, logger.disabled = self.loggers.get(
                name, (WARNING if name == "root" else 0, [], True, False)
            )
            logger.handlers[:] = handlers
            logger.setLevel(level)

    def _restore_warnings(self) -> None:
        warnings.filters[:] = self.filters  # type: ignore[index]
        warnings.showwarning = self.show
        warnings.simplefilter("default")  # has Python notice the change
        del warnings.filters[0]  # type: ignore[attr-defined]
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict):
                names.pop("__warningregistry__", None)

    def _drop_modules(self) -> None:
        """Forget the program's modules and variants: the next one has its own."""
        registry = sys.modules["xupc.algorithms.registry"]
        for variant in [v for e in registry._REGISTRY.values() for v in e.variants if v.own]:
            registry.unregister(variant)
        sys.path[:] = self.path
        sys.modules["__main__"] = self.main
        ours = []  # a folder inside another looks for it in sys.modules
        for name in set(sys.modules) - self.modules:
            module = sys.modules[name]  # a folder of modules has no file, and holds on to them
            file = getattr(module, "__file__", None) or next(iter(_folders(module)), None)
            if file and _of_a_program(Path(file)):
                ours.append(name)
        for name in ours:
            del sys.modules[name]
        self.modules = set(sys.modules)
        sys.path_importer_cache.clear()


def _loggers() -> list[tuple[str, Any]]:
    """Return all loggers by name, if there are any: the next program may not need `logging`."""
    logging = sys.modules.get("logging")
    if logging is None:
        return []
    return [(name, logging.getLogger(name)) for name in ("root", *logging.root.manager.loggerDict)]


def _handler(number: int) -> Any:
    with contextlib.suppress(ValueError):
        return signal.getsignal(number)
    return None


def _umask() -> int:
    before = os.umask(0o22)
    os.umask(before)
    return before


def _folders(module: types.ModuleType) -> list[str]:
    return list(getattr(module, "__path__", ()))


def _of_a_program(file: Path) -> bool:
    """Whether a module lies beside programs: not in xupc, not among installed packages."""
    if not file.is_relative_to(PROJECT):
        return not any(file.is_relative_to(prefix) for prefix in {sys.prefix, sys.base_prefix})
    return file.relative_to(PROJECT).parts[0] in ("benchmarks", "examples", "tests")


class Contents:
    """The functions, classes and values in xupc's modules and some others: what programs patch."""

    def __init__(self) -> None:
        self.kept = {(name, what): dict(of) for name, what, of in self._spaces()}

    @staticmethod
    def _spaces() -> Iterator[tuple[str, str, Any]]:
        for name, module in list(sys.modules.items()):
            if module is None or not (name in WATCHED or name.partition(".")[0] == "xupc"):
                continue
            yield name, "", vars(module)
            if name.startswith("xupc"):
                for what, thing in list(vars(module).items()):
                    if isinstance(thing, type) and thing.__module__ == name:
                        yield name, what, vars(thing)

    def changes(self) -> list[str]:
        """Name what is not as it was."""
        found = []
        for name, what, of in self._spaces():
            before = self.kept.get((name, what))
            if before is not None:
                known = STATE.get(name, CHANGES if name == "sys" else set())
                found += [
                    f"{'.'.join(filter(None, (name, what, key)))} is another object"
                    for key, value in before.items()
                    if key not in known and of.get(key) is not value and not _plain(key, value)
                ]
        return found


def _plain(key: str, value: object) -> bool:
    """Return whether this is bookkeeping of Python's."""
    return key.startswith("__") or isinstance(value, types.ModuleType)


def _open_files() -> set[str]:
    """Descriptors of xupc's files, and sockets and all else that is not MPI's."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"descriptor {entry}: {os.readlink(f'/proc/self/fd/{entry}')}")
    return found


def _mappings() -> dict[str, int]:
    """Bytes mapped of each file of xupc's."""
    found: dict[str, int] = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            if OURS.search(line):
                ends, _, rest = line.partition(" ")
                low, high = (int(word, 16) for word in ends.split("-"))
                file = rest.split(maxsplit=4)[4].strip()
                found[file] = found.get(file, 0) + high - low
    return found


class Held:
    """What xupc holds, before a program; after it, nothing more may be held."""

    def __init__(self) -> None:
        self.threads = set(threading.enumerate())
        self.files, self.mapped = _open_files(), _mappings()

    def _new_threads(self) -> set[threading.Thread]:
        return {t for t in set(threading.enumerate()) - self.threads if t.name != LASTING}

    def wait_for_threads(self, *, daemons: bool) -> None:
        """Wait for a program's threads: without limit for those that a process waits for."""
        deadline = time.monotonic() + ENDING
        for thread in self._new_threads():
            if not thread.daemon:
                thread.join()
            elif daemons:
                thread.join(max(0.0, deadline - time.monotonic()))

    def left(self) -> list[str]:
        """Name what has not been given back by xupc."""
        names = [t.name for t in self._new_threads()]
        found = [f"thread {name}" for name in names if name.startswith("xupc")]
        current = sys.modules.get("xupc.runtime.current")
        if current is not None and (current.team or current.halfway) is not None:
            found.append("xupc is not finalized")
        found += [f for f in sorted(_open_files() - self.files) if OURS.search(f)]
        found += [
            f"{nbytes} bytes mapped of {file}"
            for file, nbytes in _mappings().items()
            if nbytes > self.mapped.get(file, 0)
        ]
        return found

    def damage(self) -> list[str]:
        """Name what a program of its own has left: no fault, but the next one should not see it."""
        names = {t.name for t in self._new_threads()}
        found = [f"thread {name}" for name in names if not name.startswith("xupc")]
        now = _open_files() - self.files
        return found + sorted(f for f in now if not OURS.search(f) and "/dev/shm/" not in f)


class Guards:
    """The bytes behind each allocation of this thread, up to where another one may begin.

    They are zero, since no call has to write there. They are looked at when an allocation ends,
    and at the end of a heap; each is on the last page of its allocation, so a look takes no memory.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []

    def install(self, heap: types.ModuleType) -> None:
        """Have all heaps of this process look at them."""
        kind: Any = heap.Heap
        drop, retire_all = kind.drop, kind.retire_all

        def drop_checked(self: Any, offset: int, nbytes: int) -> None:
            look(self, offset, nbytes)
            drop(self, offset, nbytes)

        def retire_all_checked(self: Any) -> None:
            for piece in self._live.values():
                allocation = piece.known()
                if allocation is not None:
                    look(self, allocation.offset, allocation.part(self.me)[1])
            for allocation in self._mine.values():
                look(self, allocation.offset, allocation.nbytes)
            retire_all(self)

        def look(of: Any, offset: int, nbytes: int) -> None:
            rest = -nbytes % heap.ALIGN
            s = of.segment_of(offset)
            at = of.local * s.size + offset - s.start + nbytes
            if rest and nbytes and s.segment.array[at : at + rest].any():
                self.broken.append(f"bytes behind the {nbytes} at offset {offset} were written to")

        kind.drop, kind.retire_all = drop_checked, retire_all_checked

    def taken(self) -> list[str]:
        """Return what was found since the last time."""
        found, self.broken = self.broken, []
        return found


class Rank:
    """This process, from its first program to its last one."""

    def __init__(self, connection: socket.socket, number: int, guards: Guards) -> None:
        self.connection = connection
        self.guards = guards
        self.number = number
        self.lines = connection.makefile("r", encoding="utf-8")
        self.setting = Setting()
        self.libc = ctypes.CDLL(None)

    def serve(self) -> None:
        """Run one program for each line that comes, until the other end closes."""
        for line in self.lines:
            reply = self.run(json.loads(line))
            self.connection.sendall(json.dumps(reply).encode() + b"\n")

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a program; return what became of it, unless it ends this process."""
        held, contents = Held(), Contents()
        with self._output(request["stdout"], request["stderr"]):
            with open(f"{request['stacks']}.{self.number}", "w") as stacks:
                faulthandler.dump_traceback_later(request["patience"], file=stacks)
                status = self._as_a_process(request, held)
                faulthandler.cancel_dump_traceback_later()
            if status:
                self._flush()
                os._exit(status)
            _forget_communicators()
        changed = contents.changes()
        del contents
        self.setting.restore()
        gc.collect()
        gc.collect()  # what finalizers have dropped
        from support.spare_communicators import messages_left  # MPI has started

        left = [*self.guards.taken(), *held.left(), *messages_left(FREED)]
        return {"left": left, "damage": [*changed, *held.damage()]}

    def _as_a_process(self, request: dict[str, Any], held: Held) -> int:
        os.environ.update(request["environment"])
        for name in request["without"]:
            os.environ.pop(name, None)
        _forget_hooks()
        exits = Exits()
        register, unregister = atexit.register, atexit.unregister
        atexit.register, atexit.unregister = exits.register, exits.unregister  # type: ignore[assignment]
        try:
            status = contextvars.copy_context().run(_execute, request["file"], request["args"])
            held.wait_for_threads(daemons=False)
            exits.run()
            held.wait_for_threads(daemons=True)
            return status
        finally:
            atexit.register, atexit.unregister = register, unregister

    @contextlib.contextmanager
    def _output(self, out: str, err: str) -> Iterator[None]:
        """Have descriptors 1 and 2 write to these files, whose lines all ranks append to."""
        kept = os.dup(1), os.dup(2)
        for number, path in ((1, out), (2, err)):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(fd, number)
            os.close(fd)
        try:
            yield
        finally:
            self._flush()
            for number, fd in zip((1, 2), kept, strict=True):
                os.dup2(fd, number)
                os.close(fd)

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        self.libc.fflush(None)


def _execute(file: str, args: list[str]) -> int:
    """Run a file as ``__main__``; the exit status."""
    main = types.ModuleType("__main__")
    main.__file__ = file
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.argv = [file, *args]
    sys.path[0] = str(Path(file).parent)
    try:
        exec(_code_of(file), vars(main))
    except SystemExit as e:
        return _status(e)
    except BaseException as e:
        sys.excepthook(type(e), e, e.__traceback__ and e.__traceback__.tb_next)
        return 130 if isinstance(e, KeyboardInterrupt) else 1
    return 0


def _code_of(file: str) -> types.CodeType:
    """Return a program's code; the project's own come from bytecode: they run many times."""
    if not Path(file).is_relative_to(PROJECT):
        return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    code = SourceFileLoader("__main__", file).get_code("__main__")
    assert code is not None
    return code


def _status(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def _forget_hooks() -> None:
    """Have the next init install xupc's exit function again, as the first of a process does."""
    if "xupc.api.job_end" in sys.modules:
        sys.modules["xupc.api.job_end"]._hooked = False  # type: ignore[attr-defined]
        current = sys.modules["xupc.runtime.current"]
        current.failed = current.halfway = None  # type: ignore[attr-defined]
        current.finalized = False  # type: ignore[attr-defined]


def _forget_communicators() -> None:
    """Drop what `xupc.Comm` has noted of calls: a program need not free its communicators."""
    record: Any = sys.modules.get("xupc.mpi.record")
    if record is None or not record._open:
        return
    for noted in list(record._open):
        noted.give_to_mpi("the program is over")
        noted.topology = None
        noted.forget()
    record._open.clear()
    world = record.constants.plain()
    if world.Get_attr(record._key) is not None:
        world.Delete_attr(record._key)


def main() -> None:
    """Start MPI, say which rank this is, and serve."""
    address = os.environ.pop("XUPC_TEST_RANK_SOCKET")
    from support import connections

    rank = connections.connect_all()
    import xupc
    from xupc.pgas import heap

    xupc._load_all()  # the collections after each program leave out what is loaded here
    gc.collect()
    gc.freeze()
    guards = Guards()
    guards.install(heap)
    weakref.finalize(main, int)  # has weakref register its exit function before any program does
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps({"rank": rank, "pid": os.getpid()}).encode() + b"\n")
        Rank(connection, rank, guards).serve()


if __name__ == "__main__":
    main()
