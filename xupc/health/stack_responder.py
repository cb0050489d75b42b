"""Answer requests for the positions of the threads, and print them.

The detector's daemon thread calls `StackResponder.turn` four times a second, and more often while
a request is open. It does the following:

1. It answers a request to the threads of this machine with the Python line of the program. It can
   read the line whatever the program does, as long as the interpreter runs.
2. On the machine's lowest thread, it forwards requests to and from other machines, and sends the
   answers of this machine's threads to all machines.
3. It prints the report when this thread received SIGUSR2, or for a thread that received it and
   cannot print.

A thread that raises HangError makes a request itself (`report`).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ..backends.native.native_core import core
from ..pgas.segment import drop_lock, try_lock
from .stack_report import Gathering, line_of, merge, pack, report_text, unpack

if TYPE_CHECKING:
    from ..runtime.job import Job

__all__ = ["StackResponder"]

SIGNAL = signal.SIGUSR2
PRINT_BYTE = (1 << 40) + 2  # of the control segment; its lock: the thread that prints
KEEP_BYTE = PRINT_BYTE + 1  # its lock: the thread that publishes the machine's positions
IN_PLACE_OF_OTHERS = 2_000_000_000  # ns after which a report is printed for another thread
OLD = 10_000_000_000  # ns after which a report is too old for a hang
TITLE = "where the threads are:"


class StackResponder:
    """The part of one process in reports of positions: it answers, forwards and prints.

    The thread that runs the program must make it: the answers hold the Python line of that thread.
    """

    def __init__(self, job: Job) -> None:
        self.control = job.control
        self.lifeline = job.lifeline
        self._program = threading.get_ident()
        self._answered = 0  # the last request that this thread has answered
        self._relayed = 0  # the last request that it has sent to other machines
        self._open: Gathering | None = None  # for the other machines
        self._printing: Gathering | None = None
        self._native = core is not None and job.native
        self._listens = self._listen()
        if self.lifeline is not None:
            self.lifeline.asked = self._asked_from_afar
            self.lifeline.places = self._heard_from_afar

    # -- the signal ----------------------------------------------------------------------
    def _listen(self) -> bool:
        """Handle SIGUSR2 as a request, unless the program has a handler for it."""
        if self._native:
            return bool(core.listen(SIGNAL, self.control.wanted_address))
        with contextlib.suppress(ValueError):  # not in the main thread
            if signal.getsignal(SIGNAL) is signal.SIG_DFL:
                signal.signal(SIGNAL, self._on_signal)
                return True
        return False

    def _on_signal(self, *_: object) -> None:
        self.control.want()

    def close(self) -> None:
        """Restore the handler of the signal."""
        if self._native and self._listens:
            core.leave(SIGNAL)
        with contextlib.suppress(ValueError):
            if signal.getsignal(SIGNAL) == self._on_signal:
                signal.signal(SIGNAL, signal.SIG_DFL)

    # -- in the detector's daemon thread-------------------------------------------------
    @property
    def busy(self) -> bool:
        """Return whether it waits for answers."""
        return self._open is not None or self._printing is not None

    def turn(self) -> None:
        """Answer, forward and print whatever is due, without waiting."""
        asked = self.control.asked
        if asked > self._answered:
            self._answered = asked
            self.control.answer(*self._here())
        if self.lifeline is not None:
            self._relay(asked)
        self._print()

    def _here(self) -> tuple[str, bool]:
        return line_of(sys._current_frames().get(self._program))

    def _relay(self, asked: int) -> None:
        assert self.lifeline is not None
        if asked > self._relayed and self._open is None:
            self._relayed = asked
            self._open = Gathering(self.control, asked)
            self.lifeline.ask_places()
        if self._open is not None and self._open.here:
            rows = self._keep(self._open)
            self._open = None
            self.lifeline.tell_places(self.control.machine, rows)

    def _asked_from_afar(self) -> None:
        """Begin a request for a thread of another machine."""
        self._open = Gathering(self.control)
        self._relayed = self._open.asked

    def _heard_from_afar(self, machine: int, rows: Any) -> None:
        """Publish the positions of another machine's threads."""
        with contextlib.suppress(ValueError, TypeError):
            if 0 <= machine < self.control.machines:
                self.control.write_places(machine, pack(unpack(rows)))

    def _print(self) -> None:
        if self._printing is None:
            if not self._is_mine_to_print() or not try_lock(self.control.segment.fd, PRINT_BYTE):
                return
            if self._is_mine_to_print():
                self._printing = Gathering(self.control)
            else:  # another thread has printed it meanwhile
                drop_lock(self.control.segment.fd, PRINT_BYTE)
        elif self._printing.there:
            text = report_text(self._printing.groups())
            self._printing = None
            with contextlib.suppress(Exception):  # stderr may be closed
                sys.stderr.write(f"xupc: {TITLE}\n{text}\n")
                sys.stderr.flush()
            self.control.print_done(time.monotonic_ns())
            drop_lock(self.control.segment.fd, PRINT_BYTE)

    def _is_mine_to_print(self) -> bool:
        """Return whether this thread received the signal, or must print for one that did."""
        wanted, printed = self.control.wanted(), self.control.printed
        if wanted[self.control.index] > printed:
            return True
        latest = int(wanted.max())
        return latest > printed and time.monotonic_ns() - latest > IN_PLACE_OF_OTHERS

    # -- in the program's thread ---------------------------------------------------------
    def report(self) -> str:
        """Request the positions of all threads and return them grouped; takes up to 2.5 s."""
        gathering = Gathering(self.control)
        gathering.wait()
        groups = gathering.groups()
        if self.control.trouble() is not None:  # another thread raised first, and threads leave
            return self.last_report()
        self._keep(gathering)
        return f"{TITLE}\n{report_text(groups)}"

    def last_report(self) -> str:
        """Return the positions that another thread has just requested; make no request."""
        now, control, found = time.monotonic_ns(), self.control, []
        for machine in range(control.machines):
            when, rows = control.places_of(machine)
            if now - when < OLD:
                with contextlib.suppress(ValueError, TypeError):
                    found += unpack(rows)
        return f"{TITLE}\n{report_text(merge(found))}" if found else ""

    def _keep(self, gathering: Gathering) -> Any:
        """Publish the positions of the machine's threads, unless another thread is doing so."""
        rows, fd = pack(gathering.mine()), self.control.segment.fd
        if try_lock(fd, KEEP_BYTE):
            self.control.write_places(self.control.machine, rows)
            drop_lock(fd, KEEP_BYTE)
        return rows
