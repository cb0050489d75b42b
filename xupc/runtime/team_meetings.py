"""Barriers in which the threads of a team compare their calls, and errors of arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from ..backends.operand_binding import BoundOperand
from ..backends.wait import Waitable
from ..errors import HeapError, show
from ..fingerprint import fingerprint
from ..health.call_record import LIBRARY_BARRIER, CallRecord
from ..plan.plan import Plan, barrier_plan
from ..tuning.selection import Table
from .async_queue import AsyncCall
from .executor import RunningCall
from .job_state import JobState
from .team_records import RUN_AHEAD, TeamRecords

_ERROR = fingerprint("error")

__all__ = ["TeamMeetings"]


class TeamMeetings(TeamRecords):
    """A team whose threads meet in barriers to compare calls."""

    queue: deque[AsyncCall]

    def __init__(self, job: JobState, table: Table, threads: Sequence[int], *, world: bool) -> None:
        super().__init__(job, table, threads, world=world)
        self._barriers: dict[tuple[str, bool], RunningCall] = {}

    def make(
        self, plan: Plan, bounds: Sequence[BoundOperand], signature: int, record: CallRecord
    ) -> RunningCall:
        """Return an instance of a plan bound to operands."""
        raise NotImplementedError

    def _post_instances(self, calls: Iterable[RunningCall | Waitable], record: CallRecord) -> None:
        """Put a call that consists of these instances into the queue."""
        raise NotImplementedError

    def _drive(self, instance: RunningCall) -> None:
        """Run an instance, also if calls differ."""
        raise NotImplementedError

    def enter(self, call: str, *, posted: bool = False) -> None:
        """Prepare for a call on this team."""
        raise NotImplementedError

    def forget_plans(self) -> None:
        """Drop cached plans: they hold addresses of freed memory, whose offsets may be reused."""
        self._plans.clear()
        self._programs.clear()
        self.instances.clear()
        self._barriers.clear()

    def meeting(self, signature: int, record: CallRecord) -> RunningCall:
        """Return the instance of a barrier in which all threads must have the same signature."""
        plan = self._plans.get("barrier", lambda: barrier_plan(self.rank, self.size))
        return self.make(plan, [], signature, record)

    def meet(self, signature: int, record: CallRecord) -> None:
        """Run a barrier in which all threads must have the same signature."""
        self.meeting(signature, record).execute()

    def _barrier(self, name: str, value: object) -> RunningCall:
        """Return the instance of a barrier, cached by name; its value is sent beside it."""
        instance = self._barriers.get((name, value is None))
        if instance is None or value is not None:
            title = f"{name}()" if value is None else ""
            record = CallRecord(name, [("value", show(value))], title)
            instance = self.meeting(fingerprint(name), record)
            self._barriers[name, value is None] = instance
        return instance

    def _value_hash(self, value: object, call: str) -> int:
        """Return the hash of a barrier's value; collective TypeError for other types."""
        try:
            if value is None:
                return 0
            if isinstance(value, str):
                return fingerprint("value", repr(str(value))) | 1
            return fingerprint("value", hex(value)) | 1  # type: ignore[arg-type]  # else a TypeError
        except Exception as e:
            error = TypeError(f"{call}: value: expected an int or a str, got {show(value)}")
            error.__cause__ = e
            self.fail(error, CallRecord(call))
            raise

    @property
    def plain_barrier(self) -> RunningCall:
        """Instance of a barrier without a value."""
        return self._barriers["barrier", True]

    def fail(
        self,
        error: BaseException,
        record: CallRecord,
        synchronising: bool = True,
        *,
        posted: bool = False,
    ) -> NoReturn:
        """Raise the error of a call with a bad argument, so that no other thread hangs.

        If the call synchronises, all threads meet. If each has an error, each raises its own,
        else the others raise CollectiveMismatchError.
        """
        record.error = error
        record.shared_error = isinstance(error, HeapError)
        try:
            self._meet_failed(record, synchronising, posted=posted)
            raise error
        finally:
            record.settle()

    def _meet_failed(self, record: CallRecord, synchronising: bool, *, posted: bool) -> None:
        if not (self.size > 1 and synchronising):
            self.note(_ERROR, record)
            return
        instance = self.meeting(_ERROR, record)
        if posted or self.queue:  # this thread raises its own error in any case
            self._post_instances([instance], record)
        else:
            self._drive(instance)

    def note(self, signature: int, record: CallRecord) -> None:
        """Add the signature of a call that moves nothing, after the posted calls before it."""

        def nothing() -> Iterator[RunningCall]:
            self.core.mix(signature)
            self._noted.append((self.core.op, self.core.fp, record))
            yield from ()

        if not self.queue:
            next(nothing(), None)
        else:
            self._post_instances(nothing(), record)

    def catch_up(self) -> None:
        """Run a barrier after many calls without one."""
        self._barrier(LIBRARY_BARRIER, None).execute()

    @property
    def ahead_of_requests(self) -> RunningCall:
        """Instance of the barrier that `catch_up` runs, for calls in the background."""
        record = CallRecord(LIBRARY_BARRIER, [("value", "None")], f"{LIBRARY_BARRIER}()")
        return self.meeting(fingerprint(LIBRARY_BARRIER), record)

    def ahead(self) -> RunningCall | None:
        """Return the barrier that must precede the next call, after many without one, or None."""
        return self._barrier(LIBRARY_BARRIER, None) if self.core.unsynced >= RUN_AHEAD else None

    def barrier(self, value: object = None) -> None:
        """Implement `Team.barrier`."""
        self.enter("barrier")
        number = self._value_hash(value, "barrier")
        instance = self._barrier("barrier", value)
        self.core.set_value(number)
        instance.execute()
