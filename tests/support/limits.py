"""Limits of memory and time for code that a test gives damaged input."""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

__all__ = ["OutOfTime", "limited"]


class OutOfTime(BaseException):
    """The code ran too long; no handler of errors may hide it."""


@contextlib.contextmanager
def limited(nbytes: int = 1 << 30, cpu: float = 20.0, wait: float = 90.0) -> Iterator[None]:
    """Raise MemoryError beyond so much more memory, OutOfTime after so many seconds.

    Parameters
    ----------
    cpu
        Seconds of processor time, so that the limit holds on a busy machine.
    wait
        Seconds of the clock, which end a sleep or a read.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(signal.Signals(number).name)

    main = threading.main_thread().ident
    assert main is not None
    late = threading.Timer(wait, signal.pthread_kill, (main, signal.SIGVTALRM))
    late.daemon = True
    before = [(n, signal.signal(n, stop)) for n in (signal.SIGPROF, signal.SIGVTALRM)]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    late.start()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + nbytes, hard))
    signal.setitimer(signal.ITIMER_PROF, cpu)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        late.cancel()
        for number, handler in before:
            signal.signal(number, handler)
