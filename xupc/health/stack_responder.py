"""The part of a thread in stack reports, which show where all threads are.

The daemon thread of the failure detector calls `StackResponder.turn` four times a second, and more
often during a report. There it does this:

1. When the threads of this machine are queried, it answers with the Python line of the program,
   which it can read as long as the interpreter runs.
2. On the machine's lowest thread it forwards a query to other machines, or theirs to the threads
   of this one, and sends the answers to all machines.
3. It prints the report when this thread got SIGUSR2, or in place of a thread that got it and does
   not print.

A thread that raises HangError starts a query itself (`report`).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..backends.native.native_core import core
from ..pgas.segment import drop_lock, try_lock
from ..topology.job_info import JobInfo
from .control_segment import Control
from .stack_report import Gathering, line_of, merge, pack, report_text, unpack

if TYPE_CHECKING:
    from .failure_tree import FailureTree

__all__ = ["StackResponder"]

SIGNAL = signal.SIGUSR2
PRINT_BYTE = (1 << 40) + 2  # of the control segment: locked by the thread that prints
KEEP_BYTE = PRINT_BYTE + 1  # locked by the thread that stores the answers of the machine
IN_PLACE_OF_OTHERS = 2_000_000_000  # ns after which a report is printed for another thread
OLD = 10_000_000_000  # ns after which a report has nothing to do with a hang
TITLE = "where the threads are:"


class RespondingJob(Protocol):
    """The part of the job that `StackResponder` uses."""

    info: JobInfo

    @property
    def control(self) -> Control:
        """Control segment of the machine."""

    @property
    def lifeline(self) -> FailureTree | None:
        """Failure tree of the machines, on their lowest threads."""


class StackResponder:
    """Answers queries, forwards them, and prints reports.

    The thread that runs the program must construct it, since it reports that thread's line.
    """

    def __init__(self, job: RespondingJob) -> None:
        self.control = job.control
        self.lifeline = job.lifeline
        self._program = threading.get_ident()
        self._answered = 0  # last query that this thread has answered
        self._relayed = 0  # last query that was sent to other machines
        self._open: Gathering | None = None  # for the other machines
        self._printing: Gathering | None = None
        self._native = core is not None and job.info.native
        self._listens = self._listen()
        if self.lifeline is not None:
            self.lifeline.asked = self._asked_from_afar
            self.lifeline.places = self._heard_from_afar

    # -- the signal ----------------------------------------------------------------------
    def _listen(self) -> bool:
        """Handle SIGUSR2 unless the program has a handler; return True if it is handled."""
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
        """Restore the default handler of the signal, if this object has replaced it."""
        if self._native and self._listens:
            core.leave(SIGNAL)
        with contextlib.suppress(ValueError):
            if signal.getsignal(SIGNAL) == self._on_signal:
                signal.signal(SIGNAL, signal.SIG_DFL)

    # -- in the guard's daemon thread ----------------------------------------------------
    @property
    def busy(self) -> bool:
        """True while this thread waits for answers."""
        return self._open is not None or self._printing is not None

    def turn(self) -> None:
        """Answer, forward and print what is due, without waiting."""
        asked = self.control.asked
        if asked > self._answered:
            self._answered = asked
            self.control.answer(*self._here())
        if self.lifeline is not None:
            self._relay(asked)
        self._print()

    def line(self) -> str:
        """Return the Python line of this thread."""
        return self._here()[0]

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
            self.lifeline.send_places(self.control.machine, rows)

    def _asked_from_afar(self) -> None:
        """Start a query of this machine for another one."""
        self._open = Gathering(self.control)
        self._relayed = self._open.asked

    def _heard_from_afar(self, machine: int, rows: object) -> None:
        """Store the answers of another machine."""
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
        """Return True if this thread got the signal, or one that got it has not printed since."""
        wanted, printed = self.control.wanted(), self.control.printed
        if wanted[self.control.index] > printed:
            return True
        latest = int(wanted.max())
        return latest > printed and time.monotonic_ns() - latest > IN_PLACE_OF_OTHERS

    def report_for_others(self) -> str:
        """Return what `report` returns, in the daemon thread: it also answers meanwhile."""
        gathering = Gathering(self.control)
        while not gathering.there:
            self.turn()
            if self.lifeline is not None:
                self.lifeline.turn(0.01)
            else:
                time.sleep(0.01)
        self._keep(gathering)
        return f"{TITLE}\n{report_text(gathering.groups())}"

    # -- in the program's thread ---------------------------------------------------------
    def report(self) -> str:
        """Ask all threads, wait for their answers, return them grouped; takes up to 2.5 s."""
        gathering = Gathering(self.control)
        gathering.wait()
        groups = gathering.groups()
        if self.control.trouble() is not None:  # another thread was faster, and the job ends
            return self.last_report()
        self._keep(gathering)
        return f"{TITLE}\n{report_text(groups)}"

    def last_report(self) -> str:
        """Return the report that another thread has just made, without a query."""
        now, control, found = time.monotonic_ns(), self.control, []
        for machine in range(control.machines):
            when, rows = control.places_of(machine)
            if now - when < OLD:
                with contextlib.suppress(ValueError, TypeError):
                    found += unpack(rows)
        return f"{TITLE}\n{report_text(merge(found))}" if found else ""

    def _keep(self, gathering: Gathering) -> Sequence[Sequence[object]]:
        """Store the answers of the machine, unless another thread is storing them."""
        rows, fd = pack(gathering.mine()), self.control.segment.fd
        if try_lock(fd, KEEP_BYTE):
            self.control.write_places(self.control.machine, rows)
            drop_lock(fd, KEEP_BYTE)
        return rows
