"""The last calls of a team and errors of user's functions, for comparisons among threads."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from functools import partial

from ..backends.protocol import TeamCore
from ..errors import XupcError
from ..fingerprint import fingerprint
from ..health.call_record import CallRecord
from ..health.program_methods import ProgramMethods
from ..health.thread_ranges import range_text, ranges
from ..plan.steps import SLOTS
from ..tuning.selection import Table
from .job_state import JobState
from .team_plans import TeamPlans

RUN_AHEAD = 32
LAST_CALLS = RUN_AHEAD + 8  # a posted call may consist of several instances

__all__ = [
    "RUN_AHEAD",
    "TeamRecords",
]


class TeamRecords(TeamPlans):
    """A team that keeps records of its last calls."""

    job: JobState
    core: TeamCore
    number: int

    def __init__(self, job: JobState, table: Table, threads: Sequence[int], *, world: bool) -> None:
        super().__init__(job, table, threads, world=world)
        self._is_world = world
        self._name: str | None = None
        self._titles: dict[str, int] = {}
        self.methods = ProgramMethods()
        self._failure: tuple[BaseException, str] | None = None  # of a user's function
        # calls without a number
        self._noted: deque[tuple[int, int, CallRecord]] = deque(maxlen=SLOTS)

    def function_failed(self, error: Exception, call: str) -> None:
        """Note an error of a user's function; all threads raise when they next meet."""
        if self._failure is None:
            if isinstance(error, StopIteration):  # it would end a generator that it passes
                cause, error = error, RuntimeError(f"the function of {call} raised {error!r}")
                error.__cause__ = cause
            with contextlib.suppress(Exception):  # some errors take no note
                error.add_note(f"raised by the function of {call} on thread {self.rank}")
            self._failure = error, call
            # a different number on each thread: all may have failed equally
            self.core.spoil(fingerprint("function", self.rank))

    def raise_failure(self) -> None:
        """Raise the error of a user's function on a team of one thread, and forget it.

        No other thread's fingerprint is compared with this one's, which may stay as it is.
        """
        if self._failure is not None:
            error, self._failure = self._failure[0], None
            raise self.job.agree(error)

    def account(self, record: CallRecord, op: int) -> CallRecord:
        """Return the record of this thread's call for a comparison among all threads."""
        if self._failure is None:
            record = self.methods.named(record, op)
            place = self.core.unread
            if place is not None:
                owner = int(self.job.info.tree.members(self.job.info.node)[place])
                record = record.with_more([])
                record.error = XupcError(
                    f"thread {self.job.info.me} can no longer copy between its array and that of "
                    f"thread {owner}: was one of them unmapped, or mapped anew?"
                )
                record.shared_error = True
            return record
        error, call = self._failure
        self._failure = None
        # methods of the error may be the user's
        return self.job.calling_out.run(partial(CallRecord.of_function, call, error))

    def last_calls(self, last: int) -> list[tuple[int, int, CallRecord]]:
        """Return (operation, fingerprint after it, record) of the last calls up to `last`.

        These are at least all calls since the threads of the team last met. A call that moved
        nothing has the number of the call before it.
        """
        core = self.core
        every = range(max(core.since, last - LAST_CALLS) + 1, last + 1)
        known = [(op, core.fp_after(op), core.record_of(op)) for op in every]
        named = self.methods.named
        calls = [(op, fp, record and named(record, op)) for op, fp, record in known]
        calls += [note for note in self._noted if calls[0][0] <= note[0] <= last]
        return sorted(calls, key=lambda call: call[0])

    @property
    def known_as(self) -> str:
        """The name of the team in messages, the same on all its threads; "" for the world."""
        if self._name is None:
            of = range_text(ranges(self.threads), most=8)
            self._name = "" if self._is_world else f"team {self.number} (threads {of})"
        return self._name

    def call_it(self, name: str) -> None:
        """Set the name of the team in messages; "": it has all threads."""
        self._name = name

    def titled(self, call: str) -> str:
        """Return the text of a call with the name of the team."""
        return f"{call} of {self.known_as}" if self.known_as else call

    def _call_number(self, title: str) -> int:
        """Return the number of the published text of a kind of call."""
        number = self._titles.get(title)
        if number is None:
            number = self.job.control.note(self.titled(title))
            if len(self._titles) < 4096:
                self._titles[title] = number
        return number
